"""What does `containers` print, and what does it do?"""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable
from contextlib import suppress

from tpuagent import config, status
from tpuagent.arguments import Arguments
from tpuagent.commands.output import print_json
from tpuagent.containers.operate import Operator
from tpuagent.errors import DeadlinePassed, UsageError
from tpuagent.host import Host

# How long `restart` waits to see it run; what takes longer, a pull perhaps, goes on without it.
_RESTART_S = 30.0
_LOOK_S = 0.1
# What it is only until something happens by itself.
_PASSING = ("starting", "stopped", "pulling", "unknown")
_UNKNOWN: status.Document = {"state": "unknown", "reason": "no agent says anything of it", "id": None}


def containers(arguments: Arguments, host: Host) -> int:
    """List them, or do something with one."""
    if arguments.action == "list":
        return _list(arguments, host)
    if not arguments.name and arguments.action != "remove":
        raise UsageError(
            f"{arguments.action} a container", f"name it, like: tpuagent containers {arguments.action} vbar"
        )
    if arguments.action == "logs":
        return _logs(arguments, host)
    host.require_root(f"{arguments.action} a container")
    operator = Operator(host, config.load(host, arguments.config).containers)
    return {"stop": _stop, "restart": _restart, "remove": _remove}[arguments.action](arguments, host, operator)


def _list(arguments: Arguments, host: Host) -> int:
    """As the agent says, and without one as the engine does."""
    if arguments.name:
        raise UsageError("list containers", "they are all listed; leave the name away")
    if document := status.read_status(host):
        entries = document["containers"]
    else:
        print("no agent runs; this is what the engine says", file=sys.stderr)
        seen = Operator(host, config.load(host, arguments.config).containers).look()
        entries = [status.container_entry(one) for one in seen]
    if arguments.json:
        print_json(entries)
    else:
        print(status.container_table(entries) if entries else "no containers are configured")
    return 0


def _logs(arguments: Arguments, host: Host) -> int:
    operator = Operator(host, config.load(host, arguments.config).containers)
    container = operator.find(arguments.name)
    with operator.engine.logs(
        container.id, lines=arguments.lines, follow=arguments.follow, timestamps=arguments.timestamps
    ) as pieces:
        for stream, data in pieces:
            to = sys.stderr if stream == "stderr" else sys.stdout
            to.buffer.write(data)
            to.buffer.flush()
    return 0


def _stop(arguments: Arguments, host: Host, operator: Operator) -> int:
    ran = operator.stop(arguments.name)
    _wake_agent(host)
    name = arguments.name
    print(f"{name} is {'' if ran else 'already '}stopped; start it with: tpuagent containers restart {name}")
    return 0


def _restart(arguments: Arguments, host: Host, operator: Operator) -> int:
    """The agent must have seen it stopped before it is wanted again: only then it is sure to start the new one."""
    name = arguments.name
    operator.stop(name)
    if status.read_status(host) is None:
        operator.want(name)
        operator.start(name)
        print(f"{name} is started; no agent runs, so nothing restarts it when it ends: systemctl start tpu-agent")
        return 0
    _wake_agent(host)
    _await(host, name, lambda state: state in ("stopped", "off"))
    operator.want(name)
    _wake_agent(host)
    entry = _await(host, name, lambda state: state not in _PASSING)
    if entry["state"] != "running":
        why = f"it is {entry['state']}" + (f": {entry['reason']}" if entry["reason"] else "")
        raise DeadlinePassed(f"see {name} run", f"{why}; the agent goes on, follow it with: tpuagent containers")
    print(f"{name} runs, container {entry['id'][:12]}")
    return 0


def _await(host: Host, name: str, enough: Callable[[str], bool]) -> status.Document:
    """What the agent says of it, as soon as its state is enough, or at last."""
    end = time.monotonic() + _RESTART_S
    while True:
        document = status.read_status(host) or {"containers": []}
        entry = next((one for one in document["containers"] if one["name"] == name), _UNKNOWN)
        if enough(entry["state"]) or time.monotonic() >= end:
            return entry
        time.sleep(_LOOK_S)


def _remove(arguments: Arguments, host: Host, operator: Operator) -> int:
    if status.read_status(host) is not None:
        why = "the agent runs and would make it anew; stop it first (systemctl stop tpu-agent), or switch it off"
        raise UsageError("remove containers", why)
    removed = operator.remove([arguments.name] if arguments.name else [])
    print(f"removed {', '.join(removed)}" if removed else "there is none of the agent's containers")
    return 0


def _wake_agent(host: Host) -> None:
    """Let the agent look now; it reads its configuration anew at the same time."""
    if document := status.read_status(host):
        with suppress(ProcessLookupError):  # it has just ended, and looks when it comes back
            os.kill(document["agent"]["pid"], signal.SIGHUP)
