"""Requests that are passed on: nothing is offered to the model, nothing is run, no connection is opened.

Bodies and events pass as they come, tools of every type in their shape. Where answers are filtered, no call
reaches the client that it has not declared; if nothing else remains the model is asked once more, for text.
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
from toolgate.chat.requests import ChatRequest, build_forwarded, disable_tools
from toolgate.errors import ModelTimedOut, ModelUnavailable, ToolgateError
from toolgate.gateway.chat.scope import ChatScope
from toolgate.gateway.chat.session import meter_models
from toolgate.model.json_text import Members
from toolgate.surfaces.http.parsing import parse_off_loop
from toolgate.surfaces.openai.context import ChatExchange, ChatServices
from toolgate.surfaces.openai.wire import CHAT, DONE, ChatEventStream, ModelApi, encode_chunk
from toolgate.upstream.models.client import ModelEventStream, ModelResponse
from toolgate.upstream.models.streams import DONE as DONE_DATA
from toolgate.upstream.models.streams import ModelEvent

FORWARDED: Final = "forwarded"
_TYPE: Final = b"content-type"
_JSON: Final = b"application/json"


async def forward_completion(
    exchange: ChatExchange, request: ChatRequest, *, scope: ChatScope, parts: ChatServices, filters: bool
) -> str:
    """Answer a request by what the model's server answers; returns how that ended.

    `request` is the one in `exchange`, with the messages and the model's name as that server is to get them.
    Raises a ToolgateError as long as nothing was sent.
    """
    members = await parse_off_loop(lambda _: build_forwarded(exchange.body, request), exchange.request.body)
    declared = request.declared if filters else None
    return await forward(exchange, members, scope=scope, parts=parts, api=CHAT, declared=declared)


async def forward(
    exchange: ChatExchange,
    members: Members,
    *,
    scope: ChatScope,
    parts: ChatServices,
    api: ModelApi,
    declared: ClientTools | None = None,
) -> str:
    """Pass on what comes of `members`, with no calls but of what is `declared`; with all where that is None.

    Returns how it ended. Raises a ToolgateError as long as nothing was sent.
    """
    passing = _PassthroughCall(exchange, members, scope=scope, parts=parts, path=api.path)
    try:
        await passing.run(declared)
    except ToolgateError as exc:
        if not passing.events.has_begun:
            raise
        await passing.events.put(api.encode_broken(exc))
        exchange.responder.end()
        return exc.code
    return FORWARDED


class _PassthroughCall:
    """One request on its way to the model's server, and the answer on its way back."""

    def __init__(
        self, exchange: ChatExchange, members: Members, *, scope: ChatScope, parts: ChatServices, path: str
    ) -> None:
        self._exchange = exchange
        self._members = members
        self._upstream = scope.upstream
        self._parts = parts
        self._models = meter_models(parts.gateway, parts.models, scope.caller)
        self._path = path
        self._deadline_s = scope.deadline_s()
        self.events = ChatEventStream(exchange)

    async def run(self, declared: ClientTools | None) -> None:
        """Within its time: a client that does not read on holds no place at the model's server after that."""
        try:
            async with asyncio.timeout_at(self._deadline_s):
                await self._run(declared)
        except TimeoutError as exc:
            raise ModelTimedOut("the answer was not passed on within the time of the request") from exc

    async def _run(self, declared: ClientTools | None) -> None:
        is_as_sent = self._members == self._exchange.body
        body = self._exchange.request.body if is_as_sent else msgspec.json.encode(self._members)
        kept = None if declared is None else StreamFilter(declared)
        async with self._ask(body) as answer:
            if isinstance(answer, ModelEventStream):
                await self._pass_events(answer, kept)
        # Left before the model is asked again: one request never takes two of the places that there are.
        if isinstance(answer, ModelResponse):
            await self._pass_whole(answer, declared)
        else:
            if kept is not None and kept.unanswered:
                await self._continue(StreamContinuation(kept))
            if not self.events.has_begun:
                raise ModelUnavailable("the model's server ended its answer before it had begun")
            self._exchange.responder.end()

    @asynccontextmanager
    async def _ask(self, body: bytes) -> AsyncIterator[ModelEventStream | ModelResponse]:
        began_s = time.perf_counter()
        async with self._models.stream(
            self._upstream, self._path, body, deadline_s=self._deadline_s, may_retry=not self.events.has_begun
        ) as answer:
            yield answer
        latency = self._parts.gateway.metrics.model_latency(self._upstream.upstream_id)
        latency.add((time.perf_counter() - began_s) * 1e3)

    def _ask_for_text(self) -> AbstractAsyncContextManager[ModelEventStream | ModelResponse]:
        return self._ask(msgspec.json.encode(disable_tools(self._members)))

    async def _pass_whole(self, answer: ModelResponse, declared: ClientTools | None) -> None:
        body: bytes | EmptyCompletion = answer.body
        if declared is not None:
            body = await parse_off_loop(partial(filter_completion, declared=declared), answer.body)
        if isinstance(body, EmptyCompletion):
            async with self._ask_for_text() as second:
                if isinstance(second, ModelEventStream):
                    raise _mixed_response_kinds()
            body = await parse_off_loop(body.complete, second.body)
        kind = answer.headers.get(_TYPE, _JSON)
        self._exchange.responder.send(answer.status, body, [(_TYPE, kind), *self._exchange.headers])

    async def _pass_events(self, events: ModelEventStream, kept: StreamFilter | None) -> None:
        async for event in events:
            if kept is None or event.data is None:
                await self.events.put(event.raw)
            elif event.data == DONE_DATA:
                # Where the answer goes on, it is not done.
                await self.events.put(b"" if kept.unanswered else event.raw)
            else:
                await self._pass_event(event, kept.feed(event.data))

    async def _continue(self, rest: StreamContinuation) -> None:
        async with self._ask_for_text() as events:
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
    return ModelUnavailable("the model's server answered once with a stream, and once with a whole answer")
