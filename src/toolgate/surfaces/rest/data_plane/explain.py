"""Explains a scope: every decision about it, with the layer and the rule that made it.

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
from toolgate.model.tasks import Side
from toolgate.model.tools import ToolDefinition
from toolgate.policy.admission import list_limits
from toolgate.policy.scope import ApprovalRequirement, Decision, Layer, ProfileVersion, Reason, Scope
from toolgate.surfaces.rest.data_plane.scopes import SELECTION, RefusalShown, parse_caller
from toolgate.surfaces.rest.framework.request import Parameter, RestCall
from toolgate.surfaces.rest.framework.response import ResponseShape, Revision
from toolgate.surfaces.rest.framework.routing import get


class ShadowShown(ResponseShape, frozen=True, kw_only=True):
    """The denial that would apply if the task's policy were enforced."""

    layer: Layer
    reason: Reason | None
    rule: str


class DecisionShown(ResponseShape, frozen=True, kw_only=True):
    """One decision, with the layer and rule that made it."""

    server_id: str
    tool: str | None
    """A tool's name, `prompt:<name>` or `resource:<uri>`. Null: the whole server."""
    native_name: str | None = None
    """The server's own name for a tool that has an alias. Null: the tool has no alias."""
    allowed: bool
    layer: Layer
    reason: Reason | None
    """Why it is denied. Null if it is allowed."""
    rule: str
    tokens: int | None
    """Estimated tokens of the tool's definition. Null: not a tool, or not known."""
    hints: dict[str, bool] | None = None
    """Annotations of the definition about effects, such as `readOnlyHint`. Null: not known."""
    approval: str | None = None
    """The rule that requires an approval for each call of the tool. Null: none does."""
    shadow: ShadowShown | None = None
    """The denial that would apply if the task's policy were enforced. Null: it would be allowed as well."""


def show_decision(
    decision: Decision, tool: ToolDefinition | None = None, demand: ApprovalRequirement | None = None
) -> DecisionShown:
    """A decision as responses show it, with the tool's tokens and hints, and the approval rule `demand`."""
    return DecisionShown.of(
        decision,
        native_name=None if tool is None else tool.native_name or None,
        tokens=None if tool is None else tool.tokens,
        hints=None if tool is None else dict(tool.effects.hints),
        approval=None if demand is None else demand.rule,
    )


class BudgetShown(ResponseShape, frozen=True, kw_only=True):
    """A rate limit or quota that applies."""

    layer: HolderKind
    holder_id: str
    """The key or task whose calls share it."""
    budget: QuotaName
    limit: int


class ExplainResponse(ResponseShape, frozen=True, kw_only=True):
    """Every decision about a scope."""

    revision: Revision
    refusal: RefusalShown | None
    tools: list[DecisionShown]
    servers: list[DecisionShown]
    """Servers that are excluded as a whole."""
    pending: list[str]
    """Servers in the scope that have not listed their tools: more tools may follow."""
    unverified: list[str]
    """Servers in the scope whose tools are known from an earlier run only, until their first call."""
    budgets: list[BudgetShown]
    """The rate limits and quotas that apply to every call."""
    warnings: list[str]
    profiles: list[ProfileVersion]
    """The task's profile first."""
    mode: Mode
    """`find`: the MCP endpoint lists three tools, which find and call the allowed ones."""


_QUERY: Final = (
    *SELECTION,
    Parameter("tool", "Only this name: `log`, `git.log`, `git/log`, `prompt:<name>` or `resource:<uri>`."),
    Parameter("server", "Only this server, including resources that it does not list."),
    Parameter("key", "The id of a key to explain instead of yours. Needs the role `admin`."),
    Parameter("side", "The side to assume during a rollout of a profile: `stable` or `candidate`."),
)


@get("/api/v1/mcp/explain", "agent", "Explain a scope", query=_QUERY, errors=(NotFound,))
async def explain_scope(serving: GatewayProcess, call: RestCall[None]) -> ExplainResponse:
    """Every tool, prompt, resource and server, allowed or denied, with the layer and rule that decided.

    An agent gets the decisions about its own tools only.
    """
    gateway, query = serving.gateway, call.query
    if "server" in query:
        parse_server_id(query["server"])
    caller = parse_caller(_explained_principal(gateway, call.caller, query.get("key")), query)
    # In threads: ten thousand tools take a tenth of a second, which would block other requests.
    unverified = frozenset(gateway.servers.unverified)
    side, viewer = call.choice("side", get_args(Side)), call.caller

    def explain(query: Mapping[str, str]) -> ExplainResponse:
        snapshot = gateway.snapshot
        found = explain_for(viewer, caller, snapshot, gateway.limits, side=side)
        scope = found.scope
        return ExplainResponse.of(
            found,
            scope,
            revision=snapshot.revision,
            tools=list(_show_decisions(gateway, scope, found.tools, query))
            or list(_show_unlisted(gateway, caller, query, viewer=viewer)),
            servers=list(_show_decisions(gateway, scope, found.servers, query)),
            unverified=[
                one for one in scope.servers if one in unverified and can_show_server(snapshot, viewer, one)
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
    """The query with `server.tool` or `server/tool` split in two, if that server exists."""
    kind = kind_of(query.get("tool", ""))
    for sign in ("/",) if kind else ("/", "."):
        server_id, found, name = query.get("tool", "")[len(kind) :].partition(sign)
        if found and "server" not in query and server_id in gateway.snapshot.servers:
            return {**query, "server": server_id, "tool": kind + name}
    return query


def _explained_principal(gateway: Gateway, principal: Principal, key_id: str | None) -> Principal:
    """The principal to explain: the caller or, for an admin, that of any key."""
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
    gateway: Gateway, caller: Caller, query: Mapping[str, str], *, viewer: Principal
) -> Iterator[DecisionShown]:
    """The decision about a resource that the named server does not list."""
    name, offer = query.get("tool", ""), gateway.snapshot.servers.get(query.get("server", ""))
    if kind_of(name) != RESOURCE or offer is None or "resources" not in offer.features:
        return
    decision = decide_unlisted(partial(gateway.decide, caller), offer.record.server_id, name[len(RESOURCE) :])
    if decision is not None:
        for one in visible_decisions([decision], viewer):
            yield show_decision(replace(one, tool=name))
