"""What a node tells control of itself and its servers, and when."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest

from tests.registry.control_play import MemoryControl
from tests.registry.memory_store import MemoryStore
from tests.upstream.memory_link import MemoryNet, MemoryServer, definition, pool_of, record
from tests.upstream.virtual_time import VIRTUAL, pass_time
from toolgate.catalog.definitions import check_tools
from toolgate.catalog.listings import ServerLists, digest_lists
from toolgate.errors import ServerUnavailable
from toolgate.gateway.cluster import DriftedTool
from toolgate.gateway.cluster import node as reporting
from toolgate.gateway.cluster.node import MAX_DEFINITION_BYTES, NodeReporter
from toolgate.model.reports import Definitions, NodeReport, ServerReport
from toolgate.model.servers import ServerRecord
from toolgate.registry.replication.sync import SyncStatus
from toolgate.upstream.pool.pool import Pool

pytestmark = pytest.mark.anyio

ITSELF = NodeReport(node_id="n1", url="http://n1", version="1.2")
CURRENT = SyncStatus(
    is_degraded=False,
    last_error="",
    code="",
    revision=7,
    epoch="e",
    last_contact_s=0.0,
    relists=0,
)


@pytest.fixture
def anyio_backend() -> Any:
    return VIRTUAL


@pytest.fixture
def control() -> MemoryControl:
    return MemoryControl(MemoryStore(lambda: 0))


class Node:
    """A node that reports, with the servers of `records`."""

    def __init__(self, control: MemoryControl, pool: Pool, max_bytes: int) -> None:
        self.pool = pool
        self.drifted: list[DriftedTool] = []
        self.reporter = NodeReporter(
            control,
            pool,
            itself=ITSELF,
            status=lambda: CURRENT,
            drifted=lambda: self.drifted,
            max_bytes=max_bytes,
        )

    def apply(self, *records: ServerRecord) -> None:
        self.pool.apply({one.server_id: one for one in records})


@asynccontextmanager
async def reporting_node(
    control: MemoryControl,
    net: MemoryNet,
    *records: ServerRecord,
    max_bytes: int = MAX_DEFINITION_BYTES,
) -> AsyncIterator[Node]:
    def changed(_server_id: str) -> None:
        node.reporter.on_change()

    async with pool_of(net, on_change=changed) as pool, asyncio.TaskGroup() as tasks:
        node = Node(control, pool, max_bytes)
        node.apply(*records)
        await pool.settled(pool.tools())
        task = tasks.create_task(node.reporter.run())
        await pass_time(0.01)
        yield node
        task.cancel()


def digest_of(*raws: bytes) -> str:
    return digest_lists(ServerLists(*check_tools("one", raws)))


async def test_a_report_has_the_node_and_the_health_of_each_server(control: MemoryControl) -> None:
    net = MemoryNet(one=MemoryServer(tools=(definition("echo"), b'{"name": 7}')))

    async with reporting_node(control, net, record(), record("off", enabled=False)) as node:
        since = {server_id: one.since_ms for server_id, one in node.pool.health().items()}
        verified_ms = node.pool.health()["one"].verified_ms

    [(report, definitions)] = control.reports
    assert definitions == ()
    assert report == replace(
        ITSELF,
        epoch="e",
        revision=7,
        servers=(
            ServerReport(server_id="off", state="disabled", since_ms=since["off"]),
            ServerReport(
                server_id="one",
                state="connected",
                list_state="ready",
                since_ms=since["one"],
                tools=1,
                quarantined=1,
                definitions=digest_of(definition("echo"), b'{"name": 7}'),
                verified_ms=verified_ms,
            ),
        ),
    )


async def test_ups_9_a_report_says_what_changed_after_approval_as_long_as_no_record_does(
    control: MemoryControl,
) -> None:
    async with reporting_node(control, MemoryNet(), record(), record("two")) as node:
        node.drifted = [
            DriftedTool("one", "echo", "0" * 64, "1" * 64),
            DriftedTool("gone", "x", "0" * 64, "1" * 64),
        ]
        node.reporter.on_change()
        await pass_time(reporting.DEBOUNCE_S)

    changed = [
        {server.server_id: server.changed for server in report.servers} for report, _ in control.reports
    ]
    assert changed[-1] == {"one": {"echo": "1" * 64}, "two": {}}


async def test_reports_come_every_ten_seconds_and_a_second_after_a_change(control: MemoryControl) -> None:
    net = MemoryNet()
    async with reporting_node(control, net, record()):
        await pass_time(25)
        quiet = len(control.reports)
        net["one"].announce_tools(definition("echo"), definition("shout"))
        await pass_time(1.1)
        reports = [report.servers[0] for report, _ in control.reports]

    assert quiet == 3
    assert [one.tools for one in reports] == [1, 1, 1, 2]
    assert {one.definitions for one in reports[:3]} == {digest_of(definition("echo"))}
    assert reports[3].definitions == digest_of(definition("echo"), definition("shout"))


async def test_definitions_are_sent_once_control_asks_for_them(control: MemoryControl) -> None:
    control.wanted = ["one", "unknown"]
    async with reporting_node(control, MemoryNet(), record()):
        await pass_time(60)

    sent = [one for _, definitions in control.reports for one in definitions]
    assert [(one.server_id, one.digest, one.tools) for one in sent] == [
        ("one", digest_of(definition("echo")), (definition("echo"),))
    ]
    assert len(control.reports) == 7


class NeverContent(MemoryControl):
    """Where two nodes have other versions of one server, each report makes the other's definitions wanted."""

    async def report(self, report: NodeReport, definitions: Sequence[Definitions]) -> Sequence[str]:
        await super().report(report, definitions)
        return ["one"]


async def test_control_that_never_has_enough_does_not_get_it_all_the_time() -> None:
    control = NeverContent(MemoryStore(lambda: 0))
    async with reporting_node(control, MemoryNet(), record()):
        await pass_time(60)

    assert len(control.reports) == 7


async def test_no_report_holds_more_than_control_takes(
    control: MemoryControl, caplog: pytest.LogCaptureFixture
) -> None:
    large, small = definition("echo", description="x" * 400), definition("echo", description="x" * 100)
    net = MemoryNet(
        a=MemoryServer(tools=[large] * 2),
        b=MemoryServer(tools=[small]),
        c=MemoryServer(tools=[small]),
        d=MemoryServer(tools=[small]),
    )
    control.wanted = ["a", "b", "c", "d"]
    async with reporting_node(control, net, *map(record, "abcd"), max_bytes=2 * len(small)):
        await pass_time(30)

    assert [[one.server_id for one in definitions] for _, definitions in control.reports[:3]] == [
        [],
        ["b", "c"],
        ["d"],
    ]
    assert [one.getMessage().split(":")[0] for one in caplog.records] == [
        "the definitions of server `a` are too large to report"
    ]


async def test_prompts_and_resources_are_reported_and_make_other_definitions(control: MemoryControl) -> None:
    server = MemoryServer(
        capabilities={"prompts": {}, "resources": {}},
        prompts=[b'{"name":"a"}'],
        resources=[b'{"uri":"f:/1","name":"x"}'],
    )
    control.wanted = ["one"]
    async with reporting_node(control, MemoryNet(one=server), record()) as node:
        await pass_time(2)
        server.prompts = [b'{"name":"b"}']
        control.wanted = ["one"]
        await node.pool.refresh("one")
        await pass_time(20)

    sent = [one for _, definitions in control.reports for one in definitions]
    assert [(one.prompts, one.resources) for one in sent[:1] + sent[-1:]] == [
        ((b'{"name":"a"}',), (b'{"uri":"f:/1","name":"x"}',)),
        ((b'{"name":"b"}',), (b'{"uri":"f:/1","name":"x"}',)),
    ]
    assert sent[0].digest != sent[-1].digest


async def test_a_report_that_fails_is_logged_once_and_the_next_one_says_it_all(
    control: MemoryControl, caplog: pytest.LogCaptureFixture
) -> None:
    control.go()
    async with reporting_node(control, MemoryNet(), record()):
        await pass_time(100)
        control.come_back()
        await pass_time(10)

    assert len(control.reports) == 1
    assert [one.getMessage().split(";")[0] for one in caplog.records] == [
        "the control plane rejects this node's reports: nothing listens there"
    ]


async def test_sec_no_error_is_reported_with_a_secret_in_it(control: MemoryControl) -> None:
    async def fail() -> None:
        raise ServerUnavailable("cannot reach https://ada:c4n4ry@host/?api_key=c4n4ry2 " + "x" * 2_000)

    net = MemoryNet(one=MemoryServer(on_start=fail))
    async with reporting_node(control, net, record()):
        pass

    [(report, _)] = control.reports
    error = report.servers[0].last_error
    assert "cannot reach" in error
    assert "c4n4ry" not in error
    assert len(error) == reporting.MAX_ERROR_CHARS
