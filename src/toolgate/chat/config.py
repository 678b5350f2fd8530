"""The chat settings of tasks and requests: mode and budgets. They only narrow; invalid ones are errors."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Final, Literal

import msgspec

from toolgate.errors import InvalidParams, InvalidRecord
from toolgate.model.chat import ChatBudgets, ChatMode
from toolgate.model.tasks import Task

_HINT: Final = f"send an object with some of {', '.join(f'`{name}`' for name in ChatBudgets.__slots__)}"
# No upper bounds: a budget larger than that of the upstream changes nothing.
_Count = Annotated[int, msgspec.Meta(ge=0)]
_MODE: Final = "chat.mode"
_BUDGETS: Final = "chat.budgets"
_KEYS: Final = (_MODE, _BUDGETS)


class _BudgetsBody(msgspec.Struct, forbid_unknown_fields=True):
    """Members may be absent, but not null."""

    max_iterations: _Count | msgspec.UnsetType = msgspec.UNSET
    max_total_tool_calls: _Count | msgspec.UnsetType = msgspec.UNSET
    max_tool_output_bytes: Annotated[int, msgspec.Meta(ge=256)] | msgspec.UnsetType = msgspec.UNSET
    tool_timeout_ms: Annotated[int, msgspec.Meta(ge=100)] | msgspec.UnsetType = msgspec.UNSET
    wall_clock_ms: Annotated[int, msgspec.Meta(ge=1_000)] | msgspec.UnsetType = msgspec.UNSET


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatOptions:
    """What a task or a request sets for a chat; by default, nothing."""

    mode: ChatMode | None = None
    """None: the upstream's mode. `inject` does not override the upstream's `passthrough`."""
    budgets: Mapping[str, int] = field(default_factory=dict)
    """See `ChatBudgets.narrow`."""
    explain: bool = False
    """Whether the response explains the decision on each tool. Only requests set this, and the next."""
    progress: bool | Literal["full"] = False
    """Whether a stream reports the tools that run; `full`: with arguments and results, and refused calls."""


def parse_budgets(text: str | bytes) -> dict[str, int]:
    """Parse a JSON object with limits for some of the budgets. Raises InvalidParams."""
    try:
        sent = msgspec.json.decode(text, type=_BudgetsBody)
    except (msgspec.DecodeError, UnicodeError) as exc:
        raise InvalidParams(f"invalid value: {exc}", hint=_HINT) from exc
    json.loads(text, object_pairs_hook=_check_unique_names)
    limits: dict[str, int] = msgspec.to_builtins(sent)  # without unset fields
    return limits


def _check_unique_names(pairs: list[tuple[str, object]]) -> None:
    if len(dict(pairs)) < len(pairs):
        raise InvalidParams("duplicate name in the object", hint=_HINT)


def parse_task_chat(task: Task) -> ChatOptions:
    """Parse the keys `chat.…` of `task.config`, and ignore all others. Raises InvalidRecord."""
    unknown = sorted(key for key in task.config if key.startswith("chat.") and key not in _KEYS)
    if unknown:
        problem = f"task `{task.task_id}`: unknown key `{ascii(unknown[0])[1:-1]}`"
        raise InvalidRecord(problem, hint=f"the keys are {', '.join(f'`{key}`' for key in _KEYS)}")
    mode, budgets = task.config.get(_MODE), task.config.get(_BUDGETS)
    try:
        return ChatOptions(
            mode=None if mode is None else msgspec.json.decode(mode, type=ChatMode),
            budgets={} if budgets is None else parse_budgets(budgets),
        )
    except (msgspec.DecodeError, UnicodeError) as exc:
        message = f"task `{task.task_id}`: `{_MODE}`: invalid value: {exc}"
        raise InvalidRecord(message, hint='write `"inject"` or `"passthrough"`') from exc
    except InvalidParams as exc:
        raise InvalidRecord(f"task `{task.task_id}`: `{_BUDGETS}`: {exc}", hint=exc.hint) from exc
