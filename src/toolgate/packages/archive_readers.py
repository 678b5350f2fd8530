"""Reads untrusted archives, gzipped tar and zip, with at most one piece in memory.

Tar archives are read by the standard library's `tarfile`, behind a stream that bounds headers and contents,
and with an allowlist of headers. A zip has all metadata twice; `zipfile` trusts one copy, and reads a
directory of any size. So this module reads zips itself: entries must fill the file up to the directory
without overlaps (which zip bombs use), and local headers must equal the directory. Features that packages do
not need are not supported: encryption, several disks, zip64.
"""

import os
import stat
import struct
import tarfile
import zlib
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Any, BinaryIO, Final, NamedTuple, Self

from toolgate.catalog.checks import describe_name
from toolgate.packages import entries
from toolgate.packages.entries import MAX_FILES, MAX_UNPACKED_BYTES, ArchiveEntry, invalid_archive

MAX_EXTENSION_BYTES: Final = 8 * 1024
"""Size of one entry's extended headers: room for a path at its limit, with times and owners."""

_BLOCK: Final = tarfile.BLOCKSIZE
_MAX_HEADER_BYTES: Final = MAX_EXTENSION_BYTES + 2 * _BLOCK
_MAX_RECORDS: Final = 32  # of one extended header: generous for times, owners and ACLs
_MAX_PADDING: Final = 1024 * 1024  # zeros after the end: some programs fill whole tape records
_MAX_STREAM: Final = MAX_UNPACKED_BYTES + MAX_FILES * 4 * _BLOCK + _MAX_PADDING
_TAR_MAGICS: Final = (tarfile.POSIX_MAGIC, tarfile.GNU_MAGIC)
_TAR_FILES: Final = (tarfile.REGTYPE, tarfile.AREGTYPE)
_TAR_EXTENSIONS: Final = (tarfile.XHDTYPE, tarfile.XGLTYPE, tarfile.GNUTYPE_LONGNAME)
_TAR_KINDS: Final = {
    tarfile.LNKTYPE: "a hard link",
    tarfile.SYMTYPE: "a symbolic link",
    tarfile.CHRTYPE: "a device",
    tarfile.BLKTYPE: "a device",
    tarfile.FIFOTYPE: "a FIFO",
}
# Records that would contradict the file's header. Times and owners are ignored.
_REFUSED_RECORDS: Final = frozenset({"size", "linkpath", "hdrcharset", "charset"})
_TAR_ERRORS: Final = (tarfile.TarError, ValueError, LookupError, OverflowError)
"""The errors that `tarfile` raises for damaged headers."""


def read_members(source: BinaryIO, *, max_stream: int = _MAX_STREAM) -> Iterator[entries.ArchiveMember]:
    """The entries of an archive. Raises InvalidRecord and BodyTooLarge.

    A gzipped tar may unpack to at most `max_stream` bytes, including headers.
    """
    match read_magic(source):
        case b"\x1f\x8b":
            return _read_tar(_TarStream(source, max_stream))
        case b"PK":
            return _read_zip(source)
    raise invalid_archive("neither a gzipped tar nor a zip")


def read_magic(source: BinaryIO) -> bytes:
    source.seek(0)
    magic = source.read(2)
    source.seek(0)
    return magic


def _read_pieces(read: Callable[[int], bytes], left: int) -> Iterator[bytes]:
    while left:
        piece = read(min(left, entries.CHUNK_BYTES))
        if not piece:
            raise invalid_archive("it is truncated")
        left -= len(piece)
        yield piece


def _read_tar(stream: "_TarStream") -> Iterator[entries.ArchiveMember]:
    try:
        fileobj: Any = stream
        tar: Any = tarfile.TarFile(fileobj=fileobj, tarinfo=_CheckedHeader, encoding="utf-8")
        # `git archive` begins with a global header: the commit, as a comment.
        shared = dict(tar.pax_headers)
        while (header := tar.next()) is not None:
            if shared.keys() - {"comment"} or tar.pax_headers != shared:
                raise invalid_archive("the global header has more than a comment, or is not the first one")
            entry = _parse_tar_entry(header)
            content = stream.read_content(entry.size)
            yield entry, content
            deque(content, maxlen=0)
            tar.members.clear()
    except _TAR_ERRORS as exc:
        raise invalid_archive("not a tar archive, or damaged") from exc
    stream.expect_end()


class _CheckedHeader(tarfile.TarInfo):
    """A header block of an allowed kind."""

    @classmethod
    def frombuf(cls, buf: bytes | bytearray, encoding: str, errors: str) -> Self:
        header = super().frombuf(buf, encoding, errors)
        if buf[257:265] not in _TAR_MAGICS:
            raise invalid_archive("not a tar archive, or damaged")
        if buf[124] & 0x80 or header.size < 0:
            raise invalid_archive("a header is damaged, or has a number beyond all limits")
        is_directory = header.type == tarfile.DIRTYPE and not header.size
        if not (is_directory or header.type in _TAR_FILES or header.type in _TAR_EXTENSIONS):
            kind = _TAR_KINDS.get(header.type, "neither a file nor a directory")
            raise invalid_archive(f"`{describe_name(header.name)}` is {kind}")
        return header


class _TarStream:
    """The unpacked content of one gzip member, read from front to back, within bounds."""

    def __init__(self, source: BinaryIO, most: int) -> None:
        self._source = source
        self._most = most
        self._inflate = zlib.decompressobj(wbits=16 + zlib.MAX_WBITS)
        self._position = 0
        self._header_left = _MAX_HEADER_BYTES
        self._last_header = b""

    def tell(self) -> int:
        return self._position

    def read(self, size: int) -> bytes:
        """Exactly `size` bytes, for headers."""
        self._header_left -= size
        if self._header_left < 0:
            raise entries.archive_too_large(f"a header is larger than {MAX_EXTENSION_BYTES:,} bytes")
        self._last_header = b"".join(_read_pieces(self._read_some, size))
        return self._last_header

    def read_content(self, size: int) -> Iterator[bytes]:
        """The content of an entry, one piece at a time."""
        yield from _read_pieces(self._read_some, size)
        deque(_read_pieces(self._read_some, -size % _BLOCK), maxlen=0)
        self._header_left = _MAX_HEADER_BYTES

    def expect_end(self) -> None:
        """Only zeros may follow: another reader might find an archive there."""
        if self._last_header.strip(b"\0"):
            raise invalid_archive("a header is damaged")
        left = _MAX_PADDING
        while padding := self._read_some(entries.CHUNK_BYTES):
            left -= len(padding)
            if left < 0 or padding.strip(b"\0"):
                raise invalid_archive("data follows after its end")
        if self._inflate.unused_data or self._source.read(1):
            raise invalid_archive("data follows after its end")

    def _read_some(self, size: int) -> bytes:
        """From 1 to `size` bytes; empty at the end."""
        while not self._inflate.eof:
            packed = self._inflate.unconsumed_tail or self._source.read(entries.CHUNK_BYTES)
            try:
                content = self._inflate.decompress(packed, size)
            except zlib.error as exc:
                raise invalid_archive("not gzip, or damaged") from exc
            if content:
                self._position += len(content)
                if self._position > self._most:
                    raise entries.archive_too_large(f"it unpacks to more than {MAX_UNPACKED_BYTES:,} bytes")
                return content
            if not packed and not self._inflate.eof:
                raise invalid_archive("it is truncated")
        return b""


def _parse_tar_entry(header: tarfile.TarInfo) -> ArchiveEntry:
    records = header.pax_headers
    for key in records:
        if key in _REFUSED_RECORDS or key.startswith("GNU.sparse"):
            raise invalid_archive(f"an extended header has the unsupported record `{describe_name(key)}`")
    if len(records) > _MAX_RECORDS:
        raise invalid_archive(f"an extended header has more than {_MAX_RECORDS} records")
    try:
        header.name.encode()
    except UnicodeEncodeError as exc:
        raise invalid_archive("a file name is not UTF-8") from exc
    path = entries.parse_path(header.name)
    if header.isdir():
        return ArchiveEntry(path=path, is_directory=True)
    if not path:
        raise invalid_archive("a file has no name")
    return ArchiveEntry(path=path, size=header.size, is_executable=bool(header.mode & 0o100))


_LOCAL: Final = struct.Struct("<4s5H3L2H")
_CENTRAL: Final = struct.Struct("<4s6H3L5H2L")
_END: Final = struct.Struct("<4s4H2LH")
_DESCRIPTOR: Final = struct.Struct("<3L")
_DESCRIPTOR_SIGNATURE: Final = b"PK\x07\x08"
_MAX_COMMENT: Final = 0xFFFF  # its length has 16 bits
_MAX_DIRECTORY: Final = MAX_FILES * 2_048  # per entry: a path at its limit, and as much for the rest
_STORED, _DEFLATED = 0, 8
_HAS_DESCRIPTOR: Final = 0x0008  # the flag of an entry whose sizes follow its content
_KNOWN_FLAGS: Final = 0x0006 | _HAS_DESCRIPTOR | 0x0800
"""The other allowed flags: the compression level, and that the name is UTF-8, which all names must be."""
# `mcpb sign` appends this, and older versions do not declare it as a comment.
_SIGNATURE: Final = (b"MCPB_SIG_V1", b"MCPB_SIG_END")


class _ZipRecord(NamedTuple):
    """An entry of the central directory."""

    entry: ArchiveEntry
    name: bytes
    flags: int
    method: int
    crc: int
    packed: int
    start: int


def _read_zip(source: BinaryIO) -> Iterator[entries.ArchiveMember]:
    """The entries in the order of their content."""
    records, start_of_directory = _read_directory(source)
    end = 0
    for record in sorted(records, key=lambda record: record.start):
        if record.start != end:
            raise invalid_archive("entries overlap or leave gaps")
        source.seek(record.start)
        end += _check_local_header(source, record) + record.packed
        content = _read_zip_content(source, record)
        yield record.entry, content
        deque(content, maxlen=0)
        end += _check_descriptor(source, record)
    if end != start_of_directory:
        raise invalid_archive("entries overlap or leave gaps")


def _read_directory(source: BinaryIO) -> tuple[Sequence[_ZipRecord], int]:
    """The entries of the central directory, and its offset. It must end where the end record says."""
    size = source.seek(0, os.SEEK_END)
    tail_start = source.seek(max(0, size - _END.size - _MAX_COMMENT))
    tail = source.read(_END.size + _MAX_COMMENT)
    at = tail.rfind(b"PK\x05\x06")
    if at < 0 or len(tail) - at < _END.size:
        raise invalid_archive("not a zip archive, or damaged")
    _, disk, first_disk, here, count, length, start, comment = _END.unpack_from(tail, at)
    if count > MAX_FILES:
        raise entries.archive_too_large(f"it holds more than {MAX_FILES:,} files and directories")
    behind = tail[at + _END.size :]
    is_signed = behind.startswith(_SIGNATURE[0]) and behind.endswith(_SIGNATURE[1])
    if len(behind) != comment and not is_signed:
        raise invalid_archive("data follows after its end")
    if disk or first_disk or here != count or start + length != tail_start + at:
        raise invalid_archive("the central directory is not at the offset in the end record")
    if length > _MAX_DIRECTORY:
        raise entries.archive_too_large(f"the central directory is larger than {_MAX_DIRECTORY:,} bytes")
    source.seek(start)
    records = list(_parse_directory(source.read(length)))
    if len(records) != count:
        raise invalid_archive("the central directory is damaged")
    return records, start


def _parse_directory(directory: bytes) -> Iterator[_ZipRecord]:
    at = 0
    while at < len(directory):
        if len(directory) - at < _CENTRAL.size:
            raise invalid_archive("the central directory is damaged")
        fields = _CENTRAL.unpack_from(directory, at)
        flags, method, crc, packed, size = fields[3], fields[4], *fields[7:10]
        name_end = at + _CENTRAL.size + fields[10]
        name = directory[at + _CENTRAL.size : name_end]
        at = name_end + fields[11] + fields[12]
        if fields[0] != b"PK\x01\x02" or at > len(directory):
            raise invalid_archive("the central directory is damaged")
        if flags & ~_KNOWN_FLAGS or method not in {_STORED, _DEFLATED}:
            raise invalid_archive("an entry is encrypted, or compressed by an unsupported method")
        entry = _parse_zip_entry(name, size=size, mode=fields[15] >> 16)
        yield _ZipRecord(entry, name, flags, method, crc, packed, start=fields[16])


def _parse_zip_entry(raw: bytes, *, size: int, mode: int) -> ArchiveEntry:
    try:
        name = raw.decode()
    except UnicodeDecodeError as exc:
        raise invalid_archive("a file name is not UTF-8") from exc
    is_directory = name.endswith("/")
    if stat.S_IFMT(mode) not in {0, stat.S_IFDIR if is_directory else stat.S_IFREG}:
        raise invalid_archive(f"`{describe_name(name)}` is neither a file nor a directory")
    path = entries.parse_path(name)
    if is_directory and size:
        raise invalid_archive(f"the directory `{describe_name(name)}` has content")
    if not is_directory and not path:
        raise invalid_archive("a file has no name")
    if size > MAX_UNPACKED_BYTES:
        raise entries.archive_too_large(f"it unpacks to more than {MAX_UNPACKED_BYTES:,} bytes")
    return ArchiveEntry(path=path, size=size, is_directory=is_directory, is_executable=bool(mode & 0o100))


def _check_local_header(source: BinaryIO, record: _ZipRecord) -> int:
    """The length of the entry's local header, which must equal the directory's."""
    header = source.read(_LOCAL.size)
    if len(header) < _LOCAL.size:
        raise invalid_archive("it is truncated")
    signature, _, flags, method, _, _, *sizes, name_length, extra_length = _LOCAL.unpack(header)
    expected = [record.crc, record.packed, record.entry.size]
    has_sizes = sizes == expected or (flags & _HAS_DESCRIPTOR and not any(sizes))
    is_same = (signature, flags, method) == (b"PK\x03\x04", record.flags, record.method)
    if not (is_same and has_sizes and source.read(name_length) == record.name):
        name = describe_name(record.entry.path)
        raise invalid_archive(f"`{name}` differs between the central directory and its local header")
    return source.seek(extra_length, os.SEEK_CUR) - record.start


def _read_zip_content(source: BinaryIO, record: _ZipRecord) -> Iterator[bytes]:
    """The unpacked content of an entry, which must have the declared size and checksum."""
    crc, left = 0, record.entry.size
    pieces = _read_pieces(source.read, record.packed)
    for piece in pieces if record.method == _STORED else _inflate(pieces):
        crc = zlib.crc32(piece, crc)
        left -= len(piece)
        if left < 0:
            break
        yield piece
    if left or crc != record.crc:
        raise invalid_archive(f"`{describe_name(record.entry.path)}` differs from its size or checksum")


def _inflate(pieces: Iterator[bytes]) -> Iterator[bytes]:
    inflate = zlib.decompressobj(wbits=-zlib.MAX_WBITS)
    packed = b""
    while not inflate.eof:
        packed = inflate.unconsumed_tail or next(pieces, b"")
        try:
            content = inflate.decompress(packed, entries.CHUNK_BYTES)
        except zlib.error as exc:
            raise invalid_archive("an entry is damaged") from exc
        if content:
            yield content
        elif not packed:
            break
    if not inflate.eof or inflate.unused_data or next(pieces, None) is not None:
        raise invalid_archive("an entry is damaged")


def _check_descriptor(source: BinaryIO, record: _ZipRecord) -> int:
    """The length of the data descriptor after an entry's content, which must repeat its sizes."""
    if not record.flags & _HAS_DESCRIPTOR:
        return 0
    expected = _DESCRIPTOR.pack(record.crc, record.packed, record.entry.size)
    found = source.read(len(_DESCRIPTOR_SIGNATURE + expected))
    if found == _DESCRIPTOR_SIGNATURE + expected:
        return len(found)
    if found.startswith(expected):
        return len(expected)
    name = describe_name(record.entry.path)
    raise invalid_archive(f"`{name}` differs between the central directory and its data descriptor")
