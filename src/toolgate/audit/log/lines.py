"""The lines of an audit log: events as JSON, their number first, and seals.

After each batch of lines a seal vouches for them, and for all before by the digest of the seal before it.
Changing, removing or reordering a line breaks this chain. Rewriting the whole chain does not: to detect that,
keep the digest of a seal elsewhere.

Lines that are read are never trusted: each is parsed strictly, or skipped.
"""

import hashlib
import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Final, NamedTuple

import msgspec

from toolgate.audit.events import AuditEvent, CallStarted

MAX_LINE_BYTES: Final = 16 * 1024
"""The largest event, a scope with all its lists full, has about 12 kB."""
GENESIS: Final = "0" * 64
"""The digest that the first seal of a log follows."""

_CALL_FIELDS: Final = b'"door":'
_NUMBER: Final = re.compile(rb'\{"seq":([0-9]{1,16})[,}]')
_SEQ: Final = re.compile(rb'\{"seq":([1-9][0-9]{0,14}),')
_NOT_FOLLOWED: Final = re.compile(rb'\{"seq":[0-9]{1,16},"type":"(?:start|seal)"')
_SEAL: Final = re.compile(
    rb'\{"seq":(0|[1-9][0-9]{0,15}),"type":"seal","prev":"([0-9a-f]{64})","sha256":"([0-9a-f]{64})",'
    rb'"of":([1-9][0-9]{0,15})\}'
)
_SEAL_TYPE: Final = b',"type":"seal",'
_STEP_BYTES: Final = 64 * 1024
_encode = msgspec.json.Encoder().encode
decode_event = msgspec.json.Decoder(AuditEvent).decode


class AuditLine(NamedTuple):
    """One event and its number."""

    seq: int
    event: AuditEvent


class LineBatch(NamedTuple):
    """A piece of a log: all lines after one number, up to another."""

    after: int
    upto: int
    lines: Sequence[AuditLine]


class EncodedLines(NamedTuple):
    """Lines as a file holds them, one after the other."""

    text: bytes | memoryview
    of: int
    """The number of lines, at least one."""
    upto: int
    """The number of the last line."""


class Seal(NamedTuple):
    """Vouches for the lines since the seal before it."""

    upto: int
    """The number of the last line."""
    prev: str
    """The digest of the seal before it."""
    sha256: str
    """Over `prev` and the bytes of the lines."""
    of: int
    """The number of lines."""


class SealState(NamedTuple):
    """How far a file is sealed."""

    seal: Seal | None
    """Its last seal."""
    rest: bytes
    """The whole lines after it."""


def encode_line(seq: int, event: AuditEvent) -> bytes:
    return b'{"seq":%d,%b\n' % (seq, _encode(event)[1:])


def join_lines(lines: Sequence[bytes]) -> EncodedLines:
    """At least one line, each with its end and its number."""
    return EncodedLines(b"".join(lines), len(lines), parse_number(lines[-1]))


def encode_call_fields(event: CallStarted) -> bytes:
    """The members of a start that the end of its call repeats, with the closing brace."""
    text = _encode(event)
    return text[text.index(_CALL_FIELDS) :]


def is_followed(raw: bytes) -> bool:
    """Whether followers get this line. Starts of calls and seals are for the log alone."""
    return _NOT_FOLLOWED.match(raw) is None


def parse_number(line: bytes) -> int:
    found = _NUMBER.match(line)
    return 0 if found is None else int(found[1])


def parse_line(raw: bytes) -> AuditLine | None:
    """The event in a line; None if the line is damaged, too long or of an unknown type."""
    number = _SEQ.match(raw) if len(raw) <= MAX_LINE_BYTES else None
    try:
        return None if number is None else AuditLine(int(number[1]), decode_event(raw))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


def make_seal(prev: str, lines: EncodedLines) -> Seal:
    return Seal(lines.upto, prev, compute_digest(prev, lines.text), lines.of)


def compute_digest(prev: str, lines: bytes | memoryview) -> str:
    digest = hashlib.sha256(prev.encode())
    digest.update(lines)
    return digest.hexdigest()


def encode_seal(seal: Seal) -> bytes:
    """The seal as a line. It has no number of its own: `seq` is that of the line before it."""
    return b'{"seq":%d,"type":"seal","prev":"%b","sha256":"%b","of":%d}\n' % (
        seal.upto,
        seal.prev.encode(),
        seal.sha256.encode(),
        seal.of,
    )


def parse_seal(line: bytes) -> Seal | None:
    """The seal in a line without its end; None unless it is exactly as `encode_seal` writes it."""
    found = _SEAL.fullmatch(line)
    if found is None:
        return None
    upto, prev, sha256, of = found.groups()
    return Seal(int(upto), prev.decode(), sha256.decode(), int(of))


def find_last_seal(path: Path) -> SealState:
    """How far the file is sealed. Raises OSError."""
    with path.open("rb") as file:
        size, step = file.seek(0, os.SEEK_END), _STEP_BYTES
        while True:
            start = max(0, size - step)
            file.seek(start)
            found = _find_last_seal(file.read(size - start), is_whole=start == 0)
            if found.seal is not None or start == 0:
                return found
            step *= 8


def _find_last_seal(text: bytes, *, is_whole: bool) -> SealState:
    whole = text.rfind(b"\n") + 1
    seen = text.rfind(_SEAL_TYPE, 0, whole)
    while seen >= 0:
        start, end = text.rfind(b"\n", 0, seen) + 1, text.find(b"\n", seen)
        # The first line of a piece may be torn, and its end may look like a seal.
        seal = parse_seal(text[start:end]) if start or is_whole else None
        if seal is not None:
            return SealState(seal, text[end + 1 : whole])
        seen = text.rfind(_SEAL_TYPE, 0, start)
    return SealState(None, text[:whole])
