"""Drives one conversation: the pure loop says what to do next, and here it is done.

It knows neither HTTP nor messages. A dialect keeps the messages and builds what a model is asked; the door
gives the way to ask, which may pass on what the model says while it says it.
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from toolgate.chat.calls import ToolCall
from toolgate.chat.tool_loop import Action, AskModel, Finish, RunTools, ToolLoop
from toolgate.errors import CallCancelled, ModelTimedOut, ModelUnavailable, ToolgateError
from toolgate.gateway.chat.tool_loop import Errand, run_tools
from toolgate.gateway.gateway import Gateway


class Heard(NamedTuple):
    """What a model's reply comes to for the loop."""

    calls: tuple[ToolCall, ...]
    has_text: bool


Ask = Callable[[AskModel], Awaitable[Heard]]
"""Asks the model, and keeps its reply in the history."""


class History(Protocol):
    """A dialect, as far as results are put into it."""

    def answer(self, call: ToolCall, content: str) -> None:
        """The result of one call of the newest reply. Each has exactly one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Talk:
    """One conversation."""

    loop: ToolLoop
    history: History
    ask: Ask
    errand: Errand
    upstream_id: str | None = None
    """Who is asked: one that is removed or switched off meanwhile is asked no more. None: nobody can be."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """How a conversation ended."""

    finish: Finish
    handed: tuple[ToolCall, ...] = ()
    """The caller's own functions, which it is to call itself."""


async def converse(gateway: Gateway, talk: Talk) -> Outcome:
    """Ask and run until an answer, a function of the caller's own, or a budget. Raises what asking raises.

    The wall clock is over everything: a model that is asked when it ends is not waited for any longer, calls
    that run are cancelled, and every one has its result all the same. What it used is recorded in any case.
    """
    ended_by = CallCancelled.code
    try:
        outcome = await _converse(gateway, talk)
        ended_by = outcome.finish.reason
    except ToolgateError as exc:
        ended_by = exc.code
        raise
    finally:
        errand, loop = talk.errand, talk.loop
        totals = errand.totals
        totals.calls, totals.rounds = loop.calls_made, loop.rounds
        totals.note_failure(gateway, errand.trace.door, ended_by)
        totals.record_end(gateway, errand.caller, errand.trace, ended_by)
    return outcome


async def _converse(gateway: Gateway, talk: Talk) -> Outcome:
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
            heard = await _ask(talk, action)
            if heard is None:
                action = talk.loop.on_timeout()
            else:
                action = talk.loop.on_reply(heard.calls, has_text=heard.has_text)
    return Outcome(finish=action, handed=handed if action.reason == "client_calls" else ())


def _check_upstream(gateway: Gateway, upstream_id: str | None) -> None:
    """What operators decide holds for the next round, as it does for tools."""
    upstream = gateway.snapshot.chat_upstreams.get(upstream_id or "")
    if upstream_id is not None and (upstream is None or not upstream.enabled):
        raise ModelUnavailable(f"chat upstream `{upstream_id}` was removed or switched off meanwhile")


async def _ask(talk: Talk, action: AskModel) -> Heard | None:
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
