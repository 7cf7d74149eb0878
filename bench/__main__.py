"""How fast is the agent beside the documented hook, raw sysfs writes and a bare interpreter? `python -m bench`.

Boots one guest with eight chips and the package, measures everything in it in one run, and prints one table. Seconds
are those of an emulated processor on a machine that others may use as well: ratios are what the table is for. Ends
with 1 when a promise is broken.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from tests.vm import image
from tests.vm.agent import await_ready
from tests.vm.guest import Guest
from tests.vm.machine import EIGHT_CHIPS, Machine
from tests.vm.progress import say_on_stderr, timed
from tests.vm.recipe import DISTRIBUTIONS

HERE = Path(__file__).parent
REMOTE = "/root/bench"
MEASURE_LIMIT_S = 1200
# A round of starts takes a quarter of a second, one of commands many: enough of each for a median, and minutes in all.
ROUNDS = {"boot": 1, "passes": 20, "commands": 12, "starts": 40}
MOST_OF_HOOK, MOST_OF_RAW, MOST_OF_PYTHON = 0.4, 2.0, 2.5
MIB = 1 << 20
# Not on Google, as far as the agent can see: it would look for a metadata server all the time that it is measured.
MACHINE = Machine(EIGHT_CHIPS, google=False)

Row = tuple[str, str, str, str, str, str]
HEADINGS: Row = ("", "agent", "beside it", "ratio", "limit", "verdict")


@dataclass(frozen=True)
class Promise:
    """What was measured in pairs, and the ratio that its median may reach."""

    what: str
    ours: Sequence[float]
    others: Sequence[float]
    other: str
    limit: float

    @property
    def ratios(self) -> list[float]:
        """One for each round: whatever slows the machine slows both halves of a round."""
        return [ours / others for ours, others in zip(self.ours, self.others, strict=True)]

    @property
    def kept(self) -> bool:
        return median(self.ratios) <= self.limit

    def row(self) -> Row:
        verdict = "kept" if self.kept else "BROKEN"
        others = f"{self.other} {in_ms(self.others)}"
        return (self.what, in_ms(self.ours), others, spread(self.ratios, ".2f"), f"{self.limit:g}", verdict)


def spread(values: Sequence[float], form: str) -> str:
    """The median, and between parentheses the least and the most."""
    least, most = format(min(values), form), format(max(values), form)
    return f"{median(values):{form}} ({least}–{most})"  # noqa: RUF001  (a range)


def in_ms(seconds: Sequence[float]) -> str:
    return spread([1000 * value for value in seconds], ".0f") + " ms"


def measure(guest: Guest) -> dict[str, list[float]]:
    """Everything that is measured in the guest, by name."""
    await_ready(guest)
    guest.check(["mkdir", "-p", REMOTE])
    for name in ("in_guest.py", "hook.sh"):
        guest.put(HERE / name, f"{REMOTE}/{name}")
    addresses = guest.addresses(*EIGHT_CHIPS)
    taken: dict[str, list[float]] = {}
    for what, rounds in ROUNDS.items():
        with timed(say_on_stderr, f"measuring {what} ({rounds} rounds)"):
            argv = ["python3", "-I", f"{REMOTE}/in_guest.py", what, str(rounds), *addresses]
            taken |= json.loads(guest.check(argv, timeout_s=MEASURE_LIMIT_S))
    return taken


def promises(taken: dict[str, list[float]]) -> list[Promise]:
    return [
        Promise("warm pass, from uevent to last usable node", taken["daemon"], taken["raw"], "raw writes", MOST_OF_RAW),
        Promise(
            "tpuagent bind --all, module loaded", taken["bind"], taken["hook"], "hook, 8 in sequence", MOST_OF_HOOK
        ),
        Promise("tpuagent status", taken["status"], taken["python"], "python3 -c pass", MOST_OF_PYTHON),
    ]


def told(taken: dict[str, list[float]]) -> list[Row]:
    """What nothing is promised about."""
    rows = [
        ("raw writes by a processor that has just worked", "", in_ms(taken["raw at once"])),
        ("warm pass of a daemon that has rested", in_ms(taken["rested"]), ""),
        ("eight new functions, first event to last node", in_ms(taken["new"]), ""),
        ("all unbound by somebody, first event to last node", in_ms(taken["live"]), ""),
        ("tpuagent bind --all, nothing to do", in_ms(taken["bind again"]), ""),
        ("tpuagent devices", in_ms(taken["devices"]), ""),
        ("the hook, 8 at once", "", in_ms(taken["hook at once"])),
        ("the unit's start until READY, at boot", f"{taken['unit to ready'][0]:.1f} s", ""),
        ("the kernel's start until READY, at boot", f"{taken['kernel to ready'][0]:.1f} s", ""),
        ("memory of the agent after boot (RSS)", f"{taken['memory'][0] / MIB:.1f} MiB", ""),
    ]
    return [(what, ours, others, "", "", "") for what, ours, others in rows]


def render(rows: Sequence[Row]) -> str:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join("  ".join(map(str.ljust, row, widths)).rstrip() for row in rows)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    names = [distribution.name for distribution in DISTRIBUTIONS]
    parser.add_argument("--distribution", choices=names, default=names[0])
    parser.add_argument("--package", type=Path, help="another package than the newest in dist/")
    arguments = parser.parse_args()
    wanted = arguments.distribution
    if os.geteuid() != 0:
        print("cannot boot a guest: it needs root, for the chroot that QEMU runs in", file=sys.stderr)
        return 2
    distribution = next(known for known in DISTRIBUTIONS if known.name == wanted)
    boot_image = image.package_image(distribution, arguments.package or image.newest_package(HERE.parent))
    with Guest(boot_image, MACHINE, name=f"{wanted}-bench") as guest:
        kernel = guest.check(["uname", "-r"]).strip()
        taken = measure(guest)
    judged = promises(taken)
    print(f"8 functions, {wanted}, Linux {kernel}; medians (least–most)")  # noqa: RUF001
    print(render([HEADINGS, *(promise.row() for promise in judged), *told(taken)]))
    return 0 if all(promise.kept for promise in judged) else 1


if __name__ == "__main__":
    sys.exit(main())
