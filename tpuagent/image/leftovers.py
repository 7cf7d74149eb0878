"""What of the documented set-up by hand is still there beside the package? Hands: reads files, changes nothing.

Each of these did a part of the agent's job. They do harm only by doing it a second time and worse: a rule that binds on
`add` alone, a script that appends the same lines at every boot.
"""

from __future__ import annotations

import re
import shlex
import stat
from collections.abc import Iterator

from tpuagent.host import Host
from tpuagent.image import settings
from tpuagent.image.cmdline import parse_cmdline
from tpuagent.image.grub import parse_settings
from tpuagent.image.mending import comment_out, delete_lines, disable, regenerate, take_words_out
from tpuagent.image.pamlimits import parse_limits
from tpuagent.image.rows import WARNING, Row

_RULES = ("/etc/udev/rules.d", "/usr/lib/udev/rules.d", "/lib/udev/rules.d")
_SCRIPTS = (
    "/var/lib/cloud/scripts/per-boot", "/var/lib/cloud/scripts/per-instance", "/var/lib/cloud/scripts/per-once",
)  # fmt: skip
_RUN = re.compile(r'RUN(?:\{program\})?\+?="([^"]*)"')
# What a rule runs a script with: never a thing to remove.
_INTERPRETERS = re.compile(r"(/usr)?/bin/(env|(ba|da)?sh|python3?)")
_NAMED = re.compile(r"/[^\s\"';]+\.sh\b")
_READS = re.compile(r"\s*(#|EnvironmentFile=|\.\s|source\s)")
_DOES = re.compile(r"attributes/tpu-env|/etc/environment|vbar_control_agent|driver_override")
_LIMITS = "/etc/security/limits.conf"
_CLOUD, _UNITS, _CRON = "/etc/cloud/cloud.cfg.d", "/etc/systemd/system", "/etc/cron.d"
_BROUGHT = re.compile(r"/(?:usr/)?s?bin/|/(?:usr/)?lib/")
_EXECUTABLE = 0o111  # cloud-init and systemd leave other scripts alone


def check_leftovers(host: Host, *, running: bool) -> Iterator[Row]:
    """One row for each thing that is left, or one that says that nothing is."""
    found = [*_rules(host), *_scripts(host, running=running), *_grub(host), *_limits(host), *_repeated(host)]
    yield from found
    if not found:
        yield Row("set-up by hand", "nothing left", "nothing")


def _rules(host: Host) -> Iterator[Row]:
    seen = set()
    for folder in _RULES:
        for name in host.names(folder):
            text = host.read(f"{folder}/{name}") if name.endswith(".rules") and name not in seen else None
            seen.add(name)
            if text is None or name == settings.UDEV_FILE.rpartition("/")[2]:
                continue
            programs = [
                _program(run[1])
                for line in text.splitlines()
                if not line.lstrip().startswith("#") and "1ae0" in line and (run := _RUN.search(line))
            ]
            if programs:
                path = f"{folder}/{name}"
                yield Row("udev rule by hand", "none", f"{path} runs {programs[0]}", WARNING, _away(path, programs))


def _program(command: str) -> str:
    words = command.split()
    scripts = (word for word in words if word.startswith("/") and not _INTERPRETERS.fullmatch(word))
    return next(scripts, words[0] if words else "")


def _away(path: str, programs: list[str]) -> str:
    """The rule, and those of its programs that no package has brought: /bin/sh is to stay."""
    if not path.startswith("/etc/"):
        return f"ln -s /dev/null {shlex.quote('/etc/udev/rules.d/' + path.rpartition('/')[2])}"
    own = [program for program in dict.fromkeys(programs) if program.startswith("/") and not _BROUGHT.match(program)]
    return f"rm -f {shlex.join([path, *own])}"


def _scripts(host: Host, *, running: bool) -> Iterator[Row]:
    """What is switched off, as the mends do it, is no longer run and no longer told."""
    for path, mend in _run_by_itself(host, running=running):
        if done := _does(host, path):
            yield Row("script by hand", "none", f"{path} {done}, which the agent does", WARNING, mend)


def _run_by_itself(host: Host, *, running: bool) -> Iterator[tuple[str, str]]:
    """The scripts, units and jobs that a machine runs without being asked, and how each is switched off."""
    for path in (*(f"{folder}/{name}" for folder in _SCRIPTS for name in host.names(folder)), "/etc/rc.local"):
        if _is_executable(host, path):
            yield path, f"chmod -x {shlex.quote(path)}"
    for name in host.names(_CLOUD):
        if name.endswith(".cfg"):
            yield f"{_CLOUD}/{name}", _set_aside(f"{_CLOUD}/{name}")
    for name in host.names(_UNITS):
        if name.endswith(".service"):
            path = f"{_UNITS}/{name}"
            reload = "; systemctl daemon-reload" if running else ""
            yield path, f"{disable(name, running=running)}; {_set_aside(path)}{reload}"
    for name in host.names(_CRON):
        if "." not in name:  # cron passes over the others
            yield f"{_CRON}/{name}", _set_aside(f"{_CRON}/{name}")


def _set_aside(path: str) -> str:
    return f"mv {shlex.quote(path)} {shlex.quote(path + '.off')}"


def _is_executable(host: Host, path: str) -> bool:
    seen = host.stat(path, follow=True)
    return seen is not None and bool(seen.st_mode & _EXECUTABLE)


def _does(host: Host, path: str) -> str:
    """The first thing in a script that is the agent's work, in words; empty for none."""
    lines = _lines(host, path)
    if done := _match(lines):
        return f"is about {done}"
    # What a unit or a job does is often in a script that it names.
    for script in (match[0] for line in lines for match in _NAMED.finditer(line)):
        if done := _match(_lines(host, script)):
            return f"runs {script}: {done}"
    return ""


def _lines(host: Host, path: str) -> list[str]:
    """What a script or a unit says, but for comments and for what only reads; a folder says nothing."""
    entry = host.stat(path, follow=True)
    text = host.read(path) if entry and stat.S_ISREG(entry.st_mode) else None
    return [line for line in (text or "").splitlines() if not _READS.match(line)]


def _match(lines: list[str]) -> str:
    return next((match[0] for line in lines if (match := _DOES.search(line))), "")


def _grub(host: Host) -> Iterator[Row]:
    path = "/etc/default/grub"
    values = parse_settings(host.read(path) or "", {})
    for variable in ("GRUB_CMDLINE_LINUX", "GRUB_CMDLINE_LINUX_DEFAULT"):
        names = [name for name, _ in parse_cmdline(values.get(variable, ""))]
        by_hand = [name for name, _ in settings.KERNEL_PARAMETERS if name in names]
        if by_hand and host.exists(settings.GRUB_DROP_IN):
            mend = take_words_out(path, by_hand) + regenerate(host)
            yield Row("grub by hand", "none", f"{path}: {', '.join(by_hand)} in {variable}", WARNING, mend)


def _limits(host: Host) -> Iterator[Row]:
    items = {limit.item for limit in settings.LIMITS}
    lines = [line.origin for line in parse_limits(host.read(_LIMITS) or "", _LIMITS) if line.item in items]
    if lines and host.exists(settings.LIMITS_FILE):
        numbers = ", ".join(origin.rpartition(":")[2] for origin in lines)
        yield Row("limits by hand", "none", f"{_LIMITS}, lines {numbers}", WARNING, comment_out(lines))


def _repeated(host: Host) -> Iterator[Row]:
    """What `>>` at every boot has piled up."""
    path = "/etc/environment"
    last: dict[str, int] = {}
    repeated = []
    lines = (line.strip() for line in (host.read(path) or "").split("\n"))
    for number, line in enumerate(lines, 1):
        if not line or line.startswith("#"):
            continue
        if line in last:
            repeated.append(last[line])  # of two equal lines the last one counts for whoever reads them
        last[line] = number
    if repeated:
        yield Row(path, "each line once", f"repeated lines: {len(repeated)}", WARNING, delete_lines(path, repeated))
