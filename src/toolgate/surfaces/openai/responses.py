"""`POST /v1/responses`: parse, resolve the scope, run the chat, and respond whole or as a stream.

The model's server must speak the Responses API itself: nothing is translated to chat completions.

Clients carry sealed ids, valid for one principal and a limited time. A node accepts an approval once. Nodes
do not share the ids they have seen: a principal that sends an approval to two nodes makes its own call twice,
in its own scope.
"""

import hashlib
import secrets
import time
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from http import HTTPStatus
from typing import Any, Final, NamedTuple

import msgspec

from toolgate.catalog.find_tools import CALL_TOOL
from toolgate.chat.client_tools import check_other_tools
from toolgate.chat.completions import build_extension
from toolgate.chat.hidden_turns import ID_PREFIX
from toolgate.chat.injection import inject_tools
from toolgate.chat.requests import check_choice
from toolgate.chat.responses import output, tools
from toolgate.chat.responses.requests import (
    ApprovedCall,
    CarriedCall,
    ResponsesRequest,
    ResponsesTranscript,
    decode_carried,
    encode_carried,
    find_chat_name,
    has_gateway_items,
    parse_responses_request,
    restore_input,
)
from toolgate.chat.responses.round import ModelResponseTurn, ResponseRound
from toolgate.chat.tool_calls import CallError, ToolCall, parse_arguments
from toolgate.chat.tool_loop import PromptModel, RefuseTool, RunTool, ToolLoop
from toolgate.errors import InvalidChat, PolicyDenied, ToolgateError, TooManyTools, UnknownTool
from toolgate.gateway.auth.signing import SealedIds
from toolgate.gateway.chat.scope import ChatScope, ToolTable, build_tool_table, count_chat
from toolgate.gateway.chat.session import ChatContext, ChatOutcome, ChatSession, ModelTurn, ToolEvent
from toolgate.gateway.gateway import Gateway
from toolgate.gateway.scope.caller import Caller, Trace
from toolgate.gateway.scope.view import View
from toolgate.model.json_text import Members, encode_raw
from toolgate.surfaces.openai import passthrough
from toolgate.surfaces.openai.exchange import RESPONSES, ChatEventStream, ChatExchange
from toolgate.telemetry.spans import read_trace_id
from toolgate.upstream.models.client import ModelResponse
from toolgate.upstream.models.endpoint import DONE

SURFACE: Final = "responses"  # the name of this endpoint in the audit log
PURPOSE: Final = b"responses-call"  # of the ids that hold calls
UNLABELLED: Final = tools.McpTool(tools.GATEWAY_LABEL, needs_approval_for=None)
"""Offered for a task if the request has no `mcp` tool: as in chat, without approvals."""
MAX_KEPT: Final = 10_000  # ids that a node remembers; 3 MB at most, the oldest goes first
_USED_MESSAGE: Final = "this approval was already used: the call is not made again"
_APPROVAL_USED: Final = CallError(code="approval_used", message=_USED_MESSAGE, retryable=False)


class RecentIds:
    """Ids that this node has seen, by principal: a bounded map that forgets the oldest."""

    def __init__(self, max_kept: int = MAX_KEPT) -> None:
        self._max_kept = max_kept
        self._kept: OrderedDict[bytes, str] = OrderedDict()

    def put(self, principal_id: str, key: str, value: str = "") -> None:
        self._kept[_digest(principal_id, key)] = value
        if len(self._kept) > self._max_kept:
            self._kept.popitem(last=False)

    def get(self, principal_id: str, key: str) -> str | None:
        return self._kept.get(_digest(principal_id, key))


def _digest(principal_id: str, key: str) -> bytes:
    return hashlib.sha256(msgspec.json.encode((principal_id, key))).digest()


@dataclass(frozen=True, slots=True)
class ResponsesHandler:
    """Serves requests to the Responses API, with what this node remembers between them."""

    used: RecentIds = field(default_factory=RecentIds)
    """Used approvals."""
    last_ids: RecentIds = field(default_factory=RecentIds)
    """For streams with more than one round: the id that the client saw → the id of the last round."""

    async def serve(self, exchange: ChatExchange) -> None:
        """Respond to one request. Raises a ToolgateError only before the first byte is sent."""
        request = await exchange.parse(lambda: parse_responses_request(exchange.body))
        # The client knows the id of a stream's first round; the model's server continues from the last round.
        previous = output.read_text(request.members, "previous_response_id")
        last = None if previous is None else self.last_ids.get(exchange.principal.id, previous)
        if last is not None:
            known = {"previous_response_id": encode_raw(last)}
            members, sent = {**request.members, **known}, {**request.sent, **known}
            request = replace(request, members=members, sent=sent)
        with exchange.record_denials(SURFACE):
            scope = exchange.resolve_scope(request)
            check_other_tools(request.tools.other_kinds, scope.upstream.other_tools)
            with count_chat(exchange.services.gateway, scope) as outcomes:
                outcomes.append(await self._serve_chat(exchange, request, scope))

    async def _serve_chat(self, exchange: ChatExchange, request: ResponsesRequest, scope: ChatScope) -> str:
        """Run or forward the chat. Returns how it ended."""
        runs_tools = request.tools.mcp_tools or scope.injects or has_gateway_items(request.input)
        if scope.mode == "passthrough" or not runs_tools:
            members = {**request.sent, "model": encode_raw(scope.model)}
            return await passthrough.forward(exchange, members, scope, api=RESPONSES)
        if request.is_background:
            raise InvalidChat("`background` is not supported if the gateway runs tools", param="background")
        gateway, offered = exchange.services.gateway, None
        if scope.injects:
            offered = await offer_scope(gateway, scope, request)
            scope = replace(scope, caller=offered.caller)
        trace = exchange.trace(SURFACE)
        context = ChatContext.begin(gateway, exchange.services.models, scope, trace)
        return await ResponsesSession(exchange, context, request, offered, handler=self).respond()


class OfferedScope(NamedTuple):
    """The tools that a request offers, and the caller they are resolved for."""

    caller: Caller
    view: View
    offers: tuple[tools.OfferedTool, ...]


async def offer_scope(gateway: Gateway, scope: ChatScope, request: ResponsesRequest) -> OfferedScope:
    """Resolve the tools of a request. Raises the refusal of a scope, and InvalidChat for an unknown label."""
    requested = request.tools.mcp_tools or (UNLABELLED,)
    try:
        view = await gateway.wait_for_view(scope.caller)
    except PolicyDenied as exc:
        if not request.narrows_by_labels:
            raise
        _record_refused(gateway, scope.caller, exc)
        raise tools.unknown_label() from exc
    if any(one.label not in (tools.GATEWAY_LABEL, *view.scope.servers) for one in requested):
        _record_refused(gateway, scope.caller, PolicyDenied.code)
        raise tools.unknown_label()
    is_narrow = len(requested) > 1 or requested[0].allowed != tools.ALL_TOOLS
    if view.found is not None and is_narrow:
        return await _select_named_tools(gateway, scope, view, requested)
    gateway.record_listing(view, SURFACE)
    table = build_tool_table(view, gateway.snapshot, scope.upstream.name_profile)
    if view.found is None:
        return OfferedScope(scope.caller, view, tools.select_offers(table, requested))
    return OfferedScope(scope.caller, view, _offer_search_tools(table, requested[0]))


def _offer_search_tools(table: ToolTable, requested: tools.McpTool) -> tuple[tools.OfferedTool, ...]:
    """Offer the tools that find and call others."""
    found = tools.select_offers(table, [replace(requested, label=tools.GATEWAY_LABEL)])
    # Only the arguments of `call_tool` name the tool: it needs approval if any tool does.
    waiting = {CALL_TOOL} if requested.needs_approval_for is not None else ()
    return tuple(
        replace(one, label=requested.label, needs_approval=one.needs_approval or one.view_name in waiting)
        for one in found
    )


def _record_refused(gateway: Gateway, caller: Caller, why: ToolgateError | str) -> None:
    trace = Trace(SURFACE, trace_id=read_trace_id(gateway.tracer))
    gateway.record_refused(caller.principal, why, trace=trace, task_id=caller.effective_task_id)


async def _select_named_tools(
    gateway: Gateway, scope: ChatScope, view: View, requested: Sequence[tools.McpTool]
) -> OfferedScope:
    """Narrow a scope with too many tools to list to the tools that the request names."""
    every = {name: (name, route.tool) for name, route in view.tools.items() if route.tool is not None}
    wanted = {one.definition.ref for one in tools.select_offers(every, requested)}
    patterns = tuple(sorted(f"{ref.server_id}/{ref.name}" for ref in wanted))
    caller = replace(scope.caller, request=replace(scope.caller.request, tools=patterns))
    selected = await gateway.wait_for_view(caller)
    if selected.found is not None:
        raise TooManyTools(
            "the request allows too many tools to list",
            hint="allow fewer, or send one `mcp` tool without `allowed_tools`, which searches them",
        )
    gateway.record_listing(selected, SURFACE)
    table = build_tool_table(selected, gateway.snapshot, scope.upstream.name_profile)
    return OfferedScope(caller, selected, tools.select_offers(table, requested))


class ResponsesSession(ChatSession):
    """One chat over the Responses API. The client gets all its rounds as one response."""

    def __init__(
        self,
        exchange: ChatExchange,
        context: ChatContext,
        request: ResponsesRequest,
        offered: OfferedScope | None,
        *,
        handler: ResponsesHandler,
    ) -> None:
        """`offered` is None if the gateway offers no tools and only restores the input."""
        offers = () if offered is None else offered.offers
        choice = tools.resolve_choice(request.choice, offers, [one.label for one in request.tools.mcp_tools])
        if choice.kind == "none":
            offers = ()
        injection = inject_tools(
            {one.chat_name: (one.view_name, one.definition) for one in offers}, request.tools.functions
        )
        if not request.tools.other_kinds and not request.has_prompt:
            check_choice(choice, {*request.tools.functions, *injection.declared})
        by_view = {one.view_name: one for one in offers if one.chat_name in injection.declared}
        self._tools = tools.OfferedTools(
            {name: by_view[view_name] for name, view_name in injection.names.items()},
            request.tools.functions,
            takes_unknown=request.has_prompt,
            is_empty=offered is None or choice.kind == "none",
        )
        choice = choice.rename(injection.declared)
        loop = ToolLoop(names=injection.names, own=self._tools, budgets=context.scope.budgets, choice=choice)
        super().__init__(context, loop)
        self._exchange = exchange
        self._request = request
        self._offered = offered
        self._handler = handler
        self._by_view: Mapping[str, tools.OfferedTool] = by_view
        self._shadowed = injection.shadowed
        self._seals = SealedIds(exchange.services.signer, exchange.services.wall_s, PURPOSE)
        self._stream = ChatEventStream(exchange)
        model, functions = context.scope.model, injection.tools
        self._transcript = ResponsesTranscript(request, model=model, functions=functions, choice=choice)
        echoed = output.echo_members(exchange.body)
        self._output = output.ResponseOutput(self._build_basis(), echoed, is_stream=request.is_stream)
        self._rounds = 0
        self._last: ModelResponseTurn | None = None
        self._round: ResponseRound | None = None
        self._succeeded: set[str] = set()
        self._outputs: list[tuple[str, str]] = []
        self._has_run = False
        """Whether approved calls ran before the first prompt."""

    def _build_basis(self) -> Members:
        """The members of every response, if the model's server omits them."""
        basis = {
            "id": f"resp_{self._exchange.request_id}",
            "object": "response",
            "created_at": int(self._exchange.services.wall_s()),
            "model": self.context.scope.model,
            "parallel_tool_calls": True,
            "error": None,
            "incomplete_details": None,
        }
        return {name: encode_raw(value) for name, value in basis.items()}

    async def respond(self) -> str:
        """Run the chat and respond. Returns how it ended."""
        if not self._request.is_stream:
            reason, body = await self._run_chat()
            self._exchange.responder.send(200, body, self._exchange.headers)
            return reason
        try:
            with self._stream.keep_alive():
                reason, _ = await self._run_chat()
                await self._stream.put(self._output.drain())
        except ToolgateError as exc:
            if not self._stream.has_begun:
                raise
            if self._round is not None:
                self._round.abandon()
            is_too_much = exc.data.get("status") == HTTPStatus.TOO_MANY_REQUESTS
            code = "rate_limit_exceeded" if is_too_much else "server_error"
            self._output.fail(code, f"{exc}. {exc.hint}")
            await self._stream.put(self._output.drain())
            reason = exc.code
        self._stream.end()
        return reason

    async def _run_chat(self) -> tuple[str, bytes]:
        """Run the chat. Returns how it ended, and the whole response."""
        await self._restore_history()
        outcome = await self.run()
        self._hand_over(outcome)
        extension = self._build_extension(outcome)
        first, last = self._output.first_id, self._last
        if last is None:
            body = self._output.finish({}, extra=extension)
        else:
            body = self._output.finish(last.response, ending=last.ending, extra=extension)
        # A stream has the id of its first round, but the model's server continues from the last round.
        if self._request.is_stream and first is not None and last is not None:
            first_id, last_id = msgspec.json.decode(first), output.read_text(last.response, "id")
            if last_id is not None and last_id != first_id:
                self._handler.last_ids.put(self._exchange.principal.id, first_id, last_id)
        return outcome.finish.reason, body

    # The rounds

    @property
    def may_retry(self) -> bool:
        return super().may_retry and not self._stream.has_begun and not self._has_run

    async def prompt(self, action: PromptModel) -> ModelTurn:
        await self._stream.put(self._output.drain())
        current = ResponseRound(self._output, self._tools, number=self._rounds, drops_calls=action.is_last)
        self._round, self._outputs = current, []
        self._succeeded.clear()
        began_s = time.perf_counter()
        await self._feed_round(current, self._transcript.build_request(action))
        reply = current.finish()
        self.context.measure_model(began_s)
        self._rounds += 1
        self._last = reply
        self._transcript.take(reply.items)
        if reply.ending != "completed" or self._tools.is_empty:
            current.abandon()
            return ModelTurn((), has_text=True)
        return ModelTurn(reply.calls, reply.has_text)

    async def _feed_round(self, current: ResponseRound, body: bytes) -> None:
        models = self.context.models
        request = self.context.build_request(RESPONSES.path, body, may_retry=self.may_retry)
        if not self._request.is_stream:
            response = await models.request(request)
            current.play(response.body)
            return
        async with models.stream(request) as events:
            if isinstance(events, ModelResponse):  # some servers respond whole even to a request for a stream
                current.play(events.body)
                return
            async for event in events:
                if event.data is not None and event.data != DONE:
                    current.feed(event.data)
                    await self._stream.put(self._output.drain())

    async def on_tool_event(self, event: ToolEvent) -> None:
        if event.ok:
            self._succeeded.add(event.call_id)

    def add_result(self, call: ToolCall, content: str) -> None:
        self._transcript.add_result(call, content)
        self._outputs.append((call.call_id, content))
        assert self._round is not None  # each call is part of a completion
        self._round.end_call(call, content, is_error=call.call_id not in self._succeeded)

    # The input

    async def _restore_history(self) -> None:
        """Restore the input in the form the model's server knows, and run the calls that it approves."""
        offers = () if self._offered is None else self._offered.offers
        name = partial(find_chat_name, offers)
        restored = await self._exchange.parse(
            lambda: restore_input(self._request.input, open_carried=self._open, chat_name=name)
        )
        if not self._tools.is_empty:
            labels = [*(one.label for one in self._request.tools.mcp_tools), *(one.label for one in offers)]
            for label in dict.fromkeys(labels):
                if label not in restored.listed:
                    listed = [one for one in self._by_view.values() if one.label == label]
                    item = output.make_tool_list(label, listed, key=secrets.token_hex(12))
                    self._output.list_tools(item)
        outputs = await self._run_approved(restored.approved)
        self._transcript.begin(
            [outputs[one.request_id] if isinstance(one, ApprovedCall) else one for one in restored.items]
        )

    def _open(self, sent: str) -> CarriedCall | None:
        prefix = output.APPROVAL if sent.startswith(output.APPROVAL) else ID_PREFIX
        data = self._seals.open(prefix, sent, principal_id=self._exchange.fingerprint)
        return None if data is None else decode_carried(data)

    async def _run_approved(self, approved: tuple[ApprovedCall, ...]) -> Mapping[str, msgspec.Raw]:
        """Outputs by the ids of the approval requests. A node accepts each approval once."""
        most = self.context.scope.budgets.max_total_tool_calls
        if len(approved) > most:
            raise InvalidChat(f"this request may make at most {most} tool calls", param="input")
        steps = [self._decide_step(one) for one in approved]
        self.loop.calls_made += len(steps)
        self._has_run = bool(steps)
        outputs = {}
        for one, (call, content) in zip(approved, await self.run_tools(steps), strict=True):
            carried, offer = one.carried, self._by_view.get(one.carried.name)
            item_id = output.make_call_item_id(carried.call_id, self._output.size)
            name = carried.name if offer is None else offer.name
            item = output.make_call(item_id, label=carried.label, name=name, arguments=carried.arguments)
            item["approval_request_id"] = one.request_id
            index = self._output.begin_call(item)
            self._output.send_arguments(index, item_id, carried.arguments)
            is_error = carried.call_id not in self._succeeded
            self._output.end_call(index, item, text=content, is_error=is_error)
            outputs[one.request_id] = encode_raw(output.make_function_output(call.call_id, content))
        return outputs

    def _decide_step(self, approved: ApprovedCall) -> RunTool | RefuseTool:
        """Decide on a call that the client approved. The current scope decides, not the scope at the
        approval."""
        principal_id, used = self._exchange.principal.id, self._handler.used
        is_used = used.get(principal_id, approved.request_id) is not None
        used.put(principal_id, approved.request_id)
        carried, offer = approved.carried, self._by_view.get(approved.carried.name)
        name = carried.name if offer is None else offer.chat_name
        call = ToolCall(call_id=carried.call_id, name=name, arguments=carried.arguments)
        if is_used:
            return RefuseTool(call=call, error=_APPROVAL_USED)
        if offer is None:
            message = f"there is no tool `{carried.name}`"
            error = CallError(code=UnknownTool.code, message=message, retryable=False)
            return RefuseTool(call=call, error=error)
        arguments = parse_arguments(carried.arguments)
        if isinstance(arguments, CallError):
            return RefuseTool(call=call, error=arguments)
        return RunTool(call=call, name=offer.view_name, arguments=arguments)

    # The end

    def _hand_over(self, outcome: ChatOutcome) -> None:
        """Hand over the client's calls. The first carries the outputs of the calls that ran with it."""
        outputs = tuple(self._outputs)
        for call in outcome.handed:
            assert self._round is not None
            offer = self._round.needs_approval(call)
            if offer is not None:
                carried = CarriedCall(call.call_id, outputs, offer.label, offer.view_name, call.arguments)
                self._round.request_approval(call, self._seal(output.APPROVAL, carried))
            else:
                own_id = self._round.find_own_id(call)
                sealed = self._seal(ID_PREFIX, CarriedCall(own_id, outputs)) if outputs else own_id
                self._round.hand_over(call, sealed)
            outputs = ()
        if outcome.finish.reason == "time_limit" and self._round is not None:
            self._round.abandon()
        if outcome.finish.closing:
            self._output.add_message(outcome.finish.closing, key=secrets.token_hex(12))

    def _seal(self, prefix: str, carried: CarriedCall) -> str:
        data = encode_carried(carried)
        return self._seals.seal(prefix, data, principal_id=self._exchange.fingerprint)

    def _build_extension(self, outcome: ChatOutcome) -> Mapping[str, Any]:
        """The `toolgate` member; empty if the gateway has nothing to report."""
        options, offered = self._request.options, self._offered
        extension = build_extension(outcome.finish, self.loop, options, shadowed=self._shadowed)
        if offered is not None and offered.view.warnings:
            extension["warnings"] = offered.view.warnings
        if offered is not None and options.explain:
            extension["explain"] = self._exchange.explain(offered.caller, offered.view.scope)
        return {"toolgate": extension} if extension else {}
