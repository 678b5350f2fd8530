"""Finding out what an HTTP server is: how statuses and headers become evidence for `negotiate`.

A status says less than a body, so the body is looked at first. What proves nothing about the era (no
connection, 401, 5xx) ends the start, and nothing is remembered of it.
"""

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import msgspec

from toolgate.model.protocol import LEGACY_VERSIONS
from toolgate.model.tools import Era
from toolgate.upstream.connection.contract import SHARED_CAPABILITIES, Hello, Params, Reply, StartFailed
from toolgate.upstream.connection.messages import Incoming, encode_notification, encode_request, reply_of
from toolgate.upstream.connection.negotiation import negotiate
from toolgate.upstream.http.client_connection import Answer, ExchangeFailed, ExchangeTimedOut
from toolgate.upstream.http.connection_pool import ConnectFailed, HttpPool
from toolgate.upstream.http.endpoint import Heads, Session, parse_session_id, with_body
from toolgate.upstream.http.responses import NoResponse, PendingResponse, Rejected, retry_after_s


@dataclass(frozen=True, slots=True)
class Endpoint:
    """How one server is reached, the numbers its requests get, and what it is told of our clients."""

    pool: HttpPool
    heads: Heads
    numbers: Iterator[int]
    capabilities: bytes = SHARED_CAPABILITIES


class _Handshake(msgspec.Struct, rename="camel"):
    protocol_version: str = LEGACY_VERSIONS[0]


class _Deaf:
    """Nothing a server says before it was greeted concerns anybody."""

    def take(self, message: Incoming, request: bytes) -> None:
        """Drop it."""

    def deadline_of(self, _request: bytes, deadline: float, /) -> float:
        """Nobody is asked anything, so it stays as it was."""
        return deadline


_DEAF: Final = _Deaf()


class Greeting:
    """One negotiation with one server."""

    def __init__(self, endpoint: Endpoint) -> None:
        self._endpoint = endpoint
        self.session: Session | None = None
        """What the handshake agreed on, where the server turns out to be legacy."""

    async def hello(self, *, known_era: Era | None) -> Hello:
        """Raises StartFailed. The caller sets the deadline."""
        return await negotiate(
            self._ask, self._notify, known_era=known_era, capabilities=self._endpoint.capabilities
        )

    async def _ask(self, method: str, params: Params, timeout_s: float) -> Reply:
        heads = self._endpoint.heads
        head = heads.initialize() if method == "initialize" else heads.modern(method)
        number = next(self._endpoint.numbers)
        pending = PendingResponse(b"%d" % number, _DEAF)
        try:
            answer = await self._send(head, encode_request(number, method, params), timeout_s, pending)
            reply = reply_of(pending.take(answer))
        except Rejected as exc:
            return evidence(exc)
        except NoResponse as exc:
            return _made_up_error(str(exc))
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
    ) -> Answer:
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


def evidence(rejected: Rejected) -> Reply:
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
        return Reply(error=rejected.error)
    return _made_up_error(f"status {status}")


def _made_up_error(message: str) -> Reply:
    return Reply(error=msgspec.json.encode({"code": 0, "message": message}))


def _parse_session(result: bytes, answer: Answer) -> Session | None:
    try:
        version = msgspec.json.decode(result, type=_Handshake).protocol_version
    except (msgspec.DecodeError, RecursionError):
        return None  # for `negotiate` to refuse
    if version not in LEGACY_VERSIONS:
        return None
    return Session(version, parse_session_id(answer.headers.get(b"mcp-session-id")))
