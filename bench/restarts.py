"""How soon is a container that ended started again, by the agent and by the engine's own restart policy? In a guest.

`python -m bench.restarts` kills both in turns and takes the engine's own times of each end and each start, so that what
slows the guest slows both sides. Ends with 1 when the agent takes more than 50 ms longer than the policy, whose first
delay is 100 ms, of which the agent has none.
"""

from __future__ import annotations

import sys
from pathlib import Path
from statistics import median

from tests.vm import image, scenery
from tests.vm.guest import Guest
from tests.vm.machine import Machine
from tests.vm.recipe import BOOKWORM
from tests.vm.stage import VBAR, Stage

ROUNDS = 5
POLICY = "by-policy"
DROP_IN = "/etc/tpu-agent/config.d/90-bench.yaml"
LIMIT_MS = 50.0
HEALTHY_S = 11  # after ten seconds Docker forgets that a container has ended before
LONGEST_S = 300
RSS_LIMIT_KIB = 40_000


def gap_ms(guest: Guest, name: str) -> float:
    """Kill a container's process; milliseconds from its end to its next start, as the engine tells them."""
    began = guest.check(["date", "+%s.%N"]).strip()
    pid = guest.check(["docker", "inspect", "--format", "{{.State.Pid}}", name]).strip()
    shape = ["--format", "{{.Action}} {{.TimeNano}}", "--filter", f"container={name}"]
    events = guest.start(
        ["docker", "events", "--since", began, *shape, "--filter", "event=die", "--filter", "event=start"]
    )
    guest.check(["kill", "-KILL", pid])
    events.wait_for("start ", LONGEST_S)
    events.kill()
    lines = events.wait().stdout.splitlines()
    at = {action: int(nanoseconds) for action, nanoseconds in map(str.split, lines)}
    return (at["start"] - at["die"]) / 1e6


def main() -> int:
    """Measure, print, judge."""
    package = image.newest_package(Path(__file__).parents[1])
    chosen = image.containers_image(BOOKWORM, package, scenery.DOCKER)
    with Guest(chosen, Machine(("v6e",) * 8, memory_mib=3072), name="bench-restarts") as guest:
        stage = Stage(guest)
        stage.await_status("vbar running", LONGEST_S)
        name = stage.inspect()["Config"]["Image"]
        guest.write(DROP_IN, "containers: {telemetry: {enabled: true}}\n")
        reload = ["systemctl", "reload", "tpu-agent"]
        stage.after(lambda: guest.check(reload), "container_running container=telemetry", timeout_s=LONGEST_S)
        other = f"docker run -d --privileged --restart=always --name {POLICY} {name} busybox sleep 9999"
        guest.check(other, timeout_s=LONGEST_S)
        ours, policys = [], []
        for _ in range(ROUNDS):
            forget = ["tpuagent", "containers", "restart", "vbar"]  # what has ended before
            guest.check(forget, timeout_s=LONGEST_S)
            guest.check(["sleep", str(HEALTHY_S)])
            ours.append(gap_ms(guest, VBAR))
            policys.append(gap_ms(guest, POLICY))
        rss = int(guest.check("grep VmRSS /proc/$(systemctl show -p MainPID --value tpu-agent)/status").split()[1])
    more = median(ours) - median(policys)
    verdict = "kept" if more <= LIMIT_MS else "BROKEN"
    print(
        f"from end to start, median of {ROUNDS}: agent {median(ours):.0f} ms, Docker's policy {median(policys):.0f} ms"
    )
    print(f"difference {more:+.0f} ms, limit +{LIMIT_MS:.0f} ms on this emulated processor: {verdict}")
    print(
        f"resident memory of the agent with both containers: {rss / 1000:.1f} MB, limit {RSS_LIMIT_KIB / 1000:.0f} MB"
    )
    return int(more > LIMIT_MS or rss > RSS_LIMIT_KIB)


if __name__ == "__main__":
    sys.exit(main())
