"""The event stream parser, alone."""

import tracemalloc

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from toolgate.upstream.http.sse import SseEvent, SseParser, StreamRefused

LIMIT = 1024


def parse(*chunks: bytes) -> list[SseEvent]:
    parser = SseParser(LIMIT)
    return [event for chunk in chunks for event in parser.feed(chunk)]


@pytest.mark.parametrize(
    ("stream", "expected"),
    [
        pytest.param(b"data: a\n\n", [SseEvent(b"a")], id="one line"),
        pytest.param(b"data:a\n\n", [SseEvent(b"a")], id="the space is optional"),
        pytest.param(b"data:  a\n\n", [SseEvent(b" a")], id="only one space is dropped"),
        pytest.param(b"data: a\r\n\r\n", [SseEvent(b"a")], id="CRLF"),
        pytest.param(b"data: a\r\r", [SseEvent(b"a")], id="CR"),
        pytest.param(b"data: a\r\ndata: b\n\r", [SseEvent(b"a\nb")], id="line ends may be mixed"),
        pytest.param(b"data: a\ndata\ndata: b\n\n", [SseEvent(b"a\n\nb")], id="a field without a colon"),
        pytest.param(b"event: x\ndata: a\n\n", [SseEvent(b"a", b"x")], id="a type"),
        pytest.param(b"event: x\n\ndata: a\n\n", [SseEvent(b"a")], id="a type is good for one event"),
        pytest.param(b": hello\n\n:\ndata: a\n\n", [SseEvent(b"a")], id="comments are nothing"),
        pytest.param(b"\xef\xbb\xbfdata: a\n\n", [SseEvent(b"a")], id="a byte order mark"),
        pytest.param(b"data\n\ndata:\n\n", [], id="an event without data is dropped"),
        pytest.param(b"other: a\n data: b\n\n", [], id="unknown fields are nothing"),
        pytest.param(b"data: a\n", [], id="an unfinished event is dropped"),
        pytest.param(b"data: a\r\n\ndata: b\r\n\n", [SseEvent(b"a"), SseEvent(b"b")], id="mixed line ends"),
        pytest.param(b"data: a\n\ndata: b\n\n", [SseEvent(b"a"), SseEvent(b"b")], id="two events"),
    ],
)
def test_a_stream_parses_the_same_whole_and_byte_by_byte(stream: bytes, expected: list[SseEvent]) -> None:
    assert parse(stream) == expected
    assert parse(*(stream[at : at + 1] for at in range(len(stream)))) == expected


@settings(max_examples=300)
@given(
    st.lists(st.sampled_from([b"data: a", b"data: \xc3\xa9", b": c", b"event: e", b"", b"id: 7"])),
    st.lists(st.sampled_from([b"\r", b"\n", b"\r\n"]), min_size=1),
    st.lists(st.integers(min_value=1, max_value=9), min_size=1),
)
def test_how_a_stream_is_cut_does_not_matter(lines: list[bytes], ends: list[bytes], cuts: list[int]) -> None:
    stream = b"".join(line + ends[at % len(ends)] for at, line in enumerate(lines))
    chunks, at, turn = [], 0, 0
    while at < len(stream):
        chunks.append(stream[at : at + cuts[turn % len(cuts)]])
        at, turn = at + len(chunks[-1]), turn + 1

    assert parse(*chunks) == parse(stream)


def test_the_position_is_kept_over_a_restart_and_unfinished_lines_are_not() -> None:
    parser = SseParser(LIMIT)

    parser.feed(b"id: 41\nretry: 1500\ndata: a\n\nid: 42\n\ndata: lost\ndata: half")
    parser.restart()
    events = parser.feed(b"data: b\n\n")

    assert events == [SseEvent(b"b")]
    assert (parser.last_event_id, parser.retry_ms) == (b"42", 1500)


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        pytest.param(b"retry: 0", 0, id="zero is for the caller to raise"),
        pytest.param(b"retry: soon", None, id="not a number"),
        pytest.param(b"retry: -5", None, id="negative"),
        pytest.param(b"retry: " + b"9" * 900, 999_999_999, id="absurd"),
    ],
)
def test_retry_is_a_number_of_milliseconds(line: bytes, expected: int | None) -> None:
    parser = SseParser(LIMIT)

    parser.feed(line + b"\n")

    assert parser.retry_ms == expected


def test_an_id_with_a_null_is_ignored() -> None:
    parser = SseParser(LIMIT)

    parser.feed(b"id: 1\nid: 2\0\n")

    assert parser.last_event_id == b"1"


@pytest.mark.parametrize(
    "chunk",
    [
        pytest.param(b"x" * 100, id="an endless line"),
        pytest.param(b"data: " + b"x" * 100 + b"\n", id="an endless event"),
        pytest.param(b"data\n" * 50, id="an endless event of nothing"),
    ],
)
def test_ups_6_an_endless_event_is_refused_at_the_bound(chunk: bytes) -> None:
    with pytest.raises(StreamRefused):
        parse(*[chunk] * LIMIT)


@pytest.mark.parametrize("flood", [b": ping\n" * 1000, b":" + b"x" * 8000], ids=["many", "one endless"])
def test_ups_6_a_flood_of_comments_takes_no_memory(flood: bytes) -> None:
    parser = SseParser(8 * 1024 * 1024)
    parser.feed(flood)

    tracemalloc.start()
    for _ in range(100):
        parser.feed(flood)
    grown, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    assert grown < 64 * 1024
    assert parser.feed(b"\ndata: a\n\n") == [SseEvent(b"a")]
