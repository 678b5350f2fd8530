"""Long work in pieces: whoever else waits for the loop has a turn in between."""

import asyncio
from typing import Final

TURN_S: Final = 0.01
"""How long one works before others have their turn."""


class Turns:
    """Those of one piece of long work."""

    __slots__ = ("_clock", "_until_s")

    def __init__(self) -> None:
        self._clock = asyncio.get_running_loop().time
        self._until_s = self._clock() + TURN_S

    async def rest(self) -> None:
        """Let the others have theirs, if this one was long enough. To be called often."""
        if self._clock() > self._until_s:
            await asyncio.sleep(0)
            self._until_s = self._clock() + TURN_S
