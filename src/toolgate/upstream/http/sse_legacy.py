"""MCP servers over the HTTP+SSE transport of 2024: one stream from the server, one POST per message to it.

The stream is the connection: when it ends, so does everything. The server names the address for messages, and
the gateway takes it only within the server's own origin. New servers should use streamable HTTP.
"""

import asyncio
import contextlib
import itertools
from collections.abc import Iterator
from dataclasses import KW_ONLY, dataclass, field
from typing import Final, Unpack
from urllib.parse import parse_qsl, urljoin, urlsplit

from toolgate.errors import CallTimedOut, ServerUnavailable
from toolgate.model.servers import ServerRecord, choose_start_timeout
from toolgate.upstream.connection import contract, messages
from toolgate.upstream.connection.messages import Redactor
from toolgate.upstream.connection.negotiation import negotiate
from toolgate.upstream.connection.stream import StreamConnection
from toolgate.upstream.http import client_connection, endpoint, responses
from toolgate.upstream.http.egress import EgressRefused, parse_target
from toolgate.upstream.http.sse import SseParser, StreamRefused

MAX_ENDPOINT_BYTES: Final = 8 * 1024  # RFC 9110, 4.1, recommends support of URLs of 8,000 octets
MAX_NOISE_EVENTS: Final = 1_000
"""A server that sends more non-MCP events between two messages is not an MCP server, and costs our time."""
_SESSION_GONE: Final = (404, 410)


class SseLegacyConnection(StreamConnection):
    """A connection over one SSE stream, and the sink of that stream. `SseLegacyConnector` opens it."""

    def __init__(
        self,
        resolved: endpoint.ResolvedEndpoint,
        numbers: Iterator[int],
        listener: contract.ConnectionListener,
        *,
        max_event_bytes: int,
        max_noise: int,
    ) -> None:
        redactor = Redactor(resolved.credentials)
        super().__init__("the server", numbers, listener, redactor, max_noise=max_noise)
        self._resolved = resolved
        self._parser = SseParser(max_event_bytes)
        self._heads = endpoint.RequestHeads(resolved.target, resolved.headers)
        self._post_head = b""
        self._is_settled = asyncio.Event()
        """The server has named the address for messages, or the connection has ended."""
        self._rejection: contract.StartFailed | None = None
        """Why the server did not open the stream."""

    async def connect(self) -> None:
        """Open the stream and receive the address for messages. Raises StartFailed."""
        self._background.start(self._follow())
        await self._is_settled.wait()
        if self._end:
            raise self._rejection or contract.StartFailed(self._end)

    async def notify(self, method: str, params: contract.Params) -> None:
        """Send a notification during the start. Raises StartFailed."""
        message = messages.encode_notification(method, params)
        response = await self._post(message, self._loop.time() + contract.NOTIFY_TIMEOUT_S)
        if response.status >= 300:
            raise contract.StartFailed(f"it responded to `{method}` with status {response.status}")

    async def aclose(self) -> None:
        self.is_open = False
        self._finish("the connection was closed")
        await self._background.aclose()

    async def _post(self, body: bytes, deadline: float) -> client_connection.HttpResponse:
        return await self._resolved.pool.send(endpoint.with_body(self._post_head, body), deadline=deadline)

    def _send_request(self, key: bytes, message: bytes, deadline: float) -> asyncio.Task[None] | None:
        # In a task, because a server may respond on its stream before it has responded to the POST.
        return self._background.start(self._post_request(key, message, deadline))

    async def _post_request(self, key: bytes, body: bytes, deadline: float) -> None:
        """POST a request. Its response comes on the stream, unless it does not arrive."""
        try:
            response = await self._post(body, deadline)
        except client_connection.ExchangeTimedOut:
            return  # the request times out at the same time
        except client_connection.ConnectFailed as exc:
            self._fail(key, ServerUnavailable(self._redactor.text(str(exc))))
        except client_connection.HttpFailure as exc:
            self._fail(key, responses.build_unknown_outcome(str(exc)))
        else:
            if response.status >= 300:
                self._receive_rejection(key, responses.parse_rejected(response, key))

    def _receive_rejection(self, key: bytes, rejected: responses.RequestRejected) -> None:
        try:
            if self.is_open:
                response = responses.convert_rejection(rejected, self._redactor)
            else:
                response = endpoint.interpret_rejection(rejected)
        except (ServerUnavailable, contract.StartFailed) as exc:
            self._fail(key, exc)
        else:
            self._resolve(key, response)
        if self.is_open and rejected.status in _SESSION_GONE and not rejected.is_ours:
            self._finish("the server no longer knows the session")

    def _send_now(self, message: bytes) -> None:
        if self._background.size < contract.MAX_BACKGROUND_SENDS + len(self._pending) + self._relay.size:
            self._background.start(self._deliver(message, contract.NOTIFY_TIMEOUT_S))

    async def _deliver(self, message: bytes, timeout_s: float = contract.DELIVER_TIMEOUT_S) -> None:
        with contextlib.suppress(client_connection.HttpFailure):
            await self._post(message, self._loop.time() + timeout_s)

    async def _follow(self) -> None:
        try:
            response = await self._resolved.pool.send(self._heads.listen(None), deadline=None, sink=self)
        except client_connection.HttpFailure as exc:
            self._finish(str(exc))
        else:
            if not response.is_stream:
                no_stream = f"it responded to GET with status {response.status} and no event stream"
                self._rejection = contract.StartFailed(f"{no_stream}: is its transport `streamable_http`?")
                try:
                    endpoint.interpret_rejection(responses.parse_rejected(response))
                except contract.StartFailed as exc:
                    self._rejection = exc
            self._finish("the server ended its stream")

    # From the HTTP connection: see `StreamSink`

    def begin(self) -> None:
        """The stream has opened."""

    def feed(self, chunk: bytes) -> bool:
        for event in self._parser.feed(chunk):
            if event.type == b"endpoint":
                self._receive_endpoint(event.data)
            elif event.type == b"message":
                self._receive(event.data)
        return False  # no event is the last

    def deadline(self, deadline: float) -> float:
        return deadline

    def _receive_endpoint(self, data: bytes) -> None:
        """Take the address once, on the server's own origin: one that it changes later is not followed."""
        if self._post_head:
            return
        if len(data) > MAX_ENDPOINT_BYTES:
            raise StreamRefused(f"the server's endpoint is longer than {MAX_ENDPOINT_BYTES} bytes")
        try:
            url = urljoin(self._resolved.url, data.decode("ascii"))
            target = parse_target(url)
        except (ValueError, EgressRefused) as exc:
            raise StreamRefused("the server's endpoint is not a usable URL") from exc
        if target.origin != self._resolved.target.origin:
            raise StreamRefused(
                "the server's endpoint is on another origin, which the gateway does not follow"
            )
        self._post_head = endpoint.RequestHeads(target, self._resolved.headers).initialize()
        # The session id in the query is a credential: it is all that a session needs.
        self._redactor.learn(*(value for _, value in parse_qsl(urlsplit(url).query)))
        self._is_settled.set()

    def _on_too_much_noise(self) -> None:
        raise StreamRefused("the server sends too much data that is not MCP on its stream")

    def _build_unavailable(self, outcome: str) -> ServerUnavailable:
        was_sent = outcome != "nothing was sent"
        return responses.build_unknown_outcome(self._end) if was_sent else ServerUnavailable(self._end)

    def _finish(self, reason: str) -> None:
        super()._finish(self._redactor.text(reason))

    def _close_transport(self) -> None:
        self._is_settled.set()
        self._resolved.pool.close()


@dataclass(slots=True)
class SseLegacyConnector:
    """The connector of transport `http_sse_legacy`. Servers of both revisions may use it."""

    _resolver: endpoint.EndpointResolver
    _: KW_ONLY
    start_timeout_s: float = contract.START_TIMEOUT_S
    max_noise: int = MAX_NOISE_EVENTS
    # One sequence for all connections: a request repeated on a new one must have a new id (SEP-2322).
    _numbers: Iterator[int] = field(default_factory=lambda: itertools.count(1), init=False)
    _unprobed: set[str] = field(default_factory=set, init=False)
    """Servers whose stream ended on a probe: some end it on any first message but `initialize`."""

    async def __call__(
        self,
        record: ServerRecord,
        listener: contract.ConnectionListener,
        **handshake: Unpack[contract.ServerHandshake],
    ) -> SseLegacyConnection:
        server_id = record.server_id
        resolved = self._resolver.resolve(record.http)
        max_event_bytes, max_noise = self._resolver.limits.max_body_bytes, self.max_noise
        connection = SseLegacyConnection(
            resolved, self._numbers, listener, max_event_bytes=max_event_bytes, max_noise=max_noise
        )
        if handshake["known_revision"] is None and server_id in self._unprobed:
            handshake["known_revision"] = "legacy"
        timeout_s = choose_start_timeout(record, self.start_timeout_s)
        try:
            async with asyncio.timeout(timeout_s):
                await connection.connect()
                connection.open(await negotiate(connection.exchange, connection.notify, **handshake))
        except (TimeoutError, CallTimedOut, client_connection.ExchangeTimedOut) as exc:
            raise contract.StartFailed(f"no response within {timeout_s:g} s", state="list_timeout") from exc
        except (ServerUnavailable, client_connection.HttpFailure) as exc:
            self._unprobed ^= {server_id}
            raise contract.StartFailed(str(exc)) from exc
        finally:
            if not connection.is_open:
                await connection.aclose()
        self._unprobed.discard(server_id)
        return connection
