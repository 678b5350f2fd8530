"""Servers that keep state per session: each session has a link of its own, and nobody else's calls use it.

A link is opened by the first call of its session and tells the server what that session's client can do. It
ends with the session, with the server's record, or when nobody has called for a while. One that is lost
is opened again by the next call; what the server knew of the session is lost with it.
"""

from collections.abc import Callable, Iterator
from typing import Final, Protocol

from toolgate.errors import ServerBusy
from toolgate.model.reports import HealthState
from toolgate.model.servers import ServerRecord
from toolgate.upstream.connection import Act, Common, Connection, Surroundings
from toolgate.upstream.link import ClientSide, Link

NO_CAPABILITIES: Final = b"{}"


class Server(Protocol):
    """The server whose sessions these are."""

    record: ServerRecord
    common: Common

    def on_notification(self, method: str, params: bytes) -> None:
        """The server says something that belongs to no call."""

    def on_session_opened(self) -> None:
        """A session has a link now."""

    def on_session_failed(self, reason: str) -> None:
        """A session's link was lost, or could not be opened."""


class SessionLink(Connection):
    """The link of one session to one server."""

    def __init__(
        self,
        server: Server,
        around: Surroundings,
        *,
        capabilities: bytes,
        on_idle: Callable[[], None],
    ) -> None:
        super().__init__(server.record, around, common=server.common, capabilities=capabilities)
        self._server = server
        self._on_idle = on_idle

    def on_notification(self, method: str, params: bytes) -> None:
        self._server.on_notification(method, params)

    def _next(self) -> tuple[float, Act]:
        if self.link is None and self._is_demanded:
            return self._restarts.not_before_s, self._start
        return self._idle_s(self.record.idle_timeout_s or self._around.limits.session_idle_s), self._expire

    async def _expire(self) -> None:
        self._on_idle()

    def _on_started(self, link: Link) -> None:
        super()._on_started(link)
        self._server.on_session_opened()

    def _enter(self, state: HealthState, *, error: str = "") -> None:
        super()._enter(state, error=error)
        if error:
            self._server.on_session_failed(error)


class SessionLinks:
    """The links of all sessions to one server."""

    def __init__(self, server: Server, around: Surroundings) -> None:
        self._server = server
        self._around = around
        self._links: dict[str, SessionLink] = {}
        self._ended_calls = 0

    def __iter__(self) -> Iterator[SessionLink]:
        return iter(self._links.values())

    @property
    def is_over(self) -> bool:
        """Nothing is left of those that were stopped."""
        return all(link.is_over for link in self)

    @property
    def calls(self) -> int:
        return self._ended_calls + sum(link.calls for link in self)

    def of(self, session: str, client: ClientSide | None) -> SessionLink:
        """The link of `session`, to be opened for `client` if it has none yet.

        Requests without a session are one session among themselves. Raises ServerBusy.
        """
        link = self._links.get(session)
        return self._add(session, client) if link is None else link

    def _add(self, session: str, client: ClientSide | None) -> SessionLink:
        count, most = len(self._links), self._around.limits.session_links
        if count >= most:
            server_id = self._server.record.server_id
            raise ServerBusy(
                f"server `{server_id}` serves {count} sessions on this node and takes no more",
                hint="close sessions that are done, or retry in a few minutes",
            )
        link = self._links[session] = SessionLink(
            self._server,
            self._around,
            capabilities=NO_CAPABILITIES if client is None else client.capabilities,
            on_idle=lambda: self.end(session),
        )
        link.start()
        return link

    def end(self, session: str) -> None:
        """Close the link of `session`, if it has one."""
        link = self._links.pop(session, None)
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
