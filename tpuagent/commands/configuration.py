"""What does `config` print?"""

from __future__ import annotations

from tpuagent import config
from tpuagent.arguments import Arguments
from tpuagent.commands.output import print_json
from tpuagent.host import Host


def show(arguments: Arguments, host: Host) -> int:
    """The effective configuration, each value with its origin."""
    shown = config.explain(config.load(host, arguments.config))
    if arguments.json:
        print_json([{"key": ".".join(one.key), "value": one.typed, "origin": one.origin} for one in shown])
    else:
        print(config.render(shown))
    return 0
