"""Do all readers of tpu-env give back the bytes of the attribute, whatever they are?"""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

from tests.metadata import corpus
from tests.metadata.readers import read_by_shell, read_by_systemd, systemd_library
from tpuagent.metadata.tpuenv import name_fault, parse_tpu_env, render_second, render_tpu_env

COUNT = 10_000
SHELLS = [
    pytest.param(shell, marks=pytest.mark.skipif(not shutil.which(shell), reason=f"there is no {shell} here"))
    for shell in ("bash", "dash")
]

Written = list[tuple[str, dict[str, str]]]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the files of the corpus are."""
    return tmp_path_factory.mktemp("tpu-env")


@pytest.fixture(scope="module")
def written(folder: Path) -> Written:
    """The corpus as files, each with what it should say. What is left out is so by the stated rule alone."""
    files = []
    for number, entries in enumerate(corpus.maps(seed=3, count=COUNT)):
        expected = {name: value for name, value in entries.items() if corpus.writable(name, value)}
        path = folder / str(number)
        if expected:
            content = parse_tpu_env(corpus.as_yaml(entries, seed=number))
            assert content.values == expected
            assert {one.name for one in content.left_out} == entries.keys() - expected.keys()
            path.write_bytes(render_tpu_env(content.values).encode())
            files.append((str(path), expected))
    assert len(files) > COUNT * 0.9
    return files


@pytest.mark.parametrize("shell", SHELLS)
def test_a_shell_gives_back_every_byte_and_runs_nothing(shell: str, folder: Path, written: Written) -> None:
    program = shutil.which(shell)
    assert program
    found = read_by_shell(program, str(folder), [(path, list(values)) for path, values in written])
    assert found == [{name: value.encode() for name, value in values.items()} for _, values in written]
    assert not (folder / "canary").exists()


@pytest.mark.parametrize("shell", SHELLS)
def test_programs_that_a_shell_starts_find_every_variable(shell: str, tmp_path: Path) -> None:
    values = {name: value for name, value in corpus.one_map(seed=5, count=500).items() if corpus.writable(name, value)}
    file = tmp_path / "tpu-env"
    file.write_bytes(render_tpu_env(values).encode())
    program, env = shutil.which(shell), shutil.which("env")
    assert program
    assert env
    done = subprocess.run(
        [program, "-c", f"set -e; set -a; . {file}; exec {env} -0"], env={}, capture_output=True, check=True
    )
    found = dict(entry.split(b"=", 1) for entry in done.stdout.split(b"\0") if entry)
    assert {name: found[name.encode()] for name in values} == {name: value.encode() for name, value in values.items()}


@pytest.mark.skipif(not systemd_library(), reason="systemd is not installed here")
def test_systemd_gives_back_every_byte(written: Written) -> None:
    library = systemd_library()
    assert library
    found = read_by_systemd(library, [path for path, _ in written])
    for (path, values), read in zip(written, found, strict=True):
        assert read == {name: value.encode() for name, value in values.items()}, path


def test_a_script_that_greps_for_the_key_and_cuts_at_the_quote_gets_the_value(tmp_path: Path) -> None:
    file = tmp_path / "tpu-env"
    file.write_text(
        render_tpu_env({"TPU_WORKER_ID": "0", "TPU_ACCELERATOR_TYPE": "v6e-8", "X_TPU_ACCELERATOR_TYPE": "no"})
    )
    line = f"grep '^TPU_ACCELERATOR_TYPE=' {file} | cut -d '\"' -f 2"
    assert subprocess.check_output(["/bin/sh", "-c", line], text=True) == "v6e-8\n"


def test_the_second_form_means_the_same_map_in_yaml() -> None:
    for entries in corpus.maps(seed=4, count=300):
        values = {name: value for name, value in entries.items() if corpus.writable(name, value)}
        if values:
            assert yaml.load(render_second(values), yaml.BaseLoader) == values  # noqa: S506  text only


@pytest.mark.parametrize("shell", SHELLS)
def test_no_name_that_a_shell_has_a_use_for_is_written(shell: str, tmp_path: Path) -> None:
    """Of all names that a fresh shell knows: either the rule keeps them out, or assigning is harmless and complete."""
    program = shutil.which(shell)
    assert program
    listing = "compgen -v" if shell == "bash" else "set"
    known = subprocess.check_output([program, "-c", listing], text=True, env={}).splitlines()
    names = sorted({line.partition("=")[0] for line in known if not name_fault(line.partition("=")[0])})
    file = tmp_path / "tpu-env"
    file.write_text(render_tpu_env(dict.fromkeys(names or ["HARMLESS"], "a b")))
    found = read_by_shell(program, str(tmp_path), [(str(file), names or ["HARMLESS"])])
    assert set(found[0].values()) == {b"a b"}
