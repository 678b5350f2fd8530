"""So many places of a kind on a node, of which no principal takes all.

Long work in pieces: whoever else waits for the loop has a turn in between.

Which resources clients want to hear of, and who is told when a server says that one was updated.

A client knows a resource by one name and its server by another. Servers are told what all clients together
want to hear of; each client is told of its own, by its own name, and of nothing else.

What clients want to hear of, on record like what they read: before servers are told, and how it ended.
"""

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Final

from toolgate.audit.events import Outcome
from toolgate.errors import SessionLimit, ToolgateError, UnknownResource
from toolgate.gateway.call.audit_trail import AuditTrail, CallEnd
from toolgate.gateway.scope.caller import Trace
from toolgate.gateway.scope.routes import Route
from toolgate.gateway.scope.view import View
from toolgate.model.json_text import NO_ARGUMENTS
from toolgate.model.names import RESOURCE
from toolgate.upstream.connection.contract import Acknowledgement

SHARE: Final = 10
"""The last fifth of all places is for principals that hold less than this part of them."""


def max_for_one(of: int) -> int:
    """How many of `of` places one principal gets while there is room. Above, each gets its share at most."""
    return -(-of * 4 // 5)


class FairSlots:
    """Who holds how many."""

    def __init__(self, what: str) -> None:
        self._what = what
        self._held: Counter[str] = Counter()
        self._taken = 0

    def __len__(self) -> int:
        return self._taken

    def take(self, principal_id: str, *, of: int) -> None:
        """One more of `of` places. Raises SessionLimit; those that are taken stay so."""
        held = self._held[principal_id]
        if self._taken >= of:
            raise SessionLimit(f"this node holds {of} {self._what}")
        if self._taken >= max_for_one(of) and held * SHARE >= of:
            raise SessionLimit(
                f"you hold {held} {self._what}, and what is left is for others",
                hint="close those you do not need",
            )
        self._held[principal_id] = held + 1
        self._taken += 1

    def give_back(self, principal_id: str) -> None:
        self._taken -= 1
        self._held[principal_id] -= 1
        if not self._held[principal_id]:
            del self._held[principal_id]


SLICE_S: Final = 0.01
"""How long one works before others have their turn."""


class TimeSlice:
    """Those of one piece of long work."""

    __slots__ = ("_clock", "_until_s")

    def __init__(self) -> None:
        self._clock = asyncio.get_running_loop().time
        self._until_s = self._clock() + SLICE_S

    async def rest(self) -> None:
        """Let the others have theirs, if this one was long enough. To be called often."""
        if self._clock() > self._until_s:
            await asyncio.sleep(0)
            self._until_s = self._clock() + SLICE_S


MAX_WATCHED_EACH: Final = 1_000
MAX_WATCHED: Final = 10_000
"""Resources that one client, and all clients of a node, may want to hear of."""
MAX_NOTIFIED: Final = 100
"""Updates that a client is told of at once. The others come right after."""
SUBSCRIBE_WAIT_S: Final = 2.0
"""A client is told that it will hear of a resource when the server knows, or after this."""
_MAX_LEVELS: Final = 64


class ResourceWatch:
    """The resources of one client. What was updated waits here until somebody tells the client."""

    __slots__ = ("_updated", "listener", "principal_id", "routes", "targets")

    def __init__(self, principal_id: str) -> None:
        self.principal_id = principal_id
        self.targets: dict[str, tuple[str, str]] = {}
        """By the client's own name for it: the server, and what that calls it."""
        self.routes: dict[str, Route] = {}
        """By the same name, the way on which it was found when the client subscribed."""
        self.listener: Callable[[], None] | None = None
        """Wakes who tells the client, while somebody does."""
        self._updated: dict[str, None] = {}

    @property
    def has_updates(self) -> bool:
        return bool(self._updated)

    def note(self, uri: str) -> None:
        """The resource the client knows as `uri` was updated."""
        self._updated[uri] = None
        if self.listener is not None:
            self.listener()

    def forget(self, uri: str) -> None:
        self._updated.pop(uri, None)

    def take(self) -> list[str]:
        """Some of what was updated, the oldest first."""
        taken = list(self._updated)[:MAX_NOTIFIED]
        for uri in taken:
            del self._updated[uri]
        return taken


class ResourceWatches:
    """All that clients of a node want to hear of."""

    def __init__(self, tell: Callable[[str, frozenset[str]], Acknowledgement]) -> None:
        """`tell(server_id, uris)` has a server say when one of these changes, and no other."""
        self._tell = tell
        self._by_server: dict[str, dict[str, set[tuple[ResourceWatch, str]]]] = {}
        self._places = FairSlots("watched resources")
        self._due: set[str] = set()
        self._told: dict[str, Acknowledgement] = {}

    def __len__(self) -> int:
        return len(self._places)

    def add(self, watch: ResourceWatch, known_as: str, *, server_id: str, uri: str) -> None:
        """Have `watch` hear of a server's `uri`. Raises SessionLimit."""
        if watch.targets.get(known_as) == (server_id, uri):
            return
        self.remove(watch, known_as)
        if len(watch.targets) >= MAX_WATCHED_EACH:
            raise SessionLimit(
                f"you watch {MAX_WATCHED_EACH} resources here already", hint="unsubscribe from some of them"
            )
        self._places.take(watch.principal_id, of=MAX_WATCHED)
        watch.targets[known_as] = (server_id, uri)
        self._by_server.setdefault(server_id, {}).setdefault(uri, set()).add((watch, known_as))
        self._sync_soon(server_id)

    def remove(self, watch: ResourceWatch, known_as: str) -> None:
        """`watch` is not to hear of this any more. No effect where it did not."""
        target = watch.targets.pop(known_as, None)
        if target is None:
            return
        server_id, uri = target
        watch.routes.pop(known_as, None)
        watch.forget(known_as)
        watched = self._by_server[server_id]
        watched[uri].discard((watch, known_as))
        if not watched[uri]:
            del watched[uri]
        if not watched:
            del self._by_server[server_id]
        self._places.give_back(watch.principal_id)
        self._sync_soon(server_id)

    def drop(self, watch: ResourceWatch) -> None:
        """The client of `watch` is gone."""
        for known_as in tuple(watch.targets):
            self.remove(watch, known_as)

    def on_updated(self, server_id: str, uri: str) -> None:
        """A server says that `uri` was updated. It may be part of what clients know as one resource."""
        watched = self._by_server.get(server_id, {})
        for whole in _enclosing_uris(uri):
            for watch, known_as in watched.get(whole, ()):
                watch.note(known_as)

    async def settle(self, server_ids: Iterable[str]) -> None:
        """Wait until these servers know what they are to tell of, or do not answer for a while."""
        await asyncio.sleep(0)  # what is due is told first
        told = [one for server_id in server_ids if (one := self._told.get(server_id)) is not None]
        if told:
            await asyncio.wait(told, timeout=SUBSCRIBE_WAIT_S)

    def _sync_soon(self, server_id: str) -> None:
        """Many at once are told together."""
        if not self._due:
            asyncio.get_running_loop().call_soon(self._sync_due)
        self._due.add(server_id)

    def _sync_due(self) -> None:
        due, self._due = self._due, set()
        for server_id in due:
            uris = frozenset(self._by_server.get(server_id, ()))
            self._told[server_id] = self._tell(server_id, uris)
            if not uris:
                del self._told[server_id]


def _enclosing_uris(uri: str) -> Iterator[str]:
    """What `uri` names, and what it may be a part of."""
    yield uri
    for _ in range(_MAX_LEVELS):
        uri = uri.rstrip("/")
        yield uri
        above, slash, _ = uri.rpartition("/")
        if not slash:
            return
        uri = above + slash
        yield uri


class ResourceSubscriptions:
    """Takes what clients want to hear of, and do not any more."""

    def __init__(self, watches: ResourceWatches, recording: AuditTrail) -> None:
        self._watches = watches
        self._recording = recording

    async def subscribe(
        self, view: View, watch: ResourceWatch, uris: Iterable[str], *, trace: Trace
    ) -> Collection[str]:
        """Have `watch` hear of those of `uris` that the caller may have: those are given back.

        Returns once their servers know, or do not answer for a while. Raises SessionLimit, and
        ServerUnavailable where it cannot be recorded.
        """
        found, unknown = await self._find(view, uris)
        try:
            async with self._recorded(view, found.values(), trace):
                for uri, route in found.items():  # all at once, for servers are told at once
                    self._watches.add(watch, uri, server_id=route.server_id, uri=route.upstream_uri)
                    watch.routes[uri] = route
                await self._watches.settle({route.server_id for route in found.values()})
        finally:
            self._refuse(view, iter(unknown), trace)
        return found.keys()

    async def unsubscribe(self, view: View, watch: ResourceWatch, uri: str, *, trace: Trace) -> None:
        """`watch` is not to hear of `uri` any more. Raises UnknownResource, but not for what it heard of."""
        route = watch.routes.get(uri) or view.find_resource(uri)
        if route is None:
            raise self._unknown(view, uri, trace)
        async with self._recorded(view, [route], trace):
            self._watches.remove(watch, uri)

    async def _find(self, view: View, uris: Iterable[str]) -> tuple[Mapping[str, Route], Sequence[str]]:
        """The ways to those that the caller may have, and the others."""
        turns = TimeSlice()
        found: dict[str, Route] = {}
        unknown: list[str] = []
        for uri in dict.fromkeys(uris):
            await turns.rest()
            route = view.find_resource(uri)
            if route is None:
                unknown.append(uri)
            else:
                found[uri] = route
        return found, unknown

    def _refuse(self, view: View, uris: Iterator[str], trace: Trace) -> None:
        """Each in a turn of its own, and all after the answer: see `Recording.unknown`."""
        uri = next(uris, None)
        if uri is not None:
            self._unknown(view, uri, trace)
            asyncio.get_running_loop().call_soon(self._refuse, view, uris, trace)

    def _unknown(self, view: View, uri: str, trace: Trace) -> UnknownResource:
        self._recording.unknown(view, RESOURCE + uri, trace, code=UnknownResource.code)
        return UnknownResource("Resource not found", data={"uri": uri})

    @asynccontextmanager
    async def _recorded(self, view: View, routes: Iterable[Route], trace: Trace) -> AsyncIterator[None]:
        """The block is on record for each of `routes`: that it begins, and how it ended."""
        began, starts = time.perf_counter(), list[tuple[Route, int]]()
        outcome: Outcome = "error"
        code = "internal"
        turns = TimeSlice()
        try:
            for route in routes:
                await turns.rest()
                starts.append((route, self._recording.began(view, route, trace, NO_ARGUMENTS, 0)))
            yield
            outcome, code = "ok", ""
        except ToolgateError as exc:
            code = exc.code
            raise
        except asyncio.CancelledError:
            outcome = code = "cancelled"
            raise
        finally:
            took_s = time.perf_counter() - began
            for route, start in starts:
                self._recording.ended(view, route, trace, CallEnd(outcome, code, took_s, 0, 0, start))
