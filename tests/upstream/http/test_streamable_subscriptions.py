"""What HTTP servers are asked to keep telling, over sessions that are lost and streams that are replaced."""

import asyncio
import json
from contextlib import AbstractAsyncContextManager
from typing import Any

import msgspec
import pytest

from tests.contract.link_clients import ACCEPTED, Client, never
from tests.upstream.faulty_http import FakeMcp, FaultyHttp, Peer, Request
from tests.upstream.http_links import (
    RecordingListener,
    call,
    linked,
    open_link,
    params,
    record_for,
    response,
)
from toolgate.upstream.connection import relay
from toolgate.upstream.connection.contract import SHARED_CAPABILITIES, ServerConnection

pytestmark = pytest.mark.anyio

UPDATED = "notifications/resources/updated"
OFFERS: dict[str, Any] = {
    "tools": {"listChanged": True},
    "resources": {"subscribe": True},
    "logging": {},
}
ASK = {"jsonrpc": "2.0", "id": "q", "method": "elicitation/create", "params": {"message": "?"}}


async def until(server: FaultyHttp, rpc: str, times: int) -> list[Request]:
    while len(server.seen(rpc)) < times:
        await asyncio.sleep(0)
    return server.seen(rpc)


async def stay(_request: Request, peer: Peer) -> None:
    await peer.open_stream()
    await peer.gone()


async def agree(request: Request, peer: Peer) -> None:
    await peer.result(request, {})


def legacy(**faults: Any) -> FakeMcp:
    scripts = {"GET": stay, "resources/subscribe": agree, "logging/setLevel": agree} | faults
    return FakeMcp("legacy", capabilities=OFFERS, faults=scripts)


async def put(link: ServerConnection, client: Client) -> Any:
    rpc = await link.request("tools/call", params(arguments=1), timeout_s=60, client=client)
    return json.loads(rpc.result or b"")


async def test_a_new_session_is_notified_what_the_lost_one_knew() -> None:
    mcp, received = legacy(), RecordingListener()
    async with linked(mcp, received) as (server, link):
        link.watch(frozenset({"a:1"}))
        await put(link, Client(log_level="debug"))
        await until(server, "resources/subscribe", 1)
        mcp.sessions.clear()
        await put(link, Client(log_level="debug"))
        subscribed = await until(server, "resources/subscribe", 2)
        await put(link, Client(log_level="debug"))

        assert [request.headers["mcp-session-id"] for request in subscribed] == ["session-1", "session-2"]
        assert [request.message["params"] for request in subscribed] == [{"uri": "a:1"}] * 2
        levels = [request.headers["mcp-session-id"] for request in server.seen("logging/setLevel")]
        assert levels == ["session-1", "session-2"]
        assert [method for method, _ in received.notifications] == [
            "notifications/tools/list_changed",
            "notifications/resources/list_changed",
            UPDATED,
        ]
        assert json.loads(received.notifications[-1][1]) == {"uri": "a:1"}


async def test_a_server_that_refuses_to_be_notified_is_called_all_the_same() -> None:
    async def refuse(request: Request, peer: Peer) -> None:
        await peer.respond(status=500)

    mcp, received = legacy(**{"logging/setLevel": refuse, "resources/subscribe": refuse}), RecordingListener()
    async with linked(mcp, received) as (server, link):
        link.watch(frozenset({"a:1", "b:1"}))
        responses = [await put(link, Client(log_level="debug")) for _ in range(3)]
        await until(server, "resources/subscribe", 2)

        assert responses == [{"echo": 1}] * 3
        assert len(server.seen("logging/setLevel")) == 1
        assert received.closings == []


async def test_bud_1_a_call_does_not_wait_for_a_server_that_is_slow_to_be_notified() -> None:
    given_up: list[str | None] = []

    async def hang(request: Request, peer: Peer) -> None:
        await peer.gone()
        given_up.append(request.rpc)

    async with linked(legacy(**{"logging/setLevel": hang})) as (server, link), asyncio.timeout(60):
        responses = [await put(link, Client(log_level=level)) for level in ("info", "debug", "debug")]

        assert given_up == []
        assert responses == [{"echo": 1}] * 3
        assert len(server.seen("logging/setLevel")) == 2


async def test_a_server_that_offers_neither_is_notified_nothing() -> None:
    async with linked(FakeMcp("legacy")) as (server, link):
        link.watch(frozenset({"a:1"}))
        await put(link, Client(log_level="debug"))
        await asyncio.sleep(0)

        notified = {request.rpc for request in server.requests}
        assert notified <= {"server/discover", "initialize", "notifications/initialized", "tools/call"}


async def test_another_subscription_is_open_before_the_one_it_replaces_is_closed() -> None:
    log: list[str] = []
    last_came, may_open = asyncio.Event(), asyncio.Event()

    async def listen(request: Request, peer: Peer) -> None:
        uris = request.message["params"]["notifications"].get("resourceSubscriptions", [])
        if uris == ["a:99"]:
            last_came.set()
            await may_open.wait()
        elif uris:
            await peer.gone()  # given up before it opened
            return
        log.append(f"open {uris}")
        await peer.open_stream()
        await peer.event({"jsonrpc": "2.0", "method": "notifications/tools/list_changed"})
        await peer.gone()
        log.append(f"closed {uris}")

    received = RecordingListener()
    mcp = FakeMcp("modern", capabilities=OFFERS, faults={"subscriptions/listen": listen})
    async with linked(mcp, received) as (server, link):
        await received.until_notified(1)
        for n in range(100):
            link.watch(frozenset({f"a:{n}"}))
            await call(link)
        await last_came.wait()
        before, streams = list(log), server.open_connections
        may_open.set()
        while len(log) < 3:
            await asyncio.sleep(0)

        assert (before, log) == (["open []"], ["open []", "open ['a:99']", "closed []"])
        assert streams < 10
        await received.until_notified(2)
        assert len(received.notifications) == 2  # one on each: nothing was missed in between


async def test_what_a_broken_subscription_may_have_missed_is_notified() -> None:
    async def listen(request: Request, peer: Peer) -> None:
        await peer.open_stream()
        if len(server.seen("subscriptions/listen")) == 2:
            peer.reset()
        else:
            await peer.gone()

    received = RecordingListener()
    mcp = FakeMcp("modern", capabilities=OFFERS, faults={"subscriptions/listen": listen})
    async with linked(mcp, received) as (server, link):
        await until(server, "subscriptions/listen", 1)
        link.watch(frozenset({"a:1"}))
        await received.until_notified(3)

        filters = [r.message["params"]["notifications"] for r in server.seen("subscriptions/listen")]
        wanted = {"toolsListChanged": True, "resourceSubscriptions": ["a:1"]}
        assert filters == [{"toolsListChanged": True}, wanted, wanted]
        assert received.notifications[-1] == (UPDATED, msgspec.json.encode({"uri": "a:1"}))


class Asking:
    """A legacy server that asks on the stream of its session, which belongs to no call."""

    def __init__(self) -> None:
        self.responses: asyncio.Queue[Any] = asyncio.Queue()
        self.stream: asyncio.Future[Peer] = asyncio.get_running_loop().create_future()
        faults = {"GET": self.listen, "tools/call": self.call, "answer": self.take}
        self.mcp = FakeMcp("legacy", faults=faults)

    def serving(self) -> AbstractAsyncContextManager[FaultyHttp]:
        return FaultyHttp(self.mcp)

    async def listen(self, _request: Request, peer: Peer) -> None:
        await peer.open_stream()
        self.stream.set_result(peer)
        await peer.gone()

    async def call(self, request: Request, peer: Peer) -> None:
        if request.message["params"]["arguments"] == "hang":
            await peer.gone()
        await (await self.stream).event(ASK)
        await peer.open_stream()
        await peer.event(response(request, await self.responses.get()))
        await peer.end_stream()

    async def take(self, request: Request, peer: Peer) -> None:
        self.responses.put_nowait(request.message)
        await peer.respond(status=202)


@pytest.mark.parametrize("is_alone", [True, False])
async def test_a_question_on_the_stream_of_no_call_belongs_to_the_only_one_there_is(is_alone: bool) -> None:
    asking, client, other = Asking(), Client(), Client()
    async with asyncio.timeout(60), asking.serving() as server:
        link = await open_link(record_for(server.url), capabilities=SHARED_CAPABILITIES)
        hanging = asyncio.ensure_future(
            link.request(
                "tools/call", params(arguments="hang"), timeout_s=60, client=None if is_alone else other
            )
        )
        await until(server, "tools/call", 1)
        shown = await put(link, client)
        hanging.cancel()
        await link.aclose()

    if is_alone:
        assert shown["result"] == json.loads(ACCEPTED.result or b"")
    else:
        assert "per_session" in shown["error"]["message"]
    assert (len(client.asked), other.asked) == (int(is_alone), [])


@pytest.mark.parametrize(
    ("principals", "most"), [(6, relay.MAX_CLIENT_REQUESTS), (1, relay.MAX_CLIENT_REQUESTS_PER_PRINCIPAL)]
)
async def test_questions_are_bounded_over_all_calls_of_a_link(principals: int, most: int) -> None:
    """And one principal's leave room for those of others."""
    refused: list[Any] = []

    async def flood(request: Request, peer: Peer) -> None:
        await peer.open_stream()
        for n in range(relay.MAX_CLIENT_REQUESTS_PER_CALL):
            await peer.event(ASK | {"id": f"{request.message['id']}-{n}"})
        await peer.gone()

    async def take(request: Request, peer: Peer) -> None:
        refused.append(request.message["error"]["message"])
        await peer.respond(status=202)

    async with linked(legacy(**{"tools/call": flood, "answer": take})) as (_, link):
        clients = [Client(never, principal_id=str(number % principals)) for number in range(6)]
        calls = [asyncio.ensure_future(put(link, client)) for client in clients]
        while len(refused) < 6 * relay.MAX_CLIENT_REQUESTS_PER_CALL - most:
            await asyncio.sleep(0)
        asked = sum(len(client.asked) for client in clients)
        for one in calls:
            one.cancel()
        await asyncio.gather(*calls, return_exceptions=True)

        assert asked == most
        assert set(refused) == {"too many requests to the client at once"}
        while sum(client.cut_off for client in clients) < asked:
            await asyncio.sleep(0)
