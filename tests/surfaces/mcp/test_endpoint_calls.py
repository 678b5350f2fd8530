"""Calls through the MCP door: failures the model can read, cancellation both ways, nothing crossed."""

import asyncio
import json
from typing import Any

import pytest

from tests.eventually import eventually_async
from tests.surfaces.mcp.mcp_world import JSON_HEADERS, META, MODERN, key, open_mcp_world, task
from tests.upstream.memory_link import MemoryNet, MemoryServer, definition, record, text_result
from toolgate.upstream.connection.contract import RpcResponse

pytestmark = pytest.mark.anyio
PICKY_PROMPT = b'{"name":"picky","arguments":[{"name":"to","required":true}]}'
SECRET = "tg_" + "a" * 40


async def hang(_members: dict[str, Any]) -> RpcResponse:
    await asyncio.Event().wait()
    raise AssertionError


def net_of(**handlers: Any) -> MemoryNet:
    tools = [definition("echo"), *(definition(name) for name in handlers)]
    return MemoryNet(one=MemoryServer(era="legacy", tools=tools, on_call=handlers))


@pytest.mark.requirement("002-101")
@pytest.mark.parametrize("era", ["legacy", "modern"])
async def test_bud_1_a_call_past_its_budget_fails_with_mcp_timeout_and_is_cancelled(era: str) -> None:
    slow = record("one", allowed_tools=("*",), timeout_ms=500)
    async with open_mcp_world(net_of(hang=hang), slow) as world:
        if era == "legacy":
            result = (await (await world.session("/api/mcp")).call("one.hang")).json["result"]
        else:
            result = (await world.modern("/api/mcp", "tools/call", {"name": "one.hang"})).json["result"]

        assert result["isError"] is True
        assert result["content"][0]["text"].startswith("mcp_timeout: ")
        assert result["_meta"]["toolgate/error"]["retryable"] is True
        assert result.get("resultType") == ("complete" if era == "modern" else None)
        assert world.net["one"].stopped_by == ["hang"]
        assert [(one.outcome, one.code) for one in world.audited] == [("error", "mcp_timeout")]


@pytest.mark.requirement("002-101")
async def test_a_dead_server_answers_mcp_unavailable() -> None:
    async def die(_members: dict[str, Any]) -> RpcResponse:
        world.net["one"].crash()
        await asyncio.Event().wait()
        raise AssertionError

    async with open_mcp_world(net_of(die=die), record("one", allowed_tools=("*",))) as world:
        result = (await (await world.session("/api/mcp")).call("one.die")).json["result"]

        assert result["content"][0]["text"].startswith("mcp_unavailable: ")


async def test_a_servers_own_error_passes_as_it_came() -> None:
    error = b'{"code":-32050,"message":"no","data":{"x":[1.0]}}'

    async def fail(_members: dict[str, Any]) -> RpcResponse:
        return RpcResponse(error=error)

    async with open_mcp_world(net_of(fail=fail), record("one", allowed_tools=("*",))) as world:
        response = await (await world.session("/api/mcp")).call("one.fail")

        assert response.body == b'{"jsonrpc":"2.0","id":1,"error":' + error + b"}"


@pytest.mark.parametrize("era", ["legacy", "modern"])
@pytest.mark.parametrize(
    "error",
    [
        b"null",
        b"5",
        b'"boom"',
        b"[]",
        b"{}",
        b'{"code":"x","message":"no"}',
        b'{"code":1e400,"message":"no"}',
    ],
)
async def test_chd_10_what_a_server_calls_an_error_and_is_none_never_reaches_a_client(
    era: str, error: bytes
) -> None:
    async def fail(_members: dict[str, Any]) -> RpcResponse:
        return RpcResponse(error=error)

    async with open_mcp_world(net_of(fail=fail), record("one", allowed_tools=("*",))) as world:
        if era == "legacy":
            response = await (await world.session("/api/mcp")).call("one.fail")
        else:
            response = await world.modern("/api/mcp", "tools/call", {"name": "one.fail"})

        assert (response.status, response.code) == (200, -32603)


@pytest.mark.parametrize("arguments", ["", None])
async def test_empty_arguments_are_an_empty_object_where_nothing_is_required(arguments: object) -> None:
    picky = definition("picky", inputSchema={"type": "object", "required": ["path"]})
    server = MemoryServer(
        tools=[definition("echo"), picky],
        capabilities={"tools": {}, "prompts": {}},
        prompts=[b'{"name":"hello","arguments":[{"name":"to"}]}', PICKY_PROMPT],
    )
    async with open_mcp_world(MemoryNet(one=server), record("one", allowed_tools=("*", "prompt:*"))) as world:
        session = await world.session("/api/mcp")
        params = [{"name": name, "arguments": arguments} for name in ("one.echo", "one.picky")]
        taken = [await session.send("tools/call", one) for one in params]
        finding = await world.session("/api/mcp/find")
        found = [await finding.send("tools/call", {"name": "call_tool", "arguments": one}) for one in params]
        prompts = [
            await session.send("prompts/get", {"name": name, "arguments": arguments})
            for name in ("one.hello", "one.picky")
        ]

        assert ("result" in taken[0].json, taken[1].code) == (True, -32602)
        assert [one.json["result"].get("isError", False) for one in found] == [False, True]
        assert ("result" in prompts[0].json, prompts[1].code) == (True, -32602)
        sent = [(one.params["name"], one.params["arguments"]) for one in server.calls]
        assert sent == [("echo", {}), ("echo", {}), ("hello", {})]


@pytest.mark.parametrize("arguments", ["x", 7, [], True])
async def test_cht_2_arguments_that_are_no_object_never_reach_the_server(arguments: object) -> None:
    async with open_mcp_world(net_of(), record("one", allowed_tools=("*",))) as world:
        response = await (await world.session("/api/mcp")).send(
            "tools/call", {"name": "one.echo", "arguments": arguments}
        )

        assert response.code == -32602
        assert world.net["one"].calls == []


async def test_bud_8_a_client_that_goes_away_cancels_its_call() -> None:
    async with open_mcp_world(net_of(hang=hang), record("one", allowed_tools=("*",))) as world:
        await world.modern("/api/mcp", "tools/list")
        stream = world.open_modern("/api/mcp", "tools/call", {"name": "one.hang"})
        await eventually_async(lambda: world.net["one"].in_flight)
        await stream.leave()

        assert world.net["one"].stopped_by == ["hang"]
        assert stream.chunks.empty()
        assert [one.outcome for one in world.audited] == ["cancelled"]


async def test_a_call_that_fails_by_a_fault_of_ours_is_on_record_as_an_error() -> None:
    async def fail(_members: Any) -> Any:
        raise ZeroDivisionError

    async with open_mcp_world(net_of(fail=fail), record("one", allowed_tools=("*",))) as world:
        with pytest.raises(ZeroDivisionError):
            await world.modern("/api/mcp", "tools/call", {"name": "one.fail"})

        assert [(one.outcome, one.code) for one in world.audited] == [("error", "internal")]


async def test_a_legacy_client_takes_a_call_back() -> None:
    async with open_mcp_world(net_of(hang=hang), record("one", allowed_tools=("*",))) as world:
        session = await world.session("/api/mcp")
        running = asyncio.create_task(session.send("tools/call", {"name": "one.hang"}, request_id="7"))
        await eventually_async(lambda: world.net["one"].in_flight)
        await session.notify("notifications/cancelled", {"requestId": 7})
        assert world.net["one"].in_flight == 1
        await session.notify("notifications/cancelled", {"requestId": "7"})

        response = await running
        assert response.json["error"]["data"]["code"] == "cancelled"
        assert world.net["one"].stopped_by == ["hang"]


async def test_ending_a_session_ends_its_calls() -> None:
    async with open_mcp_world(net_of(hang=hang), record("one", allowed_tools=("*",))) as world:
        session = await world.session("/api/mcp")
        running = asyncio.create_task(session.call("one.hang"))
        await eventually_async(lambda: world.net["one"].in_flight)
        await session.delete()

        assert (await running).json["error"]["data"]["code"] == "cancelled"


async def test_one_session_cannot_take_back_anothers_call() -> None:
    async with open_mcp_world(net_of(hang=hang), record("one", allowed_tools=("*",))) as world:
        session, other = await world.session("/api/mcp"), await world.session("/api/mcp")
        running = asyncio.create_task(session.send("tools/call", {"name": "one.hang"}, request_id=7))
        await eventually_async(lambda: world.net["one"].in_flight)
        await other.notify("notifications/cancelled", {"requestId": 7})

        assert world.net["one"].in_flight == 1
        running.cancel()


async def test_fuz_7_and_sco_17_equal_ids_in_flight_each_get_their_own_answer() -> None:
    async def whose(members: dict[str, Any]) -> RpcResponse:
        await asyncio.sleep(0)
        return RpcResponse(result=text_result(members["arguments"]["nonce"]))

    many = record("one", allowed_tools=("*",), concurrency=1_000)
    async with open_mcp_world(net_of(whose=whose), many) as world:
        sessions = [await world.session("/api/mcp") for _ in range(4)]

        async def request(number: int) -> bool:
            request_id: object = 1 if number % 2 else "1"
            response = await sessions[number % 4].send(
                "tools/call",
                {"name": "one.whose", "arguments": {"nonce": str(number)}},
                request_id=request_id,
            )
            text = response.json["result"]["content"][0]["text"]
            return bool(response.json["id"] == request_id and text == str(number))

        assert all(await asyncio.gather(*(request(number) for number in range(500))))


async def test_lod_3_a_server_that_hangs_costs_the_others_nothing() -> None:
    net = MemoryNet(
        one=MemoryServer(tools=[definition("echo")]),
        hung=MemoryServer(on_start=asyncio.Event().wait),  # type: ignore[arg-type]
    )
    servers = (record("one", allowed_tools=("*",)), record("hung", allowed_tools=("*",)))
    async with open_mcp_world(net, *servers, first_list_wait_s=0.5) as world:
        everything = (await world.modern("/api/mcp", "tools/list")).json["result"]
        session = await world.session("/api/mcp?servers=one")

        assert [tool["name"] for tool in everything["tools"]] == ["one.echo"]
        assert everything["ttlMs"] == 0
        assert json.loads((await session.call("one.echo", a=1)).json["result"]["content"][0]["text"]) == {
            "a": 1
        }


async def test_sec_7_names_that_callers_make_up_are_not_metrics() -> None:
    async with open_mcp_world(net_of(), record("one", allowed_tools=("*",))) as world:
        session = await world.session("/api/mcp")
        await session.call("one.echo")
        before = world.gateway.metrics.render().count(b"\n")
        await session.call("first.made-up")
        known = world.gateway.metrics.render().count(b"\n")
        for number in range(300):
            await session.call(f"made.up{number}")

        assert world.gateway.metrics.render().count(b"\n") == known
        assert known - before < 60


async def test_sec_7_tools_that_are_only_listed_are_not_metrics() -> None:
    servers = MemoryNet(one=MemoryServer(tools=[definition(f"tool-{number}") for number in range(100)]))
    async with open_mcp_world(servers, record("one", allowed_tools=("*",))) as world:
        listed = await (await world.session("/api/mcp")).send("tools/list", {})

        assert len(listed.json["result"]["tools"]) == 100
        assert b"tool-1" not in world.gateway.metrics.render()


async def test_a_call_is_counted_and_audited_with_the_rule_that_allowed_it() -> None:
    async with open_mcp_world(net_of(), record("one", allowed_tools=("ec*",))) as world:
        response = await (await world.session("/api/mcp")).call("one.echo", a=1)

        (event,) = world.audited
        assert (event.layer, event.argument_bytes) == ("platform", len(b'{"a": 1}'))
        assert event.result_bytes == len(response.body) - len(b'{"jsonrpc":"2.0","id":1,"result":}')
        assert (event.server_id, event.tool, event.outcome, event.principal) == ("one", "echo", "ok", "local")
        assert "ec*" in event.rule
        assert b'mcp_tool_call_total{server_id="one",tool="echo"} 1.0' in world.gateway.metrics.render()


async def test_the_audit_names_the_task_that_applied_also_where_it_is_the_keys_own() -> None:
    review = task("review", default_server_ids=["one"])
    ada = key("ada", SECRET, default_task="review")
    async with open_mcp_world(
        net_of(), record("one", allowed_tools=("*",)), tasks=(review,), keys=(ada,)
    ) as world:
        session = await world.session("/api/mcp", key=SECRET)
        await session.call("one.echo")
        await session.call("no.such")

        assert [(one.outcome, one.task_id) for one in world.audited] == [
            ("ok", "review"),
            ("denied", "review"),
        ]


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        pytest.param({"mcp-param-place": "Oslo"}, 200, id="it repeats the argument"),
        pytest.param({"mcp-param-place": "=?base64?T3Nsbw==?="}, 200, id="in base64"),
        pytest.param({}, 400, id="it is missing"),
        pytest.param({"mcp-param-place": "Rome"}, 400, id="it says something else"),
        pytest.param({"mcp-param-place": "Oslo", "mcp-param-unit": "C"}, 400, id="of an argument not there"),
    ],
)
async def test_headers_that_repeat_arguments_tell_the_truth(headers: dict[str, str], status: int) -> None:
    """A caller that routes by them must not be led astray."""
    properties = {
        "place": {"type": "string", "x-mcp-header": "Place"},
        "unit": {"type": "string", "x-mcp-header": "Unit"},
    }
    tool = definition("weather", inputSchema={"type": "object", "properties": properties})
    async with open_mcp_world(
        MemoryNet(one=MemoryServer(tools=[tool])), record("one", allowed_tools=("*",))
    ) as world:
        await world.modern("/mcp", "tools/list")
        params = {"name": "one.weather", "arguments": {"place": "Oslo"}, "_meta": META}
        body = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
        own = {"mcp-protocol-version": MODERN, "mcp-method": "tools/call", "mcp-name": "one.weather"}
        response = await world.request(
            "POST", "/mcp", json.dumps(body).encode(), JSON_HEADERS | own | headers
        )

        assert response.status == status
        assert status == 200 or response.code == -32020
        assert len(world.net["one"].calls) == (status == 200)


async def test_a_call_that_asks_for_a_task_is_a_plain_one() -> None:
    """No client is told that tasks are carried, so no server may answer with one."""
    async with open_mcp_world(MemoryNet()) as world:
        client = await world.session("/api/mcp")
        response = await client.send(
            "tools/call", {"name": "one.echo", "arguments": {"a": 1}, "task": {"ttl": 1}}
        )

        assert response.json["result"]["content"][0]["text"] == '{"a":1}'
        assert world.net["one"].calls[-1].params == {"name": "echo", "arguments": {"a": 1}}


@pytest.mark.requirement("000-44", "000-46")
async def test_a_list_counts_each_server_by_what_came_of_it_and_a_removed_one_is_forgotten() -> None:
    """SEC-7"""
    off = record("off", allowed_tools=("*",), enabled=False)
    none = record("none", allowed_tools=())
    async with open_mcp_world(net_of(), record("one", allowed_tools=("*",)), off, none) as world:
        for _ in range(2):
            await world.modern("/api/mcp", "tools/list", {})
        metrics = world.gateway.metrics
        counted, denied = dict(metrics.injections), set(metrics.denials)
        world.apply(servers={"one": record("one", allowed_tools=("*",))})

        assert counted == {("one", "success"): 2, ("off", "denied"): 2, ("none", "denied"): 2}
        assert denied == {("off", "server_disabled"), ("none", "deny_all")}
        assert set(metrics.injections) == {("one", "success")}


async def test_a_call_with_what_is_no_object_is_on_record_as_one_that_was_not_made() -> None:
    async with open_mcp_world(net_of(), record("one", allowed_tools=("*",))) as world:
        await world.modern("/api/mcp", "tools/call", {"name": "one.echo", "arguments": [1]})

        (event,) = world.audited
        stats = world.gateway.metrics.tool("one", "echo")
        assert (event.outcome, event.code, event.tool) == ("denied", "mcp_invalid_arguments", "echo")
        assert (stats.calls, stats.errors, stats.latency_ms.total) == (1, {"mcp_invalid_arguments": 1}, 0)
