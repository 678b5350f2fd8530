"""FIL-2: a zip says everything twice. Where the two differ, or leave room for more, it is refused."""

import io
import struct
import zipfile
import zlib
from pathlib import Path

import pytest

from tests.packages.archive_samples import FILES, good_zip, inspect_archive, zip_of
from toolgate.errors import BodyTooLarge, InvalidRecord
from toolgate.packages.archive import unpack_archive
from toolgate.packages.entries import CHUNK_BYTES

LOCAL, CENTRAL, END = b"PK\x03\x04", b"PK\x01\x02", b"PK\x05\x06"


def changed(content: bytes, signature: bytes, offset: int, value: bytes) -> bytes:
    """A zip with bytes replaced in its last header of this kind."""
    at = content.rindex(signature) + offset
    return content[:at] + value + content[at + len(value) :]


def moved(content: bytes, gap: bytes) -> bytes:
    """A zip with bytes between its last entry and its directory, which its end knows of."""
    start = content.index(CENTRAL)
    longer = content[:start] + gap + content[start:]
    return changed(longer, END, 16, struct.pack("<L", start + len(gap)))


def short(value: int) -> bytes:
    return struct.pack("<H", value)


def far(content: bytes) -> bytes:
    """A zip whose second entry is behind its end, according to the header of the first."""
    at = content.rindex(LOCAL)
    first = changed(content[:at], LOCAL, 28, short(0xFFFF)) + content[at:]
    return changed(first, CENTRAL, 42, struct.pack("<L", at + 0xFFFF))


ZIP = good_zip()
EMPTY_FIRST = zip_of([("empty", b""), ("z", b"x")], zipfile.ZIP_STORED)
DEFLATED = zip_of([("a", b"content of a file")])
CONTENT = DEFLATED.rindex(LOCAL) + 31
BEFORE = b"#!/bin/sh\n"
CASES = {
    "another name in its header": (changed(ZIP, LOCAL, 30, b"LIB"), "and its local header"),
    "another size in its header": (changed(ZIP, LOCAL, 22, b"\x07"), "and its local header"),
    "another checksum in its header": (
        changed(ZIP, LOCAL, 14, b"\x00\x00"),
        "and its local header",
    ),
    "another method in its header": (changed(ZIP, LOCAL, 8, b"\x00"), "and its local header"),
    "no header where it should be": (
        changed(ZIP, LOCAL, 0, b"PK\x01"),
        "and its local header",
    ),
    "encrypted": (changed(ZIP, CENTRAL, 8, short(1)), "encrypted"),
    "strongly encrypted": (changed(ZIP, CENTRAL, 8, short(0x41)), "encrypted"),
    "hidden headers": (changed(ZIP, CENTRAL, 8, short(0x2000)), "encrypted"),
    "packed in another way": (changed(ZIP, CENTRAL, 10, short(12)), "an unsupported method"),
    "two entries in one place": (changed(ZIP, CENTRAL, 42, bytes(4)), "overlap"),
    "an entry in another": (changed(ZIP, CENTRAL, 42, b"\x05"), "overlap"),
    "a gap": (moved(ZIP, b"hidden"), "leave gaps"),
    "a gap with an entry": (moved(ZIP, ZIP[: ZIP.index(LOCAL, 4)]), "leave gaps"),
    "something before": (BEFORE + ZIP, "neither a gzipped tar nor a zip"),
    "something behind": (ZIP + b"x", "follows after its end"),
    "a comment that is longer": (changed(ZIP, END, 20, short(1)), "follows after its end"),
    "several disks": (changed(ZIP, END, 4, short(1)), "not at the offset"),
    "zip64": (changed(ZIP, END, 12, b"\xff" * 8), "not at the offset"),
    "a directory elsewhere": (changed(ZIP, END, 16, b"\x00"), "not at the offset"),
    "a damaged directory": (changed(ZIP, CENTRAL, 0, b"PX"), "directory is damaged"),
    "a long name in the directory": (changed(ZIP, CENTRAL, 28, short(0x7FFF)), "directory is damaged"),
    "a directory cut short": (changed(moved(ZIP, b""), CENTRAL, 30, short(1)), "directory is damaged"),
    "more entries than it says": (changed(ZIP, END, 8, short(2) * 2), "directory is damaged"),
    "an entry behind its end": (far(EMPTY_FIRST), "is truncated"),
    "content behind its end": (changed(ZIP, LOCAL, 28, short(0xFFFF)), "is truncated"),
    "content that no program packed": (DEFLATED[:CONTENT] + b"\x07" + DEFLATED[CONTENT + 1 :], "is damaged"),
    "content that breaks off": (DEFLATED[:CONTENT] + b"\x00" + DEFLATED[CONTENT + 1 :], "is damaged"),
    "a name that leads nowhere": (zip_of([("././", b"")]), "is not a plain path"),
    "a file that is the directory": (zip_of([(".", b"x")]), "has no name"),
    "a name that is not UTF-8": (ZIP.replace("读".encode(), b"\xff\xff\xff"), "not UTF-8"),
}


@pytest.mark.parametrize("name", CASES)
def test_a_zip_that_can_be_read_in_two_ways_is_refused(name: str, tmp_path: Path) -> None:
    content, problem = CASES[name]

    with pytest.raises(InvalidRecord) as refusal:
        inspect_archive(io.BytesIO(content))
    with pytest.raises(InvalidRecord):
        unpack_archive(io.BytesIO(content), tmp_path / "package")

    assert problem in str(refusal.value)
    assert list(tmp_path.rglob("*")) == []


def test_sizes_of_zip64_are_past_all_limits() -> None:
    content = changed(changed(ZIP, CENTRAL, 24, b"\xff" * 4), LOCAL, 22, b"\xff" * 4)

    with pytest.raises(BodyTooLarge):
        inspect_archive(io.BytesIO(content))


@pytest.mark.parametrize("method", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
def test_content_that_differs_from_its_checksum_is_refused(method: int) -> None:
    content = zip_of([("a", b"content of a file")], method)
    at = content.rindex(LOCAL) + 31
    damaged = content[: at + 4] + bytes([content[at + 4] ^ 1]) + content[at + 5 :]

    with pytest.raises(InvalidRecord, match=r"differs from its size|damaged"):
        inspect_archive(io.BytesIO(damaged))


def of_length(length: int) -> tuple[bytes, bytes]:
    """Some content, and what it is packed to, of exactly this length."""
    for size in range(length - 100, length):
        deflate = zlib.compressobj(0, wbits=-zlib.MAX_WBITS)
        packed = deflate.compress(bytes(size)) + deflate.flush()
        if len(packed) == length:
            return bytes(size), packed
    raise AssertionError(length)


@pytest.mark.parametrize("length", [1_000, CHUNK_BYTES])
def test_nothing_may_follow_packed_content(length: int) -> None:
    data, packed = of_length(length)
    content = zip_of([("a", packed + b"hidden")], zipfile.ZIP_STORED)
    size = len(packed) + 6
    was = struct.pack("<3L", zlib.crc32(packed + b"hidden"), size, size)
    as_deflated = content.replace(was, struct.pack("<3L", zlib.crc32(data), size, len(data)))
    for signature, offset in ((LOCAL, 8), (CENTRAL, 10)):
        as_deflated = changed(as_deflated, signature, offset, short(8))

    with pytest.raises(InvalidRecord, match="is damaged"):
        inspect_archive(io.BytesIO(as_deflated))


def test_a_directory_has_no_content() -> None:
    content = zip_of([("aa", b"x")], zipfile.ZIP_STORED).replace(b"aa", b"a/")

    with pytest.raises(InvalidRecord, match=r"neither a file nor a directory|has content"):
        inspect_archive(io.BytesIO(content))


class Unseekable(io.BytesIO):
    def seekable(self) -> bool:
        return False

    def seek(self, *_: int) -> int:
        raise io.UnsupportedOperation

    tell = seek


def streamed() -> bytes:
    """A zip whose sizes stand behind the content, as programs write that cannot go back."""
    buffer = Unseekable()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in FILES.items():
            archive.writestr(name, content)
    return buffer.getvalue()


def test_sizes_may_stand_behind_the_content_if_they_are_right() -> None:
    content = streamed()
    at = content.rindex(b"PK\x07\x08")

    assert inspect_archive(io.BytesIO(content)).files == 3
    with pytest.raises(InvalidRecord, match="and its data descriptor"):
        inspect_archive(io.BytesIO(content[: at + 4] + b"\x00" + content[at + 5 :]))


def test_they_may_stand_there_without_a_signature() -> None:
    content = streamed()
    at = content.rindex(b"PK\x07\x08")
    content = content[:at] + content[at + 4 :]
    start = content.index(CENTRAL)

    assert inspect_archive(io.BytesIO(changed(content, END, 16, struct.pack("<L", start)))).files == 3


@pytest.mark.parametrize("is_comment", [True, False])
def test_the_signature_of_a_bundle_is_passed_over(is_comment: bool) -> None:
    signature = b"MCPB_SIG_V1" + struct.pack("<L", 4) + b"DER." + b"MCPB_SIG_END"
    content = changed(ZIP, END, 20, short(len(signature))) if is_comment else ZIP

    assert inspect_archive(io.BytesIO(content + signature)).files == 3


def test_a_directory_entry_may_be_there(tmp_path: Path) -> None:
    content = zip_of([("./", b""), ("lib/", b""), ("lib/a", b"x")])

    unpack_archive(io.BytesIO(content), tmp_path / "package")

    assert (tmp_path / "package" / "lib" / "a").read_bytes() == b"x"
