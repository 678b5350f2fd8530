"""What a model is offered of its caller's scope, what it may call of it, and what is told of that."""

from typing import Any

import pytest

from tests.surfaces.mcp.mcp_world import key, task
from tests.surfaces.openai.chat_world import (
    asking,
    error_in,
    open_chat_world,
    results,
    stage,
    upstream,
)
from tests.upstream.memory_link import MemoryNet, definition, record, text_result
from tests.upstream.scripted_model import calls, scripted_model, status, text
from toolgate.policy.scope import ScopeLimits
from toolgate.upstream.connection.contract import RpcResponse

pytestmark = pytest.mark.anyio

ECHO = "mcp__one__echo"
SECRET = "agent-secret-agent-secret-agent-secret"


@pytest.mark.requirement("002-028")
async def test_a_tool_outside_of_the_scope_is_denied_audited_and_like_one_that_does_not_exist() -> None:
    """CHT-7"""
    net = stage()
    net.servers["one"].tools = (definition("echo"), definition("delete"))
    batch = calls(
        ("mcp__one__delete", "{}", "a"), ("mcp.one.delete", "{}", "b"), ("mcp__one__nope", "{}", "c")
    )
    async with (
        scripted_model(batch, text("done"), strict=True) as model,
        open_chat_world(
            net,
            record("one", allowed_tools=("*",)),
            tasks=(task("ops", default_server_ids=["one"], tool_denylist=["delete"]),),
            upstreams=(upstream(model.url),),
        ) as world,
    ):
        await world.post(asking(toolgate={"mcp": {}}), url="/t/ops/v1/chat/completions")

        assert not world.net.servers["one"].calls
        audited = [
            (one.tool, one.outcome, one.code, one.layer, one.rule[:16], one.task_id)
            for one in world.world.audited
        ]
    assert model.requests[0].tool_names == [ECHO]
    assert audited == [
        ("one.delete", "denied", "unknown_tool", "task", "mcp.tool_denylis", "ops"),
        ("one.delete", "denied", "unknown_tool", "task", "mcp.tool_denylis", "ops"),
        ("one.nope", "denied", "unknown_tool", "", "", "ops"),
    ]
    received = [error_in(model.requests[1], one) for one in "ac"]
    assert received[0]["message"].replace("delete", "nope") == received[1]["message"]


@pytest.mark.requirement("002-093")
async def test_chats_do_not_list_the_tools_of_a_server_again() -> None:
    async with (
        scripted_model(calls((ECHO, "{}")), text("done"), calls((ECHO, "{}")), text("done")) as model,
        open_chat_world(MemoryNet(), upstreams=(upstream(model.url),)) as world,
    ):
        for _ in range(2):
            await world.chat()

        assert world.net.servers["one"].lists == ["tools/list"]
    assert [request.tool_names for request in model.requests] == [[ECHO]] * 4


async def test_nothing_of_the_gateway_goes_to_the_models_server() -> None:
    async with (
        scripted_model(calls((ECHO, "{}")), text("done"), strict=True) as model,
        open_chat_world(
            MemoryNet(),
            record("one", allowed_tools=("*",)),
            keys=(key("agent", SECRET),),
            tasks=(task("ops", default_server_ids=["one"]),),
            upstreams=(upstream(model.url),),
            trusts_local=False,
        ) as world,
    ):
        body = asking(
            model="main/gpt-x",
            temperature=0.5,
            metadata={"mcp.server_ids": '["one"]', "toolgate.progress": "true", "mine": "1"},
            unknown={"kept": [1.0, 2]},
        )
        response = await world.post(body, authorization=f"Bearer {SECRET}", x_toolgate_task="ops")

    assert response.status == 200
    for request in model.requests:
        assert set(request.body) == {"model", "messages", "tools", "temperature", "metadata", "unknown"} | (
            {"tool_choice"} if "tool_choice" in request.body else set()
        )
        assert request.body["model"] == "gpt-x"
        assert request.body["metadata"] == {"mine": "1"}
        assert b'{"kept": [1.0, 2]}' in request.raw
        assert SECRET not in request.raw.decode() + repr(request.headers)
        assert not [name for name in request.headers if "toolgate" in name]


@pytest.mark.requirement("000-02")
async def test_an_empty_scope_continues_without_tools_and_says_so() -> None:
    async with (
        scripted_model(text("hello"), strict=True) as model,
        open_chat_world(
            MemoryNet(),
            record("one", allowed_tools=("*",)),
            tasks=(task("ops", default_server_ids=["one"], tool_allowlist=[]),),
            upstreams=(upstream(model.url),),
        ) as world,
    ):
        response = await world.post(asking(toolgate={"mcp": {}}), url="/t/ops/v1/chat/completions")

        assert world.world.gateway.metrics.empty_scopes == 1
    assert response.json["choices"][0]["message"]["content"] == "hello"
    assert response.json["toolgate"]["warnings"]
    assert "tools" not in model.requests[0].body


async def test_too_many_tools_are_refused_or_found() -> None:
    async with (
        scripted_model(
            calls(("search_tools", '{"query": "echo"}', "a")),
            calls(("call_tool", '{"name": "one.echo", "arguments": {"n": 1}}', "b")),
            text("done"),
            strict=True,
        ) as model,
        open_chat_world(
            MemoryNet(), upstreams=(upstream(model.url),), limits=ScopeLimits(max_tools=0)
        ) as world,
    ):
        await world.chat()

        assert [one.params["arguments"] for one in world.net.servers["one"].calls] == [{"n": 1}]
    assert model.requests[0].tool_names == ["call_tool", "describe_tool", "search_tools"]
    assert "one.echo" in results(model.requests[1])["a"]

    async with (
        scripted_model(text("never")) as model,
        open_chat_world(
            MemoryNet(),
            upstreams=(upstream(model.url),),
            limits=ScopeLimits(max_tools=0, on_too_many="refuse"),
        ) as world,
    ):
        refused = await world.post(asking())

    assert (refused.status, refused.json["error"]["code"]) == (422, "too_many_tools")
    assert not model.requests


async def test_the_rights_of_the_moment_decide_on_every_call() -> None:
    """A tool that was offered, and is taken from the caller while the model thinks, is not run."""
    async with (
        scripted_model(calls((ECHO, "{}", "a")), calls((ECHO, '{"n": 2}', "b")), text("done")) as model,
        open_chat_world(MemoryNet(), upstreams=(upstream(model.url),)) as world,
    ):

        async def close_down(_params: Any) -> RpcResponse:
            world.world.apply(servers={"one": record("one", allowed_tools=())})
            return RpcResponse(result=text_result("last"))

        world.net.servers["one"].on_call = {"echo": close_down}
        await world.chat()

        assert world.called == ["one.echo ok", ".one.echo denied"]
    assert error_in(model.requests[2], "b")["code"] == "unknown_tool"


@pytest.mark.parametrize("is_removed", [True, False])
async def test_an_upstream_that_is_switched_off_meanwhile_is_asked_no_more(is_removed: bool) -> None:
    async with (
        scripted_model(calls((ECHO, "{}", "a")), text("done")) as model,
        open_chat_world(MemoryNet(), upstreams=(upstream(model.url),)) as world,
    ):
        left = {} if is_removed else {"main": upstream(model.url, enabled=False)}

        async def switch_off(_params: Any) -> RpcResponse:
            world.world.apply(chat_upstreams=left)
            return RpcResponse(result=text_result("last"))

        world.net.servers["one"].on_call = {"echo": switch_off}
        response = await world.post(asking())

    assert (response.status, response.json["error"]["code"]) == (502, "model_unavailable")
    assert len(model.requests) == 1


@pytest.mark.parametrize(
    "own",
    [
        {"type": "function", "function": {"name": ECHO, "parameters": {"type": "object"}}},
        {"type": "custom", "custom": {"name": ECHO}},
    ],
    ids=["a function", "a custom tool"],
)
async def test_the_callers_own_wins_over_a_tool_of_its_name_and_that_is_reported(own: dict[str, Any]) -> None:
    """CHT-8"""
    async with (
        scripted_model(calls((ECHO, "{}", "a"), ("mcp.one.echo", "{}", "b")), strict=True) as model,
        open_chat_world(MemoryNet(), upstreams=(upstream(model.url),)) as world,
    ):
        response = await world.chat(tools=[own])

        assert not world.net.servers["one"].calls
    assert model.requests[0].body["tools"] == [own]
    assert [one["function"]["name"] for one in response["choices"][0]["message"]["tool_calls"]] == [ECHO]
    assert response["toolgate"] == {"shadowed": [ECHO]}


async def test_decisions_are_explained_to_those_who_ask_as_far_as_they_may_know() -> None:
    net = stage()
    net.servers["one"].tools = (definition("echo"), definition("delete"))
    async with (
        scripted_model(text("a"), text("b")) as model,
        open_chat_world(
            net,
            record("one", allowed_tools=("echo",)),
            keys=(key("agent", SECRET),),
            upstreams=(upstream(model.url),),
        ) as world,
    ):
        everything = await world.chat(toolgate={"explain": True})
        agent = (await world.post(asking(toolgate={"explain": True}), authorization=f"Bearer {SECRET}")).json

    received = everything["toolgate"]["explain"]
    assert [(one["tool"], one["allowed"]) for one in received["decisions"]] == [
        ("delete", False),
        ("echo", True),
    ]
    assert (received["servers"], received["tokens"] > 0) == (["one"], True)
    assert [one["tool"] for one in agent["toolgate"]["explain"]["decisions"]] == ["echo"]


@pytest.mark.requirement("000-44")
async def test_what_happens_is_counted() -> None:
    async with (
        scripted_model(calls((ECHO, "{}")), text("done"), status(400)) as model,
        open_chat_world(MemoryNet(), upstreams=(upstream(model.url),)) as world,
    ):
        await world.chat()
        await world.post(asking())

        metrics = world.world.gateway.metrics.render().decode()
    assert 'mcp_injection_total{server_id="one",status="success"} 2.0' in metrics
    assert 'toolgate_chat_total{outcome="answered",upstream="main"} 1.0' in metrics
    assert 'toolgate_chat_total{outcome="model_refused",upstream="main"} 1.0' in metrics
    assert "toolgate_chat_rounds_count 1.0" in metrics
    assert 'toolgate_chat_model_latency_ms_count{upstream="main"} 2.0' in metrics
