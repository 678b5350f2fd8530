"""The contract between the pool and its transports: one live connection to one server. And the pool's limits.

A connector opens a connection and negotiates the protocol revision before it hands it over. A connection ends
once, for good; the pool then opens another. A connection never retries and never sends a request twice.
"""

import asyncio
import logging
from collections.abc import Coroutine, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Final, Literal, NotRequired, Protocol, TypedDict, Unpack

import msgspec

from toolgate.model.json_text import Members, decode_members
from toolgate.model.servers import EMPTY, ServerRecord
from toolgate.model.tools import ListState, Revision

_log: Final = logging.getLogger(__name__)

Params = Members
"""The members of a request's `params`."""
Acknowledgement = asyncio.Future[None] | None
"""Done once the server has responded, or its time is up. None: there is nothing to wait for."""

MAX_MESSAGE_BYTES: Final = 8 * 1024 * 1024
"""The longest stdio line, SSE event or HTTP body taken from a server."""
START_TIMEOUT_S: Final = 10.0
"""From spawn or connect to the end of the negotiation."""
SHARED_CAPABILITIES: Final = b'{"elicitation":{"form":{},"url":{}},"sampling":{}}'
"""The client capabilities in the handshake of a shared connection: what the gateway can relay.

Each call's own client decides in the end. `roots` is missing because roots belong to one client: only a
dedicated connection announces them.
"""
NO_CAPABILITIES: Final = b"{}"
"""The capabilities of a client that servers cannot send requests to."""
PROBE_TIMEOUT_S: Final = 2.0
"""How long a silent server may take to respond to `server/discover` before it counts as session-based."""
CALL_CEILING_S: Final = 300.0
"""No call takes longer, whatever its record allows and however much progress it reports."""
NOTIFY_TIMEOUT_S: Final = 2.0  # a choice: over HTTP, an unsent notification holds a connection
DELIVER_TIMEOUT_S: Final = 10.0  # a choice: longer, since the server waits for a client's response
MAX_BACKGROUND_SENDS: Final = 32
"""A server that sends more requests at once, responses excluded, is flooding and gets no response."""
DEADLINE_CHECK_S: Final = 1.0
"""How often a postponed deadline is checked: it may move back when a client responds."""


class RpcResponse:
    """A server's response: its result or its JSON-RPC error object, raw. Exactly one is set.

    Code reads a result by its members and sends it as bytes. Each form is made from the other on demand, so a
    long result is parsed at most once on its way.
    """

    __slots__ = ("_members", "_result", "error", "size")

    def __init__(
        self, result: bytes | None = None, error: bytes | None = None, *, members: Members | None = None
    ) -> None:
        self._result = result
        self._members = members
        self.error = error
        self.size = len(result or b"") if members is None else sum(map(len, members.values()))
        """Bytes of the result; made from members, the sum without their names."""

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, RpcResponse) or self.error != other.error:
            return False
        return self.result == other.result or self.members == other.members

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"RpcResponse(result={self.result!r}, error={self.error!r})"

    @property
    def result(self) -> bytes | None:
        if self._result is None and self._members is not None:
            self._result = msgspec.json.encode(self._members)
        return self._result

    @property
    def members(self) -> Members | None:
        """The result's members. Raises msgspec.DecodeError if it is not an object."""
        if self._members is None and self._result is not None:
            self._members = decode_members(self._result)
        return self._members

    def take_members(self) -> Members:
        """The members, once: the response forgets them, so a long result has one copy less while it is sent.

        Dropping the response is not enough: the event loop keeps a task's last wake-up value for a while.
        """
        members = self.members or {}
        self._members = self._result = None
        return members


class ClientChannel(Protocol):
    """The client behind one request. The server may reach it while the request runs."""

    principal_id: str
    capabilities: bytes
    """The client's declared capabilities, limited to what the gateway relays: a JSON object."""
    log_level: str
    """The least severe log message the client wants; empty if it requested none."""

    @property
    def has_session(self) -> bool:
        """Whether the client is session-based (up to 2025-11-25) and takes requests while its own runs."""

    def notify(self, method: str, params: bytes) -> None:
        """Send a notification about this request: progress (under the client's token) or a log message.

        Never blocks and never fails; drops what the client does not want or cannot take.
        """

    async def request(self, method: str, params: bytes) -> RpcResponse:
        """Send a server's request (elicitation, sampling, roots) to the client and wait for the response.

        A client without the capability, or one that is gone, responds with an error. The caller sets the
        deadline.
        """


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerInfo:
    """What the negotiation learned about a server."""

    revision: Revision
    version: str
    capabilities: Mapping[str, msgspec.Raw] = field(default_factory=lambda: MappingProxyType({}))
    instructions: str = ""

    def announces(self, capability: str, flag: str) -> bool:
        """Whether a capability has a flag set: whether `resources` can `subscribe`."""
        raw = self.capabilities.get(capability)
        flags = msgspec.json.decode(raw) if raw else {}
        return isinstance(flags, dict) and flags.get(flag) is True


class StartFailed(Exception):
    """A connection could not be opened. The server's tools are marked with `state`."""

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
        """Retrying is pointless without a change to the record (no such command, missing variable)."""
        self.needs_login = needs_login
        """The caller has to log in to the server first. The message is fit for the caller's eyes."""
        self.retry_after_s = retry_after_s
        """The delay that the server requests."""

    def with_message(self, message: str) -> "StartFailed":
        """The same failure with another message."""
        return StartFailed(message, state=self.state, fatal=self.fatal, retry_after_s=self.retry_after_s)


class SessionReplaced(Exception):
    """The server ended the session before it read this call, which may be sent again in the new one."""


Purpose = Literal["start", "trial"]
"""A trial checks whether a record works, and does nothing else."""


class ConnectionListener(Protocol):
    """The owner of a connection. Called from the event loop; no method may block."""

    @property
    def purpose(self) -> Purpose:
        """What the connection is opened for."""

    def on_notification(self, method: str, params: bytes) -> None:
        """A notification that belongs to no request of the gateway (`list_changed` and the like)."""

    def on_session_replaced(self) -> bool:
        """The server ended the session, and the connection has a new one. Returns whether calls may use it.

        If not, calls that lost their session raise SessionReplaced.
        """

    def on_closed(self, reason: str) -> None:
        """The connection ended by itself. Called once, after all its requests have failed."""

    def on_stderr(self, text: bytes) -> None:
        """The child wrote to its standard error."""

    def on_reading(self) -> None:
        """A child that is starting reads its input: its packages are downloaded, and it runs."""


class ServerConnection(Protocol):
    """A live, negotiated connection."""

    server_info: ServerInfo
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
        """Send one request and wait for its response.

        `headers` are additional HTTP headers (`Mcp-…` and the trace); stdio ignores them. The connection adds
        the `_meta` envelope of its revision (see `messages.build_params`). Notifications about this request
        go to `client`, or are dropped without one. While the server waits for `client`, the request's
        deadline moves to the ceiling of all calls.

        Raises CallTimedOut after `timeout_s` and ServerUnavailable if the connection dies. Both, and a
        cancellation, cancel the request at the server: by `notifications/cancelled`, or a closed stream.
        """

    def watch(self, uris: frozenset[str]) -> Acknowledgement:
        """Subscribe to exactly these resources: the listener gets `notifications/resources/updated`."""

    async def aclose(self) -> None:
        """End the connection. For a child: close stdin, wait 2 s, TERM, wait 2 s, KILL. Idempotent."""


class ServerHandshake(TypedDict):
    """What the owner of a connection decides about its negotiation."""

    known_revision: Revision | None
    """The revision that an earlier connection found: try it first, then probe."""
    capabilities: NotRequired[bytes]
    """The client capabilities, as a JSON object; by default SHARED_CAPABILITIES."""


class Connector(Protocol):
    """Connects to the server of a record and negotiates. One per transport."""

    async def __call__(
        self, record: ServerRecord, listener: ConnectionListener, **handshake: Unpack[ServerHandshake]
    ) -> ServerConnection:
        """Raises StartFailed."""


class BackgroundTasks:
    """The tasks of one connection. They handle their own failures; an exception is a bug and is logged."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[None]] = set()
        self._is_closed = False

    @property
    def size(self) -> int:
        return len(self._tasks)

    def start(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None] | None:
        """Run `work` in the background; None once the connection has ended."""
        if self._is_closed:
            work.close()
            return None
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._finish)
        return task

    def cancel(self) -> None:
        self._is_closed = True
        for task in self._tasks:
            task.cancel()

    async def aclose(self) -> None:
        self.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _finish(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (exc := task.exception()) is not None:
            _log.error("a background task of a connection failed", exc_info=exc)


DEFAULT_MAX_CALLS: Final = 512
"""The calls of 32 servers with the default concurrency, all full."""
GRACE_S: Final = 2.0
"""A connector enforces the start limit itself and may need this long to clean up."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolLimits:
    """Limits on concurrency, rates and waits. Tests shorten these; operators can set few of them."""

    max_starting: int = 8
    """Children that start at once: starting interpreters is what loads a node's processors."""
    max_connecting: int = 64
    """URLs connected to at once. Counted separately, so silent servers delay no child."""
    start_slot_s: float = 2.0
    """How long a start holds a slot. A start that hangs longer uses no processor and frees its slot."""
    start_timeout_s: float = START_TIMEOUT_S + GRACE_S
    """When the pool cancels a start, unless the record allows more time."""
    slow_start_s: float = START_TIMEOUT_S
    """A start that takes longer is downloading. Calls and refreshes stop waiting for it."""

    backoff_s: float = 0.1
    backoff_max_s: float = 30.0
    """The wait before a restart doubles from `backoff_s` to this."""
    reconnect_max_s: float = 8.0
    """The maximum for a server behind a URL: connecting is cheap, and it is back 10 s after its recovery."""
    max_starts: int = 5
    start_window_s: float = 10.0
    """After `max_starts` in this window the server is down. A connection that lives longer resets it."""

    queue: int = 64
    """Calls that may wait for a full server; the pool rejects the next one."""
    max_calls: int = DEFAULT_MAX_CALLS
    """Calls in flight at all servers together. As many again may wait; see `NodeSlots`."""

    list_timeout_s: float = 10.0
    """For all pages of one list together."""
    list_together_s: float = 1.0
    """Lists that are read together appear together, unless one takes longer than this."""
    list_ttl_s: float = 120.0
    """When a good list is read again, unless the server names its own time."""
    list_gap_s: float = 1.0
    """`list_changed` causes at most one list in this time."""
    list_retry_s: float = 1.0
    list_retry_max_s: float = 5.0
    """The wait after a failed list doubles from `list_retry_s` to this."""
    first_list_wait_s: float = 5.0
    """How long a caller's first list waits for a server that was never listed."""

    session_connections: int = 64
    """Sessions with a dedicated connection to one server; the pool rejects the next one."""
    principal_connections: int = 1_024
    """Principals with a dedicated connection to one server: each shows its own token."""
    session_idle_s: float = 300.0
    """When an idle dedicated connection is closed, unless the record names its own time."""

    drain_s: float = 10.0
    """How long calls may finish on a replaced connection, and connections may close with the pool."""


DEFAULT_LIMITS: Final = PoolLimits()
