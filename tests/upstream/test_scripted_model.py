"""The scripted model is like the real ones where it should be, and like the bad ones where it should be."""

import asyncio
import json
from typing import Any

import pytest
from openai import APIStatusError, AsyncOpenAI
from openai.types import Model
from openai.types.chat import ChatCompletion, ChatCompletionChunk

from tests.upstream.scripted_model import (
    Ask,
    Reply,
    call,
    calls,
    cut,
    fail_after,
    hang,
    hold,
    in_bytes,
    scripted_model,
    status,
    text,
    without_done,
)
from tests.upstream.strict_history import fault_of

pytestmark = pytest.mark.anyio

_ASK: dict[str, Any] = {"model": "scripted", "messages": [{"role": "user", "content": "hi"}]}
_GOOD = [
    pytest.param(text("héllo, wörld"), id="text"),
    pytest.param(text("one", step=1), id="text by the character"),
    pytest.param(calls(("a", '{"x": 1}'), ("b", "{}", "call_b"), content="let me see"), id="calls"),
    pytest.param(calls(call("a", {"x": 1}, extra_content={"google": {}})), id="unknown fields"),
    pytest.param(text("no usage", usage=None), id="without usage"),
    pytest.param(in_bytes(text("é")), id="byte by byte"),
]


def _ask(**more: Any) -> Ask:
    body = {**_ASK, **more}
    return Ask(0, "POST", "/v1/chat/completions", {}, json.dumps(body).encode(), body)


@pytest.mark.parametrize("completion", _GOOD)
def test_every_well_behaved_reply_is_what_the_official_types_say(completion: Reply) -> None:
    body = b"".join(completion(_ask()).pieces)
    stream = b"".join(completion(_ask(stream=True, stream_options={"include_usage": True})).pieces)

    ChatCompletion.model_validate_json(body, strict=True)
    *chunks, done, rest = stream.split(b"\n\n")
    for chunk in chunks:
        ChatCompletionChunk.model_validate_json(chunk.removeprefix(b"data: "), strict=True)
    assert (done, rest) == (b"data: [DONE]", b"")


async def test_the_official_client_reads_it() -> None:
    script = (calls(("a", '{"x": 1}')), text("done", step=1), status(429))
    async with (
        asyncio.timeout(60),
        scripted_model(*script, models=["m"]) as model,
        AsyncOpenAI(base_url=model.url, api_key="k", max_retries=0) as client,
    ):
        first = await client.chat.completions.create(**_ASK)
        second = await client.chat.completions.create(**_ASK, stream=True)
        words = [chunk.choices[0].delta.content or "" async for chunk in second]
        with pytest.raises(APIStatusError) as refused:
            await client.chat.completions.create(**_ASK)
        models = [one async for one in client.models.list()]

    made = first.choices[0].message.tool_calls or []
    assert [(one.id, one.type) for one in made] == [("call_0_0", "function")]
    assert "".join(words) == "done"
    assert refused.value.status_code == 429
    assert models == [Model(id="m", object="model", created=models[0].created, owned_by="scripted")]
    assert [request.headers["authorization"] for request in model.requests] == ["Bearer k"] * 3
    assert len(model.lists) == 1


async def test_a_script_may_be_a_function_and_ends_with_an_error() -> None:
    async with (
        asyncio.timeout(60),
        scripted_model(lambda request: text(request.messages[-1]["content"])) as model,
        scripted_model(status(503)) as short,
        AsyncOpenAI(base_url=model.url, api_key="k", max_retries=0) as client,
        AsyncOpenAI(base_url=short.url, api_key="k", max_retries=1) as patient,
    ):
        echoed = await client.chat.completions.create(**_ASK)
        with pytest.raises(APIStatusError) as nothing_left:
            await patient.chat.completions.create(**_ASK)

    assert echoed.choices[0].message.content == "hi"
    assert nothing_left.value.status_code == 500


async def test_it_notices_a_client_that_goes() -> None:
    async with (
        asyncio.timeout(60),
        scripted_model(hang(text("some words"), after=40)) as model,
        AsyncOpenAI(base_url=model.url, api_key="k", max_retries=0) as client,
    ):
        asking = asyncio.create_task(client.chat.completions.create(**_ASK))
        request = await model.asked(1)
        asking.cancel()
        await request.hung_up.wait()


async def test_it_waits_where_it_is_notified_to() -> None:
    gate = asyncio.Event()
    async with (
        asyncio.timeout(60),
        scripted_model(hold(text("ab", step=1), gate, after=450)) as model,
        AsyncOpenAI(base_url=model.url, api_key="k", max_retries=0) as client,
    ):
        chunks = await client.chat.completions.create(**_ASK, stream=True)
        first = await anext(chunks)
        gate.set()
        rest = [chunk async for chunk in chunks]

    assert first.choices[0].delta.role == "assistant"
    assert len(rest) == 3
    assert not model.requests[0].hung_up.is_set()


@pytest.mark.parametrize(
    ("completion", "end"),
    [
        pytest.param(cut(text("abc"), 30), b'data: {"id":"chatcmpl-0","obje', id="cut"),
        pytest.param(without_done(text("abc")), b"\n\n", id="no DONE"),
        pytest.param(fail_after(text("abc"), 1, {"error": {"message": "m"}}), b'"m"}}\n\n', id="an error"),
    ],
)
async def test_a_stream_may_end_badly(completion: Reply, end: bytes) -> None:
    async with asyncio.timeout(60), scripted_model(completion) as model:
        reader, writer = await asyncio.open_connection("127.0.0.1", model.port)
        body = json.dumps({**_ASK, "stream": True}).encode()
        writer.write(b"POST /v1/chat/completions HTTP/1.1\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
        try:
            received = await reader.readuntil(b"\r\n0\r\n\r\n")
        except asyncio.IncompleteReadError as exc:
            received = exc.partial
        writer.close()

    assert received.removesuffix(b"0\r\n\r\n").removesuffix(b"\r\n").endswith(end)
    assert b"[DONE]" not in received


_CALL = {"id": "c1", "type": "function", "function": {"name": "a", "arguments": "{}"}}
_SAYS = {"role": "assistant", "content": None, "tool_calls": [_CALL]}
_ANSWER = {"role": "tool", "tool_call_id": "c1", "content": "x"}
_TOOL = {"type": "function", "function": {"name": "a", "parameters": {"type": "object"}}}


def _saying(**change: Any) -> list[dict[str, Any]]:
    function = {**_CALL["function"], **change}  # type: ignore[dict-item]
    return [{**_SAYS, "tool_calls": [{**_CALL, "function": function}]}, _ANSWER]


@pytest.mark.parametrize(
    ("body", "param"),
    [
        pytest.param({"messages": [_SAYS, _ANSWER], "tools": [_TOOL]}, None, id="all is well"),
        pytest.param({"messages": [_SAYS]}, "messages.[1].role", id="an unanswered call at the end"),
        pytest.param({"messages": [_SAYS, _ASK["messages"][0]]}, "messages.[1].role", id="and before"),
        pytest.param({"messages": [_ANSWER]}, "messages.[0].role", id="an answer to nothing"),
        pytest.param({"messages": [_SAYS, _ANSWER, _ANSWER]}, "messages.[2].role", id="answered twice"),
        pytest.param(
            {
                "messages": [
                    {**_SAYS, "tool_calls": [{**_CALL, "id": "c" * 41}]},
                    {**_ANSWER, "tool_call_id": "c" * 41},
                ]
            },
            "messages[0].tool_calls[0].id",
            id="a long id",
        ),
        pytest.param(
            {"messages": _saying(arguments='{"a"')},
            "messages[0].tool_calls[0].function.arguments",
            id="arguments that are no JSON",
        ),
        pytest.param(
            {"messages": _saying(name="a.b")}, "messages[0].tool_calls[0].function.name", id="a dotted call"
        ),
        pytest.param(
            {"tools": [{"type": "function", "function": {"name": "a.b"}}]},
            "tools[0].function.name",
            id="a dotted name",
        ),
        pytest.param({"tools": [_TOOL] * 129}, "tools", id="too many tools"),
        pytest.param({"tool_choice": "auto"}, "tool_choice", id="a choice of nothing"),
        pytest.param({"messages": []}, "messages", id="no messages"),
    ],
)
async def test_it_is_as_strict_as_the_strictest(body: dict[str, Any], param: str | None) -> None:
    fault = fault_of({**_ASK, **body})

    assert (fault and fault[1]) == param


async def test_a_strict_one_refuses_what_does_not_add_up() -> None:
    async with (
        asyncio.timeout(60),
        scripted_model(text("fine"), strict=True) as model,
        AsyncOpenAI(base_url=model.url, api_key="k", max_retries=0) as client,
    ):
        with pytest.raises(APIStatusError) as refused:
            await client.chat.completions.create(model="scripted", messages=[_ANSWER])  # type: ignore[list-item]

    assert refused.value.status_code == 400
