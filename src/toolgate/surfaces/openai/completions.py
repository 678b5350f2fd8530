"""`POST /v1/chat/completions`: parse, resolve the scope, and respond whole or as a stream.

A streamed chat is one `chat.completion.chunk` stream, however many completions of the model it contains. It
has one id, one role, one finish reason, a blank line between the texts of two rounds, and no call that the
gateway ran.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

import msgspec

from toolgate.chat.client_tools import check_other_tools
from toolgate.chat.completions import ClientCompletion, encode_completion
from toolgate.chat.hidden_turns import ID_PREFIX, HiddenTurn, decode_hidden, encode_hidden, restore_turns
from toolgate.chat.injection import InjectedTools
from toolgate.chat.requests import (
    ChatRequest,
    build_forwarded,
    convert_to_tools,
    parse_chat_request,
    uses_functions,
)
from toolgate.chat.streamed_completion import CompletionDelta
from toolgate.chat.tool_loop import PromptModel
from toolgate.errors import ToolgateError
from toolgate.gateway.auth.signing import SealedIds
from toolgate.gateway.chat.completions import CompletionSession, check_single_choice, offer_tools
from toolgate.gateway.chat.scope import ChatScope, count_chat
from toolgate.gateway.chat.session import ChatContext, ChatOutcome, ModelTurn, ToolEvent
from toolgate.gateway.scope.view import View
from toolgate.model.json_text import Members, encode_raw
from toolgate.model.servers import EMPTY
from toolgate.surfaces.openai import passthrough
from toolgate.surfaces.openai.exchange import (
    CHAT,
    DONE,
    ChatEventStream,
    ChatExchange,
    encode_chunk,
    encode_stream_failure,
)

SURFACE: Final = "chat"  # the name of this endpoint in the audit log
PURPOSE: Final = b"chat-turn"  # of the ids that hold hidden turns
_PAUSE: Final = msgspec.Raw(b'"\\n\\n"')
_EMPTY_TEXTS: Final = (b"null", b'""')
_SHARED: Final = frozenset({"id", "created", "model", "system_fingerprint", "service_tier"})
"""Members that are the same in all chunks of a stream: the values of the first chunk."""
_NOT_PASSED: Final = _SHARED | {"object", "choices", "usage"}


async def serve_completions(exchange: ChatExchange) -> None:
    """Respond to one request. Raises a ToolgateError only before the first byte is sent."""
    request = await exchange.parse(lambda: parse_chat_request(exchange.body))
    with exchange.record_denials(SURFACE):
        scope = exchange.resolve_scope(request)
        check_other_tools(request.declared.other_kinds, scope.upstream.other_tools)
        request = await _restore_turns(exchange, request.with_model(scope.model))
        with count_chat(exchange.services.gateway, scope) as outcomes:
            outcomes.append(await _serve_chat(exchange, request, scope))


async def _serve_chat(exchange: ChatExchange, sent: ChatRequest, scope: ChatScope) -> str:
    """Run or forward the chat. Returns how it ended."""
    is_legacy = uses_functions(sent)
    request = sent
    if scope.injects and is_legacy:
        request = await _restore_turns(exchange, convert_to_tools(sent))
    if not scope.injects or request.choice.kind == "none":
        # As it was sent, except for the messages and the model's name, which are adapted for the model's
        # server.
        members = await exchange.parse(lambda: build_forwarded(exchange.body, sent))
        filters = scope.mode == "passthrough" or scope.upstream.filter_undeclared_calls
        declared = sent.declared if filters else None
        return await passthrough.forward(exchange, members, scope, api=CHAT, declared=declared)
    check_single_choice(request)
    services = exchange.services
    view, tools = await offer_tools(services.gateway, request, scope, surface=SURFACE)
    context = ChatContext.begin(services.gateway, services.models, scope, exchange.trace(SURFACE))
    session = _HttpSession if not request.is_stream else _StreamedSession
    return await session(exchange, context, request, tools, view=view, is_legacy=is_legacy).respond()


async def _restore_turns(exchange: ChatExchange, request: ChatRequest) -> ChatRequest:
    """Restore the hidden parts of earlier turns. Drops a turn that does not open; it never runs again."""
    ids = SealedIds(exchange.services.signer, exchange.services.wall_s, PURPOSE)

    def open_turn(call_id: str) -> HiddenTurn | None:
        data = ids.open(ID_PREFIX, call_id, principal_id=exchange.fingerprint)
        return None if data is None else decode_hidden(data)

    messages = await exchange.parse(lambda: restore_turns(request.messages, open_turn))
    return replace(request, messages=messages)


class _HttpSession(CompletionSession):
    """A chat whose completion is sent whole. `is_legacy`: the client uses functions, not tools."""

    def __init__(
        self,
        exchange: ChatExchange,
        context: ChatContext,
        request: ChatRequest,
        tools: InjectedTools,
        *,
        view: View,
        is_legacy: bool,
    ) -> None:
        super().__init__(context, request, tools, view)
        self._exchange = exchange
        self._is_legacy = is_legacy
        self._scope = view.scope
        self._head: Members = {
            "id": encode_raw(f"chatcmpl-{exchange.request_id}"),
            "created": encode_raw(int(exchange.services.wall_s())),
            "model": encode_raw(context.scope.model),
        }

    async def respond(self) -> str:
        """Run the chat and respond. Returns how it ended."""
        outcome = await self.run()
        extension = self.build_extension(outcome)
        if self.request.options.explain:
            extension["explain"] = self._explain()
        completion = self._complete(outcome, extension)
        self._exchange.responder.send(200, encode_completion(completion), self._exchange.headers)
        return outcome.finish.reason

    def _complete(self, outcome: ChatOutcome, extension: dict[str, Any]) -> ClientCompletion:
        hidden = self.transcript.hide_turn(outcome.handed) if outcome.handed else None
        first_id = None  # the client sees everything
        if hidden is not None and not hidden.is_empty:
            services, principal_id = self._exchange.services, self._exchange.fingerprint
            ids = SealedIds(services.signer, services.wall_s, PURPOSE)
            first_id = ids.seal(ID_PREFIX, encode_hidden(hidden), principal_id=principal_id)
        completion = self.complete(outcome, self._head, extension=extension, first_id=first_id)
        return replace(completion, is_legacy=self._is_legacy)

    def _explain(self) -> dict[str, Any]:
        return self._exchange.explain(self.context.scope.caller, self._scope)


class _StreamedSession(_HttpSession):
    """A chat whose completion is streamed while the model writes it."""

    async def respond(self) -> str:
        first = {"explain": self._explain()} if self.request.options.explain else None
        self._chunks = chunks = CompletionStream(self._exchange, head=self._head, first=first)
        try:
            with chunks.events.keep_alive():
                outcome = await self.run()
                completion = self._complete(outcome, self.build_extension(outcome))
                await chunks.end(completion, with_usage=self.request.wants_usage)
        except ToolgateError as exc:
            if not chunks.events.has_begun:
                raise
            self.context.gateway.metrics.chat_rounds.add(self.loop.rounds)
            await chunks.fail(exc)
            return exc.code
        return outcome.finish.reason

    @property
    def may_retry(self) -> bool:
        return super().may_retry and not self._chunks.events.has_begun

    async def prompt(self, action: PromptModel) -> ModelTurn:
        self._chunks.begin_round()
        return await self.prompt_streamed(action, self._chunks.send_delta)

    async def on_tool_event(self, event: ToolEvent) -> None:
        progress = self.request.options.progress
        if progress == "full" or (progress and event.event != "tool_refused"):
            await self._chunks.send_event(event, is_full=progress == "full")


class CompletionStream:
    """Writes the chunks of one response."""

    def __init__(self, exchange: ChatExchange, *, head: Members, first: Mapping[str, Any] | None) -> None:
        """`head` applies until the model's server sends a better one; `first` is sent before everything
        else."""
        self.events = ChatEventStream(exchange)
        self._head = head
        self._first = first
        self._is_new_round = False
        self._has_text = False
        self._has_role = False

    def begin_round(self) -> None:
        """Start the text of another completion, separated from the text before."""
        self._is_new_round = self._has_text

    async def send_delta(self, delta: CompletionDelta) -> None:
        """Pass on a piece of a completion."""
        await self._open(delta.head)
        fields = {name: raw for name, raw in delta.fields.items() if name != "role"}
        content = fields.get("content")
        if content is not None and bytes(content) not in _EMPTY_TEXTS:
            if self._is_new_round:
                await self._write_choice({"content": _PAUSE})
            self._is_new_round, self._has_text = False, True
        if fields:
            others = {name: raw for name, raw in delta.head.items() if name not in _NOT_PASSED}
            await self._write_choice(fields, delta.choice, others)

    async def send_event(self, event: ToolEvent, *, is_full: bool) -> None:
        """Report the start or end of a tool call, in a chunk that clients skip."""
        report: dict[str, Any] = {"event": event.event, "tool": event.tool, "call_id": event.call_id}
        if event.ok is not None:
            report |= {"ok": event.ok, "ms": event.ms}
        if is_full:
            ended = {} if event.ok is None else {"code": event.code, "result": event.content}
            report |= {"arguments": event.arguments, **ended}
        await self._open({})
        await self._write({"choices": [], "toolgate": report})

    async def end(self, completion: ClientCompletion, *, with_usage: bool) -> None:
        """Send the closing text, the calls for the client, the finish reason and the usage."""
        await self._open(completion.head)
        if completion.closing:
            pause = "\n\n" if self._has_text else ""
            await self._write_choice({"content": f"{pause}{completion.closing}"})
        for delta in completion.call_deltas:
            await self._write_choice(delta)
        extension = {"toolgate": completion.extension} if completion.extension else {}
        await self._write_choice({}, {"finish_reason": completion.finish_reason}, extension)
        if with_usage:
            await self._write({"choices": [], "usage": completion.usage})
        await self.events.put(DONE)
        self.events.end()

    async def fail(self, exc: ToolgateError) -> None:
        """End a stream that cannot continue: clients raise this error."""
        await self.events.put(encode_stream_failure(exc))
        self.events.end()

    async def _open(self, head: Members) -> None:
        """Send the first chunks: `first`, and the role."""
        if self._has_role:
            return
        self._has_role = True
        self._head = self._head | {name: raw for name, raw in head.items() if name in _SHARED}
        if self._first is not None:
            await self._write({"choices": [], "toolgate": self._first})
        await self._write_choice({"role": "assistant", "content": ""})

    async def _write_choice(
        self, delta: Mapping[str, Any], choice: Mapping[str, Any] = EMPTY, others: Mapping[str, Any] = EMPTY
    ) -> None:
        choices = [{"finish_reason": None, **choice, "index": 0, "delta": delta}]
        await self._write({**others, "choices": choices})

    async def _write(self, members: Mapping[str, Any]) -> None:
        chunk = {**self._head, "object": "chat.completion.chunk", **members}
        await self.events.put(encode_chunk(msgspec.json.encode(chunk)))
