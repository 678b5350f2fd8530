"""Effects: what a tool's definition says that a call does. Patterns such as `@read_only` choose by them.

MCP lets a server annotate a tool with four hints. Each is true, false or absent, and two of them can
contradict each other. An allow pattern matches only what is stated; a deny pattern matches all that is not
ruled out. So a hint that is absent, or contradicted, always gives a caller less.

Hints are the server's own words. Only a pin makes sure that they stay as they were approved.
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
"""The effects that patterns know, and the annotation behind each."""


class Effects(NamedTuple):
    """What one definition states about the effects of its tool. Equal annotations share one object."""

    stated: frozenset[str]
    """The effects that the tool has, by its definition."""
    ruled_out: frozenset[str]
    """The effects that it does not have. What is in neither set is not known."""
    hints: tuple[tuple[str, bool], ...]
    """The annotations as they are, for people."""

    def counts_as(self, effect: str, *, is_deny: bool) -> bool:
        """Whether a pattern for `effect` matches the tool. This is the one place that decides it."""
        return effect not in self.ruled_out if is_deny else effect in self.stated

    def describe(self, effect: str) -> str:
        """What the definition says about `effect`, for people."""
        hint = HINTS[effect]
        said = dict(self.hints)
        if effect in _OPPOSITES and said.get("readOnlyHint") and said.get("destructiveHint"):
            return "the definition contradicts itself: `readOnlyHint: true`, `destructiveHint: true`"
        if hint in said:
            return f"the definition says `{hint}: {str(said[hint]).lower()}`"
        if effect in self.ruled_out:
            return "the definition says `readOnlyHint: true`"
        return f"the definition does not state `{hint}`"


_OPPOSITES: Final = frozenset({"destructive", "read_only"})


def read_effects(annotations: Mapping[str, Any]) -> Effects:
    """The effects by the `annotations` of a definition. Only a plain true or false is a hint."""
    return _derive_effects(tuple(_boolean(annotations.get(hint)) for hint in HINTS.values()))


def _boolean(value: object) -> bool | None:
    return value if isinstance(value, bool) else None


@lru_cache(maxsize=81)  # four hints, each true, false or absent
def _derive_effects(values: tuple[bool | None, ...]) -> Effects:
    said = dict(zip(HINTS, values, strict=True))
    stated = {effect for effect, value in said.items() if value is True}
    ruled_out = {effect for effect, value in said.items() if value is False}
    if stated >= _OPPOSITES:
        stated -= _OPPOSITES
    elif "read_only" in stated:
        # By MCP, `destructiveHint` has a meaning only where a tool is not read-only.
        ruled_out.add("destructive")
    return Effects(
        stated=frozenset(stated),
        ruled_out=frozenset(ruled_out),
        hints=tuple((HINTS[effect], value) for effect, value in said.items() if value is not None),
    )


UNSTATED: Final = read_effects({})
"""Of a tool without annotations, or without a definition."""
