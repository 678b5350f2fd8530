"""When servers behind a URL are reconnected. Servers that never respond delay no others."""

import asyncio
from dataclasses import replace

import pytest

from tests.upstream.memory_link import MemoryNet, MemoryServer, params, record
from tests.upstream.virtual_time import VIRTUAL, pass_time
from toolgate.errors import ServerUnavailable
from toolgate.model.servers import HttpEndpoint, ServerRecord
from toolgate.upstream.connection.contract import PoolLimits, StartFailed
from toolgate.upstream.pool.managed_connection import PoolServices
from toolgate.upstream.pool.pool import Pool

pytestmark = pytest.mark.anyio

CALL = "tools/call"


@pytest.fixture
def anyio_backend() -> object:
    return VIRTUAL


def now_s() -> float:
    return asyncio.get_running_loop().time()


async def hang() -> None:
    await asyncio.Event().wait()


def behind_a_url(server_id: str) -> ServerRecord:
    endpoint = HttpEndpoint(url=f"http://{server_id}.example/mcp")
    return replace(record(server_id), transport="streamable_http", stdio=None, http=endpoint)


def pool_of(net: MemoryNet, limits: PoolLimits | None = None) -> Pool:
    return Pool(
        {"stdio": net.open, "streamable_http": net.open},
        on_change=lambda _: None,
        limits=limits or PoolLimits(),
        services=PoolServices(jitter=lambda: 0.0),
    )


async def test_ups_1_servers_that_never_respond_hold_up_no_child_and_few_of_their_own_kind() -> None:
    silent = [f"silent-{number}" for number in range(200)]
    net = MemoryNet(**{name: MemoryServer(on_start=hang) for name in silent})
    async with pool_of(net) as pool:
        pool.apply({name: behind_a_url(name) for name in silent})
        await pass_time(0.1)
        pool.apply({**{name: behind_a_url(name) for name in silent}, "child": record("child")})
        await pool.call("child", CALL, params("echo"))

        assert now_s() == pytest.approx(0.1)
        assert sum(net[name].starting for name in silent) == 64


async def test_ups_4_a_delay_that_a_server_requests_is_kept() -> None:
    async def refuse() -> None:
        raise StartFailed("it responded with status 429", retry_after_s=20)

    net = MemoryNet(one=MemoryServer(on_start=refuse))
    async with pool_of(net) as pool:
        pool.apply({"one": behind_a_url("one")})
        for _ in range(59):
            await pass_time(1)
            with pytest.raises(ServerUnavailable, match="is down"):
                await pool.call("one", CALL, params("echo"))

    assert net["one"].starts_s == [0.0, 20.0, 40.0]


@pytest.mark.requirement("002-091")
async def test_ups_4_a_server_that_recovers_is_back_within_ten_seconds_however_long_it_was_away() -> None:
    async def refuse() -> None:
        raise StartFailed("it responded with status 503")

    net = MemoryNet(one=MemoryServer(on_start=refuse))
    async with pool_of(net) as pool:
        pool.apply({"one": behind_a_url("one")})
        await pass_time(3600)
        net["one"].on_start = None
        await pass_time(10)

        assert pool.health()["one"].state == "connected"
        busiest = max(sum(one <= other < one + 10 for other in net["one"].starts_s) for one in range(3600))
        assert busiest <= 5
