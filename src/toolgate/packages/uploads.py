"""Uploads of archives and modules in parts, each small enough for one request, to any replica.

Parts are stored in the artifact store under their principal, so no principal can change or finish another's
upload. Limits apply to the size and number of parts, to uploads, to bytes of one principal and of all, and to
the age of an upload.
"""

import asyncio
import hashlib
import os
import re
import secrets
import tempfile
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import KW_ONLY, dataclass, field
from pathlib import Path
from typing import Final

from toolgate.errors import BodyTooLarge, InvalidRequest, SessionLimit
from toolgate.model.names import parse_sha256
from toolgate.model.packages import MAX_PART_BYTES
from toolgate.packages.entries import MAX_ARCHIVE_BYTES
from toolgate.packages.objects import ObjectInfo, ObjectStore

ROOT: Final = "uploads"
MAX_PARTS: Final = 64  # four times as many as the largest archive needs: clients may send smaller parts
MAX_AGE_MS: Final = 3600 * 1000  # an hour to resume after an interruption; the store keeps nothing longer

_FULL: Final = "finish or discard some; they expire after an hour"
_PART: Final = re.compile(rf"({ROOT}/[0-9a-f]{{64}}/[0-9a-f]{{64}})/([1-9][0-9]?)")


@dataclass(frozen=True, slots=True, kw_only=True)
class UploadLimits:
    """Limits of unfinished uploads, so that no caller can fill the disk or the bucket."""

    max_uploads: int = 20
    """Open uploads of one principal, for pipelines that publish several packages concurrently."""
    max_archive_bytes: int = MAX_ARCHIVE_BYTES
    max_own_bytes: int = 4 * MAX_ARCHIVE_BYTES
    """Bytes of one principal: half of the total, so that no principal blocks the others."""
    max_staged_bytes: int = 8 * MAX_ARCHIVE_BYTES
    """Bytes of all principals. Each of several replicas may exceed it by the part that it writes."""
    max_assembled: int = 8
    """Files from `finish` that its callers have not removed: as many as fit into `max_staged_bytes`."""


StagedUploads = Mapping[str, Mapping[int, ObjectInfo]]
"""The parts of all uploads by number, by the upload's directory."""


@dataclass(eq=False)
class UploadStore:
    """Stores parts, and assembles files from them."""

    objects: ObjectStore
    directory: Path
    """No other process uses it."""
    _: KW_ONLY
    clock_ms: Callable[[], int]
    limits: UploadLimits = UploadLimits()
    _mark: str = field(default_factory=lambda: f"{secrets.token_hex(8)}-", init=False)
    """The prefix of this process's files: other files are leftovers of an earlier process."""
    _turn: asyncio.Lock = field(default_factory=asyncio.Lock, init=False)
    """Held from the check of the bounds until the part is written."""

    async def put_part(self, principal_id: str, sha256: str, number: int, body: bytes) -> None:
        """Take one part of an archive; parts count from 1, and may be sent again."""
        upload = _directory(principal_id, sha256)
        if not 1 <= number <= MAX_PARTS:
            raise InvalidRequest(f"an upload has parts 1 to {MAX_PARTS}", hint="send larger parts")
        if not body:
            raise InvalidRequest("the part is empty", hint="send the part's bytes as the body")
        if len(body) > MAX_PART_BYTES:
            raise BodyTooLarge(f"the part is larger than {MAX_PART_BYTES} bytes")
        async with self._turn:
            staged = await self._sweep_staged()
            self._check_room(staged, upload, number=number, size=len(body))
            await self.objects.put(f"{upload}/{number}", body)

    async def parts(self, principal_id: str, sha256: str) -> list[int]:
        """The numbers of the parts that have arrived."""
        return sorted(await self._parts(_directory(principal_id, sha256)))

    async def finish(self, principal_id: str, sha256: str, *, parts: int) -> Path:
        """Assemble the parts into one file, which the caller removes, and remove the parts.

        Raises InvalidRequest if parts are missing or do not have the hash. With a wrong hash the parts are
        removed, too, because it is unknown which one is wrong.
        """
        upload = _directory(principal_id, sha256)
        there = await self._parts(upload)
        missing = [number for number in range(1, min(parts, MAX_PARTS) + 1) if number not in there]
        if missing or len(there) != parts:
            raise InvalidRequest(
                f"the upload has {len(there)} parts, but `parts` is {parts}",
                hint="send parts 1 to N, get the upload to see its parts, then finish it with `parts` = N",
                data={"missing": missing},
            )
        path = await asyncio.to_thread(self._new_file)
        try:
            found = await self._assemble(upload, parts, path)
            await self.discard(principal_id, sha256)
        except BaseException:
            path.unlink(missing_ok=True)
            raise
        if found == sha256:
            return path
        path.unlink(missing_ok=True)
        hint = "send all parts again: one arrived changed or in the wrong order"
        raise InvalidRequest("the parts together do not have the hash in the URL", hint=hint)

    async def discard(self, principal_id: str, sha256: str) -> None:
        """Remove the parts of an upload."""
        parts = await self._parts(_directory(principal_id, sha256))
        await self.objects.delete([part.name for part in parts.values()])

    async def sweep(self) -> None:
        """Remove abandoned uploads from the store and from this process's directory."""
        async with self._turn:
            await self._sweep_staged()
        await asyncio.to_thread(self._sweep_files)

    async def _parts(self, upload: str) -> Mapping[int, ObjectInfo]:
        return _by_upload(await self.objects.list(upload)).get(upload, {})

    async def _sweep_staged(self) -> StagedUploads:
        """All uploads. Removes those that are abandoned for an hour."""
        before_ms = self.clock_ms() - MAX_AGE_MS
        kept: dict[str, Mapping[int, ObjectInfo]] = {}
        for upload, parts in _by_upload(await self.objects.list(ROOT)).items():
            if max(part.modified_ms for part in parts.values()) < before_ms:
                await self.objects.delete([part.name for part in parts.values()])
            else:
                kept[upload] = parts
        return kept

    async def _assemble(self, upload: str, parts: int, path: Path) -> str:
        """Write all parts into the file. Returns its hash."""
        size = 0
        with path.open("w+b") as file:
            for number in range(1, parts + 1):
                piece = await self.objects.get(f"{upload}/{number}", max_bytes=MAX_PART_BYTES)
                size += len(piece)
                self._check_size(size)
                await asyncio.to_thread(file.write, piece)
            file.seek(0)
            return (await asyncio.to_thread(hashlib.file_digest, file, "sha256")).hexdigest()

    def _new_file(self) -> Path:
        self._sweep_files()
        self.directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        if sum(1 for _ in self.directory.glob(f"{self._mark}*")) >= self.limits.max_assembled:
            problem = f"the gateway has reached its limit of {self.limits.max_assembled} archives in checks"
            raise SessionLimit(problem, hint="retry in a moment")
        descriptor, name = tempfile.mkstemp(prefix=self._mark, dir=self.directory)
        os.close(descriptor)
        return Path(name)

    def _sweep_files(self) -> None:
        if not self.directory.is_dir():
            return
        before_s = (self.clock_ms() - MAX_AGE_MS) / 1000
        for path in self.directory.iterdir():
            name = path.name
            with suppress(FileNotFoundError):  # its user may remove it at the same time
                if not name.startswith(self._mark) or path.stat().st_mtime < before_s:
                    path.unlink()

    def _check_room(self, staged: StagedUploads, upload: str, *, number: int, size: int) -> None:
        """Raise if another part exceeds a limit of the upload, of its principal or of all."""
        limits = self.limits
        others = [
            (one, part.size)
            for one, parts in staged.items()
            for at, part in parts.items()
            if (one, at) != (upload, number)
        ]
        self._check_size(size + sum(kept for one, kept in others if one == upload))
        owner = upload.rpartition("/")[0] + "/"
        own = {one for one in staged if one.startswith(owner)}
        if upload not in own and len(own) >= limits.max_uploads:
            raise SessionLimit(f"you have reached the limit of {limits.max_uploads} uploads", hint=_FULL)
        own_bytes = size + sum(kept for one, kept in others if one in own)
        all_bytes = size + sum(kept for _, kept in others)
        if own_bytes > limits.max_own_bytes or all_bytes > limits.max_staged_bytes:
            raise SessionLimit("the gateway has reached its limit of unfinished uploads", hint=_FULL)

    def _check_size(self, size: int) -> None:
        if size > self.limits.max_archive_bytes:
            raise BodyTooLarge(f"the archive is larger than {self.limits.max_archive_bytes} bytes")


def _directory(principal_id: str, sha256: str) -> str:
    """The path of an upload: a hash of its principal, and the hash of its content. Raises InvalidRecord."""
    return f"{ROOT}/{hashlib.sha256(principal_id.encode()).hexdigest()}/{parse_sha256(sha256)}"


def _by_upload(objects: Iterable[ObjectInfo]) -> StagedUploads:
    found: dict[str, dict[int, ObjectInfo]] = defaultdict(dict)
    for one in objects:
        if match := _PART.fullmatch(one.name):
            found[match[1]][int(match[2])] = one
    return found
