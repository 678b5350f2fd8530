"""Why a caller sees what it sees: every decision about a scope, by the layer and the rule that made it.

An agent gets the decisions about its own tools only.
"""

import asyncio
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import Final, get_args

from toolgate.errors import Forbidden, NotFound
from toolgate.gateway.auth.identity import principal_of, reaches
from toolgate.gateway.gateway import Gateway
from toolgate.gateway.scope.caller import Caller, Mode, can_show_server, explain_for, visible_decisions
from toolgate.gateway.scope.routes import decide_unlisted
from toolgate.govern.process import GatewayProcess
from toolgate.model.names import RESOURCE, ToolRef, kind_of, parse_server_id, parse_task_id
from toolgate.model.principals import HolderKind, Principal, QuotaName
from toolgate.model.tasks import RolloutBy, Side
from toolgate.model.tools import ToolDefinition
from toolgate.policy.admission import list_limits
from toolgate.policy.scope import ApprovalRequirement, Decision, Layer, Reason, Scope
from toolgate.surfaces.rest.data_plane.scopes import SELECTION, RefusalShown, parse_caller
from toolgate.surfaces.rest.framework.request import Parameter, RestCall
from toolgate.surfaces.rest.framework.response import ResponseShape, Revision
from toolgate.surfaces.rest.framework.routing import get


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
    """The rule by which a person must agree to each call of the tool. Null: no approval is required."""
    shadow: ShadowShown | None = None
    """Allowed only because the task's policy is not enforced: who would deny it. Null: no layer would."""


def show_decision(
    decision: Decision, tool: ToolDefinition | None = None, demand: ApprovalRequirement | None = None
) -> DecisionShown:
    """A decision as answers hold it, with the price of what it is about, and who must agree to calls."""
    return DecisionShown.of(
        decision,
        native_name=None if tool is None else tool.native_name or None,
        tokens=None if tool is None else tool.tokens,
        hints=None if tool is None else dict(tool.effects.hints),
        approval=None if demand is None else demand.rule,
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


class ExplainResponse(ResponseShape, frozen=True, kw_only=True):
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


_QUERY: Final = (
    *SELECTION,
    Parameter("tool", "Only this: `log`, `git.log`, `git/log`, `prompt:<name>` or `resource:<uri>`."),
    Parameter("server", "Only this server, also for resources it does not list."),
    Parameter("key", "Explain for this key instead of your own (administrators only)."),
    Parameter("side", "As if the caller had this version of profiles in a rollout: `stable` or `candidate`."),
)


@get("/api/v1/mcp/explain", "agent", "Explain what is seen and why", query=_QUERY, errors=(NotFound,))
async def explain_scope(serving: GatewayProcess, call: RestCall[None]) -> ExplainResponse:
    """Everything there is, in or out, by which layer and rule. An agent is told of its own tools alone."""
    gateway, query = serving.gateway, call.query
    if "server" in query:
        parse_server_id(query["server"])
    caller = parse_caller(_explained_principal(gateway, call.caller, query.get("key")), query)
    # Of ten thousand tools it takes a tenth of a second, in which others want to be served.
    unverified = frozenset(gateway.servers.unverified)
    side, asker = call.choice("side", get_args(Side)), call.caller

    def explain(query: Mapping[str, str]) -> ExplainResponse:
        snapshot = gateway.snapshot
        found = explain_for(asker, caller, snapshot, gateway.limits, side=side)
        scope = found.scope
        return ExplainResponse.of(
            found,
            scope,
            revision=snapshot.revision,
            tools=list(_show_decisions(gateway, scope, found.tools, query))
            or list(_show_unlisted(gateway, caller, query, asker=asker)),
            servers=list(_show_decisions(gateway, scope, found.servers, query)),
            unverified=[
                one for one in scope.servers if one in unverified and can_show_server(snapshot, asker, one)
            ],
            budgets=[
                BudgetShown(layer=one.holder.kind, holder_id=one.holder.id, budget=budget, limit=limit)
                for one in gateway.quotas_of(caller)
                for budget, limit in list_limits(one.budgets).items()
            ],
            mode=caller.mode_of(scope),
        )

    split = _split_tool(gateway, query)
    response = await asyncio.to_thread(explain, split)
    if split is not query and not response.tools:
        # The dot may be part of the tool's own name.
        whole = await asyncio.to_thread(explain, query)
        response = whole if whole.tools or not response.servers else response
    return response


def _split_tool(gateway: Gateway, query: Mapping[str, str]) -> Mapping[str, str]:
    """The query with `server.tool` or `server/tool` as two members, where there is such a server."""
    kind = kind_of(query.get("tool", ""))
    for sign in ("/",) if kind else ("/", "."):
        server_id, found, name = query.get("tool", "")[len(kind) :].partition(sign)
        if found and "server" not in query and server_id in gateway.snapshot.servers:
            return {**query, "server": server_id, "tool": kind + name}
    return query


def _explained_principal(gateway: Gateway, principal: Principal, key_id: str | None) -> Principal:
    """Whose scope is explained: the caller's own, or, for an administrator, that of any key."""
    if key_id is None:
        return principal
    if not reaches(principal.role, "admin"):
        raise Forbidden("explaining for another key needs the role `admin`")
    key = gateway.snapshot.keys.get(key_id)
    if key is None:
        raise NotFound(f"there is no key `{parse_task_id(key_id)}`")
    return principal_of(key)


def _show_decisions(
    gateway: Gateway, scope: Scope, decisions: Iterable[Decision], query: Mapping[str, str]
) -> Iterator[DecisionShown]:
    for one in decisions:
        offer = gateway.snapshot.servers.get(one.server_id)
        tool = None if offer is None or one.tool is None else offer.tools.get(one.tool)
        names = (one.tool, None if tool is None else tool.native_name)
        is_named = one.tool is None or query.get("tool", one.tool) in names
        if is_named and query.get("server", one.server_id) == one.server_id:
            yield show_decision(one, tool, scope.approvals.get(ToolRef(one.server_id, one.tool or "")))


def _show_unlisted(
    gateway: Gateway, caller: Caller, query: Mapping[str, str], *, asker: Principal
) -> Iterator[DecisionShown]:
    """What becomes of a request for a resource that the server named does not list."""
    name, offer = query.get("tool", ""), gateway.snapshot.servers.get(query.get("server", ""))
    if kind_of(name) != RESOURCE or offer is None or "resources" not in offer.features:
        return
    decision = decide_unlisted(partial(gateway.decide, caller), offer.record.server_id, name[len(RESOURCE) :])
    if decision is not None:
        for one in visible_decisions([decision], asker):
            yield show_decision(replace(one, tool=name))
