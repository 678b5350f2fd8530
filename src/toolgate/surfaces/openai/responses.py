"""`POST /v1/responses`: parsed, given its scope, and answered whole or as a stream.

The model's server must speak the Responses API itself: nothing is translated to chat completions.
"""

from dataclasses import replace

from toolgate.chat.client_tools import check_other_tools
from toolgate.chat.responses.output import member_text
from toolgate.chat.responses.requests import ResponsesRequest, has_gateway_items, parse_responses_request
from toolgate.errors import InvalidChat
from toolgate.gateway.chat.scope import ChatScope
from toolgate.model.json_text import encode_raw
from toolgate.surfaces.http.parsing import parse_off_loop
from toolgate.surfaces.openai import passthrough
from toolgate.surfaces.openai.context import ChatExchange, ChatServices
from toolgate.surfaces.openai.responses_session import ResponsesMemory, ResponsesSession
from toolgate.surfaces.openai.responses_tools import RESPONSES_DOOR, offer_scope
from toolgate.surfaces.openai.wire import RESPONSES


class ResponsesHandler:
    """Answers requests to the Responses API."""

    def __init__(self, parts: ChatServices) -> None:
        self._parts = parts
        self._memory = ResponsesMemory()

    async def serve(self, exchange: ChatExchange) -> None:
        """One request. Raises a ToolgateError as long as nothing was sent."""
        request = await parse_off_loop(
            lambda _: parse_responses_request(exchange.body), exchange.request.body
        )
        request = self._continued(exchange, request)
        with self._parts.record_denials(exchange, door=RESPONSES_DOOR):
            scope = self._parts.scope(exchange, request)
            check_other_tools(request.tools.other_kinds, scope.upstream.other_tools)
            with self._parts.counted(scope) as outcomes:
                outcomes.append(await self._serve(exchange, request, scope))

    async def _serve(self, exchange: ChatExchange, request: ResponsesRequest, scope: ChatScope) -> str:
        """Returns how it ended."""
        is_plain = not (request.tools.ours or scope.injects or has_gateway_items(request.input))
        if scope.mode == "passthrough" or is_plain:
            return await self._forward(exchange, request, scope)
        return await self._converse(exchange, request, scope)

    def _continued(self, exchange: ChatExchange, request: ResponsesRequest) -> ResponsesRequest:
        """What the client continues, by the id that the model's server has for the last round of it."""
        previous = member_text(request.members, "previous_response_id")
        last = None if previous is None else self._memory.last_ids.get(exchange.principal.id, previous)
        if last is None:
            return request
        known = {"previous_response_id": encode_raw(last)}
        return replace(request, members={**request.members, **known}, sent={**request.sent, **known})

    async def _converse(self, exchange: ChatExchange, request: ResponsesRequest, scope: ChatScope) -> str:
        if request.is_background:
            raise InvalidChat("`background` cannot be used where tools are run here", param="background")
        offering = await offer_scope(self._parts.gateway, scope, request) if scope.injects else None
        conversation = ResponsesSession(
            self._parts, exchange, request=request, scope=scope, offering=offering, memory=self._memory
        )
        return await conversation.run()

    async def _forward(self, exchange: ChatExchange, request: ResponsesRequest, scope: ChatScope) -> str:
        """As it came, but for what is ours and the model's name; so does the answer."""
        members = {**request.sent, "model": encode_raw(scope.model)}
        return await passthrough.forward(exchange, members, scope=scope, parts=self._parts, api=RESPONSES)
