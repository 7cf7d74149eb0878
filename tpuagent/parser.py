"""How does argparse read what was typed? For what is not plain: help, the values of options, and mistakes.

Not every command needs every verb's description, and making them takes longer than most commands.
"""

from __future__ import annotations

import argparse
import os

from tpuagent import __version__
from tpuagent.arguments import EXIT_CODES, VERBS

_PLAIN_COLUMNS = 80
# argparse looks each of its words up in catalogues of translations, which imports locale and searches four folders a
# word. There are none of them, nor of ours.
argparse._ = str  # type: ignore[attr-defined]


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
            epilog=EXIT_CODES,
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
