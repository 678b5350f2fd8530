"""Results as clients of both eras take them, with the official SDK's models as the judge."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from mcp_types import CallToolResult
from mcp_types.methods import parse_server_result

from tests.catalog.definition_samples import JSON, REVISIONS
from toolgate.catalog import encoding
from toolgate.catalog.encoding import InputRequired
from toolgate.errors import ServerBusy, ServerUnavailable
from toolgate.model.json_text import Members
from toolgate.model.tools import Revision


def adapt_result(result: bytes, *, upstream: Revision, client: Revision, method: str = "tools/call") -> bytes:
    members = msgspec.json.decode(result, type=Members)
    return encoding.adapt_result(members, upstream=upstream, client=client, method=method)


@pytest.mark.parametrize("era", ["legacy", "modern"])
def test_a_result_of_the_clients_own_era_passes_as_it_came(era: Revision) -> None:
    result = b'{"content":[ {"type" : "x"}, 1.0 ],"resultType":"complete"}'

    assert adapt_result(result, upstream=era, client=era) == result


@pytest.mark.parametrize("client", ["legacy", "modern"])
@pytest.mark.parametrize("method", ["tools/call", "prompts/get", "resources/read"])
def test_a_server_that_requires_input_first_raises(client: Revision, method: str) -> None:
    asked = b'{"method":"roots/list"}'
    result = b'{"resultType":"input_required","inputRequests":{"k":%b},"requestState":"\\u00e9"}' % asked

    with pytest.raises(InputRequired) as raised:
        adapt_result(result, upstream="modern", client=client, method=method)

    needed = raised.value
    assert {key: bytes(raw) for key, raw in needed.input_requests.items()} == {"k": asked}
    assert needed.request_state is not None
    assert bytes(needed.request_state) == b'"\\u00e9"'
    assert needed.result == result


@pytest.mark.parametrize(
    "members", [b',"inputRequests":{"k":{}}', b',"inputRequests":{"k":1},"requestState":null']
)
def test_a_state_is_optional(members: bytes) -> None:
    with pytest.raises(InputRequired) as raised:
        adapt_result(b'{"resultType":"input_required"%b}' % members, upstream="modern", client="legacy")

    assert raised.value.request_state is None


@pytest.mark.parametrize(
    ("members", "message"),
    [
        (b"", "the server requires input but sent no input requests"),
        (b',"inputRequests":{},"requestState":null', "the server requires input but sent no input requests"),
        (b',"inputRequests":[]', "the server sent an unreadable result"),
        (b',"requestState":5', "the server sent an unreadable result"),
    ],
)
def test_ups_13_input_that_no_client_can_give_is_an_error(members: bytes, message: str) -> None:
    with pytest.raises(ServerUnavailable) as raised:
        adapt_result(b'{"resultType":"input_required"%b}' % members, upstream="modern", client="modern")

    assert str(raised.value) == message


def test_ups_13_a_completion_cannot_ask() -> None:
    result = b'{"resultType":"input_required","requestState":"x"}'

    with pytest.raises(ServerUnavailable, match="a kind of result that this gateway does not support"):
        adapt_result(result, upstream="modern", client="modern", method="completion/complete")


@pytest.mark.parametrize("upstream", ["legacy", "modern"])
@pytest.mark.parametrize(
    ("members", "ttl_ms"),
    [
        pytest.param(b"", 0, id="says nothing"),
        pytest.param(b',"ttlMs":60000,"cacheScope":"public"', 60_000, id="public"),
        pytest.param(b',"ttlMs":-5', 0, id="no time"),
        pytest.param(b',"ttlMs":true', 0, id="no number"),
    ],
)
def test_what_a_modern_client_reads_is_its_own_to_keep(
    upstream: Revision, members: bytes, ttl_ms: int
) -> None:
    result = b'{"contents":[{"uri":"file:///a","text":"\\u00e9"}]%b}' % members

    adapted = adapt_result(result, upstream=upstream, client="modern", method="resources/read")

    assert adapted.startswith(b'{"contents":[{"uri":"file:///a","text":"\\u00e9"}],')
    assert msgspec.json.decode(adapted) == {
        "contents": [{"uri": "file:///a", "text": "é"}],
        "resultType": "complete",
        "ttlMs": ttl_ms,
        "cacheScope": "private",
    }


@pytest.mark.parametrize("method", ["prompts/get", "resources/read", "completion/complete"])
def test_other_results_lose_only_what_legacy_has_no_words_for(method: str) -> None:
    result = b'{"resultType":"complete","ttlMs":5,"cacheScope":"private","structuredContent":[1],"x":[1 ]}'

    adapted = adapt_result(result, upstream="modern", client="legacy", method=method)

    assert adapted == b'{"structuredContent":[1],"x":[1 ]}'


@pytest.mark.parametrize(
    ("result", "expected"),
    [
        pytest.param(b"{}", b'{"resultType":"complete"}', id="empty"),
        pytest.param(b" { } ", b'{"resultType":"complete"}', id="empty, with spaces"),
        pytest.param(b'{"content":[]}', b'{"resultType":"complete","content":[]}', id="members"),
        pytest.param(
            b' { "a" : [1.50, 2] }\n', b'{"resultType":"complete","a":[1.50, 2]}', id="members, with spaces"
        ),
        pytest.param(
            b'{"content":[{"resultType":"x"}]}',
            b'{"resultType":"complete","content":[{"resultType":"x"}]}',
            id="the word further in",
        ),
    ],
)
@pytest.mark.parametrize("upstream", ["legacy", "modern"])
def test_a_stateless_client_learns_that_a_result_is_complete(
    result: bytes, expected: bytes, upstream: Revision
) -> None:
    assert adapt_result(result, upstream=upstream, client="modern") == expected


@pytest.mark.parametrize("word", [b'"complete"', b'"c\\u006fmplete"'])
def test_a_legacy_result_that_says_so_already_passes_as_it_came(word: bytes) -> None:
    result = b'{"content":[],"resultType":%b}' % word

    assert adapt_result(result, upstream="legacy", client="modern") == result


@pytest.mark.parametrize(
    ("result", "expected"),
    [
        pytest.param(b"{}", b"{}", id="empty"),
        pytest.param(
            b'{"resultType":"complete","ttlMs":5,"cacheScope":"private","content":[],"vendor":{"a" : 1}}',
            b'{"content":[],"vendor":{"a" : 1}}',
            id="modern members go",
        ),
        pytest.param(
            b'{"content":[],"structuredContent":{"a" : 1}}',
            b'{"content":[],"structuredContent":{"a" : 1}}',
            id="a structured object stays",
        ),
        pytest.param(
            b'{"content":[{"type":"image" }],"structuredContent":[1, 2]}',
            b'{"content":[{"type":"image" },{"type":"text","text":"[1, 2]"}]}',
            id="another value moves to text",
        ),
        pytest.param(
            b'{"structuredContent":"caf\xc3\xa9"}',
            b'{"content":[{"type":"text","text":"\\"caf\xc3\xa9\\""}]}',
            id="also without content",
        ),
        pytest.param(
            b'{"content":[{"type":"text","text":"[1,2]"}],"structuredContent":[1, 2]}',
            b'{"content":[{"type":"text","text":"[1,2]"}]}',
            id="unless text says it already",
        ),
        pytest.param(
            b'{"content":[{"type":"text","text":"true"}],"structuredContent":1}',
            b'{"content":[{"type":"text","text":"true"},{"type":"text","text":"1"}]}',
            id="one is not true",
        ),
        pytest.param(
            b'{"content":[{"type":"text","text":"see below"}],"structuredContent":7}',
            b'{"content":[{"type":"text","text":"see below"},{"type":"text","text":"7"}]}',
            id="text that is no JSON",
        ),
        pytest.param(b'{"structuredContent":null,"content":[]}', b'{"content":[]}', id="null is nothing"),
    ],
)
def test_a_legacy_client_gets_what_legacy_has_words_for(result: bytes, expected: bytes) -> None:
    assert adapt_result(result, upstream="modern", client="legacy") == expected


@pytest.mark.parametrize(
    ("upstream", "client", "kind"),
    [
        pytest.param("legacy", "modern", b'"input_required"', id="input for a legacy server"),
        pytest.param("modern", "modern", b'"task"', id="an extension, modern client"),
        pytest.param("modern", "legacy", b'"task"', id="an extension, legacy client"),
        pytest.param("legacy", "modern", b'"task"', id="an extension from a legacy server"),
        pytest.param("modern", "modern", b"null", id="null"),
        pytest.param("modern", "modern", b'["complete"]', id="wrong type"),
    ],
)
def test_ups_13_a_kind_of_result_the_client_cannot_act_on_is_an_error(
    upstream: Revision, client: Revision, kind: bytes
) -> None:
    unknown = "the server sent a kind of result that this gateway does not support"

    with pytest.raises(ServerUnavailable) as raised:
        adapt_result(b'{"resultType":%b}' % kind, upstream=upstream, client=client)

    assert str(raised.value) == unknown


@pytest.mark.parametrize(
    "result",
    [
        pytest.param(b'{"structuredContent":[],"content":7}', id="content that is no list"),
        pytest.param(b'{"resultType":"input_required","inputRequests":7}', id="requests of the wrong type"),
    ],
)
def test_a_result_that_cannot_be_read_is_an_error(result: bytes) -> None:
    with pytest.raises(ServerUnavailable, match="an unreadable result"):
        adapt_result(result, upstream="modern", client="legacy")


def test_text_too_deep_to_read_is_left_alone() -> None:
    text = "[" * 100_000
    result = msgspec.json.encode({"content": [{"type": "text", "text": text}], "structuredContent": 7})

    adapted = msgspec.json.decode(adapt_result(result, upstream="modern", client="legacy"))

    assert adapted == {"content": [{"type": "text", "text": text}, {"type": "text", "text": "7"}]}


RESULTS = st.dictionaries(
    st.sampled_from(["_meta", "isError", "vendor", "é", '"'])
    | st.text(max_size=5).filter(lambda key: key not in {"resultType", "ttlMs", "cacheScope", "content"}),
    JSON,
) | st.fixed_dictionaries(
    {"content": st.lists(st.fixed_dictionaries({"type": st.just("text"), "text": st.text()}))}
)


@given(
    RESULTS,
    st.sampled_from([msgspec.json.encode, lambda value: msgspec.json.format(msgspec.json.encode(value))]),
)
def test_there_and_back_again_every_member_is_as_it_was(result: dict[str, Any], encode: Any) -> None:
    there = adapt_result(encode(result), upstream="legacy", client="modern")
    back = adapt_result(there, upstream="modern", client="legacy")

    assert msgspec.json.decode(there) == {"resultType": "complete"} | result
    assert msgspec.json.decode(back) == result


@pytest.mark.parametrize("upstream", ["legacy", "modern"])
@pytest.mark.parametrize("client", ["legacy", "modern"])
@given(structured=JSON)
def test_the_official_sdk_takes_every_adapted_result(
    structured: Any, upstream: Revision, client: Revision
) -> None:
    sent: dict[str, Any] = {"content": [{"type": "text", "text": "x"}], "structuredContent": structured}
    if upstream == "modern":
        sent["resultType"] = "complete"
    elif not isinstance(structured, dict):
        del sent["structuredContent"]  # a legacy server cannot say it

    adapted = adapt_result(msgspec.json.encode(sent), upstream=upstream, client=client)
    parsed = parse_server_result("tools/call", REVISIONS[client], msgspec.json.decode(adapted))

    assert isinstance(parsed, CallToolResult)


def test_a_failure_is_a_result_that_begins_with_its_code() -> None:
    failed = encoding.make_error_result(ServerBusy("`fs` is busy", hint="wait"))

    assert {name: msgspec.json.decode(raw) for name, raw in failed.items()} == {
        "content": [{"type": "text", "text": "mcp_busy: `fs` is busy. wait"}],
        "isError": True,
        "_meta": {
            encoding.ERROR_META: {
                "code": "mcp_busy",
                "message": "`fs` is busy",
                "hint": "wait",
                "retryable": True,
            }
        },
    }
