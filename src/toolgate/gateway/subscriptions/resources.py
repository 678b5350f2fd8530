"""Resource subscriptions: of clients to resources, and of the gateway to servers.

A client knows a resource by one URI and its server by another. Each server gets one subscription per
resource, however many clients listen. Each client gets notifications only for its own resources, under its
own URIs. A subscription is audited like a read: before the server gets it, and when it has ended.
"""

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Iterator
from contextlib import asynccontextmanager
from dataclasses import KW_ONLY, dataclass, field
from typing import Final

from toolgate.errors import SessionLimit, ToolgateError, UnknownResource
from toolgate.gateway.call import CallContext
from toolgate.gateway.call.audit_trail import FAILED, AuditTrail, CallOutcome, outcome_of_error
from toolgate.gateway.scope.caller import Trace
from toolgate.gateway.scope.routes import Route
from toolgate.gateway.scope.view import View
from toolgate.model.names import RESOURCE
from toolgate.upstream.connection.contract import Acknowledgement

SHARE: Final = 10  # the last fifth of all slots is reserved for principals with less than a tenth of them
SLICE_S: Final = 0.01  # how long one task may keep the event loop before it yields
MAX_WATCHED_EACH: Final = 1_000  # resources that one client may subscribe to: a tenth of a node's
MAX_WATCHED: Final = 10_000  # resources that all clients of a node may subscribe to
MAX_NOTIFIED: Final = 100  # updates in one batch to a client; a choice: the next batch follows at once
SUBSCRIBE_WAIT_S: Final = 2.0  # how long a subscribing client waits for the server to confirm
_MAX_LEVELS: Final = 64  # a choice: deeper than real paths; each level is one lookup per update


def max_for_one(of: int) -> int:
    """How many of `of` slots one principal may hold while slots are free; later, each gets its share."""
    return -(-of * 4 // 5)


@dataclass(slots=True)
class FairSlots:
    """Slots of a node that principals share: no principal can take all."""

    what: str
    held: Counter[str] = field(default_factory=Counter)
    taken: int = 0

    def take(self, principal_id: str, *, of: int) -> None:
        """Take one of `of` slots. Raises SessionLimit."""
        held = self.held[principal_id]
        if self.taken >= of:
            raise SessionLimit(f"this node has reached its limit of {of} {self.what}")
        if self.taken >= max_for_one(of) and held * SHARE >= of:
            raise SessionLimit(
                f"you hold {held} {self.what}; this node reserves the remaining ones for other callers",
                hint="close those that you do not need",
            )
        self.held[principal_id] = held + 1
        self.taken += 1

    def release(self, principal_id: str) -> None:
        self.taken -= 1
        self.held[principal_id] -= 1
        if not self.held[principal_id]:
            del self.held[principal_id]


class TimeSlice:
    """Makes long work yield to other tasks after each time slice."""

    __slots__ = ("_clock", "_until_s")

    def __init__(self) -> None:
        self._clock = asyncio.get_running_loop().time
        self._until_s = self._clock() + SLICE_S

    async def checkpoint(self) -> None:
        """Yield to other tasks if the slice is used up. Call it often."""
        if self._clock() > self._until_s:
            await asyncio.sleep(0)
            self._until_s = self._clock() + SLICE_S


@dataclass(slots=True, eq=False)
class ResourceWatch:
    """The resources that one client subscribes to, and their updates until they are sent."""

    principal_id: str
    targets: dict[str, tuple[str, str]] = field(default_factory=dict)
    """The client's URI → the server id, and the server's URI."""
    routes: dict[str, Route] = field(default_factory=dict)
    """The client's URI → the route that admitted the subscription."""
    listener: Callable[[], None] | None = None
    """Called on an update, while a stream listens."""
    updated: dict[str, None] = field(default_factory=dict)

    def note(self, uri: str) -> None:
        """Record that the resource the client knows as `uri` was updated."""
        self.updated[uri] = None
        if self.listener is not None:
            self.listener()

    def take(self) -> list[str]:
        """One batch of updates, oldest first."""
        taken = list(self.updated)[:MAX_NOTIFIED]
        for uri in taken:
            del self.updated[uri]
        return taken


_Watchers = set[tuple[ResourceWatch, str]]
"""The watches of one resource of a server, each with the client's URI of it."""


@dataclass(eq=False, repr=False, slots=True)
class ResourceWatches:
    """All resources that the clients of a node subscribe to."""

    subscribe: Callable[[str, frozenset[str]], Acknowledgement]
    """Subscribes at a server (by id) to exactly these resources."""
    _: KW_ONLY
    max_each: int = MAX_WATCHED_EACH
    max_watched: int = MAX_WATCHED
    wait_s: float = SUBSCRIBE_WAIT_S
    _by_server: dict[str, dict[str, _Watchers]] = field(default_factory=dict, init=False)
    slots: FairSlots = field(default_factory=lambda: FairSlots("watched resources"), init=False)
    _due: set[str] = field(default_factory=set, init=False)
    _pending: dict[str, Acknowledgement] = field(default_factory=dict, init=False)

    def add(self, watch: ResourceWatch, known_as: str, *, server_id: str, uri: str) -> None:
        """Add a server's `uri` to `watch`. Raises SessionLimit."""
        if watch.targets.get(known_as) == (server_id, uri):
            return
        self.remove(watch, known_as)
        if len(watch.targets) >= self.max_each:
            raise SessionLimit(
                f"you have reached the limit of {self.max_each} resource subscriptions",
                hint="unsubscribe from some resources",
            )
        self.slots.take(watch.principal_id, of=self.max_watched)
        watch.targets[known_as] = (server_id, uri)
        self._by_server.setdefault(server_id, {}).setdefault(uri, set()).add((watch, known_as))
        self._sync_soon(server_id)

    def remove(self, watch: ResourceWatch, known_as: str) -> None:
        """Remove a resource from `watch`, if it has it."""
        target = watch.targets.pop(known_as, None)
        if target is None:
            return
        server_id, uri = target
        watch.routes.pop(known_as, None)
        watch.updated.pop(known_as, None)
        watched = self._by_server[server_id]
        watched[uri].discard((watch, known_as))
        if not watched[uri]:
            del watched[uri]
        if not watched:
            del self._by_server[server_id]
        self.slots.release(watch.principal_id)
        self._sync_soon(server_id)

    def drop(self, watch: ResourceWatch) -> None:
        """Remove all resources: the client of `watch` is gone."""
        for known_as in tuple(watch.targets):
            self.remove(watch, known_as)

    def on_updated(self, server_id: str, uri: str) -> None:
        """A server sent a notification that `uri` was updated. It may be part of a watched resource."""
        watched = self._by_server.get(server_id, {})
        for enclosing in _enclosing_uris(uri):
            for watch, known_as in watched.get(enclosing, ()):
                watch.note(known_as)

    async def settle(self, server_ids: Iterable[str]) -> None:
        """Wait until these servers have confirmed their subscriptions, up to a time limit."""
        await asyncio.sleep(0)  # lets `_sync_due` run
        pending = [one for server_id in server_ids if (one := self._pending.get(server_id)) is not None]
        if pending:
            await asyncio.wait(pending, timeout=self.wait_s)

    def _sync_soon(self, server_id: str) -> None:
        """Sync a server soon, so that many changes at once are sent together."""
        if not self._due:
            asyncio.get_running_loop().call_soon(self._sync_due)
        self._due.add(server_id)

    def _sync_due(self) -> None:
        due, self._due = self._due, set()
        for server_id in due:
            uris = frozenset(self._by_server.get(server_id, ()))
            self._pending[server_id] = self.subscribe(server_id, uris)
            if not uris:
                del self._pending[server_id]


def _enclosing_uris(uri: str) -> Iterator[str]:
    """`uri`, and the resources that it may be a part of."""
    yield uri
    for _ in range(_MAX_LEVELS):
        uri = uri.rstrip("/")
        yield uri
        above, slash, _ = uri.rpartition("/")
        if not slash:
            return
        uri = above + slash
        yield uri


@dataclass(frozen=True, slots=True)
class ResourceSubscriptions:
    """Subscribes clients to resources and unsubscribes them, and audits both."""

    watches: ResourceWatches
    audit: AuditTrail

    async def subscribe(
        self, view: View, watch: ResourceWatch, uris: Iterable[str], *, trace: Trace
    ) -> Collection[str]:
        """Subscribe `watch` to the `uris` that the caller may read. Returns those URIs.

        Returns when their servers have confirmed, or take too long. Raises SessionLimit, and
        ServerUnavailable if the audit log cannot be written.
        """
        work = TimeSlice()
        found: dict[str, Route] = {}
        unknown: list[str] = []
        for uri in dict.fromkeys(uris):
            await work.checkpoint()
            route = view.find_resource(uri)
            if route is None:
                unknown.append(uri)
            else:
                found[uri] = route
        try:
            async with self._audited(view, found.values(), trace):
                for uri, route in found.items():  # without yielding, so that servers get one request
                    self.watches.add(watch, uri, server_id=route.server_id, uri=route.upstream_uri)
                    watch.routes[uri] = route
                await self.watches.settle({route.server_id for route in found.values()})
        finally:
            self._refuse(view, iter(unknown), trace)
        return found.keys()

    async def unsubscribe(self, view: View, watch: ResourceWatch, uri: str, *, trace: Trace) -> None:
        """Unsubscribe `watch` from `uri`. Raises UnknownResource if it was not subscribed."""
        route = watch.routes.get(uri) or view.find_resource(uri)
        if route is None:
            raise self._unknown(view, uri, trace)
        async with self._audited(view, [route], trace):
            self.watches.remove(watch, uri)

    def _refuse(self, view: View, uris: Iterator[str], trace: Trace) -> None:
        """Audit denied subscriptions after the response, one per loop turn: see
        `AuditTrail.record_unknown`."""
        uri = next(uris, None)
        if uri is not None:
            self._unknown(view, uri, trace)
            asyncio.get_running_loop().call_soon(self._refuse, view, uris, trace)

    def _unknown(self, view: View, uri: str, trace: Trace) -> UnknownResource:
        self.audit.record_unknown(view, RESOURCE + uri, trace, code=UnknownResource.code)
        return UnknownResource("Resource not found", data={"uri": uri})

    @asynccontextmanager
    async def _audited(self, view: View, routes: Iterable[Route], trace: Trace) -> AsyncIterator[None]:
        """Audit the start and end of the block for each of `routes`."""
        began_s, outcome, work = time.perf_counter(), FAILED, TimeSlice()
        starts: list[tuple[CallContext, int]] = []
        try:
            for route in routes:
                await work.checkpoint()
                call = CallContext(view, route, "resources/subscribe", {}, trace)
                starts.append((call, self.audit.record_start(call)))
            yield
            outcome = CallOutcome("ok")
        except (ToolgateError, asyncio.CancelledError) as exc:
            outcome = outcome_of_error(exc, trace)
            raise
        finally:
            took_s = time.perf_counter() - began_s
            for call, start in starts:
                self.audit.record_end(call, start, took_s, outcome)
