"""How often something kept beside the records changed, for those who wait for the next time."""

import asyncio

from toolgate.errors import StorageFailed


class ChangeCounter:
    """Starts at 0 and rises. Used from the event loop only."""

    def __init__(self) -> None:
        self._count = 0
        self._news = asyncio.Event()
        self._is_closed = False

    def increment(self) -> None:
        """Something was saved or dropped, here or by another replica."""
        self._count += 1
        self._wake()

    def close(self) -> None:
        """End every wait with StorageFailed."""
        self._is_closed = True
        self._wake()

    async def changed(self, seen: int) -> int:
        """Wait until it is above `seen`; what it is then."""
        while self._count <= seen:
            if self._is_closed:
                raise StorageFailed("the store is closed")
            await self._news.wait()
        return self._count

    def _wake(self) -> None:
        news, self._news = self._news, asyncio.Event()
        news.set()
