"""OpenAI's own client at the chat door."""

from typing import Any

import openai
import pytest

from tests.surfaces.openai.chat_world import official_client, open_chat_world, upstream
from tests.upstream.memory_link import MemoryNet
from tests.upstream.scripted_model import Ask, calls, cut, scripted_model, status, text

pytestmark = pytest.mark.anyio

ECHO = "mcp__one__echo"
ENABLED: Any = {"toolgate": {"mcp": {"enabled": True}}}
USER: Any = {"role": "user", "content": "go"}
OWN: Any = {"type": "function", "function": {"name": "own", "parameters": {"type": "object"}}}


def three_rounds(request: Ask) -> Any:
    return (
        calls((ECHO, f'{{"n": {request.number}}}'), content="Hm.") if request.number % 4 < 3 else text("done")
    )


async def test_it_completes_loops_of_several_rounds_streamed_and_not() -> None:
    async with (
        scripted_model(three_rounds, strict=True) as model,
        open_chat_world(MemoryNet(), upstreams=(upstream(model.url),)) as world,
        official_client(world) as client,
    ):
        whole = await client.chat.completions.create(model="m", messages=[USER], extra_body=ENABLED)
        async with client.chat.completions.stream(
            model="m", messages=[USER], extra_body=ENABLED, stream_options={"include_usage": True}
        ) as stream:
            final = await stream.get_final_completion()

        assert world.called == ["one.echo ok"] * 6
    assert (whole.choices[0].message.content, whole.choices[0].finish_reason) == ("done", "stop")
    assert final.choices[0].message.content == "Hm.\n\nHm.\n\nHm.\n\ndone"
    assert (final.choices[0].finish_reason, final.choices[0].message.tool_calls) == ("stop", None)
    assert whole.usage is not None
    assert final.usage is not None
    assert whole.usage.total_tokens == final.usage.total_tokens == 60


async def test_it_is_handed_its_own_functions_and_continues_with_their_results() -> None:
    mixed = calls((ECHO, "{}", "a"), ("own", '{"x": 1}', "b"))
    async with (
        scripted_model(mixed, text("one"), mixed, text("two"), strict=True) as model,
        open_chat_world(MemoryNet(), upstreams=(upstream(model.url),)) as world,
        official_client(world) as client,
    ):
        responses = [await whole_turn(client), await streamed_turn(client)]

        assert world.called == ["one.echo ok"] * 2
    assert responses == ["one", "two"]
    for request in (model.requests[1], model.requests[3]):
        assert [one.get("tool_call_id") for one in request.messages] == [None, None, "a", "b"]


async def whole_turn(client: openai.AsyncOpenAI) -> str | None:
    first = await client.chat.completions.create(model="m", messages=[USER], tools=[OWN], extra_body=ENABLED)
    return await go_on(client, first.choices[0].message)


async def streamed_turn(client: openai.AsyncOpenAI) -> str | None:
    async with client.chat.completions.stream(
        model="m", messages=[USER], tools=[OWN], extra_body=ENABLED
    ) as stream:
        final = await stream.get_final_completion()
    return await go_on(client, final.choices[0].message)


async def go_on(client: openai.AsyncOpenAI, message: Any) -> str | None:
    (call,) = message.tool_calls
    result = {"role": "tool", "tool_call_id": call.id, "content": "42"}
    history: Any = [USER, message.model_dump(exclude_none=True), result]
    second = await client.chat.completions.create(
        model="m", messages=history, tools=[OWN], extra_body=ENABLED
    )
    return second.choices[0].message.content


async def test_it_raises_what_the_model_and_the_gateway_say() -> None:
    refusal = {"error": {"message": "too long", "type": "x", "param": "messages", "code": "context_length"}}
    model_completion = (status(400, body=refusal), cut(text("a" * 400), 1200))
    async with (
        scripted_model(*model_completion) as model,
        open_chat_world(MemoryNet(), upstreams=(upstream(model.url, models=("m",)),)) as world,
        official_client(world) as client,
    ):
        with pytest.raises(openai.BadRequestError) as refused:
            await client.chat.completions.create(model="m", messages=[USER], extra_body=ENABLED)
        with pytest.raises(openai.APIError) as broken:
            async for _ in await client.chat.completions.create(
                model="m", messages=[USER], stream=True, extra_body=ENABLED
            ):
                pass
        with pytest.raises(openai.NotFoundError) as unknown:
            await client.chat.completions.create(model="other", messages=[USER])
        with pytest.raises(openai.BadRequestError) as wrong:
            await client.chat.completions.create(model="m", messages=[], extra_body=ENABLED)

    assert (refused.value.code, refused.value.param) == ("context_length", "messages")
    assert broken.value.code == "model_unavailable"
    assert (unknown.value.code, "`m`" in str(unknown.value)) == ("model_not_found", True)
    assert unknown.value.request_id is not None
    assert wrong.value.param == "messages"


async def test_it_lists_models() -> None:
    async with (
        scripted_model(models=["a", "b"]) as first,
        scripted_model(models=["c"]) as second,
        open_chat_world(
            MemoryNet(), upstreams=(upstream(first.url, "x", models=("a",)), upstream(second.url, "y"))
        ) as world,
        official_client(world) as client,
    ):
        listed = [one.id async for one in await client.models.list()]
        found = await client.models.retrieve("a")
        with pytest.raises(openai.NotFoundError):
            await client.models.retrieve("b")

    assert "a" in listed
    assert "b" not in listed
    assert [one for one in listed if one.endswith("c")]
    assert found.id == "a"
