"""What does the agent add between the metadata server's answer and the finished file? Runs here, without a guest."""

from __future__ import annotations

import os
import socket
import statistics
import sys
import tempfile
import time

from tests.fakes.metadata_server import FakeMetadataServer
from tpuagent.host import Host
from tpuagent.metadata.policy import TpuEnvPolicy
from tpuagent.metadata.refresh import KEY, refresh
from tpuagent.metadata.server import MetadataServer

ROUNDS = 40
LIMIT_MS = 20.0
DOCUMENT = "".join(f"KEY_{number}: 'value {number}'\n" for number in range(30))


def bare_request_s(host: str) -> float:
    """How long the server's own answer takes."""
    name, port = host.split(":")
    began = time.perf_counter()
    with socket.create_connection((name, int(port))) as plain:
        plain.sendall(f"GET /computeMetadata/v1/{KEY} HTTP/1.0\r\nMetadata-Flavor: Google\r\n\r\n".encode())
        while plain.recv(65536):
            pass
    return time.perf_counter() - began


def measure() -> list[float]:
    """Milliseconds that a change adds, a number for each round; the answer alone is measured in turn."""
    with tempfile.TemporaryDirectory() as root, FakeMetadataServer({}) as server:
        host, client = Host(root), MetadataServer([server.host])
        owner = str(os.geteuid())
        policy, added = TpuEnvPolicy(owner=owner), []
        for number in range(ROUNDS + 1):
            server.put(KEY, f"{DOCUMENT}ROUND: '{number}'\n")
            answer_s = bare_request_s(server.host)
            began = time.perf_counter()
            if refresh(host, client, policy).state != "written":
                raise RuntimeError("the file was not written")
            added.append(1000 * (time.perf_counter() - began - answer_s))
    return added[1:]  # the first one imports the client


def main() -> int:
    """Print the figures; 1 when the promise is broken."""
    added = measure()
    median = statistics.median(added)
    verdict = "kept" if median <= LIMIT_MS else "BROKEN"
    spread = f"{min(added):.1f}-{max(added):.1f}"
    print(f"fetch to file, beyond the answer: {median:.1f} ms ({spread}), limit {LIMIT_MS:g}: {verdict}")
    return median > LIMIT_MS


if __name__ == "__main__":
    sys.exit(main())
