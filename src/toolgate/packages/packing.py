"""Which files of a directory belong into its package.

The directory is its author's own, so what is found is only looked at: what an archive may hold is checked
where it is written.
"""

import stat
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Final

from toolgate.catalog.members import shown
from toolgate.errors import InvalidRecord
from toolgate.packages.entries import Entry

IGNORE_NAME: Final = ".toolgateignore"
MAX_IGNORE_BYTES: Final = 64 * 1024
ALWAYS: Final = (
    ".git",
    ".hg",
    ".svn",
    "__pycache__",
    "*.pyc",
    ".venv",
    "node_modules/.cache",
    ".mypy_cache",
    ".pytest_cache",
    ".ruff_cache",
    ".toolgate*",
    ".env",
    ".env.*",
    ".DS_Store",
    ".idea",
    ".vscode",
    "*~",
    ".*.sw?",
)
"""Left out of every package: version control, caches, environments, secrets of developers, editors' files."""


@dataclass(frozen=True, slots=True)
class Pattern:
    """One line of an ignore file: a name anywhere, or, with a `/` inside, a path from the root."""

    text: str
    is_for_directories: bool = False

    def matches(self, path: str, *, is_directory: bool) -> bool:
        if self.is_for_directories and not is_directory:
            return False
        return fnmatchcase(path if "/" in self.text else path.rpartition("/")[2], self.text)


def gather(directory: Path) -> Iterator[tuple[Entry, Path]]:
    """The files of a directory in the order of their paths, without those that are to be left out.

    A link to a file in the directory is that file. Any other link, and what is no file, is InvalidRecord.
    """
    root = directory.resolve()
    patterns = (*DEFAULTS, *_own_patterns(root / IGNORE_NAME))
    return _walk(root, root, patterns)


def parse_ignore(text: str) -> tuple[Pattern, ...]:
    """The patterns of an ignore file: `*`, `?` and `[…]`, one to a line; `#` begins a comment."""
    lines = (line.strip() for line in text.splitlines())
    return tuple(_parse_line(line) for line in lines if line and not line.startswith("#"))


def _parse_line(line: str) -> Pattern:
    if line.startswith("!"):
        raise InvalidRecord(f"`{IGNORE_NAME}`: a line cannot begin with `!`: it names what to leave out")
    text = line.rstrip("/")
    # A path from the root may be written with or without a `/` before it; here it needs one inside.
    return Pattern(text.removeprefix("/") if "/" in text[1:] else text, is_for_directories=line.endswith("/"))


def _own_patterns(file: Path) -> tuple[Pattern, ...]:
    if not file.is_file():
        return ()
    if file.stat().st_size > MAX_IGNORE_BYTES:
        raise InvalidRecord(f"`{IGNORE_NAME}` is larger than {MAX_IGNORE_BYTES:,} bytes")
    return parse_ignore(file.read_text("utf-8", errors="replace"))


def _walk(root: Path, directory: Path, patterns: Sequence[Pattern]) -> Iterator[tuple[Entry, Path]]:
    for path in sorted(directory.iterdir()):
        place = path.relative_to(root).as_posix()
        is_directory = path.is_dir()
        if any(pattern.matches(place, is_directory=is_directory) for pattern in patterns):
            continue
        if is_directory and not path.is_symlink():
            yield from _walk(root, path, patterns)
        else:
            yield _file(root, path, place), path


def _file(root: Path, path: Path, place: str) -> Entry:
    try:
        target = path.resolve(strict=True)
        status = target.stat()
    except (OSError, RuntimeError) as exc:  # the latter, before Python 3.13, for links in a circle
        raise _unfit(place, "not to be found") from exc
    if not target.is_relative_to(root):
        raise _unfit(place, "a link that leads out of the directory")
    if not stat.S_ISREG(status.st_mode):
        raise _unfit(place, "a link to a directory" if path.is_symlink() else "no ordinary file")
    return Entry(path=place, size=status.st_size, is_executable=bool(status.st_mode & 0o100))


def _unfit(place: str, problem: str) -> InvalidRecord:
    return InvalidRecord(
        f"`{shown(place)}` cannot be packed: it is {problem}",
        hint=f"remove it, or name it in `{IGNORE_NAME}`",
    )


DEFAULTS: Final = parse_ignore("\n".join(ALWAYS))
