"""How a gateway stops: what is under way is finished, what hangs is not waited for, nothing is left."""

import asyncio
import signal
import socket
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import uvloop

from tests.eventually import eventually, eventually_equal
from tests.scenarios.clients import error_of
from tests.scenarios.gateway import Gateway, Site, running
from tests.scenarios.lines import Answer, Caller

IN_FLIGHT = 200


def in_flight(gateway: Gateway, server_id: str = "one") -> int:
    return int(gateway.health(server_id)["in_flight"])


def test_shu_1_calls_in_flight_finish_and_new_ones_are_refused(site: Site) -> None:
    budgets = {"max_concurrency": IN_FLIGHT}
    site.place(site.stage("one", budgets=budgets), site.stage("two", "modern", "helper=daemon"))
    with running(site) as gateway:
        go_on = site.root / "go-on"
        responses = uvloop.run(calls_over_the_end(gateway, go_on))

        assert [response.text for response in responses] == [str(go_on)] * IN_FLIGHT
        assert gateway.wait() == 0
        gateway.check_stopped()


async def calls_over_the_end(gateway: Gateway, go_on: Path) -> list[Answer]:
    """The answers to calls that are under way when the gateway is told to stop, and may then finish."""
    callers = [Caller(gateway.address, era) for era in ("legacy", "modern") * (IN_FLIGHT // 2)]
    try:
        for caller in callers:
            await caller.open()
        async with asyncio.timeout(60), asyncio.TaskGroup() as tasks:
            calls = [tasks.create_task(caller.call("one.wait", str(go_on))) for caller in callers]
            await asyncio.to_thread(eventually_equal, lambda: in_flight(gateway), IN_FLIGHT)
            gateway.signal(signal.SIGTERM)
            await asyncio.to_thread(eventually, lambda: is_refused(gateway))
            go_on.touch()
    finally:
        for caller in callers:
            caller.close()  # uvloop does not end well over connections that are open
    return [call.result() for call in calls]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_shu_2_a_second_signal_ends_a_gateway_with_hanging_calls(site: Site, number: signal.Signals) -> None:
    site.place(site.stage("one"), site.stage("deaf", "deaf", "helper=daemon"), site.stage("slow", "silent"))
    with running(site) as gateway, ThreadPoolExecutor() as threads:
        call = threads.submit(gateway.modern("/api/mcp?servers=one").call, "one.hang")
        eventually_equal(lambda: in_flight(gateway), 1)
        eventually(lambda: gateway.health("deaf")["pid"])
        gateway.signal(number)
        eventually(lambda: is_refused(gateway))
        gateway.signal(number)
        code = gateway.wait()

        assert (error_of(call.result()), code) == ("mcp_unavailable", 0)
        gateway.check_stopped()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_shu_2_a_second_signal_while_a_deaf_child_is_stopped_is_no_failure(
    site: Site, number: signal.Signals
) -> None:
    stopping = site.root / "stopping"
    site.place(site.stage("deaf", "deaf", "helper=daemon", f"ended={stopping}"))
    with running(site) as gateway:
        eventually(lambda: gateway.health("deaf")["pid"])
        gateway.signal(number)
        eventually(stopping.exists)
        gateway.signal(number)

        assert gateway.wait() == 0
        gateway.check_stopped()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_an_idle_gateway_with_open_streams_stops_at_once(site: Site, number: signal.Signals) -> None:
    """SHU-3: each stream ends with its proper last word."""
    site.place(site.stage("one"))
    with running(site) as gateway:
        legacy = gateway.legacy()
        legacy.tools()  # from here on nothing changes that the streams would tell of
        with gateway.modern().changes() as modern_stream, legacy.changes() as legacy_stream:
            acknowledged = next(modern_stream)
            gateway.signal(number)
            ends = (list(modern_stream), list(legacy_stream))

        assert acknowledged == "notifications/subscriptions/acknowledged"
        assert ends == (["result"], [])
        assert gateway.wait() == 0
        gateway.check_stopped()


def test_shu_6_a_gateway_stops_while_a_child_is_starting(site: Site) -> None:
    site.place(site.stage("slow", "silent"))
    with running(site) as gateway:
        eventually(lambda: len(site.processes()) > 1)
        gateway.signal(signal.SIGTERM)

        assert gateway.wait() == 0
        gateway.check_stopped()


def is_refused(gateway: Gateway) -> bool:
    """Whether new connections are."""
    host, port = gateway.address.split(":")
    try:
        socket.create_connection((host, int(port)), timeout=60).close()
    except OSError:
        return True
    return False
