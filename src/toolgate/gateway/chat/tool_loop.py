"""The tool calls of one reply of a model, made at the same time: each ends in exactly one text for it.

Whatever becomes of a call is told to the model, which decides what to do next: nothing here fails but by
cancellation, and then every call that still runs is cancelled with it.

Drives one conversation: the pure loop says what to do next, and here it is done.

It knows neither HTTP nor messages. A dialect keeps the messages and builds what a model is asked; the door
gives the way to ask, which may pass on what the model says while it says it.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal, NamedTuple, Protocol

import msgspec
from msgspec.structs import replace

from toolgate.catalog.encoding import InputRequired, adapt_result
from toolgate.chat.tool_calls import (
    TOOL_ERROR,
    CallError,
    ToolCall,
    call_error,
    cut_text,
    render_error,
    render_result,
)
from toolgate.chat.tool_loop import Action, AskModel, Finish, RefuseTool, RunTool, RunTools, ToolLoop
from toolgate.errors import (
    CallCancelled,
    CallTimedOut,
    InputNotGiven,
    InvalidArguments,
    ModelTimedOut,
    ModelUnavailable,
    ToolgateError,
)
from toolgate.gateway.call.session_totals import SessionTotals
from toolgate.gateway.chat.scope import guess_tool_name
from toolgate.gateway.gateway import Gateway
from toolgate.gateway.scope.caller import Caller, Trace
from toolgate.model.chat import ChatBudgets
from toolgate.model.json_text import Members, decode_members
from toolgate.upstream.connection.messages import parse_error
from toolgate.upstream.pool.pool import ServerResponse

MAX_CONCURRENT_CALLS: Final = 8
"""Calls of one conversation at the same time; others of a reply wait. Servers have limits of their own."""
CALLER_TOOL_FAILED: Final = "tool_exec_failed"
_INVALID_PARAMS: Final = -32602
_MAX_QUOTED: Final = 1_000


class ToolEvent(NamedTuple):
    """What happens to one call, for those who want to know while it does."""

    event: Literal["tool_started", "tool_finished"]
    call_id: str
    tool: str
    ok: bool | None = None
    """Of one that has finished: whether the tool itself says so, too."""
    ms: int | None = None
    code: str = ""
    """Of one that has failed: why."""


class ToolText(NamedTuple):
    """What the model is told of one call."""

    content: str
    code: str = ""
    """Why it failed, if it did."""

    @property
    def ok(self) -> bool:
        return not self.code


class CallerToolFailed(Exception):
    """What the model is told of a function of the caller that gave no result."""


CallerTool = Callable[[bytes], Awaitable[str]]
"""A function of the caller that is run here: gets a JSON object. Raises OwnToolFailed, and ToolgateErrors."""


async def _ignore_event(_event: ToolEvent) -> None:
    """For a conversation that nobody follows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatContext:
    """For whom calls are made, and within what."""

    caller: Caller
    budgets: ChatBudgets
    trace: Trace
    deadline_s: float
    """When the whole conversation has to end, by the loop's clock. Calls that run then are cancelled."""
    on_event: Callable[[ToolEvent], Awaitable[None]] = _ignore_event
    """A ToolgateError that it raises where a call is to start keeps it from being made."""
    own: Mapping[str, CallerTool] = field(default_factory=dict)
    """By the names that the loop has for them. Such a call has no time of its own: only the whole has one."""
    totals: SessionTotals = field(default_factory=SessionTotals)
    """What the conversation has used."""


async def run_tools(
    gateway: Gateway, errand: ChatContext, steps: Sequence[RunTool | RefuseTool]
) -> list[tuple[ToolCall, str]]:
    """What the model is told of each step, in their order."""
    slots = asyncio.Semaphore(MAX_CONCURRENT_CALLS)
    async with asyncio.TaskGroup() as tasks:
        running = [tasks.create_task(_step(gateway, errand, step, slots=slots)) for step in steps]
    return [(step.call, one.result()) for step, one in zip(steps, running, strict=True)]


async def _step(
    gateway: Gateway, errand: ChatContext, step: RunTool | RefuseTool, *, slots: asyncio.Semaphore
) -> str:
    if isinstance(step, RefuseTool):
        _record_unmade(gateway, errand, step)
        return render_error(step.error)
    try:
        async with asyncio.timeout_at(errand.deadline_s), slots:
            return await _run_step(gateway, errand, step)
    except TimeoutError:
        return _failure_text(CallTimedOut("the time for the whole conversation is used up", hint="")).content


async def _run_step(gateway: Gateway, errand: ChatContext, step: RunTool) -> str:
    """One call, as soon as there is a place for it."""
    clock = asyncio.get_running_loop().time
    began_s = clock()
    said = await _try_step(gateway, errand, step)
    errand.totals.count_limit_hit(gateway, errand.trace.door, said.code)
    took_ms = round((clock() - began_s) * 1e3)
    await errand.on_event(
        ToolEvent("tool_finished", step.call.call_id, step.name, said.ok, took_ms, said.code)
    )
    return said.content


async def _try_step(gateway: Gateway, errand: ChatContext, step: RunTool) -> ToolText:
    own, max_bytes = errand.own.get(step.name), errand.budgets.max_tool_output_bytes
    try:
        await errand.on_event(ToolEvent("tool_started", step.call.call_id, step.name))
        if own is not None:
            return ToolText(cut_text(await own(step.arguments), max_bytes))
        return _tool_text(await _call_tool(gateway, errand, step), max_bytes)
    except CallerToolFailed as exc:
        return _error_text(CallError(code=CALLER_TOOL_FAILED, message=str(exc), retryable=False))
    except InputRequired:
        return _failure_text(
            InputNotGiven("the tool wants to ask its user something, and nobody here can answer")
        )
    except ToolgateError as exc:
        return _failure_text(exc)


async def _call_tool(gateway: Gateway, errand: ChatContext, step: RunTool) -> ServerResponse:
    timeout_ms = errand.budgets.tool_timeout_ms
    until_s = asyncio.get_running_loop().time() + timeout_ms / 1e3
    trace = replace(errand.trace, deadline_s=min(until_s, errand.deadline_s))
    try:
        async with asyncio.timeout_at(until_s):
            # Asked for anew: what the caller may do can change while a conversation lasts.
            view = gateway.calling_view(errand.caller)
            params = {"arguments": msgspec.Raw(step.arguments)}
            return await gateway.call(view, step.name, params, trace=trace)
    except TimeoutError as exc:
        raise CallTimedOut(f"the tool gave no result within {timeout_ms} ms") from exc


def _tool_text(answer: ServerResponse, max_bytes: int) -> ToolText:
    """Raises InputNeeded and ServerUnavailable."""
    members = answer.reply.members
    if members is None:
        return _error_text(parse_server_error(answer.reply.error))
    text, is_error = render_result(_plain_result(members, answer), max_bytes=max_bytes)
    return ToolText(text, TOOL_ERROR if is_error else "")


def _plain_result(members: Members, answer: ServerResponse) -> Members:
    """A result without what only one era knows."""
    if answer.era == "legacy":
        return members
    return decode_members(adapt_result(members, upstream=answer.era, client="legacy"))


def parse_server_error(raw: bytes | None) -> CallError:
    """What a server says of a call that it did not make."""
    error = parse_error(raw)
    is_about_arguments = error.code == _INVALID_PARAMS
    code = InvalidArguments.code if is_about_arguments else TOOL_ERROR
    said = error.message[:_MAX_QUOTED] or "the server answered with an error and does not say which"
    return CallError(code=code, message=said, retryable=is_about_arguments)


def _failure_text(exc: ToolgateError) -> ToolText:
    return _error_text(call_error(exc))


def _error_text(error: CallError) -> ToolText:
    return ToolText(render_error(error), error.code)


def _record_unmade(gateway: Gateway, errand: ChatContext, step: RefuseTool) -> None:
    """A model's call of what its caller does not have, or one too many, is a denial like any other."""
    try:
        view = gateway.calling_view(errand.caller)
    except ToolgateError:  # whoever may see nothing any more has no tool either
        return
    name = guess_tool_name(gateway.snapshot, step.call.name)
    gateway.record_unmade(view, name, trace=errand.trace, code=step.error.code)


class ModelTurn(NamedTuple):
    """What a model's reply comes to for the loop."""

    calls: tuple[ToolCall, ...]
    has_text: bool


PromptModel = Callable[[AskModel], Awaitable[ModelTurn]]
"""Asks the model, and keeps its reply in the history."""


class ToolResultSink(Protocol):
    """A dialect, as far as results are put into it."""

    def answer(self, call: ToolCall, content: str) -> None:
        """The result of one call of the newest reply. Each has exactly one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Dialogue:
    """One conversation."""

    loop: ToolLoop
    history: ToolResultSink
    ask: PromptModel
    errand: ChatContext
    upstream_id: str | None = None
    """Who is asked: one that is removed or switched off meanwhile is asked no more. None: nobody can be."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DialogueOutcome:
    """How a conversation ended."""

    finish: Finish
    handed: tuple[ToolCall, ...] = ()
    """The caller's own functions, which it is to call itself."""


async def run_dialogue(gateway: Gateway, talk: Dialogue) -> DialogueOutcome:
    """Ask and run until an answer, a function of the caller's own, or a budget. Raises what asking raises.

    The wall clock is over everything: a model that is asked when it ends is not waited for any longer, calls
    that run are cancelled, and every one has its result all the same. What it used is recorded in any case.
    """
    ended_by = CallCancelled.code
    try:
        outcome = await _run_dialogue(gateway, talk)
        ended_by = outcome.finish.reason
    except ToolgateError as exc:
        ended_by = exc.code
        raise
    finally:
        errand, loop = talk.errand, talk.loop
        totals = errand.totals
        totals.calls, totals.rounds = loop.calls_made, loop.rounds
        totals.count_limit_hit(gateway, errand.trace.door, ended_by)
        totals.record_end(gateway, errand.caller, errand.trace, ended_by)
    return outcome


async def _run_dialogue(gateway: Gateway, talk: Dialogue) -> DialogueOutcome:
    action: Action = talk.loop.start()
    handed: tuple[ToolCall, ...] = ()
    while not isinstance(action, Finish):
        if isinstance(action, RunTools):
            handed = action.handed
            for call, content in await run_tools(gateway, talk.errand, action.steps):
                talk.history.answer(call, content)
            action = talk.loop.on_results()
        else:
            _check_upstream(gateway, talk.upstream_id)
            heard = await _prompt(talk, action)
            if heard is None:
                action = talk.loop.on_timeout()
            else:
                action = talk.loop.on_reply(heard.calls, has_text=heard.has_text)
    return DialogueOutcome(finish=action, handed=handed if action.reason == "client_calls" else ())


def _check_upstream(gateway: Gateway, upstream_id: str | None) -> None:
    """What operators decide holds for the next round, as it does for tools."""
    upstream = gateway.snapshot.chat_upstreams.get(upstream_id or "")
    if upstream_id is not None and (upstream is None or not upstream.enabled):
        raise ModelUnavailable(f"chat upstream `{upstream_id}` was removed or switched off meanwhile")


async def _prompt(talk: Dialogue, action: AskModel) -> ModelTurn | None:
    """None: the time for the whole is used up."""
    clock, deadline_s = asyncio.get_running_loop().time, talk.errand.deadline_s
    if clock() >= deadline_s:
        return None  # not even begun: a model is paid for what it is asked
    try:
        async with asyncio.timeout_at(deadline_s):
            return await talk.ask(action)
    except (TimeoutError, ModelTimedOut):
        if clock() < deadline_s:
            raise
        return None
