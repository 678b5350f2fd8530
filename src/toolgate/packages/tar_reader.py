"""Reads gzipped tar archives of strangers, front to back, with no more in memory than one piece of them.

Not `tarfile`: that reads a header as long as it says it is, follows every extension there ever was, and
takes names from three places. Here an extension is bounded, of the few that name an ordinary file, and
whatever else an archive says of an entry is refused or means nothing.
"""

import re
import zlib
from collections import deque
from collections.abc import Iterator
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

MAX_EXTENSION_BYTES: Final = 8 * 1024
"""Of one extended header: room for a path at its limit, and for times and owners beside it."""

_MAX_RECORDS: Final = 32
_BLOCK: Final = 512
_END: Final = bytes(_BLOCK)
_MAX_PADDING: Final = 1024 * 1024
"""Zeros after the end. Some programs fill up whole tape records."""
_MAX_STREAM: Final = MAX_UNPACKED_BYTES + MAX_FILES * 4 * _BLOCK + _MAX_PADDING
_MAGICS: Final = {b"ustar\x0000": True, b"ustar  \x00": False}
"""POSIX and GNU, and whether there is the rest of a long name in the header's prefix."""
_OCTAL: Final = re.compile(rb"[0-7]{1,12}")
_RECORD: Final = re.compile(rb"([1-9][0-9]{0,5}) ([^=\n]{1,100})=")
_LONG_NAMES: Final = frozenset({b"x", b"L"})
"""An extended header, as POSIX has it and as GNU does."""
_KINDS: Final = {
    b"1": "a hard link",
    b"2": "a symbolic link",
    b"3": "a device",
    b"4": "a device",
    b"6": "a FIFO",
}
# What would say something else of the file than its own header does. Times, owners and the like may stand
# there, and are not looked at.
_REFUSED_RECORDS: Final = frozenset({b"size", b"linkpath", b"hdrcharset", b"charset"})


def read_tar(source: BinaryIO) -> Iterator[ArchiveMember]:
    """The entries of a gzipped tar, in its order. Raises InvalidRecord and BodyTooLarge."""
    stream = _Gunzip(source)
    is_first = True
    while (block := stream.read_exactly(_BLOCK)) != _END:
        header = _Header(block)
        if header.kind == b"g" and is_first:
            # What `git archive` begins with: the commit, as a comment.
            _check_global(_extension(stream, header))
        else:
            yield from _member(stream, header)
        is_first = False
    stream.expect_end()


def _member(stream: "_Gunzip", header: "_Header") -> Iterator[ArchiveMember]:
    """The entry that begins with `header`, or with an extension that gives it its name."""
    name = None
    if header.kind in _LONG_NAMES:
        extension = _extension(stream, header)
        is_pax = header.kind == b"x"
        name = _pax_records(extension).get(b"path") if is_pax else extension.removesuffix(b"\0")
        header = _Header(stream.read_exactly(_BLOCK))
    entry = _entry(header, _decode(header.name if name is None else name))
    content = _content(stream, entry.size)
    yield entry, content
    deque(content, maxlen=0)


class _Header:
    """The fields of one header block that are looked at."""

    def __init__(self, block: bytes) -> None:
        if block[257:265] not in _MAGICS:
            raise invalid_archive("it is no tar archive, or a damaged one")
        summed = sum(block) - sum(block[148:156]) + 8 * 0x20
        if _number(block[148:156]) != summed:
            raise invalid_archive("a header of it is damaged")
        self.kind = block[156:157]
        self.mode = _number(block[100:108])
        self.size = _number(block[124:136])
        name, prefix = _text(block[:100]), _text(block[345:500])
        self.name = prefix + b"/" + name if prefix and _MAGICS[block[257:265]] else name


class _Gunzip:
    """What one member of gzip unpacks to, as it is asked for."""

    def __init__(self, source: BinaryIO) -> None:
        self._source = source
        self._inflate = zlib.decompressobj(wbits=16 + zlib.MAX_WBITS)
        self._left = _MAX_STREAM

    def read(self, size: int) -> bytes:
        """From 1 to `size` bytes; none at the end."""
        while not self._inflate.eof:
            packed = self._inflate.unconsumed_tail or self._source.read(CHUNK_BYTES)
            try:
                content = self._inflate.decompress(packed, size)
            except zlib.error as exc:
                raise invalid_archive("it is not gzip, or damaged") from exc
            if content:
                self._left -= len(content)
                if self._left < 0:
                    raise archive_too_large(f"it unpacks to more than {MAX_UNPACKED_BYTES:,} bytes")
                return content
            if not packed and not self._inflate.eof:
                raise invalid_archive("it breaks off")
        return b""

    def read_exactly(self, size: int) -> bytes:
        """`size` bytes, which must be there."""
        return b"".join(self.pieces(size))

    def pieces(self, size: int) -> Iterator[bytes]:
        """`size` bytes, which must be there, a piece at a time."""
        while size:
            piece = self.read(min(size, CHUNK_BYTES))
            if not piece:
                raise invalid_archive("it breaks off")
            size -= len(piece)
            yield piece

    def expect_end(self) -> None:
        """Nothing may follow but zeros: another reader might find an archive there."""
        left = _MAX_PADDING
        while padding := self.read(CHUNK_BYTES):
            left -= len(padding)
            if left < 0 or padding.strip(b"\0"):
                raise invalid_archive("there is something behind its end")
        if self._inflate.unused_data or self._source.read(1):
            raise invalid_archive("there is something behind its end")


def _content(stream: _Gunzip, size: int) -> Iterator[bytes]:
    yield from stream.pieces(size)
    stream.read_exactly(-size % _BLOCK)


def _entry(header: _Header, name: str) -> ArchiveEntry:
    match header.kind:
        case b"0" | b"\0" if not name.endswith("/"):
            path = parse_path(name)
            if not path:
                raise invalid_archive("a file of it has no name")
            return ArchiveEntry(path=path, size=header.size, is_executable=bool(header.mode & 0o100))
        case b"5" if header.size == 0:
            return ArchiveEntry(path=parse_path(name), is_directory=True)
    kind = _KINDS.get(header.kind, "neither a file nor a directory")
    raise invalid_archive(f"`{describe_name(name)}` is {kind}")


def _extension(stream: _Gunzip, header: _Header) -> bytes:
    if header.size > MAX_EXTENSION_BYTES:
        raise archive_too_large(f"it has a header of more than {MAX_EXTENSION_BYTES:,} bytes")
    return b"".join(_content(stream, header.size))


def _check_global(content: bytes) -> None:
    if b"path" in _pax_records(content):
        raise invalid_archive("it gives all its entries one name")


def _pax_records(content: bytes) -> dict[bytes, bytes]:
    """`<length> <key>=<value>\\n`, over and over."""
    records: dict[bytes, bytes] = {}
    at = 0
    while at < len(content):
        match = _RECORD.match(content, at)
        end = at + int(match[1]) if match else 0
        if match is None or not match.end() < end <= len(content) or content[end - 1 : end] != b"\n":
            raise invalid_archive("an extended header of it is damaged")
        key = match[2]
        if key in _REFUSED_RECORDS or key.startswith(b"GNU.sparse") or key in records:
            raise invalid_archive(f"an extended header of it holds `{describe_name(_decode(key))}`")
        records[key] = content[match.end() : end - 1]
        if len(records) > _MAX_RECORDS:
            raise invalid_archive(f"an extended header of it holds more than {_MAX_RECORDS} records")
        at = end
    return records


def _number(field: bytes) -> int:
    digits = field.strip(b"\0 ")
    if not _OCTAL.fullmatch(digits):
        raise invalid_archive("a header of it is damaged, or has a number past all limits")
    return int(digits, 8)


def _text(field: bytes) -> bytes:
    return field.partition(b"\0")[0]


def _decode(name: bytes) -> str:
    try:
        return name.decode()
    except UnicodeDecodeError as exc:
        raise invalid_archive("a name in it is not UTF-8") from exc
