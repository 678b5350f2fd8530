"""`POST /v1/responses`: parsed, given its scope, and answered whole or as a stream.

The model's server must speak the Responses API itself: nothing is translated to chat completions.
"""

from dataclasses import replace

from toolgate.chat.declarations import check_other_tools
from toolgate.chat.responses.requests import has_ours
from toolgate.chat.responses_items import member_text
from toolgate.chat.responses_request import ResponsesRequest, parse_responses_request
from toolgate.errors import InvalidChat
from toolgate.gateway.chat.scope import ChatScope
from toolgate.model.raw import encode_raw
from toolgate.surfaces.http.parsing import parse_aside
from toolgate.surfaces.openai import passthrough
from toolgate.surfaces.openai.context import ChatParts
from toolgate.surfaces.openai.exchange import Exchange
from toolgate.surfaces.openai.responses_session import Memory, ResponsesConversation
from toolgate.surfaces.openai.responses_tools import DOOR, offer
from toolgate.surfaces.openai.wire import RESPONSES


class Responses:
    """Answers requests to the Responses API."""

    def __init__(self, parts: ChatParts) -> None:
        self._parts = parts
        self._memory = Memory()

    async def serve(self, exchange: Exchange) -> None:
        """One request. Raises a ToolgateError as long as nothing was sent."""
        request = await parse_aside(lambda _: parse_responses_request(exchange.body), exchange.request.body)
        request = self._continued(exchange, request)
        with self._parts.denials_recorded(exchange, door=DOOR):
            scope = self._parts.scope(exchange, request)
            check_other_tools(request.tools.other_kinds, scope.upstream.other_tools)
            with self._parts.counted(scope) as outcomes:
                outcomes.append(await self._serve(exchange, request, scope))

    async def _serve(self, exchange: Exchange, request: ResponsesRequest, scope: ChatScope) -> str:
        """Returns how it ended."""
        is_plain = not (request.tools.ours or scope.injects or has_ours(request.input))
        if scope.mode == "passthrough" or is_plain:
            return await self._forward(exchange, request, scope)
        return await self._converse(exchange, request, scope)

    def _continued(self, exchange: Exchange, request: ResponsesRequest) -> ResponsesRequest:
        """What the client continues, by the id that the model's server has for the last round of it."""
        previous = member_text(request.members, "previous_response_id")
        last = None if previous is None else self._memory.last_ids.get(exchange.principal.id, previous)
        if last is None:
            return request
        known = {"previous_response_id": encode_raw(last)}
        return replace(request, members={**request.members, **known}, sent={**request.sent, **known})

    async def _converse(self, exchange: Exchange, request: ResponsesRequest, scope: ChatScope) -> str:
        if request.is_background:
            raise InvalidChat("`background` cannot be used where tools are run here", param="background")
        offering = await offer(self._parts.gateway, scope, request) if scope.injects else None
        conversation = ResponsesConversation(
            self._parts, exchange, request=request, scope=scope, offering=offering, memory=self._memory
        )
        return await conversation.run()

    async def _forward(self, exchange: Exchange, request: ResponsesRequest, scope: ChatScope) -> str:
        """As it came, but for what is ours and the model's name; so does the answer."""
        members = {**request.sent, "model": encode_raw(scope.model)}
        return await passthrough.forward(exchange, members, scope=scope, parts=self._parts, api=RESPONSES)
