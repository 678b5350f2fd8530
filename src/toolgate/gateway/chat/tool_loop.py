"""The tool calls of one reply of a model, made at the same time: each ends in exactly one text for it.

Whatever becomes of a call is told to the model, which decides what to do next: nothing here fails but by
cancellation, and then every call that still runs is cancelled with it.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal, NamedTuple

import msgspec
from msgspec.structs import replace

from toolgate.catalog.encoding import InputNeeded, adapt_result
from toolgate.chat.calls import CallError, ToolCall, call_error
from toolgate.chat.tool_calls import TOOL_ERROR, cut_text, error_text, tool_text
from toolgate.chat.tool_loop import Refused, Run
from toolgate.errors import CallTimedOut, InputNotGiven, InvalidArguments, ToolgateError
from toolgate.gateway.call.session_totals import SessionTotals
from toolgate.gateway.chat.scope import meant_name
from toolgate.gateway.gateway import Gateway
from toolgate.gateway.scope.caller import Caller, Trace
from toolgate.model.chat import ChatBudgets
from toolgate.model.raw import Members, decode_members
from toolgate.upstream.connection.messages import parse_error
from toolgate.upstream.pool.pool import Answer

MAX_AT_ONCE: Final = 8
"""Calls of one conversation at the same time; others of a reply wait. Servers have limits of their own."""
OWN_TOOL_FAILED: Final = "tool_exec_failed"
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


class Said(NamedTuple):
    """What the model is told of one call."""

    content: str
    code: str = ""
    """Why it failed, if it did."""

    @property
    def ok(self) -> bool:
        return not self.code


class OwnToolFailed(Exception):
    """What the model is told of a function of the caller that gave no result."""


OwnTool = Callable[[bytes], Awaitable[str]]
"""A function of the caller that is run here: gets a JSON object. Raises OwnToolFailed, and ToolgateErrors."""


async def _tell_nobody(_event: ToolEvent) -> None:
    """For a conversation that nobody follows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Errand:
    """For whom calls are made, and within what."""

    caller: Caller
    budgets: ChatBudgets
    trace: Trace
    deadline_s: float
    """When the whole conversation has to end, by the loop's clock. Calls that run then are cancelled."""
    on_event: Callable[[ToolEvent], Awaitable[None]] = _tell_nobody
    """A ToolgateError that it raises where a call is to start keeps it from being made."""
    own: Mapping[str, OwnTool] = field(default_factory=dict)
    """By the names that the loop has for them. Such a call has no time of its own: only the whole has one."""
    totals: SessionTotals = field(default_factory=SessionTotals)
    """What the conversation has used."""


async def run_tools(
    gateway: Gateway, errand: Errand, steps: Sequence[Run | Refused]
) -> list[tuple[ToolCall, str]]:
    """What the model is told of each step, in their order."""
    slots = asyncio.Semaphore(MAX_AT_ONCE)
    async with asyncio.TaskGroup() as tasks:
        running = [tasks.create_task(_step(gateway, errand, step, slots=slots)) for step in steps]
    return [(step.call, one.result()) for step, one in zip(steps, running, strict=True)]


async def _step(gateway: Gateway, errand: Errand, step: Run | Refused, *, slots: asyncio.Semaphore) -> str:
    if isinstance(step, Refused):
        _record_unmade(gateway, errand, step)
        return error_text(step.error)
    try:
        async with asyncio.timeout_at(errand.deadline_s), slots:
            return await _run(gateway, errand, step)
    except TimeoutError:
        return _failed(CallTimedOut("the time for the whole conversation is used up", hint="")).content


async def _run(gateway: Gateway, errand: Errand, step: Run) -> str:
    """One call, as soon as there is a place for it."""
    clock = asyncio.get_running_loop().time
    began_s = clock()
    said = await _try(gateway, errand, step)
    errand.totals.note_failure(gateway, errand.trace.door, said.code)
    took_ms = round((clock() - began_s) * 1e3)
    await errand.on_event(
        ToolEvent("tool_finished", step.call.call_id, step.name, said.ok, took_ms, said.code)
    )
    return said.content


async def _try(gateway: Gateway, errand: Errand, step: Run) -> Said:
    own, max_bytes = errand.own.get(step.name), errand.budgets.max_tool_output_bytes
    try:
        await errand.on_event(ToolEvent("tool_started", step.call.call_id, step.name))
        if own is not None:
            return Said(cut_text(await own(step.arguments), max_bytes))
        return _said(await _call(gateway, errand, step), max_bytes)
    except OwnToolFailed as exc:
        return _told(CallError(code=OWN_TOOL_FAILED, message=str(exc), retryable=False))
    except InputNeeded:
        return _failed(InputNotGiven("the tool wants to ask its user something, and nobody here can answer"))
    except ToolgateError as exc:
        return _failed(exc)


async def _call(gateway: Gateway, errand: Errand, step: Run) -> Answer:
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


def _said(answer: Answer, max_bytes: int) -> Said:
    """Raises InputNeeded and ServerUnavailable."""
    members = answer.reply.members
    if members is None:
        return _told(server_error(answer.reply.error))
    text, is_error = tool_text(_plain(members, answer), max_bytes=max_bytes)
    return Said(text, TOOL_ERROR if is_error else "")


def _plain(members: Members, answer: Answer) -> Members:
    """A result without what only one era knows."""
    if answer.era == "legacy":
        return members
    return decode_members(adapt_result(members, upstream=answer.era, client="legacy"))


def server_error(raw: bytes | None) -> CallError:
    """What a server says of a call that it did not make."""
    error = parse_error(raw)
    is_about_arguments = error.code == _INVALID_PARAMS
    code = InvalidArguments.code if is_about_arguments else TOOL_ERROR
    said = error.message[:_MAX_QUOTED] or "the server answered with an error and does not say which"
    return CallError(code=code, message=said, retryable=is_about_arguments)


def _failed(exc: ToolgateError) -> Said:
    return _told(call_error(exc))


def _told(error: CallError) -> Said:
    return Said(error_text(error), error.code)


def _record_unmade(gateway: Gateway, errand: Errand, step: Refused) -> None:
    """A model's call of what its caller does not have, or one too many, is a denial like any other."""
    try:
        view = gateway.calling_view(errand.caller)
    except ToolgateError:  # whoever may see nothing any more has no tool either
        return
    name = meant_name(gateway.snapshot, step.call.name)
    gateway.record_unmade(view, name, trace=errand.trace, code=step.error.code)
