"""What can follow `tpuagent` on a command line? Its parser's answer, as a completion for bash, zsh or fish.

Usage: python3 packaging/completions.py bash|zsh|fish
The package's build runs this, so that no completion is kept that the parser does not know of.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from shlex import quote

sys.path.insert(0, str(Path(__file__).parents[1]))

from tpuagent.devices.pci import GOOGLE_VENDOR, NO_TPUS
from tpuagent.parser import build_parser

# What stands for a word in the help, and the function of each completion that lists what it can be.
KINDS = {"ADDRESS": "addresses", "NAME": "containers", "FILE": "files", "ROOT": "folders"}


@dataclass(frozen=True)
class Option:
    """One option: its names, and what its value is if it takes one."""

    names: tuple[str, ...]
    help: str
    takes: str | None


@dataclass(frozen=True)
class Word:
    """A word that belongs to no option: one of the choices, or of a kind that a function lists."""

    metavar: str
    choices: tuple[str, ...]
    repeated: bool


@dataclass(frozen=True)
class Verb:
    """A command; the one without a name is what precedes it."""

    name: str
    help: str
    options: tuple[Option, ...]
    words: tuple[Word, ...]


def read_parser() -> list[Verb]:
    """Everything that can be typed, in the order of the help; first what stands before a command."""
    parser = build_parser()
    verbs = next(one for one in parser._actions if isinstance(one, argparse._SubParsersAction))  # noqa: SLF001  (argparse has no public way to look)
    helps = {one.dest: one.help or "" for one in verbs._choices_actions}  # noqa: SLF001
    return [_verb("", "", parser), *(_verb(name, helps[name], below) for name, below in verbs.choices.items())]


def _verb(name: str, help_: str, parser: argparse.ArgumentParser) -> Verb:
    actions = [one for one in parser._actions if not isinstance(one, argparse._SubParsersAction)]  # noqa: SLF001
    options = (
        Option(tuple(one.option_strings), one.help or "", None if one.nargs == 0 else str(one.metavar))
        for one in actions
        if one.option_strings
    )
    words = (
        Word(str(one.metavar or one.dest), tuple(one.choices or ()), one.nargs == "*")
        for one in actions
        if not one.option_strings
    )
    return Verb(name, help_, tuple(options), tuple(words))


# What this machine has --------------------------------------------------------------------------------------------

# The same vendor's functions that no TPU is in are not offered: nobody may bind them.
_NO_TPUS = "|".join(f"0x{device:04x}" for device in NO_TPUS)
_ADDRESSES = f"""\
    local folder vendor device
    for folder in /sys/bus/pci/devices/*; do
        {{ read -r vendor <"$folder/vendor" && read -r device <"$folder/device"; }} 2>/dev/null || continue
        [[ $vendor == 0x{GOOGLE_VENDOR:04x} && ! $device =~ ^({_NO_TPUS})$ ]] && echo "${{folder##*/}}"
    done
"""
# From the configuration: that needs neither root nor an engine, which may be slow to answer.
_CONTAINERS = 'awk \'/^[^ ]/ {below = $1 == "containers:"} below && /^  [^ ]/ {sub(":", "", $1); print $1}\''


# bash -------------------------------------------------------------------------------------------------------------


def bash(verbs: list[Verb]) -> Iterator[str]:
    yield f"""\
# Completion of tpuagent for bash, made from its parser.

_tpuagent_addresses() {{
{_ADDRESSES}}}

_tpuagent_containers() {{
    tpuagent config 2>/dev/null | {_CONTAINERS}
}}

_tpuagent() {{
    # Not COMP_WORDS: readline takes an address apart at its colons.
    local line=${{COMP_LINE:0:COMP_POINT}} words current word verb="" place=0 takes="" found=()
    read -ra words <<<"$line"
    [[ $line == *[[:space:]] ]] && words+=("")
    current=${{words[-1]}}
    for word in "${{words[@]:1:${{#words[@]}}-2}}"; do
        if [[ -n $takes ]]; then
            takes=""
        elif [[ $word == -* ]]; then
            case $word in
            {"|".join(_valued(verbs))}) takes=$word ;;
            esac
        elif [[ -z $verb ]]; then
            verb=$word
        else
            place=$((place + 1))
        fi
    done

    local wanted=""
    if [[ -n $takes ]]; then
        case $takes in"""
    for name, kind in _valued(verbs).items():
        if kind in KINDS:
            yield f"        {name}) wanted={KINDS[kind]} ;;"
    yield """\
        esac
    elif [[ $current == -* ]]; then
        case $verb in"""
    for verb in verbs:
        names = " ".join(name for option in verb.options for name in option.names)
        yield f"        {quote(verb.name)}) wanted={quote(names)} ;;"
    yield f"""\
        esac
    else
        case $verb:$place in
        :0) wanted={quote(" ".join(verb.name for verb in verbs if verb.name))} ;;"""
    for verb in verbs:
        for place, word in enumerate(verb.words):
            if word.choices or word.metavar in KINDS:
                wanted = " ".join(word.choices) or KINDS[word.metavar]
                yield f"        {verb.name}:{'*' if word.repeated else place}) wanted={quote(wanted)} ;;"
    yield """\
        esac
    fi

    case $wanted in
    files) compopt -o filenames 2>/dev/null; mapfile -t COMPREPLY < <(compgen -f -- "$current"); return ;;
    folders) compopt -o filenames 2>/dev/null; mapfile -t COMPREPLY < <(compgen -d -- "$current"); return ;;
    addresses | containers) wanted=$("_tpuagent_$wanted") ;;
    esac
    mapfile -t found < <(compgen -W "$wanted" -- "$current")
    # readline replaces only what follows the last colon.
    [[ $current == *:* && $COMP_WORDBREAKS == *:* ]] && found=("${found[@]#"${current%:*}:"}")
    COMPREPLY=("${found[@]}")
}

complete -F _tpuagent tpuagent"""


def _valued(verbs: list[Verb]) -> dict[str, str]:
    """The names of options that take a value, and what it is."""
    return {name: one.takes for verb in verbs for one in verb.options if one.takes for name in one.names}


# zsh --------------------------------------------------------------------------------------------------------------

_ZSH_KINDS = {"addresses": "_tpuagent_addresses", "containers": "_tpuagent_containers", "files": "_files"}
_ZSH_KINDS["folders"] = "_files -/"


def zsh(verbs: list[Verb]) -> Iterator[str]:
    before, *named = verbs
    yield f"""\
#compdef tpuagent
# Completion of tpuagent for zsh, made from its parser.

_tpuagent_list_addresses() {{
    setopt local_options null_glob
{_ADDRESSES}}}

_tpuagent_addresses() {{
    local -a found=(${{(f)"$(_tpuagent_list_addresses)"}})
    compadd -a found
}}

_tpuagent_containers() {{
    local -a found=(${{(f)"$(tpuagent config 2>/dev/null | {_CONTAINERS})"}})
    compadd -a found
}}

_tpuagent_verbs() {{
    local -a found=("""
    for verb in named:
        yield f"        {quote(f'{verb.name}:{verb.help}')}"
    yield """\
    )
    _describe command found
}

_tpuagent() {
    local curcontext=$curcontext state line
    typeset -A opt_args
    _arguments -C \\"""
    yield from (f"        {spec} \\" for spec in _zsh_specs(before))
    yield """\
        '1:COMMAND:_tpuagent_verbs' \\
        '*::ARGUMENT:->arguments'
    [[ $state == arguments ]] || return
    case $words[1] in"""
    for verb in named:
        specs = " \\\n            ".join(_zsh_specs(verb))
        yield f"    {verb.name})\n        _arguments \\\n            {specs}\n        ;;"
    yield '    esac\n}\n\n_tpuagent "$@"'


def _zsh_specs(verb: Verb) -> Iterator[str]:
    """As _arguments takes them: `name[help]:what:action`."""
    for option in verb.options:
        for name in option.names:
            others = f"({' '.join(option.names)})" if len(option.names) > 1 else ""
            value = _zsh_value(option.takes, ()) if option.takes else ""
            yield quote(f"{others}{name}[{_zsh_text(option.help)}]{value}")
    for place, word in enumerate(verb.words, 1):
        yield quote(("*" if word.repeated else str(place)) + _zsh_value(word.metavar, word.choices))


def _zsh_value(metavar: str, choices: tuple[str, ...]) -> str:
    return f":{metavar}:" + (f"({' '.join(choices)})" if choices else _ZSH_KINDS.get(KINDS.get(metavar, ""), " "))


def _zsh_text(text: str) -> str:
    return "".join(f"\\{sign}" if sign in "[]:\\" else sign for sign in text)


# fish -------------------------------------------------------------------------------------------------------------


def fish(verbs: list[Verb]) -> Iterator[str]:
    before, *named = verbs
    yield f"""\
# Completion of tpuagent for fish, made from its parser.

function __tpuagent_addresses
    for folder in /sys/bus/pci/devices/*
        set -l vendor (cat $folder/vendor 2>/dev/null)
        set -l device (cat $folder/device 2>/dev/null)
        if test "$vendor" = 0x{GOOGLE_VENDOR:04x}; and not contains -- "$device" {_NO_TPUS.replace("|", " ")}
            string replace --regex '.*/' '' $folder
        end
    end
end

function __tpuagent_containers
    tpuagent config 2>/dev/null | {_CONTAINERS}
end

# Whether a verb has been typed, and so many words after it; any number of them if none is given.
function __tpuagent_at --argument-names wanted at
    set -l verb ''
    set -l place 0
    set -l takes ''
    set -l words (commandline -opc)
    for word in $words[2..-1]
        if test -n "$takes"
            set takes ''
        else if contains -- $word {" ".join(_valued(verbs))}
            set takes $word
        else if not string match --quiet -- '-*' $word
            if test -z "$verb"
                set verb $word
            else
                set place (math $place + 1)
            end
        end
    end
    test "$verb" = "$wanted"; and begin
        test -z "$at"; or test "$place" = "$at"
    end
end

complete -c tpuagent -f"""
    for verb in named:
        yield f"complete -c tpuagent -n \"__tpuagent_at ''\" -a {verb.name} -d {_fish_quote(verb.help)}"
    for verb in (before, *named):
        at = f"__tpuagent_at {verb.name or quote('')}"
        for option in verb.options:
            names = " ".join(f"-l {name[2:]}" if name.startswith("--") else f"-s {name[1:]}" for name in option.names)
            value = " -x" + _fish_value(option.takes, ()) if option.takes else ""
            yield f'complete -c tpuagent -n "{at}" {names}{value} -d {_fish_quote(option.help)}'
        for place, word in enumerate(verb.words):
            if word.choices or word.metavar in KINDS:
                where = at if word.repeated else f"{at} {place}"
                yield f'complete -c tpuagent -n "{where}"{_fish_value(word.metavar, word.choices)}'


def _fish_value(metavar: str, choices: tuple[str, ...]) -> str:
    functions = {"files": "__fish_complete_path", "folders": "__fish_complete_directories"}
    if choices:
        return f" -a {quote(' '.join(choices))}"
    kind = KINDS.get(metavar)
    return f" -a '({functions.get(kind, f'__tpuagent_{kind}')})'" if kind else ""


def _fish_quote(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


SHELLS = {"bash": bash, "zsh": zsh, "fish": fish}

if __name__ == "__main__":
    print("\n".join(SHELLS[sys.argv[1]](read_parser())))
