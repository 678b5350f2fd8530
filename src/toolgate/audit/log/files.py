"""The files of one log, and reading them by number while they are written and rotated.

`<name>` is the file that is written; `<name>.1` is the newest before it. Names are not trusted: files may
have been renamed or copied, so the numbers of their lines count. Reading blocks: only in threads.
"""

import os
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from threading import Lock
from typing import BinaryIO, Final, NamedTuple

from toolgate.audit.log.lines import parse_number

MAX_CHUNK_LINES: Final = 1_000
CHUNK_BYTES: Final = 512 * 1024
"""Read at a time, and at most delivered at a time."""
_ATTEMPTS: Final = 20
_TAIL_BYTES: Final = 64 * 1024
_HEAD_BYTES: Final = 512 * 1024


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
    """The files of the log as they were at one moment, the newest first. Raises OSError."""
    for _ in range(_ATTEMPTS):
        seen = _identify(path)
        with ExitStack() as opened:
            try:
                files = [opened.enter_context(file.open("rb")) for file, _ in seen]
            except FileNotFoundError:
                continue
            # A rotation meanwhile would leave one file twice in the list, and another out of it.
            if _identify(path) == seen:
                opened.pop_all()
                return files
    raise OSError(f"the files of `{path}` are rotated too often to be read")


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
    """Rename each file to the next age, so that a new one can begin. Those beyond `keep` are removed."""
    # The oldest first: a crash in between leaves a gap in the ages, and overwrites nothing.
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
    """Without their ends, in order."""


class LogTail:
    """One reader of the log at `path`. Reads that continue where the last one ended keep the file open."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file: BinaryIO | None = None
        self._after = 0
        self._lock = Lock()
        """A thread continues after its task was cancelled, and may meet the next one."""

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
        """Open the file that has the line after `after`: an older one if the newer begin later."""
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
        """Whether the next lines are in another file, or in this one from its start.

        The latter after something like logrotate with `copytruncate` has emptied it.
        """
        try:
            now = self._path.stat()
        except FileNotFoundError:
            return False
        if self._file is None:
            return True
        return os.fstat(self._file.fileno()).st_ino != now.st_ino or now.st_size < self._file.tell()
