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
        with self._ended(self._send(Request("GET", "/_ping", total_s=self.limits.answer_s))) as exchange:
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
            for message in self._understood(parse_documents(exchange.chunks())):
                if fault := documents.parse_error(message):
                    raise call.refusal(call.action, 0, fault)
                yield message

    def stream(self, call: Call, parse: Callable[[Iterable[bytes]], Iterator[T]], *, endless: bool) -> Stream[T]:
        """What comes until it ends, and is closed by whoever reads it. `endless`: its end is a fault of the engine."""
        exchange = self._begin(call)
        fault = unavailable(self.place, "it has ended the stream; it is stopping, or was killed") if endless else None
        return Stream(exchange, self._understood(parse(exchange.chunks())), self._end, fault)

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
        for known in (self._known, None):
            version = (known or self.ping()).api
            exchange = self._send(replace(call.request, path=f"/v{version}{call.request.path}"))
            if exchange.head.status < _FIRST_ERROR:
                return exchange
            with self._ended(exchange):
                status, message = exchange.head.status, self._reason(exchange)
            if not known or not refusals.is_wrong_version(status, message):
                break
        raise call.refusal(call.action, status, message)

    def _reason(self, exchange: Exchange) -> str:
        try:
            return documents.parse_refusal(exchange.whole())
        except (ValueError, RecursionError):
            head = exchange.head
            why = f"what answers there is no container engine ({head.status} {head.reason}, and no reason)"
            raise unavailable(self.place, why) from None

    def _send(self, request: Request) -> Exchange:
        exchange = Exchange(self.place, self.limits)
        with self._lock:
            self._exchanges.add(exchange)
            if self._interrupted:
                exchange.cut()
        if request.body is not None and not isinstance(request.body, bytes):
            request.body.seek(0)  # part of it may have been sent to an engine that refused the version
        try:
            exchange.ask(request)
        except BaseException:
            self._end(exchange)
            raise
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
