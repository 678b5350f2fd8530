"""What a client sends back of a Responses conversation, as the model's server knows it."""

import hashlib
import json
from collections.abc import Mapping
from typing import Any

import msgspec
import pytest

from toolgate.chat.hidden_turns import MAX_RAW_BYTES, MAX_RESTORED_BYTES
from toolgate.chat.responses.output import (
    end_call_item,
    make_approval_request,
    make_call,
    make_call_item_id,
    parse_call_item_id,
)
from toolgate.chat.responses.requests import (
    MAX_ITEMS,
    ApprovedCall,
    CarriedCall,
    RestoredInput,
    decode_carried,
    encode_carried,
    find_chat_name,
    has_gateway_items,
    parse_input,
    restore_input,
)
from toolgate.chat.responses.tools import GATEWAY_LABEL, McpTool, select_offers
from toolgate.errors import InvalidChat
from toolgate.model.names import ToolRef
from toolgate.model.tools import ToolDefinition

USER = {"role": "user", "content": "go"}
REQUEST = make_approval_request("mcpr_tg_t", label="one", name="echo", arguments='{"n":1}')
CALL = make_call("mcp_tg0_call_1", label="one", name="echo", arguments='{"n":1}')
FUNCTION = {"type": "function_call", "call_id": "call_1", "name": "mcp__one__echo", "arguments": '{"n":1}'}
ECHO = ToolDefinition(ref=ToolRef("one", "echo"), raw=b'{"name":"echo"}', digest="", tokens=1)


def raw(value: Any) -> msgspec.Raw:
    return msgspec.Raw(msgspec.json.encode(value))


def approval_response(approve: Any = True, **members: Any) -> dict[str, Any]:
    return {
        "type": "mcp_approval_response",
        "approval_request_id": "mcpr_tg_t",
        "approve": approve,
        **members,
    }


def output(call_id: str, text: str) -> dict[str, Any]:
    return {"type": "function_call_output", "call_id": call_id, "output": text}


def restored(*items: Any, opens: Mapping[str, CarriedCall] | None = None) -> RestoredInput:
    return restore_input(
        [raw(one) for one in items],
        open_carried=(opens or {}).get,
        chat_name=lambda label, name: find_chat_name((), label, name),
    )


def seen(*items: Any, opens: Mapping[str, CarriedCall] | None = None) -> list[Any]:
    return [
        one if isinstance(one, ApprovedCall) else json.loads(bytes(one))
        for one in restored(*items, opens=opens).items
    ]


def error_of(item: Any) -> Any:
    return json.loads(item["output"])["error"]


@pytest.mark.parametrize(
    ("sent", "expected"),
    [(None, []), (b"null", []), (b'"go"', [USER]), (b'[{"role":"user","content":"go"}]', [USER])],
)
def test_input_is_items_whatever_way_it_is_sent(sent: bytes | None, expected: list[Any]) -> None:
    items = parse_input(None if sent is None else msgspec.Raw(sent))

    assert [json.loads(bytes(one)) for one in items] == expected


@pytest.mark.parametrize("sent", [b"5", b"{}", b"[" + b",".join([b"1"] * (MAX_ITEMS + 1)) + b"]"])
def test_input_of_another_shape_is_refused(sent: bytes) -> None:
    with pytest.raises(InvalidChat) as refused:
        parse_input(msgspec.Raw(sent))

    assert refused.value.data == {"param": "input"}


def test_what_is_not_of_the_gateway_stays_byte_for_byte() -> None:
    theirs = {"type": "mcp_call", "id": "mcp_1", "server_label": "x", "name": "y", "arguments": ""}
    listed = {"type": "mcp_list_tools", "id": "mcpl_1", "server_label": "x", "tools": []}
    items = [
        msgspec.Raw(b'{ "type" : "odd" }'),
        msgspec.Raw(b"5"),
        raw(theirs),
        raw(listed),
        raw(approval_response(approval_request_id="mcpr_1")),
    ]

    kept = restore_input(items, open_carried=lambda _: None, chat_name=lambda label, name: name)

    assert list(map(bytes, kept.items)) == list(map(bytes, items))  # type: ignore[arg-type]
    assert not has_gateway_items(items)
    assert has_gateway_items([raw(CALL)])


@pytest.mark.parametrize(
    ("end", "expected"),
    [
        ({"text": "said", "is_error": False}, "said"),
        ({"text": '{"error":{"code":"x"}}', "is_error": True}, '{"error": {"code": "x"}}'),
        ({"text": "plain", "is_error": True}, '[{"type": "text", "text": "plain"}]'),
    ],
)
def test_a_call_of_the_gateway_becomes_the_function_call_it_was(end: Any, expected: str) -> None:
    assert seen(end_call_item(CALL, **end)) == [FUNCTION, output("call_1", expected)]


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (None, ""),
        ("text", '{"error": "text"}'),
        ({"type": "http_error", "code": 5}, '{"error": {"type": "http_error", "code": 5}}'),
        ({"content": "text"}, "text"),
    ],
)
def test_errors_of_calls_are_reported_whatever_a_client_made_of_them(error: Any, expected: str) -> None:
    assert seen({**CALL, "error": error})[1] == output("call_1", expected)


def test_lists_are_left_out_and_their_labels_known() -> None:
    listed = {"type": "mcp_list_tools", "id": "mcpl_tg_1", "server_label": "one", "tools": []}

    assert restored(listed, USER) == RestoredInput((raw(USER),), frozenset({"one"}))


def test_an_approved_call_waits_for_its_output_where_its_approval_is() -> None:
    carried = CarriedCall("call_1", (("call_0", "zero"),), "one", "one.echo", '{"n":1}')
    opens = {"mcpr_tg_t": carried}
    approved = ApprovedCall("mcpr_tg_t", carried)

    assert seen(REQUEST, approval_response(), opens=opens) == [FUNCTION, output("call_0", "zero"), approved]
    assert seen(approval_response(), opens=opens) == [output("call_0", "zero"), approved]
    assert restored(approval_response(), opens=opens).approved == (approved,)


def test_an_approval_that_was_used_is_there_as_its_call() -> None:
    done = {**end_call_item(CALL, "said", is_error=False), "approval_request_id": "mcpr_tg_t"}

    assert seen(REQUEST, approval_response(), done) == [FUNCTION, output("call_1", "said")]


def test_a_request_that_no_one_answered_is_nothing_to_the_model() -> None:
    assert seen(USER, REQUEST) == [USER]


def test_a_declined_call_has_an_output_that_says_so() -> None:
    opens = {"mcpr_tg_t": CarriedCall("call_1", (), "one", "one.echo", "{}")}
    (declined,) = seen(approval_response(False, reason="no"), opens=opens)

    assert declined["call_id"] == "call_1"
    assert error_of(declined) == {
        "code": "approval_declined",
        "message": "the user declined this call: no",
        "retryable": False,
    }


def test_a_call_that_was_declined_long_ago_still_has_its_output() -> None:
    call, declined = seen(REQUEST, approval_response(False))

    assert call["call_id"] == declined["call_id"]
    assert error_of(declined)["code"] == "approval_declined"


@pytest.mark.parametrize(
    ("items", "param"),
    [
        ([approval_response()], "input[0].approval_request_id"),
        ([REQUEST, approval_response()], "input[1].approval_request_id"),
        ([approval_response(False)], "input[0].approval_request_id"),
        ([approval_response("yes")], "input[0].approve"),
    ],
)
def test_an_approval_of_nothing_is_refused(items: list[Any], param: str) -> None:
    with pytest.raises(InvalidChat) as refused:
        seen(*items)

    assert refused.value.data == {"param": param}


def test_a_request_that_is_answered_twice_is_neither_approved_nor_declined() -> None:
    opens = {"mcpr_tg_t": CarriedCall("call_1", name="one.echo", arguments="{}")}

    with pytest.raises(InvalidChat, match="duplicate"):
        restored(REQUEST, approval_response(approve=False), approval_response(), opens=opens)


def test_a_handed_call_has_its_own_id_again_and_brings_the_others() -> None:
    carried = CarriedCall("call_1", (("call_0", "zero"), ("call_2", "two")))
    opens = {"tgc_t": carried}
    handed = {"type": "function_call", "call_id": "tgc_t", "name": "mine", "arguments": "{}"}
    alongside = {**CALL, "id": "mcp_tg3_call_2", "output": "two"}

    assert seen(output("tgc_t", "42"), opens=opens) == [
        output("call_0", "zero"),
        output("call_2", "two"),
        output("call_1", "42"),
    ]
    whole = seen(alongside, handed, output("tgc_t", "42"), opens=opens)
    assert [one["call_id"] for one in whole] == ["call_2", "call_2", "call_1", "call_0", "call_1"]


def test_an_approval_of_the_model_servers_own_may_carry_outputs_too() -> None:
    opens = {"tgc_t": CarriedCall("mcpr_1", (("call_0", "zero"),))}
    request = {"type": "mcp_approval_request", "id": "tgc_t"}
    response = approval_response(approval_request_id="tgc_t")

    assert seen(request, response, opens=opens) == [
        {**request, "id": "mcpr_1"},
        output("call_0", "zero"),
        approval_response(approval_request_id="mcpr_1"),
    ]


def test_an_id_that_does_not_open_is_a_short_one_everywhere() -> None:
    handed = {"type": "function_call", "call_id": "tgc_t", "name": "mine", "arguments": "{}"}
    first, second = seen(handed, output("tgc_t", "42"))

    assert first["call_id"] == second["call_id"]
    assert len(first["call_id"]) < 40


@pytest.mark.parametrize(
    ("label", "name", "expected"),
    [
        (GATEWAY_LABEL, "one.echo", "c"),
        (GATEWAY_LABEL, "two.a.b", "mcp__two__a_b"),
        ("two", "a.b", "mcp__two__a_b"),
        ("two", "x" * 80, "mcp__two__" + "x" * 54),
    ],
)
def test_a_tool_has_its_name_of_now_or_one_much_like_it(label: str, name: str, expected: str) -> None:
    offers = select_offers({"c": ("one.echo", ECHO)}, [McpTool(GATEWAY_LABEL)])

    assert find_chat_name(offers, label, name) == expected


@pytest.mark.parametrize("item_id", ["mcp_1", "mcp_tg_x", "mcp_tgx_y", "mcp_tg1", "mcp_tg1_", "x"])
def test_ids_of_others_are_not_ours(item_id: str) -> None:
    assert parse_call_item_id(item_id) is None


def test_ids_of_the_gateway_hold_the_ids_of_calls() -> None:
    assert parse_call_item_id(make_call_item_id("call_a_b", 7)) == "call_a_b"


def test_ids_are_opened_once_each_and_only_so_many() -> None:
    """Ids are short where what they hold compresses well, and can be sent again and again."""
    opened = []

    def open_one(sent: str) -> CarriedCall:
        opened.append(sent)
        return CarriedCall(sent, ((f"next to {sent}", "x" * MAX_RESTORED_BYTES),))

    sent = [output(call_id, "42") for call_id in ("tgc_a", "tgc_a", "tgc_b", "tgc_c")]
    restore_input([raw(one) for one in sent], open_carried=open_one, chat_name=lambda label, name: name)

    assert opened == ["tgc_a"]


def test_what_takes_too_much_memory_is_cut_however_well_it_compresses() -> None:
    carried = CarriedCall("call_1", tuple((f"call_{place}", "x" * 60_000) for place in range(40)))

    assert len(msgspec.json.encode(decode_carried(encode_carried(carried)))) <= MAX_RAW_BYTES


def test_what_is_carried_is_cut_to_fit_and_says_so() -> None:
    noise = "".join(hashlib.sha256(b"%d" % place).hexdigest() for place in range(1_000))
    carried = CarriedCall("call_1", (("a", noise), ("b", "short")), "l", "n", "{}")

    whole = decode_carried(encode_carried(carried, max_bytes=1_000_000))
    cut = decode_carried(encode_carried(carried, max_bytes=2_000))
    never = encode_carried(CarriedCall("c", (("a", "x"),), arguments=noise), max_bytes=1)

    assert whole == carried
    assert cut.outputs[0][1].endswith("of 64,000 bytes]")
    assert cut.outputs[1] == ("b", "short")
    assert len(encode_carried(carried, max_bytes=2_000)) <= 2_000
    assert decode_carried(never).arguments == noise
