"""Who wants to hear that a list or a resource changed. Nobody else is told.

A subscriber is a caller and an event. When the snapshot is swapped, each caller's view is compiled
once, however many subscribers share it, and only those whose lists really differ are woken. That may be
thousands of compilations, so the loop gets its turn in between.
"""

import asyncio
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Final, NamedTuple

from toolgate.errors import ToolgateError
from toolgate.gateway.scope.caller import Caller
from toolgate.gateway.scope.view import View
from toolgate.gateway.subscriptions.resources import FairSlots, ResourceWatch, ResourceWatches, TimeSlice
from toolgate.model.tools import ListKind
from toolgate.upstream.connection.contract import Acknowledgement

MAX_OPEN: Final = 5_000
"""Listeners of a node: one more is refused, those there are go on."""

ListSignatures = Mapping[ListKind, bytes]
"""What each list looks like: as short for a long one, and another for another list."""
SIGNATURE_BYTES: Final = 6
_NO_SIGNATURES: Final[ListSignatures] = {}


class ListenerUpdate(NamedTuple):
    """What a listener has to be told."""

    lists: tuple[ListKind, ...] = ()
    uris: tuple[str, ...] = ()
    """Resources that were updated, as the listener knows them."""


class Subscription:
    """One listener. It is woken when there is something new for it, and when it has to end."""

    __slots__ = ("_current", "_view", "_woken", "caller", "is_over", "seen", "watch")

    def __init__(self, caller: Caller, view: Callable[[Caller], View], watch: ResourceWatch | None) -> None:
        self.caller = caller
        self.watch = watch
        self._view = view
        self._current = _read_signatures(view, caller)
        self.seen = self._current
        """Of the lists, as the listener was last told."""
        self.is_over = False
        """The listener must end; there is nothing more to wait for."""
        self._woken = asyncio.Event()
        if self._has_updates:
            self._woken.set()

    @property
    def _has_updates(self) -> bool:
        return self.watch is not None and self.watch.has_updates

    def wake(self) -> None:
        self._woken.set()

    def change(self, picture: ListSignatures) -> None:
        """The lists look like this now."""
        self._current = picture
        if picture != self.seen or self.is_over or self._has_updates:
            self._woken.set()
        else:
            self._woken.clear()

    def catch_up(self, picture: ListSignatures) -> None:
        """The listener has seen the lists like that, on another stream: what differs now is news to it."""
        self.seen = picture
        self.change(_read_signatures(self._view, self.caller))

    def end(self) -> None:
        """Have the listener end."""
        self.is_over = True
        self._woken.set()

    async def wait(self, timeout_s: float) -> ListenerUpdate:
        """What is new since the last time; waits for that, or the end, up to `timeout_s`."""
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
        return ListenerUpdate(lists, await self._updates())

    async def _updates(self) -> tuple[str, ...]:
        """Updates of what the listener may still see, and still means the same resource."""
        watch = self.watch
        if watch is None or not watch.has_updates:
            return ()
        taken = watch.take()
        if watch.has_updates:  # the others come right after
            self._woken.set()
        try:
            view = self._view(self.caller)
        except ToolgateError:
            return ()
        turns = TimeSlice()
        told: list[str] = []
        for uri in taken:
            await turns.rest()
            if uri in watch.targets and _leads_to(view, uri, watch.targets[uri][0]):
                told.append(uri)
        return tuple(told)


class Subscriptions:
    """All listeners of a node."""

    def __init__(
        self,
        view: Callable[[Caller], View],
        *,
        watch: Callable[[str, frozenset[str]], Acknowledgement] = lambda _server_id, _uris: None,
    ) -> None:
        """`watch(server_id, uris)` has a server say when one of these resources changes, and no other."""
        self.watches = ResourceWatches(watch)
        self._view = view
        self._open: set[Subscription] = set()
        self._places = FairSlots("event streams")
        self._is_closed = False
        self._is_due = False
        self._announcing: asyncio.Task[None] | None = None

    def __len__(self) -> int:
        return len(self._open)

    @contextmanager
    def open(self, caller: Caller, *, watch: ResourceWatch | None = None) -> Iterator[Subscription]:
        """Listen for as long as the block runs; with `watch`, for updates of its resources too."""
        self._places.take(caller.principal.id, of=MAX_OPEN)
        try:
            with self._opened(Subscription(caller, self._view, watch)) as subscription:
                yield subscription
        finally:
            self._places.give_back(caller.principal.id)

    @contextmanager
    def _opened(self, subscription: Subscription) -> Iterator[Subscription]:
        subscription.is_over = self._is_closed
        self._open.add(subscription)
        watch = subscription.watch
        if watch is not None:
            watch.listener = subscription.wake
        try:
            yield subscription
        finally:
            self._open.discard(subscription)
            if watch is not None and watch.listener == subscription.wake:  # nobody has taken over
                watch.listener = None

    def close(self) -> None:
        """End all, and whoever still comes."""
        self._is_closed = True
        for subscription in self._open:
            subscription.end()

    def announce(self) -> None:
        """The snapshot was swapped: wake those whose lists changed, soon."""
        self._is_due = bool(self._open)
        if self._is_due and (self._announcing is None or self._announcing.done()):
            self._announcing = asyncio.get_running_loop().create_task(self._announce())

    async def _announce(self) -> None:
        while self._is_due:
            self._is_due = False  # set again by a swap meanwhile, which may concern those already passed
            await self._look_at_all()

    async def _look_at_all(self) -> None:
        turns = TimeSlice()
        seen: dict[Caller, ListSignatures] = {}
        for subscription in tuple(self._open):
            await turns.rest()
            caller = subscription.caller
            if caller not in seen:
                seen[caller] = _read_signatures(self._view, caller)
            subscription.change(seen[caller])


def _read_signatures(view: Callable[[Caller], View], caller: Caller) -> ListSignatures:
    """A caller whose scope is now refused sees nothing."""
    try:
        signatures = view(caller).signatures
    except ToolgateError:
        return _NO_SIGNATURES
    return {kind: signature[:SIGNATURE_BYTES] for kind, signature in signatures.items()}


def _leads_to(view: View, uri: str, server_id: str) -> bool:
    route = view.find_resource(uri)
    return route is not None and route.server_id == server_id
