"""`GET /v1/models`: what the upstreams serve, as one list."""

import asyncio
from collections.abc import Sequence
from typing import Final

import msgspec

from toolgate.errors import UnknownModel
from toolgate.model.raw import Members
from toolgate.surfaces.openai.context import ChatParts
from toolgate.surfaces.openai.exchange import Exchange

PATIENCE_S: Final = 10.0
"""For the whole list. Each upstream has less, and is left out after that."""


class ModelLists:
    """Answers requests for models."""

    def __init__(self, parts: ChatParts) -> None:
        self._parts = parts

    async def serve(self, exchange: Exchange) -> None:
        """All of them, or the one that the path names."""
        upstreams = self._parts.gateway.snapshot.chat_upstreams
        enabled = [one for _, one in sorted(upstreams.items()) if one.enabled]
        deadline_s = asyncio.get_running_loop().time() + PATIENCE_S
        found = await self._parts.models.models(enabled, deadline_s=deadline_s)
        wanted = exchange.target.rest
        answer = _only(found, wanted) if wanted else {"object": "list", "data": found}
        exchange.responder.send(200, msgspec.json.encode(answer), exchange.headers)


def _only(found: Sequence[Members], model_id: str) -> Members:
    for one in found:
        if msgspec.json.decode(one["id"]) == model_id:
            return one
    raise UnknownModel(f"there is no model `{model_id[:200]}`")
