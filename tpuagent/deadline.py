"""How does the agent touch attributes that may wait in the kernel, without waiting with them?

Writing `unbind` waits until the last user of a device lets it go, and every attribute that takes the device's lock
waits behind it. Such a wait cannot be ended: after the first signal it is uninterruptible, and a process with a thread
in it cannot exit. So these accesses are made by a child, one after another, which is left behind when it is late.
The child gets no signal of ours, holds no file of ours (so no lock outlives the agent in it) and no terminal.

`fork` and not a new program: starting an interpreter would cost more than the whole pass. The child of a program with
threads may only do what is safe after a fork; it reads a pipe, makes the access, writes a pipe and leaves by `_exit`.
"""

from __future__ import annotations

import errno
import os
import select
import signal

from tpuagent.errors import DeadlinePassed
from tpuagent.host import Host

_MESSAGE_LIMIT = 65536
_left_behind: list[int] = []


class PatientChild:
    """Makes attribute accesses in a child with a deadline each. Use it in a `with` statement.

    The child is started by the first access; after a deadline the next access starts another one.
    """

    def __init__(self, host: Host, deadline_s: float) -> None:
        self._host = host
        self._deadline_s = deadline_s
        self._pid = 0
        self._requests = self._answers = -1
        self._idle = True

    def __enter__(self) -> PatientChild:
        reap()
        return self

    def __exit__(self, *_: object) -> None:
        if not self._pid:
            return
        if self._idle:
            os.waitpid(self._dismiss(), 0)  # it ends at the end of its pipe
        else:
            _left_behind.append(self._dismiss())

    def write(self, path: str, text: str) -> None:
        """As Host.write_attribute; DeadlinePassed when the kernel does not answer in time."""
        self._ask(f"w\0{path}\0{text}")

    def read(self, path: str) -> str | None:
        """As Host.read; DeadlinePassed when the kernel does not answer in time."""
        return self._ask(f"r\0{path}\0")

    def _ask(self, request: str) -> str | None:
        if not self._pid:
            self._start()
        action = "access " + request.split("\0")[1]
        self._idle = False
        poll = select.poll()
        poll.register(self._answers, select.POLLIN)
        try:
            os.write(self._requests, request.encode())
            if not poll.poll(self._deadline_s * 1000):
                _left_behind.append(self._dismiss())
                raise DeadlinePassed(action, f"the kernel did not answer within {self._deadline_s:g} s")
            answer = os.read(self._answers, _MESSAGE_LIMIT).decode()
        except BrokenPipeError:
            answer = ""
        if not answer:
            _left_behind.append(self._dismiss())
            raise DeadlinePassed(action, "the process that made the access was killed; try again")
        self._idle = True
        kind, _, rest = answer.partition("\0")
        if kind == "error":
            number = int(rest)
            raise OSError(number, os.strerror(number))
        return rest if kind == "text" else None

    def _start(self) -> None:
        requests, self._requests = os.pipe()
        self._answers, answers = os.pipe()
        blocked = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
        try:
            self._pid = os.fork()
            if self._pid == 0:
                _serve(self._host, requests, answers)
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, blocked)
        os.close(requests)
        os.close(answers)

    def _dismiss(self) -> int:
        """Close the pipes: an idle child ends at once, a waiting one when the kernel lets it. Returns its pid or 0."""
        pid, self._pid = self._pid, 0
        if pid:
            os.close(self._requests)
            os.close(self._answers)
        return pid


def reap() -> None:
    """Collect the children that have ended, without waiting for those that have not."""
    for pid in list(_left_behind):
        try:
            done, _ = os.waitpid(pid, os.WNOHANG)
        except ChildProcessError:
            done = pid
        if done:
            _left_behind.remove(pid)


def _serve(host: Host, requests: int, answers: int) -> None:
    """The child's whole life; never returns."""
    try:
        os.setsid()  # out of the terminal's reach: ^C signals a process group
        nothing = os.open("/dev/null", os.O_RDWR)
        for standard in (0, 1, 2):
            os.dup2(nothing, standard)
        low, high = sorted((requests, answers))
        os.closerange(3, low)
        os.closerange(low + 1, high)
        os.closerange(high + 1, os.sysconf("SC_OPEN_MAX"))
        while request := os.read(requests, _MESSAGE_LIMIT):
            os.write(answers, _answer(host, request.decode()).encode())
    finally:
        os._exit(0)


def _answer(host: Host, request: str) -> str:
    verb, path, text = request.split("\0")
    try:
        if verb == "w":
            host.write_attribute(path, text)
            return "done\0"
        found = host.read(path)
        return "none\0" if found is None else f"text\0{found}"
    except OSError as fault:
        return f"error\0{fault.errno or errno.EIO}"
