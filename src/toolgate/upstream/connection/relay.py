"""Relays messages between the server of a connection and the clients behind its requests, while those run.

A server reaches a client only about a request of that client, and only if the relay is certain which request
that is. The request's own stream or its number identifies it; or it is the only one in flight, and no other
principal has used the connection for as long as a call may last, since the server may still work on a
cancelled call. The relay drops or rejects all else. Open client requests are bounded and end with their call.
"""

import asyncio
import logging
import math
from collections.abc import Awaitable, Callable
from dataclasses import KW_ONLY, dataclass, field
from typing import Final

import msgspec

from toolgate.errors import InvalidParams
from toolgate.model.json_text import UNREADABLE, decode_members
from toolgate.model.protocol import CANCELLED, CAPABILITY_OF, LOG_MESSAGE, PROGRESS
from toolgate.model.tools import Revision
from toolgate.upstream.connection import messages
from toolgate.upstream.connection.contract import (
    CALL_CEILING_S,
    BackgroundTasks,
    ClientChannel,
    ConnectionListener,
    Params,
    RpcResponse,
)
from toolgate.upstream.connection.messages import (
    INTERNAL_ERROR,
    INVALID_PARAMS,
    METHOD_NOT_FOUND,
    Redactor,
    build_error,
)

# Requests that a server may have open at once: people answer them, so a handful is a flood. A principal has
# three quarters of its connection's, so that a server that floods one still reaches the others.
MAX_CLIENT_REQUESTS: Final = 32
MAX_CLIENT_REQUESTS_PER_PRINCIPAL: Final = 24
MAX_CLIENT_REQUESTS_PER_CALL: Final = 8  # a quarter of the connection's: one call leaves room for others
MAX_TOKEN_BYTES: Final = 256
"""The longest progress token of a client: every progress notification repeats it."""
MAX_NOTIFICATION_BYTES: Final = 1024 * 1024
"""The longest notification to a client. A longer one is not about a request, and costs everyone's time."""

EARLY_ROOTS_S: Final = 1.0
"""How long a `roots/list` waits for the first client of a connection: servers send it when they start."""
SETTLE_S: Final = 0.25
"""The time a server gets to process a client's response. The filesystem server reads each directory, and no
message says when it has."""

_CALL_NOTIFICATIONS: Final = frozenset({LOG_MESSAGE, "notifications/elicitation/complete"})
_IGNORED_NOTIFICATION: Final = "notifications/subscriptions/acknowledged"

_log: Final = logging.getLogger(__name__)


_PONG: Final = RpcResponse(result=b"{}")
_NOT_FOUND: Final = build_error(METHOD_NOT_FOUND, "method not found")
_NO_CLIENT: Final = build_error(METHOD_NOT_FOUND, "no client can take this request: no call is in flight")
_UNCERTAIN: Final = build_error(
    METHOD_NOT_FOUND,
    "the request cannot be matched to a client, because several clients share one connection: "
    'set `sharing = "per_session"` in the record of this server',
)
_NOT_AN_OBJECT: Final = build_error(INVALID_PARAMS, "`params` is not an object")
_TOO_MANY: Final = build_error(INTERNAL_ERROR, "too many requests to the client at once")
_FAILED: Final = build_error(INTERNAL_ERROR, "the request to the client failed")


@dataclass(slots=True)
class _ClientRequests:
    """The open requests to the client behind a call. While any is open, the call's own time does not run."""

    deadline: float
    ceiling: float
    left_s: float = 0.0
    open: dict[bytes, asyncio.Task[None]] = field(default_factory=dict)
    """By the server's ids."""

    def begin(self, request_id: bytes, task: asyncio.Task[None], now: float) -> None:
        if not self.open:
            self.left_s = self.deadline - now
            self.deadline = self.ceiling
        self.open[request_id] = task

    def end(self, request_id: bytes, now: float) -> asyncio.Task[None] | None:
        """The task that waits for the client; None if the server no longer waits for the response."""
        task = self.open.pop(request_id, None)
        if task is not None and not self.open:
            self.deadline = min(now + self.left_s, self.ceiling)
        return task

    def cancel(self) -> None:
        for task in self.open.values():
            task.cancel()
        self.open.clear()


@dataclass(eq=False)
class Relay:
    """The clients behind one connection's requests."""

    listener: ConnectionListener
    redactor: Redactor
    background: BackgroundTasks
    send_now: Callable[[bytes], None]
    """Sends a message to the server at once or never."""
    deliver: Callable[[bytes], Awaitable[None]]
    """Sends a message to the server when it can take one."""
    _: KW_ONLY
    call_ceiling_s: float = CALL_CEILING_S
    revision: Revision = field(default="modern", init=False)
    """Only a session-based server sends requests."""
    size: int = field(default=0, init=False)
    """Client requests that are open or whose responses are on their way."""

    def __post_init__(self) -> None:
        self._clock = asyncio.get_running_loop().time
        self._requests: dict[bytes, tuple[ClientChannel, float, float]] = {}
        """Requests in flight that have a client, by number: the client, the deadline, the timeout."""
        self._tokens: dict[bytes, bytes] = {}
        """The clients' own progress tokens, by number."""
        self._client_requests: dict[bytes, _ClientRequests] = {}
        self._early: list[messages.IncomingMessage] = []
        """Server requests from before the connection had a client."""
        self._principal_id = ""
        self._sole_principal_since_s = -math.inf
        """Since when that principal alone has sent requests."""

    # The gateway's requests

    def enter(
        self, key: bytes, params: Params, *, client: ClientChannel | None, deadline: float, timeout_s: float
    ) -> Params:
        """Begin request `key` for `client` and return the params to send. Raises InvalidParams.

        A request that has a client needs its `leave`. The server gets `key` as its progress token: the tokens
        of different clients may be equal.
        """
        if messages.may_want_progress(params):
            sent = self._replace_progress_token(key, params, client)
        else:
            sent = messages.build_params(self.revision, params, client)
        if client is not None:
            if client.principal_id != self._principal_id:
                if self._principal_id:
                    self._sole_principal_since_s = self._clock()
                self._principal_id = client.principal_id
            self._requests[key] = (client, deadline, timeout_s)
            if self._early:
                self._forward_early_requests()
        return sent

    def _replace_progress_token(self, key: bytes, params: Params, client: ClientChannel | None) -> Params:
        members = messages.parse_meta(params["_meta"])
        token = members.pop(messages.PROGRESS_KEY, None)
        if token is not None and len(token) > MAX_TOKEN_BYTES:
            raise InvalidParams(f"`progressToken` has more than {MAX_TOKEN_BYTES} bytes")
        if token is not None and client is not None:
            self._tokens[key] = bytes(token)
            members[messages.PROGRESS_KEY] = msgspec.Raw(key)
        return messages.add_meta(self.revision, params, members, client)

    def leave(self, key: bytes) -> None:
        """End request `key`: its client gets no more requests and no more notifications."""
        if self._requests.pop(key, None) is None:
            return
        self._tokens.pop(key, None)
        open_requests = self._client_requests.pop(key, None)
        if open_requests is not None:
            open_requests.cancel()

    async def settle(self, key: bytes) -> None:
        """Return once the client of request `key` has responded and the server has processed that."""
        while (of_call := self._client_requests.get(key)) is not None and of_call.open:
            await asyncio.wait(tuple(of_call.open.values()))
        if of_call is not None:
            await asyncio.sleep(SETTLE_S)

    def deadline_of(self, key: bytes, deadline: float) -> float:
        """The current deadline of request `key`, which was `deadline` when it began.

        While requests to its client are open, check again later: the deadline may move back.
        """
        of_call = self._client_requests.get(key)
        return deadline if of_call is None else of_call.deadline

    # The server's notifications

    def receive(self, message: messages.IncomingMessage, request: bytes = b"") -> None:
        """Take a message that is not a response. `request` is the one on whose own stream it came, if any."""
        method = message.method
        if message.id:
            self._receive_request(message, request)
        elif method == PROGRESS or method in _CALL_NOTIFICATIONS:
            if len(message.params) <= MAX_NOTIFICATION_BYTES:
                self._notify_client(message, request)
        elif method == CANCELLED:
            cancelled = bytes(_parse_members(message.params).get("requestId", b""))
            for of_call in self._client_requests.values():
                if (task := of_call.end(cancelled, self._clock())) is not None:
                    task.cancel()
        elif method != _IGNORED_NOTIFICATION:
            self.listener.on_notification(method, bytes(message.params))

    def _notify_client(self, message: messages.IncomingMessage, request: bytes) -> None:
        method, params = message.method, bytes(message.params)
        if method == PROGRESS:
            members = _parse_members(message.params)
            owner = bytes(members.get(messages.PROGRESS_KEY, b""))
            if owner not in self._tokens:
                return
            params = msgspec.json.encode({**members, messages.PROGRESS_KEY: msgspec.Raw(self._tokens[owner])})
        else:
            owner = self._find_owner(request) if _is_object(message.params) else b""
        if owner:
            self._requests[owner][0].notify(method, self.redactor.raw(params))

    def _find_owner(self, request: bytes) -> bytes:
        """The request that a server's message belongs to; empty if that is not certain."""
        if request:
            return request if request in self._requests else b""
        if len(self._requests) != 1 or self._clock() - self._sole_principal_since_s < self.call_ceiling_s:
            return b""
        return next(iter(self._requests))

    # The server's requests

    def _receive_request(self, message: messages.IncomingMessage, request: bytes) -> None:
        if message.method == "ping":
            self.send_now(messages.encode_response(message, _PONG))
            return
        owner = self._find_owner(request)
        is_first = not self._principal_id and len(self._early) < MAX_CLIENT_REQUESTS_PER_CALL
        if not owner and is_first and self.revision == "legacy" and message.method == "roots/list":
            self._early.append(message)
            asyncio.get_running_loop().call_later(EARLY_ROOTS_S, self._forward_early_requests)
        else:
            self._forward_or_reject(message, owner)

    def _forward_early_requests(self) -> None:
        early, self._early = self._early, []
        for message in early:
            self._forward_or_reject(message, self._find_owner(b""))

    def _forward_or_reject(self, message: messages.IncomingMessage, owner: bytes) -> None:
        rejection = self._find_rejection(message, owner)
        if rejection is not None:
            self.send_now(messages.encode_response(message, rejection))
        else:
            self._forward_request(message, owner)

    def _find_rejection(self, message: messages.IncomingMessage, owner: bytes) -> RpcResponse | None:
        if self.revision == "modern" or message.method not in CAPABILITY_OF:
            return _NOT_FOUND
        if not owner:
            return _UNCERTAIN if self._requests else _NO_CLIENT
        if not _is_object(message.params):
            return _NOT_AN_OBJECT
        of_call = self._client_requests.get(owner)
        is_full = of_call is not None and len(of_call.open) >= MAX_CLIENT_REQUESTS_PER_CALL
        if is_full or self.size >= MAX_CLIENT_REQUESTS or self._is_principal_at_limit(owner):
            return _TOO_MANY
        return None

    def _is_principal_at_limit(self, owner: bytes) -> bool:
        principal_id = self._requests[owner][0].principal_id
        own = (
            len(of_call.open)
            for key, of_call in self._client_requests.items()
            if self._requests[key][0].principal_id == principal_id
        )
        return sum(own) >= MAX_CLIENT_REQUESTS_PER_PRINCIPAL

    def _forward_request(self, message: messages.IncomingMessage, owner: bytes) -> None:
        request_id = bytes(message.id)
        if any(request_id in of_call.open for of_call in self._client_requests.values()):
            return  # the server repeats itself: one response will do
        client, deadline, timeout_s = self._requests[owner]
        of_call = self._client_requests.get(owner)
        if of_call is None:
            ceiling = deadline - timeout_s + self.call_ceiling_s
            of_call = self._client_requests[owner] = _ClientRequests(deadline, ceiling)
        task = self.background.start(self._request_client(message, of_call, client))
        if task is not None:
            self.size += 1
            task.add_done_callback(self._count_out)
            of_call.begin(request_id, task, self._clock())

    def _count_out(self, _task: asyncio.Task[None]) -> None:
        self.size -= 1

    async def _request_client(
        self, message: messages.IncomingMessage, of_call: _ClientRequests, client: ClientChannel
    ) -> None:
        try:
            response = await client.request(message.method, self.redactor.raw(bytes(message.params)))
        except Exception:
            _log.exception("the request `%s` to a client failed", message.method)
            response = _FAILED
        finally:
            is_awaited = of_call.end(bytes(message.id), self._clock()) is not None
        if is_awaited:
            await self.deliver(messages.encode_response(message, response))


def _is_object(params: msgspec.Raw) -> bool:
    return bytes(params)[:1] == b"{"


def _parse_members(params: msgspec.Raw) -> Params:
    """The members of a message's `params`; empty if it is not an object."""
    try:
        return decode_members(params)
    except UNREADABLE:
        return {}
