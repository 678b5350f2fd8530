"""The hidden half of a turn in which a model called tools of ours and functions of the caller's.

It travels as the id of the first call that the caller gets, so that any node can put it back when the caller
comes with its results. If it does not open, what was hidden is forgotten, and never run again.

How a model is asked in a chat: its reply whole, or passed on while it comes.

Models as they are asked by those who have tokens to use up: refused where none are left, counted after.

One chat whose tools are run here: what it begins with, and the parts that bring it to its end.

The doors have it in common. What they add is how a request comes to them, and how its answer goes.
"""

import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec

from toolgate.chat.completions import ClientCompletion, Transcript, build_extension, select_handed_calls
from toolgate.chat.hidden_turns import ID_PREFIX, HiddenTurn, decode_hidden, encode_hidden
from toolgate.chat.injection import InjectedTools, inject_tools
from toolgate.chat.replies import (
    ModelCompletion,
    add_usage,
    is_usage_only,
    parse_completion,
    reported_tokens,
    request_usage,
)
from toolgate.chat.requests import ChatRequest, check_choice
from toolgate.chat.streamed_replies import CompletionAssembler, CompletionDelta
from toolgate.chat.tool_loop import AskModel, ToolLoop
from toolgate.errors import InvalidChat, ToolgateError
from toolgate.errors.wires import WIRE
from toolgate.gateway.auth.signing import SealedIds, Signer
from toolgate.gateway.call.quota import QuotaLeases
from toolgate.gateway.chat.scope import ChatScope, tool_table
from toolgate.gateway.chat.tool_loop import (
    CallerTool,
    ChatContext,
    Dialogue,
    DialogueOutcome,
    ModelTurn,
    PromptModel,
)
from toolgate.gateway.gateway import Gateway
from toolgate.gateway.scope.caller import Caller, Trace
from toolgate.gateway.scope.token_counts import PER_BYTES, TOKENS
from toolgate.gateway.scope.view import View
from toolgate.model.chat import ChatUpstream
from toolgate.model.json_text import Members
from toolgate.model.quotas import HolderQuotas
from toolgate.telemetry import Metrics
from toolgate.telemetry.spans import MAX_SPAN_NAME_CHARS, Span
from toolgate.upstream.models.client import ModelEventStream, ModelResponse, Models, PromptableModels
from toolgate.upstream.models.streams import ModelEvent

_TURN_PURPOSE: Final = b"chat-turn"


class SealedTurns:
    """Seals turns and opens them. `wall_s` is the time of day."""

    def __init__(self, signer: Signer, wall_s: Callable[[], float]) -> None:
        self._ids = SealedIds(signer, wall_s, purpose=_TURN_PURPOSE)

    def seal(self, turn: HiddenTurn, *, principal_id: str) -> str:
        """An id that holds `turn`, for this principal."""
        return self._ids.seal(ID_PREFIX, encode_hidden(turn), principal_id=principal_id)

    def open(self, call_id: str, *, principal_id: str) -> HiddenTurn | None:
        """What `call_id` holds for this principal; None where it is nothing, or nothing any more."""
        data = self._ids.open(ID_PREFIX, call_id, principal_id=principal_id)
        return None if data is None else decode_hidden(data)


COMPLETIONS_PATH: Final = "/chat/completions"

OnDelta = Callable[[CompletionDelta], Awaitable[None]]


@dataclass(slots=True, kw_only=True)
class ModelPrompter:
    """The model's side of one conversation."""

    models: PromptableModels
    upstream: ChatUpstream
    transcript: Transcript
    loop: ToolLoop
    deadline_s: float
    metrics: Metrics
    is_silent: Callable[[], bool] = lambda: True
    """Whether nothing was passed on yet, so that the model can be asked again as if it had not been."""
    replies: int = 0
    last: ModelCompletion | None = None
    usage: Members | None = field(default=None)
    """Of all replies together."""

    async def prompt_whole(self, action: AskModel) -> ModelTurn:
        """A reply at once."""
        began_s = time.perf_counter()
        return self._keep(parse_completion(await self._answer(action), nth=self.replies), began_s)

    async def prompt_once(self) -> bytes:
        """What the model's server answers to the request as it is, and no part of the conversation."""
        began_s = time.perf_counter()
        body = await self._answer(AskModel(choice="sent"))
        self._measure(began_s)
        return body

    async def prompt_streamed(self, action: AskModel, on_delta: OnDelta) -> ModelTurn:
        """A reply in pieces: what may be shown of each is passed on, its calls are not."""
        began_s = time.perf_counter()
        body = self.transcript.body(action)
        assembly = CompletionAssembler(nth=self.replies)
        async with self.models.stream(
            self.upstream, COMPLETIONS_PATH, body, deadline_s=self.deadline_s, may_retry=self._may_retry
        ) as events:
            if isinstance(events, ModelResponse):  # asked for a stream, some answer whole all the same
                reply = parse_completion(events.body, nth=self.replies)
                await on_delta(
                    CompletionDelta(fields=reply.without_calls(), choice=reply.choice, head=reply.head)
                )
            else:
                async for event in events:
                    delta = None if event.data is None else assembly.feed(event.data)
                    if delta is not None:
                        await on_delta(delta)
                reply = assembly.finish()
        return self._keep(reply, began_s)

    @property
    def _may_retry(self) -> bool:
        return self.loop.calls_made == 0 and self.is_silent()

    async def _answer(self, action: AskModel) -> bytes:
        answer = await self.models.ask(
            self.upstream,
            COMPLETIONS_PATH,
            self.transcript.body(action),
            deadline_s=self.deadline_s,
            may_retry=self._may_retry,
        )
        return answer.body

    def _measure(self, began_s: float) -> None:
        self.metrics.model_latency(self.upstream.upstream_id).add((time.perf_counter() - began_s) * 1e3)

    def _keep(self, reply: ModelCompletion, began_s: float) -> ModelTurn:
        self._measure(began_s)
        self.replies += 1
        self.last = reply
        self.usage = add_usage(self.usage, reply.usage)
        self.transcript.take(reply)
        return ModelTurn(reply.calls, reply.has_text)


def meter_models(gateway: Gateway, models: PromptableModels, caller: Caller) -> PromptableModels:
    """`models`, as `caller` may ask them."""
    allowances = [one for one in gateway.allowances(caller) if one.budgets.tokens_per_day is not None]
    return MeteredModels(models, gateway.sending.spending, allowances) if allowances else models


class MeteredModels:
    """Counts what each answer took, as far as its server says so, out of `allowances`."""

    def __init__(
        self, models: PromptableModels, spending: QuotaLeases, allowances: Sequence[HolderQuotas]
    ) -> None:
        self._models = models
        self._spending = spending
        self._allowances = allowances

    async def ask(
        self, upstream: ChatUpstream, path: str, body: bytes, *, deadline_s: float, may_retry: bool
    ) -> ModelResponse:
        """See `Models.ask`. Raises BudgetExceeded, and ServerUnavailable where nobody knows what is left."""
        await self._spending.check_tokens(self._allowances)
        answer = await self._models.ask(upstream, path, body, deadline_s=deadline_s, may_retry=may_retry)
        self._spending.spent(self._allowances, reported_tokens(answer.body))
        return answer

    @asynccontextmanager
    async def stream(
        self, upstream: ChatUpstream, path: str, body: bytes, *, deadline_s: float, may_retry: bool
    ) -> AsyncIterator[ModelEventStream | ModelResponse]:
        """See `Models.stream`. Raises as `ask`.

        Nobody gets out of being counted by not asking: what was not asked for is not handed out either.
        """
        await self._spending.check_tokens(self._allowances)
        asking, tokens, events = request_usage(body), 0, 0

        def hear(event: ModelEvent) -> bool:
            nonlocal tokens, events
            data, events = event.data or b"", events + 1
            # Some servers say with each event how many there were so far.
            tokens = max(tokens, reported_tokens(data))
            return asking is None or not is_usage_only(data)

        async with self._models.stream(
            upstream, path, asking or body, deadline_s=deadline_s, may_retry=may_retry
        ) as answer:
            if isinstance(answer, ModelResponse):
                tokens = reported_tokens(answer.body)
            else:
                answer.on_event = hear
            try:
                yield answer
            except BaseException:
                # What it took is said last: who leaves before that is charged for what there was, a token
                # for each event, and for what was asked.
                tokens = tokens or len(body) * TOKENS // PER_BYTES + events
                raise
            finally:
                self._spending.spent(self._allowances, tokens)


CALLER_TOOL_PREFIX: Final = "own/"
"""Before the name of a function of the caller that is run here: no name in a view begins so."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CompletionContext:
    """What a chat begins with."""

    request: ChatRequest
    scope: ChatScope
    offered: InjectedTools = field(default_factory=InjectedTools)
    trace: Trace
    own: Mapping[str, CallerTool] = field(default_factory=dict)
    """Functions of the caller that are run here. Those of others are the caller's to call."""


class CompletionSession:
    """One chat. Its time begins now."""

    def __init__(self, gateway: Gateway, models: Models, opening: CompletionContext) -> None:
        request, scope, offered = opening.request, opening.scope, opening.offered
        deadline_s = scope.deadline_s()
        self._opening = opening
        self.transcript = Transcript(request, offered)
        self.loop = ToolLoop(
            names={**offered.names, **{name: f"{CALLER_TOOL_PREFIX}{name}" for name in opening.own}},
            own=request.declared.own - opening.own.keys(),
            budgets=scope.budgets,
            choice=request.choice,
        )
        self.asking = ModelPrompter(
            models=meter_models(gateway, models, scope.caller),
            upstream=scope.upstream,
            transcript=self.transcript,
            loop=self.loop,
            deadline_s=deadline_s,
            metrics=gateway.metrics,
        )
        self.errand = ChatContext(
            caller=scope.caller,
            budgets=scope.budgets,
            trace=opening.trace,
            deadline_s=deadline_s,
            own={f"{CALLER_TOOL_PREFIX}{name}": tool for name, tool in opening.own.items()},
        )

    def talk(self, ask: PromptModel) -> Dialogue:
        """It, as `converse` drives it."""
        return Dialogue(
            loop=self.loop,
            history=self.transcript,
            ask=ask,
            errand=self.errand,
            upstream_id=self._opening.scope.upstream.upstream_id,
        )

    def ending(
        self, outcome: DialogueOutcome, head: Members, *, said: Mapping[str, Any], first_id: str | None = None
    ) -> ClientCompletion:
        """What the caller gets, with `head` where the model's server says nothing else, and what is `said`.

        The first call that it is handed goes by `first_id`, if that is given.
        """
        reply = self.asking.last
        calls: list[Members] = []
        if outcome.handed and reply is not None:
            calls = select_handed_calls(reply, outcome.handed, first_id)
        return ClientCompletion(
            head=head if reply is None else head | reply.head,
            reply=reply,
            closing=outcome.finish.closing,
            calls=calls,
            usage=self.asking.usage,
            extension=said,
        )

    def remarks(self, outcome: DialogueOutcome, view: View | None) -> dict[str, Any]:
        """What the gateway itself has to say."""
        asked, shadowed = self._opening.request.asked, self._opening.offered.shadowed
        said = build_extension(outcome.finish, self.loop, asked, shadowed=shadowed)
        if view is not None and view.warnings:
            said["warnings"] = view.warnings
        return said


async def offer_tools(
    gateway: Gateway, request: ChatRequest, scope: ChatScope, *, door: str
) -> tuple[View, InjectedTools]:
    """The caller's view, and what of it the model is offered. Raises InvalidChat, and as `gateway.view`."""
    view = await gateway.wait_for_view(scope.caller)
    gateway.listed(view, door)
    table = tool_table(view, gateway.snapshot, scope.upstream.name_profile)
    offered = inject_tools(table, request.declared.own)
    if not request.declared.other_kinds:
        check_choice(request.choice, {*request.declared.own, *offered.declared})
    return view, offered


def check_single(request: ChatRequest) -> None:
    """InvalidChat where more than one answer is asked for: each would have calls of its own."""
    if msgspec.json.decode(request.members.get("n", b"1")) not in (1, None):
        raise InvalidChat("'n' must be 1 where tools are run.", param="n")


@contextmanager
def count_chat(gateway: Gateway, scope: ChatScope) -> Iterator[list[str]]:
    """Count one chat by how it ends: what is put into the list, or what is raised."""
    outcomes: list[str] = []
    outcome = "cancelled"
    try:
        yield outcomes
        outcome = outcomes[-1]
    except ToolgateError as exc:
        outcome = exc.code
        raise
    finally:
        gateway.metrics.chats[scope.upstream.upstream_id, outcome] += 1
        if gateway.tracing is not None:
            _note_outcome(gateway.tracing.current, scope, outcome)


def _note_outcome(span: Span, scope: ChatScope, outcome: str) -> None:
    span.note("gen_ai.request.model", scope.model[:MAX_SPAN_NAME_CHARS])
    span.note("toolgate.outcome", outcome)
    if outcome in WIRE:  # a stream that has begun breaks off, and nothing is raised
        span.fail(outcome)
