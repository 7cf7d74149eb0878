"""How does the agent touch attributes that may wait in the kernel, without waiting with them?

Writing `unbind` waits until the last user of a device lets it go, and every attribute that takes the device's lock
waits behind it. Such a wait cannot be ended: after the first signal it is uninterruptible, and a process with a thread
in it cannot exit. So these writes are made by a child, one after another, which is left behind when it is late.
The child gets no signal of ours, holds no file of ours (so no lock outlives the agent in it) and no terminal.

`fork` and not a new program: starting an interpreter would cost more than the whole pass. The child of a program with
threads may only do what is safe after a fork; it reads a pipe, makes the writes, writes a pipe and leaves by `_exit`.
"""

from __future__ import annotations

import errno
import os
import select

from tpuagent.errors import DeadlinePassed
from tpuagent.host import Host

TYPE_CHECKING = False
if TYPE_CHECKING:
    import signal
    from collections.abc import Sequence
else:  # the same functions; the enumerations that `signal` makes of its numbers take longer than all that is done here
    import _signal as signal

Write = tuple[str, str]  # an attribute and its new value
Opening = tuple[str, int, int, int]  # a node, and the mode, user and group that it is to have
Chain = tuple["Sequence[Write]", "Opening | None"]

_END, _PART = "\x1e", "\x1d"  # of a message, and between its two parts; in no path and in no value
# Not signal.valid_signals(): making its sixty members takes longer than the fork. 32 and 33 are the C library's own.
_SIGNALS = frozenset(range(1, signal.NSIG)) - {32, 33}
_DONE, _SKIPPED = "0", "-"
_left_behind: list[int] = []


class PatientChild:
    """Makes attribute writes in a child, each with a deadline. Use it in a `with` statement.

    The child is started by the first write; after a deadline the next one starts another.
    """

    def __init__(self, host: Host, deadline_s: float) -> None:
        self._host = host
        self._deadline_s = deadline_s
        self._pid = 0
        self._requests = self._answers = -1
        self._received = ""
        # Writes that the child has been told of and whose answers are to come, and answers that nobody has asked for.
        self._under_way: list[Write] = []
        self._answered: dict[Write, str] = {}

    def __enter__(self) -> PatientChild:
        reap()
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    def end(self) -> None:
        """Let the child end, if there is one; the next write starts another."""
        if not self._pid:
            return
        if self._under_way:
            self._leave_behind()
        else:
            os.waitpid(self._dismiss(), 0)  # it ends at the end of its pipe

    def announce(self, *chains: Chain) -> None:
        """Let the child make these writes now, each chain up to its first that fails; `write` then takes the answers.

        When all writes of a chain are made the child opens its node, if that is there. It gives no answer to that:
        whoever announces it looks at the node later. A pass that told the child of one write after another, and opened
        each node itself, would spend most of its time on changing processes.
        """
        if chains := tuple(chain for chain in chains if chain[0]):
            self._send(*chains)

    def write(self, path: str, text: str) -> None:
        """As Host.write_attribute; DeadlinePassed when the kernel does not answer in time."""
        wanted = (path, text)
        if wanted not in self._answered and wanted not in self._under_way:
            self._send(([wanted], None))
        while wanted not in self._answered:
            self._receive(f"access {path}")
        answer = self._answered.pop(wanted)
        if answer == _SKIPPED:  # one before it in its chain has failed, and that was no reason to stop
            self.write(path, text)
        elif answer != _DONE:
            raise OSError(int(answer), os.strerror(int(answer)))

    def _send(self, *chains: Chain) -> None:
        message = "".join(map(_message, chains))
        writes = [write for chain in chains for write in chain[0]]
        if not self._pid:
            self._start()
        # Before the child is told: after a ^C in between, nobody must take it for idle and wait for its end.
        self._under_way += writes
        try:
            os.write(self._requests, message.encode())
        except BrokenPipeError:  # somebody has killed it while it was idle
            self._leave_behind()
            self._start()
            self._under_way += writes
            os.write(self._requests, message.encode())

    def _receive(self, action: str) -> None:
        """Take the answers that are there, or wait for the next one."""
        poll = select.poll()
        poll.register(self._answers, select.POLLIN)
        if not poll.poll(self._deadline_s * 1000):
            self._leave_behind()
            raise DeadlinePassed(action, f"the kernel did not answer within {self._deadline_s:g} s")
        received = os.read(self._answers, select.PIPE_BUF).decode()
        if not received:
            self._leave_behind()
            raise DeadlinePassed(action, "the process that made the access was killed; try again")
        *whole, self._received = (self._received + received).split(_END)
        for answer in whole:
            self._answered[self._under_way.pop(0)] = answer

    def _start(self) -> None:
        requests, self._requests = os.pipe()
        self._answers, answers = os.pipe()
        blocked = signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)
        try:
            self._pid = os.fork()
            if self._pid == 0:
                _serve(self._host, requests, answers)
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, blocked)
        os.close(requests)
        os.close(answers)

    def _leave_behind(self) -> None:
        """Go on without the child and without the answers of what it was told: its next answer ends it, unread."""
        _left_behind.append(self._dismiss())
        self._under_way.clear()
        self._answered.clear()
        self._received = ""

    def _dismiss(self) -> int:
        """Close the pipes: an idle child ends at once, a waiting one when the kernel lets it. Returns its pid."""
        pid, self._pid = self._pid, 0
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
        rest = ""
        while received := os.read(requests, select.PIPE_BUF):
            *whole, rest = (rest + received.decode()).split(_END)
            for message in whole:
                writes, opening = message.split(_PART)
                if _make(host, writes.split("\0"), answers) and opening:
                    _open(host, *opening.split("\0"))
    finally:
        os._exit(0)


def _message(chain: Chain) -> str:
    writes, opening = chain
    parts = (part for write in writes for part in write)
    return "\0".join(parts) + _PART + "\0".join(map(str, opening or ())) + _END


def _make(host: Host, writes: list[str], answers: int) -> bool:
    """Make the writes of a chain, and answer each when it is done; whether all of them were made."""
    answer = _DONE
    for path, text in zip(writes[::2], writes[1::2], strict=True):
        if answer == _DONE:
            try:
                host.write_attribute(path, text)
            except OSError as fault:
                answer = str(fault.errno or errno.EIO)
        else:
            answer = _SKIPPED
        os.write(answers, f"{answer}{_END}".encode())
    return answer == _DONE


def _open(host: Host, path: str, mode: str, uid: str, gid: str) -> None:
    """Give a node its owner and mode."""
    try:
        host.set_access(path, int(mode), int(uid), int(gid))
    except OSError:
        pass  # whoever announced it looks at the node, and says what is wrong with it
