"""What do `metadata`, `env` and `environment` print, and with which exit code do they end?"""

from __future__ import annotations

import sys

from tpuagent import config
from tpuagent.arguments import Arguments
from tpuagent.commands.output import print_error, print_json
from tpuagent.errors import BadAnswer, NoSuchKey, TpuAgentError
from tpuagent.host import Host
from tpuagent.metadata import environment_file, refresh
from tpuagent.metadata.policy import TpuEnvPolicy


def metadata(arguments: Arguments, _: Host) -> int:
    """Print the value of a key itself, or the default that was given."""
    is_json = arguments.recursive  # what the server says of a folder and all below it
    try:
        value = refresh.look_up(refresh.open_server(), arguments.key, arguments.type, recursive=arguments.recursive)
    except NoSuchKey as fault:
        print_error(fault)
        if arguments.default is None:
            return fault.exit_code
        value, is_json = arguments.default.encode("utf-8", "surrogateescape"), False
    if arguments.json and not is_json:
        print_json(value.decode("utf-8", "replace"))
        return 0
    sys.stdout.flush()
    sys.stdout.buffer.write(value)  # byte by byte: a value need not be text
    if not value.endswith(b"\n"):
        sys.stdout.buffer.write(b"\n")
    return 0


def env(arguments: Arguments, host: Host) -> int:
    """Show tpu-env, fetch it anew, or tell where it is."""
    policy = config.load(host, arguments.config).metadata.tpu_env
    if arguments.what == "path":
        print(policy.path)
        return 0
    return _refresh(host, policy) if arguments.what == "refresh" else _show(host, policy)


def _show(host: Host, policy: TpuEnvPolicy) -> int:
    found = refresh.read_file(host, policy)
    if found is None:
        raise NoSuchKey(f"show {policy.path}", "there is no such file, or nothing in it; try: tpuagent env refresh")
    sys.stdout.flush()
    sys.stdout.buffer.write(found)
    return 0


def _refresh(host: Host, policy: TpuEnvPolicy) -> int:
    host.require_root(f"write {policy.path}")
    seen = refresh.refresh(host, refresh.open_server(), policy)
    for entry in seen.left_out:
        print_error(f"line {entry.line} of tpu-env: {entry.name} is left out: {entry.why}")
    if seen.state == "absent":
        raise NoSuchKey("refresh tpu-env", seen.reason)
    if seen.state == "failed":
        raise TpuAgentError("refresh tpu-env", seen.reason)
    if not seen.good:
        raise BadAnswer("refresh tpu-env", seen.reason)
    print(f"{seen.path} is {'written anew' if seen.state == 'written' else 'as the server says already'}")
    if seen.reason:
        print_error(seen.reason)
    return 0


def environment(arguments: Arguments, host: Host) -> int:
    """Bring /etc/environment to what the configuration wants, or show the difference."""
    policy = config.load(host, arguments.config).metadata.environment
    if arguments.dry_run:
        try:
            edit, difference = environment_file.preview_environment(host, policy)
        except OSError as fault:
            raise TpuAgentError("read /etc/environment", (fault.strerror or str(fault)).lower()) from fault
        print(difference, end="")
        changes = []
    else:
        host.require_root("write /etc/environment")
        seen = environment_file.keep_environment(host, policy)
        if seen.edit is None:
            raise TpuAgentError("edit /etc/environment", seen.error)
        edit, changes = seen.edit, list(seen.edit.changes)
    for change in changes or ([] if edit.changes else ["nothing to change"]):
        print(change)
    for remark in (*edit.kept, *edit.odd):
        print(remark, file=sys.stderr)
    return 0
