"""What clients want to hear of, on record like what they read: before servers are told, and how it ended."""

import asyncio
import time
from collections.abc import AsyncIterator, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager

from toolgate.audit.events import UNSEEN, Outcome
from toolgate.errors import ToolgateError, UnknownResource
from toolgate.gateway.call.audit_trail import Ending, Recording
from toolgate.gateway.scope.caller import Trace
from toolgate.gateway.scope.routes import Route
from toolgate.gateway.scope.view import View
from toolgate.gateway.subscriptions.resources import Watch, Watches
from toolgate.gateway.turns import Turns
from toolgate.model.names import RESOURCE


class Wishes:
    """Takes what clients want to hear of, and do not any more."""

    def __init__(self, watches: Watches, recording: Recording) -> None:
        self._watches = watches
        self._recording = recording

    async def subscribe(
        self, view: View, watch: Watch, uris: Iterable[str], *, trace: Trace
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

    async def unsubscribe(self, view: View, watch: Watch, uri: str, *, trace: Trace) -> None:
        """`watch` is not to hear of `uri` any more. Raises UnknownResource, but not for what it heard of."""
        route = watch.routes.get(uri) or view.find_resource(uri)
        if route is None:
            raise self._unknown(view, uri, trace)
        async with self._recorded(view, [route], trace):
            self._watches.remove(watch, uri)

    async def _find(self, view: View, uris: Iterable[str]) -> tuple[Mapping[str, Route], Sequence[str]]:
        """The ways to those that the caller may have, and the others."""
        turns = Turns()
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
        turns = Turns()
        try:
            for route in routes:
                await turns.rest()
                starts.append((route, self._recording.began(view, route, trace, UNSEEN, 0)))
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
                self._recording.ended(view, route, trace, Ending(outcome, code, took_s, 0, 0, start))
