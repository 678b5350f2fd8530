"""The contract between the pool and its transports: one live connection to one server.

A link is made by an opener, already negotiated (`hello`), and ends once, for good: the pool opens a
new one. A link never retries and never sends a request twice.
"""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final, Literal, Protocol

import msgspec

from toolgate.model.raw import Members, decode_members
from toolgate.model.servers import EMPTY, ServerRecord
from toolgate.model.tools import Era, ListState

Params = Members
"""Those of a request's `params`."""
Told = asyncio.Future[None] | None
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


class Reply:
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
        if not isinstance(other, Reply) or self.error != other.error:
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


class ClientSide(Protocol):
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

    async def ask(self, method: str, params: bytes) -> Reply:
        """Put a server's own request (elicitation, sampling, roots) to the client, and wait for its answer.

        A client that did not say it can do this, or is gone, answers with an error. Whoever waits sets the
        deadline.
        """


@dataclass(frozen=True, slots=True, kw_only=True)
class Hello:
    """What negotiation found out."""

    era: Era
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


class LinkListener(Protocol):
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


class Link(Protocol):
    """A live, negotiated connection."""

    hello: Hello
    pid: int | None

    async def request(
        self,
        method: str,
        params: Params,
        *,
        timeout_s: float,
        headers: Mapping[str, str] = EMPTY,
        client: ClientSide | None = None,
    ) -> Reply:
        """Ask, once. `headers` are extra HTTP headers (`Mcp-…`, and the trace); stdio ignores them.

        The link puts the `_meta` envelope of its era into `params` (see `wire.params_for`). What the server
        says about this request before it answers goes to `client`; without one it is dropped. While
        `client` is asked something, the deadline of the request moves to the ceiling of all calls.
        Raises CallTimedOut after `timeout_s` and ServerUnavailable when the connection dies; both,
        and a cancellation of the caller, tell the server to stop (`notifications/cancelled`, or by
        closing the stream).
        """

    def watch(self, uris: frozenset[str]) -> Told:
        """Have the server tell when one of these resources changes, and no other. Returns at once.

        It comes as `notifications/resources/updated` to the listener.
        """

    async def aclose(self) -> None:
        """End it: for a child, close stdin, wait 2 s, TERM, wait 2 s, KILL. Idempotent."""


class Opener(Protocol):
    """Connects to the server of a record and negotiates. One per transport."""

    async def __call__(
        self,
        record: ServerRecord,
        listener: LinkListener,
        *,
        known_era: Era | None,
        capabilities: bytes = SHARED_CAPABILITIES,
    ) -> Link:
        """Raises StartFailed. `known_era` is what an earlier link found: try it first, then probe.

        `capabilities` is what a handshake tells the server of its clients: a JSON object.
        """
