"""Are the kernel's modules there, and does vfio-pci get our ids? Hands: reads the host, changes nothing."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tpuagent.host import Host
from tpuagent.image import dropins, settings
from tpuagent.image.mending import add_to_list, comment_out, restore
from tpuagent.image.rows import NOT_CHECKED, WARNING, WRONG, Row

_FOLDERS = (*dropins.FOLDERS, "/lib")


def check_modules(host: Host, ids: Sequence[str], excluded: Sequence[str], *, running: bool) -> Iterator[Row]:
    """Modules of the kernel that runs, or of every kernel of an image; and what modprobe gives them."""
    directives = tuple(_directives(host))
    wanted_at_boot = _loaded_at_boot(host)
    for module in settings.MODULES:
        if refusing := dropins.refusal(directives, module):
            found = f"modprobe is told not to ({refusing.origin})"
            yield Row(f"module {module}", "can be loaded", found, WRONG, comment_out([refusing.origin]))
        elif running:
            yield _loaded_row(host, module)
        else:
            yield from _image_rows(host, module)
        if module.replace("-", "_") not in wanted_at_boot:
            found, mend = "no modules-load.d names it", restore(host, settings.MODULES_FILE)
            yield Row(f"module {module}", "loaded at boot", found, WARNING, mend)
    yield _ids_row(host, directives, ids, excluded)
    if running:
        yield _parameter_row(host)


def _loaded_row(host: Host, module: str) -> Row:
    what, expected = f"module {module}", "loaded"
    there = host.exists(f"/sys/module/{module.replace('-', '_')}") or host.exists(f"/sys/bus/pci/drivers/{module}")
    release = host.kernel_release()
    if there or _has(host, release, module, builtin_only=True):
        return Row(what, expected, "loaded")
    if _has(host, release, module):
        return Row(what, expected, "not loaded", WRONG, f"modprobe {module}")
    return Row(what, expected, f"kernel {release} has no such module", WRONG, _package_of(host, release))


def _image_rows(host: Host, module: str) -> Iterator[Row]:
    what, expected = f"module {module}", "in every kernel"
    releases = [name for name in host.names("/lib/modules") if host.exists(f"/lib/modules/{name}/modules.dep")]
    if not releases:
        yield Row(what, expected, "the image has no kernel of its own", NOT_CHECKED)
        return
    missing = [release for release in releases if not _has(host, release, module)]
    if not missing:
        yield Row(what, expected, f"in {', '.join(releases)}")
    for release in missing:
        yield Row(what, expected, f"kernel {release} has no such module", WRONG, _package_of(host, release))


def _has(host: Host, release: str, module: str, *, builtin_only: bool = False) -> bool:
    for name in ("modules.builtin",) if builtin_only else ("modules.builtin", "modules.dep"):
        for line in (host.read(f"/lib/modules/{release}/{name}") or "").splitlines():
            file = line.partition(":")[0].rpartition("/")[2]  # vfio-pci.ko.zst
            if file.partition(".ko")[0].replace("-", "_") == module.replace("-", "_"):
                return True
    return False


def _package_of(host: Host, release: str) -> str:
    ubuntu = "ID=ubuntu" in (host.read("/etc/os-release") or "").splitlines()
    return f"apt-get install linux-modules-extra-{release}" if ubuntu else f"apt-get install linux-image-{release}"


def _ids_row(host: Host, directives: Sequence[dropins.Directive], ids: Sequence[str], excluded: Sequence[str]) -> Row:
    what, expected = "vfio-pci ids=", f"{len(ids)} generations"
    found = dropins.last_parameter(directives, *settings.MODULE_PARAMETER)
    off = settings.SWITCHED_OFF_BY[settings.MODPROBE_FILE]
    if found is None:
        shown = "none: the agent binds them, later"
        return Row(what, expected, shown, WARNING, restore(host, settings.MODPROBE_FILE))
    value, origin = found
    if excluded and set(value.split(",")) & set(ids):
        shown = f"the kernel binds excluded functions too: {', '.join(excluded)}"
        return Row(what, "none of those excluded", shown, WARNING, f"ln -sf /dev/null {off}")
    missing = set(ids) - set(value.split(","))
    if missing:
        shown = f"{origin} lacks {', '.join(sorted(missing))}: the agent binds them, later"
        return Row(what, expected, shown, WARNING, add_to_list(origin, "ids", sorted(missing)))
    return Row(what, expected, f"{len(ids)} generations ({origin})")


def _parameter_row(host: Host) -> Row:
    path = "/sys/module/vfio_iommu_type1/parameters/allow_unsafe_interrupts"
    what, found = "unsafe interrupts", host.read(path)
    if host.machine() != "x86_64":
        return Row(what, "N", found or "not set", NOT_CHECKED)
    if found is None:
        return Row(what, "Y", "the module is not loaded", NOT_CHECKED)
    # Only set where a TPU is, or where somebody has switched it on; the agent's own row says when it could not.
    return Row(what, "Y", found) if found == "Y" else Row(what, "Y", found, WARNING, "systemctl restart tpu-agent")


def _directives(host: Host) -> Iterator[dropins.Directive]:
    names = {f"{folder}/modprobe.d": host.names(f"{folder}/modprobe.d") for folder in _FOLDERS}
    for path in dropins.order(names):
        yield from dropins.parse_modprobe(host.read(path) or "", path)


def _loaded_at_boot(host: Host) -> set[str]:
    names = {f"{folder}/modules-load.d": host.names(f"{folder}/modules-load.d") for folder in _FOLDERS}
    texts = [host.read(path) or "" for path in dropins.order(names)]
    lines = [line.strip() for text in texts for line in text.splitlines()]
    return {line.replace("-", "_") for line in lines if line[:1] not in ("", "#", ";")}
