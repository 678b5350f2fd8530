"""What a change takes away of what stands in front of calls: people who must agree, and budgets over time.

No list of tools shows that, and who reads a plan by its tools alone would not see it.
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Final

from toolgate.errors import InvalidRecord
from toolgate.model.names import ToolRef
from toolgate.model.servers import Approval
from toolgate.model.snapshot import Snapshot
from toolgate.model.tasks import Task
from toolgate.model.tools import ServerTools
from toolgate.policy.admission import needed_approvals
from toolgate.policy.allowances import is_narrower
from toolgate.policy.layers import TaskPolicy, parse_task_policy
from toolgate.policy.scope import Demand

_NAMED: Final = 3
_STRICTNESS: Final[tuple[Approval, ...]] = ("never", "policy", "always")


def lifted_guards(before: Snapshot, after: Snapshot) -> Iterator[str]:
    """One sentence for each guard of a record on both sides that is weaker afterwards."""
    for task_id in sorted(before.tasks.keys() & after.tasks.keys()):
        old, new = before.tasks[task_id], after.tasks[task_id]
        if old != new:
            yield from (f"task `{task_id}`, {what}" for what in _lifted_of_task(old, new))
    for server_id in sorted(before.servers.keys() & after.servers.keys()):
        offer, record = before.servers[server_id], after.servers[server_id].record
        if offer.record.approval_policy != record.approval_policy:
            lifted = _lifted_of_server(offer, replace(offer, record=record))
            yield from (f"server `{server_id}`, `approval_policy`: {what}" for what in lifted)


def _lifted_of_task(before: Task, after: Task) -> Iterator[str]:
    try:
        old, new = parse_task_policy(before), parse_task_policy(after)
    except InvalidRecord:
        return
    if old.budgets is not None and not is_narrower(new.budgets, old.budgets):
        yield "`mcp.budgets`: more can be used over time than before"
    if _STRICTNESS.index(new.approval) < _STRICTNESS.index(old.approval):
        change = f"`{new.approval}` in place of `{old.approval}`"
        yield f"`mcp.approval_policy`: {change}: fewer calls wait for a person"
    elif _is_opened_in_place(old, new):
        yield "`mcp.approval_in_place`: whoever calls may be the one who agrees"


def _is_opened_in_place(old: TaskPolicy, new: TaskPolicy) -> bool:
    return new.approval != "never" and new.approval_in_place and not old.approval_in_place


def _lifted_of_server(before: ServerTools, after: ServerTools) -> Iterator[str]:
    """Of the tools that it has now: who starts it otherwise does not know of others yet."""
    needed, still = _demands(before), _demands(after)
    free = [ref.name for ref in needed if ref not in still]
    if free:
        named = ", ".join(f"`{name}`" for name in free[:_NAMED])
        more = f" and {len(free) - _NAMED} more" if len(free) > _NAMED else ""
        yield f"calls of {named}{more} no longer wait for a person"
    if any(still[ref].in_place and not needed[ref].in_place for ref in needed if ref in still):
        yield "whoever calls may be the one who agrees"


def _demands(offer: ServerTools) -> Mapping[ToolRef, Demand]:
    server_id = offer.record.server_id
    refs = [ToolRef(server_id, name) for name in sorted(offer.tools)]
    return needed_approvals(Snapshot(servers={server_id: offer}), refs)
