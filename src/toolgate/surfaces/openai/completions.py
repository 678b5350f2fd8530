"""`POST /v1/chat/completions`: parsed, given its scope, and answered whole or as a stream."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial

import msgspec

from toolgate.chat.hidden import splice
from toolgate.chat.injection import inject
from toolgate.chat.requests import ChatRequest, parse_chat_request
from toolgate.errors import InvalidChat, PolicyDenied, ToolgateError
from toolgate.gateway.chat_scope import ChatScope, chat_scope, tool_table
from toolgate.surfaces.http.intake import parse_aside
from toolgate.surfaces.openai.conversation import DOOR, Conversation
from toolgate.surfaces.openai.exchange import Exchange
from toolgate.surfaces.openai.parts import ChatParts


class Completions:
    """Answers requests for completions."""

    def __init__(self, parts: ChatParts) -> None:
        self._parts = parts

    async def serve(self, exchange: Exchange) -> None:
        """One request. Raises a ToolgateError as long as nothing was sent."""
        request = await parse_aside(lambda _: parse_chat_request(exchange.body), exchange.request.body)
        open_turn = partial(self._parts.turns.open, principal_id=exchange.principal.id)
        request = replace(request, messages=splice(request.messages, open_turn))
        scope = self._scope(exchange, request)
        request = request.asking(scope.model)
        with counted(self._parts, scope) as outcomes:
            conversation = await self._begin(exchange, request, scope)
            outcomes.append(await conversation.run())

    def _scope(self, exchange: Exchange, request: ChatRequest) -> ChatScope:
        try:
            return chat_scope(
                self._parts.gateway,
                exchange.principal,
                task_id=exchange.task_id,
                model=request.model,
                params=request.params,
                asked=request.asked,
            )
        except PolicyDenied as exc:
            self._parts.gateway.record_refused(exchange.principal, exc.code, door=DOOR)
            raise

    async def _begin(self, exchange: Exchange, request: ChatRequest, scope: ChatScope) -> Conversation:
        gateway = self._parts.gateway
        if msgspec.json.decode(request.members.get("n", b"1")) not in (1, None):
            raise InvalidChat("'n' must be 1 where tools are run.", param="n")
        try:
            view = await gateway.settled_view(scope.caller)
        except PolicyDenied as exc:
            gateway.record_refused(exchange.principal, exc.code, door=DOOR)
            raise
        for injection in view.injections:
            gateway.metrics.injections[injection] += 1
        table = tool_table(view, gateway.snapshot, scope.upstream.name_profile)
        return Conversation(
            self._parts,
            exchange,
            request=request,
            scope=scope,
            view=view,
            offered=inject(table, request.functions),
        )


@contextmanager
def counted(parts: ChatParts, scope: ChatScope) -> Iterator[list[str]]:
    """Count one request by how it ends: what is put into the list, or what is raised."""
    outcomes: list[str] = []
    outcome = "cancelled"
    try:
        yield outcomes
        outcome = outcomes[-1] if outcomes else "forwarded"
    except ToolgateError as exc:
        outcome = exc.code
        raise
    finally:
        parts.gateway.metrics.chats[scope.upstream.upstream_id, outcome] += 1
