"""What has to be known of the configuration besides its keys? The texts that the page and the manual share.

A paragraph that begins with four spaces is an example.
"""

from __future__ import annotations

from dataclasses import dataclass

SCHEMA_PATH = "/usr/share/tpu-agent/schema.json"
TOPICS = {
    "Files": """\
`/etc/tpu-agent/config.yaml` is read first, then the files `*.yaml` and `*.yml` in `/etc/tpu-agent/config.d`, in the
order of their names. Every key has a default. No file has to be there, and an empty one sets nothing.

A later value replaces an earlier one, key by key. A list is replaced as a whole. Maps are merged entry by entry:
`devices.generations`, `environment`, `containers`, and `env` and `ulimits` of a container.

The package puts `config.yaml` there once, with every key as a comment, and does not change it again. A file of your
own in `config.d` is the better place for what you change.

`tpuagent --config FILE` reads that file alone.
""",
    "Values": """\
Values are taken as they are typed, so that YAML bends nothing: `0000:00:04.0` is an address and `no` the name of a
group. Whether a value stands in quotes changes nothing, but for these words:

A switch is `true` or `false` without quotes. `yes`, `on` and other words that YAML has for them are refused. `off`,
`auto` and `null` mean what is said of them only without quotes. `yes`, `no` and the like as the value of a variable of
a container have to stand in quotes.

A mode has four octal digits, like `"0660"`. `660` is refused: YAML and chmod do not read it alike.

A size is a number of bytes, or one with `k`, `m` or `g` behind it, for 1024 bytes and its powers.
""",
    "Look, check and apply": """\
`tpuagent config` prints what is in force as a file that could be read back, each value with the file and line that
sets it. With `--config FILE` it tells whether a file is right before it is put into place.

After a change:

    systemctl reload tpu-agent

An unknown key, a key that stands twice and a value that cannot be meant are mistakes. A mistake is told in one line
with file, line and key, and nothing of any file is applied then: the agent keeps the configuration that it has, and
`tpuagent status` says so. An agent that is started with a mistake ends with status 78, and systemd does not start it
again.
""",
    "Editors": f"""\
`{SCHEMA_PATH}` is a JSON schema of the configuration. Editors with a language server for YAML complete
keys, explain them and underline mistakes in a file with this line, which `config.yaml` has:

    # yaml-language-server: $schema={SCHEMA_PATH}
""",
}


def paragraphs(topic: str) -> list[str]:
    """Those of a topic, each in one line."""
    return [block if block.startswith("    ") else " ".join(block.split()) for block in topic.strip("\n").split("\n\n")]


@dataclass(frozen=True)
class Unseen:
    """Something about which the schema and the agent do not agree: an example, and whether the agent takes it."""

    what: str
    example: str
    taken: bool


UNSEEN_BEGINS = (
    "An editor sees values as YAML has them, one file at a time, and the agent sees what was typed, in all files"
    " together. Where they do not agree the agent is right, and `tpuagent config` tells what it says."
)
UNSEEN = (
    Unseen("A mode without quotes is a number for YAML. The agent takes it.", "devices: {mode: 0660}", True),
    Unseen(
        "Bare words like `null`, `true` and `5`, which YAML has another meaning for, where a name is wanted. The agent"
        " takes the name.",
        "devices: {group: null}",
        True,
    ),
    Unseen(
        "`off` and `auto` in quotes. The agent refuses them, or takes them for a name.",
        'engine: {socket: "auto"}',
        False,
    ),
    Unseen(
        "`True`, `0x10` and `1e2`, other ways to write `true` and numbers. The agent refuses them.",
        "devices: {allow_no_iommu: True}",
        False,
    ),
    Unseen(
        "`null` in the place of all that may stand below a key. The agent wants nothing there, or `{}`.",
        "devices: null",
        False,
    ),
    Unseen(
        "Words like `yes` and `off` as the value of a variable of a container: the agent wants them in quotes.",
        "containers: {vbar: {env: {DEBUG: yes}}}",
        False,
    ),
    Unseen(
        "The size of a number that stands in quotes, or beside another one.",
        "containers: {vbar: {ulimits: {nofile: 2000:1000}}}",
        False,
    ),
    Unseen("Characters in a path that do not show.", 'tpu_env: {path: "/run/tpu\\u200benv"}', False),
    Unseen("A generation that the agent knows already.", "devices: {generations: {v6e: 1ae0:0099:1ae0:0111}}", False),
    Unseen(
        "What two keys have to do with each other. A `probe` needs `network: host`, which another file may set.",
        "containers: {mine: {probe: tcp:8080}}",
        False,
    ),
    Unseen("A key that stands twice; most editors tell it all the same.", "devices: {}\ndevices: {}", False),
)
