"""Comparing what a connection of a pinned server lists, before the first call on it.

For connections that are not listed otherwise: those of sessions, and the second one of a server of both
revisions. Behind another connection may be another program than the one whose tools were approved.
"""

import asyncio

from toolgate.errors import CallTimedOut, ServerUnavailable
from toolgate.model.pins import Pin
from toolgate.upstream.connection.contract import Link
from toolgate.upstream.lists import ListFailed, Read, read_list


class Vetting:
    """Whether the tools that a link lists are those that were approved: looked at once for each session."""

    def __init__(self, server_id: str) -> None:
        self._server_id = server_id
        self._vetted: Link | None = None
        self._sessions = 0
        self._turn = asyncio.Lock()

    def renew(self) -> None:
        """The link has another session: what was seen holds no more."""
        self._vetted = None
        self._sessions += 1

    async def check(self, link: Link, pin: Pin, until_s: float) -> bool:
        """Returns once `link` lists what `pin` approves: whether that took time. Raises ServerUnavailable."""
        if self._vetted is link:
            return False
        try:
            async with asyncio.timeout_at(until_s), self._turn:
                while self._vetted is not link:
                    session = self._sessions
                    self._compare(await self._read(link, until_s), pin)
                    if session == self._sessions:
                        self._vetted = link
        except TimeoutError as exc:
            raise CallTimedOut(
                f"server `{self._server_id}` was not listed within the call's time; nothing was sent"
            ) from exc
        return True

    async def _read(self, link: Link, until_s: float) -> Read:
        timeout_s = until_s - asyncio.get_running_loop().time()
        try:
            return await read_list("tools", self._server_id, link, timeout_s=timeout_s)
        except ListFailed as exc:
            raise ServerUnavailable(
                f"server `{self._server_id}` offers only what was approved, and could not be listed "
                "since it was connected; nothing was sent"
            ) from exc

    def _compare(self, read: Read, pin: Pin) -> None:
        """Tools that are known to have changed are not offered anyway, and keep no call from the others."""
        listed = {name: tool.digest for name, tool in read.entries.items() if name not in pin.changed}
        if any(listed.get(name, digest) != digest for name, digest in pin.tools.items()):
            raise ServerUnavailable(
                f"server `{self._server_id}` lists other tools on this connection than were approved; "
                "nothing was sent"
            )
