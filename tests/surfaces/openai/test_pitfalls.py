"""What chat loops get wrong, each once: the eight pitfalls."""

import json
from typing import Any

import pytest

from tests.surfaces.openai.chat_world import ChatWorld, open_chat_world, results, upstream
from tests.upstream.memory_link import MemoryNet
from tests.upstream.scripted_model import Ask, call, calls, scripted_model, text

pytestmark = pytest.mark.anyio

ECHO = "mcp__one__echo"
OWN = {"type": "function", "function": {"name": "own", "parameters": {"type": "object", "properties": {}}}}


def sent(world: ChatWorld) -> list[Any]:
    """The arguments of each call that came to the server."""
    return [seen.params["arguments"] for seen in world.net.servers["one"].calls]


@pytest.mark.requirement("002-024")
@pytest.mark.parametrize("choice", ["required", {"type": "function", "function": {"name": "mcp.one.echo"}}])
async def test_1_a_choice_that_was_satisfied_is_not_demanded_again(choice: Any) -> None:
    async with (
        scripted_model(calls((ECHO, "{}")), text("done"), strict=True) as model,
        open_chat_world(MemoryNet(), upstreams=(upstream(model.url),)) as world,
    ):
        response = await world.chat(tool_choice=choice)

    assert response["choices"][0]["message"]["content"] == "done"
    asked = [request.body.get("tool_choice") for request in model.requests]
    assert asked == [
        choice if isinstance(choice, str) else {"type": "function", "function": {"name": ECHO}},
        "auto",
    ]


@pytest.mark.requirement("002-022")
async def test_1_a_named_function_of_the_caller_goes_to_the_caller_and_none_runs_no_tool() -> None:
    async with (
        scripted_model(calls(("own", '{"a": 1}')), calls((ECHO, "{}"))) as model,
        open_chat_world(MemoryNet(), upstreams=(upstream(model.url),)) as world,
    ):
        named = await world.chat(tools=[OWN], tool_choice={"type": "function", "function": {"name": "own"}})
        none = await world.chat(tools=[OWN], tool_choice="none")

    assert [one["function"]["name"] for one in named["choices"][0]["message"]["tool_calls"]] == ["own"]
    assert named["choices"][0]["finish_reason"] == "tool_calls"
    assert model.requests[1].tool_names == ["own"]
    assert none["choices"][0]["message"]["tool_calls"][0]["function"]["name"] == ECHO
    assert not world.net.servers["one"].calls


async def test_2_calls_that_all_are_at_index_0_are_as_many_calls() -> None:
    async with (
        scripted_model(
            calls((ECHO, '{"n": 1}'), (ECHO, '{"n": 2}'), at_index_zero=True), text("done"), strict=True
        ) as model,
        open_chat_world(MemoryNet(), upstreams=(upstream(model.url),)) as world,
    ):
        response = await world.stream()

        assert sent(world) == [{"n": 1}, {"n": 2}]
    assert response.text == "done"
    assert len(results(model.requests[1])) == 2


async def test_3_calls_are_run_whatever_reason_to_end_they_come_with() -> None:
    async with (
        scripted_model(calls((ECHO, '{"n": 1}'), finish_reason="stop"), text("done"), strict=True) as model,
        open_chat_world(MemoryNet(), upstreams=(upstream(model.url),)) as world,
    ):
        response = await world.chat()

        assert sent(world) == [{"n": 1}]
    assert response["choices"][0]["message"]["content"] == "done"


@pytest.mark.requirement("002-101")
@pytest.mark.parametrize(
    "arguments",
    ["{", '{"a": 1}{"b": 2}', "", "[]", '"a"', '{"a": 1, "a": 2}', '{"a": "' + "x" * 2_000_000 + '"}'],
    ids=["cut", "concatenated", "empty", "array", "text", "repeated", "too long"],
)
async def test_4_arguments_that_are_no_object_are_an_error_and_never_run(arguments: str) -> None:
    """CHT-2"""
    async with (
        scripted_model(calls((ECHO, arguments, "call_1")), text("done"), strict=True) as model,
        open_chat_world(MemoryNet(), upstreams=(upstream(model.url),)) as world,
    ):
        response = await world.chat(toolgate={"progress": True})

        assert not world.net.servers["one"].calls
    error = json.loads(results(model.requests[1])["call_1"])["error"]
    assert (error["code"], error["retryable"]) == ("mcp_invalid_arguments", True)
    assert response["toolgate"] == {"rounds": 1, "tool_calls": 1}


async def test_5_every_call_is_answered_also_those_of_nothing_and_in_the_end_nothing_may_be_called() -> None:
    """CHT-1"""
    async with (
        scripted_model(
            calls((ECHO, "{}", "a"), ("mcp__one__echoes", "{}", "b")),
            calls(("nothing", "{}", "c")),
            calls((ECHO, "{}", "d")),
            strict=True,
        ) as model,
        open_chat_world(MemoryNet(), upstreams=(upstream(model.url),)) as world,
    ):
        response = await world.chat(toolgate={"budgets": {"max_iterations": 2}})

        assert len(world.net.servers["one"].calls) == 1
    error = json.loads(results(model.requests[1])["b"])["error"]
    assert (error["code"], error["retryable"]) == ("unknown_tool", False)
    assert ECHO in error["message"]
    assert set(results(model.requests[2])) == {"a", "b", "c"}
    last = model.requests[2].body
    assert (last["tool_choice"], model.requests[2].tool_names) == ("none", [ECHO])
    message = response["choices"][0]["message"]
    assert "tool_calls" not in message
    assert "at most 2 rounds" in message["content"]
    assert response["toolgate"] == {"stopped": "round_limit"}


async def test_6_what_only_the_models_server_understands_comes_back_to_it() -> None:
    signature = {"google": {"thought_signature": "c2ln"}}
    turn = calls(call(ECHO, {}, id="a", extra_content=signature), extra={"reasoning_content": "hm"})
    async with (
        scripted_model(turn, text("done"), strict=True) as model,
        open_chat_world(MemoryNet(), upstreams=(upstream(model.url),)) as world,
    ):
        await world.chat()

    sent_text = model.requests[1].messages[1]
    assert (sent_text["reasoning_content"], sent_text["tool_calls"][0]["extra_content"]) == ("hm", signature)


async def test_7_the_same_call_for_the_third_time_is_not_run() -> None:
    def script(request: Ask) -> Any:
        return calls(
            (ECHO, '{"b": 1, "a": 2}' if request.number % 2 else '{"a": 2, "b": 1}', f"c{request.number}")
        )

    async with (
        scripted_model(script, strict=True) as model,
        open_chat_world(MemoryNet(), upstreams=(upstream(model.url),)) as world,
    ):
        response = await world.chat()

        assert len(world.net.servers["one"].calls) == 2
    assert json.loads(results(model.requests[3])["c2"])["error"]["code"] == "repeated_call"
    assert response["toolgate"] == {"stopped": "repeated_calls"}


@pytest.mark.parametrize("options", [{}, {"include_usage": True}, {"include_usage": False}])
async def test_8_usage_is_that_of_all_rounds_and_sent_once_if_it_is_requested(options: Any) -> None:
    async with (
        scripted_model(calls((ECHO, "{}")), text("done")) as model,
        open_chat_world(MemoryNet(), upstreams=(upstream(model.url),)) as world,
    ):
        response = await world.stream(**({"stream_options": options} if options else {}))

    used = [one["usage"] for one in response.chunks if one.get("usage")]
    total = {"prompt_tokens": 20, "completion_tokens": 10, "total_tokens": 30}
    assert used == ([total] if options.get("include_usage") else [])
    assert all(request.body["stream_options"]["include_usage"] for request in model.requests)
