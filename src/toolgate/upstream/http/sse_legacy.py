"""A live link to a server of the 2024 transport: one stream for all it says, one POST for each message.

The stream is the link: when it ends, so does everything. Where messages go is for the server to say, and
taken only within its own origin. What it sends is bounded, and nothing of it is taken for the answer to a
question it was not asked.
"""

import asyncio
import contextlib
from collections.abc import Iterator, Mapping
from typing import Final
from urllib.parse import parse_qsl

from toolgate.errors import CallTimedOut, ServerUnavailable
from toolgate.model.raw import UNREADABLE
from toolgate.model.servers import EMPTY
from toolgate.upstream.background import Background
from toolgate.upstream.connection import messages
from toolgate.upstream.connection.contract import (
    ClientSide,
    Hello,
    LinkListener,
    Params,
    Reply,
    StartFailed,
    Told,
)
from toolgate.upstream.connection.relay import Relay
from toolgate.upstream.connection.subscriptions import Orders, orders_on_one_stream
from toolgate.upstream.connection.tasks import Unanswered
from toolgate.upstream.http.client_connection import Answer, ExchangeFailed, ExchangeTimedOut, StreamRefused
from toolgate.upstream.http.connection_pool import ConnectFailed
from toolgate.upstream.http.endpoint import Heads, with_body, without_body
from toolgate.upstream.http.negotiation import evidence
from toolgate.upstream.http.responses import Rejected, parse_rejected
from toolgate.upstream.http.sse import Event
from toolgate.upstream.reach import Reached
from toolgate.upstream.redaction import Redactor
from toolgate.upstream.sse_legacy_stream import EventStream, parse_endpoint
from toolgate.upstream.streamable.failures import reply_to_rejected, unknown_outcome

MAX_NOISE_BYTES: Final = 1024 * 1024
MAX_NOISE_EVENTS: Final = 1_000
"""A server that sends more than either between two messages is no MCP server, and costs our time."""
_MAX_BESIDE: Final = 32
"""A server that asks more than this at once, beside its answers, is flooding and gets no reply."""
_TELL_TIMEOUT_S: Final = 2.0
_DELIVER_TIMEOUT_S: Final = 10.0
_SESSION_GONE: Final = (404, 410)


class SseLink:
    """`SseLegacyOpener` makes it, and opens it once it knows what the server speaks."""

    hello: Hello
    _orders: Orders
    pid: int | None = None

    def __init__(self, reached: Reached, numbers: Iterator[int], listener: LinkListener) -> None:
        self._reached = reached
        self._numbers = numbers
        self._listener = listener
        self._heads = Heads(reached.target, reached.headers)
        self._post_head = b""
        self._redactor = Redactor(reached.credentials)
        self._background = Background()
        self._clock = asyncio.get_running_loop().time
        self._relay = Relay(
            listener, self._redactor, background=self._background, tell=self._tell, deliver=self._deliver
        )
        self._is_settled = asyncio.Event()
        """Either the server has said where messages go, or it is over."""
        self._unanswered = Unanswered(self._relay.deadline_of)
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

    def open(self, hello: Hello) -> None:
        """From now on it is a link: requests carry the envelope of their era, and the listener is told."""
        self.hello = self._redactor.hello(hello)
        self.is_open = True
        self._relay.era = hello.era
        self._orders = orders_on_one_stream(hello, self.exchange, self._background)
        self._orders.watch(frozenset())

    async def request(
        self,
        method: str,
        params: Params,
        *,
        timeout_s: float,
        headers: Mapping[str, str] = EMPTY,
        client: ClientSide | None = None,
    ) -> Reply:
        del headers  # this transport carries messages alone
        if client is not None and self._orders.is_quieter_than(client.log_level):
            await self._orders.set_level(client.log_level)
        return self._redactor.reply(await self.exchange(method, params, timeout_s, client))

    async def exchange(
        self, method: str, params: Params, timeout_s: float, client: ClientSide | None = None
    ) -> Reply:
        """Ask; before it is open, with exactly these params. Raises as `Link.request`, and StartFailed."""
        if self._end:
            raise ServerUnavailable(self._end)
        number = next(self._numbers)
        key = b"%d" % number
        deadline = self._clock() + timeout_s
        if self.is_open:
            params = self._relay.enter(key, params, client=client, deadline=deadline, timeout_s=timeout_s)
        answer = self._unanswered.add(key, deadline, lambda: _late(timeout_s))
        # Beside, because a server may answer on its stream before it has answered the POST.
        body = messages.encode_request(number, method, params)
        delivery = self._background.start(self._deliver_request(key, body, deadline))
        try:
            reply = await answer
            if method == "ping":
                await self._relay.settled(key)  # see `SessionLink`
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

    def watch(self, uris: frozenset[str]) -> Told:
        return self._orders.watch(uris)

    async def aclose(self) -> None:
        self.is_open = False
        self._finish("the link was closed")
        await self._background.aclose()

    # What goes out

    async def _post(self, body: bytes, deadline: float) -> Answer:
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

    def _take_rejection(self, key: bytes, rejected: Rejected) -> None:
        try:
            reply = reply_to_rejected(rejected, self._redactor) if self.is_open else evidence(rejected)
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
        if self._background.size < _MAX_BESIDE + len(self._unanswered) + self._relay.size:
            self._background.start(self._deliver(body, _TELL_TIMEOUT_S))

    async def _deliver(self, body: bytes, timeout_s: float = _DELIVER_TIMEOUT_S) -> None:
        with contextlib.suppress(ConnectFailed, ExchangeFailed, ExchangeTimedOut):
            await self._post(body, self._clock() + timeout_s)

    # What comes in

    async def _follow(self) -> None:
        request = without_body(self._heads.follow())
        try:
            answer = await self._reached.pool.send(request, deadline=None, sink=EventStream(self._take))
        except (ConnectFailed, ExchangeFailed) as exc:
            self._finish(str(exc))
        else:
            if not answer.is_stream:
                self._refused = _refusal(answer)
            self._finish("the server ended its stream")

    def _take(self, event: Event) -> None:
        if event.type == b"endpoint":
            self._take_endpoint(event.data)
        elif event.type == b"message":
            self._take_message(event.data)

    def _take_endpoint(self, data: bytes) -> None:
        """Once: a server that moves its messages elsewhere later is not followed."""
        if self._post_head:
            return
        target, query = parse_endpoint(self._reached, data)
        self._post_head = Heads(target, self._reached.headers).initialize()
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
                bytes(message.id), messages.reply_of(message) if messages.is_utf8(data) else messages.NOT_UTF8
            )
        else:
            self._take_noise(data)
            return
        self._noise_events = self._noise_bytes = 0

    def _take_unreadable(self, data: bytes) -> None:
        """An answer we cannot carry (half a character, NaN) fails its call now, and not at its deadline."""
        answered = messages.guess_answered(data) if len(data) <= MAX_NOISE_BYTES else b""
        if not self._unanswered.answer(answered, messages.NOT_JSON):
            self._take_noise(data)

    def _take_from_server(self, message: messages.Incoming, data: bytes) -> None:
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


def _late(timeout_s: float) -> CallTimedOut:
    return CallTimedOut(f"no answer from the server within {timeout_s:g} s")


def _refusal(answer: Answer) -> StartFailed:
    """Why there is no stream."""
    try:
        evidence(parse_rejected(answer))
    except StartFailed as exc:
        return exc
    status = answer.status
    return StartFailed(
        f"it answers GET with status {status} and no event stream: is its transport `streamable_http`?"
    )
