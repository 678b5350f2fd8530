"""Chat: the models that are asked, and how far a conversation with one may go."""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Literal

from toolgate.model.servers import EMPTY

ChatMode = Literal["inject", "passthrough"]
"""`inject`: tools of the scope are offered to the model and run here. `passthrough`: nothing is."""
NameProfile = Literal["default", "identifier"]
"""How tools are named to a model; `identifier` is for those whose parsers take no hyphen."""
OtherTools = Literal["pass", "refuse"]
"""What becomes of tools in a request that are no functions: the model has them as they are, or nobody."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatBudgets:
    """How far one request may go. An absent field has its default."""

    max_iterations: int = 8
    """Rounds in which tools are run."""
    max_total_tool_calls: int = 32
    max_tool_output_bytes: int = 65_536
    """Of one result, as the model gets it."""
    tool_timeout_ms: int = 30_000
    wall_clock_ms: int = 300_000
    """Of the whole, models and tools."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatBudgetLimits:
    """What a task or a request asks for. None: as it was."""

    max_iterations: int | None = None
    max_total_tool_calls: int | None = None
    max_tool_output_bytes: int | None = None
    tool_timeout_ms: int | None = None
    wall_clock_ms: int | None = None

    def of(self, budgets: ChatBudgets) -> ChatBudgets:
        """`budgets`, nowhere larger, and where it is asked for smaller."""
        asked = {one.name: getattr(self, one.name) for one in fields(self)}
        return ChatBudgets(
            **{
                name: getattr(budgets, name) if most is None else min(most, getattr(budgets, name))
                for name, most in asked.items()
            }
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatUpstream:
    """An OpenAI-compatible endpoint that serves models."""

    upstream_id: str
    base_url: str
    """What `/chat/completions`, `/responses` and `/models` are appended to."""
    models: tuple[str, ...]
    """Patterns of the models it is asked for."""
    display_name: str = ""
    auth_ref: str | None = None
    """The name of a secret the node resolves and sends as a bearer token; never the secret itself."""
    headers: Mapping[str, str] = field(default_factory=lambda: EMPTY)
    mode: ChatMode = "inject"
    name_profile: NameProfile = "default"
    other_tools: OtherTools = "pass"
    filter_undeclared_calls: bool = False
    """Whether calls that a request does not declare are taken out also where it is not in passthrough."""
    budgets: ChatBudgets = field(default_factory=ChatBudgets)
    answer_timeout_ms: int = 60_000
    """How long a model may take to begin its answer, and between two parts of it."""
    max_concurrency: int = 64
    enabled: bool = True
