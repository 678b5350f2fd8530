"""What a guest writes is kept within bounds, whatever it writes."""

from itertools import count

import pytest

from toolgate.model.invocations import MAX_LINE_BYTES, MAX_LOG_LINES, LogLine
from toolgate.wasm.run import MAX_WAITING_BYTES, BoundedOutput


def output(max_bytes: int = 1_000_000) -> BoundedOutput:
    ticks = count(1)
    return BoundedOutput(max_bytes, wall_s=lambda: next(ticks) / 1000)


def test_lines_of_all_streams_come_in_the_order_they_were_finished_in() -> None:
    out = output()
    out.write("stdout", b"one\ntw")
    out.log("warn", "look\n")
    out.write("stderr", b"bad")
    out.write("stdout", b"o\n\n")
    out.finish()

    assert out.take() == [
        LogLine(seq=1, at_ms=1, stream="stdout", text="one"),
        LogLine(seq=2, at_ms=2, stream="log", text="look", level="warn"),
        LogLine(seq=3, at_ms=3, stream="stdout", text="two"),
        LogLine(seq=4, at_ms=4, stream="stdout", text=""),
        LogLine(seq=5, at_ms=5, stream="stderr", text="bad"),
    ]
    assert (bytes(out.kept["stdout"]), bytes(out.kept["stderr"]), out.is_truncated) == (
        b"one\ntwo\n\n",
        b"bad",
        False,
    )


def test_what_was_taken_is_not_there_again() -> None:
    out = output()
    out.log("info", "a\nb")

    assert [line.text for line in out.take()] == ["a", "b"]
    assert out.take() == []
    out.log("info", "c")
    assert [line.seq for line in out.take()] == [3]


def test_past_its_limit_a_stream_is_dropped_and_the_other_is_not() -> None:
    out = output(max_bytes=5)
    for _ in range(3):
        out.write("stdout", b"abc")
    out.write("stderr", b"12345")
    out.finish()

    assert (bytes(out.kept["stdout"]), bytes(out.kept["stderr"]), out.is_truncated) == (
        b"abcab",
        b"12345",
        True,
    )
    assert [line.text for line in out.take()] == ["abcab", "12345"]


def test_exactly_the_limit_is_whole() -> None:
    out = output(max_bytes=5)
    out.write("stdout", b"abcde")
    out.write("stdout", b"")

    assert out.is_truncated is False


def test_long_lines_come_in_pieces() -> None:
    out = output()
    out.write("stdout", b"x" * (2 * MAX_LINE_BYTES + 1) + b"\n")
    out.write("stderr", b"y" * MAX_LINE_BYTES)
    out.log("info", "z" * (MAX_LINE_BYTES + 2))

    sizes = [(line.stream, len(line.text)) for line in out.take()]
    assert sizes == [
        ("stdout", MAX_LINE_BYTES),
        ("stdout", MAX_LINE_BYTES),
        ("stdout", 1),
        ("stderr", MAX_LINE_BYTES),
        ("log", MAX_LINE_BYTES),
        ("log", 2),
    ]


def test_bytes_that_are_no_text_do_no_harm() -> None:
    out = output()
    out.write("stdout", b"\xff\0\n")
    out.log("info", "\0\ud800")

    assert [line.text for line in out.take()] == ["\ufffd\ufffd", "\ufffd?"]


def test_of_many_lines_the_last_are_kept() -> None:
    out = output()
    for number in range(MAX_LOG_LINES + 100):
        out.log("info", str(number))
    out.write("stdout", b"\n" * 100)

    assert [line.seq for line in out.take()] == [*range(201, MAX_LOG_LINES + 201)]


@pytest.mark.parametrize("stream", ["stdout", "log"])
def test_of_a_million_lines_at_once_only_those_are_made_that_are_kept(stream: str) -> None:
    ticks = count(1)
    out = BoundedOutput(1_000_000, wall_s=lambda: next(ticks) / 1000)
    if stream == "log":
        out.log("info", "\n" * 1_000_000)
    else:
        out.write("stdout", b"\n" * 1_000_000)

    assert [line.seq for line in out.take()] == [*range(1_000_001 - MAX_LOG_LINES, 1_000_001)]
    assert next(ticks) == MAX_LOG_LINES + 1  # the clock was asked for each of them


def test_of_much_text_the_last_is_kept() -> None:
    out = output()
    for _ in range(200):
        out.log("info", "x" * MAX_LINE_BYTES)

    assert [line.seq for line in out.take()] == [*range(201 - MAX_WAITING_BYTES // MAX_LINE_BYTES, 201)]


def test_bytes_one_by_one_are_lines_too() -> None:
    out = output()
    for _ in range(2 * MAX_LINE_BYTES):
        out.write("stdout", b"x")
    out.write("stdout", b"\n")

    assert [len(line.text) for line in out.take()] == [MAX_LINE_BYTES, MAX_LINE_BYTES, 0]
