"""TRY-2: each request is decided by its own credential, whatever another one of the same subject may do."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, Final

import pytest

from tests.surfaces.mcp.mcp_world import JSON_HEADERS, META, MODERN, McpWorld, Stream, open_mcp_world
from tests.surfaces.mcp.test_endpoint_approvals import ALWAYS, with_approvals
from tests.surfaces.mcp.test_endpoint_offers import FEATURES, OfferingServer
from tests.surfaces.mcp.test_input_required import again, begin, call, legacy_net, modern_net
from tests.surfaces.mcp.test_sse import SseClient, connected
from tests.upstream.memory_link import MemoryNet, MemoryServer, definition, record
from toolgate.errors import Unauthenticated
from toolgate.gateway.auth.identity import Proof
from toolgate.model.principals import Ceiling, Principal

pytestmark = pytest.mark.anyio

WIDE, NARROW = "wide.token.x", "narrow.token.x"
NARROW_CEILING: Final = Ceiling(allow=("echo", "resource:docs://a"))
PRINCIPALS: Final = {
    WIDE: Principal(id="oidc:ada", role="agent"),
    NARROW: Principal(id="oidc:ada", role="agent", ceiling=NARROW_CEILING),
}
EVERYTHING: Final = ("*", "resource:*")
SECRET: Final = {"name": "one.secret", "arguments": {}}
ECHO: Final = {"name": "one.echo", "arguments": {}}
TOOLS: Final = (definition("echo"), definition("secret"))


class Issuer:
    """Gives two tokens to one subject."""

    async def verify(self, token: str) -> Proof:
        if token not in PRINCIPALS:
            raise Unauthenticated("unknown")
        return Proof(PRINCIPALS[token], 1e9)

    def on_key_withdrawn(self, forget: Callable[[], None]) -> None:
        """It never withdraws any."""


@asynccontextmanager
async def issued(net: MemoryNet, **fields: Any) -> AsyncIterator[McpWorld]:
    one = record("one", **({"allowed_tools": EVERYTHING} | fields))
    async with open_mcp_world(net, one, verifier=Issuer(), trusts_local=False) as world:
        yield world


def slow_to_start() -> tuple[MemoryNet, asyncio.Event]:
    """A server that has not listed anything before the event: what is asked of it waits."""
    started = asyncio.Event()

    async def start() -> None:
        await started.wait()

    return MemoryNet(one=MemoryServer(tools=TOOLS, on_start=start)), started


async def answered(stream: Stream) -> tuple[int, Any]:
    """The next answer, and the id it is for."""
    while "id" not in (message := await stream.event()):
        pass  # a notification
    return message["id"], message


def is_unknown(response: Any) -> bool:
    return bool(
        response.get("error", {}).get("code") == -32602 and "Unknown tool" in response["error"]["message"]
    )


async def test_try_2_on_a_shared_stream_of_2024() -> None:
    async with issued(MemoryNet(one=MemoryServer(tools=TOOLS))) as world:
        async with connected(world, "/api/mcp", WIDE) as wide:
            await wide.request("initialize", {"protocolVersion": "2024-11-05", "capabilities": {}})
            narrow = SseClient(world, wide.stream, wide.endpoint, NARROW)
            for number in range(50):
                posts = [(narrow, 2 * number, SECRET), (wide, 2 * number + 1, SECRET)]
                await asyncio.gather(
                    *(one.send("tools/call", sent, request_id=id_) for one, id_, sent in posts)
                )
            responses = dict([await answered(wide.stream) for _ in range(100)])

        assert [id_ for id_ in range(0, 100, 2) if not is_unknown(responses[id_])] == []
        assert [id_ for id_ in range(1, 100, 2) if "result" not in responses[id_]] == []
        assert len(world.net["one"].calls) == 50


@pytest.mark.parametrize("order", [(NARROW, WIDE), (WIDE, NARROW)])
@pytest.mark.parametrize("can", [{}, {"elicitation": {}}])
async def test_try_2_of_stateless_requests_that_wait_for_a_server(order: tuple[str, str], can: Any) -> None:
    net, started = slow_to_start()
    async with issued(net) as world:
        begun = {secret: [begin(world, SECRET, can, secret=secret) for _ in range(10)] for secret in order}
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        started.set()
        responses = {secret: [await one.whole() for one in many] for secret, many in begun.items()}

        assert [is_unknown(one.json) for one in responses[NARROW]] == [True] * 10
        assert [one.status for one in responses[WIDE]] == [200] * 10
        assert len(net["one"].calls) == 10


@pytest.mark.parametrize("method", ["tools/call", "tools/list"])
async def test_try_2_of_requests_in_a_shared_session_that_wait_for_a_server(method: str) -> None:
    net, started = slow_to_start()
    async with issued(net) as world:
        session = await world.session("/api/mcp", key=WIDE)
        begun = {
            secret: session.begin(method, SECRET, authorization=f"Bearer {secret}")
            for secret in (NARROW, WIDE)
        }
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        started.set()
        responses = {secret: (await one.whole()).json for secret, one in begun.items()}

        if method == "tools/call":
            assert (is_unknown(responses[NARROW]), len(net["one"].calls)) == (True, 1)
        else:
            listed = {
                secret: [tool["name"] for tool in one["result"]["tools"]] for secret, one in responses.items()
            }
            assert listed == {NARROW: ["one.echo"], WIDE: ["one.echo", "one.secret"]}


async def test_try_2_what_waits_for_input_goes_on_for_its_own_credential_only() -> None:
    for net in (legacy_net(), modern_net()):
        async with open_mcp_world(
            net, record(allowed_tools=("*",)), verifier=Issuer(), trusts_local=False
        ) as world:
            sent = {"name": "one.ask", "arguments": {}}
            first = await call(world, sent, secret=WIDE)
            stolen = await call(world, again(sent, first), secret=NARROW)
            last = await call(world, again(sent, first), secret=WIDE)

            assert "error" in stolen.json
            assert last.json["result"]["resultType"] == "complete"


async def test_try_2_an_approval_in_place_is_given_by_the_credential_that_was_asked() -> None:
    async with issued(MemoryNet(one=MemoryServer(tools=TOOLS)), approval_policy=ALWAYS) as world:
        with_approvals(world)
        session = await world.session("/api/mcp", key=WIDE, capabilities={"elicitation": {}})
        stream = session.begin("tools/call", SECRET, request_id="mine")
        asked = await stream.event()
        agreed = {"jsonrpc": "2.0", "id": asked["id"], "result": {"action": "accept", "content": {}}}
        foreign = await session.open(agreed, authorization=f"Bearer {NARROW}").whole()
        calls = len(world.net["one"].calls)
        own = await session.open(agreed).whole()
        response = await stream.event()

        assert (foreign.code, calls, own.status) == (-32600, 0, 202)
        assert "result" in response


async def test_try_2_a_listener_hears_of_what_its_own_credential_may_see() -> None:
    resources = [b'{"uri":"docs://a","name":"a"}', b'{"uri":"docs://b","name":"b"}']
    server = OfferingServer(capabilities=FEATURES, tools=TOOLS, resources=resources)
    async with issued(MemoryNet(one=server)) as world:
        await world.modern("/api/mcp", "tools/list", key=WIDE)
        await world.modern("/api/mcp", "tools/list", key=NARROW)
        wanted = {"resourceSubscriptions": ["docs://a", "docs://b"], "toolsListChanged": True}
        streams = {secret: listen(world, wanted, secret) for secret in (NARROW, WIDE)}
        received = {secret: (await one.event())["params"]["notifications"] for secret, one in streams.items()}
        server.announce_tools(definition("echo"), definition("secret", description="another"))
        notified = await streams[WIDE].event()
        server.announce_tools(definition("echo", description="another"), definition("secret"))
        await streams[WIDE].event()
        first_of_narrow = await streams[NARROW].event()
        more = streams[NARROW].chunks.qsize()
        for one in streams.values():
            await one.leave()

        assert received[WIDE] == wanted
        assert received[NARROW] == wanted | {"resourceSubscriptions": ["docs://a"]}
        assert notified["method"] == first_of_narrow["method"] == "notifications/tools/list_changed"
        assert more == 0  # of `secret` it was told nothing


def listen(world: McpWorld, wanted: Any, secret: str) -> Stream:
    method = "subscriptions/listen"
    body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": {"notifications": wanted, "_meta": META}}
    headers = {"mcp-protocol-version": MODERN, "mcp-method": method, "authorization": f"Bearer {secret}"}
    return world.open("POST", "/api/mcp", json.dumps(body).encode(), JSON_HEADERS | headers)
