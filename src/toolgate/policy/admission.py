"""Admission before a call: quotas and approvals.

Quotas, without a clock or a counter: which apply, when their windows begin, and the size of a lease. Nodes
use leases, so that not every call sends a request to the control plane. A lease is a small part of the rest:
the limit holds across all nodes, and a node that crashes loses little of it.

Approvals: a server's record sets `never`, `always` or `policy` for its tools. `policy` applies to every tool
that is not read-only. A task may require more, never less. Either may exclude the user of the calling client
as an approver. If a definition does not state an effect that a pattern names, both readings are tried, and
the stricter result applies.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import groupby
from typing import Final, NamedTuple

from toolgate.errors import InvalidRecord
from toolgate.model.names import ToolRef
from toolgate.model.principals import (
    HolderQuotas,
    LeaseGrant,
    LeaseRequest,
    Principal,
    QuotaCount,
    QuotaHolder,
    QuotaName,
    Quotas,
)
from toolgate.model.servers import Approval, ApprovalPolicy
from toolgate.model.tasks import Task
from toolgate.model.tools import ServerTools, Snapshot, ToolDefinition
from toolgate.policy.layers import TaskPolicy, parse_task_policy
from toolgate.policy.patterns import effect_of, has_wildcard
from toolgate.policy.rules import compile_stored
from toolgate.policy.scope import ApprovalRequirement, Layer

WINDOW_MS: Final[Mapping[QuotaName, int]] = {
    "calls_per_minute": 60_000,
    "calls_per_day": 86_400_000,
    "tokens_per_day": 86_400_000,
}
"""Windows are the minutes and days of UTC: they follow one another without gaps from the start of Unix
time."""
MAX_GRANT: Final = 50
"""The calls in one lease. A request every 50 calls is cheap, and a node that crashes loses at most these."""
_STRICTEST_FIRST: Final[tuple[Approval, ...]] = ("always", "policy", "never")
_MAX_NAMED: Final = 3  # tools that a warning names: it is one sentence


class QuotaWindow(NamedTuple):
    begins_ms: int
    ends_ms: int


def collect_quotas(principal: Principal, task: TaskPolicy | None) -> tuple[HolderQuotas, ...]:
    found = []
    if principal.budgets is not None:
        found.append(HolderQuotas(QuotaHolder("key", principal.id.removeprefix("key:")), principal.budgets))
    if task is not None and task.budgets is not None:
        found.append(HolderQuotas(QuotaHolder("task", task.task_id), task.budgets))
    return tuple(found)


def list_limits(quotas: Quotas) -> Mapping[QuotaName, int]:
    return {name: limit for name in WINDOW_MS if (limit := getattr(quotas, name)) is not None}


def is_narrower(quotas: Quotas | None, bounds: Quotas) -> bool:
    """Whether `quotas` sets each quota of `bounds`, and none is larger."""
    limits = {} if quotas is None else list_limits(quotas)
    return all(limits.get(name, bound + 1) <= bound for name, bound in list_limits(bounds).items())


def window_at(quota: QuotaName, now_ms: int) -> QuotaWindow:
    length_ms = WINDOW_MS[quota]
    begins_ms = now_ms - now_ms % length_ms
    return QuotaWindow(begins_ms, begins_ms + length_ms)


def grant_lease(count: QuotaCount, request: LeaseRequest, now_ms: int) -> tuple[QuotaCount, LeaseGrant]:
    """The count after `request`, and the granted lease."""
    begins_ms, ends_ms = window_at(request.budget, now_ms)
    if count.window_ms == ends_ms:  # a clock set back over the start of a window opens no other window
        begins_ms, ends_ms = window_at(request.budget, ends_ms)
    used = count.used if count.window_ms == begins_ms else 0
    if request.budget == "tokens_per_day":
        used += request.spent
        amount = request.limit - used
    elif request.returned:
        used -= min(request.returned, used) if request.window_ms == begins_ms else 0
        amount = 0
    else:
        amount = size_lease(request.limit, used)
        used += amount
    return QuotaCount(begins_ms, used), LeaseGrant(amount, begins_ms, ends_ms - now_ms)


def size_lease(limit: int, used: int) -> int:
    """The calls of one lease: a tenth of the rest, so the last calls are leased one by one."""
    left = max(limit - used, 0)
    return min(max(left // 10, 1), MAX_GRANT, left)


def find_requirements(
    platform: Snapshot, tools: Sequence[ToolRef], task: TaskPolicy | None = None
) -> Mapping[ToolRef, ApprovalRequirement]:
    """The approvals that `tools`, sorted by server, need."""
    by_task: Approval = "never" if task is None else task.approval
    needed: dict[ToolRef, ApprovalRequirement] = {}
    for server_id, refs in groupby(tools, key=lambda ref: ref.server_id):
        offer = platform.servers[server_id]
        policy = offer.record.approval_policy
        if by_task == "never" and policy.default == "never" and not policy.per_tool:
            continue
        in_place = policy.in_place and (task is None or task.approval_in_place)
        rules = _ApprovalRules(policy, by_task, in_place=in_place)
        for ref in refs:
            if (requirement := rules.find_requirement(offer.tools[ref.name])) is not None:
                needed[ref] = requirement
    return needed


class _ApprovalRules:
    def __init__(self, policy: ApprovalPolicy, by_task: Approval, *, in_place: bool) -> None:
        self._policy = policy
        self._in_place = in_place
        self._by_task: Approval = by_task
        per_tool = policy.per_tool.items()
        wild = [(name, approval) for name, approval in per_tool if has_wildcard(name) or effect_of(name)]
        self._patterns = [
            (strict, compile_stored(names))
            for strict in _STRICTEST_FIRST
            if (names := tuple(name for name, approval in wild if approval == strict))
        ]

    def find_requirement(self, tool: ToolDefinition) -> ApprovalRequirement | None:
        approval, name = self._server_approval(tool)
        found: tuple[tuple[Approval, Layer, str], ...] = (
            (approval, "platform", f"approval_policy {name}"),
            (self._by_task, "task", "mcp.approval_policy"),
        )
        for approval, layer, rule in found:
            if approval == "always":
                return ApprovalRequirement(layer, f"{rule}: always", self._in_place)
        for approval, layer, rule in found:
            if approval == "policy" and not tool.is_read_only:
                why = f"{rule}: policy, and the tool is not marked as read-only"
                return ApprovalRequirement(layer, why, self._in_place)
        return None

    def _server_approval(self, tool: ToolDefinition) -> tuple[Approval, str]:
        """The approval by a tool's own name, else by the strictest matching pattern."""
        policy, name = self._policy, tool.ref.name
        if name in policy.per_tool:
            return policy.per_tool[name], f"per_tool `{name}`"
        if not any(patterns.has_effects for _, patterns in self._patterns):
            return self._strictest(tool, is_deny=False)
        readings = [self._strictest(tool, is_deny=is_deny) for is_deny in (True, False)]
        return min(readings, key=lambda found: _STRICTEST_FIRST.index(found[0]))

    def _strictest(self, tool: ToolDefinition, *, is_deny: bool) -> tuple[Approval, str]:
        for approval, patterns in self._patterns:
            match = patterns.first_match(tool.ref, tool.native_name, effects=tool.effects, is_deny=is_deny)
            if match is not None:
                why = patterns.explain_effects(tool.ref, match, tool.effects)
                return approval, f"per_tool `{match}`{why}"
        return self._policy.default, "default"


def find_weakened_guards(before: Snapshot, after: Snapshot) -> Iterator[str]:
    """One sentence for each quota or approval that the change weakens, in records that exist on both sides.
    The tool lists do not show it, so a plan warns of it."""
    for task_id in sorted(before.tasks.keys() & after.tasks.keys()):
        old, new = before.tasks[task_id], after.tasks[task_id]
        if old != new:
            yield from (f"task `{task_id}`, {what}" for what in _weakened_in_task(old, new))
    for server_id in sorted(before.servers.keys() & after.servers.keys()):
        offer, record = before.servers[server_id], after.servers[server_id].record
        if offer.record.approval_policy != record.approval_policy:
            weakened = _weakened_in_server(offer, replace(offer, record=record))
            yield from (f"server `{server_id}`, `approval_policy`: {what}" for what in weakened)


def _weakened_in_task(before: Task, after: Task) -> Iterator[str]:
    try:
        old, new = parse_task_policy(before), parse_task_policy(after)
    except InvalidRecord:
        return
    if old.budgets is not None and not is_narrower(new.budgets, old.budgets):
        yield "`mcp.budgets`: the quotas are larger than before"
    if _STRICTEST_FIRST.index(new.approval) > _STRICTEST_FIRST.index(old.approval):
        change = f"`{new.approval}` instead of `{old.approval}`"
        yield f"`mcp.approval_policy`: {change}: fewer calls need an approval"
    elif new.approval != "never" and new.approval_in_place and not old.approval_in_place:
        yield "`mcp.approval_in_place`: the user of the calling client may approve"


def _weakened_in_server(before: ServerTools, after: ServerTools) -> Iterator[str]:
    """The weakened approvals of the currently known tools: a new launch may list others."""
    needed, still = _list_requirements(before), _list_requirements(after)
    free = [ref.name for ref in needed if ref not in still]
    if free:
        named = ", ".join(f"`{name}`" for name in free[:_MAX_NAMED])
        more = f" and {len(free) - _MAX_NAMED} more" if len(free) > _MAX_NAMED else ""
        yield f"calls of {named}{more} no longer need an approval"
    if any(still[ref].in_place and not needed[ref].in_place for ref in needed if ref in still):
        yield "the user of the calling client may approve"


def _list_requirements(offer: ServerTools) -> Mapping[ToolRef, ApprovalRequirement]:
    server_id = offer.record.server_id
    refs = [ToolRef(server_id, name) for name in sorted(offer.tools)]
    return find_requirements(Snapshot(servers={server_id: offer}), refs)
