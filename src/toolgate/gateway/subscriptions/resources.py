"""Which resources clients want to hear of, and who is told when a server says that one was updated.

A client knows a resource by one name and its server by another. Servers are told what all clients together
want to hear of; each client is told of its own, by its own name, and of nothing else.
"""

import asyncio
from collections.abc import Callable, Iterable, Iterator
from typing import Final

from toolgate.errors import SessionLimit
from toolgate.gateway.places import Places
from toolgate.gateway.scope.routes import Route
from toolgate.upstream.connection.contract import Told

MAX_EACH: Final = 1_000
MAX_WATCHED: Final = 10_000
"""Resources that one client, and all clients of a node, may want to hear of."""
MAX_TOLD: Final = 100
"""Updates that a client is told of at once. The others come right after."""
SETTLE_S: Final = 2.0
"""A client is told that it will hear of a resource when the server knows, or after this."""
_MAX_LEVELS: Final = 64


class Watch:
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
    def has_news(self) -> bool:
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
        taken = list(self._updated)[:MAX_TOLD]
        for uri in taken:
            del self._updated[uri]
        return taken


class Watches:
    """All that clients of a node want to hear of."""

    def __init__(self, tell: Callable[[str, frozenset[str]], Told]) -> None:
        """`tell(server_id, uris)` has a server say when one of these changes, and no other."""
        self._tell = tell
        self._by_server: dict[str, dict[str, set[tuple[Watch, str]]]] = {}
        self._places = Places("watched resources")
        self._due: set[str] = set()
        self._told: dict[str, Told] = {}

    def __len__(self) -> int:
        return len(self._places)

    def add(self, watch: Watch, known_as: str, *, server_id: str, uri: str) -> None:
        """Have `watch` hear of a server's `uri`. Raises SessionLimit."""
        if watch.targets.get(known_as) == (server_id, uri):
            return
        self.remove(watch, known_as)
        if len(watch.targets) >= MAX_EACH:
            raise SessionLimit(
                f"you watch {MAX_EACH} resources here already", hint="unsubscribe from some of them"
            )
        self._places.take(watch.principal_id, of=MAX_WATCHED)
        watch.targets[known_as] = (server_id, uri)
        self._by_server.setdefault(server_id, {}).setdefault(uri, set()).add((watch, known_as))
        self._tell_soon(server_id)

    def remove(self, watch: Watch, known_as: str) -> None:
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
        self._tell_soon(server_id)

    def drop(self, watch: Watch) -> None:
        """The client of `watch` is gone."""
        for known_as in tuple(watch.targets):
            self.remove(watch, known_as)

    def on_updated(self, server_id: str, uri: str) -> None:
        """A server says that `uri` was updated. It may be part of what clients know as one resource."""
        watched = self._by_server.get(server_id, {})
        for whole in _wholes(uri):
            for watch, known_as in watched.get(whole, ()):
                watch.note(known_as)

    async def settle(self, server_ids: Iterable[str]) -> None:
        """Wait until these servers know what they are to tell of, or do not answer for a while."""
        await asyncio.sleep(0)  # what is due is told first
        told = [one for server_id in server_ids if (one := self._told.get(server_id)) is not None]
        if told:
            await asyncio.wait(told, timeout=SETTLE_S)

    def _tell_soon(self, server_id: str) -> None:
        """Many at once are told together."""
        if not self._due:
            asyncio.get_running_loop().call_soon(self._tell_due)
        self._due.add(server_id)

    def _tell_due(self) -> None:
        due, self._due = self._due, set()
        for server_id in due:
            uris = frozenset(self._by_server.get(server_id, ()))
            self._told[server_id] = self._tell(server_id, uris)
            if not uris:
                del self._told[server_id]


def _wholes(uri: str) -> Iterator[str]:
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
