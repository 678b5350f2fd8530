"""The caller's own layer: which servers it switched on for itself, and whether only their read-only tools.

It stands between the key and the task, and can only narrow: switching on what the key does not reach gives
nothing. What is read-only is what the definition says that was approved; a tool that says nothing is not.
Prompts, resources and templates of a server that is on for its read-only tools stay: they are reads.

A key, a task and a request held against one snapshot: the rules that follow, and what was asked for.

Here stand the questions that need more than one layer to answer: what a task's servers are when a profile
names them, which servers a request means, and when it must be refused as a whole.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Final, NamedTuple

from toolgate.errors import NotFound, PolicyDenied
from toolgate.model.principals import Ceiling, IntegrationState, Principal, make_choice_id
from toolgate.model.snapshot import Snapshot
from toolgate.model.tasks import Selection, Side
from toolgate.policy.layers import SessionRequest, TaskPolicy
from toolgate.policy.patterns import Patterns
from toolgate.policy.rollouts import find_version
from toolgate.policy.rules import RuleNames, Rules, ServerRule, ToolRule, deny_all, make_rules
from toolgate.policy.scope import Decision, Layer, Reason, Refusal

SWITCHED_OFF: Final = "integrations: off, by the caller"
NOT_SWITCHED_ON: Final = "integrations: off unless the caller switches it on"
READ_ONLY_BY_CALLER: Final = "integrations: read-only tools, by the caller"
READ_ONLY_BY_DEFAULT: Final = "integrations: read-only tools unless the caller switches on all"


@dataclass(frozen=True, slots=True)
class Integrations:
    """What one caller has of each server: as it chose, or else `default`."""

    default: IntegrationState = "on"
    chosen: Mapping[str, IntegrationState] = field(default_factory=lambda: MappingProxyType({}))

    def state_of(self, server_id: str) -> IntegrationState:
        return self.chosen.get(server_id, self.default)

    def read_only_rule(self, server_id: str) -> str:
        """The rule by which only the read-only tools of a server pass; empty: there is no such rule."""
        if self.state_of(server_id) != "read_only":
            return ""
        return READ_ONLY_BY_CALLER if server_id in self.chosen else READ_ONLY_BY_DEFAULT


ALL_ON: Final = Integrations()
"""Of a caller that chose nothing, where nothing has to be chosen. It makes no rules."""


def read_integrations(platform: Snapshot, principal: Principal) -> Integrations:
    """What `principal` has of each server. A choice that cannot be read switches all of them off."""
    choice = platform.choices.get(make_choice_id(principal.id)) if platform.choices else None
    if choice is None:
        return ALL_ON if principal.integrations == "on" else Integrations(principal.integrations)
    return Integrations(principal.integrations, choice.servers) if choice.is_readable else Integrations("off")


def make_integration_rules(integrations: Integrations) -> Rules:
    """Which servers pass. Of those that are on for reading, `compose` looks at each tool's definition."""
    rules = []
    if switched_off := frozenset(one for one, state in integrations.chosen.items() if state == "off"):
        rules.append(_server_rule(SWITCHED_OFF, excluded=switched_off))
    if integrations.default == "off":
        rules.append(_server_rule(NOT_SWITCHED_ON, ids=frozenset(integrations.chosen)))
    return Rules(tuple(rules))


def _server_rule(
    name: str, *, ids: frozenset[str] | None = None, excluded: frozenset[str] = frozenset()
) -> ServerRule:
    return ServerRule(layer="caller", reason=Reason.INTEGRATION_OFF, name=name, ids=ids, excluded=excluded)


KEY_NAMES: Final = RuleNames("key servers", "key tags", "key allow", "key deny")
OVERRIDE_NAMES: Final = RuleNames(
    "mcp.profile_overrides server_ids",
    "mcp.profile_overrides tags",
    "mcp.profile_overrides tool_allowlist",
    "mcp.profile_overrides tool_denylist",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ResolvedRequest:
    """All that decides about a scope, apart from the servers themselves."""

    rules: Rules
    tools: Patterns | None
    """What `?tools=` asks for. It also stands among the rules."""
    unknown: Mapping[str, Decision]
    """The servers asked for by name that are not registered."""
    refusal: Refusal | None
    warnings: tuple[str, ...]
    is_enabled: bool
    integrations: Integrations = ALL_ON
    """What the caller switched on for itself. Which servers, also stands among the rules."""
    strict: "ResolvedRequest | None" = None
    """What it would be, were the policy of the task enforced. None: it is."""


class _RequestedServers(NamedTuple):
    """Servers, and the name of the rule that says which. `ids` None: all."""

    ids: frozenset[str] | None
    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class BoundTask:
    """A task with its servers: those a request starts with, and those it may name."""

    policy: TaskPolicy
    default: frozenset[str]
    default_name: str
    allowed: frozenset[str]
    allowed_name: str


def resolve(
    platform: Snapshot,
    ceiling: Ceiling,
    *,
    task: TaskPolicy | None,
    request: SessionRequest,
    integrations: Integrations = ALL_ON,
) -> ResolvedRequest:
    """The rules of key, caller, task and request over `platform`, in the order of the layers."""
    tools = None if request.tools is None else Patterns.of(request.tools)
    bound = bind_task(platform, task) if task is not None and task.enforced else None
    refusal = None if task is None else _check_request(ceiling, task, bound, request)
    requested = _find_requested_servers(request, tools, bound)
    rules = _key_rules(ceiling, task).then(make_integration_rules(integrations))
    if task is not None and not task.enabled:
        rules = rules.then(deny_all("task", "mcp.enabled"))
    if bound is not None:
        rules = rules.then(_task_rules(platform, bound))
    if refusal is not None:
        rules = rules.then(deny_all("task", f"refused as a whole: {refusal.message}"))
    rules = rules.then(_request_rules(platform, request, requested, tools))
    return ResolvedRequest(
        rules=rules,
        tools=tools,
        unknown=_decide_unknown_servers(platform, requested, tools, rules),
        refusal=refusal,
        warnings=_warn_missing_profiles(platform, None if bound is None else task, request),
        is_enabled=(task is None or task.enabled) and request.enabled is not False,
        integrations=integrations,
        strict=None
        if task is None or task.enforced
        else resolve(
            platform,
            ceiling,
            task=replace(task, enforced=True),
            request=request,
            integrations=integrations,
        ),
    )


def bind_task(platform: Snapshot, task: TaskPolicy) -> BoundTask:
    """The task with its servers. `allowed` absent equals the default; not enforced, it has them all."""
    if not task.enforced:
        ids, name = frozenset(platform.servers), "mcp.enforce"
        return BoundTask(policy=task, default=ids, default_name=name, allowed=ids, allowed_name=name)
    default, default_name = _default_servers(platform, task)
    if task.allowed is None:
        allowed, allowed_name = default, default_name
    else:
        allowed, allowed_name = frozenset(task.allowed), "mcp.allowed_server_ids"
    return BoundTask(
        policy=task,
        default=default,
        default_name=default_name,
        allowed=allowed,
        allowed_name=allowed_name,
    )


def _default_servers(platform: Snapshot, task: TaskPolicy) -> tuple[frozenset[str], str]:
    """The servers a request starts with. Where the task names none, its profile or its tags do."""
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
    """The servers a selection means. One it names that is not registered counts: it shows as unknown."""
    if selection.servers is not None:
        return frozenset(selection.servers)
    if selection.tags is None:
        return frozenset(platform.servers)
    tags = frozenset(selection.tags)
    return frozenset(
        server_id for server_id, offer in platform.servers.items() if not tags.isdisjoint(offer.record.tags)
    )


def _check_request(
    ceiling: Ceiling, task: TaskPolicy, bound: BoundTask | None, request: SessionRequest, /
) -> Refusal | None:
    """Why the request is turned down whole. Where `bound` is None, the task is not enforced."""
    task_id = task.task_id
    if ceiling.tasks is not None and task_id not in ceiling.tasks:
        # The words of a task that does not exist: which of the two it is, is not for this caller.
        return Refusal(code="not_found", message=f"no task `{task_id}`", hint=NotFound.default_hint)
    if request.enabled and not task.enabled:
        return Refusal(
            code="mcp_policy_denied",
            message=f"`mcp.enabled` is not true for task `{task_id}`",
            hint="have the task's `mcp.enabled` set to `true`",
        )
    outside = [] if bound is None else sorted(set(request.servers or ()) - bound.allowed)
    if outside:
        names = ", ".join(f"`{server_id}`" for server_id in outside)
        return Refusal(
            code="mcp_policy_denied",
            message=f"task `{task_id}` does not allow {names}",
            hint=PolicyDenied.default_hint,
            servers=tuple(outside),
        )
    return None


def _find_requested_servers(
    request: SessionRequest, tools: Patterns | None, bound: BoundTask | None
) -> _RequestedServers:
    """The servers a request means.

    Those it names; else those its tools name, together with the task's default where a tool is named
    without its server; else the task's default. Without a task, all.
    """
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
    """The ceiling. A key bound to tasks reaches nothing outside them, and so nothing without a task."""
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


def _request_rules(
    platform: Snapshot, request: SessionRequest, requested: _RequestedServers, tools: Patterns | None
) -> Rules:
    """The request's rules. Its patterns are a caller's: compiled here, and not kept."""
    names = RuleNames(requested.name, "", "mcp.tool_allowlist", "mcp.tool_denylist")
    servers = None if requested.ids is None else tuple(requested.ids)
    own = Selection(servers=servers, allow=request.allow, deny=request.deny)
    rules = deny_all("request", "mcp.enabled") if request.enabled is False else Rules()
    rules = rules.then(make_rules("request", own, names, compile_patterns=Patterns.of))
    if request.profile is not None:
        rules = rules.then(_profile_rules(platform, "request", request.profile, label="?profile="))
    if tools is None:
        return rules
    selection = ToolRule(
        layer="request",
        reason=Reason.NOT_IN_REQUEST_ALLOWLIST,
        name="?tools=",
        patterns=tools,
        is_about_tools=True,
    )
    return rules.then(Rules((), (selection,)))


def _profile_rules(platform: Snapshot, layer: Layer, profile: str, *, label: str) -> Rules:
    """The profile's selection for this environment; nothing passes one that does not exist."""
    selection = _select_profile(platform, profile)
    title = f"{label} {_profile_title(platform, profile)}"
    if selection is None:
        return deny_all(layer, title)
    names = RuleNames(f"{title} servers", f"{title} tags", f"{title} allow", f"{title} deny")
    return make_rules(layer, selection, names)


def _decide_unknown_servers(
    platform: Snapshot, requested: _RequestedServers, tools: Patterns | None, rules: Rules
) -> Mapping[str, Decision]:
    """A decision for each server that was asked for by name and is not registered."""
    asked = dict.fromkeys(() if tools is None else tools.server_ids, "?tools=")
    asked |= dict.fromkeys(requested.ids or (), requested.name)
    return {
        server_id: decide_unknown_server(server_id, name, rules)
        for server_id, name in asked.items()
        if server_id not in platform.servers
    }


def decide_unknown_server(server_id: str, name: str, rules: Rules) -> Decision:
    """Unknown is what could be had if it existed; what a layer rules out, it rules out either way."""
    for rule in rules.servers:
        if rule.ids is not None and server_id not in rule.ids:
            return rule.exclude(server_id)
    return Decision(
        server_id=server_id,
        tool=None,
        allowed=False,
        layer="platform",
        reason=Reason.UNKNOWN_SERVER,
        rule=name,
    )


def _warn_missing_profiles(
    platform: Snapshot, task: TaskPolicy | None, request: SessionRequest
) -> tuple[str, ...]:
    """One for each profile that is named and does not exist."""
    task_profile = None if task is None else task.profile
    named = {"mcp.profile": task_profile, "?profile=": request.profile}
    return tuple(
        f"`{label}` names the profile `{name}`, which does not exist: no tool passes it"
        for label, name in named.items()
        if name is not None and name not in platform.profiles
    )
