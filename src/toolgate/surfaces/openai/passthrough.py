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

from toolgate.chat.call_filter import Continuation, NeedsAnswer, StreamFilter, filter_completion
from toolgate.chat.declarations import Declared
from toolgate.chat.forwarding import for_an_answer, forwarded
from toolgate.chat.requests import ChatRequest
from toolgate.errors import ModelTimedOut, ModelUnavailable, ToolgateError
from toolgate.gateway.chat.scope import ChatScope
from toolgate.gateway.metering import metered
from toolgate.model.raw import Members
from toolgate.surfaces.http.parsing import parse_aside
from toolgate.surfaces.openai.context import ChatParts
from toolgate.surfaces.openai.event_stream import EventStream
from toolgate.surfaces.openai.exchange import Exchange
from toolgate.surfaces.openai.wire import CHAT, DONE, Api, encode_chunk
from toolgate.upstream.models.client import ModelAnswer, ModelEvents
from toolgate.upstream.models.events import DONE as DONE_DATA
from toolgate.upstream.models.events import ModelEvent

FORWARDED: Final = "forwarded"
_TYPE: Final = b"content-type"
_JSON: Final = b"application/json"


async def serve(
    exchange: Exchange, request: ChatRequest, *, scope: ChatScope, parts: ChatParts, filters: bool
) -> str:
    """Answer a request by what the model's server answers; returns how that ended.

    `request` is the one in `exchange`, with the messages and the model's name as that server is to get them.
    Raises a ToolgateError as long as nothing was sent.
    """
    members = await parse_aside(lambda _: forwarded(exchange.body, request), exchange.request.body)
    declared = request.declared if filters else None
    return await forward(exchange, members, scope=scope, parts=parts, api=CHAT, declared=declared)


async def forward(
    exchange: Exchange,
    members: Members,
    *,
    scope: ChatScope,
    parts: ChatParts,
    api: Api,
    declared: Declared | None = None,
) -> str:
    """Pass on what comes of `members`, with no calls but of what is `declared`; with all where that is None.

    Returns how it ended. Raises a ToolgateError as long as nothing was sent.
    """
    passing = _Passing(exchange, members, scope=scope, parts=parts, path=api.path)
    try:
        await passing.run(declared)
    except ToolgateError as exc:
        if not passing.events.has_begun:
            raise
        await passing.events.put(api.encode_broken(exc))
        exchange.responder.end()
        return exc.code
    return FORWARDED


class _Passing:
    """One request on its way to the model's server, and the answer on its way back."""

    def __init__(
        self, exchange: Exchange, members: Members, *, scope: ChatScope, parts: ChatParts, path: str
    ) -> None:
        self._exchange = exchange
        self._members = members
        self._upstream = scope.upstream
        self._parts = parts
        self._models = metered(parts.gateway, parts.models, scope.caller)
        self._path = path
        self._deadline_s = scope.deadline_s()
        self.events = EventStream(exchange)

    async def run(self, declared: Declared | None) -> None:
        """Within its time: a client that does not read on holds no place at the model's server after that."""
        try:
            async with asyncio.timeout_at(self._deadline_s):
                await self._run(declared)
        except TimeoutError as exc:
            raise ModelTimedOut("the answer was not passed on within the time of the request") from exc

    async def _run(self, declared: Declared | None) -> None:
        is_as_sent = self._members == self._exchange.body
        body = self._exchange.request.body if is_as_sent else msgspec.json.encode(self._members)
        kept = None if declared is None else StreamFilter(declared)
        async with self._ask(body) as answer:
            if isinstance(answer, ModelEvents):
                await self._pass_events(answer, kept)
        # Left before the model is asked again: one request never takes two of the places that there are.
        if isinstance(answer, ModelAnswer):
            await self._pass_whole(answer, declared)
        else:
            if kept is not None and kept.unanswered:
                await self._continue(Continuation(kept))
            if not self.events.has_begun:
                raise ModelUnavailable("the model's server ended its answer before it had begun")
            self._exchange.responder.end()

    @asynccontextmanager
    async def _ask(self, body: bytes) -> AsyncIterator[ModelEvents | ModelAnswer]:
        began_s = time.perf_counter()
        async with self._models.stream(
            self._upstream, self._path, body, deadline_s=self._deadline_s, may_retry=not self.events.has_begun
        ) as answer:
            yield answer
        latency = self._parts.gateway.metrics.model_latency(self._upstream.upstream_id)
        latency.add((time.perf_counter() - began_s) * 1e3)

    def _ask_for_text(self) -> AbstractAsyncContextManager[ModelEvents | ModelAnswer]:
        return self._ask(msgspec.json.encode(for_an_answer(self._members)))

    async def _pass_whole(self, answer: ModelAnswer, declared: Declared | None) -> None:
        body: bytes | NeedsAnswer = answer.body
        if declared is not None:
            body = await parse_aside(partial(filter_completion, declared=declared), answer.body)
        if isinstance(body, NeedsAnswer):
            async with self._ask_for_text() as second:
                if isinstance(second, ModelEvents):
                    raise _unlike_the_first()
            body = await parse_aside(body.complete, second.body)
        kind = answer.headers.get(_TYPE, _JSON)
        self._exchange.responder.send(answer.status, body, [(_TYPE, kind), *self._exchange.headers])

    async def _pass_events(self, events: ModelEvents, kept: StreamFilter | None) -> None:
        async for event in events:
            if kept is None or event.data is None:
                await self.events.put(event.raw)
            elif event.data == DONE_DATA:
                # Where the answer goes on, it is not done.
                await self.events.put(b"" if kept.unanswered else event.raw)
            else:
                await self._pass_event(event, kept.feed(event.data))

    async def _continue(self, rest: Continuation) -> None:
        async with self._ask_for_text() as events:
            if isinstance(events, ModelAnswer):
                raise _unlike_the_first()
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


def _unlike_the_first() -> ModelUnavailable:
    return ModelUnavailable("the model's server answered once with a stream, and once with a whole answer")
