"""In which words does an engine refuse? As Docker 20.10 and Podman 4.3 do: a status, and what the message says."""

from __future__ import annotations

from typing import Any, Protocol

Refused = tuple[int, str]


class Words(Protocol):
    """What differs between engines."""

    server: str
    api: str
    tells_oom: bool  # when a container was killed for the memory that it wanted
    in_stream: bool  # a failed pull is always a good answer with the fault in it

    def document(self, refused: Refused) -> dict[str, Any]:
        """The body of a refusal."""

    def no_container(self, name: str) -> Refused: ...
    def name_taken(self, name: str, id: str) -> Refused: ...
    def no_image(self, reference: str) -> Refused: ...
    def bad_command(self, code: int, command: str) -> Refused: ...
    def bad_mount(self) -> Refused: ...
    def paused(self, id: str) -> Refused: ...
    def not_paused(self, id: str) -> Refused: ...
    def runs(self, id: str) -> Refused: ...
    def being_removed(self, id: str) -> Refused: ...
    def unknown(self, reference: str) -> Refused: ...
    def denied(self, reference: str) -> Refused: ...
    def bad_archive(self) -> Refused: ...


NO_SPACE: Refused = (500, "write /var/lib/containers/layer/blob: no space left on device")
REGISTRY_FAILS: Refused = (500, "received unexpected HTTP status: 503 Service Unavailable")
_MOUNT = (
    "unable to start container process: error during container init: error mounting "
    '"/etc/hostname" to rootfs at "/bin": not a directory'
)
_EXEC = "unable to start container process: exec: "


def _why(code: int, command: str) -> str:
    reason = "permission denied" if code == 126 else "executable file not found in $PATH"
    return f'{_EXEC}"{command}": {reason}'


class Docker:
    """Docker, at the version that it is made with."""

    in_stream = False
    tells_oom = True

    def __init__(self, version: str = "20.10.24+dfsg1", api: str = "1.41") -> None:
        self.server = f"Docker/{version} (linux)"
        self.api = api

    def document(self, refused: Refused) -> dict[str, Any]:
        return {"message": refused[1]}

    def no_container(self, name: str) -> Refused:
        return 404, f"No such container: {name}"

    def name_taken(self, name: str, id: str) -> Refused:
        return 409, (
            f'Conflict. The container name "/{name}" is already in use by container "{id}". You have to remove (or '
            "rename) that container to be able to reuse that name."
        )

    def no_image(self, reference: str) -> Refused:
        return 404, f"No such image: {reference}"

    def bad_command(self, code: int, command: str) -> Refused:
        created = "failed to create shim task: OCI runtime create failed: runc create failed"
        return 400, f"{created}: {_why(code, command)}: unknown"

    def bad_mount(self) -> Refused:
        return 400, f"failed to create shim task: OCI runtime create failed: runc create failed: {_MOUNT}: unknown"

    def paused(self, id: str) -> Refused:  # noqa: ARG002  Podman's words name it
        return 409, "cannot start a paused container, try unpause instead"

    def not_paused(self, id: str) -> Refused:
        return 500, f"Container {id} is not paused"

    def runs(self, id: str) -> Refused:
        return 409, (
            f"You cannot remove a running container {id}. Stop the container before attempting removal or force remove"
        )

    def being_removed(self, id: str) -> Refused:
        return 409, f"removal of container {id} is already in progress"

    def unknown(self, reference: str) -> Refused:
        return 404, f"manifest for {reference} not found: manifest unknown: manifest unknown"

    def denied(self, reference: str) -> Refused:
        return 500, f'Head "https://registry/v2/{reference}": unauthorized: authentication required'

    def bad_archive(self) -> Refused:
        return 200, "Error processing tar file(exit status 1): unexpected EOF"


class Podman:
    """Podman's socket for Docker's clients."""

    in_stream = True

    def __init__(self, version: str = "4.3.1", api: str = "1.41") -> None:
        self.server = f"Libpod/{version} (linux)"
        self.tells_oom = not version.startswith("4.")
        self.api = api

    def document(self, refused: Refused) -> dict[str, Any]:
        return {"cause": refused[1].rpartition(": ")[2], "message": refused[1], "response": refused[0]}

    def no_container(self, name: str) -> Refused:
        return 404, f'no container with name or ID "{name}" found: no such container'

    def name_taken(self, name: str, id: str) -> Refused:
        return 500, (
            f'container create: creating container storage: the container name "{name}" is already in use by {id}. You '
            "have to remove that container to be able to reuse that name: that name is already in use"
        )

    def no_image(self, reference: str) -> Refused:
        return 404, f"no such image: {reference}: image not known"

    def bad_command(self, code: int, command: str) -> Refused:
        cause = (
            "OCI permission denied" if code == 126 else "OCI runtime attempted to invoke a command that was not found"
        )
        return 500, f"runc: runc create failed: {_why(code, command)}: {cause}"

    def bad_mount(self) -> Refused:
        return 500, f"runc: runc create failed: {_MOUNT}: OCI runtime error"

    def paused(self, id: str) -> Refused:
        return 500, f"container {id} must be in Created or Stopped state to be started: container state improper"

    def not_paused(self, id: str) -> Refused:
        return 500, f'"{id}" is not paused, can\'t unpause: container state improper'

    def runs(self, id: str) -> Refused:
        return 500, (
            f"cannot remove container {id} as it is running - running or paused containers cannot be removed without "
            "force: container state improper"
        )

    def being_removed(self, id: str) -> Refused:
        return 404, f'no container with ID "{id}" found: no such container'

    def unknown(self, reference: str) -> Refused:
        return 500, f"initializing source docker://{reference}: reading manifest in {reference}: manifest unknown"

    def denied(self, reference: str) -> Refused:
        return 500, f"initializing source docker://{reference}: unable to retrieve auth token: unauthorized"

    def bad_archive(self) -> Refused:
        return 500, "failed to load image: payload does not match any of the supported image formats"
