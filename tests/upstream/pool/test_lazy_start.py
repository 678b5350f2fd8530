"""Servers that are known from an earlier run: listed at once, connected by a call, ended when idle."""

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.upstream.memory_link import (
    Json,
    MemoryNet,
    MemoryServer,
    definition,
    params,
    pool_of,
    record,
    text_result,
)
from tests.upstream.virtual_time import VIRTUAL, pass_time
from toolgate.catalog.definitions import check_tools
from toolgate.errors import ServerBusy, ServerUnavailable
from toolgate.model.servers import HttpEndpoint, PackageRef, ServerRecord, StdioLaunch
from toolgate.model.tools import Pin
from toolgate.upstream.connection.contract import RpcResponse, StartFailed
from toolgate.upstream.pool.kept_definitions import KeptDefinitions
from toolgate.upstream.pool.managed_connection import PoolServices
from toolgate.upstream.pool.pool import CallOrigin, Pool

pytestmark = pytest.mark.anyio

CALL = "tools/call"
THEN_MS = 1_700_000_000_000


@pytest.fixture
def anyio_backend() -> object:
    return VIRTUAL


def records(*server_ids: str, **fields: Any) -> dict[str, ServerRecord]:
    return {server_id: record(server_id, **fields) for server_id in server_ids}


async def learn(directory: Path, net: MemoryNet, known: dict[str, ServerRecord]) -> None:
    """A first run, in which every server is connected and listed."""
    async with (
        KeptDefinitions(directory, clock_ms=lambda: THEN_MS) as kept,
        pool_of(net, lazy=PoolServices(kept=kept)) as pool,
    ):
        pool.apply(known)
        await pool.settled(known)


def starts(net: MemoryNet) -> int:
    return sum(len(server.starts_s) for server in net.servers.values())


def children(net: MemoryNet) -> int:
    return sum(len(server.links) for server in net.servers.values())


async def call(pool: Pool, server_id: str, recheck: Callable[[], None] | None = None) -> None:
    tool = pool.tools()[server_id].tools["echo"]
    await pool.call(server_id, CALL, params("echo"), tool=tool, origin=CallOrigin(recheck=recheck))


@pytest.mark.requirement("002-015")
async def test_known_servers_are_listed_at_once_and_started_by_their_first_call(tmp_path: Path) -> None:
    net = MemoryNet(two=MemoryServer(instructions="Be brief.", prompts=[b'{"name":"ask"}']))
    net["two"].capabilities = {"tools": {}, "prompts": {}}
    await learn(tmp_path, net, records("one", "two"))
    before = starts(net)

    async with KeptDefinitions(tmp_path) as kept, pool_of(net, lazy=PoolServices(kept=kept)) as pool:
        pool.apply(records("one", "two"))
        offers, health = pool.tools(), pool.health()
        await pool.settled(offers)
        await pass_time(1_000)
        idle = starts(net) - before
        await asyncio.gather(*(call(pool, "two") for _ in range(3)))
        after = pool.health()

    two = offers["two"]
    assert [(offer.state, list(offer.tools)) for offer in offers.values()] == [("ready", ["echo"])] * 2
    assert (list(two.prompts), two.instructions, two.era) == (["ask"], "Be brief.", "modern")
    assert two.features == {"tools", "prompts"}
    assert [(one.state, one.verified_ms) for one in health.values()] == [("idle", THEN_MS)] * 2
    assert (idle, starts(net) - before, len(net["two"].calls)) == (0, 1, 3)
    assert net["two"].known_revisions[-1] == "modern"
    assert (after["one"].state, after["two"].state) == ("idle", "connected")
    assert after["two"].verified_ms > THEN_MS


@pytest.mark.requirement("002-016")
async def test_a_prewarmed_server_is_listed_at_once_and_connected_at_start(tmp_path: Path) -> None:
    net = MemoryNet()
    await learn(tmp_path, net, records("one"))

    async with KeptDefinitions(tmp_path) as kept, pool_of(net, lazy=PoolServices(kept=kept)) as pool:
        pool.apply(records("one", prewarm=True))
        tools = list(pool.tools()["one"].tools)
        await pass_time(1)
        state = pool.health()["one"].state

    assert (tools, state, starts(net)) == (["echo"], "connected", 2)


async def test_no_tool_is_called_before_its_server_was_listed_and_compared(tmp_path: Path) -> None:
    net = MemoryNet()
    await learn(tmp_path, net, records("one"))
    net["one"].tools = (definition("echo", description="Something else by now."),)
    changed: list[str] = []
    seen: list[str] = []

    async with (
        KeptDefinitions(tmp_path) as kept,
        pool_of(net, on_change=changed.append, lazy=PoolServices(kept=kept)) as pool,
    ):
        pool.apply(records("one"))

        def recheck() -> None:
            seen.append(pool.tools()["one"].tools["echo"].description)
            raise ServerUnavailable("it changed")

        with pytest.raises(ServerUnavailable, match="it changed"):
            await call(pool, "one", recheck=recheck)

    assert (seen, changed, net["one"].calls) == (["Something else by now."], ["one"], [])


async def test_a_pin_that_approves_something_else_than_what_is_known_has_the_server_listed(
    tmp_path: Path,
) -> None:
    net = MemoryNet()
    await learn(tmp_path, net, records("one", "two"))

    async with KeptDefinitions(tmp_path) as kept, pool_of(net, lazy=PoolServices(kept=kept)) as pool:
        pool.apply(records("one", "two"))
        two = pool.tools()["two"].tools["echo"].digest
        unverified = set(pool.unverified)
        pool.set_pins(
            {
                "one": Pin(server_id="one", tools={"echo": "0" * 64}),
                "two": Pin(server_id="two", tools={"echo": two}),
            }
        )
        await pass_time(1)
        left = set(pool.unverified)

    assert (unverified, left) == ({"one", "two"}, {"two"})
    assert (len(net["one"].starts_s), len(net["two"].starts_s)) == (2, 1)


async def test_a_record_that_runs_something_else_is_connected_and_one_with_other_rules_is_not(
    tmp_path: Path,
) -> None:
    net = MemoryNet()
    await learn(tmp_path, net, records("one", "two"))
    before = starts(net)

    async with KeptDefinitions(tmp_path) as kept, pool_of(net, lazy=PoolServices(kept=kept)) as pool:
        pool.apply({"one": record("one", allowed_tools=("echo",)), "two": record("two", command="other")})
        await pass_time(1)
        lazy = starts(net) - before
        # The same names, and another value while it is served.
        launch = StdioLaunch(command="serve", env={"TOOLSET": "all"})
        pool.apply({"one": ServerRecord(server_id="one", transport="stdio", stdio=launch)})
        await pass_time(1)

    assert (lazy, len(net["two"].starts_s), len(net["one"].starts_s)) == (1, 2, 2)


async def test_a_known_server_behind_a_url_is_not_connected_until_it_is_called(tmp_path: Path) -> None:
    net = MemoryNet()
    endpoint = HttpEndpoint(url="https://mcp.example/mcp")
    web = {"web": ServerRecord(server_id="web", transport="streamable_http", http=endpoint)}
    await learn(tmp_path, net, web)

    async with KeptDefinitions(tmp_path) as kept, pool_of(net, lazy=PoolServices(kept=kept)) as pool:
        pool.apply(web)
        await pass_time(1_000)
        before = starts(net)
        await call(pool, "web")

    assert (before, starts(net)) == (1, 2)


async def test_a_server_that_cannot_be_started_stays_listed(tmp_path: Path) -> None:
    net = MemoryNet()
    await learn(tmp_path, net, records("one"))

    async def refuse() -> None:
        raise StartFailed("it exited with 1")

    net["one"].on_start = refuse

    async with KeptDefinitions(tmp_path) as kept, pool_of(net, lazy=PoolServices(kept=kept)) as pool:
        pool.apply(records("one"))
        with pytest.raises(ServerUnavailable):
            await call(pool, "one")
        offer, state = pool.tools()["one"], pool.health()["one"].state

    assert (list(offer.tools), offer.is_stale, state) == (["echo"], True, "down")


async def test_an_installed_package_that_never_ran_is_listed_as_its_manifest_says(tmp_path: Path) -> None:
    net = MemoryNet()
    ref = PackageRef(version="1.0.0", sha256="0" * 64)
    packages = records("one", "two", "three", package=ref)
    echo = check_tools("one", [definition("echo")])[0]["echo"].digest

    async def declared(one: ServerRecord) -> Sequence[bytes]:
        return (
            [definition("echo", description="Another one.")]
            if one.server_id == "three"
            else [*net["one"].tools]
        )

    async with (
        KeptDefinitions(tmp_path) as kept,
        pool_of(net, lazy=PoolServices(kept=kept, declared=declared)) as pool,
    ):
        pool.apply(packages)
        pool.set_pins(
            {
                "one": Pin(server_id="one", tools={"echo": echo}),
                "three": Pin(server_id="three", tools={"echo": echo}),
            }
        )
        await pool.settled(packages)
        await pass_time(1)
        offers, health = pool.tools(), pool.health()
        await call(pool, "one")

    assert [list(offer.tools) for offer in offers.values()] == [["echo"]] * 3
    # A manifest proves nothing without a pin, or if it declares something else than was approved.
    assert [health[name].state for name in packages] == ["idle", "connected", "connected"]
    assert (health["one"].verified_ms, len(net["one"].calls)) == (0, 1)


async def test_a_refresh_lists_a_package_even_while_its_manifest_is_read(tmp_path: Path) -> None:
    net, is_read = MemoryNet(), asyncio.Event()
    packages = records("one", package=PackageRef(version="1.0.0", sha256="0" * 64))
    echo = check_tools("one", [definition("echo")])[0]["echo"].digest

    async def declared(one: ServerRecord) -> Sequence[bytes]:
        await is_read.wait()
        return [*net[one.server_id].tools]

    async with (
        KeptDefinitions(tmp_path) as kept,
        pool_of(net, lazy=PoolServices(kept=kept, declared=declared)) as pool,
    ):
        pool.set_pins({"one": Pin(server_id="one", tools={"echo": echo})})
        pool.apply(packages)
        refresh = asyncio.create_task(pool.refresh("one"))
        await pass_time(1)
        is_read.set()
        await asyncio.wait_for(refresh, 60)
        state = pool.health()["one"].state

    assert state == "connected"


# The child cap


async def test_many_servers_share_few_children_and_the_longest_idle_one_gives_way(tmp_path: Path) -> None:
    net = MemoryNet()
    ids = [f"s{number}" for number in range(40)]
    most = 0

    async with (
        KeptDefinitions(tmp_path) as kept,
        pool_of(net, lazy=PoolServices(kept=kept, max_children=lambda: 4)) as pool,
    ):
        pool.apply(records(*ids))
        await pass_time(60)  # never seen: learned in waves
        learned = [offer.state for offer in pool.tools().values()]
        states = [health.state for health in pool.health().values()]
        for server_id in [*ids, *reversed(ids)]:
            await call(pool, server_id)
            await pass_time(1)
            most = max(most, children(net))
        await call(pool, "s2")  # s3 is the one that was used longest ago
        await call(pool, "s30")
        alive = {server_id for server_id in ids if net[server_id].links}

    assert (learned, states.count("connected"), states.count("idle")) == (["ready"] * 40, 4, 36)
    assert (most, children(net)) == (4, 0)
    assert alive == {"s0", "s1", "s2", "s30"}


async def test_a_server_in_use_is_never_evicted_and_a_call_waits_for_its_child(tmp_path: Path) -> None:
    done = asyncio.Event()

    async def slow(_: Json) -> RpcResponse:
        await done.wait()
        return RpcResponse(result=text_result("done"))

    net = MemoryNet(one=MemoryServer(on_call={"echo": slow}))
    lazy = PoolServices(max_children=lambda: 1)
    async with pool_of(net, lazy=lazy) as pool:
        pool.apply(records("one"))
        await pool.settled(["one"])
        busy = asyncio.create_task(call(pool, "one"))
        await pass_time(0)
        pool.apply({**records("one"), "two": record("two", timeout_ms=5_000)})
        with pytest.raises(ServerBusy, match="all 1 child processes that this node may run are in use"):
            await pool.call("two", CALL, params("echo"))
        waiting = asyncio.create_task(pool.call("two", CALL, params("echo")))
        await pass_time(1)
        health = pool.health()["two"]
        done.set()
        await busy
        await waiting

    assert (len(net["one"].starts_s), len(net["two"].starts_s), len(net["two"].calls)) == (1, 1, 1)
    assert (health.state, health.hint) == ("idle", "all 1 child processes are in use (`max_children`)")


@pytest.mark.parametrize("kept_by", ["prewarm", "subscription", "session"])
async def test_a_server_with_a_subscription_a_session_or_prewarm_keeps_its_child(kept_by: str) -> None:
    net = MemoryNet()
    fields: dict[str, Any] = {"prewarm": kept_by == "prewarm"}
    if kept_by == "session":
        fields["sharing"] = "per_session"
    async with pool_of(net, lazy=PoolServices(max_children=lambda: 3), session_idle_s=10_000) as pool:
        pool.apply(records("one", **fields))
        await pool.settled(["one"])
        if kept_by == "session":
            await pool.call("one", CALL, params("echo"), origin=CallOrigin(session="a"))
        if kept_by == "subscription":
            pool.watch("one", frozenset({"file:///a"}))
        pool.apply({**records("one", **fields), **records("two", "three", "four", "five")})
        await pass_time(5)
        before = len(net["one"].links)
        for server_id in ("two", "three", "four", "five"):
            await call(pool, server_id)

    assert before == (2 if kept_by == "session" else 1)
    assert len(net["one"].starts_s) == before


async def test_a_server_that_is_tested_makes_room_like_any_other() -> None:
    net = MemoryNet()
    async with pool_of(net, lazy=PoolServices(max_children=lambda: 1)) as pool:
        pool.apply(records("one"))
        await pool.settled(["one"])
        report = await pool.test(record("two"))
        await call(pool, "one")

    assert (report.error, len(net["one"].starts_s)) == ("", 2)
