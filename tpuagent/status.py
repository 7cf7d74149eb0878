"""What does the whole host look like? Build the status document, keep it in /run, show it as text.

The document is plain JSON data: `tpuagent status` prints what the daemon has published, and imports nothing that would
make it slow.
"""

from __future__ import annotations

from tpuagent import __version__

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from typing import Any

    from tpuagent.containers.spec import ContainerSeen
    from tpuagent.devices.pci import Generation
    from tpuagent.devices.report import Pass, Report
    from tpuagent.host import Host
    from tpuagent.metadata.seen import TpuEnvSeen

STATUS_FILE = "/run/tpu-agent/status.json"
SCHEMA = 1
# proc_pid_stat(5): field 22, counted here from the one after the name.
_STARTTIME = 19
Document = dict[str, "Any"]
_CONTAINER_COLUMNS = ("name", "state", "id", "started_at", "restarts", "memlock")
_COLUMNS = ("address", "generation", "state", "driver", "group", "node", "mode")


# Building ---------------------------------------------------------------------------------------------------------


def device_entry(report: Report) -> Document:
    """One function for JSON. `node` and `mode` are its group's node; null when there is none."""
    function = report.function
    node = next((node for node in function.nodes if node.path == function.group_node), None)
    return {
        "address": str(function.address),
        "generation": function.generation.name,
        "driver": function.driver,
        "group": function.group,
        "node": node.path if node else None,
        "mode": f"{node.access.mode:04o}" if node else None,
        "state": report.state,
        "reason": report.reason,
        "holders": [{"pid": holder.pid, "command": holder.command} for holder in report.holders],
    }


def build_status(
    seen: Pass | None,
    troubles: Sequence[str],
    *,
    tpu_env: TpuEnvSeen | None = None,
    containers: Sequence[ContainerSeen] = (),
    starting: bool = False,
    pid: int,
    started_ticks: str,
) -> Document:
    """The host's status after a pass; before the first one, and while tpu-env is awaited, it is "starting".

    `troubles` are faults of the agent's own work: a pass that failed, a configuration that was not reloaded.
    """
    if seen is None and not troubles:
        state, summary = "starting", "looking for TPU functions"
    elif seen is None:
        state, summary = "degraded", "; ".join(("TPU functions not yet looked at", *troubles))
    else:
        state, summary = _judge(seen, tpu_env, containers, troubles, starting=starting)
    return {
        "schema": SCHEMA,
        "version": __version__,
        "state": state,
        "summary": summary,
        "devices": [device_entry(report) for report in seen.reports] if seen else [],
        "tpu_env": _tpu_env_entry(tpu_env),
        "containers": [container_entry(container) for container in containers],
        "agent": {"pid": pid, "started_ticks": started_ticks},
    }


def container_entry(seen: ContainerSeen) -> Document:
    """One container for JSON; null for what is not known, or is not while it does not run."""
    return {
        "name": seen.name,
        "state": seen.state,
        "image": seen.image,
        "digest": seen.digest or None,
        "id": seen.id or None,
        "started_at": seen.started_at or None,
        "restarts": seen.restarts,
        "reason": seen.reason,
        "memlock": seen.memlock or None,
        "required": seen.required,
    }


def _tpu_env_entry(tpu_env: TpuEnvSeen | None) -> Document:
    if tpu_env is None:
        return dict.fromkeys(("state", "path", "accelerator_type", "worker_id", "reason")) | {"state": "waiting"}
    return {
        "state": tpu_env.state,
        "path": tpu_env.path,
        "accelerator_type": tpu_env.accelerator_type,
        "worker_id": tpu_env.worker_id,
        "reason": tpu_env.reason,
    }


def _judge(
    seen: Pass,
    tpu_env: TpuEnvSeen | None,
    containers: Sequence[ContainerSeen],
    troubles: Sequence[str],
    *,
    starting: bool,
) -> tuple[str, str]:
    """State and summary. tpu-env counts where there are TPUs that it could tell something about."""
    faults = [*_problems(seen.reports), *troubles, *(str(error) for error in seen.errors)]
    told = []
    if not seen.has_tpus or (tpu_env and not tpu_env.expected):
        pass
    elif starting:
        told = ["waiting for tpu-env" + (f": {tpu_env.reason}" if tpu_env else "")]
    elif tpu_env and tpu_env.good:
        facts = (tpu_env.accelerator_type, f"worker {tpu_env.worker_id}" if tpu_env.worker_id else None)
        told = [", ".join(filter(None, ("tpu-env", *facts)))]
    elif tpu_env:
        faults.append(_tpu_env_fault(tpu_env))
    told += [f"{one.name} running" for one in containers if one.state == "running"]
    faults += [f"{one.name} {one.state}" + (f": {one.reason}" if one.reason else "") for one in containers if one.fault]
    state = "starting" if starting else "degraded" if faults else "ready"
    return state, "; ".join((_counts(seen), *told, *faults))


def _tpu_env_fault(tpu_env: TpuEnvSeen) -> str:
    if tpu_env.state == "failed":
        return tpu_env.reason
    return f"{'old' if tpu_env.content else 'no'} tpu-env: {tpu_env.reason}"


def _counts(seen: Pass) -> str:
    if not seen.reports:
        accel = len(seen.accel_nodes)
        return f"no TPU function to bind, {accel} accel nodes" if accel else "no TPU functions on this host"
    states: dict[Generation, list[str]] = {}
    for report in seen.reports:
        states.setdefault(report.function.generation, []).append(report.state)
    parts = []
    for generation, of_functions in states.items():
        part = f"{of_functions.count('ready')} of {len(of_functions)} {generation.name}"
        if generation.functions_per_chip > 1:
            chips = len(of_functions) // generation.functions_per_chip
            part += f" ({chips} chip{'' if chips == 1 else 's'})"
        parts.append(part)
    return ", ".join(parts) + " functions ready"


def _problems(reports: Iterable[Report]) -> list[str]:
    """The functions that are not ready, those with the same reason together."""
    alike: dict[tuple[str, str], list[str]] = {}
    for report in reports:
        if report.state != "ready":
            alike.setdefault((report.state, report.reason), []).append(str(report.function.address))
    return [
        f"{addresses[0] if len(addresses) == 1 else len(addresses)} {state}" + (f": {reason}" if reason else "")
        for (state, reason), addresses in alike.items()
    ]


# Keeping ----------------------------------------------------------------------------------------------------------


def started_ticks(host: Host, pid: int) -> str:
    """When a process started, in clock ticks since boot, which tells it from a later one; empty: gone."""
    line = host.read(f"/proc/{pid}/stat") or ""
    after_name = line.rpartition(")")[2].split()  # the name may hold blanks and parentheses
    return "".join(after_name[_STARTTIME : _STARTTIME + 1])


def write_status(host: Host, document: Document) -> None:
    """Publish the document for everybody to read."""
    import json

    host.replace(STATUS_FILE, json.dumps(document, indent=1) + "\n")


def read_status(host: Host) -> Document | None:
    """The document of the running agent; None when no agent runs."""
    import json

    try:
        document: Document = json.loads(host.read(STATUS_FILE) or "{}")
        pid, started = document["agent"]["pid"], document["agent"]["started_ticks"]
    except (ValueError, TypeError, KeyError):  # none there, or not one that an agent wrote
        return None
    return document if started and started_ticks(host, pid) == started else None


# Showing ----------------------------------------------------------------------------------------------------------


def device_table(entries: Sequence[Mapping[str, Any]]) -> str:
    """The functions as a table; below each one that is not plainly ready, why and who holds it."""
    if not entries:
        return "no TPU functions on this host"
    heading, *lines = _columns(_COLUMNS, entries)
    shown = [heading]
    for entry, line in zip(entries, lines, strict=True):
        shown.append(line)
        if entry["reason"]:
            shown.append(f"  {entry['reason']}")
        shown.extend(f"  held by process {holder['pid']} ({holder['command']})" for holder in entry["holders"])
    return "\n".join(shown)


def container_table(entries: Sequence[Mapping[str, Any]]) -> str:
    """The containers as a table; below each one its image, and why it is not plainly running."""
    short = [
        {**entry, "id": (entry["id"] or "")[:12], "started_at": _to_seconds(entry["started_at"] or "")}
        for entry in entries
    ]
    heading, *lines = _columns(_CONTAINER_COLUMNS, short)
    shown = [heading]
    for entry, line in zip(entries, lines, strict=True):
        shown.append(line)
        if entry["state"] == "off":
            continue
        if entry["reason"]:
            shown.append(f"  {entry['reason']}")
        shown.append(f"  {entry['image']}")
        if entry["digest"]:
            shown.append(f"  {entry['digest']}")
    return "\n".join(shown)


def _to_seconds(moment: str) -> str:
    """A time of the engine's without the fraction of a second."""
    zone = "Z" if moment.endswith("Z") else moment[-len("+00:00") :]
    return moment[: len("2026-01-01T00:00:00")] + zone if moment else ""


def _columns(names: Sequence[str], entries: Sequence[Mapping[str, Any]]) -> list[str]:
    rows = [[name.upper().replace("_", " ") for name in names]]
    rows += [["-" if entry[name] in (None, "") else str(entry[name]) for name in names] for entry in entries]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["  ".join(map(str.ljust, row, widths)).rstrip() for row in rows]


def as_text(document: Document) -> str:
    """The status as a person reads it: the truth in the first line, then the functions."""
    agent = f"agent {document['version']}, process {document['agent']['pid']}"
    tpu_env = document["tpu_env"]
    facts = (tpu_env["state"], tpu_env["path"], tpu_env["reason"])
    parts = [f"{document['state']}: {document['summary']}", agent, "tpu-env " + ", ".join(filter(None, facts))]
    if document["devices"]:
        parts.append(device_table(document["devices"]))
    if document["containers"]:
        parts.append(container_table(document["containers"]))
    return "\n".join(parts)
