"""What does an image have to have, and has it? Looks at files, and in a running system at what they came to."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator

from tpuagent.image import kernel, limits, settings
from tpuagent.image.finding import OK, SKIPPED, UNKNOWN, WARNING, WRONG, Finding, judge
from tpuagent.image.tree import Tree, reason_of

REINSTALL = "apt-get install --reinstall -o Dpkg::Options::=--force-confmiss tpu-agent"
THP = "/sys/kernel/mm/transparent_hugepage/enabled"
GRUB_DEFAULTS = "/etc/default/grub"
GRUB_DROP_INS = "/etc/default/grub.d"
LIMITS_CONF, LIMITS_FOLDER = "/etc/security/limits.conf", "/etc/security/limits.d"
SYSTEM_CONF = "/etc/systemd/system.conf"
SYSTEM_FOLDERS = ("/etc/systemd/system.conf.d", "/run/systemd/system.conf.d", "/usr/lib/systemd/system.conf.d")
_PROGRAM_FOLDERS = ("/usr/local/bin", "/usr/bin", "/bin", "/snap/bin", "/opt/google-cloud-sdk/bin",
                    "/usr/lib/google-cloud-sdk/bin", "/root/google-cloud-sdk/bin")  # fmt: skip
_ENGINES = {"docker": ("/run/docker.sock", "dockerd"), "podman": ("/run/podman/podman.sock", "podman")}
_CLOUD_SCRIPTS = tuple(f"/var/lib/cloud/scripts/per-{often}" for often in ("boot", "instance", "once"))
_RULE_FOLDERS = ("/etc/udev/rules.d", "/run/udev/rules.d", "/usr/lib/udev/rules.d")
# What the documented scripts have in them and nothing else does.
_BY_HAND = re.compile(r"vbar_control_agent|attributes/tpu-env|drivers_probe|ai-telemetry-collector")
_RULE = re.compile(r'1ae0.*RUN\+?="([^" ]+)', re.IGNORECASE)
_OUR_UNIT = "/etc/systemd/system/multi-user.target.wants/tpu-agent.service"

Manager = Callable[[str], str | None]


def check_tree(tree: Tree, *, booted: bool, ask_manager: Manager) -> Iterator[Finding]:
    """Everything about files. `ask_manager`: a property of the running systemd, None when none runs."""
    for look in (_kernel_line, _grub, _huge_pages) if booted else (_grub,):
        yield from _guarded(look, tree)
    yield from _guarded(_sessions, tree)
    yield from _guarded(lambda one: _services(one, ask_manager), tree)
    yield from _guarded(_modules if booted else _module_files, tree)
    yield from _guarded(_unit, tree)
    yield from _guarded(_engine, tree)
    yield from _guarded(_programs, tree)
    yield from _guarded(_leftovers, tree)


def _guarded(look: Callable[[Tree], Iterable[Finding]], tree: Tree) -> Iterator[Finding]:
    name = getattr(look, "__name__", "").strip("_").replace("_", " ")
    try:
        yield from look(tree)
    except OSError as fault:
        where = fault.filename or name
        yield Finding(str(where), "can be read", reason_of(fault), UNKNOWN, "sudo tpuagent check")


# The kernel -------------------------------------------------------------------------------------------------------


def _kernel_line(tree: Tree) -> Iterator[Finding]:
    found = kernel.parse_parameters(tree.read("/proc/cmdline") or "")
    entries = kernel.parse_grub(tree.read(settings.GRUB_CONFIGURATION) or "")
    generated = kernel.parse_parameters(entries[0].parameters) if entries else {}
    for name, value in settings.KERNEL_PARAMETERS:
        mend = "reboot" if kernel.has_value(generated, name, value) else "update-grub, then reboot"
        good = kernel.has_value(found, name, value)
        yield judge(f"running kernel: {name}", f"{name}={value}", kernel.show(found, name), mend, good=good)


def _grub(tree: Tree) -> Iterator[Finding]:
    text = tree.read(settings.GRUB_CONFIGURATION)
    if text is None:
        mend = "update-grub, when the bootloader is installed"
        yield Finding("grub.cfg", "is there", f"no {settings.GRUB_CONFIGURATION}", WARNING, mend)
        return
    entries = kernel.parse_grub(text)
    if not entries:
        yield Finding("grub.cfg", "has a kernel", "no entry with a kernel", WRONG, "update-grub")
        return
    found = kernel.parse_parameters(entries[0].parameters)
    for name, value in settings.KERNEL_PARAMETERS:
        good = kernel.has_value(found, name, value)
        shown = kernel.show(found, name)
        mend = "update-grub"
        if not good and not tree.exists(settings.GRUB_DROP_IN):
            mend = f"{REINSTALL}, which brings {settings.GRUB_DROP_IN} back"
        elif not good and (other := _overriding(tree, name, value)):
            shown += f", by {other}"
            mend = f"take {name} out of {other}, then update-grub"
        yield judge(f"grub.cfg: {name}", f"{name}={value}", shown, mend, good=good)


def _overriding(tree: Tree, name: str, value: str) -> str | None:
    """The last file that gives the parameter another value."""
    paths = [GRUB_DEFAULTS, *sorted(tree.files(GRUB_DROP_INS, ending=".cfg"))]
    others = [
        path
        for path in paths
        if path != settings.GRUB_DROP_IN
        and any(
            found == name and not kernel.has_value({found: has}, name, value)
            for found, has in kernel.parameters_in_defaults(tree.read(path) or "")
        )
    ]
    return others[-1] if others else None


def _huge_pages(tree: Tree) -> Iterator[Finding]:
    text = tree.read(THP)
    chosen = re.search(r"\[(\w+)\]", text or "")
    found = chosen[1] if chosen else "this kernel has none"
    yield judge("transparent huge pages", "always", found, f"echo always > {THP}", good=found == "always")


# Limits -----------------------------------------------------------------------------------------------------------


def _sessions(tree: Tree) -> Iterator[Finding]:
    lines = [
        line
        for path in (LIMITS_CONF, *tree.files(LIMITS_FOLDER, ending=".conf"))
        for line in limits.parse_limits(tree.read(path) or "", path)
    ]
    for user in ("a user", "root"):
        for item, wanted in (("memlock", settings.UNLIMITED), ("nofile", settings.OPEN_FILES)):
            found = {kind: limits.session_limit(lines, user, kind, item) for kind in ("soft", "hard")}
            yield _session(f"session of {user}: {item}", wanted, found)


def _session(what: str, wanted: str, found: dict[str, limits.Line | None]) -> Finding:
    soft, hard = found["soft"], found["hard"]
    shown = ":".join(line.value if line else "not set" for line in (soft, hard))
    for line in (soft, hard):
        if line and limits.is_illegal(line):
            why = f"{line.item} unlimited, by {line.origin}, keeps everybody from logging in"
            return Finding(what, wanted, why, WRONG, f"take the line {line.origin} away")
    low = [line for line in (soft, hard) if line is None or not limits.at_least(line.value, wanted)]
    named = [line.origin for line in low if line]
    mend = f"take the line {named[0]} away" if named else REINSTALL
    return judge(what, wanted, shown + (f", by {named[0]}" if named else ""), mend, good=not low)


def _services(tree: Tree, ask_manager: Manager) -> Iterator[Finding]:
    words = _manager_words(tree)
    for limit in settings.SERVICE_LIMITS:
        word = words.get(limit.setting)
        soft, hard = limits.service_limit(word.value, limit.item) if word else ("not set", "not set")
        good = limits.at_least(soft, limit.soft) and limits.at_least(hard, limit.hard)
        expected = limit.soft if limit.soft == limit.hard else f"{limit.soft}:{limit.hard}"
        shown = soft if soft == hard else f"{soft}:{hard}"
        mend = f"take {limit.setting} out of {word.origin}" if word else REINSTALL
        yield judge(
            f"services: {limit.item}", expected, shown + (f", by {word.origin}" if word else ""), mend, good=good
        )
        running = ask_manager(f"{limit.setting}Soft")
        if running is None:
            continue
        now, _ = limits.service_limit(running, limit.item)
        mend = "systemctl daemon-reexec"
        yield judge(f"running systemd: {limit.item}", limit.soft, now, mend, good=limits.at_least(now, limit.soft))


def _manager_words(tree: Tree) -> dict[str, limits.Word]:
    """Of files with one name the first folder's counts; of all, the one whose name comes last."""
    chosen: dict[str, str] = {}
    for folder in SYSTEM_FOLDERS:
        for path in tree.files(folder, ending=".conf"):
            chosen.setdefault(os.path.basename(path), path)
    words: dict[str, limits.Word] = {}
    for path in (SYSTEM_CONF, *(chosen[name] for name in sorted(chosen))):
        for name, value in limits.parse_manager(tree.read(path) or "").items():
            words[name] = limits.Word(value, path)
    return words


# Modules, the unit, programs --------------------------------------------------------------------------------------


def _modules(tree: Tree) -> Iterator[Finding]:
    for name in settings.MODULES:
        place = f"/sys/module/{name.replace('-', '_')}"
        found = "loaded" if tree.exists(place) else "not loaded"
        yield judge(f"module {name}", "loaded", found, f"modprobe {name}", good=found == "loaded")
    yield from _module_options(tree)


def _module_files(tree: Tree) -> Iterator[Finding]:
    """In an image: every kernel has the modules, or has them built in."""
    kernels = tree.names("/usr/lib/modules") or tree.names("/lib/modules")
    for release in kernels:
        listed = "".join(
            tree.read(f"/usr/lib/modules/{release}/{name}") or tree.read(f"/lib/modules/{release}/{name}") or ""
            for name in ("modules.dep", "modules.builtin")
        )
        for name in settings.MODULES:
            there = re.search(rf"/{name.replace('-', '[-_]')}\.ko", listed) is not None
            mend = "install the kernel's other modules (Ubuntu: linux-modules-extra, Debian: linux-image)"
            yield judge(f"kernel {release}: {name}", "there", "there" if there else "missing", mend, good=there)
    if not kernels:
        yield Finding("kernel", "installed", "none in this image", WARNING, "install a kernel")
    yield from _module_options(tree)


def _module_options(tree: Tree) -> Iterator[Finding]:
    path = settings.MODPROBE_FILE
    off = settings.SWITCHED_OFF_BY[path]
    if tree.link(off) == "/dev/null" or tree.exists(off):
        yield Finding("early binding", "by the kernel", f"switched off by {off}", WARNING, f"rm {off}")
        return
    there = tree.exists(path)
    yield judge("early binding", "by the kernel", f"{path}" if there else f"no {path}", REINSTALL, good=there)


def _unit(tree: Tree) -> Iterator[Finding]:
    good = tree.link(_OUR_UNIT) is not None
    found = "enabled" if good else "not enabled"
    yield judge("tpu-agent.service", "enabled", found, "systemctl enable --now tpu-agent", good=good)


def _engine(tree: Tree) -> Iterator[Finding]:
    there = [name for name, (_, program) in _ENGINES.items() if _program(tree, program, "/usr/sbin")]
    answers = [socket for socket, _ in _ENGINES.values() if tree.exists(socket)]
    shown = ", ".join((*there, *answers)) or "neither Docker nor Podman"
    yield judge("container engine", "Docker or Podman", shown, "apt-get install docker.io", good=bool(there or answers))


def _programs(tree: Tree) -> Iterator[Finding]:
    python = _program(tree, "python3")
    yield judge("python3", "there", python or "none", "apt-get install python3", good=python is not None)
    gcloud = _program(tree, "gcloud")
    mend = "install the Google Cloud CLI: https://cloud.google.com/sdk/docs/install"
    yield judge("gcloud", "there", gcloud or "none", mend, good=gcloud is not None, otherwise=WARNING)


def _program(tree: Tree, name: str, *folders: str) -> str | None:
    return next((f"{one}/{name}" for one in (*_PROGRAM_FOLDERS, *folders) if tree.exists(f"{one}/{name}")), None)


# Leftovers of doing it by hand --------------------------------------------------------------------------------------


def _leftovers(tree: Tree) -> Iterator[Finding]:
    found = list(_found_leftovers(tree))
    yield from found or [Finding("set-up by hand", "none", "none", OK)]


def _found_leftovers(tree: Tree) -> Iterator[Finding]:
    for path in tree.files(*_RULE_FOLDERS, ending=".rules"):
        for script in _RULE.findall("\n".join(_code(tree.read(path) or ""))):
            both = f"rm {path} {script}" if tree.exists(script) else f"rm {path}"
            yield Finding("udev rule of a set-up by hand", "none", path, WRONG, f"{both}; udevadm control --reload")
    for path in tree.files(*_CLOUD_SCRIPTS):
        if any(_BY_HAND.search(line) for line in _code(tree.read(path) or "")):
            yield Finding("script of a set-up by hand", "none", path, WRONG, f"rm {path}")
    for path in tree.files("/etc/systemd/system", ending=".service"):
        starts = [line for line in _code(tree.read(path) or "") if line.startswith("Exec")]
        if os.path.basename(path) != "tpu-agent.service" and any(map(_BY_HAND.search, starts)):
            name = os.path.basename(path)
            mend = f"systemctl disable --now {name}; rm {path}"
            yield Finding("unit of a set-up by hand", "none", path, WRONG, mend)


def _code(text: str) -> list[str]:
    """The lines that are no comments."""
    return [line for line in text.splitlines() if not line.lstrip().startswith(("#", ";"))]


def skipped(what: str, why: str) -> Finding:
    """Something that means nothing here."""
    return Finding(what, "", why, SKIPPED)
