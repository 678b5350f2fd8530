"""The one stream of the 2024 transport as a server sends it: its events, and where it says to post to.

A live link to a server of the 2024 transport: one stream for all it says, one POST for each message.

The stream is the link: when it ends, so does everything. Where messages go is for the server to say, and
taken only within its own origin. What it sends is bounded, and nothing of it is taken for the answer to a
question it was not asked.

MCP servers over the HTTP+SSE transport of 2024, which many still speak and nobody should begin with.
"""

import asyncio
import contextlib
import itertools
import ssl
from collections.abc import Callable, Iterator, Mapping
from typing import Final
from urllib.parse import parse_qsl, urljoin, urlsplit

from toolgate.errors import CallTimedOut, ServerUnavailable
from toolgate.model.json_text import UNREADABLE
from toolgate.model.servers import EMPTY, ServerRecord, choose_start_timeout
from toolgate.model.tools import Revision
from toolgate.upstream.connection import messages
from toolgate.upstream.connection.contract import (
    MAX_MESSAGE_BYTES,
    SHARED_CAPABILITIES,
    START_TIMEOUT_S,
    Acknowledgement,
    ClientChannel,
    ConnectionListener,
    Params,
    RpcResponse,
    ServerInfo,
    StartFailed,
)
from toolgate.upstream.connection.negotiation import negotiate
from toolgate.upstream.connection.relay import Relay
from toolgate.upstream.connection.secrets import Secrets
from toolgate.upstream.connection.subscriptions import ServerSubscriptions, subscribe_on_one_stream
from toolgate.upstream.connection.tasks import BackgroundTasks, PendingRequests
from toolgate.upstream.http.client_connection import (
    ExchangeFailed,
    ExchangeTimedOut,
    HttpLimits,
    HttpResponse,
    StreamRefused,
)
from toolgate.upstream.http.connection_pool import ConnectFailed
from toolgate.upstream.http.egress import Egress, EgressRefused, HttpTarget, parse_target
from toolgate.upstream.http.endpoint import (
    EndpointResolver,
    RequestHeads,
    ResolvedEndpoint,
    with_body,
    without_body,
)
from toolgate.upstream.http.negotiation import interpret_rejection
from toolgate.upstream.http.responses import (
    RequestRejected,
    convert_rejection,
    parse_rejected,
    unknown_outcome,
)
from toolgate.upstream.http.sse import EventTooLarge, SseEvent, SseParser
from toolgate.upstream.redaction import Redactor

MAX_ENDPOINT_BYTES: Final = 8 * 1024


class SseLegacySink:
    """Hands on the events of a stream, for as long as it lasts."""

    def __init__(self, take: Callable[[SseEvent], None]) -> None:
        self._take = take
        self._parser = SseParser(MAX_MESSAGE_BYTES)

    def begin(self) -> None:
        self._parser.restart()

    def feed(self, chunk: bytes) -> bool:
        try:
            events = self._parser.feed(chunk)
        except EventTooLarge as exc:
            raise StreamRefused(f"on the server's stream, {exc}") from exc
        for event in events:
            self._take(event)
        return False  # nothing that comes is the last

    def deadline(self, deadline: float) -> float:
        return deadline


def parse_endpoint(reached: ResolvedEndpoint, data: bytes) -> tuple[HttpTarget, str]:
    """Where messages go, and the query of it. Raises StreamRefused for anything off the server's origin."""
    if len(data) > MAX_ENDPOINT_BYTES:
        raise StreamRefused(f"the server's endpoint is longer than {MAX_ENDPOINT_BYTES} bytes")
    try:
        url = urljoin(reached.url, data.decode("ascii"))
        target = parse_target(url)
    except (ValueError, EgressRefused) as exc:
        raise StreamRefused("the server's endpoint is not a URL that can be used") from exc
    ours = reached.target
    if (target.is_tls, target.host, target.port) != (ours.is_tls, ours.host, ours.port):
        raise StreamRefused("the server's endpoint is not on its own origin, which is not followed")
    return target, urlsplit(url).query


MAX_NOISE_BYTES: Final = 1024 * 1024
MAX_NOISE_EVENTS: Final = 1_000
"""A server that sends more than either between two messages is no MCP server, and costs our time."""
_MAX_BACKGROUND_SENDS: Final = 32
"""A server that asks more than this at once, beside its answers, is flooding and gets no reply."""
_TELL_TIMEOUT_S: Final = 2.0
_DELIVER_TIMEOUT_S: Final = 10.0
_SESSION_GONE: Final = (404, 410)


class SseLegacyConnection:
    """`SseLegacyConnector` makes it, and opens it once it knows what the server speaks."""

    hello: ServerInfo
    _orders: ServerSubscriptions
    pid: int | None = None

    def __init__(
        self, reached: ResolvedEndpoint, numbers: Iterator[int], listener: ConnectionListener
    ) -> None:
        self._reached = reached
        self._numbers = numbers
        self._listener = listener
        self._heads = RequestHeads(reached.target, reached.headers)
        self._post_head = b""
        self._redactor = Redactor(reached.credentials)
        self._background = BackgroundTasks()
        self._clock = asyncio.get_running_loop().time
        self._relay = Relay(
            listener, self._redactor, background=self._background, tell=self._tell, deliver=self._deliver
        )
        self._is_settled = asyncio.Event()
        """Either the server has said where messages go, or it is over."""
        self._unanswered = PendingRequests(self._relay.deadline_of)
        self._noise_events = 0
        self._noise_bytes = 0
        self._refused: StartFailed | None = None
        """Why the server did not even open the stream."""
        self._end = ""
        self.is_open = False

    async def connect(self) -> None:
        """Open the stream, and learn where messages go. Raises StartFailed."""
        self._background.start(self._follow())
        await self._is_settled.wait()
        if self._end:
            raise self._refused or StartFailed(self._end)

    def open(self, hello: ServerInfo) -> None:
        """From now on it is a link: requests carry the envelope of their era, and the listener is told."""
        self.hello = self._redactor.hello(hello)
        self.is_open = True
        self._relay.era = hello.era
        self._orders = subscribe_on_one_stream(hello, self.exchange, self._background)
        self._orders.watch(frozenset())

    async def request(
        self,
        method: str,
        params: Params,
        *,
        timeout_s: float,
        headers: Mapping[str, str] = EMPTY,
        client: ClientChannel | None = None,
    ) -> RpcResponse:
        del headers  # this transport carries messages alone
        if client is not None and self._orders.is_quieter_than(client.log_level):
            await self._orders.set_level(client.log_level)
        return self._redactor.reply(await self.exchange(method, params, timeout_s, client))

    async def exchange(
        self, method: str, params: Params, timeout_s: float, client: ClientChannel | None = None
    ) -> RpcResponse:
        """Ask; before it is open, with exactly these params. Raises as `Link.request`, and StartFailed."""
        if self._end:
            raise ServerUnavailable(self._end)
        number = next(self._numbers)
        key = b"%d" % number
        deadline = self._clock() + timeout_s
        if self.is_open:
            params = self._relay.enter(key, params, client=client, deadline=deadline, timeout_s=timeout_s)
        answer = self._unanswered.add(key, deadline, lambda: _build_timeout(timeout_s))
        # Beside, because a server may answer on its stream before it has answered the POST.
        body = messages.encode_request(number, method, params)
        delivery = self._background.start(self._deliver_request(key, body, deadline))
        try:
            reply = await answer
            if method == "ping":
                await self._relay.settled(key)  # see `DedicatedConnection`
        except (CallTimedOut, asyncio.CancelledError):
            self._withdraw(key, delivery)
            raise
        else:
            return reply
        finally:
            self._unanswered.remove(key)
            self._relay.leave(key)

    async def notify(self, method: str, params: Params) -> None:
        """Say something during the start. Raises StartFailed."""
        answer = await self._post(
            messages.encode_notification(method, params), self._clock() + _TELL_TIMEOUT_S
        )
        if answer.status >= 300:
            raise StartFailed(f"it answered `{method}` with status {answer.status}")

    def watch(self, uris: frozenset[str]) -> Acknowledgement:
        return self._orders.watch(uris)

    async def aclose(self) -> None:
        self.is_open = False
        self._finish("the link was closed")
        await self._background.aclose()

    # What goes out

    async def _post(self, body: bytes, deadline: float) -> HttpResponse:
        return await self._reached.pool.send(with_body(self._post_head, body), deadline=deadline)

    async def _deliver_request(self, key: bytes, body: bytes, deadline: float) -> None:
        """Send a request. What becomes of it comes on the stream, unless it does not even arrive."""
        try:
            answer = await self._post(body, deadline)
        except ExchangeTimedOut:
            return  # whoever waits for the answer gives up at the same time
        except ConnectFailed as exc:
            self._unanswered.fail(key, ServerUnavailable(self._redactor.text(str(exc))))
        except ExchangeFailed as exc:
            self._unanswered.fail(key, unknown_outcome(exc))
        else:
            if answer.status >= 300:
                self._take_rejection(key, parse_rejected(answer, key))

    def _take_rejection(self, key: bytes, rejected: RequestRejected) -> None:
        try:
            reply = (
                convert_rejection(rejected, self._redactor) if self.is_open else interpret_rejection(rejected)
            )
        except (ServerUnavailable, StartFailed) as exc:
            self._unanswered.fail(key, exc)
        else:
            self._unanswered.answer(key, reply)
        if self.is_open and rejected.status in _SESSION_GONE and not rejected.is_ours:
            self._finish("the server no longer knows the session")

    def _withdraw(self, key: bytes, delivery: asyncio.Task[None] | None) -> None:
        """Say that nobody waits any more. Not during the start: `initialize` may not be cancelled."""
        if delivery is not None:
            delivery.cancel()
        if self.is_open:
            self._tell(messages.encode_cancelled(key))

    def _tell(self, body: bytes) -> None:
        """Send what nobody waits for."""
        if self._background.size < _MAX_BACKGROUND_SENDS + len(self._unanswered) + self._relay.size:
            self._background.start(self._deliver(body, _TELL_TIMEOUT_S))

    async def _deliver(self, body: bytes, timeout_s: float = _DELIVER_TIMEOUT_S) -> None:
        with contextlib.suppress(ConnectFailed, ExchangeFailed, ExchangeTimedOut):
            await self._post(body, self._clock() + timeout_s)

    # What comes in

    async def _follow(self) -> None:
        request = without_body(self._heads.follow())
        try:
            answer = await self._reached.pool.send(request, deadline=None, sink=SseLegacySink(self._take))
        except (ConnectFailed, ExchangeFailed) as exc:
            self._finish(str(exc))
        else:
            if not answer.is_stream:
                self._refused = _refusal(answer)
            self._finish("the server ended its stream")

    def _take(self, event: SseEvent) -> None:
        if event.type == b"endpoint":
            self._take_endpoint(event.data)
        elif event.type == b"message":
            self._take_message(event.data)

    def _take_endpoint(self, data: bytes) -> None:
        """Once: a server that moves its messages elsewhere later is not followed."""
        if self._post_head:
            return
        target, query = parse_endpoint(self._reached, data)
        self._post_head = RequestHeads(target, self._reached.headers).initialize()
        # Whoever knows the session can speak in it.
        session = [value for _, value in parse_qsl(query)]
        self._redactor.learn(*session)
        self._is_settled.set()

    def _take_message(self, data: bytes) -> None:
        try:
            message = messages.decode_incoming(data)
        except UNREADABLE:
            self._take_unreadable(data)
            return
        if message.method:
            self._take_from_server(message, data)
        elif message.id and message.is_response:
            self._unanswered.answer(
                bytes(message.id),
                messages.parse_response(message) if messages.is_utf8(data) else messages.NOT_UTF8,
            )
        else:
            self._take_noise(data)
            return
        self._noise_events = self._noise_bytes = 0

    def _take_unreadable(self, data: bytes) -> None:
        """An answer we cannot carry (half a character, NaN) fails its call now, and not at its deadline."""
        answered = messages.guess_response_id(data) if len(data) <= MAX_NOISE_BYTES else b""
        if not self._unanswered.answer(answered, messages.NOT_JSON):
            self._take_noise(data)

    def _take_from_server(self, message: messages.IncomingMessage, data: bytes) -> None:
        if not messages.is_utf8(data):
            return
        if message.id or self.is_open:
            self._relay.take(message)

    def _take_noise(self, data: bytes) -> None:
        self._noise_events += 1
        self._noise_bytes += len(data)
        if self._noise_events > MAX_NOISE_EVENTS or self._noise_bytes > MAX_NOISE_BYTES:
            raise StreamRefused("the server fills its stream with what is not MCP")

    def _finish(self, reason: str) -> None:
        if self._end:
            return
        self._end = self._redactor.text(reason)
        self._unanswered.fail_all(lambda: unknown_outcome(ExchangeFailed(self._end)))
        self._is_settled.set()
        self._background.cancel()
        self._reached.pool.close()
        if self.is_open:
            self._listener.on_closed(self._end)


def _build_timeout(timeout_s: float) -> CallTimedOut:
    return CallTimedOut(f"no answer from the server within {timeout_s:g} s")


def _refusal(answer: HttpResponse) -> StartFailed:
    """Why there is no stream."""
    try:
        interpret_rejection(parse_rejected(answer))
    except StartFailed as exc:
        return exc
    status = answer.status
    return StartFailed(
        f"it answers GET with status {status} and no event stream: is its transport `streamable_http`?"
    )


class SseLegacyConnector:
    """The opener of transport `http_sse_legacy`. Servers of either era may stand behind it."""

    def __init__(
        self,
        secrets: Secrets,
        egress: Egress,
        *,
        limits: HttpLimits | None = None,
        tls: ssl.SSLContext | None = None,
        start_timeout_s: float = START_TIMEOUT_S,
    ) -> None:
        """`tls` decides which servers are trusted; without it, the system's authorities do."""
        self._reach = EndpointResolver(secrets, egress, limits=limits, tls=tls)
        self._start_timeout_s = start_timeout_s
        # One sequence for all links: a request repeated on a new link must have a new id (SEP-2322).
        self._numbers = itertools.count(1)
        self._shy: set[str] = set()
        """Those whose stream ended when they were probed: some end at any first message but `initialize`."""

    async def __call__(
        self,
        record: ServerRecord,
        listener: ConnectionListener,
        *,
        known_era: Revision | None,
        capabilities: bytes = SHARED_CAPABILITIES,
    ) -> SseLegacyConnection:
        link = SseLegacyConnection(await self._reach.server(record), self._numbers, listener)
        era: Revision | None = "legacy" if known_era is None and record.server_id in self._shy else known_era
        timeout_s = choose_start_timeout(record, self._start_timeout_s)
        try:
            async with asyncio.timeout(timeout_s):
                await link.connect()
                link.open(
                    await negotiate(link.exchange, link.notify, known_era=era, capabilities=capabilities)
                )
        except (TimeoutError, CallTimedOut, ExchangeTimedOut) as exc:
            reason = f"no answer within {timeout_s:g} s"
            raise StartFailed(reason, state="list_timeout") from exc
        except (ServerUnavailable, ConnectFailed, ExchangeFailed) as exc:
            self._shy ^= {record.server_id}
            raise StartFailed(str(exc)) from exc
        finally:
            if not link.is_open:
                await link.aclose()
        self._shy.discard(record.server_id)
        return link
