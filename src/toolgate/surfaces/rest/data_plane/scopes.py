"""Scopes as callers see them: servers, tools, health, the URL of a selection, client setup.

An agent learns what it may call and nothing else: a hidden server looks like one that does not exist. Other
roles read the whole registry anyway.
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any, Final
from urllib.parse import urlsplit

from toolgate.catalog import clients
from toolgate.catalog.naming import join_tool_name
from toolgate.errors import NotFound, PolicyDenied, TooManyTools
from toolgate.gateway.auth.identity import reaches
from toolgate.gateway.gateway import Gateway
from toolgate.gateway.scope.caller import Caller, Mode, can_show_server, visible_servers
from toolgate.govern.process import GatewayProcess
from toolgate.model.http import is_loopback
from toolgate.model.names import PROMPT, RESOURCE, ToolRef, kind_of
from toolgate.model.principals import Principal
from toolgate.model.reports import HealthState
from toolgate.policy.rules import RegistryTotals, count_registered, is_unlisted
from toolgate.policy.scope import RefusalCode, Scope
from toolgate.surfaces.http.parsing import format_mcp_url, parse_mode, parse_selection
from toolgate.surfaces.rest.framework.request import PAGING, Parameter, RestCall
from toolgate.surfaces.rest.framework.response import NextCursor, ResponseShape, Revision
from toolgate.surfaces.rest.framework.routing import get

SELECTION: Final = (
    Parameter("task", "The id of the task whose policy applies. Default: the key's task, if it has one."),
    Parameter("servers", "Only these servers: ids, separated by commas."),
    Parameter("tools", "Only these: names, patterns or effects such as `@read_only`, separated by commas."),
    Parameter("profile", "Only the selection of the profile with this id."),
    Parameter("mode", "`list` or `find`: whether clients list all tools, or three tools that find them."),
)


def parse_caller(principal: Principal, query: Mapping[str, str]) -> Caller:
    """The caller with the selection of the query, as on the MCP endpoint. Raises InvalidRequest."""
    task_id, request = parse_selection(query)
    return Caller(principal, task_id, request, mode=parse_mode(query))


def format_selected_url(serving: GatewayProcess, call: RestCall[Any], caller: Caller) -> str:
    """The URL of the MCP endpoint with the selection of the query."""
    names = ("servers", "tools", "profile", "mode")
    selection = {name: call.query[name] for name in names if name in call.query}
    return format_mcp_url(serving.client_url() or call.base_url, caller.task_id, selection)


class RefusalShown(ResponseShape, frozen=True, kw_only=True):
    """Why a scope is denied as a whole."""

    code: RefusalCode
    message: str
    hint: str


class ServerSeen(ResponseShape, frozen=True, kw_only=True):
    """A server the caller can reach."""

    server_id: str
    display_name: str
    state: HealthState
    tools: int
    """The number of its tools that the caller can call."""
    tags: list[str]


class ServersSeen(ResponseShape, frozen=True, kw_only=True):
    """The servers the caller can reach, and no others."""

    revision: Revision
    servers: list[ServerSeen]
    next_cursor: NextCursor


class ReachSeen(ResponseShape, frozen=True, kw_only=True):
    """The health of the servers that the caller can reach."""

    revision: Revision
    """The registry revision served."""
    degraded: bool
    """Whether the served revision may be outdated."""
    servers: dict[str, HealthState]
    """Server id to state."""


class _SelectionSeen(ResponseShape, frozen=True, kw_only=True):
    """The selection of a caller at `url`, with registry totals to compare it with."""

    revision: Revision
    url: str
    tokens: int
    """Estimated tokens of the definitions of its tools."""
    registered_tools: int
    """The number of registered tools; for an agent, of those it could select."""
    registered_tokens: int
    """Estimated tokens of the definitions of all those tools."""
    warnings: list[str]
    mode: Mode
    """`find`: the MCP endpoint lists three tools, which find and call these."""


class ScopeSeen(_SelectionSeen, frozen=True, kw_only=True):
    """The effective scope of a caller at `url`."""

    task_id: str | None
    """The task that applies."""
    servers: list[str]
    tools: list[str]
    prompts: list[str]
    """Names, as on the MCP endpoint."""
    resources: list[str]
    """URIs, and templates of URIs."""
    prices: dict[str, int]
    """Tool name to the estimated tokens of its definition."""
    shadowed: list[str]
    """Tools that the task's policy would deny if it were enforced: `server/tool`. Empty for agents."""
    refusal: RefusalShown | None
    """Why the request is denied as a whole. Null: it is not."""


class ToolSeen(ResponseShape, frozen=True, kw_only=True):
    """A tool the caller can call."""

    name: str
    """The name on the MCP endpoint."""
    server_id: str
    tool: str
    description: str
    tokens: int
    """Estimated tokens of the definition."""
    rule: str
    """The rule that allows it."""


class ToolsSeen(_SelectionSeen, frozen=True, kw_only=True):
    """Exactly the tools that the MCP endpoint lists, or finds, at `url`."""

    tools: list[ToolSeen]


@get("/api/v1/mcp/servers", "agent", "List the servers you can reach", query=PAGING)
async def list_servers(serving: GatewayProcess, call: RestCall[None]) -> ServersSeen:
    """The servers whose tools the caller can call, or could call once they are listed. Omits all others."""
    found, revision = _list_reachable_servers(serving.gateway, call.caller), serving.gateway.snapshot.revision
    servers, next_cursor = call.page().cut(found, lambda one: one.server_id)
    return ServersSeen(revision=revision, servers=list(servers), next_cursor=next_cursor)


@get("/api/v1/mcp/servers/{server_id}", "agent", "Read a server you can reach")
async def read_server(serving: GatewayProcess, call: RestCall[None]) -> ServerSeen:
    """One of the servers the caller can reach. Any other is not found."""
    server_id = call.ids["server_id"]
    for server in _list_reachable_servers(serving.gateway, call.caller):
        if server.server_id == server_id:
            return server
    raise NotFound(f"no server `{server_id}`", hint="list those you can reach")


@get("/api/v1/mcp/health", "agent", "Show the health of the servers you can reach")
async def show_reach(serving: GatewayProcess, call: RestCall[None]) -> ReachSeen:
    """The state of the servers the caller can reach, and whether the served revision is current."""
    return ReachSeen(
        revision=serving.gateway.snapshot.revision,
        degraded=serving.sync_readiness().is_degraded,
        servers={one.server_id: one.state for one in _list_reachable_servers(serving.gateway, call.caller)},
    )


def _list_reachable_servers(gateway: Gateway, principal: Principal) -> list[ServerSeen]:
    """Sorted by id."""
    tools = count_reachable_tools(gateway, principal)
    health, snapshot = gateway.servers.health(), gateway.snapshot
    return [
        ServerSeen.of(
            snapshot.servers[server_id].record, state=health[server_id].state, tools=tools[server_id]
        )
        for server_id in sorted(tools)
        if server_id in health
    ]


def count_reachable_tools(gateway: Gateway, principal: Principal) -> Mapping[str, int]:
    """Server id to the number of its tools that are in one of the caller's scopes."""
    seen, servers = _admitted_refs(gateway, principal)
    counts = Counter(ref.server_id for ref in seen if not kind_of(ref.name))
    named = {ref.server_id for ref in seen}
    named |= {one for one in servers - named if can_show_server(gateway.snapshot, principal, one)}
    return {server_id: counts[server_id] for server_id in named}


def _admitted_refs(gateway: Gateway, principal: Principal) -> tuple[set[ToolRef], set[str]]:
    """All names in the caller's scopes, and the servers in at least one of them."""
    seen: set[ToolRef] = set()
    servers: set[str] = set()
    bound_to = principal.ceiling.tasks
    for task_id in (None,) if bound_to is None else bound_to:
        try:
            scope = gateway.scope(Caller(principal, task_id))
        except NotFound:
            continue  # a task that the key is bound to, and that does not exist
        seen |= scope.admitted
        servers |= set(scope.servers)
    return seen, servers


def _unnarrowed_set(gateway: Gateway, principal: Principal) -> RegistryTotals:
    """The totals to compare a selection with: of the registry or, for an agent, of all its scopes."""
    if reaches(principal.role, "viewer"):
        return count_registered(gateway.snapshot)
    tools = [ref for ref in _admitted_refs(gateway, principal)[0] if not kind_of(ref.name)]
    return RegistryTotals(len(tools), sum(_price(gateway, ref) for ref in tools))


def _price(gateway: Gateway, ref: ToolRef) -> int:
    return gateway.snapshot.servers[ref.server_id].tools[ref.name].tokens


@get("/api/v1/mcp/scope", "agent", "Show your effective scope", query=SELECTION, errors=(NotFound,))
async def show_scope(serving: GatewayProcess, call: RestCall[None]) -> ScopeSeen:
    """The caller's scope at a URL, or why the request is denied."""
    gateway, caller = serving.gateway, parse_caller(call.caller, call.query)
    scope = gateway.scope(caller)
    full = _unnarrowed_set(gateway, call.caller)
    return ScopeSeen.of(
        scope,
        revision=gateway.snapshot.revision,
        url=format_selected_url(serving, call, caller),
        task_id=caller.effective_task_id,
        servers=visible_servers(gateway.snapshot, call.caller, scope),
        tools=[join_tool_name(ref) for ref in scope.tools],
        prompts=[join_tool_name(ToolRef(ref.server_id, ref.name[len(PROMPT) :])) for ref in scope.prompts],
        resources=sorted({ref.name[len(RESOURCE) :] for ref in (*scope.resources, *scope.templates)}),
        prices={join_tool_name(ref): _price(gateway, ref) for ref in scope.tools},
        shadowed=sorted(map(str, scope.shadowed)) if reaches(call.caller.role, "viewer") else [],
        registered_tools=full.tools,
        registered_tokens=full.tokens,
        mode=caller.mode_of(scope),
    )


@get(
    "/api/v1/mcp/tools",
    "agent",
    "List the tools you can call",
    query=SELECTION,
    errors=(NotFound, PolicyDenied, TooManyTools),
)
async def list_tools(serving: GatewayProcess, call: RestCall[None]) -> ToolsSeen:
    """The tools of a URL, exactly as the MCP endpoint lists or finds them."""
    caller = parse_caller(call.caller, call.query)
    view = await serving.gateway.wait_for_view(caller)
    serving.gateway.scope_audit.record_offer(view, "rest")
    scope = view.scope
    full = _unnarrowed_set(serving.gateway, call.caller)
    return ToolsSeen.of(
        scope,
        revision=view.revision,
        tools=[
            ToolSeen.of(route, route.tool, name=name, tool=route.name)
            for name, route in view.tools.items()
            if route.tool is not None
        ],
        registered_tools=full.tools,
        registered_tokens=full.tokens,
        warnings=[*view.warnings, *_warn_of_unlisted(serving.gateway, call.caller, scope)],
        url=format_selected_url(serving, call, caller),
        mode=caller.mode_of(scope),
    )


def _warn_of_unlisted(gateway: Gateway, principal: Principal, scope: Scope) -> list[str]:
    """Why the list may be incomplete: servers of the scope that have not listed their tools."""
    snapshot = gateway.snapshot
    return [
        f"`{server_id}` has not listed its tools yet: `toolgate servers list` shows its status"
        for server_id in sorted(snapshot.servers.keys() & set(scope.servers))
        if is_unlisted(snapshot.servers[server_id]) and can_show_server(snapshot, principal, server_id)
    ]


_PLATFORMS: Final = ("linux", "darwin")


class AssistantShown(ResponseShape, frozen=True, kw_only=True):
    """The setup of one client."""

    id: clients.ClientKind
    title: str
    file: str | None
    """The file to create or merge `document` into; `~` is the home directory. Null: the client's settings."""
    document: dict[str, Any]
    """The client's configuration. Instead of a key it has the variable `TOOLGATE_KEY` or a placeholder."""
    command: str | None
    """A command line with the same effect. Null: the client has none."""
    after: str
    """What to do next in the client."""


class ConnectResponse(ResponseShape, frozen=True, kw_only=True):
    """The setup of each client for `url`."""

    url: str
    note: str
    """Whether new tools of packages appear at the URL. Empty if it selects neither servers nor tools."""
    warnings: list[str]
    """For example, that the URL is too long for some clients."""
    clients: list[AssistantShown]


_CONNECT_QUERY: Final = (
    *SELECTION,
    Parameter("needs_key", "Whether the client sends a key. Default: if you do, or off loopback.", "choice"),
    Parameter("platform", "The platform of file paths: `linux` (default) or `darwin`."),
)


@get("/api/v1/mcp/connect", "agent", "Show how to connect a client", query=_CONNECT_QUERY)
async def show_client_setup(serving: GatewayProcess, call: RestCall[None]) -> ConnectResponse:
    """The configuration to paste into each client, with the URL of the selected tools."""
    caller = parse_caller(call.caller, call.query)
    url = format_selected_url(serving, call, caller)
    needs_key = call.authorization is not None or not is_loopback(urlsplit(url).hostname or "")
    if "needs_key" in call.query:
        needs_key = call.flag("needs_key")
    endpoint = clients.GatewayEndpoint(name=caller.task_id or "toolgate", url=url, needs_key=needs_key)
    platform = call.choice("platform", _PLATFORMS) or _PLATFORMS[0]
    return ConnectResponse(
        url=url,
        note=clients.describe_selection(call.query),
        warnings=list(filter(None, [clients.warn_about_length(url)])),
        clients=list(_show_clients(endpoint, platform)),
    )


def _show_clients(endpoint: clients.GatewayEndpoint, platform: str) -> Iterator[AssistantShown]:
    for name, program in clients.CLIENT_PROGRAMS.items():
        below_home = program.file_below_home(platform)
        yield AssistantShown.of(
            program,
            id=name,
            file=None if below_home is None else f"~/{below_home}",
            document=program.document(endpoint),
            command=None if program.command is None else program.command(endpoint),
        )
