"""Effects: what a tool's definition states about its calls. Patterns such as `@read_only` select by them.

MCP lets a server annotate a tool with four hints. Each is true, false or absent, and two of them may
contradict each other. An allow pattern matches only stated effects; a deny pattern matches all that are not
ruled out. So an absent or contradicted hint always gives a caller less.

Hints are the server's own words. Only a pin ensures that they stay as approved.
"""

from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Final, NamedTuple

HINTS: Final[Mapping[str, str]] = {
    "destructive": "destructiveHint",
    "idempotent": "idempotentHint",
    "open_world": "openWorldHint",
    "read_only": "readOnlyHint",
}
"""The effects of patterns, and the annotation of each."""


class Effects(NamedTuple):
    """The effects of a tool by its definition. Equal annotations share one object."""

    stated: frozenset[str]
    """The effects that the tool has."""
    ruled_out: frozenset[str]
    """The effects that it does not have. An effect in neither set is unknown."""
    hints: tuple[tuple[str, bool], ...]
    """The annotations, for people."""

    def counts_as(self, effect: str, *, is_deny: bool) -> bool:
        """Whether a pattern for `effect` matches the tool. Only this method decides it."""
        return effect not in self.ruled_out if is_deny else effect in self.stated

    def describe(self, effect: str) -> str:
        """The statement of the definition about `effect`, for people."""
        hint = HINTS[effect]
        hints = dict(self.hints)
        if effect in _OPPOSITES and hints.get("readOnlyHint") and hints.get("destructiveHint"):
            return "the definition contradicts itself: `readOnlyHint: true`, `destructiveHint: true`"
        if hint in hints:
            return f"the definition says `{hint}: {str(hints[hint]).lower()}`"
        if effect in self.ruled_out:
            return "the definition says `readOnlyHint: true`"
        return f"the definition does not state `{hint}`"


_OPPOSITES: Final = frozenset({"destructive", "read_only"})


def read_effects(annotations: Mapping[str, Any]) -> Effects:
    """The effects by the `annotations` of a definition. Only true and false are hints."""
    values = map(annotations.get, HINTS.values())
    return _derive_effects(tuple(value if isinstance(value, bool) else None for value in values))


@lru_cache(maxsize=81)  # four hints, each true, false or absent
def _derive_effects(values: tuple[bool | None, ...]) -> Effects:
    hints = dict(zip(HINTS, values, strict=True))
    stated = {effect for effect, value in hints.items() if value is True}
    ruled_out = {effect for effect, value in hints.items() if value is False}
    if stated >= _OPPOSITES:
        stated -= _OPPOSITES
    elif "read_only" in stated:
        # By MCP, `destructiveHint` is meaningful only if a tool is not read-only.
        ruled_out.add("destructive")
    return Effects(
        stated=frozenset(stated),
        ruled_out=frozenset(ruled_out),
        hints=tuple((HINTS[effect], value) for effect, value in hints.items() if value is not None),
    )


UNSTATED: Final = read_effects({})
"""For a tool without annotations, or without a definition."""
