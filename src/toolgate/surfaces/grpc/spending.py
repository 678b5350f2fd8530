"""How nodes draw on budgets over time. A node is trusted to know the limits: it has them from the records."""

from typing import Final, cast, get_args

from toolgate.errors import InvalidRecord, InvalidRequest
from toolgate.govern.control import Control
from toolgate.model.names import parse_task_id
from toolgate.model.quotas import MAX_DRAWS, MAX_TOKENS, BudgetName, Draw, Holder, HolderKind
from toolgate.proto import node_pb2
from toolgate.surfaces.grpc.rpc import Call, Rpc

_MAX_MS: Final = 2**53


async def spend(control: Control, call: Call[node_pb2.SpendRequest]) -> node_pb2.SpendResponse:
    """Grant calls, count tokens."""
    if len(call.request.draws) > MAX_DRAWS:
        raise InvalidRequest(f"at most {MAX_DRAWS} draws go into one request")
    drawn = await control.store.spending.draw([parse_draw(one) for one in call.request.draws])
    return node_pb2.SpendResponse(
        drawn=[
            node_pb2.Drawn(amount=one.amount, window_ms=one.window_ms, left_ms=one.left_ms) for one in drawn
        ]
    )


def parse_draw(sent: node_pb2.Draw) -> Draw:
    """Raises InvalidRequest."""
    if sent.kind not in get_args(HolderKind) or sent.budget not in get_args(BudgetName):
        raise InvalidRequest("a draw does not say of which budget of whom it is")
    if not 1 <= sent.limit <= MAX_TOKENS or max(sent.spent, sent.returned) > MAX_TOKENS:
        raise InvalidRequest(f"a draw is of 1 to {MAX_TOKENS}")
    try:
        holder = Holder(cast("HolderKind", sent.kind), parse_task_id(sent.id))
    except InvalidRecord as exc:
        raise InvalidRequest(str(exc)) from exc
    return Draw(
        holder=holder,
        budget=cast("BudgetName", sent.budget),
        limit=sent.limit,
        spent=sent.spent,
        returned=sent.returned,
        window_ms=min(sent.window_ms, _MAX_MS),
    )


def spending_rpcs() -> tuple[Rpc, ...]:
    """The row of the service."""
    return (Rpc(service="toolgate.v1.NodeService", method="Spend", roles=("node",), handler=spend),)
