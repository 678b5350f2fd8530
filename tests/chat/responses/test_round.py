"""A model's reply over the Responses API, event by event and whole, as a client is told of it."""

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolgate.chat.responses.output import ResponseOutput, echo_members
from toolgate.chat.responses.round import ModelResponseTurn, ResponseRound
from toolgate.chat.responses.tools import OfferedTool, OfferedTools
from toolgate.chat.tool_calls import ToolCall
from toolgate.errors import ModelUnavailable
from toolgate.model.names import ToolRef
from toolgate.model.tools import ToolDefinition

ECHO = ToolDefinition(ref=ToolRef("one", "echo"), raw=b'{"name":"echo"}', digest="", tokens=1)
FREE, ASKED = (
    OfferedTool(label="one", name="echo", chat_name="c", view_name="v", definition=ECHO, needs_approval=needs)
    for needs in (False, True)
)
OFFERS = {"free": FREE, "asked": ASKED}
OFFERED = OfferedTools(OFFERS, frozenset({"own"}))
SAYS = {"type": "message", "id": "m", "content": [{"type": "output_text", "text": "hi", "annotations": []}]}


def encode(value: Any) -> bytes:
    return msgspec.json.encode(value)


def called(name: str, **members: Any) -> dict[str, Any]:
    item = {"type": "function_call", "id": f"fc_{name}", "call_id": f"id_{name}", "name": name}
    return {**item, "arguments": "{}", **members}


def whole(*items: Any, **members: Any) -> bytes:
    return encode({"id": "r", "status": "completed", "output": items, **members})


class Recorded:
    """A round and what it told."""

    def __init__(self, offered: OfferedTools = OFFERED, *, drops_calls: bool = False) -> None:
        basis, shown = {"id": msgspec.Raw(b'"basis"')}, echo_members({})
        self.output = ResponseOutput(basis, shown, is_stream=True)
        self.round = ResponseRound(self.output, offered, number=3, drops_calls=drops_calls)

    def feed(self, kind: str, **members: Any) -> "Recorded":
        self.round.feed(encode({"type": kind, "sequence_number": 9, **members}))
        return self

    def item(self, index: int, item: Any) -> "Recorded":
        self.feed("response.output_item.added", output_index=index, item=item)
        return self.feed("response.output_item.done", output_index=index, item=item)

    def end(self, **members: Any) -> ModelResponseTurn:
        self.feed("response.completed", response={"id": "r", "output": [], **members})
        return self.round.finish()

    @property
    def events(self) -> list[Any]:
        sent_text = self.output.drain().decode().split("\n\n")
        return [json.loads(one.split("\n")[1].removeprefix("data: ")) for one in sent_text if one]

    @property
    def types(self) -> list[str]:
        return [one["type"].removeprefix("response.") for one in self.events]


def played(*items: Any, **options: Any) -> tuple[Recorded, ModelResponseTurn]:
    received = Recorded(**options)
    received.round.play(whole(*items))
    return received, received.round.finish()


def test_a_reply_is_the_same_to_the_loop_streamed_and_whole() -> None:
    items = [
        SAYS,
        called("free"),
        called("own"),
        called("asked"),
        {"type": "custom_tool_call", "call_id": "x"},
    ]
    streamed = Recorded().feed("response.created", response={"id": "r"})
    for index, item in enumerate(items):
        streamed.item(index, item)

    completion = streamed.end()
    _, other = played(*items)

    assert completion.calls == other.calls
    assert completion.items == other.items
    assert completion.has_text
    assert [(one.name, one.call_id, one.kind) for one in completion.calls] == [
        ("free", "id_free", "function"),
        ("own", "id_own", "function"),
        ("asked", "id_asked", "function"),
        ("custom_tool_call", "x", "other"),
    ]


def test_items_that_no_event_reported_of_are_taken_from_the_end() -> None:
    received = Recorded()
    received.feed("response.completed", response={"id": "r", "output": [SAYS]})

    assert received.round.finish().has_text
    assert received.types == ["created", "in_progress", "output_item.added", "output_item.done"]


@pytest.mark.parametrize(
    ("item", "call_id"),
    [
        pytest.param(called("free", call_id=""), "call_tg_3_1", id="empty"),
        pytest.param({**called("free"), "call_id": None}, "call_tg_3_1", id="null"),
        pytest.param(called("free", call_id="id_own"), "call_tg_3_1", id="twice"),
        pytest.param(called("free", call_id="other"), "other", id="its own"),
    ],
)
def test_every_call_has_an_id_of_its_own(item: Any, call_id: str) -> None:
    _, completion = played(called("own"), item)

    assert completion.calls[1].call_id == call_id
    assert json.loads(bytes(completion.items[1]))["call_id"] == call_id


def test_arguments_that_no_one_can_read_go_back_as_what_they_were() -> None:
    """A model's server may choke on what the model itself wrote."""
    _, completion = played(called("free", arguments='{"a":'), called("own"))

    assert completion.calls[0].arguments == '{"a":'
    assert json.loads(bytes(completion.items[0]))["arguments"] == '{"__invalid__":"{\\"a\\":"}'
    assert json.loads(bytes(completion.items[1])) == called("own")


def test_a_function_in_a_namespace_is_the_callers() -> None:
    _, completion = played(called("free", namespace="theirs"))

    assert completion.calls[0].kind == "other"


def test_a_call_of_a_tool_is_reported_of_as_an_mcp_call() -> None:
    received = Recorded().feed("response.created", response={"id": "r"})
    received.feed("response.output_item.added", output_index=0, item=called("free", arguments=""))
    received.feed("response.function_call_arguments.delta", output_index=0, item_id="fc_free", delta="{}")
    received.feed(
        "response.function_call_arguments.done", output_index=0, item_id="fc", arguments="{}", name="x"
    )
    received.feed("response.output_item.done", output_index=0, item=called("free"))
    call = received.end().calls[0]
    received.round.end_call(call, "said", is_error=False)

    events = received.events[2:]
    assert [one["type"] for one in events] == [
        "response.output_item.added",
        "response.mcp_call.in_progress",
        "response.mcp_call_arguments.delta",
        "response.mcp_call_arguments.done",
        "response.mcp_call.completed",
        "response.output_item.done",
    ]
    assert {one.get("item_id", one.get("item", {}).get("id")) for one in events} == {"mcp_tg0_id_free"}
    assert "name" not in events[3]
    assert events[-1]["item"]["output"] == "said"


def test_the_callers_own_is_reported_of_when_it_is_handed_over() -> None:
    received = Recorded().feed("response.created", response={"id": "r"})
    received.feed("response.output_item.added", output_index=0, item=called("own", arguments=""))
    received.feed("response.function_call_arguments.delta", output_index=0, item_id="fc_own", delta="{}")
    received.feed("response.output_item.done", output_index=0, item=called("own"))
    received.item(1, SAYS)
    call = received.end().calls[0]
    before = received.events[2:]
    received.round.hand_over(call, "tgc_x")
    after = received.events

    assert [(one["type"], one["output_index"]) for one in before] == [
        ("response.output_item.added", 1),
        ("response.output_item.done", 1),
    ]
    assert [one["output_index"] for one in after] == [0, 0, 0]
    assert after[0]["item"]["call_id"] == after[2]["item"]["call_id"] == "tgc_x"
    assert after[1]["delta"] == "{}"


def test_what_has_no_call_id_is_answered_by_its_own() -> None:
    theirs = {"type": "mcp_approval_request", "id": "mcpr_1"}
    received, completion = played(theirs)

    assert received.round.find_own_id(completion.calls[0]) == "mcpr_1"
    received.round.hand_over(completion.calls[0], "mcpr_1")
    assert received.events[-1]["item"] == theirs


def test_an_approval_is_requested_with_the_names_of_its_label() -> None:
    received, completion = played(called("asked", arguments='{"a":1}'))

    assert received.round.needs_approval(completion.calls[0]) == ASKED
    received.round.request_approval(completion.calls[0], "mcpr_tg_x")
    assert received.events[-1]["item"] == {
        "id": "mcpr_tg_x",
        "type": "mcp_approval_request",
        "server_label": "one",
        "name": "echo",
        "arguments": '{"a":1}',
    }


@pytest.mark.parametrize(
    ("began", "ended"), [("free", "asked"), ("asked", "free"), ("free", "own"), ("own", "free")]
)
def test_a_call_that_ends_as_another_than_it_began_is_invalid(began: str, ended: str) -> None:
    """Who is to answer a call, and whether someone has to agree first, is decided once."""
    received = Recorded().feed("response.output_item.added", output_index=0, item=called(began))

    with pytest.raises(ModelUnavailable, match="ended it as another"):
        received.feed("response.output_item.done", output_index=0, item=called(ended))


def test_what_the_last_reply_calls_is_not_shown() -> None:
    received, completion = played(called("free"), called("own"), SAYS, drops_calls=True)

    assert [one["item"]["type"] for one in received.events if "item" in one] == ["message", "message"]
    assert len(completion.calls) == 2
    received.round.end_call(completion.calls[0], "x", is_error=False)
    assert received.round.needs_approval(completion.calls[0]) is None
    assert received.events == []


def test_with_nothing_offered_all_of_it_passes() -> None:
    received, completion = played(called("free"), offered=OfferedTools(OFFERS, frozenset(), is_empty=True))

    assert received.events[-1]["item"] == called("free")
    assert completion.calls == ()


def test_what_has_begun_ends_as_it_is_when_nothing_more_comes() -> None:
    received = Recorded().feed("response.created", response={"id": "r"})
    received.item(0, SAYS)
    received.feed("response.output_item.added", output_index=1, item={**SAYS, "content": []})
    received.feed("response.output_text.delta", output_index=1, delta="ha")
    received.feed("response.output_text.delta", output_index=1, delta="lf")
    received.feed("response.output_item.added", output_index=2, item={**SAYS, "content": []})
    received.feed("response.output_item.added", output_index=3, item={"type": "reasoning", "id": "rs"})
    received.feed("response.output_item.added", output_index=4, item=called("free"))
    received.item(5, called("own"))
    received.item(6, called("asked"))
    received.events  # noqa: B018

    received.round.abandon()
    received.round.abandon()

    done = [one["item"] for one in received.events if one["type"] == "response.output_item.done"]
    assert [one.get("status") for one in done[:4]] == ["incomplete"] * 4
    assert [part["text"] for part in done[0]["content"]] == ["half"]
    assert done[1]["content"] == []
    assert done[2]["type"] == "reasoning"
    assert done[3]["type"] == "mcp_call"
    assert done[4] == called("own")
    assert len(done) == 5


def test_items_that_were_announced_and_not_ended_end_as_the_response_has_them() -> None:
    received = Recorded().feed("response.created", response={"id": "r"})
    received.item(0, SAYS)
    received.feed("response.output_item.added", output_index=1, item=called("free", arguments=""))
    received.feed("response.output_item.added", output_index=2, item=called("own", arguments=""))
    received.feed("response.output_item.added", output_index=2, item=called("own"))
    received.feed("response.output_item.added", output_index=3, item=None)
    completion = received.end(output=[SAYS, called("free", arguments='{"a":1}')])

    assert [(one.name, one.arguments) for one in completion.calls] == [("free", '{"a":1}')]
    assert received.events[-1]["item"] == {**called("own", arguments=""), "status": "incomplete"}


def test_events_that_are_of_no_item_pass_with_a_number_of_the_gateway() -> None:
    received = Recorded().feed("response.created", response={"id": "r"}).feed("response.odd", odd=1)
    received.feed("response.odder", output_index="x").feed("response.oddest", output_index=7)

    assert received.events[2:] == [
        {"type": "response.odd", "sequence_number": 2, "odd": 1},
        {"type": "response.odder", "sequence_number": 3},
    ]


@pytest.mark.parametrize(
    "data",
    [
        b"not json",
        b"\xff",
        b'{"type":"\xff"}',
        b'{"a":' + b"[" * 100_000 + b"]" * 100_000 + b"}",
        b"[]",
        b'{"type":"response.created"}',
        b'{"type":"response.completed","response":{"id":"r","output":5}}',
        b'{"type":"response.output_item.added","output_index":0,"item":5}',
        b'{"type":"error","message":"no"}',
        b'{"error":{"message":"no"}}',
        b'{"error":"no"}',
    ],
)
def test_what_is_not_of_this_api_is_an_error_of_the_models_server(data: bytes) -> None:
    with pytest.raises(ModelUnavailable):
        Recorded().round.feed(data)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 3) | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=3), inner, max_size=2),
    max_leaves=4,
)
KINDS = st.sampled_from(["message", "function_call", "custom_tool_call", "mcp_approval_request", "odd", ""])
ITEMS = st.fixed_dictionaries(
    {"type": KINDS | JSON},
    optional={
        "id": st.text(max_size=2) | JSON,
        "call_id": st.text(max_size=2) | JSON,
        "name": st.sampled_from(["free", "own", "asked", "none"]) | JSON,
        "arguments": st.sampled_from(["{}", "", "["]) | JSON,
        "namespace": JSON,
        "content": JSON,
    },
)
EVENTS = st.fixed_dictionaries(
    {
        "type": st.sampled_from(
            [
                "response.output_item.added",
                "response.output_item.done",
                "response.output_text.delta",
                "response.function_call_arguments.delta",
                "response.odd",
            ]
        )
    },
    optional={"output_index": st.integers(0, 2) | JSON, "item": ITEMS | JSON, "delta": JSON},
)


@given(st.lists(EVENTS, max_size=12), st.booleans())
def test_whatever_a_models_server_says_the_answer_is_whole(events: list[Any], drops_calls: bool) -> None:
    """Indices and numbers have no gaps, what is added ends, and the response has what was told."""
    received = Recorded(drops_calls=drops_calls).feed("response.created", response={"id": "r"})
    try:
        for event in events:
            received.round.feed(encode(event))
        completion = received.end()
    except ModelUnavailable:
        completion = None
    for call in () if completion is None or drops_calls else completion.calls:
        received.round.end_call(call, "said", is_error=False)
    received.round.abandon()
    output = json.loads(received.output.finish({}))["output"]

    sent_text = received.events
    done = {
        one["output_index"]: one["item"] for one in sent_text if one["type"] == "response.output_item.done"
    }
    assert [one["sequence_number"] for one in sent_text] == list(range(len(sent_text)))
    assert [done.get(index) for index in range(len(output))] == output


def test_a_reply_without_an_end_is_one_that_broke_off() -> None:
    received = Recorded().feed("response.created", response={"id": "r"}).item(0, SAYS)

    with pytest.raises(ModelUnavailable):
        received.round.finish()


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ([], False),
        (None, False),
        ([{"type": "output_text", "text": ""}], False),
        ([5], False),
        ([{"type": "refusal", "refusal": "no"}], True),
    ],
)
def test_a_message_may_say_nothing(content: Any, expected: bool) -> None:
    _, completion = played({"type": "message", "id": "m", "content": content})

    assert completion.has_text is expected


def test_usage_is_summed_and_may_be_absent() -> None:
    received = Recorded()
    for usage in ({"total_tokens": 3}, None, {"total_tokens": 4, "odd": 1}):
        received.output.count(msgspec.Raw(encode(usage)))
    received.output.count(None)

    assert json.loads(received.output.finish({}))["usage"] == {
        "input_tokens": 0,
        "input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0},
        "output_tokens": 0,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": 7,
        "odd": 1,
    }
    assert json.loads(Recorded().output.finish({}))["usage"] is None


@pytest.mark.parametrize("usage", [[], "many", 7, True])
def test_usage_of_another_shape_counts_for_nothing(usage: Any) -> None:
    received = Recorded()
    received.end(usage=usage)

    assert json.loads(received.output.finish({}))["usage"] is None


def test_tools_are_shown_as_they_were_sent_but_for_what_is_secret() -> None:
    plain = msgspec.Raw(b'[ {"type":"function"} ]')
    secret = msgspec.Raw(b'[{"type":"mcp","authorization":"s","headers":{"a":"s"},"server_url":"u"}]')

    assert echo_members({"tools": plain})["tools"] == plain
    assert echo_members({"tools": secret})["tools"] == msgspec.Raw(b'[{"type":"mcp","server_url":"u"}]')


def test_a_call_of_another_reply_is_invalid_of_this_one() -> None:
    received, _ = played(called("free"))
    received.events  # noqa: B018

    received.round.end_call(ToolCall(call_id="z", name="z", arguments="{}"), "x", is_error=False)
    assert received.events == []
