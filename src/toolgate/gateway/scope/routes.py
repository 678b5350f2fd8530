"""The ways from names on a door to what servers call by them, looked up once for each view."""

from collections.abc import Mapping
from typing import Final

import msgspec
from msgspec.structs import replace

from toolgate.catalog.naming import join_tool_name, parse_joined_name
from toolgate.catalog.search.find_tools import FIND_TOOLS
from toolgate.gateway.scope.caller import Caller
from toolgate.model.names import PROMPT, RESOURCE, ToolRef, kind_of
from toolgate.model.snapshot import Snapshot
from toolgate.model.tools import Listing, ToolDefinition
from toolgate.policy.scope import ApprovalRequirement, Decision, Scope
from toolgate.redaction.arguments import DEFAULT_REDACTION, Redaction, compile_redaction


class Route(msgspec.Struct, frozen=True, gc=False):
    """From a name on the door to one tool, prompt or resource, with all that a request for it needs."""

    server_id: str
    name: str
    """As rules, records and the audit call it: the tool's own, `prompt:<name>`, or `resource:<uri>`."""
    upstream_name: msgspec.Raw
    """What its server calls it."""
    layer: str
    rule: str
    """The layer and rule that admitted it."""
    label: str
    """What metrics call it: of these there are as many as there are tools, and not many more."""
    digest: str = ""
    """Of its definition; empty for a resource that is not listed."""
    tool: ToolDefinition | None = None
    listing: Listing | None = None
    approval: ApprovalRequirement | None = None
    """By which rule a person must agree to a call. None: nobody need."""
    redaction: Redaction = DEFAULT_REDACTION
    """What of its arguments may be written down."""
    shadow: str = ""
    """The rule that would deny it, were the policy of its task enforced."""
    shadow_reason: str = ""

    @property
    def upstream_uri(self) -> str:
        """What its server calls a resource."""
        return self.name[len(RESOURCE) :]


def route_to(
    decision: Decision,
    definition: ToolDefinition | Listing | None = None,
    *,
    approval: ApprovalRequirement | None = None,
    redaction: Redaction = DEFAULT_REDACTION,
) -> Route:
    """The way to what `decision` admits."""
    name = decision.tool or ""
    kind = kind_of(name)
    native = definition.native_name if isinstance(definition, ToolDefinition) else ""
    return Route(
        server_id=decision.server_id,
        name=name,
        upstream_name=msgspec.Raw(msgspec.json.encode(native or name[len(kind) :])),
        layer=decision.layer,
        rule=decision.rule,
        label=f"{kind}*" if kind else name,
        digest="" if definition is None else definition.digest,
        tool=definition if isinstance(definition, ToolDefinition) else None,
        listing=definition if isinstance(definition, Listing) else None,
        approval=approval,
        redaction=redaction,
        shadow="" if decision.shadow is None else decision.shadow.rule,
        shadow_reason="" if decision.shadow is None else decision.shadow.reason or "",
    )


def approval_route(route: Route) -> Route:
    """The same way, with the rule by which its call waits in place of the one that admitted it."""
    demand = route.approval
    return route if demand is None else replace(route, layer=demand.layer, rule=demand.rule)


FIND_ROUTES: Final[Mapping[str, Route]] = {
    name: Route(
        server_id="",
        name=name,
        upstream_name=msgspec.Raw(msgspec.json.encode(name)),
        layer="",
        rule="",
        label=name,
        digest=tool.digest,
        tool=tool,
    )
    for name, tool in sorted(FIND_TOOLS.items())
}
"""The gateway's own tools, which lead to no server."""


def allowed_decisions(scope: Scope) -> Mapping[ToolRef, Decision]:
    """By what they admit."""
    return {
        ToolRef(one.server_id, one.tool): one
        for one in scope.decisions
        if one.allowed and one.tool is not None
    }


def tool_routes(
    caller: Caller, scope: Scope, snapshot: Snapshot, admitted: Mapping[ToolRef, Decision]
) -> Mapping[str, Route]:
    """The tools of a scope by the door's names for them, in their order."""
    redactions = redactions_of(scope, snapshot)
    routes = {
        caller_name(caller, ref): route_to(
            admitted[ref],
            snapshot.servers[ref.server_id].tools[ref.name],
            approval=scope.approvals.get(ref),
            redaction=redactions[ref.server_id],
        )
        for ref in scope.tools
    }
    return dict(sorted(routes.items()))


def prompt_routes(
    caller: Caller, scope: Scope, snapshot: Snapshot, admitted: Mapping[ToolRef, Decision]
) -> Mapping[str, Route]:
    """The prompts of a scope by the door's names for them, in their order."""
    redactions = redactions_of(scope, snapshot)
    routes = {}
    for ref in scope.prompts:
        own_name = ref.name[len(PROMPT) :]
        name = caller_name(caller, ToolRef(ref.server_id, own_name))
        routes[name] = route_to(
            admitted[ref],
            snapshot.servers[ref.server_id].prompts[own_name],
            redaction=redactions[ref.server_id],
        )
    return dict(sorted(routes.items()))


def redactions_of(scope: Scope, snapshot: Snapshot) -> Mapping[str, Redaction]:
    """By server, for all of a scope's."""
    return {
        server_id: compile_redaction(snapshot.redaction, snapshot.servers[server_id].record.redaction)
        for server_id in scope.servers
    }


def guess_ref(caller: Caller, name: str) -> ToolRef | None:
    """What a tool or `prompt:<name>` would be that leads nowhere. A URI names no certain server."""
    kind = kind_of(name)
    own_name = name[len(kind) :]
    if kind == RESOURCE:
        return None
    ref = ToolRef(caller.only_server, own_name) if caller.only_server else parse_joined_name(own_name)
    return None if ref is None else ToolRef(ref.server_id, kind + ref.name)


def caller_name(caller: Caller, ref: ToolRef) -> str:
    """What the caller knows it by."""
    return ref.name if caller.only_server else join_tool_name(ref)
