"""Server-sent events, parsed as they arrive. Pure: bytes in, events out.

Follows the event stream format of the HTML standard for what MCP uses of it. An event is bounded, so a
server that never ends one cannot fill the memory; comments are dropped as they arrive.
"""

from dataclasses import dataclass

_BOM = b"\xef\xbb\xbf"


class StreamRefused(Exception):
    """A stream carries what its reader rejects."""


@dataclass(frozen=True, slots=True)
class SseEvent:
    """One dispatched event. Never without data: those only move the stream's position."""

    data: bytes
    type: bytes = b"message"


class SseParser:
    """Feed it the bytes of a stream; it keeps the position from which a later stream can resume."""

    def __init__(self, max_event_bytes: int) -> None:
        self._max_event_bytes = max_event_bytes
        # Byte arrays, not lists of parts: tiny parts would cost forty times their size.
        self._line = bytearray()
        self._data = bytearray()
        self._type = b""
        self._has_started = False
        self._skips_newline = False
        self.last_event_id = b""
        """The id of the newest event that had one."""
        self.retry_ms: int | None = None
        """The delay before a reconnect that the server requests."""

    def feed(self, chunk: bytes) -> list[SseEvent]:
        """The events that `chunk` completes. Raises StreamRefused; the parser is unusable after that."""
        if self._skips_newline and chunk:
            # The last chunk ended in CR; a LF that follows belongs to that same line end, one LF only.
            self._skips_newline = False
            chunk = chunk.removeprefix(b"\n")
        lines = chunk.splitlines()
        rest = b"" if chunk.endswith((b"\n", b"\r")) or not lines else lines.pop()
        events: list[SseEvent] = []
        for line in lines:
            whole = bytes(self._line) + line if self._line else line
            self._line.clear()
            if not self._has_started:
                self._has_started = True
                whole = whole.removeprefix(_BOM)
            event = self._take_line(whole)
            if event is not None:
                events.append(event)
        if chunk:
            self._skips_newline = chunk.endswith(b"\r")
            # Only the first byte of a comment is kept: comments may be endless.
            if not self._line.startswith(b":"):
                self._line += rest
                self._check_size()
        return events

    def restart(self) -> None:
        """Begin a new stream: drop what is unfinished, keep the position."""
        self._line.clear()
        self._data.clear()
        self._type = b""
        self._has_started = False
        self._skips_newline = False

    def _take_line(self, line: bytes) -> SseEvent | None:
        if not line:
            data = bytes(self._data[:-1])
            event = SseEvent(data, self._type or b"message") if data else None
            self._data.clear()
            self._type = b""
            return event
        if line.startswith(b":"):
            return None
        name, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if name == b"data":
            self._data += value
            self._data += b"\n"
            self._check_size()
        elif name == b"event":
            self._type = value
        elif name == b"id" and b"\0" not in value:
            self.last_event_id = value
        elif name == b"retry" and value.isdigit():
            # No one waits for longer delays, and int() is not linear.
            self.retry_ms = int(value[:9])
        return None

    def _check_size(self) -> None:
        if len(self._line) + len(self._data) > self._max_event_bytes:
            raise StreamRefused(f"an event on the stream is longer than {self._max_event_bytes} bytes")
