"""A server behind a bad line, or in a bad way: calls fail in time, none runs twice, no one else notices."""

import asyncio
from typing import Any

import pytest

from tests.upstream.abused import QUICK, Abused, FakeSse, open_abused
from tests.upstream.fault_proxy import Direction, Fault
from tests.upstream.faulty_http import FakeMcp, Peer, Request
from tests.upstream.http_links import calling, hang
from toolgate.errors import CallTimedOut, ServerBusy, ServerUnavailable
from toolgate.upstream.http.client_connection import HttpLimits

pytestmark = pytest.mark.anyio

ERAS = pytest.mark.parametrize("era", ["legacy", "modern"])
KINDS = pytest.mark.parametrize("kind", ["legacy", "modern", "sse"])


@pytest.fixture(params=["asyncio", "uvloop"])
def anyio_backend(request: pytest.FixtureRequest) -> tuple[str, dict[str, object]]:
    return "asyncio", {"use_uvloop": request.param == "uvloop"}


def honest(kind: str) -> FakeMcp | FakeSse:
    return FakeSse() if kind == "sse" else FakeMcp(kind)


async def outcomes(abused: Abused, values: range) -> list[Any]:
    """What became of calls made one after the other: a value, or the type of an error."""
    found: list[Any] = []
    for value in values:
        try:
            found.append(await abused.call(value))
        except (ServerUnavailable, CallTimedOut) as exc:
            found.append(type(exc))
    return found


async def position_after_reset(abused: Abused, way: Direction) -> int:
    """How many bytes a new connection, the only one there is, has carried when the next call begins."""
    abused.proxy.reset_all()
    carried = way.carried_bytes
    await abused.recovers()
    return way.carried_bytes - carried


async def neighbour_responds(abused: Abused) -> bool:
    values = range(20)
    return [await abused.call(value, server_id="good") for value in values] == list(values)


@KINDS
async def test_ups_1_a_server_that_turns_deaf_is_down_and_comes_back_when_it_hears(kind: str) -> None:
    async with open_abused(honest(kind), http=QUICK) as abused:
        abused.proxy.turn_deaf()
        abused.proxy.reset_all()
        found = await outcomes(abused, range(10))
        states = abused.health.state
        is_unaffected = await neighbour_responds(abused)
        abused.proxy.turn_hearing()
        await abused.recovers()

        assert (set(found), states, is_unaffected) == ({ServerUnavailable}, "down", True)
        assert [abused.executed(value) for value in range(10)] == [0] * 10
        assert abused.health.in_flight == 0


@KINDS
async def test_ups_2_and_chd_17_silence_costs_calls_their_time_and_goes_by_without_a_restart(
    kind: str,
) -> None:
    async with open_abused(honest(kind), timeout_s=0.2) as abused:
        await abused.recovers()
        abused.proxy.hold()
        found = await asyncio.gather(*(abused.call(n) for n in range(5)), return_exceptions=True)
        in_flight = abused.health.in_flight
        is_unaffected = await neighbour_responds(abused)
        abused.proxy.release()
        await abused.recovers()

        assert {type(outcome) for outcome in found} == {CallTimedOut}
        assert (in_flight, is_unaffected, abused.health.restarts) == (0, True, 0)


@ERAS
async def test_ups_2_and_14_a_line_cut_within_a_response_is_an_unknown_outcome_of_one_call(era: str) -> None:
    async with open_abused(FakeMcp(era)) as abused:
        abused.proxy.responses.fault = Fault(reset_after=1024)
        value = "x" * 5000
        with pytest.raises(ServerUnavailable, match="unknown outcome") as caught:
            await abused.call(value)
        abused.proxy.responses.fault = Fault()

        assert (caught.value.data, abused.executed(value)) == ({"outcome": "unknown"}, 1)
        assert (await abused.call(2), abused.health.in_flight) == (2, 0)


@KINDS
@pytest.mark.parametrize("way", ["requests", "responses"])
async def test_ups_14_wherever_the_line_is_cut_no_call_arrives_twice(kind: str, way: str) -> None:
    async with open_abused(honest(kind)) as abused:
        direction = getattr(abused.proxy, way)
        cuts = [0, 1, 2, 17, 60, 100, 150, 200, 300, 400, 600]
        for cut in cuts:
            position = await position_after_reset(abused, direction)
            direction.fault = Fault(reset_after=position + cut)
            await outcomes(abused, range(cut, cut + 1))
            direction.fault = Fault()
            await abused.recovers()

        assert max(abused.executed(cut) for cut in cuts) == 1
        assert (await neighbour_responds(abused), abused.health.in_flight) == (True, 0)


@KINDS
async def test_ups_3_a_trickling_response_ends_at_the_deadline(kind: str) -> None:
    async with open_abused(honest(kind), timeout_s=1.0) as abused:
        abused.proxy.responses.fault = Fault(slice_bytes=1, bytes_per_s=10)
        with pytest.raises(CallTimedOut):
            await abused.call()
        abused.proxy.responses.fault = Fault(slice_bytes=1)
        await abused.recovers("x" * 1000)


@ERAS
async def test_chd_12_a_corrupt_byte_anywhere_is_an_error_or_harmless_and_of_one_call_alone(
    era: str,
) -> None:
    # The test closes connections itself, and then needs one that is used again.
    async with open_abused(FakeMcp(era), timeout_s=0.2, http=HttpLimits(distrust_s=0.0)) as abused:
        found = []
        for place in range(0, 200, 9):
            position = await position_after_reset(abused, abused.proxy.responses)
            abused.proxy.responses.fault = Fault(corrupt_at=position + place)
            found += await outcomes(abused, range(place, place + 1))
            abused.proxy.responses.fault = Fault()
            await abused.recovers()

        assert all(
            outcome in (ServerUnavailable, CallTimedOut, place)
            for place, outcome in zip(range(0, 200, 9), found, strict=True)
        )
        assert ServerUnavailable in found
        assert await neighbour_responds(abused)


@ERAS
@pytest.mark.parametrize("status", [429, 503])
async def test_ups_4_rejected_calls_are_not_repeated_and_the_first_after_recovery_succeeds(
    era: str, status: int
) -> None:
    is_well = False

    async def script(request: Request, peer: Peer) -> None:
        if is_well:
            await peer.result(request, {"echo": request.message["params"]["arguments"]})
        else:
            await peer.respond(status=status, headers=["Retry-After: 7"])

    async with open_abused(calling(era, script)) as abused:
        found = await outcomes(abused, range(100))
        with pytest.raises(ServerUnavailable) as caught:
            await abused.call(100)
        is_well = True

        assert set(found) == {ServerUnavailable}
        assert [abused.executed(value) for value in range(101)] == [1] * 101
        assert caught.value.data == {"status": status, "retry_after_s": 7}
        assert (await abused.call(101), abused.health.restarts) == (101, 0)


@ERAS
async def test_bud_3_a_flood_of_calls_never_exceeds_the_limit_at_the_server(era: str) -> None:
    in_flight = most = 0
    go_on = asyncio.Event()

    async def script(request: Request, peer: Peer) -> None:
        nonlocal in_flight, most
        in_flight += 1
        most = max(most, in_flight)
        await go_on.wait()
        in_flight -= 1
        await peer.result(request, {"echo": request.message["params"]["arguments"]})

    async with open_abused(calling(era, script), concurrency=4) as abused:
        calls = [asyncio.ensure_future(abused.call(value)) for value in range(200)]
        while in_flight < 4:
            await asyncio.sleep(0)
        refused = [one for one in calls if one.done()]
        waiting = (abused.health.in_flight, abused.health.queued)
        is_unaffected = await neighbour_responds(abused)
        go_on.set()
        ended = await asyncio.gather(*calls, return_exceptions=True)

        assert (len(refused), waiting, most) == (200 - 4 - 64, (4, 64), 4)
        assert {type(one.exception()) for one in refused} == {ServerBusy}
        assert [one for one in ended if not isinstance(one, ServerBusy)] == list(range(68))
        assert is_unaffected


@ERAS
async def test_bud_5_while_one_server_is_flooded_with_calls_that_hang_the_other_serves(
    era: str,
) -> None:
    async with open_abused(calling(era, hang), timeout_s=60, concurrency=4) as abused:
        flood = [asyncio.ensure_future(abused.call(value)) for value in range(1000)]
        served = await neighbour_responds(abused)
        still = abused.health
        for one in flood:
            one.cancel()
        await asyncio.gather(*flood, return_exceptions=True)

        assert (served, still.in_flight, still.queued) == (True, 4, 64)
        assert (abused.health.in_flight, abused.health.queued) == (0, 0)
