"""One conversation over the Responses API while it goes on: what is asked, told and handed over."""

import secrets
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any, Final

from toolgate.chat.calls import CallError, ToolCall, parse_arguments
from toolgate.chat.hidden_turns import ID_PREFIX
from toolgate.chat.responses.output import ResponseOutput
from toolgate.chat.responses.requests import Approved
from toolgate.chat.responses.round import ModelReply, ModelRound, Offered
from toolgate.chat.responses.tools import Offer
from toolgate.chat.responses_carried import Carried
from toolgate.chat.responses_items import APPROVAL, call_item_id, mcp_call
from toolgate.chat.responses_transcript import ResponsesTranscript
from toolgate.chat.tool_loop import AskModel, Refused, Run, ToolLoop
from toolgate.errors import ToolgateError, UnknownTool
from toolgate.gateway.chat.tool_loop import ToolEvent
from toolgate.gateway.conversing import Heard, Outcome
from toolgate.model.chat import ChatUpstream
from toolgate.surfaces.openai.wire import RESPONSES
from toolgate.telemetry import Distribution
from toolgate.upstream.models.client import AskedModels, ModelAnswer
from toolgate.upstream.models.events import DONE

_APPROVAL_USED: Final = CallError(
    code="approval_used",
    message="this approval was used already: the call is not made again",
    retryable=False,
)

Flush = Callable[[bytes], Awaitable[None]]
Seal = Callable[[str, Carried], str]


@dataclass(slots=True, kw_only=True)
class ResponsesTalk:
    """The model's side of one conversation, and the client's. It is the loop's history, too."""

    models: AskedModels
    upstream: ChatUpstream
    transcript: ResponsesTranscript
    loop: ToolLoop
    offered: Offered
    output: ResponseOutput
    deadline_s: float
    is_stream: bool
    flush: Flush
    """Sends events. Without a stream there are none."""
    may_retry: Callable[[], bool]
    latency_ms: Distribution
    """Of whole replies."""
    replies: int = 0
    last: ModelReply | None = None
    _round: ModelRound | None = None
    _succeeded: set[str] = field(default_factory=set)
    _outputs: list[tuple[str, str]] = field(default_factory=list)

    async def ask(self, action: AskModel) -> Heard:
        """Asks the model, and tells the client of its reply while it comes."""
        await self.flush(self.output.drain())
        one = ModelRound(self.output, self.offered, number=self.replies, drops_calls=action.is_last)
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
            return Heard((), has_text=True)
        return Heard(reply.calls, reply.has_text)

    async def _hear(self, one: ModelRound, body: bytes) -> None:
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
            if isinstance(events, ModelAnswer):  # asked for a stream, some answer whole all the same
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

    def end_approved(self, approved: Approved, offer: Offer | None, content: str) -> None:
        """Tells of a call that was approved, and made before the model was asked."""
        carried = approved.carried
        item_id = call_item_id(carried.call_id, self.output.size)
        name = carried.name if offer is None else offer.name
        item = mcp_call(item_id, label=carried.label, name=name, arguments=carried.arguments)
        item["approval_request_id"] = approved.request_id
        index = self.output.begin_call(item)
        self.output.tell_arguments(index, item_id, carried.arguments)
        is_error = carried.call_id not in self._succeeded
        self.output.end_call(index, item, text=content, is_error=is_error)

    def close(self, outcome: Outcome, seal: Seal) -> None:
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
            carried = Carried(call.call_id, outputs, offer.label, offer.view_name, call.arguments)
            self._round.ask_approval(call, seal(APPROVAL, carried))
            return ()
        own_id = self._round.own_id(call)
        self._round.hand_over(call, seal(ID_PREFIX, Carried(own_id, outputs)) if outputs else own_id)
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


def approved_step(approved: Approved, offer: Offer | None, *, is_used: bool) -> Run | Refused:
    """What to do about a call that somebody agreed to. The scope of now decides, as ever."""
    carried = approved.carried
    name = carried.name if offer is None else offer.chat_name
    call = ToolCall(call_id=carried.call_id, name=name, arguments=carried.arguments)
    if is_used:
        return Refused(call=call, error=_APPROVAL_USED)
    if offer is None:
        error = CallError(
            code=UnknownTool.code, message=f"there is no tool `{carried.name}`", retryable=False
        )
        return Refused(call=call, error=error)
    arguments = parse_arguments(carried.arguments)
    if isinstance(arguments, CallError):
        return Refused(call=call, error=arguments)
    return Run(call=call, name=offer.view_name, arguments=arguments)
