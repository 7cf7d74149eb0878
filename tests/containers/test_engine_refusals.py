"""Are the refusals of different engines and versions told apart, and those that look alike not confused?"""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tpuagent.containers import refusals
from tpuagent.errors import (
    BadCommand,
    EngineRefused,
    ImageDenied,
    ImageUnknown,
    NameTaken,
    NoSpace,
    NoSuchContainer,
)

SHIM = "failed to create shim task: OCI runtime create failed: runc create failed: unable to start container process: "
INIT = SHIM + "error during container init: "
OLD = "OCI runtime create failed: container_linux.go:367: starting container process caused: "
NAME = "gcr.io/denied/not-found:1"  # images may have such names


@pytest.mark.parametrize(
    ("status", "message", "kind"),
    [
        # Docker, from 20.10 to today's
        (400, SHIM + 'exec: "nope": executable file not found in $PATH: unknown', BadCommand),
        (400, SHIM + 'exec: "/bin/nope": stat /bin/nope: no such file or directory: unknown', BadCommand),
        (400, SHIM + 'exec: "/etc": permission denied: unknown', BadCommand),
        (400, SHIM + 'exec: "/etc": is a directory: unknown', BadCommand),
        (400, INIT + 'exec: "nope": executable file not found in $PATH', BadCommand),
        (404, OLD + 'exec: "nope": executable file not found in $PATH: unknown', BadCommand),
        (400, INIT + 'error mounting "/x" to rootfs at "/bin": not a directory: unknown', EngineRefused),
        (400, INIT + 'error mounting "/x" to rootfs: open /x: no such file or directory: unknown', EngineRefused),
        (400, INIT + "error setting rlimits for ready process: operation not permitted: unknown", EngineRefused),
        (500, 'failed to create shim: exec: "containerd-shim-runc-v2": executable file not found', EngineRefused),
        (409, "cannot start a paused container, try unpause instead", EngineRefused),
        (404, "No such container: x", NoSuchContainer),
        (500, "error creating overlay mount: write /var/lib/docker: no space left on device", NoSpace),
        # Podman with runc and with crun
        (500, ('runc: runc create failed: unable to start container process: exec: "/etc": permission denied: OCI '
         "permission denied"), BadCommand),
        (500, ("crun: executable file `nope` not found in $PATH: No such file or directory: OCI runtime attempted to "
         "invoke a command that was not found"), BadCommand),
        (500, "crun: open executable: Permission denied: OCI permission denied", BadCommand),
        (500, "crun: the path `/etc/passwd` exists but it is not executable: Operation not permitted", BadCommand),
        (500, "crun: the path `/etc` is not a regular file: Operation not permitted", BadCommand),
        (500, "crun: setrlimit `RLIMIT_NOFILE`: Operation not permitted: OCI permission denied", EngineRefused),
        (500, "crun: cgroups in hybrid mode not supported: OCI runtime error", EngineRefused),
        (404, 'no container with name or ID "x" found: no such container', NoSuchContainer),
    ],
)  # fmt: skip
def test_why_a_container_does_not_start(status: int, message: str, kind: type) -> None:
    fault = refusals.start_refusal("start x", status, message)
    assert type(fault) is kind
    assert fault.status == status


@pytest.mark.parametrize(
    ("status", "message", "kind"),
    [
        # Docker with its own stores
        (404, f"manifest for {NAME} not found: manifest unknown: manifest unknown", ImageUnknown),
        (404, f'manifest for {NAME} not found: manifest unknown: Failed to fetch "1"', ImageUnknown),
        (500, "manifest unknown", ImageUnknown),
        (500, "name unknown", ImageUnknown),
        (404, 'name unknown: Repository "x" not found', ImageUnknown),
        (404, ("pull access denied for gcr.io/x, repository does not exist or may require 'docker login': denied: "
         "Permission denied for anonymous"), ImageDenied),
        (500, 'Head "https://gcr.io/v2/x/manifests/1": unauthorized: authentication required', ImageDenied),
        (500, ('Head "https://gcr.io/v2/x/manifests/1": denied: Permission "artifactregistry.repositories.download'
         'Artifacts" denied on resource "x" (or it may not exist)'), ImageDenied),
        (500, "unauthorized: You don't have the needed permissions to perform this operation", ImageDenied),
        (500, 'Get "https://gcr.io/v2/": dial tcp: lookup gcr.io on 127.0.0.53:53: no such host', EngineRefused),
        (500, 'Get "https://gcr.io/v2/": net/http: request canceled (Client.Timeout exceeded)', EngineRefused),
        (500, "received unexpected HTTP status: 503 Service Unavailable", EngineRefused),
        (500, "toomanyrequests: You have reached your pull rate limit", EngineRefused),
        (0, "write /var/lib/docker/tmp/GetImageBlob1: no space left on device", NoSpace),
        (0, "failed to register layer: write /usr/bin/x: no space left on device", NoSpace),
        (0, "unexpected EOF", EngineRefused),
        (0, "failed to register layer: open /x: permission denied", EngineRefused),
        # Docker with containerd's store
        (404, f'failed to resolve reference "{NAME}": {NAME}: not found', ImageUnknown),
        (500, (f'failed to resolve reference "{NAME}": pull access denied, repository does not exist or may require '
         "authorization: server message: insufficient_scope: authorization failed"), ImageDenied),
        (500, (f'failed to resolve reference "{NAME}": failed to authorize: failed to fetch anonymous token: '
         "unexpected status from GET request to https://gcr.io/v2/token: 403 Forbidden"), ImageDenied),
        (500, ('failed to resolve reference "gcr.io/x:1": failed to do request: Head "https://gcr.io/v2/x/": '
         "dial tcp: lookup gcr.io: no such host"), EngineRefused),
        (0, "failed to extract layer sha256:1: write /var/lib/containerd/x: no space left on device", NoSpace),
        # Podman
        (0, f"initializing source docker://{NAME}: reading manifest 1 in gcr.io/x: manifest unknown", ImageUnknown),
        (0, "initializing source docker://x:1: reading manifest 1 in x: name unknown", ImageUnknown),
        (0, "initializing source docker://x:1: reading manifest 1 in x: denied: Permission denied for anonymous",
         ImageDenied),
        (0, ("initializing source docker://x:1: Requesting bearer token: invalid status code from registry 403 "
         "(Forbidden)"), ImageDenied),
        (0, "unable to retrieve auth token: invalid username/password: unauthorized", ImageDenied),
        (403, "denied: Permission denied for anonymous", ImageDenied),
        (404, "manifest unknown", ImageUnknown),
        (0, ('initializing source docker://x:1: pinging container registry x: Get "https://x/v2/": dial tcp '
         "127.0.0.1:1: connect: connection refused"), EngineRefused),
        (0, ('writing blob: storing blob to file "/var/tmp/storage1/1": write /var/tmp/storage1/1: no space left on '
         "device"), NoSpace),
    ],
)  # fmt: skip
def test_why_an_image_is_not_pulled(status: int, message: str, kind: type) -> None:
    assert type(refusals.pull_refusal("pull x", status, message)) is kind


@pytest.mark.parametrize(
    ("status", "message", "kind"),
    [
        (409, 'Conflict. The container name "/x" is already in use by container "1".', NameTaken),
        (500, ('container create: creating container storage: the container name "x" is already in use by 1. You have '
         "to remove that container to be able to reuse that name: that name is already in use"), NameTaken),
        (404, "No such image: x:1", ImageUnknown),
        (404, "no such image: x:1: image not known", ImageUnknown),
        (404, "network x not found", EngineRefused),
        (400, 'invalid mount config for type "bind"', EngineRefused),
        (500, "mkdir /var/lib/docker/overlay2/1: no space left on device", NoSpace),
    ],
)  # fmt: skip
def test_why_a_container_is_not_created(status: int, message: str, kind: type) -> None:
    assert type(refusals.creation_refusal("create x", status, message)) is kind


@given(st.integers(0, 599), st.text(max_size=1000))
def test_whatever_an_engine_says_becomes_one_line_of_bounded_length(status: int, message: str) -> None:
    for refusal in (
        refusals.refusal,
        refusals.creation_refusal,
        refusals.start_refusal,
        refusals.pull_refusal,
    ):
        fault = refusal("do it", status, message)
        assert isinstance(fault, EngineRefused)
        assert "\n" not in fault.why
        assert 0 < len(fault.why) < 600


def test_the_command_is_named_without_the_layers_that_it_came_through() -> None:
    fault = refusals.start_refusal("start x", 400, SHIM + 'exec: "nope": executable file not found in $PATH: unknown')
    assert str(fault) == (
        'cannot start x: its command cannot be run: exec: "nope": executable file not found in $PATH; '
        "correct its command, or its image"
    )


def test_what_is_missing_on_the_host_is_said_with_the_next_step() -> None:
    message = (
        "AppArmor enabled on system but the docker-default profile could not be loaded: running `apparmor_parser "
        'apparmor_parser --version` failed: exec: "apparmor_parser": executable file not found in $PATH'
    )
    fault = refusals.start_refusal("start x", 500, message)
    assert type(fault) is EngineRefused
    assert fault.why.endswith("; install apparmor, which Docker only recommends")
