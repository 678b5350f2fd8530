"""Invocations are taken from the queue and run in real slots, each to one reported end."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from tests.surfaces.mcp.house import House, key, open_house, task
from tests.upstream.memory_link import MemoryNet, record
from tests.upstream.stdio_stage import until
from tests.wasm.wat import compiled
from toolgate.audit.events import InvocationEnded
from toolgate.errors import ControlUnavailable, NotFound
from toolgate.gateway.identity import principal_of
from toolgate.model.invocations import (
    ENDED,
    MAX_LOG_LINES,
    CallMade,
    Ending,
    Invocation,
    InvocationState,
    LogLine,
)
from toolgate.model.principals import Ceiling
from toolgate.model.tasks import Task
from toolgate.model.workloads import Workload
from toolgate.registry.invocations import Verdict
from toolgate.registry.memory_invocations import MemoryInvocations
from toolgate.surfaces.wasm.functions import ALL_FUNCTIONS
from toolgate.surfaces.wasm.invoker import Invoker
from toolgate.surfaces.wasm.running import MAX_HELD_CHARS, Means, Pace, newest_lines
from toolgate.upstream.egress import Egress
from toolgate.upstream.models.client import Models
from toolgate.upstream.secrets import Secrets
from toolgate.wasm.slots import Slots

pytestmark = pytest.mark.anyio

ADA = key("ada", "ada" * 20)
BRISK = Pace(heartbeat_s=0.02, look_s=0.01)
ECHO = """
  (import "wasi_snapshot_preview1" "fd_read" (func $read (param i32 i32 i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "fd_write" (func $write (param i32 i32 i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "proc_exit" (func $exit (param i32)))
  (memory (export "memory") 1)
  (func (export "_start")
    (i32.store (i32.const 0) (i32.const 64)) (i32.store (i32.const 4) (i32.const 1000))
    (drop (call $read (i32.const 0) (i32.const 0) (i32.const 1) (i32.const 8)))
    (i32.store (i32.const 4) (i32.load (i32.const 8)))
    (drop (call $write (i32.const 1) (i32.const 0) (i32.const 1) (i32.const 8)))
    (call $exit (i32.const 3)))"""
WAIT = """
  (import "spear" "log" (func $log (param i32 i32 i32) (result i32)))
  (import "spear" "sleep_ms" (func $sleep (param i32)))
  (memory (export "memory") 1)
  (data (i32.const 8) "waits")
  (func (export "_start")
    (drop (call $log (i32.const 3) (i32.const 8) (i32.const 5)))
    (call $sleep (i32.const 60000)))"""
CALL = """
  (import "spear" "mcp_open" (func $open (param i32 i32) (result i32)))
  (import "spear" "mcp_call_tool" (func $call (param i32 i32 i32 i32 i32 i32 i32) (result i32)))
  (memory (export "memory") 1)
  (data (i32.const 8) "oneecho{}")
  (func (export "_start")
    (i32.store (i32.const 32) (i32.const 1000))
    (drop (call $call (call $open (i32.const 8) (i32.const 3)) (i32.const 11) (i32.const 4)
      (i32.const 15) (i32.const 2) (i32.const 64) (i32.const 32))))"""


class Line:
    """The queue, as a node reaches it: over a line that can be cut."""

    def __init__(self, queue: MemoryInvocations) -> None:
        self._queue = queue
        self.asked_by: set[str] = set()
        self.is_cut = False
        self.deafness = 0
        """How many reports are not heard."""
        self.endings_unheard = 0

    async def claim(self, node_id: str, *, limit: int, wait_s: float = 0.0) -> Sequence[Invocation]:
        self._check()
        self.asked_by.add(node_id)
        return await self._queue.claim(node_id, limit=limit, wait_s=wait_s)

    async def report(
        self, invocation_id: str, attempt: int, *, lines: Sequence[LogLine] = (), ending: Ending | None = None
    ) -> Verdict:
        self._check()
        if self.deafness:
            self.deafness -= 1
            raise ControlUnavailable("not heard")
        if ending is not None and self.endings_unheard:
            self.endings_unheard -= 1
            raise ControlUnavailable("its end is not heard")
        return await self._queue.report(invocation_id, attempt, lines=lines, ending=ending)

    def _check(self) -> None:
        if self.is_cut:
            raise ControlUnavailable("the line is cut")


@dataclass
class Node:
    """A node in memory, and the queue it takes from."""

    house: House
    queue: MemoryInvocations
    line: Line
    means: Means
    texts: dict[str, str]
    directory: Path
    opened: list[str] = field(default_factory=list)

    async def open(self, sha256: str) -> Path:
        """The compiled module of that name."""
        self.opened.append(sha256)
        if sha256 not in self.texts:
            raise NotFound(f"there is no module `{sha256}`")
        return compiled(f"(module {self.texts[sha256]})", self.directory)

    def invoker(
        self, node_id: str = "n", *, max_guests: int = 4, drain_s: float = 0.0, pace: Pace = BRISK
    ) -> Invoker:
        return Invoker(self.means, node_id=node_id, max_guests=max_guests, drain_s=drain_s, pace=pace)

    async def begin(self, task_id: str, **fields: Any) -> str:
        """The id of a new invocation."""
        made = Invocation(
            invocation_id=f"{task_id}-{time.monotonic_ns()}",
            task_id=task_id,
            principal=fields.pop("principal", principal_of(ADA)),
            revision=fields.pop("revision", self.house.state.revision),
            input=fields.pop("input", b""),
            created_ms=0,
            **fields,
        )
        return (await self.queue.create(made)).invocation.invocation_id

    async def until(self, invocation_id: str, is_so: Callable[[Invocation], bool]) -> Invocation:
        """The invocation once it is so."""
        async with asyncio.timeout(10):
            while True:
                seen = await self.queue.changed(-1)
                found = await self.queue.get(invocation_id)
                assert found is not None
                if is_so(found):
                    return found
                await self.queue.changed(seen)

    async def ended(self, invocation_id: str) -> tuple[Invocation, Ending]:
        found = await self.until(invocation_id, lambda one: one.state in ENDED)
        assert found.ending is not None
        return found, found.ending

    async def waits(self, invocation_id: str) -> None:
        """Passes once the guest has said that it waits."""
        async with asyncio.timeout(10):
            while not [one.text for one in await self.queue.lines(invocation_id)]:
                await self.queue.changed(await self.queue.changed(-1))

    @property
    def audited(self) -> list[InvocationEnded]:
        self.house.gateway.audit.flush()
        return [event for _, event in self.house.sink.events if isinstance(event, InvocationEnded)]


def runnable(task_id: str, module: str, **config: Any) -> Task:
    return replace(task(task_id, **config), workload=Workload(module=module, args=("x",)))


@asynccontextmanager
async def open_node(tmp_path: Path) -> AsyncIterator[Node]:
    """A node that does not take from the queue yet, whose tasks are called after what they do."""
    texts = {"echo": ECHO, "wait": WAIT, "call": CALL}
    tasks = [runnable(name, name, default_server_ids=["one"]) for name in (*texts, "missing")]
    queue = MemoryInvocations(lambda: int(time.time() * 1000))
    line = Line(queue)
    async with (
        open_house(MemoryNet(), tasks=(*tasks, task("plain")), keys=(ADA,)) as house,
        Models(Secrets({}, None), Egress(allow_private=True)) as models,
        Slots(ALL_FUNCTIONS, max_guests=4) as slots,
    ):

        class Modules:
            async def open(self, sha256: str) -> Path:
                return await node.open(sha256)

        means = Means(gateway=house.gateway, models=models, queue=line, slots=slots, modules=Modules())
        node = Node(house, queue, line, means, texts, tmp_path)
        yield node
        assert slots.host_faults == 0


async def test_an_invocation_is_run_and_its_end_reported_recorded_and_counted(tmp_path: Path) -> None:
    async with open_node(tmp_path) as node, node.invoker():
        invocation_id = await node.begin("echo", input=b"hello\n")
        found, ending = await node.ended(invocation_id)
        lines = await node.queue.lines(invocation_id)

    (event,) = node.audited
    assert (found.state, ending.ended_by, ending.exit_code) == ("failed", "exit", 3)
    assert (ending.stdout, [line.text for line in lines]) == (b"hello\n", ["hello"])
    assert ending.usage.fuel > 0
    assert (event.principal, event.task_id, event.state) == ("key:ada", "echo", "failed")
    assert (event.invocation_id, event.module, event.attempt) == (invocation_id, "echo", 1)
    assert node.house.gateway.metrics.invocations == {("failed", "exit"): 1}


async def test_calls_of_tools_are_in_the_ending_and_in_the_audit_under_the_invocation(tmp_path: Path) -> None:
    async with open_node(tmp_path) as node, node.invoker():
        invocation_id = await node.begin("call")
        found, ending = await node.ended(invocation_id)

    (call,) = node.house.audited
    assert found.state == "succeeded"
    assert ending.usage.tool_calls == 1
    assert ending.calls == (CallMade(server_id="one", tool="echo", code="", ms=ending.calls[0].ms),)
    assert (call.door, call.session, call.principal, call.task_id) == (
        "hostcall",
        invocation_id,
        "key:ada",
        "call",
    )


async def test_what_a_server_keeps_for_a_run_ends_with_it(tmp_path: Path) -> None:
    own = record("one", allowed_tools=("*",), sharing="per_session")
    async with open_node(tmp_path) as node, node.invoker():
        node.house.apply(servers={"one": own})
        server = node.house.net["one"]
        for _ in range(3):
            await node.ended(await node.begin("call"))
        await until(lambda: len(server.links) == 1)  # the one by which it is listed

    assert len(server.calls) == 3


async def test_a_node_takes_as_many_as_it_has_room_for(tmp_path: Path) -> None:
    async with open_node(tmp_path) as node, node.invoker(max_guests=2) as invoker:
        ids = [await node.begin("wait") for _ in range(3)]
        for one in ids[:2]:
            await node.waits(one)
        third = await node.queue.get(ids[2])
        held = len(invoker)
        await node.queue.cancel(ids[0])
        await node.waits(ids[2])

    assert third is not None
    assert (third.state, held) == ("queued", 2)


async def test_a_node_without_room_takes_none(tmp_path: Path) -> None:
    async with open_node(tmp_path) as node:
        invocation_id = await node.begin("echo")
        async with node.invoker("none", max_guests=0), node.invoker("one", max_guests=1):
            await node.ended(invocation_id)

    assert node.line.asked_by == {"one"}


async def test_a_run_that_is_cancelled_ends_wherever_it_is(tmp_path: Path) -> None:
    async with open_node(tmp_path) as node, node.invoker():
        running, behind = await node.begin("wait"), await node.begin("echo", revision=99)
        await node.waits(running)
        await node.until(behind, lambda one: one.state == "running")
        for one in (running, behind):
            await node.queue.cancel(one)
        ends = [await node.ended(one) for one in (running, behind)]

    assert [(found.state, ending.ended_by) for found, ending in ends] == [("cancelled", "cancelled")] * 2
    assert node.opened == ["wait"]


@pytest.mark.parametrize(
    "keys",
    [
        pytest.param({}, id="revoked"),
        pytest.param({"ada": replace(ADA, ceiling=Ceiling(servers=()))}, id="narrowed"),
        pytest.param({"ada": replace(ADA, expires_at_s=1)}, id="expired"),
    ],
)
async def test_a_run_ends_with_the_key_that_it_was_begun_with(tmp_path: Path, keys: dict[str, Any]) -> None:
    async with open_node(tmp_path) as node, node.invoker():
        invocation_id = await node.begin("wait")
        await node.waits(invocation_id)
        node.house.apply(keys=keys)
        found, ending = await node.ended(invocation_id)

    assert (found.state, ending.ended_by) == ("cancelled", "revoked")


@pytest.mark.parametrize(
    ("keys", "expected"),
    [
        pytest.param({}, "revoked", id="revoked"),
        pytest.param({"ada": replace(ADA, expires_at_s=1)}, "revoked", id="expired"),
        pytest.param({"ada": replace(ADA, ceiling=Ceiling(tasks=("call",)))}, "revoked", id="for others"),
        pytest.param({"ada": replace(ADA, ceiling=Ceiling(servers=()))}, "exit", id="narrowed"),
    ],
)
async def test_what_waited_is_begun_as_what_its_key_is_by_then(
    tmp_path: Path, keys: dict[str, Any], expected: str
) -> None:
    async with open_node(tmp_path) as node:
        invocation_id = await node.begin("echo")
        node.house.apply(keys=keys)
        async with node.invoker():
            _, ending = await node.ended(invocation_id)

    assert ending.ended_by == expected
    assert node.opened == (["echo"] if expected == "exit" else [])


@pytest.mark.parametrize("task_id", ["none", "plain", "missing"])
async def test_what_cannot_be_begun_fails_and_says_why(tmp_path: Path, task_id: str) -> None:
    async with open_node(tmp_path) as node, node.invoker():
        found, ending = await node.ended(await node.begin(task_id))

    assert (found.state, ending.ended_by) == ("failed", "module")
    assert f"`{task_id}`" in ending.message


async def test_a_node_waits_until_it_knows_what_the_invocation_was_made_with(tmp_path: Path) -> None:
    async with open_node(tmp_path) as node, node.invoker():
        invocation_id = await node.begin("late", revision=node.house.state.revision + 1)
        await node.until(invocation_id, lambda one: one.state == "running")
        opened = list(node.opened)
        node.house.apply(tasks={"late": runnable("late", "echo")})
        _, ending = await node.ended(invocation_id)

    assert (opened, ending.exit_code) == ([], 3)


async def test_a_fault_of_the_queue_ends_neither_the_node_nor_its_runs(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("toolgate.surfaces.wasm.invoker.RETRY_S", 0.01)
    async with open_node(tmp_path) as node:
        faults = iter([ControlUnavailable("away"), ZeroDivisionError("a bug")])
        claim = node.line.claim

        async def faulty(node_id: str, **asked: Any) -> Sequence[Invocation]:
            for fault in faults:
                raise fault
            return await claim(node_id, **asked)

        monkeypatch.setattr(node.line, "claim", faulty)
        async with node.invoker():
            found, _ = await node.ended(await node.begin("echo"))

    assert found.state == "failed"
    assert [one.levelname for one in caplog.records] == ["WARNING", "ERROR"]


async def test_a_node_that_stays_behind_gives_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("toolgate.surfaces.wasm.running.REVISION_S", 0.01)
    async with open_node(tmp_path) as node, node.invoker():
        found, ending = await node.ended(await node.begin("echo", revision=99))

    assert (found.state, ending.ended_by) == ("failed", "internal")
    assert "revision 99" in ending.message


async def test_a_fault_of_the_node_is_the_end_of_one_run_and_stands_in_its_log_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async with open_node(tmp_path) as node, node.invoker():

        async def fail(_run: object) -> Ending:
            raise ZeroDivisionError("a bug")

        with monkeypatch.context() as broken:
            broken.setattr(node.means.slots, "run", fail)
            found, ending = await node.ended(await node.begin("echo"))
        after, _ = await node.ended(await node.begin("echo"))

    assert (found.state, ending.ended_by) == ("failed", "internal")
    assert "bug" not in ending.message
    assert "a bug" in caplog.text
    assert after.ending is not None
    assert after.ending.exit_code == 3


@pytest.mark.parametrize(
    ("retries", "state"), [pytest.param(0, "crashed", id="once"), pytest.param(1, "queued", id="again")]
)
async def test_a_node_that_stops_gives_its_runs_time_and_then_ends_them(
    tmp_path: Path, retries: int, state: InvocationState
) -> None:
    async with open_node(tmp_path) as node:
        async with node.invoker(drain_s=0.05) as invoker:
            invocation_id = await node.begin("wait", retries=retries)
            await node.waits(invocation_id)
            invoker.stop()
            later = await node.begin("echo")
        found, untaken = await node.queue.get(invocation_id), await node.queue.get(later)

    assert found is not None
    assert untaken is not None
    assert (found.state, found.attempt) == (state, 1)
    assert (untaken.state, untaken.attempt) == ("queued", 0)
    assert node.audited[0].ended_by == "node_stopped"


async def test_a_run_goes_on_while_control_is_away_and_reports_when_it_is_back(tmp_path: Path) -> None:
    async with open_node(tmp_path) as node, node.invoker():
        invocation_id = await node.begin("wait")
        await node.waits(invocation_id)
        node.line.deafness = 5
        async with asyncio.timeout(10):
            while node.line.deafness:
                await asyncio.sleep(0.01)
        still = await node.queue.get(invocation_id)
        await node.queue.cancel(invocation_id)
        found, _ = await node.ended(invocation_id)

    assert still is not None
    assert still.state == "running"
    assert found.state == "cancelled"


async def test_the_end_of_a_run_is_reported_until_it_is_heard(tmp_path: Path) -> None:
    async with open_node(tmp_path) as node, node.invoker():
        node.line.endings_unheard = 3
        found, ending = await node.ended(await node.begin("echo", input=b"x"))

    assert node.line.endings_unheard == 0
    assert (found.state, found.attempt, ending.stdout) == ("failed", 1, b"x")


def test_of_lines_that_nobody_hears_of_the_newest_are_held() -> None:
    many = [LogLine(seq=n, at_ms=0, stream="log", text="x") for n in range(MAX_LOG_LINES + 5)]
    long = [LogLine(seq=n, at_ms=0, stream="log", text="x" * (MAX_HELD_CHARS // 2)) for n in range(5)]

    assert newest_lines(many) == many[5:]
    assert newest_lines(long) == long[3:]
    assert newest_lines([]) == []


async def test_a_run_is_over_before_its_lease_is_so_that_nobody_else_runs_it_meanwhile(
    tmp_path: Path,
) -> None:
    pace = Pace(lease_s=0.3, heartbeat_s=0.05, look_s=0.01)
    async with open_node(tmp_path) as node, node.invoker(pace=pace) as invoker:
        invocation_id = await node.begin("wait")
        await node.waits(invocation_id)
        node.line.is_cut = True
        async with asyncio.timeout(5):
            while len(invoker):
                await asyncio.sleep(0.01)
        found = await node.queue.get(invocation_id)

    assert node.audited[0].ended_by == "node_lost"
    assert found is not None
    assert found.state == "running"  # nothing was said of it: the queue sees to it when the lease is over


async def test_nothing_is_begun_before_the_queue_has_heard_that_it_is(tmp_path: Path) -> None:
    async with open_node(tmp_path) as node, node.invoker(pace=Pace(lease_s=0.3, heartbeat_s=0.05)) as invoker:
        node.line.deafness = 1_000
        invocation_id = await node.begin("echo")
        async with asyncio.timeout(5):
            while not node.opened or len(invoker):
                await asyncio.sleep(0.01)
        found = await node.queue.get(invocation_id)

    assert found is not None
    assert (found.state, found.started_ms) == ("running", None)
    assert [(one.ended_by, one.duration_ms >= 0) for one in node.audited] == [("node_lost", True)]


async def test_what_was_given_to_another_is_ended_and_not_reported(tmp_path: Path) -> None:
    async with open_node(tmp_path) as node, node.invoker() as invoker:
        invocation_id = await node.begin("wait")
        await node.waits(invocation_id)
        log = node.queue._kept[invocation_id]
        other = replace(log.entry.invocation, attempt=2, node_id="other")
        log.entry = replace(log.entry, invocation=other)
        async with asyncio.timeout(5):
            while len(invoker):
                await asyncio.sleep(0.01)
        found = await node.queue.get(invocation_id)

    assert found is not None
    assert (found.state, found.node_id, found.ending) == ("running", "other", None)
    assert node.audited[0].ended_by == "node_lost"
