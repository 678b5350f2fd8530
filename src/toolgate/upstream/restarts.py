"""When a server may be started next. Decides only: time and chance come in as arguments."""

from collections import deque
from collections.abc import Callable
from typing import Final

from toolgate.upstream.limits import PoolLimits

FATAL_WAIT_S: Final = 30.0
"""After a failure that trying again cannot mend, how long until a call may try all the same."""
_JITTER: Final = 0.25
_MAX_DOUBLINGS: Final = 32


class Restarts:
    """Backoff and start limit of one server."""

    __slots__ = (
        "_failures",
        "_jitter",
        "_limits",
        "_max_wait_s",
        "_recent",
        "count",
        "is_fatal",
        "not_before_s",
    )

    def __init__(self, limits: PoolLimits, jitter: Callable[[], float], *, max_wait_s: float) -> None:
        self._limits = limits
        self._max_wait_s = max_wait_s
        self._jitter = jitter
        self._failures = 0
        self._recent: deque[float] = deque(maxlen=limits.max_starts)
        self.count = 0
        """Starts that followed a failure."""
        self.is_fatal = False
        """The newest start failed in a way that trying again cannot mend."""
        self.not_before_s = 0.0

    def on_start(self, now_s: float) -> None:
        self.count += self._failures > 0
        self._recent.append(now_s)

    def on_failed(self, now_s: float, *, is_fatal: bool, asked_s: float = 0.0) -> None:
        """A start came to nothing. `asked_s` is how long the server asks to be left alone."""
        self._back_off(now_s)
        self.not_before_s = max(self.not_before_s, now_s + asked_s)
        self.is_fatal = is_fatal
        if is_fatal:
            self.not_before_s = now_s + FATAL_WAIT_S

    def on_lost(self, now_s: float) -> None:
        """A link ended by itself. One that held for a while counts as a first failure."""
        if self._recent and now_s - self._recent[-1] >= self._limits.start_window_s:
            self.forgive()
        self._back_off(now_s)

    def forgive(self) -> None:
        """Start afresh: the link held, was closed by us, or somebody asks for another try."""
        self._failures = 0
        self._recent.clear()
        self.is_fatal = False
        self.not_before_s = 0.0

    def is_exhausted(self, now_s: float) -> bool:
        """Whether the newest start used up what the window allows."""
        return (
            len(self._recent) == self._limits.max_starts
            and now_s - self._recent[0] < self._limits.start_window_s
        )

    def _back_off(self, now_s: float) -> None:
        limits = self._limits
        doubled_s = limits.backoff_s * 2 ** min(self._failures, _MAX_DOUBLINGS)
        wait_s = min(doubled_s, self._max_wait_s) * (1 - _JITTER * self._jitter())
        self._failures += 1
        self.not_before_s = now_s + wait_s
        if self.is_exhausted(now_s):
            self.not_before_s = max(self.not_before_s, self._recent[0] + limits.start_window_s)
