"""One `chat.completion.chunk` stream, whatever number of replies it is made of.

One id, one role, one reason to end; the text of each round as it comes, with a blank line between rounds; no
call that was run here. The stream begins with its first word: what fails before that has a status of its own.

One chat request whose tools are run here: asked, driven to its end, and answered whole or as a stream.

`POST /v1/chat/completions`: parsed, given its scope, and answered whole or as a stream.
"""

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any, Final

import msgspec

from toolgate.chat.client_tools import check_other_tools
from toolgate.chat.completions import ClientCompletion, encode_completion
from toolgate.chat.hidden_turns import restore_turns
from toolgate.chat.requests import ChatRequest, convert_to_tools, parse_chat_request, uses_functions
from toolgate.chat.streamed_replies import CompletionDelta
from toolgate.chat.tool_loop import AskModel
from toolgate.errors import ToolgateError
from toolgate.gateway.auth.identity import fingerprint_of
from toolgate.gateway.chat.scope import ChatScope
from toolgate.gateway.chat.session import CompletionContext, CompletionSession, check_single, offer_tools
from toolgate.gateway.chat.tool_loop import DialogueOutcome, ModelTurn, ToolEvent, run_dialogue
from toolgate.gateway.scope.caller import Trace
from toolgate.gateway.scope.view import View
from toolgate.model.json_text import Members, encode_raw
from toolgate.model.servers import EMPTY
from toolgate.surfaces.http.parsing import parse_off_loop
from toolgate.surfaces.openai import passthrough
from toolgate.surfaces.openai.context import ChatExchange, ChatServices, explain_scope
from toolgate.surfaces.openai.wire import DONE, ChatEventStream, encode_chunk, encode_stream_failure
from toolgate.telemetry.spans import read_trace_id

_PAUSE: Final = msgspec.Raw(b'"\\n\\n"')
_EMPTY_TEXTS: Final = (b"null", b'""')
_KIND: Final = "chat.completion.chunk"
_IN_ALL: Final = frozenset({"id", "created", "model", "system_fingerprint", "service_tier"})
"""What all chunks of a stream say alike, after the first of them."""
_NOT_PASSED: Final = _IN_ALL | {"object", "choices", "usage"}


class CompletionStream:
    """Writes the chunks of one answer."""

    def __init__(self, exchange: ChatExchange, *, head: Members) -> None:
        """`head` is used as long as the model's server has not given a better one."""
        self.events = ChatEventStream(exchange)
        self._head = head
        self._is_new_round = False
        self._has_text = False
        self._has_role = False
        self.first: Mapping[str, Any] | None = None
        """What the gateway itself says ahead of everything else."""

    def next_round(self) -> None:
        """The model was asked again: its words are set apart from those before."""
        self._is_new_round = self._has_text

    async def show(self, delta: CompletionDelta) -> None:
        """What may be shown of a reply."""
        await self._open(delta.head)
        fields = {name: raw for name, raw in delta.fields.items() if name != "role"}
        content = fields.get("content")
        if content is not None and bytes(content) not in _EMPTY_TEXTS:
            if self._is_new_round:
                await self._chunk({"content": _PAUSE})
            self._is_new_round, self._has_text = False, True
        if fields:
            beside = {name: raw for name, raw in delta.head.items() if name not in _NOT_PASSED}
            await self._chunk(fields, delta.choice, beside)

    async def tell(self, event: ToolEvent) -> None:
        """What happens to a tool, as a chunk that clients pass over."""
        said: dict[str, Any] = {"event": event.event, "tool": event.tool, "call_id": event.call_id}
        if event.ok is not None:
            said |= {"ok": event.ok, "ms": event.ms}
        await self._open({})
        await self._write({"choices": [], "toolgate": said})

    async def end(self, ending: ClientCompletion, *, with_usage: bool) -> None:
        """The last words, the calls handed over, why it ended, and what was used."""
        await self._open(ending.head)
        if ending.closing:
            await self._chunk({"content": f"\n\n{ending.closing}" if self._has_text else ending.closing})
        for delta in ending.call_deltas:
            await self._chunk(delta)
        extension = {"toolgate": ending.extension} if ending.extension else {}
        await self._chunk({}, {"finish_reason": ending.finish_reason}, extension)
        if with_usage:
            await self._write({"choices": [], "usage": ending.usage})
        await self.events.put(DONE)
        self.events.end()

    async def fail(self, exc: ToolgateError) -> None:
        """It cannot go on: clients raise what they are told here."""
        await self.events.put(encode_stream_failure(exc))
        self.events.end()

    async def _open(self, head: Members) -> None:
        """The first chunks: the role, and what stands ahead of everything."""
        if self._has_role:
            return
        self._has_role = True
        self._head = self._head | {name: raw for name, raw in head.items() if name in _IN_ALL}
        if self.first is not None:
            await self._write({"choices": [], "toolgate": self.first})
        await self._chunk({"role": "assistant", "content": ""})

    async def _chunk(
        self,
        delta: Mapping[str, Any],
        choice: Mapping[str, Any] = EMPTY,
        beside: Mapping[str, Any] = EMPTY,
    ) -> None:
        said = {"finish_reason": None, **choice, "index": 0, "delta": delta}
        await self._write({**beside, "choices": [said]})

    async def _write(self, members: Mapping[str, Any]) -> None:
        await self.events.put(encode_chunk(msgspec.json.encode({**self._head, "object": _KIND, **members})))


DOOR: Final = "chat"
"""What the audit calls this door."""


class CompletionConversation:
    """One request whose tools are run here. `uses_functions`: its caller knows functions, and no tools."""

    def __init__(
        self,
        parts: ChatServices,
        exchange: ChatExchange,
        opening: CompletionContext,
        *,
        view: View,
        is_legacy: bool,
    ) -> None:
        self._parts = parts
        self._exchange = exchange
        self._opening = opening
        self._view = view
        self._is_legacy = is_legacy
        self._chat = CompletionSession(parts.gateway, parts.models, opening)
        self._head: Members = {
            "id": encode_raw(f"chatcmpl-{exchange.request_id}"),
            "created": encode_raw(int(parts.wall_s())),
            "model": encode_raw(opening.scope.model),
        }

    async def run(self) -> str:
        """Answer it; returns how it ended."""
        reason = await (self._stream() if self._opening.request.is_stream else self._answer())
        self._parts.gateway.metrics.chat_rounds.add(self._chat.loop.rounds)
        return reason

    async def _answer(self) -> str:
        talk = self._chat.talk(self._chat.asking.prompt_whole)
        outcome = await run_dialogue(self._parts.gateway, talk)
        ending = self._ending(outcome)
        self._exchange.responder.send(200, encode_completion(ending), self._exchange.headers)
        return outcome.finish.reason

    async def _stream(self) -> str:
        chunks = CompletionStream(self._exchange, head=self._head)
        if self._opening.request.asked.explain:
            chunks.first = {"explain": self._explain()}
        chat = self._chat
        chat.asking.is_silent = lambda: not chunks.events.has_begun
        if self._opening.request.asked.progress:
            chat.errand = replace(chat.errand, on_event=chunks.tell)

        async def ask(action: AskModel) -> ModelTurn:
            chunks.next_round()
            return await chat.asking.prompt_streamed(action, chunks.show)

        try:
            with chunks.events.keep_alive():
                outcome = await run_dialogue(self._parts.gateway, chat.talk(ask))
                await chunks.end(self._ending(outcome), with_usage=self._opening.request.wants_usage)
        except ToolgateError as exc:
            if not chunks.events.has_begun:
                raise
            await chunks.fail(exc)
            return exc.code
        return outcome.finish.reason

    def _ending(self, outcome: DialogueOutcome) -> ClientCompletion:
        first_id = self._sealed(outcome) if outcome.handed else None
        said = self._extension(outcome)
        ending = self._chat.ending(outcome, self._head, said=said, first_id=first_id)
        return replace(ending, is_legacy=self._is_legacy)

    def _sealed(self, outcome: DialogueOutcome) -> str | None:
        """The id that holds what the caller does not see of this turn; None where it sees everything."""
        hidden = self._chat.transcript.hidden(outcome.handed)
        if hidden.is_empty:
            return None
        return self._parts.turns.seal(hidden, principal_id=fingerprint_of(self._exchange.principal))

    def _extension(self, outcome: DialogueOutcome) -> dict[str, Any]:
        said = self._chat.remarks(outcome, self._view)
        asked = self._opening.request.asked
        if asked.explain and not self._opening.request.is_stream:
            said["explain"] = self._explain()
        return said

    def _explain(self) -> dict[str, Any]:
        opening, gateway = self._opening, self._parts.gateway
        return explain_scope(gateway, self._exchange.principal, opening.scope.caller, self._view.scope)


class CompletionsHandler:
    """Answers requests for completions."""

    def __init__(self, parts: ChatServices) -> None:
        self._parts = parts

    async def serve(self, exchange: ChatExchange) -> None:
        """One request. Raises a ToolgateError as long as nothing was sent."""
        request = await parse_off_loop(lambda _: parse_chat_request(exchange.body), exchange.request.body)
        with self._parts.record_denials(exchange, door=DOOR):
            scope = self._parts.scope(exchange, request)
            check_other_tools(request.declared.other_kinds, scope.upstream.other_tools)
            request = await self._whole(exchange, request.asking(scope.model))
            with self._parts.counted(scope) as outcomes:
                outcomes.append(await self._serve(exchange, request, scope))

    async def _serve(self, exchange: ChatExchange, request: ChatRequest, scope: ChatScope) -> str:
        """Returns how it ended."""
        is_old = uses_functions(request)
        asked = (
            await self._whole(exchange, convert_to_tools(request)) if scope.injects and is_old else request
        )
        if not scope.injects or asked.choice.kind == "none":
            filters = scope.mode == "passthrough" or scope.upstream.filter_undeclared_calls
            return await passthrough.forward_completion(
                exchange, request, scope=scope, parts=self._parts, filters=filters
            )
        check_single(asked)
        view, offered = await offer_tools(self._parts.gateway, asked, scope, door=DOOR)
        trace = Trace(DOOR, "", exchange.request_id, trace_id=read_trace_id(self._parts.gateway.tracing))
        opening = CompletionContext(request=asked, scope=scope, offered=offered, trace=trace)
        return await CompletionConversation(self._parts, exchange, opening, view=view, is_legacy=is_old).run()

    async def _whole(self, exchange: ChatExchange, request: ChatRequest) -> ChatRequest:
        """With what was hidden of earlier turns back in its place."""
        open_turn = partial(self._parts.turns.open, principal_id=fingerprint_of(exchange.principal))
        spliced = await parse_off_loop(
            lambda _: restore_turns(request.messages, open_turn), exchange.request.body
        )
        return replace(request, messages=spliced)
