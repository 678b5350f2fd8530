"""A key's calls per minute over two nodes: exactly so many, through kills and restarts, minute by minute."""

import sys
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.eventually import eventually, eventually_equal
from tests.scenarios import set_clock
from tests.scenarios.clients import ModernClient, error_of
from tests.scenarios.fleet import WITHIN_S, Fleet, Member
from tests.scenarios.gateway import Site
from tests.scenarios.tally import executed, tally_child

MINUTE_MS = 60_000
LIMIT = 30
GRANT = 3
"""What a node is handed of an untouched minute."""


class World:
    """A control whose clock is set by the test, two nodes, and one server that counts its calls."""

    def __init__(self, root: Path, stack: ExitStack) -> None:
        self._clock = root / "clock"
        self._now_ms = 20_000 * 86_400_000 - MINUTE_MS
        self.next_minute()
        program = [sys.executable, str(Path(set_clock.__file__))]
        self.fleet = Fleet(root, None, stack, program=program)
        self.control = self.fleet.add_control(**{set_clock.CLOCK: str(self._clock)})
        self.log = root / "calls.log"
        record = tally_child(Site(root), "tally", f"log={self.log}")
        self.fleet.put("/admin/api/mcp/servers/tally", record)
        budgets = {"calls_per_minute": LIMIT}
        self._secret = self.fleet.make_key("ci", role="agent", budgets=budgets)
        self.nodes = [self.fleet.add_node() for _ in range(2)]
        for node in self.nodes:
            self.is_listed_at(node)

    def next_minute(self) -> None:
        """Its first second has passed: there is time."""
        self._now_ms += MINUTE_MS
        self._clock.write_text(str(self._now_ms + 1_000), "ascii")

    def client(self, node: Member) -> ModernClient:
        http = self.fleet.caller(node, self._secret)
        return ModernClient(http, f"{node.gateway.url}/api/mcp/s/tally")

    def is_listed_at(self, node: Member) -> None:
        """Passes once the server can be called at `node`."""
        eventually_equal(lambda: "echo" in _tools(self.client(node)), True, WITHIN_S)

    def called(self) -> int:
        """How many calls have come to the server."""
        return sum(executed(self.log).values()) if self.log.exists() else 0


def _tools(client: ModernClient) -> list[str]:
    response = client.request("tools/list")
    return [tool["name"] for tool in response["result"]["tools"]] if "result" in response else []


def flood(clients: list[ModernClient], *, calls: int) -> "Counter[str]":
    """How calls end that are made at all of them at once."""

    def one(number: int) -> str:
        response = clients[number % len(clients)].call("echo", text=f"n{number}")
        return error_of(response) if response["result"].get("isError") else "ok"

    with ThreadPoolExecutor(8) as threads:
        return Counter(threads.map(one, range(calls)))


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    with ExitStack() as stack:
        yield World(tmp_path, stack)


def test_a_minute_of_calls_is_shared_by_all_nodes_and_survives_kills(world: World) -> None:
    one, other = world.nodes
    clients = [world.client(node) for node in world.nodes]

    # Both at once: exactly what the key may have.
    assert flood(clients, calls=80) == {"ok": LIMIT, "mcp_busy": 80 - LIMIT}
    assert world.called() == LIMIT
    notified: Any = clients[0].call("echo")["result"]["_meta"]["toolgate/error"]["data"]
    assert (notified["budget"], 0 < notified["retry_after_s"] <= 60) == ("calls_per_minute", True)
    shown = world.control.gateway.cli("quotas", "--json").json
    assert (shown["holder_id"], shown["used"], shown["limit"]) == ("ci", LIMIT, LIMIT)

    # A control that is killed has the count when it is back.
    world.control.kill()
    world.control.start()
    eventually(lambda: error_of(clients[0].call("echo")) == "mcp_busy", WITHIN_S)
    assert world.called() == LIMIT

    # A new minute. A node that is killed takes no more with it than it was granted.
    world.next_minute()
    eventually(lambda: flood(clients[:1], calls=1) == {"ok": 1}, WITHIN_S)
    one.kill()
    eventually(lambda: "mcp_unavailable" not in flood(clients[1:], calls=1), WITHIN_S)
    flood(clients[1:], calls=LIMIT + 5)
    assert world.called() == 2 * LIMIT - (GRANT - 1)

    # Another one. A node that is stopped hands back what it did not use.
    world.next_minute()
    eventually(lambda: flood(clients[1:], calls=1) == {"ok": 1}, WITHIN_S)
    other.stop()
    other.start()
    world.is_listed_at(other)
    assert flood([world.client(other)], calls=LIMIT + 5) == {"ok": LIMIT - 1, "mcp_busy": 6}
