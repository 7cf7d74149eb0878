"""Who reads what the agent writes? The readers themselves, each asked in this or in one other process."""

from __future__ import annotations

import ctypes
import glob
import os
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence

_SUCCESS = 0


def read_by_shell(shell: str, folder: str, files: Sequence[tuple[str, Sequence[str]]]) -> list[dict[str, bytes]]:
    """Source each file with `set -e; set -a` in one shell, and ask for the names. Raises when a single file fails."""
    script = ["set -e", "set -a"]
    for path, names in files:
        asked = " ".join(f'"${{{name}-unset}}"' for name in names)
        script += [f". '{path}'", f"printf '%s\\0' {asked}", f"unset {' '.join(names)}"]
    source = os.path.join(folder, f"all.{os.path.basename(shell)}")
    with open(source, "w", encoding="utf-8") as file:
        file.write("\n".join(script) + "\n")
    # No PATH: a word that were run as a command would fail, and with it the script.
    done = subprocess.run(
        [shell, source], env={"LC_ALL": "C.UTF-8", "PATH": ""}, cwd=folder, capture_output=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, b""), done.stderr.decode(errors="replace")
    values = iter(done.stdout.split(b"\0"))
    return [{name: next(values) for name in names} for _, names in files]


def systemd_library() -> str | None:
    """The library that holds the reader of EnvironmentFile=, where systemd is installed."""
    found = glob.glob("/usr/lib/*/systemd/libsystemd-shared-*.so") + glob.glob(
        "/usr/lib/systemd/libsystemd-shared-*.so"
    )
    return found[0] if found else None


def read_by_systemd(library: str, paths: Sequence[str]) -> Iterator[dict[str, bytes]]:
    """What the service manager's own function makes of each file. It refuses a whole file for one bad line."""
    load = ctypes.CDLL(library).load_env_file
    for path in paths:
        entries = ctypes.POINTER(ctypes.c_char_p)()
        assert load(None, path.encode(), ctypes.byref(entries)) >= _SUCCESS, path
        yield _strings(entries)


class Pam:
    """A login session's pam_env, without a login: the library is asked with a service file of its own."""

    def __init__(self) -> None:
        self._pam = ctypes.CDLL("libpam.so.0")
        self._pam.pam_getenvlist.restype = ctypes.POINTER(ctypes.c_char_p)
        self._folder = tempfile.TemporaryDirectory(prefix="pam-")
        none, self._file = (os.path.join(self._folder.name, name) for name in ("none", "environment"))
        with open(none, "w", encoding="utf-8"):
            pass
        with open(os.path.join(self._folder.name, "test"), "w", encoding="utf-8") as service:
            service.write(f"session required pam_env.so conffile={none} readenv=1 envfile={self._file}\n")
        self._conversation = (ctypes.c_void_p * 2)()

    def read(self, data: bytes) -> dict[str, bytes]:
        """The variables that a login gets from a file with these bytes. Raises when the login would be refused."""
        with open(self._file, "wb") as file:
            file.write(data)
        handle = ctypes.c_void_p()
        started = self._pam.pam_start_confdir(
            b"test", b"root", ctypes.byref(self._conversation), self._folder.name.encode(), ctypes.byref(handle)
        )
        assert started == _SUCCESS
        try:
            assert self._pam.pam_open_session(handle, 0) == _SUCCESS, data
            return _strings(self._pam.pam_getenvlist(handle))
        finally:
            self._pam.pam_end(handle, 0)

    def close(self) -> None:
        """Remove its files."""
        self._folder.cleanup()


def read_by_rules(data: bytes) -> Mapping[str, bytes] | None:
    """pam_env 1.5's algorithm once more, sign by sign, as its source has it; None: it stops before the end of the file.

    Written from the C text and not from the agent's module, so that the two can disagree.
    """
    found: dict[str, bytes] = {}
    rest = data
    while rest:
        line, rest, whole = _c_line(rest)
        if line is None:
            return None
        if whole:
            _c_set(line, found)
    return found


def _c_line(rest: bytes) -> tuple[bytes | None, bytes, bool]:
    buffer, used = b"", 0
    while True:
        if not rest:
            return (None, b"", False) if used else (b"", b"", False)
        raw, newline, rest = rest.partition(b"\n")
        raw += newline
        if b"\0" in raw or len(raw) + used > 8191:
            return None, b"", False
        text = raw.lstrip(b" \n\t")
        if not text or text.startswith(b"#"):
            continue
        if b"#" in text:
            return buffer + raw[: raw.index(b"#")], rest, True
        body = text.rstrip(b" \t\n")
        if not body.endswith(b"\\"):
            return buffer + raw, rest, True
        kept = raw[: len(raw) - len(text) + len(body) - 1]
        buffer, used = buffer + kept, used + max(len(kept), 1)


def _c_set(line: bytes, found: dict[str, bytes]) -> None:
    text = line.lstrip(b" \n\t")
    if text.startswith(b"export "):
        text = text[7:]
    text = text.split(b"\n")[0]
    if text.startswith(b"="):
        return
    name, equals, value = text.partition(b"=")
    if any(not (chr(sign).isascii() and (chr(sign).isalnum() or sign == ord("_"))) for sign in name):
        return
    if not equals:
        found.pop(name.decode(), None)
        return
    if value[:1] in {b'"', b"'"}:
        value = value[1:]
        if value[-1:] in {b'"', b"'"}:
            value = value[:-1]
    found[name.decode()] = value


def _strings(entries: ctypes._Pointer[ctypes.c_char_p]) -> dict[str, bytes]:
    found = {}
    at = 0
    while entries and (entry := ctypes.cast(entries, ctypes.POINTER(ctypes.c_char_p))[at]):
        name, _, value = bytes(entry).partition(b"=")
        found[name.decode()] = value
        at += 1
    return found
