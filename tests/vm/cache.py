"""Where things that are slow to build are kept between runs: one folder for each kind and key, whole or absent."""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

KEY_DIGITS = 12


def cache_root() -> Path:
    """`TPUAGENT_VM_CACHE`, else `tpu-agent-vm` in the user's cache folder; made when missing."""
    named = os.environ.get("TPUAGENT_VM_CACHE")
    base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    root = Path(named) if named else base / "tpu-agent-vm"
    root.mkdir(parents=True, exist_ok=True)
    return root.resolve()


def key_of(*parts: str | bytes) -> str:
    """A short hash of everything that a built thing is made of."""
    digest = hashlib.sha256()
    for part in parts:
        piece = part.encode() if isinstance(part, str) else part
        digest.update(len(piece).to_bytes(8, "big") + piece)
    return digest.hexdigest()[:KEY_DIGITS]


@dataclass(frozen=True)
class Entry:
    """A finished folder of the cache. Nobody deletes it while this process lives: `lock` is held on it."""

    path: Path
    lock: int


def ensure(kind: str, key: str, build: Callable[[Path], None]) -> Entry:
    """The folder `kind-key`, built by `build(folder)` when it is missing; older ones of the kind are then deleted.

    A second process that asks at the same time waits for the first. What an interrupted build left is removed.
    """
    root = cache_root()
    finished = root / f"{kind}-{key}"
    with _locked(root / f"{kind}.lock"):
        if not finished.is_dir():
            unfinished = root / f".building-{kind}"
            _remove(unfinished)
            _remove_stale(root, kind)
            unfinished.mkdir()
            build(unfinished)
            unfinished.rename(finished)
        return Entry(finished, _hold(finished))


def new_run() -> Entry:
    """An empty folder for one guest. The folders of processes that were killed are removed first."""
    runs = cache_root() / "runs"
    runs.mkdir(exist_ok=True)
    with _locked(runs / "lock"):
        for old in runs.iterdir():
            if old.is_dir():
                _remove_unless_held(old)
        number = next(n for n in range(1 << 16) if not (runs / str(n)).exists())
        fresh = runs / str(number)
        fresh.mkdir()
        return Entry(fresh, _hold(fresh))


def discard(run: Entry) -> None:
    _remove(run.path)  # held until it has gone: another process would remove it, too
    os.close(run.lock)


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    with path.open("w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def _hold(folder: Path) -> int:
    descriptor = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
    fcntl.flock(descriptor, fcntl.LOCK_SH)
    return descriptor


def _remove_stale(root: Path, kind: str) -> None:
    for old in root.glob(f"{kind}-" + "[0-9a-f]" * KEY_DIGITS):
        _remove_unless_held(old)


def _remove_unless_held(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        _remove(folder)
    except BlockingIOError:
        pass  # a guest of another process still runs from it
    finally:
        os.close(descriptor)


def _remove(folder: Path) -> None:
    if folder.exists():
        shutil.rmtree(folder)
