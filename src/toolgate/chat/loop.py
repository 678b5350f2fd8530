"""The tool loop as a state machine: takes what happened, returns what to do next. It awaits nothing.

It knows nothing of messages: whoever drives it keeps those (`chat/transcript` for chat completions).
"""

from dataclasses import dataclass
from typing import Literal

from toolgate.chat.calls import CallError, ToolCall

Choice = Literal["sent", "auto", "none"]
"""Which `tool_choice` a model is asked with: the caller's own, or ours after that was satisfied."""
StopReason = Literal[
    "answered", "client_calls", "round_limit", "call_limit", "repeated_calls", "time_limit", "model_silent"
]
"""`answered` and `client_calls` are the model's doing, all others a budget's or a fault's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AskModel:
    """Ask, with everything so far. `is_last`: whatever it calls now is not run."""

    choice: Choice
    is_last: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One call to make. `name` is that of the caller's view, `arguments` a JSON object."""

    call: ToolCall
    name: str
    arguments: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Refused:
    """One call that is not made, and what the model is told instead."""

    call: ToolCall
    error: CallError


@dataclass(frozen=True, slots=True, kw_only=True)
class RunTools:
    """What to do with the calls of a reply, in their order; each stands in exactly one place."""

    steps: tuple[Run | Refused, ...]
    """Each is answered by one message, in this order."""
    handed: tuple[ToolCall, ...] = ()
    """The caller's own functions: when the steps are done it gets these, and the loop ends."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finish:
    """The end. `closing` is what to say where the model itself has said nothing that could stand."""

    reason: StopReason
    closing: str = ""


Action = AskModel | RunTools | Finish
