"""How nodes draw on budgets over time, at control."""

from typing import Any, Final

import grpc.aio
import pytest
from google.protobuf.message import Message

from tests.surfaces.grpc.grpc_world import GrpcWorld, open_grpc_world, refusal_of
from tests.surfaces.rest_world import secret_of
from toolgate.errors import ControlUnavailable
from toolgate.model.principals import MAX_LEASE_REQUESTS, MAX_TOKENS, LeaseRequest, QuotaHolder
from toolgate.proto import node_pb2
from toolgate.registry.replication.remote import CALL_TIMEOUT_S, A, RemoteServices

pytestmark = pytest.mark.anyio

SERVICE: Final = "toolgate.v1.NodeService"
SPEND: Final = f"{SERVICE}/Spend"
ADA: Final = QuotaHolder("key", "ada")


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


class Mute:
    """A control that says too little."""

    async def call(self, _method: str, _request: Message, response: Any, *, timeout_s: float = 0.0) -> Any:
        return response()


async def test_a_node_draws_returns_and_reports_through_control() -> None:
    async with open_grpc_world() as world:
        bank, spending = RemoteServices(Line(world)), world.rest.store.spending
        calls, tokens = await bank.draw(
            [LeaseRequest(ADA, "calls_per_day", 100), LeaseRequest(ADA, "tokens_per_day", 5, spent=9)]
        )
        back = LeaseRequest(ADA, "calls_per_day", 100, returned=4, window_ms=calls.window_ms)
        returned = (await bank.draw([back]))[0]
        used = {one.budget: one.used for one in await spending.usage()}

        assert (calls.amount, tokens.amount, returned.amount) == (10, -4, 0)
        assert (calls.window_ms % 86_400_000, 0 < calls.left_ms <= 86_400_000) == (0, True)
        assert used == {"calls_per_day": 6, "tokens_per_day": 9}


@pytest.mark.parametrize(
    "wrong",
    [
        pytest.param({"kind": "node"}, id="no kind of holder"),
        pytest.param({"id": ""}, id="no holder"),
        pytest.param({"id": "a" * 65}, id="no id"),
        pytest.param({"id": "a\nb"}, id="no name"),
        pytest.param({"budget": "calls_per_year"}, id="no budget"),
        pytest.param({"limit": 0}, id="no limit"),
        pytest.param({"limit": MAX_TOKENS + 1}, id="a limit past all others"),
        pytest.param({"spent": 2**63}, id="more than can be spent"),
        pytest.param({"returned": 2**63}, id="more than can be returned"),
    ],
)
async def test_what_is_no_draw_is_refused_and_counts_nothing(wrong: dict[str, Any]) -> None:
    """BUD-7"""
    right: dict[str, Any] = {"kind": "key", "id": "ada", "budget": "calls_per_day", "limit": 9}
    request = node_pb2.SpendRequest(draws=[node_pb2.Draw(**right), node_pb2.Draw(**{**right, **wrong})])
    async with open_grpc_world() as world:
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await world.request(SPEND, request, key=secret_of("node"))

        assert refusal_of(refused.value) == ("INVALID_ARGUMENT", "invalid_request")
        assert await world.rest.store.spending.usage() == []


async def test_a_request_of_too_many_draws_is_refused() -> None:
    draw = node_pb2.Draw(kind="key", id="ada", budget="calls_per_day", limit=9)
    async with open_grpc_world() as world:
        request = node_pb2.SpendRequest(draws=[draw] * (MAX_LEASE_REQUESTS + 1))
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await world.request(SPEND, request, key=secret_of("node"))

        assert refusal_of(refused.value) == ("INVALID_ARGUMENT", "invalid_request")


async def test_an_answer_without_what_was_asked_for_grants_nothing() -> None:
    with pytest.raises(ControlUnavailable):
        await RemoteServices(Mute()).draw([LeaseRequest(ADA, "calls_per_day", 100)])
