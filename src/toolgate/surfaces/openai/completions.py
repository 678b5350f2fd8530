"""`POST /v1/chat/completions`: parsed, given its scope, and answered whole or as a stream."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial

import msgspec

from toolgate.chat.forwarding import check_other_tools
from toolgate.chat.hidden import splice
from toolgate.chat.injection import Injection, inject
from toolgate.chat.legacy_functions import is_legacy, to_tools
from toolgate.chat.requests import ChatRequest, check_choice, parse_chat_request
from toolgate.errors import InvalidChat, PolicyDenied, ToolgateError
from toolgate.gateway.chat_scope import ChatScope, chat_scope, tool_table
from toolgate.gateway.view import View
from toolgate.surfaces.http.intake import parse_aside
from toolgate.surfaces.openai import passthrough
from toolgate.surfaces.openai.conversation import DOOR, Conversation, Opening
from toolgate.surfaces.openai.exchange import Exchange
from toolgate.surfaces.openai.parts import ChatParts


class Completions:
    """Answers requests for completions."""

    def __init__(self, parts: ChatParts) -> None:
        self._parts = parts

    async def serve(self, exchange: Exchange) -> None:
        """One request. Raises a ToolgateError as long as nothing was sent."""
        request = await parse_aside(lambda _: parse_chat_request(exchange.body), exchange.request.body)
        with denials_recorded(self._parts, exchange, door=DOOR):
            scope = self._scope(exchange, request)
            check_other_tools(request, scope.upstream.other_tools)
            request = await self._whole(exchange, request.asking(scope.model))
            with counted(self._parts, scope) as outcomes:
                outcomes.append(await self._serve(exchange, request, scope))

    async def _serve(self, exchange: Exchange, request: ChatRequest, scope: ChatScope) -> str:
        """Returns how it ended."""
        is_old = is_legacy(request)
        asked = await self._whole(exchange, to_tools(request)) if scope.injects and is_old else request
        if not scope.injects or asked.choice.kind == "none":
            filters = scope.mode == "passthrough"
            return await passthrough.serve(exchange, request, scope=scope, parts=self._parts, filters=filters)
        view, offered = await self._offer(asked, scope)
        opening = Opening(request=asked, is_legacy=is_old, scope=scope, view=view, offered=offered)
        return await Conversation(self._parts, exchange, opening).run()

    async def _whole(self, exchange: Exchange, request: ChatRequest) -> ChatRequest:
        """With what was hidden of earlier turns back in its place."""
        open_turn = partial(self._parts.turns.open, principal_id=exchange.principal.id)
        spliced = await parse_aside(lambda _: splice(request.messages, open_turn), exchange.request.body)
        return replace(request, messages=spliced)

    def _scope(self, exchange: Exchange, request: ChatRequest) -> ChatScope:
        return chat_scope(
            self._parts.gateway,
            exchange.principal,
            task_id=exchange.task_id,
            model=request.model,
            params=request.params,
            asked=request.asked,
        )

    async def _offer(self, request: ChatRequest, scope: ChatScope) -> tuple[View, Injection]:
        """The caller's view, and what of it the model is offered."""
        gateway = self._parts.gateway
        if msgspec.json.decode(request.members.get("n", b"1")) not in (1, None):
            raise InvalidChat("'n' must be 1 where tools are run.", param="n")
        view = await gateway.settled_view(scope.caller)
        for injection in view.injections:
            gateway.metrics.injections[injection] += 1
        table = tool_table(view, gateway.snapshot, scope.upstream.name_profile)
        offered = inject(table, request.functions)
        if not request.other_tools:
            check_choice(request.choice, {*request.functions, *offered.declared})
        return view, offered


@contextmanager
def denials_recorded(parts: ChatParts, exchange: Exchange, *, door: str) -> Iterator[None]:
    """Whoever asks for more than it may have is on record."""
    try:
        yield
    except PolicyDenied as exc:
        parts.gateway.record_refused(exchange.principal, exc.code, door=door)
        raise


@contextmanager
def counted(parts: ChatParts, scope: ChatScope) -> Iterator[list[str]]:
    """Count one request by how it ends: what is put into the list, or what is raised."""
    outcomes: list[str] = []
    outcome = "cancelled"
    try:
        yield outcomes
        outcome = outcomes[-1]
    except ToolgateError as exc:
        outcome = exc.code
        raise
    finally:
        parts.gateway.metrics.chats[scope.upstream.upstream_id, outcome] += 1
