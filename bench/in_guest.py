"""What does each thing take in this guest? Prints seconds as JSON: name → one number for each round.

    python3 in_guest.py passes 20 0000:00:08.0 0000:00:09.0 …

Runs inside the guest as root, with nothing but Python's own library. What is compared is measured in turns, so that a
machine that gets slower meanwhile slows both. After each round everything must be usable, or there is no result.
"""

from __future__ import annotations

import ctypes
import json
import os
import re
import select
import signal
import socket
import stat
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress

DEVICES, DRIVERS = "/sys/bus/pci/devices", "/sys/bus/pci/drivers"
NODES, USABLE_MODE = "/dev/vfio", 0o666
UNIT = "tpu-agent.service"
RECORDS = "/run/tpu-agent/devices.json"
DROP_INS = "/etc/tpu-agent/config.d"
HOOK = os.path.join(os.path.dirname(os.path.abspath(__file__)), "hook.sh")
GIVE_UP_S = 30.0
IDLE_S = 0.5
IN_ATTRIB = 0x4
INOTIFY_EVENT = struct.Struct("iIII")
NETLINK_KOBJECT_UEVENT, KERNEL_GROUP = 15, 1
BUFFER = 1 << 16
# Of four rounds that compare, one measures what is only told.
TOLD_EVERY = 4

Seconds = dict[str, list[float]]


class MeasurementError(Exception):
    """What was to be measured did not happen."""


def write(path: str, text: str) -> None:
    """One write to an attribute of sysfs."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.write(descriptor, text.encode())
    finally:
        os.close(descriptor)


def usable(names: Iterable[str]) -> dict[str, int]:
    """Those of the nodes that every user can open now, with their inodes."""
    found = {}
    for name in names:
        with suppress(FileNotFoundError):
            seen = os.stat(f"{NODES}/{name}")
            if stat.S_IMODE(seen.st_mode) == USABLE_MODE:
                found[name] = seen.st_ino
    return found


class Functions:
    """The TPU functions of the guest."""

    def __init__(self, addresses: Sequence[str]) -> None:
        self.addresses = addresses
        groups = (os.path.basename(os.readlink(f"{DEVICES}/{address}/iommu_group")) for address in addresses)
        self.nodes = dict(zip(addresses, groups, strict=True))

    def release(self) -> None:
        """As after a boot: no driver, no override, no node, and udev is through with it."""
        for address in self.addresses:
            if os.path.exists(f"{DEVICES}/{address}/driver"):
                write(f"{DRIVERS}/vfio-pci/unbind", address)
            write(f"{DEVICES}/{address}/driver_override", "\n")
        subprocess.run(["udevadm", "settle"], check=True)
        if left := [node for node in self.nodes.values() if os.path.exists(f"{NODES}/{node}")]:
            raise MeasurementError(f"nodes that should be gone: {left}")

    def bind_raw(self) -> None:
        """The least that makes them usable: two attributes and a mode for each, and no look at the result."""
        for address, node in self.nodes.items():
            write(f"{DEVICES}/{address}/driver_override", "vfio-pci")
            write(f"{DRIVERS}/vfio-pci/bind", address)
            os.chmod(f"{NODES}/{node}", USABLE_MODE)

    def announce(self, action: str, count: int) -> None:
        """Let the kernel send this event for so many functions; nothing else happens to them."""
        for address in self.addresses[:count]:
            write(f"{DEVICES}/{address}/uevent", action)

    def inodes(self) -> dict[str, int]:
        """The nodes that users can open now."""
        return usable(self.nodes.values())

    def require_usable(self) -> None:
        if missing := set(self.nodes.values()) - set(self.inodes()):
            raise MeasurementError(f"nodes that users cannot open: {sorted(missing)}")


class Agent:
    """The running daemon. Frozen, it sees no event and takes no part in what is measured beside it."""

    def __init__(self) -> None:
        self.pid = int(show("MainPID"))

    def freeze(self) -> None:
        """Stop it between two passes."""
        self.await_idle()
        os.kill(self.pid, signal.SIGSTOP)
        while "State:\tT" not in read(f"/proc/{self.pid}/status"):
            time.sleep(0.001)

    def thaw(self) -> None:
        os.kill(self.pid, signal.SIGCONT)

    def await_idle(self) -> None:
        """Return when udev and the daemon have done nothing for a while."""
        subprocess.run(["udevadm", "settle"], check=True)
        before, since = -1, time.monotonic()
        while time.monotonic() - since < IDLE_S:
            if (now := self._ran_ns()) != before:
                before, since = now, time.monotonic()
            time.sleep(IDLE_S / 10)

    def await_alone(self) -> None:
        """Return when the daemon has let its idle child end."""
        end = time.monotonic() + GIVE_UP_S
        while any(read(f"/proc/{self.pid}/task/{task}/children") for task in os.listdir(f"/proc/{self.pid}/task")):
            if time.monotonic() > end:
                raise MeasurementError("the agent keeps a child")
            time.sleep(IDLE_S)

    def _ran_ns(self) -> int:
        tasks, ran_ns = f"/proc/{self.pid}/task", 0
        for task in os.listdir(tasks):
            with suppress(FileNotFoundError, ProcessLookupError):  # threads come and go
                ran_ns += int(read(f"{tasks}/{task}/schedstat").split()[0])
        return ran_ns


class Observer:
    """Sees when nodes become usable and when the kernel sends its first event. It sleeps meanwhile."""

    def __init__(self, functions: Functions) -> None:
        self._functions = functions
        self._old = functions.inodes()
        libc = ctypes.CDLL(None, use_errno=True)
        self._inotify = libc.inotify_init1(os.O_CLOEXEC | os.O_NONBLOCK)
        if libc.inotify_add_watch(self._inotify, NODES.encode(), IN_ATTRIB) < 0:
            raise OSError(ctypes.get_errno(), f"cannot watch {NODES}")
        kind = socket.SOCK_RAW | socket.SOCK_NONBLOCK
        self._udev = socket.socket(socket.AF_NETLINK, kind, NETLINK_KOBJECT_UEVENT)
        self._udev.bind((0, KERNEL_GROUP))
        self.first_event_s: float | None = None

    def await_usable(self) -> float:
        """The moment at which the last function got a new node that users can open."""
        end = time.monotonic() + GIVE_UP_S
        waiting = set(self._functions.nodes.values())
        poll = select.poll()
        poll.register(self._inotify, select.POLLIN)
        poll.register(self._udev, select.POLLIN)
        while waiting:
            if not poll.poll(1000) and time.monotonic() > end:
                raise MeasurementError(f"the agent did not open {sorted(waiting)}")
            now = time.monotonic()
            if self.first_event_s is None and self._hears():
                self.first_event_s = now
                poll.unregister(self._udev)
            for node, inode in self._changed().items():
                if inode != self._old.get(node):
                    waiting.discard(node)
        return now

    def close(self) -> None:
        os.close(self._inotify)
        self._udev.close()

    def _hears(self) -> bool:
        try:
            return bool(self._udev.recv(BUFFER))
        except BlockingIOError:
            return False

    def _changed(self) -> dict[str, int]:
        """The nodes whose access has changed since the last call and that users can open."""
        try:
            data = os.read(self._inotify, BUFFER)
        except BlockingIOError:
            return {}
        names, offset = set(), 0
        while offset < len(data):
            length = INOTIFY_EVENT.unpack_from(data, offset)[3]
            offset += INOTIFY_EVENT.size
            names.add(data[offset : offset + length].rstrip(b"\0").decode())
            offset += length
        return usable(names)


def read(path: str) -> str:
    with open(path, encoding="utf-8") as file:
        return file.read()


def show(name: str) -> str:
    """A property of the agent's unit."""
    argv = ["systemctl", "show", UNIT, "--property", name, "--value"]
    return subprocess.run(argv, check=True, capture_output=True, text=True).stdout.strip()


def spawn(argv: list[str]) -> int:
    silent = [(os.POSIX_SPAWN_OPEN, descriptor, "/dev/null", os.O_RDWR, 0) for descriptor in (0, 1)]
    return os.posix_spawnp(argv[0], argv, os.environ, file_actions=silent)


def process_s(*commands: list[str], at_once: bool = False) -> float:
    """What whole processes take, from their start to their end, one after another or all at once."""
    begin = time.monotonic()
    pids = []
    for argv in commands:
        pids.append(spawn(argv))
        if not at_once:
            end(argv, pids.pop())
    for argv, pid in zip(commands, pids, strict=False):
        end(argv, pid)
    return time.monotonic() - begin


def end(argv: list[str], pid: int) -> None:
    if code := os.waitstatus_to_exitcode(os.wait4(pid, 0)[1]):
        raise MeasurementError(f"{argv} ended with {code}")


@contextmanager
def default_configuration() -> Iterator[None]:
    """For commands: the one that is installed. The guest's drop-in keeps the daemon from looking for an engine."""
    away = f"{DROP_INS}.away"
    os.rename(DROP_INS, away)
    try:
        yield
    finally:
        os.rename(away, DROP_INS)


# What can be measured ---------------------------------------------------------------------------------------------


def measure_boot(_: int, __: Functions) -> Seconds:
    """What systemd noted of the boot, and the daemon's memory (in bytes) as it is after it."""
    moments = ("InactiveExitTimestampMonotonic", "ActiveEnterTimestampMonotonic")
    started, ready = (int(show(name)) / 1e6 for name in moments)
    memory = re.search(r"VmRSS:\s+(\d+) kB", read(f"/proc/{Agent().pid}/status"))
    if not memory:
        raise MeasurementError("the agent does not run")
    return {"kernel to ready": [ready], "unit to ready": [ready - started], "memory": [int(memory[1]) * 1024.0]}


def measure_passes(rounds: int, functions: Functions) -> Seconds:
    """Raw writes and the daemon's pass, each after an event of functions that have no driver.

    That is one event of one function, the least that makes the daemon look at all of them; what udev does about it at
    the same time slows both. Both start from a machine that has been idle, as events find it: processors that have just
    worked make the same writes faster. Only told: that, the pass when the daemon has to start its child, the
    events of eight new functions, and somebody who unbinds all.
    """
    agent = Agent()

    def raw(*, idle: bool) -> float:
        agent.freeze()
        functions.release()
        if idle:
            agent.await_idle()
        functions.announce("unbind", 1)
        begin = time.monotonic()
        functions.bind_raw()
        took_s = time.monotonic() - begin
        agent.thaw()
        return took_s

    def daemon(action: str, count: int, *, rested: bool = False) -> float:
        """What an operator has released, the daemon leaves alone; until it forgets that, and hears of it anew."""
        subprocess.run(["tpuagent", "unbind", "--all"], check=True, stdout=subprocess.DEVNULL)
        agent.await_idle()
        os.unlink(RECORDS)
        if rested:
            agent.await_alone()
        observer = Observer(functions)
        begin = time.monotonic()
        functions.announce(action, count)
        took_s = observer.await_usable() - begin
        observer.close()
        return took_s

    def live() -> float:
        """Somebody takes all functions from their driver; the daemon works against that from the first event on."""
        agent.await_idle()
        observer = Observer(functions)
        unbind = f"for a in {' '.join(functions.addresses)}; do echo $a >{DRIVERS}/vfio-pci/unbind; done"
        argv = ["sh", "-c", unbind]
        pid = spawn(argv)
        usable_s = observer.await_usable()
        end(argv, pid)
        observer.close()
        if observer.first_event_s is None:
            raise MeasurementError("the kernel sent no event")
        return usable_s - observer.first_event_s

    compared = {"raw": lambda: raw(idle=True), "daemon": lambda: daemon("unbind", 1)}
    told = {
        "raw at once": lambda: raw(idle=False),
        "rested": lambda: daemon("unbind", 1, rested=True),
        "new": lambda: daemon("add", len(functions.addresses)),
        "live": live,
    }
    return in_turns(rounds, functions, compared, told)


def measure_commands(rounds: int, functions: Functions) -> Seconds:
    """The command as a cold process, and the hook for all functions. The agent is stopped, the module loaded."""
    subprocess.run(["systemctl", "stop", UNIT], check=True)
    hooks = [["bash", HOOK, address] for address in functions.addresses]

    def fresh(measure: Callable[[], float]) -> Callable[[], float]:
        def round_() -> float:
            functions.release()
            return measure()

        return round_

    try:
        with default_configuration():
            return in_turns(
                rounds,
                functions,
                {
                    "hook": fresh(lambda: process_s(*hooks)),
                    "bind": fresh(lambda: process_s(["tpuagent", "bind", "--all"])),
                },
                {"hook at once": fresh(lambda: process_s(*hooks, at_once=True))},
            )
    finally:
        subprocess.run(["systemctl", "start", UNIT], check=True)


def measure_starts(rounds: int, functions: Functions) -> Seconds:
    """Commands that find nothing to do, beside an interpreter that does nothing. The agent runs."""
    Agent().await_idle()
    with default_configuration():
        return in_turns(
            rounds,
            functions,
            {
                "python": lambda: process_s(["/usr/bin/python3", "-c", "pass"]),
                "status": lambda: process_s(["tpuagent", "status"]),
            },
            {
                "devices": lambda: process_s(["tpuagent", "devices"]),
                "bind again": lambda: process_s(["tpuagent", "bind", "--all"]),
            },
        )


def in_turns(
    rounds: int,
    functions: Functions,
    compared: dict[str, Callable[[], float]],
    told: dict[str, Callable[[], float]],
) -> Seconds:
    """Each measurement once in a round. The first round warms up and is not counted."""
    taken: Seconds = {name: [] for name in (*compared, *told)}
    for number in range(rounds + 1):
        # Every other round backwards: what follows what must not matter.
        turn = dict(compared if number % 2 else reversed(compared.items()))
        if number % TOLD_EVERY == 0:
            turn |= told
        for name, measure in turn.items():
            took_s = measure()
            functions.require_usable()
            if number:
                taken[name].append(took_s)
    return taken


MEASUREMENTS = {
    "boot": measure_boot,
    "passes": measure_passes,
    "commands": measure_commands,
    "starts": measure_starts,
}


def main(arguments: Sequence[str]) -> None:
    what, rounds, *addresses = arguments
    print(json.dumps(MEASUREMENTS[what](int(rounds), Functions(addresses))))


if __name__ == "__main__":
    main(sys.argv[1:])
