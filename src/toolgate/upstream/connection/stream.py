"""A connection whose server sends everything on one stream: a child's standard output, or an SSE stream.

It needs no task, not even per request: a response wakes the one future that waits for it. Non-MCP bytes are
bounded, and a message never counts as the response to a request that was not sent.
"""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from typing import Final

import msgspec

from toolgate.errors import CallTimedOut, ServerUnavailable, ToolgateError
from toolgate.model.json_text import UNREADABLE
from toolgate.model.servers import EMPTY
from toolgate.upstream.connection import contract, messages
from toolgate.upstream.connection.messages import Redactor
from toolgate.upstream.connection.relay import Relay
from toolgate.upstream.connection.subscriptions import StatefulSubscriptions, StatelessSubscriptions

MAX_NOISE_BYTES: Final = 1024 * 1024
"""A server that sends more non-MCP bytes between two messages is not an MCP server, and costs our time."""
_FOREVER_S: Final = 10 * 365 * 86_400.0  # a choice: ten years, longer than any connection


class StreamConnection(ABC):
    """Sends requests and finds their responses on the stream. Subclasses move the bytes."""

    server_info: contract.ServerInfo
    _subscriptions: StatefulSubscriptions | StatelessSubscriptions
    pid: int | None = None

    def __init__(
        self,
        name: str,
        numbers: Iterator[int],
        listener: contract.ConnectionListener,
        redactor: Redactor,
        *,
        max_noise: int,
    ) -> None:
        """Errors show `name`; `numbers` become request ids; `max_noise` bounds the items that are not MCP."""
        self._name = name
        self._loop = asyncio.get_running_loop()
        self._numbers = numbers
        self._listener = listener
        self._redactor = redactor
        self._max_noise = max_noise
        self._background = contract.BackgroundTasks()
        self._relay = Relay(listener, redactor, self._background, self._send_now, self._deliver)
        self._pending: dict[bytes, asyncio.Future[contract.RpcResponse]] = {}
        """The requests that wait for a response, by number. A response is delivered once."""
        self._timers: dict[bytes, asyncio.TimerHandle] = {}
        self._has_room = asyncio.Event()
        """Whether the server takes input."""
        self._has_room.set()
        self._noise_items = 0
        self._noise_bytes = 0
        self._end = ""
        self.is_open = False
        self.dropped_items = 0
        """Lines or events that were not JSON-RPC messages."""
        self.dropped_responses = 0
        """Responses to no pending request: unknown, repeated, late and null ids."""

    def open(self, info: contract.ServerInfo) -> None:
        """Begin normal operation: requests carry their revision's envelope, and the listener is notified."""
        self.server_info = self._redactor.mask_info(info)
        self.is_open = True
        self._relay.revision = info.revision
        if info.revision == "legacy":
            self._subscriptions = StatefulSubscriptions(info, self.exchange, self._background)
        else:
            self._subscriptions = StatelessSubscriptions(info, self._listen, self._background)
        self._subscriptions.watch(frozenset())

    async def _listen(self, params: contract.Params, on_open: Callable[[], None]) -> None:
        on_open()  # the server reads first what is written first
        with suppress(ToolgateError):
            await self.exchange(messages.LISTEN, params, _FOREVER_S)

    async def request(
        self,
        method: str,
        params: contract.Params,
        *,
        timeout_s: float,
        headers: Mapping[str, str] = EMPTY,
        client: contract.ClientChannel | None = None,
    ) -> contract.RpcResponse:
        del headers  # this transport sends messages only
        levels = self._subscriptions if isinstance(self._subscriptions, StatefulSubscriptions) else None
        if client is not None and levels is not None and levels.is_quieter_than(client.log_level):
            await levels.set_level(client.log_level)
        return self._redactor.mask_response(await self.exchange(method, params, timeout_s, client))

    async def exchange(
        self,
        method: str,
        params: contract.Params,
        timeout_s: float,
        client: contract.ClientChannel | None = None,
    ) -> contract.RpcResponse:
        """Send a request; before the connection is open, with exactly these params. Raises as `request`."""
        if not self._has_room.is_set():
            timeout_s = await self._wait_for_room(method, timeout_s)
        if self._end:
            raise self._build_unavailable("nothing was sent")
        number = next(self._numbers)
        key = b"%d" % number
        deadline = self._loop.time() + timeout_s
        if self.is_open:
            params = self._relay.enter(key, params, client=client, deadline=deadline, timeout_s=timeout_s)
        pending: asyncio.Future[contract.RpcResponse] = self._loop.create_future()
        self._pending[key] = pending
        late = (method, timeout_s)
        self._timers[key] = self._loop.call_at(deadline, self._check_deadline, key, deadline, late)
        sending: asyncio.Task[None] | None = None
        try:
            sending = self._send_request(key, messages.encode_request(number, method, params), deadline)
            response = await pending
            if method == "ping":
                await self._relay.settle(key)  # see `DedicatedConnection`
        except (CallTimedOut, asyncio.CancelledError):
            if sending is not None:
                sending.cancel()
            if self.is_open:  # not during the start: `initialize` may not be cancelled
                self._send_now(messages.encode_cancelled(key))
            raise
        else:
            return response
        finally:
            self._pending.pop(key, None)
            self._timers.pop(key).cancel()
            self._relay.leave(key)

    def _resolve(self, key: bytes, response: contract.RpcResponse) -> bool:
        future = self._pending.pop(key, None)
        if future is None or future.done():
            return False
        future.set_result(response)
        return True

    def _fail(self, key: bytes, error: Exception) -> None:
        """Fail a request, if it still waits."""
        future = self._pending.pop(key, None)
        if future is not None and not future.done():
            future.set_exception(error)

    def _check_deadline(self, key: bytes, deadline: float, late: tuple[str, float]) -> None:
        """`late`: the request's method and its timeout."""
        now, deadline = self._loop.time(), self._relay.deadline_of(key, deadline)
        if deadline <= now:
            method, timeout_s = late
            self._fail(
                key, CallTimedOut(f"{self._name} did not respond to `{method}` within {timeout_s:g} s")
            )
        elif key in self._pending:
            # Not at the deadline itself: it may move back.
            check_at = min(deadline, now + contract.DEADLINE_CHECK_S)
            self._timers[key] = self._loop.call_at(check_at, self._check_deadline, key, deadline, late)

    def watch(self, uris: frozenset[str]) -> contract.Acknowledgement:
        return self._subscriptions.watch(uris)

    async def _wait_for_room(self, method: str, timeout_s: float) -> float:
        """Wait until the server takes input again; returns the time that is left."""
        ends_at = self._loop.time() + timeout_s
        try:
            async with asyncio.timeout(timeout_s):
                while not self._has_room.is_set():
                    await self._has_room.wait()
        except TimeoutError:
            raise CallTimedOut(f"{self._name} does not read its input: `{method}` was not sent") from None
        return max(0.0, ends_at - self._loop.time())

    @abstractmethod
    def _send_request(self, key: bytes, message: bytes, deadline: float) -> asyncio.Task[None] | None:
        """Send a request, or start a task that does. Raises ServerUnavailable."""

    @abstractmethod
    def _send_now(self, message: bytes) -> None:
        """Send a message that no one waits for, or drop it."""

    @abstractmethod
    async def _deliver(self, message: bytes) -> None:
        """Send a message that the server waits for, as soon as it takes input."""

    @abstractmethod
    def _build_unavailable(self, outcome: str) -> ServerUnavailable:
        """The error of a request whose connection has ended."""

    @abstractmethod
    def _on_too_much_noise(self) -> None:
        """The stream holds too much that is not MCP."""

    def _close_transport(self) -> None:  # noqa: B027 - a child closes its pipes itself
        """The connection has ended."""

    def _receive(self, data: bytes | bytearray) -> None:
        try:
            message = messages.decode_incoming(data)
        except UNREADABLE:
            # A response that the gateway cannot relay (half a character, NaN) fails its call now, not later.
            key = messages.guess_response_id(data) if len(data) <= MAX_NOISE_BYTES else b""
            if not self._resolve(key, messages.NOT_JSON):
                self._receive_noise(data)
            return
        if message.method:
            if not messages.is_utf8(data):
                self.dropped_items += 1
            elif message.id or self.is_open:
                self._relay.receive(message)
        elif message.id and (message.result is not msgspec.UNSET or message.error):
            response = messages.parse_response(message) if messages.is_utf8(data) else messages.NOT_UTF8
            if not self._resolve(bytes(message.id), response):
                self.dropped_responses += 1
        else:
            self._receive_noise(data)  # JSON, but a log line of the server
            return
        self._noise_items = self._noise_bytes = 0

    def _receive_noise(self, data: bytes | bytearray) -> None:
        self.dropped_items += 1
        self._noise_items += 1
        self._noise_bytes += len(data) + 1
        if self._noise_items > self._max_noise or self._noise_bytes > MAX_NOISE_BYTES:
            self._on_too_much_noise()

    @property
    def end_reason(self) -> str:
        """Why the connection ended, for operators; empty while it is open."""
        return self._end

    def _finish(self, reason: str) -> None:
        if self._end:
            return
        self._end = reason
        for key in tuple(self._pending):
            self._fail(key, self._build_unavailable("the outcome of the call is unknown"))
        self._background.cancel()
        self._close_transport()
        if self.is_open:
            self._listener.on_closed(self.end_reason)
