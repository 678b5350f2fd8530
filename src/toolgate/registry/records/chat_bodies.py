"""The shape of a chat upstream as it is written and stored."""

from pydantic import Field, model_validator

from toolgate.model.chat import ChatBudgets, ChatMode, ChatUpstream, NameProfile, OtherTools
from toolgate.registry.records.body import StrictBody, make_value
from toolgate.registry.records.fields import (
    HeaderName,
    HeaderValue,
    ModelPattern,
    SecretName,
    Title,
    UpstreamId,
    Url,
    field_error,
)

_BUDGETS = ChatBudgets()


class ChatBudgetsBody(StrictBody):
    """How far one request may go. A field left out has its own default; tasks and requests only narrow."""

    max_iterations: int = Field(default=_BUDGETS.max_iterations, ge=0, le=100)
    """Rounds in which tools are run."""

    max_total_tool_calls: int = Field(default=_BUDGETS.max_total_tool_calls, ge=0, le=1_000)
    """Calls of tools, all rounds together."""

    max_tool_output_bytes: int = Field(default=_BUDGETS.max_tool_output_bytes, ge=256, le=4_194_304)
    """The longest result a model gets; more is cut, and marked as cut."""

    tool_timeout_ms: int = Field(default=_BUDGETS.tool_timeout_ms, ge=100, le=300_000)
    """How long one call of a tool may take; that of its server holds as well."""

    wall_clock_ms: int = Field(default=_BUDGETS.wall_clock_ms, ge=1_000, le=3_600_000)
    """How long the whole may take, models and tools together."""

    def value(self) -> ChatBudgets:
        return make_value(self, ChatBudgets)


class ChatUpstreamBody(StrictBody):
    """An OpenAI-compatible endpoint that serves models."""

    upstream_id: UpstreamId
    """Its name. `<upstream_id>/<model>` asks for a model of this very upstream."""

    base_url: Url
    """What `/chat/completions`, `/responses` and `/models` are appended to, like `https://api.openai.com/v1`.
    A query stays at the end."""

    models: list[ModelPattern] = Field(min_length=1, max_length=256)
    """The models it is asked for, by name; `*` and `?` stand for others."""

    display_name: Title = ""
    """For people."""

    auth_ref: SecretName | None = None
    """The name of a secret the node resolves and sends as a bearer token; never the secret itself."""

    headers: dict[HeaderName, HeaderValue] = Field(default={}, max_length=64)
    """Headers sent with every request. Values may hold references."""

    mode: ChatMode = "inject"
    """`inject`: tools are offered and run here. `passthrough`: nothing is run, whatever a request says."""

    name_profile: NameProfile = "default"
    """How tools are named to its models: `identifier` for those whose parsers take no hyphen."""

    other_tools: OtherTools = "pass"
    """Whether tools that are no functions pass as they are, or the request is refused."""

    filter_undeclared_calls: bool = False
    """Whether calls of tools that a request does not declare are taken out of the answer, also for requests
    without a task. In `passthrough` they always are."""

    budgets: ChatBudgetsBody = ChatBudgetsBody()
    """How far one request may go."""

    answer_timeout_ms: int = Field(default=60_000, ge=100, le=3_600_000)
    """How long a model may take to begin its answer, and between two parts of it."""

    max_concurrency: int = Field(default=64, ge=1, le=10_000)
    """Requests to it at once; more are turned away."""

    enabled: bool = True
    """Whether it is asked at all."""

    @model_validator(mode="after")
    def _one_credential(self) -> "ChatUpstreamBody":
        names = [name.lower() for name in self.headers]
        if len(set(names)) < len(names):
            raise field_error("`headers` names a header twice, in different case")
        if self.auth_ref is not None and "authorization" in names:
            raise field_error("`auth_ref` and a header `Authorization` are one too many")
        return self

    def value(self) -> ChatUpstream:
        return make_value(self, ChatUpstream)
