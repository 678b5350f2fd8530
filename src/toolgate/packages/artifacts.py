"""The archives of published packages, by version.

A version is there if and only if its `version.json` is, which is written last and never replaced: half of a
put is never seen, and of two different puts at once one wins whole. Archive and manifest are named by the
archive's hash, so they never mix.
"""

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import msgspec

from toolgate.errors import Conflict, InvalidRecord, NotFound, StorageFailed
from toolgate.model.names import parse_server_id, parse_sha256, parse_version
from toolgate.packages.manifest import MAX_MANIFEST_BYTES
from toolgate.packages.objects import ObjectInfo, ObjectStore

ROOT: Final = "packages"
MAX_VERSIONS: Final = 500
"""Of one package."""
MAX_KNOWN: Final = 4_096

_RECORD: Final = "version.json"
_MAX_RECORD_BYTES: Final = 4_096
_AT_ONCE: Final = 16

_log: Final = logging.getLogger(__name__)


class _Record(msgspec.Struct, frozen=True):
    """The content of `version.json`."""

    sha256: str
    size: int
    at_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PackageVersion:
    """One version of a package, as it is kept."""

    package_id: str
    version: str
    sha256: str
    size: int
    at_ms: int
    """When it was published."""


class ArtifactStore:
    """Every published version. The registry says which ones are installed."""

    def __init__(self, objects: ObjectStore, *, clock_ms: Callable[[], int]) -> None:
        self._objects = objects
        self._clock_ms = clock_ms
        self._known: dict[tuple[str, str], _Record] = {}
        """Records by name and tag: each is read once."""

    async def put(
        self, package_id: str, version: str, archive: Path, *, manifest: bytes, sha256: str
    ) -> None:
        """Keep a version. The same again is fine; raises Conflict if it exists with other content."""
        directory = _directory(package_id, version)
        await self._refuse_too_many(package_id, version)
        if not await self._is_there(directory, sha256):
            await self._objects.put(_archive(directory, sha256), archive)
            await self._objects.put(_manifest(directory, sha256), manifest)
            size = (await asyncio.to_thread(archive.stat)).st_size
            record = _Record(sha256=sha256, size=size, at_ms=self._clock_ms())
            await self._objects.create(f"{directory}/{_RECORD}", msgspec.json.encode(record))
        await self._remove_leftovers(directory, sha256)

    async def versions(self, package_id: str | None = None) -> list[PackageVersion]:
        """All versions, or those of one package; by package, the newest first."""
        under = ROOT if package_id is None else f"{ROOT}/{parse_server_id(package_id)}"
        found = [one for one in await self._objects.list(under) if _is_record(one.name)]
        if len(self._known) > MAX_KNOWN:
            self._known.clear()
        slots = asyncio.Semaphore(_AT_ONCE)

        async def read(one: ObjectInfo) -> PackageVersion | None:
            async with slots:
                record = await self._read_cached_record(one)
            return None if record is None else _stored(one.name, record)

        stored = filter(None, await asyncio.gather(*map(read, found)))
        return sorted(stored, key=lambda one: (one.package_id, -one.at_ms, one.version))

    async def get(self, package_id: str, version: str) -> PackageVersion:
        """One version. Raises NotFound."""
        directory = _directory(package_id, version)
        record = await self._record(directory)
        if record is None:
            raise _version_not_found(package_id, version)
        return _stored(f"{directory}/{_RECORD}", record)

    async def manifest(self, package_id: str, version: str) -> bytes:
        """As it was published. Raises NotFound."""
        stored = await self.get(package_id, version)
        name = _manifest(_directory(package_id, version), stored.sha256)
        try:
            return await self._objects.get(name, max_bytes=MAX_MANIFEST_BYTES)
        except NotFound as exc:
            raise _damaged_version(package_id, version) from exc

    async def read(self, package_id: str, version: str) -> AsyncGenerator[bytes, None]:
        """The archive, in pieces. Raises NotFound."""
        stored = await self.get(package_id, version)
        try:
            async for piece in self._objects.read(_archive(_directory(package_id, version), stored.sha256)):
                yield piece
        except NotFound as exc:
            raise _damaged_version(package_id, version) from exc

    async def remove(self, package_id: str, version: str) -> None:
        """Forget a version, and nothing else. Raises NotFound."""
        directory = _directory(package_id, version)
        await self.get(package_id, version)
        names = [one.name for one in await self._objects.list(directory)]
        # `version.json` goes first: what a crash leaves then belongs to no version.
        await self._objects.delete(sorted(names, key=lambda name: not name.endswith(f"/{_RECORD}")))

    async def _refuse_too_many(self, package_id: str, version: str) -> None:
        listed = await self._objects.list(f"{ROOT}/{package_id}")
        versions = {one.name.split("/")[2] for one in listed}
        if version not in versions and len(versions) >= MAX_VERSIONS:
            raise Conflict(
                f"`{package_id}` has {MAX_VERSIONS} versions, the most that a package may have",
                hint="remove versions that are no longer installed",
            )

    async def _is_there(self, directory: str, sha256: str) -> bool:
        """Whether the version is there, whole. Raises Conflict."""
        record = await self._record(directory)
        if record is None:
            return False
        _check_same(directory, record, sha256)
        return (
            await self._objects.size(_archive(directory, sha256)) == record.size
            and await self._objects.size(_manifest(directory, sha256)) is not None
        )

    async def _remove_leftovers(self, directory: str, sha256: str) -> None:
        """Remove what other puts left. Raises Conflict if another put was first, with other content."""
        record = await self._record(directory)
        if record is None:
            raise StorageFailed("the version was removed while it was written", hint="publish it again")
        kept = {f"{directory}/{_RECORD}", *(of(directory, record.sha256) for of in (_archive, _manifest))}
        await self._objects.delete(
            [one.name for one in await self._objects.list(directory) if one.name not in kept]
        )
        _check_same(directory, record, sha256)

    async def _record(self, directory: str) -> _Record | None:
        try:
            raw = await self._objects.get(f"{directory}/{_RECORD}", max_bytes=_MAX_RECORD_BYTES)
        except NotFound:
            return None
        return _parse_record(raw)

    async def _read_cached_record(self, one: ObjectInfo) -> _Record | None:
        """The record, unless it was removed meanwhile. A damaged one hides only itself."""
        known = self._known.get((one.name, one.tag))
        if known is not None:
            return known
        try:
            known = await self._record(one.name.removesuffix(f"/{_RECORD}"))
        except StorageFailed as exc:
            _log.warning("ignoring `%s`: %s", one.name, exc)
            return None
        if known is not None:
            self._known[one.name, one.tag] = known
        return known


def _is_record(name: str) -> bool:
    """Whether the object makes a version. Foreign objects are ignored."""
    segments = name.split("/")
    if len(segments) != 4 or segments[3] != _RECORD:
        return False
    try:
        return _directory(segments[1], segments[2]) == "/".join(segments[:3])
    except InvalidRecord:
        return False


def _directory(package_id: str, version: str) -> str:
    """Where a version is. Raises InvalidRecord: nothing in either can lead elsewhere."""
    return f"{ROOT}/{parse_server_id(package_id)}/{parse_version(version)}"


def _archive(directory: str, sha256: str) -> str:
    return f"{directory}/{parse_sha256(sha256)}.tar.gz"


def _manifest(directory: str, sha256: str) -> str:
    return f"{directory}/{parse_sha256(sha256)}.json"


def _parse_record(raw: bytes) -> _Record:
    try:
        record = msgspec.json.decode(raw, type=_Record)
        parse_sha256(record.sha256)
    except (msgspec.MsgspecError, UnicodeDecodeError, InvalidRecord) as exc:
        raise StorageFailed("the artifact store has a damaged record of a version") from exc
    return record


def _stored(name: str, record: _Record) -> PackageVersion:
    _, package_id, version, _ = name.split("/")
    return PackageVersion(
        package_id=package_id, version=version, sha256=record.sha256, size=record.size, at_ms=record.at_ms
    )


def _check_same(directory: str, record: _Record, sha256: str) -> None:
    if record.sha256 != sha256:
        _, package_id, version = directory.split("/")
        raise Conflict(
            f"version `{version}` of `{package_id}` was published with other content",
            hint="raise the version: a published version never changes",
        )


def _version_not_found(package_id: str, version: str) -> NotFound:
    return NotFound(
        f"there is no version `{version}` of package `{package_id}`",
        hint=f"`toolgate packages show {package_id}` lists those there are",
    )


def _damaged_version(package_id: str, version: str) -> StorageFailed:
    return StorageFailed(
        f"version `{version}` of `{package_id}` is not whole in the artifact store", hint="publish it again"
    )
