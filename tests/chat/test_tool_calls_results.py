"""CHT-10: what a model reads of a tool's result."""

import json
from base64 import b64encode
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolgate.catalog.encoding import make_error_result
from toolgate.chat.tool_calls import cut_text, render_result
from toolgate.errors import ServerBusy
from toolgate.model.json_text import Members

NOTE_BYTES = 80


def members(result: dict[str, Any]) -> Members:
    return {name: msgspec.Raw(json.dumps(value).encode()) for name, value in result.items()}


def text(words: str) -> dict[str, str]:
    return {"type": "text", "text": words}


def read(result: dict[str, Any], max_bytes: int = 10_000) -> str:
    sent_text, is_error = render_result(members(result), max_bytes=max_bytes)
    assert not is_error
    return sent_text


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        pytest.param([text("a"), text("b")], "a\nb", id="texts"),
        pytest.param(
            [{"type": "image", "mimeType": "image/png", "data": b64encode(b"x" * 12_345).decode()}],
            "[image: image/png, 12345 bytes, not shown]",
            id="an image",
        ),
        pytest.param(
            [text("listen:"), {"type": "audio", "mimeType": "audio/wav", "data": b64encode(b"xy").decode()}],
            "listen:\n[audio: audio/wav, 2 bytes, not shown]",
            id="audio next to text",
        ),
        pytest.param(
            [{"type": "image"}], "[image: unknown type, 0 bytes, not shown]", id="an image of nothing"
        ),
        pytest.param(
            [
                {
                    "type": "resource",
                    "resource": {"uri": "file:///a", "mimeType": "text/plain", "text": "words"},
                }
            ],
            "[resource: file:///a]\nwords",
            id="a resource with text",
        ),
        pytest.param(
            [{"type": "resource", "resource": {"uri": "file:///a", "mimeType": "a/b", "blob": "eHl6"}}],
            "[resource: file:///a, a/b, 3 bytes, not shown]",
            id="a resource of bytes",
        ),
        pytest.param(
            [{"type": "resource_link", "uri": "file:///a", "name": "notes"}],
            "[resource: notes, file:///a]",
            id="a link",
        ),
        pytest.param(
            [{"type": "resource_link", "uri": "file:///a"}], "[resource: file:///a, file:///a]", id="no name"
        ),
        pytest.param([{"type": "hologram", "data": "x"}], "[hologram: not shown]", id="an unknown kind"),
        pytest.param(
            [{"text": "a"}, 3], "[unreadable part: not shown]\n[unreadable part: not shown]", id="junk"
        ),
        pytest.param([], "[the tool returned nothing]", id="nothing"),
        pytest.param("words", "[the tool returned nothing]", id="no list"),
    ],
)
def test_content_as_text(content: Any, expected: str) -> None:
    assert read({"content": content}) == expected


@pytest.mark.parametrize(
    ("content", "structured", "expected"),
    [
        pytest.param([], {"a": 1}, '{"a":1}', id="alone"),
        pytest.param([text('{ "b": 2, "a": 1 }')], {"a": 1, "b": 2}, '{ "b": 2, "a": 1 }', id="said as JSON"),
        pytest.param([text("sunny")], {"sky": "clear"}, 'sunny\n{"sky":"clear"}', id="other words"),
        pytest.param([text("1")], {"result": True}, '1\n{"result":true}', id="one is not true"),
        pytest.param([text("hi")], {"result": "hi"}, "hi", id="a wrapped text"),
        pytest.param([text("3")], {"result": 3}, "3", id="a wrapped number"),
        pytest.param([text("a"), text("2")], {"result": ["a", 2]}, "a\n2", id="a wrapped list, one by one"),
        pytest.param([text("a")], {"result": ["a", 2]}, 'a\n{"result":["a",2]}', id="a list half said"),
        pytest.param(
            [text("a")], {"result": "a", "b": 1}, 'a\n{"result":"a","b":1}', id="more than a wrapper"
        ),
        pytest.param([], {"result": []}, '{"result":[]}', id="an empty list in no words"),
        pytest.param(
            [{"type": "image"}], [1], "[image: unknown type, 0 bytes, not shown]\n[1]", id="next to others"
        ),
    ],
)
def test_structured_content_is_reported_once(content: list[Any], structured: Any, expected: str) -> None:
    assert read({"content": content, "structuredContent": structured}) == expected


def test_structured_content_that_is_null_is_invalid() -> None:
    assert read({"content": [text("a")], "structuredContent": None}) == "a"


def test_a_tool_that_failed_says_so_as_json() -> None:
    sent_text = render_result(members({"content": [text("no such file")], "isError": True}), max_bytes=500)

    assert sent_text == ('{"error":{"code":"tool_error","message":"no such file","retryable":true}}', True)


def test_a_failure_of_the_gateway_keeps_its_own_code() -> None:
    sent_text, is_error = render_result(make_error_result(ServerBusy("full", hint="wait")), max_bytes=500)

    assert is_error
    assert json.loads(sent_text) == {
        "error": {"code": "mcp_busy", "message": "mcp_busy: full. wait", "retryable": True}
    }


def test_a_server_cannot_make_up_codes() -> None:
    meta = {"toolgate/error": {"code": "x" * 100_000, "retryable": False}}
    sent_text, _ = render_result(members({"content": [], "isError": True, "_meta": meta}), max_bytes=500)

    assert json.loads(sent_text)["error"]["code"] == "tool_error"


def test_a_result_that_cannot_be_read_is_a_failure() -> None:
    sent_text, is_error = render_result({"content": msgspec.Raw(b'["\xff"]')}, max_bytes=500)

    assert is_error
    assert json.loads(sent_text)["error"]["message"] == "the result cannot be read"


@pytest.mark.requirement("002-034", "002-052")
def test_what_is_too_long_is_cut_and_says_how_long_it_was() -> None:
    assert read({"content": [text("x" * 1_234_567)]}, 65_536).endswith("x… [cut: 65,497 of 1,234,567 bytes]")


def test_what_just_fits_is_whole() -> None:
    assert read({"content": [text("é" * 128)]}, 256) == "é" * 128


@given(st.text(max_size=400), st.integers(0, 300))
def test_a_cut_text_fits_and_keeps_its_start(words: str, max_bytes: int) -> None:
    cut = cut_text(words, max_bytes)

    assert len(cut.encode()) <= max_bytes
    assert cut == words or len(words.encode()) > max_bytes
    assert max_bytes < NOTE_BYTES or cut.split("… [cut: ")[0] == words[: len(cut.split("… [cut: ")[0])]


@given(st.text(max_size=2_000), st.integers(256, 2_000))
def test_a_failure_that_is_cut_stays_json(words: str, max_bytes: int) -> None:
    sent_text, _ = render_result(members({"content": [text(words)], "isError": True}), max_bytes=max_bytes)

    assert len(sent_text.encode()) <= max_bytes
    assert json.loads(sent_text)["error"]["code"] == "tool_error"


def test_escapes_do_not_cost_a_failure_its_words() -> None:
    sent_text, _ = render_result(
        members({"content": [text("\x01" * 60_000)], "isError": True}), max_bytes=65_536
    )

    assert 64_000 < len(sent_text) <= 65_536


def test_a_result_of_many_parts_takes_no_longer_than_it_is_long() -> None:
    """Each text is compared once, however large the structured content is."""
    blocks = [text(str(number)) for number in range(20_000)]
    structured = {"values": list(range(50_000))}

    assert read({"content": blocks, "structuredContent": structured}, 1_000_000).endswith("49999]}")


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["type", "text", "resource", "uri", "data", "result", "name"]), inner
        )
    ),
    max_leaves=15,
)


@given(
    st.fixed_dictionaries(
        {}, optional={"content": JSON, "structuredContent": JSON, "isError": JSON, "_meta": JSON}
    )
)
def test_every_result_becomes_a_text(result: dict[str, Any]) -> None:
    sent_text, _ = render_result(members(result), max_bytes=256)

    assert 0 < len(sent_text.encode()) <= 256
