"""MCP-safe passthrough: what came is passed on, nothing is run, and no client is asked for what it lacks."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import openai
import pytest

from tests.docs.documents import EXAMPLES
from tests.surfaces.mcp.mcp_world import key, task
from tests.surfaces.openai.chat_world import ChatWorld, Streamed, official_client, open_chat_world, upstream
from tests.upstream.memory_link import MemoryNet
from tests.upstream.scripted_model import (
    ScriptedModel,
    calls,
    cut,
    hang,
    in_bytes,
    scripted_model,
    status,
    stream,
    text,
    whole,
    without_done,
)
from toolgate.chat.call_filter import CLOSING
from toolgate.model.chat import ChatBudgets
from toolgate.model.tasks import Task

pytestmark = pytest.mark.anyio

USER = {"role": "user", "content": "go"}
OWN = {"type": "function", "function": {"name": "own", "parameters": {"type": "object", "properties": {}}}}
ECHO = "mcp__one__echo"
SAFE = {"mode": "passthrough"}


@asynccontextmanager
async def safe_world(*script: Any, **fields: Any) -> AsyncIterator[tuple[ScriptedModel, ChatWorld]]:
    """A scripted model behind an upstream that only passes on."""
    async with (
        scripted_model(*script) as model,
        open_chat_world(MemoryNet(), upstreams=(upstream(model.url, **SAFE, **fields),)) as world,
    ):
        yield model, world


def body_of(**members: Any) -> dict[str, Any]:
    return {"model": "m", "messages": [USER], **members}


@asynccontextmanager
async def mcp_server_no_one_may_call() -> AsyncIterator[tuple[str, list[Any]]]:
    """An address, and the connections that were opened to it."""
    opened: list[Any] = []
    server = await asyncio.start_server(lambda *ends: opened.append(ends), "127.0.0.1", 0)
    async with server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/mcp", opened


@pytest.mark.requirement("002-104", "003-02")
@pytest.mark.parametrize("is_stream", [False, True])
async def test_a_body_passes_byte_for_byte_and_so_does_the_answer(is_stream: bool) -> None:
    sent = (
        b'{ "model":"m", "odd": [1.50, 1e2, "\\u00e9"],\n "stream" : %b, "metadata": {"a" : "b"} ,'
        b'"messages": [{"role":"user","content":"go"}] }' % (b"true" if is_stream else b"false")
    )
    responses = [
        b': hello\n\nid: 7\ndata: {"choices": [ {"index":0, "delta":{"content":"w"}} ], "odd" : 1.50}\n\n',
        b'data: {"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}\r\n\r\ndata: [DONE]\n\n',
    ]
    response = b'{ "choices":[ {"index":0,"message":{"content":"w"}, "odd":1.50} ] }'
    async with safe_world(stream(*responses) if is_stream else whole(response)) as (model, world):
        got = await world.post(sent)

    assert model.requests[0].raw == sent
    assert (got.status, got.body) == (200, b"".join(responses) if is_stream else response)


async def test_no_credential_and_no_field_of_the_gateway_reaches_the_model() -> None:
    async with (
        scripted_model(text("hi")) as model,
        open_chat_world(
            MemoryNet(),
            upstreams=(upstream(model.url, **SAFE, auth_ref="BACKEND"),),
            environ={"BACKEND": "backend-key"},
            keys=(key("k", "tg_client"),),
            trusts_local=False,
        ) as world,
    ):
        await world.post(
            body_of(model="main/m", toolgate={"explain": True}, metadata={"mcp.enabled": "true"}),
            authorization="Bearer tg_client",
            x_custom="mine",
            openai_organization="org",
        )

    [request] = model.requests
    assert request.headers["authorization"] == "Bearer backend-key"
    assert not {"x-custom", "openai-organization", "x-toolgate-task"} & set(request.headers)
    assert request.body == body_of()


@pytest.mark.requirement("003-01", "003-03", "003-04", "003-06")
@pytest.mark.parametrize("is_stream", [False, True])
async def test_other_tools_keep_their_shape_and_no_one_connects_for_them(is_stream: bool) -> None:
    """CHT-5"""
    async with mcp_server_no_one_may_call() as (url, opened):
        tools = [
            {"type": "mcp", "server_label": "x", "server_url": url, "require_approval": "never"},
            {"type": "web_search", "filters": {"allowed_domains": ["example.com"]}},
            {"type": "custom", "custom": {"name": "grammar", "format": {"type": "text"}}},
            {"type": "something_new", "deep": {"er": [1, {"x": None}]}},
        ]
        async with (
            safe_world(calls(("x.search", '{"q": 1}'), (ECHO, "{}")), text("said")) as (model, world),
            official_client(world) as client,
        ):
            create: Any = client.chat.completions.create
            response = await create(**body_of(tools=tools, stream=is_stream))
            if is_stream:
                response = await _accumulated(response)

    assert [request.body["tools"] for request in model.requests] == [tools, tools]
    assert response.choices[0].message.content == "said"
    assert response.choices[0].message.tool_calls is None
    assert response.choices[0].finish_reason == "stop"
    assert (opened, world.called, world.net.servers["one"].calls) == ([], [], [])


async def _accumulated(chunks: Any) -> Any:
    """A stream as the official client adds it up."""
    state = openai.lib.streaming.chat.ChatCompletionStreamState()
    async for chunk in chunks:
        state.handle_chunk(chunk)
    return state.get_final_completion()


async def test_tools_that_are_no_functions_are_refused_where_an_operator_says_so() -> None:
    """CHT-5"""
    async with safe_world(other_tools="refuse") as (model, world):
        got = await world.post(body_of(tools=[OWN, {"type": "mcp", "server_url": "http://127.0.0.1:1/"}]))

    assert got.status == 400
    assert got.json["error"]["param"] == "tools"
    assert "'mcp'" in got.json["error"]["message"]
    assert model.requests == []


@pytest.mark.requirement("003-05")
async def test_calls_of_declared_functions_pass_and_no_others() -> None:
    reply = calls((ECHO, "{}"), ("own", '{"a": 1}'), content="wait")
    async with safe_world(reply, reply) as (model, world), official_client(world) as client:
        whole_answer = await client.chat.completions.create(**body_of(tools=[OWN]))
        streamed = await _accumulated(
            await client.chat.completions.create(**body_of(tools=[OWN], stream=True))
        )

    for response in (whole_answer, streamed):
        [choice] = response.choices
        assert [one.function.name for one in choice.message.tool_calls] == ["own"]
        assert choice.message.tool_calls[0].function.arguments == '{"a": 1}'
        assert (choice.message.content, choice.finish_reason) == ("wait", "tool_calls")
    assert len(model.requests) == 2
    assert world.called == []


@pytest.mark.requirement("003-06")
@pytest.mark.parametrize("is_stream", [False, True])
async def test_where_no_call_remains_the_model_is_requested_text(is_stream: bool) -> None:
    """One place at the upstream is enough for it."""
    options = {"stream_options": {"include_usage": True}} if is_stream else {}
    body = body_of(tools=[OWN], tool_choice="required", stream=is_stream, seed=7, **options)
    async with safe_world(calls((ECHO, "{}")), text("said"), max_concurrency=1) as (model, world):
        got = await world.post(body)

    first, second = model.requests
    assert json.loads(first.raw) == body
    assert json.loads(second.raw) == body | {"tool_choice": "none"}
    if is_stream:
        streamed = Streamed(got)
        assert (streamed.text, streamed.finishes, streamed.calls) == ("said", ["stop"], [])
        assert [delta["role"] for delta in streamed.deltas if "role" in delta] == ["assistant"]
        assert {one["id"] for one in streamed.chunks} == {"chatcmpl-0"}
        usages = [one["usage"]["total_tokens"] for one in streamed.chunks if one.get("usage")]
        assert usages == [30]
    else:
        response = got.json
        assert response["id"] == "chatcmpl-0"
        assert response["choices"][0]["message"] == {"role": "assistant", "content": "said", "refusal": None}
        assert response["usage"]["total_tokens"] == 30


@pytest.mark.parametrize("is_stream", [False, True])
async def test_a_model_that_says_nothing_even_then_is_spoken_for(is_stream: bool) -> None:
    async with safe_world(calls((ECHO, "{}")), calls(("own", "{}"))) as (_, world):
        got = await world.post(body_of(tools=[OWN], stream=is_stream))

    if is_stream:
        streamed = Streamed(got)
        assert (streamed.text, streamed.finishes, streamed.calls) == (CLOSING, ["stop"], [])
    else:
        assert got.json["choices"][0]["message"]["content"] == CLOSING


async def test_a_stream_in_single_bytes_and_without_an_end_is_filtered_alike() -> None:
    """CHT-6"""
    script = [in_bytes(without_done(calls((ECHO, "{}")))), in_bytes(without_done(text("räksmörgås")))]
    async with safe_world(*script) as (_, world):
        streamed = Streamed(await world.post(body_of(tools=[OWN], stream=True)))

    assert (streamed.text, streamed.finishes) == ("räksmörgås", ["stop"])


@pytest.mark.parametrize("is_stream", [False, True])
async def test_what_the_models_server_refuses_passes_with_its_status_and_words(is_stream: bool) -> None:
    refusal = {"error": {"message": "no such thing", "type": "x", "param": "p", "code": "c"}}
    async with safe_world(status(422, refusal)) as (_, world):
        got = await world.post(body_of(stream=is_stream))

    assert (got.status, got.json) == (422, refusal)


async def test_a_stream_that_breaks_off_ends_with_an_error() -> None:
    """CHT-6"""
    async with safe_world(cut(text("a long enough answer", step=1), 600)) as (_, world):
        streamed = Streamed(await world.post(body_of(stream=True)))

    assert streamed.chunks[-1]["error"]["code"] == "model_unavailable"


async def test_a_second_answer_that_fails_ends_the_stream_with_an_error() -> None:
    """CHT-9"""
    async with safe_world(calls((ECHO, "{}")), status(500)) as (_, world):
        streamed = Streamed(await world.post(body_of(stream=True)))

    assert streamed.chunks[-1] == {
        "error": {"message": "status 500", "type": "server_error", "param": None, "code": None}
    }
    assert (streamed.calls, streamed.finishes) == ([], [])


@pytest.mark.parametrize(
    ("script", "is_stream"),
    [
        ([stream()], True),
        ([whole(b"<html>")], False),
        ([calls((ECHO, "{}")), whole({"choices": []})], True),
        ([calls((ECHO, "{}")), stream(b"data: [DONE]\n\n")], False),
    ],
    ids=["an empty stream", "no JSON", "a stream, then a whole", "a whole, then a stream"],
)
async def test_what_is_no_answer_is_an_error(script: list[Any], is_stream: bool) -> None:
    async with safe_world(*script) as (_, world):
        got = await world.post(body_of(stream=is_stream))

    assert b'"code":"model_unavailable"' in got.body


async def test_a_whole_answer_to_a_request_for_a_stream_passes_filtered() -> None:
    choice = {
        "index": 0,
        "message": {"content": "w", "function_call": {"name": "x"}},
        "finish_reason": "stop",
    }
    async with safe_world(whole({"choices": [choice]})) as (_, world):
        got = await world.post(body_of(stream=True))

    assert got.json["choices"][0]["message"] == {"content": "w"}
    assert got.headers["content-type"] == "application/json"


@pytest.mark.parametrize("where", ["upstream", "task", "request"])
async def test_each_of_three_can_switch_it_on(where: str) -> None:
    config = dict(task("t").config) | ({"chat.mode": '"passthrough"'} if where == "task" else {})
    ours = {"mcp": {"enabled": True}} | (SAFE if where == "request" else {})
    async with (
        scripted_model(text("said")) as model,
        open_chat_world(
            MemoryNet(),
            upstreams=(upstream(model.url, **(SAFE if where == "upstream" else {})),),
            tasks=(Task(task_id="t", config=config),),
        ) as world,
    ):
        await world.post(body_of(toolgate=ours), url="/t/t/v1/chat/completions")

    assert model.requests[0].body == body_of()


async def test_the_request_in_the_guide_passes_without_what_is_of_the_gateway_in_it() -> None:
    sent = json.loads((EXAMPLES / "chat" / "passthrough.json").read_text("utf-8"))
    async with (
        scripted_model(calls((ECHO, "{}"), ("open_page", "{}"))) as model,
        open_chat_world(MemoryNet(), upstreams=(upstream(model.url),)) as world,
    ):
        got = await world.post(sent)

    assert model.requests[0].body == {name: value for name, value in sent.items() if name != "toolgate"}
    made = got.json["choices"][0]["message"]["tool_calls"]
    assert [one["function"]["name"] for one in made] == ["open_page"]


async def test_comments_pass_in_both_halves_of_a_stream() -> None:
    alive = b": alive\n\n"
    script = [stream(alive, b'data: {"choices":[{"delta":{"tool_calls":[{"type":"mcp"}]}}]}\n\n')]
    script += [stream(alive, b'data: {"choices":[{"delta":{"content":"w"}}]}\n\n', b"data: [DONE]\n\n")]
    async with safe_world(*script) as (_, world):
        got = await world.post(body_of(stream=True))

    assert got.body.count(alive) == 2
    assert got.body.endswith(b"data: [DONE]\n\n")


async def test_a_request_cannot_switch_it_off() -> None:
    async with safe_world(text("said")) as (model, world):
        await world.post(body_of(toolgate={"mode": "inject", "mcp": {"enabled": True}}))

    assert model.requests[0].body == body_of()


async def test_without_a_scope_requests_pass_on_and_answers_are_not_filtered() -> None:
    async with (
        scripted_model(calls((ECHO, "{}"))) as model,
        open_chat_world(MemoryNet(), upstreams=(upstream(model.url),)) as world,
    ):
        got = await world.post(body_of())

    assert model.requests[0].body == body_of()
    assert got.json["choices"][0]["message"]["tool_calls"][0]["function"]["name"] == ECHO
    assert world.called == []


@pytest.mark.requirement("003-01", "003-05", "003-06")
@pytest.mark.parametrize("is_stream", [False, True])
async def test_an_upstream_can_filter_undeclared_calls_of_requests_without_a_task(is_stream: bool) -> None:
    hosted = {"type": "mcp", "server_label": "one", "server_url": "http://127.0.0.1:9/mcp"}
    only_hosted = body_of(tools=[hosted], stream=is_stream)
    both = body_of(tools=[hosted, OWN], stream=is_stream)
    async with (
        scripted_model(calls((ECHO, "{}")), text("said"), calls((ECHO, "{}"), ("own", "{}"))) as model,
        open_chat_world(MemoryNet(), upstreams=(upstream(model.url, filter_undeclared_calls=True),)) as world,
    ):
        responses = [await world.post(only_hosted), await world.post(both)]

    assert [request.body for request in model.requests] == [
        only_hosted,
        only_hosted | {"tool_choice": "none"},
        both,
    ]
    assert world.called == []
    if is_stream:
        final, rest = map(Streamed, responses)
        assert (final.text, final.finishes, final.calls) == ("said", ["stop"], [])
        assert {call["function"]["name"] for call in rest.calls if "name" in call["function"]} == {"own"}
    else:
        final, rest = (one.json["choices"][0]["message"] for one in responses)
        assert (final["content"], "tool_calls" in final) == ("said", False)
        assert [one["function"]["name"] for one in rest["tool_calls"]] == ["own"]


async def test_messages_out_of_order_are_refused_before_a_model_is_prompted() -> None:
    async with safe_world() as (model, world):
        got = await world.post(body_of(messages=[USER, {"role": "tool", "tool_call_id": "x", "content": ""}]))

    assert got.status == 400
    assert got.json["error"]["type"] == "invalid_request_error"
    assert got.json["error"]["param"] == "messages.[1].role"
    assert model.requests == []


@pytest.mark.parametrize("name", ["own", ECHO])
async def test_legacy_functions_pass_untouched_and_their_calls_are_filtered(name: str) -> None:
    called = {"role": "assistant", "content": None, "function_call": {"name": name, "arguments": "{}"}}
    choice = {"index": 0, "message": called, "finish_reason": "function_call"}
    sent = body_of(
        functions=[OWN["function"]],
        function_call="auto",
        messages=[USER, called, {"role": "function", "name": name, "content": "x"}],
    )
    async with safe_world(whole({"choices": [choice]}), text("said")) as (model, world):
        got = await world.post(sent)

    assert model.requests[0].body == sent
    if name == "own":
        assert got.json["choices"] == [choice]
    else:
        assert model.requests[1].body == sent | {"function_call": "none"}
        assert got.json["choices"][0]["message"]["content"] == "said"


async def test_a_client_that_does_not_read_has_no_place_for_longer_than_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """BUD-5"""
    never, short = asyncio.Event(), ChatBudgets(wall_clock_ms=500)
    async with safe_world(lambda _: text("a"), max_concurrency=1, budgets=short) as (model, world):
        unread = world.open(body_of(stream=True))
        monkeypatch.setattr(unread, "write", lambda _chunk: never.wait())
        await model.asked(1)
        async with asyncio.timeout(60):
            while (response := await world.post(body_of())).status != 200:
                await asyncio.sleep(0)
        await unread.leave()

    assert response.json["choices"][0]["message"]["content"] == "a"


async def test_a_client_that_goes_away_takes_the_models_work_along() -> None:
    async with safe_world(hang(text("never", step=1), after=250)) as (model, world):
        leaving = world.open(body_of(stream=True))
        await leaving.event()
        await leaving.leave()
        async with asyncio.timeout(60):
            await model.requests[0].hung_up.wait()

    assert world.called == []
