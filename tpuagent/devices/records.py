"""What does the agent remember of a function from one pass to the next? Values, and their text in /run.

The memory lasts until the next boot, like the bindings themselves.
"""

from __future__ import annotations

from tpuagent.devices.pci import Address, parse_address
from tpuagent.errors import UsageError
from tpuagent.values import asdict, dataclass

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    Records = Mapping["Address", "Record"]


@dataclass(frozen=True)
class Failure:
    """Why the last attempt on a function failed: the state it left, and the reason."""

    state: str
    reason: str


@dataclass(frozen=True)
class Record:
    """`previous`: the driver that unbind gives the function back to. `released`: an operator wants it left alone."""

    previous: str | None = None
    released: bool = False
    failure: Failure | None = None


def render_records(records: Records) -> str:
    """The text of the file; only functions with something to remember are in it."""
    import json

    kept = {str(address): asdict(record) for address, record in sorted(records.items()) if record != Record()}
    return json.dumps(kept, indent=1) + "\n"


def parse_records(text: str | None) -> dict[Address, Record]:
    """What the file says. A missing or damaged file is an empty memory: it must never stop a pass."""
    if not text:  # as on most hosts: json takes longer to import than eight functions to look at
        return {}
    import json

    try:
        entries = json.loads(text)
        return {parse_address(name): _record(entry) for name, entry in entries.items()}
    except (ValueError, TypeError, AttributeError, KeyError, RecursionError, UsageError):
        return {}


def _record(entry: Mapping[str, object]) -> Record:
    previous, failure = entry["previous"], entry["failure"]
    if not isinstance(previous, str | None) or not isinstance(failure, dict | None):
        raise TypeError
    reason = None if not failure else Failure(str(failure["state"]), str(failure["reason"]))
    return Record(previous, entry["released"] is True, reason)
