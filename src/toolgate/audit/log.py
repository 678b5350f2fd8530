"""The audit log: events in, numbered and in order, handed to a sink in batches.

Recording never waits and never fails a call: events gather in memory and leave together, at the
latest after `FLUSH_S`. A sink that fails is reported once and the events are kept for the next try.
"""

import asyncio
import logging
from collections.abc import Sequence
from typing import Final, Protocol

from toolgate.audit.events import AuditEvent

FLUSH_S: Final = 0.2
FLUSH_EVENTS: Final = 128
MAX_HELD: Final = 100_000
"""Events held while a sink fails. Past it the oldest go, and their number is logged."""

_log = logging.getLogger(__name__)


class Sink(Protocol):
    """Where audit events go. `write` gets (sequence, event) pairs, in order, each once."""

    def write(self, events: Sequence[tuple[int, AuditEvent]]) -> None:
        """Take all of `events`, or raise OSError and take none."""

    def close(self) -> None:
        """Release what is held. Idempotent."""


class AuditLog:
    """Numbers events and passes them on in batches."""

    def __init__(self, sink: Sink, *, first_sequence: int = 1) -> None:
        self._sink = sink
        self._next = first_sequence
        self._held: list[tuple[int, AuditEvent]] = []
        self._timer: asyncio.TimerHandle | None = None
        self._is_failing = False

    def record(self, event: AuditEvent) -> None:
        """Take note of `event`. Must be called on the event loop."""
        self._held.append((self._next, event))
        self._next += 1
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(FLUSH_S, self.flush)
        elif len(self._held) == FLUSH_EVENTS:
            self.flush()

    def flush(self) -> None:
        """Hand over what is held."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if not self._held:
            return
        try:
            self._sink.write(self._held)
        except OSError as exc:
            self._on_failure(exc)
            return
        self._held = []
        self._is_failing = False

    def close(self) -> None:
        """Flush and close the sink."""
        self.flush()
        self._sink.close()

    def _on_failure(self, exc: OSError) -> None:
        if not self._is_failing:
            _log.error("audit sink fails, events are held: %s", exc)
        self._is_failing = True
        excess = len(self._held) - MAX_HELD
        if excess > 0:
            _log.error("audit events lost: %d", excess)
            del self._held[:excess]
