"""The output cap: what comes out is valid, within the cap, and says what is missing."""

import base64
import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.scenarios.soak import rounds
from toolgate.errors import OutputTooLarge
from toolgate.upstream.pool.result_cap import CUT_MARK, TRUNCATED_KEY, cap_result

MIB = 1024 * 1024
Json = dict[str, Any]


def encode(result: Json) -> bytes:
    return json.dumps(result, ensure_ascii=False).encode()


def cap(result: Json, max_bytes: int) -> Json:
    """The cut result, having checked what must hold for any."""
    sent = encode(result)
    capped = cap_result(sent, max_bytes)
    assert len(capped) <= max_bytes
    cut: Json = json.loads(capped)
    assert cut["_meta"][TRUNCATED_KEY] == {"original_bytes": len(sent)}
    assert cut["content"][-1]["text"].startswith(
        f"[toolgate: truncated: {len(sent)} bytes are over the cap of"
    )
    return cut


def test_a_result_within_the_cap_is_the_same_object() -> None:
    result = encode({"content": []})

    assert cap_result(result, len(result)) is result


@pytest.mark.requirement("002-052")
def test_bud_4_a_ten_mebibyte_text_becomes_one_mebibyte_of_valid_json_that_says_so() -> None:
    text = 'línea con acentos, 漢字 y 😀 "quotes" \\ \n\x00' * 200_000
    sent = {"content": [{"type": "text", "text": text, "annotations": {"priority": 1}}], "isError": False}

    cut = cap(sent, MIB)

    block = cut["content"][0]
    kept = block["text"].removesuffix(CUT_MARK)
    assert block["text"].endswith(CUT_MARK)
    assert text.startswith(kept)
    assert len(json.dumps(kept, ensure_ascii=False).encode()) > MIB - 1024
    assert (block["annotations"], cut["isError"], len(cut["content"])) == ({"priority": 1}, False, 2)


@pytest.mark.parametrize("max_bytes", range(1000, 1012))
def test_bud_4_a_cut_never_divides_an_escaped_character(max_bytes: int) -> None:
    sent = b'{"content":[{"type":"text","text":"' + rb"\ud83d\ude00" * 500 + b'"}]}'

    text = json.loads(cap_result(sent, max_bytes))["content"][0]["text"]

    assert set(text.removesuffix(CUT_MARK)) == {"😀"}


@pytest.mark.parametrize(
    ("block", "named"),
    [
        pytest.param(
            {"type": "image", "mimeType": "image/png", "data": base64.b64encode(bytes(9000)).decode()},
            "image (image/png)",
            id="image",
        ),
        pytest.param(
            {"type": "audio", "mimeType": "audio/wav", "data": base64.b64encode(bytes(9000)).decode()},
            "audio (audio/wav)",
            id="audio",
        ),
        pytest.param(
            {"type": "resource", "resource": {"uri": "file:///a", "blob": "A" * 12_000}},
            "resource",
            id="resource with a blob",
        ),
        pytest.param({"odd": "A" * 12_000}, "a block", id="unknown"),
        pytest.param(
            {"type": "text", "text": 5, "pad": "A" * 12_000},
            "text",
            id="invalid text",
        ),
    ],
)
def test_bud_4_what_means_nothing_in_part_is_left_out_whole_and_named(block: Json, named: str) -> None:
    cut = cap({"content": [block, {"type": "text", "text": "after"}]}, 4096)

    expected = f"[toolgate: left out: {named}, {len(encode(block))} bytes]"
    assert cut["content"][:2] == [{"type": "text", "text": expected}, {"type": "text", "text": "after"}]


def test_a_base64_block_that_fits_stays_whole_next_to_a_text_that_is_cut() -> None:
    image = {"type": "image", "mimeType": "image/png", "data": "QUJD"}

    cut = cap({"content": [image, {"type": "text", "text": "x" * 10_000}]}, 2048)

    assert cut["content"][0] == image
    assert cut["content"][1]["text"].endswith(CUT_MARK)


def test_structured_content_that_does_not_fit_is_left_out_and_named() -> None:
    cut = cap(
        {"content": [{"type": "text", "text": "short"}], "structuredContent": {"rows": ["x" * 9000]}}, 2048
    )

    assert "structuredContent" not in cut
    assert cut["content"][0] == {"type": "text", "text": "short"}
    assert cut["content"][1]["text"].endswith("; left out: structuredContent]")


def test_structured_content_that_fits_stays_when_the_text_is_what_is_long() -> None:
    cut = cap({"content": [{"type": "text", "text": "x" * 9000}], "structuredContent": {"rows": 3}}, 2048)

    assert cut["structuredContent"] == {"rows": 3}


def test_unknown_members_and_meta_stay_where_they_fit() -> None:
    sent = {
        "resultType": "complete",
        "isError": True,
        "content": [{"type": "text", "text": "x" * 9000}],
        "vendor": {"a": [1.50, 12345678901234567890123]},
        "large": "x" * 9000,
        "_meta": {"trace": "abc", TRUNCATED_KEY: "forged"},
    }

    cut = cap(sent, 2048)

    assert cut["_meta"]["trace"] == "abc"
    assert {key: cut[key] for key in ("resultType", "isError", "vendor")} == {
        "resultType": "complete",
        "isError": True,
        "vendor": sent["vendor"],
    }
    assert "large" not in cut
    assert cut["content"][-1]["text"].endswith("; left out: 1 other members]")


def test_blocks_that_find_no_room_at_all_are_counted() -> None:
    cut = cap({"content": [{"type": "text", "text": f"block {n}"} for n in range(1000)]}, 1024)

    kept = len(cut["content"]) - 1
    assert cut["content"][0] == {"type": "text", "text": "block 0"}
    assert cut["content"][-1]["text"].endswith(f"; left out: {1000 - kept} blocks]")


def test_a_result_without_content_gets_the_note_alone() -> None:
    cut = cap({"structuredContent": ["x" * 9000]}, 1024)

    assert len(cut["content"]) == 1


@pytest.mark.requirement("002-101")
@pytest.mark.parametrize(
    "result",
    [
        pytest.param(b"[" + b"1," * 5000 + b"1]", id="not an object"),
        pytest.param(b'{"content":[' + b"x" * 5000, id="not JSON"),
        pytest.param(b'{"content":"' + b"\xff" * 5000 + b'"}', id="not UTF-8"),
        pytest.param(b'{"a":' + b"[" * 50_000 + b"]" * 50_000 + b"}", id="nested without end"),
        pytest.param(
            encode({"resultType": "input_required", "requestState": "x" * 5000}), id="asks for input"
        ),
    ],
)
def test_what_cannot_be_cut_is_refused(result: bytes) -> None:
    with pytest.raises(OutputTooLarge):
        cap_result(result, 4096)


def test_a_cap_too_small_for_any_result_refuses() -> None:
    with pytest.raises(OutputTooLarge):
        cap_result(encode({"content": [{"type": "text", "text": "x" * 500}]}), 100)


def test_what_adorns_a_text_goes_before_the_text_does() -> None:
    cut = cap({"content": [{"type": "text", "text": "x" * 9000, "annotations": {"pad": "y" * 9000}}]}, 1024)

    assert cut["content"][0].keys() == {"type", "text"}
    assert cut["content"][0]["text"].startswith("xxx")


def test_a_block_that_is_no_object_is_left_out_whole() -> None:
    cut = cap({"content": ["x" * 9000]}, 1024)

    assert cut["content"][0] == {"type": "text", "text": "[toolgate: left out: a block, 9002 bytes]"}


def test_a_content_that_is_no_list_is_replaced() -> None:
    cut = cap({"content": "x" * 9000}, 1024)

    assert len(cut["content"]) == 1


TEXTS = st.text(alphabet=st.characters(exclude_categories=["Cs"]), max_size=400)
JSONS = st.recursive(
    st.none() | st.booleans() | st.integers() | TEXTS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXTS, inner, max_size=4),
    max_leaves=8,
)
BLOCKS = (
    st.fixed_dictionaries({"type": st.just("text"), "text": TEXTS}, optional={"annotations": JSONS})
    | st.fixed_dictionaries({"type": st.just("image"), "data": TEXTS, "mimeType": TEXTS})
    | st.dictionaries(TEXTS, JSONS, max_size=3)
)
RESULTS = st.fixed_dictionaries(
    {"content": st.lists(BLOCKS, max_size=6)},
    optional={
        "structuredContent": JSONS,
        "isError": st.booleans(),
        "_meta": st.dictionaries(TEXTS, JSONS, max_size=3),
        "extra": JSONS,
    },
)


@settings(max_examples=rounds(suite=100, soak=5_000), deadline=None)
@given(RESULTS, st.integers(min_value=500, max_value=3000))
def test_bud_4_any_result_is_cut_into_a_valid_one_within_its_cap(result: Json, max_bytes: int) -> None:
    if len(encode(result)) <= max_bytes:
        return

    cut = cap(result, max_bytes)

    assert cut.get("isError") == result.get("isError")
    for block in cut["content"]:
        if block in result["content"]:
            continue
        assert block["type"] == "text"
        is_cut = any(
            str(sent.get("text", "")).startswith(block["text"].removesuffix(CUT_MARK))
            for sent in result["content"]
        )
        assert is_cut or block["text"].startswith("[toolgate: ")
