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

from toolgate.disk import sync_directory
from toolgate.errors import NotFound, StartRefused, StorageFailed, StorageUnavailable

S3: Final = "s3://"
REQUEST_TIMEOUT_S: Final = 15.0  # for a listing, a deletion, a small object; with the library's three retries
TRANSFER_TIMEOUT_S: Final = 120.0  # for an archive, either way: 64 MiB at 4.5 Mbit/s
CHUNK_BYTES: Final = 1024 * 1024  # bytes of a large object in memory at once
MAX_LISTED: Final = 50_000
"""The most objects under one name: thirty packages with all their versions."""

MAX_LOGGED: Final = 300  # characters of the library's message, which quotes whole responses of the store

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
_UNAVAILABLE: Final = "retry in a moment; if it fails again, check the store in the setting `artifacts`"
_FAILED: Final = "check space and permissions of the store that `artifacts` names; the log has details"

_log: Final = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectInfo:
    """One object of a listing."""

    name: str
    size: int
    modified_ms: int
    tag: str
    """Changes if the content changes."""


class ObjectStore:
    """Stores objects in a directory or a bucket. Names are parsed paths, never a caller's text."""

    def __init__(self, store: LocalStore | S3Store, *, directory: Path | None = None) -> None:
        self._store = store
        self._directory = directory
        """The directory, if the store is one: then written files are synced, which the library does not
        do."""

    async def put(self, name: str, content: bytes | Path) -> None:
        """Write or replace an object atomically."""
        async with self._translate_errors(TRANSFER_TIMEOUT_S):
            await self._store.put_async(name, content)
            await self._sync(name)

    async def create(self, name: str, content: bytes) -> bool:
        """Write an object unless it exists. Returns whether it did; of concurrent calls, one succeeds."""
        try:
            async with self._translate_errors(REQUEST_TIMEOUT_S):
                await self._store.put_async(name, content, mode="create")
                await self._sync(name)
        except AlreadyExistsError:
            return False
        return True

    async def get(self, name: str, *, max_bytes: int) -> bytes:
        """The content of a small object. Raises NotFound."""
        async with self._translate_errors(REQUEST_TIMEOUT_S):
            found = await self._store.get_async(name)
            if found.meta["size"] > max_bytes:
                raise StorageFailed(
                    f"the artifact store has a foreign object of more than {max_bytes} bytes", hint=_FAILED
                )
            return bytes(await found.bytes_async())

    async def read(self, name: str) -> AsyncGenerator[bytes, None]:
        """The content of a large object, in pieces. Raises NotFound."""
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
        """The size of an object in bytes. None: it does not exist."""
        try:
            async with self._translate_errors(REQUEST_TIMEOUT_S):
                return (await self._store.head_async(name))["size"]
        except NotFound:
            return None

    async def list(self, under: str) -> list[ObjectInfo]:
        """All objects under a name of whole segments: `a/b` does not include `a/bc`."""
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
                    raise StorageFailed(
                        f"the artifact store has more than {MAX_LISTED} objects under one name", hint=_FAILED
                    )
        return found

    async def delete(self, names: Sequence[str]) -> None:
        """Delete objects one after another, in this order. Missing ones are ignored."""
        for name in names:
            try:
                async with self._translate_errors(REQUEST_TIMEOUT_S):
                    await self._store.delete_async(name)
            except NotFound:
                continue

    @asynccontextmanager
    async def _translate_errors(self, timeout_s: float) -> AsyncIterator[None]:
        """Give the block's requests a timeout, and translate the library's errors."""
        try:
            async with asyncio.timeout(timeout_s):
                yield
        except FileNotFoundError as exc:
            raise NotFound("the artifact store does not have this object") from exc
        except TimeoutError as exc:
            message = f"the artifact store did not respond within {timeout_s:g} s"
            raise StorageUnavailable(message, hint=_UNAVAILABLE) from exc
        except AlreadyExistsError:
            raise
        except (BaseError, OSError) as exc:
            _log.warning("the artifact store: %s", str(exc).partition("\n")[0][:MAX_LOGGED])
            if isinstance(exc, PermissionDeniedError | UnauthenticatedError):
                raise StorageFailed("the artifact store denies access to this gateway", hint=_FAILED) from exc
            if self._directory is not None:
                raise StorageFailed("cannot read or write the artifact store", hint=_FAILED) from exc
            raise StorageUnavailable("the artifact store returned an error", hint=_UNAVAILABLE) from exc

    async def _sync(self, name: str) -> None:
        if self._directory is not None:
            await asyncio.to_thread(_sync_file, self._directory, name)


def _sync_file(root: Path, name: str) -> None:
    """Make a file and its parent directories durable."""
    path = root / name
    with path.open("rb") as file:
        os.fsync(file.fileno())
    while path != root:
        path = path.parent
        sync_directory(path)


def open_object_store(location: str, environ: Mapping[str, str]) -> ObjectStore:
    """Open the store of the setting `artifacts`: a directory for its owner only, or `s3://BUCKET/PREFIX`.

    Raises StartRefused. Sends no request to a bucket: a gateway also starts while the bucket is unreachable.
    """
    if location.startswith(S3):
        return _bucket(location, environ)
    if "://" in location:
        hint = "set it to a directory, or to `s3://BUCKET/PREFIX`"
        kind = location.partition("://")[0]
        raise StartRefused(f"`artifacts`: unsupported kind of store `{kind}`", hint=hint)
    directory = Path(location).expanduser().absolute()
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        return ObjectStore(LocalStore(directory, automatic_cleanup=True), directory=directory)
    except (BaseError, OSError, ValueError) as exc:
        raise StartRefused(f"cannot use the directory `{directory}` for artifacts: {exc}") from exc


def _bucket(location: str, environ: Mapping[str, str]) -> ObjectStore:
    bucket, _, prefix = location.removeprefix(S3).partition("/")
    if not _BUCKET.fullmatch(bucket):
        raise StartRefused("`artifacts` has no bucket", hint="set it to `s3://BUCKET/PREFIX`")
    config = {name.lower(): environ[name] for name in sorted(_VARIABLES & environ.keys())}
    endpoint = environ.get("AWS_ENDPOINT_URL") or environ.get("AWS_ENDPOINT", "")
    # Unencrypted only if the operator set `http`. Signatures reveal no key, and nodes check the hash.
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
        # Without the library's message, which may quote a variable.
        hint = "check its name, and the variables `AWS_REGION`, `AWS_ENDPOINT_URL` and the credentials"
        raise StartRefused("cannot use the bucket in the setting `artifacts`", hint=hint) from exc
    return ObjectStore(store)
