"""What does the metadata server say? The client, and the only user of requests.

Every answer is either genuine and complete or an error, and nothing takes longer than its limit or than it takes to say
`interrupt`: not a resolver that is stuck, not a connection that nobody answers, not a body of one byte every 5 s. That
is why an exchange runs in a thread of its own, which is left behind when its time is over.
"""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator, Mapping, Sequence
from queue import Empty, Queue
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlsplit

from tpuagent.errors import BadAnswer, ServerUnreachable
from tpuagent.metadata.answers import Answer, Found, Interrupted, IsFolder, Limits, NotDefined

if TYPE_CHECKING:
    import requests

# The address first: it works before names do, and a name may take minutes to resolve early in boot.
HOSTS = ("169.254.169.254", "metadata.google.internal")
ROOT = "/computeMetadata/v1/"
_NOT_FOUND = 404
_OK = 200
_CHUNK = 65536


class MetadataServer:
    """The server, at the first of some hosts that answers. One thread asks; any other may interrupt it."""

    def __init__(self, hosts: Sequence[str] = HOSTS, limits: Limits = Limits()) -> None:
        self._hosts = hosts
        self._limits = limits
        self._lock = threading.Lock()
        self._call: _Call | None = None
        self._interrupted = False

    def get(self, key: str, query: Mapping[str, str] | None = None, *, hang_s: float = 0.0) -> Answer:
        """One attempt at each host, until one answers. `hang_s`: the server may be silent for so much longer.

        Raises ServerUnreachable when none answers as the metadata server does, BadAnswer for a genuine answer that
        cannot be used, and Interrupted.
        """
        reasons = []
        path = ROOT + quote(key, errors="surrogateescape")
        for host in self._hosts:
            try:
                return self._ask(f"http://{host}{path}", dict(query or {}), hang_s)
            except ServerUnreachable as fault:  # noqa: PERF203  the next host is tried because of it
                reasons.append(f"{host}: {fault.why}")
        raise ServerUnreachable("reach the metadata server", "; ".join(reasons))

    def interrupt(self) -> None:
        """Let the `get` that runs, or else the next one, raise Interrupted at once. From any thread."""
        with self._lock:
            self._interrupted = True
            if self._call:
                self._call.end(Interrupted())

    def _ask(self, url: str, query: dict[str, str], hang_s: float) -> Answer:
        import requests  # noqa: F401  no limit has to allow for the time that this takes

        call = _Call(url, query, self._limits, hang_s)
        with self._lock:
            if self._interrupted:
                self._interrupted = False
                raise Interrupted
            self._call = call
        try:
            return call.answer()
        except Interrupted:
            self._interrupted = False
            raise
        finally:
            with self._lock:
                self._call = None


class _Call:
    """One exchange with one host."""

    def __init__(self, url: str, query: dict[str, str], limits: Limits, hang_s: float) -> None:
        self._url = url
        self._query = query
        self._limits = limits
        self._hang_s = hang_s
        self._outcome: Queue[Answer | BaseException] = Queue()
        self._lock = threading.Lock()
        self._socket: socket.socket | None = None
        self._over = False

    def answer(self) -> Answer:
        threading.Thread(target=self._work, name="metadata request", daemon=True).start()
        limit_s = self._limits.total_s + self._hang_s
        try:
            outcome = self._outcome.get(timeout=limit_s)
        except Empty:
            outcome = ServerUnreachable(f"get {self._url}", f"no whole answer in {limit_s:g} s")
        self.end(outcome)
        if isinstance(outcome, BaseException):
            raise outcome
        return outcome

    def end(self, outcome: Answer | BaseException) -> None:
        """Whoever waits gets this, and the thread's wait for the server is over too."""
        self._outcome.put(outcome)
        with self._lock:
            self._over = True
            if self._socket:
                _cut(self._socket)

    def connected(self, connection: socket.socket) -> None:
        """What there is to cut when the time is over."""
        with self._lock:
            self._socket = connection
            if self._over:
                _cut(connection)

    def _work(self) -> None:
        try:
            self._outcome.put(self._exchange())
        except Exception as fault:  # noqa: BLE001  whoever waits for the answer gets it
            self._outcome.put(fault)

    def _exchange(self) -> Answer:
        import requests
        from urllib3.exceptions import HTTPError

        try:
            with requests.Session() as session:
                session.trust_env = False  # proxy variables would capture even a link-local address
                session.mount("http://", _adapter(self))
                with session.get(
                    self._url,
                    params=self._query,
                    headers={"Metadata-Flavor": "Google", "Accept-Encoding": "identity", "Connection": "close"},
                    timeout=(self._limits.connect_s, self._limits.read_s + self._hang_s),
                    allow_redirects=False,
                    stream=True,
                ) as response:
                    return self._judge(response)
        except (requests.RequestException, HTTPError, UnicodeError) as fault:
            raise ServerUnreachable(f"get {self._url}", _cause(fault)) from None

    def _judge(self, response: requests.Response) -> Answer:
        """Tell the metadata server's own answers from anything else that speaks HTTP."""
        action = f"get {self._url}"
        status = response.status_code
        if response.headers.get("Metadata-Flavor") != "Google":
            raise ServerUnreachable(action, f"somebody else answers there ({status}, and no Metadata-Flavor header)")
        if status == _NOT_FOUND:
            return NotDefined()
        if response.is_redirect and _path(response.headers.get("Location", "")) == _path(self._url) + "/":
            return IsFolder()
        if status != _OK:
            raise ServerUnreachable(action, f"it answers {status} {response.reason}")
        if response.headers.get("Content-Type", "").lower().startswith("text/html"):
            raise ServerUnreachable(action, "somebody else answers there (with an HTML page)")
        return Found(self._body(response, action), response.headers.get("ETag"))

    def _body(self, response: requests.Response, action: str) -> bytes:
        body = bytearray()
        for chunk in response.iter_content(_CHUNK):
            body += chunk
            if len(body) > self._limits.size:
                raise BadAnswer(action, f"the answer is longer than {self._limits.size} bytes")
        length = response.headers.get("Content-Length", "")
        if length.isdecimal() and len(body) != int(length):  # requests takes a part for the whole
            raise ServerUnreachable(action, f"the answer ends after {len(body)} of {length} bytes")
        return bytes(body)


def _adapter(call: _Call) -> Any:
    """A transport that tells the call which socket it uses. These three classes are the same in urllib3 1.26 and 2."""
    from requests.adapters import HTTPAdapter
    from urllib3.connection import HTTPConnection
    from urllib3.connectionpool import HTTPConnectionPool

    class Connection(HTTPConnection):
        def connect(self) -> None:
            super().connect()
            call.connected(self.sock)

    class Pool(HTTPConnectionPool):
        ConnectionCls = Connection

    class Adapter(HTTPAdapter):
        def init_poolmanager(self, *arguments: Any, **keywords: Any) -> None:
            super().init_poolmanager(*arguments, **keywords)
            self.poolmanager.pool_classes_by_scheme = {"http": Pool}

    return Adapter(max_retries=0)


def _cut(connection: socket.socket) -> None:
    with contextlib.suppress(OSError):  # it may be closed already
        connection.shutdown(socket.SHUT_RDWR)


def _path(url: str) -> str:
    return urlsplit(url).path


def _cause(fault: BaseException) -> str:
    """The cause somewhere in what requests and urllib3 wrap around it, in few words."""
    import http.client

    linked = list(_linked(fault))
    for one in linked:
        if isinstance(one, OSError) and one.strerror:
            return one.strerror.lower()
    for kind, words in (
        (TimeoutError, "no answer in time"),
        (http.client.IncompleteRead, "the answer breaks off"),
        (http.client.RemoteDisconnected, "it hangs up without an answer"),
        (http.client.HTTPException, "what answers there does not speak HTTP"),
    ):
        if any(isinstance(one, kind) for one in linked):
            return words
    return str(fault).rsplit(": ", 1)[-1].lower() or type(fault).__name__


def _linked(fault: BaseException) -> Iterator[BaseException]:
    """The fault, and those that it was made of or came from."""
    found = [fault]
    for one in found:
        yield one
        links = (*one.args, getattr(one, "reason", None), one.__cause__, one.__context__)
        found += [link for link in links if isinstance(link, BaseException) and link not in found]
