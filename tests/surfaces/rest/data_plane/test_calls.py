"""One call of a tool over REST: the call that the MCP door would make, by the same rules and audited."""

import asyncio
from typing import Any, Final

import msgspec
import pytest

from tests.surfaces.rest_world import RestWorld, error_of, listening, open_rest, secret_of, stdio, task
from tests.upstream.memory_link import Handler, Json, MemoryNet, MemoryServer, definition, text_result
from toolgate.audit.events import CallRecorded
from toolgate.gateway.auth.identity import hash_key
from toolgate.model.tools import Revision
from toolgate.upstream.connection.contract import RpcResponse

pytestmark = pytest.mark.anyio

CALL: Final = "/api/v1/mcp/call"
NARROW: Final = "tg_narrow" * 6


def net(era: Revision = "legacy", **handlers: Handler) -> MemoryNet:
    tools = [definition(name) for name in ("echo", "secret", *handlers)]
    return MemoryNet(git=MemoryServer(era=era, tools=tools, on_call=handlers))


async def furnish(world: RestWorld, **fields: Any) -> None:
    await world.seed(
        server=[stdio("git", **fields)],
        task=[task("review", default_server_ids=["git"], tool_denylist=["secret"])],
        key=[
            {
                "key_id": "narrow",
                "role": "agent",
                "sha256": hash_key(NARROW),
                "ceiling": {"deny": ["secret"]},
            }
        ],
    )


def calls(world: RestWorld) -> list[CallRecorded]:
    world.control.gateway.audit.flush()
    return [event for _, event in world.sink.events if isinstance(event, CallRecorded)]


async def test_a_call_comes_to_its_tool_and_is_on_record() -> None:
    async with open_rest(net()) as world:
        await furnish(world)
        sent = {"name": "git.echo", "arguments": {"path": "a"}}
        response = await world.request("POST", f"{CALL}?task=review", sent, key=secret_of("admin"))

        found = response.json()
        (recorded,) = calls(world)
        assert found | {"duration_ms": 0, "request_id": ""} == {
            "result": {"content": [{"type": "text", "text": '{"path":"a"}'}]},
            "is_error": False,
            "duration_ms": 0,
            "tokens": recorded.result_tokens,
            "request_id": "",
        }
        assert response.headers["x-request-id"] == found["request_id"]
        assert (recorded.door, recorded.principal, recorded.task_id) == ("rest", "key:admin", "review")
        assert (recorded.server_id, recorded.tool, recorded.outcome) == ("git", "echo", "ok")
        assert (recorded.request_id, recorded.argument_bytes) == (found["request_id"], 13)


async def test_arguments_and_result_pass_as_they_are() -> None:
    """No number loses a digit on its way, and what MCP may know tomorrow stays."""
    result = b'{"content":[],"structuredContent":{"n":12345678901234567890123,"x":1.10},"later":[1e2]}'

    async def echo(_: Json) -> RpcResponse:
        return RpcResponse(result=result)

    async with open_rest(net(echo=echo)) as world:
        await furnish(world)
        response = await world.request(
            "POST", CALL, b'{"name":"git.echo","arguments":{"n":98765432109876543210987}}'
        )

        assert response.content.startswith(b'{"result":%b,' % result)
        assert world.net["git"].calls[0].params["arguments"] == {"n": 98765432109876543210987}


async def test_a_call_without_arguments_is_one_with_none() -> None:
    async with open_rest(net()) as world:
        await furnish(world)
        response = await world.post(CALL, {"name": "git.echo"})

        assert response["result"]["content"][0]["text"] == "{}"


async def test_what_only_the_modern_era_knows_is_left_out() -> None:
    async def echo(_: Json) -> RpcResponse:
        return RpcResponse(result=b'{"resultType":"complete","content":[],"structuredContent":[1]}')

    async with open_rest(net("modern", echo=echo)) as world:
        await furnish(world)
        response = await world.post(CALL, {"name": "git.echo"})

        assert response["result"] == {"content": [{"type": "text", "text": "[1]"}]}


async def test_a_hidden_tool_answers_like_one_that_is_not_there() -> None:
    async with open_rest(net()) as world:
        await furnish(world)
        hidden = await world.request("POST", CALL, {"name": "git.secret"}, key=NARROW)
        missing = await world.request("POST", CALL, {"name": "git.absent"}, key=NARROW)
        by_task = await world.request("POST", f"{CALL}?task=review", {"name": "git.secret"})
        await asyncio.sleep(0)

        assert error_of(hidden) == error_of(missing) == error_of(by_task) == (404, "unknown_tool")
        assert hidden.text.replace("secret", "absent") == missing.text
        assert world.net["git"].calls == []
        assert [(one.outcome, one.code, one.door) for one in calls(world)] == [
            ("denied", "unknown_tool", "rest")
        ] * 3


@pytest.mark.parametrize(
    ("query", "code"),
    [
        ("?task=none", (404, "not_found")),
        ("?task=review&servers=other", (403, "mcp_policy_denied")),
        ("?servers=Git", (400, "invalid_request")),
        ("?tools=absent", (404, "unknown_tool")),
    ],
)
async def test_the_selection_is_the_one_of_every_door(query: str, code: tuple[int, str]) -> None:
    async with open_rest(net()) as world:
        await furnish(world)
        response = await world.request("POST", CALL + query, {"name": "git.echo"})

        assert error_of(response) == code
        assert world.net["git"].calls == []


async def test_a_scope_that_is_denied_is_on_record() -> None:
    async with open_rest(net()) as world:
        await furnish(world)
        await world.request("POST", f"{CALL}?task=review&servers=other", {"name": "git.echo"})

        assert [(one.outcome, one.code, one.door) for one in calls(world)] == [
            ("denied", "mcp_policy_denied", "rest")
        ]


async def test_what_is_found_and_not_listed_is_called_by_its_own_name() -> None:
    """What `GET /api/v1/mcp/tools` lists can be called, however the MCP door shows it."""
    async with open_rest(net()) as world:
        await furnish(world)
        listed = await world.get("/api/v1/mcp/tools?mode=find")
        found = await world.post(f"{CALL}?mode=find", {"name": "git.echo", "arguments": {"a": 1}})
        missing = await world.request("POST", f"{CALL}?mode=find", {"name": "git.absent"})

        assert "git.echo" in [one["name"] for one in listed["tools"]]
        assert found["result"]["content"][0]["text"] == '{"a":1}'
        assert error_of(missing) == (404, "unknown_tool")
        assert [(one.tool, one.outcome) for one in calls(world)] == [("echo", "ok")]


async def fails(_: Json) -> RpcResponse:
    return RpcResponse(result=msgspec.json.encode({"content": [], "isError": True}))


async def objects(_: Json) -> RpcResponse:
    return RpcResponse(error=b'{"code":-32602,"message":"no such path"}')


async def breaks(_: Json) -> RpcResponse:
    return RpcResponse(error=b'{"code":-32603,"message":"out of order"}')


async def asks(_: Json) -> RpcResponse:
    question = {"method": "elicitation/create", "params": {"message": "who?"}}
    return RpcResponse(
        result=msgspec.json.encode({"resultType": "input_required", "inputRequests": {"q": question}})
    )


async def speaks_long(_: Json) -> RpcResponse:
    return RpcResponse(result=text_result("x" * 4_096))


async def hangs(_: Json) -> RpcResponse:
    await asyncio.Event().wait()
    raise AssertionError


@pytest.mark.parametrize(
    ("tool", "status", "code", "says"),
    [
        ("objects", 400, "mcp_invalid_arguments", "no such path"),
        ("breaks", 502, "mcp_refused", "out of order"),
        ("asks", 502, "mcp_input_not_given", "requests input"),
        ("hangs", 504, "mcp_timeout", "no answer within"),
    ],
)
async def test_what_becomes_of_a_call_is_stated_in_our_own_shape(
    tool: str, status: int, code: str, says: str
) -> None:
    async with open_rest(net("modern", objects=objects, breaks=breaks, asks=asks, hangs=hangs)) as world:
        await furnish(world, budgets={"tool_timeout_ms": 100 if tool == "hangs" else 60_000})
        response = await world.request("POST", CALL, {"name": f"git.{tool}"})

        assert error_of(response) == (status, code)
        assert says in response.json()["error"]["message"]
        assert response.headers["x-request-id"] == calls(world)[0].request_id


async def test_a_call_that_a_person_must_agree_to_waits_for_that() -> None:
    async with open_rest(net()) as world:
        body = {"name": "git.echo", "arguments": {"path": "a"}}
        await furnish(world, approval_policy={"default": "always"})
        asked = await world.request("POST", CALL, body, key=NARROW)
        approval_id = asked.json()["error"]["data"]["approval_id"]
        await world.post(f"/admin/api/approvals/{approval_id}/approve", {}, key=secret_of("publisher"))
        agreed = await world.request("POST", CALL, body, key=NARROW)

        assert error_of(asked) == (403, "mcp_approval_required")
        assert agreed.status_code == 200
        assert len(world.net["git"].calls) == 1


async def test_a_tool_that_fails_is_a_result() -> None:
    async with open_rest(net(fails=fails)) as world:
        await furnish(world)
        response = await world.post(CALL, {"name": "git.fails"})

        assert (response["is_error"], response["result"]) == (True, {"content": [], "isError": True})


async def test_a_result_is_cut_to_its_budget() -> None:
    async with open_rest(net(speaks_long=speaks_long)) as world:
        await furnish(world, budgets={"max_tool_output_bytes": 1_024})
        response = await world.request("POST", CALL, {"name": "git.speaks_long"})

        assert len(response.content) < 2_048


@pytest.mark.parametrize(
    "body",
    [
        b'{"name":"git.echo","arguments":[]}',
        b'{"name":"git.echo","arguments":{"a":1,"a":2}}',
        b'{"name":"git.echo","more":1}',
        b'{"name":""}',
        b'{"name":"%b"}' % (b"x" * 300),
        b'{"name":7}',
        b"{}",
        b"[]",
        b'{"name":"git.echo","arguments":%b}' % (b'{"a":' * 80 + b"1" + b"}" * 80),
    ],
)
async def test_what_can_be_read_in_two_ways_or_is_no_call_is_refused(body: bytes) -> None:
    async with open_rest(net()) as world:
        await furnish(world)
        response = await world.request("POST", CALL, body)

        assert response.status_code == 400
        assert world.net["git"].calls == []


async def test_a_caller_that_goes_away_cancels_the_call() -> None:
    begun = asyncio.Event()

    async def waits(_: Json) -> RpcResponse:
        begun.set()
        await asyncio.Event().wait()
        raise AssertionError

    body = b'{"name":"git.waits"}'
    head = (
        "POST %s HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n"
    )
    async with open_rest(net(waits=waits)) as world:
        await furnish(world)
        async with listening(world) as port:
            _, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write((head % (CALL, len(body))).encode() + body)
            await begun.wait()
            writer.close()
            while not world.net["git"].stopped_by:
                await asyncio.sleep(0)

        assert world.net["git"].stopped_by == ["waits"]
        assert [(one.outcome, one.code) for one in calls(world)] == [("cancelled", "cancelled")]
