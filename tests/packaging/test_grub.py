"""Does GRUB's drop-in append what TPUs need, once and last, whatever stood there before? Read by the shell itself."""

from __future__ import annotations

import shlex
import shutil
import subprocess
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tpuagent.image.settings import KERNEL_PARAMETERS, render_kernel_parameters

DROP_IN = Path(__file__).parents[2] / "systemd/grub.cfg"
OURS = [f"{name}={value}" for name, value in KERNEL_PARAMETERS]
VARIABLES = ("GRUB_CMDLINE_LINUX", "GRUB_CMDLINE_LINUX_DEFAULT")
SHELLS = [shell for shell in ("dash", "bash", "ksh", "busybox") if shutil.which(shell)]

# The ends of words matter, so words that only begin or end like ours are among them.
others = st.sampled_from(
    ["quiet", "console=tty0", "console=ttyS0,115200", "idle=", "idle=polling", "xidle=poll", "intel_iommu=off",
     "transparent_hugepage=never", "dyndbg=*", "[a-z]?", "nosplash"]
)  # fmt: skip
words = st.lists(st.one_of(others, st.sampled_from(OURS)), max_size=8)


def sourced(before: str, shell: str = "sh", times: int = 1) -> tuple[str, str]:
    """Both variables as grub-mkconfig has them after /etc/default/grub and the drop-in."""
    show = "".join(f'printf "%s\\0" "${{{name}-}}"; ' for name in VARIABLES)
    script = f"set -eu\n{before}\n" + f". {DROP_IN}\n" * times + show
    program = [shell, "sh"] if shell == "busybox" else [shell]
    done = subprocess.run([*program, "-c", script], capture_output=True, text=True, check=True, cwd="/")
    assert done.stderr == ""
    first, last, end = done.stdout.split("\0")
    assert end == ""
    return first, last


def assignments(first: str, last: str) -> str:
    return f"GRUB_CMDLINE_LINUX={shlex.quote(first)}\nGRUB_CMDLINE_LINUX_DEFAULT={shlex.quote(last)}"


def without_ours(found: list[str]) -> list[str]:
    return [word for word in found if word not in OURS]


@given(words, words)
@settings(max_examples=60, deadline=None)
def test_ours_are_on_the_line_once_and_last_and_everything_else_stays_in_order(
    first: list[str], last: list[str]
) -> None:
    after_first, after_last = sourced(assignments(" ".join(first), " ".join(last)))
    assert after_first.split(" ") == (without_ours(first) or [""])
    assert after_last.split(" ") == [*without_ours(last), *OURS]


@given(words, words, st.integers(2, 3))
@settings(max_examples=20, deadline=None)
def test_read_again_it_changes_nothing(first: list[str], last: list[str], times: int) -> None:
    before = assignments(" ".join(first), " ".join(last))
    assert sourced(before, times=times) == sourced(before)


QUOTED = r"dyndbg=\"file drivers/*  +p; idle=poll \" quiet"


@pytest.mark.parametrize("before", [QUOTED, f"{QUOTED} {render_kernel_parameters()}", "it's"])
def test_what_is_quoted_in_a_value_is_not_looked_into(before: str) -> None:
    kept = before.removesuffix(f" {render_kernel_parameters()}")
    for times in (1, 2):
        found = sourced(assignments(before, before), times=times)
        assert found == (kept, f"{kept} {render_kernel_parameters()}")


@pytest.mark.parametrize("shell", SHELLS)
@pytest.mark.parametrize(
    ("before", "kept"),
    [
        ("", ""),
        ("GRUB_CMDLINE_LINUX_DEFAULT=", ""),
        ('GRUB_CMDLINE_LINUX_DEFAULT=""', ""),
        ("GRUB_CMDLINE_LINUX_DEFAULT=quiet", "quiet "),
        ("GRUB_CMDLINE_LINUX_DEFAULT='quiet loglevel=3'", "quiet loglevel=3 "),
        ('GRUB_CMDLINE_LINUX_DEFAULT="quiet  loglevel=3"', "quiet  loglevel=3 "),
        ('GRUB_CMDLINE_LINUX="a=b"\nGRUB_CMDLINE_LINUX_DEFAULT="$GRUB_CMDLINE_LINUX c"', "a=b c "),
        (f'GRUB_CMDLINE_LINUX_DEFAULT="{render_kernel_parameters()} {render_kernel_parameters()}"', ""),
        ('GRUB_CMDLINE_LINUX_DEFAULT="console=tty0 idle=poll console=ttyS0 idle=poll"', "console=tty0 console=ttyS0 "),
    ],
)
def test_every_shell_and_every_way_of_writing_it_gives_the_same(shell: str, before: str, kept: str) -> None:
    assert sourced(before, shell)[1] == kept + render_kernel_parameters()


def test_nothing_of_the_drop_in_is_left_in_the_shell_that_reads_it() -> None:
    script = f"IFS=' \t\n'; set >/dev/null; . {DROP_IN}; set; ! command -v tpu_agent_without"
    done = subprocess.run(["sh", "-c", script], capture_output=True, text=True, check=True)
    assert "tpu_agent" not in done.stdout.replace(str(DROP_IN), "")
