"""Which configuration files are there, and what of them says anything? Reads the host."""

from __future__ import annotations

import errno

from tpuagent.errors import ConfigError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from tpuagent.host import Host

CONFIG_FILE = "/etc/tpu-agent/config.yaml"
DROP_IN_FOLDER = "/etc/tpu-agent/config.d"


def read_texts(host: Host, file: str | None) -> Iterator[tuple[str, str]]:
    """Path and text of every file that says something, in the order in which they count; or of `file` alone."""
    for path in [CONFIG_FILE, *_drop_ins(host)] if file is None else [file]:
        text = _read(host, path, must_exist=file is not None)
        if any(line.strip() and not line.lstrip().startswith("#") for line in text.splitlines()):
            yield path, text


def _drop_ins(host: Host) -> list[str]:
    try:
        names = host.names(DROP_IN_FOLDER)
    except OSError as fault:
        raise ConfigError(f"read {DROP_IN_FOLDER}", fault.strerror or str(fault)) from None
    return [f"{DROP_IN_FOLDER}/{name}" for name in names if name.endswith((".yaml", ".yml"))]


def _read(host: Host, path: str, *, must_exist: bool) -> str:
    try:
        text = host.read(path, errors="strict")
    except OSError as fault:
        hint = "; run it with sudo" if isinstance(fault, PermissionError) else ""
        why = f"{(fault.strerror or str(fault)).lower()}{hint} ({errno.errorcode.get(fault.errno or 0, '?')})"
        raise ConfigError(f"read {path}", why) from None
    except UnicodeDecodeError as fault:
        line = fault.object.count(b"\n", 0, fault.start) + 1
        raise ConfigError(f"read {path}", f"line {line}: it is not UTF-8") from None
    if text is None and must_exist:
        raise ConfigError(f"read {path}", "there is no such file (ENOENT)")
    return text or ""
