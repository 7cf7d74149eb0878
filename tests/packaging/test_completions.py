"""Do the shells complete what the parser takes, and what this machine has? The real shells answer."""

from __future__ import annotations

import os
import pty
import select
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.fakes.machine import Machine

ROOT = Path(__file__).parents[2]
PCI = "/sys/bus/pci/devices"
DEADLINE_S = 60
# What is typed after `tpuagent `, with a tab for the key, and what stands there then.
TYPED = {
    "unb\t0000:00:04\t": "unbind 0000:00:04.0",
    "bind --dr\t0000:00:0\t4\t": "bind --dry-run 0000:00:04.0",
    "bind 0000:00:05.0 0000:00:04\t": "bind 0000:00:05.0 0000:00:04.0",
    "env ref\t": "env refresh",
    "containers rest\tvb\t": "containers restart vbar",
    "containers --lines 5 lo\ttele\t": "containers --lines 5 logs telemetry",
    "check --im\t/us\t": "check --image /usr",
    "--config /etc/hostn\tenvironm\t": "--config /etc/hostname environment",
}
# What prepares each shell, which prints READY> whenever it waits for a line, for the completion in the file COMPLETION.
START = {
    "bash": (["--noprofile", "--rcfile"], "PS1='READY> '\nbind 'set enable-bracketed-paste off'\n. COMPLETION\n"),
    "zsh": (
        [],
        (
            "PS1='READY> '\nunsetopt zle_bracketed_paste prompt_sp\nbindkey -e\n"
            "fpath=(FOLDER $fpath)\nautoload -Uz compinit\ncompinit -u -D\n"
        ),
    ),
}
# What tells a line instead of running it.
GOT = 'got() { printf "GOT<%s>\\n" "$*"; }\n'


def made(shell: str, machine: Machine | None = None) -> str:
    """The completion for a shell, which looks at the fake's functions if there is one."""
    command = [sys.executable, "-B", str(ROOT / "packaging/completions.py"), shell]
    text = subprocess.run(command, check=True, capture_output=True, text=True, timeout=DEADLINE_S).stdout
    assert PCI in text
    return text.replace(PCI, machine.root + PCI) if machine else text


def need(shell: str) -> None:
    if not shutil.which(shell):
        pytest.skip(f"{shell} is not installed")


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    machine = Machine.create(str(tmp_path / "machine"))
    machine.add_function("v6e", address="0000:00:04.0")
    machine.add_function("v6e", address="0000:00:05.0")
    machine.add_function("network", address="0000:00:06.0")
    return machine


@pytest.fixture
def surroundings(tmp_path: Path) -> dict[str, str]:
    """The environment of a shell that finds this tree's command."""
    command = tmp_path / "bin/tpuagent"
    command.parent.mkdir()
    (tmp_path / "config.yaml").touch()
    ours = f'if [ "$1" = config ]; then set -- --config {tmp_path}/config.yaml "$@"; fi\n'
    command.write_text(f'#!/bin/sh\n{ours}PYTHONPATH={ROOT} exec {sys.executable} -m tpuagent "$@"\n')
    command.chmod(0o755)
    return {
        "PATH": f"{command.parent}:/usr/bin:/bin",
        "HOME": str(tmp_path),
        "ZDOTDIR": str(tmp_path),
        "TERM": "dumb",
        "LC_ALL": "C.UTF-8",
    }


class Terminal:
    """A shell at a terminal, and everything that it has printed since the last look."""

    def __init__(self, command: list[str], environment: dict[str, str]) -> None:
        self._pid, self._terminal = pty.fork()
        if not self._pid:
            os.execvpe(command[0], command, environment)  # noqa: S606  (a shell, at a terminal)
        self._printed = ""

    def type(self, text: str) -> None:
        os.write(self._terminal, text.encode())

    def wait_for(self, wanted: str) -> str:
        """What was printed before `wanted`, which is printed in the end."""
        deadline = time.monotonic() + DEADLINE_S
        while wanted not in self._printed:
            left = deadline - time.monotonic()
            assert select.select([self._terminal], [], [], max(left, 0))[0], self._printed
            self._printed += os.read(self._terminal, 4096).decode()
        before, _, self._printed = self._printed.partition(wanted)
        return before

    def close(self) -> None:
        os.close(self._terminal)
        os.waitpid(self._pid, 0)


@pytest.mark.parametrize("shell", START)
def test_a_shell_at_a_terminal_completes_verbs_options_addresses_and_names(
    shell: str, machine: Machine, tmp_path: Path, surroundings: dict[str, str]
) -> None:
    need(shell)
    completion = tmp_path / "_tpuagent"
    completion.write_text(made(shell, machine))
    flags, start = START[shell]
    # zsh reads .zshrc whatever it is told; bash is told.
    first = tmp_path / ".zshrc"
    first.write_text(start.replace("COMPLETION", str(completion)).replace("FOLDER", str(tmp_path)) + GOT)
    terminal = Terminal([shell, *flags, *([str(first)] if flags else []), "-i"], surroundings)
    try:
        for typed, wanted in TYPED.items():
            terminal.wait_for("READY> ")
            # Ctrl-A goes to where the line begins; the line is then only told.
            terminal.type(f"tpuagent {typed}\x01got \r")
            terminal.wait_for("GOT<")
            # zsh takes the slash after a folder away when the line ends there.
            assert terminal.wait_for(">").removesuffix("/") == f"tpuagent {wanted}", typed
        terminal.wait_for("READY> ")
    finally:
        terminal.close()


def test_fish_completes_verbs_options_addresses_and_names(
    machine: Machine, tmp_path: Path, surroundings: dict[str, str]
) -> None:
    need("fish")
    completion = tmp_path / "tpuagent.fish"
    completion.write_text(made("fish", machine))
    asked = {
        "un": ["unbind"],
        "bind --dr": ["--dry-run"],
        "bind 0000": ["0000:00:04.0", "0000:00:05.0"],
        "env ref": ["refresh"],
        "containers rest": ["restart"],
        "containers restart ": ["telemetry", "vbar"],
        "containers --lines 5 logs te": ["telemetry"],
        "--config /etc/hostname environm": ["environment"],
        "check --image /us": ["/usr/"],
        "metadata ": [],
    }
    script = f"source {completion}\n" + "".join(
        f"complete -C 'tpuagent {typed}' | string replace --regex '\\t.*' '' | sort\necho =\n" for typed in asked
    )
    answer = subprocess.run(
        ["fish", "--no-config", "-c", script],
        env=surroundings, cwd=tmp_path, check=True, capture_output=True, text=True, timeout=DEADLINE_S,
    )  # fmt: skip
    assert answer.stderr == ""
    answers = [part.split() for part in answer.stdout.split("=\n")[:-1]]
    assert dict(zip(asked, answers, strict=True)) == asked


def test_the_package_makes_and_installs_one_for_each_shell() -> None:
    rules = (ROOT / "packaging/debian/rules").read_text()
    for shell, path in {
        "bash": "bash-completion/completions/tpuagent",
        "zsh": "zsh/vendor-completions/_tpuagent",
        "fish": "fish/vendor_completions.d/tpuagent.fish",
    }.items():
        assert f"completions.py {shell} >$(package)/usr/share/{path}\n" in rules
