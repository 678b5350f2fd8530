"""The session-based connection to a server whose own connection is stateless, for calls that need one.

It is opened by the first such call, and its calls count against the same concurrency. The server's own
connection lists for both. A server that refuses a session, or cannot open one now, is called on its own
connection instead.

Servers that keep callers apart: each session, or each principal, has a link that nobody else's calls use.

A link is opened by the first call of its owner. A session's tells the server what that session's client can
do; a principal's shows the server that principal's own login. It ends with its owner, with the server's
record, or when nobody has called for a while. One that is lost is opened again by the next call; what the
server knew of the session is lost with it.
"""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from typing import Final, NamedTuple, Protocol

from toolgate.errors import CallTimedOut, LoginRequired, ServerBusy, ServerUnavailable
from toolgate.model.reports import HealthState
from toolgate.model.servers import ServerRecord
from toolgate.model.tools import Revision
from toolgate.upstream.connection.contract import (
    NO_CAPABILITIES,
    ClientChannel,
    Params,
    RpcResponse,
    ServerConnection,
    StartFailed,
)
from toolgate.upstream.pool.admission import ServerGate
from toolgate.upstream.pool.managed_connection import ManagedConnection, PoolContext, SharedServerState, Step
from toolgate.upstream.pool.revisions import RevisionChoice


class StatelessServer(Protocol):
    """The server whose own connection is stateless."""

    record: ServerRecord
    common: SharedServerState
    gate: ServerGate
    revisions: RevisionChoice | None

    @property
    def needs_list(self) -> bool:
        """As `Connection.needs_list`."""

    async def verified(self, until_s: float) -> None:
        """As `Connection.verified`."""

    async def connected(self, until_s: float) -> ServerConnection:
        """Its own connection."""

    def on_notification(self, method: str, params: bytes) -> None:
        """The server says something that belongs to no call."""

    def on_answered(self, link: ServerConnection, method: str, params: Params, reply: RpcResponse) -> None:
        """A call was answered on its own connection."""

    def on_session_refused(self, reason: str) -> None:
        """The server does not do sessions after all."""


class SessionBasedConnection(ManagedConnection):
    """Shared by all calls that need a session-based connection to one server."""

    def __init__(self, server: StatelessServer, around: PoolContext) -> None:
        record = _require_session(server.record)
        common = SharedServerState(stderr=server.common.stderr, headers=server.common.headers)
        super().__init__(record, around, common=common)
        self._server = server
        self.gate = server.gate
        self.revisions = server.revisions

    @property
    def needs_list(self) -> bool:
        return self._server.needs_list

    async def verified(self, until_s: float) -> None:
        await self._server.verified(until_s)

    def replace_record(self, record: ServerRecord) -> None:
        super().replace_record(_require_session(record))

    def on_notification(self, method: str, params: bytes) -> None:
        self._server.on_notification(method, params)

    async def connected(self, until_s: float) -> ServerConnection:
        """The session-based link; the server's own one where it has none to give."""
        with suppress(ServerUnavailable):
            return await super().connected(until_s)
        return await self._server.connected(until_s)

    def on_answered(self, link: ServerConnection, method: str, params: Params, reply: RpcResponse) -> None:
        if link.server_info.revision == "legacy":
            super().on_answered(link, method, params, reply)
        else:  # says nothing of sessions: the backoff of those stays
            self._server.on_answered(link, method, params, reply)

    def _next(self) -> tuple[float, Step]:
        if self.link is None:
            return self._restarts.not_before_s if self._is_demanded else float("inf"), self._start
        timeout_s = self.record.idle_timeout_s
        return self._idle_s(timeout_s) if timeout_s > 0 else float("inf"), self._rest

    @property
    def is_evictable(self) -> bool:
        return self.link is not None and self.gate.is_idle

    async def _rest(self) -> None:
        self.evict()

    def _on_start_failed(self, failure: StartFailed) -> None:
        super()._on_start_failed(failure)
        if failure.fatal:
            self._server.on_session_refused(str(failure))


def _require_session(record: ServerRecord) -> ServerRecord:
    return replace(record, protocol="session")


ROOTS_WAIT_S: Final = 5.0
"""How long the first call of a session waits at most until its server knows the roots of its client."""
SHARE: Final = 10
"""The last fifth of a server's sessions is for principals that hold less than this part of all."""


class CallerKey(NamedTuple):
    """Whose a link is. A part is empty where the server does not tell callers apart by it."""

    session: str = ""
    principal_id: str = ""
    has_session: bool = False
    """Whether the clients behind it are session-based. A principal may have clients of both kinds."""


class DedicatedServer(Protocol):
    """The server whose links these are."""

    record: ServerRecord
    common: SharedServerState

    @property
    def needs_list(self) -> bool:
        """As `Connection.needs_list`."""

    async def verified(self, until_s: float) -> None:
        """As `Connection.verified`."""

    def on_notification(self, method: str, params: bytes) -> None:
        """The server says something that belongs to no call."""

    def on_session_opened(self) -> None:
        """A caller has a link of its own now."""

    def on_session_failed(self, reason: str) -> None:
        """A caller's link was lost, or could not be opened."""


class DedicatedConnection(ManagedConnection):
    """The link of one session or principal to one server."""

    def __init__(
        self,
        server: DedicatedServer,
        around: PoolContext,
        *,
        owner: CallerKey,
        principal_id: str,
        capabilities: bytes | None,
        on_idle: Callable[[], None],
    ) -> None:
        record = _own_record(server.record, owner)
        super().__init__(record, around, common=server.common, capabilities=capabilities)
        self._server = server
        self._owner = owner
        self.principal_id = principal_id
        """Who opened it."""
        self._on_idle = on_idle
        self._introducing = asyncio.Lock()
        self.newcomer: ClientChannel | None = None
        """The client of the call that opens the link."""
        self._asks_for_session = owner.has_session and record.protocol == "auto"
        """A server that supports both revisions is spoken to in the one of its client."""

    @property
    def _known_revision(self) -> Revision | None:
        asks = self._asks_for_session and not self.common.refuses_sessions
        return "legacy" if asks else self.common.known_revision

    @_known_revision.setter
    def _known_revision(self, era: Revision | None) -> None:
        if not self._asks_for_session:
            self.common.known_revision = era
        elif era == "modern":
            self.common.refuses_sessions = True

    @property
    def needs_list(self) -> bool:
        return self._server.needs_list

    async def verified(self, until_s: float) -> None:
        await self._server.verified(until_s)

    def replace_record(self, record: ServerRecord) -> None:
        super().replace_record(_own_record(record, self._owner))

    async def connected(self, until_s: float) -> ServerConnection:
        link = await super().connected(until_s)
        async with self._introducing:
            client, self.newcomer = self.newcomer, None
            if link.server_info.revision == "legacy" and client is not None and _has_roots(client):
                await self._introduce(link, client, until_s)
        return link

    async def _introduce(self, link: ServerConnection, client: ClientChannel, until_s: float) -> None:
        """Let a server that asks for roots when it starts have them before the first call.

        It has asked by the time it answers a ping, which ends once its questions are answered.
        """
        timeout_s = min(until_s - self._clock(), ROOTS_WAIT_S)
        with suppress(CallTimedOut, ServerUnavailable):
            await link.request("ping", {}, timeout_s=timeout_s, client=client)

    def on_notification(self, method: str, params: bytes) -> None:
        self._server.on_notification(method, params)

    def _next(self) -> tuple[float, Step]:
        if self.link is None and self._is_demanded:
            return self._restarts.not_before_s, self._start
        return self._idle_s(self.record.idle_timeout_s or self._around.limits.session_idle_s), self._expire

    async def _expire(self) -> None:
        self._on_idle()

    def _on_started(self, link: ServerConnection) -> None:
        super()._on_started(link)
        self._server.on_session_opened()

    def _enter(self, state: HealthState, *, error: str = "", hint: str = "") -> None:
        super()._enter(state, error=error, hint=hint)
        # A caller who has yet to log in says nothing about the server.
        if error and not self._needs_login:
            self._server.on_session_failed(error)


class DedicatedConnections:
    """The links of all sessions, or all principals, to one server."""

    def __init__(self, server: DedicatedServer, around: PoolContext) -> None:
        self._server = server
        self._around = around
        self._links: dict[CallerKey, DedicatedConnection] = {}
        self._ended_calls = 0
        self._is_per_session = server.record.sharing == "per_session"
        self._is_per_principal = server.record.is_per_principal

    def __iter__(self) -> Iterator[DedicatedConnection]:
        return iter(self._links.values())

    @property
    def is_used(self) -> bool:
        """Whether a session or principal has a link."""
        return bool(self._links)

    @property
    def is_over(self) -> bool:
        """Nothing is left of those that were stopped."""
        return all(link.is_over for link in self)

    @property
    def calls(self) -> int:
        return self._ended_calls + sum(link.calls for link in self)

    def of(self, session: str, client: ClientChannel | None) -> DedicatedConnection:
        """The link for a call of `client` in `session`, to be opened if there is none yet.

        Requests without a session are one session among themselves. Raises ServerBusy; and LoginRequired
        where the server wants to know on whose behalf, and nobody is there.
        """
        owner = self._owner(session, client)
        link = self._links.get(owner)
        if link is None:
            link = self._add(owner, client)
        if link.link is None and self._is_per_session:
            link.newcomer = client
        return link

    def _owner(self, session: str, client: ClientChannel | None) -> CallerKey:
        has_session = client is not None and client.has_session
        if not self._is_per_principal:
            return CallerKey(session, has_session=has_session)
        if client is None or not client.principal_id:
            raise LoginRequired(f"server `{self._server.record.server_id}` is used on behalf of its callers")
        return CallerKey(session if self._is_per_session else "", client.principal_id, has_session)

    def _add(self, owner: CallerKey, client: ClientChannel | None) -> DedicatedConnection:
        principal_id = "" if client is None else client.principal_id
        count = len(self._links)
        if not self._has_room_for(principal_id):
            server_id, owners = self._server.record.server_id, "sessions" if owner.session else "principals"
            raise ServerBusy(
                f"server `{server_id}` serves {count} {owners} on this node and takes no more",
                hint="close sessions that are done, or retry in a few minutes",
            )
        link = self._links[owner] = DedicatedConnection(
            self._server,
            self._around,
            owner=owner,
            principal_id=principal_id,
            capabilities=self._capabilities(client),
            on_idle=lambda: self._end(owner),
        )
        link.start()
        return link

    def _has_room_for(self, principal_id: str) -> bool:
        limits, count = self._around.limits, len(self._links)
        most = limits.session_links if self._is_per_session else limits.principal_links
        held = sum(link.principal_id == principal_id for link in self)
        return count < most and (count * 5 < most * 4 or held * SHARE < most)

    def _capabilities(self, client: ClientChannel | None) -> bytes | None:
        """Those of the one client behind a link; None: a principal may have several."""
        if not self._is_per_session:
            return None
        return NO_CAPABILITIES if client is None else client.capabilities

    def end(self, session: str) -> None:
        """Close the link of `session`, if it has one."""
        if self._is_per_session:
            for has_session in (True, False):
                self._end(CallerKey(session, has_session=has_session))
            if self._is_per_principal:
                self._end_those(lambda owner: owner.session == session)

    def end_all(self, principal_id: str) -> None:
        """Close the links of a principal; those that are no principal's own, where it is empty."""
        self._end_those(lambda owner: owner.principal_id == principal_id)

    def _end_those(self, are_meant: Callable[[CallerKey], bool]) -> None:
        for owner in tuple(filter(are_meant, self._links)):
            self._end(owner)

    def _end(self, owner: CallerKey) -> None:
        link = self._links.pop(owner, None)
        if link is not None:
            self._ended_calls += link.calls
            link.stop()

    def replace_record(self, record: ServerRecord) -> None:
        for link in self:
            link.replace_record(record)

    def stop(self, *, drain_s: float) -> None:
        """As `Connection.stop`, for all."""
        for link in self:
            link.stop(drain_s=drain_s)


def _has_roots(client: ClientChannel) -> bool:
    """Whether it can be asked for them while its call runs."""
    return client.has_session and b'"roots"' in client.capabilities


def _own_record(record: ServerRecord, owner: CallerKey) -> ServerRecord:
    return record.owned_by(owner.principal_id) if owner.principal_id else record
