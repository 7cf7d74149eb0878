"""Does the kernel have its parameters, and will it at the next boot? Hands: reads the host, changes nothing."""

from __future__ import annotations

from collections.abc import Iterator

from tpuagent.host import Host
from tpuagent.image import grub, settings
from tpuagent.image.cmdline import last_value, satisfies
from tpuagent.image.mending import read_before_ours, regenerate, restore, switched_off
from tpuagent.image.rows import NOT_CHECKED, OK, WARNING, WRONG, Row

HUGE_PAGES = "/sys/kernel/mm/transparent_hugepage/enabled"
DEFAULTS = "/etc/default/grub"
_SWITCHED_OFF = "switched off: no drop-in of the package, or nothing in it"


def check_running(host: Host) -> Iterator[Row]:
    """The kernel that runs."""
    line = host.read("/proc/cmdline") or ""
    for name, wanted in settings.KERNEL_PARAMETERS:
        found = last_value(line, name)
        what, expected, shown = f"kernel: {name}", wanted, found or "not set"
        if satisfies(found, wanted):
            yield Row(what, expected, shown)
        elif switched_off(host, settings.GRUB_DROP_IN) and found is None:
            yield Row(what, expected, shown, WARNING, _mend_running(host, name, wanted))
        else:
            yield Row(what, expected, shown, WRONG, _mend_running(host, name, wanted))
    pages = host.read(HUGE_PAGES)
    if pages is None:
        yield Row("huge pages", "always", "this kernel has none", WARNING)
    else:
        right = "[always]" in pages
        yield Row("huge pages", "always", pages, OK if right else WRONG, "" if right else f"echo always >{HUGE_PAGES}")


def _mend_running(host: Host, name: str, wanted: str) -> str:
    try:
        configuration = host.read(settings.GRUB_CONFIGURATION)
    except PermissionError:  # it may hold passwords
        return "sudo tpuagent check, for the row of grub.cfg"
    if configuration is None:
        return f"add {name}={wanted} to the kernel command line of what boots this machine; reboot"
    entries = _ordinary(configuration)
    ready = entries and all(satisfies(last_value(entry.line, name), wanted) for entry in entries)
    return "reboot" if ready else "see the row of grub.cfg, then: reboot"


def check_grub(host: Host) -> Iterator[Row]:
    """What GRUB will tell the kernel: the generated file, and who overrides ours in it."""
    text = host.read(settings.GRUB_CONFIGURATION)
    if text is None:
        yield Row("grub.cfg", "our parameters", "no grub.cfg: GRUB does not boot this", NOT_CHECKED)
        return
    entries = _ordinary(text)
    if not entries:
        yield Row("grub.cfg", "our parameters", "it boots no Linux", WARNING, "update-grub")
        return
    coming = grub.forecast(tuple(_settings_files(host)), settings.GRUB_DROP_IN, settings.KERNEL_PARAMETERS)
    for name, wanted in settings.KERNEL_PARAMETERS:
        values = [last_value(entry.line, name) for entry in entries]
        wrong = [value for value in values if not satisfies(value, wanted)]
        what = f"grub.cfg: {name}"
        if not wrong:
            yield Row(what, wanted, wanted)
            continue
        shown = f"{wrong[0] or 'not set'} in {len(wrong)} of {len(entries)} entries"
        if satisfies(last_value(coming.line, name), wanted):
            yield Row(what, wanted, shown, WRONG, "update-grub")
        elif switched_off(host, settings.GRUB_DROP_IN):
            verdict = WARNING if last_value(coming.line, name) is None else WRONG
            mend = restore(host, settings.GRUB_DROP_IN)
            yield Row(what, wanted, f"{shown}; {_SWITCHED_OFF}", verdict, mend)
        else:
            # Whatever it says, a new value or the whole line anew: read before ours it has not the last word.
            said_by = coming.said_by.get(name, settings.GRUB_DROP_IN)
            mend = read_before_ours(said_by) + regenerate(host)
            yield Row(what, wanted, f"{shown}; overridden by {said_by}", WRONG, mend)


def _ordinary(text: str) -> list[grub.Entry]:
    return [entry for entry in grub.parse_entries(text) if not entry.recovery]


def _settings_files(host: Host) -> Iterator[tuple[str, str]]:
    folder = f"{DEFAULTS}.d"
    paths = [DEFAULTS, *(f"{folder}/{name}" for name in host.names(folder) if name.endswith(".cfg"))]
    for path in paths:
        text = host.read(path)
        if text is not None:
            yield path, text
