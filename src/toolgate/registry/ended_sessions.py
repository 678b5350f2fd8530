"""The contract of ended sessions: kept next to the records, without revisions, until their ids have expired.

Any number of nodes tell of sessions that were ended there and hear of those of the others, through any number
of replicas of the control plane on one database.
"""

from collections.abc import Callable, Sequence
from typing import Protocol

from toolgate.model.sessions import MAX_ENDED, EndedSession


class EndedSessions(Protocol):
    """Those that are remembered."""

    async def add(self, ended: Sequence[EndedSession]) -> None:
        """Remember them. One that is known stays as it is."""

    async def list(self, *, after_ms: int = 0) -> Sequence[EndedSession]:
        """Those with `at_ms` from then on whose ids have not expired, the oldest first."""

    async def forget(self) -> None:
        """Drop those that have expired, and the oldest of too many."""


class MemoryEndedSessions:
    """In a dict: for tests, and for trying things out."""

    def __init__(self, clock_ms: Callable[[], int]) -> None:
        self._clock_ms = clock_ms
        self._ended: dict[str, EndedSession] = {}

    async def add(self, ended: Sequence[EndedSession]) -> None:
        for one in ended:
            self._ended.setdefault(one.nonce, one._replace(at_ms=self._clock_ms()))

    async def list(self, *, after_ms: int = 0) -> Sequence[EndedSession]:
        now_ms = self._clock_ms()
        return [one for one in self._ended.values() if one.at_ms >= after_ms and one.until_ms > now_ms]

    async def forget(self) -> None:
        kept = [one for one in self._ended.values() if one.until_ms > self._clock_ms()][-MAX_ENDED:]
        self._ended = {one.nonce: one for one in kept}
