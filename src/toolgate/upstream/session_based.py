"""The session-based connection to a server whose own connection is stateless, for calls that need one.

It is opened by the first such call, and its calls count against the same concurrency. The server's own
connection lists for both. A server that refuses a session, or cannot open one now, is called on its own
connection instead.
"""

from contextlib import suppress
from dataclasses import replace
from typing import Protocol

from toolgate.errors import ServerUnavailable
from toolgate.model.servers import ServerRecord
from toolgate.upstream.connection.contract import Link, Params, Reply, StartFailed
from toolgate.upstream.gate import Gate
from toolgate.upstream.pool.managed_connection import Act, Common, Connection, Surroundings
from toolgate.upstream.pool.revisions import RevisionChoice


class StatelessServer(Protocol):
    """The server whose own connection is stateless."""

    record: ServerRecord
    common: Common
    gate: Gate
    revisions: RevisionChoice | None

    @property
    def needs_list(self) -> bool:
        """As `Connection.needs_list`."""

    async def verified(self, until_s: float) -> None:
        """As `Connection.verified`."""

    async def connected(self, until_s: float) -> Link:
        """Its own connection."""

    def on_notification(self, method: str, params: bytes) -> None:
        """The server says something that belongs to no call."""

    def on_answered(self, link: Link, method: str, params: Params, reply: Reply) -> None:
        """A call was answered on its own connection."""

    def on_session_refused(self, reason: str) -> None:
        """The server does not do sessions after all."""


class SessionBasedConnection(Connection):
    """Shared by all calls that need a session-based connection to one server."""

    def __init__(self, server: StatelessServer, around: Surroundings) -> None:
        record = _in_sessions(server.record)
        common = Common(stderr=server.common.stderr, headers=server.common.headers)
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
        super().replace_record(_in_sessions(record))

    def on_notification(self, method: str, params: bytes) -> None:
        self._server.on_notification(method, params)

    async def connected(self, until_s: float) -> Link:
        """The session-based link; the server's own one where it has none to give."""
        with suppress(ServerUnavailable):
            return await super().connected(until_s)
        return await self._server.connected(until_s)

    def on_answered(self, link: Link, method: str, params: Params, reply: Reply) -> None:
        if link.hello.era == "legacy":
            super().on_answered(link, method, params, reply)
        else:  # says nothing of sessions: the backoff of those stays
            self._server.on_answered(link, method, params, reply)

    def _next(self) -> tuple[float, Act]:
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


def _in_sessions(record: ServerRecord) -> ServerRecord:
    return replace(record, protocol="session")
