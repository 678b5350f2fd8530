"""Budgets as tasks and requests narrow them: a JSON object with some of their names, read strictly.

What a task says of chats, in its `config`. Strict and total, as its policy is: nothing is guessed at.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Annotated, Final

import msgspec

from toolgate.errors import InvalidParams, InvalidRecord
from toolgate.model.chat import ChatBudgetLimits, ChatMode
from toolgate.model.tasks import Task

_HINT: Final = f"send an object with some of {', '.join(f'`{name}`' for name in ChatBudgetLimits.__slots__)}"
# No upper bounds: what is larger than it was changes nothing.
_Count = Annotated[int, msgspec.Meta(ge=0)]


class _BudgetsBody(msgspec.Struct, forbid_unknown_fields=True):
    """A null is not an absent budget, and refused."""

    max_iterations: _Count | msgspec.UnsetType = msgspec.UNSET
    max_total_tool_calls: _Count | msgspec.UnsetType = msgspec.UNSET
    max_tool_output_bytes: Annotated[int, msgspec.Meta(ge=256)] | msgspec.UnsetType = msgspec.UNSET
    tool_timeout_ms: Annotated[int, msgspec.Meta(ge=100)] | msgspec.UnsetType = msgspec.UNSET
    wall_clock_ms: Annotated[int, msgspec.Meta(ge=1_000)] | msgspec.UnsetType = msgspec.UNSET


def parse_budgets(text: str | bytes) -> ChatBudgetLimits:
    """The budgets in a JSON object, or InvalidParams. Those it does not name stay as they were."""
    try:
        sent = msgspec.json.decode(text, type=_BudgetsBody)
    except (msgspec.DecodeError, UnicodeError) as exc:
        raise InvalidParams(f"the value is not JSON of the right shape: {exc}", hint=_HINT) from exc
    json.loads(text, object_pairs_hook=_check_unique_names)
    return ChatBudgetLimits(**msgspec.to_builtins(sent))


def _check_unique_names(pairs: list[tuple[str, object]]) -> None:
    if len(dict(pairs)) < len(pairs):
        raise InvalidParams("a name stands in it twice", hint=_HINT)


_MODE: Final = "chat.mode"
_BUDGETS: Final = "chat.budgets"
_KEYS: Final = (_MODE, _BUDGETS)

_decode_mode: Callable[[str], ChatMode] = msgspec.json.Decoder(ChatMode).decode


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskChat:
    """How a task narrows chats. The default: not at all."""

    mode: ChatMode | None = None
    """None: as the upstream has it. `inject` does not undo its `passthrough`."""
    budgets: ChatBudgetLimits = field(default_factory=ChatBudgetLimits)


def parse_task_chat(task: Task) -> TaskChat:
    """What the keys `chat.…` in `task.config` say, or InvalidRecord. Others are not ours."""
    unknown = sorted(key for key in task.config if key.startswith("chat.") and key not in _KEYS)
    if unknown:
        raise InvalidRecord(
            f"task `{task.task_id}`: `{ascii(unknown[0])[1:-1]}` is not a key of a task",
            hint=f"the keys are {', '.join(f'`{key}`' for key in _KEYS)}",
        )
    return TaskChat(mode=_parse_mode(task), budgets=_parse_budgets(task))


def _parse_mode(task: Task) -> ChatMode | None:
    text = task.config.get(_MODE)
    if text is None:
        return None
    try:
        return _decode_mode(text)
    except (msgspec.DecodeError, UnicodeError) as exc:
        why = f"the value is not JSON of the right shape: {exc}"
        raise _invalid_key(task, _MODE, why, hint='write `"inject"` or `"passthrough"`') from exc


def _parse_budgets(task: Task) -> ChatBudgetLimits:
    text = task.config.get(_BUDGETS)
    if text is None:
        return ChatBudgetLimits()
    try:
        return parse_budgets(text)
    except InvalidParams as exc:
        raise _invalid_key(task, _BUDGETS, str(exc), hint=exc.hint) from exc


def _invalid_key(task: Task, key: str, why: str, *, hint: str) -> InvalidRecord:
    return InvalidRecord(f"task `{task.task_id}`: `{key}`: {why}", hint=hint)
