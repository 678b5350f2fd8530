"""FIL-4: archives that unpack to far more than they are cost little to refuse, and leave nothing behind."""

import gzip
import io
import struct
import tarfile
import tracemalloc
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.packages.archive_samples import FILES, inspect_archive, member, tar_of, zip_of
from toolgate.errors import BodyTooLarge, InvalidRecord
from toolgate.packages.archive import unpack_archive
from toolgate.packages.entries import CHUNK_BYTES, MAX_ARCHIVE_BYTES, MAX_FILES, MAX_UNPACKED_BYTES

MIB = 1024 * 1024
GIB = 1024 * MIB


def gzipped(head: bytes, zeros: int) -> bytes:
    """What gzip makes of `head` and zeros, without going through all of them. Its checksum is wrong."""
    deflate = zlib.compressobj(9, wbits=-zlib.MAX_WBITS)
    start = deflate.compress(head) + deflate.flush(zlib.Z_FULL_FLUSH)
    piece = zlib.compressobj(9, wbits=-zlib.MAX_WBITS)
    packed = piece.compress(bytes(MIB)) + piece.flush(zlib.Z_FULL_FLUSH)
    return gzip.compress(b"")[:10] + start + packed * (zeros // MIB) + b"\x03\x00" + bytes(8)


def header(name: str, size: int, kind: bytes = tarfile.REGTYPE) -> bytes:
    info = tarfile.TarInfo(name)
    info.size, info.type = size, kind
    return info.tobuf(tarfile.USTAR_FORMAT)


def fat_directory() -> bytes:
    """Few entries, with all the comments a directory has room for."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for number in range(400):
            entry = zipfile.ZipInfo(str(number))
            entry.comment = bytes(65_535)
            archive.writestr(entry, b"")
    return buffer.getvalue()


MANY_NAMES = (f"d{number}/f" for number in range(MAX_FILES))
BOMBS: dict[str, Callable[[], bytes]] = {
    "one file of 8 GiB": lambda: gzipped(header("zeros", 8 * GIB - 1), 8 * GIB),
    "an extended header of 8 GiB": lambda: gzipped(header("x", 8 * GIB - 1, tarfile.XHDTYPE), 8 * GIB),
    "a long name of 8 GiB": lambda: gzipped(header("x", 8 * GIB - 1, tarfile.GNUTYPE_LONGNAME), 8 * GIB),
    "a global header of 8 GiB": lambda: gzipped(header("x", 8 * GIB - 1, tarfile.XGLTYPE), 8 * GIB),
    "a zip that says 4 GiB": lambda: with_size(zip_of([("zeros", bytes(MIB))]), 4 * GIB - 2),
    "more files than may be": lambda: gzip.compress(headers(2 * MAX_FILES), compresslevel=1),
    "a directory to every file": lambda: tar_of(member(name) for name in MANY_NAMES),
    "a zip of more files": lambda: zip_of((f"f{number}", b"") for number in range(MAX_FILES)),
    "a zip that says so": lambda: with_count(zip_of([]), 65_535),
    "a zip with a directory of its own size": fat_directory,
    "an archive past the limit": lambda: bytes(MAX_ARCHIVE_BYTES + 1),
}


def headers(count: int) -> bytes:
    return b"".join(header(f"f{number}", 0) for number in range(count))


def with_size(archive: bytes, size: int) -> bytes:
    """A zip whose last entry claims another size, in its directory and its header."""
    return archive.replace(struct.pack("<L", MIB), struct.pack("<L", size))


def with_count(archive: bytes, count: int) -> bytes:
    return archive[:-14] + struct.pack("<2H", count, count) + archive[-10:]


@pytest.mark.parametrize("name", BOMBS)
def test_a_bomb_is_refused_before_it_goes_off(name: str) -> None:
    source = io.BytesIO(BOMBS[name]())
    tracemalloc.start()
    try:
        with pytest.raises(BodyTooLarge):
            inspect_archive(source)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert peak < 8 * MIB


@pytest.mark.parametrize("name", ["one file of 8 GiB", "a zip that says 4 GiB", "a long name of 8 GiB"])
def test_nothing_of_a_bomb_is_left_on_disk(name: str, tmp_path: Path) -> None:
    with pytest.raises(BodyTooLarge):
        unpack_archive(io.BytesIO(BOMBS[name]()), tmp_path / "package")

    assert list(tmp_path.rglob("*")) == []


@pytest.mark.parametrize(
    "head",
    [
        pytest.param(header("zeros", 8 * GIB - 1), id="content"),
        pytest.param(header("manifest.json", 0) + bytes(1024), id="what is behind the end"),
    ],
)
def test_of_a_bomb_only_the_beginning_is_read(head: bytes) -> None:
    source = io.BytesIO(gzipped(head, 8 * GIB))

    with pytest.raises((BodyTooLarge, InvalidRecord)):
        inspect_archive(source)

    assert source.tell() <= 2 * CHUNK_BYTES


def test_sizes_are_counted_together() -> None:
    half = MAX_UNPACKED_BYTES // 2
    first = gzipped(header("a", half), half)
    content = first[:-10] + gzipped(header("b", half), half)[10:-10] + gzipped(header("c", 512), MIB)[10:]

    with pytest.raises(BodyTooLarge, match="unpacks to more than"):
        inspect_archive(io.BytesIO(content))


def test_a_zip_that_unpacks_to_more_than_it_says_is_refused(tmp_path: Path) -> None:
    content = with_size(zip_of([("zeros", bytes(MIB))]), 10)

    with pytest.raises(InvalidRecord, match="differs from its size"):
        unpack_archive(io.BytesIO(content), tmp_path / "package")

    assert list(tmp_path.rglob("*")) == []


def test_the_most_that_is_allowed_passes() -> None:
    names = [f"f{number}" for number in range(MAX_FILES - 1)]

    inspected = inspect_archive(io.BytesIO(tar_of(member(name) for name in names)))

    assert (inspected.files, inspected.unpacked_bytes) == (MAX_FILES, len(FILES["manifest.json"]))
