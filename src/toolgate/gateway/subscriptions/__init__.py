"""Notifies clients when a list or a resource changes.

A client listens on a GET stream (session-based) or by `subscriptions/listen` (stateless). On a new snapshot,
`Subscriptions` compiles each caller's view once, however many listeners share it, and wakes only listeners
whose own lists changed. That may be thousands of compilations, so it yields to other tasks in between.
`resources` resolves each resource against the caller's view, and subscribes upstream once per resource,
however many clients listen.

Never notifies a client about a server outside its scope. No principal can take all slots of a node.
"""

import asyncio
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from toolgate.errors import ToolgateError
from toolgate.gateway.scope.caller import Caller
from toolgate.gateway.scope.view import View
from toolgate.gateway.subscriptions.resources import FairSlots, ResourceWatch, ResourceWatches, TimeSlice
from toolgate.model.tools import ListKind

MAX_OPEN: Final = 5_000  # listeners of a node: each holds a connection and about 4 KB

ListSignatures = Mapping[ListKind, bytes]
"""A short digest of each list."""
SIGNATURE_BYTES: Final = 6
"""Size of a digest: it is sent in event ids, and a client could only deceive itself with a collision."""


class ListenerUpdate(NamedTuple):
    """The changes to notify a listener of."""

    lists: tuple[ListKind, ...] = ()
    uris: tuple[str, ...] = ()
    """URIs of updated resources, as the listener knows them."""


class Subscription:
    """One listener. It wakes when there is an update for it, and when it must end."""

    __slots__ = ("_current", "_find_view", "_woken", "caller", "is_over", "seen", "watch")

    def __init__(
        self, caller: Caller, find_view: Callable[[Caller], View], watch: ResourceWatch | None
    ) -> None:
        self.caller = caller
        self.watch = watch
        self._find_view = find_view
        self._current = _read_signatures(find_view, caller)
        self.seen = self._current
        """The lists that the listener was last notified of."""
        self.is_over = False
        """The listener must end."""
        self._woken = asyncio.Event()
        if watch is not None and watch.updated:
            self._woken.set()

    def wake(self) -> None:
        self._woken.set()

    def change(self, signatures: ListSignatures) -> None:
        """Set the current lists, and wake the listener if they changed."""
        self._current = signatures
        if signatures != self.seen or self.is_over or (self.watch is not None and self.watch.updated):
            self._woken.set()
        else:
            self._woken.clear()

    def catch_up(self, seen: ListSignatures) -> None:
        """Notify the listener of the difference from these lists, which it saw on another stream."""
        self.seen = seen
        self.change(_read_signatures(self._find_view, self.caller))

    def end(self) -> None:
        self.is_over = True
        self._woken.set()

    async def wait(self, timeout_s: float) -> ListenerUpdate:
        """The changes since the last call. Waits for a change or the end, up to `timeout_s`."""
        try:
            async with asyncio.timeout(timeout_s):
                await self._woken.wait()
        except TimeoutError:
            return ListenerUpdate()
        if not self.is_over:
            self._woken.clear()
        current, seen = self._current, self.seen
        self.seen = current
        kinds = current.keys() | seen.keys()
        lists = tuple(sorted(kind for kind in kinds if current.get(kind) != seen.get(kind)))
        return ListenerUpdate(lists, await self._take_updates())

    async def _take_updates(self) -> tuple[str, ...]:
        """URIs of updated resources that the listener may still read under the same URI."""
        watch = self.watch
        if watch is None or not watch.updated:
            return ()
        taken = watch.take()
        if watch.updated:  # send the next batch at once
            self._woken.set()
        try:
            view = self._find_view(self.caller)
        except ToolgateError:
            return ()
        work = TimeSlice()
        updated: list[str] = []
        for uri in taken:
            await work.checkpoint()
            route = view.find_resource(uri) if uri in watch.targets else None
            if route is not None and route.server_id == watch.targets[uri][0]:
                updated.append(uri)
        return tuple(updated)


@dataclass(eq=False, repr=False, slots=True)
class Subscriptions:
    """All listeners of a node."""

    find_view: Callable[[Caller], View]
    watches: ResourceWatches
    max_open: int = MAX_OPEN
    _open: set[Subscription] = field(default_factory=set, init=False)
    _slots: FairSlots = field(default_factory=lambda: FairSlots("event streams"), init=False)
    _is_closed: bool = field(default=False, init=False)
    _is_due: bool = field(default=False, init=False)
    _announcing: asyncio.Task[None] | None = field(default=None, init=False)

    def __len__(self) -> int:
        return len(self._open)

    @contextmanager
    def open(self, caller: Caller, *, watch: ResourceWatch | None = None) -> Iterator[Subscription]:
        """Listen while the block runs; with `watch`, also for updates of its resources."""
        self._slots.take(caller.principal.id, of=self.max_open)
        try:
            subscription = Subscription(caller, self.find_view, watch)
            subscription.is_over = self._is_closed
            self._open.add(subscription)
            if watch is not None:
                watch.listener = subscription.wake
            try:
                yield subscription
            finally:
                self._open.discard(subscription)
                if watch is not None and watch.listener == subscription.wake:  # no newer stream took over
                    watch.listener = None
        finally:
            self._slots.release(caller.principal.id)

    def close(self) -> None:
        """End all listeners, current and future."""
        self._is_closed = True
        for subscription in self._open:
            subscription.end()

    def announce(self) -> None:
        """The snapshot was swapped: soon wake the listeners whose lists changed."""
        self._is_due = bool(self._open)
        if self._is_due and (self._announcing is None or self._announcing.done()):
            self._announcing = asyncio.get_running_loop().create_task(self._announce())

    async def _announce(self) -> None:
        while self._is_due:
            self._is_due = False  # a swap meanwhile sets it again, for listeners that were checked already
            work = TimeSlice()
            signatures: dict[Caller, ListSignatures] = {}
            for subscription in tuple(self._open):
                await work.checkpoint()
                caller = subscription.caller
                if caller not in signatures:
                    signatures[caller] = _read_signatures(self.find_view, caller)
                subscription.change(signatures[caller])


def _read_signatures(find_view: Callable[[Caller], View], caller: Caller) -> ListSignatures:
    """The signatures of the caller's lists; empty if the caller's scope is rejected."""
    try:
        signatures = find_view(caller).signatures
    except ToolgateError:
        return {}
    return {kind: signature[:SIGNATURE_BYTES] for kind, signature in signatures.items()}
