"""Run the real command on a simulated machine: `python -m tests.fakes FOLDER status`."""

import sys

from tests.fakes.host import FakeHost
from tests.fakes.uevents import FakeMonitor
from tpuagent import cli

if __name__ == "__main__":
    folder, *arguments = sys.argv[1:]
    sys.exit(cli.main(arguments, host=FakeHost(folder), open_monitor=lambda: FakeMonitor(folder)))
