"""Let `python -m tpuagent` be the command."""

from tpuagent.cli import entry

entry()
