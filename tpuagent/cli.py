"""The command: what was typed becomes a function call, its result text or JSON, its error an exit code.

Nothing is imported here that not every command uses: `tpuagent status` must answer at once on a machine in trouble.
"""

from __future__ import annotations

import os
import sys

from tpuagent.arguments import VERBS, Arguments, take_plain
from tpuagent.errors import TpuAgentError
from tpuagent.host import Host

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tpuagent.devices.monitor import Monitor

NOT_RUNNING = 3
_LAST_STANDARD_STREAM = 2


def entry() -> None:
    """The installed command."""
    # A caller may have closed a standard stream. The next file that is opened must not take its number.
    while (descriptor := os.open(os.devnull, os.O_RDWR)) <= _LAST_STANDARD_STREAM:
        pass
    os.close(descriptor)
    code = main(sys.argv[1:])
    for stream in filter(None, (sys.stdout, sys.stderr)):
        stream.flush()
    os._exit(code)  # nothing is left to be done; to take the interpreter apart would be a tenth of a command


def main(argv: Sequence[str], host: Host | None = None, open_monitor: Callable[[], Monitor] | None = None) -> int:
    """Run one command and return its exit code. `host` and `open_monitor`: another machine than this one."""
    try:
        # Given here and not as defaults: the verb's own default would overwrite what stands before the verb.
        arguments = Arguments(config=None, open_monitor=open_monitor)
        try:
            if not take_plain(argv, arguments):
                from tpuagent.parser import build_parser

                build_parser(argv[0] if argv and argv[0] in VERBS else None).parse_args(argv, arguments)
            code: int = _COMMANDS[arguments.verb](arguments, host or Host())
        finally:  # also after --help, which ends by an exit
            if sys.stdout:
                sys.stdout.flush()
    except TpuAgentError as fault:
        print(f"tpuagent: {fault}", file=sys.stderr)
        return fault.exit_code
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:  # the reader, `head` perhaps, has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except Exception as fault:  # the door's boundary: one line for the operator, the trace for whoever asks
        if os.environ.get("TPUAGENT_TRACE"):
            raise
        print(
            f"tpuagent: unexpected {type(fault).__name__}: {fault}; for the trace, set TPUAGENT_TRACE=1",
            file=sys.stderr,
        )
        return 1
    return code


# Commands ---------------------------------------------------------------------------------------------------------


def _run(arguments: Arguments, host: Host) -> int:
    from tpuagent import log
    from tpuagent.agent import Agent

    log.configure(journal=log.is_journal(sys.stderr.fileno()), debug=arguments.debug)
    host.require_root("run the agent")
    open_monitor = arguments.open_monitor
    if open_monitor is None:
        from tpuagent.devices.monitor import UdevMonitor

        open_monitor = UdevMonitor
    return Agent(host, arguments.config, open_monitor).run()


def _status(arguments: Arguments, host: Host) -> int:
    from tpuagent import status

    document = status.read_status(host)
    if document is None:
        if arguments.json:
            print('{"schema": 1, "state": "not running"}')
        else:
            print("not running; start it with: systemctl start tpu-agent; look at the chips with: tpuagent devices")
        return NOT_RUNNING
    if arguments.json:
        from tpuagent.commands.output import print_json

        print_json(document)
    else:
        print(status.as_text(document))
    return 0 if document["state"] == "ready" else 1


def _devices(arguments: Arguments, host: Host) -> int:
    from tpuagent.commands import devices

    return devices.devices(arguments, host)


def _bind(arguments: Arguments, host: Host) -> int:
    from tpuagent.commands import devices

    return devices.bind(arguments, host)


def _unbind(arguments: Arguments, host: Host) -> int:
    from tpuagent.commands import devices

    return devices.unbind(arguments, host)


def _config(arguments: Arguments, host: Host) -> int:
    from tpuagent.commands import configuration

    return configuration.show(arguments, host)


def _metadata(arguments: Arguments, host: Host) -> int:
    from tpuagent.commands import metadata

    return metadata.metadata(arguments, host)


def _env(arguments: Arguments, host: Host) -> int:
    from tpuagent.commands import metadata

    return metadata.env(arguments, host)


def _environment(arguments: Arguments, host: Host) -> int:
    from tpuagent.commands import metadata

    return metadata.environment(arguments, host)


def _containers(arguments: Arguments, host: Host) -> int:
    from tpuagent.commands import containers

    return containers.containers(arguments, host)


def _check(arguments: Arguments, host: Host) -> int:
    from tpuagent.commands import check

    return check.check(arguments, host)


_COMMANDS = {
    "status": _status,
    "devices": _devices,
    "bind": _bind,
    "unbind": _unbind,
    "metadata": _metadata,
    "env": _env,
    "environment": _environment,
    "check": _check,
    "containers": _containers,
    "config": _config,
    "run": _run,
}
