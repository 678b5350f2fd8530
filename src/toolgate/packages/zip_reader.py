"""Reads zip archives of strangers. A zip says everything twice; what it says must agree, and leave no gap.

Not `zipfile`: that builds its whole directory before anybody can count it, and believes it alone. Here the
entries must fill the file from its first byte to the directory, none over another (the trick of zip bombs),
each as its own header and the directory both have it. Nothing that an archive of this size has no use for
is understood: encryption, several disks, zip64.
"""

import os
import stat
import struct
import zlib
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import BinaryIO, Final

from toolgate.catalog.checks import describe_name
from toolgate.packages.entries import (
    CHUNK_BYTES,
    MAX_FILES,
    MAX_UNPACKED_BYTES,
    ArchiveEntry,
    ArchiveMember,
    archive_too_large,
    invalid_archive,
    parse_path,
)

_LOCAL: Final = struct.Struct("<4s5H3L2H")
_CENTRAL: Final = struct.Struct("<4s6H3L5H2L")
_END: Final = struct.Struct("<4s4H2LH")
_DESCRIPTOR: Final = struct.Struct("<3L")
_LOCAL_SIGNATURE: Final = b"PK\x03\x04"
_CENTRAL_SIGNATURE: Final = b"PK\x01\x02"
_END_SIGNATURE: Final = b"PK\x05\x06"
_DESCRIPTOR_SIGNATURE: Final = b"PK\x07\x08"
_MAX_COMMENT: Final = 0xFFFF
_MAX_DIRECTORY: Final = MAX_FILES * 2_048
_STORED: Final = 0
_DEFLATED: Final = 8
_DESCRIBED_BEHIND: Final = 0x0008
"""The flag of an entry whose sizes stand behind its content."""
_UNDERSTOOD_FLAGS: Final = 0x0006 | _DESCRIBED_BEHIND | 0x0800
"""Besides that: how hard it was to compress, and that its name is UTF-8, which every name here must be."""
# `mcpb sign` appends this, and older versions do not call it a comment.
_SIGNED: Final = (b"MCPB_SIG_V1", b"MCPB_SIG_END")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Record:
    """An entry as the directory has it."""

    entry: ArchiveEntry
    name: bytes
    flags: int
    method: int
    crc: int
    packed: int
    start: int


def read_zip(source: BinaryIO) -> Iterator[ArchiveMember]:
    """The entries of a zip, in the order of their content. Raises InvalidRecord and BodyTooLarge."""
    records, start_of_directory = _directory(source)
    end = 0
    for record in sorted(records, key=lambda record: record.start):
        if record.start != end:
            raise invalid_archive("its entries overlap, or leave gaps")
        source.seek(record.start)
        end += _check_local(source, record) + record.packed
        content = _content(source, record)
        yield record.entry, content
        deque(content, maxlen=0)
        end += _check_descriptor(source, record)
    if end != start_of_directory:
        raise invalid_archive("its entries overlap, or leave gaps")


def _directory(source: BinaryIO) -> tuple[Sequence[_Record], int]:
    """The entries of the central directory, and where it begins. It must end where its end says."""
    size = source.seek(0, os.SEEK_END)
    tail_start = source.seek(max(0, size - _END.size - _MAX_COMMENT))
    tail = source.read(_END.size + _MAX_COMMENT)
    at = tail.rfind(_END_SIGNATURE)
    if at < 0 or len(tail) - at < _END.size:
        raise invalid_archive("it is no zip archive, or a damaged one")
    _, disk, first_disk, here, count, length, start, comment = _END.unpack_from(tail, at)
    if count > MAX_FILES:
        raise archive_too_large(f"it holds more than {MAX_FILES:,} files and directories")
    behind = tail[at + _END.size :]
    is_signed = behind.startswith(_SIGNED[0]) and behind.endswith(_SIGNED[1])
    if len(behind) != comment and not is_signed:
        raise invalid_archive("there is something behind its end")
    if disk or first_disk or here != count or start + length != tail_start + at:
        raise invalid_archive("its directory is not where its end says")
    if length > _MAX_DIRECTORY:
        raise archive_too_large(f"its directory is larger than {_MAX_DIRECTORY:,} bytes")
    source.seek(start)
    records = list(_records(source.read(length)))
    if len(records) != count:
        raise invalid_archive("its directory is damaged")
    return records, start


def _records(directory: bytes) -> Iterator[_Record]:
    at = 0
    while at < len(directory):
        if len(directory) - at < _CENTRAL.size:
            raise invalid_archive("its directory is damaged")
        fields = _CENTRAL.unpack_from(directory, at)
        flags, method, crc, packed, size = fields[3], fields[4], *fields[7:10]
        name_end = at + _CENTRAL.size + fields[10]
        name = directory[at + _CENTRAL.size : name_end]
        at = name_end + fields[11] + fields[12]
        if fields[0] != _CENTRAL_SIGNATURE or at > len(directory):
            raise invalid_archive("its directory is damaged")
        if flags & ~_UNDERSTOOD_FLAGS or method not in {_STORED, _DEFLATED}:
            raise invalid_archive("an entry of it is encrypted, or packed in a way that is not known here")
        entry = _entry(name, size=size, mode=fields[15] >> 16)
        yield _Record(
            entry=entry, name=name, flags=flags, method=method, crc=crc, packed=packed, start=fields[16]
        )


def _entry(raw: bytes, *, size: int, mode: int) -> ArchiveEntry:
    try:
        name = raw.decode()
    except UnicodeDecodeError as exc:
        raise invalid_archive("a name in it is not UTF-8") from exc
    is_directory = name.endswith("/")
    if stat.S_IFMT(mode) not in {0, stat.S_IFDIR if is_directory else stat.S_IFREG}:
        raise invalid_archive(f"`{describe_name(name)}` is neither a file nor a directory")
    path = parse_path(name)
    if is_directory and size:
        raise invalid_archive(f"`{describe_name(name)}` is a directory with content")
    if not is_directory and not path:
        raise invalid_archive("a file of it has no name")
    if size > MAX_UNPACKED_BYTES:
        raise archive_too_large(f"it unpacks to more than {MAX_UNPACKED_BYTES:,} bytes")
    return ArchiveEntry(path=path, size=size, is_directory=is_directory, is_executable=bool(mode & 0o100))


def _check_local(source: BinaryIO, record: _Record) -> int:
    """How long the entry's own header is, which must say what the directory says."""
    header = source.read(_LOCAL.size)
    if len(header) < _LOCAL.size:
        raise invalid_archive("it breaks off")
    signature, _, flags, method, _, _, *sizes, name_length, extra_length = _LOCAL.unpack(header)
    expected = [record.crc, record.packed, record.entry.size]
    is_described = sizes == expected or (flags & _DESCRIBED_BEHIND and not any(sizes))
    is_same = (signature, flags, method) == (_LOCAL_SIGNATURE, record.flags, record.method)
    if not (is_same and is_described and source.read(name_length) == record.name):
        raise invalid_archive(
            f"`{describe_name(record.entry.path)}` is one thing in its directory, and another in its header"
        )
    return source.seek(extra_length, os.SEEK_CUR) - record.start


def _content(source: BinaryIO, record: _Record) -> Iterator[bytes]:
    """What an entry unpacks to, of exactly the size and checksum that were announced."""
    crc, left = 0, record.entry.size
    pieces = _packed(source, record.packed)
    for piece in pieces if record.method == _STORED else _inflated(pieces):
        crc = zlib.crc32(piece, crc)
        left -= len(piece)
        if left < 0:
            break
        yield piece
    if left or crc != record.crc:
        raise invalid_archive(f"`{describe_name(record.entry.path)}` is not what its header says")


def _packed(source: BinaryIO, left: int) -> Iterator[bytes]:
    while left:
        piece = source.read(min(left, CHUNK_BYTES))
        if not piece:
            raise invalid_archive("it breaks off")
        left -= len(piece)
        yield piece


def _inflated(pieces: Iterator[bytes]) -> Iterator[bytes]:
    inflate = zlib.decompressobj(wbits=-zlib.MAX_WBITS)
    for piece in pieces:
        packed = piece
        while packed and not inflate.eof:
            try:
                content = inflate.decompress(packed, CHUNK_BYTES)
            except zlib.error as exc:
                raise invalid_archive("an entry of it is damaged") from exc
            packed = inflate.unconsumed_tail
            if content:
                yield content
        if inflate.eof:
            break
    # Output may be left over when all input has been taken in.
    while not inflate.eof and (content := inflate.decompress(b"", CHUNK_BYTES)):
        yield content
    if not inflate.eof or inflate.unused_data or next(pieces, None) is not None:
        raise invalid_archive("an entry of it is damaged")


def _check_descriptor(source: BinaryIO, record: _Record) -> int:
    """How many bytes stand behind an entry's content to describe it. They must be right."""
    if not record.flags & _DESCRIBED_BEHIND:
        return 0
    expected = _DESCRIPTOR.pack(record.crc, record.packed, record.entry.size)
    signed = _DESCRIPTOR_SIGNATURE + expected
    found = source.read(len(signed))
    if found == signed:
        return len(signed)
    if found[: len(expected)] == expected:
        return len(expected)
    raise invalid_archive(
        f"`{describe_name(record.entry.path)}` is one thing in its directory, and another behind it"
    )
