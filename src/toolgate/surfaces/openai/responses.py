"""`POST /v1/responses`: parsed, given its scope, and answered whole or as a stream.

The model's server must speak the Responses API itself: nothing is translated to chat completions.
"""

import asyncio
from dataclasses import replace

import msgspec

from toolgate.chat.responses_input import has_ours
from toolgate.chat.responses_items import member_text
from toolgate.chat.responses_request import ResponsesRequest, parse_responses_request
from toolgate.errors import InvalidChat, ToolgateError
from toolgate.gateway.chat_scope import ChatScope, chat_scope
from toolgate.model.raw import encode_raw
from toolgate.surfaces.http.intake import parse_aside
from toolgate.surfaces.openai.completions import counted, denials_recorded
from toolgate.surfaces.openai.event_stream import EventStream
from toolgate.surfaces.openai.exchange import Exchange
from toolgate.surfaces.openai.parts import ChatParts
from toolgate.surfaces.openai.passthrough import FORWARDED
from toolgate.surfaces.openai.responses_conversation import Memory, ResponsesConversation
from toolgate.surfaces.openai.responses_offers import DOOR, offer
from toolgate.surfaces.openai.responses_stream import encode_error
from toolgate.surfaces.openai.responses_talk import PATH
from toolgate.upstream.models.client import ModelAnswer


class Responses:
    """Answers requests to the Responses API."""

    def __init__(self, parts: ChatParts) -> None:
        self._parts = parts
        self._memory = Memory()

    async def serve(self, exchange: Exchange) -> None:
        """One request. Raises a ToolgateError as long as nothing was sent."""
        request = await parse_aside(lambda _: parse_responses_request(exchange.body), exchange.request.body)
        request = self._continued(exchange, request)
        with denials_recorded(self._parts, exchange, door=DOOR):
            scope = chat_scope(
                self._parts.gateway,
                exchange.principal,
                task_id=exchange.task_id,
                model=request.model,
                params=request.params,
                asked=request.asked,
            )
            if request.tools.has_other_kinds and scope.upstream.other_tools == "refuse":
                raise InvalidChat("this model is offered functions only", param="tools")
            with counted(self._parts, scope) as outcomes:
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
        is_as_sent = members == exchange.body
        body = exchange.request.body if is_as_sent else msgspec.json.encode(members)
        deadline_s = asyncio.get_running_loop().time() + scope.budgets.wall_clock_ms / 1e3
        stream = EventStream(exchange)
        try:
            async with self._parts.models.stream(
                scope.upstream, PATH, body, deadline_s=deadline_s, may_retry=True
            ) as answer:
                if isinstance(answer, ModelAnswer):
                    exchange.responder.send(answer.status, answer.body, exchange.headers)
                    return FORWARDED
                async for event in answer:
                    await stream.put(event.raw)
        except ToolgateError as exc:
            if not stream.has_begun:
                raise
            await stream.put(encode_error(exc))
            stream.end()
            return exc.code
        stream.end()
        return FORWARDED
