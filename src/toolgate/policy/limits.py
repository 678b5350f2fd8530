"""How large a scope may be. Past it a scope is refused whole or made searchable, never cut silently."""

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
    on_too_many: OnTooMany = "refuse"

    def excess(self, tools: int, tokens: int) -> str | None:
        """By how much a scope of that size is too large, or None."""
        if tools > self.max_tools:
            return f"{tools} tools, {tools - self.max_tools} more than `max_tools` {self.max_tools}"
        most = self.max_definition_tokens
        if most is not None and tokens > most:
            return f"definitions of {tokens} tokens, {tokens - most} more than `max_definition_tokens` {most}"
        return None


DEFAULT_LIMITS: Final = Limits()


def too_many_tools(excess: str) -> Refusal:
    """The refusal of a scope that is too large by `excess`."""
    return Refusal(code="too_many_tools", message=f"the scope has {excess}", hint=TooManyTools.default_hint)
