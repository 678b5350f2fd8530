"""The files of one log: the one that is written to, and those before it, `.1` the newest of them."""

import os
import re
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import BinaryIO, Final

_ATTEMPTS: Final = 20
_TAIL_BYTES: Final = 64 * 1024
_HEAD_BYTES: Final = 512 * 1024
_NUMBER: Final = re.compile(rb'\{"seq":([0-9]{1,16})[,}]')


def rotated(path: Path, age: int = 1) -> Path:
    """Where the lines are that were in `path` before it was begun anew `age` times."""
    return path.with_name(f"{path.name}.{age}")


def age_of(path: Path, file: Path) -> int:
    """How often `path` was begun anew since `file` was it."""
    return 0 if file == path else int(file.name.removeprefix(f"{path.name}."))


def number_of(line: bytes) -> int:
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
    return [*newest, *(rotated(path, age) for age in sorted(ages))]


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


def shift_files(path: Path, *, keep: int | None = None) -> None:
    """Move each file on by one age, so that a new one can begin; those beyond `keep` are removed."""
    # The oldest first: a crash in between leaves a gap in the row, and none is written over.
    for file in reversed(list_files(path)):
        age = age_of(path, file) + 1
        if keep is not None and age > keep:
            file.unlink()
        else:
            file.replace(rotated(path, age))


def last_number(file: BinaryIO) -> int:
    """The newest number in a file; 0 where there is none."""
    file.seek(max(0, os.fstat(file.fileno()).st_size - _TAIL_BYTES))
    whole = file.read().rpartition(b"\n")[0]
    numbers = map(number_of, reversed(whole.split(b"\n")))
    return next(filter(None, numbers), 0)


def first_number(file: BinaryIO) -> int:
    """The number of the first line; 0 where it has none."""
    file.seek(0)
    return number_of(file.readline(_HEAD_BYTES))
