"""A server's health as this node sees it, and when it may be started again.

Decides only: the caller passes the clock and the jitter in.
"""

import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from toolgate.errors import ServerUnavailable
from toolgate.model.reports import HealthState
from toolgate.model.tools import Revision
from toolgate.upstream.connection.contract import PoolLimits

FATAL_WAIT_S: Final = 30.0
"""How long after a failure that a retry cannot fix, until a call may try again."""
STDERR_TAIL_BYTES: Final = 64 * 1024  # as much as a pipe holds: hundreds of lines of a child
_JITTER: Final = 0.25  # a choice: waits lose up to a quarter, so servers lost together restart one by one
_MAX_DOUBLINGS: Final = 32  # above every maximum wait; without it, the power would overflow a float


@dataclass(slots=True)
class RestartBackoff:
    """Backoff and start limit of one server."""

    limits: PoolLimits
    jitter: Callable[[], float]
    max_wait_s: float
    count: int = 0
    """Starts after a failure."""
    is_fatal: bool = False
    """The newest start failed in a way that a retry cannot fix."""
    not_before_s: float = 0.0
    _failures: int = 0
    _recent: deque[float] = field(default_factory=deque)
    """When the newest starts began, at most `max_starts`."""

    def on_start(self, now_s: float) -> None:
        self.count += self._failures > 0
        self._recent.append(now_s)
        if len(self._recent) > self.limits.max_starts:
            self._recent.popleft()

    def on_failed(self, now_s: float, *, is_fatal: bool, delay_s: float = 0.0) -> None:
        """A start failed. `delay_s` is the delay that the server requests."""
        self._back_off(now_s)
        self.not_before_s = max(self.not_before_s, now_s + delay_s)
        self.is_fatal = is_fatal
        if is_fatal:
            self.not_before_s = now_s + FATAL_WAIT_S

    def on_lost(self, now_s: float) -> None:
        """A connection ended by itself. One that lasted counts as a first failure."""
        if self._recent and now_s - self._recent[-1] >= self.limits.start_window_s:
            self.reset()
        self._back_off(now_s)

    def reset(self) -> None:
        """Forget all failures: the connection lasted, the gateway closed it, or an admin requests a retry."""
        self._failures = 0
        self._recent.clear()
        self.is_fatal = False
        self.not_before_s = 0.0

    def is_exhausted(self, now_s: float) -> bool:
        """Whether the newest start was the last one that the window allows."""
        is_full = len(self._recent) == self.limits.max_starts
        return is_full and now_s - self._recent[0] < self.limits.start_window_s

    def _back_off(self, now_s: float) -> None:
        limits = self.limits
        doubled_s = limits.backoff_s * 2 ** min(self._failures, _MAX_DOUBLINGS)
        wait_s = min(doubled_s, self.max_wait_s) * (1 - _JITTER * self.jitter())
        self._failures += 1
        self.not_before_s = now_s + wait_s
        if self.is_exhausted(now_s):
            self.not_before_s = max(self.not_before_s, self._recent[0] + limits.start_window_s)


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerHealth:
    """One server as this node sees it now.

    connected: the connection is up and the newest list was good, or is being read. starting: a connection is
    being opened; after a failure, only if that takes long. degraded: the newest list failed, or the
    connection was lost and will be reopened. down: it could not be started; calls fail at once until the
    backoff has passed. idle: no connection, and no failure. disabled: by its record.
    """

    state: HealthState
    last_error: str = ""
    """The newest failure, even if the server has recovered since."""
    hint: str = ""
    """What a start waits for, or what to do about the newest failure."""
    since_ms: int = 0
    """Wall clock at which `state` was entered."""
    restarts: int = 0
    pid: int | None = None
    era: Revision | None = None
    version: str | None = None
    stderr_tail: str = ""
    in_flight: int = 0
    queued: int = 0
    tools: int = 0
    quarantined: int = 0
    calls: int = 0
    """Admitted calls, since the record was first applied or last reconnected."""
    last_list_ms: int | None = None
    """How long the newest good list of tools took."""
    session_links: int = 0
    """Open dedicated connections."""
    verified_ms: int = 0
    """Wall clock at which the server last listed its tools, in this run or an earlier one. 0: never."""


def describe_slow_start(server_id: str, since_s: float, awaited: str) -> ServerUnavailable:
    """The error of a call whose server is still starting. `awaited` is what that waits for, if known."""
    reason = f": {awaited}" if awaited else ""
    return ServerUnavailable(
        f'server "{server_id}" is still starting ({since_s:.0f} s){reason}',
        hint="nothing to do; raise start_timeout_s if the network is slow",
    )


class StderrTail:
    """The last 64 KiB that a server's children wrote to their standard error, over all restarts."""

    __slots__ = ("_kept",)

    def __init__(self) -> None:
        self._kept = bytearray()

    def add(self, text: bytes) -> None:
        self._kept += text[-STDERR_TAIL_BYTES:]
        # Cut in large steps, so a child that never stops writing costs little per write.
        if len(self._kept) > 2 * STDERR_TAIL_BYTES:
            del self._kept[:-STDERR_TAIL_BYTES]

    def __str__(self) -> str:
        return self._kept[-STDERR_TAIL_BYTES:].decode("utf-8", "replace")


def wall_ms() -> int:
    return time.time_ns() // 1_000_000
