"""Calls that a person must agree to, at the MCP door: none is sent before that, and then one is."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Final

import pytest

from tests.registry.memory_store import MemoryApprovals
from tests.surfaces.mcp.mcp_world import McpWorld, Response, key, open_mcp_world, task
from tests.surfaces.mcp.test_input_required import ACCEPT, CALL, again, call, legacy_net, modern_net
from tests.upstream.memory_link import MemoryNet, record
from toolgate.model.approvals import ApprovalRequest
from toolgate.model.servers import ApprovalPolicy
from toolgate.registry.approvals import ApprovalVerdict

pytestmark = pytest.mark.anyio

ALWAYS: Final = ApprovalPolicy(default="always")
ONE: Final = record("one", allowed_tools=("*",), approval_policy=ALWAYS)
BY_OTHERS: Final = record(
    "one", allowed_tools=("*",), approval_policy=ApprovalPolicy(default="always", in_place=False)
)
ADA, EVE = "tg_ada" * 8, "tg_eve" * 8
KEYS: Final = (key("ada", ADA), key("eve", EVE))
SENT: Final = {"name": "one.echo", "arguments": {"path": "/tmp/x"}}


def with_approvals(world: McpWorld) -> MemoryApprovals:
    """Approvals in memory that the world asks about."""
    return world.approvals


@asynccontextmanager
async def governed(net: MemoryNet | None = None) -> AsyncIterator[tuple[McpWorld, MemoryApprovals]]:
    async with open_mcp_world(net or MemoryNet(), ONE, keys=KEYS) as world:
        yield world, with_approvals(world)


def detail(response: Response) -> Any:
    """What a refused call says, as its result."""
    result = response.json["result"]
    assert result["isError"]
    return result["_meta"]["toolgate/error"]


def passed(response: Response) -> bool:
    return not response.json["result"].get("isError", False)


async def agree(approvals: MemoryApprovals, approval_id: str) -> None:
    await approvals.decide(approval_id, is_approved=True, by="key:bob", reason="because")


@pytest.mark.requirement("002-044")
async def test_a_modern_client_waits_for_a_person_and_then_calls_once() -> None:
    async with governed() as (world, approvals):
        first = await world.modern("/mcp", "tools/call", SENT, key=ADA)
        notified = detail(first)
        await agree(approvals, notified["data"]["approval_id"])
        strange = await world.modern("/mcp", "tools/call", SENT, key=EVE)
        changed = await world.modern("/mcp", "tools/call", {**SENT, "arguments": {"path": "/"}}, key=ADA)
        passes = await world.modern("/mcp", "tools/call", SENT, key=ADA)
        replayed = await world.modern("/mcp", "tools/call", SENT, key=ADA)
        used = await approvals.get(notified["data"]["approval_id"])

        assert (notified["code"], notified["retryable"]) == ("mcp_approval_required", False)
        assert sorted(notified["data"]) == ["approval_id", "expires_at_ms", "url"]
        assert notified["data"]["approval_id"] in first.json["result"]["content"][0]["text"]
        assert [passed(one) for one in (strange, changed, passes, replayed)] == [False, False, True, False]
        assert len(world.net["one"].calls) == 1
        assert used is not None
        assert (used.state, used.question.principal, used.question.door) == ("used", "key:ada", "mcp")
        assert [(one.outcome, one.code) for one in world.audited] == [
            ("denied", "mcp_approval_required"),
            ("denied", "mcp_approval_required"),
            ("denied", "mcp_approval_required"),
            ("ok", ""),
            ("denied", "mcp_approval_required"),
        ]
        assert {(one.outcome, one.layer, one.rule) for one in world.audited} == {
            ("denied", "platform", "approval_policy default: always"),
            ("ok", "platform", "allowed_tools `*`"),
        }


async def test_a_tool_that_is_found_waits_as_well() -> None:
    through = {"name": "call_tool", "arguments": {"name": "one.echo", "arguments": {"n": 1}}}
    async with governed() as (world, approvals):
        notified = detail(await world.modern("/mcp/find", "tools/call", through, key=ADA))
        await agree(approvals, notified["data"]["approval_id"])
        passes = await world.modern("/mcp/find", "tools/call", through, key=ADA)
        direct = await world.modern(
            "/mcp", "tools/call", {"name": "one.echo", "arguments": {"n": 1}}, key=ADA
        )

        assert (passed(passes), passed(direct)) == (True, False)


async def test_only_tools_that_need_it_wait_and_a_change_of_policy_counts_at_once() -> None:
    async with open_mcp_world(MemoryNet(), record("one", allowed_tools=("*",)), keys=KEYS) as world:
        with_approvals(world)
        before = await world.modern("/mcp", "tools/call", SENT, key=ADA)
        world.apply(servers={"one": ONE})
        after = await world.modern("/mcp", "tools/call", SENT, key=ADA)
        world.apply(
            servers={"one": record("one", allowed_tools=("*",))},
            tasks={"strict": task("strict", default_server_ids=["one"], approval_policy="always")},
        )
        in_task = await world.modern("/mcp/t/strict", "tools/call", SENT, key=ADA)

        assert [passed(one) for one in (before, after, in_task)] == [True, False, False]


async def test_who_goes_away_while_its_approval_is_asked_for_is_on_record() -> None:
    """The approval may be used up by then: the audit says what became of the call."""
    asked = asyncio.Event()

    class Slow(MemoryApprovals):
        async def request(self, question: ApprovalRequest, *, new_id: str) -> ApprovalVerdict:
            asked.set()
            await asyncio.Event().wait()
            return await super().request(question, new_id=new_id)

    async with open_mcp_world(MemoryNet(), ONE, keys=KEYS, approvals=Slow(lambda: 0)) as world:
        calling = asyncio.create_task(world.modern("/mcp", "tools/call", SENT, key=ADA))
        async with asyncio.timeout(60):
            await asked.wait()
            calling.cancel()
            await asyncio.wait([calling])

        assert world.net["one"].calls == []
        assert [(one.outcome, one.code) for one in world.audited] == [("cancelled", "cancelled")]


async def test_a_call_whose_modern_server_asks_goes_on_under_its_approval_and_no_round_twice() -> None:
    async with open_mcp_world(modern_net(), BY_OTHERS, keys=KEYS) as world:
        approvals = with_approvals(world)
        notified = detail(await call(world, CALL, secret=ADA))
        await agree(approvals, notified["data"]["approval_id"])
        first = await call(world, CALL, secret=ADA)
        last_round = await call(world, again(CALL, first), secret=ADA)
        replayed = await call(world, again(CALL, first), secret=ADA)

        assert first.json["result"]["resultType"] == "input_required"
        assert json.loads(text_of(last_round))["responses"] == {"who": ACCEPT}
        assert detail(replayed)["code"] == "mcp_approval_required"
        assert len(world.net["one"].calls) == 2


async def test_a_session_whose_modern_server_asks_goes_on_under_its_approval() -> None:
    async with open_mcp_world(modern_net(), BY_OTHERS, keys=KEYS) as world:
        approvals = with_approvals(world)
        session = await world.session("/mcp", key=ADA, capabilities={"elicitation": {}})
        notified = detail(await session.send("tools/call", CALL))
        await agree(approvals, notified["data"]["approval_id"])
        stream = session.begin("tools/call", CALL, request_id="mine")
        asked = await stream.event()
        await session.respond(asked["id"], result=ACCEPT)
        ended = await stream.event()
        again_notified = detail(await session.send("tools/call", CALL))

        assert json.loads(ended["result"]["content"][0]["text"])["responses"] == {"who": ACCEPT}
        assert again_notified["code"] == "mcp_approval_required"


async def test_a_parked_call_goes_on_without_another_word() -> None:
    async with open_mcp_world(legacy_net(), BY_OTHERS, keys=KEYS) as world:
        approvals = with_approvals(world)
        notified = detail(await call(world, CALL, secret=ADA))
        await agree(approvals, notified["data"]["approval_id"])
        first = await call(world, CALL, secret=ADA)
        last_round = await call(world, again(CALL, first), secret=ADA)

        assert json.loads(text_of(last_round)) == ACCEPT
        assert len(world.net["one"].calls) == 1


def text_of(response: Response) -> str:
    return str(response.json["result"]["content"][0]["text"])
