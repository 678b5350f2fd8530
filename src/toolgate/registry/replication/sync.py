"""How a node follows the control plane: it lists, watches from there, and polls as a safety net.

The node always serves its newest complete state. While the control plane is unavailable it keeps serving that
state, reports it in `status`, and reconnects. Only whole transactions replace a state, and within one history
never an older state.
"""

import asyncio
import logging
import math
import random
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import KW_ONLY, dataclass, field, replace
from typing import Any, Final, NamedTuple, Protocol

from toolgate.errors import Compacted, ControlUnavailable, ToolgateError, WatchLagged
from toolgate.model.reports import Definitions, NodeReport
from toolgate.model.revisions import ChangeBatch, RecordList
from toolgate.registry.replication.state import RegistryState, apply_batch, parse_listing

_log: Final = logging.getLogger(__name__)
_MAX_DOUBLINGS: Final = 32  # far beyond the bound, and 2 ** n stays a small number


class HistoryPosition(NamedTuple):
    """A position in a history."""

    epoch: str
    revision: int
    digest: str = ""
    """The digest of the log up to `revision`. Empty if unknown: earlier releases have none."""

    def differs_from(self, other: "HistoryPosition") -> bool:
        """Whether the two are known to belong to different histories."""
        if self.epoch != other.epoch:
            return True
        is_known = bool(self.digest and other.digest)
        return is_known and self.revision == other.revision and self.digest != other.digest


class ControlConnection(Protocol):
    """The control plane as a node follows it. Every failure is a ToolgateError, and most are temporary.

    One suite in `tests/contract/` runs against each implementation.
    """

    async def list_records(self) -> RecordList:
        """Return all records at one revision."""

    async def newest(self) -> HistoryPosition:
        """Return the position that a listing would have now."""

    def watch_records(
        self, since: HistoryPosition
    ) -> AbstractAsyncContextManager[AsyncIterator[ChangeBatch]]:
        """Iterate over batches after `since`, with a bookmark every few seconds without a batch.

        Raises Compacted if the log does not reach back to `since` or has another history, and WatchLagged if
        this reader is too slow: in both cases, list again. It may also just end.
        """

    async def report(self, report: NodeReport, definitions: Sequence[Definitions]) -> Sequence[str]:
        """Report to the control plane. Returns the ids of servers whose definitions it requests."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SyncLimits:
    """Deadlines and delays of a node that follows the control plane."""

    backoff_s: float = 0.2
    backoff_max_s: float = 10.0
    """A wait is random, up to a bound that doubles from the first value to the second (full jitter)."""
    resume_max_s: float = 1.0
    """The bound after a watch that delivered: even if watches break often, changes arrive within 2 s."""
    relist_spread_s: float = 1.0
    """A cause that makes one node list again mostly concerns all nodes: each waits for a random part of
    this."""
    poll_min_s: float = 30.0
    poll_max_s: float = 120.0
    silence_s: float = 10.0
    """The control plane sends a bookmark every 5 s. A watch that is silent for longer is ended."""
    held_s: float = 1.0
    """A watch that lasts this long resets the backoff."""
    settle_s: float = 2.0
    """How long a watch may take to deliver what a poll found."""
    behind_s: float = 10.0
    """How long the control plane must be at an older revision before it counts as restored from a backup."""


DEFAULT_LIMITS: Final = SyncLimits()


@dataclass(frozen=True, slots=True, kw_only=True)
class SyncStatus:
    """The status of a node's sync."""

    is_degraded: bool = False
    """Whether the served state may be outdated."""
    last_error: str = ""
    """Why it is, or last was, degraded."""
    code: str = ""
    """The code of that error."""
    revision: int = 0
    epoch: str = ""
    last_contact_s: float | None = None
    """When the state was last known to be current, by the loop's clock. None: never."""
    relists: int = 0
    """How often a watch could not resume where it ended."""


@dataclass(eq=False)
class Backoff:
    """Waits after failures, with full jitter, so that nodes that fail together do not reconnect together."""

    limits: SyncLimits
    jitter: Callable[[], float]
    _failures: int = 0

    def wait_s(self, *, at_least_up_to_s: float = 0.0, at_most_s: float = math.inf) -> float:
        """Return the next wait. Its bound is between the two given ones."""
        doubled_s: float = self.limits.backoff_s * 2 ** min(self._failures, _MAX_DOUBLINGS)
        self._failures += 1
        bound_s = min(doubled_s, self.limits.backoff_max_s, at_most_s)
        return self.jitter() * max(at_least_up_to_s, bound_s)

    def forgive(self) -> None:
        self._failures = 0


@dataclass(eq=False)
class NodeSync:
    """Keeps a node's state equal to the control plane's, while `run` runs in its own task."""

    connection: ControlConnection
    _: KW_ONLY
    apply: Callable[[RegistryState], None]
    """Gets each new state."""
    on_contact: Callable[[], None] = lambda: None
    """Called whenever the state is known to be current."""
    limits: SyncLimits = DEFAULT_LIMITS
    jitter: Callable[[], float] = random.random
    status: SyncStatus = field(default=SyncStatus(), init=False)
    _state: RegistryState | None = field(default=None, init=False)
    _is_relist_due: bool = field(default=False, init=False)
    _timeout: asyncio.Timeout | None = field(default=None, init=False)
    """The timeout of the open watch. Rescheduling it to now ends the watch."""
    _has_received: bool = field(default=False, init=False)
    """Whether the control plane has sent anything since the last attempt began."""
    _is_replay: bool = field(default=False, init=False)
    """Whether the watch still replays, until its first bookmark."""
    _behind_since_s: float | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        self._backoff = Backoff(self.limits, self.jitter)

    async def run(self) -> None:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._poll())
            while True:
                wait_s = await self._follow()
                await asyncio.sleep(wait_s)

    async def _follow(self) -> float:
        """List if needed, and watch until the watch ends. Returns how long to wait before the next
        attempt."""
        self._has_received = False
        try:
            if self._state is None or self._is_relist_due:
                await self._list()
            await self._watch()
        except (Compacted, WatchLagged) as exc:
            _log.warning("the watch of the control plane cannot resume, listing again: %s", exc)
            self._note(relists=self.status.relists + 1)
            self._is_relist_due = True
            return self._backoff.wait_s(at_least_up_to_s=self.limits.relist_spread_s)
        except ToolgateError as exc:
            # Resume a watch that delivered and then broke: most often nothing is wrong.
            if self._has_received:
                return self._backoff.wait_s(at_most_s=self.limits.resume_max_s)
            # After an outage, a control plane restored to an earlier state may have passed our revision
            # again.
            self._is_relist_due |= self.status.is_degraded
            self._on_failure(exc)
        return self._backoff.wait_s()

    async def _list(self) -> None:
        listing = await self.connection.list_records()
        self._check_age(listing)
        # In a thread: parsing thousands of records would delay every caller.
        state = await asyncio.to_thread(parse_listing, listing)
        self._is_relist_due = False
        is_first = self._state is None
        self._replace_state(state)
        # Later the first bookmark of the watch counts: a node does not follow a control plane that it cannot
        # watch.
        if is_first:
            self._on_current()

    def _check_age(self, listing: RecordList) -> None:
        """Reject an older state of the same history, until it persists: then it was restored."""
        state = self._state
        if state is None or listing.epoch != state.epoch or listing.revision >= state.revision:
            self._behind_since_s = None
            return
        now_s = _now_s()
        if self._behind_since_s is None:
            self._behind_since_s = now_s
        older = f"the control plane is at revision {listing.revision}, this node already at {state.revision}"
        if now_s - self._behind_since_s < self.limits.behind_s:
            raise ControlUnavailable(older)
        _log.warning("%s: the control plane was restored, following it", older)
        self._behind_since_s = None

    async def _watch(self) -> None:
        """Apply batch after batch. Ends by raising."""
        state = self._state
        assert state is not None
        began_s = _now_s()
        self._is_replay = True
        try:
            async with (
                asyncio.timeout(self.limits.silence_s) as self._timeout,
                self.connection.watch_records(self._position) as batches,
            ):
                async for batch in batches:
                    self._check_poll()
                    self._timeout.reschedule(None)  # the time that this node needs is not silence
                    await self._on_batch(batch)
                    self._timeout.reschedule(_now_s() + self.limits.silence_s)
        except TimeoutError as exc:
            self._check_poll()
            raise ControlUnavailable(f"the control plane was silent for {self.limits.silence_s:g} s") from exc
        finally:
            self._timeout = None
            if _now_s() - began_s >= self.limits.held_s:
                self._backoff.forgive()
        raise ControlUnavailable("the control plane ended the watch")

    def _check_poll(self) -> None:
        """End the watch if a poll requested it: a batch at the same moment would reset the timeout."""
        if self._is_relist_due:
            raise WatchLagged("a poll found a change that the watch did not deliver")

    async def _on_batch(self, batch: ChangeBatch) -> None:
        state = self._state
        assert state is not None
        if self._position.differs_from(HistoryPosition(state.epoch, batch.revision, batch.digest)):
            raise Compacted(f"the control plane has another history at revision {batch.revision}")
        if batch.revision > state.revision:
            # Revisions have no gaps, and a bookmark covers what was delivered before it.
            if not batch.changes or batch.revision != state.revision + 1:
                raise WatchLagged(f"the watch went from revision {state.revision} to {batch.revision}")
            self._replace_state(await apply_batch(state, batch))
        self._is_replay &= bool(batch.changes)
        # A replayed batch does not make the state current.
        if batch.revision >= state.revision and not self._is_replay:
            self._on_current()

    def _replace_state(self, state: RegistryState) -> None:
        self._state = state
        self._note(revision=state.revision, epoch=state.epoch)
        self.apply(state)

    def _note(self, **changed: Any) -> None:
        self.status = replace(self.status, **changed)

    async def _poll(self) -> None:
        limits = self.limits
        while True:
            await asyncio.sleep(limits.poll_min_s + (limits.poll_max_s - limits.poll_min_s) * self.jitter())
            # Without a watch there is nothing to compare, and the node is reconnecting.
            if self._timeout is not None and await self._is_behind():
                self._is_relist_due = True
                self._end_watch()

    def _end_watch(self) -> None:
        timeout = self._timeout
        if timeout is not None and not timeout.expired():
            timeout.reschedule(_now_s())

    async def _is_behind(self) -> bool:
        """Whether the control plane has advanced without the watch, and is not just a moment ahead of it."""
        before = self._position
        try:
            found = await self.connection.newest()
        except ToolgateError as exc:
            # The watch decides whether it is available.
            _log.debug("a poll of the control plane failed: %s", exc)
            return False
        if self._position.epoch != before.epoch:
            return False  # it listed meanwhile, so the found position may be older
        if found.differs_from(before) or found.revision < before.revision:
            return True
        if found.revision > self._position.revision:
            await asyncio.sleep(self.limits.settle_s)
        position = self._position
        return position.epoch == found.epoch and (
            position.revision < found.revision or position.differs_from(found)
        )

    @property
    def _position(self) -> HistoryPosition:
        if (state := self._state) is None:
            return HistoryPosition("", 0)
        return HistoryPosition(state.epoch, state.revision, state.digest)

    def _on_current(self) -> None:
        """Note that the control plane is available and the state is current."""
        if self.status.is_degraded:
            _log.warning("the control plane is available again; serving revision %d", self.status.revision)
        self._has_received = True
        self._note(is_degraded=False, last_contact_s=_now_s())
        self.on_contact()

    def _on_failure(self, exc: ToolgateError) -> None:
        is_news = not self.status.is_degraded or exc.code != self.status.code
        self._note(is_degraded=True, last_error=str(exc), code=exc.code)
        if is_news:
            served = "nothing to serve" if self._state is None else "serving the last state"
            _log.warning("degraded, %s: %s; %s", served, exc, exc.hint)


def _now_s() -> float:
    return asyncio.get_running_loop().time()
