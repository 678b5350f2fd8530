"""Composes the scope of a caller: platform ∩ key ∩ caller ∩ task ∩ request, with the reasons.

Each layer can only narrow the result of the previous one. Servers are decided first, and only the names of
the remaining servers are read, so the cost follows the request and not the registry. Tools, prompts and
resources go through the same rules; only pins and limits apply to tools alone. `explain` expands a scope: it
repeats the decisions of `compose` and never makes its own.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Final

from toolgate.errors import InvalidRecord
from toolgate.model.names import PROMPT, RESOURCE, ToolRef, kind_of
from toolgate.model.principals import Ceiling, Principal
from toolgate.model.tools import UNSTATED, ServerTools, Snapshot, ToolDefinition
from toolgate.policy.admission import find_requirements
from toolgate.policy.layers import SessionRequest, TaskPolicy, parse_task_policy
from toolgate.policy.resolve import (
    NO_CEILING,
    NO_REQUEST,
    ResolvedRequest,
    ScopeInputs,
    bind_task,
    decide_unknown_server,
    resolve,
    restrict_to_task,
)
from toolgate.policy.rollouts import draw_versions, find_versions, list_sides
from toolgate.policy.rules import (
    ToolRule,
    can_match,
    compile_stored,
    find_pin_violation,
    is_unlisted,
    list_names,
    list_tool_names,
    read_approved,
)
from toolgate.policy.scope import (
    DEFAULT_LIMITS,
    NO_LIMITS,
    Decision,
    EffectiveFilter,
    Reason,
    Refusal,
    Scope,
    ScopeLimits,
    deny,
    refuse_oversize,
)

MAX_NAMED: Final = 10
"""The servers that a refusal names with their reasons: one line of text. `explain` has all of them."""
_LIST_FAULTS: Final = ("env_missing", "list_timeout", "list_failed")
"""List states that are also reasons."""


def compose(inputs: ScopeInputs, *, limits: ScopeLimits = DEFAULT_LIMITS) -> Scope:
    """The scope of a caller who sends this request under this task.

    - Without a task that layer does not restrict, and all servers are requested unless the request names
      some. A disabled task has no tools.
    - A request for servers outside the task's allowed ones is denied as a whole. Tools named on such servers
      are unknown. Servers outside the key's ceiling are omitted.
    - An allowed server that is not registered is omitted as unknown.
    - A server whose list failed is omitted, unless its list is known from an earlier run.
    - If the task is enabled and nothing is left: a warning, or a refusal if the task requires servers.
    - If there are more tools than the limits: a searchable scope, or a refusal.
    """
    platform, task, resolved = inputs.platform, inputs.task, resolve(inputs)
    servers: list[str] = []
    decisions: list[Decision] = []
    for server_id in sorted(_find_candidate_servers(resolved) | resolved.unknown.keys()):
        if server_id in resolved.unknown:
            decisions.append(resolved.unknown[server_id])
            continue
        offer = platform.servers[server_id]
        exclusion = _exclude_server(offer, resolved)
        if exclusion is None:
            servers.append(server_id)
            decisions.extend(_decide_names(offer, resolved, sorted(list_names(offer))))
        else:
            decisions.append(exclusion)
    refs = [ToolRef(one.server_id, one.tool) for one in decisions if one.allowed and one.tool is not None]
    tools = tuple(ref for ref in refs if not kind_of(ref.name))
    others = [ref for ref in refs if kind_of(ref.name)] if len(tools) < len(refs) else []
    uris = [(ref, ref.name[len(RESOURCE) :]) for ref in others if kind_of(ref.name) == RESOURCE]
    scope = Scope(
        tools=tools,
        prompts=tuple(ref for ref in others if kind_of(ref.name) == PROMPT),
        resources=tuple(ref for ref, uri in uris if uri in platform.servers[ref.server_id].resources),
        templates=tuple(ref for ref, uri in uris if uri in platform.servers[ref.server_id].templates),
        servers=tuple(servers),
        filters=tuple(
            EffectiveFilter(rule.layer, rule.name, rule.patterns.texts, rule.is_deny)
            for rule in resolved.rules.tools
        ),
        decisions=tuple(decisions),
        warnings=resolved.warnings,
        refusal=resolved.refusal,
        approvals=find_requirements(platform, tools, task),
        tokens=sum(platform.servers[ref.server_id].tools[ref.name].tokens for ref in tools),
        profiles=find_versions(platform, task, inputs.request),
    )
    if not resolved.is_enabled or scope.refusal is not None:
        return scope
    if (
        task is not None
        and (task.require_servers and task.enforced)
        # A server that is not listed so far may offer something later.
        and not (scope.refs or any(is_unlisted(platform.servers[one]) for one in servers))
    ):
        refusal = _refuse_without_servers(resolved, task.task_id)
        return Scope(decisions=scope.decisions, warnings=scope.warnings, refusal=refusal)
    return _apply_limits(scope, limits, task)


def decide_one(inputs: ScopeInputs, ref: ToolRef) -> Decision:
    """The decision on `ref` alone, listed or not: for example, a URI that matches a template."""
    offer = inputs.platform.servers.get(ref.server_id)
    if offer is None:
        return deny(*ref, "platform", Reason.UNKNOWN_SERVER, "registry")
    resolved = resolve(inputs)
    exclusion = _exclude_server(offer, resolved)
    if exclusion is not None:
        return replace(exclusion, tool=ref.name)
    return _decide_names(offer, resolved, [ref.name])[0]


def _find_candidate_servers(resolved: ResolvedRequest) -> AbstractSet[str]:
    """The servers that pass the lists of ids and of patterns. No other server can be in the scope. There may
    be thousands of others, so each step reads only the result of the previous one."""
    lists = [rule.ids for rule in resolved.rules.servers if rule.ids is not None]
    servers = resolved.inputs.platform.servers
    found: AbstractSet[str] = servers.keys()
    for ids in sorted(lists, key=len):
        found = ids & found
    for rule in resolved.rules.tools:
        if rule.names_servers:
            found = {one for one in found if rule.patterns.names_server(one)}
    if resolved.tools is not None:
        found = {one for one in found if can_match(servers[one], resolved.tools, is_deny=False)}
    return found


def _exclude_server(offer: ServerTools, resolved: ResolvedRequest) -> Decision | None:
    record = offer.record
    server_id = record.server_id
    if not record.enabled:
        return deny(server_id, None, "platform", Reason.SERVER_DISABLED, "enabled")
    if not record.allowed_tools:
        return deny(server_id, None, "platform", Reason.DENY_ALL, "allowed_tools")
    if offer.state in _LIST_FAULTS and is_unlisted(offer):
        return deny(server_id, None, "platform", Reason(offer.state), offer.detail or "tools/list")
    for rule in resolved.rules.servers:
        if not rule.admits(record):
            return rule.exclude(server_id)
    for allowlist in resolved.rules.tools:
        if allowlist.names_servers and not allowlist.patterns.names_server(server_id):
            return deny(server_id, None, allowlist.layer, allowlist.reason, allowlist.name)
    if resolved.tools is not None and not can_match(offer, resolved.tools, is_deny=False):
        return deny(server_id, None, "request", Reason.NOT_IN_REQUEST_ALLOWLIST, "?tools=")
    return None


def _apply_limits(scope: Scope, limits: ScopeLimits, task: TaskPolicy | None) -> Scope:
    """`scope` with a warning if it is empty, searchable or denied if it is too large."""
    if not scope.refs:
        which = "this scope" if task is None else f"the scope of task `{task.task_id}`"
        warning = f"no tool is left in {which}: run `toolgate explain` for the reasons"
        return replace(scope, warnings=(*scope.warnings, warning))
    excess = limits.describe_excess(len(scope.tools), scope.tokens)
    if excess is None:
        return scope
    if limits.on_too_many == "find":
        warning = (
            f"the scope has {excess}: clients search its tools instead of listing them, and can still call "
            "each by name. To list them, narrow the scope with `?tools=`, `?servers=`, a task or a profile"
        )
        return replace(scope, is_searchable=True, warnings=(*scope.warnings, warning))
    return Scope(decisions=scope.decisions, warnings=scope.warnings, refusal=refuse_oversize(excess))


def _refuse_without_servers(resolved: ResolvedRequest, task_id: str) -> Refusal:
    """The refusal of a task that requires servers, with the reason for each that the key reaches."""
    requested = (rule.ids for rule in resolved.rules.servers if rule.layer == "request")
    reasons = [
        f"`{server_id}` ({reason})"
        for server_id in sorted(next((ids for ids in requested if ids is not None), ()))
        if (reason := _explain_absence(resolved, server_id)) is not None
    ]
    more = [f"{len(reasons) - MAX_NAMED} more"] if len(reasons) > MAX_NAMED else []
    named = ", ".join([*reasons[:MAX_NAMED], *more])
    message = f"task `{task_id}` requires at least one MCP server, and no server is left"
    hint = "run `toolgate explain` for the reasons; change the servers, or `mcp.require_servers` of the task"
    return Refusal(code="mcp_policy_denied", message=message + (f": {named}" if named else ""), hint=hint)


def _explain_absence(resolved: ResolvedRequest, server_id: str) -> str | None:
    """Why a requested server is not in the scope; None if the key hides it. If the key hides every name of a
    server, the text is the same as for an unregistered server."""
    ids = [rule.ids for rule in resolved.rules.servers if rule.layer == "key" and rule.ids is not None]
    lists = [rule for rule in resolved.rules.tools if rule.layer == "key"]
    if not all(server_id in one for one in ids) or not all(_may_name(rule, server_id) for rule in lists):
        return None
    platform = resolved.inputs.platform
    offer = platform.servers.get(server_id)
    if offer is None or not _reaches_some(platform, offer, lists):
        return str(decide_unknown_server(server_id, "", resolved.rules).reason)
    exclusion = _exclude_server(offer, resolved)
    return "no tool is allowed" if exclusion is None else str(exclusion.reason)


def _may_name(rule: ToolRule, server_id: str) -> bool:
    """Whether a list of names could allow something of a server, registered or not."""
    if rule.is_deny:
        return not rule.patterns.matches_any(server_id, ("*",))
    return rule.patterns.has_bare or rule.patterns.names_server(server_id)


def _reaches_some(platform: Snapshot, offer: ServerTools, lists: Sequence[ToolRule]) -> bool:
    """Whether `lists` allow something that the server has, or could have while it is not listed."""
    if not lists or is_unlisted(offer):
        return True
    refs = (ToolRef(offer.record.server_id, name) for name in list_names(offer))
    approved = ((ref, *read_approved(platform, ref)) for ref in refs)
    return any(all((rule.find_match(*one) is None) is rule.is_deny for rule in lists) for one in approved)


def _decide_names(offer: ServerTools, resolved: ResolvedRequest, names: Sequence[str]) -> Sequence[Decision]:
    """The decisions on `names` of a server that no layer excluded as a whole. If the task's policy is not
    enforced, each allowed name carries the denial that enforcement would give it."""
    judge = _Judge(offer, resolved)
    decisions = [judge.decide(name) for name in names]
    if resolved.strict is None:
        return decisions
    exclusion = _exclude_server(offer, resolved.strict)
    strict = _Judge(offer, resolved.strict)
    would_be = [strict.decide(name) if exclusion is None else replace(exclusion, tool=name) for name in names]
    return [
        replace(one, shadow=shadow) if one.allowed and not shadow.allowed else one
        for one, shadow in zip(decisions, would_be, strict=True)
    ]


class _Judge:
    def __init__(self, offer: ServerTools, resolved: ResolvedRequest) -> None:
        rules, inputs, server_id = resolved.rules.tools, resolved.inputs, offer.record.server_id
        self._read_only_rule = inputs.integrations.read_only_rule(server_id)
        self._offer = offer
        self._pin = inputs.platform.pins.get(server_id)
        reason, patterns = Reason.NOT_IN_SERVER_ALLOWLIST, compile_stored(offer.record.allowed_tools)
        self._own = ToolRule(layer="platform", reason=reason, name="allowed_tools", patterns=patterns)
        self._rules = {True: rules, False: tuple(rule for rule in rules if not rule.is_about_tools)}

    def decide(self, name: str) -> Decision:
        ref = ToolRef(self._offer.record.server_id, name)
        is_tool = not kind_of(name)
        if name in self._offer.quarantined:
            what = "tool definition" if is_tool else "definition"
            reason = f"{what}: {self._offer.quarantined[name]}"
            return deny(*ref, "platform", Reason.INVALID_DEFINITION, reason)
        listed = self._offer.tools.get(name)
        if self._pin is not None and is_tool:
            violation = find_pin_violation(self._pin, name, listed)
            if violation:
                return deny(*ref, "platform", Reason.QUARANTINED, violation)
        decision = self._decide(ref, listed, self._rules[is_tool])
        if not (self._read_only_rule and is_tool) or (listed is not None and listed.is_read_only):
            return decision
        # The caller's layer follows platform and key, and precedes the others.
        if not decision.allowed and decision.layer in {"platform", "key"}:
            return decision
        return deny(*ref, "caller", Reason.INTEGRATION_READ_ONLY, self._read_only_rule)

    def _decide(self, ref: ToolRef, tool: ToolDefinition | None, rules: Sequence[ToolRule]) -> Decision:
        """The first rule that denies decides, else the last allowlist that matched. `tool` is the approved
        definition: a definition that differs from its pin was denied before."""
        native, effects = ("", UNSTATED) if tool is None else (tool.native_name, tool.effects)
        admitting, pattern = self._own, self._own.find_match(ref, native, effects)
        if pattern is None:
            return self._own.decide(ref, None, effects, allowed=False)
        for rule in rules:
            match = rule.find_match(ref, native, effects)
            if rule.is_deny is (match is not None):
                return rule.decide(ref, match, effects, allowed=False)
            if match is not None:
                admitting, pattern = rule, match
        return admitting.decide(ref, pattern, effects, allowed=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    scope: Scope
    tools: tuple[Decision, ...]
    """One decision for each registered tool, prompt and resource, sorted by server and name."""
    servers: tuple[Decision, ...]
    """Servers excluded as a whole, and requested servers that do not exist."""
    pending: tuple[str, ...]
    """Servers in the scope that have not listed their tools."""


def explain(inputs: ScopeInputs, *, limits: ScopeLimits = DEFAULT_LIMITS) -> Explanation:
    """The scope that `compose` returns for these arguments, with a decision for every registered tool."""
    platform, resolved = inputs.platform, resolve(inputs)
    scope = compose(inputs, limits=limits)
    out_of_question = platform.servers.keys() - _find_candidate_servers(resolved)
    excluded = (_exclude_server(platform.servers[server_id], resolved) for server_id in out_of_question)
    found = (*scope.decisions, *(one for one in excluded if one is not None))
    decisions = sorted(found, key=lambda one: (one.server_id, one.tool or ""))
    return Explanation(
        scope=scope,
        tools=tuple(tool for one in decisions for tool in _expand_decision(one, platform)),
        servers=tuple(one for one in decisions if one.tool is None),
        pending=tuple(one for one in scope.servers if is_unlisted(platform.servers[one])),
    )


def _expand_decision(decision: Decision, platform: Snapshot) -> Iterator[Decision]:
    """`decision` for each name that it covers: itself, or one for each name of its server."""
    if decision.tool is not None:
        yield decision
    elif decision.server_id in platform.servers:
        for name in sorted(list_names(platform.servers[decision.server_id])):
            yield replace(decision, tool=name)


MAX_EXCLUSIONS: Final = 64  # named exclusions. The others are counted


@dataclass(frozen=True, slots=True)
class Exclusions:
    reasons: Mapping[Reason, int]
    named: tuple[Decision, ...]
    """The first exclusions: whole servers before single names."""
    fingerprint: int
    """Differs if an exclusion or its reason differs. Comparable within one process only."""

    @property
    def count(self) -> int:
        return sum(self.reasons.values())


def summarize_exclusions(decisions: Iterable[Decision]) -> Exclusions:
    """The exclusions in `decisions`. Rules are not in the fingerprint: they may quote errors that differ each
    time."""
    against = [one for one in decisions if one.reason is not None]
    named = [one for one in against if one.tool is None][:MAX_EXCLUSIONS]
    if len(named) < MAX_EXCLUSIONS:
        named += [one for one in against if one.tool is not None][: MAX_EXCLUSIONS - len(named)]
    return Exclusions(
        reasons=Counter(one.reason for one in against if one.reason is not None),
        named=tuple(named),
        fingerprint=hash(tuple((one.server_id, one.tool, one.reason) for one in against)),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class OfferCount:
    """How many of a server's tools callers get who have no task and no limits."""

    offered: int
    listed: int
    reason: Reason | None
    """Why most of the others are not offered, or why the server offers nothing. None: nothing is left out."""


def count_offer(platform: Snapshot, offer: ServerTools) -> OfferCount:
    """The counts of one server. Only its own lists, its record and its pin decide them."""
    alone = replace(platform, servers=MappingProxyType({offer.record.server_id: offer}))
    decisions = compose(ScopeInputs(alone), limits=NO_LIMITS).decisions
    found = [one.reason for one in decisions if one.tool is None or not kind_of(one.tool)]
    reasons = Counter(reason for reason in found if reason is not None)
    return OfferCount(
        offered=found.count(None),
        listed=len(list_tool_names(offer)),
        reason=max(reasons, key=reasons.__getitem__, default=None),
    )


# The reach of a task or a key: everything that any request could get, regardless of limits


def compute_task_reach(
    platform: Snapshot, task: TaskPolicy, *, ceiling: Ceiling = NO_CEILING
) -> frozenset[ToolRef]:
    """What callers of the task get, or could get by naming servers, with either version during a rollout."""
    scopes = (one for side in list_sides(platform, task) for one in _compose_task_scopes(side, task, ceiling))
    return frozenset().union(*(scope.admitted for scope in scopes))


def compute_key_reach(platform: Snapshot, ceiling: Ceiling) -> frozenset[ToolRef]:
    """The most a key can reach: under the tasks it is bound to, or without a task."""
    if ceiling.tasks is None:
        return compose(ScopeInputs(platform, ceiling), limits=NO_LIMITS).admitted
    tasks = _parse_readable(platform, ceiling.tasks)
    return frozenset().union(*(compute_task_reach(platform, task, ceiling=ceiling) for task in tasks))


def compose_caller_scopes(platform: Snapshot, principal: Principal) -> list[Scope]:
    """The scopes that together are the most a caller can reach. They use the caller's versions of profiles,
    so that it learns nothing about others."""
    ceiling = principal.ceiling
    if ceiling.tasks is None:
        return [compose(ScopeInputs(platform, ceiling), limits=NO_LIMITS)]
    return [
        scope
        for task in _parse_readable(platform, ceiling.tasks)
        for drawn in [draw_versions(platform, principal.id, task=task, request=NO_REQUEST)]
        for scope in _compose_task_scopes(drawn, task, ceiling)
    ]


def _compose_task_scopes(platform: Snapshot, task: TaskPolicy, ceiling: Ceiling) -> list[Scope]:
    return [
        compose(ScopeInputs(restrict_to_task(platform, task), ceiling, task, request), limits=NO_LIMITS)
        for request in (NO_REQUEST, SessionRequest(servers=tuple(bind_task(platform, task).allowed)))
    ]


def _parse_readable(platform: Snapshot, task_ids: tuple[str, ...]) -> Iterator[TaskPolicy]:
    """Yield the readable tasks. Missing or invalid tasks admit nothing."""
    for task_id in task_ids:
        if task_id in platform.tasks:
            try:
                yield parse_task_policy(platform.tasks[task_id])
            except InvalidRecord:
                continue
