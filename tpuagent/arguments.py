"""What can be typed? The one description of the command line; help comes from it.

What is plainly typed is taken here. argparse has the last word on everything else: to import it, and to make a parser,
takes longer than most commands.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any, Protocol

    class Verb(Protocol):
        """What takes the description of a verb's arguments: argparse's parser of that verb, or `_Plain`."""

        def add_argument(self, *names: str, **options: Any) -> object:
            """As argparse has it."""


# What a command's help ends with; the man page tells the whole story.
EXIT_CODES = """\
exit codes: 0 done, or already so; 1 unexpected error; 2 usage;
10 no such function; 11 not a TPU, or excluded; 12 in use; 13 no IOMMU group,
or a shared one; 14 kernel module; 15 refused by the kernel; 16 device node;
17 deadline passed; 18 partly done; 20 no such key; 21 metadata server
unreachable; 22 its answer is unusable; 23 no container engine; 24 the engine
refused; 25 no such container; 77 not root, or sysfs is read-only;
78 configuration"""


class Arguments:
    """What was typed: the verb and what it takes, as attributes."""

    verb: str

    def __init__(self, **known: object) -> None:
        self.__dict__.update(known)

    if TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any: ...


def take_plain(argv: Sequence[str], arguments: Arguments) -> bool:
    """Put into `arguments` what argparse would, if there is nothing but a verb, its switches and its list.

    False for anything else, be it help, a value of an option or a mistake; `arguments` is then as it was.
    """
    if not argv or argv[0] not in VERBS:
        return False
    verb, *words = argv
    plain = _Plain()
    VERBS[verb][2](plain)
    if not plain.take(words):
        return False
    arguments.__dict__.update(plain.values, verb=verb)
    return True


class _Plain:
    """Takes the words that follow a verb: switches by their whole names, and one list that stands in one piece."""

    def __init__(self) -> None:
        self.values: dict[str, bool | list[str]] = {}
        self._switches: dict[str, str] = {}
        self._list: str | None = None
        self._understood = True

    def add_argument(self, *names: str, **options: object) -> None:
        name, meaning = names[0], {key: options[key] for key in options if key not in ("help", "metavar")}
        if meaning == {"action": "store_true"} and len(names) == 1 and name.startswith("--"):
            self._switches[name] = name[2:].replace("-", "_")
            self.values[self._switches[name]] = False
        elif meaning == {"nargs": "*"} and not name.startswith("-") and self._list is None:
            self._list = name
            self.values[name] = []
        else:
            self._understood = False

    def take(self, words: Sequence[str]) -> bool:
        """Whether all of them are plain; `values` has them then."""
        places = [place for place, word in enumerate(words) if word not in self._switches]
        listed = [words[place] for place in places]
        in_one_piece = not places or places[-1] - places[0] < len(places)
        if not self._understood or not in_one_piece or any(word.startswith("-") for word in listed):
            return False
        if listed and self._list is None:
            return False
        if self._list:
            self.values[self._list] = listed
        self.values.update((self._switches[word], True) for word in words if word in self._switches)
        return True


def _add_json(verb: Verb) -> None:
    verb.add_argument("--json", action="store_true", help="print JSON")


def _add_functions(verb: Verb) -> None:
    verb.add_argument("address", nargs="*", metavar="ADDRESS", help="like 0000:00:04.0 or 00:04.0")
    verb.add_argument("--all", action="store_true", help="every TPU function of the host")
    verb.add_argument("--dry-run", action="store_true", help="print the steps and take none; needs no root")
    _add_json(verb)


def _add_key(verb: Verb) -> None:
    verb.add_argument("key", metavar="KEY", help="below instance/TYPE; / lists the keys")
    verb.add_argument("default", metavar="DEFAULT", nargs="?", help="what to print when there is no such key")
    verb.add_argument(
        "type", metavar="TYPE", nargs="?", default="attributes", help="folder below instance/, attributes if not given"
    )
    verb.add_argument("--recursive", action="store_true", help="everything below the key, as JSON")
    _add_json(verb)


def _add_what(verb: Verb) -> None:
    verb.add_argument("what", nargs="?", choices=("show", "refresh", "path"), default="show", help="show if not given")


def _add_dry_run(verb: Verb) -> None:
    verb.add_argument("--dry-run", action="store_true", help="show the difference and change nothing; needs no root")


def _add_containers(verb: Verb) -> None:
    actions = ("list", "restart", "stop", "logs", "remove")
    verb.add_argument("action", nargs="?", choices=actions, default="list", help="list if not given")
    verb.add_argument("name", nargs="?", metavar="NAME", help="of the container, like vbar; remove: all if not given")
    verb.add_argument("--lines", type=int, metavar="N", help="logs: only the last N lines")
    verb.add_argument("--follow", action="store_true", help="logs: go on until it ends, or until ^C")
    verb.add_argument("--timestamps", action="store_true", help="logs: with the time of each line")
    _add_json(verb)


def _add_image(verb: Verb) -> None:
    verb.add_argument("--image", metavar="ROOT", help="check the image in this folder, which is not booted")
    _add_json(verb)


def _add_debug(verb: Verb) -> None:
    verb.add_argument("--debug", action="store_true", help="log every event as well")


_METADATA_MORE = """

Without a DEFAULT, a key that is not defined is an error. For example:
  tpuagent metadata tpu-env
  tpuagent metadata accelerator-type none
  tpuagent metadata zone '' /"""
_CHECK_MORE = """ Changes
nothing. Exits with 0 when nothing is wrong, 1 when something is, 2 when
something could not be looked at. For example:
  sudo tpuagent check
  tpuagent check --image /mnt"""
_CONTAINERS_MORE = """

`stop` lasts until `restart` or the next boot. For example:
  tpuagent containers
  tpuagent containers restart vbar
  tpuagent containers logs vbar --lines 50 --follow"""
_STATUS_MORE = " Exits with 0 when it is ready,\n1 when it is degraded or starting, 3 when no agent runs."
_BIND_MORE = """

A function that is already right is not touched; one that a process holds is
refused. For example:
  tpuagent bind 0000:00:04.0
  tpuagent bind --all --dry-run"""
_UNBIND_MORE = """

The agent leaves the functions released until `tpuagent bind` or a reboot. For
example:
  tpuagent unbind 0000:00:04.0"""
_CONFIG_MORE = """
What each key means and takes: man 5 tpu-agent.yaml. Is a file right?
  tpuagent config --config FILE"""

# Verb: what it does, more of that for its help, and what adds its arguments.
VERBS = {
    "status": ("tell what the running agent says of this host", _STATUS_MORE, _add_json),
    "devices": ("list the TPU functions as they are now, and who holds them", "", _add_json),
    "bind": ("bind functions to vfio-pci and open them to users", _BIND_MORE, _add_functions),
    "unbind": (
        "give functions back to their previous driver and leave them alone",
        _UNBIND_MORE,
        _add_functions,
    ),
    "metadata": ("print what the metadata server says of this machine", _METADATA_MORE, _add_key),
    "env": ("show tpu-env, fetch it anew, or tell where it is", "", _add_what),
    "environment": ("bring /etc/environment to what the configuration wants", "", _add_dry_run),
    "check": ("tell whether this machine, or an image, is as TPUs need it", _CHECK_MORE, _add_image),
    "containers": (
        "list the containers that the agent keeps running, or act on one",
        _CONTAINERS_MORE,
        _add_containers,
    ),
    "config": ("print the effective configuration and where each value comes from", _CONFIG_MORE, _add_json),
    "run": ("run the agent; systemd does this as tpu-agent.service", "", _add_debug),
}
