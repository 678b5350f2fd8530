"""Passthrough: the gateway offers the model nothing, runs nothing, and connects to no MCP server.

Bodies and events pass byte for byte, with tools of every type. If responses are filtered, the client gets no
call of a function that it has not declared. If nothing else remains, the model is prompted once more, for
text.
"""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from typing import Final

import msgspec

from toolgate.chat.call_filter import EmptyCompletion, StreamContinuation, StreamFilter, filter_completion
from toolgate.chat.client_tools import ClientTools
from toolgate.chat.requests import disable_tools
from toolgate.errors import ModelTimedOut, ModelUnavailable, ToolgateError
from toolgate.gateway.chat.scope import ChatScope
from toolgate.gateway.chat.session import ChatContext
from toolgate.model.json_text import Members
from toolgate.surfaces.http.parsing import parse_off_loop
from toolgate.surfaces.openai.exchange import DONE, ChatEventStream, ChatExchange, ModelApi, encode_chunk
from toolgate.upstream.models.client import ModelResponse
from toolgate.upstream.models.endpoint import DONE as DONE_DATA
from toolgate.upstream.models.endpoint import ModelEvent, ModelEventStream

FORWARDED: Final = "forwarded"


async def forward(
    exchange: ChatExchange,
    members: Members,
    scope: ChatScope,
    *,
    api: ModelApi,
    declared: ClientTools | None = None,
) -> str:
    """Forward `members`, and pass on the response with only those calls that are `declared` (None: all).

    Returns how it ended. Raises a ToolgateError only before the first byte is sent.
    """
    call = _PassthroughCall(exchange, members, scope, api)
    try:
        await call.run(declared)
    except ToolgateError as exc:
        if not call.events.has_begun:
            raise
        await call.events.put(api.encode_broken(exc))
        call.events.end()
        return exc.code
    return FORWARDED


class _PassthroughCall:
    """One request on its way to the model's server, and the response on its way back."""

    def __init__(self, exchange: ChatExchange, members: Members, scope: ChatScope, api: ModelApi) -> None:
        services = exchange.services
        self._exchange = exchange
        self._members = members
        self._context = ChatContext.begin(services.gateway, services.models, scope, exchange.trace("chat"))
        self._api = api
        self.events = ChatEventStream(exchange)

    async def run(self, declared: ClientTools | None) -> None:
        """Forward within the deadline, so that a client that stops reading frees its slot at the model's
        server."""
        try:
            async with asyncio.timeout_at(self._context.deadline_s):
                await self._forward(declared)
        except TimeoutError as exc:
            raise ModelTimedOut("the response was incomplete at the end of the time limit") from exc

    async def _forward(self, declared: ClientTools | None) -> None:
        is_unchanged = self._members == self._exchange.body
        body = self._exchange.request.body if is_unchanged else msgspec.json.encode(self._members)
        kept = None if declared is None else StreamFilter(declared)
        async with self._request(body) as response:
            if isinstance(response, ModelEventStream):
                await self._pass_events(response, kept)
        # The slot is released before the model is prompted again: one request never takes two slots of its
        # upstream.
        if isinstance(response, ModelResponse):
            await self._pass_whole(response, declared)
            return
        if kept is not None and kept.empty_choices:
            await self._continue(StreamContinuation(kept))
        if not self.events.has_begun:
            raise ModelUnavailable("the model's server ended its response before the first byte")
        self.events.end()

    @asynccontextmanager
    async def _request(self, body: bytes) -> AsyncIterator[ModelEventStream | ModelResponse]:
        began_s, context = time.perf_counter(), self._context
        request = context.build_request(self._api.path, body, may_retry=not self.events.has_begun)
        async with context.models.stream(request) as response:
            yield response
        context.measure_model(began_s)

    def _request_text(self) -> AbstractAsyncContextManager[ModelEventStream | ModelResponse]:
        return self._request(msgspec.json.encode(disable_tools(self._members)))

    async def _pass_whole(self, response: ModelResponse, declared: ClientTools | None) -> None:
        body: bytes | EmptyCompletion = response.body
        if declared is not None:
            body = await parse_off_loop(partial(filter_completion, declared=declared), response.body)
        if isinstance(body, EmptyCompletion):
            async with self._request_text() as second:
                if isinstance(second, ModelEventStream):
                    raise _mixed_response_kinds()
            body = await parse_off_loop(body.complete, second.body)
        kind = (b"content-type", response.headers.get(b"content-type", b"application/json"))
        self._exchange.responder.send(response.status, body, [kind, *self._exchange.headers])

    async def _pass_events(self, events: ModelEventStream, kept: StreamFilter | None) -> None:
        async for event in events:
            if kept is None or event.data is None:
                await self.events.put(event.raw)
            elif event.data == DONE_DATA:
                # Not complete if the response is continued.
                await self.events.put(b"" if kept.empty_choices else event.raw)
            else:
                await self._pass_event(event, kept.feed(event.data))

    async def _continue(self, rest: StreamContinuation) -> None:
        async with self._request_text() as events:
            if isinstance(events, ModelResponse):
                raise _mixed_response_kinds()
            async for event in events:
                if event.data is None:
                    await self.events.put(event.raw)
                elif event.data != DONE_DATA:
                    await self._pass_event(event, rest.feed(event.data))
        last = rest.end()
        await self.events.put((b"" if last is None else encode_chunk(last)) + DONE)

    async def _pass_event(self, event: ModelEvent, data: bytes | None) -> None:
        if data is event.data:
            await self.events.put(event.raw)
        elif data is not None:
            await self.events.put(encode_chunk(data))


def _mixed_response_kinds() -> ModelUnavailable:
    return ModelUnavailable("the model's server sent a response as a stream, and another one whole")
