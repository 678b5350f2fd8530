"""The tool loop as a state machine: takes what happened, returns what to do next. It awaits nothing.

It knows nothing of messages: its driver keeps those (`Transcript` for Chat Completions).

    state     what happens   then                                                                  state
    --------  -------------  --------------------------------------------------------------------  --------
    new       start          AskModel, with the caller's `tool_choice`                              asking
                             ... where nothing may run: with `none`, for the last time              last
    asking    on_reply       no calls: Finish(answered | model_silent)                              done
                             calls: RunTools; each is run, refused, or handed to the caller         running
    running   on_results     something was handed: Finish(client_calls)                             done
                             a budget is used up: AskModel with `none`, for the last time           last
                             else AskModel; with `auto` once the demanded call was made             asking
    last      on_reply       Finish(round_limit | call_limit | repeated_calls), calls are dropped   done
    any       on_timeout     Finish(time_limit)                                                     done

Invariants: a call of a reply is answered exactly once, in order. Nothing runs that the caller's view does not
hold, that its `tool_choice` excludes, or whose arguments are not one JSON object. At most
`max_total_tool_calls` calls are run or refused for a fault, in at most `max_iterations` rounds.
"""

import re
from collections import Counter
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from heapq import nsmallest
from typing import Final, Literal

from toolgate.chat.client_tools import ToolChoice
from toolgate.chat.tool_calls import CallError, ToolCall, canonicalize, parse_arguments
from toolgate.errors import PolicyDenied, ToolCallLimit, UnknownTool
from toolgate.model.chat import ChatBudgets

Choice = Literal["sent", "auto", "none"]
"""The `tool_choice` of a prompt: the client's, or the gateway's once that is satisfied."""
StopReason = Literal[
    "answered", "client_calls", "round_limit", "call_limit", "repeated_calls", "time_limit", "model_silent"
]
"""`answered` and `client_calls` are the model's decision; budgets and faults cause all others."""

MAX_IDENTICAL_CALLS: Final = 2  # how often the same call runs; a model that repeats it once more is in a loop
MAX_NAMES_LISTED: Final = 20  # in an error for the model: enough to find the right one, and cheap in tokens
MAX_NAME_SHOWN: Final = 128  # the longest name of a tool in MCP
_WORD: Final = re.compile(r"[a-z0-9]+")


@dataclass(frozen=True, slots=True, kw_only=True)
class AskModel:
    """Prompt the model with everything so far. `is_last`: its calls do not run any more."""

    choice: Choice
    is_last: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class RunTool:
    """Make one call. `name` is that in the caller's view, `arguments` a JSON object."""

    call: ToolCall
    name: str
    arguments: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class RefuseTool:
    """Do not make one call; the model gets the error instead."""

    call: ToolCall
    error: CallError


@dataclass(frozen=True, slots=True, kw_only=True)
class RunTools:
    """What to do with the calls of a reply, in their order; each occurs once."""

    steps: tuple[RunTool | RefuseTool, ...]
    """Each gets one result, in this order."""
    handed: tuple[ToolCall, ...] = ()
    """Calls of the client's own functions: it gets them when the steps are done, and the loop ends."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finish:
    """The end. `closing` is the text for the client if the model itself has none."""

    reason: StopReason
    closing: str = ""

    @property
    def stopped_by(self) -> StopReason | None:
        """What ended it early; None if the model did."""
        return None if self.reason in ("answered", "client_calls") else self.reason


Action = AskModel | RunTools | Finish
_State = Literal["new", "asking", "running", "last", "done"]


class ToolLoop:
    """One chat. `names` maps what a model may call to names in the caller's view. The client's `own`
    functions win over tools of the same name, which then never run."""

    def __init__(
        self, *, names: Mapping[str, str], own: Container[str], budgets: ChatBudgets, choice: ToolChoice
    ) -> None:
        self.rounds = 0
        """Rounds in which tools ran, or were refused."""
        self.calls_made = 0
        """Calls that ran, or were refused for a fault. Calls past the budget do not count."""
        self._names = names
        self._own = own
        self._budgets = budgets
        self._choice = choice
        self._chosen = frozenset(names[name] for name in choice.names if name in names and name not in own)
        self._asked: Choice = "sent"
        self._is_satisfied = False
        """The call that the client's choice demands was made."""
        self._runs: Counter[tuple[str, bytes]] = Counter()
        self._state: _State = "new"
        self._is_handing = False
        self._is_circling = False
        self._stop: StopReason | None = None

    def start(self) -> AskModel:
        assert self._state == "new"
        return self._ask()

    def on_completion(self, calls: Sequence[ToolCall], *, has_text: bool) -> RunTools | Finish:
        """Decide on a reply with these calls. `has_text`: it can stand as an answer."""
        assert self._state in ("asking", "last")
        if self._state == "last" or not calls:
            reason = self._stop or ("answered" if has_text else "model_silent")
            return self._finish(reason, closing="" if has_text else self._closing(reason))
        self._state = "running"
        steps = tuple(self._step(call) for call in calls if not self._is_own(call))
        handed = tuple(call for call in calls if self._is_own(call))
        self.rounds += bool(steps)
        self._is_handing = bool(handed)
        self._is_circling = all(isinstance(step, RefuseTool) and step.error == _REPEATED for step in steps)
        return RunTools(steps=steps, handed=handed)

    def on_results(self) -> AskModel | Finish:
        """All steps of the last RunTools have results."""
        assert self._state == "running"
        return self._finish("client_calls") if self._is_handing else self._ask()

    def on_timeout(self) -> Finish:
        """The deadline has passed, in whatever state."""
        return self._finish("time_limit", closing=self._closing("time_limit"))

    def _ask(self) -> AskModel:
        may_call = self._choice.kind != "none"
        if may_call and self._is_circling:
            self._stop = "repeated_calls"
        elif may_call and self.calls_made >= self._budgets.max_total_tool_calls:
            self._stop = "call_limit"
        elif may_call and self.rounds >= self._budgets.max_iterations:
            self._stop = "round_limit"
        if self._stop or not may_call:
            self._state = "last"
            return AskModel(choice="none", is_last=True)
        self._state = "asking"
        self._asked = "auto" if self._is_satisfied else "sent"
        return AskModel(choice=self._asked)

    def _finish(self, reason: StopReason, *, closing: str = "") -> Finish:
        self._state = "done"
        return Finish(reason=reason, closing=closing)

    def _is_own(self, call: ToolCall) -> bool:
        """Only a client can declare a tool that is not a function."""
        return call.kind == "other" or call.name in self._own

    def _is_chosen(self, name: str) -> bool:
        """Tools that are not allowed stay so. A named tool is the only one until it is called."""
        is_narrow = self._choice.kind == "allowed" or (self._choice.kind == "named" and self._asked == "sent")
        return name in self._chosen or not is_narrow

    def _step(self, call: ToolCall) -> RunTool | RefuseTool:
        most = self._budgets.max_total_tool_calls
        if self.calls_made >= most:
            message = f"this request may make at most {most} tool calls. Answer with the results so far"
            return _refuse(call, ToolCallLimit.code, f"not run: {message}")
        self.calls_made += 1
        name = self._names.get(call.name)
        if name is None:
            return _refuse(call, UnknownTool.code, self._suggest_names(call.name[:MAX_NAME_SHOWN]))
        if not self._is_chosen(name):
            allowed = ", ".join(f"`{one}`" for one in self._choice.names[:MAX_NAMES_LISTED])
            message = f"the `tool_choice` of this request excludes `{call.name}`. It allows {allowed}"
            return _refuse(call, PolicyDenied.code, f"not run: {message}")
        self._is_satisfied = self._choice.mode == "required"
        arguments = parse_arguments(call.arguments)
        if isinstance(arguments, CallError):
            return RefuseTool(call=call, error=arguments)
        same = name, canonicalize(arguments)
        if self._runs[same] == MAX_IDENTICAL_CALLS:
            return RefuseTool(call=call, error=_REPEATED)
        self._runs[same] += 1
        return RunTool(call=call, name=name, arguments=arguments)

    @cached_property
    def _known(self) -> list[tuple[str, frozenset[str]]]:
        """The names in `tools`, each with its words."""
        return [(name, _words(name)) for name in sorted(self._names) if "." not in name]

    def _suggest_names(self, name: str) -> str:
        """Suggests the names that share most words with it: models are mostly wrong by little."""
        meant, known = _words(name), self._known
        nearest = nsmallest(MAX_NAMES_LISTED, known, key=lambda one: -len(meant & one[1]))
        listed = ", ".join(f"`{near}`" for near, _ in nearest) or "none"
        which = (
            "The tools are" if len(known) <= MAX_NAMES_LISTED else f"Of {len(known)} tools, the nearest are"
        )
        return f"there is no tool `{name}`. {which}: {listed}"

    def _closing(self, reason: StopReason) -> str:
        most = self._budgets
        closings: Mapping[StopReason, str] = {
            "round_limit": f"Stopped: this request may run tools in at most {most.max_iterations} rounds.",
            "call_limit": f"Stopped: this request may make at most {most.max_total_tool_calls} tool calls.",
            "repeated_calls": "Stopped: the model kept making the same tool call.",
            "time_limit": f"Stopped: this request may take at most {most.wall_clock_ms / 1000:g} seconds.",
            "model_silent": "The model ended its answer without any text.",
        }
        return closings[reason]


_REPEATED: Final = CallError(
    code="repeated_call",
    message="this call was made twice already, and was not run again: use its results",
    retryable=False,
)


def _refuse(call: ToolCall, code: str, message: str) -> RefuseTool:
    return RefuseTool(call=call, error=CallError(code=code, message=message, retryable=False))


def _words(name: str) -> frozenset[str]:
    return frozenset(_WORD.findall(name.lower()))
