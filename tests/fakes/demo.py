"""What does the agent do? Fifteen seconds of it, on a simulated machine: `python -m tests.fakes.demo [--fast]`.

Machine and kernel are a folder, and what happens to them is told here; all else that is printed comes from the real
agent and the real commands. The exit code is not 0 if anything came out otherwise than told.
"""

from __future__ import annotations

import signal
import sys
import tempfile
import time

from tests.fakes.engine import FakeEngine
from tests.fakes.machine import Machine
from tests.fakes.metadata_server import FakeMetadataServer
from tests.fakes.stage import Agent, NotAsTold, Stage
from tpuagent.containers.spec import VBAR

_CONFIGURATION = "/etc/tpu-agent/config.yaml"
_TPU_ENV_FILE = "/home/tpu-runtime/tpu-env"
_TPU_ENV = "TPU_ACCELERATOR_TYPE: 'v6e-8'\nTPU_WORKER_ID: '0'\nTOPOLOGY: '2x4'\n"
_NO_CONTAINERS = "/etc/tpu-agent/config.d/50-later.yaml"
_TOKEN = "ya29.fake"  # noqa: S105  what the metadata server of the simulation hands out
_LISTENERS = "/proc/net/tcp"
_LISTENS = f" sl local\n 0: 00000000:{VBAR.probe_port:04X} 00000000:0000 0A 0:0 0:0 0 0 0 55\n"
_PACE_S = 1.0


class Story:
    """The machine, and what happens on it, scene by scene."""

    def __init__(self, stage: Stage, machine: Machine) -> None:
        self._stage, self._machine = stage, machine
        machine.tree.put("/usr/bin/python3", "", 0o755)
        machine.tree.put(_NO_CONTAINERS, "containers: {vbar: {enabled: false}}\n")
        self._card = machine.add_other("network", driver="gve")
        kinds = ["v5p"] * 4 + ["v6e"] * 2 + ["tpu7x"] * 2
        self._functions = [
            machine.add_function(kind, driver="old-driver" if n == 4 else None) for n, kind in enumerate(kinds)
        ]

    def tell(self, folder: str) -> None:
        """All of it."""
        self._at_boot()
        self._stage.scene("the agent starts")
        begin = time.monotonic()
        agent = Agent(self._stage, folder)
        try:
            self._started(agent, begin)
            self._plugged(agent)
            self._sabotaged(agent)
            self._held()
            self._given_back(agent)
            self._badly_configured(agent)
            self._stopped(agent)
        finally:
            agent.close()
        self._served(folder)

    def _at_boot(self) -> None:
        stage = self._stage
        stage.scene("a TPU host has booted")
        stage.say("Eight TPU functions, and a network card of the same vendor. No user can open a chip yet.")
        shown = stage.command("devices")
        stage.check(shown.count("unbound") == 7 and shown.count("wrong-driver") == 1, "the functions are not bare")

    def _started(self, agent: Agent, begin: float) -> None:
        stage, machine = self._stage, self._machine
        agent.wait_for("READY=1")
        took_ms = (time.monotonic() - begin) * 1000
        shown = stage.command("status")
        stage.check(shown.count("vfio-pci") == 8 and shown.count("0666") == 8, "not every chip is bound and open")
        stage.check(self._open_nodes() == 8, "not every node is open to users")
        stage.check(machine.driver(self._card) == "gve", "the network card was touched")
        stage.done(
            f"all bound and open to users, {took_ms:.0f} ms after the start of the process; network card untouched"
        )

    def _plugged(self, agent: Agent) -> None:
        stage = self._stage
        stage.scene("a ninth chip is plugged in")
        begin = time.monotonic()
        address = self._machine.plug("v6e")
        agent.wait_for("3 of 3 v6e")
        took_ms = (time.monotonic() - begin) * 1000
        stage.check(self._open_nodes() == 9, "the new node is not open")
        stage.done(f"{address} was usable {took_ms:.0f} ms later")

    def _sabotaged(self, agent: Agent) -> None:
        stage, machine, victim = self._stage, self._machine, self._functions[0]
        stage.scene("somebody meddles")
        stage.say(
            f"They unbind {victim} by hand and bind it again: its node is a new one now, for root alone."
            " The agent is halted for a moment, so that it can be seen:"
        )
        node = machine.node(victim)
        before = machine.host.stat(node)
        agent.signal(signal.SIGSTOP)
        machine.rebind(victim)
        shown = stage.command("devices", only=lambda line: victim in line or node in line)
        stage.check("has 0600" in shown, "the node is not closed")
        begin = time.monotonic()
        agent.signal(signal.SIGCONT)
        agent.wait_for(f"function_ready address={victim}")
        took_ms = (time.monotonic() - begin) * 1000
        after = machine.host.stat(node)
        stage.check(before and after and before.st_ino != after.st_ino, "the node was not made anew")
        stage.check(machine.mode(node) == 0o666, "the node was not repaired")
        stage.done(f"let go, the agent opens {node} to users again within {took_ms:.0f} ms")

    def _held(self) -> None:
        stage, machine, wanted = self._stage, self._machine, self._functions[1]
        stage.scene("a chip is in use")
        pid = machine.hold(wanted, command="python3 train.py")
        said = stage.command("unbind", wanted, code=12)
        stage.check(f"{pid} (python3 train.py)" in said, "the holder was not named")
        stage.check(machine.driver(wanted) == "vfio-pci", "the chip was taken from its user")
        machine.let_go(pid)
        stage.done("refused at once, with the name of the process; nothing was touched")

    def _given_back(self, agent: Agent) -> None:
        stage, machine, chosen = self._stage, self._machine, self._functions[4]
        stage.scene("an operator takes a chip out of service")
        stage.command("unbind", chosen, "--dry-run")
        stage.command("unbind", chosen)
        agent.wait_for("2 of 3 v6e")
        stage.check(machine.driver(chosen) == "old-driver", "the chip did not get its driver back")
        stage.done("its old driver has it again, and the agent leaves it alone until somebody binds it")
        stage.command("bind", chosen)
        agent.wait_for("3 of 3 v6e")
        stage.check(self._open_nodes() == 9, "the chip did not come back")

    def _badly_configured(self, agent: Agent) -> None:
        stage, tree = self._stage, self._machine.tree
        stage.scene("a mistake in the configuration")
        tree.put(_CONFIGURATION, "devices:\n  mode: 666\n")
        said = stage.command("config", code=78)
        stage.check(_CONFIGURATION in said and "devices.mode" in said, "file and key were not named")
        agent.signal(signal.SIGHUP)
        agent.wait_for("STATUS=4 of 4")
        stage.check(self._open_nodes() == 9, "the mistake was applied")
        stage.done("refused with file, line and key; the agent goes on with what it had")
        tree.remove(_CONFIGURATION)
        agent.signal(signal.SIGHUP)
        agent.wait_for("STATUS=4 of 4")

    def _stopped(self, agent: Agent) -> None:
        stage, machine = self._stage, self._machine
        stage.scene("the agent stops")
        agent.signal(signal.SIGTERM)
        agent.wait_for("agent_stopped")
        stage.check(agent.end() == 0, "the agent did not end well")
        stage.check(self._open_nodes() == 9, "a running job would have lost its chip")
        stage.check(machine.driver(self._card) == "gve", "the network card was touched")
        stage.done("chips stay bound and open: restarting the agent never touches a running job")

    def _served(self, folder: str) -> None:
        stage, tree = self._stage, self._machine.tree
        stage.scene("the metadata server tells what this host is part of")
        with FakeMetadataServer({"tpu-env": _TPU_ENV}) as server:
            stage.say("One like that of a cloud host is started, and then the agent once more:")
            agent = Agent(stage, folder, metadata_host=server.host)
            try:
                agent.wait_for("READY=1", only=lambda line: "function_" not in line)
                stage.command("env")
                shown = stage.command("status", only=lambda line: "tpu-env" in line)
                stage.check("tpu-env, v6e-8, worker 0" in shown, "the status does not name what the server said")
                stage.say("Somebody makes it worker 3:")
                begin = time.monotonic()
                server.put("instance/attributes/tpu-env", _TPU_ENV.replace("'0'", "'3'"))
                agent.wait_for("worker 3")
                took_ms = (time.monotonic() - begin) * 1000
                stage.check('TPU_WORKER_ID="3"' in (tree.text(_TPU_ENV_FILE) or ""), "the file was not written anew")
                stage.done(f"in the file and in the status {took_ms:.0f} ms later")
                self._contained(agent)
            finally:
                agent.close()

    def _contained(self, agent: Agent) -> None:
        """The default configuration: vBar, whose image Google's registry gives only to this machine's account."""
        stage, tree = self._stage, self._machine.tree
        stage.scene("a container engine starts, and vBar crashes")
        with FakeEngine(self._machine.host.at("/run/docker.sock")) as engine:
            engine.state.publish(VBAR.image, token=_TOKEN)
            tree.remove(_NO_CONTAINERS)
            agent.signal(signal.SIGHUP)
            agent.wait_for("container_started", only=_about_containers)
            tree.put(_LISTENERS, _LISTENS)
            agent.wait_for("; vbar running", only=_about_containers)
            stage.check(
                [bool(one.headers.get("x-registry-auth")) for one in engine.pulls] == [False, True], "the pulls"
            )
            stage.say("Pulled, after a refusal, with the token of this machine. Now it crashes:")
            tree.put(_LISTENERS, "")
            begin = time.monotonic()
            engine.state.end("tpu-agent-vbar", 3)
            agent.wait_for("container_started", only=_about_containers)
            took_ms = (time.monotonic() - begin) * 1000
            tree.put(_LISTENERS, _LISTENS)
            agent.wait_for("; vbar running", only=_about_containers)
            stage.command("containers", only=lambda line: "telemetry" not in line)
            stage.done(f"started again {took_ms:.0f} ms later")

    def _open_nodes(self) -> int:
        names = self._machine.host.names("/dev/vfio")
        return sum(self._machine.mode(f"/dev/vfio/{name}") == 0o666 for name in names if name.isdecimal())


def _about_containers(line: str) -> bool:
    return "container_" in line or "image_" in line or "vbar" in line


def main(arguments: list[str]) -> int:
    """Tell the story; 0 if all came out as told."""
    with tempfile.TemporaryDirectory(prefix="tpu-agent-demo-") as folder:
        stage = Stage(f"{folder}/machine", 0 if "--fast" in arguments else _PACE_S)
        try:
            Story(stage, Machine.create(stage.root)).tell(folder)
        except NotAsTold as fault:
            print(f"demo: this did not come out as told: {fault}", file=sys.stderr)
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
