"""Do the files that the package puts on an image set exactly what its list of settings says?"""

from __future__ import annotations

import re
from pathlib import Path

from tpuagent.devices.modules import VFIO_MODULES
from tpuagent.devices.pci import GENERATIONS
from tpuagent.image import settings

ROOT = Path(__file__).parents[2]
FILES = {
    "grub.cfg": settings.GRUB_DROP_IN,
    "limits.conf": settings.LIMITS_FILE,
    "system.conf": settings.SYSTEMD_FILE,
    "modules-load.conf": settings.MODULES_FILE,
    "modprobe.conf": settings.MODPROBE_FILE,
}


def lines(name: str) -> list[str]:
    """What a file says, without its comments."""
    text = (ROOT / "systemd" / name).read_text()
    return [line for line in text.splitlines() if line and not line.startswith("#")]


def test_each_file_is_installed_where_the_list_says_and_says_itself_how_it_is_switched_off() -> None:
    rules = (ROOT / "packaging/debian/rules").read_text()
    for name, path in FILES.items():
        assert f"install -D -m 644 systemd/{name} $(package){settings.COPIED_FROM.get(path, path)}\n" in rules
        text = " ".join((ROOT / "systemd" / name).read_text().split())
        other = settings.SWITCHED_OFF_BY.get(path)
        assert f"ln -s /dev/null {other}" in text if other else "delete this file" in text


def test_the_ids_that_the_kernel_binds_are_those_of_the_table_of_generations() -> None:
    module, parameter = settings.MODULE_PARAMETER
    ids = ",".join(str(generation.ids) for generation in GENERATIONS)
    assert lines("modprobe.conf") == [f"options {module} {parameter}={ids}"]


def test_the_modules_that_are_loaded_at_boot_are_those_that_binding_needs() -> None:
    assert tuple(lines("modules-load.conf")) == settings.MODULES == VFIO_MODULES


def test_the_limits_of_sessions_are_those_of_the_list_for_everybody_and_for_root() -> None:
    found = tuple(settings.Limit(*line.split()) for line in lines("limits.conf"))
    assert found == settings.LIMITS
    assert {limit.domain for limit in found} == {"*", "root"}
    assert ("nofile", "unlimited") not in {(limit.item, limit.value) for limit in found}, "it locks users out"


def test_the_limits_of_services_are_those_of_the_list() -> None:
    section, *found = lines("system.conf")
    assert section == "[Manager]"
    wanted = []
    for limit in settings.SERVICE_LIMITS:
        both = limit.soft if limit.soft == limit.hard else f"{limit.soft}:{limit.hard}"
        wanted.append(f"{limit.setting}={both.replace('unlimited', 'infinity')}")
    assert found == wanted


def test_the_kernel_parameters_are_those_of_the_list_wherever_the_package_names_them() -> None:
    parameters = settings.render_kernel_parameters()
    assert f'tpu_agent_parameters="{parameters}"' in lines("grub.cfg")
    assert parameters in (ROOT / "packaging/debian/tpu-agent.postrm").read_text()
    assert f"drop_in={settings.GRUB_DROP_IN}\n" in (ROOT / "packaging/debian/tpu-agent.postinst").read_text()


def test_the_copies_are_made_and_purged_where_the_list_says() -> None:
    both = " ".join(settings.COPIED_FROM)
    for script in ("postinst", "postrm"):
        assert f"for file in {both}; do" in (ROOT / f"packaging/debian/tpu-agent.{script}").read_text()
    for path, source in settings.COPIED_FROM.items():
        assert source == f"/usr/share/tpu-agent/{path.rpartition('/')[2]}", "the scripts take the name for the same"


def test_the_drop_in_for_grub_is_read_after_those_of_cloud_images_and_of_other_packages() -> None:
    others = [
        "40-force-partuuid.cfg",
        "50-cloudimg-settings.cfg",
        "99-custom.cfg",
        "init-select.cfg",
        "kdump-tools.cfg",
    ]
    name = settings.GRUB_DROP_IN.rpartition("/")[2]
    assert max([name.encode(), *map(str.encode, others)]) == name.encode()


def test_another_file_with_ids_is_read_after_ours_so_that_it_counts() -> None:
    assert re.match("00-", settings.MODPROBE_FILE.rpartition("/")[2])
