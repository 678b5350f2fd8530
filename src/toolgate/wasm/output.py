"""What a guest writes: its standard output and error up to a limit, and its log as a ring of lines.

Written on the guest's thread, taken on the event loop's. What nobody takes in time is dropped, oldest first:
however much a guest writes, it costs no more than the limits here.
"""

import threading
from collections import deque
from collections.abc import Callable, Iterator
from typing import Final, Literal

from toolgate.model.invocations import MAX_LINE_BYTES, MAX_LOG_LINES, LogLevel, LogLine, LogStream

MAX_WAITING_BYTES: Final = 1_048_576
"""Of lines that nobody has taken yet."""


class BoundedOutput:
    """The output of one run."""

    def __init__(self, max_bytes: int, *, wall_s: Callable[[], float]) -> None:
        self._max_bytes = max_bytes
        self._wall_s = wall_s
        self._lock = threading.Lock()
        self._kept = {"stdout": bytearray(), "stderr": bytearray()}
        self._unfinished = {"stdout": bytearray(), "stderr": bytearray()}
        self._lines: deque[LogLine] = deque()
        self._waiting_bytes = 0
        self._seq = 0
        self.is_truncated = False

    @property
    def stdout(self) -> bytes:
        return bytes(self._kept["stdout"])

    @property
    def stderr(self) -> bytes:
        return bytes(self._kept["stderr"])

    def write(self, stream: Literal["stdout", "stderr"], data: bytes) -> None:
        """Bytes of `stdout` or `stderr`; past the limit they are dropped. Whole lines go to the log too."""
        kept, unfinished = self._kept[stream], self._unfinished[stream]
        taken = data[: self._max_bytes - len(kept)]
        self.is_truncated |= len(taken) < len(data)
        kept += taken
        unfinished += taken
        if b"\n" in taken:
            lines, _, rest = bytes(unfinished).rpartition(b"\n")
            self._add(stream, lines)
            unfinished[:] = rest
        while len(unfinished) >= MAX_LINE_BYTES:
            self._add(stream, bytes(unfinished[:MAX_LINE_BYTES]))
            del unfinished[:MAX_LINE_BYTES]

    def log(self, level: LogLevel, text: str) -> None:
        """A line of its log; one for each where the text has several."""
        self._add("log", text.removesuffix("\n").encode(errors="replace"), level)

    def finish(self) -> None:
        """The run has ended: lines that were begun are lines."""
        for stream in ("stdout", "stderr"):
            if self._unfinished[stream]:
                self._add(stream, bytes(self._unfinished[stream]))
                self._unfinished[stream].clear()

    def take(self) -> list[LogLine]:
        """The lines since it was last asked; a gap in their numbers stands for lines that were dropped."""
        with self._lock:
            taken = list(self._lines)
            self._lines.clear()
            self._waiting_bytes = 0
        return taken

    def _add(self, stream: LogStream, lines: bytes, level: LogLevel = "info") -> None:
        """The lines in `lines`. Of a million at once no more are made than are kept."""
        self._seq += max(0, lines.count(b"\n") + 1 - MAX_LOG_LINES)
        fresh = []
        for line in lines.rsplit(b"\n", MAX_LOG_LINES)[-MAX_LOG_LINES:]:
            at_ms = int(self._wall_s() * 1000)
            for text in _texts(line):
                self._seq += 1
                fresh.append(LogLine(seq=self._seq, at_ms=at_ms, stream=stream, text=text, level=level))
        with self._lock:  # not for longer: the event loop waits for it
            self._lines.extend(fresh)
            self._waiting_bytes += sum(len(line.text) for line in fresh)
            while len(self._lines) > MAX_LOG_LINES or self._waiting_bytes > MAX_WAITING_BYTES:
                self._waiting_bytes -= len(self._lines.popleft().text)


def _texts(line: bytes) -> Iterator[str]:
    """In pieces, if it is long. Databases take no NUL."""
    for start in range(0, len(line) or 1, MAX_LINE_BYTES):
        yield (
            line[start : start + MAX_LINE_BYTES]
            .decode(errors="replace")
            .replace("\0", "\N{REPLACEMENT CHARACTER}")
        )
