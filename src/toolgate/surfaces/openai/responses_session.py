"""One Responses request whose tools are run here: put together, driven to its end, and answered."""

import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import msgspec

from toolgate.chat.client_tools import ToolChoice
from toolgate.chat.endings import remarks
from toolgate.chat.hidden_turns import ID_PREFIX
from toolgate.chat.injection import Injection, inject
from toolgate.chat.requests import check_choice
from toolgate.chat.responses.output import ResponseOutput, shown_members
from toolgate.chat.responses.requests import Approved, chat_name, restore
from toolgate.chat.responses.round import Offered
from toolgate.chat.responses.tools import Offer
from toolgate.chat.responses_carried import Carried
from toolgate.chat.responses_choice import resolve_choice
from toolgate.chat.responses_items import (
    APPROVAL,
    function_call_output,
    mcp_list_tools,
    member_text,
)
from toolgate.chat.responses_request import ResponsesRequest
from toolgate.chat.responses_transcript import ResponsesTranscript
from toolgate.chat.tool_loop import ToolLoop
from toolgate.errors import InvalidChat, ToolgateError
from toolgate.gateway.auth.identity import fingerprint_of
from toolgate.gateway.chat.scope import ChatScope
from toolgate.gateway.chat.tool_loop import Errand, run_tools
from toolgate.gateway.conversing import Outcome, Talk, converse
from toolgate.gateway.metering import metered
from toolgate.gateway.scope.caller import Trace
from toolgate.model.raw import Members, encode_raw
from toolgate.surfaces.http.parsing import parse_aside
from toolgate.surfaces.openai.context import ChatParts
from toolgate.surfaces.openai.event_stream import EventStream
from toolgate.surfaces.openai.exchange import Exchange
from toolgate.surfaces.openai.explanation import explained
from toolgate.surfaces.openai.responses_seals import CarriedSeals, Remembered
from toolgate.surfaces.openai.responses_talk import ResponsesTalk, approved_step
from toolgate.surfaces.openai.responses_tools import DOOR, Offering
from toolgate.telemetry.spans import trace_id_of


@dataclass(frozen=True, slots=True)
class Memory:
    """What this node remembers between requests, as long as there is room."""

    used: Remembered = field(default_factory=Remembered)
    """Approvals that were used."""
    last_ids: Remembered = field(default_factory=Remembered)
    """Of streams that took more than one round: from the id the client saw to that of the last round."""


@dataclass(frozen=True, slots=True)
class _Names:
    """Whose a name is that a model calls."""

    injection: Injection
    by_view: Mapping[str, Offer]
    functions: frozenset[str]
    takes_unknown: bool
    """The caller may have functions that are not known here, so what is unknown is its own."""

    def find(self, name: str) -> Offer | None:
        return self.by_view.get(self.injection.names.get(name, ""))

    def is_own(self, name: str) -> bool:
        return name in self.functions or (self.takes_unknown and name not in self.injection.names)

    def __contains__(self, name: object) -> bool:
        """Whether a call by this name goes to the client: its own, and what waits for its approval."""
        offer = self.find(str(name))
        return self.is_own(str(name)) or (offer is not None and offer.needs_approval)


class ResponsesConversation:
    """One request whose tools are run here."""

    def __init__(
        self,
        parts: ChatParts,
        exchange: Exchange,
        *,
        request: ResponsesRequest,
        scope: ChatScope,
        offering: Offering | None,
        memory: Memory,
    ) -> None:
        """`offering` is None where nothing is offered, and only what was said before is put right."""
        self._parts = parts
        self._exchange = exchange
        self._request = request
        self._scope = scope
        self._offering = offering
        self._memory = memory
        self._seals = CarriedSeals(parts.signer, parts.wall_s)
        self._stream = EventStream(exchange)
        self._has_run = False
        """Calls were made before the model was asked at all."""
        self._offers = () if offering is None else offering.offers
        self._names, self._choice = self._choose()
        self._talk = self._prepare()

    def _choose(self) -> tuple[_Names, ToolChoice]:
        """What is offered to the model, and what it is to choose of that."""
        request = self._request
        labels = [one.label for one in request.tools.ours]
        choice = resolve_choice(request.choice, self._offers, labels)
        offered = () if choice.kind == "none" else self._offers
        table = {one.chat_name: (one.view_name, one.definition) for one in offered}
        injection = inject(table, request.tools.functions)
        if not request.tools.other_kinds and not request.has_prompt:
            check_choice(choice, {*request.tools.functions, *injection.declared})
        by_view = {one.view_name: one for one in offered if one.chat_name in injection.declared}
        names = _Names(injection, by_view, request.tools.functions, takes_unknown=request.has_prompt)
        return names, choice.renamed(injection.declared)

    @property
    def _offers_tools(self) -> bool:
        """Whether the model has the gateway's tools, be they none. If not, all it calls is the client's."""
        return self._offering is not None and self._choice.kind != "none"

    def _prepare(self) -> ResponsesTalk:
        request, scope, names, choice = self._request, self._scope, self._names, self._choice
        shown = shown_members(self._exchange.body)
        return ResponsesTalk(
            models=metered(self._parts.gateway, self._parts.models, scope.caller),
            upstream=scope.upstream,
            transcript=ResponsesTranscript(
                request, model=scope.model, functions=names.injection.tools, choice=choice
            ),
            loop=ToolLoop(names=names.injection.names, own=names, budgets=scope.budgets, choice=choice),
            offered=Offered(names.find, names.is_own, is_empty=not self._offers_tools),
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
            with self._stream.kept_alive():
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
        errand = Errand(
            caller=self._scope.caller if self._offering is None else self._offering.caller,
            budgets=self._scope.budgets,
            trace=Trace(DOOR, "", self._exchange.request_id, trace_id=trace_id_of(gateway.tracing)),
            deadline_s=talk.deadline_s,
            on_event=talk.on_event,
        )
        await self._begin(errand)
        upstream_id = self._scope.upstream.upstream_id
        outcome = await converse(
            gateway,
            Talk(loop=talk.loop, history=talk, ask=talk.ask, errand=errand, upstream_id=upstream_id),
        )
        talk.close(outcome, partial(self._seals.seal, principal_id=fingerprint_of(self._exchange.principal)))
        gateway.metrics.chat_rounds.add(talk.loop.rounds)
        body = talk.finish(self._beside(outcome))
        self._remember()
        return outcome.finish.reason, body

    async def _begin(self, errand: Errand) -> None:
        """The input as the model's server knows it, with what comes of the calls that were approved."""
        named = partial(chat_name, self._offers)
        restored = await parse_aside(
            lambda _: restore(self._request.input, open_carried=self._open, chat_name=named),
            self._exchange.request.body,
        )
        self._list_tools(restored.listed)
        outputs = await self._run_approved(restored.approved, errand)
        self._talk.transcript.begin(
            [outputs[one.request_id] if isinstance(one, Approved) else one for one in restored.items]
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
        self, approved: tuple[Approved, ...], errand: Errand
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

    def _is_used(self, approved: Approved) -> bool:
        """Whether it was before. It is from now on."""
        principal_id, used = self._exchange.principal.id, self._memory.used
        is_used = used.get(principal_id, approved.request_id) is not None
        used.put(principal_id, approved.request_id)
        return is_used

    def _open(self, sent: str) -> Carried | None:
        prefix = APPROVAL if sent.startswith(APPROVAL) else ID_PREFIX
        return self._seals.open(prefix, sent, principal_id=fingerprint_of(self._exchange.principal))

    def _beside(self, outcome: Outcome) -> Mapping[str, Any]:
        """What the gateway itself has to say; nothing where that is nothing."""
        asked, shadowed = self._request.asked, self._names.injection.shadowed
        said = remarks(outcome.finish, self._talk.loop, asked, shadowed=shadowed)
        if self._offering is not None:
            said |= self._about_scope(self._offering)
        return {"toolgate": said} if said else {}

    def _about_scope(self, offering: Offering) -> Mapping[str, Any]:
        said: dict[str, Any] = {"warnings": offering.view.warnings} if offering.view.warnings else {}
        if self._request.asked.explain:
            gateway, principal = self._parts.gateway, self._exchange.principal
            said["explain"] = explained(gateway, principal, offering.caller, offering.view.scope)
        return said

    def _remember(self) -> None:
        """A stream has the id of its first round, and the model's server goes on from the last."""
        first, last = self._talk.output.first_id, self._talk.last
        if not self._request.is_stream or first is None or last is None:
            return
        first_id, last_id = msgspec.json.decode(first), member_text(last.response, "id")
        if last_id is not None and last_id != first_id:
            self._memory.last_ids.put(self._exchange.principal.id, first_id, last_id)
