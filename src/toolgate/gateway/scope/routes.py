"""Routes from the names a caller knows to tools, prompts and resources of servers, built once per view."""

from collections.abc import Mapping
from typing import Final

import msgspec

from toolgate.catalog.find_tools import FIND_TOOLS
from toolgate.catalog.naming import join_tool_name, parse_joined_name
from toolgate.gateway.scope.caller import Caller
from toolgate.model.names import PROMPT, RESOURCE, ToolRef, kind_of
from toolgate.model.tools import Listing, Snapshot, ToolDefinition
from toolgate.policy.scope import ApprovalRequirement, Decision, Scope
from toolgate.redaction.arguments import DEFAULT_REDACTION, Redaction, compile_redaction


class Route(msgspec.Struct, frozen=True, gc=False):
    """The route to one tool, prompt or resource, with everything that a request for it needs."""

    server_id: str
    name: str
    """Its name in rules, records and the audit: the tool's own, `prompt:<name>`, or `resource:<uri>`."""
    upstream_name: msgspec.Raw
    """Its name at the server."""
    layer: str
    rule: str
    """The layer and rule that admitted it."""
    label: str
    """Its name in metrics, of which there are about as many as tools."""
    digest: str = ""
    """Of its definition; empty for an unlisted resource."""
    tool: ToolDefinition | None = None
    listing: Listing | None = None
    approval: ApprovalRequirement | None = None
    """The rule by which a person must approve a call, if there is one."""
    redaction: Redaction = DEFAULT_REDACTION
    """Which of its arguments may be audited."""
    shadow: str = ""
    """The rule that would deny it if the policy of its task were enforced."""
    shadow_reason: str = ""

    @property
    def upstream_uri(self) -> str:
        """The URI of a resource at its server."""
        return self.name[len(RESOURCE) :]


def route_to(
    decision: Decision,
    definition: ToolDefinition | Listing | None = None,
    *,
    approval: ApprovalRequirement | None = None,
    redaction: Redaction = DEFAULT_REDACTION,
) -> Route:
    """The route to what `decision` admits."""
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
    """The decisions that admit something, by what they admit."""
    return {
        ToolRef(one.server_id, one.tool): one
        for one in scope.decisions
        if one.allowed and one.tool is not None
    }


def tool_routes(
    caller: Caller, scope: Scope, snapshot: Snapshot, admitted: Mapping[ToolRef, Decision]
) -> Mapping[str, Route]:
    """The tools of a scope by the caller's names, sorted."""
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
    """The prompts of a scope by the caller's names, sorted."""
    redactions = redactions_of(scope, snapshot)
    routes = {}
    for ref in scope.prompts:
        own_name = ref.name[len(PROMPT) :]
        routes[caller_name(caller, ToolRef(ref.server_id, own_name))] = route_to(
            admitted[ref],
            snapshot.servers[ref.server_id].prompts[own_name],
            redaction=redactions[ref.server_id],
        )
    return dict(sorted(routes.items()))


def redactions_of(scope: Scope, snapshot: Snapshot) -> Mapping[str, Redaction]:
    """The redaction of each server of a scope."""
    return {
        server_id: compile_redaction(snapshot.redaction, snapshot.servers[server_id].record.redaction)
        for server_id in scope.servers
    }


def guess_ref(caller: Caller, name: str) -> ToolRef | None:
    """What an unknown tool or `prompt:<name>` most likely refers to. A URI names no certain server."""
    kind = kind_of(name)
    own_name = name[len(kind) :]
    if kind == RESOURCE:
        return None
    ref = ToolRef(caller.only_server, own_name) if caller.only_server else parse_joined_name(own_name)
    return None if ref is None else ToolRef(ref.server_id, kind + ref.name)


def caller_name(caller: Caller, ref: ToolRef) -> str:
    """The caller's name for a tool or prompt."""
    return ref.name if caller.only_server else join_tool_name(ref)
