"""Vectors kept between runs, by the text and the model they were made of, in one SQLite file.

Everything in it can be made again. So a damaged file is begun anew, and where none can be kept, none is.
One thread at a time uses it.
"""

import logging
import sqlite3
from collections.abc import Callable, Mapping, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Final, TypeVar

MAX_VECTORS: Final = 50_000
"""The oldest go first. Of MiniLM, these take 80 MB."""

_TABLE: Final = "CREATE TABLE IF NOT EXISTS vectors (id INTEGER PRIMARY KEY, key BLOB UNIQUE, vector BLOB)"
_PUT: Final = "INSERT OR REPLACE INTO vectors (key, vector) VALUES (?, ?)"
_GET: Final = "SELECT vector FROM vectors WHERE key = ?"
_TRIM: Final = "DELETE FROM vectors WHERE id <= (SELECT max(id) FROM vectors) - ?"

_log: Final = logging.getLogger(__name__)

T = TypeVar("T")


class VectorCache:
    """The vectors of one model in the file `path`; those of others may stand beside them."""

    def __init__(
        self, path: Path, model_id: str, *, max_vectors: int = MAX_VECTORS, wait_s: float = 1.0
    ) -> None:
        """`wait_s`: how long for another process that writes to the same file."""
        self._path = path
        self._wait_s = wait_s
        self._model_id = model_id.encode()
        self._max_vectors = max_vectors
        self._connection: sqlite3.Connection | None = None
        self._is_failing = False

    def close(self) -> None:
        """Give the file back. It is opened again when it is needed."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def get(self, texts: Sequence[str]) -> dict[str, bytes]:
        """The vectors of those `texts` that are kept."""

        def read(file: sqlite3.Connection) -> dict[str, bytes]:
            rows = ((text, file.execute(_GET, (self._key(text),)).fetchone()) for text in texts)
            return {text: row[0] for text, row in rows if row is not None}

        return self._try(read) or {}

    def put(self, vectors: Mapping[str, bytes]) -> None:
        """Keep the vector of each text."""

        def write(file: sqlite3.Connection) -> None:
            with file:
                file.executemany(_PUT, [(self._key(text), vector) for text, vector in vectors.items()])
                file.execute(_TRIM, (self._max_vectors,))

        self._try(write)

    def _key(self, text: str) -> bytes:
        return sha256(self._model_id + b"\0" + text.encode("utf-8", "surrogatepass")).digest()

    def _try(self, act: Callable[[sqlite3.Connection], T]) -> T | None:
        """What `act` does with the file, or None where that cannot be done today."""
        try:
            if self._connection is None:
                self._connection = _open(self._path, self._wait_s)
            done = act(self._connection)
        except (OSError, sqlite3.OperationalError) as exc:
            # No place, no permission, or another process at it: nothing is damaged.
            if not self._is_failing:
                _log.warning("vectors are not kept in `%s`: %s", self._path, exc)
            self._is_failing = True
        except sqlite3.DatabaseError as exc:
            _log.warning("`%s` is damaged and begun anew; vectors are made again: %s", self._path, exc)
            self.close()
            self._path.unlink(missing_ok=True)
        else:
            self._is_failing = False
            return done
        return None


def _open(path: Path, wait_s: float) -> sqlite3.Connection:
    path.touch(0o600)
    connection = sqlite3.connect(path, timeout=wait_s, check_same_thread=False)
    try:
        connection.execute(_TABLE)
    except sqlite3.Error:
        connection.close()
        raise
    return connection
