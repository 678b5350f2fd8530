"""The HTTP endpoint of a record: resolved, the request heads sent to it, and the negotiation with its server.

Heads are made once, as bytes, and used for every request. Of a caller's request, they hold only the `Mcp-*`
headers and the trace, neither of which can end a line.

A body proves more about the protocol revision than a status, so it is read first. A response that proves
nothing about it (no connection, 401, 5xx) ends the start, and the gateway remembers nothing of it.
"""

import asyncio
import re
import ssl
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

import msgspec

from toolgate import __version__
from toolgate.model.http import HEADER_NAME, is_reserved_header
from toolgate.model.protocol import LEGACY_VERSIONS, MODERN_VERSION
from toolgate.model.servers import EMPTY, HttpEndpoint
from toolgate.model.tools import Revision
from toolgate.redaction.credentials import collect_endpoint_credentials
from toolgate.telemetry.spans import TRACE_HEADERS, TRACEPARENT
from toolgate.upstream.connection import contract, messages
from toolgate.upstream.connection.negotiation import negotiate
from toolgate.upstream.connection.secrets import Secrets
from toolgate.upstream.http import client_connection, responses
from toolgate.upstream.http.connection_pool import HttpPool
from toolgate.upstream.http.egress import Egress, EgressRefused, HttpTarget, parse_target

_VALUE = re.compile(r"[\t\x20-\x7e]*")
_MAX_CACHED_HEADS: Final = 1024  # a choice: more than most servers have tools; then all are dropped


@dataclass(frozen=True, slots=True)
class HttpSession:
    """What a handshake agreed on; `id` is None for a server that keeps no sessions."""

    version: str
    id: bytes | None = None

    @property
    def headers(self) -> dict[str, str]:
        session_id = {} if self.id is None else {"Mcp-Session-Id": self.id.decode("ascii")}
        return {"MCP-Protocol-Version": self.version, **session_id}


def encode_trace_headers(headers: Mapping[str, str]) -> bytes:
    """The header lines of a call that servers of both revisions take."""
    return _encode_lines({name: headers[name] for name in TRACE_HEADERS if name in headers})


def with_body(head: bytes, body: bytes) -> bytes:
    """A whole request."""
    return b"%bContent-Length: %d\r\n\r\n%b" % (head, len(body), body)


class RequestHeads:
    """The heads of one endpoint. Those of requests that have no body are the whole request."""

    def __init__(self, target: HttpTarget, own: Mapping[str, str] = EMPTY) -> None:
        """`own` are the record's headers, resolved. Raises StartFailed, which never shows a value."""
        _check_own(own)
        agent = {} if "user-agent" in map(str.lower, own) else {"User-Agent": f"toolgate/{__version__}"}
        self._path = target.path
        self._own = {"Host": target.authority, "Accept-Encoding": "identity", **agent, **own}
        self._fixed = _encode_lines(self._own)
        self._stateless: dict[tuple[object, ...], bytes] = {}

    def authorize(self, credential: str) -> None:
        """Send `credential` from now on, after a token was renewed."""
        _check_own({"Authorization": credential})
        self._own["Authorization"] = credential
        self._fixed = _encode_lines(self._own)
        self._stateless.clear()

    def initialize(self) -> bytes:
        """For the handshake, which has no version and no session.

        A server may turn out to be stateless, and those require the method of every POST (SEP-2243).
        """
        return self._post({"Mcp-Method": "initialize"})

    def stateless(self, method: str, headers: Mapping[str, str] = EMPTY) -> bytes:
        """For a stateless request. Calls of one tool usually carry the same `headers`."""
        key = (method, *headers.items())
        head = self._stateless.get(key)
        if head is None:
            _check_mirrored(headers)
            head = self._post({"MCP-Protocol-Version": MODERN_VERSION, "Mcp-Method": method, **headers})
            if TRACEPARENT in headers:
                return head  # unique to this request
            if len(self._stateless) >= _MAX_CACHED_HEADS:
                self._stateless.clear()
            self._stateless[key] = head
        return head

    def in_session(self, session: HttpSession) -> bytes:
        """For a message within a session."""
        return self._post(session.headers)

    def listen(self, session: HttpSession | None, *, after: bytes = b"") -> bytes:
        """For the session's notification stream, or the rest of a stream that broke off at event `after`.

        None: for the one stream of the 2024 transport, which comes before any session.
        """
        position = {"Last-Event-ID": after.decode("ascii")} if after else {}
        in_session = {} if session is None else session.headers
        return self._encode("GET", {"Accept": "text/event-stream", **in_session, **position}) + b"\r\n"

    def get(self) -> bytes:
        """For a JSON document."""
        return self._encode("GET", {"Accept": "application/json"}) + b"\r\n"

    def end_session(self, session: HttpSession) -> bytes:
        return self._encode("DELETE", session.headers) + b"\r\n"

    def _post(self, headers: Mapping[str, str]) -> bytes:
        kinds = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream"}
        return self._encode("POST", {**kinds, **headers})

    def _encode(self, verb: str, headers: Mapping[str, str]) -> bytes:
        return f"{verb} {self._path} HTTP/1.1\r\n".encode("ascii") + self._fixed + _encode_lines(headers)


def _encode_lines(headers: Mapping[str, str]) -> bytes:
    return "".join(f"{name}: {value}\r\n" for name, value in headers.items()).encode("ascii")


def _check_own(headers: Mapping[str, str]) -> None:
    for name in _find_invalid(headers):
        raise contract.StartFailed(f"header `{name}` cannot be sent: not an HTTP header", fatal=True)
    for name in headers:
        if is_reserved_header(name):
            raise contract.StartFailed(f"header `{name}` is set by the gateway itself", fatal=True)


def _check_mirrored(headers: Mapping[str, str]) -> None:
    """A violation is a bug in the gateway: headers of a caller's request must not get here."""
    for name in _find_invalid(headers):
        raise ValueError(f"not a header: {name!r}")
    for name in headers:
        is_known = name.lower() == "mcp-name" or name in TRACE_HEADERS
        if not is_known and not name.lower().startswith("mcp-param-"):
            raise ValueError(f"not a header that mirrors a body: {name!r}")


def _find_invalid(headers: Mapping[str, str]) -> Iterator[str]:
    return (n for n, value in headers.items() if not (HEADER_NAME.fullmatch(n) and _VALUE.fullmatch(value)))


@dataclass(frozen=True, slots=True)
class ResolvedEndpoint:
    """How one server is reached."""

    url: str
    """With its references resolved: it may hold a credential."""
    target: HttpTarget
    headers: Mapping[str, str]
    """The record's headers, resolved."""
    credentials: tuple[str, ...]
    """The secret parts of URL and headers, which errors must not show."""
    pool: HttpPool


@dataclass(frozen=True, slots=True)
class EndpointResolver:
    """Resolves the endpoints of records, for every transport on HTTP."""

    secrets: Secrets
    egress: Egress
    limits: client_connection.HttpLimits = client_connection.DEFAULT_LIMITS
    tls: ssl.SSLContext | None = None
    """Holds the trusted authorities; by default, the system's."""

    def resolve(self, endpoint: HttpEndpoint | None) -> ResolvedEndpoint:
        """Resolve the `http` part of a record. Raises StartFailed. The caller closes the pool."""
        if endpoint is None:
            raise contract.StartFailed("its record has no `http` part", fatal=True)
        url, headers = self.secrets.expand(endpoint.url), self.secrets.build_http_headers(endpoint)
        try:
            target = parse_target(url)
            self.egress.check_literal(target)
        except EgressRefused as exc:
            raise contract.StartFailed(str(exc), fatal=True) from exc
        pool = HttpPool(target, self.egress, tls=self.tls, limits=self.limits)
        credentials = tuple(collect_endpoint_credentials(endpoint, url, headers))
        return ResolvedEndpoint(url, target, headers, credentials, pool)


_NOTIFY_TIMEOUT_S: Final = 5.0  # half of START_TIMEOUT_S, within which the whole negotiation must end
_SESSION_ID = re.compile(rb"[\x21-\x7e]{1,1024}")


@dataclass(frozen=True, slots=True)
class StreamableEndpoint:
    """One server over streamable HTTP: what all its connections use."""

    pool: HttpPool
    heads: RequestHeads
    redactor: messages.Redactor
    numbers: Iterator[int]
    capabilities: bytes = contract.SHARED_CAPABILITIES


class _ProtocolVersion(msgspec.Struct, rename="camel"):
    protocol_version: str = LEGACY_VERSIONS[0]


@dataclass(slots=True)
class HttpNegotiation:
    """One negotiation with one server."""

    _endpoint: StreamableEndpoint
    session: HttpSession | None = None
    """The result of the handshake, if the server is session-based."""

    async def run(self, *, known_revision: Revision | None, timeout_s: float) -> contract.ServerInfo:
        """Raises StartFailed, and TimeoutError."""
        capabilities = self._endpoint.capabilities
        async with asyncio.timeout(timeout_s):
            return await negotiate(
                self._request, self._notify, known_revision=known_revision, capabilities=capabilities
            )

    async def _request(self, method: str, params: contract.Params, timeout_s: float) -> contract.RpcResponse:
        heads = self._endpoint.heads
        head = heads.initialize() if method == "initialize" else heads.stateless(method)
        number = next(self._endpoint.numbers)
        pending = responses.PendingResponse(b"%d" % number, None)
        try:
            body = messages.encode_request(number, method, params)
            http_response = await self._send(head, body, timeout_s, pending)
            response = messages.parse_response(pending.parse(http_response))
        except responses.RequestRejected as exc:
            return interpret_rejection(exc)
        except responses.ResponseMissing as exc:
            return messages.build_error(0, str(exc))
        if method == "initialize" and response.result is not None:
            self.session = _parse_session(response.result, http_response)
        return response

    async def _notify(self, method: str, params: contract.Params) -> None:
        assert self.session is not None  # only a handshake sends a notification
        head = self._endpoint.heads.in_session(self.session)
        response = await self._send(head, messages.encode_notification(method, params), _NOTIFY_TIMEOUT_S)
        if response.status >= 300:
            reason = f"it responded to `{method}` with status {response.status}"
            raise contract.StartFailed(reason, retry_after_s=responses.parse_retry_after_s(response))

    async def _send(
        self, head: bytes, body: bytes, timeout_s: float, pending: responses.PendingResponse | None = None
    ) -> client_connection.HttpResponse:
        deadline = asyncio.get_running_loop().time() + timeout_s
        try:
            # A negotiation has no effect, so it may be repeated if the server has closed the connection.
            request = with_body(head, body)
            return await self._endpoint.pool.send_repeatable(request, deadline=deadline, sink=pending)
        except client_connection.ExchangeTimedOut as exc:
            raise contract.StartFailed(f"no response within {timeout_s:g} s", state="list_timeout") from exc
        except client_connection.HttpFailure as exc:
            raise contract.StartFailed(str(exc)) from exc


def interpret_rejection(rejected: responses.RequestRejected) -> contract.RpcResponse:
    """What an error status proves about the server; raises StartFailed if it proves nothing."""
    status = rejected.status
    if status in (401, 403):
        raise contract.StartFailed(
            f"it requires authorization (status {status}): set `auth_ref`, `headers` or `oauth`"
        )
    if 300 <= status < 400:
        redirect = "a redirect, which the gateway does not follow"
        raise contract.StartFailed(f"it responded with status {status} ({redirect}): register its real URL")
    wait_s = rejected.retry_after_s
    if status == 429 or (status >= 500 and (rejected.error is None or wait_s is not None)):
        delay = "" if wait_s is None else f", and requests a delay of {wait_s} s"
        raise contract.StartFailed(f"it responded with status {status}{delay}", retry_after_s=wait_s)
    if rejected.error is not None:
        return contract.RpcResponse(error=rejected.error)
    return messages.build_error(0, f"status {status}")


def _parse_session(result: bytes, response: client_connection.HttpResponse) -> HttpSession | None:
    try:
        version = msgspec.json.decode(result, type=_ProtocolVersion).protocol_version
    except (msgspec.DecodeError, RecursionError):
        return None  # `negotiate` rejects it
    if version not in LEGACY_VERSIONS:
        return None
    session_id = response.headers.get(b"mcp-session-id")
    if session_id is not None and not _SESSION_ID.fullmatch(session_id):
        raise contract.StartFailed("its session id is not visible ASCII")  # it could not be sent back
    return HttpSession(version, session_id)
