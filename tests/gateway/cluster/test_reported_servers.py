"""A control without a node shows the servers as nodes report them, and calls none."""

import asyncio
import logging
from collections.abc import AsyncIterator, Collection, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest

from tests.registry.memory_store import MemoryStore
from tests.upstream.memory_link import MemoryNet, MemoryServer, definition, params, record
from tests.upstream.virtual_time import VIRTUAL, pass_time
from toolgate.errors import InvalidRequest, NotFound, ServerUnavailable, StorageFailed
from toolgate.gateway.cluster import Servers
from toolgate.gateway.cluster.reported_servers import ReportedServers
from toolgate.model.reports import LOST_AFTER_MS, Definitions, NodeReport, ServerReport
from toolgate.model.servers import Transport
from toolgate.model.tools import ServerTools
from toolgate.registry.store.side_tables import Reports
from toolgate.upstream.connection.contract import Connector
from toolgate.upstream.pool.health import ServerHealth
from toolgate.upstream.pool.pool import PoolLoad

pytestmark = pytest.mark.anyio

START_MS = 1_000_000
LOOKED_S = 1.0
"""By then a report that was saved is shown."""


@pytest.fixture
def anyio_backend() -> tuple[str, dict[str, Any]]:
    return VIRTUAL


class FlakyReports(Reports):
    """Reports in memory, behind a way that can break; it counts how often definitions are read."""

    def __init__(self, reports: Reports) -> None:
        super().__init__(reports.transactions, lambda _: now_ms())
        self.count = reports.count
        self.failure: Exception | None = None
        self.reads = 0
        self.rows = 0
        """Definitions of servers that were read."""
        self.takes_s = 0.0
        """How long it takes to read reports."""

    async def list_reports(self) -> Sequence[NodeReport]:
        if self.failure is not None:
            raise self.failure
        await asyncio.sleep(self.takes_s)
        return await super().list_reports()

    async def list_definitions(self, server_ids: Collection[str] | None = None) -> Sequence[Definitions]:
        self.reads += 1
        found = await super().list_definitions(server_ids)
        self.rows += len(found)
        return found


@dataclass
class ReportedWorld:
    """A control, and what a test looks at of it."""

    servers: ReportedServers
    reports: FlakyReports
    changed: list[str] = field(default_factory=list)

    async def report(self, node_id: str, *servers: ServerReport) -> None:
        """What a node reports now, received and shown."""
        await self.reports.save_report(NodeReport(node_id=node_id, at_ms=now_ms(), servers=servers))
        await pass_time(LOOKED_S)

    async def define(self, server_id: str, *names: str, digest: str = "d1", **members: Any) -> None:
        tools = tuple(definition(name) for name in names)
        await self.reports.save_definitions(
            Definitions(server_id=server_id, digest=digest, tools=tools, at_ms=now_ms(), **members)
        )
        await pass_time(LOOKED_S)

    @property
    def offers(self) -> dict[str, list[str]]:
        return {server_id: sorted(offer.tools) for server_id, offer in self.servers.tools().items()}


def now_ms() -> int:
    return START_MS + int(asyncio.get_running_loop().time() * 1000)


def seen(server_id: str = "one", **fields: Any) -> ServerReport:
    """A server as a node sees it that has listed it."""
    return ServerReport(
        **{"server_id": server_id, "state": "connected", "list_state": "ready", "definitions": "d1"} | fields
    )


@asynccontextmanager
async def open_reported_world(
    net: MemoryNet | None = None, reports: Reports | None = None
) -> AsyncIterator[ReportedWorld]:
    """A control with the servers `one` and `two`."""
    flaky = FlakyReports(reports or MemoryStore(now_ms).reports)
    changed: list[str] = []
    openers: dict[Transport, Connector] = {} if net is None else {"stdio": net.open}
    async with ReportedServers(flaky, openers, on_change=changed.append, clock_ms=now_ms) as servers:
        servers.apply({"one": record("one"), "two": record("two")})
        yield ReportedWorld(servers, flaky, changed)


async def test_an_unreported_server_is_pending() -> None:
    async with open_reported_world() as world:
        servers: Servers = world.servers
        one, two = record("one"), record("two")

        assert servers.tools() == {"one": ServerTools(record=one), "two": ServerTools(record=two)}
        assert servers.health() == {"one": ServerHealth(state="idle"), "two": ServerHealth(state="idle")}
        assert servers.load() == PoolLoad(states={key: one.state for key, one in servers.health().items()})


async def test_tools_are_the_definitions_a_node_has_sent_each_checked_again() -> None:
    async with open_reported_world() as world:
        await world.report("n1", seen())
        on_their_way = world.servers.tools()["one"].state
        await world.define("one", "echo", "not a\nname", quarantined={"odd": "it has no schema"})
        offer = world.servers.tools()["one"]

        assert on_their_way == "pending"
        assert (offer.state, offer.is_stale, sorted(offer.tools)) == ("ready", False, ["echo"])
        assert offer.quarantined == {
            "not a\\nname": "its name must be 1 to 256 visible characters",
            "odd": "it has no schema",
        }
        assert world.changed == ["one"]


async def test_only_a_server_whose_tools_changed_is_announced_and_the_others_stay_the_same_object() -> None:
    async with open_reported_world() as world:
        await world.report("n1", seen("one"), seen("two"))
        await world.define("one", "a")
        await world.define("two", "b")
        before = world.servers.tools()["two"]
        world.changed.clear()
        await world.report("n1", seen("one", definitions="d2", calls=7), seen("two", calls=9))
        await world.define("one", "a", "c", digest="d2")

        assert world.offers == {"one": ["a", "c"], "two": ["b"]}
        assert world.changed == ["one"]
        assert world.servers.tools()["two"] is before


async def test_definitions_are_not_read_again_for_every_report() -> None:
    async with open_reported_world() as world:
        await world.report("n1", seen())
        await world.define("one", "a")
        reads = world.reports.reads
        for calls in range(5):
            await world.report("n1", seen(calls=calls))

        assert world.reports.reads == reads


async def test_of_many_servers_only_the_definitions_that_came_are_read() -> None:
    ids = [f"s{n:02}" for n in range(40)]
    async with open_reported_world() as world:
        world.servers.apply({one: record(one) for one in ids})
        await world.report("n1", *map(seen, ids))
        for server_id in ids:
            await world.define(server_id, "a")
            await world.report("n1", *map(seen, ids))

        assert all(world.offers.values())
        assert world.reports.rows <= 2 * len(ids)


async def test_definitions_that_come_late_are_shown_within_seconds() -> None:
    async with open_reported_world() as world:
        for _ in range(20):
            await world.report("n1", seen())
            await pass_time(9)
        await world.define("one", "a")
        await pass_time(2)

        assert world.offers["one"] == ["a"]


async def test_reports_that_take_long_to_read_are_followed_within_seconds_all_the_same() -> None:
    async with open_reported_world() as world:
        world.reports.takes_s = 5.0
        await world.report("n1", seen(state="connected"))
        await pass_time(12)
        await world.report("n1", seen(state="down"))
        await pass_time(16)

        assert world.servers.health()["one"].state == "down"


async def test_definitions_that_were_announced_and_never_come_are_looked_for_ever_more_seldom() -> None:
    async with open_reported_world() as world:
        await world.define("one", "a")
        world.reports.reads = 0
        for calls in range(60):
            await world.report("n1", seen(definitions="too large to be sent", calls=calls))
        seldom = world.reports.reads
        await world.report("n1", seen(definitions="d3"))
        await world.define("one", "b", digest="d3")
        await pass_time(2)

        assert 5 <= seldom <= 9
        assert world.offers["one"] == ["b"]


async def test_an_unexpected_report_does_not_end_the_following(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with open_reported_world() as world:
        await world.define("one", "a")
        world.reports.failure = RuntimeError("unexpected")
        await world.report("n1", seen(state="ready"))
        await pass_time(10)
        world.reports.failure = None
        await world.report("n1", seen(state="degraded"))
        await pass_time(10)

        assert world.servers.health()["one"].state == "degraded"
        assert "cannot process the reports of nodes" in caplog.text


async def test_reports_that_pour_in_are_read_a_few_times_a_second() -> None:
    async with open_reported_world() as world:
        await world.define("one", "a")
        world.reports.reads = 0
        for _ in range(100):
            await world.reports.save_report(
                NodeReport(node_id="n1", at_ms=now_ms(), servers=(seen(definitions="?"),))
            )
            await pass_time(0.01)

        assert 1 <= world.reports.reads <= 3


async def test_health_is_the_worst_that_any_live_node_sees() -> None:
    async with open_reported_world() as world:
        await world.define("one", "a", "b", quarantined={"odd": "bad"})
        await world.report("n1", seen(state="connected", calls=3, restarts=1, since_ms=5))
        await world.report(
            "n2", seen(state="down", calls=4, restarts=2, since_ms=6, last_error="it exited with 1")
        )
        await world.report("n3", seen(state="idle"))

        assert world.servers.health()["one"] == ServerHealth(
            state="down",
            last_error="it exited with 1",
            since_ms=6,
            restarts=3,
            calls=7,
            tools=2,
            quarantined=1,
        )


@pytest.mark.parametrize(
    ("states", "expected"),
    [
        pytest.param(["connected", "idle"], "idle", id="idle is worse than connected"),
        pytest.param(["degraded", "idle"], "degraded", id="degraded is worse than idle"),
        pytest.param(["degraded", "down"], "down", id="down is worst"),
        pytest.param(["disabled", "connected"], "connected", id="who goes by an old record does not count"),
        pytest.param(["disabled"], "idle", id="no node has the new record yet"),
    ],
)
async def test_states_are_ordered(states: list[Any], expected: str) -> None:
    async with open_reported_world() as world:
        for number, state in enumerate(states):
            await world.report(f"n{number}", seen(state=state))

        assert world.servers.health()["one"].state == expected


async def test_a_node_that_falls_silent_does_not_count_and_its_tools_become_stale() -> None:
    async with open_reported_world() as world:
        await world.define("one", "a")
        await world.report("n1", seen(state="down"))
        await pass_time(LOST_AFTER_MS / 1000)
        await world.report("n2", seen(state="connected"))
        others = world.servers.health()["one"].state
        await pass_time(LOST_AFTER_MS / 1000 + 10)
        offer = world.servers.tools()["one"]

        assert others == "connected"
        assert world.servers.health()["one"] == ServerHealth(state="idle")
        assert (offer.state, offer.is_stale, sorted(offer.tools)) == ("ready", True, ["a"])
        assert offer.detail == "no live node reports this server"


async def test_a_list_is_stale_only_where_it_is_for_all_nodes() -> None:
    async with open_reported_world() as world:
        await world.define("one", "a")
        await world.report("n1", seen(is_stale=True, state="degraded", last_error="no answer"))
        alone = world.servers.tools()["one"]
        await world.report("n2", seen())
        together = world.servers.tools()["one"]

        assert (alone.is_stale, alone.detail) == (True, "no answer")
        assert (together.is_stale, together.detail) == (False, "")


async def test_the_reason_for_a_missing_list_is_that_of_the_node() -> None:
    async with open_reported_world() as world:
        missing = seen(
            state="down", list_state="env_missing", definitions="", last_error="`TOKEN` is not set"
        )
        await world.report("n1", missing)
        offer = world.servers.tools()["one"]

        assert (offer.state, offer.detail) == ("env_missing", "`TOKEN` is not set")


async def test_records_that_go_are_forgotten_and_a_disabled_one_is_shown_as_such() -> None:
    async with open_reported_world() as world:
        await world.report("n1", seen("one"), seen("two"))
        await world.define("one", "a")
        world.changed.clear()
        world.servers.apply({"one": record("one", enabled=False)})

        assert world.offers == {"one": ["a"]}
        assert world.servers.health() == {"one": ServerHealth(state="disabled")}
        assert world.changed == []  # who applies knows


async def test_prompts_and_resources_are_known_as_a_node_has_sent_them() -> None:
    async with open_reported_world() as world:
        await world.report("n1", seen())
        await world.define(
            "one",
            "echo",
            prompts=(b'{"name":"greet"}', b"{}"),
            resources=(b'{"uri":"f:/1","name":"x"}',),
            templates=(b'{"uriTemplate":"f:/{x}","name":"x"}',),
        )
        offer = world.servers.tools()["one"]

        assert (list(offer.prompts), list(offer.resources), list(offer.templates)) == (
            ["greet"],
            ["f:/1"],
            ["f:/{x}"],
        )
        assert dict(offer.quarantined) == {"prompt:#2": "it has no name"}


async def test_what_was_reported_before_the_start_is_there_at_once() -> None:
    reports = MemoryStore(now_ms).reports
    await reports.save_definitions(Definitions(server_id="one", digest="d1", tools=(definition("a"),)))
    await reports.save_report(NodeReport(node_id="n1", at_ms=now_ms(), servers=(seen(),)))
    async with open_reported_world(reports=reports) as world:
        assert world.offers == {"one": ["a"], "two": []}
        assert world.servers.health()["one"].state == "connected"


async def test_reports_that_cannot_be_read_leave_the_last_picture_and_are_read_again(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with open_reported_world() as world:
        await world.define("one", "a")
        await world.report("n1", seen())
        world.reports.failure = StorageFailed("the connection broke")
        with caplog.at_level(logging.WARNING):
            for _ in range(5):
                await world.report("n1", seen(state="down"))
        meanwhile = world.servers.health()["one"].state
        world.reports.failure = None
        await pass_time(10)

        assert meanwhile == "connected"
        assert world.servers.health()["one"].state == "down"
        assert len(caplog.records) == 1


async def test_nothing_is_called_from_here_and_nothing_listed() -> None:
    async with open_reported_world() as world:
        await world.servers.settled(["one", "two"])
        with pytest.raises(ServerUnavailable, match="runs on nodes") as refused:
            await world.servers.call("one", "tools/call", params("a"))
        with pytest.raises(InvalidRequest, match="runs on nodes"):
            await world.servers.refresh("one")
        with pytest.raises(NotFound):
            await world.servers.refresh("unknown")

        assert "`toolgate nodes`" in refused.value.hint


async def test_a_trial_connects_from_here() -> None:
    net = MemoryNet(one=MemoryServer(tools=(definition("a"),)))
    async with open_reported_world(net) as world:
        report = await world.servers.test(record("one"))

        assert (report.error, sorted(report.tools)) == ("", ["a"])
        assert net["one"].links == []


async def test_callers_are_sent_to_a_node_that_lives() -> None:
    async with open_reported_world() as world:
        before = world.servers.node_url
        url = "https://tools.example"
        await world.reports.save_report(NodeReport(node_id="n1", url=url, at_ms=now_ms()))
        await pass_time(LOOKED_S)
        during = world.servers.node_url
        with pytest.raises(ServerUnavailable) as refused:
            await world.servers.call("one", "tools/call", params("a"))
        await pass_time(LOST_AFTER_MS / 1000 + 10)

        assert (before, during, world.servers.node_url) == (None, url, None)
        assert f"such as `{url}`" in refused.value.hint
