"""What do `devices`, `bind` and `unbind` print, and with which exit code do they end?"""

from __future__ import annotations

import os
import sys

from tpuagent.arguments import Arguments
from tpuagent.commands.output import print_error, print_json
from tpuagent.configfiles import read_texts
from tpuagent.devices import reconcile
from tpuagent.devices.pci import parse_address
from tpuagent.devices.policy import Policy
from tpuagent.devices.report import Pass, Report
from tpuagent.errors import PartlyDone, UsageError
from tpuagent.host import Host

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable


def devices(arguments: Arguments, host: Host) -> int:
    """List the functions as they are now."""
    from tpuagent import status  # `bind` and `unbind` need of it only what JSON needs

    seen = reconcile.look(host, _policy(arguments, host))
    entries = [status.device_entry(report) for report in seen.reports]
    if arguments.json:
        print_json(entries)
        return 0
    print(status.device_table(entries))
    if seen.excluded:
        print(f"left alone (devices.exclude): {', '.join(map(str, seen.excluded))}", file=sys.stderr)
    if not seen.reports and seen.accel_nodes:
        print(f"accel nodes, which need no binding: {', '.join(seen.accel_nodes)}", file=sys.stderr)
    if os.geteuid() != 0 and seen.reports:
        print("who holds a function is shown to root only", file=sys.stderr)
    return 0


def bind(arguments: Arguments, host: Host) -> int:
    """Bind functions and open them to users."""
    return _operate(arguments, host, reconcile.bind, "ready")


def unbind(arguments: Arguments, host: Host) -> int:
    """Give functions back."""
    return _operate(arguments, host, reconcile.unbind, "released")


def _policy(arguments: Arguments, host: Host) -> Policy:
    """What the configuration wants; the defaults without looking further where no file says anything."""
    if not any(read_texts(host, arguments.config)):
        return Policy()
    from tpuagent import config

    return config.load(host, arguments.config).devices


def _operate(arguments: Arguments, host: Host, verb: Callable[..., Pass], wanted: str) -> int:
    if arguments.all and arguments.address:
        raise UsageError(f"{arguments.verb} functions", "name their addresses or say --all, not both")
    if not arguments.all and not arguments.address:
        raise UsageError(
            f"{arguments.verb} functions", "name their addresses, or say --all; list them with: tpuagent devices"
        )
    addresses = None if arguments.all else [parse_address(text) for text in arguments.address]
    outcome = verb(host, _policy(arguments, host), addresses, dry_run=arguments.dry_run)
    _show(arguments, outcome, wanted)
    return _exit_code(outcome)


def _show(arguments: Arguments, outcome: Pass, wanted: str) -> None:
    """What was done, or in a dry run would be, and what went wrong."""
    if arguments.dry_run:
        steps = [str(step) for step in outcome.steps]
        steps += [str(step) for report in outcome.reports for step in report.steps]
        if arguments.json:
            print_json(steps)
        else:
            print("\n".join(steps or ["nothing to do"]))
    elif arguments.json:
        from tpuagent.status import device_entry

        print_json([device_entry(report) for report in outcome.reports])
    else:
        for report in outcome.reports:
            if report.error is None:
                print(_result(report, wanted))
        if not outcome.reports:
            print("no TPU functions on this host")
    for error in (*outcome.errors, *(report.error for report in outcome.reports if report.error)):
        print_error(error)


def _result(report: Report, wanted: str) -> str:
    function, done = report.function, "" if report.steps else " already"
    if report.state != wanted:
        return f"{function.address} {report.state}: {report.reason}"
    if wanted == "ready":
        return f"{function.address} is{done} bound to {function.driver}, its node is {function.group_node}"
    return f"{function.address} is{done} released, its driver is {function.driver or 'none'}"


def _exit_code(outcome: Pass) -> int:
    """The one code that all share; PartlyDone's when some were done, or failed for another reason."""
    codes = {report.error.exit_code if report.error else 0 for report in outcome.reports} or {0}
    codes |= {error.exit_code for error in outcome.errors}
    if codes == {0}:
        return 0
    return codes.pop() if len(codes) == 1 else PartlyDone.exit_code
