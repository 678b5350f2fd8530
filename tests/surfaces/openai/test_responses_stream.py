"""`POST /v1/responses`, streamed: one response to the client, however many rounds it takes."""

import asyncio
from dataclasses import replace

import pytest

from tests.surfaces.openai.chat_world import open_chat_world, upstream
from tests.surfaces.openai.responses_world import ALL, MINE, asking, respond, shape, stream
from tests.upstream.memory_link import MemoryNet
from tests.upstream.responses_model import ResponsesScript, call, reason, say
from tests.upstream.scripted_model import (
    Ask,
    Reply,
    cut,
    events,
    fail_after,
    hang,
    hold,
    scripted_model,
    status,
)
from toolgate.model.chat import ChatBudgets

pytestmark = pytest.mark.anyio


async def test_rounds_are_one_stream_with_the_events_of_mcp_calls() -> None:
    script = ResponsesScript(
        [reason(), say("let me see"), call("mcp__one__echo", {"n": 1}), call("mcp__one__echo", "[1")],
        [say("done")],
    )
    async with (
        scripted_model(script) as model,
        open_chat_world(MemoryNet(), upstreams=(upstream(model.url),)) as world,
    ):
        streamed = await stream(world)

    assert shape(streamed.response) == [
        "lists toolgate: one.echo",
        "reasoning",
        "says let me see",
        'completed toolgate:one.echo {"n": 1}',
        "failed toolgate:one.echo [1",
        "says done",
    ]
    assert streamed.text == "let me seedone"
    assert streamed.response["id"] == "resp_0"
    assert streamed.response["usage"]["total_tokens"] == 30
    assert [one for one in streamed.types if one.startswith("mcp")] == [
        "mcp_list_tools.in_progress",
        "mcp_list_tools.completed",
        "mcp_call.in_progress",
        "mcp_call_arguments.delta",
        "mcp_call_arguments.delta",
        "mcp_call_arguments.done",
        "mcp_call.in_progress",
        "mcp_call_arguments.delta",
        "mcp_call_arguments.done",
        "mcp_call.completed",
        "mcp_call.failed",
    ]
    assert not [one for one in streamed.types if one.startswith("function_call")]


async def test_text_continues_before_the_reply_is_complete() -> None:
    """The client reads the first letter while the model's server is still held."""
    script = ResponsesScript([say("words")])
    gate = asyncio.Event()

    def held(request: Ask) -> Reply:
        begun = script(request)(request).pieces[:6]
        return hold(script(request), gate, after=sum(map(len, begun)))

    async with (
        scripted_model(held) as model,
        open_chat_world(MemoryNet(), upstreams=(upstream(model.url),)) as world,
    ):
        response = world.open(asking(stream=True), url="/v1/responses")
        while (await response.event()).get("delta") != "w":
            pass
        gate.set()
        while (event := await response.event())["type"] != "response.completed":
            pass

    assert shape(event["response"])[-1] == "says words"


async def test_a_stream_of_several_rounds_is_gone_on_with_from_its_last_one() -> None:
    script = ResponsesScript([call("mcp__one__echo")], [say("one")], [say("two")], [say("three")])
    async with (
        scripted_model(script) as model,
        open_chat_world(MemoryNet(), upstreams=(upstream(model.url),)) as world,
    ):
        first = await stream(world)
        second = await respond(world, "and?", previous_response_id=first.response["id"])
        await world.post(
            {"model": "m", "input": "and?", "previous_response_id": first.response["id"]}, url="/v1/responses"
        )

    assert first.response["id"] == "resp_0"
    assert model.requests[2].body["previous_response_id"] == "resp_1"
    assert second["previous_response_id"] == "resp_0"
    assert model.requests[3].body["previous_response_id"] == "resp_1"


async def test_a_client_function_is_streamed_with_the_id_that_carries_the_rest() -> None:
    script = ResponsesScript([call("mine", {"a": 1}), call("mcp__one__echo"), say("both")], [say("done")])
    async with (
        scripted_model(script) as model,
        open_chat_world(MemoryNet(), upstreams=(upstream(model.url),)) as world,
    ):
        first = await stream(world, "go", ALL, MINE)
        handed = first.response["output"][1]
        output = {"type": "function_call_output", "call_id": handed["call_id"], "output": "42"}
        second = await stream(world, [output], ALL, MINE, previous_response_id=first.response["id"])

    assert shape(first.response) == [
        "lists toolgate: one.echo",
        'hands mine {"a": 1}',
        "completed toolgate:one.echo {}",
        "says both",
    ]
    assert handed["call_id"].startswith("tgc_")
    assert shape(second.response)[-1] == "says done"
    assert [one["call_id"] for one in model.requests[1].body["input"]] == ["call_0_1", "call_0_0"]


@pytest.mark.parametrize(
    ("broken", "code"),
    [
        pytest.param(status(500), "server_error", id="refused"),
        pytest.param(status(429), "rate_limit_exceeded", id="too much"),
        pytest.param(events({"type": "error", "message": "gone"}), "server_error", id="error"),
        pytest.param(fail_after(events(), 0), "server_error", id="error line"),
        pytest.param(
            events({"type": "response.created", "response": {"id": "x"}}), "server_error", id="no end"
        ),
    ],
)
async def test_a_failure_in_a_later_round_ends_the_stream_as_failed(broken: Reply, code: str) -> None:
    """CHT-9: what was done is told, nothing is done twice, and the end is one the client knows."""
    script = ResponsesScript([call("mcp__one__echo")], broken)
    async with (
        scripted_model(script) as model,
        open_chat_world(MemoryNet(), upstreams=(upstream(model.url),)) as world,
    ):
        streamed = await stream(world)
        called = world.called

    assert streamed.types[-1] == "failed"
    assert streamed.response["error"]["code"] == code
    assert shape(streamed.response)[1:] == ["completed toolgate:one.echo {}"]
    assert called == ["one.echo ok"]


async def test_a_stream_that_breaks_off_in_the_middle_of_a_text_keeps_what_was_sent() -> None:
    script = ResponsesScript([say("half of it")])
    async with (
        scripted_model(lambda request: cut(script(request), 3_200)) as model,
        open_chat_world(MemoryNet(), upstreams=(upstream(model.url),)) as world,
    ):
        streamed = await stream(world)

    assert streamed.types[-1] == "failed"
    assert streamed.text
    assert shape(streamed.response)[1:] == [f"says {streamed.text}"]


async def test_what_fails_before_anything_was_sent_has_a_status_of_its_own() -> None:
    async with (
        scripted_model(ResponsesScript(status(422))) as model,
        open_chat_world(MemoryNet(), upstreams=(upstream(model.url),)) as world,
    ):
        response = await world.post(asking(stream=True), url="/v1/responses")

    assert response.status == 422


async def test_an_incomplete_reply_ends_as_incomplete_and_its_calls_are_not_run() -> None:
    script = ResponsesScript([say("cut"), call("mcp__one__echo", '{"n"')], ending="incomplete")
    async with (
        scripted_model(script) as model,
        open_chat_world(MemoryNet(), upstreams=(upstream(model.url),)) as world,
    ):
        streamed = await stream(world)
        called = world.called

    assert streamed.types[-1] == "incomplete"
    assert streamed.response["incomplete_details"] == {"reason": "max_output_tokens"}
    assert shape(streamed.response)[1:] == ["says cut", 'incomplete toolgate:one.echo {"n"']
    assert called == []


@pytest.mark.parametrize(("after", "sent_text"), [(0, ""), (6, "wo")])
async def test_a_model_that_takes_too_long_ends_in_a_whole_response_that_says_so(
    after: int, sent_text: str
) -> None:
    """CHT-3"""
    script = ResponsesScript([say("words")])

    def held(request: Ask) -> Reply:
        return hang(script(request), after=sum(map(len, script(request)(request).pieces[:after])))

    budgets = ChatBudgets(wall_clock_ms=1_500)
    async with (
        scripted_model(held) as model,
        open_chat_world(MemoryNet(), upstreams=(upstream(model.url, budgets=budgets),)) as world,
    ):
        streamed = await stream(world)

    assert streamed.types[-1] == "completed"
    assert streamed.response["toolgate"] == {"stopped": "time_limit"}
    assert shape(streamed.response)[1:-1] == ([f"says {sent_text}"] if sent_text else [])
    assert shape(streamed.response)[-1].startswith("says Stopped: ")


async def test_a_client_that_leaves_ends_the_models_reply() -> None:
    script = ResponsesScript([say("words")])
    async with (
        scripted_model(lambda request: hang(script(request), after=2_000)) as model,
        open_chat_world(MemoryNet(), upstreams=(upstream(model.url),)) as world,
    ):
        response = world.open(asking(stream=True), url="/v1/responses")
        await response.event()
        await response.leave()
        async with asyncio.timeout(60):
            await model.requests[0].hung_up.wait()


async def test_a_forwarded_stream_that_breaks_off_says_so() -> None:
    script = ResponsesScript([say("words")])
    async with (
        scripted_model(lambda request: cut(script(request), 2_000)) as model,
        open_chat_world(MemoryNet(), upstreams=(upstream(model.url),)) as world,
    ):
        sent = {"model": "m", "input": "go", "stream": True}
        response = await world.post(sent, url="/v1/responses")

    *_, broken = response.body.decode().strip().split("\n\n")
    assert broken.startswith("event: error\ndata: ")
    assert "model_unavailable" in broken


async def test_a_whole_answer_to_a_stream_is_streamed() -> None:
    script = ResponsesScript([call("mcp__one__echo")], [say("done")])

    def unstreamed(request: Ask) -> Reply:
        return lambda request: script(request)(replace(request, body={**request.body, "stream": False}))

    async with (
        scripted_model(unstreamed) as model,
        open_chat_world(MemoryNet(), upstreams=(upstream(model.url),)) as world,
    ):
        streamed = await stream(world)

    assert shape(streamed.response)[1:] == ["completed toolgate:one.echo {}", "says done"]
