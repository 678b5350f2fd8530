"""What a caller sees and why: the read side of every scope, for agents within their own alone.

An agent learns of what it may call and of nothing else: to it, a hidden server answers like one that
does not exist. The other roles read the whole registry anyway.
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any, Final

from toolgate.errors import Forbidden, NotFound, PolicyDenied, TooManyTools
from toolgate.gateway.caller import Caller
from toolgate.gateway.gateway import Gateway
from toolgate.gateway.identity import principal_of
from toolgate.gateway.roles import reaches
from toolgate.govern.control import Control
from toolgate.model.names import ToolRef, parse_server_id, parse_task_id
from toolgate.model.principals import Principal
from toolgate.policy.explain import explain
from toolgate.policy.offers import is_unlisted, may_hold
from toolgate.policy.patterns import Patterns
from toolgate.policy.scope import Decision
from toolgate.surfaces.http.selection import parse_selection
from toolgate.surfaces.rest.answers import Answer
from toolgate.surfaces.rest.links import mcp_url
from toolgate.surfaces.rest.policy_shapes import (
    DecisionShown,
    ExplainAnswer,
    ServerSeen,
    ServersSeen,
    ToolSeen,
    ToolsSeen,
    show_refusal,
)
from toolgate.surfaces.rest.routing import Call, Endpoint, Parameter

SELECTION: Final = (
    Parameter("task", "The task to look through. Without it, the key's own, or none."),
    Parameter("servers", "Only these servers: ids, separated by commas."),
    Parameter("tools", "Only these tools: `server.tool` or patterns, separated by commas."),
    Parameter("profile", "Only what this profile selects."),
)


async def list_servers(control: Control, call: Call[None]) -> Answer:
    """The servers the caller can call tools of, or could once they are listed; and no others."""
    gateway = control.gateway
    tools = _reachable(gateway, call.caller)
    health, snapshot = gateway.pool.health(), gateway.snapshot
    seen = [
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
    return Answer(ServersSeen(revision=snapshot.revision, servers=seen))


def _reachable(gateway: Gateway, principal: Principal) -> Mapping[str, int]:
    """Server id to the number of its tools that are in one of the caller's scopes."""
    tools: set[ToolRef] = set()
    servers: set[str] = set()
    bound_to = principal.ceiling.tasks
    for task_id in (None,) if bound_to is None else bound_to:
        try:
            scope = gateway.scope(Caller(principal, task_id))
        except NotFound:
            continue  # a task the key is bound to, and nobody has written yet
        tools |= scope.admitted
        servers |= set(scope.servers)
    counts = Counter(ref.server_id for ref in tools)
    hopeful = {server_id for server_id in servers if _may_show(gateway, principal, server_id)}
    return {server_id: counts[server_id] for server_id in hopeful | counts.keys()}


def _may_show(gateway: Gateway, principal: Principal, server_id: str) -> bool:
    """Whether a server without a tool for the caller, so far, may be named to it.

    To an agent only while its tools are not known, and only if its key allows for one of them.
    """
    offer, allow = gateway.snapshot.servers[server_id], principal.ceiling.allow
    if reaches(principal.role, "viewer"):
        return True
    return is_unlisted(offer) and (allow is None or may_hold(offer, Patterns.of(allow)))


async def list_tools(control: Control, call: Call[None]) -> Answer:
    """The tools of a URL, exactly as the MCP door lists them there."""
    caller = _parse_caller(call.caller, call.query)
    view = await control.gateway.settled_view(caller)
    scope = view.scope
    knows_all = reaches(call.caller.role, "viewer")
    selection = {name: call.query[name] for name in ("servers", "tools", "profile") if name in call.query}
    return Answer(
        ToolsSeen(
            revision=view.revision,
            tools=[
                ToolSeen(
                    name=name,
                    server_id=route.server_id,
                    tool=route.tool.ref.name,
                    description=route.tool.description,
                    tokens=route.tool.tokens,
                    rule=route.rule,
                )
                for name, route in view.routes.items()
            ],
            tokens=scope.tokens,
            registered_tools=scope.registered_tools if knows_all else len(scope.tools),
            registered_tokens=scope.registered_tokens if knows_all else scope.tokens,
            warnings=list(scope.warnings),
            url=mcp_url(call.base_url, caller.task_id, selection),
        )
    )


async def explain_scope(control: Control, call: Call[None]) -> Answer:
    """Every tool, in or out, by which layer and rule. An agent is told of its own tools alone."""
    gateway, query = control.gateway, call.query
    caller = _parse_caller(_subject(gateway, call.caller, query.get("key")), query)
    found = explain(
        gateway.snapshot,
        caller.principal.ceiling,
        task=gateway.task_policy(caller),
        request=caller.request,
        limits=gateway.limits,
    )
    knows_all = reaches(call.caller.role, "viewer")
    return Answer(
        ExplainAnswer(
            revision=gateway.snapshot.revision,
            refusal=show_refusal(found.scope.refusal),
            tools=list(_show_decisions(found.tools, query, knows_all=knows_all)),
            servers=list(_show_decisions(found.servers, query, knows_all=knows_all)),
            pending=[one for one in found.pending if _may_show(gateway, call.caller, one)],
            warnings=list(found.scope.warnings),
        )
    )


def _subject(gateway: Gateway, principal: Principal, key_id: str | None) -> Principal:
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
    decisions: tuple[Decision, ...], query: Mapping[str, str], *, knows_all: bool
) -> Iterator[DecisionShown]:
    for one in decisions:
        is_asked_for = query.get("server", one.server_id) == one.server_id
        is_asked_for &= one.tool is None or query.get("tool", one.tool) == one.tool
        if is_asked_for and (one.allowed or knows_all):
            yield DecisionShown(
                server_id=one.server_id,
                tool=one.tool,
                allowed=one.allowed,
                layer=one.layer,
                reason=one.reason,
                rule=one.rule,
            )


def _parse_caller(principal: Principal, query: Mapping[str, str]) -> Caller:
    """The caller the query speaks of, read as the MCP door reads it. Or InvalidRequest."""
    task_id, request = parse_selection(query)
    if "server" in query:
        parse_server_id(query["server"])
    return Caller(principal, task_id, request)


ENDPOINTS: Final[tuple[Endpoint[Any], ...]] = (
    Endpoint(
        method="GET",
        path="/api/v1/mcp/servers",
        role="agent",
        summary="List the servers you can reach",
        handler=list_servers,
        answer=ServersSeen,
    ),
    Endpoint(
        method="GET",
        path="/api/v1/mcp/tools",
        role="agent",
        summary="List the tools you can call",
        handler=list_tools,
        query=SELECTION,
        answer=ToolsSeen,
        errors=(NotFound, PolicyDenied, TooManyTools),
    ),
    Endpoint(
        method="GET",
        path="/api/v1/mcp/explain",
        role="agent",
        summary="Explain what is seen and why",
        handler=explain_scope,
        query=(
            *SELECTION,
            Parameter("tool", "Only what is said about tools of this name."),
            Parameter("server", "Only what is said about this server."),
            Parameter("key", "Explain for this key instead of your own (administrators only)."),
        ),
        answer=ExplainAnswer,
        errors=(NotFound,),
    ),
)
