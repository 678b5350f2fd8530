"""The selection in a query: whose scope an endpoint speaks of, and the URL of the MCP door that has it.

What a caller sees and why: the read side of every scope, for agents within their own alone.

An agent learns of what it may call and of nothing else: to it, a hidden server answers like one that
does not exist. The other roles read the whole registry anyway.
"""

import asyncio
from collections import Counter
from collections.abc import Iterator, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import replace
from functools import partial
from typing import Any, Final, get_args

from toolgate.catalog.naming import join_tool_name
from toolgate.errors import Forbidden, NotFound, PolicyDenied, TooManyTools
from toolgate.gateway.auth.identity import principal_of, reaches
from toolgate.gateway.gateway import Gateway
from toolgate.gateway.scope.caller import Caller
from toolgate.gateway.scope.compose import can_show_server, explain_for, visible_decisions, visible_servers
from toolgate.gateway.scope.resources import decide_unlisted
from toolgate.govern.process import GatewayProcess
from toolgate.model.names import PROMPT, RESOURCE, ToolRef, kind_of, parse_server_id, parse_task_id
from toolgate.model.principals import Principal
from toolgate.model.tasks import Side
from toolgate.model.tools import ToolDefinition
from toolgate.policy.admission import list_limits
from toolgate.policy.rules import RegistryTotals, count_registered, is_unlisted
from toolgate.policy.scope import ApprovalRequirement, Decision, Scope
from toolgate.surfaces.http.selection import format_mcp_url, parse_mode, parse_selection
from toolgate.surfaces.rest.data_plane.policy_shapes import (
    BudgetShown,
    DecisionShown,
    ExplainAnswer,
    ProfileSeen,
    ReachSeen,
    ScopeSeen,
    ServerSeen,
    ServersSeen,
    ToolSeen,
    ToolsSeen,
    show_decision,
    show_refusal,
)
from toolgate.surfaces.rest.framework.paging import PAGING, parse_page
from toolgate.surfaces.rest.framework.request import Parameter, RestCall
from toolgate.surfaces.rest.framework.response import RestResponse
from toolgate.surfaces.rest.framework.routing import RestEndpoint, get

SELECTION: Final = (
    Parameter("task", "The task to look through. Without it, the key's own, or none."),
    Parameter("servers", "Only these servers: ids, separated by commas."),
    Parameter(
        "tools",
        "Only these tools: `server.tool`, patterns or effects such as `@read_only`, separated by commas.",
    ),
    Parameter("profile", "Only what this profile selects."),
    Parameter("mode", "`list`, or `find`: as where tools are found and not listed."),
)


def parse_caller(principal: Principal, query: Mapping[str, str]) -> Caller:
    """The caller the query speaks of, read as the MCP door reads it. Or InvalidRequest."""
    task_id, request = parse_selection(query)
    return Caller(principal, task_id, request, mode=parse_mode(query))


def format_selected_url(serving: GatewayProcess, call: RestCall[Any], caller: Caller) -> str:
    """Where the MCP door has the scope that the query of `call` selects."""
    names = ("servers", "tools", "profile", "mode")
    selection = {name: call.query[name] for name in names if name in call.query}
    return format_mcp_url(serving.client_url() or call.base_url, caller.task_id, selection)


@get("/api/v1/mcp/servers", "agent", "List the servers you can reach", ServersSeen, query=PAGING)
async def list_servers(serving: GatewayProcess, call: RestCall[None]) -> RestResponse:
    """The servers the caller can call tools of, or could once they are listed; and no others."""
    page = parse_page(call)
    revision = serving.gateway.snapshot.revision
    servers, next_cursor = page.cut(
        _list_reachable_servers(serving.gateway, call.caller), lambda one: one.server_id
    )
    return RestResponse(ServersSeen(revision=revision, servers=list(servers), next_cursor=next_cursor))


@get(
    "/api/v1/mcp/servers/{server_id}", "agent", "Read a server you can reach", ServerSeen, errors=(NotFound,)
)
async def read_server(serving: GatewayProcess, call: RestCall[None]) -> RestResponse:
    """One of the servers the caller can reach. Any other answers like one that does not exist."""
    server_id = call.ids["server_id"]
    for server in _list_reachable_servers(serving.gateway, call.caller):
        if server.server_id == server_id:
            return RestResponse(server)
    raise NotFound(f"no server `{server_id}`", hint="list those you can reach")


@get("/api/v1/mcp/health", "agent", "How the servers fare that you can reach", ReachSeen)
async def show_reach(serving: GatewayProcess, call: RestCall[None]) -> RestResponse:
    """The state of the servers the caller can reach, and whether what is served here is current."""
    return RestResponse(
        ReachSeen(
            revision=serving.gateway.snapshot.revision,
            degraded=serving.sync_readiness().is_degraded,
            servers={
                one.server_id: one.state for one in _list_reachable_servers(serving.gateway, call.caller)
            },
        )
    )


def can_reach(gateway: Gateway, principal: Principal, server_id: str) -> bool:
    """Whether a server is there, for this caller."""
    return server_id in count_reachable_tools(gateway, principal)


def _list_reachable_servers(gateway: Gateway, principal: Principal) -> list[ServerSeen]:
    """Sorted by id."""
    tools = count_reachable_tools(gateway, principal)
    health, snapshot = gateway.servers.health(), gateway.snapshot
    return [
        ServerSeen(
            server_id=server_id,
            display_name=snapshot.servers[server_id].record.display_name,
            state=health[server_id].state,
            tools=tools[server_id],
            tags=list(snapshot.servers[server_id].record.tags),
        )
        for server_id in sorted(tools)
        if server_id in health
    ]


def count_reachable_tools(gateway: Gateway, principal: Principal) -> Mapping[str, int]:
    """Server id to the number of its tools that are in one of the caller's scopes."""
    seen, servers = _admitted_refs(gateway, principal)
    counts = Counter(ref.server_id for ref in seen if not kind_of(ref.name))
    named = {ref.server_id for ref in seen}
    named |= {
        server_id for server_id in servers - named if can_show_server(gateway.snapshot, principal, server_id)
    }
    return {server_id: counts[server_id] for server_id in named}


def _admitted_refs(gateway: Gateway, principal: Principal) -> tuple[set[ToolRef], set[str]]:
    """What is in one of the caller's scopes, and the servers that no layer excludes from all of them."""
    seen: set[ToolRef] = set()
    servers: set[str] = set()
    bound_to = principal.ceiling.tasks
    for task_id in (None,) if bound_to is None else bound_to:
        try:
            scope = gateway.scope(Caller(principal, task_id))
        except NotFound:
            continue  # a task the key is bound to, and nobody has written yet
        seen |= scope.admitted
        servers |= set(scope.servers)
    return seen, servers


def _unnarrowed_set(gateway: Gateway, principal: Principal) -> RegistryTotals:
    """What there is without any narrowing: all that is registered, or for an agent all that it could have."""
    if reaches(principal.role, "viewer"):
        return count_registered(gateway.snapshot)
    tools = [ref for ref in _admitted_refs(gateway, principal)[0] if not kind_of(ref.name)]
    return RegistryTotals(len(tools), sum(_price(gateway, ref) for ref in tools))


def _price(gateway: Gateway, ref: ToolRef) -> int:
    """What the definition of a tool in a scope costs a model."""
    return gateway.snapshot.servers[ref.server_id].tools[ref.name].tokens


@get(
    "/api/v1/mcp/scope", "agent", "Show your effective scope", ScopeSeen, query=SELECTION, errors=(NotFound,)
)
async def show_scope(serving: GatewayProcess, call: RestCall[None]) -> RestResponse:
    """What the caller gets at a URL, or why the request for it is turned down."""
    gateway, caller = serving.gateway, parse_caller(call.caller, call.query)
    scope = gateway.scope(caller)
    full = _unnarrowed_set(gateway, call.caller)
    return RestResponse(
        ScopeSeen(
            revision=gateway.snapshot.revision,
            url=format_selected_url(serving, call, caller),
            task_id=caller.effective_task_id,
            servers=visible_servers(gateway.snapshot, call.caller, scope),
            tools=[join_tool_name(ref) for ref in scope.tools],
            prompts=[
                join_tool_name(ToolRef(ref.server_id, ref.name[len(PROMPT) :])) for ref in scope.prompts
            ],
            resources=sorted({ref.name[len(RESOURCE) :] for ref in (*scope.resources, *scope.templates)}),
            tokens=scope.tokens,
            prices={join_tool_name(ref): _price(gateway, ref) for ref in scope.tools},
            shadowed=sorted(map(str, scope.shadowed)) if reaches(call.caller.role, "viewer") else [],
            registered_tools=full.tools,
            registered_tokens=full.tokens,
            warnings=list(scope.warnings),
            refusal=show_refusal(scope.refusal),
            mode=caller.mode_of(scope),
        )
    )


@get(
    "/api/v1/mcp/tools",
    "agent",
    "List the tools you can call",
    ToolsSeen,
    query=SELECTION,
    errors=(NotFound, PolicyDenied, TooManyTools),
)
async def list_tools(serving: GatewayProcess, call: RestCall[None]) -> RestResponse:
    """The tools of a URL, exactly as the MCP door lists them there, or has them found."""
    caller = parse_caller(call.caller, call.query)
    view = await serving.gateway.wait_for_view(caller)
    serving.gateway.scope_audit.record_offer(view, "rest")
    scope = view.scope
    full = _unnarrowed_set(serving.gateway, call.caller)
    return RestResponse(
        ToolsSeen(
            revision=view.revision,
            tools=[
                ToolSeen(
                    name=name,
                    server_id=route.server_id,
                    tool=route.name,
                    description=route.tool.description,
                    tokens=route.tool.tokens,
                    rule=route.rule,
                )
                for name, route in view.tools.items()
                if route.tool is not None
            ],
            tokens=scope.tokens,
            registered_tools=full.tools,
            registered_tokens=full.tokens,
            warnings=[*view.warnings, *_warn_of_unlisted(serving.gateway, call.caller, scope)],
            url=format_selected_url(serving, call, caller),
            mode=caller.mode_of(scope),
        )
    )


def _warn_of_unlisted(gateway: Gateway, principal: Principal, scope: Scope) -> list[str]:
    """Why the list may not be whole: servers of the scope that have not told what they have."""
    snapshot = gateway.snapshot
    return [
        f"`{server_id}` has not told its tools yet: `toolgate servers list` says how it fares"
        for server_id in sorted(snapshot.servers.keys() & set(scope.servers))
        if is_unlisted(snapshot.servers[server_id]) and can_show_server(snapshot, principal, server_id)
    ]


@get(
    "/api/v1/mcp/explain",
    "agent",
    "Explain what is seen and why",
    ExplainAnswer,
    query=(
        *SELECTION,
        Parameter(
            "tool",
            "Only what is said about this tool (`git_log`, `git.git_log` or `git/git_log`), or "
            "`prompt:<name>`, or `resource:<uri>`.",
        ),
        Parameter("server", "Only what is said about this server, also of resources it does not list."),
        Parameter("key", "Explain for this key instead of your own (administrators only)."),
        Parameter(
            "side",
            "As if the caller had this version of every profile in a rollout: `stable` or `candidate`.",
        ),
    ),
    errors=(NotFound,),
)
async def explain_scope(serving: GatewayProcess, call: RestCall[None]) -> RestResponse:
    """Everything there is, in or out, by which layer and rule. An agent is told of its own tools alone."""
    gateway, query = serving.gateway, call.query
    if "server" in query:
        parse_server_id(query["server"])
    caller = parse_caller(_explained_principal(gateway, call.caller, query.get("key")), query)
    # Of ten thousand tools it takes a tenth of a second, in which others want to be served.
    unverified = frozenset(gateway.servers.unverified)
    side = call.choice("side", get_args(Side))
    explained = partial(_explain, gateway, caller, asker=call.caller, side=side, unverified=unverified)
    split = _split_tool(gateway, query)
    answer = await asyncio.to_thread(explained, split)
    if split is not query and not answer.tools:
        # The dot may be part of the tool's own name.
        whole = await asyncio.to_thread(explained, query)
        answer = whole if whole.tools or not answer.servers else answer
    return RestResponse(answer)


def _split_tool(gateway: Gateway, query: Mapping[str, str]) -> Mapping[str, str]:
    """The query with `server.tool` or `server/tool` as two members, where there is such a server."""
    kind = kind_of(query.get("tool", ""))
    for sign in ("/",) if kind else ("/", "."):
        server_id, found, name = query.get("tool", "")[len(kind) :].partition(sign)
        if found and "server" not in query and server_id in gateway.snapshot.servers:
            return {**query, "server": server_id, "tool": kind + name}
    return query


def _explain(
    gateway: Gateway,
    caller: Caller,
    query: Mapping[str, str],
    *,
    asker: Principal,
    side: Side | None,
    unverified: AbstractSet[str],
) -> ExplainAnswer:
    snapshot = gateway.snapshot
    revision = snapshot.revision
    found = explain_for(asker, caller, snapshot, gateway.limits, side=side)
    return ExplainAnswer(
        revision=revision,
        refusal=show_refusal(found.scope.refusal),
        tools=list(_show_decisions(gateway, found.tools, query, found.scope.approvals))
        or list(_show_unlisted(gateway, caller, query, asker=asker)),
        servers=list(_show_decisions(gateway, found.servers, query, {})),
        pending=list(found.pending),
        unverified=[
            one for one in found.scope.servers if one in unverified and can_show_server(snapshot, asker, one)
        ],
        budgets=[
            BudgetShown(layer=one.holder.kind, holder_id=one.holder.id, budget=budget, limit=limit)
            for one in gateway.quotas_of(caller)
            for budget, limit in list_limits(one.budgets).items()
        ],
        warnings=list(found.scope.warnings),
        profiles=[ProfileSeen(**one._asdict()) for one in found.scope.profiles],
        mode=caller.mode_of(found.scope),
    )


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
    gateway: Gateway,
    decisions: tuple[Decision, ...],
    query: Mapping[str, str],
    approvals: Mapping[ToolRef, ApprovalRequirement],
    /,
) -> Iterator[DecisionShown]:
    for one in decisions:
        is_asked_for = query.get("server", one.server_id) == one.server_id
        tool = _known_tool(gateway, one)
        names = (one.tool, None if tool is None else tool.native_name)
        is_asked_for &= one.tool is None or query.get("tool", one.tool) in names
        if is_asked_for:
            demand = approvals.get(ToolRef(one.server_id, one.tool or ""))
            yield show_decision(one, tool, demand)


def _known_tool(gateway: Gateway, decision: Decision) -> ToolDefinition | None:
    """The definition that a decision is about, where it is about one that is known."""
    offer = gateway.snapshot.servers.get(decision.server_id)
    return None if offer is None or decision.tool is None else offer.tools.get(decision.tool)


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


ENDPOINTS: Final[tuple[RestEndpoint[Any], ...]] = (
    list_servers,
    read_server,
    show_reach,
    show_scope,
    list_tools,
    explain_scope,
)
