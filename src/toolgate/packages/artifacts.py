"""Stores the archives of published packages by version, and the modules of workloads by hash.

A version exists if and only if its `version.json` does. That file is written last and never replaced: readers
never see half of a version, and one of two concurrent puts wins completely. The archive's hash names archive
and manifest, so they never mix. A module is stored under the hash of its content: it never changes, and is
never stored twice.
"""

import asyncio
import logging
import re
from collections.abc import AsyncGenerator, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import msgspec

from toolgate.errors import BodyTooLarge, Conflict, InvalidRecord, NotFound, StorageFailed
from toolgate.model.names import parse_server_id, parse_sha256, parse_version
from toolgate.model.tasks import MAX_MODULE_BYTES
from toolgate.packages.manifest import MAX_MANIFEST_BYTES
from toolgate.packages.objects import ObjectInfo, ObjectStore

MAX_VERSIONS: Final = 500  # of one package: every put lists its objects, three per version
MAX_MODULES: Final = 1_000  # one page of an S3 listing: `put` and `get` list them all
_MAX_KNOWN: Final = 4_096  # versions in memory; beyond it, all are read again

_PACKAGES: Final = "packages"
_MODULES: Final = "modules"
_RECORD: Final = "version.json"
_MAX_RECORD_BYTES: Final = 4_096  # a record takes some 120
_AT_ONCE: Final = 16  # concurrent reads of a listing: enough to hide a bucket's latency
_MODULE: Final = re.compile(rf"{_MODULES}/([0-9a-f]{{64}})\.wasm")

_log: Final = logging.getLogger(__name__)


class PackageVersion(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One stored version of a package. `version.json` leaves out its names, which are in its path."""

    package_id: str = ""
    version: str = ""
    sha256: str
    size: int
    at_ms: int
    """The time when it was published."""


@dataclass(eq=False)
class ArtifactStore:
    """All published versions. The registry has which ones are installed."""

    objects: ObjectStore
    clock_ms: Callable[[], int]
    max_versions: int = MAX_VERSIONS
    _known: dict[tuple[str, str], PackageVersion] = field(default_factory=dict, init=False)
    """Versions by the name and tag of their record, so that each is read once."""

    async def put(
        self, package_id: str, version: str, archive: Path, *, manifest: bytes, sha256: str
    ) -> None:
        """Store a version. Storing it again succeeds; raises Conflict if it exists with other content."""
        directory = _directory(package_id, version)
        listed = await self.objects.list(f"{_PACKAGES}/{package_id}")
        versions = {one.name.split("/")[2] for one in listed}
        if version not in versions and len(versions) >= self.max_versions:
            message = f"package `{package_id}` has reached its limit of {self.max_versions} versions"
            hint = f"delete versions that are not installed: `toolgate packages delete {package_id} VERSION`"
            raise Conflict(message, hint=hint)
        if not await self._is_there(directory, sha256):
            archive_name, manifest_name = _files(directory, sha256)
            await self.objects.put(archive_name, archive)
            await self.objects.put(manifest_name, manifest)
            size = (await asyncio.to_thread(archive.stat)).st_size
            record = PackageVersion(sha256=sha256, size=size, at_ms=self.clock_ms())
            await self.objects.create(f"{directory}/{_RECORD}", msgspec.json.encode(record))
        await self._remove_leftovers(directory, sha256)

    async def versions(self, package_id: str | None = None) -> list[PackageVersion]:
        """All versions, or those of one package; by package, newest first."""
        under = _PACKAGES if package_id is None else f"{_PACKAGES}/{parse_server_id(package_id)}"
        found = [one for one in await self.objects.list(under) if _is_record(one.name)]
        if len(self._known) > _MAX_KNOWN:
            self._known.clear()
        slots = asyncio.Semaphore(_AT_ONCE)

        async def read(one: ObjectInfo) -> PackageVersion | None:
            """The version, unless it was removed meanwhile. A damaged one is left out."""
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
            hint = f"run `toolgate packages get {package_id}` for its versions"
            raise NotFound(f"there is no version `{version}` of package `{package_id}`", hint=hint)
        return record

    async def manifest(self, package_id: str, version: str) -> bytes:
        """The published manifest. Raises NotFound."""
        stored = await self.get(package_id, version)
        _, name = _files(_directory(package_id, version), stored.sha256)
        try:
            return await self.objects.get(name, max_bytes=MAX_MANIFEST_BYTES)
        except NotFound as exc:
            raise _damaged_version(stored) from exc

    async def read(self, package_id: str, version: str) -> AsyncGenerator[bytes, None]:
        """The archive, in pieces. Raises NotFound."""
        stored = await self.get(package_id, version)
        name, _ = _files(_directory(package_id, version), stored.sha256)
        try:
            async for piece in self.objects.read(name):
                yield piece
        except NotFound as exc:
            raise _damaged_version(stored) from exc

    async def remove(self, package_id: str, version: str) -> None:
        """Remove one version. Raises NotFound."""
        await self.get(package_id, version)
        names = [one.name for one in await self.objects.list(_directory(package_id, version))]
        # `version.json` first: objects that a crash leaves behind then belong to no version.
        await self.objects.delete(sorted(names, key=lambda name: not name.endswith(f"/{_RECORD}")))

    async def _is_there(self, directory: str, sha256: str) -> bool:
        """Whether the version is stored completely. Raises Conflict."""
        record = await self._read_record(directory)
        if record is None:
            return False
        _check_same(record, sha256)
        archive, manifest = _files(directory, sha256)
        has_manifest = await self.objects.size(manifest) is not None
        return has_manifest and await self.objects.size(archive) == record.size

    async def _remove_leftovers(self, directory: str, sha256: str) -> None:
        """Remove objects of other puts. Raises Conflict if another put with other content was first."""
        record = await self._read_record(directory)
        if record is None:
            raise StorageFailed("the version was deleted while it was stored", hint="publish it again")
        kept = {f"{directory}/{_RECORD}", *_files(directory, record.sha256)}
        found = [one.name for one in await self.objects.list(directory)]
        await self.objects.delete([name for name in found if name not in kept])
        _check_same(record, sha256)

    async def _read_record(self, directory: str) -> PackageVersion | None:
        try:
            raw = await self.objects.get(f"{directory}/{_RECORD}", max_bytes=_MAX_RECORD_BYTES)
        except NotFound:
            return None
        try:
            record = msgspec.json.decode(raw, type=PackageVersion)
            parse_sha256(record.sha256)
        except (msgspec.MsgspecError, UnicodeDecodeError, InvalidRecord) as exc:
            raise StorageFailed("the artifact store has a damaged `version.json`") from exc
        _, package_id, version = directory.split("/")
        return msgspec.structs.replace(record, package_id=package_id, version=version)


def _is_record(name: str) -> bool:
    """Whether the object is the record of a version. Other programs' objects are ignored."""
    segments = name.split("/")
    if len(segments) != 4 or segments[3] != _RECORD:
        return False
    try:
        return _directory(segments[1], segments[2]) == "/".join(segments[:3])
    except InvalidRecord:
        return False


def _directory(package_id: str, version: str) -> str:
    """The path of a version. Raises InvalidRecord, so neither argument can lead elsewhere."""
    return f"{_PACKAGES}/{parse_server_id(package_id)}/{parse_version(version)}"


def _files(directory: str, sha256: str) -> tuple[str, str]:
    """The paths of a version's archive and manifest."""
    name = f"{directory}/{parse_sha256(sha256)}"
    return f"{name}.tar.gz", f"{name}.json"


def _check_same(record: PackageVersion, sha256: str) -> None:
    if record.sha256 != sha256:
        message = f"version `{record.version}` of package `{record.package_id}` exists with other content"
        raise Conflict(message, hint="publish a new version: a published version never changes")


def _damaged_version(record: PackageVersion) -> StorageFailed:
    message = f"version `{record.version}` of package `{record.package_id}` is damaged in the artifact store"
    return StorageFailed(message, hint="publish it again")


class StoredModule(msgspec.Struct, frozen=True, kw_only=True):
    """One stored module."""

    sha256: str
    size: int
    at_ms: int
    """When it was uploaded."""


@dataclass(eq=False)
class ModuleStore:
    """All uploaded modules. The registry has which tasks run them."""

    objects: ObjectStore
    max_modules: int = MAX_MODULES

    async def put(self, content: Path, *, sha256: str) -> bool:
        """Store a module, whose hash the caller has checked. Returns whether it is new."""
        size = (await asyncio.to_thread(content.stat)).st_size
        check_module_size(size)
        name = _module(sha256)
        if await self.objects.size(name) == size:
            return False
        if len(await self.list()) >= self.max_modules:
            hint = "delete modules that no task uses; `toolgate modules list` shows them"
            raise Conflict(f"the gateway has reached its limit of {self.max_modules} modules", hint=hint)
        await self.objects.put(name, content)
        return True

    async def has(self, sha256: str) -> bool:
        """Whether the module is stored."""
        return await self.objects.size(_module(sha256)) is not None

    async def get(self, sha256: str) -> StoredModule:
        """One module. Raises NotFound."""
        for one in await self.list():
            if one.sha256 == parse_sha256(sha256):
                return one
        raise _module_not_found(sha256)

    async def list(self) -> list[StoredModule]:
        """All modules, newest first."""
        found = [
            StoredModule(sha256=match[1], size=one.size, at_ms=one.modified_ms)
            for one in await self.objects.list(_MODULES)
            if (match := _MODULE.fullmatch(one.name))
        ]
        return sorted(found, key=lambda one: (-one.at_ms, one.sha256))

    async def read(self, sha256: str) -> AsyncGenerator[bytes, None]:
        """The module's content, in pieces. The reader bounds the size and checks the hash. Raises
        NotFound."""
        try:
            async for piece in self.objects.read(_module(sha256)):
                yield piece
        except NotFound as exc:
            raise _module_not_found(sha256) from exc

    async def remove(self, sha256: str) -> None:
        """Remove the module. Raises NotFound."""
        if not await self.has(sha256):
            raise _module_not_found(sha256)
        await self.objects.delete([_module(sha256)])


def check_module_size(size: int) -> None:
    """Raises BodyTooLarge for a module beyond the limit."""
    if size > MAX_MODULE_BYTES:
        message = f"the module has {size} bytes, and the limit is {MAX_MODULE_BYTES}"
        raise BodyTooLarge(message, hint="build it for release, and strip names and debug information")


def _module(sha256: str) -> str:
    """The path of a module. Raises InvalidRecord, so the argument cannot lead elsewhere."""
    return f"{_MODULES}/{parse_sha256(sha256)}.wasm"


def _module_not_found(sha256: str) -> NotFound:
    hint = "upload it with `toolgate modules upload FILE`; `toolgate modules list` shows all"
    return NotFound(f"there is no module `{sha256}`", hint=hint)
