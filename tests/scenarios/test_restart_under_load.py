"""Gateway and servers are restarted under 64 clients that call all the time, and the clients go on.

Whatever ends when: no call is executed twice, and what was acknowledged was executed. What is in flight may
be lost. The clients of the handshake era go on in the sessions they have.
"""

import asyncio
import os
import signal
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest
import uvloop

from tests.eventually import eventually
from tests.scenarios.busy import Crowd, crowd_of, open_crowd
from tests.scenarios.gateway import Gateway, Site, running
from tests.scenarios.soak import rounds
from tests.scenarios.tally import TallyHttp, executed, open_tally_http, tally_child, wait_listed

GATEWAY_RESTARTS = rounds(suite=1, soak=20)
SERVER_RESTARTS = rounds(suite=1, soak=3)
"""More in a short time, and a server counts as down for longer."""
TOOLS = ("child.echo", "remote.slow", "remote.echo", "child.slow")
MORE = 4
WITHIN_S = 240.0


@dataclass
class LoadedWorld:
    """A gateway that can be replaced, one child of it, and one server behind a URL that outlives it."""

    site: Site
    stack: ExitStack
    remote: TallyHttp
    log: Path
    gateway: Gateway

    def stop_gateway(self) -> None:
        self.gateway.signal(signal.SIGTERM)
        assert self.gateway.wait() == 0
        self.gateway.check_stopped()
        self._start_gateway()

    def kill_gateway(self) -> None:
        self.gateway.kill()
        self._start_gateway()

    def _start_gateway(self) -> None:
        self.gateway = self.stack.enter_context(running(self.site, listen=self.gateway.address))

    def replace_remote(self) -> None:
        self.remote.kill()
        self.remote.start()

    def kill_child(self) -> None:
        pid = eventually(lambda: self.gateway.health("child")["pid"])
        os.kill(pid, signal.SIGKILL)
        eventually(lambda: self.gateway.health("child")["pid"] not in (None, pid))


@pytest.fixture
def world(site: Site, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LoadedWorld]:
    log = tmp_path_factory.mktemp("calls") / "executed"
    with ExitStack() as stack:
        remote = stack.enter_context(open_tally_http(f"log={log}"))
        site.place(tally_child(site, "child", f"log={log}"), remote.record(site, "remote"))
        gateway = stack.enter_context(running(site))
        wait_listed(gateway, "child", "remote")
        yield LoadedWorld(site, stack, remote, log, gateway)


async def play(world: LoadedWorld, disturb: Callable[[], None], times: int = 1) -> Crowd:
    """All clients get answers before each disturbance, and after it."""
    clients = crowd_of(world.gateway.address, TOOLS)
    async with asyncio.timeout(WITHIN_S * times), open_crowd(clients) as crowd:
        for _ in range(times):
            await crowd.all_get(MORE)
            await asyncio.to_thread(disturb)
            await crowd.all_get(MORE)
    return crowd


def check_account(world: LoadedWorld, crowd: Crowd) -> None:
    counts = executed(world.log)

    assert {text for text, count in counts.items() if count > 1} == set()
    assert crowd.acknowledged - counts.keys() == set()


@pytest.mark.soak
@pytest.mark.parametrize(
    ("end", "lost"),
    [
        pytest.param(LoadedWorld.stop_gateway, 1, id="sigterm"),
        # In its last moment the kernel still takes connections for it.
        pytest.param(LoadedWorld.kill_gateway, 2, id="kill -9"),
    ],
)
def test_clients_go_on_when_the_gateway_is_restarted_and_no_call_is_executed_twice(
    world: LoadedWorld, end: Callable[[LoadedWorld], None], lost: int
) -> None:
    crowd = uvloop.run(play(world, lambda: end(world), GATEWAY_RESTARTS))

    check_account(world, crowd)
    assert crowd.failures == {}
    assert max(len(client.unanswered) for client in crowd.clients) <= lost * GATEWAY_RESTARTS


@pytest.mark.soak
@pytest.mark.parametrize("end", [LoadedWorld.replace_remote, LoadedWorld.kill_child])
def test_clients_go_on_when_a_server_is_restarted_and_no_call_is_executed_twice(
    world: LoadedWorld, end: Callable[[LoadedWorld], None]
) -> None:
    """Its callers are told that it is not there until it is back, and those of the other server nothing."""
    crowd = uvloop.run(play(world, lambda: end(world), SERVER_RESTARTS))

    check_account(world, crowd)
    assert set(crowd.failures) <= {"mcp_unavailable"}
    assert [client.unanswered for client in crowd.clients if client.unanswered] == []


def test_ups_7_a_server_that_forgets_its_sessions_costs_no_client_a_call(world: LoadedWorld) -> None:
    crowd = uvloop.run(play(world, world.remote.forget_sessions))

    check_account(world, crowd)
    assert crowd.failures == {}
    assert [client.unanswered for client in crowd.clients if client.unanswered] == []
