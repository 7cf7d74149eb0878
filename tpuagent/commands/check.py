"""What does `check` print? Joins what every part of the agent knows of this machine, or of an image."""

from __future__ import annotations

import os
import shutil
import subprocess
import textwrap
from collections.abc import Iterator

from tpuagent import config
from tpuagent.arguments import Arguments
from tpuagent.commands.output import print_json
from tpuagent.config import Config
from tpuagent.containers.conflicts import find_installed
from tpuagent.devices.modules import plan_parameters
from tpuagent.devices.reconcile import look
from tpuagent.devices.report import Pass, Report
from tpuagent.devices.sysfs import modules
from tpuagent.errors import ConfigError, TpuAgentError, UsageError
from tpuagent.host import Host
from tpuagent.image.checks import check_tree, skipped
from tpuagent.image.finding import OK, SKIPPED, UNKNOWN, WARNING, WRONG, Finding, judge
from tpuagent.image.tree import Tree, reason_of
from tpuagent.metadata.environment_file import preview_environment
from tpuagent.metadata.refresh import configured_host, is_google, read_file
from tpuagent.values import asdict

_COULD_NOT = 2
_ORDER = (WRONG, UNKNOWN, WARNING, OK, SKIPPED)
_MANAGER_LIMIT_S = 5
_NARROWEST = 60


def check(arguments: Arguments, host: Host) -> int:
    """Print every finding; 1 if something is wrong, 2 if something could not be looked at."""
    if arguments.image is not None:
        if not os.path.isdir(os.path.join(arguments.image, "etc")):
            raise UsageError(f"check {arguments.image}", "that is no folder with an image in it: it has no etc")
        host = Host(os.path.realpath(arguments.image))
    findings = list(_findings(arguments, host, booted=arguments.image is None))
    if arguments.json:
        print_json([asdict(finding) for finding in findings])
    else:
        print(_render(findings))
    verdicts = {finding.verdict for finding in findings}
    return 1 if WRONG in verdicts else _COULD_NOT if UNKNOWN in verdicts else 0


def _findings(arguments: Arguments, host: Host, *, booted: bool) -> Iterator[Finding]:
    settings, wrong = _configuration(arguments, host)
    yield wrong
    tree = Tree(host)
    yield from check_tree(tree, booted=booted, ask_manager=_ask_manager if booted and host.root == "/" else _no_manager)
    yield from _conflicts(host, settings)
    if not booted:
        yield skipped("TPU functions, nodes, tpu-env, /etc/environment", "known when the image runs")
        return
    yield from _devices(host, settings)
    yield from _metadata(host, settings)


def _configuration(arguments: Arguments, host: Host) -> tuple[Config, Finding]:
    try:
        return config.load(host, arguments.config), Finding("configuration", "can be read", "as it should be", OK)
    except ConfigError as fault:
        return config.defaults(), Finding("configuration", "can be read", fault.why, WRONG, f"mend it: {fault}")


# Parts ------------------------------------------------------------------------------------------------------------


def _conflicts(host: Host, settings: Config) -> Iterator[Finding]:
    for spec in settings.containers.specs:
        if spec.off or not spec.conflicts:
            continue
        found = [why for name in spec.conflicts if (why := find_installed(host, name))]
        what = f"stock agents beside {spec.name}"
        yield judge(what, "none", found[0] if found else "none", "see what was found", good=not found)


def _devices(host: Host, settings: Config) -> Iterator[Finding]:
    try:
        seen = look(host, settings.devices)
    except (TpuAgentError, OSError) as fault:
        yield Finding("TPU functions", "can be looked at", str(fault), UNKNOWN, "sudo tpuagent check")
        return
    if not seen.has_tpus:
        yield skipped("TPU functions", "this host has none")
        return
    if seen.reports:
        groups = len(host.names("/sys/kernel/iommu_groups"))
        mend = "see the kernel parameters above, then reboot; a host without an IOMMU cannot have TPUs used safely"
        yield judge("IOMMU", "groups", f"{groups} groups", mend, good=groups > 0)
    yield from map(_function, seen.reports)
    yield from _parameters(host, settings, seen)


def _function(report: Report) -> Finding:
    function = report.function
    what = f"function {function.address} ({function.generation.name})"
    found = report.state + (f": {report.reason}" if report.reason else "")
    if report.state == "blocked":
        mend = "see the kernel parameters above, then reboot"
    elif report.state in ("in-use", "stuck"):
        mend = "end the process that holds it; see: sudo tpuagent devices"
    else:
        mend = f"tpuagent bind {function.address}"
    verdict = WARNING if report.state == "released" else WRONG
    return judge(what, "ready", found, mend, good=report.state == "ready", otherwise=verdict)


def _parameters(host: Host, settings: Config, seen: Pass) -> Iterator[Finding]:
    if not seen.reports:
        return
    try:
        steps = plan_parameters(modules(host), settings.devices, host.machine())
    except OSError as fault:
        yield Finding("module parameters", "as configured", reason_of(fault), UNKNOWN, "sudo tpuagent check")
        return
    found = "; ".join(map(str, steps)) or "as configured"
    yield judge("module parameters", "as configured", found, "tpuagent bind --all", good=not steps)


def _metadata(host: Host, settings: Config) -> Iterator[Finding]:
    policy = settings.metadata
    try:
        if not (configured_host() or is_google(host)):
            yield skipped("tpu-env", "this is no Google host")
        else:
            there = read_file(host, policy.tpu_env)
            found = f"{len(there)} bytes" if there else "none, or an empty one"
            yield judge(f"file {policy.tpu_env.path}", "is there", found, "tpuagent env refresh", good=bool(there))
        edit, _ = preview_environment(host, policy.environment)
    except OSError as fault:
        yield Finding(str(fault.filename), "can be read", reason_of(fault), UNKNOWN, "sudo tpuagent check")
        return
    changes = "; ".join(edit.changes) or "as configured"
    yield judge("/etc/environment", "as configured", changes, "tpuagent environment", good=not edit.changes)
    for odd in edit.odd:
        yield Finding("/etc/environment", "read as it looks", odd, WARNING, "edit /etc/environment")


def _no_manager(_: str) -> None:
    return None


def _ask_manager(name: str) -> str | None:
    if not os.path.isdir("/run/systemd/system") or not (program := shutil.which("systemctl")):
        return None
    try:
        done = subprocess.run(
            [program, "show", f"--property={name}", "--value"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_MANAGER_LIMIT_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() or None


# Showing ----------------------------------------------------------------------------------------------------------


def _render(findings: list[Finding]) -> str:
    """What is wrong first, each with what was expected and the command that mends it; then what is good."""
    width = max(_NARROWEST, shutil.get_terminal_size().columns) - 1
    lines = []
    for finding in sorted(findings, key=lambda one: _ORDER.index(one.verdict)):
        found = finding.found if finding.verdict in (OK, SKIPPED) else f"{finding.found} (expected: {finding.expected})"
        lines += _wrapped(f"{finding.verdict:8} {finding.what}: {found}", width, " " * 9)
        if finding.mend:
            lines += _wrapped(f"{'':9}mend: {finding.mend}", width, " " * 15)
    counts = {verdict: sum(one.verdict == verdict for one in findings) for verdict in _ORDER}
    return "\n".join([*lines, ", ".join(f"{number} {verdict}" for verdict, number in counts.items() if number)])


def _wrapped(line: str, width: int, indent: str) -> list[str]:
    return textwrap.wrap(line, width, subsequent_indent=indent, break_on_hyphens=False, break_long_words=False)
