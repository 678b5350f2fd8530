"""Chat: the upstreams that serve models, and the limits of a conversation."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

from toolgate.model.servers import EMPTY

ChatMode = Literal["inject", "passthrough"]
"""`inject`: offer the tools of the scope to the model and run them. `passthrough`: do neither."""
NameProfile = Literal["default", "identifier"]
"""The names of tools for a model; `identifier` is for models whose parsers reject hyphens."""
OtherTools = Literal["pass", "refuse"]
"""Tools of a request that are not functions: pass them to the model, or reject the request."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatBudgets:
    max_iterations: int = 8
    """The maximum number of rounds with tool calls."""
    max_total_tool_calls: int = 32
    max_tool_output_bytes: int = 65_536
    """The limit of one tool result for the model."""
    tool_timeout_ms: int = 30_000
    wall_clock_ms: int = 300_000
    """The time limit of models and tools together."""

    def narrow(self, limits: Mapping[str, int]) -> "ChatBudgets":
        """The smaller of each budget and its limit, by the name of the field."""
        return replace(self, **{name: min(most, getattr(self, name)) for name, most in limits.items()})


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatUpstream:
    """An OpenAI-compatible endpoint that serves models."""

    upstream_id: str
    base_url: str
    """The URL to which `/chat/completions`, `/responses` and `/models` are appended."""
    models: tuple[str, ...]
    """Patterns of the models it serves."""
    display_name: str = ""
    auth_ref: str | None = None
    """The name of a secret that the node sends as a bearer token; never the secret itself."""
    headers: Mapping[str, str] = field(default_factory=lambda: EMPTY)
    mode: ChatMode = "inject"
    name_profile: NameProfile = "default"
    other_tools: OtherTools = "pass"
    filter_undeclared_calls: bool = False
    """Whether to drop calls that a request does not declare, also in `inject` mode."""
    budgets: ChatBudgets = field(default_factory=ChatBudgets)
    answer_timeout_ms: int = 60_000
    """The time limit for the start of a response, and for each pause in it."""
    max_concurrency: int = 64
    enabled: bool = True
