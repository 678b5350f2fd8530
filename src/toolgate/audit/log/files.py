"""The files of an audit log and their lines: events as JSON, their number first, and seals.

A seal follows each batch of lines. It covers the batch and, by the digest of the previous seal, everything
before. Changing, removing or reordering a line breaks this chain. Rewriting the whole chain does not: to
detect that, keep the digest of a seal elsewhere.

Lines from a file are never trusted: each is parsed strictly, or skipped.

`<name>` is the file being written; `<name>.1` is the newest before it. Files are read by number while they
are written and rotated. Their names are not trusted: files may have been renamed or copied, so the numbers of
their lines count. Reading blocks: only in threads.
"""

import hashlib
import os
import re
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from threading import Lock
from typing import BinaryIO, Final, NamedTuple

import msgspec

from toolgate.audit.events import AuditEvent, CallStarted

MAX_LINE_BYTES: Final = 16 * 1024  # the largest event, a scope with all its lists full, has about 12 kB
GENESIS: Final = "0" * 64  # the digest before the first seal of a log
MAX_CHUNK_LINES: Final = 1_000  # as many as the control plane takes from a node at once
CHUNK_BYTES: Final = 512 * 1024  # read at a time, and at most delivered at a time
_ATTEMPTS: Final = 20  # generous: an attempt fails only if the log is rotated meanwhile, once in 64 MiB
_TAIL_BYTES: Final = 64 * 1024  # four of the longest lines, so at least one is complete
_HEAD_BYTES: Final = 512 * 1024  # a chunk: only a damaged file has no line end in it
_CALL_FIELDS: Final = b'"door":'
_NUMBER: Final = re.compile(rb'\{"seq":([0-9]{1,16})[,}]')
_SEQ: Final = re.compile(rb'\{"seq":([1-9][0-9]{0,14}),')
_NOT_FOLLOWED: Final = re.compile(rb'\{"seq":[0-9]{1,16},"type":"(?:start|seal)"')
_SEAL: Final = re.compile(
    rb'\{"seq":(0|[1-9][0-9]{0,15}),"type":"seal","prev":"([0-9a-f]{64})","sha256":"([0-9a-f]{64})",'
    rb'"of":([1-9][0-9]{0,15})\}'
)
_SEAL_TYPE: Final = b',"type":"seal",'
_STEP_BYTES: Final = 64 * 1024  # most batches are shorter, and each has a seal; further steps grow by eight
_encode = msgspec.json.Encoder().encode
decode_event = msgspec.json.Decoder(AuditEvent).decode


class AuditLine(NamedTuple):
    """An event and its number."""

    seq: int
    event: AuditEvent


class LineBatch(NamedTuple):
    """A piece of a log: all lines after one number, up to another."""

    after: int
    upto: int
    lines: Sequence[AuditLine]


class EncodedLines(NamedTuple):
    """Consecutive lines in the form of the file."""

    text: bytes | memoryview
    of: int
    """The number of lines, at least one."""
    upto: int
    """The number of the last line."""


class Seal(NamedTuple):
    """Covers the lines since the previous seal."""

    upto: int
    """The number of the last line."""
    prev: str
    """The digest of the previous seal."""
    sha256: str
    """The digest of `prev` and the bytes of the lines."""
    of: int
    """The number of lines."""


class SealState(NamedTuple):
    """How far a file is sealed."""

    seal: Seal | None
    """Its last seal."""
    rest: bytes
    """The complete lines after it."""


def encode_line(seq: int, event: AuditEvent) -> bytes:
    return b'{"seq":%d,%b\n' % (seq, _encode(event)[1:])


def join_lines(lines: Sequence[bytes]) -> EncodedLines:
    """Join at least one line, each with its end and its number."""
    return EncodedLines(b"".join(lines), len(lines), parse_number(lines[-1]))


def encode_call_fields(event: CallStarted) -> bytes:
    """The members of a call's start that its end repeats, with the closing brace."""
    text = _encode(event)
    return text[text.index(_CALL_FIELDS) :]


def is_followed(raw: bytes) -> bool:
    """Whether followers get this line. Starts of calls and seals stay in the log."""
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


def parse_lines(lines: Sequence[bytes], *, after: int, upto: int) -> LineBatch:
    """The valid lines between two numbers, in order."""
    found, newest = [], after
    for raw in lines:
        line = parse_line(raw)
        if line is not None and newest < line.seq <= upto:
            found.append(line)
            newest = line.seq
    return LineBatch(after, upto, found)


def make_seal(prev: str, lines: EncodedLines) -> Seal:
    return Seal(lines.upto, prev, compute_digest(prev, lines.text), lines.of)


def compute_digest(prev: str, lines: bytes | memoryview) -> str:
    digest = hashlib.sha256(prev.encode())
    digest.update(lines)
    return digest.hexdigest()


def encode_seal(seal: Seal) -> bytes:
    """The seal as a line. It has no number of its own: `seq` is the number of the line before it."""
    digests = seal.prev.encode(), seal.sha256.encode()
    return b'{"seq":%d,"type":"seal","prev":"%b","sha256":"%b","of":%d}\n' % (seal.upto, *digests, seal.of)


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
        # The first line of a piece may be incomplete, and its end may look like a seal.
        seal = parse_seal(text[start:end]) if start or is_whole else None
        if seal is not None:
            return SealState(seal, text[end + 1 : whole])
        seen = text.rfind(_SEAL_TYPE, 0, start)
    return SealState(None, text[:whole])


def rotated_path(path: Path, age: int = 1) -> Path:
    """The name of `path` after `age` rotations."""
    return path.with_name(f"{path.name}.{age}")


def list_files(path: Path) -> Sequence[Path]:
    """The files of the log, the newest first."""
    ages = [
        int(age)
        for file in path.parent.glob(f"{path.name}.*")
        if (age := file.name.removeprefix(f"{path.name}.")).isdecimal() and len(age) < 5
    ]
    newest = [path] if path.exists() else []
    return [*newest, *(rotated_path(path, age) for age in sorted(ages))]


def open_files(path: Path) -> Sequence[BinaryIO]:
    """The files of the log at one moment, the newest first. Raises OSError."""
    for _ in range(_ATTEMPTS):
        seen = _identify(path)
        with ExitStack() as opened:
            try:
                files = [opened.enter_context(file.open("rb")) for file, _ in seen]
            except FileNotFoundError:
                continue
            # A rotation meanwhile would list one file twice and omit another.
            if _identify(path) == seen:
                opened.pop_all()
                return files
    raise OSError(f"cannot read the files of `{path}`: they are rotated too often")


def _identify(path: Path) -> Sequence[tuple[Path, int]]:
    found = []
    for file in list_files(path):
        try:
            found.append((file, file.stat().st_ino))
        except FileNotFoundError:
            continue
    return found


@contextmanager
def _opened(path: Path) -> Iterator[Sequence[BinaryIO]]:
    with ExitStack() as opened:
        yield [opened.enter_context(file) for file in open_files(path)]


def last_sequence(path: Path) -> int:
    """The highest number in any file of the log; 0 without one. Raises OSError."""
    with _opened(path) as files:
        return max(map(last_number, files), default=0)


def is_misplaced(path: Path) -> bool:
    """Whether `path` is not the newest file by its numbers: files were renamed, swapped or copied."""
    with _opened(path) as files:
        if not files or Path(files[0].name) != path:
            return False
        newest, *older = files
        return 0 < first_number(newest) <= max(map(last_number, older), default=0)


def rotate_files(path: Path, *, keep: int | None = None) -> None:
    """Rename each file to the next age, so that a new one can begin. Files beyond `keep` are removed."""
    # The oldest first: a crash in between leaves a gap in the ages but overwrites nothing.
    for file in reversed(list_files(path)):
        age = 1 if file == path else int(file.name.removeprefix(f"{path.name}.")) + 1
        if keep is not None and age > keep:
            file.unlink()
        else:
            file.replace(rotated_path(path, age))


def last_number(file: BinaryIO) -> int:
    """The number of the last line; 0 without one."""
    file.seek(max(0, os.fstat(file.fileno()).st_size - _TAIL_BYTES))
    whole = file.read().rpartition(b"\n")[0]
    return next(filter(None, map(parse_number, reversed(whole.split(b"\n")))), 0)


def first_number(file: BinaryIO) -> int:
    """The number of the first line; 0 without one."""
    file.seek(0)
    return parse_number(file.readline(_HEAD_BYTES))


class LogChunk(NamedTuple):
    """A piece of the log: all lines after one number, up to another."""

    after: int
    upto: int
    """The number of the last line, or `after`."""
    lines: list[bytes]
    """Without their line ends, in order."""


class LogTail:
    """One reader of the log at `path`. Reads that continue where the last one ended keep the file open."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file: BinaryIO | None = None
        self._after = 0
        self._lock = Lock()
        """A thread continues after its task was cancelled, and may overlap with the next one."""

    def read(self, after: int) -> LogChunk:
        """The next lines with numbers above `after`. Raises OSError."""
        with self._lock:
            if self._file is None or after != self._after:
                self._seek(after)
            chunk = self._read_chunk(after)
            if not chunk.lines and self._has_moved():
                self._seek(after)
                chunk = self._read_chunk(after)
            self._after = chunk.upto
            return chunk

    def close(self) -> None:
        with self._lock:
            self._close()

    def _close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None

    def _seek(self, after: int) -> None:
        """Open the file with the line after `after`: an older file if newer ones begin later."""
        self._close()
        files, chosen = open_files(self._path), None
        for file in files:
            if chosen is None or (not 0 < first_number(chosen) <= after + 1 and last_number(file) > after):
                chosen = file
        for file in files:
            if file is not chosen:
                file.close()
        if chosen is not None:
            chosen.seek(0)
        self._file = chosen

    def _read_chunk(self, after: int) -> LogChunk:
        lines: list[bytes] = []
        file, upto = self._file, after
        while file is not None and not lines:
            start = file.tell()
            whole, is_ended, _torn = file.read(CHUNK_BYTES).rpartition(b"\n")
            if not is_ended:
                file.seek(start)
                break
            used = 0
            for line in whole.split(b"\n"):
                if len(lines) == MAX_CHUNK_LINES:
                    break
                used += len(line) + 1
                # Nearly every line has the next number. Comparing a prefix is faster than parsing it.
                is_next = line.startswith(b'{"seq":%d,' % (upto + 1))
                number = upto + 1 if is_next else parse_number(line)
                if number > upto:
                    lines.append(line)
                    upto = number
            file.seek(start + used)
        return LogChunk(after, upto, lines)

    def _has_moved(self) -> bool:
        """Whether the next lines are in another file, or at the start of this one. The latter happens after
        something like logrotate with `copytruncate` has emptied it."""
        try:
            now = self._path.stat()
        except FileNotFoundError:
            return False
        if self._file is None:
            return True
        return os.fstat(self._file.fileno()).st_ino != now.st_ino or now.st_size < self._file.tell()
