"""Events as lines of a log: JSON, the sequence first. What is read is looked at before it is believed."""

import re
from collections.abc import Sequence
from typing import Final, NamedTuple

import msgspec

from toolgate.audit.events import AuditEvent, CallStarted
from toolgate.audit.log.files import number_of

MAX_LINE_BYTES: Final = 16 * 1024


class Line(NamedTuple):
    """One event and its number."""

    seq: int
    event: AuditEvent


class Batch(NamedTuple):
    """A piece of a log. Whoever has all up to `after` has all up to `upto` with it."""

    after: int
    upto: int
    lines: Sequence[Line]


class Written(NamedTuple):
    """Lines as a file has them, one after the other, each with its end."""

    text: bytes | memoryview
    of: int
    """How many they are: one at least."""
    upto: int
    """The number of the last of them."""


_SAME: Final = b'"door":'
_SEQ: Final = re.compile(rb'\{"seq":([1-9][0-9]{0,14}),')
_UNTOLD: Final = re.compile(rb'\{"seq":[0-9]{1,16},"type":"(?:start|seal)"')
_encode = msgspec.json.Encoder().encode
_decode_event = msgspec.json.Decoder(AuditEvent).decode


def encode_line(seq: int, event: AuditEvent) -> bytes:
    """With its end."""
    return b'{"seq":%d,%b\n' % (seq, _encode(event)[1:])


def join_lines(lines: Sequence[bytes]) -> Written:
    """`lines`, each with its end and its number: one at least."""
    return Written(b"".join(lines), len(lines), number_of(lines[-1]))


def encode_said(event: CallStarted) -> bytes:
    """What a start says that the end of its call says as well, with the last brace."""
    text = _encode(event)
    return text[text.index(_SAME) :]


def encode_body(event: AuditEvent) -> str:
    """The event alone."""
    return _encode(event).decode()


def decode_body(body: str) -> AuditEvent:
    """What `encode_body` made."""
    event: AuditEvent = _decode_event(body)
    return event


def is_told(raw: bytes) -> bool:
    """Whether a line is for those who follow the log: that a call began, and seals, are for the log alone."""
    return _UNTOLD.match(raw) is None


def parse_line(raw: bytes) -> Line | None:
    """The event in a line; None where it is damaged, or of a type or size that is not known here."""
    if len(raw) > MAX_LINE_BYTES:
        return None
    number = _SEQ.match(raw)
    try:
        return None if number is None else Line(int(number[1]), _decode_event(raw))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
