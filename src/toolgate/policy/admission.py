"""Budgets over time, decided without a clock or a count: which apply, when they open, how much is handed out.

Nodes spend what they were granted before, so that not every call asks. A grant is a small part of what is
left: the limit holds for all nodes together, and one that dies takes little with it.

Which tools of a scope are called only after a person has agreed, and by which rule.

A server's record says it for its tools: `never`, `always`, or `policy`, which asks for every tool that is not
marked as one that only reads. A task may ask for more, and for no less. Each of them may say that whoever
calls is not the one who is asked.

A pattern for an effect can make a rule stricter or more lenient than the default. Where a definition does not
state the effect, both readings are tried, and the stricter result counts.

What a change takes away of what stands in front of calls: people who must agree, and budgets over time.

No list of tools shows that, and who reads a plan by its tools alone would not see it.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import groupby
from types import MappingProxyType
from typing import Final, NamedTuple

from toolgate.errors import InvalidRecord
from toolgate.model.names import ToolRef
from toolgate.model.principals import Principal
from toolgate.model.quotas import (
    HolderQuotas,
    LeaseGrant,
    LeaseRequest,
    QuotaCount,
    QuotaHolder,
    QuotaName,
    Quotas,
)
from toolgate.model.servers import Approval, ApprovalPolicy
from toolgate.model.snapshot import Snapshot
from toolgate.model.tasks import Task
from toolgate.model.tools import ServerTools, ToolDefinition
from toolgate.policy.layers import TaskPolicy, parse_task_policy
from toolgate.policy.patterns import effect_of, has_wildcard
from toolgate.policy.rules import compile_stored
from toolgate.policy.scope import ApprovalRequirement, Layer

WINDOW_MS: Final[Mapping[QuotaName, int]] = {
    "calls_per_minute": 60_000,
    "calls_per_day": 86_400_000,
    "tokens_per_day": 86_400_000,
}
"""Windows follow one another without gaps from the beginning of Unix time on: UTC's minutes and days."""
MAX_GRANT: Final = 50
_LEASE_FRACTION: Final = 10
_KEY_PREFIX: Final = "key:"


class QuotaWindow(NamedTuple):
    """One minute or day."""

    begins_ms: int
    ends_ms: int


def collect_quotas(principal: Principal, task: TaskPolicy | None) -> tuple[HolderQuotas, ...]:
    """All that a call has to have room in: the key's own, and the task's."""
    found = []
    if principal.budgets is not None:
        found.append(
            HolderQuotas(QuotaHolder("key", principal.id.removeprefix(_KEY_PREFIX)), principal.budgets)
        )
    if task is not None and task.budgets is not None:
        found.append(HolderQuotas(QuotaHolder("task", task.task_id), task.budgets))
    return tuple(found)


def list_limits(budgets: Quotas) -> Mapping[QuotaName, int]:
    """Those that are set."""
    limits: dict[QuotaName, int | None] = {
        "calls_per_minute": budgets.calls_per_minute,
        "calls_per_day": budgets.calls_per_day,
        "tokens_per_day": budgets.tokens_per_day,
    }
    return {name: limit for name, limit in limits.items() if limit is not None}


def is_narrower(budgets: Quotas | None, bounds: Quotas) -> bool:
    """Whether each budget that `bounds` sets is set in `budgets`, and not larger."""
    limits = {} if budgets is None else list_limits(budgets)
    return all(limits.get(name, bound + 1) <= bound for name, bound in list_limits(bounds).items())


def window_at(budget: QuotaName, now_ms: int) -> QuotaWindow:
    """The window of `budget` that `now_ms` lies in."""
    length_ms = WINDOW_MS[budget]
    begins_ms = now_ms - now_ms % length_ms
    return QuotaWindow(begins_ms, begins_ms + length_ms)


def current_window(count: QuotaCount, budget: QuotaName, now_ms: int) -> QuotaWindow:
    """The window that is counted in now: a clock that is put back over its beginning opens no other."""
    window = window_at(budget, now_ms)
    return window_at(budget, window.ends_ms) if count.window_ms == window.ends_ms else window


def current_count(count: QuotaCount, budget: QuotaName, now_ms: int) -> QuotaCount:
    """`count` as it stands now: nothing is used of a window that has just begun."""
    begins_ms = current_window(count, budget, now_ms).begins_ms
    return count if count.window_ms == begins_ms else QuotaCount(begins_ms)


def grant_lease(count: QuotaCount, wanted: LeaseRequest, now_ms: int) -> tuple[QuotaCount, LeaseGrant]:
    """What is used after `wanted` was given, and what was given."""
    begins_ms, ends_ms = current_window(count, wanted.budget, now_ms)
    used = current_count(count, wanted.budget, now_ms).used
    if wanted.budget == "tokens_per_day":
        used += wanted.spent
        amount = wanted.limit - used
    elif wanted.returned:
        used -= min(wanted.returned, used) if wanted.window_ms == begins_ms else 0
        amount = 0
    else:
        amount = size_lease(wanted.limit, used)
        used += amount
    return QuotaCount(begins_ms, used), LeaseGrant(amount, begins_ms, ends_ms - now_ms)


def size_lease(limit: int, used: int) -> int:
    """How many calls are handed out at once: a tenth of what is left, so that the last go one by one."""
    left = max(limit - used, 0)
    return min(max(left // _LEASE_FRACTION, 1), MAX_GRANT, left)


_NO_REQUIREMENTS: Final[Mapping[ToolRef, ApprovalRequirement]] = MappingProxyType({})
_STRICTEST_FIRST: Final[tuple[Approval, ...]] = ("always", "policy", "never")


def find_requirements(
    platform: Snapshot, tools: Sequence[ToolRef], *, by_task: Approval = "never", in_place: bool = True
) -> Mapping[ToolRef, ApprovalRequirement]:
    """Of `tools`, sorted by server: those that need an approval. `in_place`: what the task says of that."""
    needed: dict[ToolRef, ApprovalRequirement] = {}
    for server_id, refs in groupby(tools, key=lambda ref: ref.server_id):
        offer = platform.servers[server_id]
        policy = offer.record.approval_policy
        if by_task == "never" and policy.default == "never" and not policy.per_tool:
            continue
        rules = _ApprovalRules(policy, by_task, in_place=in_place and policy.in_place)
        for ref in refs:
            if (demand := rules.find_requirement(offer.tools[ref.name])) is not None:
                needed[ref] = demand
    return needed or _NO_REQUIREMENTS


class _ApprovalRules:
    """What a server and a task ask for together."""

    def __init__(self, policy: ApprovalPolicy, by_task: Approval, *, in_place: bool) -> None:
        self._policy = policy
        self._in_place = in_place
        self._by_task: Approval = by_task
        wild = {
            name: asked for name, asked in policy.per_tool.items() if has_wildcard(name) or effect_of(name)
        }
        self._patterns = [
            (asked, compile_stored(tuple(name for name, said in wild.items() if said == asked)))
            for asked in _STRICTEST_FIRST
            if asked in wild.values()
        ]

    def find_requirement(self, tool: ToolDefinition) -> ApprovalRequirement | None:
        """What is asked for before a call of `tool`. None: nothing is."""
        asked, name = self._server_approval(tool)
        found: tuple[tuple[Approval, Layer, str], ...] = (
            (asked, "platform", f"approval_policy {name}"),
            (self._by_task, "task", "mcp.approval_policy"),
        )
        for said, layer, rule in found:
            if said == "always":
                return ApprovalRequirement(layer, f"{rule}: always", self._in_place)
        for said, layer, rule in found:
            if said == "policy" and not tool.is_read_only:
                why = f"{rule}: policy, and the tool is not marked as read-only"
                return ApprovalRequirement(layer, why, self._in_place)
        return None

    def _server_approval(self, tool: ToolDefinition) -> tuple[Approval, str]:
        """A tool's own name wins; of patterns, the strictest that matches."""
        policy, name = self._policy, tool.ref.name
        if name in policy.per_tool:
            return policy.per_tool[name], f"per_tool `{name}`"
        if not any(patterns.has_effects for _, patterns in self._patterns):
            return self._strictest(tool, is_deny=False)
        readings = [self._strictest(tool, is_deny=is_deny) for is_deny in (True, False)]
        return min(readings, key=lambda found: _STRICTEST_FIRST.index(found[0]))

    def _strictest(self, tool: ToolDefinition, *, is_deny: bool) -> tuple[Approval, str]:
        for asked, patterns in self._patterns:
            match = patterns.first_match(tool.ref, tool.native_name, effects=tool.effects, is_deny=is_deny)
            if match is not None:
                why = patterns.explain_effects(tool.ref, match, tool.effects)
                return asked, f"per_tool `{match}`{why}"
        return self._policy.default, "default"


_MAX_NAMED: Final = 3
_STRICTNESS: Final[tuple[Approval, ...]] = ("never", "policy", "always")


def find_weakened_guards(before: Snapshot, after: Snapshot) -> Iterator[str]:
    """One sentence for each guard of a record on both sides that is weaker afterwards."""
    for task_id in sorted(before.tasks.keys() & after.tasks.keys()):
        old, new = before.tasks[task_id], after.tasks[task_id]
        if old != new:
            yield from (f"task `{task_id}`, {what}" for what in _weakened_in_task(old, new))
    for server_id in sorted(before.servers.keys() & after.servers.keys()):
        offer, record = before.servers[server_id], after.servers[server_id].record
        if offer.record.approval_policy != record.approval_policy:
            lifted = _weakened_in_server(offer, replace(offer, record=record))
            yield from (f"server `{server_id}`, `approval_policy`: {what}" for what in lifted)


def _weakened_in_task(before: Task, after: Task) -> Iterator[str]:
    try:
        old, new = parse_task_policy(before), parse_task_policy(after)
    except InvalidRecord:
        return
    if old.budgets is not None and not is_narrower(new.budgets, old.budgets):
        yield "`mcp.budgets`: more can be used over time than before"
    if _STRICTNESS.index(new.approval) < _STRICTNESS.index(old.approval):
        change = f"`{new.approval}` in place of `{old.approval}`"
        yield f"`mcp.approval_policy`: {change}: fewer calls wait for a person"
    elif _allows_elicited_approval(old, new):
        yield "`mcp.approval_in_place`: whoever calls may be the one who agrees"


def _allows_elicited_approval(old: TaskPolicy, new: TaskPolicy) -> bool:
    return new.approval != "never" and new.approval_in_place and not old.approval_in_place


def _weakened_in_server(before: ServerTools, after: ServerTools) -> Iterator[str]:
    """Of the tools that it has now: who starts it otherwise does not know of others yet."""
    needed, still = _list_requirements(before), _list_requirements(after)
    free = [ref.name for ref in needed if ref not in still]
    if free:
        named = ", ".join(f"`{name}`" for name in free[:_MAX_NAMED])
        more = f" and {len(free) - _MAX_NAMED} more" if len(free) > _MAX_NAMED else ""
        yield f"calls of {named}{more} no longer wait for a person"
    if any(still[ref].in_place and not needed[ref].in_place for ref in needed if ref in still):
        yield "whoever calls may be the one who agrees"


def _list_requirements(offer: ServerTools) -> Mapping[ToolRef, ApprovalRequirement]:
    server_id = offer.record.server_id
    refs = [ToolRef(server_id, name) for name in sorted(offer.tools)]
    return find_requirements(Snapshot(servers={server_id: offer}), refs)
