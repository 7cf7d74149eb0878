"""What does `check` print? It joins what each wing knows into one table."""

from __future__ import annotations

import os
import re
import textwrap
from collections.abc import Iterator, Sequence

from tpuagent import config, status
from tpuagent.arguments import Arguments
from tpuagent.commands.output import print_json
from tpuagent.config import Config
from tpuagent.devices import reconcile
from tpuagent.errors import ConfigError, UsageError
from tpuagent.host import Host
from tpuagent.image.check import Wants, gathered, look
from tpuagent.image.limiting import ask_systemd
from tpuagent.image.rows import NOT_CHECKED, OK, UNKNOWN, WARNING, WRONG, Row, exit_code
from tpuagent.image.tree import Tree
from tpuagent.metadata import environment_file, refresh
from tpuagent.values import asdict

_WIDTH = 80  # where nobody's terminal says more
_INDENT = "  "
# What the state of tpu-env, as the agent tells it, is for a check. Others are wrong.
_TPU_ENV = {
    "written": OK, "current": OK, "absent": WARNING, "deleted": WARNING,
    "not-google": NOT_CHECKED, "waiting": NOT_CHECKED,
}  # fmt: skip
# A line as the agent writes it. Whatever else stands in the file is somebody else's.
_TPU_ENV_FILE = re.compile(rb'(?:[A-Za-z_][A-Za-z0-9_]*="(?:[^"\\`$\n]|\\["\\`$])*"\n)+')
_MEND_FUNCTION = {
    "blocked": "see the rows of the kernel, then: reboot",
    "in-use": "end the process that holds it, then: tpuagent bind {}",
    "stuck": "end the process that holds it",
}


def check(arguments: Arguments, host: Host) -> int:
    """Tell whether this machine, or the image in a folder, is as TPUs need it."""
    rows = _image_rows(arguments) if arguments.image is not None else _running_rows(arguments, host)
    if arguments.json:
        print_json([asdict(row) for row in rows])
    else:
        print(render(rows, _terminal_width()))
    return exit_code(rows)


def _running_rows(arguments: Arguments, host: Host) -> tuple[Row, ...]:
    settings, faults = _settings(arguments, host)
    ask = ask_systemd if host.root == "/" else None  # another root's systemd is not the one that answers here
    rows = [*faults, *look(host, _wants(settings), running=True, ask=ask)]
    document = status.read_status(host)
    rows += gathered("functions", lambda: _functions(host, settings))
    rows += _agent(document)
    rows += gathered("tpu-env", lambda: _tpu_env(host, settings, document))
    return (*rows, *gathered("/etc/environment", lambda: _environment(host, settings, running=True)))


def _image_rows(arguments: Arguments) -> tuple[Row, ...]:
    root = os.path.abspath(arguments.image)
    if not arguments.image:
        raise UsageError("check an image", "ROOT is empty; give the folder that the image is mounted at")
    try:
        names = os.listdir(root)
    except PermissionError:
        raise UsageError(f"check {arguments.image}", "it may not be read; try it with sudo") from None
    except OSError:
        names = []
    if not {"etc", "usr"} <= set(names):
        raise UsageError(f"check {arguments.image}", "it is no root of an image: there is no etc or no usr in it")
    host = Tree(root)
    settings, faults = _settings(arguments, host)
    rows = [*faults, *look(host, _wants(settings), running=False)]
    rows += [Row(what, "", "not booted", NOT_CHECKED) for what in ("functions", "agent", "tpu-env")]
    return (*rows, *gathered("/etc/environment", lambda: _environment(host, settings, running=False)))


def _settings(arguments: Arguments, host: Host) -> tuple[Config, list[Row]]:
    """The configuration; where it is wrong the defaults, and a row that says so: the rest is worth knowing then too."""
    try:
        settings = config.load(host, arguments.config)
    except ConfigError as fault:
        defaults = config.load(Host(os.devnull), None)
        return defaults, [Row("configuration", "no mistake", str(fault), WRONG, "mend it; then: tpuagent config")]
    group = settings.devices.group
    if host.group_id(group) is None:
        found = f"there is no group {group}: nodes stay root's"
        return settings, [Row("devices.group", group, found, WRONG, f"groupadd --system {group}")]
    return settings, [Row("configuration", "no mistake", "no mistake")]


def _wants(settings: Config) -> Wants:
    devices = settings.devices
    return Wants(
        tuple(str(generation.ids) for generation in devices.generations),
        tuple(map(str, sorted(devices.exclude))),
        any(spec.enabled for spec in settings.containers.specs),
    )


# What the other wings know ----------------------------------------------------------------------------------------


def _functions(host: Host, settings: Config) -> Iterator[Row]:
    seen = reconcile.look(host, settings.devices)
    for generation in dict.fromkeys(report.function.generation.name for report in seen.reports):
        reports = [report for report in seen.reports if report.function.generation.name == generation]
        grouped = sum(report.function.group is not None for report in reports)
        all_grouped = grouped == len(reports)
        yield Row(
            f"{generation}: IOMMU groups", str(len(reports)), str(grouped),
            OK if all_grouped else WRONG, "" if all_grouped else _MEND_FUNCTION["blocked"],
        )  # fmt: skip
        ready = sum(report.state == "ready" for report in reports)
        if ready == len(reports):
            yield Row(f"{generation}: functions", f"{ready} ready", f"{ready} ready, nodes {settings.devices.mode:04o}")
            continue
        for report in reports:
            address = report.function.address
            if report.state == "ready":
                continue
            mend = _MEND_FUNCTION.get(report.state, "tpuagent bind {}").format(address)
            found = f"{report.state}: {report.reason}" if report.reason else report.state
            yield Row(
                f"{generation}: {address}", "ready", found, WARNING if report.state == "released" else WRONG, mend
            )
    if not seen.reports:
        nodes = ", ".join(seen.accel_nodes)
        yield Row("functions", "", f"accel nodes: {nodes}" if nodes else "no TPU on this host", NOT_CHECKED)


def _agent(document: status.Document | None) -> Iterator[Row]:
    if document is None:
        mend = "systemctl start tpu-agent || journalctl -n 20 --no-pager -u tpu-agent"
        yield Row("agent", "runs", "does not run", WRONG, mend)
    elif document["state"] == "ready":
        yield Row("agent", "ready", "ready")
    else:
        yield Row("agent", "ready", f"{document['state']}: {document['summary']}", WARNING, "tpuagent status")


def _tpu_env(host: Host, settings: Config, document: status.Document | None) -> Iterator[Row]:
    path = settings.metadata.tpu_env.path
    said = document["tpu_env"] if document else None
    content = refresh.read_file(host, settings.metadata.tpu_env)
    if content is not None and not _TPU_ENV_FILE.fullmatch(content):
        yield Row("tpu-env", "written", f"{path} is not as the agent wrote it", WRONG, "tpuagent env refresh")
        return
    if said is None:
        found = f"no {path}" if content is None else f"{path} is there"
        verdict, mend = (WARNING, "tpuagent env refresh") if content is None else (OK, "")
        yield Row("tpu-env", "written", found, verdict, mend)
        return
    verdict = _TPU_ENV.get(said["state"], WRONG)
    if verdict == OK and content is None:
        yield Row("tpu-env", "written", f"{path} has gone", WRONG, "tpuagent env refresh")
        return
    found = ", ".join(filter(None, (said["state"], said["reason"])))
    yield Row("tpu-env", "written", found, verdict, "tpuagent env refresh" if verdict in (WRONG, WARNING) else "")


def _environment(host: Host, settings: Config, *, running: bool) -> Iterator[Row]:
    path = "/etc/environment"
    edit, _ = environment_file.preview_environment(host, settings.metadata.environment)
    expected = f"{len(settings.metadata.environment.wanted)} variables"
    for said in edit.kept:
        yield Row(path, "as configured", said, WARNING, f"edit {path}, or the configuration (environment_force)")
    for said in edit.odd:
        yield Row(path, "read as it looks", said, WARNING, f"edit {path}")
    if not edit.changes:
        yield Row(path, expected, "there")
    elif running:
        yield Row(path, expected, "; ".join(edit.changes), WRONG, "tpuagent environment")
    else:
        yield Row(path, expected, "the agent writes them at every boot")


# Showing ----------------------------------------------------------------------------------------------------------


def _terminal_width() -> int:
    try:
        return max(_WIDTH, os.get_terminal_size().columns)
    except OSError:  # into a file or a pipe
        return _WIDTH


def render(rows: Sequence[Row], width: int = _WIDTH) -> str:
    """The table; below a row what does not fit into it, and the command that mends it, unbroken, to be copied."""
    heading = ("VERDICT", "WHAT", "EXPECTED", "FOUND")
    cells = [(row.verdict, row.what, row.expected or "-", row.found) for row in rows]
    widths = [max(len(line[column]) for line in [heading, *cells]) for column in range(3)]
    room = width - sum(widths) - 2 * len(widths)
    lines = [_line(heading, widths)]
    for row, cell in zip(rows, cells, strict=True):
        if len(row.found) <= room:
            lines.append(_line(cell, widths))
        else:
            lines.append(_line((*cell[:3], ""), widths))
            lines += textwrap.wrap(row.found, width, initial_indent=_INDENT, subsequent_indent=_INDENT)
        if row.mend:
            lines.append(f"{_INDENT}mend: {row.mend}")
    counted = [
        (sum(row.verdict == verdict for row in rows), verdict) for verdict in (WRONG, UNKNOWN, WARNING, OK, NOT_CHECKED)
    ]
    return "\n".join([*lines, ", ".join(f"{number} {verdict}" for number, verdict in counted if number)])


def _line(cells: Sequence[str], widths: Sequence[int]) -> str:
    padded = [cell.ljust(width) for cell, width in zip(cells, widths, strict=False)]
    return "  ".join([*padded, *cells[len(widths) :]]).rstrip()
