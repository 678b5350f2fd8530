"""What a server says and asks in the middle of a request reaches the client of that request, and no other."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
import pytest

from tests.surfaces.mcp.mcp_world import LegacyClient, McpWorld, open_mcp_world
from tests.surfaces.mcp.test_sse import INITIALIZE, connected, settled
from tests.upstream.memory_link import MemoryNet, MemoryServer, definition, record, text_result
from toolgate.surfaces.mcp.session import SessionLimits
from toolgate.upstream.connection.contract import ClientChannel, RpcResponse

pytestmark = pytest.mark.anyio

ONE = record("one", allowed_tools=("*",))
CAN = {"elicitation": {"form": {}}, "sampling": {}, "roots": {"listChanged": True}}
FORM = {"message": "how many?", "requestedSchema": {"type": "object", "properties": {}}}

Tool = Callable[[ClientChannel], Awaitable[RpcResponse]]


def net_of(tool: Tool) -> MemoryNet:
    """One legacy server, whose `act` has the client of its call at hand."""

    async def act(_members: dict[str, Any]) -> RpcResponse:
        client = net["one"].calls[-1].client
        assert client is not None
        return await tool(client)

    net = MemoryNet(one=MemoryServer(era="legacy", tools=[definition("act")], on_call={"act": act}))
    return net


def begin(session: LegacyClient, **headers: str) -> Any:
    return session.begin("tools/call", {"name": "one.act"}, request_id="mine", **headers)


async def elicit(client: ClientChannel) -> RpcResponse:
    """Asks, and answers with what came back."""
    rpc = await client.request("elicitation/create", json.dumps(FORM).encode())
    return RpcResponse(result=text_result((rpc.result or rpc.error or b"").decode()))


def outcome_before(message: Any) -> Any:
    """What the tool made of the client's answer."""
    return json.loads(message["result"]["content"][0]["text"])


async def test_a_server_asks_the_client_of_a_call_and_gets_its_answer() -> None:
    async with open_mcp_world(net_of(elicit), ONE) as world:
        session = await world.session("/api/mcp", capabilities=CAN)
        call = begin(session)
        asked = await call.event()
        answered = await session.respond(asked["id"], result={"action": "accept", "content": {"n": 3}})
        ended = await call.event()

        assert (asked["method"], asked["params"]) == ("elicitation/create", FORM)
        assert (answered.status, answered.body) == (202, b"")
        assert (ended["id"], outcome_before(ended)) == ("mine", {"action": "accept", "content": {"n": 3}})
        assert call.headers["content-type"] == "text/event-stream"


async def test_a_stream_on_which_the_client_is_asked_is_kept_alive() -> None:
    async with open_mcp_world(net_of(elicit), ONE, session_limits=SessionLimits(keepalive_s=0.001)) as world:
        session = await world.session("/api/mcp", capabilities=CAN)
        call = begin(session)
        asked = await call.event()
        async with asyncio.timeout(60):
            assert await call.chunks.get() == b": keep-alive\n\n"
        await session.respond(asked["id"], result={})

        assert outcome_before(await call.event()) == {}


async def test_an_error_of_the_client_goes_to_the_server_as_it_came() -> None:
    async with open_mcp_world(net_of(elicit), ONE) as world:
        session = await world.session("/api/mcp", capabilities=CAN)
        call = begin(session)
        error = {"code": -1, "message": "user rejected", "data": {"why": "é"}}
        await session.respond((await call.event())["id"], error=error)

        assert outcome_before(await call.event()) == error


async def test_the_transport_of_2024_asks_on_its_one_stream() -> None:
    async with settled(net_of(elicit), ONE) as world, connected(world, "/api/mcp") as client:
        await client.request("initialize", INITIALIZE | {"capabilities": CAN})
        asked = await client.request("tools/call", {"name": "one.act"})
        response = {"jsonrpc": "2.0", "id": asked["id"], "result": {"action": "decline"}}
        taken = await client.post(response)
        ended = await client.stream.event()
        late = await client.post(response)

        assert (asked["method"], taken.status, late.status) == ("elicitation/create", 202, 202)
        assert outcome_before(ended) == {"action": "decline"}


@pytest.mark.parametrize(
    ("capabilities", "method", "params", "is_asked"),
    [
        pytest.param({}, "elicitation/create", FORM, False, id="it can do nothing"),
        pytest.param({"sampling": {}}, "elicitation/create", FORM, False, id="it can do something else"),
        pytest.param({"elicitation": {}}, "elicitation/create", FORM, True, id="forms without saying so"),
        pytest.param({"elicitation": {"url": {}}}, "elicitation/create", FORM, False, id="pages alone"),
        pytest.param(
            {"elicitation": {}}, "elicitation/create", {"mode": "url"}, False, id="it can show no page"
        ),
        pytest.param(
            {"elicitation": {"url": {}}}, "elicitation/create", {"mode": "url"}, True, id="it can show pages"
        ),
        pytest.param({"elicitation": {}}, "elicitation/create", {"mode": 7}, False, id="no mode at all"),
        pytest.param({"roots": {}}, "roots/list", {}, True, id="roots"),
        pytest.param({"sampling": {}}, "sampling/createMessage", {}, True, id="sampling"),
        pytest.param(CAN, "tasks/list", {}, False, id="nothing a server may ask"),
    ],
)
async def test_a_client_is_asked_only_what_it_can_answer(
    capabilities: Any, method: str, params: Any, is_asked: bool
) -> None:
    async def request(client: ClientChannel) -> RpcResponse:
        rpc = await client.request(method, json.dumps(params).encode())
        return RpcResponse(result=text_result((rpc.result or rpc.error or b"").decode()))

    async with open_mcp_world(net_of(request), ONE) as world:
        session = await world.session("/api/mcp", capabilities=capabilities)
        call = begin(session)
        if is_asked:
            await session.respond((await call.event())["id"], result={"ok": True})
            assert outcome_before(await call.event()) == {"ok": True}
        else:
            assert outcome_before((await call.whole()).json)["code"] == -32601


async def test_a_client_without_event_streams_gets_no_notifications_and_no_requests() -> None:
    async def tell_and_ask(client: ClientChannel) -> RpcResponse:
        client.notify("notifications/progress", b'{"progressToken":1,"progress":1}')
        client.notify("notifications/message", b'{"level":"error","data":1}')
        assert (client.capabilities, client.log_level) == (b"{}", "")
        return await elicit(client)

    async with open_mcp_world(net_of(tell_and_ask), ONE) as world:
        session = await world.session("/api/mcp", capabilities=CAN)
        response = await begin(session, accept="application/json").whole()

        assert outcome_before(response.json)["code"] == -32601


async def test_fuz_9_what_answers_nothing_that_was_asked_has_no_effect() -> None:
    async with open_mcp_world(net_of(elicit), ONE) as world:
        asked_one = await world.session("/api/mcp", capabilities=CAN)
        other = await world.session("/api/mcp", capabilities=CAN)
        call = begin(asked_one)
        ask_id = (await call.event())["id"]

        assert (await asked_one.respond(1, result={})).status == 400
        assert (await asked_one.respond("mine", result={})).status == 400
        assert (await other.respond(ask_id, result={})).status == 202
        assert (await asked_one.respond(ask_id[:-1], result={})).status == 202
        assert (await world.post("/api/mcp", {"jsonrpc": "2.0", "id": ask_id, "result": {}})).status == 400
        assert not call.task.done()
        await asked_one.respond(ask_id, result={"it": "is"})
        assert outcome_before(await call.event()) == {"it": "is"}
        assert (await asked_one.respond(ask_id, result={"it": "was"})).status == 202


async def test_a_question_that_is_given_up_is_taken_back() -> None:
    async def give_up(client: ClientChannel) -> RpcResponse:
        try:
            async with asyncio.timeout(0):
                await client.request("sampling/createMessage", b"{}")
        except TimeoutError:
            return RpcResponse(result=text_result("{}"))
        raise AssertionError

    async with open_mcp_world(net_of(give_up), ONE) as world:
        session = await world.session("/api/mcp", capabilities=CAN)
        call = begin(session)
        asked, taken_back = await call.event(), await call.event()

        assert taken_back["method"] == "notifications/cancelled"
        assert taken_back["params"] == {"requestId": asked["id"]}
        assert outcome_before(await call.event()) == {}


@pytest.mark.parametrize("way", ["cancelled", "left", "ended"])
async def test_a_question_ends_with_its_request(way: str) -> None:
    async with open_mcp_world(net_of(elicit), ONE) as world:
        session = await world.session("/api/mcp", capabilities=CAN)
        call = begin(session)
        ask_id = (await call.event())["id"]
        if way == "cancelled":
            await session.notify("notifications/cancelled", {"requestId": "mine"})
        elif way == "left":
            await call.leave()
        else:
            await session.delete()
        async with asyncio.timeout(60):
            await asyncio.gather(call.task, return_exceptions=True)

        assert world.net["one"].stopped_by == ["act"]
        assert (await session.respond(ask_id, result={})).status == (404 if way == "ended" else 202)


async def test_a_client_that_has_too_much_to_answer_is_asked_no_more() -> None:
    async with open_mcp_world(
        net_of(elicit), ONE, session_limits=SessionLimits(max_client_requests=1)
    ) as world:
        session = await world.session("/api/mcp", capabilities=CAN)
        first = begin(session)
        ask_id = (await first.event())["id"]
        second = await session.send("tools/call", {"name": "one.act"}, request_id=2)
        await session.respond(ask_id, result={})

        assert outcome_before(second.json)["message"] == "too many requests already wait for the client"
        assert outcome_before(await first.event()) == {}


async def test_a_client_that_reads_nothing_is_not_waited_for() -> None:
    async with open_mcp_world(net_of(elicit), ONE) as world:
        session = await world.session("/api/mcp", capabilities=CAN)
        call = begin(session)
        call.send_message = lambda _message: False

        assert (
            outcome_before((await call.whole()).json)["message"]
            == "the client does not read its stream at the moment"
        )


# What is only told


async def test_progress_comes_ahead_of_the_answer() -> None:
    async def work(client: ClientChannel) -> RpcResponse:
        for done in (1, 2):
            client.notify("notifications/progress", b'{"progressToken":"t","progress":%d}' % done)
        return RpcResponse(result=text_result("{}"))

    async with open_mcp_world(net_of(work), ONE) as world:
        call = begin(await world.session("/api/mcp"))
        received = [await call.event() for _ in range(3)]

        assert [one.get("method") for one in received] == ["notifications/progress"] * 2 + [None]
        assert [one["params"]["progress"] for one in received[:2]] == [1, 2]
        assert received[2]["id"] == "mine"


@pytest.mark.parametrize(
    ("level", "received"),
    [
        pytest.param(None, ["debug", "info", "emergency"], id="nothing said: what the server says"),
        pytest.param("info", ["info", "emergency"], id="info"),
        pytest.param("error", ["emergency"], id="error"),
    ],
)
async def test_log_messages_come_from_the_level_that_the_session_set(
    level: str | None, received: list[str]
) -> None:
    async def talk(client: ClientChannel) -> RpcResponse:
        for one in ("debug", "info", "shouting", 7, "emergency"):
            client.notify("notifications/message", msgspec.json.encode({"level": one, "data": "x"}))
        return RpcResponse(result=text_result("{}"))

    async with open_mcp_world(net_of(talk), ONE) as world:
        session = await world.session("/api/mcp")
        if level:
            assert (await session.send("logging/setLevel", {"level": level})).json["result"] == {}
        call = begin(session)
        levels = [(await call.event())["params"]["level"] for _ in received]

        assert levels == received
        assert (await call.event())["id"] == "mine"
        assert [one.client and one.client.log_level for one in world.net["one"].calls] == [level or "info"]


@pytest.mark.parametrize("level", ["loud", "INFO", "", None, 5])
async def test_a_level_that_is_none_is_refused(level: Any) -> None:
    async with open_mcp_world(net_of(elicit), ONE) as world:
        session = await world.session("/api/mcp")

        assert (await session.send("logging/setLevel", {"level": level})).code == -32602


# Servers of the stateless era, which answer with what they want to know


def required(number: int) -> bytes:
    asks = {"form": {"method": "elicitation/create", "params": FORM}, "dirs": {"method": "roots/list"}}
    return msgspec.json.encode(
        {"resultType": "input_required", "inputRequests": asks, "requestState": f"state-{number}"}
    )


def asking_net(rounds: int) -> MemoryNet:
    """A modern server that asks so often before it answers."""

    async def act(_members: dict[str, Any]) -> RpcResponse:
        number = len(net["one"].calls)
        return RpcResponse(result=required(number) if number <= rounds else text_result("{}"))

    net = MemoryNet(one=MemoryServer(era="modern", tools=[definition("act")], on_call={"act": act}))
    return net


async def answer_all(world: McpWorld, session: LegacyClient, call: Any) -> Any:
    """Answer whatever is asked until the call ends; how it ended."""
    while True:
        message = await call.event()
        if "method" not in message:
            return message
        await session.respond(message["id"], result={"answers": message["method"], "round": calls(world)})


def calls(world: McpWorld) -> int:
    return len(world.net["one"].calls)


async def test_a_legacy_client_is_taken_through_the_questions_of_a_modern_server() -> None:
    async with open_mcp_world(asking_net(2), ONE) as world:
        session = await world.session("/api/mcp", capabilities=CAN)
        call = session.begin("tools/call", {"name": "one.act", "arguments": {"n": 1}}, request_id="mine")
        ended = await answer_all(world, session, call)

        seen = [one.params for one in world.net["one"].calls]
        assert outcome_before(ended) == {}
        assert [(one["name"], one["arguments"]) for one in seen] == [("act", {"n": 1})] * 3
        assert [one.get("requestState") for one in seen] == [None, "state-1", "state-2"]
        assert [one.get("inputResponses") for one in seen] == [
            None,
            *(
                {
                    "form": {"answers": "elicitation/create", "round": number},
                    "dirs": {"answers": "roots/list", "round": number},
                }
                for number in (1, 2)
            ),
        ]
        assert [one.outcome for one in world.audited] == ["ok"] * 3


async def test_ups_13_a_server_that_asks_for_ever_gets_an_error_after_ten_rounds() -> None:
    async with open_mcp_world(asking_net(1_000), ONE) as world:
        session = await world.session("/api/mcp", capabilities=CAN)
        ended = await answer_all(world, session, begin(session))

        assert ended["result"]["isError"] is True
        assert "more than 10 times" in ended["result"]["content"][0]["text"]
        assert calls(world) == 11


async def test_a_client_that_cannot_answer_gets_a_failed_call() -> None:
    async with open_mcp_world(asking_net(1), ONE) as world:
        session = await world.session("/api/mcp")
        result = (await session.call("one.act")).json["result"]

        assert result["content"][0]["text"].startswith("mcp_input_not_given: ")
        assert calls(world) == 1


async def test_a_legacy_client_cannot_put_words_into_a_modern_servers_mouth() -> None:
    """`requestState` is sealed for the caller it was made for; the handshake era has no seal to check."""
    async with open_mcp_world(asking_net(0), ONE) as world:
        session = await world.session("/api/mcp", capabilities=CAN)
        await session.send(
            "tools/call", {"name": "one.act", "requestState": "stolen", "inputResponses": {"form": {}}}
        )

        assert world.net["one"].calls[0].params.keys() == {"name"}
