"""Nodes take invocations through control and report on them, over real connections."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, Final

import grpc
import grpc.aio
import msgspec
import pytest
from google.protobuf.message import DecodeError
from hypothesis import given
from hypothesis import strategies as st

from tests.contract.invocation_samples import SUCCESS, claim_ids, found, invocation, line, make
from tests.contract.stores import Clock, open_postgres
from tests.registry.memory_store import MemoryInvocations, MemoryStore
from tests.surfaces.grpc.grpc_world import GrpcWorld, open_grpc_world, refusal_of
from tests.surfaces.rest_world import secret_of
from toolgate.errors import ControlUnavailable, InvalidRequest, Unauthenticated
from toolgate.model.invocations import (
    MAX_CALLS_KEPT,
    MAX_INPUT_BYTES,
    MAX_LINE_BYTES,
    MAX_LOG_LINES,
    Invocation,
    InvocationResult,
)
from toolgate.model.revisions import RecordWrite
from toolgate.model.tasks import MAX_OUTPUT_BYTES
from toolgate.proto import node_pb2
from toolgate.registry.invocations import keep_newest_lines
from toolgate.registry.replication.connection import ControlAddress, open_control_connection
from toolgate.registry.replication.remote import RemoteServices
from toolgate.surfaces.grpc.reports import MAX_CLAIMED, MAX_COUNT, MAX_TEXT, parse_ending, parse_line
from toolgate.surfaces.grpc.server import open_grpc_server

pytestmark = pytest.mark.anyio

DEADLINE_S: Final = 240
SERVICE: Final = "toolgate.v1.NodeService"


@asynccontextmanager
async def open_queue(*worlds: GrpcWorld) -> AsyncIterator[RemoteServices]:
    address = ControlAddress(targets=tuple(world.address for world in worlds), key=secret_of("node"))
    async with asyncio.timeout(DEADLINE_S), open_control_connection(address, jitter=lambda: 0.0) as link:
        yield RemoteServices(link)


async def test_an_invocation_travels_whole_and_so_does_what_becomes_of_it() -> None:
    new = invocation("a", input=b"\x00\xff", retries=2, revision=2**40)
    async with open_grpc_world() as world, open_queue(world) as queue:
        await world.store.invocations.create(new)
        (claimed,) = await queue.claim("edge-1", limit=4)
        stored = await found(world.store.invocations, "a")
        verdicts = [
            await queue.report("a", 1),
            await queue.report("a", 1, lines=[line(0), line(1, "é\x00")]),
            await queue.report("a", 1, lines=[line(1), line(2)], ending=SUCCESS),
            await queue.report("a", 1, ending=SUCCESS),
        ]
        ended = await found(world.store.invocations, "a")
        lines = await world.store.invocations.lines("a")

    assert claimed == replace(stored, node_id="edge-1")
    assert stored.node_id == "node/edge-1"
    assert verdicts == ["go_on", "go_on", "go_on", "lost"]
    assert ended.ending == SUCCESS
    assert list(lines) == [line(1, "line 0"), line(2, "é\x00"), line(3, "line 2")]


async def test_a_node_that_waits_is_given_what_is_made_and_shown_what_is_cancelled() -> None:
    async with open_grpc_world() as world, open_queue(world) as queue:
        waiting = asyncio.ensure_future(queue.claim("edge-1", limit=1, wait_s=20))
        await asyncio.sleep(0)
        await make(world.store.invocations, "a")
        claimed = await waiting
        await world.store.invocations.cancel("a")

        assert [one.invocation_id for one in claimed] == ["a"]
        assert await queue.report("a", 1) == "cancel"
        assert list(await queue.claim("edge-1", limit=1)) == []


async def test_inputs_as_large_as_they_may_be_fit_into_the_answer() -> None:
    async with open_grpc_world() as world, open_queue(world) as queue:
        await make(world.store.invocations, *map(str, range(MAX_CLAIMED + 1)), input=b"x" * MAX_INPUT_BYTES)
        first = await queue.claim("edge-1", limit=100)
        second = await queue.claim("edge-1", limit=100)

    assert [len(first), len(second)] == [MAX_CLAIMED, 1]


async def test_output_and_a_log_as_large_as_they_may_be_are_received() -> None:
    ending = replace(SUCCESS, stdout=b"o" * MAX_OUTPUT_BYTES, stderr=b"e" * MAX_OUTPUT_BYTES)
    lines = [line(n, "x" * MAX_LINE_BYTES) for n in range(MAX_LOG_LINES)]
    async with open_grpc_world() as world, open_queue(world) as queue:
        await make(world.store.invocations, "a")
        await claim_ids(world.store.invocations)
        assert await queue.report("a", 1, lines=lines, ending=ending) == "go_on"

        assert (await found(world.store.invocations, "a")).ending == ending
        kept = await world.store.invocations.lines("a")
        assert [one.text for one in kept] == [one.text for one in keep_newest_lines(lines)]


async def test_two_nodes_at_two_replicas_take_each_invocation_once(tmp_path: Path) -> None:
    async with AsyncExitStack() as stack:
        enter = stack.enter_async_context
        stores = [await enter(open_postgres(tmp_path, Clock())) for _ in range(2)]
        worlds = [await enter(open_grpc_world(store=store)) for store in stores]
        queues = [await enter(open_queue(world)) for world in worlds]
        waiting = [
            asyncio.ensure_future(queue.claim(f"n{n}", limit=1, wait_s=20)) for n, queue in enumerate(queues)
        ]
        for n in range(40):
            await make(stores[n % 2].invocations, f"i{n}", task_id=f"t{n % 3}")
        taken = Counter(one.invocation_id for claimed in await asyncio.gather(*waiting) for one in claimed)

        async def work(number: int) -> None:
            # What one replica gave out is reported to the other: a line may break at any time.
            while claimed := await queues[number].claim(f"n{number}", limit=3):
                for one in claimed:
                    taken[one.invocation_id] += 1
                    other = queues[1 - number]
                    assert await other.report(one.invocation_id, one.attempt, ending=SUCCESS) == "go_on"

        await asyncio.gather(work(0), work(1))
        listed = await stores[0].invocations.list(limit=100)

    assert taken == Counter(f"i{n}" for n in range(40))
    assert Counter(one.state for one in listed) == {"succeeded": 38, "running": 2}


class BusyInvocations(MemoryInvocations):
    """Says when someone waits at it."""

    def __init__(self) -> None:
        super().__init__(lambda: 0)
        self.is_asked = asyncio.Event()

    async def claim(self, node_id: str, *, limit: int, wait_s: float = 0.0) -> Sequence[Invocation]:
        self.is_asked.set()
        return await super().claim(node_id, limit=limit, wait_s=wait_s)


async def test_a_node_that_waits_is_let_go_when_control_stops() -> None:
    store, invocations = MemoryStore(lambda: 0), BusyInvocations()
    store.invocations = invocations
    async with asyncio.timeout(DEADLINE_S), open_grpc_world(store=store) as world, AsyncExitStack() as links:
        async with open_grpc_server(world.rest.control, "127.0.0.1:0", drain_s=3_600.0) as bound:
            address = ControlAddress(targets=(bound,), key=secret_of("node"))
            link = await links.enter_async_context(open_control_connection(address))
            waiting = asyncio.ensure_future(RemoteServices(link).claim("edge-1", limit=1, wait_s=30))
            await invocations.is_asked.wait()
        with pytest.raises(ControlUnavailable, match="shutting down"):
            await waiting


async def test_a_revoked_key_waits_for_nothing() -> None:
    store, invocations = MemoryStore(lambda: 0), BusyInvocations()
    store.invocations = invocations
    async with open_grpc_world(store=store) as world, open_queue(world) as queue:
        waiting = asyncio.ensure_future(queue.claim("edge-1", limit=1, wait_s=30))
        await invocations.is_asked.wait()
        await store.write([RecordWrite(kind="key", id="node", body=None)], actor="test")

        with pytest.raises(Unauthenticated):
            await waiting


# What control takes


async def refused(world: GrpcWorld, **fields: Any) -> tuple[str, str]:
    request = node_pb2.ReportInvocationRequest(invocation_id="a", attempt=1, **fields)
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await world.request(f"{SERVICE}/ReportInvocation", request, key=secret_of("node"))
    return refusal_of(caught.value)


async def test_a_report_that_makes_no_sense_changes_nothing() -> None:
    too_many = [node_pb2.LogLine(seq=n) for n in range(MAX_LOG_LINES + 1)]
    async with open_grpc_world() as world:
        await make(world.store.invocations, "a")
        await claim_ids(world.store.invocations)
        before = await found(world.store.invocations, "a")

        assert await refused(world, lines=too_many) == ("INVALID_ARGUMENT", "invalid_request")
        for state in ("running", "queued", "", "finished"):
            ending = node_pb2.Ending(state=state)
            assert await refused(world, ending=ending) == ("INVALID_ARGUMENT", "invalid_request")
        request = node_pb2.ReportInvocationRequest(invocation_id="x" * 10_000, attempt=1)
        response = await world.request(f"{SERVICE}/ReportInvocation", request, key=secret_of("node"))
        assert response.verdict == "lost"
        assert await world.store.invocations.get("a") == before


def test_what_a_node_says_is_cut_to_size() -> None:
    text = "é" * MAX_LINE_BYTES
    kept = parse_line(node_pb2.LogLine(seq=2**64 - 1, stream="other", level="loud", text=text))
    ending = parse_ending(
        node_pb2.Ending(
            state="failed",
            ended_by="something new",
            message="x" * 10_000,
            stdout=b"x" * (MAX_OUTPUT_BYTES + 1),
            calls=[node_pb2.CallMade(tool="t" * 10_000)] * (MAX_CALLS_KEPT + 1),
            usage=node_pb2.RunUsage(fuel=2**64 - 1),
        )
    )

    assert (kept.seq, kept.stream, kept.level) == (MAX_COUNT, "log", "info")
    assert kept.text == "é" * (MAX_LINE_BYTES // 2)
    assert parse_line(node_pb2.LogLine(text=text + "x")).text == kept.text
    assert parse_line(node_pb2.LogLine(text="x" + text)).text == "x" + "é" * (MAX_LINE_BYTES // 2 - 1)
    assert (ending.ended_by, len(ending.message), len(ending.stdout)) == (
        "internal",
        MAX_TEXT,
        MAX_OUTPUT_BYTES,
    )
    assert (ending.is_truncated, len(ending.calls), ending.usage.fuel) == (True, MAX_CALLS_KEPT, MAX_COUNT)
    assert {len(call.tool) for call in ending.calls} == {MAX_TEXT}


@given(raw=st.binary(max_size=80))
def test_any_ending_that_parses_can_be_kept(raw: bytes) -> None:
    try:
        kept = parse_ending(node_pb2.Ending.FromString(raw))
    except (DecodeError, InvalidRequest):
        return

    assert msgspec.msgpack.decode(msgspec.msgpack.encode(kept), type=InvocationResult) == kept


# What a node does


class Line:
    """A link to control that fails as often as it is told to."""

    def __init__(self, *, failures: int = 0, verdict: str = "go_on") -> None:
        self.failures = failures
        self.verdict = verdict
        self.sent: list[node_pb2.ReportInvocationRequest] = []
        self.claimed: list[node_pb2.ClaimedInvocation] = []

    async def call(self, method: str, request: Any, _response: Any, *, timeout_s: float = 0.0) -> Any:
        if method == "ClaimInvocations":
            return node_pb2.ClaimInvocationsResponse(invocations=self.claimed)
        self.sent.append(request)
        if self.failures:
            self.failures -= 1
            raise ControlUnavailable("it is away")
        return node_pb2.ReportInvocationResponse(verdict=self.verdict)


async def test_a_report_that_fails_is_for_a_caller_that_runs_it_to_repeat() -> None:
    link = Line(failures=1)

    with pytest.raises(ControlUnavailable):
        await RemoteServices(link).report("a", 1, lines=[line(1)], ending=SUCCESS)
    assert [one.ending for one in link.sent] == [node_pb2.Ending(**asdict(SUCCESS))]


async def test_a_long_log_is_sent_in_parts_until_it_is_lost() -> None:
    lines = [line(n, "x" * MAX_LINE_BYTES) for n in range(300)]
    received, lost = Line(), Line(verdict="lost")

    assert await RemoteServices(received).report("a", 1, lines=lines, ending=SUCCESS) == "go_on"
    assert [one.seq for part in received.sent for one in part.lines] == list(range(300))
    assert [part.HasField("ending") for part in received.sent] == [False, False, True]
    assert await RemoteServices(lost).report("a", 1, lines=lines) == "lost"
    assert len(lost.sent) == 1


async def test_what_control_cannot_mean_is_not_believed() -> None:
    link = Line(verdict="stop the world")
    link.claimed = [node_pb2.ClaimedInvocation(invocation_id="a", principal=b'{"id":"x","role":"king"}')]

    with pytest.raises(ControlUnavailable):
        await RemoteServices(link).report("a", 1)
    with pytest.raises(ControlUnavailable):
        await RemoteServices(link).claim("n1", limit=1)
