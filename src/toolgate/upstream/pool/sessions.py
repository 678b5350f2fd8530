"""Connections to a server besides its own: dedicated ones per session or principal, and a session-based one.

A dedicated connection opens with the first call of its owner, and no other caller uses it. A session's
announces the capabilities of that session's client; a principal's carries that principal's login. It ends
with its owner, with the server's record, or when it is idle. The next call reopens a lost one; the server's
state of the session is lost.

The session-based connection belongs to a server whose own connection is stateless, for calls that need a
session. The server's own connection lists for all others.
"""

import asyncio
import logging
import math
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Final, NamedTuple

from toolgate.errors import CallTimedOut, LoginRequired, ServerBusy, ServerUnavailable
from toolgate.model.json_text import UNREADABLE
from toolgate.model.reports import HealthState
from toolgate.model.servers import ServerRecord
from toolgate.model.tools import Pin, Revision
from toolgate.upstream.connection.contract import (
    NO_CAPABILITIES,
    ClientChannel,
    Params,
    RpcResponse,
    ServerConnection,
    StartFailed,
)
from toolgate.upstream.connection.messages import parse_error
from toolgate.upstream.pool.discovery import ListFailed, read_list
from toolgate.upstream.pool.managed_connection import ManagedConnection, Step

if TYPE_CHECKING:  # it uses this module
    from toolgate.upstream.pool.supervisor import ServerSupervisor

ROOTS_WAIT_S: Final = 5.0
"""How long the first call of a session waits until its server knows the roots of its client."""
SHARE: Final = 10
"""The last fifth of a server's sessions is for principals with less than a tenth of all."""
MAX_LEARNED: Final = 1_000
"""Tools, prompts and resources of one server to remember. A server has at most 2,000 tools."""
MAX_EXAMINED_BYTES: Final = 2_048
"""A longer result is not an SDK's error about the revision, which is one sentence."""

_NO_BACK_CHANNEL: Final = (b"erver-initiated requests", b"erver-to-client requests")
"""The error when a tool sends a request on a stateless connection: Python SDK 2.x and FastMCP 4.x ("no
back-channel for server-initiated requests"), TypeScript SDK 2.x ("Server-to-client requests are not
available")."""
_INVALID_RESULT: Final = "Handler returned an invalid result"
"""The error of the Python SDK 2.x when a tool returns `input_required` in a session. The TypeScript SDK
translates such a result itself."""
_ROUND_PARAMS: Final = ("inputResponses", "requestState")

_log: Final = logging.getLogger(__name__)


class _SecondaryConnection(ManagedConnection):
    """A connection whose server lists its tools on another one.

    Before the first call in each of its sessions, the tools that it lists are compared with a pin: behind it
    may be another program than the one whose tools were approved.
    """

    def __init__(
        self, server: "ServerSupervisor", record: ServerRecord, *, capabilities: bytes | None = None
    ) -> None:
        super().__init__(record, server.context, stderr=server.stderr, capabilities=capabilities)
        self.lister = server
        self._checked: ServerConnection | None = None
        """The connection whose tools in its current session are those of the pin."""
        self._sessions = 0
        self._checking = asyncio.Lock()

    def on_session_replaced(self) -> bool:
        self._checked = None
        self._sessions += 1
        return self.record.server_id not in self.context.pins

    async def check_pin(self, connection: ServerConnection, until_s: float) -> bool:
        if self._checked is connection:
            return False
        pin = self.context.pins[self.record.server_id]
        try:
            async with asyncio.timeout_at(until_s), self._checking:
                while self._checked is not connection:
                    session = self._sessions
                    await self._compare(connection, pin, until_s)
                    if session == self._sessions:
                        self._checked = connection
        except TimeoutError as exc:
            raise CallTimedOut(
                f"server `{self.record.server_id}` was not listed within the call's time; nothing was sent"
            ) from exc
        return True

    async def _compare(self, connection: ServerConnection, pin: Pin, until_s: float) -> None:
        """Tools known to have changed are quarantined anyway, and do not block calls of the others."""
        server_id, timeout_s = self.record.server_id, until_s - self._clock()
        try:
            result = await read_list("tools", server_id, connection, timeout_s=timeout_s)
        except ListFailed as exc:
            raise ServerUnavailable(
                f"server `{server_id}` offers only what was approved, and could not be listed "
                "since it was connected; nothing was sent"
            ) from exc
        listed = {name: tool.digest for name, tool in result.entries.items() if name not in pin.changed}
        if any(listed.get(name, digest) != digest for name, digest in pin.tools.items()):
            raise ServerUnavailable(
                f"server `{server_id}` lists other tools on this connection than were approved; "
                "nothing was sent"
            )


class SessionBasedConnection(_SecondaryConnection):
    """Shared by all calls that need a session at one server.

    Its calls count against the server's concurrency. If the server refuses a session, or cannot open one now,
    calls use the server's own connection instead.
    """

    def __init__(self, server: "ServerSupervisor") -> None:
        super().__init__(server, replace(server.record, protocol="session"))
        self.gate = server.gate
        self.revisions = server.revisions

    def replace_record(self, record: ServerRecord) -> None:
        super().replace_record(replace(record, protocol="session"))

    async def connect(self, until_s: float) -> ServerConnection:
        """The session-based connection; the server's own one if it fails."""
        with suppress(ServerUnavailable):
            return await super().connect(until_s)
        return await self.lister.connect(until_s)

    def on_response(
        self, connection: ServerConnection, method: str, params: Params, response: RpcResponse
    ) -> None:
        if connection.server_info.revision == "legacy":
            super().on_response(connection, method, params, response)
        else:  # proves nothing about sessions, whose backoff stays
            self.lister.on_response(connection, method, params, response)

    def _next(self) -> tuple[float, Step]:
        if self.connection is None:
            return self._restarts.not_before_s if self._is_demanded else math.inf, self._start
        timeout_s = self.record.idle_timeout_s
        return self._idle_at_s(timeout_s) if timeout_s > 0 else math.inf, self.evict

    @property
    def is_evictable(self) -> bool:
        return self.connection is not None and self.gate.is_idle

    def _on_start_failed(self, failure: StartFailed) -> None:
        super()._on_start_failed(failure)
        if failure.fatal:
            self.lister.on_session_refused(str(failure))


class CallerKey(NamedTuple):
    """The owner of a dedicated connection. A part is empty if the server does not separate callers by it."""

    session: str = ""
    principal_id: str = ""
    has_session: bool = False
    """Whether the owner's clients are session-based. A principal may have clients of both kinds."""


class DedicatedConnection(_SecondaryConnection):
    """The connection of one session or principal to one server."""

    def __init__(
        self,
        server: "ServerSupervisor",
        *,
        owner: CallerKey,
        capabilities: bytes | None,
        on_idle: Callable[[], None],
    ) -> None:
        self._owner = owner
        record = self._build_record(server.record)
        super().__init__(server, record, capabilities=capabilities)
        self._on_idle = on_idle
        self._introducing = asyncio.Lock()
        self.opened_by: ClientChannel | None = None
        """The client of the call that opens the connection."""
        self.opener_id = ""
        """The principal whose call made it, for which it counts."""
        self._requests_session = owner.has_session and record.protocol == "auto"
        """A server of both revisions gets the one of its client."""

    def _build_record(self, record: ServerRecord) -> ServerRecord:
        return record.owned_by(self._owner.principal_id) if self._owner.principal_id else record

    def _choose_revision(self) -> Revision | None:
        needs_session = self._requests_session and not self.lister.refuses_sessions
        return "legacy" if needs_session else self.lister.known_revision

    def _learn_revision(self, revision: Revision | None) -> None:
        if not self._requests_session:
            self.lister.known_revision = revision
        elif revision == "modern":
            self.lister.refuses_sessions = True

    def replace_record(self, record: ServerRecord) -> None:
        super().replace_record(self._build_record(record))

    async def connect(self, until_s: float) -> ServerConnection:
        """Connect, and let a server that requests roots when it starts have them before the first call.

        It sends that request before it responds to a ping, which ends once the client has responded.
        """
        connection = await super().connect(until_s)
        async with self._introducing:
            client, self.opened_by = self.opened_by, None
            may_have_roots = client is not None and client.has_session and b'"roots"' in client.capabilities
            if may_have_roots and connection.server_info.revision == "legacy":
                timeout_s = min(until_s - self._clock(), ROOTS_WAIT_S)
                with suppress(CallTimedOut, ServerUnavailable):
                    await connection.request("ping", {}, timeout_s=timeout_s, client=client)
        return connection

    def _next(self) -> tuple[float, Step]:
        if self.connection is None and self._is_demanded:
            return self._restarts.not_before_s, self._start
        idle_s = self.record.idle_timeout_s or self.context.limits.session_idle_s
        return self._idle_at_s(idle_s), self._on_idle

    def _on_started(self, connection: ServerConnection) -> None:
        super()._on_started(connection)
        self.lister.on_session_opened()

    def _enter(self, state: HealthState, *, error: str = "", hint: str = "") -> None:
        super()._enter(state, error=error, hint=hint)
        # A missing login of a caller is no error of the server.
        if error and not self._needs_login:
            self.lister.last_error = error


class DedicatedConnections:
    """The connections of all sessions, or all principals, to one server."""

    def __init__(self, server: "ServerSupervisor") -> None:
        self._server = server
        self._connections: dict[CallerKey, DedicatedConnection] = {}
        self._is_per_session = server.record.sharing == "per_session"
        self._is_per_principal = server.record.is_per_principal

    def __iter__(self) -> Iterator[DedicatedConnection]:
        return iter(self._connections.values())

    def select(self, session: str, client: ClientChannel | None) -> DedicatedConnection:
        """The connection for a call of `client` in `session`; a new one if necessary.

        Requests without a session share one. Raises ServerBusy; and LoginRequired if the server needs a
        principal and the call has none.
        """
        owner = self._find_owner(session, client)
        connection = self._connections.get(owner)
        if connection is None:
            connection = self._add(owner, client)
        if connection.connection is None and self._is_per_session:
            connection.opened_by = client
        return connection

    def _find_owner(self, session: str, client: ClientChannel | None) -> CallerKey:
        has_session = client is not None and client.has_session
        if not self._is_per_principal:
            return CallerKey(session, has_session=has_session)
        if client is None or not client.principal_id:
            raise LoginRequired(f"server `{self._server.record.server_id}` requires a login of the caller")
        return CallerKey(session if self._is_per_session else "", client.principal_id, has_session)

    def _add(self, owner: CallerKey, client: ClientChannel | None) -> DedicatedConnection:
        principal_id = "" if client is None else client.principal_id
        limits, count = self._server.context.limits, len(self._connections)
        most = limits.session_connections if self._is_per_session else limits.principal_connections
        held = sum(one.opener_id == principal_id for one in self)
        if count >= most or (count * 5 >= most * 4 and held * SHARE >= most):
            server_id, owners = self._server.record.server_id, "sessions" if owner.session else "principals"
            raise ServerBusy(
                f"server `{server_id}` serves {count} {owners} on this node and accepts no more",
                hint="close sessions that are done, or retry in a few minutes",
            )
        capabilities = None  # a principal may have several clients
        if self._is_per_session:
            capabilities = NO_CAPABILITIES if client is None else client.capabilities
        connection = self._connections[owner] = DedicatedConnection(
            self._server, owner=owner, capabilities=capabilities, on_idle=lambda: self._end(owner)
        )
        connection.opener_id = principal_id
        connection.start()
        return connection

    def end_session(self, session: str) -> None:
        if self._is_per_session:
            self._end_matching(lambda owner: owner.session == session)

    def end_principal(self, principal_id: str) -> None:
        """Close the connections of a principal; if empty, those that belong to no principal."""
        self._end_matching(lambda owner: owner.principal_id == principal_id)

    def _end_matching(self, matches: Callable[[CallerKey], bool]) -> None:
        for owner in tuple(filter(matches, self._connections)):
            self._end(owner)

    def _end(self, owner: CallerKey) -> None:
        connection = self._connections.pop(owner, None)
        if connection is not None:
            self._server.calls += connection.calls
            connection.stop()


class RevisionChoice:
    """How calls to a server that supports both revisions choose between its two connections.

    Such a server runs the same tool in two ways. On a stateless connection (2026-07-28), a tool reaches its
    client by returning `input_required`; on a session-based one (up to 2025-11-25), by sending a request.
    Most SDKs do not translate between the two, and a list does not show which one a tool uses. So a call uses
    the revision of its client, as it would without a gateway. A tool that turns out to need the other one
    gets it from its next call on: the failed call is never sent again, because its tool may have had effects.
    """

    __slots__ = ("_learned", "_server_id")

    def __init__(self, server_id: str) -> None:
        self._server_id = server_id
        self._learned: dict[tuple[str, bytes], Revision] = {}

    def needs_session(self, client: ClientChannel | None, method: str, params: Params) -> bool:
        if client is None or client.capabilities == NO_CAPABILITIES:
            return False  # it takes no requests, so both connections will do
        if not client.has_session and any(name in params for name in _ROUND_PARAMS):
            return False  # the next round of what began on the stateless connection
        if self._learned:
            learned = self._learned.get(_identify_subject(method, params))
            if learned is not None:
                return learned == "legacy"
        return client.has_session

    def learn(self, method: str, params: Params, revision: Revision, response: RpcResponse) -> None:
        """Remember what a call needs if its response shows that `revision` was wrong."""
        if response.size > MAX_EXAMINED_BYTES or not _is_wrong_revision(revision, response):
            return
        needed: Revision = "legacy" if revision == "modern" else "modern"
        if len(self._learned) < MAX_LEARNED:
            self._learned[_identify_subject(method, params)] = needed
            kind = "session-based" if needed == "legacy" else "stateless"
            why = f"a `{method}` failed because it needs a {kind} connection; its next call uses one"
            _log.info("server `%s`: %s", self._server_id, why)

    def forget(self) -> None:
        """Forget everything after a reconnect: the server may be another program now."""
        self._learned.clear()


def _identify_subject(method: str, params: Params) -> tuple[str, bytes]:
    return method, bytes(params.get("name") or params.get("uri") or b"")


def _is_wrong_revision(revision: Revision, response: RpcResponse) -> bool:
    if revision == "modern":
        text = response.error if response.error is not None else _read_tool_error(response)
        return any(words in text for words in _NO_BACK_CHANNEL)
    return response.error is not None and parse_error(response.error).message == _INVALID_RESULT


def _read_tool_error(response: RpcResponse) -> bytes:
    try:
        members = response.members or {}
    except UNREADABLE:
        return b""
    return bytes(members.get("content", b"")) if members.get("isError") == b"true" else b""
