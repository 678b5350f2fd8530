"""What a task says of chats, in its `config`. Strict and total, as its policy is: nothing is guessed at."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

import msgspec

from toolgate.chat.budgets import parse_budgets
from toolgate.errors import InvalidParams, InvalidRecord
from toolgate.model.chat import BudgetsNarrowed, ChatMode
from toolgate.model.tasks import Task

_MODE: Final = "chat.mode"
_BUDGETS: Final = "chat.budgets"
_KEYS: Final = (_MODE, _BUDGETS)

_decode_mode: Callable[[str], ChatMode] = msgspec.json.Decoder(ChatMode).decode


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskChat:
    """How a task narrows chats. The default: not at all."""

    mode: ChatMode | None = None
    """None: as the upstream has it. `inject` does not undo its `passthrough`."""
    budgets: BudgetsNarrowed = field(default_factory=BudgetsNarrowed)


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
        raise _refused(task, _MODE, why, hint='write `"inject"` or `"passthrough"`') from exc


def _parse_budgets(task: Task) -> BudgetsNarrowed:
    text = task.config.get(_BUDGETS)
    if text is None:
        return BudgetsNarrowed()
    try:
        return parse_budgets(text)
    except InvalidParams as exc:
        raise _refused(task, _BUDGETS, str(exc), hint=exc.hint) from exc


def _refused(task: Task, key: str, why: str, *, hint: str) -> InvalidRecord:
    return InvalidRecord(f"task `{task.task_id}`: `{key}`: {why}", hint=hint)
