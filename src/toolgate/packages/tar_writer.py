"""Writes the archives that packages are kept as: the same files make the same bytes, whoever packs them."""

import hashlib
import tarfile
import zlib
from collections.abc import Iterable
from dataclasses import dataclass
from typing import BinaryIO, Final

from toolgate.packages.entries import MAX_ARCHIVE_BYTES, Entry, too_large

_BLOCK: Final = tarfile.BLOCKSIZE


@dataclass(frozen=True, slots=True, kw_only=True)
class Packed:
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

    def add(self, entry: Entry, content: Iterable[bytes]) -> None:
        """Write one file. The content must have the size the entry says."""
        info = tarfile.TarInfo(entry.path)
        info.size = entry.size
        info.mode = 0o755 if entry.is_executable else 0o644
        self._pack(info.tobuf(format=tarfile.PAX_FORMAT))
        for piece in content:
            self._pack(piece)
        self._pack(bytes(-entry.size % _BLOCK))
        self._files += 1

    def close(self) -> Packed:
        """Write the end. The target stays open."""
        self._pack(bytes(2 * _BLOCK))
        self._write(self._deflate.flush())
        return Packed(sha256=self._sha256.hexdigest(), size=self._size, files=self._files)

    def _pack(self, content: bytes) -> None:
        self._write(self._deflate.compress(content))

    def _write(self, packed: bytes) -> None:
        self._size += len(packed)
        if self._size > MAX_ARCHIVE_BYTES:
            raise too_large(f"it would be larger than {MAX_ARCHIVE_BYTES:,} bytes")
        self._sha256.update(packed)
        self._target.write(packed)
