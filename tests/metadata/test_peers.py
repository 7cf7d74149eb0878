"""Is the fake metadata server one? Clients that others wrote have to take it for the real one."""

from __future__ import annotations

import http.client
import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.conftest import RunPython
from tests.fakes.metadata_server import FakeMetadataServer

ROOT = "/computeMetadata/v1/"
_GOOGLE_AUTH = """
import json, sys
from google.auth.compute_engine import _metadata as metadata
from google.auth.transport.requests import Request
request = Request()
print(json.dumps({
    "ping": metadata.ping(request),
    "project": metadata.get_project_id(request),
    "account": metadata.get_service_account_info(request)["email"],
    "token": metadata.get_service_account_token(request)[0],
    "attribute": metadata.get(request, "instance/attributes/tpu-env"),
    "folder": metadata.get(request, "instance/attributes/", recursive=True),
    "universe": metadata.get_universe_domain(request),
}))
try:
    metadata.get(request, "instance/attributes/none", retry_count=1)
except Exception as fault:
    print(type(fault).__name__, "404" in str(fault))
"""
_GCP_METADATA = """
const metadata = require('gcp-metadata');
(async () => {
  const found = {
    available: await metadata.isAvailable(),
    id: String(await metadata.instance('id')),
    attribute: await metadata.instance('attributes/tpu-env'),
    project: await metadata.project('project-id'),
    all: Object.keys(await metadata.instance({property: '', params: {recursive: 'true'}})).sort(),
  };
  console.log(JSON.stringify(found));
})();
"""


def test_google_auth_takes_it_for_the_metadata_server(server: FakeMetadataServer, run_python: RunPython) -> None:
    pytest.importorskip("google.auth", reason="google-auth is not installed")
    names = {"GCE_METADATA_HOST": server.host, "GCE_METADATA_ROOT": server.host, "GCE_METADATA_IP": server.host}
    done = run_python("-W", "ignore", "-c", _GOOGLE_AUTH, environment=names)
    first, second = done.stdout.splitlines()
    assert json.loads(first) == {
        "ping": True,
        "project": "example",
        "account": "robot@example.iam.gserviceaccount.com",
        "token": "ya29.fake",
        "attribute": "TPU_ACCELERATOR_TYPE: 'v6e-8'\nTPU_WORKER_ID: '0'\n",
        "folder": {"tpu-env": "TPU_ACCELERATOR_TYPE: 'v6e-8'\nTPU_WORKER_ID: '0'\n"},
        "universe": "googleapis.com",
    }
    assert second == "TransportError True"


def test_gcp_metadata_takes_it_for_the_metadata_server(server: FakeMetadataServer, tmp_path: Path) -> None:
    node = shutil.which("node")
    if not node or subprocess.run([node, "-e", "require('gcp-metadata')"], capture_output=True, check=False).returncode:
        pytest.skip("node finds no gcp-metadata: npm install it somewhere and set NODE_PATH to its node_modules")
    found = subprocess.run(
        [node, "-e", _GCP_METADATA], env={**os.environ, "GCE_METADATA_HOST": server.host},
        capture_output=True, text=True, check=True, cwd=tmp_path,
    )  # fmt: skip
    assert json.loads(found.stdout) == {
        "available": True,
        "id": "6502082742571311568",
        "attribute": "TPU_ACCELERATOR_TYPE: 'v6e-8'\nTPU_WORKER_ID: '0'\n",
        "project": "example",
        "all": ["attributes", "id", "name", "serviceAccounts", "zone"],
    }


GOOD = {"Metadata-Flavor": "Google"}


@pytest.mark.parametrize(
    ("path", "headers", "status", "kind"),
    [
        (f"{ROOT}instance/id", GOOD, 200, "application/text"),
        (f"{ROOT}instance/id", {}, 403, "text/html"),
        (f"{ROOT}instance/id", {**GOOD, "X-Forwarded-For": "10.0.0.1"}, 403, "text/html"),
        (f"{ROOT}instance/nothing", GOOD, 404, "text/html"),
        (f"{ROOT}instance/id/", GOOD, 404, "text/html"),
        (f"{ROOT}instance/attributes", GOOD, 301, "text/html"),
        (f"{ROOT}instance/attributes/", GOOD, 200, "application/text"),
        (f"{ROOT}instance/?recursive=true", GOOD, 200, "application/json"),
        (f"{ROOT}instance/?recursive=true&alt=text", GOOD, 200, "application/text"),
        ("/", {}, 200, "application/text"),
    ],
)
def test_its_manners_are_the_real_ones(
    server: FakeMetadataServer, path: str, headers: dict[str, str], status: int, kind: str
) -> None:
    connection = http.client.HTTPConnection(server.host)
    connection.request("GET", path, headers=headers)
    answer = connection.getresponse()
    answer.read()
    connection.close()
    assert (answer.status, answer.headers["Metadata-Flavor"]) == (status, "Google")
    assert answer.headers["Content-Type"].startswith(kind)


def test_it_can_be_changed_and_made_to_fail_from_outside(server: FakeMetadataServer) -> None:
    connection = http.client.HTTPConnection(server.host)

    def ask(method: str, path: str, body: str | None = None) -> tuple[int, str]:
        connection.request(method, path, body, GOOD)
        answer = connection.getresponse()
        return answer.status, answer.read().decode()

    assert ask("PUT", f"{ROOT}instance/attributes/new", "a value\n")[0] == 200
    assert ask("GET", f"{ROOT}instance/attributes/new") == (200, "a value\n")
    assert ask("DELETE", f"{ROOT}instance/attributes/new")[0] == 200
    assert ask("GET", f"{ROOT}instance/attributes/new")[0] == 404
    assert ask("PUT", "/faults", "503 500")[0] == 200
    assert [ask("GET", f"{ROOT}instance/id")[0] for _ in range(3)] == [503, 500, 200]
    connection.close()
