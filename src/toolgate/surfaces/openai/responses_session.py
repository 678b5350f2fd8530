"""One conversation over the Responses API while it goes on: what is asked, told and handed over.

One Responses request whose tools are run here: put together, driven to its end, and answered.
"""

import secrets
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from http import HTTPStatus
from typing import Any, Final

import msgspec

from toolgate.chat.client_tools import ToolChoice
from toolgate.chat.completions import build_extension
from toolgate.chat.hidden_turns import ID_PREFIX
from toolgate.chat.injection import InjectedTools, inject_tools
from toolgate.chat.requests import check_choice
from toolgate.chat.responses.output import (
    APPROVAL,
    ResponseOutput,
    call_item_id,
    echo_members,
    function_call_output,
    mcp_call,
    mcp_list_tools,
    member_text,
)
from toolgate.chat.responses.requests import (
    ApprovedCall,
    CarriedCall,
    ResponsesRequest,
    ResponsesTranscript,
    chat_name,
    restore_input,
)
from toolgate.chat.responses.round import ModelResponseTurn, ResponseRound, ToolOwnership
from toolgate.chat.responses.tools import OfferedTool, resolve_choice
from toolgate.chat.tool_calls import CallError, ToolCall, parse_arguments
from toolgate.chat.tool_loop import AskModel, RefuseTool, RunTool, ToolLoop
from toolgate.errors import InvalidChat, ToolgateError, UnknownTool
from toolgate.gateway.auth.identity import fingerprint_of
from toolgate.gateway.chat.scope import ChatScope
from toolgate.gateway.chat.session import meter_models
from toolgate.gateway.chat.tool_loop import (
    ChatContext,
    Dialogue,
    DialogueOutcome,
    ModelTurn,
    ToolEvent,
    run_dialogue,
    run_tools,
)
from toolgate.gateway.scope.caller import Trace
from toolgate.model.chat import ChatUpstream
from toolgate.model.json_text import Members, encode_raw
from toolgate.surfaces.http.parsing import parse_off_loop
from toolgate.surfaces.openai.context import ChatExchange, ChatServices, explain_scope
from toolgate.surfaces.openai.responses_tools import RESPONSES_DOOR, OfferedScope, RecentIds, SealedCalls
from toolgate.surfaces.openai.wire import RESPONSES, ChatEventStream
from toolgate.telemetry import Histogram
from toolgate.telemetry.spans import read_trace_id
from toolgate.upstream.models.client import ModelResponse, PromptableModels
from toolgate.upstream.models.streams import DONE

_APPROVAL_USED: Final = CallError(
    code="approval_used",
    message="this approval was used already: the call is not made again",
    retryable=False,
)

Flush = Callable[[bytes], Awaitable[None]]
Seal = Callable[[str, CarriedCall], str]


@dataclass(slots=True, kw_only=True)
class ResponsesDialogue:
    """The model's side of one conversation, and the client's. It is the loop's history, too."""

    models: PromptableModels
    upstream: ChatUpstream
    transcript: ResponsesTranscript
    loop: ToolLoop
    offered: ToolOwnership
    output: ResponseOutput
    deadline_s: float
    is_stream: bool
    flush: Flush
    """Sends events. Without a stream there are none."""
    may_retry: Callable[[], bool]
    latency_ms: Histogram
    """Of whole replies."""
    replies: int = 0
    last: ModelResponseTurn | None = None
    _round: ResponseRound | None = None
    _succeeded: set[str] = field(default_factory=set)
    _outputs: list[tuple[str, str]] = field(default_factory=list)

    async def ask(self, action: AskModel) -> ModelTurn:
        """Asks the model, and tells the client of its reply while it comes."""
        await self.flush(self.output.drain())
        one = ResponseRound(self.output, self.offered, number=self.replies, drops_calls=action.is_last)
        self._round = one
        self._outputs = []
        self._succeeded.clear()
        began_s = time.perf_counter()
        await self._hear(one, self.transcript.body(action))
        reply = one.finish()
        self.latency_ms.add((time.perf_counter() - began_s) * 1e3)
        self.replies += 1
        self.last = reply
        self.transcript.take(reply.items)
        if reply.ending != "completed" or self.offered.is_empty:
            one.abandon()
            return ModelTurn((), has_text=True)
        return ModelTurn(reply.calls, reply.has_text)

    async def _hear(self, one: ResponseRound, body: bytes) -> None:
        may_retry = self.loop.calls_made == 0 and self.may_retry()
        if not self.is_stream:
            answer = await self.models.ask(
                self.upstream, RESPONSES.path, body, deadline_s=self.deadline_s, may_retry=may_retry
            )
            one.play(answer.body)
            return
        async with self.models.stream(
            self.upstream, RESPONSES.path, body, deadline_s=self.deadline_s, may_retry=may_retry
        ) as events:
            if isinstance(events, ModelResponse):  # asked for a stream, some answer whole all the same
                one.play(events.body)
                return
            async for event in events:
                if event.data is not None and event.data != DONE:
                    one.feed(event.data)
                    await self.flush(self.output.drain())

    async def on_event(self, event: ToolEvent) -> None:
        """Takes note of calls that went well."""
        if event.ok:
            self._succeeded.add(event.call_id)

    def answer(self, call: ToolCall, content: str) -> None:
        """What came of one call of the newest reply."""
        self.transcript.answer(call, content)
        self._outputs.append((call.call_id, content))
        assert self._round is not None  # there is no call without a reply
        self._round.end_call(call, content, is_error=call.call_id not in self._succeeded)

    def end_approved(self, approved: ApprovedCall, offer: OfferedTool | None, content: str) -> None:
        """Tells of a call that was approved, and made before the model was asked."""
        carried = approved.carried
        item_id = call_item_id(carried.call_id, self.output.size)
        name = carried.name if offer is None else offer.name
        item = mcp_call(item_id, label=carried.label, name=name, arguments=carried.arguments)
        item["approval_request_id"] = approved.request_id
        index = self.output.begin_call(item)
        self.output.send_arguments(index, item_id, carried.arguments)
        is_error = carried.call_id not in self._succeeded
        self.output.end_call(index, item, text=content, is_error=is_error)

    def close(self, outcome: DialogueOutcome, seal: Seal) -> None:
        """The end: calls that are the client's, and what is to be said where the model has said nothing."""
        outputs = tuple(self._outputs)
        for call in outcome.handed:
            outputs = self._hand(call, outputs, seal)
        if outcome.finish.reason == "time_limit" and self._round is not None:
            self._round.abandon()
        if outcome.finish.closing:
            self.output.say(outcome.finish.closing, key=secrets.token_hex(12))

    def _hand(
        self, call: ToolCall, outputs: tuple[tuple[str, str], ...], seal: Seal
    ) -> tuple[tuple[str, str], ...]:
        """One call to the client. The first carries what was done beside it; what is left over."""
        assert self._round is not None
        offer = self._round.needs_approval(call)
        if offer is not None:
            carried = CarriedCall(call.call_id, outputs, offer.label, offer.view_name, call.arguments)
            self._round.ask_approval(call, seal(APPROVAL, carried))
            return ()
        own_id = self._round.own_id(call)
        self._round.hand_over(call, seal(ID_PREFIX, CarriedCall(own_id, outputs)) if outputs else own_id)
        return ()

    def break_off(self, exc: ToolgateError) -> None:
        """The model's server failed after the client was told of something."""
        if self._round is not None:
            self._round.abandon()
        is_too_much = exc.data.get("status") == HTTPStatus.TOO_MANY_REQUESTS
        code = "rate_limit_exceeded" if is_too_much else "server_error"
        self.output.fail(code, f"{exc}. {exc.hint}")

    def finish(self, beside: Mapping[str, Any]) -> bytes:
        """The whole response, and what else is to be said in it."""
        if self.last is None:
            return self.output.finish({}, beside=beside)
        return self.output.finish(self.last.response, ending=self.last.ending, beside=beside)


def approved_step(
    approved: ApprovedCall, offer: OfferedTool | None, *, is_used: bool
) -> RunTool | RefuseTool:
    """What to do about a call that somebody agreed to. The scope of now decides, as ever."""
    carried = approved.carried
    name = carried.name if offer is None else offer.chat_name
    call = ToolCall(call_id=carried.call_id, name=name, arguments=carried.arguments)
    if is_used:
        return RefuseTool(call=call, error=_APPROVAL_USED)
    if offer is None:
        error = CallError(
            code=UnknownTool.code, message=f"there is no tool `{carried.name}`", retryable=False
        )
        return RefuseTool(call=call, error=error)
    arguments = parse_arguments(carried.arguments)
    if isinstance(arguments, CallError):
        return RefuseTool(call=call, error=arguments)
    return RunTool(call=call, name=offer.view_name, arguments=arguments)


@dataclass(frozen=True, slots=True)
class ResponsesMemory:
    """What this node remembers between requests, as long as there is room."""

    used: RecentIds = field(default_factory=RecentIds)
    """Approvals that were used."""
    last_ids: RecentIds = field(default_factory=RecentIds)
    """Of streams that took more than one round: from the id the client saw to that of the last round."""


@dataclass(frozen=True, slots=True)
class _ToolNames:
    """Whose a name is that a model calls."""

    injection: InjectedTools
    by_view: Mapping[str, OfferedTool]
    functions: frozenset[str]
    takes_unknown: bool
    """The caller may have functions that are not known here, so what is unknown is its own."""

    def find(self, name: str) -> OfferedTool | None:
        return self.by_view.get(self.injection.names.get(name, ""))

    def is_own(self, name: str) -> bool:
        return name in self.functions or (self.takes_unknown and name not in self.injection.names)

    def __contains__(self, name: object) -> bool:
        """Whether a call by this name goes to the client: its own, and what waits for its approval."""
        offer = self.find(str(name))
        return self.is_own(str(name)) or (offer is not None and offer.needs_approval)


class ResponsesSession:
    """One request whose tools are run here."""

    def __init__(
        self,
        parts: ChatServices,
        exchange: ChatExchange,
        *,
        request: ResponsesRequest,
        scope: ChatScope,
        offering: OfferedScope | None,
        memory: ResponsesMemory,
    ) -> None:
        """`offering` is None where nothing is offered, and only what was said before is put right."""
        self._parts = parts
        self._exchange = exchange
        self._request = request
        self._scope = scope
        self._offering = offering
        self._memory = memory
        self._seals = SealedCalls(parts.signer, parts.wall_s)
        self._stream = ChatEventStream(exchange)
        self._has_run = False
        """Calls were made before the model was asked at all."""
        self._offers = () if offering is None else offering.offers
        self._names, self._choice = self._choose()
        self._talk = self._prepare()

    def _choose(self) -> tuple[_ToolNames, ToolChoice]:
        """What is offered to the model, and what it is to choose of that."""
        request = self._request
        labels = [one.label for one in request.tools.ours]
        choice = resolve_choice(request.choice, self._offers, labels)
        offered = () if choice.kind == "none" else self._offers
        table = {one.chat_name: (one.view_name, one.definition) for one in offered}
        injection = inject_tools(table, request.tools.functions)
        if not request.tools.other_kinds and not request.has_prompt:
            check_choice(choice, {*request.tools.functions, *injection.declared})
        by_view = {one.view_name: one for one in offered if one.chat_name in injection.declared}
        names = _ToolNames(injection, by_view, request.tools.functions, takes_unknown=request.has_prompt)
        return names, choice.renamed(injection.declared)

    @property
    def _offers_tools(self) -> bool:
        """Whether the model has the gateway's tools, be they none. If not, all it calls is the client's."""
        return self._offering is not None and self._choice.kind != "none"

    def _prepare(self) -> ResponsesDialogue:
        request, scope, names, choice = self._request, self._scope, self._names, self._choice
        shown = echo_members(self._exchange.body)
        return ResponsesDialogue(
            models=meter_models(self._parts.gateway, self._parts.models, scope.caller),
            upstream=scope.upstream,
            transcript=ResponsesTranscript(
                request, model=scope.model, functions=names.injection.tools, choice=choice
            ),
            loop=ToolLoop(names=names.injection.names, own=names, budgets=scope.budgets, choice=choice),
            offered=ToolOwnership(names.find, names.is_own, is_empty=not self._offers_tools),
            output=ResponseOutput(self._basis(), shown, is_stream=request.is_stream),
            deadline_s=scope.deadline_s(),
            is_stream=request.is_stream,
            flush=self._stream.put,
            may_retry=lambda: not self._stream.has_begun and not self._has_run,
            latency_ms=self._parts.gateway.metrics.model_latency(scope.upstream.upstream_id),
        )

    def _basis(self) -> Members:
        """What every response has, where the model's server does not say it."""
        basis = {
            "id": f"resp_{self._exchange.request_id}",
            "object": "response",
            "created_at": int(self._parts.wall_s()),
            "model": self._scope.model,
            "parallel_tool_calls": True,
            "error": None,
            "incomplete_details": None,
        }
        return {name: encode_raw(value) for name, value in basis.items()}

    async def run(self) -> str:
        """Answer it; returns how it ended."""
        if not self._request.is_stream:
            reason, body = await self._drive()
            self._exchange.responder.send(200, body, self._exchange.headers)
            return reason
        try:
            with self._stream.keep_alive():
                reason, _ = await self._drive()
                await self._stream.put(self._talk.output.drain())
        except ToolgateError as exc:
            if not self._stream.has_begun:
                raise
            self._talk.break_off(exc)
            await self._stream.put(self._talk.output.drain())
            reason = exc.code
        self._stream.end()
        return reason

    async def _drive(self) -> tuple[str, bytes]:
        talk, gateway = self._talk, self._parts.gateway
        errand = ChatContext(
            caller=self._scope.caller if self._offering is None else self._offering.caller,
            budgets=self._scope.budgets,
            trace=Trace(
                RESPONSES_DOOR, "", self._exchange.request_id, trace_id=read_trace_id(gateway.tracing)
            ),
            deadline_s=talk.deadline_s,
            on_event=talk.on_event,
        )
        await self._begin(errand)
        upstream_id = self._scope.upstream.upstream_id
        outcome = await run_dialogue(
            gateway,
            Dialogue(loop=talk.loop, history=talk, ask=talk.ask, errand=errand, upstream_id=upstream_id),
        )
        talk.close(outcome, partial(self._seals.seal, principal_id=fingerprint_of(self._exchange.principal)))
        gateway.metrics.chat_rounds.add(talk.loop.rounds)
        body = talk.finish(self._beside(outcome))
        self._remember()
        return outcome.finish.reason, body

    async def _begin(self, errand: ChatContext) -> None:
        """The input as the model's server knows it, with what comes of the calls that were approved."""
        named = partial(chat_name, self._offers)
        restored = await parse_off_loop(
            lambda _: restore_input(self._request.input, open_carried=self._open, chat_name=named),
            self._exchange.request.body,
        )
        self._list_tools(restored.listed)
        outputs = await self._run_approved(restored.approved, errand)
        self._talk.transcript.begin(
            [outputs[one.request_id] if isinstance(one, ApprovedCall) else one for one in restored.items]
        )

    def _list_tools(self, listed: frozenset[str]) -> None:
        if not self._offers_tools:
            return
        asked = [one.label for one in self._request.tools.ours]
        for label in dict.fromkeys([*asked, *(one.label for one in self._offers)]):
            if label not in listed:
                offers = [one for one in self._names.by_view.values() if one.label == label]
                self._talk.output.list_tools(mcp_list_tools(label, offers, key=secrets.token_hex(12)))

    async def _run_approved(
        self, approved: tuple[ApprovedCall, ...], errand: ChatContext
    ) -> Mapping[str, msgspec.Raw]:
        """Outputs by the ids of the requests. Each approval is used once at this node, and is a call."""
        offers, most = self._names.by_view, self._scope.budgets.max_total_tool_calls
        if len(approved) > most:
            raise InvalidChat(f"this request may make at most {most} tool calls", param="input")
        steps = [
            approved_step(one, offers.get(one.carried.name), is_used=self._is_used(one)) for one in approved
        ]
        self._talk.loop.calls_made += len(steps)
        self._has_run = bool(steps)
        outputs = {}
        said = await run_tools(self._parts.gateway, errand, steps)
        for one, (call, content) in zip(approved, said, strict=True):
            self._talk.end_approved(one, offers.get(one.carried.name), content)
            output = function_call_output(call.call_id, content)
            outputs[one.request_id] = encode_raw(output)
        return outputs

    def _is_used(self, approved: ApprovedCall) -> bool:
        """Whether it was before. It is from now on."""
        principal_id, used = self._exchange.principal.id, self._memory.used
        is_used = used.get(principal_id, approved.request_id) is not None
        used.put(principal_id, approved.request_id)
        return is_used

    def _open(self, sent: str) -> CarriedCall | None:
        prefix = APPROVAL if sent.startswith(APPROVAL) else ID_PREFIX
        return self._seals.open(prefix, sent, principal_id=fingerprint_of(self._exchange.principal))

    def _beside(self, outcome: DialogueOutcome) -> Mapping[str, Any]:
        """What the gateway itself has to say; nothing where that is nothing."""
        asked, shadowed = self._request.asked, self._names.injection.shadowed
        said = build_extension(outcome.finish, self._talk.loop, asked, shadowed=shadowed)
        if self._offering is not None:
            said |= self._about_scope(self._offering)
        return {"toolgate": said} if said else {}

    def _about_scope(self, offering: OfferedScope) -> Mapping[str, Any]:
        said: dict[str, Any] = {"warnings": offering.view.warnings} if offering.view.warnings else {}
        if self._request.asked.explain:
            gateway, principal = self._parts.gateway, self._exchange.principal
            said["explain"] = explain_scope(gateway, principal, offering.caller, offering.view.scope)
        return said

    def _remember(self) -> None:
        """A stream has the id of its first round, and the model's server goes on from the last."""
        first, last = self._talk.output.first_id, self._talk.last
        if not self._request.is_stream or first is None or last is None:
            return
        first_id, last_id = msgspec.json.decode(first), member_text(last.response, "id")
        if last_id is not None and last_id != first_id:
            self._memory.last_ids.put(self._exchange.principal.id, first_id, last_id)
