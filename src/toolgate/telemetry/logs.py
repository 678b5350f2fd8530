"""Log lines, one per record, on standard error; and the detection of a full disk."""

import errno
import logging
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

MIN_FREE_BYTES: Final = 64 * 1024
"""With less free space, the disk counts as full. SQLite reports a full disk as an I/O error, too."""
FULL_DISK_HINT: Final = "free space there and start again; the full disk damaged nothing"


def describe_full_disk(path: Path, exc: BaseException | None = None) -> str | None:
    """The message if `exc` failed because the disk of `path` is full; else None."""
    is_full = isinstance(exc, OSError) and exc.errno in (errno.ENOSPC, errno.EDQUOT)
    with suppress(OSError):
        found = os.statvfs(path.parent)
        is_full |= found.f_bavail * found.f_frsize < MIN_FREE_BYTES
    return f"the disk is full: no space for `{path}`" if is_full else None


class _OneLine(logging.Formatter):
    """Formats a record as one line, with control characters escaped, and with the id of its trace."""

    trace_id: Callable[[], str] | None = None

    def format(self, record: logging.LogRecord) -> str:
        text = super().format(record)
        line = "".join(char if char.isprintable() else ascii(char)[1:-1] for char in text)
        trace_id = "" if self.trace_id is None else self.trace_id()
        return f"{line} trace_id={trace_id}" if trace_id else line


@contextmanager
def append_trace_ids(trace_id: Callable[[], str]) -> Iterator[None]:
    """While the block runs, append the trace id to each log line within a trace."""
    found = [one.formatter for one in logging.getLogger().handlers if isinstance(one.formatter, _OneLine)]
    formatters = [one for one in found if one.trace_id is None]
    for formatter in formatters:
        formatter.trace_id = trace_id
    try:
        yield
    finally:
        for formatter in formatters:
            formatter.trace_id = None


def setup_logging(level: str) -> None:
    """Log to standard error, one line per record.

    Libraries log only warnings: their other lines contain URLs, headers and SQL statements.
    """
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_OneLine("%(asctime)s %(levelname)-7s %(name)s %(message)s"))
    own = logging.getLevelNamesMapping()[level.upper()]
    logging.basicConfig(level=max(own, logging.WARNING), handlers=[handler], force=True)
    logging.getLogger("toolgate").setLevel(own)
