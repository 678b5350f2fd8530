"""Budgets as tasks and requests narrow them: a JSON object with some of their names, read strictly."""

import json
from typing import Annotated, Final

import msgspec

from toolgate.errors import InvalidParams
from toolgate.model.chat import BudgetsNarrowed

_HINT: Final = f"send an object with some of {', '.join(f'`{name}`' for name in BudgetsNarrowed.__slots__)}"
# No upper bounds: what is larger than it was changes nothing.
_Count = Annotated[int, msgspec.Meta(ge=0)]


class _Sent(msgspec.Struct, forbid_unknown_fields=True):
    """A null is not an absent budget, and refused."""

    max_iterations: _Count | msgspec.UnsetType = msgspec.UNSET
    max_total_tool_calls: _Count | msgspec.UnsetType = msgspec.UNSET
    max_tool_output_bytes: Annotated[int, msgspec.Meta(ge=256)] | msgspec.UnsetType = msgspec.UNSET
    tool_timeout_ms: Annotated[int, msgspec.Meta(ge=100)] | msgspec.UnsetType = msgspec.UNSET
    wall_clock_ms: Annotated[int, msgspec.Meta(ge=1_000)] | msgspec.UnsetType = msgspec.UNSET


def parse_budgets(text: str | bytes) -> BudgetsNarrowed:
    """The budgets in a JSON object, or InvalidParams. Those it does not name stay as they were."""
    try:
        sent = msgspec.json.decode(text, type=_Sent)
    except (msgspec.DecodeError, UnicodeError) as exc:
        raise InvalidParams(f"the value is not JSON of the right shape: {exc}", hint=_HINT) from exc
    json.loads(text, object_pairs_hook=_refuse_repeats)
    return BudgetsNarrowed(**msgspec.to_builtins(sent))


def _refuse_repeats(pairs: list[tuple[str, object]]) -> None:
    if len(dict(pairs)) < len(pairs):
        raise InvalidParams("a name stands in it twice", hint=_HINT)
