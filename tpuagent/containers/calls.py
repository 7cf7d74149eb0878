"""How is a container engine asked, so that whatever goes wrong is a fault of ours? Hands: over `Exchange`.

The engine is asked for its version once, and again when it refuses that one: it is another engine since.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, Generic, TypeVar

from tpuagent.containers import documents, refusals
from tpuagent.containers.http import Exchange, Limits, Request, unavailable
from tpuagent.containers.objects import EngineInfo
from tpuagent.containers.streams import parse_documents
from tpuagent.errors import EngineRefused, EngineUnavailable
from tpuagent.values import dataclass, replace

T = TypeVar("T")

_FIRST_ERROR = 400


@dataclass(frozen=True)
class Call:
    """A request without the version, what it is for, and what a refusal of it means."""

    action: str
    request: Request
    refusal: Callable[[str, int, str], EngineRefused] = refusals.refusal


class Calls:
    """The calls to the engine behind a socket. Any number of threads may make them."""

    def __init__(self, place: str, limits: Limits) -> None:
        self.place = place
        self.limits = limits
        self._lock = threading.Lock()
        self._exchanges: set[Exchange] = set()
        self._interrupted = False
        self._known: EngineInfo | None = None

    def interrupt(self) -> None:
        """Let every exchange, and each one from now on until `resume`, raise EngineUnavailable at once."""
        with self._lock:
            self._interrupted = True
            for exchange in self._exchanges:
                exchange.cut()

    def resume(self) -> None:
        """Make calls again."""
        with self._lock:
            self._interrupted = False

    def ping(self) -> EngineInfo:
        """Who answers now."""
        with self._ended(self._open()) as exchange:
            exchange.ask(Request("GET", "/_ping", total_s=self.limits.answer_s))
            head = exchange.head
            if head.status >= _FIRST_ERROR:
                raise unavailable(self.place, f"it answers {head.status} {head.reason}")
            try:
                self._known = documents.parse_info(dict(head.headers))
            except ValueError as fault:
                raise unavailable(self.place, str(fault)) from None
            return self._known

    def document(self, call: Call) -> Any:
        """What is answered as a whole; None when there is nothing to say."""
        with self._ended(self._begin(call)) as exchange:
            body = exchange.whole()
        try:
            return json.loads(body) if body else None
        except (ValueError, RecursionError):
            raise self.misunderstood() from None

    def messages(self, call: Call) -> Generator[dict[str, Any], None, None]:
        """The messages of an answer whose status is good whatever comes of it: a fault stands in one of them."""
        with self._ended(self._begin(call)) as exchange:
            exchange.expect(call.request.silence_s)  # a whole message, and not a byte of one
            for message in self._understood(parse_documents(exchange.chunks())):
                if fault := documents.parse_error(message):
                    raise call.refusal(call.action, 0, fault)
                yield message
                exchange.expect(call.request.silence_s)

    def endless(self, call: Call, parse: Callable[[Iterable[bytes]], Iterator[T]]) -> Stream[T]:
        """What comes from now on. Its end is a fault: it comes when the engine ends."""
        exchange = self._begin(call)
        fault = unavailable(self.place, "it has ended the stream: it stops, or was killed")
        return Stream(exchange, self._understood(parse(exchange.chunks())), self._end, fault)

    def stream(self, call: Call, parse: Callable[[Iterable[bytes]], Iterator[T]]) -> Stream[T]:
        """What comes until it ends. It is asked for when it is first read: Podman answers when there is something."""
        api = (self._known or self.ping()).api
        exchange = self._open()

        def chunks() -> Iterator[bytes]:
            self._ask(exchange, call, api)
            yield from exchange.chunks()

        return Stream(exchange, self._understood(parse(chunks())), self._end, None)

    def misunderstood(self) -> EngineUnavailable:
        """The fault of an answer that no engine gives."""
        return unavailable(self.place, "what answers there is no container engine (its answer cannot be understood)")

    def _understood(self, pieces: Iterator[T]) -> Iterator[T]:
        """The same, until one cannot be understood: that is a fault of the engine."""
        try:
            yield from pieces
        except (ValueError, RecursionError):
            raise self.misunderstood() from None

    def _begin(self, call: Call) -> Exchange:
        """An exchange whose answer is a good one and has yet to be read. Whoever gets it ends it."""
        known = self._known
        try:
            return self._asked(call, (known or self.ping()).api)
        except EngineRefused as fault:
            if not known or not refusals.is_wrong_version(fault.status, fault.why):
                raise
        return self._asked(call, self.ping().api)

    def _asked(self, call: Call, api: str) -> Exchange:
        exchange = self._open()
        try:
            self._ask(exchange, call, api)
        except BaseException:
            self._end(exchange)
            raise
        return exchange

    def _ask(self, exchange: Exchange, call: Call, api: str) -> None:
        request = call.request
        if request.body is not None and not isinstance(request.body, bytes):
            request.body.seek(0)  # part of it may have been sent to an engine that refused the version
        exchange.ask(replace(request, path=f"/v{api}{request.path}"))
        head = exchange.head
        if head.status < _FIRST_ERROR:
            return
        exchange.expect(self.limits.answer_s)
        try:
            message = documents.parse_refusal(exchange.whole())
        except (ValueError, RecursionError):
            why = f"what answers there is no container engine ({head.status} {head.reason}, and no reason)"
            raise unavailable(self.place, why) from None
        raise call.refusal(call.action, head.status, message)

    def _open(self) -> Exchange:
        exchange = Exchange(self.place, self.limits)
        with self._lock:
            self._exchanges.add(exchange)
            if self._interrupted:
                exchange.cut()
        return exchange

    @contextmanager
    def _ended(self, exchange: Exchange) -> Iterator[Exchange]:
        try:
            yield exchange
        finally:
            self._end(exchange)

    def _end(self, exchange: Exchange) -> None:
        with self._lock:
            self._exchanges.discard(exchange)
        exchange.close()


class Stream(Generic[T]):
    """What comes from an engine as it comes. One thread reads it; any may close it, which ends the reading quietly."""

    def __init__(
        self, exchange: Exchange, pieces: Iterator[T], end: Callable[[Exchange], None], fault: EngineUnavailable | None
    ) -> None:
        self._exchange = exchange
        self._pieces = pieces
        self._end = end
        self._fault = fault
        self._closed = False
        self._reading = threading.Lock()

    def __enter__(self) -> Stream[T]:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __iter__(self) -> Iterator[T]:
        return self

    def __next__(self) -> T:
        try:
            with self._reading:
                return self._next()
        except EngineUnavailable:
            if self._closed:  # the fault is that it was cut
                raise StopIteration from None
            self._closed = True
            raise
        except (StopIteration, EngineRefused):
            self._closed = True
            raise
        finally:
            self._end_if_closed()

    def close(self) -> None:
        """End it. From any thread, at any time, any number of times."""
        self._closed = True
        self._exchange.cut()
        self._end_if_closed()

    def _next(self) -> T:
        if self._closed:
            raise StopIteration
        for piece in self._pieces:
            return piece
        if self._fault:
            raise self._fault
        raise StopIteration

    def _end_if_closed(self) -> None:
        """Give the connection back; if another thread reads just now, that one does."""
        if self._closed and self._reading.acquire(blocking=False):
            try:
                self._end(self._exchange)
            finally:
                self._reading.release()
