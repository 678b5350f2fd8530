"""What the archive of a package may hold: files and directories, under names that mean one place everywhere.

An archive comes from strangers. A name is accepted only if every file system reads it alike; what could be
mistaken for something else is refused, never corrected. Unpacking uses these names and no others.
"""

import re
import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import accumulate
from typing import Final

from toolgate.catalog.checks import describe_name
from toolgate.errors import BodyTooLarge, InvalidRecord

MAX_ARCHIVE_BYTES: Final = 64 * 1024 * 1024  # 16 parts of the largest request body (ADR 28)
MAX_UNPACKED_BYTES: Final = 4 * MAX_ARCHIVE_BYTES  # what a package may take of a node's disk
MAX_FILES: Final = 10_000
"""Files and directories together, including directories that only the path of a file names."""
MAX_PATH_BYTES: Final = 1_024  # a quarter of PATH_MAX: the cache's directory comes before it
MAX_PATH_PARTS: Final = 32  # generous for nested `node_modules`
MAX_PATH_PART_BYTES: Final = 255  # NAME_MAX of Linux
CHUNK_BYTES: Final = 64 * 1024  # read, unpacked or written at once

_DRIVE: Final = re.compile(r"[A-Za-z]:")
_ROOT: Final = frozenset({".", "./"})


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchiveEntry:
    """One file or directory of an archive: its path from the package's directory, with `/` between parts."""

    path: str
    size: int = 0
    """Exactly as many bytes follow, or the archive is refused."""
    is_directory: bool = False
    is_executable: bool = False


ArchiveMember = tuple[ArchiveEntry, Iterator[bytes]]
"""An entry and its content, to be read before the next entry."""


def invalid_archive(problem: str) -> InvalidRecord:
    """The error for an archive with this problem."""
    hint = "pack the package's directory again with `toolgate packages publish`"
    return InvalidRecord(f"the archive is refused: {problem}", hint=hint)


def archive_too_large(problem: str) -> BodyTooLarge:
    """An archive past one of its limits."""
    hint = "leave out of the package what it runs without"
    return BodyTooLarge(f"the archive is refused: {problem}", hint=hint)


def parse_path(name: str) -> str:
    """`name` as the path of an entry; empty for the package's directory itself."""
    if name in _ROOT:
        return ""
    path = name.removeprefix("./").removesuffix("/")
    if len(path.encode(errors="replace")) > MAX_PATH_BYTES:
        raise invalid_archive(f"`{describe_name(path)}` is longer than {MAX_PATH_BYTES:,} bytes")
    # What is not printable also covers what some file systems ignore in a name (U+200D and its kin).
    if not path.isprintable() or "\\" in path or _DRIVE.match(path):
        raise invalid_archive(f"`{describe_name(path)}` holds a character that no name here may have")
    parts = path.split("/")
    if len(parts) > MAX_PATH_PARTS:
        raise invalid_archive(f"`{describe_name(path)}` is deeper than {MAX_PATH_PARTS} levels")
    if not {"", ".", ".."}.isdisjoint(parts):
        problem = "does not lead straight down from the package's directory"
        raise invalid_archive(f"`{describe_name(path)}` {problem}")
    if any(len(part.encode()) > MAX_PATH_PART_BYTES for part in parts):
        raise invalid_archive(f"`{describe_name(path)}` has a part of more than {MAX_PATH_PART_BYTES} bytes")
    return path


class ArchiveLedger:
    """What an archive has held so far. Two paths that some file system takes for one are refused."""

    def __init__(self) -> None:
        self._spelled: dict[str, str] = {}
        """Each path as it is compared, to how it was written first."""
        self._is_explicit: dict[str, bool] = {}
        """Each directory, and whether the archive has an entry for it."""
        self.files = 0
        self.unpacked_bytes = 0

    def enter(self, entry: ArchiveEntry) -> None:
        """Record an entry, or refuse it because of those before it."""
        *parents, path = accumulate(entry.path.split("/"), "{}/{}".format)
        # Those that are known cost no second look: a deep path may be that of thousands of files.
        for parent in (one for one in parents if one not in self._is_explicit):
            if not self._spell(parent):
                raise invalid_archive(f"`{describe_name(parent)}` is a file, and a directory of others")
            self._is_explicit[parent] = False
        is_new = self._spell(path)
        if entry.is_directory and (is_new or self._is_explicit.get(path) is False):
            self._is_explicit[path] = True
        elif is_new:
            self.files += 1
        else:
            raise invalid_archive(f"duplicate entry `{describe_name(path)}`")
        self.unpacked_bytes += entry.size
        if self.unpacked_bytes > MAX_UNPACKED_BYTES:
            raise archive_too_large(f"it unpacks to more than {MAX_UNPACKED_BYTES:,} bytes")

    def _spell(self, path: str) -> bool:
        """Whether a path is new. One that differs from another only for some file systems is refused."""
        key = unicodedata.normalize("NFC", unicodedata.normalize("NFD", path).casefold())
        first = self._spelled.get(key)
        if first is not None and first != path:
            names = f"`{describe_name(path)}` and `{describe_name(first)}`"
            raise invalid_archive(f"{names} are one name to some file systems")
        self._spelled[key] = path
        if len(self._spelled) > MAX_FILES:
            raise archive_too_large(f"it holds more than {MAX_FILES:,} files and directories")
        return first is None
