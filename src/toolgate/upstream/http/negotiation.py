"""What both eras have in common on HTTP.

Finding out what an HTTP server is: how statuses and headers become evidence for `negotiate`.

A status says less than a body, so the body is looked at first. What proves nothing about the era (no
connection, 401, 5xx) ends the start, and nothing is remembered of it.
"""

import asyncio
import math
from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final, Protocol

import msgspec

from toolgate.model.protocol import LEGACY_VERSIONS
from toolgate.model.tools import Revision
from toolgate.upstream.connection.contract import (
    SHARED_CAPABILITIES,
    Acknowledgement,
    ClientChannel,
    Params,
    RpcResponse,
    ServerInfo,
    StartFailed,
)
from toolgate.upstream.connection.messages import (
    IncomingMessage,
    encode_notification,
    encode_request,
    parse_response,
)
from toolgate.upstream.connection.negotiation import negotiate
from toolgate.upstream.http.client_connection import ExchangeFailed, ExchangeTimedOut, HttpResponse
from toolgate.upstream.http.connection_pool import ConnectFailed, HttpPool
from toolgate.upstream.http.endpoint import HttpSession, RequestHeads, parse_session_id, with_body
from toolgate.upstream.http.responses import PendingResponse, RequestRejected, ResponseMissing, retry_after_s

_ODD_STATUSES: Final = (400, 404, 405, 406, 415)
_ASK_EVERY_S: Final = 5.0
_ASK_TIMEOUT_S: Final = 2.0


class HttpDialect(Protocol):
    """How requests are put to a server of one era."""

    async def ask(
        self,
        method: str,
        params: Params,
        headers: Mapping[str, str],
        *,
        timeout_s: float,
        client: ClientChannel | None,
    ) -> IncomingMessage:
        """The response to a request, sent once. Raises what HTTP raises, Rejected and LinkLost."""

    def listen(self) -> None:
        """Start to hear what the server says unasked, where it announces that it will."""

    def watch(self, uris: frozenset[str]) -> Acknowledgement:
        """See `Link.watch`."""

    def authorize(self, credential: str) -> None:
        """Show the server `credential` with every request from now on."""

    async def leave(self) -> None:
        """Take leave, as well as can be done in a moment. Does not raise."""


class ConnectionLost(Exception):
    """The server is there and no longer what the link took it for: the link is of no use any more."""


class RevisionCheck:
    """Whether a server has changed its era under a link, as one does that another version has replaced.

    Only a status that a server of the era has little use for raises it, and then the server is asked: at
    most every few seconds, so that calls which are wrong by themselves do not cost it much.
    """

    def __init__(self, is_as_before: Callable[[float], Awaitable[bool]]) -> None:
        """`is_as_before` asks the server, until a deadline."""
        self._is_as_before = is_as_before
        self._asked_s = -math.inf

    async def check(self, rejected: RequestRejected, deadline: float) -> None:
        """Raises LinkLost when the server turns out to have changed."""
        now_s = asyncio.get_running_loop().time()
        if rejected.status not in _ODD_STATUSES or now_s - self._asked_s < _ASK_EVERY_S:
            return
        self._asked_s = now_s
        try:
            is_as_before = await self._is_as_before(min(deadline, now_s + _ASK_TIMEOUT_S))
        except (ConnectFailed, ExchangeFailed, ExchangeTimedOut):
            return
        if not is_as_before:
            raise ConnectionLost("the server no longer speaks the protocol it spoke") from rejected


@dataclass(frozen=True, slots=True)
class StreamableEndpoint:
    """How one server is reached, the numbers its requests get, and what it is told of our clients."""

    pool: HttpPool
    heads: RequestHeads
    numbers: Iterator[int]
    capabilities: bytes = SHARED_CAPABILITIES


class _Handshake(msgspec.Struct, rename="camel"):
    protocol_version: str = LEGACY_VERSIONS[0]


class _NullReceiver:
    """Nothing a server says before it was greeted concerns anybody."""

    def take(self, message: IncomingMessage, request: bytes) -> None:
        """Drop it."""

    def deadline_of(self, _request: bytes, deadline: float, /) -> float:
        """Nobody is asked anything, so it stays as it was."""
        return deadline


_NULL_RECEIVER: Final = _NullReceiver()


class HttpNegotiation:
    """One negotiation with one server."""

    def __init__(self, endpoint: StreamableEndpoint) -> None:
        self._endpoint = endpoint
        self.session: HttpSession | None = None
        """What the handshake agreed on, where the server turns out to be legacy."""

    async def hello(self, *, known_era: Revision | None) -> ServerInfo:
        """Raises StartFailed. The caller sets the deadline."""
        return await negotiate(
            self._ask, self._notify, known_era=known_era, capabilities=self._endpoint.capabilities
        )

    async def _ask(self, method: str, params: Params, timeout_s: float) -> RpcResponse:
        heads = self._endpoint.heads
        head = heads.initialize() if method == "initialize" else heads.modern(method)
        number = next(self._endpoint.numbers)
        pending = PendingResponse(b"%d" % number, _NULL_RECEIVER)
        try:
            answer = await self._send(head, encode_request(number, method, params), timeout_s, pending)
            reply = parse_response(pending.take(answer))
        except RequestRejected as exc:
            return interpret_rejection(exc)
        except ResponseMissing as exc:
            return _build_error(str(exc))
        if method == "initialize" and reply.result is not None:
            self.session = _parse_session(reply.result, answer)
        return reply

    async def _notify(self, method: str, params: Params) -> None:
        assert self.session is not None  # only a handshake has something to say
        head = self._endpoint.heads.legacy(self.session)
        answer = await self._send(head, encode_notification(method, params))
        if answer.status >= 300:
            raise StartFailed(
                f"it answered `{method}` with status {answer.status}", retry_after_s=retry_after_s(answer)
            )

    async def _send(
        self, head: bytes, body: bytes, timeout_s: float = 5.0, pending: PendingResponse | None = None
    ) -> HttpResponse:
        deadline = asyncio.get_running_loop().time() + timeout_s
        try:
            # Nothing of a start does anything, so it may meet a connection that the server has closed.
            return await self._endpoint.pool.send_repeatable(
                with_body(head, body), deadline=deadline, sink=pending
            )
        except ExchangeTimedOut as exc:
            raise StartFailed(f"no answer within {timeout_s:g} s", state="list_timeout") from exc
        except (ConnectFailed, ExchangeFailed) as exc:
            raise StartFailed(str(exc)) from exc


def interpret_rejection(rejected: RequestRejected) -> RpcResponse:
    """What a status other than 200 says about the server; StartFailed when it says nothing."""
    status = rejected.status
    if status in (401, 403):
        raise StartFailed(f"it wants authorization (status {status}): set `auth_ref`, `headers` or `oauth`")
    if 300 <= status < 400:
        raise StartFailed(f"it redirects (status {status}), which is not followed: register its real URL")
    wait_s = rejected.retry_after_s
    if status == 429 or (status >= 500 and (rejected.error is None or wait_s is not None)):
        asks = "" if wait_s is None else f", and asks to be left alone for {wait_s} s"
        raise StartFailed(f"it answered with status {status}{asks}", retry_after_s=wait_s)
    if rejected.error is not None:
        return RpcResponse(error=rejected.error)
    return _build_error(f"status {status}")


def _build_error(message: str) -> RpcResponse:
    return RpcResponse(error=msgspec.json.encode({"code": 0, "message": message}))


def _parse_session(result: bytes, answer: HttpResponse) -> HttpSession | None:
    try:
        version = msgspec.json.decode(result, type=_Handshake).protocol_version
    except (msgspec.DecodeError, RecursionError):
        return None  # for `negotiate` to refuse
    if version not in LEGACY_VERSIONS:
        return None
    return HttpSession(version, parse_session_id(answer.headers.get(b"mcp-session-id")))
