"""Invocations are taken from the queue and run in real slots, each to one reported end."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.eventually import eventually_async
from tests.surfaces.wasm.node_stage import ADA, BRISK, open_node, runnable
from tests.upstream.memory_link import record
from toolgate.errors import ControlUnavailable
from toolgate.model.invocations import (
    Invocation,
    InvocationCall,
    InvocationResult,
    InvocationState,
)
from toolgate.model.principals import Ceiling
from toolgate.surfaces.wasm.context import TaskContext
from toolgate.surfaces.wasm.invoker import LeaseTiming
from toolgate.wasm.run import GuestRun

pytestmark = pytest.mark.anyio


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
    assert node.world.gateway.metrics.invocations == {("failed", "exit"): 1}


async def test_calls_of_tools_are_in_the_ending_and_in_the_audit_under_the_invocation(tmp_path: Path) -> None:
    async with open_node(tmp_path) as node, node.invoker():
        invocation_id = await node.begin("call")
        found, ending = await node.ended(invocation_id)

    (call,) = node.world.audited
    assert found.state == "succeeded"
    assert ending.usage.tool_calls == 1
    assert ending.calls == (InvocationCall(server_id="one", tool="echo", code="", ms=ending.calls[0].ms),)
    assert (call.door, call.session, call.principal, call.task_id) == (
        "hostcall",
        invocation_id,
        "key:ada",
        "call",
    )


async def test_what_a_server_keeps_for_a_run_ends_with_it(tmp_path: Path) -> None:
    own = record("one", allowed_tools=("*",), sharing="per_session")
    async with open_node(tmp_path) as node, node.invoker():
        node.world.apply(servers={"one": own})
        server = node.world.net["one"]
        for _ in range(3):
            await node.ended(await node.begin("call"))
        await eventually_async(lambda: len(server.links) == 1)  # the one by which it is listed

    assert len(server.calls) == 3


@pytest.mark.requirement("000-42")
async def test_a_guest_of_a_task_that_requires_servers_is_not_begun_without_one(tmp_path: Path) -> None:
    async with open_node(tmp_path) as node, node.invoker():
        needy = runnable("echo", "echo", default_server_ids=["ghost"], require_servers=True)
        node.world.apply(tasks={"echo": needy})
        found, ending = await node.ended(await node.begin("echo"))

    assert (found.state, ending.ended_by, node.opened) == ("failed", "module", [])
    assert "no server is left: `ghost` (unknown_server)" in ending.message


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
        node.world.apply(keys=keys)
        found, ending = await node.ended(invocation_id)

    assert (found.state, ending.ended_by) == ("cancelled", "revoked")


async def test_a_run_ends_with_its_key_also_while_a_report_hangs(tmp_path: Path) -> None:
    async with open_node(tmp_path) as node, node.invoker():
        invocation_id = await node.begin("wait")
        await node.waits(invocation_id)
        node.line.is_hanging = True
        await node.line.has_hung.wait()
        node.world.apply(keys={})
        _, ending = await node.ended(invocation_id)

    assert ending.ended_by == "revoked"


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
        node.world.apply(keys=keys)
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
        invocation_id = await node.begin("late", revision=node.world.state.revision + 1)
        await node.until(invocation_id, lambda one: one.state == "running")
        opened = list(node.opened)
        node.world.apply(tasks={"late": runnable("late", "echo")})
        _, ending = await node.ended(invocation_id)

    assert (opened, ending.exit_code) == ([], 3)


async def test_a_fault_of_the_queue_ends_neither_the_node_nor_its_runs(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with open_node(tmp_path) as node:
        faults = iter([ControlUnavailable("away"), ZeroDivisionError("a bug")])
        claim = node.line.claim

        async def faulty(node_id: str, **asked: Any) -> Sequence[Invocation]:
            for fault in faults:
                raise fault
            return await claim(node_id, **asked)

        monkeypatch.setattr(node.line, "claim", faulty)
        async with node.invoker(timing=replace(BRISK, claim_retry_s=0.01)):
            found, _ = await node.ended(await node.begin("echo"))

    assert found.state == "failed"
    assert [one.levelname for one in caplog.records] == ["WARNING", "ERROR"]


async def test_a_node_that_stays_behind_gives_up(tmp_path: Path) -> None:
    async with open_node(tmp_path) as node, node.invoker(timing=replace(BRISK, revision_s=0.01)):
        found, ending = await node.ended(await node.begin("echo", revision=99))

    assert (found.state, ending.ended_by) == ("failed", "internal")
    assert "revision 99" in ending.message


async def test_a_fault_of_the_node_is_the_end_of_one_run_and_is_in_its_log_alone(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with open_node(tmp_path) as node:
        run_guest, faults = node.services.run_guest, [ZeroDivisionError("a bug")]

        async def fail_once(run: GuestRun[TaskContext]) -> InvocationResult:
            if faults:
                raise faults.pop()
            return await run_guest(run)

        node.services = replace(node.services, run_guest=fail_once)
        async with node.invoker():
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


async def test_a_run_continues_while_control_is_away_and_reports_when_it_is_back(tmp_path: Path) -> None:
    async with open_node(tmp_path) as node, node.invoker():
        invocation_id = await node.begin("wait")
        await node.waits(invocation_id)
        node.line.deafness = 5
        async with asyncio.timeout(60):
            while node.line.deafness:
                await asyncio.sleep(0.01)
        still = await node.queue.get(invocation_id)
        await node.queue.cancel(invocation_id)
        found, _ = await node.ended(invocation_id)

    assert still is not None
    assert still.state == "running"
    assert found.state == "cancelled"


async def test_the_end_of_a_run_is_reported_until_it_is_confirmed(tmp_path: Path) -> None:
    async with open_node(tmp_path) as node, node.invoker():
        node.line.endings_unheard = 3
        found, ending = await node.ended(await node.begin("echo", input=b"x"))

    assert node.line.endings_unheard == 0
    assert (found.state, found.attempt, ending.stdout) == ("failed", 1, b"x")


async def test_a_run_is_over_before_its_lease_is_so_that_no_one_else_runs_it_meanwhile(
    tmp_path: Path,
) -> None:
    timing = LeaseTiming(lease_s=1.5, heartbeat_s=0.05, look_s=0.01)
    async with open_node(tmp_path) as node, node.invoker(timing=timing) as invoker:
        invocation_id = await node.begin("wait")
        await node.waits(invocation_id)
        node.line.is_cut = True
        async with asyncio.timeout(60):
            while len(invoker):
                await asyncio.sleep(0.01)
        found = await node.queue.get(invocation_id)

    assert node.audited[0].ended_by == "node_lost"
    assert found is not None
    assert found.state == "running"  # nothing was said of it: the queue sees to it when the lease is over


async def test_nothing_is_begun_before_the_queue_confirms_it(tmp_path: Path) -> None:
    async with (
        open_node(tmp_path) as node,
        node.invoker(timing=LeaseTiming(lease_s=0.3, heartbeat_s=0.05)) as invoker,
    ):
        node.line.deafness = 1_000
        invocation_id = await node.begin("echo")
        async with asyncio.timeout(60):
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
        await node.queue.reassign(invocation_id, node_id="other")
        async with asyncio.timeout(60):
            while len(invoker):
                await asyncio.sleep(0.01)
        found = await node.queue.get(invocation_id)

    assert found is not None
    assert (found.state, found.node_id, found.ending) == ("running", "other", None)
    assert node.audited[0].ended_by == "node_lost"
