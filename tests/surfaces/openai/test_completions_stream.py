"""Conversations whose tools are run here, streamed: what official clients take, and nothing else."""

import asyncio
import json
from typing import Any

import pytest

from tests.surfaces.mcp.mcp_world import Stream
from tests.surfaces.openai.chat_world import Streamed, asking, open_chat_world, upstream
from tests.upstream.memory_link import MemoryNet, definition, text_result
from tests.upstream.scripted_model import (
    call,
    calls,
    cut,
    fail_after,
    hang,
    hold,
    in_bytes,
    scripted_model,
    text,
    whole,
    without_done,
)
from toolgate.surfaces.http.messages import KEEPALIVE
from toolgate.upstream.connection.contract import RpcResponse

pytestmark = pytest.mark.anyio

ECHO = "mcp__one__echo"
OWN = {"type": "function", "function": {"name": "own"}}


async def test_a_stream_is_one_answer_whatever_number_of_replies_it_is_made_of() -> None:
    first = calls((ECHO, '{"n": 1}'), content="I look.", extra={"reasoning_content": "hm"})
    async with (
        scripted_model(
            first, calls((ECHO, '{"n": 2}')), text("It says hello.", step=3), strict=True
        ) as model,
        open_chat_world(MemoryNet(), upstreams=(upstream(model.url),)) as world,
    ):
        response = await world.stream()

        assert world.called == ["one.echo ok"] * 2
    assert response.text == "I look.\n\nIt says hello."
    assert "".join(one.get("reasoning_content", "") for one in response.deltas) == "hm"
    assert [one for one in response.deltas if "role" in one] == [{"role": "assistant", "content": ""}]
    assert response.deltas[0] == {"role": "assistant", "content": ""}
    assert response.finishes == ["stop"]
    assert response.calls == []
    assert len({(one["id"], one["created"], one["model"], one["object"]) for one in response.chunks}) == 1
    assert response.chunks[0]["id"] == "chatcmpl-0"
    assert response.extensions == []


async def test_text_is_passed_on_while_it_comes() -> None:
    gate = asyncio.Event()
    async with (
        scripted_model(hold(text("abcdef", step=1), gate, after=600)) as model,
        open_chat_world(MemoryNet(), upstreams=(upstream(model.url),)) as world,
    ):
        response = world.open(asking(stream=True))
        seen = [await response.event(), await response.event()]
        gate.set()
        await response.whole()

    assert [one["choices"][0]["delta"] for one in seen] == [
        {"role": "assistant", "content": ""},
        {"content": "a"},
    ]


@pytest.mark.parametrize("garble", [in_bytes, without_done], ids=["bytes", "no DONE"])
async def test_pieces_of_any_size_make_the_same_answer(garble: Any) -> None:
    """CHT-6: one byte at a time, characters in two pieces, and no word of the end."""
    async with (
        scripted_model(garble(calls((ECHO, '{"q": "é"}'))), garble(text("näïve ✓", step=1))) as model,
        open_chat_world(MemoryNet(), upstreams=(upstream(model.url),)) as world,
    ):
        response = await world.stream()

        assert [one.params["arguments"] for one in world.net.servers["one"].calls] == [{"q": "é"}]
    assert (response.text, response.finishes) == ("näïve ✓", ["stop"])


@pytest.mark.parametrize(
    ("broken", "code"),
    [
        (cut(text("a" * 400), 900), "model_unavailable"),
        (fail_after(text("abc" * 20), 2, {"error": {"message": "boom", "code": "overloaded"}}), "overloaded"),
    ],
    ids=["cut", "error"],
)
async def test_a_reply_that_breaks_off_ends_the_stream_as_clients_expect_it(broken: Any, code: str) -> None:
    """CHT-6"""
    async with (
        scripted_model(broken) as model,
        open_chat_world(MemoryNet(), upstreams=(upstream(model.url),)) as world,
    ):
        response = await world.stream()

    assert response.chunks[-1]["error"]["code"] == code
    assert response.finishes == []
    assert response.text
    assert len(model.requests) == 1


async def test_a_model_that_breaks_off_before_its_first_word_is_an_error_with_a_status() -> None:
    async with (
        scripted_model(lambda _ask: cut(text("abc"), 10)) as model,
        open_chat_world(MemoryNet(), upstreams=(upstream(model.url),)) as world,
    ):
        response = await world.post(asking(stream=True))

    assert (response.status, response.json["error"]["code"]) == (502, "model_unavailable")


async def test_functions_of_the_caller_come_whole_and_at_the_end() -> None:
    turn = calls((ECHO, "{}", "a"), ("own", '{"x": 1}', "b"), ("own", '{"x": 2}', "c"), content="Both.")
    async with (
        scripted_model(turn, strict=True) as model,
        open_chat_world(MemoryNet(), upstreams=(upstream(model.url),)) as world,
    ):
        response = await world.stream(tools=[OWN])

    assert [(one["index"], one["function"]["arguments"]) for one in response.calls] == [
        (0, '{"x": 1}'),
        (1, '{"x": 2}'),
    ]
    assert response.calls[0]["id"].startswith("tgc_")
    assert response.calls[1]["id"] == "c"
    assert response.finishes == ["tool_calls"]
    assert response.text == "Both."


async def test_progress_is_reported_to_those_who_ask() -> None:
    async with (
        scripted_model(calls((ECHO, "{}", "a")), text("done")) as model,
        open_chat_world(MemoryNet(), upstreams=(upstream(model.url),)) as world,
    ):
        response = await world.stream(toolgate={"progress": True})

    started, finished, last = response.extensions
    assert started == {"event": "tool_started", "tool": "one.echo", "call_id": "a"}
    assert finished["ms"] >= 0
    assert finished | {"ms": 0} == {
        "event": "tool_finished",
        "tool": "one.echo",
        "call_id": "a",
        "ok": True,
        "ms": 0,
    }
    assert last == {"rounds": 1, "tool_calls": 1}


async def test_full_progress_has_arguments_results_and_refused_calls() -> None:
    async with (
        scripted_model(calls((ECHO, '{"x": 1}', "a"), ("mcp__one__nope", "{", "b")), text("done")) as model,
        open_chat_world(MemoryNet(), upstreams=(upstream(model.url),)) as world,
    ):
        response = await world.stream(metadata={"toolgate.progress": "full"})
        results = {one["tool_call_id"]: one["content"] for one in model.requests[1].messages[2:]}

    reports = {(one["event"], one["call_id"]): one for one in response.extensions if "event" in one}
    call = {"tool": "one.echo", "call_id": "a", "arguments": '{"x": 1}'}
    ended = {"ok": True, "code": "", "result": results["a"]}
    refused = {"ok": False, "ms": 0, "code": "unknown_tool", "arguments": "{", "result": results["b"]}
    assert reports == {
        ("tool_started", "a"): {"event": "tool_started", **call},
        ("tool_finished", "a"): {
            "event": "tool_finished",
            **call,
            **ended,
            "ms": reports["tool_finished", "a"]["ms"],
        },
        ("tool_refused", "b"): {"event": "tool_refused", "tool": "one.nope", "call_id": "b", **refused},
    }


async def test_what_is_explained_comes_first() -> None:
    async with (
        scripted_model(text("done")) as model,
        open_chat_world(MemoryNet(), upstreams=(upstream(model.url),)) as world,
    ):
        response = await world.stream(toolgate={"explain": True})

    assert [one["tool"] for one in response.chunks[0]["toolgate"]["explain"]["decisions"]] == ["echo"]
    assert response.chunks[0]["id"] == response.chunks[-1]["id"]


async def test_a_stop_by_a_budget_is_the_end_of_the_text_and_says_why() -> None:
    async with (
        scripted_model(
            lambda request: calls((ECHO, json.dumps({"n": request.number})), content="Hm.")
        ) as model,
        open_chat_world(MemoryNet(), upstreams=(upstream(model.url),)) as world,
    ):
        response = await world.stream(toolgate={"budgets": {"max_iterations": 1}})

    assert response.text == "Hm.\n\nHm."
    assert (response.finishes, response.calls) == (["stop"], [])
    assert response.extensions == [{"stopped": "round_limit"}]


async def test_a_stop_by_the_clock_is_reported_after_what_was_sent() -> None:
    async with (
        scripted_model(hang(text("so far so good", step=1), after=900)) as model,
        open_chat_world(MemoryNet(), upstreams=(upstream(model.url),)) as world,
    ):
        response = await world.stream(toolgate={"budgets": {"wall_clock_ms": 2_000}})

    sent_text, closing = response.text.split("\n\n")
    assert "so far so good".startswith(sent_text)
    assert closing.startswith("Stopped:")
    assert (response.finishes, response.extensions) == (["stop"], [{"stopped": "time_limit"}])


async def test_a_server_that_answers_whole_where_a_stream_was_requested_is_understood() -> None:
    completion = calls(call(ECHO, {}, id="a")).completion
    async with (
        scripted_model(
            lambda request: whole(completion(request)) if request.number == 0 else text("done")
        ) as model,
        open_chat_world(MemoryNet(), upstreams=(upstream(model.url),)) as world,
    ):
        response = await world.stream()

    assert (response.text, response.finishes, response.calls) == ("done", ["stop"], [])


async def test_silence_is_filled_with_comments() -> None:
    net, gate = MemoryNet(), asyncio.Event()

    async def slow(_params: Any) -> RpcResponse:
        await gate.wait()
        return RpcResponse(result=text_result("at last"))

    net.servers["one"].tools = (definition("slow"),)
    net.servers["one"].on_call = {"slow": slow}
    async with (
        scripted_model(calls(("mcp__one__slow", "{}")), text("done")) as model,
        open_chat_world(net, upstreams=(upstream(model.url),), keepalive_s=0.01) as world,
    ):
        request = world.open(asking(stream=True))
        comments = await comments_of(request)
        gate.set()
        response = Streamed(await request.whole())

    assert comments == KEEPALIVE
    assert response.text == "done"


async def comments_of(request: Stream) -> bytes:
    """The first comment that comes; all other words are put back."""
    kept = []
    async with asyncio.timeout(60):
        while (chunk := await request.chunks.get()) != KEEPALIVE:
            kept.append(chunk)
    rest = [request.chunks.get_nowait() for _ in range(request.chunks.qsize())]
    for one in (*kept, *rest):
        request.chunks.put_nowait(one)
    return chunk


async def test_a_client_that_leaves_a_stream_stops_model_and_tools() -> None:
    """CHT-6"""
    began = asyncio.Event()
    net = MemoryNet()

    async def hang_on(_params: Any) -> RpcResponse:
        began.set()
        await asyncio.Event().wait()
        raise AssertionError

    net.servers["one"].on_call = {"echo": hang_on}
    async with (
        scripted_model(calls((ECHO, "{}"), content="I look."), text("never")) as model,
        open_chat_world(net, upstreams=(upstream(model.url),)) as world,
    ):
        request = world.open(asking(stream=True))
        async with asyncio.timeout(60):
            await began.wait()
        await request.leave()

        assert world.net.servers["one"].stopped_by == ["echo"]
    assert len(model.requests) == 1
