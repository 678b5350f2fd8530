"""Clients of the stateless era whose server wants to know something first."""

import asyncio
import json
from functools import partial
from typing import Any

import msgspec
import pytest

from tests.surfaces.mcp.mcp_world import (
    JSON_HEADERS,
    META,
    MODERN,
    McpWorld,
    Response,
    Stream,
    key,
    open_mcp_world,
)
from tests.upstream.memory_link import Json, MemoryNet, MemoryServer, definition, record
from toolgate.gateway.call.elicitation import MAX_INPUTS
from toolgate.upstream.connection.contract import RpcResponse

pytestmark = pytest.mark.anyio

CAPABILITIES = "io.modelcontextprotocol/clientCapabilities"
ELICIT = {"mode": "form", "message": "who?", "requestedSchema": {"type": "object", "properties": {}}}
ACCEPT = {"action": "accept", "content": {"name": "Ada"}}
CALL = {"name": "one.ask", "arguments": {"a": 1, "b": 2}}


def begin(
    world: McpWorld, params: Json, can: Json | None = None, *, secret: str | None = None, path: str = "/mcp"
) -> Stream:
    """Send a `tools/call` of a client that can do `can`."""
    can = {"elicitation": {}} if can is None else can
    sent = {**params, "_meta": {**META, CAPABILITIES: can}}
    body = {"jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": sent}
    headers = JSON_HEADERS | {
        "mcp-protocol-version": MODERN,
        "mcp-method": "tools/call",
        "mcp-name": params["name"],
    }
    if secret is not None:
        headers["authorization"] = f"Bearer {secret}"
    return world.open("POST", path, json.dumps(body).encode(), headers)


async def call(world: McpWorld, params: Json, can: Json | None = None, **who: str) -> Response:
    return await begin(world, params, can, **who).whole()


def again(params: Json, refusal: Response, response: Any = ACCEPT) -> Json:
    """The same request with a response to all that was asked."""
    result = refusal.json["result"]
    responses = dict.fromkeys(result["inputRequests"], response)
    return {**params, "inputResponses": responses, "requestState": result["requestState"]}


def legacy_net(*, questions: int = 1, method: str = "elicitation/create") -> MemoryNet:
    """A legacy server whose tool asks its client so often, and answers with what it was notified."""
    server = MemoryServer(era="legacy", tools=(definition("ask"),))

    async def request(_members: Json) -> RpcResponse:
        client = server.calls[-1].client
        assert client is not None
        notified = [
            bytes((await client.request(method, msgspec.json.encode(ELICIT))).result or b"null").decode()
            for _ in range(questions)
        ]
        return RpcResponse(
            result=msgspec.json.encode({"content": [{"type": "text", "text": "|".join(notified)}]})
        )

    server.on_call = {"ask": request}
    return MemoryNet(one=server)


def modern_net() -> MemoryNet:
    """A modern server whose tool wants one answer, and repeats the state and the answer it gets."""
    server = MemoryServer(tools=(definition("ask"),))

    async def request(members: Json) -> RpcResponse:
        if "inputResponses" in members:
            notified = {"state": members["requestState"], "responses": members["inputResponses"]}
            return RpcResponse(
                result=msgspec.json.encode(
                    {"resultType": "complete", "content": [{"type": "text", "text": json.dumps(notified)}]}
                )
            )
        asked = {"who": {"method": "elicitation/create", "params": ELICIT}}
        return RpcResponse(
            result=msgspec.json.encode(
                {"resultType": "input_required", "inputRequests": asked, "requestState": "theirs"}
            )
        )

    server.on_call = {"ask": request}
    return MemoryNet(one=server)


def text(response: Response) -> str:
    return str(response.json["result"]["content"][0]["text"])


SERVER = record(allowed_tools=("*",))


async def test_a_request_of_a_session_based_server_is_the_result_of_a_stateless_client() -> None:
    async with open_mcp_world(legacy_net(), SERVER) as world:
        first = await call(world, CALL)
        last = await call(world, again(CALL, first))

        result = first.json["result"]
        (asked,) = result["inputRequests"].values()
        assert (result["resultType"], asked) == (
            "input_required",
            {"method": "elicitation/create", "params": ELICIT},
        )
        assert (last.json["result"]["resultType"], json.loads(text(last))) == ("complete", ACCEPT)
        assert len(world.net["one"].calls) == 1


async def test_a_server_may_ask_one_thing_after_the_other() -> None:
    async with open_mcp_world(legacy_net(questions=3), SERVER) as world:
        response = await call(world, CALL)
        for number in range(3):
            response = await call(
                world, again(CALL, response, {"action": "accept", "content": {"n": number}})
            )

        notified = [json.loads(one)["content"]["n"] for one in text(response).split("|")]
        assert notified == [0, 1, 2]


async def test_the_state_of_a_stateless_server_travels_sealed() -> None:
    async with open_mcp_world(modern_net(), SERVER) as world:
        first = await call(world, CALL)
        last = await call(world, again(CALL, first))

        assert first.json["result"]["requestState"] != "theirs"
        assert json.loads(text(last)) == {"state": "theirs", "responses": {"who": ACCEPT}}


def insatiable_net() -> MemoryNet:
    """A modern server that always wants to know one thing more."""
    net = modern_net()
    request = net["one"].on_call["ask"]
    net["one"].on_call = {"ask": lambda _members: request({})}
    return net


@pytest.mark.parametrize("net", [partial(legacy_net, questions=11), insatiable_net], ids=["legacy", "modern"])
async def test_ups_13_a_server_that_asks_for_ever_gets_an_error_after_ten_rounds(net: Any) -> None:
    async with open_mcp_world(net(), SERVER) as world:
        response = await call(world, CALL)
        for _ in range(10):
            assert response.json["result"]["resultType"] == "input_required"
            response = await call(world, again(CALL, response))

        assert response.json["result"]["isError"]
        assert "more than 10 times" in text(response)


@pytest.mark.parametrize("net", [legacy_net, modern_net], ids=["legacy", "modern"])
@pytest.mark.parametrize(
    "change",
    [
        pytest.param({"arguments": {"a": 1, "b": 3}}, id="other arguments"),
        pytest.param({"requestState": "forged"}, id="a state of its own making"),
        pytest.param({"requestState": {"a": 1}}, id="no text"),
    ],
)
async def test_a_state_holds_for_the_request_it_was_given_for(net: Any, change: Json) -> None:
    async with open_mcp_world(net(), SERVER) as world:
        first = await call(world, CALL)
        refused = await call(world, {**again(CALL, first), **change})

        assert (refused.status, refused.code) == (400, -32602)
        assert len(world.net["one"].calls) == 1


@pytest.mark.parametrize("net", [legacy_net, modern_net], ids=["legacy", "modern"])
async def test_a_state_is_good_for_its_own_credential_only(net: Any) -> None:
    """A principal that got hold of another's state can do nothing with it."""
    keys = (key("ada", "tg_ada"), key("eve", "tg_eve"))
    async with open_mcp_world(net(), SERVER, keys=keys, trusts_local=False) as world:
        first = await call(world, CALL, secret="tg_ada")
        stolen = await call(world, again(CALL, first), secret="tg_eve")
        own = await call(world, again(CALL, first), secret="tg_ada")

        assert (stolen.status, stolen.json["error"]["data"]["code"]) == (400, "input_state_refused")
        assert own.json["result"]["resultType"] == "complete"


async def test_a_parked_call_is_answered_once() -> None:
    async with open_mcp_world(legacy_net(), SERVER) as world:
        first = await call(world, CALL)
        await call(world, again(CALL, first))
        twice = await call(world, again(CALL, first))

        assert twice.json["error"]["data"]["code"] == "input_state_refused"
        assert len(world.net["one"].calls) == 1


@pytest.mark.parametrize("net", [legacy_net, modern_net], ids=["legacy", "modern"])
@pytest.mark.parametrize("can", [{}, {"roots": {}}], ids=["nothing", "something else"])
async def test_a_client_that_cannot_respond_learns_which_capability_it_lacks(net: Any, can: Json) -> None:
    """Also where a modern server asks although it was notified."""
    async with open_mcp_world(net(), SERVER) as world:
        refused = await call(world, CALL, can)

        assert (refused.status, refused.code) == (400, -32021)
        assert refused.json["error"]["data"]["requiredCapabilities"] == {"elicitation": {}}


async def test_a_client_that_leaves_while_its_call_runs_ends_it() -> None:
    begun, net = asyncio.Event(), legacy_net()

    async def hang(_members: Json) -> RpcResponse:
        begun.set()
        await asyncio.Event().wait()
        raise AssertionError

    net["one"].on_call = {"ask": hang}
    async with open_mcp_world(net, SERVER) as world:
        stream = begin(world, CALL)
        await asyncio.wait_for(begun.wait(), 60)
        await stream.leave()
        for _ in range(10):
            await asyncio.sleep(0)

        assert net["one"].stopped_by == ["ask"]


async def test_a_required_url_visit_is_an_input_request() -> None:
    """A legacy server says it with an error, and is called again when someone has been there."""
    page = {"mode": "url", "elicitationId": "e1", "url": "https://there.example/consent", "message": "agree"}
    visited, net = [False], legacy_net()

    async def want(_members: Json) -> RpcResponse:
        if visited[0]:
            return RpcResponse(result=b'{"content":[{"type":"text","text":"done"}]}')
        error = {"code": -32042, "message": "go there", "data": {"elicitations": [page]}}
        return RpcResponse(error=msgspec.json.encode(error))

    net["one"].on_call = {"ask": want}
    async with open_mcp_world(net, SERVER) as world:
        plain = await call(world, CALL, {"elicitation": {"form": {}}})
        first = await call(world, CALL, {"elicitation": {"url": {}}})
        visited[0] = True
        last = await call(world, again(CALL, first, {"action": "accept"}), {"elicitation": {"url": {}}})

        assert plain.code == -32021
        (asked,) = first.json["result"]["inputRequests"].values()
        assert asked == {"method": "elicitation/create", "params": page}
        assert text(last) == "done"
        assert "inputResponses" not in world.net["one"].calls[-1].params


async def test_closing_the_door_ends_parked_calls() -> None:
    async with open_mcp_world(legacy_net(), SERVER) as world:
        await call(world, CALL)
        world.door.close()
        for _ in range(10):
            await asyncio.sleep(0)

        assert world.net["one"].stopped_by == ["ask"]


@pytest.mark.parametrize("responses", [[], {"x": 1}, "text"])
async def test_answers_that_are_none_are_refused(responses: Any) -> None:
    async with open_mcp_world(legacy_net(), SERVER) as world:
        first = await call(world, CALL)
        refused = await call(world, {**again(CALL, first), "inputResponses": responses})

        assert (refused.status, refused.code) == (400, -32602)


@pytest.mark.parametrize("net", [legacy_net, modern_net], ids=["legacy", "modern"])
async def test_what_is_denied_between_two_rounds_is_unknown_in_the_second(net: Any) -> None:
    """SCO-21"""
    async with open_mcp_world(net(), SERVER) as world:
        first = await call(world, CALL)
        world.apply(servers={"one": record(allowed_tools=("other",))})
        second = await call(world, again(CALL, first))
        never = await call(world, {**CALL, "name": "one.never"})

        assert second.json["error"]["code"] == never.json["error"]["code"] == -32602
        assert second.json["error"]["message"] == "Unknown tool: one.ask"
        assert [(event.tool, event.outcome) for event in world.audited][-2] == ("one.ask", "denied")
        assert len(world.net["one"].calls) == 1


async def test_the_state_of_one_server_is_not_given_to_another() -> None:
    servers = modern_net().servers
    net = MemoryNet(one=servers["one"], two=modern_net()["one"])
    bare = {**CALL, "name": "ask"}
    async with open_mcp_world(net, SERVER, record("two", allowed_tools=("*",))) as world:
        first = await call(world, bare, path="/mcp/s/one")
        refused = await call(world, again(bare, first), path="/mcp/s/two")
        served = await call(world, again(bare, first), path="/mcp/s/one")

        assert refused.code == -32602
        assert json.loads(text(served))["state"] == "theirs"
        assert net["two"].calls == []


@pytest.mark.parametrize("pages", [[{"mode": "url"}] * (MAX_INPUTS + 1), ["text"], [], "text"])
async def test_invalid_url_elicitations_are_passed_on_as_errors(pages: Any) -> None:
    net = legacy_net()

    async def want(_members: Json) -> RpcResponse:
        error = {"code": -32042, "message": "go there", "data": {"elicitations": pages}}
        return RpcResponse(error=msgspec.json.encode(error))

    net["one"].on_call = {"ask": want}
    async with open_mcp_world(net, SERVER) as world:
        response = await call(world, CALL, {"elicitation": {"url": {}}})

        assert response.code == -32042


async def test_ups_13_a_question_that_no_client_could_read_is_not_put() -> None:
    net, asked = modern_net(), {"who": {"method": "elicitation/create", "params": ["text"]}}

    async def want(_members: Json) -> RpcResponse:
        result = {"resultType": "input_required", "inputRequests": asked, "requestState": "s"}
        return RpcResponse(result=msgspec.json.encode(result))

    net["one"].on_call = {"ask": want}
    async with open_mcp_world(net, SERVER) as world:
        response = await call(world, CALL)

        assert "an invalid input request" in text(response)
