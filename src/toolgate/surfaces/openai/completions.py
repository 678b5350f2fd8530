"""`POST /v1/chat/completions`: parsed, given its scope, and answered whole or as a stream."""

from dataclasses import replace
from functools import partial

import msgspec

from toolgate.chat.declarations import check_other_tools
from toolgate.chat.hidden import splice
from toolgate.chat.injection import Injection, inject
from toolgate.chat.legacy_functions import is_legacy, to_tools
from toolgate.chat.requests import ChatRequest, check_choice, parse_chat_request
from toolgate.errors import InvalidChat
from toolgate.gateway.chat_scope import ChatScope, tool_table
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
        with self._parts.denials_recorded(exchange, door=DOOR):
            scope = self._parts.scope(exchange, request)
            check_other_tools(request.declared.other_kinds, scope.upstream.other_tools)
            request = await self._whole(exchange, request.asking(scope.model))
            with self._parts.counted(scope) as outcomes:
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

    async def _offer(self, request: ChatRequest, scope: ChatScope) -> tuple[View, Injection]:
        """The caller's view, and what of it the model is offered."""
        gateway = self._parts.gateway
        if msgspec.json.decode(request.members.get("n", b"1")) not in (1, None):
            raise InvalidChat("'n' must be 1 where tools are run.", param="n")
        view = await gateway.settled_view(scope.caller)
        gateway.metrics.injections.update(view.injections)
        table = tool_table(view, gateway.snapshot, scope.upstream.name_profile)
        offered = inject(table, request.declared.own)
        if not request.declared.other_kinds:
            check_choice(request.choice, {*request.declared.own, *offered.declared})
        return view, offered
