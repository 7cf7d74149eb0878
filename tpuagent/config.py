"""What do the configuration files say? Files become frozen values; an error names the file, the line and the key."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from tpuagent.configfiles import read_texts
from tpuagent.devices.pci import GENERATIONS, GOOGLE_VENDOR, NO_TPUS, Generation, parse_address, parse_ids
from tpuagent.devices.policy import Policy as DevicePolicy
from tpuagent.errors import ConfigError, UsageError
from tpuagent.metadata.policy import (
    EnvironmentPolicy,
    TpuEnvPolicy,
    environment_policy,
    read_file_mode,
    read_name,
    read_path,
    read_path_or_off,
    read_value_or_null,
    read_wait_s,
)
from tpuagent.metadata.policy import Policy as MetadataPolicy
from tpuagent.schema import Field, Key, MapOf, Schema, Setting, read_account, read_auto_or_flag, read_flag, read_mode
from tpuagent.values import dataclass

if TYPE_CHECKING:
    from tpuagent.host import Host


def _address(typed: str, _: bool) -> object:
    try:
        return parse_address(typed)
    except UsageError:
        raise ValueError(f"{typed!r} is not a PCI address; one looks like 0000:00:04.0") from None


def _ids(typed: str, _: bool) -> object:
    ids = parse_ids(typed)
    if ids.vendor == GOOGLE_VENDOR and ids.device in NO_TPUS:
        raise ValueError(f"{typed} is {NO_TPUS[ids.device]} of a virtual machine, and no TPU")
    return ids


_VARIABLE = "[A-Za-z_][A-Za-z0-9_]*"
SCHEMA: Schema = {
    "devices": {
        "mode": Field(read_mode, '"0666"'),
        "group": Field(read_account, "root"),
        "exclude": Field(_address, "[]", is_list=True),
        "generations": MapOf(Field(_ids), "[A-Za-z0-9][A-Za-z0-9._-]*", "v5p"),
        "allow_no_iommu": Field(read_flag, "false"),
        "unsafe_interrupts": Field(read_auto_or_flag, "auto"),
    },
    "tpu_env": {
        "path": Field(read_path, "/home/tpu-runtime/tpu-env"),
        "owner": Field(read_account, "root"),
        "mode": Field(read_file_mode, '"0644"'),
        "ready_wait_s": Field(read_wait_s, "30"),
        "second_path": Field(read_path_or_off, "off"),
        "aliases": Field(read_flag, "false"),
    },
    "environment": MapOf(Field(read_value_or_null), _VARIABLE, "CLOUDSDK_PYTHON", defaults=EnvironmentPolicy().wanted),
    "environment_force": Field(read_name, "[]", is_list=True),
}


@dataclass(frozen=True)
class Config:
    """Everything that can be configured. `settings` are the ones that some file sets."""

    devices: DevicePolicy
    metadata: MetadataPolicy
    settings: Mapping[Key, Setting]


def load(host: Host, file: str | None = None) -> Config:
    """The configuration of the host, or of one file alone. Raises ConfigError; nothing is half applied."""
    settings: dict[Key, Setting] = {}
    for path, text in read_texts(host, file):
        # Not for a file of comments, as the one that is installed: the parser takes long to import.
        from tpuagent.yamltext import parse_settings

        settings.update(parse_settings(text, path, SCHEMA))
    return Config(_devices(settings), _metadata(settings), settings)


# Putting together -------------------------------------------------------------------------------------------------


def _section(settings: Mapping[Key, Setting], *path: str) -> dict[str, Any]:
    """The values right below a key, by their names."""
    below = len(path)
    return {key[-1]: setting.value for key, setting in settings.items() if key[:-1] == path and len(key) == below + 1}


def _devices(settings: Mapping[Key, Setting]) -> DevicePolicy:
    plain = _section(settings, "devices")
    plain["exclude"] = frozenset(plain.get("exclude", ()))
    return DevicePolicy(generations=(*GENERATIONS, *_added_generations(settings)), **plain)


def _added_generations(settings: Mapping[Key, Setting]) -> Iterator[Generation]:
    known = {generation.ids: generation.name for generation in GENERATIONS}
    for name, ids in _section(settings, "devices", "generations").items():
        if name in known.values() or ids in known:
            path, _, line = settings["devices", "generations", name].origin.rpartition(":")
            same = next(one for one in known.items() if ids == one[0] or name == one[1])
            why = f"{same[1]} ({same[0]}) is known already"
            raise ConfigError(f"read {path}", f"line {line}: devices.generations.{name}: {why}")
        known[ids] = name
        yield Generation(name, ids)


def _metadata(settings: Mapping[Key, Setting]) -> MetadataPolicy:
    forced = settings.get(("environment_force",))
    return MetadataPolicy(
        TpuEnvPolicy(**_section(settings, "tpu_env")),
        environment_policy(_section(settings, "environment"), frozenset(forced.value if forced else ())),
    )


# Showing ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Effective:
    """What a key is in the end: as it would be typed, and the file and line that say so."""

    key: Key
    typed: str
    origin: str


def explain(config: Config) -> list[Effective]:
    """Every key with its value and where that comes from, in the order of the documentation."""
    return list(_explain((), SCHEMA, config.settings))


def _explain(key: Key, schema: Schema | Field | MapOf, settings: Mapping[Key, Setting]) -> Iterator[Effective]:
    if isinstance(schema, Field):
        setting = settings.get(key)
        yield Effective(key, *((setting.typed, setting.origin) if setting else (schema.default, "default")))
    elif isinstance(schema, MapOf):
        added = [full[-1] for full in settings if full[:-1] == key]
        defaults = dict(schema.defaults)
        for name in dict.fromkeys((*defaults, *added)):
            yield from _explain((*key, name), Field(schema.field.read, defaults.get(name, "")), settings)
    else:
        for name, below in schema.items():
            yield from _explain((*key, name), below, settings)


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
