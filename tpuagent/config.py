"""What do the configuration files say? Files become frozen values; an error names the file, the line and the key."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from tpuagent.configfiles import read_texts
from tpuagent.containers import typed
from tpuagent.containers.spec import BUILT_IN, Spec
from tpuagent.containers.spec import Policy as ContainerPolicy
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
from tpuagent.values import dataclass, replace

if TYPE_CHECKING:
    from tpuagent.host import Host


def read_address(typed: str, _: bool) -> object:
    """The address of a PCI function."""
    try:
        return parse_address(typed)
    except UsageError:
        raise ValueError(f"{typed!r} is not a PCI address; one looks like 0000:00:04.0") from None


def read_ids(typed: str, _: bool) -> object:
    """The four ids of a TPU."""
    ids = parse_ids(typed)
    if ids.vendor == GOOGLE_VENDOR and ids.device in NO_TPUS:
        raise ValueError(f"{typed} is {NO_TPUS[ids.device]} of a virtual machine, and no TPU")
    return ids


_WIDEST = 60  # a longer line's comment follows it wherever it ends
_VARIABLE = "[A-Za-z_][A-Za-z0-9_]*"
_WANTED = tuple(((name,), value) for name, value in EnvironmentPolicy().wanted)
_NONE: Mapping[Key, str] = {}
_CONTAINER: Schema = {
    "enabled": Field(read_flag, "true"),
    "image": Field(typed.read_image, '""'),
    "required": Field(read_flag, "false"),
    "needs_devices": Field(read_flag, "false"),
    "command": Field(typed.read_text, "[]", is_list=True),
    "uid": Field(typed.read_text, '""'),
    "gid": Field(typed.read_text, '""'),
    "chroot": Field(typed.read_text, '""'),
    "env": MapOf(Field(typed.read_value), _VARIABLE, "LOG_LEVEL"),
    "mounts": Field(typed.read_mount, "[]", is_list=True),
    "privileged": Field(read_flag, "false"),
    "network": Field(typed.read_network, "bridge"),
    "memory": Field(typed.read_memory, "off"),
    "cpus": Field(typed.read_cpus, "off"),
    "ulimits": MapOf(
        Field(typed.read_ulimit), "|".join(typed.LIMITS), "memlock", defaults=((("memlock",), "unlimited"),)
    ),
    "log_max_size": Field(typed.read_log_size, "10m"),
    "log_max_files": Field(typed.read_log_files, "3"),
    "probe": Field(typed.read_probe, "off"),
    "pull": Field(typed.read_pull, "missing"),
    "stop_grace_s": Field(typed.read_grace_s, "10"),
    "conflicts": Field(typed.read_unit_name, "[]", is_list=True),
}
# What a key sets where the two have different names.
_FIELDS = {"log_max_size": "log_max_bytes", "probe": "probe_port"}
SCHEMA: Schema = {
    "devices": {
        "mode": Field(read_mode, '"0666"'),
        "group": Field(read_account, "root"),
        "exclude": Field(read_address, "[]", is_list=True),
        "generations": MapOf(Field(read_ids), "[A-Za-z0-9][A-Za-z0-9._-]*", "v5p"),
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
    "environment": MapOf(Field(read_value_or_null), _VARIABLE, "CLOUDSDK_PYTHON", defaults=_WANTED),
    "environment_force": Field(read_name, "[]", is_list=True),
    "containers": MapOf(
        _CONTAINER,
        "[a-z0-9][a-z0-9-]{0,30}",
        "vbar",
        defaults=tuple(((spec.name, *key), text) for spec in BUILT_IN for key, text in typed.render_typed(spec)),
    ),
    "engine": {"socket": Field(typed.read_socket, "auto")},
}


@dataclass(frozen=True)
class Config:
    """Everything that can be configured. `settings` are the ones that some file sets."""

    devices: DevicePolicy
    metadata: MetadataPolicy
    containers: ContainerPolicy
    settings: Mapping[Key, Setting]


def load(host: Host, file: str | None = None) -> Config:
    """The configuration of the host, or of one file alone. Raises ConfigError; nothing is half applied."""
    settings: dict[Key, Setting] = {}
    for path, text in read_texts(host, file):
        # Not for a file of comments, as the one that is installed: the parser takes long to import.
        from tpuagent.yamltext import parse_settings

        settings.update(parse_settings(text, path, SCHEMA))
    return Config(_devices(settings), _metadata(settings), _containers(settings), settings)


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


def _containers(settings: Mapping[Key, Setting]) -> ContainerPolicy:
    specs = {spec.name: spec for spec in BUILT_IN}
    for name in dict.fromkeys(key[1] for key in settings if key[0] == "containers"):
        specs[name] = _spec(settings, specs.get(name, Spec(name)))
    return ContainerPolicy(tuple(specs.values()), **_section(settings, "engine"))


def _spec(settings: Mapping[Key, Setting], base: Spec) -> Spec:
    """A container with what the configuration changes of it: maps entry by entry, everything else as a whole."""
    path = ("containers", base.name)
    plain = {_FIELDS.get(name, name): value for name, value in _section(settings, *path).items()}
    for name, before in (("env", base.env), ("ulimits", base.ulimits)):
        merged = {**dict(before), **_section(settings, *path, name)}
        plain[name] = tuple((entry, value) for entry, value in merged.items() if value is not None)
    spec = replace(base, **plain)
    if spec.probe_port is not None and spec.network != "host":
        keys = [(*path, "probe"), (*path, "network")]  # one of the two was typed
        file, _, line = next(settings[key] for key in keys if key in settings).origin.rpartition(":")
        why = "the probe looks at ports of the host, so it needs network: host"
        raise ConfigError(f"read {file}", f"line {line}: containers.{base.name}.probe: {why}")
    return spec


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


def _explain(
    key: Key, schema: Schema | Field | MapOf, settings: Mapping[Key, Setting], defaults: Mapping[Key, str] = _NONE
) -> Iterator[Effective]:
    """`defaults`: those of a map, by their keys below this one; they go before the fields' own."""
    if isinstance(schema, Field):
        setting = settings.get(key)
        default = defaults.get((), schema.default)
        yield Effective(key, setting.typed, setting.origin) if setting else Effective(key, default, "default")
    elif isinstance(schema, MapOf):
        known = {**dict(schema.defaults), **defaults}
        added = [full[len(key)] for full in settings if full[: len(key)] == key]
        for name in dict.fromkeys((*(below[0] for below in known), *added)):
            yield from _explain((*key, name), schema.below, settings, _below(known, name))
    else:
        for name, below in schema.items():
            yield from _explain((*key, name), below, settings, _below(defaults, name))


def _below(defaults: Mapping[Key, str], name: str) -> dict[Key, str]:
    return {key[1:]: typed for key, typed in defaults.items() if key[0] == name}


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
    width = max(len(line) for line, _ in lines if len(line) <= _WIDEST)
    return "\n".join(f"{line.ljust(width)}  # {origin}" if origin else line for line, origin in lines)
