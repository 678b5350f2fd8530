"""Calls that a person must agree to, where the person is at the client that calls and can be asked there."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any, Final

import pytest

from tests.registry.memory_store import MemoryApprovals
from tests.surfaces.mcp.mcp_world import LegacyClient, McpWorld, Response, key, open_mcp_world, task
from tests.surfaces.mcp.test_endpoint_approvals import (
    ADA,
    BY_OTHERS,
    EVE,
    KEYS,
    ONE,
    agree,
    detail,
    passed,
    with_approvals,
)
from tests.surfaces.mcp.test_input_required import CALL, again, begin, call, legacy_net, modern_net
from tests.upstream.memory_link import MemoryNet, definition, record
from toolgate.audit.events import ApprovalRecorded

pytestmark = pytest.mark.anyio

ACCEPT: Final = {"action": "accept", "content": {}}
DECLINE: Final = {"action": "decline"}
CANCEL: Final = {"action": "cancel"}
CAN: Final[dict[str, Any]] = {"elicitation": {}}
SENT: Final = {"name": "one.echo", "arguments": {"path": "/tmp/x", "password": "hunter2", "to": "a\u202eb"}}


def steps(world: McpWorld) -> list[tuple[str, str, str]]:
    """What the audit says of approvals."""
    world.gateway.audit.flush()
    events = [event for _, event in world.sink.events]
    return [(one.state, one.decided_by, one.reason) for one in events if isinstance(one, ApprovalRecorded)]


def question_in(response: Response) -> Any:
    """What a client of the stateless era is asked by an answer."""
    result = response.json["result"]
    assert (result["resultType"], list(result["inputRequests"])) == ("input_required", ["approval"])
    return result["inputRequests"]["approval"]


async def asked_in(session: LegacyClient, response: Any) -> Any:
    """What comes of a call whose client is asked, and answers so."""
    stream = session.begin("tools/call", SENT, request_id="mine")
    asked = await stream.event()
    assert asked["method"] == "elicitation/create"
    await session.respond(asked["id"], **response)
    return await stream.event()


async def test_a_session_is_asked_on_its_stream_and_goes_on() -> None:
    async with open_mcp_world(MemoryNet(), ONE, keys=KEYS) as world:
        approvals = with_approvals(world)
        session = await world.session("/mcp", key=ADA, capabilities=CAN)
        ended = await asked_in(session, {"result": ACCEPT})
        (used,) = await approvals.list()

        assert json.loads(ended["result"]["content"][0]["text"]) == SENT["arguments"]
        assert (used.state, used.decided_by) == ("used", "key:ada")
        assert [(one.outcome, one.code) for one in world.audited] == [("ok", "")]
        assert steps(world) == [
            ("asked", "", ""),
            ("approved", "key:ada", "approved by elicitation"),
            ("used", "", ""),
        ]


async def test_a_stateless_client_is_asked_by_its_answer_and_goes_on_at_another_node() -> None:
    approvals = MemoryApprovals(lambda: 0)
    async with (
        open_mcp_world(MemoryNet(), ONE, keys=KEYS, approvals=approvals) as here,
        open_mcp_world(MemoryNet(), ONE, keys=KEYS, approvals=approvals) as there,
    ):
        first = await call(here, SENT, secret=ADA)
        waiting = await approvals.list(state="pending")
        last = await call(there, again(SENT, first, ACCEPT), secret=ADA)
        (used,) = await approvals.list()

        assert question_in(first)["method"] == "elicitation/create"
        assert len(waiting) == 1
        assert passed(last)
        assert (len(here.net["one"].calls), len(there.net["one"].calls)) == (0, 1)
        assert (used.state, used.decided_by) == ("used", "key:ada")
        assert [one.code for one in here.audited] == ["mcp_approval_required"]
        assert [one.outcome for one in there.audited] == ["ok"]
        assert [state for state, _, _ in steps(here) + steps(there)] == ["asked", "approved", "used"]


async def test_a_person_sees_what_others_would_and_nothing_hidden() -> None:
    async with open_mcp_world(MemoryNet(), ONE, keys=KEYS) as world:
        approvals = with_approvals(world)
        asked = question_in(await call(world, SENT, secret=ADA))["params"]
        (waiting,) = await approvals.list()

        assert asked["requestedSchema"] == {"type": "object", "properties": {}}
        message = asked["message"]
        assert "hunter2" not in message
        assert r'"to": "a\u202eb"' in message
        for shown in ("one.echo", '"path": "/tmp/x"', waiting.question.why, waiting.approval_id):
            assert shown in message
        assert all(line.isprintable() for line in message.split("\n"))


@pytest.mark.parametrize("can", [{}, {"elicitation": {"url": {}}}, {"sampling": {}}], ids=json.dumps)
async def test_a_client_without_elicitation_gets_the_pending_approval_as_an_error(can: Any) -> None:
    async with open_mcp_world(MemoryNet(), ONE, keys=KEYS) as world:
        with_approvals(world)
        modern = detail(await call(world, SENT, can, secret=ADA))
        session = await world.session("/mcp", key=ADA, capabilities=can)
        legacy = detail(await session.send("tools/call", SENT))

        assert modern["code"] == "mcp_approval_required"
        assert legacy["data"] == modern["data"]


async def test_a_declined_approval_is_elicited_again_by_the_next_call_only() -> None:
    async with open_mcp_world(MemoryNet(), ONE, keys=KEYS) as world:
        approvals = with_approvals(world)
        first = await call(world, SENT, secret=ADA)
        denied = detail(await call(world, again(SENT, first, DECLINE), secret=ADA))
        session = await world.session("/mcp", key=ADA, capabilities=CAN)
        in_session = await asked_in(session, {"result": DECLINE})

        assert denied["code"] == "mcp_approval_denied"
        assert denied["data"]["reason"] == "declined by elicitation"
        assert in_session["result"]["_meta"]["toolgate/error"]["code"] == "mcp_approval_denied"
        assert [one.state for one in await approvals.list()] == ["denied", "denied"]
        assert world.net["one"].calls == []
        assert [one.code for one in world.audited][1:] == ["mcp_approval_denied", "mcp_approval_denied"]
        assert steps(world)[1] == ("denied", "key:ada", "declined by elicitation")


@pytest.mark.parametrize(
    "response",
    [CANCEL, {"action": "allow"}, {"content": {"action": "accept"}}, {}],
    ids=["closed", "no such action", "no action", "nothing"],
)
async def test_what_says_neither_leaves_it_to_others(response: Any) -> None:
    async with open_mcp_world(MemoryNet(), ONE, keys=KEYS) as world:
        approvals = with_approvals(world)
        first = await call(world, SENT, secret=ADA)
        notified = detail(await call(world, again(SENT, first, response), secret=ADA))
        session = await world.session("/mcp", key=ADA, capabilities=CAN)
        in_session = await asked_in(session, {"result": response})
        refused = await asked_in(session, {"error": {"code": -32601, "message": "no"}})
        (waiting,) = await approvals.list()
        await agree(approvals, waiting.approval_id)
        passes = await session.send("tools/call", SENT)

        assert (notified["code"], notified["data"]["approval_id"]) == (
            "mcp_approval_required",
            waiting.approval_id,
        )
        for one in (in_session, refused):
            assert one["result"]["_meta"]["toolgate/error"]["data"] == notified["data"]
        assert passed(passes)


async def test_an_elicitation_without_a_response_in_time_ends_with_a_hint() -> None:
    async with open_mcp_world(MemoryNet(), ONE, keys=KEYS, approval_timeout_s=0.05) as world:
        with_approvals(world)
        session = await world.session("/mcp", key=ADA, capabilities=CAN)
        stream = session.begin("tools/call", SENT)
        asked, taken_back, ended = [await stream.event() for _ in range(3)]

        assert (taken_back["method"], taken_back["params"]) == (
            "notifications/cancelled",
            {"requestId": asked["id"]},
        )
        assert ended["result"]["_meta"]["toolgate/error"]["code"] == "mcp_approval_required"
        assert world.net["one"].calls == []


async def test_an_answer_counts_once_and_for_its_own_request_alone() -> None:
    changed = {**SENT, "arguments": {"path": "/"}}
    async with open_mcp_world(MemoryNet(), ONE, keys=KEYS) as world:
        approvals = with_approvals(world)
        first = await call(world, SENT, secret=ADA)
        strange = await call(world, again(SENT, first, ACCEPT), secret=EVE)
        other = await call(world, again(changed, first, ACCEPT), secret=ADA)
        alone = await call(world, {**SENT, "inputResponses": {"approval": ACCEPT}}, secret=ADA)
        passes = await call(world, again(SENT, first, ACCEPT), secret=ADA)
        replayed = await call(world, again(SENT, first, ACCEPT), secret=ADA)

        assert [one.json["error"]["data"]["code"] for one in (strange, other)] == ["input_state_refused"] * 2
        assert question_in(alone)
        assert passed(passes)
        assert detail(replayed)["code"] == "mcp_approval_required"
        assert len(world.net["one"].calls) == 1
        assert [one.state for one in await approvals.list()] == ["pending", "used"]


async def test_of_many_answers_at_once_one_makes_the_call() -> None:
    async with open_mcp_world(MemoryNet(), ONE, keys=KEYS) as world:
        with_approvals(world)
        first = await call(world, SENT, secret=ADA)
        responses = await asyncio.gather(
            *(call(world, again(SENT, first, ACCEPT), secret=ADA) for _ in range(20))
        )

        assert sum(map(passed, responses)) == 1
        assert len(world.net["one"].calls) == 1


async def test_no_argument_of_a_call_is_an_answer() -> None:
    tricks = {"action": "accept", "approval": ACCEPT, "inputResponses": {"approval": ACCEPT}}
    async with open_mcp_world(MemoryNet(), ONE, keys=KEYS) as world:
        with_approvals(world)
        session = await world.session("/mcp", key=ADA)
        for _ in range(2):
            notified = detail(
                await session.send("tools/call", {"name": "one.echo", "arguments": tricks, **tricks})
            )

        assert notified["code"] == "mcp_approval_required"
        assert world.net["one"].calls == []


async def test_where_an_approver_decides_nothing_is_elicited() -> None:
    strict = task("strict", default_server_ids=["one"], approval_in_place=False)
    async with open_mcp_world(MemoryNet(), BY_OTHERS, tasks=(strict,), keys=KEYS) as world:
        with_approvals(world)
        by_server = await call(world, SENT, secret=ADA)
        world.apply(servers={"one": ONE})
        by_task = await call(world, SENT, secret=ADA, path="/mcp/t/strict")
        session = await world.session("/mcp/t/strict", key=ADA, capabilities=CAN)
        in_session = await session.send("tools/call", SENT)

        codes = [detail(one)["code"] for one in (by_server, by_task, in_session)]
        assert codes == ["mcp_approval_required"] * 3


async def test_an_answer_counts_by_the_policy_of_the_moment() -> None:
    async with open_mcp_world(MemoryNet(), ONE, keys=KEYS) as world:
        approvals = with_approvals(world)
        first = await call(world, SENT, secret=ADA)
        world.apply(servers={"one": BY_OTHERS})
        after = detail(await call(world, again(SENT, first, ACCEPT), secret=ADA))
        world.apply(servers={"one": record("one", allowed_tools=("*",))})
        free = await call(world, again(SENT, first, ACCEPT), secret=ADA)

        assert after["code"] == "mcp_approval_required"
        assert [one.state for one in await approvals.list()] == ["pending"]
        assert passed(free)


async def test_who_was_asked_in_place_may_be_answered_for_by_others() -> None:
    async with open_mcp_world(MemoryNet(), ONE, keys=KEYS) as world:
        approvals = with_approvals(world)
        first = await call(world, SENT, secret=ADA)
        (waiting,) = await approvals.list()
        await agree(approvals, waiting.approval_id)
        withdrawn = detail(await call(world, again(SENT, first, DECLINE), secret=ADA))

        assert withdrawn["code"] == "mcp_approval_denied"
        assert world.net["one"].calls == []


async def test_a_server_that_asks_itself_does_so_after_the_person_agreed() -> None:
    theirs = {"action": "accept", "content": {"name": "Ada"}}
    async with open_mcp_world(modern_net(), ONE, keys=KEYS) as world:
        with_approvals(world)
        first = await call(world, CALL, secret=ADA)
        second = await call(world, again(CALL, first, ACCEPT), secret=ADA)
        last = await call(world, again(CALL, second, theirs), secret=ADA)

        assert question_in(first)
        assert list(second.json["result"]["inputRequests"]) == ["who"]
        assert json.loads(last.json["result"]["content"][0]["text"])["responses"] == {"who": theirs}
        assert len(world.net["one"].calls) == 2
    async with open_mcp_world(legacy_net(), ONE, keys=KEYS) as world:
        with_approvals(world)
        first = await call(world, CALL, secret=ADA)
        second = await call(world, again(CALL, first, ACCEPT), secret=ADA)
        last = await call(world, again(CALL, second, theirs), secret=ADA)

        assert json.loads(last.json["result"]["content"][0]["text"]) == theirs
        assert len(world.net["one"].calls) == 1


async def test_a_tool_that_is_found_is_asked_about_as_well() -> None:
    through = {"name": "call_tool", "arguments": {"name": "one.echo", "arguments": {"n": 1}}}
    async with open_mcp_world(MemoryNet(), ONE, keys=KEYS) as world:
        with_approvals(world)
        first = await call(world, through, secret=ADA, path="/mcp/find")
        last = await call(world, again(through, first, ACCEPT), secret=ADA, path="/mcp/find")

        assert '"n": 1' in question_in(first)["params"]["message"]
        assert passed(last)


async def test_who_goes_away_while_it_is_asked_leaves_the_question_to_others() -> None:
    async with open_mcp_world(MemoryNet(), ONE, keys=KEYS) as world:
        approvals: MemoryApprovals = with_approvals(world)
        session = await world.session("/mcp", key=ADA, capabilities=CAN)
        stream = session.begin("tools/call", SENT)
        await stream.event()
        await stream.leave()

        assert [one.state for one in await approvals.list()] == ["pending"]
        assert [(one.outcome, one.code) for one in world.audited] == [("cancelled", "cancelled")]


async def test_a_question_that_waits_is_asked_about_at_every_client_and_is_one() -> None:
    async with open_mcp_world(MemoryNet(), ONE, keys=KEYS) as world:
        approvals = with_approvals(world)
        responses = [await begin(world, SENT, secret=ADA).whole() for _ in range(2)]
        passes = await call(world, again(SENT, responses[1], ACCEPT), secret=ADA)
        late = await call(world, again(SENT, responses[0], ACCEPT), secret=ADA)

        assert passed(passes)
        assert detail(late)["code"] == "mcp_approval_required"
        assert [one.state for one in await approvals.list()] == ["pending", "used"]


async def change_definition(world: McpWorld) -> None:
    world.net["one"].tools = (definition("echo", description="now with another meaning"),)
    await world.gateway.servers.refresh("one")
    await asyncio.sleep(0)


async def take_tool_away(world: McpWorld) -> None:
    less = record("one", allowed_tools=("other",), approval_policy=ONE.approval_policy)
    world.apply(servers={"one": less})


async def narrow_key(world: McpWorld) -> None:
    world.apply(keys={"ada": key("ada", ADA, ceiling={"deny": ("echo",)})})


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (change_definition, "mcp_approval_required"),
        (take_tool_away, "unknown_tool"),
        (narrow_key, "unauthenticated"),
    ],
)
async def test_what_changed_while_a_person_was_asked_counts(
    change: Callable[[McpWorld], Awaitable[None]], expected: str
) -> None:
    """A session is asked while its call runs: by the time it answers, the call may be none any more."""
    async with open_mcp_world(MemoryNet(), ONE, keys=KEYS) as world:
        approvals = with_approvals(world)
        session = await world.session("/mcp", key=ADA, capabilities=CAN)
        stream = session.begin("tools/call", SENT)
        asked = await stream.event()
        await change(world)
        await session.respond(asked["id"], result=ACCEPT)
        ended = await stream.event()
        notified = ended["error"]["data"] if "error" in ended else ended["result"]["_meta"]["toolgate/error"]

        assert notified["code"] == expected
        assert world.net["one"].calls == []
        assert [one.state for one in await approvals.list()] == ["pending"]
