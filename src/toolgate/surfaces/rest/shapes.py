"""The shapes of requests and answers. Requests are checked by them; answers are documented by them.

The records themselves have their shapes in the registry, which alone decides what may be stored.
"""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, JsonValue, create_model

from toolgate.model.principals import Role
from toolgate.model.revisions import Kind
from toolgate.policy.lint import FindingCode
from toolgate.policy.scope import Layer, Reason, Refusal, RefusalCode
from toolgate.registry.bodies import CeilingBody, ProfileBody, ServerBody, TaskBody
from toolgate.registry.fields import Name, ServerId
from toolgate.upstream.health import HealthState, ServerHealth

Revision = Annotated[int, Field(ge=0)]


class Shape(BaseModel):
    """Nothing is coerced and nothing unknown is taken. Built at first use, so that starting stays quick."""

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        strict=True,
        use_attribute_docstrings=True,
        hide_input_in_errors=True,
        defer_build=True,
    )


class NoBody(Shape):
    """Nothing, or an empty object."""


class ErrorDetail(Shape):
    """A failure. Programs act on the code, people on the rest."""

    code: str
    """Stable."""
    message: str
    """What happened."""
    hint: str
    """What to do next."""
    data: dict[str, Any] | None = None
    """More about it, where there is more."""


class ErrorAnswer(Shape):
    """The one shape of every error."""

    error: ErrorDetail


class HealthAnswer(Shape):
    """Whether the gateway serves, and what."""

    status: Literal["ok"]
    version: str
    revision: Revision
    """The registry revision served."""
    servers: dict[HealthState, int]
    """How many servers are in each state."""
    uptime_s: float


# Servers, tasks, profiles: as stored in the registry, with the revision that last wrote them.


class ServerShown(ServerBody):
    """A server: its record with secrets masked, and how it fares on this node."""

    revision: Revision
    health: ServerHealth | None
    """Null as long as this node does not know the server."""


class TaskShown(TaskBody):
    """A task."""

    revision: Revision


class ProfileShown(ProfileBody):
    """A profile."""

    revision: Revision


Ignored = Annotated[Any, Field(description="Ignored: so that what was read can be sent back as it is.")]
JsonTexts = Annotated[
    dict[str, JsonValue],
    Field(description="As of a task; a value that is not text is stored as its JSON text."),
]

ServerSent = create_model(
    "ServerSent",
    __base__=ServerBody,
    server_id=(ServerId | None, None),
    revision=(Ignored, None),
    health=(Ignored, None),
)
"""A server as it is written. Where the path names it, the body need not."""
TaskSent = create_model(
    "TaskSent",
    __base__=TaskBody,
    task_id=(Name | None, None),
    config=(JsonTexts, {}),
    revision=(Ignored, None),
)
"""A task as it is written."""
ProfileSent = create_model(
    "ProfileSent", __base__=ProfileBody, profile_id=(Name | None, None), revision=(Ignored, None)
)
"""A profile as it is written."""


class ServerList(Shape):
    """All servers at one revision."""

    revision: Revision
    servers: list[ServerShown]


class TaskList(Shape):
    """All tasks at one revision."""

    revision: Revision
    tasks: list[TaskShown]


class ProfileList(Shape):
    """All profiles at one revision."""

    revision: Revision
    profiles: list[ProfileShown]


class Deleted(Shape):
    """A record that is gone."""

    revision: Revision
    """Of the registry, with the record gone."""
    warnings: list[str]
    """What now refers to nothing."""


class ServerWritten(Deleted):
    """A server as it is stored now."""

    server: ServerShown


class TaskWritten(Deleted):
    """A task as it is stored now."""

    task: TaskShown


class ProfileWritten(Deleted):
    """A profile as it is stored now."""

    profile: ProfileShown


class TrialAnswer(Shape):
    """What came of connecting to a server once, beside the connection in use."""

    ok: bool
    connect_ms: int | None
    list_ms: int | None
    era: str | None
    version: str | None
    tools: list[str]
    quarantined: dict[str, str]
    """Tool name to why its definition was refused."""
    error: str
    stderr_tail: str


class RefreshAnswer(Shape):
    """A server after its tools were listed again."""

    server_id: str
    health: ServerHealth
    tools: list[str]
    quarantined: dict[str, str]


# Keys: made here, shown once.


class KeySent(Shape):
    """A key to be made. Its secret is chosen by the gateway."""

    key_id: Name
    """The principal's name in audit and logs."""
    role: Role
    """At most the role of who makes it."""
    ceiling: CeilingBody = CeilingBody()
    """The most it may ever reach; within the ceiling of who makes it."""
    default_task: Name | None = None
    """The task of a request that names none."""
    expires_at_s: int | None = Field(default=None, ge=0, le=253_402_300_799)
    """Unix time after which it proves nothing."""


class KeyShown(KeySent):
    """A key without its secret, which nobody can show again."""

    revision: Revision


class KeyList(Shape):
    """All keys at one revision."""

    revision: Revision
    keys: list[KeyShown]


class KeyMade(KeyShown):
    """A new key. This answer is the only place its secret ever stands in."""

    secret: str


# Policy: what would change, what matches nothing, who sees what and why.


class PlanSent(Shape):
    """A change to look at: a record as it would be written, or null for its removal."""

    kind: Literal["server", "task", "profile"]
    id: str
    body: dict[str, JsonValue] | None


class RefusalShown(Shape):
    """Why a scope is turned down as a whole."""

    code: RefusalCode
    message: str
    hint: str


class TaskPlan(Shape):
    """What a change does to one task, or, with null, to callers without one. Tools are `server/tool`."""

    task_id: str | None
    added: list[str]
    """For callers who ask for nothing in particular."""
    removed: list[str]
    reach_added: list[str]
    """What a request could newly get by naming servers."""
    reach_removed: list[str]
    refusal: RefusalShown | None
    """Why a request would be turned down as a whole after the change."""
    problem: str | None
    """Why the task could not be read after the change."""


class PlanAnswer(Shape):
    """What a change would do to each task. Nothing has been changed."""

    tasks: list[TaskPlan]
    unchanged: int


class FindingShown(Shape):
    """A rule that does not do what its author must have meant."""

    code: FindingCode
    where: str
    """Kind and id of the record."""
    kind: Kind
    id: str
    rule: str
    """The list or field, as explanations call it."""
    subject: str
    """The entry of the list."""
    message: str


class LintAnswer(Shape):
    """Rules that match nothing, and the like."""

    findings: list[FindingShown]


class ReloadAnswer(Shape):
    """What the directory of server files did to the registry, or, in a dry run, would do."""

    revision: Revision
    applied: list[str]
    """`+` added, `~` changed, `-` removed, each with its file."""
    kept: list[str]
    """Servers that stay as they were last good, because their file is wrong now."""
    warnings: list[str]
    problems: list[str]
    """What is wrong with files, each with its place."""


class ServerSeen(Shape):
    """A server the caller can reach."""

    server_id: str
    display_name: str
    state: HealthState
    tools: int
    """How many of its tools the caller can call."""
    tags: list[str]


class ServersSeen(Shape):
    """The servers the caller can reach, and no others."""

    revision: Revision
    servers: list[ServerSeen]


class ToolSeen(Shape):
    """A tool the caller can call."""

    name: str
    """As on the MCP door."""
    server_id: str
    tool: str
    description: str
    tokens: int
    """About what the definition costs a model."""
    rule: str
    """The rule that lets it through."""


class ToolsSeen(Shape):
    """Exactly what the MCP door lists under `url`."""

    revision: Revision
    tools: list[ToolSeen]
    tokens: int
    registered_tools: int
    registered_tokens: int
    warnings: list[str]
    url: str


class DecisionShown(Shape):
    """One yes or no, by the layer and rule that made it."""

    server_id: str
    tool: str | None
    """Null: the whole server."""
    allowed: bool
    layer: Layer
    reason: Reason | None
    """Null exactly when allowed."""
    rule: str


class ExplainAnswer(Shape):
    """Every decision about a scope."""

    revision: Revision
    refusal: RefusalShown | None
    tools: list[DecisionShown]
    servers: list[DecisionShown]
    """Servers left out whole."""
    pending: list[str]
    """Servers in the scope whose tools are not known yet: more may come."""
    warnings: list[str]


class TaskOverview(Shape):
    """What one task sees."""

    task_id: str
    display_name: str
    servers: list[str]
    tools: int
    tokens: int
    url: str
    refusal: RefusalShown | None
    warnings: list[str]


class OverviewAnswer(Shape):
    """All tasks, and what there is to see."""

    revision: Revision
    registered_tools: int
    registered_tokens: int
    tasks: list[TaskOverview]


def show_refusal(refusal: Refusal | None) -> RefusalShown | None:
    """A refusal as answers hold it."""
    if refusal is None:
        return None
    return RefusalShown(code=refusal.code, message=refusal.message, hint=refusal.hint)
