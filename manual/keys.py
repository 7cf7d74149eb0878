"""What does each key of the configuration mean? One description for people, of which everything else is made.

`code` stands between backticks, here and in all other texts of this package.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Part:
    """A key at the top: what it is about, and an example as a file that can be used as it stands."""

    what: str
    example: str


PARTS = {
    "devices": Part(
        "The TPU functions, and who may use them.",
        'devices:\n  group: tpu-users\n  mode: "0660"\n  exclude: [0000:00:05.0]\n',
    ),
    "tpu_env": Part(
        "The attribute `tpu-env` of the metadata server, as a file for shells and systemd.",
        "tpu_env:\n  ready_wait_s: 10\n  second_path: /etc/tpu/tpu-env\n",
    ),
    "environment": Part(
        "Variables that `/etc/environment` is to set. `null` leaves a variable alone; other names may be added."
        " Another value that an administrator has written stays, unless the name is in `environment_force`, or it is"
        " a `CLOUDSDK_PYTHON` that is no interpreter.",
        "environment:\n  GCS_READ_REQUEST_TIMEOUT_SECS: 120\n  CLOUDSDK_PYTHON: null\n  TPU_LOG_DIR: /var/log/tpu\n",
    ),
    "environment_force": Part(
        "Names of variables that are set even where an administrator has written another value.",
        "environment_force: [GCS_READ_REQUEST_TIMEOUT_SECS]\n",
    ),
    "containers": Part(
        "What runs on every TPU host. `vbar` and `telemetry` are there without being named, and a key that is not"
        " given keeps its default. Another name adds a container. One that is switched off, or no longer named, is"
        " ended and removed.",
        "containers:\n  vbar:\n    uid: 1000\n    gid: 1000\n  telemetry:\n    enabled: true\n"
        "    mounts: [/etc/telemetry.yaml:/etc/config.yaml:ro]\n"
        "  node-exporter:\n    image: docker.io/prom/node-exporter:v1.8.2\n    network: host\n    memory: 256m\n",
    ),
    "engine": Part("What runs containers.", "engine:\n  socket: /run/podman/podman.sock\n"),
}
NAMED = {"devices.generations": "GENERATION", "environment": "VARIABLE", "containers": "NAME"}
KEYS = {
    "devices.mode": "The mode of the nodes of TPU functions, as chmod takes it.",
    "devices.group": "The group of users that the nodes belong to. It must exist. They belong to the user root.",
    "devices.exclude": "Functions that the agent leaves alone. On a host that boots, the kernel has bound them to"
    " vfio-pci like the others, for root only.",
    "devices.generations": "Kinds of TPU that this version does not know: a name, and the four ids that `lspci -nnv`"
    " shows, like `v9x: 1ae0:0099:1ae0:0111`.",
    "devices.allow_no_iommu": "Bind functions on a machine without an IOMMU too, in the kernel's unsafe no-IOMMU mode,"
    " where a user of a TPU can reach all memory.",
    "devices.unsafe_interrupts": "Set `allow_unsafe_interrupts` of the VFIO modules, so that interrupts need no"
    " remapping. `auto`: on x86_64.",
    "tpu_env.path": "Where the file is written.",
    "tpu_env.owner": "The user to whom it belongs.",
    "tpu_env.mode": "Its mode. The owner must be able to read it.",
    "tpu_env.ready_wait_s": "For how many seconds at most the start of the unit waits for it. `0`: not at all.",
    "tpu_env.second_path": "A second file, with lines like `KEY: 'value'`.",
    "tpu_env.aliases": "Write the accelerator type and the worker id under both of their names,"
    " `TPU_ACCELERATOR_TYPE` and `ACCELERATOR_TYPE` for example.",
    "containers.NAME.enabled": "Whether it is to run. `false`: not started, and ended if it runs.",
    "containers.NAME.image": "The image that it runs. Without one it is switched off.",
    "containers.NAME.required": "The host is degraded while it does not run.",
    "containers.NAME.needs_devices": "Start it when the TPU functions are usable, and make it anew when they are bound"
    " anew.",
    "containers.NAME.command": "The words of its command, instead of the image's own. `{uid}`, `{gid}` and `{chroot}`"
    " in a word stand for the values of these keys.",
    "containers.NAME.uid": "What stands for `{uid}`.",
    "containers.NAME.gid": "What stands for `{gid}`.",
    "containers.NAME.chroot": "What stands for `{chroot}`.",
    "containers.NAME.env": "Variables of its processes. `null` takes one away that is there otherwise.",
    "containers.NAME.mounts": "Files and folders of the host that it sees.",
    "containers.NAME.privileged": "Run it with all rights on the host.",
    "containers.NAME.network": "Whose network it is in: the host's, one behind a bridge, or none at all.",
    "containers.NAME.memory": "It is killed when it uses more memory than this.",
    "containers.NAME.cpus": "It gets no more processor time than that of so many processors.",
    "containers.NAME.ulimits": "Limits of its processes, by the names that limits.conf has, like `nofile`. `null`: as"
    " the engine has it.",
    "containers.NAME.log_max_size": "The size at which its log begins a new file. `off`: not capped.",
    "containers.NAME.log_max_files": "How many files of its log are kept.",
    "containers.NAME.probe": "Where it listens when it is ready. It takes `network: host`, and the agent connects to"
    " nothing: it looks who listens. `off`: it is ready when it runs.",
    "containers.NAME.pull": "When its image is pulled. `always`: whenever it is made anew.",
    "containers.NAME.stop_grace_s": "Seconds between the request to end and the kill.",
    "containers.NAME.conflicts": "Units (without `.service`), containers and snaps beside which it is not started.",
    "engine.socket": "The socket of the engine. `auto`: Docker's, or else Podman's.",
}
