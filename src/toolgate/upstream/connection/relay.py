"""What passes between the server of a link and the clients behind its requests, while those run.

A server reaches a client only about a request of that client's, and only where it is certain whose request it
means: on a stream that belongs to one request, by the number of the request, or while there is only one that
it can mean. That is so while one is in flight, and one principal alone has used the link for as long as a
call may last: a server may still be busy with what somebody else has given up. Everything else is dropped or
refused. What is open is bounded, and ends with its request.
"""

import asyncio
import logging
import math
from collections.abc import Awaitable, Callable
from typing import Final

import msgspec

from toolgate.errors import InvalidParams
from toolgate.model.json_text import UNREADABLE, decode_members
from toolgate.model.protocol import CANCELLED, CAPABILITY_OF, LOG_MESSAGE, PROGRESS
from toolgate.model.tools import Revision
from toolgate.upstream.connection import messages
from toolgate.upstream.connection.contract import (
    CALL_CEILING_S,
    ClientChannel,
    ConnectionListener,
    Params,
    RpcResponse,
)
from toolgate.upstream.connection.tasks import BackgroundTasks
from toolgate.upstream.redaction import Redactor

MAX_CLIENT_REQUESTS: Final = 32
MAX_CLIENT_REQUESTS_PER_PRINCIPAL: Final = 24
MAX_CLIENT_REQUESTS_PER_CALL: Final = 8
"""What a server may ask at once: on one link, one principal, and about one request."""
MAX_TOKEN_BYTES: Final = 256
"""Of what a client calls the progress of its request: it stands in every word about it."""
MAX_NOTIFICATION_BYTES: Final = 1024 * 1024
"""Of one notification to a client. What is longer is no word about a request, and costs everybody's time."""

EARLY_ROOTS_S: Final = 1.0
"""How long a question about roots waits for the first client of a link: servers ask it when they start."""
SETTLE_S: Final = 0.25
"""What a server gets to take in what its client answered. The filesystem server looks at each directory, and
no message says when it has."""

_CALL_NOTIFICATIONS: Final = frozenset({LOG_MESSAGE, "notifications/elicitation/complete"})
_IGNORED_NOTIFICATION: Final = "notifications/subscriptions/acknowledged"

_log: Final = logging.getLogger(__name__)


def _error(code: int, message: str) -> RpcResponse:
    return RpcResponse(error=msgspec.json.encode({"code": code, "message": message}))


_PONG: Final = RpcResponse(result=b"{}")
_NOT_FOUND: Final = _error(-32601, "method not found")
_NO_CLIENT: Final = _error(-32601, "there is no client to be asked: no call is in flight")
_UNCERTAIN: Final = _error(
    -32601,
    "whose client is meant is not certain, because several share one connection: "
    'set `sharing = "per_session"` in the record of this server',
)
_NO_OBJECT: Final = _error(-32602, "`params` is not an object")
_TOO_MANY: Final = _error(-32603, "too much is asked at once")
_FAILED: Final = _error(-32603, "the client could not be asked")


class _ClientRequests:
    """What the client behind one request is being asked. Meanwhile the request's own time stands still."""

    __slots__ = ("_ceiling", "_left_s", "deadline", "open")

    def __init__(self, deadline: float, ceiling: float) -> None:
        self.deadline = deadline
        self.open: dict[bytes, asyncio.Task[None]] = {}
        """By the server's ids."""
        self._ceiling = ceiling
        self._left_s = 0.0

    def begin(self, ask_id: bytes, task: asyncio.Task[None], now: float) -> None:
        if not self.open:
            self._left_s = self.deadline - now
            self.deadline = self._ceiling
        self.open[ask_id] = task

    def end(self, ask_id: bytes, now: float) -> asyncio.Task[None] | None:
        """Who asked it; None where nobody waits for the answer any more."""
        task = self.open.pop(ask_id, None)
        if task is not None and not self.open:
            self.deadline = min(now + self._left_s, self._ceiling)
        return task

    def cancel(self) -> None:
        for task in self.open.values():
            task.cancel()
        self.open.clear()


class Relay:
    """The clients behind one link's requests."""

    def __init__(
        self,
        listener: ConnectionListener,
        redactor: Redactor,
        *,
        background: BackgroundTasks,
        tell: Callable[[bytes], None],
        deliver: Callable[[bytes], Awaitable[None]],
    ) -> None:
        """Both send a message to the server: `tell` at once or never, `deliver` when it can be taken."""
        self._listener = listener
        self._redactor = redactor
        self._background = background
        self._tell = tell
        self._deliver = deliver
        self._clock = asyncio.get_running_loop().time
        self._requests: dict[bytes, tuple[ClientChannel, float, float]] = {}
        """Those in flight that have a client, by their numbers: the client, the deadline, the time given."""
        self._tokens: dict[bytes, bytes] = {}
        """What the clients of some call the progress of theirs."""
        self._asked: dict[bytes, _ClientRequests] = {}
        self._early: list[messages.IncomingMessage] = []
        """What was asked before the link had a client."""
        self._principal_id = ""
        self._sole_principal_since_s = -math.inf
        """Since when nobody but that principal has made requests."""
        self.era: Revision = "modern"
        """Only a legacy server has requests of its own."""
        self.size = 0
        """Questions that are open or whose answers are on their way."""

    # Our requests

    def enter(
        self, key: bytes, params: Params, *, client: ClientChannel | None, deadline: float, timeout_s: float
    ) -> Params:
        """Request `key` begins, for `client`: the params it is sent with. Raises InvalidParams.

        Every one that has a client needs its `leave`. The server gets `key` for a progress token: those of
        clients are their own, and alike.
        """
        if messages.may_want_progress(params):
            sent = self._replace_progress_token(key, params, client)
        else:
            sent = messages.build_params(self.era, params, client)
        if client is not None:
            if client.principal_id != self._principal_id:
                self._change_principal(client.principal_id)
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
        return messages.add_meta(self.era, params, members, client)

    def _change_principal(self, principal_id: str) -> None:
        if self._principal_id:
            self._sole_principal_since_s = self._clock()
        self._principal_id = principal_id

    def leave(self, key: bytes) -> None:
        """Request `key` is over: its client is asked nothing any more, and hears nothing."""
        if self._requests.pop(key, None) is None:
            return
        self._tokens.pop(key, None)
        asked = self._asked.pop(key, None)
        if asked is not None:
            asked.cancel()

    async def settled(self, key: bytes) -> None:
        """Returns once the client of request `key` has answered all that it was asked so far.

        Then its server has had a moment to take that in.
        """
        while (asked := self._asked.get(key)) is not None and asked.open:
            await asyncio.wait(tuple(asked.open.values()))
        if asked is not None:
            await asyncio.sleep(SETTLE_S)

    def deadline_of(self, key: bytes, deadline: float) -> float:
        """When the time of request `key` is up, which was to be at `deadline`.

        While its client is asked something, look again after a while: it may become sooner.
        """
        asked = self._asked.get(key)
        return deadline if asked is None else asked.deadline

    # What the server says

    def take(self, message: messages.IncomingMessage, request: bytes = b"") -> None:
        """Take what is no response. `request` is the one whose own stream it came on, if it was one's."""
        method = message.method
        if message.id:
            self._take_request(message, request)
        elif method == PROGRESS or method in _CALL_NOTIFICATIONS:
            if len(message.params) <= MAX_NOTIFICATION_BYTES:
                self._receive_call_notification(message, request)
        elif method == CANCELLED:
            self._receive_cancelled(message.params)
        elif method != _IGNORED_NOTIFICATION:
            self._listener.on_notification(method, bytes(message.params))

    def _receive_call_notification(self, message: messages.IncomingMessage, request: bytes) -> None:
        if message.method == PROGRESS:
            self._receive_progress(message.params)
        else:
            self._pass_on(message, self._owner(request))

    def _owner(self, request: bytes) -> bytes:
        """The request that is certainly meant; empty where none is."""
        if request:
            return request if request in self._requests else b""
        if len(self._requests) != 1 or self._clock() - self._sole_principal_since_s < CALL_CEILING_S:
            return b""
        return next(iter(self._requests))

    def _receive_progress(self, params: msgspec.Raw) -> None:
        members = _members(params)
        key = bytes(members.get(messages.PROGRESS_KEY, b""))
        token = self._tokens.get(key)
        if token is not None:
            members[messages.PROGRESS_KEY] = msgspec.Raw(token)
            told = self._redactor.raw(msgspec.json.encode(members))
            self._requests[key][0].notify(PROGRESS, told)

    def _pass_on(self, message: messages.IncomingMessage, owner: bytes) -> None:
        if owner and _is_object(message.params):
            self._requests[owner][0].notify(message.method, self._redactor.raw(bytes(message.params)))

    def _receive_cancelled(self, params: msgspec.Raw) -> None:
        ask_id = bytes(_members(params).get("requestId", b""))
        for asked in self._asked.values():
            task = asked.end(ask_id, self._clock())
            if task is not None:
                task.cancel()

    # What the server asks

    def _take_request(self, message: messages.IncomingMessage, request: bytes) -> None:
        if message.method == "ping":
            self._tell(messages.encode_response(message, _PONG))
            return
        owner = self._owner(request)
        if not owner and self._is_early(message):
            self._early.append(message)
            asyncio.get_running_loop().call_later(EARLY_ROOTS_S, self._forward_early_requests)
            return
        refusal = self._refusal(message, owner)
        if refusal is not None:
            self._tell(messages.encode_response(message, refusal))
        else:
            self._forward_request(message, owner)

    def _is_early(self, message: messages.IncomingMessage) -> bool:
        is_first = not self._principal_id and len(self._early) < MAX_CLIENT_REQUESTS_PER_CALL
        return is_first and self.era == "legacy" and message.method == "roots/list"

    def _forward_early_requests(self) -> None:
        """Ask the first client what was asked before; refuse it if there is none by now."""
        early, self._early = self._early, []
        for message in early:
            owner = self._owner(b"")
            refusal = self._refusal(message, owner)
            if refusal is not None:
                self._tell(messages.encode_response(message, refusal))
            else:
                self._forward_request(message, owner)

    def _refusal(self, message: messages.IncomingMessage, owner: bytes) -> RpcResponse | None:
        """Why nobody is asked; None where somebody is."""
        if self.era == "modern" or message.method not in CAPABILITY_OF:
            return _NOT_FOUND
        if not owner:
            return _UNCERTAIN if self._requests else _NO_CLIENT
        if not _is_object(message.params):
            return _NO_OBJECT
        asked = self._asked.get(owner)
        is_full = asked is not None and len(asked.open) >= MAX_CLIENT_REQUESTS_PER_CALL
        return (
            _TOO_MANY
            if is_full or self.size >= MAX_CLIENT_REQUESTS or self._is_principal_at_limit(owner)
            else None
        )

    def _is_principal_at_limit(self, owner: bytes) -> bool:
        """Whether the principal behind a request is asked so much that the rest is for others."""
        principal_id = self._requests[owner][0].principal_id
        own = (
            len(asked.open)
            for key, asked in self._asked.items()
            if self._requests[key][0].principal_id == principal_id
        )
        return sum(own) >= MAX_CLIENT_REQUESTS_PER_PRINCIPAL

    def _forward_request(self, message: messages.IncomingMessage, owner: bytes) -> None:
        ask_id = bytes(message.id)
        if any(ask_id in asked.open for asked in self._asked.values()):
            return  # the server repeats itself: one answer will do
        client, deadline, timeout_s = self._requests[owner]
        asked = self._asked.get(owner)
        if asked is None:
            asked = self._asked[owner] = _ClientRequests(deadline, deadline - timeout_s + CALL_CEILING_S)
        task = self._background.start(self._ask(message, asked, client))
        if task is not None:
            self.size += 1
            task.add_done_callback(self._count_out)
            asked.begin(ask_id, task, self._clock())

    def _count_out(self, _task: asyncio.Task[None]) -> None:
        self.size -= 1

    async def _ask(
        self, message: messages.IncomingMessage, asked: _ClientRequests, client: ClientChannel
    ) -> None:
        try:
            reply = await client.ask(message.method, self._redactor.raw(bytes(message.params)))
        except Exception:
            _log.exception("a client could not be asked `%s`", message.method)
            reply = _FAILED
        finally:
            is_awaited = asked.end(bytes(message.id), self._clock()) is not None
        if is_awaited:
            await self._deliver(messages.encode_response(message, reply))


def _is_object(params: msgspec.Raw) -> bool:
    return bytes(params)[:1] == b"{"


def _members(params: msgspec.Raw) -> Params:
    """The members of a message's `params`; none where it is no object."""
    try:
        return decode_members(params)
    except UNREADABLE:
        return {}
