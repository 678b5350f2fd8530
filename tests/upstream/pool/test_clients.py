"""The client behind a call: whom a server may reach, and what the call's place does meanwhile."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

import pytest

from tests.upstream.memory_link import Json, MemoryNet, MemoryServer, params, pool_of, record, text_result
from tests.upstream.virtual_time import VIRTUAL, pass_time
from toolgate.upstream.connection.contract import ClientChannel, RpcResponse
from toolgate.upstream.pool.pool import Pool

pytestmark = pytest.mark.anyio

CALL = "tools/call"


@pytest.fixture
def anyio_backend() -> object:
    return VIRTUAL


@dataclass
class Person:
    """A client whose user answers when told to."""

    capabilities: bytes = b'{"elicitation":{}}'
    log_level: str = ""
    has_session: bool = True
    principal_id: str = "ada"
    notified: list[tuple[str, bytes]] = field(default_factory=list)
    responses: asyncio.Event = field(default_factory=asyncio.Event)

    def notify(self, method: str, params: bytes) -> None:
        self.notified.append((method, params))

    async def request(self, method: str, params: bytes) -> RpcResponse:
        await self.responses.wait()
        return RpcResponse(result=b'{"action":"accept"}')


@pytest.fixture
def net() -> MemoryNet:
    server = MemoryServer(era="legacy")

    async def ask_first(members: Json) -> RpcResponse:
        client = client_of(server, members)
        client.notify("notifications/message", b"{}")
        questions = [
            client.request("elicitation/create", b"{}") for _ in range(members["arguments"]["times"])
        ]
        await asyncio.gather(*questions)
        return RpcResponse(result=text_result("asked"))

    async def ask_in_vain(members: Json) -> RpcResponse:
        asking = asyncio.ensure_future(client_of(server, members).request("elicitation/create", b"{}"))
        abandoned.append(asking)
        await pass_time(1)
        return RpcResponse(result=text_result("went on without"))

    async def hang(_: Json) -> RpcResponse:
        await asyncio.Event().wait()
        raise AssertionError

    abandoned: list[asyncio.Future[RpcResponse]] = []
    server.on_call = {"ask": ask_first, "ask_in_vain": ask_in_vain, "hang": hang}
    return MemoryNet(one=server)


def client_of(server: MemoryServer, members: Json) -> ClientChannel:
    client = next(seen.client for seen in server.calls if seen.params == members)
    assert client is not None
    return client


@pytest.fixture
async def pool(net: MemoryNet) -> AsyncIterator[Pool]:
    async with pool_of(net) as pool:
        pool.apply({"one": record(concurrency=1)})
        await pool.settled(["one"])
        yield pool


async def test_while_its_client_is_asked_a_call_lets_others_have_its_place(pool: Pool) -> None:
    client = Person()
    asking = asyncio.create_task(pool.call("one", CALL, params("ask", times=3), client=client))
    await pass_time(1)

    await pool.call("one", CALL, params("echo"))
    meanwhile = pool.health()["one"].in_flight
    client.responses.set()
    response = await asking

    assert response.rpc == RpcResponse(result=text_result("asked"))
    assert client.notified == [("notifications/message", b"{}")]
    assert (meanwhile, pool.health()["one"].in_flight) == (1, 0)


async def test_a_call_that_ends_while_its_client_is_asked_leaves_one_place_and_not_two(pool: Pool) -> None:
    client = Person()
    await pool.call("one", CALL, params("ask_in_vain"), client=client)
    calls = [asyncio.create_task(pool.call("one", CALL, params("hang", n=number))) for number in range(2)]
    await pass_time(1)
    before = (pool.health()["one"].in_flight, pool.health()["one"].queued)
    client.responses.set()
    await pass_time(1)
    after = (pool.health()["one"].in_flight, pool.health()["one"].queued)
    for call in calls:
        call.cancel()
    await asyncio.gather(*calls, return_exceptions=True)

    assert (before, after, pool.health()["one"].in_flight) == ((1, 1), (1, 1), 0)


async def test_a_client_that_nothing_can_be_asked_goes_to_the_link_as_it_is(
    net: MemoryNet, pool: Pool
) -> None:
    client = Person(capabilities=b"{}")

    await pool.call("one", CALL, params("echo"), client=client)

    assert net["one"].calls[-1].client is client


async def test_a_server_with_a_call_with_its_client_is_asked_is_not_idle_and_is_drained(
    net: MemoryNet,
) -> None:
    client = Person()
    async with pool_of(net) as pool:
        pool.apply({"one": record(idle_timeout_s=5)})
        await pool.settled(["one"])
        asking = asyncio.create_task(pool.call("one", CALL, params("ask", times=1), client=client))
        await pass_time(20)
        pool.apply({"one": record(idle_timeout_s=5, command="other")})
        await pass_time(1)
        client.responses.set()

        assert (await asking).rpc == RpcResponse(result=text_result("asked"))
