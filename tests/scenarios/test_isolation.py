"""One server behaves as badly as it can, and callers of the others are answered as if it were not there."""

import asyncio
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import uvloop

from tests.eventually import eventually_equal
from tests.scenarios.busy import Crowd, crowd_of, open_crowd
from tests.scenarios.gateway import Gateway, Json, Site, running
from tests.scenarios.lines import Caller
from tests.scenarios.tally import open_tally_http, tally_child, wait_listed

SCRIPT = Path(__file__).with_name("rude_server.py")
HEALTHY = ("child.echo", "remote.echo")
CLIENTS = 16
ANSWERS = 50
"""That every healthy client gets while the other server misbehaves."""
CALLS_TO_RUDE = 4
WITHIN_S = 240.0


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    """With two servers that behave."""
    site = Site(tmp_path_factory.mktemp("site"))
    with open_tally_http("modern") as remote:
        site.place(tally_child(site, "child"), remote.record(site, "remote"))
        with running(site) as gateway:
            wait_listed(gateway, "child", "remote")
            yield gateway


@contextmanager
def alongside(gateway: Gateway, rude: Json) -> Iterator[None]:
    """The gateway has one more server, for as long as the block lasts."""
    gateway.site.place(rude)
    eventually_equal(lambda: servers_of(gateway), sorted(["child", "remote", rude["server_id"]]))
    wait_listed(gateway, rude["server_id"])
    yield
    gateway.site.file(rude["server_id"]).unlink()
    eventually_equal(lambda: servers_of(gateway), ["child", "remote"])


def servers_of(gateway: Gateway) -> list[str]:
    return sorted(one["server_id"] for one in gateway.get("/admin/api/mcp/servers")["servers"])


@contextmanager
def open_rude(site: Site, manner: str, transport: str) -> Iterator[Json]:
    """The record of a rude server."""
    name = f"{manner}-{transport}"
    command = [sys.executable, "-I", "-S", str(SCRIPT), manner]
    if transport == "stdio":
        stdio = {"command": command[0], "args": [*command[1:], f"site={site.root}"]}
        yield site.server(name, stdio=stdio, prewarm=True)
        return
    with subprocess.Popen([*command, "http"], stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        try:
            http = {"url": f"http://127.0.0.1:{int(server.stdout.readline())}/mcp"}
            yield site.server(name, transport="streamable_http", http=http, prewarm=True)
        finally:
            server.kill()


async def call_rude(address: str, tool: str, codes: list[str | None]) -> None:
    """Call it again and again, and keep what it is told."""
    caller = Caller(address, "modern")
    try:
        while True:
            codes.append((await caller.call(tool, "x")).code)
    finally:
        caller.close()


async def play(gateway: Gateway, tool: str, *, is_notified: bool) -> tuple[Crowd, list[str | None]]:
    """The healthy clients get their answers while others call `tool` of the rude server all the time.

    `is_followed`: those are told something, sooner or later, and it goes on until then.
    """
    codes: list[str | None] = []
    clients = crowd_of(gateway.address, HEALTHY, size=CLIENTS)
    async with asyncio.timeout(WITHIN_S), asyncio.TaskGroup() as tasks, open_crowd(clients) as crowd:
        rude = [tasks.create_task(call_rude(gateway.address, tool, codes)) for _ in range(CALLS_TO_RUDE)]
        await crowd.all_get(ANSWERS)
        while is_notified and not codes:
            await crowd.all_get(1)
        for task in rude:
            task.cancel()
    return crowd, codes


@pytest.mark.parametrize("transport", ["stdio", "http"])
@pytest.mark.parametrize(
    ("manner", "notified"),
    [
        pytest.param("hangs", set(), id="hangs"),
        pytest.param("floods", set(), id="floods"),
        pytest.param("drones", {"mcp_unavailable"}, id="drones"),
        pytest.param("crashes", {"mcp_unavailable"}, id="crashes"),
    ],
)
def test_lod_3_a_server_that_misbehaves_costs_callers_of_others_nothing(
    gateway: Gateway, manner: str, notified: set[str], transport: str
) -> None:
    """`notified`: the errors that its own callers get meanwhile; empty if they wait until the end."""
    with open_rude(gateway.site, manner, transport) as rude, alongside(gateway, rude):
        crowd, codes = uvloop.run(play(gateway, f"{rude['server_id']}.go", is_notified=bool(notified)))
        sys.stdout.write(f"{manner} on {transport}: the loop's lag was {lag_ms(gateway):.1f} ms\n")

    assert set(codes) == notified
    assert crowd.failures == {}
    assert [client.unanswered for client in crowd.clients if client.unanswered] == []


def lag_ms(gateway: Gateway) -> float:
    """What the gateway says of its own event loop. A figure to look at: the machine may be busy."""
    found = re.search(r"^toolgate_loop_lag_ms (\S+)$", gateway.http.get("/metrics").text, re.MULTILINE)
    assert found is not None
    return float(found[1])
