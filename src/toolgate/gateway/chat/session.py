"""One chat whose tools are run here: what it begins with, and the parts that bring it to its end.

The doors have it in common. What they add is how a request comes to them, and how its answer goes.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec

from toolgate.chat.completions import Transcript
from toolgate.chat.endings import Ending, handed_calls, remarks
from toolgate.chat.injection import Injection, inject
from toolgate.chat.requests import ChatRequest, check_choice
from toolgate.chat.tool_loop import ToolLoop
from toolgate.errors import InvalidChat, ToolgateError
from toolgate.errors.wires import WIRE
from toolgate.gateway.asking import Asking
from toolgate.gateway.chat.scope import ChatScope, tool_table
from toolgate.gateway.chat.tool_loop import Errand, OwnTool
from toolgate.gateway.conversing import Ask, Outcome, Talk
from toolgate.gateway.gateway import Gateway
from toolgate.gateway.metering import metered
from toolgate.gateway.scope.caller import Trace
from toolgate.gateway.scope.view import View
from toolgate.model.raw import Members
from toolgate.telemetry.spans import MAX_NAME_CHARS, Span
from toolgate.upstream.models.client import Models

OWN: Final = "own/"
"""Before the name of a function of the caller that is run here: no name in a view begins so."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Opening:
    """What a chat begins with."""

    request: ChatRequest
    scope: ChatScope
    offered: Injection = field(default_factory=Injection)
    trace: Trace
    own: Mapping[str, OwnTool] = field(default_factory=dict)
    """Functions of the caller that are run here. Those of others are the caller's to call."""


class Chat:
    """One chat. Its time begins now."""

    def __init__(self, gateway: Gateway, models: Models, opening: Opening) -> None:
        request, scope, offered = opening.request, opening.scope, opening.offered
        deadline_s = scope.deadline_s()
        self._opening = opening
        self.transcript = Transcript(request, offered)
        self.loop = ToolLoop(
            names={**offered.names, **{name: f"{OWN}{name}" for name in opening.own}},
            own=request.declared.own - opening.own.keys(),
            budgets=scope.budgets,
            choice=request.choice,
        )
        self.asking = Asking(
            models=metered(gateway, models, scope.caller),
            upstream=scope.upstream,
            transcript=self.transcript,
            loop=self.loop,
            deadline_s=deadline_s,
            metrics=gateway.metrics,
        )
        self.errand = Errand(
            caller=scope.caller,
            budgets=scope.budgets,
            trace=opening.trace,
            deadline_s=deadline_s,
            own={f"{OWN}{name}": tool for name, tool in opening.own.items()},
        )

    def talk(self, ask: Ask) -> Talk:
        """It, as `converse` drives it."""
        return Talk(
            loop=self.loop,
            history=self.transcript,
            ask=ask,
            errand=self.errand,
            upstream_id=self._opening.scope.upstream.upstream_id,
        )

    def ending(
        self, outcome: Outcome, head: Members, *, said: Mapping[str, Any], first_id: str | None = None
    ) -> Ending:
        """What the caller gets, with `head` where the model's server says nothing else, and what is `said`.

        The first call that it is handed goes by `first_id`, if that is given.
        """
        reply = self.asking.last
        calls: list[Members] = []
        if outcome.handed and reply is not None:
            calls = handed_calls(reply, outcome.handed, first_id)
        return Ending(
            head=head if reply is None else head | reply.head,
            reply=reply,
            closing=outcome.finish.closing,
            calls=calls,
            usage=self.asking.usage,
            extension=said,
        )

    def remarks(self, outcome: Outcome, view: View | None) -> dict[str, Any]:
        """What the gateway itself has to say."""
        asked, shadowed = self._opening.request.asked, self._opening.offered.shadowed
        said = remarks(outcome.finish, self.loop, asked, shadowed=shadowed)
        if view is not None and view.warnings:
            said["warnings"] = view.warnings
        return said


async def offer(
    gateway: Gateway, request: ChatRequest, scope: ChatScope, *, door: str
) -> tuple[View, Injection]:
    """The caller's view, and what of it the model is offered. Raises InvalidChat, and as `gateway.view`."""
    view = await gateway.settled_view(scope.caller)
    gateway.listed(view, door)
    table = tool_table(view, gateway.snapshot, scope.upstream.name_profile)
    offered = inject(table, request.declared.own)
    if not request.declared.other_kinds:
        check_choice(request.choice, {*request.declared.own, *offered.declared})
    return view, offered


def check_single(request: ChatRequest) -> None:
    """InvalidChat where more than one answer is asked for: each would have calls of its own."""
    if msgspec.json.decode(request.members.get("n", b"1")) not in (1, None):
        raise InvalidChat("'n' must be 1 where tools are run.", param="n")


@contextmanager
def counted(gateway: Gateway, scope: ChatScope) -> Iterator[list[str]]:
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
    span.note("gen_ai.request.model", scope.model[:MAX_NAME_CHARS])
    span.note("toolgate.outcome", outcome)
    if outcome in WIRE:  # a stream that has begun breaks off, and nothing is raised
        span.fail(outcome)
