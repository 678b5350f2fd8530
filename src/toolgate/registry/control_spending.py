"""Budgets over time as a node draws on them: through control.

An answer that is lost may have granted calls that are then made by nobody, and tokens that are said again are
counted again: rather that than more than the limit.
"""

from collections.abc import Sequence
from typing import Protocol

from toolgate.errors import ControlUnavailable
from toolgate.model.quotas import Draw, Drawn
from toolgate.proto import node_pb2


class SpendingLink(Protocol):
    """Control, as far as budgets go. What goes wrong is a ToolgateError."""

    async def spend(self, request: node_pb2.SpendRequest) -> node_pb2.SpendResponse:
        """What control grants."""


class ControlBank:
    """A `Bank` over a link to control."""

    def __init__(self, link: SpendingLink) -> None:
        self._link = link

    async def draw(self, draws: Sequence[Draw]) -> Sequence[Drawn]:
        sent = [
            node_pb2.Draw(
                kind=one.holder.kind,
                id=one.holder.id,
                budget=one.budget,
                limit=one.limit,
                spent=one.spent,
                returned=one.returned,
                window_ms=one.window_ms,
            )
            for one in draws
        ]
        answer = await self._link.spend(node_pb2.SpendRequest(draws=sent))
        if len(answer.drawn) != len(draws):
            raise ControlUnavailable("control does not say what it grants")
        return [Drawn(one.amount, one.window_ms, one.left_ms) for one in answer.drawn]
