"""How long does a boot take until every chip can be used, beside the documented hook? `python -m bench.boot`.

One guest, booted in turns with the package as it is installed, and with the package switched off and the documented
hook in its place: a udev rule for each generation that runs bench/hook.sh on `add`. From the kernel's start to the
moment at which the last node got its mode. Ends with 1 when the promise is broken.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from statistics import median

from tests.vm import image
from tests.vm.agent import UNIT, await_ready
from tests.vm.guest import Guest
from tests.vm.machine import EIGHT_CHIPS, Machine
from tests.vm.recipe import DISTRIBUTIONS
from tpuagent.devices.pci import GENERATIONS
from tpuagent.image.settings import MODPROBE_FILE, MODULES_FILE, SWITCHED_OFF_BY

HERE = Path(__file__).parent
MOST_OF_HOOK = 0.5
BOOT_LIMIT_S = 580
HOOK, RULES = "/usr/local/lib/hook.sh", "/etc/udev/rules.d/90-hook.rules"
MASKS = " ".join(SWITCHED_OFF_BY[path] for path in (MODPROBE_FILE, MODULES_FILE))
# A node's ctime is when its mode was set. Both clocks are read at once: a wall clock may be set during a boot.
READ_NODES = """
import glob, json, os, time
began = time.time() - time.monotonic()
seen = [os.stat(path) for path in glob.glob("/dev/vfio/[0-9]*")]
print(json.dumps([one.st_ctime - began for one in seen if one.st_mode & 0o777 == 0o666]))
"""
UDEV_STARTED = "systemctl show systemd-udev-trigger.service --property=InactiveExitTimestampMonotonic --value"
NAMES = ("vendor", "device", "subsystem_vendor", "subsystem_device")


def rules() -> str:
    """What Google's documentation has an image do, re-created: one rule for each generation."""
    lines = []
    for generation in GENERATIONS:
        ids = zip(NAMES, str(generation.ids).split(":"), strict=True)
        matches = ", ".join(f'ATTR{{{name}}}=="0x{value}"' for name, value in ids)
        lines.append(f'ACTION=="add", SUBSYSTEM=="pci", {matches}, RUN+="/bin/bash {HOOK} %k"\n')
    return "".join(lines)


def measure(guest: Guest) -> tuple[float, float]:
    """Seconds from the kernel's start until the last node was usable, and until udev looked at the first device."""
    guest.check(["udevadm", "settle", "--timeout=120"], timeout_s=130)
    usable: Sequence[float] = json.loads(guest.check(["python3", "-c", READ_NODES]))
    if len(usable) != len(EIGHT_CHIPS):
        raise RuntimeError(f"{len(usable)} of {len(EIGHT_CHIPS)} nodes are usable")
    return max(usable), int(guest.check(UDEV_STARTED)) / 1e6


def with_the_package(guest: Guest, rounds: int) -> tuple[float, float]:
    guest.check(f"rm -f {RULES} {MASKS}; systemctl unmask {UNIT}", timeout_s=120)
    if rounds:
        guest.reboot()
    await_ready(guest)
    return measure(guest)


def with_the_hook(guest: Guest) -> tuple[float, float]:
    guest.write(RULES, rules())
    guest.check(f"for mask in {MASKS}; do ln -sf /dev/null $mask; done; systemctl mask {UNIT}", timeout_s=120)
    guest.reboot()
    return measure(guest)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.boot", description=__doc__)
    names = [distribution.name for distribution in DISTRIBUTIONS]
    parser.add_argument("--distribution", choices=names, default=names[0])
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    if os.geteuid() != 0:
        print("cannot boot a guest: it needs root, for the chroot that QEMU runs in", file=sys.stderr)
        return 2
    distribution = next(known for known in DISTRIBUTIONS if known.name == arguments.distribution)
    boot_image = image.package_image(distribution, image.newest_package(HERE.parent))
    ratios, from_udev = [], []
    machine = Machine(EIGHT_CHIPS, google=False)
    with Guest(boot_image, machine, name=f"{distribution.name}-boots", boot_timeout_s=BOOT_LIMIT_S) as guest:
        guest.put(HERE / "hook.sh", HOOK)
        for number in range(arguments.rounds):
            ours, udev = with_the_package(guest, number)
            hook, udev_of_hook = with_the_hook(guest)
            ratios.append(ours / hook)
            from_udev.append((ours - udev) / (hook - udev_of_hook))
            print(
                f"round {number + 1}: usable after {ours:.1f} s (udev's start: {udev:.1f} s), "
                f"with the hook after {hook:.1f} s ({udev_of_hook:.1f} s): {ratios[-1]:.2f}",
                flush=True,
            )
    kept = median(ratios) <= MOST_OF_HOOK
    print(f"the kernel's start until the last usable node: {median(ratios):.2f} times the hook's, ", end="")
    print(f"limit {MOST_OF_HOOK}: {'kept' if kept else 'BROKEN'}; from udev's start on {median(from_udev):.2f} times")
    return 0 if kept else 1


if __name__ == "__main__":
    sys.exit(main())
