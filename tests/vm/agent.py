"""How does a test follow the agent in a guest? By its journal: what the agent logs is the event to wait for."""

from __future__ import annotations

import json
import time
from typing import Any

from .channel import CommandTimedOut
from .guest import Guest

UNIT = "tpu-agent.service"
PCI = "/sys/bus/pci/devices"
DRIVERS = "/sys/bus/pci/drivers"
FOLLOWED_S = 30.0


class Journal:
    """What the agent logs from a certain moment on. Make it before the deed whose effect is awaited."""

    def __init__(self, guest: Guest) -> None:
        self._guest = guest
        shown = guest.check(["journalctl", "--unit", UNIT, "--lines=1", "--show-cursor", "--quiet"])
        self._cursor = shown.rpartition("-- cursor: ")[2].strip()

    def wait_for(self, text: str, timeout_s: float = 60) -> None:
        """Return as soon as a line with `text` has been logged since then."""
        watch = [
            "journalctl",
            "--unit",
            UNIT,
            "--after-cursor",
            self._cursor,
            "--follow",
            "--output=cat",
            "--lines=all",
        ]
        end = time.monotonic() + timeout_s
        while True:  # with another follower now and then: the log counts, and not what one follower was told of it
            follow = self._guest.start(watch)
            try:
                follow.wait_for(text, max(0.0, min(FOLLOWED_S, end - time.monotonic())))
                return
            except CommandTimedOut:
                if time.monotonic() >= end:
                    raise
            finally:
                follow.kill()
                follow.wait()

    def text(self) -> str:
        """What was logged since then."""
        return self._guest.check(
            ["journalctl", "--unit", UNIT, "--after-cursor", self._cursor, "--output=cat", "--quiet"]
        )


def await_ready(guest: Guest) -> None:
    """Return when the agent of this boot has said READY. Only looks on."""
    follow = guest.start(["journalctl", "--boot", "--unit", UNIT, "--follow", "--output=cat", "--lines=all"])
    try:
        follow.wait_for("Started tpu-agent.service", 180)
    finally:
        follow.kill()
        follow.wait()


def show(guest: Guest, name: str) -> str:
    """A property of the unit."""
    return guest.check(["systemctl", "show", UNIT, "--property", name, "--value"]).strip()


def status_line(guest: Guest) -> str:
    """The line that `systemctl status` shows of the agent."""
    return show(guest, "StatusText")


def await_status(guest: Guest, part: str, timeout_s: float = 20) -> str:
    """The status line, as soon as it has this in it: sooner than by the look that the agent takes once in a minute.

    What is logged, or done by a command, is in the line a moment later; no event tells when systemd has taken it.
    """
    end = time.monotonic() + timeout_s
    while part not in (line := status_line(guest)) and time.monotonic() < end:
        time.sleep(0.25)
    return line


def devices(guest: Guest) -> dict[str, dict[str, Any]]:
    """What `tpuagent devices --json` prints, by address."""
    return {entry["address"]: entry for entry in json.loads(guest.check(["tpuagent", "devices", "--json"]))}


def driver(guest: Guest, address: str) -> str:
    """The driver that the kernel names; empty for none."""
    return guest.run(["readlink", f"{PCI}/{address}/driver"]).stdout.strip().rpartition("/")[2]


def group_node(guest: Guest, address: str) -> str:
    """The node of a function's group."""
    return "/dev/vfio/" + guest.check(["readlink", f"{PCI}/{address}/iommu_group"]).strip().rpartition("/")[2]


def attribute(guest: Guest, path: str, text: str) -> int:
    """Write a sysfs attribute by hand; the exit code."""
    return guest.run(f"printf %s '{text}' > {path}").code


def give_to(guest: Guest, address: str, name: str) -> None:
    """Bind a function to a driver as a person would who does not know of the agent."""
    attribute(guest, f"{PCI}/{address}/driver_override", name)
    if now := driver(guest, address):
        attribute(guest, f"{DRIVERS}/{now}/unbind", address)
    attribute(guest, f"{DRIVERS}/{name}/bind", address)
