"""Does the package's build do what those who build it ask for?"""

from __future__ import annotations

import subprocess
from pathlib import Path

ROOT = Path(__file__).parents[2]


def planned(options: str) -> str:
    """The commands by which the rules test what they built, with these DEB_BUILD_OPTIONS."""
    command = ["make", "-n", "-f", "packaging/debian/rules", "override_dh_auto_test", f"DEB_BUILD_OPTIONS={options}"]
    return subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True, timeout=60).stdout


def test_what_was_built_is_started_unless_the_builder_wants_no_tests() -> None:
    assert "-m tpuagent --help" in planned("")
    assert "-m tpuagent --help" in planned("parallel=4")
    assert "-m tpuagent" not in planned("nocheck")
    assert "-m tpuagent" not in planned("parallel=4 nocheck")
