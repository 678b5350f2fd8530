"""OpenAI's own client at `/v1/responses`: what it parses, and what it puts together from events."""

from typing import Any

import openai
import pytest

from tests.surfaces.openai.chat_world import official_client, open_chat_world, upstream
from tests.surfaces.openai.responses_world import ALL, ASKED, MINE
from tests.upstream.memory_link import MemoryNet
from tests.upstream.responses_model import ResponsesScript, call, reason, say
from tests.upstream.scripted_model import scripted_model, status

pytestmark = pytest.mark.anyio

TOOLS: Any = [ALL]
WAITING: Any = [ASKED]
BOTH: Any = [ALL, MINE]
LOOP = ([reason(), say("Hm."), call("mcp__one__echo", {"n": 1})], [say("done")])


async def test_it_gets_a_loop_whole_streamed_and_put_together() -> None:
    async with (
        scripted_model(ResponsesScript(*LOOP, *LOOP, *LOOP)) as model,
        open_chat_world(MemoryNet(), upstreams=(upstream(model.url),)) as world,
        official_client(world) as client,
    ):
        whole = await client.responses.create(model="m", input="go", tools=TOOLS)
        events = [
            one
            async for one in await client.responses.create(model="m", input="go", tools=TOOLS, stream=True)
        ]
        async with client.responses.stream(model="m", input="go", tools=TOOLS) as stream:
            final = await stream.get_final_response()
        called = world.called

    kinds = ["mcp_list_tools", "reasoning", "message", "mcp_call", "message"]
    assert [one.type for one in whole.output] == kinds
    assert [one.type for one in final.output] == kinds
    assert whole.output_text == final.output_text == "Hm.done"
    assert events[-1].type == "response.completed"
    assert [one.type for one in events[-1].response.output] == kinds
    assert called == ["one.echo ok"] * 3


async def test_it_continues_after_a_function_of_its_own_and_an_approval() -> None:
    mixed = [call("mcp__one__echo"), call("mine", {"a": 1})]
    script = ResponsesScript(mixed, [say("one")], [call("mcp__one__echo")], [say("two")])
    async with (
        scripted_model(script) as model,
        open_chat_world(MemoryNet(), upstreams=(upstream(model.url),)) as world,
        official_client(world) as client,
    ):
        async with client.responses.stream(model="m", input="go", tools=BOTH) as stream:
            first = await stream.get_final_response()
        handed: Any = first.output[-1]
        response: Any = {"type": "function_call_output", "call_id": handed.call_id, "output": "42"}
        second = await client.responses.create(
            model="m", input=[response], tools=BOTH, previous_response_id=first.id
        )
        asked = await client.responses.create(model="m", input="go", tools=WAITING)
        approval: Any = {
            "type": "mcp_approval_response",
            "approval_request_id": asked.output[-1].id,
            "approve": True,
        }
        async with client.responses.stream(
            model="m", input=[approval], tools=WAITING, previous_response_id=asked.id
        ) as stream:
            last = await stream.get_final_response()
        called = world.called

    assert (second.output_text, last.output_text) == ("one", "two")
    assert [one.type for one in last.output] == ["mcp_list_tools", "mcp_call", "message"]
    assert called == ["one.echo ok"] * 2


async def test_it_raises_what_it_is_reported() -> None:
    async with (
        scripted_model(ResponsesScript(status(429), status(429), status(429))) as model,
        open_chat_world(MemoryNet(), upstreams=(upstream(model.url),)) as world,
        official_client(world) as client,
    ):
        with pytest.raises(openai.RateLimitError):
            await client.responses.create(model="m", input="go", tools=TOOLS)
        with pytest.raises(openai.BadRequestError, match="server_label"):
            await client.responses.create(
                model="m", input="go", tools=[{"type": "mcp", "server_label": "no-such"}]
            )
