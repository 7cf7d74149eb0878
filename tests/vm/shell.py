"""How a person gets a root prompt in a virtual machine with eight chips and the package: `python -m tests.vm.shell`."""

from __future__ import annotations

import argparse
import os
import signal
import sys
import termios
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

from . import image
from .emulator import TO_TERMINAL
from .guest import Guest
from .machine import EIGHT_CHIPS, Machine
from .recipe import DISTRIBUTIONS, SHELL_ENVIRONMENT, SHELL_UNIT

CHECKOUT = Path(__file__).parents[2]
LEAVE = "Ctrl-A x leaves at any time."


@contextmanager
def terminal_restored() -> Iterator[None]:
    """QEMU puts the terminal into raw mode, and leaves it so when it is killed."""
    before = termios.tcgetattr(sys.stdin)
    try:
        yield
    finally:
        termios.tcsetattr(sys.stdin, termios.TCSADRAIN, before)


def follow_size(guest: Guest) -> None:
    """Tell the guest whenever the terminal's size changes."""

    def tell(_number: int, _frame: FrameType | None) -> None:
        size = os.get_terminal_size()
        guest.start(["stty", "-F", "/dev/ttyS0", "rows", str(size.lines), "columns", str(size.columns)])

    signal.signal(signal.SIGWINCH, tell)


def open_prompt(guest: Guest) -> None:
    """A login on the console with the terminal's size, and its kind when the guest knows it."""
    size, kind = os.get_terminal_size(), os.environ.get("TERM", "")
    known = f"TERM={kind}\n" if guest.run(["infocmp", kind]).code == 0 else ""
    guest.write(SHELL_ENVIRONMENT, f"LINES={size.lines}\nCOLUMNS={size.columns}\n{known}")
    guest.check(["systemctl", "start", "--no-block", SHELL_UNIT])


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.vm.shell", description=__doc__)
    names = [distribution.name for distribution in DISTRIBUTIONS]
    parser.add_argument("--distribution", choices=names, default=names[-1])
    wanted = parser.parse_args().distribution
    if not sys.stdin.isatty() or os.geteuid() != 0:
        print("cannot open a shell: it needs a terminal, and root for the chroot that QEMU runs in", file=sys.stderr)
        return 2
    distribution = next(known for known in DISTRIBUTIONS if known.name == wanted)
    boot_image = image.package_image(distribution, image.newest_package(CHECKOUT))
    machine = Machine((*EIGHT_CHIPS, "network"), kernel_arguments=("loglevel=3",))  # or errors land in the prompt
    print(LEAVE, file=sys.stderr)
    with terminal_restored(), Guest(boot_image, machine, name=f"{wanted}-shell", console=TO_TERMINAL) as guest:
        open_prompt(guest)
        follow_size(guest)
        guest.wait_off()
    return 0


if __name__ == "__main__":
    sys.exit(main())
