"""What can be typed? The one description of the command line; help comes from it.

Not every command needs every verb's description, and making them takes longer than most commands.
"""

from __future__ import annotations

import argparse
import os

from tpuagent import __version__

_PLAIN_COLUMNS = 80
# argparse looks each of its words up in catalogues of translations, which imports locale and searches four folders a
# word. There are none of them, nor of ours.
argparse._ = str  # type: ignore[attr-defined]
# What a command's help ends with; the man page tells the whole story.
_EXIT_CODES = """\
exit codes: 0 done, or already so; 1 unexpected error; 2 usage;
10 no such function; 11 not a TPU, or excluded; 12 in use; 13 no IOMMU group,
or a shared one; 14 kernel module; 15 refused by the kernel; 16 device node;
17 deadline passed; 18 partly done; 20 no such key; 21 metadata server
unreachable; 22 its answer is unusable; 23 no container engine; 24 the engine
refused; 25 no such container; 77 not root, or sysfs is read-only;
78 configuration"""


def build_parser(only: str | None = None) -> argparse.ArgumentParser:
    """The parser of the whole command line, or of one that begins with the verb `only`."""
    common = argparse.ArgumentParser(add_help=False, formatter_class=_Formatter)
    common.add_argument(
        "--config",
        metavar="FILE",
        default=argparse.SUPPRESS,
        help="read this file instead of /etc/tpu-agent/config.yaml and its config.d",
    )
    parser = argparse.ArgumentParser(
        prog="tpuagent",
        description="Make the TPU chips of this virtual machine usable, and keep them so.",
        epilog="See tpuagent(8) for examples, files and exit codes.",
        formatter_class=_Formatter,
        parents=[common],
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"tpuagent {__version__}")
    verbs = parser.add_subparsers(dest="verb", metavar="COMMAND", required=True, prog="tpuagent")
    for name, (help_, more, add_arguments) in VERBS.items() if only is None else [(only, VERBS[only])]:
        verb = verbs.add_parser(
            name,
            help=help_,
            description=f"{help_[0].upper()}{help_[1:]}.{more}",
            epilog=_EXIT_CODES,
            formatter_class=_Formatter,
            parents=[common],
            allow_abbrev=False,
        )
        add_arguments(verb)
    return parser


class _Formatter(argparse.RawDescriptionHelpFormatter):
    """Help as wide as the terminal. The original imports shutil to find that out, at every argument that is added."""

    def __init__(self, prog: str) -> None:
        try:
            columns = int(os.environ.get("COLUMNS", "")) or os.get_terminal_size().columns
        except (OSError, ValueError):
            columns = _PLAIN_COLUMNS
        super().__init__(prog, width=columns - 2)


def _add_json(verb: argparse.ArgumentParser) -> None:
    verb.add_argument("--json", action="store_true", help="print JSON")


def _add_functions(verb: argparse.ArgumentParser) -> None:
    verb.add_argument("address", nargs="*", metavar="ADDRESS", help="like 0000:00:04.0 or 00:04.0")
    verb.add_argument("--all", action="store_true", help="every TPU function of the host")
    verb.add_argument("--dry-run", action="store_true", help="print the steps and take none; needs no root")
    _add_json(verb)


def _add_key(verb: argparse.ArgumentParser) -> None:
    verb.add_argument("key", metavar="KEY", help="below instance/TYPE; / lists the keys")
    verb.add_argument("default", metavar="DEFAULT", nargs="?", help="what to print when there is no such key")
    verb.add_argument(
        "type", metavar="TYPE", nargs="?", default="attributes", help="folder below instance/, attributes if not given"
    )
    verb.add_argument("--recursive", action="store_true", help="everything below the key, as JSON")
    _add_json(verb)


def _add_what(verb: argparse.ArgumentParser) -> None:
    verb.add_argument("what", nargs="?", choices=("show", "refresh", "path"), default="show", help="show if not given")


def _add_dry_run(verb: argparse.ArgumentParser) -> None:
    verb.add_argument("--dry-run", action="store_true", help="show the difference and change nothing; needs no root")


def _add_containers(verb: argparse.ArgumentParser) -> None:
    actions = ("list", "restart", "stop", "logs", "remove")
    verb.add_argument("action", nargs="?", choices=actions, default="list", help="list if not given")
    verb.add_argument("name", nargs="?", metavar="NAME", help="of the container, like vbar; remove: all if not given")
    verb.add_argument("--lines", type=int, metavar="N", help="logs: only the last N lines")
    verb.add_argument("--follow", action="store_true", help="logs: go on until it ends, or until ^C")
    verb.add_argument("--timestamps", action="store_true", help="logs: with the time of each line")
    _add_json(verb)


def _add_image(verb: argparse.ArgumentParser) -> None:
    verb.add_argument("--image", metavar="ROOT", help="check the image below this folder, which is not booted")
    _add_json(verb)


def _add_debug(verb: argparse.ArgumentParser) -> None:
    verb.add_argument("--debug", action="store_true", help="log every event as well")


_METADATA_MORE = """

Without a DEFAULT, a key that is not defined is an error. For example:
  tpuagent metadata tpu-env
  tpuagent metadata accelerator-type none
  tpuagent metadata zone '' /"""
_CHECK_MORE = """

What is wrong comes first, each with the command that mends it. Exits with 0 if
nothing is wrong, 1 if something is, 2 if something could not be looked at."""
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
    "check": ("tell what is wrong with this machine, or with an image, and how to mend it", _CHECK_MORE, _add_image),
    "containers": (
        "list the containers that the agent keeps running, or act on one",
        _CONTAINERS_MORE,
        _add_containers,
    ),
    "config": ("print the effective configuration and where each value comes from", "", _add_json),
    "run": ("run the agent; systemd does this as tpu-agent.service", "", _add_debug),
}
