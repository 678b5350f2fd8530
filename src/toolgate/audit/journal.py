"""The audit log of one process with all that belongs to it: its files, its name, and a way to read along."""

import asyncio
import logging
import secrets
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from toolgate.audit.log.files import is_misplaced, last_sequence, shift_files
from toolgate.audit.log.journal import recover
from toolgate.audit.log.write_ahead import open_ahead
from toolgate.audit.log.writer import AuditLog
from toolgate.audit.sinks import KEEP_FILES, ROTATE_BYTES, JsonLinesSink
from toolgate.audit.tail import LogTail

NAME_CHARS: Final = 32
_LINE_BYTES: Final = 600
"""About what a line has."""
_log = logging.getLogger(__name__)


class Journal:
    """A log in files, which others follow."""

    def __init__(self, path: Path, *, rotate_bytes: int = ROTATE_BYTES, keep: int = KEEP_FILES) -> None:
        """Go on with the log at `path`, or begin one. Raises OSError."""
        self.name = (read_name(path) if last_sequence(path) else None) or _make_name(path)
        """Another one for each log that begins anew, so that a number in it never means two events."""
        self.kept_lines = rotate_bytes * keep // _LINE_BYTES
        """About how many lines there are before the oldest go."""
        if is_misplaced(path):
            _log.error(
                "the audit files were renamed, swapped or copied: `%s` is not the newest. A new file begins; "
                "run `toolgate audit verify`",
                path.name,
            )
            shift_files(path)
        sink = JsonLinesSink(path, rotate_bytes=rotate_bytes, keep=keep)
        ahead = path.with_suffix(".ahead")
        recover(path, ahead, sink)
        last = last_sequence(path)
        self.log = AuditLog(
            sink,
            ahead=open_ahead(ahead, scan_from=last + 1),
            first_sequence=last + 1,
            on_written=self._on_written,
        )
        self.tail = LogTail(path)
        self.written = asyncio.Event()
        """Set when something more is written; then it is another event."""
        self.taken: dict[str, int] = {}
        """Up to which number each of those who follow has taken it, as far as is known."""

    def lag(self) -> Mapping[str, float]:
        """How many lines each of those who follow has still to take."""
        last = self.log.last_sequence
        return {who: float(max(0, last - taken)) for who, taken in self.taken.items()}

    def close(self) -> None:
        """Write what is held, and close the file."""
        self.log.close()
        self.tail.close()

    def _on_written(self) -> None:
        self.written.set()
        self.written = asyncio.Event()


def read_name(path: Path) -> str | None:
    """What the log at `path` is called; None where it was not given a name."""
    try:
        name = _name_file(path).read_text("ascii", "replace").strip()
    except FileNotFoundError:
        return None
    return name if len(name) == NAME_CHARS and name.isalnum() else None


def _make_name(path: Path) -> str:
    file, name = _name_file(path), secrets.token_hex(NAME_CHARS // 2)
    file.unlink(missing_ok=True)
    file.touch(0o600)
    file.write_text(f"{name}\n", "ascii")
    return name


def _name_file(path: Path) -> Path:
    return path.with_name(path.name + ".id")
