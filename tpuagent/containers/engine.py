"""What can a container engine be asked? Hands: Docker's or Podman's Engine API over a unix socket, without a client.

Each call is one request on a connection of its own. All raise EngineUnavailable when no engine answers, and otherwise
EngineRefused or one of its kinds. None waits longer than its limit, or than it takes another thread to `interrupt`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from contextlib import closing, suppress
from typing import IO, Any, TypeVar
from urllib.parse import quote, urlencode

from tpuagent.containers import documents, refusals
from tpuagent.containers.calls import Call, Calls, Stream
from tpuagent.containers.http import Limits, Request
from tpuagent.containers.objects import Container, EngineEvent, EngineInfo, Image
from tpuagent.containers.references import parse_reference
from tpuagent.containers.streams import Piece, parse_documents, parse_frames, parse_terminal
from tpuagent.errors import EngineRefused, ImageUnknown, NoSuchContainer

T = TypeVar("T")
Progress = Callable[[str], None]

_BAD_REQUEST = 400
_NOT_FOUND = 404
_SHOWN_ID = 12
_ID_LENGTH = 64


class Engine:
    """The engine behind a socket. Any number of threads may use it."""

    def __init__(self, socket_path: str, limits: Limits = Limits()) -> None:
        self.socket_path = socket_path
        self._limits = limits
        self._calls = Calls(socket_path, limits)

    def interrupt(self) -> None:
        """Let every call and stream, and each one from now on until `resume`, raise EngineUnavailable at once."""
        self._calls.interrupt()

    def resume(self) -> None:
        """Take calls again."""
        self._calls.resume()

    def info(self) -> EngineInfo:
        """Who answers now."""
        return self._calls.ping()

    def events(self) -> Stream[EngineEvent]:
        """The events of containers from now on. Its end is EngineUnavailable, unless it was closed.

        Close it, or use it in a `with` statement.
        """
        path = f"/events?{_query(filters=json.dumps({'type': ['container']}))}"
        call = Call("follow the engine's events", Request("GET", path, head_s=self._limits.answer_s))
        return self._calls.endless(call, lambda chunks: documents.parse_events(parse_documents(chunks)))

    # Containers ---------------------------------------------------------------------------------------------------

    def container(self, name_or_id: str) -> Container | None:
        """The container with exactly this name, or this whole id."""
        document = self._inspect(name_or_id)
        found = None if document is None else self._parsed(documents.parse_container, document)
        # An engine also takes the beginning of an id.
        return found if found and name_or_id in (found.name, found.id) else None

    def containers(self, label: str) -> list[Container]:
        """Those with a label, "name" or "name=value", in whatever state; in the order of their names."""
        path = f"/containers/json?{_query(all='1', filters=json.dumps({'label': [label]}))}"
        listed = self._document("list containers", "GET", path)
        looks = [self.container(one) for one in documents.parse_ids(listed)]
        wanted = [found for found in looks if found and _has_label(found, label)]  # None: gone since it was listed
        return sorted(wanted, key=lambda found: found.name)

    def create(self, name: str, body: Mapping[str, Any]) -> str:
        """Make a container; its id. NameTaken, ImageUnknown, NoSpace."""
        request = Request(
            "POST",
            f"/containers/create?{_query(name=name)}",
            (("Content-Type", "application/json"),),
            json.dumps(body).encode(),
            self._limits.answer_s,
        )
        document = self._calls.document(Call(f"create {name}", request, refusals.creation_refusal))
        return self._parsed(documents.parse_id, document)

    def start(self, container: str) -> None:
        """Start it; one that runs already stays as it is. NoSuchContainer, BadCommand; a paused one is refused."""
        call = Call(
            f"start {_shown(container)}", self._request("POST", _path(container, "start")), refusals.start_refusal
        )
        self._calls.document(call)

    def stop(self, container: str, grace_s: int) -> None:
        """Ask its main process to end, and kill it after `grace_s`. One that does not run, or is gone, is stopped."""
        action, path = f"stop {_shown(container)}", f"{_path(container, 'stop')}?{_query(t=str(grace_s))}"
        request = Request("POST", path, total_s=self._limits.answer_s + grace_s)
        with suppress(NoSuchContainer):
            try:
                self._calls.document(Call(action, request))
            except EngineRefused as fault:
                if not refusals.is_paused(fault.why):  # Podman does not stop a paused one, and Docker does
                    raise
                self.unpause(container)
                self._calls.document(Call(action, request))

    def unpause(self, container: str) -> None:
        """Let it go on; one that is not paused goes on already. NoSuchContainer."""
        try:
            self._document(f"unpause {_shown(container)}", "POST", _path(container, "unpause"))
        except EngineRefused as fault:
            if not refusals.is_not_paused(fault.why):
                raise

    def remove(self, container: str, *, force: bool) -> None:
        """Remove it with its anonymous volumes, if `force` even when it runs.

        One that is gone, or is being removed, is removed: until the engine is through with it, its name may be taken.
        """
        path = f"{_path(container)}?{_query(force=str(int(force)), v='1')}"
        try:
            self._document(f"remove {_shown(container)}", "DELETE", path)
        except NoSuchContainer:
            return
        except EngineRefused as fault:
            if not refusals.is_being_removed(fault.status, fault.why):
                raise

    def logs(self, container: str, *, lines: int | None, follow: bool, timestamps: bool) -> Stream[Piece]:
        """What it has written, the last so many lines or all of them; with `follow` on until it ends.

        Pieces are as the engine hands them on: a line may come in several, and several lines in one. NoSuchContainer.
        Close it, or use it in a `with` statement.
        """
        action = f"read the log of {_shown(container)}"
        document = self._inspect(container)
        if document is None:
            raise NoSuchContainer(action, refusals.NO_CONTAINER, _NOT_FOUND)
        options = {"follow": str(int(follow)), "timestamps": str(int(timestamps))}
        tail = "all" if lines is None else str(lines)
        path = f"{_path(container, 'logs')}?{_query(stdout='1', stderr='1', tail=tail, **options)}"
        limit_s = None if follow else self._limits.stall_s
        request = Request("GET", path, head_s=limit_s, silence_s=limit_s)
        parse = parse_terminal if documents.has_terminal(document) else parse_frames
        return self._calls.stream(Call(action, request), parse)

    # Images -------------------------------------------------------------------------------------------------------

    def image(self, reference: str) -> Image | None:
        """The image that the engine has under this name."""
        try:
            document = self._document(f"look at {reference}", "GET", f"/images/{_part(_name(reference))}/json")
        except EngineRefused as fault:
            if fault.status != _NOT_FOUND:
                raise
            return None
        return self._parsed(documents.parse_image, document)

    def pull(self, reference: str, authorization: str | None, progress: Progress) -> None:
        """Let the engine get an image from its registry. ImageUnknown, ImageDenied, NoSpace.

        `authorization` is the X-Registry-Auth header. `progress` hears a line whenever there is something to say.
        """
        action = f"pull {reference}"
        try:
            wanted = parse_reference(reference)
        except ValueError as fault:
            raise ImageUnknown(action, str(fault), _BAD_REQUEST) from None
        # Without a tag the engine would get all that there are.
        path = f"/images/create?{_query(fromImage=wanted.name, tag=wanted.digest or wanted.tag)}"
        headers = (("X-Registry-Auth", authorization),) if authorization else ()
        request = Request("POST", path, headers, head_s=self._limits.stall_s, silence_s=self._limits.stall_s)
        with closing(self._calls.messages(Call(action, request, refusals.pull_refusal))) as messages:
            for message in messages:
                if line := documents.parse_progress(message):
                    progress(line)

    def load(self, path: str) -> list[str]:
        """Let the engine have the images of an archive, as `docker save` writes it; their names. NoSpace."""
        action = f"load {path}"
        try:
            with open(path, "rb") as archive:
                return self._load(action, archive)
        except FileNotFoundError:
            raise ImageUnknown(action, "there is no such file (ENOENT)") from None
        except OSError as fault:
            raise EngineRefused(action, f"the file cannot be read: {(fault.strerror or str(fault)).lower()}") from None

    def _load(self, action: str, archive: IO[bytes]) -> list[str]:
        headers = (("Content-Type", "application/x-tar"), ("Content-Length", str(archive.seek(0, 2))))
        # Not quietly: a word about each layer is the sign of life.
        limit_s = self._limits.load_s
        request = Request("POST", "/images/load?quiet=0", headers, archive, head_s=limit_s, silence_s=limit_s)
        return [
            name for message in self._calls.messages(Call(action, request)) for name in documents.parse_loaded(message)
        ]

    # Asking -------------------------------------------------------------------------------------------------------

    def _request(self, method: str, path: str) -> Request:
        return Request(method, path, total_s=self._limits.answer_s)

    def _document(self, action: str, method: str, path: str) -> Any:
        return self._calls.document(Call(action, self._request(method, path)))

    def _inspect(self, container: str) -> Any:
        try:
            return self._document(f"look at {_shown(container)}", "GET", _path(container, "json"))
        except NoSuchContainer:
            return None

    def _parsed(self, parse: Callable[[Any], T], document: Any) -> T:
        try:
            return parse(document)
        except ValueError:
            raise self._calls.misunderstood() from None


def _has_label(container: Container, label: str) -> bool:
    name, valued, value = label.partition("=")
    return any(name == one and (not valued or value == its) for one, its in container.labels)


def _name(reference: str) -> str:
    """As Podman takes it too: with a tag or a digest, not both."""
    try:
        found = parse_reference(reference)
    except ValueError:  # an id
        return reference
    return f"{found.name}@{found.digest}" if found.digest else f"{found.name}:{found.tag}"


def _path(container: str, verb: str = "") -> str:
    return f"/containers/{_part(container)}{'/' if verb else ''}{verb}"


def _part(name: str) -> str:
    """A name as a part of a path: an image's has slashes of its own, and the engine wants them as they are."""
    return quote(name, safe="/:@")


def _query(**options: str) -> str:
    return urlencode(options)


def _shown(container: str) -> str:
    return container[:_SHOWN_ID] if len(container) == _ID_LENGTH else container
