"""The way of a call through the pool: admission, budgets, deadlines, headers, the cap."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from typing import Any

import msgspec
import pytest

from tests.upstream.memory_link import (
    Json,
    MemoryNet,
    MemoryServer,
    Seen,
    definition,
    params,
    pool_of,
    record,
    text_result,
)
from tests.upstream.virtual_time import VIRTUAL, pass_time
from toolgate.errors import CallTimedOut, OutputTooLarge, ServerBusy, ServerUnavailable
from toolgate.model.protocol import LEGACY_VERSIONS
from toolgate.model.servers import EMPTY, ServerRecord
from toolgate.model.tools import Revision
from toolgate.upstream.connection.contract import (
    ClientChannel,
    ConnectionListener,
    Params,
    RpcResponse,
    ServerConnection,
    ServerInfo,
)
from toolgate.upstream.pool.pool import Pool, ServerResponse

pytestmark = pytest.mark.anyio

CALL = "tools/call"


@pytest.fixture
def anyio_backend() -> object:
    return VIRTUAL


@pytest.fixture
def net() -> MemoryNet:
    return MemoryNet(one=MemoryServer(on_call={"hang": never, "slow": after_a_second}))


@pytest.fixture
async def pool(net: MemoryNet) -> AsyncIterator[Pool]:
    async with pool_of(net) as pool:
        yield pool


async def never(_: Json) -> RpcResponse:
    await asyncio.Event().wait()
    raise AssertionError


async def after_a_second(_: Json) -> RpcResponse:
    await asyncio.sleep(1)
    return RpcResponse(result=text_result("late"))


async def apply(pool: Pool, **fields: Any) -> None:
    pool.apply({"one": record(**fields)})
    await pool.settled(["one"])


def now_s() -> float:
    return asyncio.get_running_loop().time()


async def test_a_call_is_answered_with_the_reply_and_the_era(pool: Pool, net: MemoryNet) -> None:
    await apply(pool, timeout_ms=2000)

    response = await pool.call("one", CALL, params("echo", a=1))

    assert response == ServerResponse(RpcResponse(result=text_result('{"a":1}')), "modern")
    assert net["one"].calls == [Seen(CALL, {"name": "echo", "arguments": {"a": 1}}, 2.0, EMPTY)]


async def test_a_call_that_finds_link_and_room_goes_straight_to_the_link() -> None:
    """It never suspends by itself: a link that answers at once is answered at once."""

    class Instant:
        server_info = ServerInfo(revision="legacy", version=LEGACY_VERSIONS[0])
        pid: int | None = None

        async def request(
            self,
            method: str,
            params: Params,
            *,
            timeout_s: float,
            headers: Mapping[str, str] = EMPTY,
            client: ClientChannel | None = None,
        ) -> RpcResponse:
            return RpcResponse(result=b"{}")

        def watch(self, uris: frozenset[str]) -> None:
            """Nothing to watch."""

        async def aclose(self) -> None:
            """Nothing to close."""

    async def open_instantly(
        record: ServerRecord,
        listener: ConnectionListener,
        *,
        known_revision: Revision | None,
        capabilities: bytes = b"",
    ) -> ServerConnection:
        return Instant()

    async with Pool({"stdio": open_instantly}, on_change=lambda _: None) as pool:
        await apply(pool)
        with pytest.raises(StopIteration) as answered:
            pool.call("one", CALL, params("echo")).send(None)

        assert answered.value.value == ServerResponse(RpcResponse(result=b"{}"), "legacy")


async def test_an_error_of_the_server_is_an_answer(pool: Pool, net: MemoryNet) -> None:
    refused = RpcResponse(error=b'{"code":-32602,"message":"no"}')

    async def refuse(_: Json) -> RpcResponse:
        return refused

    net["one"].on_call = {"refuse": refuse}
    await apply(pool)

    assert await pool.call("one", CALL, params("refuse")) == ServerResponse(refused, "modern")


async def test_an_unknown_server_and_a_disabled_one_are_unavailable(pool: Pool) -> None:
    await apply(pool, enabled=False)

    with pytest.raises(ServerUnavailable, match="`two` is not registered"):
        await pool.call("two", CALL, params("echo"))
    with pytest.raises(ServerUnavailable, match="`one` is disabled"):
        await pool.call("one", CALL, params("echo"))


async def test_a_modern_server_gets_the_headers_of_the_tool_as_one_object(net: MemoryNet, pool: Pool) -> None:
    await apply(pool)
    tool = pool.tools()["one"].tools["echo"]

    for _ in range(2):
        await pool.call("one", CALL, params("echo"), tool=tool)

    first, second = net["one"].calls
    assert first.headers == {"Mcp-Name": "echo"}
    assert second.headers is first.headers


async def test_a_modern_server_gets_its_annotated_arguments_as_headers(net: MemoryNet, pool: Pool) -> None:
    schema = {"type": "object", "properties": {"region": {"type": "string", "x-mcp-header": "Region"}}}
    net["one"].tools = (definition("query", inputSchema=schema),)
    await apply(pool)

    await pool.call("one", CALL, params("query", region="ü"), tool=pool.tools()["one"].tools["query"])

    assert net["one"].calls[0].headers == {"Mcp-Name": "query", "Mcp-Param-Region": "=?base64?w7w=?="}


async def test_a_legacy_server_gets_no_such_headers(net: MemoryNet, pool: Pool) -> None:
    net["one"].era = "legacy"
    await apply(pool)

    response = await pool.call("one", CALL, params("echo"), tool=pool.tools()["one"].tools["echo"])

    assert (response.revision, net["one"].calls[0].headers) == ("legacy", {})


async def test_bud_1_a_call_ends_at_its_budget_and_the_server_is_notified(net: MemoryNet, pool: Pool) -> None:
    await apply(pool, timeout_ms=2000)

    with pytest.raises(CallTimedOut):
        await pool.call("one", CALL, params("hang"))

    assert (now_s(), net["one"].stopped_by, pool.health()["one"].in_flight) == (2.0, ["hang"], 0)


async def test_bud_2_and_6_no_budget_reaches_beyond_the_ceiling(pool: Pool) -> None:
    await apply(pool, timeout_ms=900_000)

    with pytest.raises(CallTimedOut):
        await pool.call("one", CALL, params("hang"))

    assert now_s() == 300.0


async def test_chd_3_a_call_that_hangs_holds_up_no_other(net: MemoryNet, pool: Pool) -> None:
    await apply(pool, timeout_ms=5000)
    hanging = asyncio.create_task(pool.call("one", CALL, params("hang")))
    await pass_time(1)

    responses = [await pool.call("one", CALL, params("echo", n=n)) for n in range(100)]

    assert (len(responses), now_s()) == (100, 1.0)
    with pytest.raises(CallTimedOut):
        await hanging
    assert now_s() == 5.0
    assert len(net["one"].starts_s) == 1


@pytest.mark.requirement("002-092")
async def test_bud_3_never_more_than_the_limit_a_bounded_queue_and_the_rest_busy_at_once(
    net: MemoryNet, pool: Pool
) -> None:
    await apply(pool, concurrency=4, timeout_ms=30_000)
    refused_s: list[float] = []

    async def call() -> str:
        try:
            await pool.call("one", CALL, params("slow"))
        except ServerBusy:
            refused_s.append(now_s())
            return "busy"
        return "answered"

    calls = [asyncio.create_task(call()) for _ in range(200)]
    await pass_time(0)
    health = pool.health()["one"]
    outcomes = await asyncio.gather(*calls)

    assert (health.in_flight, health.queued) == (4, 64)
    assert (outcomes.count("answered"), outcomes.count("busy")) == (68, 132)
    assert (net["one"].most_in_flight, max(refused_s)) == (4, 0.0)


async def test_waiting_in_the_queue_counts_against_the_call(net: MemoryNet, pool: Pool) -> None:
    await apply(pool, concurrency=1, timeout_ms=1500)
    first = asyncio.create_task(pool.call("one", CALL, params("slow")))
    await pass_time(0)

    with pytest.raises(CallTimedOut):
        await pool.call("one", CALL, params("hang"))

    assert (now_s(), net["one"].calls[1].timeout_s) == (1.5, 0.5)
    await first


async def test_a_call_with_its_time_is_up_in_the_queue_is_never_sent(net: MemoryNet, pool: Pool) -> None:
    await apply(pool, concurrency=1, timeout_ms=500)
    hanging = asyncio.create_task(pool.call("one", CALL, params("hang")))
    await pass_time(0.2)
    net["one"].on_call = {}

    pool.apply({"one": record(concurrency=1, timeout_ms=100)})
    with pytest.raises(CallTimedOut, match="nothing was sent"):
        await pool.call("one", CALL, params("echo"))

    assert [seen.params["name"] for seen in net["one"].calls] == ["hang"]
    with pytest.raises(CallTimedOut):
        await hanging


async def test_bud_8_a_caller_that_goes_away_frees_its_place_and_stops_the_server(
    net: MemoryNet, pool: Pool
) -> None:
    await apply(pool, concurrency=1)
    leaver = asyncio.create_task(pool.call("one", CALL, params("hang")))
    await pass_time(0)

    leaver.cancel()
    await asyncio.gather(leaver, return_exceptions=True)
    await pool.call("one", CALL, params("echo"))

    assert (now_s(), net["one"].stopped_by, pool.health()["one"].in_flight) == (0.0, ["hang"], 0)


@pytest.mark.requirement("002-052")
async def test_bud_4_a_result_over_the_cap_is_cut(net: MemoryNet, pool: Pool) -> None:
    await apply(pool, output_bytes=1024)

    response = await pool.call("one", CALL, params("echo", text="x" * 5000))

    result = response.rpc.result
    assert result is not None
    assert len(result) <= 1024
    assert "toolgate/truncated" in msgspec.json.decode(result)["_meta"]


async def test_an_answer_over_the_cap_that_is_no_tool_result_is_refused(pool: Pool) -> None:
    await apply(pool, output_bytes=1024)

    with pytest.raises(OutputTooLarge, match="`prompts/get`"):
        await pool.call("one", "prompts/get", params("echo", text="x" * 5000))


async def test_changed_budgets_hold_for_new_calls_without_a_new_link(net: MemoryNet, pool: Pool) -> None:
    await apply(pool, concurrency=1, timeout_ms=30_000)
    first = asyncio.create_task(pool.call("one", CALL, params("slow")))
    await pass_time(0)

    await apply(pool, concurrency=2, timeout_ms=7000, output_bytes=2048)
    await pool.call("one", CALL, params("echo"))
    await first

    assert [seen.timeout_s for seen in net["one"].calls] == [30.0, 7.0]
    assert (len(net["one"].starts_s), net["one"].most_in_flight) == (1, 2)


async def test_calls_are_counted(pool: Pool) -> None:
    await apply(pool)
    for _ in range(3):
        await pool.call("one", CALL, params("echo"))

    assert pool.health()["one"].calls == 3
