"""Are the examples what their readers take: a template of Packer, cloud-init's data, a script of a plain shell?"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.examples import EXAMPLES, provisioners, template, user_data
from tpuagent import config
from tpuagent.host import Host

RECIPE = EXAMPLES / "image.sh"
README = EXAMPLES / "README.md"
SHELLCHECK = Path(sys.executable).with_name("shellcheck")
INSTALLS = re.compile(r"apt-get install --yes --no-install-recommends \S*tpu-agent\.deb|"
                      r'apt-get install --yes --no-install-recommends "\$package"')  # fmt: skip


def run(*command: str | Path, text: str = "") -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, input=text, capture_output=True, text=True, check=False)


# Packer -----------------------------------------------------------------------------------------------------------


def test_the_template_copies_the_package_installs_it_and_lets_the_check_decide() -> None:
    (copy, copied), *shells = provisioners()
    assert copy == "file"
    assert copied["source"] == "${var.package}"
    assert [kind for kind, _ in shells] == ["shell"] * len(shells)
    lines = [line for _, body in shells for line in body["inline"]]
    assert sum(bool(INSTALLS.search(line)) and copied["destination"] in line for line in lines) == 1
    assert lines[-1] == "tpuagent check --image /"


def test_each_shell_of_the_template_ends_at_the_first_failure_and_is_roots() -> None:
    for kind, body in provisioners():
        if kind == "shell":
            assert body["inline_shebang"] == "/bin/sh -eu"
            assert body["execute_command"].startswith("sudo env {{ .Vars }} sh -eu ")
            assert run("sh", "-n", text="\n".join(body["inline"])).returncode == 0


def test_every_variable_of_the_template_is_declared_and_used() -> None:
    declared = {name for variable in template()["variable"] for name in variable}
    used = set(re.findall(r"\bvar\.(\w+)", (EXAMPLES / "tpu-agent.pkr.hcl").read_text()))
    assert declared == used


def test_the_template_builds_what_it_declares() -> None:
    (source,) = template()["source"]
    (build,) = template()["build"]
    (builder,) = source
    (name,) = source[builder]
    assert build["sources"] == [f"source.{builder}.{name}"]
    (packer,) = template()["packer"]
    assert list(packer["required_plugins"][0]) == [builder] == ["googlecompute"]


# cloud-init -------------------------------------------------------------------------------------------------------


def test_the_user_data_says_what_it_is_in_its_first_line() -> None:
    assert (EXAMPLES / "user-data.yaml").read_text().startswith("#cloud-config\n")


def test_the_script_of_the_user_data_is_strict_and_ends_with_the_check() -> None:
    (script,) = user_data()["runcmd"]
    assert script.startswith("set -eu\n")
    assert run("sh", "-n", text=script).returncode == 0
    assert len(INSTALLS.findall(script)) == 1
    last = script.strip().splitlines()[-1]
    assert last == "tpuagent check || touch /run/tpu-agent-reboot"
    assert user_data()["power_state"]["condition"] == "test -e /run/tpu-agent-reboot"


def test_the_agent_takes_the_configuration_of_the_user_data(tmp_path: Path) -> None:
    for file in user_data()["write_files"]:
        target = Path(f"{tmp_path}{file['path']}")
        target.parent.mkdir(parents=True)
        target.write_text(file["content"])
    devices = config.load(Host(str(tmp_path)), None).devices
    assert (devices.group, devices.mode) == ("tpu-users", 0o660)


# The recipe -------------------------------------------------------------------------------------------------------


def test_shellcheck_has_nothing_to_say_of_any_script_in_the_examples() -> None:
    (script,) = user_data()["runcmd"]
    assert run(SHELLCHECK, RECIPE).stdout == ""
    # os-release is not at hand for it.
    assert run(SHELLCHECK, "--shell=sh", "--exclude=SC1091", "-", text=script).stdout == ""
    for kind, body in provisioners():
        if kind == "shell":
            assert run(SHELLCHECK, "--shell=sh", "-", text="\n".join(body["inline"])).stdout == ""


def test_the_recipe_explains_itself() -> None:
    told = run(RECIPE, "--help")
    assert told.returncode == 0
    assert set(re.findall(r"^    --(\w+)", RECIPE.read_text(), re.MULTILINE)) <= set(
        re.findall(r"--(\w+)", told.stdout)
    )


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((), "ROOT and PACKAGE"),
        (("root",), "ROOT and PACKAGE"),
        (("--root", "x"), "no option --root"),
        (("--suite",), "--suite needs a value"),
        (("root", "/no/package.deb"), "cannot read /no/package.deb"),
    ],
)
def test_a_recipe_that_is_called_wrongly_says_so_and_does_nothing(arguments: tuple[str, ...], said: str) -> None:
    done = run(RECIPE, *arguments)
    assert done.returncode == 64
    assert said in done.stderr


def test_the_page_of_the_examples_names_each() -> None:
    for path in EXAMPLES.iterdir():
        if path != README:
            assert path.name in README.read_text()
