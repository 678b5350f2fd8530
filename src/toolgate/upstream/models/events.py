"""The event stream of a model, taken apart without losing a byte of it. Pure: bytes in, events out."""

from typing import Final, NamedTuple

from toolgate.upstream.http.sse import EventTooLarge, SseParser

DONE: Final = b"[DONE]"
"""The payload by which OpenAI's chat streams end. Nothing that comes after it counts."""
MAX_EVENT_BYTES: Final = 8 * 1024 * 1024

_LINE_ENDS: Final = (b"\n", b"\r\n", b"\r")


class ModelEvent(NamedTuple):
    """One event, with all that stood before it: `b"".join` of the raws is the stream."""

    raw: bytes
    data: bytes | None
    """The payload; None for what has none, such as comments."""


class EventReader:
    """Feed it what the connection delivers."""

    __slots__ = ("_last", "_max_event_bytes", "_parser", "_raw")

    def __init__(self, max_event_bytes: int = MAX_EVENT_BYTES) -> None:
        self._max_event_bytes = max_event_bytes
        self._parser = SseParser(max_event_bytes)
        self._raw = bytearray()
        self._last = b"\n"
        """The newest byte. A stream begins as a line does."""

    def feed(self, chunk: bytes) -> list[ModelEvent]:
        """The events that `chunk` completes. Raises EventTooLarge, after which the reader is of no use."""
        events: list[ModelEvent] = []
        for line in chunk.splitlines(keepends=True):
            # A LF after a CR is the rest of that line's end, even where they come apart.
            is_rest = line == b"\n" and self._last == b"\r"
            is_blank = line in _LINE_ENDS and self._last in _LINE_ENDS and not is_rest
            self._last = line[-1:]
            self._raw += line
            found = self._parser.feed(line)
            if is_blank:
                events.append(self._take(found[0].data if found else None))
        if len(self._raw) > self._max_event_bytes:
            raise EventTooLarge(f"an event is longer than {self._max_event_bytes} bytes")
        return events

    def finish(self) -> list[ModelEvent]:
        """What is left at the end of the stream. Many servers leave out the last blank line."""
        if not self._raw:
            return []
        found = self._parser.feed(b"\n\n\n")  # one may be the rest of a CRLF, one ends a line
        return [self._take(found[0].data if found else None)]

    def _take(self, data: bytes | None) -> ModelEvent:
        raw = bytes(self._raw)
        self._raw.clear()
        return ModelEvent(raw, data)
