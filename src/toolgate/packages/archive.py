"""Packs, inspects, converts and unpacks the archives of packages.

Archives are untrusted. Sizes are counted while reading, never taken from headers. No file is written before
its name is checked, and none outside the given directory. Archives inside an archive are plain files. A
directory to pack belongs to its author and is trusted. The same files make the same bytes on every machine,
because archives are compared by hash. All functions block: call them in a thread.
"""

import hashlib
import os
import shutil
import stat
import tarfile
import zlib
from collections.abc import Iterable, Iterator, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import BinaryIO, Final, NamedTuple

from toolgate.catalog.checks import describe_name
from toolgate.errors import InvalidRecord
from toolgate.packages import entries
from toolgate.packages.archive_readers import read_magic, read_members
from toolgate.packages.entries import CHUNK_BYTES, MAX_ARCHIVE_BYTES, ArchiveEntry, ArchiveLedger
from toolgate.packages.foreign_manifests import convert_bundle, is_bundle_manifest
from toolgate.packages.manifest import MANIFEST_NAME, MAX_MANIFEST_BYTES

IGNORE_NAME: Final = ".toolgateignore"
MAX_IGNORE_BYTES: Final = 64 * 1024  # thousands of lines, each of which is matched against every file
ALWAYS_IGNORED: Final = (
    *(".git", ".hg", ".svn", "__pycache__", "*.pyc", ".venv", "node_modules/.cache"),
    *(".mypy_cache", ".pytest_cache", ".ruff_cache", ".toolgate*", ".env", ".env.*"),
    *(".DS_Store", ".idea", ".vscode", "*~", ".*.sw?"),
)
"""Names to leave out of packages: version control, caches, environments, developers' secrets, editor
files."""


class ArchiveSummary(NamedTuple):
    """The summary of an archive that was read completely."""

    manifest: bytes
    """The manifest in Toolgate's format, also if the archive has another one."""
    files: int
    unpacked_bytes: int


class PackedArchive(NamedTuple):
    """Size and hash of a written archive."""

    sha256: str
    size: int
    files: int


def pack_directory(
    directory: Path, manifest: bytes, target: BinaryIO, *, max_bytes: int = MAX_ARCHIVE_BYTES
) -> PackedArchive:
    """Pack `directory`, with `manifest` in place of its manifest. Raises InvalidRecord, BodyTooLarge."""
    writer, ledger = TarWriter(target, max_bytes=max_bytes), ArchiveLedger()
    first = ArchiveEntry(path=MANIFEST_NAME, size=len(manifest))
    ledger.enter(first)
    writer.add(first, [manifest])
    for entry, path in list_package_files(directory):
        if entry.path != MANIFEST_NAME:
            entries.parse_path(entry.path)
            ledger.enter(entry)
            writer.add(entry, _read_file(path, entry))
    return writer.close()


def unpack_archive(source: BinaryIO, directory: Path) -> None:
    """Unpack into `directory`, which must not exist. After a failure it does not exist, either."""
    directory.mkdir(mode=0o700)
    try:
        for entry, content in _iter_members(source, ArchiveLedger()):
            _write_entry(directory, entry, content)
    except BaseException:
        shutil.rmtree(directory)
        raise


def normalize_archive(source: BinaryIO, target: BinaryIO) -> ArchiveSummary:
    """Write the archive in Toolgate's format: copied if it has that format already, else packed again.

    Reads the whole archive before it writes. Raises InvalidRecord, and BodyTooLarge beyond a limit.
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
    """The summary of an archive, and whether it has Toolgate's format."""
    manifest, ledger = None, ArchiveLedger()
    is_own = read_magic(source) != b"PK"
    for entry, content in _iter_members(source, ledger):
        if entry.path == MANIFEST_NAME and not entry.is_directory:
            if entry.size > MAX_MANIFEST_BYTES:
                problem = f"`{MANIFEST_NAME}` is larger than {MAX_MANIFEST_BYTES:,} bytes"
                raise entries.archive_too_large(problem)
            manifest = b"".join(content)
    if manifest is None:
        raise entries.invalid_archive(f"no `{MANIFEST_NAME}` at its root")
    if is_bundle_manifest(manifest):
        manifest, is_own = convert_bundle(manifest), False
    return ArchiveSummary(manifest=manifest, files=ledger.files, unpacked_bytes=ledger.unpacked_bytes), is_own


def _iter_members(source: BinaryIO, ledger: ArchiveLedger) -> Iterator[entries.ArchiveMember]:
    """The entries of an archive, each checked against the entries before it."""
    if source.seek(0, os.SEEK_END) > MAX_ARCHIVE_BYTES:
        raise entries.archive_too_large(f"it is larger than {MAX_ARCHIVE_BYTES:,} bytes")
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
        raise entries.invalid_archive(f"cannot read `{describe_name(entry.path)}`: {exc.strerror}") from exc
    if left:
        raise entries.invalid_archive(f"`{describe_name(entry.path)}` changed while it was packed")


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


def list_package_files(directory: Path) -> Iterator[tuple[ArchiveEntry, Path]]:
    """The files to pack from a directory, in the order of their paths.

    A symbolic link to a file in the directory counts as that file. Raises InvalidRecord for any other link,
    and for anything that is not a regular file.
    """
    root = directory.resolve()
    lines, file = [*ALWAYS_IGNORED], root / IGNORE_NAME
    if file.is_file():
        if file.stat().st_size > MAX_IGNORE_BYTES:
            raise InvalidRecord(f"`{IGNORE_NAME}` is larger than {MAX_IGNORE_BYTES:,} bytes")
        lines += file.read_text("utf-8", errors="replace").splitlines()
    texts = (line.strip() for line in lines)
    return _walk(root, root, [_parse_line(text) for text in texts if text and not text.startswith("#")])


def _parse_line(line: str) -> tuple[str, bool]:
    """Parse a line of an ignore file: its pattern, and whether it matches directories only.

    A pattern has `*`, `?` and `[…]`. It matches a name anywhere, or, with a `/` inside, a path from the root.
    `#` begins a comment.
    """
    if line.startswith("!"):
        raise InvalidRecord(
            f"`{IGNORE_NAME}`: invalid line `{line[:80]}`: `!` is not supported",
            hint="list only the files to leave out",
        )
    text = line.rstrip("/")
    # A path from the root may begin with `/` or not; the pattern needs a `/` inside.
    return text.removeprefix("/") if "/" in text[1:] else text, line.endswith("/")


def _walk(
    root: Path, directory: Path, patterns: Sequence[tuple[str, bool]]
) -> Iterator[tuple[ArchiveEntry, Path]]:
    for path in sorted(directory.iterdir()):
        place = path.relative_to(root).as_posix()
        is_directory = path.is_dir()
        if any(
            fnmatchcase(place if "/" in text else path.name, text)
            for text, is_for_directories in patterns
            if is_directory or not is_for_directories
        ):
            continue
        if is_directory and not path.is_symlink():
            yield from _walk(root, path, patterns)
        else:
            yield _file(root, path, place), path


def _file(root: Path, path: Path, place: str) -> ArchiveEntry:
    try:
        target = path.resolve(strict=True)
        status = target.stat()
    except (OSError, RuntimeError) as exc:  # before Python 3.13, RuntimeError for a cycle of links
        raise _unpackable(place, "a broken link") from exc
    if not target.is_relative_to(root):
        raise _unpackable(place, "a link that leads out of the directory")
    if not stat.S_ISREG(status.st_mode):
        raise _unpackable(place, "a link to a directory" if path.is_symlink() else "not a regular file")
    return ArchiveEntry(path=place, size=status.st_size, is_executable=bool(status.st_mode & 0o100))


def _unpackable(place: str, problem: str) -> InvalidRecord:
    hint = f"remove it, or add it to `{IGNORE_NAME}`"
    return InvalidRecord(f"cannot pack `{describe_name(place)}`: it is {problem}", hint=hint)


class TarWriter:
    """Writes a gzipped tar of files and their executable bits, without times, owners and directories."""

    def __init__(self, target: BinaryIO, *, max_bytes: int = MAX_ARCHIVE_BYTES) -> None:
        self._target = target
        self._max_bytes = max_bytes
        self._deflate = zlib.compressobj(wbits=16 + zlib.MAX_WBITS)
        self._sha256 = hashlib.sha256()
        self._size = 0
        self._files = 0

    def add(self, entry: ArchiveEntry, content: Iterable[bytes]) -> None:
        """Write one file. `content` must have the size in `entry`."""
        info = tarfile.TarInfo(entry.path)
        info.size = entry.size
        info.mode = 0o755 if entry.is_executable else 0o644
        self._pack(info.tobuf(format=tarfile.PAX_FORMAT))
        for piece in content:
            self._pack(piece)
        self._pack(bytes(-entry.size % tarfile.BLOCKSIZE))
        self._files += 1

    def close(self) -> PackedArchive:
        """Write the end of the archive. The target stays open."""
        self._pack(bytes(2 * tarfile.BLOCKSIZE))
        self._write(self._deflate.flush())
        return PackedArchive(sha256=self._sha256.hexdigest(), size=self._size, files=self._files)

    def _pack(self, content: bytes) -> None:
        self._write(self._deflate.compress(content))

    def _write(self, packed: bytes) -> None:
        self._size += len(packed)
        if self._size > self._max_bytes:
            raise entries.archive_too_large(f"it would be larger than {self._max_bytes:,} bytes")
        self._sha256.update(packed)
        self._target.write(packed)
