"""The envelope: what is a message, what is not, and what may travel on."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolgate.errors import InvalidParams, InvalidRequest, ParseFailed, ToolgateError
from toolgate.surfaces.mcp.jsonrpc import ClientResponse, McpMessage, parse_message
from toolgate.upstream.connection.contract import RpcResponse


def parsed(body: bytes) -> McpMessage:
    """A request or a notification."""
    message = parse_message(body)
    assert isinstance(message, McpMessage)
    return message


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (b'{"jsonrpc":"2.0","id":"a","result":{ "x":1 }}', RpcResponse(result=b'{ "x":1 }')),
        (
            b'{"jsonrpc":"2.0","id":"a","error":{"code":1,"message":""}}',
            RpcResponse(error=b'{"code":1,"message":""}'),
        ),
    ],
)
def test_an_answer_is_taken_as_the_bytes_it_came_in(body: bytes, expected: RpcResponse) -> None:
    assert parse_message(body) == ClientResponse(b'"a"', expected)


CALL = b'{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"a","arguments":%b}}'


def test_a_request_keeps_its_members_as_the_bytes_they_came_in() -> None:
    message = parsed(CALL % b'{ "x": 1.0,  "\\u00e9":[] }')

    assert (message.method, message.id, message.text("name")) == ("tools/call", b"7", "a")
    assert bytes(message.params["arguments"]) == b'{ "x": 1.0,  "\\u00e9":[] }'


def test_a_message_without_an_id_is_a_notification() -> None:
    assert parse_message(b'{"jsonrpc":"2.0","method":"notifications/initialized"}').id is None


@pytest.mark.parametrize("request_id", [b"1", b"0", b"-5", b'"1"', b'"a-b"', b"9223372036854775807"])
def test_fuz_7_ids_keep_their_own_type(request_id: bytes) -> None:
    assert parse_message(b'{"jsonrpc":"2.0","id":%b,"method":"ping"}' % request_id).id == request_id


@pytest.mark.parametrize(
    "request_id", [b"null", b"1.5", b"true", b"{}", b"[]", b'"' + b"x" * 10_240 + b'"', b"1e3", b"9" * 30]
)
def test_fuz_7_ids_of_another_kind_are_refused(request_id: bytes) -> None:
    with pytest.raises(InvalidRequest):
        parse_message(b'{"jsonrpc":"2.0","id":%b,"method":"ping"}' % request_id)


MALFORMED = [
    pytest.param(b"", id="empty"),
    pytest.param(b"null", id="null"),
    pytest.param(b"[]", id="empty batch"),
    pytest.param(b'[{"jsonrpc":"2.0","id":1,"method":"ping"}]', id="fuz-8 batch"),
    pytest.param(b'"x"', id="string"),
    pytest.param(b"1", id="number"),
    pytest.param(b"{", id="truncated"),
    pytest.param(b"{}", id="no members"),
    pytest.param('{"jsonrpc":"2.0","id":1,"method":"ping"}'.encode("utf-16"), id="utf-16"),
    pytest.param(b'\xef\xbb\xbf{"jsonrpc":"2.0","id":1,"method":"ping"}', id="byte order mark"),
    pytest.param(b'{"jsonrpc":"2.0","id":1,"method":"ping"} x', id="trailing garbage"),
    pytest.param(b'{"jsonrpc":"1.0","id":1,"method":"ping"}', id="another version"),
    pytest.param(b'{"id":1,"method":"ping"}', id="no version"),
    pytest.param(b'{"jsonrpc":"2.0","id":1,"method":7}', id="method is a number"),
    pytest.param(b'{"jsonrpc":"2.0","id":1,"method":"ping","params":[]}', id="params are a list"),
    pytest.param(b'{"jsonrpc":"2.0","id":1,"method":"ping","params":null}', id="params are null"),
    pytest.param(b'{"jsonrpc":"2.0","id":1,"method":"ping","params":{"_meta":[]}}', id="meta is a list"),
    pytest.param(b'{"jsonrpc":"2.0","result":{}}', id="an answer to nothing"),
    pytest.param(b'{"jsonrpc":"2.0","id":null,"result":{}}', id="an answer to null"),
    pytest.param(b'{"jsonrpc":"2.0","id":1}', id="an answer without a word"),
    pytest.param(b'{"jsonrpc":"2.0","id":1,"result":[]}', id="a result that is a list"),
    pytest.param(b'{"jsonrpc":"2.0","id":1,"result":null}', id="a result that is null"),
    pytest.param(b'{"jsonrpc":"2.0","id":1,"error":"no"}', id="an error that is a text"),
    pytest.param(b'{"jsonrpc":"2.0","id":1,"error":{"code":"1","message":""}}', id="an error without a code"),
    pytest.param(
        b'{"jsonrpc":"2.0","id":1,"result":{},"error":{"code":1,"message":""}}', id="a result and an error"
    ),
    pytest.param(b'{"jsonrpc":"2.0","id":1,"method":"ping","x":"\xff"}', id="not utf-8"),
    pytest.param(b"[" * 100_000, id="fuz-3 brackets"),
    pytest.param(CALL % (b"[" * 80 + b"]" * 80), id="fuz-3 too deep"),
    pytest.param(CALL % (b'{"a":' + b"9" * 5_000 + b"}"), id="fuz-3 5,000 digits"),
    pytest.param(CALL % (b'{"a":' + b"9" * 401 + b"}"), id="fuz-3 401 digits"),
    pytest.param(CALL % b'{"a":NaN}', id="fuz-4 nan"),
    pytest.param(CALL % b'{"a":Infinity}', id="fuz-4 infinity"),
    pytest.param(CALL % b'{"a":1e400}', id="fuz-4 out of range"),
    pytest.param(CALL % b'{"a":"\\ud800"}', id="fuz-5 lone surrogate"),
]


@pytest.mark.parametrize("body", MALFORMED)
def test_fuz_1_what_is_not_one_message_is_refused(body: bytes) -> None:
    with pytest.raises((ParseFailed, InvalidRequest)):
        parse_message(body)


def test_64_levels_and_400_digits_are_still_taken() -> None:
    # The envelope and its params are two of the 64 levels.
    assert parse_message(CALL % (b"[" * 62 + b"]" * 62)).id == b"7"
    assert parse_message(CALL % (b'{"a":' + b"9" * 400 + b"}")).id == b"7"


def test_fuz_3_more_containers_than_a_reader_can_stand_are_refused_and_brackets_in_texts_are_none() -> None:
    with pytest.raises(ParseFailed, match="more than 200000 objects and arrays"):
        parse_message(CALL % (b"[" + b"[]," * 200_000 + b"[]]"))
    assert parse_message(CALL % (b'{"a":"' + b'\\"[{\\\\' * 150_000 + b'"}')).id == b"7"


def test_fuz_3_runs_of_digits_that_are_just_short_enough_are_read_in_no_time() -> None:
    began_s = time.thread_time()  # what this thread worked, however busy the machine is
    parse_message(CALL % (b"[" + b",".join([b"9" * 400] * 10_000) + b"]"))

    assert time.thread_time() - began_s < 0.5


def test_digits_in_a_text_are_not_a_number() -> None:
    assert parse_message(CALL % (b'{"a":"' + b"9" * 5_000 + b'"}')).id == b"7"


def test_a_member_of_the_wrong_type_is_named() -> None:
    message = parsed(b'{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{"cursor":7}}')

    with pytest.raises(InvalidParams, match="`cursor` must be a string"):
        message.text("cursor")


@given(st.binary(max_size=200))
def test_fuz_18_any_bytes_are_a_message_or_a_stated_error(body: bytes) -> None:
    try:
        message = parse_message(body)
    except ToolgateError as exc:
        assert exc.code in {"parse_error", "invalid_request"}
    else:
        assert isinstance(message, ClientResponse) or message.method
