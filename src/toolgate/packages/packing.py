"""Packs the directory of a package: which files belong to it, and the archive that they become.

The directory is its author's, so files are only looked at here; `archive` checks what an archive may hold.
The same files make the same bytes on every machine: archives are compared by their hash.
"""

import hashlib
import stat
import tarfile
import zlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import BinaryIO, Final

from toolgate.catalog.checks import describe_name
from toolgate.errors import InvalidRecord
from toolgate.packages.entries import MAX_ARCHIVE_BYTES, ArchiveEntry, archive_too_large

IGNORE_NAME: Final = ".toolgateignore"
MAX_IGNORE_BYTES: Final = 64 * 1024
ALWAYS_IGNORED: Final = (
    *(".git", ".hg", ".svn", "__pycache__", "*.pyc", ".venv", "node_modules/.cache"),
    *(".mypy_cache", ".pytest_cache", ".ruff_cache", ".toolgate*", ".env", ".env.*"),
    *(".DS_Store", ".idea", ".vscode", "*~", ".*.sw?"),
)
"""Left out of every package: version control, caches, environments, secrets of developers, editors' files."""


@dataclass(frozen=True, slots=True)
class IgnorePattern:
    """One line of an ignore file: a name anywhere, or, with a `/` inside, a path from the root."""

    text: str
    is_for_directories: bool = False

    def matches(self, path: str, *, is_directory: bool) -> bool:
        if self.is_for_directories and not is_directory:
            return False
        return fnmatchcase(path if "/" in self.text else path.rpartition("/")[2], self.text)


def list_package_files(directory: Path) -> Iterator[tuple[ArchiveEntry, Path]]:
    """The files of a directory in the order of their paths, without those to leave out.

    A link to a file in the directory is that file. Any other link, and what is no file, is InvalidRecord.
    """
    root = directory.resolve()
    patterns = parse_ignore("\n".join([*ALWAYS_IGNORED, _read_ignore_file(root / IGNORE_NAME)]))
    return _walk(root, root, patterns)


def parse_ignore(text: str) -> tuple[IgnorePattern, ...]:
    """The patterns of an ignore file: `*`, `?` and `[…]`, one to a line; `#` begins a comment."""
    lines = (line.strip() for line in text.splitlines())
    return tuple(_parse_line(line) for line in lines if line and not line.startswith("#"))


def _parse_line(line: str) -> IgnorePattern:
    if line.startswith("!"):
        raise InvalidRecord(f"`{IGNORE_NAME}`: a line cannot begin with `!`: lines name what to leave out")
    text = line.rstrip("/")
    # A path from the root may be written with or without a `/` before it; here it needs one inside.
    return IgnorePattern(
        text.removeprefix("/") if "/" in text[1:] else text, is_for_directories=line.endswith("/")
    )


def _read_ignore_file(file: Path) -> str:
    if not file.is_file():
        return ""
    if file.stat().st_size > MAX_IGNORE_BYTES:
        raise InvalidRecord(f"`{IGNORE_NAME}` is larger than {MAX_IGNORE_BYTES:,} bytes")
    return file.read_text("utf-8", errors="replace")


def _walk(
    root: Path, directory: Path, patterns: Sequence[IgnorePattern]
) -> Iterator[tuple[ArchiveEntry, Path]]:
    for path in sorted(directory.iterdir()):
        place = path.relative_to(root).as_posix()
        is_directory = path.is_dir()
        if any(pattern.matches(place, is_directory=is_directory) for pattern in patterns):
            continue
        if is_directory and not path.is_symlink():
            yield from _walk(root, path, patterns)
        else:
            yield _file(root, path, place), path


def _file(root: Path, path: Path, place: str) -> ArchiveEntry:
    try:
        target = path.resolve(strict=True)
        status = target.stat()
    except (OSError, RuntimeError) as exc:  # the latter, before Python 3.13, for links in a circle
        raise _unpackable(place, "not to be found") from exc
    if not target.is_relative_to(root):
        raise _unpackable(place, "a link that leads out of the directory")
    if not stat.S_ISREG(status.st_mode):
        raise _unpackable(place, "a link to a directory" if path.is_symlink() else "not an ordinary file")
    return ArchiveEntry(path=place, size=status.st_size, is_executable=bool(status.st_mode & 0o100))


def _unpackable(place: str, problem: str) -> InvalidRecord:
    return InvalidRecord(
        f"`{describe_name(place)}` cannot be packed: it is {problem}",
        hint=f"remove it, or name it in `{IGNORE_NAME}`",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class PackedArchive:
    """An archive that was written."""

    sha256: str
    size: int
    files: int


class TarWriter:
    """A gzipped tar without times, owners and directories: only files, and whether each is executable."""

    def __init__(self, target: BinaryIO) -> None:
        self._target = target
        self._deflate = zlib.compressobj(wbits=16 + zlib.MAX_WBITS)
        self._sha256 = hashlib.sha256()
        self._size = 0
        self._files = 0

    def add(self, entry: ArchiveEntry, content: Iterable[bytes]) -> None:
        """Write one file. Its content must have the size of the entry."""
        info = tarfile.TarInfo(entry.path)
        info.size = entry.size
        info.mode = 0o755 if entry.is_executable else 0o644
        self._pack(info.tobuf(format=tarfile.PAX_FORMAT))
        for piece in content:
            self._pack(piece)
        self._pack(bytes(-entry.size % tarfile.BLOCKSIZE))
        self._files += 1

    def close(self) -> PackedArchive:
        """Write the end. The target stays open."""
        self._pack(bytes(2 * tarfile.BLOCKSIZE))
        self._write(self._deflate.flush())
        return PackedArchive(sha256=self._sha256.hexdigest(), size=self._size, files=self._files)

    def _pack(self, content: bytes) -> None:
        self._write(self._deflate.compress(content))

    def _write(self, packed: bytes) -> None:
        self._size += len(packed)
        if self._size > MAX_ARCHIVE_BYTES:
            raise archive_too_large(f"it would be larger than {MAX_ARCHIVE_BYTES:,} bytes")
        self._sha256.update(packed)
        self._target.write(packed)
