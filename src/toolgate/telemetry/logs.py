"""Log lines, one line a record, on standard error; and whether a failure is a full disk."""

import errno
import logging
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

MIN_FREE_BYTES: Final = 64 * 1024
"""With less free, the disk is full. SQLite reports a full disk as an I/O error, too."""
FULL_DISK_HINT: Final = "free space there and start again: nothing in the directory is damaged by this"


def describe_full_disk(path: Path, exc: BaseException | None = None) -> str | None:
    """The message if the disk of `path`, whose use failed with `exc`, is full; else None."""
    is_reported = isinstance(exc, OSError) and exc.errno in (errno.ENOSPC, errno.EDQUOT)
    if not is_reported and not _is_full(path.parent):
        return None
    return f"the disk is full: no room for `{path}`"


def _is_full(directory: Path) -> bool:
    try:
        found = os.statvfs(directory)
    except OSError:
        return False
    return found.f_bavail * found.f_frsize < MIN_FREE_BYTES


class _OneLine(logging.Formatter):
    """Formats a record as one line, with control characters escaped."""

    def format(self, record: logging.LogRecord) -> str:
        text = super().format(record)
        return "".join(char if char.isprintable() else ascii(char)[1:-1] for char in text)


class _TraceFormatter(logging.Formatter):
    """Appends the trace id to the lines of another formatter."""

    def __init__(self, lines: logging.Formatter, trace_id: Callable[[], str]) -> None:
        super().__init__()
        self.lines = lines
        self._trace_id = trace_id

    def format(self, record: logging.LogRecord) -> str:
        text, trace_id = self.lines.format(record), self._trace_id()
        return f"{text} trace_id={trace_id}" if trace_id else text


@contextmanager
def append_trace_ids(trace_id: Callable[[], str]) -> Iterator[None]:
    """While the block runs, append the trace id to each line of a trace."""
    handlers = [one for one in logging.getLogger().handlers if isinstance(one.formatter, _OneLine)]
    for handler in handlers:
        before = handler.formatter
        assert before is not None
        handler.setFormatter(_TraceFormatter(before, trace_id))
    try:
        yield
    finally:
        for handler in handlers:
            if isinstance(handler.formatter, _TraceFormatter):
                handler.setFormatter(handler.formatter.lines)


def setup_logging(level: str) -> None:
    """Log to standard error, one line a record.

    Libraries log only warnings: their other lines show URLs, headers and statements.
    """
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_OneLine("%(asctime)s %(levelname)-7s %(name)s %(message)s"))
    own = logging.getLevelNamesMapping()[level.upper()]
    logging.basicConfig(level=max(own, logging.WARNING), handlers=[handler], force=True)
    logging.getLogger("toolgate").setLevel(own)
