"""How a guest does what the test outside asks: commands come as JSON lines over a virtio port, and output goes back.

It runs inside the guest as root and needs no network, no D-Bus and nothing but Python's own library.

In:  {"id": 1, "do": "start", "argv": [...], "user": null, "environment": {}}, then for that id
     {"do": "input", "data": BASE64}, {"do": "end"} (of its input), {"do": "kill", "signal": 15}.
Out: {"hello": BOOT_ID}; {"id": 1, "stdout": BASE64}, {"id": 1, "stderr": BASE64}; last "exit" or "error".
Output that a left-behind child writes after the command itself ended is dropped.
"""

from __future__ import annotations

import base64
import json
import os
import pwd
import selectors
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

CHUNK = 1 << 16
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
Message = dict[str, Any]


class Port:
    """The virtio port, found by the name it was given outside."""

    def __init__(self, name: str) -> None:
        names = Path("/sys/class/virtio-ports").glob("*/name")
        nodes = [entry.parent.name for entry in names if entry.read_text().strip() == name]
        if not nodes:
            raise SystemExit(f"no virtio port is called {name}")  # systemd starts us again
        self.descriptor = os.open(f"/dev/{nodes[0]}", os.O_RDWR | os.O_CLOEXEC)
        self._rest = b""

    def read(self) -> list[Message]:
        """What has come since the last call; to be called when the port is readable."""
        part = os.read(self.descriptor, CHUNK)
        if not part:
            raise SystemExit("the port was closed outside")
        *lines, self._rest = (self._rest + part).split(b"\n")
        return [json.loads(line) for line in lines]

    def write(self, message: Message) -> None:
        data = json.dumps(message).encode() + b"\n"
        while data:
            data = data[os.write(self.descriptor, data) :]


class Command:
    """One running command and our ends of its three pipes."""

    def __init__(self, request: Message, send: Callable[[Message], None], selector: selectors.BaseSelector) -> None:
        self._id, self._send, self._selector = request["id"], send, selector
        self.process = _start(request)
        pipes = (self.process.stdin, self.process.stdout, self.process.stderr)
        self._stdin, stdout, stderr = (pipe.fileno() for pipe in pipes if pipe)
        self._outputs = {"stdout": stdout, "stderr": stderr}
        self._input = bytearray()
        self._input_ended = False
        for descriptor in (self._stdin, stdout, stderr):
            os.set_blocking(descriptor, False)
        for stream, descriptor in self._outputs.items():
            selector.register(descriptor, selectors.EVENT_READ, partial(self._forward, stream))

    def feed(self, data: bytes, ended: bool) -> None:
        """Give the command more input; it is written as fast as the command reads it."""
        if self._input_ended:
            return
        self._input += data
        self._input_ended = ended
        if self._stdin not in self._selector.get_map():
            self._selector.register(self._stdin, selectors.EVENT_WRITE, self._write_input)

    def _write_input(self) -> None:
        try:
            written = os.write(self._stdin, self._input[:CHUNK])
        except BrokenPipeError:
            written, self._input_ended = len(self._input), True
        del self._input[:written]
        if not self._input:
            self._selector.unregister(self._stdin)
            if self._input_ended and self.process.stdin:
                self.process.stdin.close()

    def _forward(self, stream: str) -> bool:
        """Send one piece of a stream; False when there is none for now."""
        try:
            data = os.read(self._outputs[stream], CHUNK)
        except BlockingIOError:
            return False
        if data:
            self._send({"id": self._id, stream: base64.b64encode(data).decode()})
        else:
            self._forget(self._outputs[stream])
        return bool(data)

    def finish(self) -> None:
        """The process has ended: send what is still in its pipes, then its exit code."""
        code = self.process.wait()
        for stream in self._outputs:
            while self._forward(stream):
                pass
        for descriptor in self._outputs.values():
            self._forget(descriptor)
        if self.process.stdin and not self.process.stdin.closed:  # else another command may have its number by now
            self._forget(self._stdin)
        for pipe in (self.process.stdin, self.process.stdout, self.process.stderr):
            if pipe:
                pipe.close()
        self._send({"id": self._id, "exit": code})

    def _forget(self, descriptor: int) -> None:
        if descriptor in self._selector.get_map():
            self._selector.unregister(descriptor)


def _start(request: Message) -> subprocess.Popen[bytes]:
    """Without PAM: what a login adds is to be had by running `su - USER` as root."""
    account = pwd.getpwnam(request["user"] or "root")
    environment = {
        "PATH": PATH, "LANG": "C.UTF-8", "TERM": "dumb",
        "HOME": account.pw_dir, "USER": account.pw_name, "LOGNAME": account.pw_name, "SHELL": account.pw_shell,
    }  # fmt: skip
    return subprocess.Popen(
        request["argv"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        bufsize=0,
        cwd=account.pw_dir,
        env={**environment, **request["environment"]},
        user=account.pw_uid,
        group=account.pw_gid,
        extra_groups=os.getgrouplist(account.pw_name, account.pw_gid),
        start_new_session=True,
    )


class Runner:
    """One thread: what can be read or written now is, in turn."""

    def __init__(self, port: Port) -> None:
        self._port = port
        self._selector = selectors.DefaultSelector()
        self._commands: dict[int, Command] = {}

    def serve(self) -> None:
        self._selector.register(self._port.descriptor, selectors.EVENT_READ, self._obey)
        self._port.write({"hello": Path("/proc/sys/kernel/random/boot_id").read_text().strip()})
        while True:
            for key, _ in self._selector.select():
                if self._selector.get_map().get(key.fd) is key:  # an earlier one of this round may have ended it
                    key.data()

    def _obey(self) -> None:
        for message in self._port.read():
            command = self._commands.get(message["id"])
            if message["do"] == "start":
                self._begin(message)
            elif command is None:
                pass  # it ended while the message was under way
            elif message["do"] == "kill":
                os.killpg(command.process.pid, message["signal"])
            else:
                command.feed(base64.b64decode(message.get("data", "")), message["do"] == "end")

    def _begin(self, message: Message) -> None:
        identity = message["id"]
        try:
            command = Command(message, self._port.write, self._selector)
        except (OSError, KeyError) as error:
            self._port.write({"id": identity, "error": f"cannot start {message['argv']}: {error}"})
            return
        self._commands[identity] = command
        pidfd = os.pidfd_open(command.process.pid)
        self._selector.register(pidfd, selectors.EVENT_READ, partial(self._end, identity, pidfd))

    def _end(self, identity: int, pidfd: int) -> None:
        self._selector.unregister(pidfd)
        os.close(pidfd)
        self._commands.pop(identity).finish()


if __name__ == "__main__":
    Runner(Port(sys.argv[1])).serve()
