"""A name is checked once, and then trusted everywhere."""

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolgate.errors import InvalidRecord
from toolgate.model.names import (
    ToolRef,
    is_tool_name,
    parse_server_id,
    parse_sha256,
    parse_task_id,
    parse_upstream_id,
    parse_version,
    slugify_server_id,
)


@pytest.mark.parametrize("text", ["a", "0", "git-hub", "a_b-c", "a" * 40])
def test_a_server_id_is_itself(text: str) -> None:
    assert parse_server_id(text) == text


@pytest.mark.parametrize(
    ("text", "expected"), [("GitHub (work)", "github-work"), ("a" * 39 + "-b", "a" * 39), ("天气", "")]
)
def test_a_server_id_is_made_of_any_name(text: str, expected: str) -> None:
    assert slugify_server_id(text) == expected


@given(st.text())
def test_what_is_made_of_a_name_is_a_server_id_or_nothing(text: str) -> None:
    made = slugify_server_id(text)

    assert not made or parse_server_id(made) == made


@pytest.mark.parametrize(
    "text",
    ["", "A", "a__b", "a.b", "-a", "a-", "a--b", "a_-b", "a b", "a\n", "a\x00", "é", "a" * 41, "../a", "a/b"],
)
def test_what_is_not_a_server_id_is_refused(text: str) -> None:
    with pytest.raises(InvalidRecord) as raised:
        parse_server_id(text)

    assert str(raised.value) == f"invalid server id `{text}`"


@pytest.mark.parametrize("text", ["a", "A.b-c_d", "0", "a" * 64])
def test_a_task_id_is_itself(text: str) -> None:
    assert parse_task_id(text) == text


@pytest.mark.parametrize("text", ["", ".", "..", "-a", "a-", "a" * 65, "a/b", "a b", "a\n", "é"])
def test_what_is_not_a_task_id_is_refused(text: str) -> None:
    with pytest.raises(InvalidRecord) as raised:
        parse_task_id(text)

    assert str(raised.value) == f"invalid id `{text}`"


@pytest.mark.parametrize("text", ["1", "1.2.0", "1.0.0-rc.1+build.7", "2026-11-15", "a" * 64])
def test_a_version_is_itself(text: str) -> None:
    assert parse_version(text) == text


@pytest.mark.parametrize(
    "text", ["", ".", "..", "1..2", "../1", "1/2", "1\\2", "1.", "-1", "1 2", "1\n", "é", "a" * 65]
)
def test_what_is_not_a_version_is_refused(text: str) -> None:
    """FIL-3"""
    with pytest.raises(InvalidRecord) as raised:
        parse_version(text)

    assert str(raised.value) == f"invalid version `{text}`"


def test_a_sha256_is_sixty_four_hexadecimal_digits() -> None:
    assert parse_sha256("0a" * 32) == "0a" * 32

    for text in ("", "0A" * 32, "0a" * 31, "0a" * 32 + "\n", "../" + "0" * 61):
        with pytest.raises(InvalidRecord):
            parse_sha256(text)


@pytest.mark.parametrize(
    "parse", [parse_server_id, parse_upstream_id, parse_task_id, parse_version, parse_sha256]
)
def test_a_refusal_quotes_no_more_than_it_must(parse: Callable[[str], str]) -> None:
    with pytest.raises(InvalidRecord, match=r"invalid .* `x{80}`"):
        parse("x" * 10_000)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param("read_file", True, id="plain"),
        pytest.param("A.b-C_9", True, id="all kinds"),
        pytest.param("a" * 128, True, id="longest"),
        pytest.param("", False, id="empty"),
        pytest.param("a" * 129, False, id="too long"),
        pytest.param("a/b", False, id="slash"),
        pytest.param("a\n", False, id="trailing newline"),
        pytest.param("é", False, id="outside ASCII"),
    ],
)
def test_is_tool_name(text: str, expected: bool) -> None:
    assert is_tool_name(text) == expected


@given(st.text())
def test_no_server_id_can_be_mistaken_for_two_parts(text: str) -> None:
    try:
        server_id = parse_server_id(text)
    except InvalidRecord:
        return

    assert "." not in server_id
    assert "__" not in server_id
    assert "/" not in server_id


def test_a_tool_reads_as_server_slash_tool() -> None:
    assert str(ToolRef("fs", "read.file")) == "fs/read.file"
