"""Functions of the caller next to MCP tools, and calls that wait for an approval, over `/v1/responses`."""

from typing import Any

import pytest

from tests.surfaces.mcp.mcp_world import key
from tests.surfaces.openai.chat_world import ChatWorld, open_chat_world, upstream
from tests.surfaces.openai.responses_world import ALL, ASKED, MINE, asking, refuse, respond, shape
from tests.upstream.memory_link import MemoryNet, definition
from tests.upstream.responses_model import ResponsesScript, call, reason, say
from tests.upstream.scripted_model import scripted_model, status

pytestmark = pytest.mark.anyio

OTHER = "tgk_other"


def output_of(item: Any, text: str = "42") -> dict[str, Any]:
    return {"type": "function_call_output", "call_id": item["call_id"], "output": text}


def approve(item: Any, approve: bool = True, **members: Any) -> dict[str, Any]:
    response = {"type": "mcp_approval_response", "approval_request_id": item["id"], "approve": approve}
    return {**response, **members}


def last(response: Any, kind: str) -> Any:
    return [item for item in response["output"] if item["type"] == kind][-1]


MIXED = [reason(), call("mcp__one__echo", {"n": 1}), call("mine", {"a": 1})]


async def test_outputs_of_a_mixed_turn_are_sent_when_the_client_continues_by_id() -> None:
    """The model's server waits for all of them, and has seen none."""
    async with (
        scripted_model(ResponsesScript(MIXED, [say("done")])) as model,
        open_chat_world(MemoryNet(), upstreams=(upstream(model.url),)) as world,
    ):
        first = await respond(world, "go", ALL, MINE)
        sent = [output_of(last(first, "function_call"))]
        second = await respond(world, sent, ALL, MINE, previous_response_id=first["id"])

    assert shape(first)[1:] == [
        "reasoning",
        'completed toolgate:one.echo {"n": 1}',
        'hands mine {"a": 1}',
    ]
    assert shape(second)[-1] == "says done"
    assert [(one["call_id"], one["output"]) for one in model.requests[1].body["input"]] == [
        ("call_0_1", '{"n":1}'),
        ("call_0_2", "42"),
    ]


async def test_a_conversation_kept_by_the_models_server_brings_only_what_is_new() -> None:
    script = ResponsesScript([call("mcp__one__echo")], MIXED, [say("done")])
    async with (
        scripted_model(script) as model,
        open_chat_world(MemoryNet(), upstreams=(upstream(model.url),)) as world,
    ):
        first = await respond(world, "go", ALL, MINE, conversation="conv_1")
        sent = [output_of(last(first, "function_call"))]
        second = await respond(world, sent, ALL, MINE, conversation="conv_1")

    assert [len(one.body["input"]) for one in model.requests] == [1, 1, 2]
    assert shape(second)[-1] == "says done"


async def test_items_of_the_gateway_in_the_input_are_function_calls_to_the_models_server() -> None:
    """CHT-11: a client that keeps the conversation sends back what it got, and nothing of it is executed."""
    async with (
        scripted_model(ResponsesScript(MIXED, [say("done")], [say("more")])) as model,
        open_chat_world(MemoryNet(), upstreams=(upstream(model.url),)) as world,
    ):
        first = await respond(world, "go", ALL, MINE, store=False)
        history = ["go", *first["output"], output_of(last(first, "function_call"))]
        history[0] = {"role": "user", "content": "go"}
        second = await respond(world, history, ALL, MINE, store=False)
        history += [*second["output"], {"role": "user", "content": "more"}]
        third = await respond(world, history, MINE, store=False)
        called = world.called

    assert called == ["one.echo ok"]
    assert shape(second) == ["says done"]
    assert shape(third) == ["says more"]
    kinds = [one.get("type", "message") for one in model.requests[1].body["input"]]
    assert kinds == [
        "message",
        "reasoning",
        "function_call",
        "function_call_output",
        "function_call",
        "function_call_output",
    ]
    assert model.requests[1].body["input"][2]["name"] == "mcp__one__echo"
    assert model.requests[1].body["input"][4]["call_id"] == "call_0_2"


async def test_what_another_principal_or_no_one_sealed_is_forgotten_and_never_run() -> None:
    script = ResponsesScript([say("done")])
    async with (
        scripted_model(script) as model,
        open_chat_world(MemoryNet(), upstreams=(upstream(model.url),)) as world,
    ):
        item = {"type": "function_call", "call_id": "tgc_forged", "name": "mine", "arguments": "{}"}
        await respond(world, [item, output_of(item)], ALL, MINE)
        called = world.called

    ids = {one["call_id"] for one in model.requests[0].body["input"]}
    assert len(ids) == 1
    assert len(ids.pop()) < 64
    assert called == []


async def test_by_default_a_call_waits_for_an_approval_and_is_then_run_once() -> None:
    script = ResponsesScript([call("mcp__one__echo", {"n": 1})], [say("done")], [say("done")])
    async with (
        scripted_model(script) as model,
        open_chat_world(MemoryNet(), upstreams=(upstream(model.url),)) as world,
    ):
        first = await respond(world, "go", ASKED)
        before = world.called
        request = last(first, "mcp_approval_request")
        second = await respond(world, [approve(request)], ASKED, previous_response_id=first["id"])
        third = await respond(world, [approve(request)], ASKED, previous_response_id=first["id"])
        called = world.called

    assert shape(first)[1:] == ['approval toolgate:one.echo {"n": 1}']
    assert first["status"] == "completed"
    assert before == []
    assert shape(second)[1:] == ['completed toolgate:one.echo {"n": 1}', "says done"]
    assert second["output"][1]["approval_request_id"] == request["id"]
    assert third["output"][1]["error"]["content"]["error"]["code"] == "approval_used"
    assert called == ["one.echo ok", "one.echo denied"]


async def test_a_declined_call_is_not_run_and_the_model_is_reported_so() -> None:
    script = ResponsesScript([call("mcp__one__echo")], [say("well")])
    async with (
        scripted_model(script) as model,
        open_chat_world(MemoryNet(), upstreams=(upstream(model.url),)) as world,
    ):
        first = await respond(world, "go", ASKED)
        sent = [approve(last(first, "mcp_approval_request"), approve=False, reason="not now")]
        second = await respond(world, sent, ASKED, previous_response_id=first["id"])
        called = world.called

    assert shape(second)[1:] == ["says well"]
    assert "declined this call: not now" in model.requests[1].body["input"][0]["output"]
    assert called == []


async def test_an_approval_in_a_history_that_the_client_keeps_is_used_once() -> None:
    script = ResponsesScript([call("mcp__one__echo")], [say("done")], [say("more")])
    async with (
        scripted_model(script) as model,
        open_chat_world(MemoryNet(), upstreams=(upstream(model.url),)) as world,
    ):
        user = {"role": "user", "content": "go"}
        first = await respond(world, [user], ASKED)
        history = [user, *first["output"], approve(last(first, "mcp_approval_request"))]
        second = await respond(world, history, ASKED)
        third = await respond(world, [*history, *second["output"], user], ASKED)
        called = world.called

    assert shape(second) == ["completed toolgate:one.echo {}", "says done"]
    assert shape(third) == ["says more"]
    assert called == ["one.echo ok"]


async def test_an_approval_next_to_calls_that_were_run_carries_their_outputs() -> None:
    net = MemoryNet()
    net["one"].tools = (definition("echo"), definition("drop"))
    script = ResponsesScript([call("mcp__one__drop"), call("mcp__one__echo"), call("mine")], [say("done")])
    tool = {**ASKED, "require_approval": {"never": {"tool_names": ["echo"]}}}
    async with (
        scripted_model(script) as model,
        open_chat_world(net, upstreams=(upstream(model.url),)) as world,
    ):
        first = await respond(world, "go", tool, MINE)
        sent = [approve(last(first, "mcp_approval_request")), output_of(last(first, "function_call"))]
        second = await respond(world, sent, tool, MINE, previous_response_id=first["id"])
        called = world.called

    assert shape(first)[1:] == [
        "completed toolgate:one.echo {}",
        "hands mine {}",
        "approval toolgate:one.drop {}",
    ]
    assert shape(second)[1:] == ["completed toolgate:one.drop {}", "says done"]
    assert called == ["one.echo ok", "one.drop ok"]


async def _asked(world: ChatWorld) -> Any:
    return last(await respond(world, "go", ASKED), "mcp_approval_request")


async def test_an_approval_of_nothing_is_refused() -> None:
    async with (
        scripted_model(ResponsesScript([call("mcp__one__echo")])) as model,
        open_chat_world(MemoryNet(), upstreams=(upstream(model.url),)) as world,
    ):
        request = await _asked(world)
        forged = {"id": request["id"][:-2] + "xx"}
        refused = await refuse(world, [approve(forged)], ASKED, previous_response_id="resp_0")
        called = world.called

    assert (refused["status"], refused["param"]) == (400, "input[0].approval_request_id")
    assert called == []


async def test_no_more_is_approved_at_once_than_may_be_called() -> None:
    script = ResponsesScript([call("mcp__one__echo", {"n": 1}), call("mcp__one__echo", {"n": 2})])
    async with (
        scripted_model(script) as model,
        open_chat_world(MemoryNet(), upstreams=(upstream(model.url),)) as world,
    ):
        *_, one, two = (await respond(world, "go", ASKED))["output"]
        sent = [approve(one), approve(two)]
        refused = await refuse(world, sent, ASKED, previous_response_id="resp_0", max_tool_calls=1)
        called = world.called

    assert refused["param"] == "input"
    assert called == []


async def test_an_approved_tool_that_left_the_scope_is_not_run() -> None:
    async with (
        scripted_model(ResponsesScript([call("mcp__one__echo")], [say("well")])) as model,
        open_chat_world(MemoryNet(), upstreams=(upstream(model.url),)) as world,
    ):
        request = await _asked(world)
        narrowed = {**ASKED, "allowed_tools": ["other"]}
        response = await respond(world, [approve(request)], narrowed, previous_response_id="resp_0")
        called = [one for one in world.called if one.endswith("ok")]

    assert response["output"][1]["error"]["content"]["error"]["code"] == "unknown_tool"
    assert called == []


async def test_a_request_of_its_own_name_is_the_clients_and_never_both_run() -> None:
    """CHT-8"""
    own = {**MINE, "name": "mcp__one__echo"}
    async with (
        scripted_model(ResponsesScript([call("mcp__one__echo")])) as model,
        open_chat_world(MemoryNet(), upstreams=(upstream(model.url),)) as world,
    ):
        response = await respond(world, "go", ALL, own)
        called = world.called

    assert shape(response) == ["lists toolgate: ", "hands mcp__one__echo {}"]
    assert response["toolgate"] == {"shadowed": ["mcp__one__echo"]}
    assert called == []


async def test_a_custom_tool_carries_the_outputs_where_nothing_else_can() -> None:
    custom = {"type": "custom_tool_call", "name": "sql", "input": "select 1"}
    script = ResponsesScript([call("mcp__one__echo"), custom], [say("done")])
    async with (
        scripted_model(script) as model,
        open_chat_world(MemoryNet(), upstreams=(upstream(model.url),)) as world,
    ):
        tools = [ALL, {"type": "custom", "name": "sql"}]
        first = await respond(world, "go", *tools)
        handed = last(first, "custom_tool_call")
        sent = {"type": "custom_tool_call_output", "call_id": handed["call_id"], "output": "1"}
        second = await respond(world, [sent], *tools, previous_response_id=first["id"])

    assert shape(second)[-1] == "says done"
    assert [one["call_id"] for one in model.requests[1].body["input"]] == ["call_0_0", "call_0_1"]


async def test_functions_that_a_stored_prompt_may_declare_are_the_clients() -> None:
    async with (
        scripted_model(ResponsesScript([call("theirs")])) as model,
        open_chat_world(MemoryNet(), upstreams=(upstream(model.url),)) as world,
    ):
        response = await respond(world, "go", ALL, prompt={"id": "pmpt_1"})

    assert shape(response)[1:] == ["hands theirs {}"]


async def test_what_one_principal_carries_is_nothing_in_the_hands_of_another() -> None:
    """Neither its approvals nor the outputs of its tools."""
    script = ResponsesScript([call("mcp__one__echo")], MIXED, [say("well")])
    async with (
        scripted_model(script) as model,
        open_chat_world(MemoryNet(), keys=(key("other", OTHER),), upstreams=(upstream(model.url),)) as world,
    ):
        request = last(await respond(world, "go", ASKED), "mcp_approval_request")
        handed = last(await respond(world, "go", ALL, MINE), "function_call")
        before = world.called
        bearer = {"authorization": f"Bearer {OTHER}", "url": "/v1/responses"}
        refused = await world.post(asking([approve(request)], ASKED), **bearer)
        passed = await world.post(asking([handed, output_of(handed)], ALL, MINE), **bearer)
        called = world.called

    assert refused.status == 400
    assert passed.status == 200
    assert [one["type"] for one in model.requests[2].body["input"]] == [
        "function_call",
        "function_call_output",
    ]
    assert called == before == ["one.echo ok"]


async def test_a_failure_in_a_later_round_is_the_answer_and_nothing_is_done_twice() -> None:
    """CHT-9"""
    async with (
        scripted_model(ResponsesScript([call("mcp__one__echo")], status(503))) as model,
        open_chat_world(MemoryNet(), upstreams=(upstream(model.url),)) as world,
    ):
        refused = await refuse(world)
        called = world.called

    assert refused["status"] == 503
    assert len(model.requests) == 2
    assert called == ["one.echo ok"]
