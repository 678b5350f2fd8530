"""CHT-6: a model's stream comes apart the same however it is cut, and no byte of it is lost."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from toolgate.upstream.http.sse import SseParser, StreamRefused
from toolgate.upstream.models.endpoint import ModelEvent, ModelEventReader


def read(*chunks: bytes) -> list[ModelEvent]:
    reader = ModelEventReader()
    events = [event for chunk in chunks for event in reader.feed(chunk)]
    return events + reader.finish()


@pytest.mark.parametrize(
    ("stream", "expected"),
    [
        pytest.param(b"data: a\n\n", [(b"data: a\n\n", b"a")], id="one"),
        pytest.param(b"data: a\n\ndata: b\n\n", [(b"data: a\n\n", b"a"), (b"data: b\n\n", b"b")], id="two"),
        pytest.param(b"data: a\r\n\r\n", [(b"data: a\r\n\r\n", b"a")], id="CRLF"),
        pytest.param(b"data: a\r\r", [(b"data: a\r\r", b"a")], id="CR"),
        pytest.param(b"data: a\ndata: b\n\n", [(b"data: a\ndata: b\n\n", b"a\nb")], id="two lines of data"),
        pytest.param(b": ping\n\n", [(b": ping\n\n", None)], id="a comment"),
        pytest.param(b": ping\ndata: a\n\n", [(b": ping\ndata: a\n\n", b"a")], id="a comment before one"),
        pytest.param(b"event: e\ndata: a\n\n", [(b"event: e\ndata: a\n\n", b"a")], id="a name"),
        pytest.param(b"data: a", [(b"data: a", b"a")], id="the last line has no end"),
        pytest.param(b"data: a\n", [(b"data: a\n", b"a")], id="the last blank line is missing"),
        pytest.param(b"data: a\r\n", [(b"data: a\r\n", b"a")], id="the same, of CRLF"),
        pytest.param(b"data: a\r", [(b"data: a\r", b"a")], id="the same, of CR"),
        pytest.param(b"data: \xc3\xa9\n\n", [(b"data: \xc3\xa9\n\n", b"\xc3\xa9")], id="UTF-8"),
        pytest.param(b"", [], id="nothing"),
    ],
)
def test_each_event_has_its_payload_and_its_bytes(
    stream: bytes, expected: list[tuple[bytes, bytes | None]]
) -> None:
    assert read(stream) == expected


@settings(max_examples=300)
@given(
    st.lists(st.sampled_from([b"data: a", b"data: \xc3\xa9", b": c", b"event: e", b"", b"", b"data:[DONE]"])),
    st.lists(st.sampled_from([b"\r", b"\n", b"\r\n"]), min_size=1),
    st.lists(st.integers(min_value=1, max_value=9), min_size=1),
)
def test_how_a_stream_is_cut_does_not_matter(lines: list[bytes], ends: list[bytes], cuts: list[int]) -> None:
    stream = b"".join(line + ends[at % len(ends)] for at, line in enumerate(lines))
    chunks, at, turn = [], 0, 0
    while at < len(stream):
        chunks.append(stream[at : at + cuts[turn % len(cuts)]])
        at, turn = at + len(chunks[-1]), turn + 1
    events = read(*chunks)

    payloads = [event.data for event in events if event.data is not None]
    assert b"".join(event.raw for event in events) == stream
    assert payloads == [event.data for event in SseParser(1024).feed(stream + b"\n\n\n")]


@pytest.mark.parametrize(
    "line", [b"data: aaaaaaaa\n", b": aaaaaaaaaaaa\n", b"data: aaaaaaaaaa", b": aaaaaaaaaa"]
)
def test_an_event_without_end_is_not_kept_for_ever(line: bytes) -> None:
    reader = ModelEventReader(max_event_bytes=64)
    fed = (reader.feed(line) for _ in range(64))

    with pytest.raises(StreamRefused):
        list(fed)
