"""A head is known again by its bytes, all of them but the digits of its length."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolgate.model.http import parse_head_shape

HEAD = b"POST /x HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\nAccept: */*\r\n\r\n"


def located(head: bytes, data: bytes) -> tuple[int, int] | None:
    shape = parse_head_shape(head)
    assert shape is not None
    return shape.locate(data)


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        pytest.param(HEAD + b"abc", (len(HEAD), 3), id="the same head"),
        pytest.param(HEAD, (len(HEAD), 3), id="without its body"),
        pytest.param(HEAD.replace(b"3", b"1234"), (len(HEAD) + 3, 1234), id="another length"),
        pytest.param(HEAD.replace(b"3", b""), None, id="no length"),
        pytest.param(HEAD.replace(b"3", b"-3"), None, id="not a length"),
        pytest.param(HEAD.replace(b"3", b"3" * 9), None, id="too long a length"),
        pytest.param(HEAD.replace(b"/x", b"/y"), None, id="another target"),
        pytest.param(HEAD.replace(b"*/*", b"*/x"), None, id="another header behind the length"),
        pytest.param(HEAD[:-1], None, id="not whole"),
        pytest.param(HEAD[: HEAD.index(b"3") + 1], None, id="cut behind its digits"),
        pytest.param(b"", None, id="nothing"),
    ],
)
def test_a_head_is_known_by_all_but_its_length(data: bytes, expected: tuple[int, int] | None) -> None:
    assert located(HEAD, data) == expected


@pytest.mark.parametrize(
    "head",
    [
        pytest.param(HEAD.replace(b"Content-Length: 3\r\n", b""), id="no length"),
        pytest.param(HEAD.replace(b"\r\n\r\n", b"\r\ncontent-length: 3\r\n\r\n"), id="two lengths"),
        pytest.param(HEAD.replace(b"\r\n\r\n", b"\r\nContent-Length : 3\r\n\r\n"), id="a second, misspelt"),
        pytest.param(HEAD.replace(b": 3", b": 3, 3"), id="a list of lengths"),
        pytest.param(b"content-length: 3\r\n\r\n", id="where the request line should be"),
    ],
)
def test_a_head_without_one_plain_length_has_no_shape(head: bytes) -> None:
    assert parse_head_shape(head) is None


@given(st.binary(max_size=60), st.integers(0, 10**8 - 1), st.integers(0, 10**8 - 1))
def test_heads_of_one_shape_differ_in_their_length_alone(extra: bytes, length: int, other: int) -> None:
    head = b"HTTP/1.1 200 OK\r\nX: %b\r\ncontent-length: %d\r\n\r\n"
    shape = parse_head_shape(head % (extra, length))
    if shape is not None:
        assert shape.locate(head % (extra, other)) == (len(head % (extra, other)), other)
        assert shape.locate((head % (extra, other)).replace(b"200", b"201", 1)) is None
