"""Calls, rounds and limit hits of a session: in the metrics and the audit when it ends, however it ends."""

from typing import Any

import pytest

from tests.surfaces.mcp.mcp_world import McpWorld, open_mcp_world
from tests.surfaces.mcp.test_stateful_requests import CAN, ONE, begin, elicit, net_of
from tests.surfaces.openai.chat_world import asking, open_chat_world, upstream
from tests.surfaces.test_node_cap_on_doors import full
from tests.surfaces.wasm.chat_stage import chat_stage
from tests.upstream.memory_link import MemoryNet
from tests.upstream.model_replies import status
from tests.upstream.scripted_model import calls, scripted_model, text
from toolgate.audit.events import SessionEnded
from toolgate.model.chat import ChatBudgets
from toolgate.telemetry.metrics import Histogram

pytestmark = pytest.mark.anyio


def ended(world: McpWorld) -> list[dict[str, Any]]:
    """What the audit has of sessions that ended, without ids, time and duration."""
    world.gateway.audit.flush()
    events = [event for _, event in world.sink.events if isinstance(event, SessionEnded)]
    names = ("door", "task_id", "ended_by", "tool_calls", "rounds", "limits")
    return [{name: getattr(one, name) for name in names if getattr(one, name)} for one in events]


def totals(spreads: dict[str, Histogram]) -> dict[str, tuple[int, float]]:
    """How many sessions were observed at each endpoint, and their sum."""
    return {endpoint: (sum(one.counts), one.total) for endpoint, one in spreads.items()}


@pytest.mark.requirement("002-049")
async def test_a_session_s_calls_rounds_and_limit_hits_are_recorded_when_it_ends() -> None:
    async with open_mcp_world(net_of(elicit), ONE, max_calls=1) as world:
        session = await world.session("/api/mcp", capabilities=CAN)
        call = begin(session)
        await session.respond((await call.event())["id"], result={"action": "decline"})
        await call.event()
        async with full(world.gateway):
            await session.call("one.act")
        await session.call("one.unknown")
        before = ended(world)
        await session.delete()

        metrics = world.gateway.metrics
        expected = {"door": "mcp", "ended_by": "deleted", "tool_calls": 3, "rounds": 1}
        assert (before, ended(world)) == ([], [{**expected, "limits": {"node_busy": 1}}])
        assert (totals(metrics.session_calls), totals(metrics.session_rounds)) == (
            {"mcp": (1, 3)},
            {"mcp": (1, 1)},
        )
        assert metrics.limit_hits == {("mcp", "node_busy"): 1}
        text = metrics.render().decode()
        assert 'toolgate_session_calls_bucket{endpoint="mcp",le="5"} 1.0' in text
        assert 'toolgate_session_limit_hits_total{endpoint="mcp",limit="node_busy"} 1.0' in text


async def test_the_end_of_a_session_is_found_next_to_its_calls() -> None:
    async with open_mcp_world(MemoryNet()) as world:
        session = await world.session("/api/mcp")
        await session.call("one.echo")
        world.sessions.close()
        world.gateway.audit.flush()

        (call,) = world.audited
        (end,) = [event for _, event in world.sink.events if isinstance(event, SessionEnded)]
        assert (end.session, end.ended_by, end.principal) == (call.session, "shutdown", call.principal)


async def test_requests_of_the_stateless_revision_have_no_session_to_end() -> None:
    async with open_mcp_world(MemoryNet()) as world:
        await world.modern("/api/mcp", "tools/call", {"name": "one.echo", "arguments": {}})
        world.sessions.close()

        assert ended(world) == []
        assert world.gateway.metrics.session_calls == {}


@pytest.mark.requirement("002-049")
async def test_a_chat_s_totals_and_the_limit_that_ended_it_are_recorded() -> None:
    script = (
        calls(("mcp__one__echo", '{"n":1}', "a")),
        calls(("mcp__one__echo", '{"n":2}', "b")),
        text("done"),
    )
    budgets = ChatBudgets(max_iterations=2)
    async with (
        scripted_model(*script) as model,
        open_chat_world(MemoryNet(), upstreams=(upstream(model.url, budgets=budgets),), max_calls=1) as world,
    ):
        async with full(world.world.gateway):
            response = await world.post(asking())

        metrics = world.world.gateway.metrics
        assert response.status == 200
        limits = {"node_busy": 2, "round_limit": 1}
        expected = {"door": "chat", "ended_by": "round_limit", "tool_calls": 2, "rounds": 2, "limits": limits}
        assert ended(world.world) == [expected]
        assert metrics.limit_hits == {("chat", limit): many for limit, many in limits.items()}
        assert (totals(metrics.session_calls), totals(metrics.session_rounds)) == (
            {"chat": (1, 2)},
            {"chat": (1, 2)},
        )


async def test_a_chat_that_fails_is_recorded_too() -> None:
    async with (
        scripted_model(calls(("mcp__one__echo", "{}", "a")), status(500)) as model,
        open_chat_world(MemoryNet(), upstreams=(upstream(model.url),)) as world,
    ):
        await world.post(asking())

        (end,) = ended(world.world)
        assert (end["tool_calls"], end["rounds"], end["ended_by"].startswith("model_")) == (1, 1, True)


async def test_each_send_of_a_guest_s_chat_is_one_under_its_task() -> None:
    async with chat_stage(calls(("mcp__one__echo", "{}", "a")), text("done")) as stage:
        await stage.play(lambda chat: chat.prompt())

        (end,) = ended(stage.world.world)
        expected = {"door": "hostcall", "ended_by": "answered", "tool_calls": 1, "rounds": 1}
        assert {name: end[name] for name in expected} == expected
        assert end["task_id"]
