"""What does the simulated engine answer? The Engine API, as far as the agent uses it."""

from __future__ import annotations

import io
import json
import re
import tarfile
from collections.abc import Callable, Iterator
from typing import Any

from tests.fakes import engine_words
from tests.fakes.engine_http import POLL_S, Speaker
from tests.fakes.engine_state import FakeContainer, Published, Refusal, pinned

_NUMBERS = {"stdout": 1, "stderr": 2}


class Handler(Speaker):
    """One connection."""

    def answer(self, path: str, version: tuple[int, int] | None) -> None:
        if version:
            self._require(version)
        self._route(path)

    def _require(self, version: tuple[int, int]) -> None:
        fake, shown = self.server.fake, ".".join(map(str, version))
        if fake.state.words.in_stream:  # Podman takes any
            return
        if version > tuple(map(int, fake.state.words.api.split("."))):
            highest = fake.state.words.api
            raise Refusal(400, f"client version {shown} is too new. Maximum supported API version is {highest}")
        if version < fake.lowest_api:
            lowest = ".".join(map(str, fake.lowest_api))
            raise Refusal(400, f"client version {shown} is too old. Minimum supported API version is {lowest}")

    def _route(self, path: str) -> None:
        routes: list[tuple[str, str, Callable[..., None]]] = [
            ("GET", "/_ping", self._ping),
            ("GET", "/events", self._events),
            ("GET", "/containers/json", self._list),
            ("POST", "/containers/create", self._create),
            ("GET", "/containers/(.+)/json", self._inspect),
            ("GET", "/containers/(.+)/logs", self._logs),
            ("POST", "/containers/(.+)/start", self._start),
            ("POST", "/containers/(.+)/stop", self._stop),
            ("POST", "/containers/(.+)/pause", self._pause),
            ("POST", "/containers/(.+)/unpause", self._unpause),
            ("DELETE", "/containers/(.+)", self._remove),
            ("GET", "/images/(.+)/json", self._image),
            ("DELETE", "/images/(.+)", self._remove_image),
            ("POST", "/images/create", self._pull),
            ("POST", "/images/load", self._load),
        ]
        for method, pattern, answer in routes:
            found = re.fullmatch(pattern, path)
            if found and self.command == method:
                answer(*found.groups())
                return
        raise Refusal(404, "page not found")

    # Containers ---------------------------------------------------------------------------------------------------

    def _ping(self) -> None:
        self.send(200, b"OK", "text/plain; charset=utf-8")

    def _list(self) -> None:
        state = self.server.fake.state
        with state.changed:
            found = [one for one in state.containers.values() if self._wanted(one)]
        shown = [{"Id": one.id, "Names": [f"/{one.name}"], "Image": one.image, "State": one.state} for one in found]
        self.json(200, shown)

    def _wanted(self, container: FakeContainer) -> bool:
        labels = json.loads(self.query.get("filters", "{}")).get("label", [])
        pairs = [label.partition("=") for label in labels]
        has_all = all(
            name in container.labels and (not valued or container.labels[name] == value)
            for name, valued, value in pairs
        )
        return has_all and (self.query.get("all") in ("1", "true") or container.state == "running")

    def _create(self) -> None:
        body = json.loads(self.body())
        made = self.server.fake.state.create(self.query.get("name", ""), body)
        self.json(201, {"Id": made.id, "Warnings": []})

    def _inspect(self, name: str) -> None:
        state = self.server.fake.state
        with state.changed:
            document = state.find(name).document()
        self.json(200, document)

    def _start(self, name: str) -> None:
        self.send(204 if self.server.fake.state.start(name) else 304)

    def _stop(self, name: str) -> None:
        self.body()
        ran = self.server.fake.state.stop(name, float(self.query.get("t", 10)), self._hung_up)
        self.send(204 if ran else 304)

    def _pause(self, name: str) -> None:
        self.server.fake.state.pause(name)
        self.send(204)

    def _unpause(self, name: str) -> None:
        self.server.fake.state.unpause(name)
        self.send(204)

    def _remove(self, name: str) -> None:
        self.server.fake.state.remove(name, force=self.query.get("force") in ("1", "true"))
        self.send(204)

    def _events(self) -> None:
        state = self.server.fake.state
        seen = len(state.events)
        with self.stream() as write:
            while not self.over():
                with state.changed:
                    if len(state.events) == seen:
                        state.changed.wait(POLL_S)
                    new, seen = state.events[seen:], len(state.events)
                for event in new:
                    write(json.dumps(event).encode() + b"\n")

    def _logs(self, name: str) -> None:
        state = self.server.fake.state
        with state.changed:
            found = state.find(name)
            shown = len(found.output)
            tail = self.query.get("tail", "all")
            first = 0 if tail == "all" else max(0, shown - int(tail))
        with self.stream("application/octet-stream") as write:
            for line in found.output[first:shown]:
                write(self._framed(found, *line))
            while self.query.get("follow") == "1" and not self.over():
                with state.changed:
                    new, shown = found.output[shown:], len(found.output)
                    ended = found.state not in ("running", "paused") or found.id not in state.containers
                    if not new and not ended:
                        state.changed.wait(POLL_S)
                for line in new:
                    write(self._framed(found, *line))
                if ended:
                    return

    def _framed(self, container: FakeContainer, moment: str, stream: str, text: str) -> bytes:
        line = (f"{moment} {text}" if self.query.get("timestamps") == "1" else text).encode()
        if container.body.get("Tty"):
            return line.replace(b"\n", b"\r\n")
        return bytes([_NUMBERS[stream], 0, 0, 0]) + len(line).to_bytes(4, "big") + line

    # Images -------------------------------------------------------------------------------------------------------

    def _image(self, reference: str) -> None:
        name, image = self.server.fake.state.image(reference)
        tags, digests = [name] if "@" not in name else [], [pinned(name, image)] if image.digest else []
        self.json(200, {"Id": image.id, "RepoTags": tags, "RepoDigests": digests})

    def _remove_image(self, reference: str) -> None:
        state = self.server.fake.state
        with state.changed:
            name, _ = state.image(reference)
            del state.images[name]
        self.json(200, [{"Untagged": name}])

    def _pull(self) -> None:
        state = self.server.fake.state
        name, tag = self.query["fromImage"], self.query.get("tag", "latest")
        reference = f"{name}@{tag}" if tag.startswith("sha256:") else f"{name}:{tag}"
        image = state.find_published(reference)
        refused = self._pull_refused(reference, image)
        if refused and not state.words.in_stream:
            raise Refusal(*refused)
        with self.stream("application/json") as write:
            for message in self._pulled(reference, image, refused):
                write(json.dumps(message).encode() + b"\r\n")

    def _pull_refused(self, reference: str, image: Published | None) -> engine_words.Refused | None:
        words = self.server.fake.state.words
        if image is None:
            return words.unknown(reference)
        shown = self.headers.get("X-Registry-Auth", "")
        if image.token and image.token not in self.server.fake.decoded(shown):
            return words.denied(reference)
        return engine_words.REGISTRY_FAILS if image.fault == "fails" else None

    def _pulled(
        self, reference: str, image: Published | None, refused: engine_words.Refused | None
    ) -> Iterator[dict[str, Any]]:
        if refused or image is None:
            yield _fault((refused or engine_words.REGISTRY_FAILS)[1])
            return
        yield {"status": f"Pulling from {reference.rpartition(':')[0]}", "id": reference.rpartition(":")[2]}
        for current in (1, 2, 3):
            detail = {"current": current * 10_000_000, "total": 30_000_000}
            yield {"status": "Downloading", "progressDetail": detail, "id": image.id[7:19]}
            while current == 2 and image.fault == "stalls" and not self.over():
                self.server.fake.wait(POLL_S)
            if current == 2 and image.fault == "no space":
                yield _fault(engine_words.NO_SPACE[1])
                return
        state = self.server.fake.state
        with state.changed:
            state.images[reference] = image
            state.changed.notify_all()
        yield {"status": f"Digest: {image.digest}"}
        yield {"status": f"Status: Downloaded newer image for {reference}"}

    def _load(self) -> None:
        state = self.server.fake.state
        try:
            with tarfile.open(fileobj=io.BytesIO(self.body())) as archive:
                file = archive.extractfile("manifest.json")
                listed = json.load(file) if file else []
            names = [name for image in listed for name in image["RepoTags"]]
        except (tarfile.TarError, KeyError, ValueError, EOFError):
            refused = state.words.bad_archive()
            self.json(refused[0], _fault(refused[1]) if refused[0] == 200 else state.words.document(refused))
            return
        for name in names:
            state.add_image(name)
        with self.stream("application/json") as write:
            for name in names:
                write(json.dumps({"stream": f"Loaded image: {name}\n"}).encode() + b"\r\n")


def _fault(message: str) -> dict[str, Any]:
    return {"errorDetail": {"message": message}, "error": message}
