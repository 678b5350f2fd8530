"""An audit sink in memory."""

from collections import deque

from toolgate.audit.log.files import AuditLine, EncodedLines, parse_line


class MemorySink:
    """Keeps the newest events."""

    def __init__(self, *, keep: int = 10_000) -> None:
        self.events: deque[AuditLine] = deque(maxlen=keep)

    def write(self, lines: EncodedLines) -> None:
        each = bytes(lines.text).splitlines()
        self.events.extend(line for raw in each if (line := parse_line(raw)) is not None)

    def close(self) -> None:
        """Nothing to release."""
