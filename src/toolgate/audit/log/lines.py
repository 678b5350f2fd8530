"""Seals: after each batch of lines one that vouches for them and for all before, by a chain of digests.

Whoever changes, removes or reorders a line breaks the chain there. Whoever writes all of it again does not:
against that, a seal must be known elsewhere.
"""

import hashlib
import os
import re
from pathlib import Path
from typing import Final, NamedTuple

from toolgate.audit.lines import Written

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


class Sealed(NamedTuple):
    """How far a file is sealed."""

    seal: Seal | None
    """Its last one."""
    rest: bytes
    """What comes after it, whole lines only."""


def make_seal(prev: str, lines: Written) -> Seal:
    """The seal for `lines`."""
    return Seal(lines.upto, prev, digest_of(prev, lines.text), lines.of)


def digest_of(prev: str, lines: bytes | memoryview) -> str:
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


def find_last_seal(path: Path) -> Sealed:
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


def _find_last_seal(text: bytes, *, is_whole: bool) -> Sealed:
    whole = text.rfind(b"\n") + 1
    seen = text.rfind(_MARK, 0, whole)
    while seen >= 0:
        start, end = text.rfind(b"\n", 0, seen) + 1, text.find(b"\n", seen)
        # The first line of a piece is not whole, and its end may look like a seal.
        seal = parse_seal(text[start:end]) if start or is_whole else None
        if seal is not None:
            return Sealed(seal, text[end + 1 : whole])
        seen = text.rfind(_MARK, 0, start)
    return Sealed(None, text[:whole])
