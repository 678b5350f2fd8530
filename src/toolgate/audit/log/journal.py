"""After a process that did not end well: what it wrote ahead goes into the log, and its calls get their end.

What became of a call that had begun nobody knows, and that is what is written down of it. When this is itself
interrupted, nothing is lost or done twice: what was left is there until the log has it.
"""

import logging
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Final

import msgspec

from toolgate.audit.events import CallRecorded, CallStarted
from toolgate.audit.lines import encode_line, join_lines
from toolgate.audit.log.files import last_sequence, number_of
from toolgate.audit.log.write_ahead import Left, read_left
from toolgate.audit.log.writer import Sink
from toolgate.audit.tail import LogTail

GATEWAY_ENDED: Final = "gateway_ended"
"""The code of calls that were under way when their process ended."""

_KIND: Final = re.compile(rb'\{"seq":[0-9]{1,16},"type":"(start|call)"')
_END_BYTES: Final = 256 * 1024
_log = logging.getLogger(__name__)


class _Ended(msgspec.Struct):
    start: int = 0


_decode_start = msgspec.json.Decoder(CallStarted, strict=False).decode
_decode_ended = msgspec.json.Decoder(_Ended).decode


def recover(path: Path, ahead: Path, sink: Sink) -> None:
    """Bring the log at `path` up to what was written ahead. Raises OSError."""
    left = read_left(ahead)
    if left is None:
        # It ended well. Or somebody has removed what it left: then the log has calls without their end.
        last, lines, begun = last_sequence(path), [], find_open_starts(_read_end(path))
    else:
        _mend_end(path, left)
        last = last_sequence(path)
        lines = [line for line in left.lines if number_of(line) > last]
        begun = find_open_starts([*_scan(path, left.scan_from), *lines])
    upto = max([last, *map(number_of, lines)])
    for number, start in enumerate(begun.items(), start=upto + 1):
        lines.append(encode_line(number, _unknown(*start)))
    if lines:
        sink.write(join_lines(lines))
        _log.warning(
            "the process before this one ended unexpectedly: %d audit lines were still to be written, "
            "and of %d calls nobody knows what became of them",
            len(lines) - len(begun),
            len(begun),
        )


def find_open_starts(lines: Iterable[bytes]) -> Mapping[int, CallStarted]:
    """Those without their end, by their numbers."""
    begun: dict[int, CallStarted] = {}
    for line in lines:
        kind = _KIND.match(line)
        try:
            if kind is not None and kind[1] == b"start":
                begun[number_of(line)] = _decode_start(line)
            elif kind is not None and kind[1] == b"call":
                begun.pop(_decode_ended(line).start, None)
        except (msgspec.DecodeError, UnicodeDecodeError):
            continue  # damaged: `verify` tells
    return begun


def _unknown(number: int, start: CallStarted) -> CallRecorded:
    same = {name: getattr(start, name) for name in CallStarted.__struct_fields__}
    return CallRecorded(**same, outcome="unknown", code=GATEWAY_ENDED, start=number)


def _mend_end(path: Path, left: Left) -> None:
    """Drop a last line that was torn while it was written, if all of it is known."""
    if not path.exists():
        return
    with path.open("rb+") as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(max(0, size - 64 * 1024))
        torn = file.read().rpartition(b"\n")[2]
        seal = b'{"seq":%d,"type":"seal"' % (number_of(left.lines[-1]) if left.lines else 0)
        is_known = any(line.startswith(torn) for line in left.lines)
        if torn and (is_known or seal.startswith(torn) or torn.startswith(seal)):
            file.truncate(size - len(torn))


def _read_end(path: Path) -> Iterator[bytes]:
    """The newest lines: so few that every start can afford it."""
    try:
        with path.open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - _END_BYTES))
            yield from file.read().split(b"\n")
    except FileNotFoundError:
        return


def _scan(path: Path, scan_from: int) -> Iterator[bytes]:
    tail, after = LogTail(path), max(0, scan_from - 1)
    try:
        while lines := (read := tail.read(after)).lines:
            yield from lines
            after = read.upto
    finally:
        tail.close()
