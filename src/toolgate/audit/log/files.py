"""The files of one log: the one that is written to, and those before it, `.1` the newest of them.

Reads a log that is being written, by sequence, over its rotation. Only in threads: it blocks.
"""

import os
import re
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from threading import Lock
from typing import BinaryIO, Final, NamedTuple

_ATTEMPTS: Final = 20
_TAIL_BYTES: Final = 64 * 1024
_HEAD_BYTES: Final = 512 * 1024
_NUMBER: Final = re.compile(rb'\{"seq":([0-9]{1,16})[,}]')


def rotated_path(path: Path, age: int = 1) -> Path:
    """Where the lines are that were in `path` before it was begun anew `age` times."""
    return path.with_name(f"{path.name}.{age}")


def rotation_age(path: Path, file: Path) -> int:
    """How often `path` was begun anew since `file` was it."""
    return 0 if file == path else int(file.name.removeprefix(f"{path.name}."))


def parse_number(line: bytes) -> int:
    """The number of a line; 0 where it has none."""
    found = _NUMBER.match(line)
    return 0 if found is None else int(found[1])


def list_files(path: Path) -> Sequence[Path]:
    """Those there are, the newest first."""
    ages = [
        int(age)
        for file in path.parent.glob(f"{path.name}.*")
        if (age := file.name.removeprefix(f"{path.name}.")).isdecimal() and len(age) < 5
    ]
    newest = [path] if path.exists() else []
    return [*newest, *(rotated_path(path, age) for age in sorted(ages))]


def open_files(path: Path) -> Sequence[BinaryIO]:
    """Those there are, the newest first, as they were at one moment. Raises OSError."""
    for _ in range(_ATTEMPTS):
        seen = _identify(path)
        with ExitStack() as opened:
            try:
                files = [opened.enter_context(file.open("rb")) for file, _ in seen]
            except FileNotFoundError:
                continue
            # They may move on while they are opened: then one is here twice, and another is not.
            if _identify(path) == seen:
                opened.pop_all()
                return files
    raise OSError(f"the files of `{path}` do not stay where they are")


def _identify(path: Path) -> Sequence[tuple[Path, int]]:
    found = []
    for file in list_files(path):
        try:
            found.append((file, file.stat().st_ino))
        except FileNotFoundError:
            continue
    return found


def open_after(path: Path, after: int) -> BinaryIO | None:
    """The file that has the line after `after`: an older one, where the newer begin later. Raises OSError."""
    files, chosen = open_files(path), None
    for file in files:
        if chosen is None or (not 0 < first_number(chosen) <= after + 1 and last_number(file) > after):
            chosen = file
    for file in files:
        if file is not chosen:
            file.close()
    if chosen is not None:
        chosen.seek(0)
    return chosen


def last_sequence(path: Path) -> int:
    """The newest number in a log, or 0: where it goes on. Names are not trusted: it may be in any file."""
    with ExitStack() as opened:
        files = [opened.enter_context(file) for file in open_files(path)]
        return max(map(last_number, files), default=0)


def is_misplaced(path: Path) -> bool:
    """Whether `path` is not the newest file by its numbers: files were renamed, swapped or copied."""
    with ExitStack() as opened:
        files = [opened.enter_context(file) for file in open_files(path)]
        if not files or Path(files[0].name) != path:
            return False
        newest, *older = files
        return 0 < first_number(newest) <= max(map(last_number, older), default=0)


def rotate_files(path: Path, *, keep: int | None = None) -> None:
    """Move each file on by one age, so that a new one can begin; those beyond `keep` are removed."""
    # The oldest first: a crash in between leaves a gap in the row, and none is written over.
    for file in reversed(list_files(path)):
        age = rotation_age(path, file) + 1
        if keep is not None and age > keep:
            file.unlink()
        else:
            file.replace(rotated_path(path, age))


def last_number(file: BinaryIO) -> int:
    """The newest number in a file; 0 where there is none."""
    file.seek(max(0, os.fstat(file.fileno()).st_size - _TAIL_BYTES))
    whole = file.read().rpartition(b"\n")[0]
    numbers = map(parse_number, reversed(whole.split(b"\n")))
    return next(filter(None, numbers), 0)


def first_number(file: BinaryIO) -> int:
    """The number of the first line; 0 where it has none."""
    file.seek(0)
    return parse_number(file.readline(_HEAD_BYTES))


MAX_CHUNK_LINES: Final = 1_000
CHUNK_BYTES: Final = 512 * 1024
"""Read at a time; and the most that is handed on at a time."""


class LogChunk(NamedTuple):
    """A piece of the log: all there is after one number, up to another."""

    after: int
    upto: int
    """The number of the last line; where there is none, as `after`."""
    lines: list[bytes]
    """Without their ends, in order."""


class LogTail:
    """One reader of the log at `path`. It keeps its place for a read that goes on where the last ended."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file: BinaryIO | None = None
        self._after = 0
        self._turn = Lock()
        """A thread goes on when whoever waited for it was cancelled, and may meet the next one."""

    def read(self, after: int) -> LogChunk:
        """The next lines with numbers above `after`. Raises OSError."""
        with self._turn:
            return self._read(after)

    def close(self) -> None:
        """Idempotent."""
        with self._turn:
            self._close()

    def _read(self, after: int) -> LogChunk:
        if self._file is None or after != self._after:
            self._seek(after)
        found = self._take(after)
        if not found.lines and self._has_moved():
            self._seek(after)
            found = self._take(after)
        self._after = found.upto
        return found

    def _close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None

    def _seek(self, after: int) -> None:
        self._close()
        self._file = open_after(self._path, after)

    def _take(self, after: int) -> LogChunk:
        lines: list[bytes] = []
        file, upto = self._file, after
        while file is not None and not lines:
            start = file.tell()
            chunk = file.read(CHUNK_BYTES)
            whole, is_ended, _torn = chunk.rpartition(b"\n")
            if not is_ended:
                file.seek(start)
                break
            used = 0
            for line in whole.split(b"\n"):
                if len(lines) == MAX_CHUNK_LINES:
                    break
                used += len(line) + 1
                # Nearly each is the one that follows, which is quicker to see than which one it is.
                is_next = line.startswith(b'{"seq":%d,' % (upto + 1))
                number = upto + 1 if is_next else parse_number(line)
                if number > upto:
                    lines.append(line)
                    upto = number
            file.seek(start + used)
        return LogChunk(after, upto, lines)

    def _has_moved(self) -> bool:
        """Whether the lines to come are in another file than the one that was read to its end.

        Or in this one before that: somebody else, such as logrotate with `copytruncate`, has emptied it.
        """
        try:
            now = self._path.stat()
        except FileNotFoundError:
            return False
        if self._file is None:
            return True
        return os.fstat(self._file.fileno()).st_ino != now.st_ino or now.st_size < self._file.tell()
