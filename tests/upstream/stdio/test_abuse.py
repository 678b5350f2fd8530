"""A node with one child that misbehaves: it is dealt with, and the child next to it answers every call."""

import asyncio
import json
import os
import signal
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from tests.eventually import eventually_async
from tests.upstream.stdio_stage import content, faulty, tool
from toolgate.errors import CallTimedOut, ServerBusy, ServerUnavailable
from toolgate.model.servers import ServerBudgets
from toolgate.upstream.connection.contract import PoolLimits
from toolgate.upstream.connection.secrets import Secrets
from toolgate.upstream.pool.health import ServerHealth
from toolgate.upstream.pool.pool import Pool
from toolgate.upstream.stdio.children import Warden
from toolgate.upstream.stdio.connector import StdioConnector

pytestmark = pytest.mark.anyio

HASTY = PoolLimits(backoff_s=0.01, backoff_max_s=0.05, max_starts=1000)


@pytest.fixture
def anyio_backend() -> tuple[str, dict[str, object]]:
    return "asyncio", {"use_uvloop": True}


@dataclass(frozen=True)
class Abused:
    """`bad` misbehaves as its words say, `good` does not."""

    pool: Pool

    @property
    def health(self) -> ServerHealth:
        return self.pool.health()["bad"]

    async def call(self, name: str, *, server_id: str = "bad", **arguments: Any) -> Any:
        response = await self.pool.call(server_id, "tools/call", tool(name, **arguments))
        return content(response.rpc)

    async def answers_meanwhile(self, count: int) -> bool:
        """Whether so many calls of the good child are answered, each with its own answer."""
        texts = [f"n{number}" for number in range(count)]
        return [await self.call("echo", server_id="good", text=text) for text in texts] == texts

    async def recovers(self) -> None:
        """Returns once a call is answered."""
        while True:
            try:
                assert await self.call("echo", text="x") == "x"
            except (ServerUnavailable, CallTimedOut):
                await asyncio.sleep(0.01)
            else:
                return


@asynccontextmanager
async def open_abused(
    *words: str, timeout_s: float = 60.0, concurrency: int = 64, limits: PoolLimits = HASTY
) -> AsyncIterator[Abused]:
    budgets = ServerBudgets(tool_timeout_ms=round(timeout_s * 1000), max_concurrency=concurrency)
    warden = Warden()
    opener = StdioConnector(warden, Secrets(os.environ))
    try:
        async with (
            asyncio.timeout(240),
            Pool({"stdio": opener}, on_change=lambda _: None, limits=limits) as pool,
        ):
            pool.apply(
                {
                    "bad": replace(faulty(*words), server_id="bad", budgets=budgets, prewarm=True),
                    "good": replace(faulty(), server_id="good", prewarm=True),
                }
            )
            await pool.settled(["bad", "good"])
            yield Abused(pool)
    finally:
        await warden.aclose()


async def failing(abused: Abused, name: str, **arguments: Any) -> str:
    """The error of a call, as its type."""
    with pytest.raises((ServerUnavailable, CallTimedOut)) as caught:
        await abused.call(name, **arguments)
    return caught.typename


@pytest.mark.parametrize(
    ("act", "outcome"),
    [
        pytest.param(
            lambda abused: failing(abused, "noise", lines=1_000_000, bytes=100),
            "ServerUnavailable",
            id="CHD-5 a hundred megabytes of noise",
        ),
        pytest.param(
            lambda abused: failing(abused, "long_line", bytes=100_000_000),
            "ServerUnavailable",
            id="CHD-5 an endless line",
        ),
        pytest.param(
            lambda abused: abused.call("stderr", bytes=64 * 1024 * 1024),
            "after stderr",
            id="CHD-6 a flood on stderr",
        ),
        pytest.param(lambda abused: failing(abused, "hang"), "CallTimedOut", id="CHD-3 a call that hangs"),
        pytest.param(
            lambda abused: failing(abused, "close", fd=1), "ServerUnavailable", id="CHD-4 a closed output"
        ),
    ],
)
async def test_a_child_that_misbehaves_costs_no_one_else_an_answer(
    act: Callable[[Abused], Awaitable[str]], outcome: str
) -> None:
    async with open_abused(timeout_s=2.0 if outcome == "CallTimedOut" else 60.0) as abused:
        acting = asyncio.ensure_future(act(abused))
        other = 0
        while not acting.done():
            assert await abused.answers_meanwhile(10)
            other += 10
        found = await acting
        await abused.recovers()

        assert found == outcome
        assert other >= 10
        assert abused.health.in_flight == 0


async def test_chd_1_a_child_that_always_exits_is_down_with_its_reason_and_the_other_serves() -> None:
    async with open_abused("dies=3", limits=PoolLimits()) as abused:
        await eventually_async(lambda: abused.health.state == "down" and abused.health.restarts >= 4)
        with pytest.raises(ServerUnavailable, match="`bad` is down"):
            await abused.call("echo", text="x")

        assert await abused.answers_meanwhile(100)
        assert (abused.health.last_error, abused.health.restarts) == ("it exited with status 3", 4)
        assert abused.health.pid is None


async def test_chd_4_a_child_that_dies_with_calls_in_flight_is_replaced_and_the_calls_are_not_repeated() -> (
    None
):
    async with open_abused() as abused:
        pid = await abused.call("pid")
        calls = [asyncio.ensure_future(abused.call("hang", n=number)) for number in range(50)]
        await abused.call("echo", text="all are in flight")
        with pytest.raises(ServerUnavailable, match="the outcome of the call is unknown"):
            await abused.call("die", status=1)
        ended = await asyncio.gather(*calls, return_exceptions=True)
        await abused.recovers()
        seen = await abused.call("seen")

        assert {type(one) for one in ended} == {ServerUnavailable}
        assert await abused.call("pid") != pid
        assert [one for one in seen if one.get("params", {}).get("name") in ("hang", "die")] == []


async def test_chd_17_a_child_that_stops_costs_calls_their_time_and_goes_on_without_a_restart() -> None:
    async with open_abused(timeout_s=0.3) as abused:
        pid = abused.health.pid
        assert pid is not None
        os.kill(pid, signal.SIGSTOP)
        ended = await asyncio.gather(
            *(abused.call("echo", text="asleep") for _ in range(5)), return_exceptions=True
        )
        is_unaffected = await abused.answers_meanwhile(100)
        os.kill(pid, signal.SIGCONT)
        await abused.recovers()

        assert {type(one) for one in ended} == {CallTimedOut}
        assert (is_unaffected, abused.health.pid, abused.health.restarts) == (True, pid, 0)


async def test_bud_3_a_flood_of_calls_never_exceeds_the_limit_at_the_child() -> None:
    async with open_abused(timeout_s=60, concurrency=4) as abused:
        calls = [asyncio.ensure_future(abused.call("hang", n=number)) for number in range(200)]
        is_unaffected = await abused.answers_meanwhile(20)
        still = abused.health
        for one in calls:
            one.cancel()
        ended = await asyncio.gather(*calls, return_exceptions=True)
        seen = await abused.call("seen")

        arrived = [one["params"]["arguments"]["n"] for one in seen if is_call_of(one, "hang")]
        assert (is_unaffected, still.in_flight, still.queued) == (True, 4, 64)
        assert [type(one) for one in ended] == [asyncio.CancelledError] * 68 + [ServerBusy] * 132
        assert arrived == [0, 1, 2, 3]
        assert (abused.health.in_flight, abused.health.queued) == (0, 0)


def is_call_of(message: Any, name: str) -> bool:
    return bool(message.get("params", {}).get("name") == name)


async def test_ups_11_a_list_too_long_to_be_read_costs_the_other_child_nothing() -> None:
    async with open_abused("wordy=10000000", limits=PoolLimits()) as abused:
        await eventually_async(lambda: abused.health.restarts >= 1)

        assert await abused.answers_meanwhile(100)
        assert abused.pool.tools()["good"].state == "ready"
        assert (abused.pool.tools()["bad"].state, dict(abused.pool.tools()["bad"].tools)) == (
            "list_failed",
            {},
        )
        assert "sent a line of more than 8388608 bytes" in abused.health.last_error


async def test_ups_11_a_description_too_long_to_be_shown_costs_its_own_tool_alone() -> None:
    async with open_abused("wordy=5000000") as abused:
        found = abused.pool.tools()["bad"]

        assert (found.state, len(found.quarantined), "echo" in found.tools) == ("ready", 1, True)
        assert await abused.call("echo", text="x") == "x"


async def test_ups_15_a_child_silent_on_discover_is_asked_otherwise_and_that_is_remembered(
    tmp_path: Path,
) -> None:
    async with open_abused("mute-discover", f"log={tmp_path / 'log'}") as abused:
        with pytest.raises(ServerUnavailable):
            await abused.call("die", status=1)
        await abused.recovers()
        asked = [json.loads(line)["method"] for line in (tmp_path / "log").read_text().splitlines()]

        assert (asked.count("server/discover"), asked.count("initialize")) == (1, 2)
        assert (abused.health.era, abused.health.restarts) == ("legacy", 1)
