"""`POST /v1/chat/completions`: parsed, given its scope, and answered whole or as a stream."""

from dataclasses import replace
from functools import partial

from toolgate.chat.declarations import check_other_tools
from toolgate.chat.hidden_turns import splice
from toolgate.chat.legacy_functions import is_legacy, to_tools
from toolgate.chat.requests import ChatRequest, parse_chat_request
from toolgate.gateway.auth.identity import fingerprint_of
from toolgate.gateway.chat.scope import ChatScope
from toolgate.gateway.chat.session import Opening, check_single, offer
from toolgate.gateway.scope.caller import Trace
from toolgate.surfaces.http.parsing import parse_aside
from toolgate.surfaces.openai import passthrough
from toolgate.surfaces.openai.context import ChatParts
from toolgate.surfaces.openai.conversation import DOOR, Conversation
from toolgate.surfaces.openai.exchange import Exchange
from toolgate.telemetry.spans import trace_id_of


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
            filters = scope.mode == "passthrough" or scope.upstream.filter_undeclared_calls
            return await passthrough.serve(exchange, request, scope=scope, parts=self._parts, filters=filters)
        check_single(asked)
        view, offered = await offer(self._parts.gateway, asked, scope, door=DOOR)
        trace = Trace(DOOR, "", exchange.request_id, trace_id=trace_id_of(self._parts.gateway.tracing))
        opening = Opening(request=asked, scope=scope, offered=offered, trace=trace)
        return await Conversation(self._parts, exchange, opening, view=view, is_legacy=is_old).run()

    async def _whole(self, exchange: Exchange, request: ChatRequest) -> ChatRequest:
        """With what was hidden of earlier turns back in its place."""
        open_turn = partial(self._parts.turns.open, principal_id=fingerprint_of(exchange.principal))
        spliced = await parse_aside(lambda _: splice(request.messages, open_turn), exchange.request.body)
        return replace(request, messages=spliced)
