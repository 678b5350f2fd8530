"""Search as control and nodes use it: by words, and by meaning too where a model is configured."""

import asyncio
import threading
from collections.abc import AsyncIterator, Container, Sequence
from collections.abc import Set as AbstractSet
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from toolgate.catalog.search.index import SearchEntry, SearchHit, SearchIndex, fuse_rankings
from toolgate.errors import StartRefused
from toolgate.lazy_modules import load_lazily

if TYPE_CHECKING:
    from toolgate.gateway.search.semantic import SemanticSearch

DEPTH: Final = 100
"""How much of each ranking counts where two are made one."""
SEMANTIC_TIMEOUT_S: Final = 1.0
"""A search that waits longer for its meaning is answered by words alone."""


@asynccontextmanager
async def open_semantic_search(
    model: Path | None, *, vectors: Path
) -> AsyncIterator["SemanticSearch | None"]:
    """What a process's `HybridIndex`s share to go by meaning; None without a `model`. Raises StartRefused.

    `vectors` is the file that keeps vectors between runs.
    """
    if model is None:
        yield None
        return
    module = await asyncio.to_thread(_load)
    async with module.open_semantic_model(model, vectors) as meaning:
        yield meaning


class HybridIndex:
    """An index of tools in groups. `put` and `drop` may be called in any thread; best not in the loop's."""

    def __init__(self, meaning: "SemanticSearch | None" = None) -> None:
        self._index = SearchIndex()
        self._near = None if meaning is None else meaning.open_index()
        self._writing = threading.Lock()

    def put(self, group: str, entries: Sequence[SearchEntry]) -> None:
        """Have exactly `entries` in `group`. 10,000 take a few seconds; what is there already, little."""
        with self._writing:
            self._index.put(group, entries)
            if self._near is not None:
                self._near.put(group, entries)

    def drop(self, group: str) -> None:
        """Forget `group`, if it is there."""
        with self._writing:
            self._index.drop(group)
            if self._near is not None:
                self._near.drop(group)

    def groups(self) -> AbstractSet[str]:
        """The groups that are there now."""
        return self._index.groups()

    async def search(
        self, query: str, *, limit: int, within: Container[str] | None = None
    ) -> list[SearchHit]:
        """What suits `query`, best first; what is not `within` is as if it were not there.

        `within` is asked in another thread too: hand over a set that nobody changes.
        """
        if self._near is None:
            return self._index.search(query, limit=limit, within=within)
        depth = max(limit, DEPTH)
        worded = [hit.key for hit in self._index.search(query, limit=depth, within=within)]
        try:
            async with asyncio.timeout(SEMANTIC_TIMEOUT_S):
                near = await self._near.rank(query, limit=depth, within=within)
        except TimeoutError:
            near = []
        return fuse_rankings([worded, near], limit=limit)


def _load() -> Any:
    try:
        return load_lazily("toolgate.gateway.search.semantic")
    except ImportError as exc:
        raise StartRefused(
            f"`semantic_model` is set, and `{exc.name}` is not installed",
            hint="install the extra: `pip install 'toolgate[semantic]'`, or unset `semantic_model`",
        ) from exc
