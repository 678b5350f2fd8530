"""Resolves a key, a caller, a task and a request against one snapshot into rules and requested servers.

It decides what needs more than one layer: the servers of a task whose profile selects them, the servers that
a request selects, and when a request is denied as a whole. The caller's layer is between key and task:
servers that it switched on, fully or for their read-only tools. It only narrows. Prompts and resources of a
read-only server stay: they are reads.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from types import MappingProxyType
from typing import Final, NamedTuple

from toolgate.errors import NotFound, PolicyDenied
from toolgate.model.principals import Ceiling, IntegrationState, Principal, make_choice_id
from toolgate.model.tasks import Selection, Side
from toolgate.model.tools import Snapshot
from toolgate.policy.layers import SessionRequest, TaskPolicy
from toolgate.policy.patterns import Patterns
from toolgate.policy.rollouts import find_version
from toolgate.policy.rules import RuleNames, Rules, ServerRule, ToolRule, deny_all, make_rules
from toolgate.policy.scope import Decision, Layer, Reason, Refusal, deny


@dataclass(frozen=True, slots=True)
class Integrations:
    """The state of each server for one caller: its choice, or else `default`."""

    default: IntegrationState = "on"
    chosen: Mapping[str, IntegrationState] = field(default_factory=lambda: MappingProxyType({}))

    def state_of(self, server_id: str) -> IntegrationState:
        return self.chosen.get(server_id, self.default)

    def read_only_rule(self, server_id: str) -> str:
        """The rule that admits only read-only tools of a server; empty if no such rule applies."""
        if self.state_of(server_id) != "read_only":
            return ""
        why = ", set by the caller" if server_id in self.chosen else " unless the caller switches on all"
        return f"integrations: read-only tools{why}"


ALL_ON: Final = Integrations()
"""For a caller without choices if everything is on by default. It makes no rules."""


def read_integrations(platform: Snapshot, principal: Principal) -> Integrations:
    """The choices of `principal`. An unreadable choice switches every server off."""
    choice = platform.choices.get(make_choice_id(principal.id)) if platform.choices else None
    if choice is None:
        return ALL_ON if principal.integrations == "on" else Integrations(principal.integrations)
    return Integrations(principal.integrations, choice.servers) if choice.is_readable else Integrations("off")


def _integration_rules(integrations: Integrations) -> Rules:
    """The rules for servers that are on. For read-only servers, `compose` checks each tool."""
    rule = partial(ServerRule, layer="caller", reason=Reason.INTEGRATION_OFF)
    rules = []
    if switched_off := frozenset(one for one, state in integrations.chosen.items() if state == "off"):
        rules.append(rule(name="integrations: switched off by the caller", excluded=switched_off))
    if integrations.default == "off":
        off = "integrations: off unless the caller switches it on"
        rules.append(rule(name=off, ids=frozenset(integrations.chosen)))
    return Rules(tuple(rules))


KEY_NAMES: Final = RuleNames("key servers", "key tags", "key allow", "key deny")
_OVERRIDES: Final = ("server_ids", "tags", "tool_allowlist", "tool_denylist")
OVERRIDE_NAMES: Final = RuleNames(*(f"mcp.profile_overrides {name}" for name in _OVERRIDES))


NO_CEILING: Final = Ceiling()
NO_REQUEST: Final = SessionRequest()


@dataclass(frozen=True, slots=True)
class ScopeInputs:
    """The five layers of one scope. Nothing else decides it. By default a layer restricts nothing."""

    platform: Snapshot
    ceiling: Ceiling = NO_CEILING
    task: TaskPolicy | None = None
    request: SessionRequest = NO_REQUEST
    integrations: Integrations = ALL_ON
    """The integrations that the caller switched on or off."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ResolvedRequest:
    """The inputs of a scope and their consequences, without the servers themselves."""

    inputs: ScopeInputs
    rules: Rules
    tools: Patterns | None
    """The patterns of `?tools=`, which are also a rule."""
    unknown: Mapping[str, Decision]
    """Requested servers that are not registered."""
    refusal: Refusal | None
    warnings: tuple[str, ...]
    is_enabled: bool
    strict: "ResolvedRequest | None"
    """The same request with the task's policy enforced. None: the policy is enforced."""


class _RequestedServers(NamedTuple):
    """Servers, and the name of the rule that requests them. `ids` None: all servers."""

    ids: frozenset[str] | None
    name: str


@dataclass(frozen=True, slots=True)
class BoundTask:
    """A task with its servers: the default of a request, and those that a request may name."""

    policy: TaskPolicy
    default: frozenset[str]
    default_name: str
    allowed: frozenset[str]
    allowed_name: str


def resolve(inputs: ScopeInputs) -> ResolvedRequest:
    """The rules of key, caller, task and request over the platform, in the order of the layers."""
    platform, task, request = inputs.platform, inputs.task, inputs.request
    tools = None if request.tools is None else Patterns(request.tools)
    bound = bind_task(platform, task) if task is not None and task.enforced else None
    refusal = None if task is None else _check_request(inputs, task, bound)
    requested = _find_requested_servers(request, tools, bound)
    rules = _key_rules(inputs.ceiling, task).then(_integration_rules(inputs.integrations))
    if task is not None and not task.enabled:
        rules = rules.then(deny_all("task", "mcp.enabled"))
    if bound is not None:
        rules = rules.then(_task_rules(platform, bound))
    if refusal is not None:
        rules = rules.then(deny_all("task", f"request denied: {refusal.message}"))
    rules = rules.then(_request_rules(inputs, requested, tools))
    return ResolvedRequest(
        inputs=inputs,
        rules=rules,
        tools=tools,
        unknown=_decide_unknown_servers(platform, requested, tools, rules),
        refusal=refusal,
        warnings=_warn_missing_profiles(inputs, bound),
        is_enabled=(task is None or task.enabled) and request.enabled is not False,
        strict=None
        if task is None or task.enforced
        else resolve(replace(inputs, task=replace(task, enforced=True))),
    )


def bind_task(platform: Snapshot, task: TaskPolicy) -> BoundTask:
    """The task with its servers. `allowed` defaults to the default servers; an unenforced task has all
    servers."""
    if not task.enforced:
        everything = frozenset(platform.servers)
        return BoundTask(task, everything, "mcp.enforce", everything, "mcp.enforce")
    default, name = _default_servers(platform, task)
    if task.allowed is None:
        return BoundTask(task, default, name, default, name)
    return BoundTask(task, default, name, frozenset(task.allowed), "mcp.allowed_server_ids")


def restrict_to_task(platform: Snapshot, task: TaskPolicy) -> Snapshot:
    """`platform` with only the servers that the task could reach, so that the cost follows the task."""
    bound = bind_task(platform, task)
    ids = sorted((bound.default | bound.allowed) & platform.servers.keys())
    return replace(platform, servers=MappingProxyType({one: platform.servers[one] for one in ids}))


def _default_servers(platform: Snapshot, task: TaskPolicy) -> tuple[frozenset[str], str]:
    """The default servers of a task, or those that its profile or its tags select."""
    if task.default or task.is_default_empty:
        return frozenset(task.default), "mcp.default_server_ids"
    if task.profile is not None:
        selection = _select_profile(platform, task.profile) or Selection(servers=())
        return select_servers(platform, selection), f"mcp.profile {_profile_title(platform, task.profile)}"
    if task.tags is not None:
        return select_servers(platform, Selection(tags=task.tags)), "mcp.tags"
    return frozenset(), "mcp.default_server_ids"


def _select_profile(platform: Snapshot, name: str) -> Selection | None:
    profile = platform.profiles.get(name)
    side: Side = "candidate" if name in platform.candidates else "stable"
    return None if profile is None else profile.selection_for(platform.environment, side)


def _profile_title(platform: Snapshot, name: str) -> str:
    version = find_version(platform, name)
    return f"`{name}`" if version is None else version.title


def select_servers(platform: Snapshot, selection: Selection) -> frozenset[str]:
    """The servers of a selection. An unregistered server that it names is included: it shows as unknown."""
    if selection.servers is not None:
        return frozenset(selection.servers)
    if selection.tags is None:
        return frozenset(platform.servers)
    tags = frozenset(selection.tags)
    return frozenset(one for one, offer in platform.servers.items() if not tags.isdisjoint(offer.record.tags))


def _check_request(inputs: ScopeInputs, task: TaskPolicy, bound: BoundTask | None) -> Refusal | None:
    """Why the request is denied as a whole. `bound` None: the task is not enforced."""
    task_id, ceiling, request = task.task_id, inputs.ceiling, inputs.request
    if ceiling.tasks is not None and task_id not in ceiling.tasks:
        # The message for a missing task: this caller must not learn whether it exists.
        return Refusal(code="not_found", message=f"no task `{task_id}`", hint=NotFound.default_hint)
    if request.enabled and not task.enabled:
        message = f"task `{task_id}` is not enabled"
        hint = "set `mcp.enabled` of the task to `true`"
        return Refusal(code="mcp_policy_denied", message=message, hint=hint)
    outside = [] if bound is None else sorted(set(request.servers or ()) - bound.allowed)
    if outside:
        message = f"task `{task_id}` does not allow {', '.join(f'`{one}`' for one in outside)}"
        hint, servers = PolicyDenied.default_hint, tuple(outside)
        return Refusal(code="mcp_policy_denied", message=message, hint=hint, servers=servers)
    return None


def _find_requested_servers(
    request: SessionRequest, tools: Patterns | None, bound: BoundTask | None
) -> _RequestedServers:
    """The servers that a request means: those it names, or those its tools name, or the task's default. If a
    tool is named without a server, the default counts, too. Without a task: all."""
    if request.servers is not None:
        return _RequestedServers(frozenset(request.servers), "?servers=")
    if bound is None:
        return _RequestedServers(None, "")
    if tools is None:
        return _RequestedServers(bound.default, bound.default_name)
    named = frozenset(server_id for server_id in bound.allowed if tools.names_server(server_id))
    if tools.has_bare:
        return _RequestedServers(bound.default | named, bound.default_name)
    return _RequestedServers(named, "?tools=")


def _key_rules(ceiling: Ceiling, task: TaskPolicy | None) -> Rules:
    """The rules of the ceiling. A key that is bound to tasks reaches nothing without one of them."""
    selection = Selection(servers=ceiling.servers, allow=ceiling.allow, deny=ceiling.deny)
    rules = make_rules("key", selection, KEY_NAMES)
    if ceiling.tasks is not None and (task is None or task.task_id not in ceiling.tasks):
        return deny_all("key", "key tasks").then(rules)
    return rules


def _task_rules(platform: Snapshot, bound: BoundTask) -> Rules:
    task = bound.policy
    names = RuleNames(bound.allowed_name, "mcp.tags", "mcp.tool_allowlist", "mcp.tool_denylist")
    own = Selection(servers=tuple(bound.allowed), tags=task.tags, allow=task.allow, deny=task.deny)
    rules = make_rules("task", own, names)
    if task.profile is not None:
        rules = rules.then(_profile_rules(platform, "task", task.profile, label="mcp.profile"))
    return rules.then(make_rules("task", task.overrides, OVERRIDE_NAMES))


def _request_rules(inputs: ScopeInputs, requested: _RequestedServers, tools: Patterns | None) -> Rules:
    """The rules of the request. Its patterns come from a caller, so they are not cached."""
    request = inputs.request
    names = RuleNames(requested.name, "", "mcp.tool_allowlist", "mcp.tool_denylist")
    servers = None if requested.ids is None else tuple(requested.ids)
    own = Selection(servers=servers, allow=request.allow, deny=request.deny)
    rules = deny_all("request", "mcp.enabled") if request.enabled is False else Rules()
    rules = rules.then(make_rules("request", own, names, is_stored=False))
    if request.profile is not None:
        rules = rules.then(_profile_rules(inputs.platform, "request", request.profile, label="?profile="))
    if tools is None:
        return rules
    reason = Reason.NOT_IN_REQUEST_ALLOWLIST
    requested_tools = ToolRule(
        layer="request", reason=reason, name="?tools=", patterns=tools, is_about_tools=True
    )
    return rules.then(Rules((), (requested_tools,)))


def _profile_rules(platform: Snapshot, layer: Layer, profile: str, *, label: str) -> Rules:
    """The rules of a profile for this environment. A missing profile admits nothing."""
    selection = _select_profile(platform, profile)
    title = f"{label} {_profile_title(platform, profile)}"
    if selection is None:
        return deny_all(layer, title)
    names = RuleNames(f"{title} servers", f"{title} tags", f"{title} allow", f"{title} deny")
    return make_rules(layer, selection, names)


def _decide_unknown_servers(
    platform: Snapshot, requested: _RequestedServers, tools: Patterns | None, rules: Rules
) -> Mapping[str, Decision]:
    requested_by = dict.fromkeys(() if tools is None else tools.server_ids, "?tools=")
    requested_by |= dict.fromkeys(requested.ids or (), requested.name)
    return {
        server_id: decide_unknown_server(server_id, name, rules)
        for server_id, name in requested_by.items()
        if server_id not in platform.servers
    }


def decide_unknown_server(server_id: str, name: str, rules: Rules) -> Decision:
    """A server is unknown if no layer would deny it. Otherwise the layer denies it, registered or not."""
    for rule in rules.servers:
        if rule.ids is not None and server_id not in rule.ids:
            return rule.exclude(server_id)
    return deny(server_id, None, "platform", Reason.UNKNOWN_SERVER, name)


def _warn_missing_profiles(inputs: ScopeInputs, bound: BoundTask | None) -> tuple[str, ...]:
    task_profile = None if bound is None else bound.policy.profile
    named = {"mcp.profile": task_profile, "?profile=": inputs.request.profile}
    return tuple(
        f"`{label}` names the missing profile `{name}`, so no tool is allowed"
        for label, name in named.items()
        if name is not None and name not in inputs.platform.profiles
    )
