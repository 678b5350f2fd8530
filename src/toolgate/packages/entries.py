"""The entries that an archive may have: files and directories with names that are unambiguous everywhere.

Archives are untrusted. A name is accepted only if every file system reads it alike; an ambiguous name is
rejected, never corrected. Unpacking uses only these names.
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
MAX_UNPACKED_BYTES: Final = 4 * MAX_ARCHIVE_BYTES  # the disk space of a package on a node
MAX_FILES: Final = 10_000
"""Files and directories together, including directories that appear only in paths of files."""
MAX_PATH_BYTES: Final = 1_024  # a quarter of PATH_MAX: the cache's directory comes before it
MAX_PATH_PARTS: Final = 32  # generous for nested `node_modules`
MAX_PATH_PART_BYTES: Final = 255  # NAME_MAX of Linux
CHUNK_BYTES: Final = 64 * 1024  # to read, unpack or write at once

_DRIVE: Final = re.compile(r"[A-Za-z]:")
_ROOT: Final = frozenset({".", "./"})


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchiveEntry:
    """One file or directory of an archive: its path from the package's directory, with `/` between parts."""

    path: str
    size: int = 0
    """The exact size of the content; an archive with another size is rejected."""
    is_directory: bool = False
    is_executable: bool = False


ArchiveMember = tuple[ArchiveEntry, Iterator[bytes]]
"""An entry and its content, which must be read before the next entry."""


def invalid_archive(problem: str) -> InvalidRecord:
    """The error for an invalid archive."""
    hint = "pack the package's directory again with `toolgate packages publish`"
    return InvalidRecord(f"invalid archive: {problem}", hint=hint)


def archive_too_large(problem: str) -> BodyTooLarge:
    """The error for an archive beyond a limit."""
    hint = "leave out files that the package does not need, by its `.toolgateignore`"
    return BodyTooLarge(f"the archive is too large: {problem}", hint=hint)


def parse_path(name: str) -> str:
    """`name` as the path of an entry; empty for the package's directory itself."""
    if name in _ROOT:
        return ""
    path = name.removeprefix("./").removesuffix("/")
    if len(path.encode(errors="replace")) > MAX_PATH_BYTES:
        raise invalid_archive(f"`{describe_name(path)}` is longer than {MAX_PATH_BYTES:,} bytes")
    # Characters that are not printable include those that some file systems ignore (such as U+200D).
    if not path.isprintable() or "\\" in path or _DRIVE.match(path):
        raise invalid_archive(f"`{describe_name(path)}` has a character that is not allowed in names")
    parts = path.split("/")
    if len(parts) > MAX_PATH_PARTS:
        raise invalid_archive(f"`{describe_name(path)}` is deeper than {MAX_PATH_PARTS} levels")
    if not {"", ".", ".."}.isdisjoint(parts):
        problem = "is not a plain path below the package's directory"
        raise invalid_archive(f"`{describe_name(path)}` {problem}")
    if any(len(part.encode()) > MAX_PATH_PART_BYTES for part in parts):
        raise invalid_archive(f"`{describe_name(path)}` has a part of more than {MAX_PATH_PART_BYTES} bytes")
    return path


class ArchiveLedger:
    """The entries of an archive so far. Rejects two paths that are equal on some file systems."""

    def __init__(self) -> None:
        self._spelled: dict[str, str] = {}
        """Each path in its compared form → its first spelling."""
        self._is_explicit: dict[str, bool] = {}
        """Each directory → whether the archive has an entry for it."""
        self.files = 0
        self.unpacked_bytes = 0

    def enter(self, entry: ArchiveEntry) -> None:
        """Record an entry. Raises if it conflicts with an earlier one."""
        *parents, path = accumulate(entry.path.split("/"), "{}/{}".format)
        # Known parents are not checked again: thousands of files may share a deep path.
        for parent in (one for one in parents if one not in self._is_explicit):
            if not self._spell(parent):
                raise invalid_archive(f"`{describe_name(parent)}` is both a file and a directory")
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
        """Whether a path is new. Raises if it equals another path on some file systems."""
        key = unicodedata.normalize("NFC", unicodedata.normalize("NFD", path).casefold())
        first = self._spelled.get(key)
        if first is not None and first != path:
            names = f"`{describe_name(path)}` and `{describe_name(first)}`"
            raise invalid_archive(f"{names} are the same name on some file systems")
        self._spelled[key] = path
        if len(self._spelled) > MAX_FILES:
            raise archive_too_large(f"it holds more than {MAX_FILES:,} files and directories")
        return first is None
