"""Clients that know `functions` and no tools have the tools of their scope all the same."""

from typing import Any

import pytest

from tests.surfaces.openai.chat_world import asking, official_client, open_chat_world, upstream
from tests.upstream.memory_link import MemoryNet
from tests.upstream.scripted_model import calls, scripted_model, text

pytestmark = pytest.mark.anyio

ECHO = "mcp__one__echo"
OWN = {"name": "own", "parameters": {"type": "object", "properties": {}}}
USER = {"role": "user", "content": "go"}


@pytest.mark.parametrize("is_stream", [False, True])
async def test_a_function_of_old_and_tools_of_the_gateway_take_turns(is_stream: bool) -> None:
    """The half that the client does not see comes back with its result, on strict terms."""
    async with (
        scripted_model(
            calls((ECHO, '{"n": 1}'), ("own", '{"a": 1}'), content="wait"), text("done"), strict=True
        ) as model,
        open_chat_world(MemoryNet(), upstreams=(upstream(model.url),)) as world,
        official_client(world) as client,
    ):
        create: Any = client.chat.completions.create
        body = asking(functions=[OWN], function_call="auto", stream=is_stream)
        ours = {"toolgate": body.pop("toolgate")}
        message, finish_reason = await _answer(await create(**body, extra_body=ours), is_stream)
        result = {"role": "function", "name": "own", "content": "mine"}
        body["messages"] = [USER, message, result]
        final, _ = await _answer(await create(**body, extra_body=ours), is_stream)

    call = message["function_call"]
    assert (call["name"], call["arguments"], finish_reason) == ("own", '{"a": 1}', "function_call")
    assert message.get("tool_calls") is None
    assert final["content"] == "done"
    assert world.called == ["one.echo ok"]
    first, second = model.requests
    assert first.tool_names == ["own", ECHO]
    assert not {"functions", "function_call"} & set(first.body)
    asked = second.messages[1]
    assert [one["function"]["name"] for one in asked["tool_calls"]] == [ECHO, "own"]
    received = {one["tool_call_id"]: one["content"] for one in second.messages[2:]}
    assert list(received) == [one["id"] for one in asked["tool_calls"]]
    assert received[asked["tool_calls"][1]["id"]] == "mine"


async def _answer(response: Any, is_stream: bool) -> tuple[dict[str, Any], str]:
    """The message as the client sends it again, and why it ended."""
    if not is_stream:
        return response.choices[0].message.model_dump(exclude_none=True), response.choices[0].finish_reason
    message: dict[str, Any] = {"role": "assistant", "content": ""}
    reasons = []
    async for chunk in response:
        for choice in chunk.choices:
            message["content"] += choice.delta.content or ""
            if choice.delta.function_call is not None:
                message["function_call"] = choice.delta.function_call.model_dump(exclude_none=True)
            reasons += [choice.finish_reason] if choice.finish_reason else []
    [reason] = reasons
    return message, reason


async def test_a_request_that_wants_no_call_is_passed_on_in_its_own_form() -> None:
    async with (
        scripted_model(text("said")) as model,
        open_chat_world(MemoryNet(), upstreams=(upstream(model.url),)) as world,
    ):
        await world.post(asking(functions=[OWN], function_call="none"))

    assert model.requests[0].body == {
        "model": "m",
        "messages": [USER],
        "functions": [OWN],
        "function_call": "none",
    }


async def test_a_request_in_both_forms_is_refused() -> None:
    async with open_chat_world(MemoryNet(), upstreams=(upstream("http://127.0.0.1:1/v1"),)) as world:
        got = await world.post(asking(functions=[OWN], tool_choice="auto"))

    assert (got.status, got.json["error"]["param"]) == (400, "tool_choice")
