"""When whoever follows a log waits: calls come first.

To take an event in costs more than to write it down. So where this process is busy, that is put off until it
is not, and goes on slowly meanwhile; unless so much is behind that it might be rotated away first.
"""

import time
from collections.abc import Callable
from typing import Final

BUSY: Final = 0.6
"""More of a processor than this, used by the process, leaves no time for what can wait."""
SHARE: Final = 0.04
"""Of the time, what then goes into following."""
LONGEST_S: Final = 2.0


class GivingWay:
    """Says how long to wait before the next piece of a log is taken in."""

    def __init__(
        self,
        *,
        clock_s: Callable[[], float] = time.monotonic,
        processor_s: Callable[[], float] = time.process_time,
    ) -> None:
        self._clock_s = clock_s
        self._processor_s = processor_s
        self._looked_s = clock_s()
        self._used_s = processor_s()

    def pause_s(self, took_s: float, *, behind: int, most: int) -> float:
        """`took_s`: how long the last piece took. `behind`: lines still to take, of which `most` may wait."""
        now_s, used_s = self._clock_s(), self._processor_s()
        passed_s, spent_s = now_s - self._looked_s, used_s - self._used_s
        self._looked_s, self._used_s = now_s, used_s
        is_busy = spent_s > BUSY * passed_s
        return min(took_s * (1 / SHARE - 1), LONGEST_S) if is_busy and behind <= most else 0.0
