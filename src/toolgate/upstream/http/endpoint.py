"""Request heads towards one server, as bytes, made once and used for every request.

Nothing of a caller gets in here but `Mcp-*` headers and its trace, and nothing that could end a line gets in
at all.

From a record to connections to its server: secrets resolved, the address vetted, nothing opened yet.

The same for every transport on HTTP.
"""

import asyncio
import re
import ssl
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from toolgate import __version__
from toolgate.model.http import HEADER_NAME, is_reserved_header
from toolgate.model.protocol import MODERN_VERSION
from toolgate.model.servers import EMPTY, HttpEndpoint, ServerRecord
from toolgate.telemetry.spans import TRACE_HEADERS, TRACEPARENT
from toolgate.upstream.connection.contract import StartFailed
from toolgate.upstream.connection.secrets import Secrets
from toolgate.upstream.http.client_connection import HttpLimits
from toolgate.upstream.http.connection_pool import HttpPool
from toolgate.upstream.http.egress import Egress, EgressRefused, HttpTarget, parse_target
from toolgate.upstream.redaction import credentials_of

_VALUE = re.compile(r"[\t\x20-\x7e]*")
_POSITION = re.compile(rb"[\x20-\x7e]{1,1024}")
_SESSION_ID = re.compile(rb"[\x21-\x7e]{1,1024}")
_MAX_REMEMBERED: Final = 1024


@dataclass(frozen=True, slots=True)
class HttpSession:
    """What a handshake agreed on; `id` is None for a server that keeps none."""

    version: str
    id: bytes | None = None


def trace_lines(headers: Mapping[str, str]) -> bytes:
    """Those of the headers of a call that servers of any era take."""
    return _lines({name: headers[name] for name in TRACE_HEADERS if name in headers})


def with_body(head: bytes, body: bytes) -> bytes:
    """A whole request."""
    return b"%bContent-Length: %d\r\n\r\n%b" % (head, len(body), body)


def without_body(head: bytes) -> bytes:
    return head + b"\r\n"


def parse_session_id(value: bytes | None) -> bytes | None:
    """The id a server gave its session. Raises StartFailed for one that cannot be sent back."""
    if value is not None and not _SESSION_ID.fullmatch(value):
        raise StartFailed("its session id is not visible ASCII")
    return value


def is_resumable_id(event_id: bytes) -> bool:
    """Whether a stream can be resumed from this event."""
    return bool(_POSITION.fullmatch(event_id))


class RequestHeads:
    """The heads of one endpoint."""

    def __init__(self, target: HttpTarget, own: Mapping[str, str] = EMPTY) -> None:
        """`own` are the record's headers, resolved. Raises StartFailed, which never shows a value."""
        _check_own(own)
        agent = {} if "user-agent" in map(str.lower, own) else {"User-Agent": f"toolgate/{__version__}"}
        self._path = target.path
        self._own = {"Host": target.authority, "Accept-Encoding": "identity", **agent, **own}
        self._fixed = _lines(self._own)
        self._modern: dict[tuple[object, ...], bytes] = {}

    def authorize(self, credential: str) -> None:
        """Show `credential` from now on, as when a token was renewed."""
        _check_own({"Authorization": credential})
        self._own["Authorization"] = credential
        self._fixed = _lines(self._own)
        self._modern.clear()

    def initialize(self) -> bytes:
        """For the handshake itself, which has neither version nor session yet.

        A server may turn out to be stateless only, and those want the method of every POST (SEP-2243).
        """
        return self._post({"Mcp-Method": "initialize"})

    def modern(self, method: str, headers: Mapping[str, str] = EMPTY) -> bytes:
        """For a request of the stateless era. Calls of one tool mostly carry the same `headers`."""
        key = (method, *headers.items())
        head = self._modern.get(key)
        if head is None:
            _check_mirrored(headers)
            head = self._post({"MCP-Protocol-Version": MODERN_VERSION, "Mcp-Method": method, **headers})
            if TRACEPARENT in headers:
                return head  # it is no other's
            if len(self._modern) >= _MAX_REMEMBERED:
                self._modern.clear()
            self._modern[key] = head
        return head

    def legacy(self, session: HttpSession) -> bytes:
        """For a message within a session."""
        return self._post(_session_headers(session))

    def listen(self, session: HttpSession, *, after: bytes = b"") -> bytes:
        """For the session's own stream, or the rest of another that broke off at event `after`."""
        position = {"Last-Event-ID": after.decode("ascii")} if after else {}
        return self._head("GET", {"Accept": "text/event-stream", **_session_headers(session), **position})

    def follow(self) -> bytes:
        """For the one stream of the 2024 transport, which comes before any session."""
        return self._head("GET", {"Accept": "text/event-stream"})

    def get(self) -> bytes:
        """For a document."""
        return self._head("GET", {"Accept": "application/json"})

    def leave(self, session: HttpSession) -> bytes:
        """To end a session."""
        return self._head("DELETE", _session_headers(session))

    def _post(self, headers: Mapping[str, str]) -> bytes:
        kinds = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream"}
        return self._head("POST", {**kinds, **headers})

    def _head(self, verb: str, headers: Mapping[str, str]) -> bytes:
        return f"{verb} {self._path} HTTP/1.1\r\n".encode("ascii") + self._fixed + _lines(headers)


def _session_headers(session: HttpSession) -> dict[str, str]:
    headers = {"MCP-Protocol-Version": session.version}
    if session.id is not None:
        headers["Mcp-Session-Id"] = session.id.decode("ascii")
    return headers


def _lines(headers: Mapping[str, str]) -> bytes:
    return "".join(f"{name}: {value}\r\n" for name, value in headers.items()).encode("ascii")


def _check_own(headers: Mapping[str, str]) -> None:
    for name in _unfit(headers):
        raise StartFailed(f"header `{name}` cannot be sent: not an HTTP header", fatal=True)
    for name in headers:
        if is_reserved_header(name):
            raise StartFailed(f"header `{name}` is set by the gateway itself", fatal=True)


def _check_mirrored(headers: Mapping[str, str]) -> None:
    """Whoever calls us is wrong, not the server: the headers of a caller's request must not come this far."""
    for name in _unfit(headers):
        raise ValueError(f"not a header: {name!r}")
    for name in headers:
        is_known = name.lower() == "mcp-name" or name in TRACE_HEADERS
        if not is_known and not name.lower().startswith("mcp-param-"):
            raise ValueError(f"not a header that mirrors a body: {name!r}")


def _unfit(headers: Mapping[str, str]) -> Iterable[str]:
    """Names of those that are no header, by their name or their value."""
    return (n for n, value in headers.items() if not (HEADER_NAME.fullmatch(n) and _VALUE.fullmatch(value)))


@dataclass(frozen=True, slots=True)
class ResolvedEndpoint:
    """How one server is reached."""

    url: str
    """With its references resolved: it may hold a credential."""
    target: HttpTarget
    headers: Mapping[str, str]
    """The record's own, resolved."""
    credentials: tuple[str, ...]
    """What in all that must not be shown."""
    pool: HttpPool


class EndpointResolver:
    """Makes pools of connections to the servers of records."""

    def __init__(
        self,
        secrets: Secrets,
        egress: Egress,
        *,
        limits: HttpLimits | None = None,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        """`tls` decides which servers are trusted; without it, the system's authorities do."""
        self._secrets = secrets
        self._egress = egress
        self._limits = limits
        self._tls = tls

    async def server(self, record: ServerRecord) -> ResolvedEndpoint:
        """The server of `record`. Raises StartFailed. Whoever asks closes the pool."""
        if record.http is None:
            raise StartFailed("its record has no `http` part", fatal=True)
        return await self.endpoint(record.http)

    async def endpoint(self, endpoint: HttpEndpoint) -> ResolvedEndpoint:
        """Whatever listens at `endpoint`. Raises StartFailed. Whoever asks closes the pool."""
        url = self._secrets.expand(endpoint.url)
        headers = self._secrets.http_headers(endpoint)
        target = self._vetted(url)
        credentials = tuple(credentials_of(endpoint, url, headers))
        pool = HttpPool(target, self._egress, tls=await self._trust(target), limits=self._limits)
        return ResolvedEndpoint(url, target, headers, credentials, pool)

    def _vetted(self, url: str) -> HttpTarget:
        try:
            target = parse_target(url)
            self._egress.check_literal(target)
        except EgressRefused as exc:
            raise StartFailed(str(exc), fatal=True) from exc
        return target

    async def _trust(self, target: HttpTarget) -> ssl.SSLContext | None:
        if target.is_tls and self._tls is None:
            # Reads every authority from disk, which takes longer than the event loop has.
            self._tls = await asyncio.to_thread(ssl.create_default_context)
        return self._tls
