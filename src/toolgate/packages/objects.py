"""Files under names, in a directory or an S3 bucket. The only module that knows the library under it.

What goes wrong there is told in our terms, without the paths and hosts that the library names: those stand in
the log. Every wait has a deadline.
"""

import asyncio
import logging
import os
import re
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Final

from obstore.exceptions import AlreadyExistsError, BaseError, PermissionDeniedError, UnauthenticatedError
from obstore.store import LocalStore, S3Store

from toolgate.errors import NotFound, StartRefused, StorageFailed, StorageUnavailable
from toolgate.registry.database import sync_directory

S3: Final = "s3://"
REQUEST_TIMEOUT_S: Final = 15.0  # for a listing, a deletion, a small object; with the library's three retries
TRANSFER_TIMEOUT_S: Final = 120.0  # for an archive, either way: 64 MiB at 4.5 Mbit/s
CHUNK_BYTES: Final = 1024 * 1024  # of a large object in memory at once
MAX_LISTED: Final = 50_000
"""Objects under one name; more is not ours: thirty packages with all their versions."""

MAX_LOGGED: Final = 300  # characters of the library's first line: it quotes whole responses of the store

_CLIENT: Final = {"connect_timeout": timedelta(seconds=5), "timeout": timedelta(seconds=TRANSFER_TIMEOUT_S)}
_RETRIES: Final = {"max_retries": 3, "retry_timeout": timedelta(seconds=REQUEST_TIMEOUT_S)}
_VARIABLES: Final = frozenset(
    {
        *("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_REGION"),
        *("AWS_DEFAULT_REGION", "AWS_ENDPOINT", "AWS_ENDPOINT_URL", "AWS_VIRTUAL_HOSTED_STYLE_REQUEST"),
        *("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI", "AWS_CONTAINER_CREDENTIALS_FULL_URI"),
        *("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE", "AWS_WEB_IDENTITY_TOKEN_FILE"),
        *("AWS_ROLE_ARN", "AWS_ROLE_SESSION_NAME"),
    }
)
"""The AWS variables that locate a bucket and authenticate the gateway."""
_BUCKET: Final = re.compile(r"[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]")
_UNAVAILABLE: Final = "retry in a moment; if it lasts, see to the place that `artifacts` names"
_FAILED: Final = "see to the place that `artifacts` names: its room and its rights; the log says more"

_log: Final = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectInfo:
    """One object, as a listing shows it."""

    name: str
    size: int
    modified_ms: int
    tag: str
    """Another one for other content."""


class ObjectStore:
    """Names are paths of segments that were parsed before: nothing here is made of what a caller wrote."""

    def __init__(self, store: LocalStore | S3Store, *, directory: Path | None = None) -> None:
        self._store = store
        self._directory = directory
        """Where it is one: then a written file is synced, which the library leaves to others."""

    async def put(self, name: str, content: bytes | Path) -> None:
        """Write or replace, whole or not at all."""
        async with self._translate_errors(TRANSFER_TIMEOUT_S):
            await self._store.put_async(name, content)
            await self._sync(name)

    async def create(self, name: str, content: bytes) -> bool:
        """Write, unless there is one already. Of all who try at once, one is told that it did."""
        try:
            async with self._translate_errors(REQUEST_TIMEOUT_S):
                await self._store.put_async(name, content, mode="create")
                await self._sync(name)
        except AlreadyExistsError:
            return False
        return True

    async def get(self, name: str, *, max_bytes: int) -> bytes:
        """All of a small object. Raises NotFound."""
        async with self._translate_errors(REQUEST_TIMEOUT_S):
            found = await self._store.get_async(name)
            if found.meta["size"] > max_bytes:
                raise StorageFailed(f"an object of more than {max_bytes} bytes is not ours", hint=_FAILED)
            return bytes(await found.bytes_async())

    async def read(self, name: str) -> AsyncGenerator[bytes, None]:
        """A large object in pieces. Raises NotFound."""
        async with self._translate_errors(REQUEST_TIMEOUT_S):
            found = await self._store.get_async(name)
        pieces = aiter(found.stream(min_chunk_size=CHUNK_BYTES))
        while True:
            async with self._translate_errors(REQUEST_TIMEOUT_S):
                piece = await anext(pieces, None)
            if piece is None:
                return
            yield bytes(piece)

    async def size(self, name: str) -> int | None:
        """In bytes. None: it is not there."""
        try:
            async with self._translate_errors(REQUEST_TIMEOUT_S):
                return (await self._store.head_async(name))["size"]
        except NotFound:
            return None

    async def list(self, under: str) -> list[ObjectInfo]:
        """All objects under a name, which is whole segments: `a/b` has nothing to do with `a/bc`."""
        found: list[ObjectInfo] = []
        async with self._translate_errors(REQUEST_TIMEOUT_S):
            async for part in self._store.list(under):
                found += (
                    ObjectInfo(
                        name=one["path"],
                        size=one["size"],
                        modified_ms=int(one["last_modified"].timestamp() * 1000),
                        tag=one["e_tag"] or "",
                    )
                    for one in part
                )
                if len(found) > MAX_LISTED:
                    raise StorageFailed(f"more than {MAX_LISTED} objects are not ours", hint=_FAILED)
        return found

    async def delete(self, names: Sequence[str]) -> None:
        """One after the other, in this order. Those that are not there are passed over."""
        for name in names:
            try:
                async with self._translate_errors(REQUEST_TIMEOUT_S):
                    await self._store.delete_async(name)
            except NotFound:
                continue

    @asynccontextmanager
    async def _translate_errors(self, timeout_s: float) -> AsyncIterator[None]:
        """Bounds what the block asks of the store, and tells what goes wrong in our terms."""
        try:
            async with asyncio.timeout(timeout_s):
                yield
        except FileNotFoundError as exc:
            raise NotFound("there is no such object in the artifact store") from exc
        except TimeoutError as exc:
            message = f"the artifact store did not answer within {timeout_s:g} s"
            raise StorageUnavailable(message, hint=_UNAVAILABLE) from exc
        except AlreadyExistsError:
            raise
        except (BaseError, OSError) as exc:
            _log.warning("the artifact store: %s", str(exc).partition("\n")[0][:MAX_LOGGED])
            if isinstance(exc, PermissionDeniedError | UnauthenticatedError):
                raise StorageFailed("the artifact store refuses this gateway", hint=_FAILED) from exc
            if self._directory is not None:
                raise StorageFailed("the artifact store cannot be written or read", hint=_FAILED) from exc
            problem = "the artifact store does not answer as it should"
            raise StorageUnavailable(problem, hint=_UNAVAILABLE) from exc

    async def _sync(self, name: str) -> None:
        if self._directory is not None:
            await asyncio.to_thread(_sync_file, self._directory, name)


def _sync_file(root: Path, name: str) -> None:
    """Make a file durable, with the directories that lead to it."""
    path = root / name
    with path.open("rb") as file:
        os.fsync(file.fileno())
    while path != root:
        path = path.parent
        sync_directory(path)


def open_object_store(location: str, environ: Mapping[str, str]) -> ObjectStore:
    """What a setting names: a directory, made for its owner only, or `s3://BUCKET/PREFIX`.

    Raises StartRefused. Nothing is asked of a bucket yet: a gateway also starts while that cannot be reached.
    """
    if location.startswith(S3):
        return _bucket(location, environ)
    if "://" in location:
        hint = "set it to a directory, or to `s3://BUCKET/PREFIX`"
        raise StartRefused("`artifacts` names a kind of store that is not known here", hint=hint)
    directory = Path(location).expanduser().absolute()
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        return ObjectStore(LocalStore(directory, automatic_cleanup=True), directory=directory)
    except (BaseError, OSError, ValueError) as exc:
        raise StartRefused(f"cannot keep artifacts in `{directory}`: {exc}") from exc


def _bucket(location: str, environ: Mapping[str, str]) -> ObjectStore:
    bucket, _, prefix = location.removeprefix(S3).partition("/")
    if not _BUCKET.fullmatch(bucket):
        raise StartRefused("`artifacts` names no bucket", hint="set it to `s3://BUCKET/PREFIX`")
    config = {name.lower(): environ[name] for name in sorted(_VARIABLES & environ.keys())}
    endpoint = environ.get("AWS_ENDPOINT_URL") or environ.get("AWS_ENDPOINT", "")
    # In clear only where the operator wrote so. Signatures show no key, and nodes check the hash.
    client = {**_CLIENT, "allow_http": endpoint.startswith("http://")}
    try:
        store = S3Store(
            bucket,
            prefix=prefix.strip("/") or None,
            config=config,  # type: ignore[arg-type]
            client_options=client,  # type: ignore[arg-type]
            retry_config=_RETRIES,  # type: ignore[arg-type]
        )
    except (BaseError, ValueError) as exc:
        # Not the library's words: they may quote a variable.
        hint = "check its name, and the variables `AWS_REGION`, `AWS_ENDPOINT_URL` and the credentials"
        raise StartRefused("the bucket that `artifacts` names cannot be set up", hint=hint) from exc
    return ObjectStore(store)
