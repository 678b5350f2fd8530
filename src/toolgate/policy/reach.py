"""The reach of a task or a key: all that any request could get, limits aside."""

from collections.abc import Iterator
from dataclasses import replace
from types import MappingProxyType

from toolgate.errors import InvalidRecord
from toolgate.model.names import ToolRef
from toolgate.model.principals import Ceiling, Principal
from toolgate.model.tools import Effects, Snapshot
from toolgate.policy.compose import compose
from toolgate.policy.layers import SessionRequest, TaskPolicy, parse_task_policy
from toolgate.policy.resolve import NO_CEILING, NO_REQUEST, ScopeInputs, bind_task
from toolgate.policy.rollouts import draw_versions, list_sides
from toolgate.policy.rules import compile_stored
from toolgate.policy.scope import NO_LIMITS, Scope


def restrict_to_task(platform: Snapshot, task: TaskPolicy) -> Snapshot:
    """`platform` with only the servers that the task could have, so that the cost follows the task."""
    bound = bind_task(platform, task)
    ids = sorted((bound.default | bound.allowed) & platform.servers.keys())
    return replace(platform, servers=MappingProxyType({one: platform.servers[one] for one in ids}))


def compute_task_reach(
    platform: Snapshot, task: TaskPolicy, *, ceiling: Ceiling = NO_CEILING
) -> frozenset[ToolRef]:
    """What callers of the task get, or could by naming servers, by either version during a rollout."""
    scopes = (
        scope for side in list_sides(platform, task) for scope in _compose_task_scopes(side, task, ceiling)
    )
    return frozenset().union(*(scope.admitted for scope in scopes))


def compute_key_reach(platform: Snapshot, ceiling: Ceiling) -> frozenset[ToolRef]:
    """The most a key gets: under the tasks it is bound to, or without any."""
    if ceiling.tasks is None:
        return compose(ScopeInputs(platform, ceiling), limits=NO_LIMITS).admitted
    reached = (
        compute_task_reach(platform, task, ceiling=ceiling)
        for task in _parse_readable(platform, ceiling.tasks)
    )
    return frozenset().union(*reached)


def compose_caller_scopes(platform: Snapshot, principal: Principal) -> list[Scope]:
    """The scopes that together are the most a caller gets. They use the caller's versions of profiles, so
    that it learns nothing of others."""
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


def is_in_ceiling(
    ceiling: Ceiling, ref: ToolRef, *, task_id: str | None, effects: Effects, native_name: str = ""
) -> bool:
    """Whether the ceiling of a key admits `ref` under this task.

    `effects`: of its approved definition, or UNSTATED. `native_name`: the server's name of a tool that has an
    alias; patterns match either.
    """
    if ceiling.tasks is not None and task_id not in ceiling.tasks:
        return False
    if ceiling.servers is not None and ref.server_id not in ceiling.servers:
        return False
    lists = ((ceiling.allow, False), (ceiling.deny, True))
    return all(
        texts is None
        or (compile_stored(texts).first_match(ref, native_name, effects=effects, is_deny=is_deny) is None)
        is is_deny
        for texts, is_deny in lists
    )


def _parse_readable(platform: Snapshot, task_ids: tuple[str, ...]) -> Iterator[TaskPolicy]:
    """Tasks that are missing or invalid admit nothing."""
    for task_id in task_ids:
        if task_id in platform.tasks:
            try:
                yield parse_task_policy(platform.tasks[task_id])
            except InvalidRecord:
                continue
