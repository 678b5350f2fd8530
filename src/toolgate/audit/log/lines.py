"""Events as lines of a log: JSON, the sequence first. What is read is looked at before it is believed.

Seals: after each batch of lines one that vouches for them and for all before, by a chain of digests.

Whoever changes, removes or reorders a line breaks the chain there. Whoever writes all of it again does not:
against that, a seal must be known elsewhere.
"""

import hashlib
import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Final, NamedTuple

import msgspec

from toolgate.audit.events import AuditEvent, CallStarted
from toolgate.audit.log.files import parse_number

MAX_LINE_BYTES: Final = 16 * 1024


class AuditLine(NamedTuple):
    """One event and its number."""

    seq: int
    event: AuditEvent


class LineBatch(NamedTuple):
    """A piece of a log. Whoever has all up to `after` has all up to `upto` with it."""

    after: int
    upto: int
    lines: Sequence[AuditLine]


class EncodedLines(NamedTuple):
    """Lines as a file has them, one after the other, each with its end."""

    text: bytes | memoryview
    of: int
    """How many they are: one at least."""
    upto: int
    """The number of the last of them."""


_CALL_FIELDS: Final = b'"door":'
_SEQ: Final = re.compile(rb'\{"seq":([1-9][0-9]{0,14}),')
_NOT_FOLLOWED: Final = re.compile(rb'\{"seq":[0-9]{1,16},"type":"(?:start|seal)"')
_encode = msgspec.json.Encoder().encode
_decode_event = msgspec.json.Decoder(AuditEvent).decode


def encode_line(seq: int, event: AuditEvent) -> bytes:
    """With its end."""
    return b'{"seq":%d,%b\n' % (seq, _encode(event)[1:])


def join_lines(lines: Sequence[bytes]) -> EncodedLines:
    """`lines`, each with its end and its number: one at least."""
    return EncodedLines(b"".join(lines), len(lines), parse_number(lines[-1]))


def encode_call_fields(event: CallStarted) -> bytes:
    """What a start says that the end of its call says as well, with the last brace."""
    text = _encode(event)
    return text[text.index(_CALL_FIELDS) :]


def encode_body(event: AuditEvent) -> str:
    """The event alone."""
    return _encode(event).decode()


def decode_body(body: str) -> AuditEvent:
    """What `encode_body` made."""
    event: AuditEvent = _decode_event(body)
    return event


def is_followed(raw: bytes) -> bool:
    """Whether a line is for those who follow the log: that a call began, and seals, are for the log alone."""
    return _NOT_FOLLOWED.match(raw) is None


def parse_line(raw: bytes) -> AuditLine | None:
    """The event in a line; None where it is damaged, or of a type or size that is not known here."""
    if len(raw) > MAX_LINE_BYTES:
        return None
    number = _SEQ.match(raw)
    try:
        return None if number is None else AuditLine(int(number[1]), _decode_event(raw))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


GENESIS: Final = "0" * 64
"""What the first seal of a log follows."""

_SEAL: Final = re.compile(
    rb'\{"seq":(0|[1-9][0-9]{0,15}),"type":"seal","prev":"([0-9a-f]{64})","sha256":"([0-9a-f]{64})",'
    rb'"of":([1-9][0-9]{0,15})\}'
)
_MARK: Final = b',"type":"seal",'
_STEP_BYTES: Final = 64 * 1024


class Seal(NamedTuple):
    """Vouches for the lines since the seal before it."""

    upto: int
    """The number of the last of them."""
    prev: str
    """The digest of the seal before it."""
    sha256: str
    """Over that, as text, and those lines, as bytes with their ends."""
    of: int
    """How many they are."""


class SealState(NamedTuple):
    """How far a file is sealed."""

    seal: Seal | None
    """Its last one."""
    rest: bytes
    """What comes after it, whole lines only."""


def make_seal(prev: str, lines: EncodedLines) -> Seal:
    """The seal for `lines`."""
    return Seal(lines.upto, prev, compute_digest(prev, lines.text), lines.of)


def compute_digest(prev: str, lines: bytes | memoryview) -> str:
    """What a seal says of its lines."""
    digest = hashlib.sha256(prev.encode())
    digest.update(lines)
    return digest.hexdigest()


def encode_seal(seal: Seal) -> bytes:
    """As a line. It has no number of its own: `seq` is that of the last line before it."""
    return b'{"seq":%d,"type":"seal","prev":"%b","sha256":"%b","of":%d}\n' % (
        seal.upto,
        seal.prev.encode(),
        seal.sha256.encode(),
        seal.of,
    )


def parse_seal(line: bytes) -> Seal | None:
    """The seal in a line without its end. None: it is none, or not exactly as one is written."""
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
    seen = text.rfind(_MARK, 0, whole)
    while seen >= 0:
        start, end = text.rfind(b"\n", 0, seen) + 1, text.find(b"\n", seen)
        # The first line of a piece is not whole, and its end may look like a seal.
        seal = parse_seal(text[start:end]) if start or is_whole else None
        if seal is not None:
            return SealState(seal, text[end + 1 : whole])
        seen = text.rfind(_MARK, 0, start)
    return SealState(None, text[:whole])
