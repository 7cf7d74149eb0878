"""What do the configuration files say? Files become frozen values; an error names the file, the line and the key."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tpuagent.devices.pci import GENERATIONS, Generation, parse_address, parse_ids
from tpuagent.devices.policy import Policy
from tpuagent.errors import ConfigError, UsageError
from tpuagent.schema import Field, Key, MapOf, Schema, Setting, read_auto_or_flag, read_flag, read_group, read_mode

if TYPE_CHECKING:
    from tpuagent.host import Host

CONFIG_FILE = "/etc/tpu-agent/config.yaml"
DROP_IN_FOLDER = "/etc/tpu-agent/config.d"


def _address(typed: str, _: bool) -> object:
    try:
        return parse_address(typed)
    except UsageError:
        raise ValueError(f"{typed!r} is not a PCI address; one looks like 0000:00:04.0") from None


def _ids(typed: str, _: bool) -> object:
    return parse_ids(typed)


SCHEMA: Schema = {
    "devices": {
        "mode": Field(read_mode, '"0666"'),
        "group": Field(read_group, "root"),
        "exclude": Field(_address, "[]", is_list=True),
        "generations": MapOf(Field(_ids), r"[A-Za-z0-9][A-Za-z0-9._-]*", "v5p"),
        "allow_no_iommu": Field(read_flag, "false"),
        "unsafe_interrupts": Field(read_auto_or_flag, "auto"),
    }
}


@dataclass(frozen=True)
class Config:
    """Everything that can be configured. `settings` are the ones that some file sets."""

    devices: Policy
    settings: Mapping[Key, Setting]


def load(host: Host, file: str | None = None) -> Config:
    """The configuration of the host, or of one file alone. Raises ConfigError; nothing is half applied."""
    settings: dict[Key, Setting] = {}
    paths = [CONFIG_FILE, *_drop_ins(host)] if file is None else [file]
    for path in paths:
        text = _read(host, path, must_exist=file is not None)
        if any(line.strip() and not line.lstrip().startswith("#") for line in text.splitlines()):
            # Not for the file as it is installed, all comments: the parser takes longer than the rest of a command.
            from tpuagent.yamltext import parse_settings

            settings.update(parse_settings(text, path, SCHEMA))
    return Config(_policy(settings), settings)


# Putting together -------------------------------------------------------------------------------------------------


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
        raise ConfigError(f"read {path}", fault.strerror or str(fault)) from None
    except UnicodeDecodeError as fault:
        line = fault.object.count(b"\n", 0, fault.start) + 1
        raise ConfigError(f"read {path}", f"line {line}: it is not UTF-8") from None
    if text is None and must_exist:
        raise ConfigError(f"read {path}", "there is no such file (ENOENT)")
    return text or ""


def _policy(settings: Mapping[Key, Setting]) -> Policy:
    plain = {
        key[1]: setting.value for key, setting in settings.items() if key[0] == "devices" and key[1] != "generations"
    }
    added = {key[2]: setting for key, setting in settings.items() if key[:2] == ("devices", "generations")}
    table = list(GENERATIONS)
    for name, setting in added.items():
        for known in table:
            if name == known.name or setting.value == known.ids:
                path, _, line = setting.origin.rpartition(":")
                raise ConfigError(
                    f"read {path}",
                    f"line {line}: devices.generations.{name}: {known.name} ({known.ids}) is known already",
                )
        table.append(Generation(name, setting.value))
    if "exclude" in plain:
        plain["exclude"] = frozenset(plain["exclude"])
    return Policy(generations=tuple(table), **plain)


# Showing ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Effective:
    """What a key is in the end: as it would be typed, and the file and line that say so."""

    key: Key
    typed: str
    origin: str


def explain(config: Config) -> list[Effective]:
    """Every key with its value and where that comes from, in the order of the documentation."""
    shown = []
    for section, fields in SCHEMA.items():
        for name, field in fields.items():
            key = (section, name)
            if isinstance(field, MapOf):
                below = sorted((full, setting) for full, setting in config.settings.items() if full[:2] == key)
                shown += [Effective(full, setting.typed, setting.origin) for full, setting in below]
            elif setting := config.settings.get(key):
                shown.append(Effective(key, _as_typed(field, setting), setting.origin))
            else:
                shown.append(Effective(key, field.default, "default"))
    return shown


def _as_typed(field: Field, setting: Setting) -> str:
    return f'"{setting.typed}"' if field.read is read_mode else setting.typed


def render(shown: list[Effective]) -> str:
    """The effective configuration as a file that the agent would read, with the origins as comments."""
    lines: list[tuple[str, str]] = []
    path: Key = ()
    for effective in shown:
        for depth, name in enumerate(effective.key[:-1]):
            if effective.key[: depth + 1] != path[: depth + 1]:
                lines.append(("  " * depth + name + ":", ""))
        path = effective.key
        lines.append(("  " * (len(path) - 1) + f"{path[-1]}: {effective.typed}", effective.origin))
    width = max(len(line) for line, _ in lines)
    return "\n".join(f"{line.ljust(width)}  # {origin}" if origin else line for line, origin in lines)
