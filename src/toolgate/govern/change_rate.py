"""How often callers change what they have chosen for themselves.

Each change is a transaction of the registry. Those are else made by people who govern; here each agent makes
them, so each has a limit. Held by `Control`.
"""

import time
from collections.abc import Callable
from typing import Final

from toolgate.errors import TooManyAttempts

MAX_CHANGES: Final = 30
"""Of one caller in a minute: a person who goes through a list of switches is not slowed down."""
MAX_ALL_CHANGES: Final = 600
"""Of all callers together in a minute: with 10,000 revisions kept, no watcher loses its place in the log."""
WINDOW_S: Final = 60.0


class IntegrationRateLimit:
    """Counts changes in windows of a minute. `clock_s` is monotonic."""

    def __init__(self, *, clock_s: Callable[[], float] = time.monotonic) -> None:
        self._clock_s = clock_s
        self._began_s = clock_s()
        self._changes: dict[str, int] = {}
        self._total = 0

    def count(self, principal_id: str) -> None:
        """One more change by `principal_id`. Raises TooManyAttempts where that is one too many."""
        now = self._clock_s()
        if now - self._began_s >= WINDOW_S:
            self._began_s, self._total = now, 0
            self._changes.clear()
        changes = self._changes.get(principal_id, 0)
        if changes >= MAX_CHANGES or self._total >= MAX_ALL_CHANGES:
            wait_s = max(1, round(self._began_s + WINDOW_S - now))
            raise TooManyAttempts(
                "integrations are changed too often",
                hint=f"wait {wait_s} s",
                data={"retry_after_s": wait_s},
            )
        self._changes[principal_id] = changes + 1
        self._total += 1
