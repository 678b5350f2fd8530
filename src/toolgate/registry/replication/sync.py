"""How a node follows control: it lists, watches from there, and polls as the safety net.

The node always serves the newest whole state it has. While control is away it goes on with that, says so
in `status`, and comes back by itself. A state is replaced by the next transaction whole, never in part,
and in one history never by an older one.
"""

import asyncio
import logging
import math
import random
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Final, NamedTuple, Protocol

from toolgate.errors import Compacted, ControlUnavailable, ToolgateError, WatchLagged
from toolgate.model.reports import Definitions, NodeReport
from toolgate.model.revisions import ChangeBatch, RecordList
from toolgate.registry.replication.state import RegistryState, apply_batch, parse_listing

_log: Final = logging.getLogger(__name__)
_MAX_DOUBLINGS: Final = 32


class HistoryPosition(NamedTuple):
    """Where a history stands."""

    epoch: str
    revision: int
    digest: str = ""
    """Of the log up to `revision`; empty: not known, to who is of an earlier release."""

    def differs_from(self, other: "HistoryPosition") -> bool:
        """Whether the two are of different histories, as far as these tell."""
        if self.epoch != other.epoch:
            return True
        is_known = bool(self.digest and other.digest)
        return is_known and self.revision == other.revision and self.digest != other.digest


class ControlConnection(Protocol):
    """Control, as a node reaches it. What goes wrong is a ToolgateError; most of it passes.

    One suite in `tests/contract/` runs against each implementation.
    """

    async def list_records(self) -> RecordList:
        """Everything, at one revision."""

    async def newest(self) -> HistoryPosition:
        """What a listing would be of now, without its records."""

    def watch_records(
        self, since: HistoryPosition
    ) -> AbstractAsyncContextManager[AsyncIterator[ChangeBatch]]:
        """Batches after `since`, and a bookmark every few seconds where there are none.

        Raises Compacted when the log does not reach back to `since`, or is of another history, and
        WatchLagged when this reader is too slow: both mean to list again. It may also just end.
        """

    async def report(self, report: NodeReport, definitions: Sequence[Definitions]) -> Sequence[str]:
        """Tell control; the ids of the servers whose definitions it wants to know."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SyncLimits:
    """How patient a node is."""

    backoff_s: float = 0.2
    backoff_max_s: float = 10.0
    """Waits are anything from nothing to a bound that doubles from the first to the second (full jitter)."""
    resume_max_s: float = 1.0
    """Control that spoke is there: however often its watches break, changes arrive within 2 s."""
    relist_spread_s: float = 1.0
    """A cause to list again mostly concerns all nodes at once: each waits for a part of this first."""
    poll_min_s: float = 30.0
    poll_max_s: float = 120.0
    silence_s: float = 10.0
    """Control sends a bookmark every 5 s. A watch that is silent for longer than this is given up."""
    held_s: float = 1.0
    """A watch that held so long makes up for the failures before it."""
    settle_s: float = 2.0
    """How long a watch may take to deliver what a poll has seen."""
    behind_s: float = 10.0
    """How long control must stand at an older revision before it is believed to be restored."""


DEFAULT_LIMITS: Final = SyncLimits()


@dataclass(frozen=True, slots=True, kw_only=True)
class SyncStatus:
    """How a node stands with control."""

    is_degraded: bool
    """What is served is not known to be current."""
    last_error: str
    """Why, or why it last was."""
    code: str
    """Of that error."""
    revision: int
    epoch: str
    last_contact_s: float | None
    """When control last proved the state current, by the loop's clock; None: never yet."""
    relists: int
    """How often a watch could not be taken up where it ended."""


class Backoff:
    """How long to wait after a failure: full jitter, so that nodes that failed together do not return so."""

    def __init__(self, limits: SyncLimits, jitter: Callable[[], float]) -> None:
        self._limits = limits
        self._jitter = jitter
        self._failures = 0

    def wait_s(self, *, at_least_up_to_s: float = 0.0, at_most_s: float = math.inf) -> float:
        """The next wait; its bound is no lower than the one given, and no higher than the other."""
        doubled_s: float = self._limits.backoff_s * 2 ** min(self._failures, _MAX_DOUBLINGS)
        self._failures += 1
        bound_s = min(doubled_s, self._limits.backoff_max_s, at_most_s)
        return self._jitter() * max(at_least_up_to_s, bound_s)

    def forgive(self) -> None:
        self._failures = 0


class NodeSync:
    """Keeps a node's registry state that of control. `run` it in a task of its own."""

    def __init__(
        self,
        link: ControlConnection,
        *,
        apply: Callable[[RegistryState], None],
        on_contact: Callable[[], None] = lambda: None,
        limits: SyncLimits = DEFAULT_LIMITS,
        jitter: Callable[[], float] = random.random,
    ) -> None:
        """`apply` gets each new state; `on_contact` is told when control has proved it current again."""
        self._link = link
        self._apply = apply
        self._on_contact = on_contact
        self._limits = limits
        self._jitter = jitter
        self._backoff = Backoff(limits, jitter)
        self._state: RegistryState | None = None
        self._is_relist_due = False
        self._patience: asyncio.Timeout | None = None
        """Of the watch that is open. Who makes it run out ends the watch."""
        self._has_spoken = False
        """Whether control has, since it was last turned to."""
        self._is_replay = False
        """Whether the watch delivers what happened before it: until its first bookmark."""
        self._behind_since_s: float | None = None
        self._last_contact_s: float | None = None
        self._is_degraded = False
        self._last_error = self._last_code = ""
        self._relists = 0

    @property
    def status(self) -> SyncStatus:
        return SyncStatus(
            is_degraded=self._is_degraded,
            last_error=self._last_error,
            code=self._last_code,
            revision=self._position.revision,
            epoch=self._position.epoch,
            last_contact_s=self._last_contact_s,
            relists=self._relists,
        )

    async def run(self) -> None:
        """Follow control until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._poll())
            while True:
                wait_s = await self._follow()
                await asyncio.sleep(wait_s)

    async def _follow(self) -> float:
        """List where that is due, and watch until it ends; how long to wait before the next time."""
        self._has_spoken = False
        try:
            if self._state is None or self._is_relist_due:
                await self._list()
            await self._watch()
        except (Compacted, WatchLagged) as exc:
            _log.warning("the watch of control cannot be taken up again, listing: %s", exc)
            self._relists += 1
            self._is_relist_due = True
            return self._backoff.wait_s(at_least_up_to_s=self._limits.relist_spread_s)
        except ToolgateError as exc:
            # A watch that spoke and then broke is taken up again first: most often nothing is wrong.
            if self._has_spoken:
                return self._backoff.wait_s(at_most_s=self._limits.resume_max_s)
            # Whoever stays away may have been put back to an earlier state, and be past our revision again.
            self._is_relist_due |= self._is_degraded
            self._on_failure(exc)
        return self._backoff.wait_s()

    async def _list(self) -> None:
        listing = await self._link.list_records()
        self._check_age(listing)
        # In a thread: thousands of records take long enough to parse for every caller to feel it.
        state = await asyncio.to_thread(parse_listing, listing)
        self._is_relist_due = False
        is_first = self._state is None
        self._replace_state(state)
        # Later the watch's first bookmark is its word: who lists and cannot be watched is not followed.
        if is_first:
            self._on_current()

    def _check_age(self, listing: RecordList) -> None:
        """Refuse an older state of the same history, unless control insists: then it was restored."""
        state = self._state
        if state is None or listing.epoch != state.epoch or listing.revision >= state.revision:
            self._behind_since_s = None
            return
        now_s = _now_s()
        if self._behind_since_s is None:
            self._behind_since_s = now_s
        older = f"control is at revision {listing.revision}, this node has {state.revision} already"
        if now_s - self._behind_since_s < self._limits.behind_s:
            raise ControlUnavailable(older)
        _log.warning("%s: it must have been restored, and is followed", older)
        self._behind_since_s = None

    async def _watch(self) -> None:
        """Take over batch after batch. Ends by raising."""
        state = self._state
        assert state is not None
        began_s = _now_s()
        self._is_replay = True
        try:
            async with (
                asyncio.timeout(self._limits.silence_s) as self._patience,
                self._link.watch_records(self._position) as batches,
            ):
                async for batch in batches:
                    self._check_poll()
                    self._patience.reschedule(None)  # the time we take ourselves is not control's silence
                    await self._on_batch(batch)
                    self._patience.reschedule(_now_s() + self._limits.silence_s)
        except TimeoutError as exc:
            self._check_poll()
            raise ControlUnavailable(f"control was silent for {self._limits.silence_s:g} s") from exc
        finally:
            self._patience = None
            if _now_s() - began_s >= self._limits.held_s:
                self._backoff.forgive()
        raise ControlUnavailable("control has ended the watch")

    def _check_poll(self) -> None:
        """A poll says so by making our patience run out, which a batch at the same moment would renew."""
        if self._is_relist_due:
            raise WatchLagged("a poll has found what the watch did not deliver")

    async def _on_batch(self, batch: ChangeBatch) -> None:
        state = self._state
        assert state is not None
        if self._position.differs_from(HistoryPosition(state.epoch, batch.revision, batch.digest)):
            raise Compacted(f"control has another history at revision {batch.revision}")
        if batch.revision > state.revision:
            # Revisions have no holes, and a bookmark is about what was delivered before it.
            if not batch.changes or batch.revision != state.revision + 1:
                raise WatchLagged(f"the watch went from revision {state.revision} to {batch.revision}")
            self._replace_state(await apply_batch(state, batch))
        self._is_replay &= bool(batch.changes)
        # What is replayed is on its way to be current, and no more than that.
        if batch.revision >= state.revision and not self._is_replay:
            self._on_current()

    def _replace_state(self, state: RegistryState) -> None:
        self._state = state
        self._apply(state)

    async def _poll(self) -> None:
        limits = self._limits
        while True:
            await asyncio.sleep(limits.poll_min_s + (limits.poll_max_s - limits.poll_min_s) * self._jitter())
            # Without a watch there is nothing to hold against it, and the way back is being looked for.
            if self._patience is not None and await self._is_behind():
                self._is_relist_due = True
                self._end_watch()

    def _end_watch(self) -> None:
        patience = self._patience
        if patience is not None and not patience.expired():
            patience.reschedule(_now_s())

    async def _is_behind(self) -> bool:
        """Whether control is elsewhere than the watch has led, and not just a moment ahead of it."""
        before = self._position
        try:
            found = await self._link.newest()
        except ToolgateError as exc:
            _log.debug("a poll of control failed: %s", exc)  # the watch knows better whether it is there
            return False
        if self._position.epoch != before.epoch:
            return False  # listed meanwhile: what was found may be older
        if found.differs_from(before) or found.revision < before.revision:
            return True
        if found.revision > self._position.revision:
            await asyncio.sleep(self._limits.settle_s)
        position = self._position
        return position.epoch == found.epoch and (
            position.revision < found.revision or position.differs_from(found)
        )

    @property
    def _position(self) -> HistoryPosition:
        state = self._state
        return (
            HistoryPosition("", 0)
            if state is None
            else HistoryPosition(state.epoch, state.revision, state.digest)
        )

    def _on_current(self) -> None:
        """Control is there, and what we have is what it has."""
        if self._is_degraded:
            _log.warning("control is there again; revision %d is served", self._position.revision)
            self._is_degraded = False
        self._has_spoken = True
        self._last_contact_s = _now_s()
        self._on_contact()

    def _on_failure(self, exc: ToolgateError) -> None:
        is_news = not self._is_degraded or exc.code != self._last_code
        self._is_degraded, self._last_error, self._last_code = True, str(exc), exc.code
        if is_news:
            served = "nothing is served yet" if self._state is None else "what is there is served on"
            _log.warning("degraded, %s: %s; %s", served, exc, exc.hint)


def _now_s() -> float:
    return asyncio.get_running_loop().time()
