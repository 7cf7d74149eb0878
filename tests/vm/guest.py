"""What a test does with a virtual machine: boot it, run commands in it, plug functions in and out, reboot it."""

from __future__ import annotations

import contextlib
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Literal

from . import children
from .cache import cache_root, discard, new_run
from .channel import CommandFailed, GuestError, Result, Running
from .emulator import RUN, TO_FILE, launch
from .image import BootImage, qemu_root
from .machine import Machine, function_device, socket_name
from .progress import Say, say_on_stderr, timed
from .recipe import BOOTED_TARGET

CONSOLE_TAIL = 4000
Command = str | Sequence[str]


class Guest:
    """A virtual machine for the length of a `with`. Every process of it ends with the block, or with this process.

    A command is a list of arguments or a text for the guest's shell, run as root or as `user`, without a login.
    `until="hello"` returns while the boot still goes on; `"booted"` when the multi-user target is reached.
    """

    def __init__(
        self,
        image: BootImage,
        machine: Machine = Machine(),
        *,
        name: str = "guest",
        say: Say = say_on_stderr,
        until: Literal["hello", "booted"] = "booted",
        boot_timeout_s: float = 240,
        console: str = TO_FILE,
    ) -> None:
        self.machine, self.name = machine, name
        self.hello_s = self.boot_s = 0.0
        self._image, self._console, self._say = image, console, say
        self._until, self._boot_timeout_s = until, boot_timeout_s
        self._closing = contextlib.ExitStack()
        self._ports: dict[str, int] = {}
        self._servers: dict[str, subprocess.Popen[bytes]] = {}

    def __enter__(self) -> Guest:
        root = qemu_root(self._say)
        with self._closing, timed(self._say, f"booting {self.name}"):
            self._run_folder = new_run()
            self._closing.callback(self._put_away)
            self._serve({f"tpu{n}": kind for n, kind in enumerate(self.machine.functions)})
            self._emulator = launch(root, self._image, self.machine, self._run_folder.path, self._console)
            self._closing.callback(self._emulator.stop)
            self._await_boot(1)
            self._closing = self._closing.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._closing.close()

    @property
    def console(self) -> str:
        """What the kernel and the boot have printed so far."""
        return (self._run_folder.path / "console.log").read_text(errors="replace")

    def console_tail(self) -> str:
        return f"\n--- the end of its console ---\n{self.console[-CONSOLE_TAIL:]}"

    def address(self, number: int) -> str:
        """The PCI address of the function that `machine.functions[number]` names."""
        return self.machine.address(number)

    def addresses(self, *kinds: str) -> list[str]:
        """The addresses of all functions of these kinds that were there at boot."""
        return [self.address(n) for n, kind in enumerate(self.machine.functions) if kind in kinds]

    def start(
        self, command: Command, *, user: str | None = None, environment: Mapping[str, str] | None = None
    ) -> Running:
        """Start a command and return at once."""
        argv = ["sh", "-c", command] if isinstance(command, str) else list(command)
        return self._emulator.channel.start(argv, user, environment or {})

    def run(
        self,
        command: Command,
        *,
        user: str | None = None,
        input: str | bytes = b"",
        environment: Mapping[str, str] | None = None,
        timeout_s: float = 60,
    ) -> Result:
        """Run a command to its end. After `timeout_s` it is killed and `CommandTimedOut` raised."""
        running = self.start(command, user=user, environment=environment)
        running.write(input, end=True)
        return running.wait(timeout_s)

    def check(
        self,
        command: Command,
        *,
        user: str | None = None,
        input: str | bytes = b"",
        environment: Mapping[str, str] | None = None,
        timeout_s: float = 60,
    ) -> str:
        """The standard output of a command that must end with 0."""
        result = self.run(command, user=user, input=input, environment=environment, timeout_s=timeout_s)
        if result.code:
            raise CommandFailed(f"{command} ended with {result.code}:\n{result.stdout}{result.stderr}")
        return result.stdout

    def read(self, path: str) -> str:
        return self.check(["cat", path])

    def write(self, path: str, text: str | bytes) -> None:
        """Write a file; the folders above it are made. Not for sysfs, where the errno matters: use `run` there."""
        self.check(["sh", "-c", 'mkdir -p "$(dirname "$0")" && cat >"$0"', path], input=text)

    def put(self, local: Path, remote: str) -> None:
        """Copy a file into the guest, with its mode."""
        self.write(remote, local.read_bytes())
        self.check(["chmod", f"{local.stat().st_mode & 0o7777:o}", remote])

    def plug(self, kind: str, timeout_s: float = 60) -> tuple[str, str]:
        """Plug a function into a free port: its id for `unplug`, and its address. udev is through with it by then."""
        port = min(set(range(self.machine.hot_plug_ports)) - set(self._ports.values()))
        identity = f"hot{port}"
        self._serve({identity: kind})
        self._ports[identity] = port
        self._emulator.qmp.add_device(function_device(identity, RUN, bus=f"port{port}"))
        address = self._hot_address(port)
        self._udev_wait(address, timeout_s)
        return identity, address

    def unplug(self, identity: str, timeout_s: float = 60) -> None:
        """Pull a function out as an operator would: the guest is asked, and this waits until it has let go."""
        address = self._hot_address(self._ports[identity])
        self._emulator.qmp.delete_device(identity, timeout_s)
        self._udev_wait(address, timeout_s, "--removed")
        del self._ports[identity]
        children.stop(self._servers.pop(identity))
        (self._run_folder.path / socket_name(identity)).unlink()

    def reboot(self) -> None:
        """Reboot from inside and wait as at the first boot."""
        boots = self._emulator.channel.boots
        with timed(self._say, f"rebooting {self.name}"):
            self.start(["systemctl", "reboot"])
            self._await_boot(boots + 1)

    def poweroff(self, timeout_s: float = 120) -> None:
        """Power off from inside and wait until the machine is off; only leaving the `with` block is left then."""
        self.start(["systemctl", "poweroff"])
        if not self._emulator.channel.wait_closed(timeout_s):
            raise GuestError(f"{self.name} did not power off within {timeout_s} s{self.console_tail()}")

    def wait_off(self) -> None:
        """Return when the machine is off, whoever switched it off."""
        self._emulator.process.wait()

    def wait_booted(self) -> None:
        """Return when the multi-user target is reached."""
        self.check(["systemctl", "start", BOOTED_TARGET], timeout_s=self._boot_timeout_s)

    def wait_boot(self, number: int) -> None:
        """Return when the boot of that number, counted from 1, has come as far as `until` says; no reboot is asked."""
        self._await_boot(number)

    def _udev_wait(self, address: str, timeout_s: float, *options: str) -> None:
        device = f"/sys/bus/pci/devices/{address}"
        self.check(["udevadm", "wait", f"--timeout={timeout_s}", *options, device], timeout_s=timeout_s + 5)

    def _hot_address(self, port: int) -> str:
        bus = self.read(f"/sys/bus/pci/devices/{self.machine.port_address(port)}/secondary_bus_number")
        return f"0000:{int(bus):02x}:00.0"

    def _serve(self, functions: Mapping[str, str]) -> None:
        if not functions:
            return
        run = self._run_folder.path
        served = [f"{socket_name(identity)}={kind}" for identity, kind in functions.items()]
        source = Path(__file__).with_name("tpudev.py")
        argv = [sys.executable, "-I", str(source), *served]
        server = children.start(argv, run / "tpudev.log", cwd=run, stdout=subprocess.PIPE)
        self._closing.callback(children.stop, server)
        assert server.stdout
        if not server.stdout.readline():
            raise GuestError(f"cannot emulate {dict(functions)}: {(run / 'tpudev.log').read_text()}")
        self._servers.update(dict.fromkeys(functions, server))

    def _await_boot(self, boots: int) -> None:
        begin = time.monotonic()
        if not self._emulator.channel.wait_hello(boots, self._boot_timeout_s):
            log = (self._run_folder.path / "qemu.log").read_text(errors="replace")
            raise GuestError(f"{self.name} did not come up within {self._boot_timeout_s} s\n{log}{self.console_tail()}")
        self.hello_s = time.monotonic() - begin
        if boots == 1:
            self._emulator.qmp.greet()
        if self._until == "booted":
            self.wait_booted()
        self.boot_s = time.monotonic() - begin

    def _put_away(self) -> None:
        """Keep the console of the last guest of each name; the rest of the run goes."""
        console = self._run_folder.path / "console.log"
        if console.exists():
            logs = cache_root() / "logs"
            logs.mkdir(exist_ok=True)
            shutil.copy(console, logs / f"{self.name}.log")
        discard(self._run_folder)
