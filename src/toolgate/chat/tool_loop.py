"""The tool loop as a state machine: takes an event, returns the next action. It awaits nothing.

Its driver keeps the messages (`Transcript` for Chat Completions).

    state     event          action                                                                 state
    --------  -------------  ---------------------------------------------------------------------  --------
    new       start          PromptModel, with the client's `tool_choice`                            prompted
                             if no tool may run: with `none`, for the last time                     last
    prompted  on_completion  no calls: Finish(answered | model_silent)                              done
                             calls: RunTools; each runs, is refused, or goes to the client          running
    running   on_results     the client got a call: Finish(client_calls)                            done
                             a budget is used up: PromptModel with `none`, for the last time        last
                             else PromptModel; with `auto` after the required call                  prompted
    last      on_completion  Finish(round_limit | call_limit | repeated_calls), calls are dropped   done
    any       on_timeout     Finish(time_limit)                                                     done

Invariants: each call of a completion gets exactly one result, in order. No call runs if the caller's view
does not hold the tool, if `tool_choice` excludes it, or if the arguments are not one JSON object. At most
`max_total_tool_calls` calls run or are refused for a fault, in at most `max_iterations` rounds.
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
"""The `tool_choice` of a prompt: the client's, or the gateway's once a call has satisfied it."""
StopReason = Literal[
    "answered", "client_calls", "round_limit", "call_limit", "repeated_calls", "time_limit", "model_silent"
]
"""The model decides on `answered` and `client_calls`; budgets and faults cause all others."""

MAX_IDENTICAL_CALLS: Final = 2  # how often the same call runs; a model that repeats it once more is in a loop
MAX_NAMES_LISTED: Final = 20  # in an error for the model: enough to find the right one, and cheap in tokens
MAX_NAME_SHOWN: Final = 128  # the longest name of a tool in MCP
_WORD: Final = re.compile(r"[a-z0-9]+")


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptModel:
    """Prompt the model with the whole history. `is_last`: its calls do not run."""

    choice: Choice
    is_last: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class RunTool:
    """Run one call. `name` is the tool's name in the caller's view, `arguments` is a JSON object."""

    call: ToolCall
    name: str
    arguments: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class RefuseTool:
    """Do not run one call; the model gets the error instead."""

    call: ToolCall
    error: CallError


@dataclass(frozen=True, slots=True, kw_only=True)
class RunTools:
    """Process the calls of a completion: each is in `steps` or in `handed`, in its order."""

    steps: tuple[RunTool | RefuseTool, ...]
    """Each gets one result, in this order."""
    handed: tuple[ToolCall, ...] = ()
    """Calls of the client's own functions: it gets them after the steps, and the loop ends."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finish:
    """End the chat. `closing` is the text for the client if the model sent none."""

    reason: StopReason
    closing: str = ""

    @property
    def stopped_by(self) -> StopReason | None:
        """Why the chat ended early; None if the model ended it."""
        return None if self.reason in ("answered", "client_calls") else self.reason


Action = PromptModel | RunTools | Finish
_State = Literal["new", "prompted", "running", "last", "done"]


class ToolLoop:
    """One chat. `names` maps the names that a model may call to names in the caller's view. The client's
    `own` functions shadow tools of the same name, which then never run."""

    def __init__(
        self, *, names: Mapping[str, str], own: Container[str], budgets: ChatBudgets, choice: ToolChoice
    ) -> None:
        self.rounds = 0
        """Rounds with tools that ran or were refused."""
        self.calls_made = 0
        """Calls that ran or were refused for a fault. Calls past the budget do not count."""
        self._names = names
        self._own = own
        self._budgets = budgets
        self._choice = choice
        self._chosen = frozenset(names[name] for name in choice.names if name in names and name not in own)
        self._sent_choice: Choice = "sent"
        self._is_satisfied = False
        """The model has made the call that the client's choice requires."""
        self._runs: Counter[tuple[str, bytes]] = Counter()
        self._state: _State = "new"
        self._is_handing = False
        self._is_circling = False
        self._stop: StopReason | None = None

    def start(self) -> PromptModel:
        assert self._state == "new"
        return self._prompt()

    def on_completion(self, calls: Sequence[ToolCall], *, has_text: bool) -> RunTools | Finish:
        """Decide on a completion with these calls. `has_text`: it has content for the client."""
        assert self._state in ("prompted", "last")
        if self._state == "last" or not calls:
            reason = self._stop or ("answered" if has_text else "model_silent")
            return self._finish(reason, closing="" if has_text else self._describe_stop(reason))
        self._state = "running"
        steps = tuple(self._decide_step(call) for call in calls if not self._is_own(call))
        handed = tuple(call for call in calls if self._is_own(call))
        self.rounds += bool(steps)
        self._is_handing = bool(handed)
        self._is_circling = all(isinstance(step, RefuseTool) and step.error == _REPEATED for step in steps)
        return RunTools(steps=steps, handed=handed)

    def on_results(self) -> PromptModel | Finish:
        """All steps of the last RunTools have results."""
        assert self._state == "running"
        return self._finish("client_calls") if self._is_handing else self._prompt()

    def on_timeout(self) -> Finish:
        """The deadline has passed, in any state."""
        return self._finish("time_limit", closing=self._describe_stop("time_limit"))

    def _prompt(self) -> PromptModel:
        may_call = self._choice.kind != "none"
        if may_call and self._is_circling:
            self._stop = "repeated_calls"
        elif may_call and self.calls_made >= self._budgets.max_total_tool_calls:
            self._stop = "call_limit"
        elif may_call and self.rounds >= self._budgets.max_iterations:
            self._stop = "round_limit"
        if self._stop or not may_call:
            self._state = "last"
            return PromptModel(choice="none", is_last=True)
        self._state = "prompted"
        self._sent_choice = "auto" if self._is_satisfied else "sent"
        return PromptModel(choice=self._sent_choice)

    def _finish(self, reason: StopReason, *, closing: str = "") -> Finish:
        self._state = "done"
        return Finish(reason=reason, closing=closing)

    def _is_own(self, call: ToolCall) -> bool:
        """Only a client can declare a tool that is not a function."""
        return call.kind == "other" or call.name in self._own

    def _decide_step(self, call: ToolCall) -> RunTool | RefuseTool:
        max_calls = self._budgets.max_total_tool_calls
        if self.calls_made >= max_calls:
            message = f"this request may make at most {max_calls} tool calls. Respond with the results so far"
            return _refuse(call, ToolCallLimit.code, f"not run: {message}")
        self.calls_made += 1
        name = self._names.get(call.name)
        if name is None:
            return _refuse(call, UnknownTool.code, self._suggest_names(call.name[:MAX_NAME_SHOWN]))
        kind = self._choice.kind
        # A named tool is the only one until the model calls it.
        is_narrow = kind == "allowed" or (kind == "named" and self._sent_choice == "sent")
        if is_narrow and name not in self._chosen:
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
        return [(name, _split_words(name)) for name in sorted(self._names) if "." not in name]

    def _suggest_names(self, name: str) -> str:
        """Suggest the names that share most words with `name`: models are mostly wrong by little."""
        words, known = _split_words(name), self._known
        nearest = nsmallest(MAX_NAMES_LISTED, known, key=lambda one: -len(words & one[1]))
        listed = ", ".join(f"`{near}`" for near, _ in nearest) or "none"
        is_complete = len(known) <= MAX_NAMES_LISTED
        intro = "The tools are" if is_complete else f"Of {len(known)} tools, the nearest are"
        return f"there is no tool `{name}`. {intro}: {listed}"

    def _describe_stop(self, reason: StopReason) -> str:
        limits = self._budgets
        closings: Mapping[StopReason, str] = {
            "round_limit": f"Stopped: this request may run tools in at most {limits.max_iterations} rounds.",
            "call_limit": f"Stopped: this request may make at most {limits.max_total_tool_calls} tool calls.",
            "repeated_calls": "Stopped: the model kept making the same tool call.",
            "time_limit": f"Stopped: this request may take at most {limits.wall_clock_ms / 1000:g} seconds.",
            "model_silent": "The model ended its response without any text.",
        }
        return closings[reason]


_REPEATED: Final = CallError(
    code="repeated_call",
    message="this call has run twice already, and was not run again: use its results",
    retryable=False,
)


def _refuse(call: ToolCall, code: str, message: str) -> RefuseTool:
    return RefuseTool(call=call, error=CallError(code=code, message=message, retryable=False))


def _split_words(name: str) -> frozenset[str]:
    return frozenset(_WORD.findall(name.lower()))
