"""How nodes ask control about calls that a person must agree to."""

from dataclasses import replace
from typing import Any, Final

import grpc.aio
import pytest
from google.protobuf.message import Message

from tests.contract.approval_samples import ASKED
from tests.surfaces.grpc.grpc_world import GrpcWorld, open_grpc_world, refusal_of
from tests.surfaces.rest_world import secret_of
from toolgate.model.approvals import MAX_ARGUMENT_BYTES
from toolgate.proto import node_pb2
from toolgate.registry.approvals import DECLINED, ApprovalVerdict, ElicitedDecision
from toolgate.registry.replication.remote import CALL_TIMEOUT_S, A, RemoteServices

pytestmark = pytest.mark.anyio

SERVICE: Final = "toolgate.v1.NodeService"
ASK: Final = f"{SERVICE}/AskApproval"
DECIDE: Final = f"{SERVICE}/DecideApproval"
NEW: Final = "0123456789abcdef"


class Line:
    """A link to control, by a node's key."""

    def __init__(self, world: GrpcWorld) -> None:
        self._world = world

    async def call(
        self, method: str, request: Message, response: type[A], *, timeout_s: float = CALL_TIMEOUT_S
    ) -> A:
        found = await self._world.request(f"{SERVICE}/{method}", request, key=secret_of("node"))
        assert isinstance(found, response)
        return found


async def test_a_node_asks_waits_and_uses_an_approval_through_control() -> None:
    async with open_grpc_world() as world:
        approvals, approval_service = world.rest.store.approvals, RemoteServices(Line(world))
        first = await approval_service.request(ASKED, new_id=NEW)
        waiting = await approval_service.request(ASKED, new_id="f" * 16)
        kept = await approvals.get(NEW)
        await approvals.decide(NEW, is_approved=True, by="key:bob", reason="fine")
        passes = await approval_service.request(ASKED, new_id="e" * 16)
        after = await approval_service.request(replace(ASKED, round=1), new_id="d" * 16)

        assert kept is not None
        assert kept.question == ASKED
        assert first == ApprovalVerdict("asked", NEW, kept.expires_ms)
        assert waiting == first._replace(outcome="waiting")
        assert (passes.outcome, passes.approval_id) == ("granted", NEW)
        assert after.outcome == "granted"


async def test_a_node_hears_of_a_denial() -> None:
    async with open_grpc_world() as world:
        approval_service = RemoteServices(Line(world))
        await approval_service.request(ASKED, new_id=NEW)
        await world.rest.store.approvals.decide(NEW, is_approved=False, by="key:bob", reason="no")
        denied = await approval_service.request(ASKED, new_id="f" * 16)

        assert (denied.outcome, denied.reason) == ("denied", "no")


async def test_what_was_stated_in_place_at_a_node_is_decided_at_control_and_used() -> None:
    async with open_grpc_world() as world:
        approval_service = RemoteServices(Line(world))
        await approval_service.request(ASKED, new_id=NEW)
        strange = await approval_service.settle(
            replace(ASKED, principal="key:eve"), ElicitedDecision(NEW, True), new_id="e" * 16
        )
        passes = await approval_service.settle(ASKED, ElicitedDecision(NEW, True), new_id="f" * 16)
        replayed = await approval_service.settle(ASKED, ElicitedDecision(NEW, True), new_id="d" * 16)
        declined = await approval_service.settle(ASKED, ElicitedDecision("d" * 16, False), new_id="c" * 16)
        used = await world.rest.store.approvals.get(NEW)

        assert (strange.outcome, strange.approval_id) == ("asked", "e" * 16)
        assert (passes.outcome, passes.in_place) == ("granted", True)
        assert (replayed.outcome, replayed.in_place) == ("asked", False)
        assert (declined.outcome, declined.reason) == ("denied", DECLINED)
        assert used is not None
        assert (used.state, used.decided_by) == ("used", "key:ada")


async def test_a_node_is_shown_where_people_reach_the_console() -> None:
    async with open_grpc_world(console_url="https://control.example") as world:
        verdict = await RemoteServices(Line(world)).request(ASKED, new_id=NEW)

        assert verdict.console_url == "https://control.example"


@pytest.mark.parametrize("approval_id", ["", "../..", "A" * 16, "a" * 65])
async def test_an_id_that_is_none_decides_nothing(approval_id: str) -> None:
    async with open_grpc_world() as world:
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await RemoteServices(Line(world)).settle(ASKED, ElicitedDecision(approval_id, True), new_id=NEW)

        assert refusal_of(refused.value) == ("INVALID_ARGUMENT", "invalid_request")


@pytest.mark.parametrize(
    "fields",
    [
        {"new_id": ""},
        {"new_id": "../../etc"},
        {"principal": ""},
        {"principal": "key:ada\n"},
        {"task_id": "t" * 2_000},
        {"tool": "two words"},
        {"arguments_digest": "a" * 63},
        {"definition": "D" * 64},
        {"arguments": b"[]"},
        {"arguments": b'{"a":'},
        {"arguments": b"\xff"},
        {"arguments": b'{"a":"%b"}' % (b"x" * MAX_ARGUMENT_BYTES)},
    ],
    ids=range(12),
)
async def test_a_question_that_is_none_is_refused_and_not_kept(fields: dict[str, Any]) -> None:
    sent: dict[str, Any] = {
        "new_id": NEW,
        "principal": "key:ada",
        "server_id": "files",
        "tool": "delete",
        "arguments_digest": "a" * 64,
        "definition": "d" * 64,
        "arguments": b"{}",
    }
    async with open_grpc_world() as world:
        request = node_pb2.AskApprovalRequest(**sent | fields)
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await world.request(ASK, request, key=secret_of("node"))

        assert refusal_of(refused.value) == ("INVALID_ARGUMENT", "invalid_request")
        assert await world.rest.store.approvals.list() == []


async def test_an_answer_that_a_node_does_not_know_lets_nothing_pass() -> None:
    class Newer:
        async def call(self, _method: str, _request: Any, response: Any, *, timeout_s: float = 0) -> Any:
            return response(outcome="granted_by_committee", approval_id=NEW)

    approval_service = RemoteServices(Newer())

    assert (await approval_service.request(ASKED, new_id=NEW)).outcome == "waiting"
    assert (
        await approval_service.settle(ASKED, ElicitedDecision(NEW, True), new_id=NEW)
    ).outcome == "waiting"
