"""Is this image, or this running machine, as TPUs need it? What composes the rows of this wing."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from tpuagent.host import Host
from tpuagent.image import booting, leftovers, limiting, loading, software
from tpuagent.image.rows import NOT_CHECKED, UNKNOWN, Row
from tpuagent.values import dataclass


@dataclass(frozen=True)
class Wants:
    """What other parts know and these rows need: ids of generations, what is excluded, if containers run."""

    ids: tuple[str, ...]
    excluded: tuple[str, ...] = ()
    engine_needed: bool = True


def look(host: Host, wants: Wants, *, running: bool, ask: limiting.Ask | None = None) -> tuple[Row, ...]:
    """Every row that files can answer. `running`: the host runs, and is no image; `ask`: what its systemd says."""
    rows: list[Row] = []
    if running:
        rows += gathered("kernel", lambda: booting.check_running(host))
    else:
        rows.append(Row("kernel", "", "not booted", NOT_CHECKED))
    rows += gathered("grub.cfg", lambda: booting.check_grub(host))
    rows += gathered("session limits", lambda: limiting.check_sessions(host))
    rows += gathered("service limits", lambda: limiting.check_services(host, ask if running else None))
    rows += gathered("modules", lambda: loading.check_modules(host, wants.ids, wants.excluded, running=running))
    rows += gathered(
        "software", lambda: software.check_software(host, engine_needed=wants.engine_needed, running=running)
    )
    rows += gathered("stock agents", lambda: software.check_stock(host, running=running))
    rows += gathered("set-up by hand", lambda: leftovers.check_leftovers(host, running=running))
    return tuple(rows)


def gathered(what: str, rows: Callable[[], Iterator[Row]]) -> list[Row]:
    """The rows, up to the first thing that could not be read; that is then a row too."""
    found: list[Row] = []
    try:
        for row in rows():
            found.append(row)  # noqa: PERF402  (what came before the error stays)
    except OSError as fault:
        why = f"cannot read {fault.filename}: {(fault.strerror or '').lower()}"
        mend = "sudo tpuagent check" if isinstance(fault, PermissionError) else ""
        found.append(Row(what, "", why, UNKNOWN, mend))
    return found
