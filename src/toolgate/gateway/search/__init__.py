"""The find tools: search the tools of a scope that is too large to list.

`ToolSearch` keeps an index of all servers' tools in the background and searches it for one view at a time.
The catalog of `govern` uses the same `HybridIndex` (here), which ranks by words, and by meaning if a model is
configured.

- `tool_search`  the results of `search_tools` and `describe_tool`
- `semantic`  embeddings with a local model (loaded only if one is configured)

Never shows a tool outside the caller's view. Never blocks the event loop for longer than one search of words.
"""

import asyncio
import threading
from collections.abc import AsyncIterator, Container, Sequence
from collections.abc import Set as AbstractSet
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

from toolgate.catalog.word_search import SearchEntry, SearchHit, SearchIndex, fuse_rankings
from toolgate.errors import StartRefused
from toolgate.lazy_modules import load_lazily

if TYPE_CHECKING:
    from toolgate.gateway.search.semantic import SemanticSearch

DEPTH: Final = 100
"""Hits of each ranking that count when two are fused."""
SEMANTIC_TIMEOUT_S: Final = 1.0
"""A search that waits longer for the model is answered by words alone."""


@asynccontextmanager
async def open_semantic_search(model: Path | None, data_dir: Path) -> AsyncIterator["SemanticSearch | None"]:
    """What indexes share; None without a `model`. Vectors are cached in `data_dir`. Raises StartRefused."""
    if model is None:
        yield None
        return
    try:
        module = await asyncio.to_thread(load_lazily, "toolgate.gateway.search.semantic")
    except ImportError as exc:
        raise StartRefused(
            f"`semantic_model` is set, and `{exc.name}` is not installed",
            hint="install the extra: `pip install 'toolgate[semantic]'`, or unset `semantic_model`",
        ) from exc
    async with module.open_semantic_model(model, data_dir / "vectors.sqlite3") as meaning:
        yield meaning


class HybridIndex:
    """An index of tools in groups. `put` and `drop` are thread-safe, and too slow for the event loop."""

    def __init__(
        self, meaning: "SemanticSearch | None" = None, *, timeout_s: float = SEMANTIC_TIMEOUT_S
    ) -> None:
        self._timeout_s = timeout_s
        self._index = SearchIndex()
        self._near = None if meaning is None else meaning.open_index()
        self._writing = threading.Lock()

    def put(self, group: str, entries: Sequence[SearchEntry]) -> None:
        """Replace `group` by `entries`. 10,000 new ones take a few seconds, unchanged ones little."""
        with self._writing:
            self._index.put(group, entries)
            if self._near is not None:
                self._near.put(group, entries)

    def drop(self, group: str) -> None:
        """Remove `group`, if it is there."""
        with self._writing:
            self._index.drop(group)
            if self._near is not None:
                self._near.drop(group)

    def groups(self) -> AbstractSet[str]:
        return self._index.groups()

    async def search(
        self, query: str, *, limit: int, within: Container[str] | None = None
    ) -> list[SearchHit]:
        """The best matches `within`, which another thread reads, too, so it must not change."""
        if self._near is None:
            return self._index.search(query, limit=limit, within=within)
        depth = max(limit, DEPTH)
        worded = [hit.key for hit in self._index.search(query, limit=depth, within=within)]
        try:
            async with asyncio.timeout(self._timeout_s):
                near = await self._near.rank(query, limit=depth, within=within)
        except TimeoutError:
            near = []
        return fuse_rankings([worded, near], limit=limit)
