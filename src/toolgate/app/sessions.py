"""Has every node know which sessions were ended: those that end here are told to others, and theirs heard."""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Final

from toolgate.app.components import run_in_background
from toolgate.errors import ToolgateError
from toolgate.model.reports import EndedSession
from toolgate.registry.store.contract import EndedSessions
from toolgate.surfaces.mcp.session import ClientSessions

SYNC_EVERY_S: Final = 2.0
"""How late a node hears of a session that was ended at another. Control asks its database once a second."""
SWEEP_S: Final = 60.0
"""How late an idle session ends. It takes a look at each of at most 10,000."""
MAX_SENT_AT_ONCE: Final = 1_000
MAX_PENDING: Final = 10_000
"""Not told yet, while control is away; the oldest are dropped then."""

SyncEndedSessions = Callable[[Sequence[EndedSession], int], Awaitable[Sequence[EndedSession]]]
"""Tells of sessions that ended here; those that ended anywhere, from a time on."""

_log: Final = logging.getLogger(__name__)


class EndedSessionExchange:
    """Follows and tells. `run` it in a task of its own."""

    def __init__(
        self,
        sessions: ClientSessions,
        sync: SyncEndedSessions,
        *,
        every_s: float = SYNC_EVERY_S,
        retry_s: float = SYNC_EVERY_S,
    ) -> None:
        """`retry_s`: how soon after a failure, which may be long before the next look is due."""
        self._sessions = sessions
        self._sync = sync
        self._every_s = every_s
        self._retry_s = retry_s
        self._pending: list[EndedSession] = []
        self._after_ms = 0
        self._news = asyncio.Event()
        sessions.on_ended = self._on_ended

    def _on_ended(self, ended: EndedSession) -> None:
        self._pending.append(ended)
        del self._pending[:-MAX_PENDING]
        self._news.set()

    async def run(self) -> None:
        """Until cancelled."""
        is_failing = False
        while True:
            try:
                await self.sync_once()
                is_failing = False
            except ToolgateError as exc:
                if not is_failing:
                    _log.warning("which sessions were ended cannot be told to other nodes: %s", exc)
                is_failing = True
                await asyncio.sleep(self._retry_s)
                continue
            if not self._pending:
                with suppress(TimeoutError):
                    async with asyncio.timeout(self._every_s):
                        await self._news.wait()

    async def sync_once(self) -> None:
        """Exchange ended sessions once."""
        self._news.clear()
        sent = self._pending[:MAX_SENT_AT_ONCE]
        received = await self._sync(sent, self._after_ms)
        known = set(sent)  # meanwhile more may have ended, and the oldest been dropped
        self._pending = [one for one in self._pending if one not in known]
        self._sessions.apply_ended([one.nonce for one in received])
        self._after_ms = max((one.at_ms for one in received), default=self._after_ms)


@asynccontextmanager
async def open_session_upkeep(sessions: ClientSessions, *, every_s: float = SWEEP_S) -> AsyncIterator[None]:
    """End idle sessions meanwhile, and all of them on leaving, so that what each used is recorded."""

    async def sweep() -> None:
        while True:
            await asyncio.sleep(every_s)
            sessions.drop_idle()

    async with run_in_background(sweep()):
        try:
            yield
        finally:
            sessions.close()


def build_store_sync(kept: EndedSessions) -> SyncEndedSessions:
    """For a process that has the store itself."""

    async def sync(ended: Sequence[EndedSession], after_ms: int) -> Sequence[EndedSession]:
        await kept.add(ended)
        return await kept.list(after_ms=after_ms)

    return sync
