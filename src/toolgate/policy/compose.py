"""The one function that says what a caller sees: platform ∩ key ∩ task ∩ request, with the reasons.

Each layer can only narrow what the one before it left. Servers are decided first, and only the tools of
those that remain are looked at, so the cost follows what is asked for and not what is registered.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Final

from toolgate.model.names import ToolRef
from toolgate.model.pins import Pin
from toolgate.model.principals import Ceiling
from toolgate.model.snapshot import Snapshot
from toolgate.model.tools import ListState, ServerTools
from toolgate.policy.layers import SessionRequest, TaskPolicy
from toolgate.policy.limits import DEFAULT_LIMITS, Limits, too_many_tools
from toolgate.policy.offers import may_hold, offered_names
from toolgate.policy.resolve import Resolved, resolve
from toolgate.policy.rules import ToolRule, compiled
from toolgate.policy.scope import Decision, Layer, Reason, Scope

_LIST_FAULTS: Final[dict[ListState, Reason]] = {
    "env_missing": Reason.ENV_MISSING,
    "list_timeout": Reason.LIST_TIMEOUT,
    "list_failed": Reason.LIST_FAILED,
}


def compose(
    platform: Snapshot,
    ceiling: Ceiling,
    *,
    task: TaskPolicy | None,
    request: SessionRequest,
    limits: Limits = DEFAULT_LIMITS,
) -> Scope:
    """The scope of a caller with `ceiling` who asks `request` of `task`.

    - No task: that layer does not restrict, and all servers are requested unless the request names some.
      A task that is named but not enabled: no tools.
    - A request for servers outside the task's allowed ones is refused whole. Tools named on such servers
      are not there, like any name that does not exist. Servers outside the key's ceiling are left out.
    - An allowed server that is not registered is left out as unknown.
    - A server whose list cannot be had is left out, unless tools are known from an earlier time.
    - Enabled with nothing left: a warning. More than the limits: a refusal, or a searchable scope.
    """
    resolved = resolve(platform, ceiling, task=task, request=request)
    servers: list[str] = []
    decisions: list[Decision] = []
    for server_id in sorted(platform.servers.keys() | resolved.unknown.keys()):
        if server_id in resolved.unknown:
            decisions.append(resolved.unknown[server_id])
            continue
        offer = platform.servers[server_id]
        exclusion = _exclude(offer, resolved)
        if exclusion is None:
            servers.append(server_id)
            decisions.extend(_decide_tools(offer, platform.pins.get(server_id), resolved.rules.tools))
        else:
            decisions.append(exclusion)
    tools = tuple(
        ToolRef(one.server_id, one.tool) for one in decisions if one.allowed and one.tool is not None
    )
    offers = platform.servers.values()
    scope = Scope(
        tools=tools,
        servers=tuple(servers),
        decisions=tuple(decisions),
        warnings=resolved.warnings,
        refusal=resolved.refusal,
        tokens=sum(platform.servers[ref.server_id].tools[ref.name].tokens for ref in tools),
        registered_tools=sum(len(offered_names(offer)) for offer in offers),
        registered_tokens=sum(tool.tokens for offer in offers for tool in offer.tools.values()),
    )
    return _bounded(scope, limits) if resolved.is_enabled else scope


def _bounded(scope: Scope, limits: Limits) -> Scope:
    """`scope` as its size lets it stand: warned of when empty, refused or searchable when too large."""
    if scope.refusal is not None:
        return scope
    if not scope.tools:
        warning = "no tool is left in this scope: `toolgate explain` says why"
        return replace(scope, warnings=(*scope.warnings, warning))
    excess = limits.excess(len(scope.tools), scope.tokens)
    if excess is None:
        return scope
    if limits.on_too_many == "find":
        return replace(scope, is_searchable=True)
    return replace(scope, tools=(), servers=(), tokens=0, refusal=too_many_tools(excess))


def _exclude(offer: ServerTools, resolved: Resolved) -> Decision | None:
    """The decision against the whole server, if one of the layers makes it."""
    record = offer.record
    if not record.enabled:
        return _against(offer, "platform", Reason.SERVER_DISABLED, "enabled")
    if not record.allowed_tools:
        return _against(offer, "platform", Reason.DENY_ALL, "allowed_tools")
    fault = _LIST_FAULTS.get(offer.state)
    if fault is not None and not offer.tools:
        return _against(offer, "platform", fault, offer.detail or "tools/list")
    for rule in resolved.rules.servers:
        if not rule.admits(record):
            return rule.exclude(record.server_id)
    if resolved.tools is not None and not may_hold(offer, resolved.tools):
        return _against(offer, "request", Reason.NOT_IN_REQUEST_ALLOWLIST, "?tools=")
    return None


def _against(offer: ServerTools, layer: Layer, reason: Reason, rule: str) -> Decision:
    return Decision(
        server_id=offer.record.server_id, tool=None, allowed=False, layer=layer, reason=reason, rule=rule
    )


def _decide_tools(offer: ServerTools, pin: Pin | None, rules: Sequence[ToolRule]) -> Iterator[Decision]:
    """One decision on each tool of a server that no layer excluded whole."""
    server_id = offer.record.server_id
    own = ToolRule(
        layer="platform",
        reason=Reason.NOT_IN_SERVER_ALLOWLIST,
        name="allowed_tools",
        patterns=compiled(offer.record.allowed_tools),
    )
    for name in sorted(offered_names(offer)):
        if name in offer.quarantined:
            yield Decision(
                server_id=server_id,
                tool=name,
                allowed=False,
                layer="platform",
                reason=Reason.INVALID_DEFINITION,
                rule=f"tool definition: {offer.quarantined[name]}",
            )
        elif pin is not None and pin.tools.get(name) != offer.tools[name].digest:
            yield _quarantine(ToolRef(server_id, name), pin)
        else:
            yield _decide(ToolRef(server_id, name), own, rules)


def _quarantine(ref: ToolRef, pin: Pin) -> Decision:
    """Against a tool of a pinned server that nobody approved, or not as it is now."""
    rule = "pin: its definition is not the approved one" if ref.name in pin.tools else "pin: not approved"
    return Decision(
        server_id=ref.server_id,
        tool=ref.name,
        allowed=False,
        layer="platform",
        reason=Reason.QUARANTINED,
        rule=rule,
    )


def _decide(ref: ToolRef, own: ToolRule, rules: Sequence[ToolRule]) -> Decision:
    """The first rule that objects decides; if none does, the last allowlist that admitted the tool."""
    admitting, pattern = own, own.patterns.first_match(ref)
    if pattern is None:
        return own.decide(ref, None, allowed=False)
    for rule in rules:
        match = rule.patterns.first_match(ref)
        if rule.is_deny is (match is not None):
            return rule.decide(ref, match, allowed=False)
        if match is not None:
            admitting, pattern = rule, match
    return admitting.decide(ref, pattern, allowed=True)
