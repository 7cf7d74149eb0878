"""The command: what was typed becomes a function call, its result text or JSON, its error an exit code.

Nothing is imported here that not every command uses: `tpuagent status` must answer at once on a machine in trouble.
"""

from __future__ import annotations

import argparse
import os
import sys

from tpuagent import __version__
from tpuagent.errors import PartlyDone, TpuAgentError, UsageError
from tpuagent.host import Host

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tpuagent.devices.monitor import Monitor
    from tpuagent.devices.report import Pass, Report

    OpenMonitor = Callable[[], Monitor]

NOT_RUNNING = 3
_LAST_STANDARD_STREAM = 2
# What a command's help ends with; the man page tells the whole story.
_EXIT_CODES = """\
exit codes: 0 done, or already so; 1 unexpected error; 2 usage; 10 no such function; 11 not a TPU, or excluded;
12 in use; 13 no IOMMU group, or a shared one; 14 kernel module; 15 refused by the kernel; 16 device node;
17 deadline passed; 18 partly done; 77 not root, or sysfs is read-only; 78 configuration"""


def entry() -> None:
    """The installed command."""
    # A caller may have closed a standard stream. The next file that is opened must not take its number.
    while (descriptor := os.open(os.devnull, os.O_RDWR)) <= _LAST_STANDARD_STREAM:
        pass
    os.close(descriptor)
    sys.exit(main(sys.argv[1:]))


def main(argv: Sequence[str], host: Host | None = None, open_monitor: OpenMonitor | None = None) -> int:
    """Run one command and return its exit code. `host` and `open_monitor`: another machine than this one."""
    try:
        # Given here and not as defaults: the verb's own default would overwrite what stands before the verb.
        arguments = build_parser().parse_args(argv, argparse.Namespace(config=None))
        code: int = arguments.command(arguments, host or Host(), open_monitor)
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


def _run(arguments: argparse.Namespace, host: Host, open_monitor: OpenMonitor | None) -> int:
    from tpuagent import log
    from tpuagent.agent import Agent

    log.configure(journal=log.is_journal(sys.stderr.fileno()), debug=arguments.debug)
    host.require_root("run the agent")
    if open_monitor is None:
        from tpuagent.devices.monitor import UdevMonitor

        open_monitor = UdevMonitor
    return Agent(host, arguments.config, open_monitor).run()


def _status(arguments: argparse.Namespace, host: Host, _: OpenMonitor | None) -> int:
    from tpuagent import status

    document = status.read_status(host)
    if document is None:
        if arguments.json:
            print('{"schema": 1, "state": "not running"}')
        else:
            print("not running; start it with: systemctl start tpu-agent; look at the chips with: tpuagent devices")
        return NOT_RUNNING
    if arguments.json:
        _print_json(document)
    else:
        print(status.as_text(document))
    return 0 if document["state"] == "ready" else 1


def _devices(arguments: argparse.Namespace, host: Host, _: OpenMonitor | None) -> int:
    from tpuagent import config, status
    from tpuagent.devices import reconcile

    seen = reconcile.look(host, config.load(host, arguments.config).devices)
    entries = [status.device_entry(report) for report in seen.reports]
    if arguments.json:
        _print_json(entries)
        return 0
    print(status.device_table(entries))
    if seen.excluded:
        print(f"left alone (devices.exclude): {', '.join(map(str, seen.excluded))}", file=sys.stderr)
    if not seen.reports and seen.accel_nodes:
        print(f"accel nodes, which need no binding: {', '.join(seen.accel_nodes)}", file=sys.stderr)
    if os.geteuid() != 0 and seen.reports:
        print("who holds a function is shown to root only", file=sys.stderr)
    return 0


def _bind(arguments: argparse.Namespace, host: Host, _: OpenMonitor | None) -> int:
    from tpuagent.devices import reconcile

    return _operate(arguments, host, reconcile.bind, "ready")


def _unbind(arguments: argparse.Namespace, host: Host, _: OpenMonitor | None) -> int:
    from tpuagent.devices import reconcile

    return _operate(arguments, host, reconcile.unbind, "released")


def _operate(arguments: argparse.Namespace, host: Host, verb: Callable[..., Pass], wanted: str) -> int:
    from tpuagent import config, status
    from tpuagent.devices.pci import parse_address

    if arguments.all == bool(arguments.address):
        raise UsageError(
            f"{arguments.verb} functions", "name their addresses, or say --all; list them with: tpuagent devices"
        )
    addresses = None if arguments.all else [parse_address(text) for text in arguments.address]
    outcome = verb(host, config.load(host, arguments.config).devices, addresses, dry_run=arguments.dry_run)
    if arguments.dry_run:
        steps = [str(step) for step in outcome.steps]
        steps += [str(step) for report in outcome.reports for step in report.steps]
        if arguments.json:
            _print_json(steps)
        else:
            print("\n".join(steps or ["nothing to do"]))
    elif arguments.json:
        _print_json([status.device_entry(report) for report in outcome.reports])
    else:
        for report in outcome.reports:
            if report.error is None:
                print(_result(report, wanted))
        if not outcome.reports:
            print("no TPU functions on this host")
    for error in (*outcome.errors, *(report.error for report in outcome.reports if report.error)):
        print(f"tpuagent: {error}", file=sys.stderr)
    return _exit_code(outcome)


def _result(report: Report, wanted: str) -> str:
    function, done = report.function, "" if report.steps else " already"
    if report.state != wanted:
        return f"{function.address} {report.state}: {report.reason}"
    if wanted == "ready":
        return f"{function.address} is{done} bound to {function.driver}, users open {function.group_node}"
    return f"{function.address} is{done} released, its driver is {function.driver or 'none'}"


def _exit_code(outcome: Pass) -> int:
    """The one code that all share; PartlyDone's when some were done, or failed for another reason."""
    codes = {report.error.exit_code if report.error else 0 for report in outcome.reports} or {0}
    codes |= {error.exit_code for error in outcome.errors}
    if codes == {0}:
        return 0
    return codes.pop() if len(codes) == 1 else PartlyDone.exit_code


def _config(arguments: argparse.Namespace, host: Host, _: OpenMonitor | None) -> int:
    from tpuagent import config

    shown = config.explain(config.load(host, arguments.config))
    if arguments.json:
        _print_json([{"key": ".".join(one.key), "value": one.typed, "origin": one.origin} for one in shown])
    else:
        print(config.render(shown))
    return 0


# What can be typed -----------------------------------------------------------------------------------------------


def build_parser() -> argparse.ArgumentParser:
    """The one description of the command line; help and completion come from it."""
    common = argparse.ArgumentParser(add_help=False)
    common.add_argument(
        "--config",
        metavar="FILE",
        default=argparse.SUPPRESS,
        help="read this file instead of /etc/tpu-agent/config.yaml and its config.d",
    )
    parser = argparse.ArgumentParser(
        prog="tpuagent",
        description="Make the TPU chips of this virtual machine usable, and keep them so.",
        epilog="See tpuagent(8) for examples, files and exit codes.",
        parents=[common],
    )
    parser.add_argument("--version", action="version", version=f"tpuagent {__version__}")
    verbs = parser.add_subparsers(dest="verb", metavar="COMMAND", required=True)

    def add(name: str, command: Callable[..., int], help_: str, more: str = "") -> argparse.ArgumentParser:
        verb = verbs.add_parser(
            name,
            help=help_,
            description=help_[0].upper() + help_[1:] + "." + more,
            epilog=_EXIT_CODES,
            parents=[common],
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        verb.set_defaults(command=command)
        return verb

    def add_json(verb: argparse.ArgumentParser) -> None:
        verb.add_argument("--json", action="store_true", help="print JSON")

    add_json(add("status", _status, "tell what the running agent says of this host", _STATUS_MORE))
    add_json(add("devices", _devices, "list the TPU functions as they are now, and who holds them"))
    for name, command, help_, more in (
        ("bind", _bind, "bind functions to vfio-pci and open them to users", _BIND_MORE),
        ("unbind", _unbind, "give functions back to their previous driver and leave them alone", _UNBIND_MORE),
    ):
        verb = add(name, command, help_, more)
        verb.add_argument("address", nargs="*", metavar="ADDRESS", help="like 0000:00:04.0 or 00:04.0")
        verb.add_argument("--all", action="store_true", help="every TPU function of the host")
        verb.add_argument("--dry-run", action="store_true", help="print the steps and take none; needs no root")
        add_json(verb)
    add_json(add("config", _config, "print the effective configuration and where each value comes from"))
    run = add("run", _run, "run the agent; systemd does this as tpu-agent.service")
    run.add_argument("--debug", action="store_true", help="log every event as well")
    return parser


_STATUS_MORE = " Exits with 0 when it is ready,\n1 when it is degraded or starting, 3 when no agent runs."
_BIND_MORE = """

A function that is already right is not touched; one that a process holds is
refused. For example:
  tpuagent bind 0000:00:04.0
  tpuagent bind --all --dry-run"""
_UNBIND_MORE = """

The agent leaves the functions released until `tpuagent bind` or a reboot. For
example:
  tpuagent unbind 0000:00:04.0"""


def _print_json(what: object) -> None:
    import json

    print(json.dumps(what, indent=2))
