"""How do two processes of the agent keep out of each other's way? A lock that its holder cannot leave behind."""

from __future__ import annotations

import os
import time

from tpuagent.errors import DeadlinePassed, NotPermitted

LOCK_RETRY_S = 0.02


class FileLock:
    """An exclusive lock on a file of root's. The kernel drops it when its holder ends, however it ends."""

    def __init__(self, path: str, limit_s: float) -> None:
        self._path = path
        self._limit_s = limit_s
        self._descriptor = -1

    def __enter__(self) -> FileLock:
        import fcntl

        try:
            self._descriptor = self._open()
        except OSError as fault:
            raise NotPermitted(f"lock {self._path}", fault.strerror or str(fault)) from fault
        end = time.monotonic() + self._limit_s
        while True:
            try:
                fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() >= end:
                    holder = os.pread(self._descriptor, 32, 0).decode(errors="replace").strip()
                    os.close(self._descriptor)
                    holds = f"has held it for {self._limit_s:g} s and more" if self._limit_s else "holds it"
                    raise DeadlinePassed(
                        f"lock {self._path}",
                        f"process {holder or '?'} {holds}; look at it with: ps -fp {holder or '?'}",
                    ) from None
                time.sleep(LOCK_RETRY_S)
        try:
            os.ftruncate(self._descriptor, 0)
            os.pwrite(self._descriptor, f"{os.getpid()}\n".encode(), 0)
        except OSError:  # who holds it is only for the message above; /run may be full
            pass
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._descriptor)

    def _open(self) -> int:
        # 0600: anybody who may open the file may lock it, and could make the agent wait for ever.
        flags, mode = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600
        try:
            return os.open(self._path, flags, mode)
        except FileNotFoundError:
            os.makedirs(os.path.dirname(self._path), exist_ok=True)
            return os.open(self._path, flags, mode)
