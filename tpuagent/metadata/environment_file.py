"""Read /etc/environment, edit it, write it back: what daemon and command both do.

Which lines are the agent's own is kept in a file beside the agent's other state, exactly as they stand in
/etc/environment. So a changed configuration changes them, and the package can take them away without a doubt.
"""

from __future__ import annotations

import stat

from tpuagent.host import Host
from tpuagent.metadata.environment import FILE, Edit, plan_environment, render_diff
from tpuagent.metadata.policy import EnvironmentPolicy
from tpuagent.metadata.seen import EnvironmentSeen

OURS = "/var/lib/tpu-agent/environment"
_SEARCHED = ("/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin")
_NEW_FILE = (0o644, 0, 0)


def keep_environment(host: Host, policy: EnvironmentPolicy) -> EnvironmentSeen:
    """Give the file what the policy wants; nothing is touched when it has that already."""
    try:
        old, edit = _plan(host, policy)
        _remember(host, edit.ours)  # before the file: a line that is there and not remembered would be somebody else's
        if edit.text == old:
            return EnvironmentSeen(edit)
        target = host.resolve(FILE)
        found = host.stat(target)
        access = (stat.S_IMODE(found.st_mode), found.st_uid, found.st_gid) if found else _NEW_FILE
        host.swap(target, _encode(edit.text), *access)
        return EnvironmentSeen(edit, written=True)
    except OSError as fault:
        return EnvironmentSeen(None, error=f"cannot edit {FILE}: {(fault.strerror or str(fault)).lower()}")


def preview_environment(host: Host, policy: EnvironmentPolicy) -> tuple[Edit, str]:
    """What `keep_environment` would do, and the difference as `diff -u` shows it. Changes nothing; raises OSError."""
    old, edit = _plan(host, policy)
    return edit, render_diff(old, edit.text)


def is_interpreter(host: Host, value: str) -> bool:
    """Whether a program of this name or path is there and may be run."""
    places = [value] if value.startswith("/") else [f"{folder}/{value}" for folder in _SEARCHED if "/" not in value]
    for place in places if value else ():
        found = host.stat(host.resolve(place))
        if found and stat.S_ISREG(found.st_mode) and found.st_mode & 0o111:
            return True
    return False


def _plan(host: Host, policy: EnvironmentPolicy) -> tuple[str, Edit]:
    old = _decoded(host.read_bytes(host.resolve(FILE)))
    ours = frozenset(line for line in (host.read(OURS) or "").split("\n") if line)
    return old, plan_environment(old, policy, ours, lambda value: is_interpreter(host, value))


def _remember(host: Host, ours: frozenset[str]) -> None:
    text = "".join(f"{line}\n" for line in sorted(ours))
    if text != _decoded(host.read_bytes(OURS)):
        if ours:
            host.swap(OURS, _encode(text), *_NEW_FILE)
        else:
            host.remove(OURS)


def _decoded(data: bytes | None) -> str:
    return (data or b"").decode("utf-8", "surrogateescape")


def _encode(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")
