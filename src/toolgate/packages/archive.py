"""The archives of packages: packed, inspected, taken over from other formats, unpacked.

An archive is hostile until proven otherwise. Sizes are counted while reading, never believed. Nothing is
written before its name was checked, and nothing outside the given directory; archives inside are files like
others. All of it blocks: callers give it a thread.
"""

import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from toolgate.catalog.checks import describe_name
from toolgate.packages.archive_readers import read_magic, read_members
from toolgate.packages.entries import (
    CHUNK_BYTES,
    MAX_ARCHIVE_BYTES,
    ArchiveEntry,
    ArchiveLedger,
    ArchiveMember,
    archive_too_large,
    invalid_archive,
    parse_path,
)
from toolgate.packages.foreign_manifests import convert_bundle, is_bundle_manifest
from toolgate.packages.manifest import MANIFEST_NAME, MAX_MANIFEST_BYTES
from toolgate.packages.packing import PackedArchive, TarWriter, list_package_files


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchiveSummary:
    """What is in an archive that was read to its end."""

    manifest: bytes
    """In our form, whatever form it has in the archive."""
    files: int
    unpacked_bytes: int


def pack_directory(directory: Path, manifest: bytes, target: BinaryIO) -> PackedArchive:
    """Write the files of `directory` to `target`, with `manifest` in place of the one there.

    The same files make the same archive. Raises InvalidRecord for what no archive may hold, and BodyTooLarge.
    """
    writer, ledger = TarWriter(target), ArchiveLedger()
    first = ArchiveEntry(path=MANIFEST_NAME, size=len(manifest))
    ledger.enter(first)
    writer.add(first, [manifest])
    for entry, path in list_package_files(directory):
        if entry.path != MANIFEST_NAME:
            parse_path(entry.path)
            ledger.enter(entry)
            writer.add(entry, _read_file(path, entry))
    return writer.close()


def unpack_archive(source: BinaryIO, directory: Path) -> None:
    """Unpack into `directory`, which must not exist, and does not exist if that fails."""
    directory.mkdir(mode=0o700)
    try:
        for entry, content in _iter_members(source, ArchiveLedger()):
            _write_entry(directory, entry, content)
    except BaseException:
        shutil.rmtree(directory)
        raise


def normalize_archive(source: BinaryIO, target: BinaryIO) -> ArchiveSummary:
    """Write the archive in the form of packages: copied if it has that form, else packed again.

    All of it is read before anything is written. Raises InvalidRecord, or BodyTooLarge past a limit.
    """
    summary, is_own = _inspect_archive(source)
    source.seek(0)
    if is_own:
        shutil.copyfileobj(source, target, CHUNK_BYTES)
        return summary
    writer = TarWriter(target)
    writer.add(ArchiveEntry(path=MANIFEST_NAME, size=len(summary.manifest)), [summary.manifest])
    for entry, content in _iter_members(source, ArchiveLedger()):
        if not entry.is_directory and entry.path != MANIFEST_NAME:
            writer.add(entry, content)
    writer.close()
    return summary


def _inspect_archive(source: BinaryIO) -> tuple[ArchiveSummary, bool]:
    """What is in an archive, and whether all of it has the form of packages."""
    manifest, ledger = None, ArchiveLedger()
    is_own = read_magic(source) != b"PK"
    for entry, content in _iter_members(source, ledger):
        if entry.path == MANIFEST_NAME and not entry.is_directory:
            if entry.size > MAX_MANIFEST_BYTES:
                raise archive_too_large(f"its `{MANIFEST_NAME}` is larger than {MAX_MANIFEST_BYTES:,} bytes")
            manifest = b"".join(content)
    if manifest is None:
        raise invalid_archive(f"it has no `{MANIFEST_NAME}` at its root")
    if is_bundle_manifest(manifest):
        manifest, is_own = convert_bundle(manifest), False
    return ArchiveSummary(manifest=manifest, files=ledger.files, unpacked_bytes=ledger.unpacked_bytes), is_own


def _iter_members(source: BinaryIO, ledger: ArchiveLedger) -> Iterator[ArchiveMember]:
    """The entries below the root of an archive, each checked against those before it."""
    if source.seek(0, os.SEEK_END) > MAX_ARCHIVE_BYTES:
        raise archive_too_large(f"it is larger than {MAX_ARCHIVE_BYTES:,} bytes")
    for entry, content in read_members(source):
        ledger.enter(entry)
        if entry.path:
            yield entry, content


def _read_file(path: Path, entry: ArchiveEntry) -> Iterator[bytes]:
    left = entry.size
    try:
        with path.open("rb") as file:
            while left >= 0 and (piece := file.read(CHUNK_BYTES)):
                left -= len(piece)
                yield piece
    except OSError as exc:
        raise invalid_archive(f"cannot read `{describe_name(entry.path)}`: {exc.strerror}") from exc
    if left:
        raise invalid_archive(f"`{describe_name(entry.path)}` changed while it was packed")


def _write_entry(root: Path, entry: ArchiveEntry, content: Iterator[bytes]) -> None:
    path = root.joinpath(*entry.path.split("/"))
    if entry.is_directory:
        path.mkdir(mode=0o755, parents=True, exist_ok=True)
        return
    path.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    with os.fdopen(os.open(path, flags, 0o600), "wb") as file:
        for piece in content:
            file.write(piece)
        os.fchmod(file.fileno(), 0o755 if entry.is_executable else 0o644)
