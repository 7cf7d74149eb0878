"""Do the commands that edit files do what they say, and nothing else?"""

from __future__ import annotations

import subprocess
import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tpuagent.image import mending, settings


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ('"quiet idle=halt x"', '"quiet  x"'),
        ("'transparent-hugepage=never idle=halt intel_iommu=on,sm_on'", "'  '"),
        ("idle=halt", ""),
        ("'intel_idle.max_cstate=0 xidle=1 a.idle=1 idle-x=1'", "'intel_idle.max_cstate=0 xidle=1 a.idle=1 idle-x=1'"),
    ],
)
def test_parameters_are_taken_out_of_settings_whole_and_others_stay(tmp_path: Path, before: str, after: str) -> None:
    file = tmp_path / "grub"
    file.write_text(f"# GRUB_CMDLINE_LINUX=idle=halt\nGRUB_CMDLINE_LINUX={before}\n")
    names = [name for name, _ in settings.KERNEL_PARAMETERS]
    subprocess.run(["sh", "-euc", mending.take_words_out(str(file), names)], check=True)
    assert file.read_text() == f"# GRUB_CMDLINE_LINUX=idle=halt\nGRUB_CMDLINE_LINUX={after}\n"


@given(st.sets(st.integers(1, 30)), st.integers(0, 30))
def test_exactly_the_named_lines_are_deleted(numbers: set[int], count: int) -> None:
    with tempfile.NamedTemporaryFile("w+") as file:
        lines = [f"{number}\n" for number in range(1, count + 1)]
        file.writelines(lines)
        file.flush()
        subprocess.run(["sh", "-euc", mending.delete_lines(file.name, numbers)], check=True)
        kept = [f"{number}\n" for number in range(1, count + 1) if number not in numbers]
        assert Path(file.name).read_text() == "".join(kept)
