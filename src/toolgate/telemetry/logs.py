"""Log lines: to standard error, one line a record."""

import logging
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager


class _OneLine(logging.Formatter):
    """A record is one line whatever is in it: control characters come out escaped."""

    def format(self, record: logging.LogRecord) -> str:
        text = super().format(record)
        return "".join(char if char.isprintable() else ascii(char)[1:-1] for char in text)


class _Marked(logging.Formatter):
    """Lines of another formatter, with the trace they belong to at their end."""

    def __init__(self, lines: logging.Formatter, trace_id: Callable[[], str]) -> None:
        super().__init__()
        self.lines = lines
        self._trace_id = trace_id

    def format(self, record: logging.LogRecord) -> str:
        text, trace_id = self.lines.format(record), self._trace_id()
        return f"{text} trace_id={trace_id}" if trace_id else text


@contextmanager
def mark_lines(trace_id: Callable[[], str]) -> Iterator[None]:
    """While the block runs, each line says the trace it belongs to, where it does to one."""
    handlers = [one for one in logging.getLogger().handlers if isinstance(one.formatter, _OneLine)]
    for handler in handlers:
        before = handler.formatter
        assert before is not None
        handler.setFormatter(_Marked(before, trace_id))
    try:
        yield
    finally:
        for handler in handlers:
            if isinstance(handler.formatter, _Marked):
                handler.setFormatter(handler.formatter.lines)


def setup_logging(level: str) -> None:
    """Log to standard error, one line a record.

    Of what libraries say, only warnings: their other lines show URLs, headers and statements as they are.
    """
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_OneLine("%(asctime)s %(levelname)-7s %(name)s %(message)s"))
    own = logging.getLevelNamesMapping()[level.upper()]
    logging.basicConfig(level=max(own, logging.WARNING), handlers=[handler], force=True)
    logging.getLogger("toolgate").setLevel(own)
