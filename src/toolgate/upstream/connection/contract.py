"""The contract between the pool and its transports: one live connection to one server.

A link is made by an opener, already negotiated (`hello`), and ends once, for good: the pool opens a
new one. A link never retries and never sends a request twice.

The numbers a pool goes by. Each has its origin; tests shorten them, operators do not see most.
"""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final, Literal, Protocol

import msgspec

from toolgate.model.json_text import Members, decode_members
from toolgate.model.servers import EMPTY, ServerRecord
from toolgate.model.tools import ListState, Revision

Params = Members
"""Those of a request's `params`."""
Acknowledgement = asyncio.Future[None] | None
"""Done when a server has been told, and has answered or not in time. None: there is nothing to wait for."""

MAX_MESSAGE_BYTES: Final = 8 * 1024 * 1024
"""The longest stdio line, SSE event or HTTP body taken from a server."""
START_TIMEOUT_S: Final = 10.0
"""From spawn or connect to a finished negotiation."""
SHARED_CAPABILITIES: Final = b'{"elicitation":{"form":{},"url":{}},"sampling":{}}'
"""What a handshake says of the clients behind a link that many share: what the gateway can carry to them.

Each call's own client decides in the end. Not `roots`: those belong to one client, so only a link that is
a session's own announces them.
"""
NO_CAPABILITIES: Final = b"{}"
"""Those of a client that cannot be asked anything."""
PROBE_TIMEOUT_S: Final = 2.0
"""How long a silent server is given to answer `server/discover` before it counts as legacy."""


class RpcResponse:
    """What the server answered: its result or its JSON-RPC error object, raw. Exactly one is set.

    A result is looked at by its members and leaves as bytes. It is made of either, and becomes the other when
    somebody asks: a long one is gone through once on its way, and not at every station.
    """

    __slots__ = ("_members", "_result", "error", "size")

    def __init__(
        self, result: bytes | None = None, error: bytes | None = None, *, members: Members | None = None
    ) -> None:
        self._result = result
        self._members = members
        self.error = error
        self.size = len(result or b"") if members is None else sum(map(len, members.values()))
        """Of the result, in bytes; made of its members, without their names."""

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, RpcResponse) or self.error != other.error:
            return False
        return self.result == other.result or self.members == other.members

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"Reply(result={self.result!r}, error={self.error!r})"

    @property
    def result(self) -> bytes | None:
        if self._result is None and self._members is not None:
            self._result = msgspec.json.encode(self._members)
        return self._result

    @property
    def members(self) -> Members | None:
        """Of the result. Raises msgspec.DecodeError where it is no object."""
        if self._members is None and self._result is not None:
            self._members = decode_members(self._result)
        return self._members

    def take_members(self) -> Members:
        """Its members, once: it forgets them, and of a long result there is one copy less while it is sent.

        To let go of the reply is not enough: the event loop keeps what it woke a task with for a while.
        """
        members = self.members or {}
        self._members = self._result = None
        return members


class ClientChannel(Protocol):
    """The client behind one request, as far as its server may reach it while the request runs."""

    principal_id: str
    """Whose it is."""
    capabilities: bytes
    """What it says it can do, within what the gateway carries: a JSON object."""
    log_level: str
    """The least severe message it wants to hear; empty where it asked for none."""

    @property
    def has_session(self) -> bool:
        """Whether it is session-based (up to 2025-11-25): it can be asked while its request runs."""

    def notify(self, method: str, params: bytes) -> None:
        """A notification about this request: progress (under the client's own token), or a log message.

        Never blocks and never fails; one that the client does not want or cannot take is dropped.
        """

    async def ask(self, method: str, params: bytes) -> RpcResponse:
        """Put a server's own request (elicitation, sampling, roots) to the client, and wait for its answer.

        A client that did not say it can do this, or is gone, answers with an error. Whoever waits sets the
        deadline.
        """


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerInfo:
    """What negotiation found out."""

    era: Revision
    version: str
    capabilities: Mapping[str, msgspec.Raw] = field(default_factory=lambda: MappingProxyType({}))
    server_info: bytes = b"{}"
    instructions: str = ""

    def announces(self, capability: str, flag: str) -> bool:
        """Whether the server says so of a capability: of `resources`, that one can `subscribe`."""
        raw = self.capabilities.get(capability)
        flags = msgspec.json.decode(raw) if raw else {}
        return isinstance(flags, dict) and flags.get(flag) is True


class StartFailed(Exception):
    """A link could not be opened. `state` is what the server's tools are to be marked with."""

    def __init__(
        self,
        message: str,
        *,
        state: ListState = "list_failed",
        fatal: bool = False,
        retry_after_s: float | None = None,
        needs_login: bool = False,
        hint: str = "",
    ) -> None:
        super().__init__(message)
        self.hint = hint
        """What an operator can do about it."""
        self.state: ListState = state
        self.fatal = fatal
        """Trying again without a change to the record is pointless (no such command, missing variable)."""
        self.needs_login = needs_login
        """Who calls has to log in to the server first; the message says so, and is fit for its eyes."""
        self.retry_after_s = retry_after_s
        """How long the server asks to be left alone."""


class SessionReplaced(Exception):
    """The server ended the session before it read this call, which may be sent again in the new one."""


Purpose = Literal["start", "trial"]
"""A trial is to see whether a record works, and nothing else."""


class ConnectionListener(Protocol):
    """What a link tells its owner, always from the event loop, never blocking."""

    @property
    def purpose(self) -> Purpose:
        """What the link is opened for."""

    def on_notification(self, method: str, params: bytes) -> None:
        """A notification that belongs to no request of ours (`list_changed` and the like)."""

    def on_session_replaced(self) -> bool:
        """The server ended the session, and the link has another: whether calls may be sent in it at once.

        Where not, those that lost the session raise SessionReplaced.
        """

    def on_closed(self, reason: str) -> None:
        """The link ended without being asked to. Called once, after all its requests have failed."""

    def on_stderr(self, text: bytes) -> None:
        """Something the child wrote to its standard error."""

    def on_reading(self) -> None:
        """A child that is being started reads its input: what had to be downloaded is there, and it runs."""


class ServerConnection(Protocol):
    """A live, negotiated connection."""

    hello: ServerInfo
    pid: int | None

    async def request(
        self,
        method: str,
        params: Params,
        *,
        timeout_s: float,
        headers: Mapping[str, str] = EMPTY,
        client: ClientChannel | None = None,
    ) -> RpcResponse:
        """Ask, once. `headers` are extra HTTP headers (`Mcp-…`, and the trace); stdio ignores them.

        The link puts the `_meta` envelope of its era into `params` (see `wire.params_for`). What the server
        says about this request before it answers goes to `client`; without one it is dropped. While
        `client` is asked something, the deadline of the request moves to the ceiling of all calls.
        Raises CallTimedOut after `timeout_s` and ServerUnavailable when the connection dies; both,
        and a cancellation of the caller, tell the server to stop (`notifications/cancelled`, or by
        closing the stream).
        """

    def watch(self, uris: frozenset[str]) -> Acknowledgement:
        """Have the server tell when one of these resources changes, and no other. Returns at once.

        It comes as `notifications/resources/updated` to the listener.
        """

    async def aclose(self) -> None:
        """End it: for a child, close stdin, wait 2 s, TERM, wait 2 s, KILL. Idempotent."""


class Connector(Protocol):
    """Connects to the server of a record and negotiates. One per transport."""

    async def __call__(
        self,
        record: ServerRecord,
        listener: ConnectionListener,
        *,
        known_era: Revision | None,
        capabilities: bytes = SHARED_CAPABILITIES,
    ) -> ServerConnection:
        """Raises StartFailed. `known_era` is what an earlier link found: try it first, then probe.

        `capabilities` is what a handshake tells the server of its clients: a JSON object.
        """


CALL_CEILING_S: Final = 300.0
"""No call takes longer, whatever its record allows and however much progress it reports."""
DEADLINE_CHECK_S: Final = 1.0
"""How soon a deadline that was moved is looked at again, because it may have been moved back."""

DEFAULT_MAX_CALLS: Final = 512
"""As many as 32 servers with the default concurrency take when all of them are full."""

GRACE_S: Final = 2.0
"""An opener keeps to the limit of a start itself, and may need this long to clear up."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolLimits:
    """How much at once, how often, how long."""

    max_starting: int = 8
    """Children started at once: starting interpreters is what a node's processors feel."""
    max_connecting: int = 64
    """Servers connected to at once. Their places are their own: those that never answer hold up no child."""
    start_slot_s: float = 2.0
    """How long a start counts as one of those. One that hangs longer burns nothing and frees its place."""
    start_timeout_s: float = START_TIMEOUT_S + GRACE_S
    """When an opener is given up, unless its record allows more."""
    slow_start_s: float = START_TIMEOUT_S
    """A start that takes longer downloads something. Calls and refreshes do not wait for it any longer."""

    backoff_s: float = 0.1
    backoff_max_s: float = 30.0
    """The wait before a restart doubles from the first to the second."""
    reconnect_max_s: float = 8.0
    """The same for a server behind a URL: asking costs little, and it is back within 10 s of its recovery."""
    max_starts: int = 5
    start_window_s: float = 10.0
    """So many starts within so long, and the server is down. A link that lived longer clears the count."""

    queue: int = 64
    """Calls that may wait for a server with no room; the next is refused at once."""
    max_calls: int = DEFAULT_MAX_CALLS
    """Calls in flight at all servers together. As many again may wait; see `NodeSlots`."""

    list_timeout_s: float = 10.0
    """For all pages of one list together."""
    list_together_s: float = 1.0
    """Lists read at once are shown at once, unless one takes longer than this."""
    list_ttl_s: float = 120.0
    """When a good list is read again, unless the server names a time of its own."""
    list_gap_s: float = 1.0
    """`list_changed` leads to at most one list in this time."""
    list_retry_s: float = 1.0
    list_retry_max_s: float = 5.0
    """The wait before a failed list is tried again doubles from the first to the second."""
    first_list_wait_s: float = 5.0
    """How long a caller's first list waits for a server that was never listed."""

    session_links: int = 64
    """Sessions that may each have a link of their own to one server; the next is refused at once."""
    principal_links: int = 1_024
    """Principals that may each have a link of their own to one server: each shows its own token."""
    session_idle_s: float = 300.0
    """When a link of a session's or principal's own is closed, unless the record names a time of its own."""

    drain_s: float = 10.0
    """What calls in flight are given when their link is replaced, and links when the pool closes."""


DEFAULT_LIMITS: Final = PoolLimits()
