"""The shapes of what is said about policy: what matches nothing, who sees what and why."""

from toolgate.gateway.scope.caller import Mode
from toolgate.model.quotas import HolderKind, QuotaName
from toolgate.model.reports import HealthState
from toolgate.model.revisions import Kind
from toolgate.model.tasks import RolloutBy, Side
from toolgate.model.tools import ToolDefinition
from toolgate.policy.lint import FindingCode
from toolgate.policy.scope import ApprovalRequirement, Decision, Layer, Reason, Refusal, RefusalCode
from toolgate.surfaces.rest.framework.response import ResponseShape, Revision


class RefusalShown(ResponseShape, frozen=True, kw_only=True):
    """Why a scope is turned down as a whole."""

    code: RefusalCode
    message: str
    hint: str


def show_refusal(refusal: Refusal | None) -> RefusalShown | None:
    """A refusal as answers hold it."""
    if refusal is None:
        return None
    return RefusalShown(code=refusal.code, message=refusal.message, hint=refusal.hint)


class FindingShown(ResponseShape, frozen=True, kw_only=True):
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


class LintAnswer(ResponseShape, frozen=True, kw_only=True):
    """Rules that match nothing, and the like."""

    revision: Revision
    findings: list[FindingShown]
    unjudged: list[FindingShown]
    """Rules that may match something of a server that has not listed its tools."""


class TaskOverview(ResponseShape, frozen=True, kw_only=True):
    """What one task sees."""

    task_id: str
    display_name: str
    servers: list[str]
    tools: int
    tokens: int
    url: str
    refusal: RefusalShown | None
    warnings: list[str]


class OverviewAnswer(ResponseShape, frozen=True, kw_only=True):
    """All tasks, and what there is to see."""

    revision: Revision
    registered_tools: int
    registered_tokens: int
    tasks: list[TaskOverview]


class ServerSeen(ResponseShape, frozen=True, kw_only=True):
    """A server the caller can reach."""

    server_id: str
    display_name: str
    state: HealthState
    tools: int
    """How many of its tools the caller can call."""
    tags: list[str]


class ServersSeen(ResponseShape, frozen=True, kw_only=True):
    """The servers the caller can reach, and no others."""

    revision: Revision
    servers: list[ServerSeen]
    next_cursor: str | None
    """Where the next page begins; null: there is none."""


class ReachSeen(ResponseShape, frozen=True, kw_only=True):
    """How the servers fare that the caller can reach."""

    revision: Revision
    """Of the registry, as it is served here."""
    degraded: bool
    """What is served is not known to be current."""
    servers: dict[str, HealthState]
    """Server id to its state."""


class ScopeSeen(ResponseShape, frozen=True, kw_only=True):
    """The effective scope of a caller at `url`."""

    revision: Revision
    url: str
    task_id: str | None
    """The task that applies."""
    servers: list[str]
    tools: list[str]
    prompts: list[str]
    """As on the MCP door."""
    resources: list[str]
    """Their URIs, and the templates for those that are not listed."""
    tokens: int
    """About what the definitions of its tools cost a model."""
    prices: dict[str, int]
    """Those of each tool."""
    registered_tools: int
    """All that there are; for an agent, all that it could have."""
    registered_tokens: int
    """What the definitions of all those would cost."""
    shadowed: list[str]
    """`server/tool`: what would be denied, were the policy of the task enforced. For an agent, empty."""
    warnings: list[str]
    refusal: RefusalShown | None
    """Why the request is turned down as a whole."""
    mode: Mode
    """`find`: the MCP door shows three tools there that find and call these."""


class ToolSeen(ResponseShape, frozen=True, kw_only=True):
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


class ToolsSeen(ResponseShape, frozen=True, kw_only=True):
    """Exactly what the MCP door lists, or has found, under `url`."""

    revision: Revision
    tools: list[ToolSeen]
    tokens: int
    registered_tools: int
    """All that there are; for an agent, all that it could have."""
    registered_tokens: int
    """What the definitions of all those would cost."""
    warnings: list[str]
    url: str
    mode: Mode
    """`find`: the MCP door shows three tools there that find and call these."""


class ShadowShown(ResponseShape, frozen=True, kw_only=True):
    """What would deny something, were the policy of the task enforced."""

    layer: Layer
    reason: Reason | None
    rule: str


class DecisionShown(ResponseShape, frozen=True, kw_only=True):
    """One yes or no, by the layer and rule that made it."""

    server_id: str
    tool: str | None
    """A tool's name, `prompt:<name>` or `resource:<uri>`. Null: the whole server."""
    native_name: str | None = None
    """What the server itself calls a tool that goes by an alias here. Null: the same."""
    allowed: bool
    layer: Layer
    reason: Reason | None
    """Null exactly when allowed."""
    rule: str
    tokens: int | None
    """About what the definition of the tool costs a model. Null: it is no tool, or not known."""
    hints: dict[str, bool] | None = None
    """What the annotations of the definition say about effects, such as `readOnlyHint`. Null: not known."""
    approval: str | None = None
    """The rule by which a person must agree to each call of the tool. Null: nobody need."""
    shadow: ShadowShown | None = None
    """Allowed only because the task's policy is not enforced: who would deny it. Null: nobody would."""


def show_decision(
    decision: Decision, tool: ToolDefinition | None = None, demand: ApprovalRequirement | None = None
) -> DecisionShown:
    """A decision as answers hold it, with the price of what it is about, and who must agree to calls."""
    return DecisionShown(
        server_id=decision.server_id,
        tool=decision.tool,
        native_name=None if tool is None else tool.native_name or None,
        allowed=decision.allowed,
        layer=decision.layer,
        reason=decision.reason,
        rule=decision.rule,
        tokens=None if tool is None else tool.tokens,
        hints=None if tool is None else dict(tool.effects.hints),
        approval=None if demand is None else demand.rule,
        shadow=None
        if decision.shadow is None
        else ShadowShown(
            layer=decision.shadow.layer, reason=decision.shadow.reason, rule=decision.shadow.rule
        ),
    )


class BudgetShown(ResponseShape, frozen=True, kw_only=True):
    """A budget over time that applies."""

    layer: HolderKind
    holder_id: str
    """The key or the task, whose calls all share it."""
    budget: QuotaName
    limit: int


class ProfileSeen(ResponseShape, frozen=True, kw_only=True):
    """The version of a profile that took part in a decision."""

    profile_id: str
    version: int
    side: Side | None
    """Null: no rollout is under way."""
    share: int
    """Percent of callers or tasks that have this version."""
    by: RolloutBy


class VersionActivity(ResponseShape, frozen=True, kw_only=True):
    """The calls under one version of a profile."""

    version: int
    side: Side | None
    """Null: the version holds for every caller, or for none any more."""
    share: int
    """Percent of callers or tasks that have it now."""
    calls: int
    """Those that were admitted, however they ended."""
    errors: int
    """Of them, those that failed: outcomes `error` and `tool_error`."""
    denied: int
    """Calls that were not admitted."""
    p50_ms: float | None
    p95_ms: float | None
    """Both within 5 %."""


class VersionsAnswer(ResponseShape, frozen=True, kw_only=True):
    """The versions of a profile compared by the calls that each decided."""

    profile_id: str
    by: RolloutBy | None
    """What the rollout divides. Null: none is under way."""
    since_ms: int
    until_ms: int
    versions: list[VersionActivity]


class ExplainAnswer(ResponseShape, frozen=True, kw_only=True):
    """Every decision about a scope."""

    revision: Revision
    refusal: RefusalShown | None
    tools: list[DecisionShown]
    servers: list[DecisionShown]
    """Servers left out whole."""
    pending: list[str]
    """Servers in the scope whose tools are not known yet: more may come."""
    unverified: list[str]
    """Servers in the scope that are listed as an earlier run knew them: they list their tools when they are
    first called."""
    budgets: list[BudgetShown]
    """What every call has to have room in."""
    warnings: list[str]
    profiles: list[ProfileSeen]
    """That of the task first."""
    mode: Mode
    """`find`: the MCP door shows three tools there that find and call those allowed."""
