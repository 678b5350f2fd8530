"""Reading a log that is being written: by number, over its rotation, with any content."""

import os
from collections.abc import Iterable
from pathlib import Path

import pytest

from toolgate.audit.events import CallRecorded
from toolgate.audit.log.files import (
    CHUNK_BYTES,
    MAX_CHUNK_LINES,
    LogTail,
    encode_line,
    join_lines,
    parse_line,
    rotated_path,
)
from toolgate.audit.log.writer import JsonLinesSink

CALL = CallRecorded(at_ms=1, door="mcp", principal="local", tool="a", outcome="ok")


def write(path: Path, numbers: Iterable[int], *, rotate_bytes: int = 1 << 20) -> None:
    sink = JsonLinesSink(path, rotate_bytes=rotate_bytes)
    for number in numbers:
        sink.write(join_lines([encode_line(number, CALL)]))
    sink.close()


def numbers(tail: LogTail, after: int) -> list[int]:
    """All that comes after that number."""
    found: list[int] = []
    while lines := (read := tail.read(after)).lines:
        assert read.after == after
        found += [line.seq for raw in lines if (line := parse_line(raw))]
        after = read.upto
    return found


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "audit.jsonl"


def test_a_log_is_read_from_any_number_on(path: Path) -> None:
    write(path, range(1, 11))
    tail = LogTail(path)

    assert [numbers(tail, after) for after in (0, 7, 10, 12, 3)] == [
        [*range(1, 11)],
        [8, 9, 10],
        [],
        [],
        [*range(4, 11)],
    ]
    tail.close()


def test_a_reader_goes_on_with_what_is_written_later(path: Path) -> None:
    tail = LogTail(path)
    seen = [numbers(tail, 0)]
    write(path, [1, 2])
    seen.append(numbers(tail, 0))
    write(path, [3])
    seen.append(numbers(tail, 2))

    assert seen == [[], [1, 2], [3]]
    tail.close()


def test_a_log_that_was_rotated_is_read_from_the_file_before_it(path: Path) -> None:
    write(path, range(1, 7), rotate_bytes=350)
    tail = LogTail(path)

    assert rotated_path(path).exists()
    assert numbers(tail, 0)[-1] == 6
    assert numbers(tail, 2) == [3, 4, 5, 6]
    tail.close()


def test_a_reader_follows_over_a_rotation(path: Path) -> None:
    write(path, [1, 2])
    tail = LogTail(path)
    seen = numbers(tail, 0)
    write(path, [3])
    path.replace(rotated_path(path))
    write(path, [4, 5])

    assert seen + numbers(tail, 2) == [1, 2, 3, 4, 5]
    tail.close()


def test_a_reader_follows_when_another_program_empties_the_file(path: Path) -> None:
    """As logrotate does with `copytruncate`."""
    write(path, range(1, 11))
    tail = LogTail(path)
    before = numbers(tail, 0)
    os.truncate(path, 0)
    write(path, [11, 12])

    assert (before, numbers(tail, 10)) == ([*range(1, 11)], [11, 12])
    tail.close()


def test_what_was_rotated_away_is_skipped(path: Path) -> None:
    write(path, [1, 2])
    tail = LogTail(path)
    assert numbers(tail, 0) == [1, 2]
    path.unlink()
    write(path, [7, 8])
    path.replace(rotated_path(path))
    write(path, [9])

    read = tail.read(2)

    assert (read.upto, len(read.lines)) == (8, 2)
    assert numbers(tail, 8) == [9]
    tail.close()


def test_long_logs_come_in_pieces(path: Path) -> None:
    written = range(1, 3 * MAX_CHUNK_LINES)
    write(path, written, rotate_bytes=4 * CHUNK_BYTES)
    tail = LogTail(path)

    assert path.stat().st_size > CHUNK_BYTES
    assert len(tail.read(0).lines) == MAX_CHUNK_LINES
    assert numbers(tail, 0) == [*written]
    tail.close()


def test_a_torn_line_is_waited_for_and_what_is_no_line_is_passed_over(path: Path) -> None:
    write(path, [1])
    with path.open("ab") as file:
        file.write(b'no line\n{"seq":2,"type":"ca')
    tail = LogTail(path)
    first = numbers(tail, 0)
    # As after a crash: the next writer ends the line.
    write(path, [3])

    assert (first, numbers(tail, 1)) == ([1], [3])
    tail.close()


@pytest.mark.parametrize(
    "raw",
    [
        pytest.param(b"", id="nothing"),
        pytest.param(b'{"seq":1}', id="no type"),
        pytest.param(b'{"seq":1,"type":"later","at_ms":1}', id="a type of a newer program"),
        pytest.param(
            b'{"seq":-1,"type":"credential","at_ms":1,"peer":"a","code":"b"}', id="a number below 1"
        ),
        pytest.param(
            b'{"seq":1,"type":"credential","at_ms":9007199254740993,"peer":"a","code":"b"}',
            id="a huge number",
        ),
        pytest.param(
            b'{"seq":1,"type":"credential","at_ms":1,"peer":"%b","code":"b"}' % (b"a" * 20_000),
            id="a long line",
        ),
        pytest.param(b'{"seq":1,"type":"credential","at_ms":1,"peer":"\xff","code":"b"}', id="no UTF-8"),
        pytest.param(b"[" * 5_000, id="deep"),
    ],
)
def test_what_is_no_event_is_none(raw: bytes) -> None:
    assert parse_line(raw) is None
