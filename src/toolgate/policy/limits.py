"""How large a scope may be. Past that it is made searchable or refused whole, never cut silently."""

import sys
from dataclasses import dataclass
from typing import Final, Literal

from toolgate.errors import TooManyTools
from toolgate.policy.scope import Refusal

OnTooMany = Literal["refuse", "find"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """The size of one scope, in tools and in the tokens their definitions cost a model."""

    max_tools: int = 128
    max_definition_tokens: int | None = None
    on_too_many: OnTooMany = "find"

    def excess(self, tools: int, tokens: int) -> str | None:
        """By how much a scope of that size is too large, or None."""
        if tools > self.max_tools:
            return f"{tools} tools, {tools - self.max_tools} more than `max_tools` {self.max_tools}"
        most = self.max_definition_tokens
        if most is not None and tokens > most:
            return f"definitions of {tokens} tokens, {tokens - most} more than `max_definition_tokens` {most}"
        return None


DEFAULT_LIMITS: Final = Limits()
NO_LIMITS: Final = Limits(max_tools=sys.maxsize)
"""For a scope that is not listed whatever its size."""


def searchable_warning(excess: str) -> str:
    """What the callers of a scope that is too large by `excess` get in place of its definitions, and why."""
    return (
        f"the scope has {excess}, so its tools are searched and not listed; "
        "each can still be called by its name. To have them listed, narrow the scope with `?tools=`, "
        "`?servers=`, a task or a profile"
    )


def too_many_tools(excess: str) -> Refusal:
    """The refusal of a scope that is too large by `excess`."""
    return Refusal(code="too_many_tools", message=f"the scope has {excess}", hint=TooManyTools.default_hint)
