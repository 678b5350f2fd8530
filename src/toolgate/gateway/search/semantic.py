"""Semantic search: embeddings of tools by a local MiniLM model, cached between runs.

A model is a directory in the layout of sentence-transformers: BERT with mean pooling, run by numpy alone.
Only data is read from it (`config.json`, `tokenizer.json`, `model.safetensors`), no code. One thread embeds
tools in the background, in small batches; semantic search finds a tool once it has a vector. Another thread
runs queries, so that they wait for no batch. Loaded only if a model is configured, because it needs the extra
`toolgate[semantic]`.
"""

import asyncio
import hashlib
import json
import logging
import math
import sqlite3
import threading
from collections.abc import AsyncIterator, Callable, Container, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Final, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import load_file
from threadpoolctl import threadpool_limits
from tokenizers import Tokenizer

from toolgate.catalog.word_search import SearchEntry, split_name
from toolgate.errors import StartRefused

MAX_VECTORS: Final = 50_000  # beyond it, the oldest are dropped; MiniLM's take 80 MB

_TABLE: Final = "CREATE TABLE IF NOT EXISTS vectors (id INTEGER PRIMARY KEY, key BLOB UNIQUE, vector BLOB)"
_PUT: Final = "INSERT OR REPLACE INTO vectors (key, vector) VALUES (?, ?)"
_GET: Final = "SELECT vector FROM vectors WHERE key = ?"
_TRIM: Final = "DELETE FROM vectors WHERE id <= (SELECT max(id) FROM vectors) - ?"

_log: Final = logging.getLogger(__name__)

T = TypeVar("T")


@dataclass(slots=True)
class VectorCache:
    """The vectors of one model in a SQLite file, by text. Only one thread at a time may use it.

    All vectors can be computed again, so a damaged file is replaced, and an unusable path is only logged.
    """

    path: Path
    model_id: str
    max_vectors: int = MAX_VECTORS
    wait_s: float = 1.0
    """How long to wait for another process that writes to the file."""
    connection: sqlite3.Connection | None = None
    is_failing: bool = False

    def close(self) -> None:
        """Close the file. The next use opens it again."""
        if self.connection is not None:
            self.connection.close()
            self.connection = None

    def get(self, texts: Sequence[str]) -> dict[str, bytes]:
        def read(file: sqlite3.Connection) -> dict[str, bytes]:
            rows = ((text, file.execute(_GET, (self._key(text),)).fetchone()) for text in texts)
            return {text: row[0] for text, row in rows if row is not None}

        return self._try(read) or {}

    def put(self, vectors: Mapping[str, bytes]) -> None:
        def write(file: sqlite3.Connection) -> None:
            with file:
                file.executemany(_PUT, [(self._key(text), vector) for text, vector in vectors.items()])
                file.execute(_TRIM, (self.max_vectors,))

        self._try(write)

    def _key(self, text: str) -> bytes:
        return sha256(self.model_id.encode() + b"\0" + text.encode("utf-8", "surrogatepass")).digest()

    def _try(self, act: Callable[[sqlite3.Connection], T]) -> T | None:
        """The result of `act` on the file; None if the file is unusable."""
        try:
            if self.connection is None:
                self.connection = _open_file(self.path, self.wait_s)
            done = act(self.connection)
        except (OSError, sqlite3.OperationalError) as exc:
            # No space, no permission, or locked by another process: the file is not damaged.
            if not self.is_failing:
                _log.warning("cannot save vectors in `%s`: %s", self.path, exc)
            self.is_failing = True
        except sqlite3.DatabaseError as exc:
            _log.warning("replacing the damaged file `%s`; computing its vectors again: %s", self.path, exc)
            self.close()
            self.path.unlink(missing_ok=True)
        else:
            self.is_failing = False
            return done
        return None


def _open_file(path: Path, wait_s: float) -> sqlite3.Connection:
    path.touch(0o600)
    connection = sqlite3.connect(path, timeout=wait_s, check_same_thread=False)
    try:
        connection.execute(_TABLE)
    except sqlite3.Error:
        connection.close()
        raise
    return connection


Vectors = NDArray[np.float32]

MAX_TOKENS: Final = 64
"""Tokens of a text to embed: a description begins with its purpose, and longer texts take much longer."""
MAX_TEXT_CHARS: Final = 2_000  # several times the length of 64 tokens: spares tokenizing a long text in full


class Embedder:
    """One model in memory. Thread-safe."""

    def __init__(self, directory: Path) -> None:
        """Raises StartRefused if `directory` has no such model."""
        # By default numpy spreads each multiplication over all cores, and a query on a busy machine takes ten
        # times as long. Set for the whole process, which multiplies no other matrices.
        threadpool_limits(1, user_api="blas")
        try:
            config = json.loads((directory / "config.json").read_text("utf-8"))
            self._layers = int(config["num_hidden_layers"])
            self._heads = int(config["num_attention_heads"])
            self.width = int(config["hidden_size"])
            weights = directory / "model.safetensors"
            self._weights = {name: w.astype(np.float32, copy=False) for name, w in load_file(weights).items()}
            self._tokenizer = Tokenizer.from_file(str(directory / "tokenizer.json"))
            self._tokenizer.enable_truncation(MAX_TOKENS)
            self._tokenizer.no_padding()
            with weights.open("rb") as file:
                self.model_id = hashlib.file_digest(file, "sha256").hexdigest()
            self.embed(["checks that every weight has the right shape"])
        except Exception as exc:  # the tokenizer library raises nothing more specific
            raise StartRefused(
                f"cannot load a model from `{directory}`: {exc}",
                hint="set `semantic_model` to a directory with all-MiniLM-L6-v2; see `docs/how-to/search.md`",
            ) from exc

    def embed(self, texts: Sequence[str]) -> Vectors:
        """A vector of length 1 for each of `texts`."""
        tokens = [self._tokens(text) for text in texts]
        ids = np.zeros((len(tokens), max(map(len, tokens))), np.int64)
        mask = np.zeros(ids.shape, np.float32)
        for row, found in enumerate(tokens):
            ids[row, : len(found)] = found
            mask[row, : len(found)] = 1
        hidden = self._encode(ids, mask)
        means: Vectors = (hidden * mask[..., None]).sum(1) / mask.sum(1, keepdims=True)
        lengths: Vectors = np.linalg.norm(means, axis=1, keepdims=True)
        return means / lengths

    def _tokens(self, text: str) -> list[int]:
        # The tokenizer cannot encode lone surrogates. One text at a time, because batches start threads.
        sound = text[:MAX_TEXT_CHARS].encode("utf-8", "replace").decode()
        ids: list[int] = self._tokenizer.encode(sound).ids
        return ids

    def _encode(self, ids: NDArray[np.int64], mask: Vectors) -> Vectors:
        weights = self._weights
        words = weights["embeddings.word_embeddings.weight"][ids]
        places = weights["embeddings.position_embeddings.weight"][: ids.shape[1]]
        kinds = weights["embeddings.token_type_embeddings.weight"][0]
        hidden = self._normal(words + places + kinds, "embeddings.LayerNorm")
        for number in range(self._layers):
            layer = f"encoder.layer.{number}."
            attended = self._linear(self._attend(hidden, mask, layer), f"{layer}attention.output.dense")
            hidden = self._normal(attended + hidden, f"{layer}attention.output.LayerNorm")
            wide = _gelu(self._linear(hidden, f"{layer}intermediate.dense"))
            narrow = self._linear(wide, f"{layer}output.dense")
            hidden = self._normal(narrow + hidden, f"{layer}output.LayerNorm")
        return hidden

    def _attend(self, hidden: Vectors, mask: Vectors, layer: str) -> Vectors:
        texts, length, width = hidden.shape  # the width of all heads together

        def heads(name: str) -> Vectors:
            projected = self._linear(hidden, f"{layer}attention.self.{name}")
            return projected.reshape(texts, length, self._heads, -1).transpose(0, 2, 1, 3)

        scores = heads("query") @ heads("key").swapaxes(-1, -2) / np.float32(math.sqrt(width / self._heads))
        scores += (mask[:, None, None, :] - 1) * np.float32(1e9)
        shares = np.exp(scores - scores.max(-1, keepdims=True))
        shares /= shares.sum(-1, keepdims=True)
        mixed: Vectors = (shares @ heads("value")).transpose(0, 2, 1, 3)
        return mixed.reshape(texts, length, width)

    def _linear(self, hidden: Vectors, name: str) -> Vectors:
        product: Vectors = hidden @ self._weights[f"{name}.weight"].T
        return product + self._weights[f"{name}.bias"]

    def _normal(self, hidden: Vectors, name: str) -> Vectors:
        centred = hidden - hidden.mean(-1, keepdims=True)
        spread = np.sqrt((centred**2).mean(-1, keepdims=True) + np.float32(1e-12))
        scaled: Vectors = centred / spread * self._weights[f"{name}.weight"]
        return scaled + self._weights[f"{name}.bias"]


def _gelu(x: Vectors) -> Vectors:
    """GELU; the error function by Abramowitz and Stegun, 7.1.26 (error < 1.5e-7)."""
    one = np.float32(1)
    z: Vectors = np.abs(x) * np.float32(math.sqrt(0.5))
    t: Vectors = one / (one + np.float32(0.3275911) * z)
    series: Vectors = np.float32(1.061405429) * t - np.float32(1.453152027)
    for coefficient in (1.421413741, -0.284496736, 0.254829592):
        series = series * t + np.float32(coefficient)
    error: Vectors = np.sign(x) * (one - series * t * np.exp(-z * z))
    return np.float32(0.5) * x * (one + error)


BATCH: Final = 8  # texts embedded at a time: a fraction of a second, which a shutdown waits for
MIN_SIMILARITY: Final = 0.2  # the cosine similarity below which a text is unrelated to a query


class EmbeddingModel(Protocol):
    """Makes vectors, as `Embedder` does. Two threads use it."""

    width: int

    def embed(self, texts: Sequence[str]) -> Vectors:
        """A vector of length 1 for each of `texts`."""
        ...


@asynccontextmanager
async def open_semantic_model(model: Path, vectors: Path) -> AsyncIterator["SemanticSearch"]:
    """Load the model from a directory; `vectors` is the cache file. Raises StartRefused."""
    embedder = await asyncio.to_thread(Embedder, model)
    semantic = SemanticSearch(embedder, VectorCache(vectors, embedder.model_id))
    try:
        yield semantic
    finally:
        await asyncio.shield(asyncio.to_thread(semantic.close))


class SemanticSearch:
    """The model, the cached vectors and the two threads that all indexes of a process share."""

    def __init__(self, embedder: EmbeddingModel, cache: VectorCache) -> None:
        self.embedder = embedder
        self._cache = cache
        self._is_closing = threading.Event()
        self.background = ThreadPoolExecutor(max_workers=1, thread_name_prefix="embedding")
        self.foreground = ThreadPoolExecutor(max_workers=1, thread_name_prefix="search")

    def close(self) -> None:
        """End the threads after their current batch."""
        self._is_closing.set()
        self.background.shutdown(cancel_futures=True)
        self.foreground.shutdown(cancel_futures=True)
        self._cache.close()

    def open_index(self) -> "SemanticIndex":
        return SemanticIndex(self)

    def vectors_of(self, texts: Sequence[str], is_wanted: Callable[[], bool]) -> Vectors | None:
        """A vector for each of `texts`, cached or new; None once `is_wanted` is false."""
        size = self.embedder.width * np.dtype(np.float32).itemsize
        known = {text: vector for text, vector in self._cache.get(texts).items() if len(vector) == size}
        # Batches of similar length waste the least padding.
        missing = sorted({text for text in texts if text not in known}, key=lambda text: (len(text), text))
        for start in range(0, len(missing), BATCH):
            batch = missing[start : start + BATCH]
            if self._is_closing.is_set() or not is_wanted():
                return None
            vectors = self.embedder.embed(batch)
            made = {text: vector.tobytes() for text, vector in zip(batch, vectors, strict=True)}
            self._cache.put(made)
            known |= made
        joined = b"".join(known[text] for text in texts)
        return np.frombuffer(joined, np.float32).reshape(len(texts), self.embedder.width)


class SemanticIndex:
    """The embeddings of one index. `put` and `drop` are thread-safe."""

    def __init__(self, semantic: SemanticSearch) -> None:
        self._semantic = semantic
        self._changing = threading.Lock()
        self._wanted: dict[str, dict[str, str]] = {}
        """Group → the text of each key."""
        self._made: dict[str, Vectors] = {}
        """Group → vectors in the order of its keys. A changed group has none until it is embedded."""
        self._stack: tuple[list[str], Vectors] | None = None
        """The keys of all groups, and their vectors as one matrix."""

    def put(self, group: str, entries: Sequence[SearchEntry]) -> None:
        """Replace `group` by `entries`, as soon as they have vectors."""
        texts = {entry.key: embedding_text(entry) for entry in entries}
        with self._changing:
            if self._wanted.get(group) == texts:
                return
            self._wanted[group] = texts
            self._made.pop(group, None)
            self._stack = None
        with suppress(RuntimeError):  # closed
            self._semantic.background.submit(self._make, group, texts)

    def drop(self, group: str) -> None:
        with self._changing:
            self._wanted.pop(group, None)
            self._made.pop(group, None)
            self._stack = None

    async def rank(self, query: str, *, limit: int, within: Container[str] | None) -> list[str]:
        """The keys `within` that are nearest to `query`; nearest first, ties by key."""
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._semantic.foreground, self._rank, query, limit, within)

    def _rank(self, query: str, limit: int, within: Container[str] | None) -> list[str]:
        with self._changing:
            if self._stack is None:
                keys = [key for group in self._made for key in self._wanted[group]]
                empty = np.zeros((0, self._semantic.embedder.width), np.float32)
                self._stack = keys, np.concatenate([empty, *self._made.values()])
            keys, vectors = self._stack
        nearness = vectors @ self._semantic.embedder.embed([query])[0]
        near = np.flatnonzero(nearness >= MIN_SIMILARITY)
        found = [(-float(nearness[at]), keys[at]) for at in near]
        visible = found if within is None else [pair for pair in found if pair[1] in within]
        return [key for _, key in sorted(visible)[:limit]]

    def _make(self, group: str, texts: dict[str, str]) -> None:
        try:
            made = self._semantic.vectors_of(list(texts.values()), lambda: self._wanted.get(group) is texts)
        except Exception:
            _log.exception("cannot embed the tools of `%s`; search finds them by words only", group)
            return
        with self._changing:
            if made is not None and self._wanted.get(group) is texts:
                self._made[group] = made
                self._stack = None


def embedding_text(entry: SearchEntry) -> str:
    """The text of a tool to embed. The most important parts come first, because the end may be cut off."""
    names = (entry.server_name or entry.server, split_name(entry.name), entry.title)
    return ". ".join(part for part in (*names, entry.description) if part)
