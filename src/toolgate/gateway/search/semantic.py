"""Finding tools by what is meant: the vectors of their texts, and which of them are nearest to a query's.

One thread makes vectors in the background, in small batches. What has none yet is not found here. Another
thread answers queries, which so wait for no batch. Imported only where a model is configured: `embedding`.
"""

import asyncio
import logging
import threading
from collections.abc import AsyncIterator, Callable, Container, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Final, NamedTuple, Protocol

import numpy as np

from toolgate.catalog.entries import Entry
from toolgate.catalog.search.terms import split_name
from toolgate.gateway.embedding import Embedder, Vectors
from toolgate.gateway.vectors import VectorCache

BATCH: Final = 8
"""Texts embedded at a time: a fraction of a second, which is how long a shutdown waits."""
MIN_NEARNESS: Final = 0.2
"""The cosine below which a text has nothing to do with a query."""

_log: Final = logging.getLogger(__name__)


class Embeds(Protocol):
    """What makes vectors: `Embedder`. Two threads use it."""

    width: int

    def embed(self, texts: Sequence[str]) -> Vectors:
        """A vector of length 1 for each of `texts`."""
        ...


@asynccontextmanager
async def open_embedding(model: Path, vectors: Path) -> AsyncIterator["Meaning"]:
    """The model in the directory `model`, its vectors kept in the file `vectors`. Raises StartRefused."""
    embedder = await asyncio.to_thread(Embedder, model)
    meaning = Meaning(embedder, VectorCache(vectors, embedder.model_id))
    try:
        yield meaning
    finally:
        await asyncio.shield(asyncio.to_thread(meaning.close))


class Meaning:
    """What all indexes of a process share: the model, the kept vectors, the two threads."""

    def __init__(self, embedder: Embeds, cache: VectorCache) -> None:
        self.embedder = embedder
        self._cache = cache
        self._is_closing = threading.Event()
        self.background = ThreadPoolExecutor(max_workers=1, thread_name_prefix="embedding")
        self.foreground = ThreadPoolExecutor(max_workers=1, thread_name_prefix="search")

    def close(self) -> None:
        """End the threads, after the batch at hand."""
        self._is_closing.set()
        self.background.shutdown(cancel_futures=True)
        self.foreground.shutdown(cancel_futures=True)
        self._cache.close()

    def open_index(self) -> "NearIndex":
        """A new index, empty."""
        return NearIndex(self)

    def vectors_of(self, texts: Sequence[str], is_wanted: Callable[[], bool]) -> Vectors | None:
        """A vector for each of `texts`, kept or new; None once it `is_wanted` no more. In the background."""
        size = self.embedder.width * np.dtype(np.float32).itemsize
        known = {text: vector for text, vector in self._cache.get(texts).items() if len(vector) == size}
        for batch in _batches({text for text in texts if text not in known}):
            if self._is_closing.is_set() or not is_wanted():
                return None
            vectors = self.embedder.embed(batch)
            made = {text: vector.tobytes() for text, vector in zip(batch, vectors, strict=True)}
            self._cache.put(made)
            known |= made
        joined = b"".join(known[text] for text in texts)
        return np.frombuffer(joined, np.float32).reshape(len(texts), self.embedder.width)


class _Stack(NamedTuple):
    """The vectors of all groups, one below the other, and whose they are."""

    keys: list[str]
    vectors: Vectors


class NearIndex:
    """The tools of one index by meaning. `put` and `drop` may be called in any thread."""

    def __init__(self, meaning: Meaning) -> None:
        self._meaning = meaning
        self._changing = threading.Lock()
        self._wanted: dict[str, dict[str, str]] = {}
        """By group: the text of each key."""
        self._made: dict[str, Vectors] = {}
        """By group: vectors in the order of its keys. None of a group that changed since."""
        self._stack: _Stack | None = None

    def put(self, group: str, entries: Sequence[Entry]) -> None:
        """Have exactly `entries` in `group`, as soon as there are vectors for them."""
        texts = {entry.key: text_of(entry) for entry in entries}
        with self._changing:
            if self._wanted.get(group) == texts:
                return
            self._wanted[group] = texts
            self._made.pop(group, None)
            self._stack = None
        with suppress(RuntimeError):  # closed: nobody asks any more
            self._meaning.background.submit(self._make, group, texts)

    def drop(self, group: str) -> None:
        """Forget `group`, if it is there."""
        with self._changing:
            self._wanted.pop(group, None)
            self._made.pop(group, None)
            self._stack = None

    async def rank(self, query: str, *, limit: int, within: Container[str] | None) -> list[str]:
        """The keys of what is nearest to `query`, among those `within`; nearest first, equals by key."""
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._meaning.foreground, self._rank, query, limit, within)

    def _rank(self, query: str, limit: int, within: Container[str] | None) -> list[str]:
        keys, vectors = self._stacked()
        nearness = vectors @ self._meaning.embedder.embed([query])[0]
        near = np.flatnonzero(nearness >= MIN_NEARNESS)
        found = [(-float(nearness[at]), keys[at]) for at in near]
        visible = found if within is None else [pair for pair in found if pair[1] in within]
        return [key for _, key in sorted(visible)[:limit]]

    def _stacked(self) -> _Stack:
        with self._changing:
            if self._stack is None:
                keys = [key for group in self._made for key in self._wanted[group]]
                empty = np.zeros((0, self._meaning.embedder.width), np.float32)
                self._stack = _Stack(keys, np.concatenate([empty, *self._made.values()]))
            return self._stack

    def _make(self, group: str, texts: dict[str, str]) -> None:
        try:
            made = self._meaning.vectors_of(
                list(texts.values()), is_wanted=lambda: self._wanted.get(group) is texts
            )
        except Exception:
            _log.exception("`%s` is found by words alone: no vectors could be made", group)
            return
        with self._changing:
            if made is not None and self._wanted.get(group) is texts:
                self._made[group] = made
                self._stack = None


def text_of(entry: Entry) -> str:
    """What is embedded of a tool: the beginning counts most, the end may be cut off."""
    names = (entry.server_name or entry.server, split_name(entry.name), entry.title)
    return ". ".join(part for part in (*names, entry.description) if part)


def _batches(texts: set[str]) -> Iterator[list[str]]:
    ordered = sorted(texts, key=lambda text: (len(text), text))  # those of like length waste least
    for start in range(0, len(ordered), BATCH):
        yield ordered[start : start + BATCH]
