"""The archives of published packages, by version; and the modules of workloads, by hash.

A version is there if and only if its `version.json` is, which is written last and never replaced: half of a
put is never seen, and of two different puts at once one wins whole. Archive and manifest are named by the
archive's hash, so they never mix. Each module is kept under the hash of its content: none ever changes, none
is kept twice.
"""

import asyncio
import logging
import re
from collections.abc import AsyncGenerator, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import msgspec

from toolgate.errors import BodyTooLarge, Conflict, InvalidRecord, NotFound, StorageFailed
from toolgate.model.names import parse_server_id, parse_sha256, parse_version
from toolgate.model.tasks import MAX_MODULE_BYTES
from toolgate.packages.manifest import MAX_MANIFEST_BYTES
from toolgate.packages.objects import ObjectInfo, ObjectStore

MAX_VERSIONS: Final = 500  # of one package: every put lists its objects, three a version
MAX_MODULES: Final = 1_000  # one page of an S3 listing: `put` and `get` list them all
_MAX_KNOWN: Final = 4_096  # versions in memory; past it, all are read again

_PACKAGES: Final = "packages"
_MODULES: Final = "modules"
_RECORD: Final = "version.json"
_MAX_RECORD_BYTES: Final = 4_096  # a record takes some 120
_AT_ONCE: Final = 16  # reads of a listing: enough to hide a bucket's latency
_MODULE: Final = re.compile(rf"{_MODULES}/([0-9a-f]{{64}})\.wasm")

_log: Final = logging.getLogger(__name__)


class PackageVersion(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One version of a package, as it is kept. `version.json` lacks its names, which are its place."""

    package_id: str = ""
    version: str = ""
    sha256: str
    size: int
    at_ms: int
    """When it was published."""


class ArtifactStore:
    """Every published version. The registry says which ones are installed."""

    def __init__(
        self, objects: ObjectStore, *, clock_ms: Callable[[], int], max_versions: int = MAX_VERSIONS
    ) -> None:
        self._objects = objects
        self._clock_ms = clock_ms
        self._max_versions = max_versions
        self._known: dict[tuple[str, str], PackageVersion] = {}
        """Versions by name and tag of their record: each is read once."""

    async def put(
        self, package_id: str, version: str, archive: Path, *, manifest: bytes, sha256: str
    ) -> None:
        """Keep a version. The same again is fine; raises Conflict if it exists with other content."""
        directory = _directory(package_id, version)
        listed = await self._objects.list(f"{_PACKAGES}/{package_id}")
        versions = {one.name.split("/")[2] for one in listed}
        if version not in versions and len(versions) >= self._max_versions:
            message = f"`{package_id}` has {self._max_versions} versions, the most that a package may have"
            raise Conflict(message, hint="remove versions that are no longer installed")
        if not await self._is_there(directory, sha256):
            archive_name, manifest_name = _files(directory, sha256)
            await self._objects.put(archive_name, archive)
            await self._objects.put(manifest_name, manifest)
            size = (await asyncio.to_thread(archive.stat)).st_size
            record = PackageVersion(sha256=sha256, size=size, at_ms=self._clock_ms())
            await self._objects.create(f"{directory}/{_RECORD}", msgspec.json.encode(record))
        await self._remove_leftovers(directory, sha256)

    async def versions(self, package_id: str | None = None) -> list[PackageVersion]:
        """All versions, or those of one package; by package, the newest first."""
        under = _PACKAGES if package_id is None else f"{_PACKAGES}/{parse_server_id(package_id)}"
        found = [one for one in await self._objects.list(under) if _is_record(one.name)]
        if len(self._known) > _MAX_KNOWN:
            self._known.clear()
        slots = asyncio.Semaphore(_AT_ONCE)

        async def read(one: ObjectInfo) -> PackageVersion | None:
            """The version, unless it was removed meanwhile. A damaged one hides only itself."""
            async with slots:
                known = self._known.get((one.name, one.tag))
                try:
                    known = known or await self._read_record(one.name.removesuffix(f"/{_RECORD}"))
                except StorageFailed as exc:
                    _log.warning("ignoring `%s`: %s", one.name, exc)
            if known is not None:
                self._known[one.name, one.tag] = known
            return known

        versions = filter(None, await asyncio.gather(*map(read, found)))
        return sorted(versions, key=lambda one: (one.package_id, -one.at_ms, one.version))

    async def get(self, package_id: str, version: str) -> PackageVersion:
        """One version. Raises NotFound."""
        record = await self._read_record(_directory(package_id, version))
        if record is None:
            hint = f"`toolgate packages get {package_id}` lists those there are"
            raise NotFound(f"there is no version `{version}` of package `{package_id}`", hint=hint)
        return record

    async def manifest(self, package_id: str, version: str) -> bytes:
        """As it was published. Raises NotFound."""
        stored = await self.get(package_id, version)
        _, name = _files(_directory(package_id, version), stored.sha256)
        try:
            return await self._objects.get(name, max_bytes=MAX_MANIFEST_BYTES)
        except NotFound as exc:
            raise _damaged_version(stored) from exc

    async def read(self, package_id: str, version: str) -> AsyncGenerator[bytes, None]:
        """The archive, in pieces. Raises NotFound."""
        stored = await self.get(package_id, version)
        name, _ = _files(_directory(package_id, version), stored.sha256)
        try:
            async for piece in self._objects.read(name):
                yield piece
        except NotFound as exc:
            raise _damaged_version(stored) from exc

    async def remove(self, package_id: str, version: str) -> None:
        """Forget a version, and nothing else. Raises NotFound."""
        await self.get(package_id, version)
        names = [one.name for one in await self._objects.list(_directory(package_id, version))]
        # `version.json` goes first: what a crash leaves then belongs to no version.
        await self._objects.delete(sorted(names, key=lambda name: not name.endswith(f"/{_RECORD}")))

    async def _is_there(self, directory: str, sha256: str) -> bool:
        """Whether the version is there, whole. Raises Conflict."""
        record = await self._read_record(directory)
        if record is None:
            return False
        _check_same(record, sha256)
        archive, manifest = _files(directory, sha256)
        has_manifest = await self._objects.size(manifest) is not None
        return has_manifest and await self._objects.size(archive) == record.size

    async def _remove_leftovers(self, directory: str, sha256: str) -> None:
        """Remove what other puts left. Raises Conflict if another put was first, with other content."""
        record = await self._read_record(directory)
        if record is None:
            raise StorageFailed("the version was removed while it was written", hint="publish it again")
        kept = {f"{directory}/{_RECORD}", *_files(directory, record.sha256)}
        found = [one.name for one in await self._objects.list(directory)]
        await self._objects.delete([name for name in found if name not in kept])
        _check_same(record, sha256)

    async def _read_record(self, directory: str) -> PackageVersion | None:
        try:
            raw = await self._objects.get(f"{directory}/{_RECORD}", max_bytes=_MAX_RECORD_BYTES)
        except NotFound:
            return None
        try:
            record = msgspec.json.decode(raw, type=PackageVersion)
            parse_sha256(record.sha256)
        except (msgspec.MsgspecError, UnicodeDecodeError, InvalidRecord) as exc:
            raise StorageFailed("the artifact store has a damaged record of a version") from exc
        _, package_id, version = directory.split("/")
        return msgspec.structs.replace(record, package_id=package_id, version=version)


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
    return f"{_PACKAGES}/{parse_server_id(package_id)}/{parse_version(version)}"


def _files(directory: str, sha256: str) -> tuple[str, str]:
    """Where the archive and the manifest of a version are."""
    name = f"{directory}/{parse_sha256(sha256)}"
    return f"{name}.tar.gz", f"{name}.json"


def _check_same(record: PackageVersion, sha256: str) -> None:
    if record.sha256 != sha256:
        message = f"version `{record.version}` of `{record.package_id}` was published with other content"
        raise Conflict(message, hint="raise the version: a published version never changes")


def _damaged_version(record: PackageVersion) -> StorageFailed:
    message = f"version `{record.version}` of `{record.package_id}` is not whole in the artifact store"
    return StorageFailed(message, hint="publish it again")


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredModule:
    """One module, as it is kept."""

    sha256: str
    size: int
    at_ms: int
    """When it was uploaded."""


class ModuleStore:
    """Every uploaded module. The registry says which tasks run it."""

    def __init__(self, objects: ObjectStore, *, max_modules: int = MAX_MODULES) -> None:
        self._objects = objects
        self._max_modules = max_modules

    async def put(self, content: Path, *, sha256: str) -> bool:
        """Keep a module; the caller has checked its hash. Whether it is new."""
        size = (await asyncio.to_thread(content.stat)).st_size
        check_module_size(size)
        name = _module(sha256)
        if await self._objects.size(name) == size:
            return False
        if len(await self.list()) >= self._max_modules:
            hint = "`toolgate modules list` shows those that no task uses: delete some"
            raise Conflict(f"the gateway keeps {self._max_modules} modules, which is the limit", hint=hint)
        await self._objects.put(name, content)
        return True

    async def has(self, sha256: str) -> bool:
        """Whether it is there."""
        return await self._objects.size(_module(sha256)) is not None

    async def get(self, sha256: str) -> StoredModule:
        """One module. Raises NotFound."""
        for one in await self.list():
            if one.sha256 == parse_sha256(sha256):
                return one
        raise _module_not_found(sha256)

    async def list(self) -> list[StoredModule]:
        """All of them, the newest first."""
        found = [
            StoredModule(sha256=match[1], size=one.size, at_ms=one.modified_ms)
            for one in await self._objects.list(_MODULES)
            if (match := _MODULE.fullmatch(one.name))
        ]
        return sorted(found, key=lambda one: (-one.at_ms, one.sha256))

    async def read(self, sha256: str) -> AsyncGenerator[bytes, None]:
        """Its content, in pieces. Raises NotFound. The reader bounds the size and checks the hash."""
        try:
            async for piece in self._objects.read(_module(sha256)):
                yield piece
        except NotFound as exc:
            raise _module_not_found(sha256) from exc

    async def remove(self, sha256: str) -> None:
        """Forget it. Raises NotFound."""
        if not await self.has(sha256):
            raise _module_not_found(sha256)
        await self._objects.delete([_module(sha256)])


def check_module_size(size: int) -> None:
    """Raises BodyTooLarge."""
    if size > MAX_MODULE_BYTES:
        message = f"a module is at most {MAX_MODULE_BYTES} bytes, and this one has {size}"
        raise BodyTooLarge(message, hint="build it for release, and strip it of names and debug information")


def _module(sha256: str) -> str:
    """Where a module is. Raises InvalidRecord: nothing in it can lead elsewhere."""
    return f"{_MODULES}/{parse_sha256(sha256)}.wasm"


def _module_not_found(sha256: str) -> NotFound:
    hint = "`toolgate modules upload FILE` uploads one; `list` shows them"
    return NotFound(f"there is no module `{sha256}`", hint=hint)
