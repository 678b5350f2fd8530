"""What a change to the registry would do to every task, before it is applied.

Both sides are composed as a caller of the task would have them; nothing is predicted by other means.
"""

from dataclasses import dataclass

from toolgate.errors import InvalidRecord
from toolgate.model.names import ToolRef
from toolgate.model.principals import Ceiling
from toolgate.model.snapshot import Snapshot
from toolgate.policy.compose import compose
from toolgate.policy.layers import SessionRequest, TaskPolicy, parse_task_policy
from toolgate.policy.limits import DEFAULT_LIMITS, Limits
from toolgate.policy.reach import within_reach
from toolgate.policy.scope import Refusal, Scope


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskChange:
    """What changes for callers of one task who ask for nothing in particular, and for those who do."""

    task_id: str | None
    """None: callers of the plain URL, without a task."""
    added: tuple[ToolRef, ...] = ()
    """Tools, prompts and resources alike."""
    removed: tuple[ToolRef, ...] = ()
    reach_added: tuple[ToolRef, ...] = ()
    """What a request could newly get by naming servers, limits aside. It takes in what is `added`."""
    reach_removed: tuple[ToolRef, ...] = ()
    refusal_before: Refusal | None = None
    refusal_after: Refusal | None = None
    problem_before: str | None = None
    """Why the task's config cannot be read; it then has no tools."""
    problem_after: str | None = None

    @property
    def has_effect(self) -> bool:
        """Whether any caller would notice."""
        return self != TaskChange(
            task_id=self.task_id,
            refusal_before=self.refusal_before,
            refusal_after=self.refusal_before,
            problem_before=self.problem_before,
            problem_after=self.problem_before,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """One entry for the plain URL, then one for each task of either side, sorted."""

    changes: tuple[TaskChange, ...]

    @property
    def has_effect(self) -> bool:
        return any(change.has_effect for change in self.changes)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Side:
    """One task on one side of the change."""

    tools: frozenset[ToolRef] = frozenset()
    reach: frozenset[ToolRef] = frozenset()
    refusal: Refusal | None = None
    problem: str | None = None


def plan(before: Snapshot, after: Snapshot, *, limits: Limits = DEFAULT_LIMITS) -> Plan:
    """The difference from `before` to `after`, for each task and for callers without one."""
    tasks = sorted(before.tasks.keys() | after.tasks.keys())
    return Plan(
        changes=tuple(
            _change(task_id, _side(before, task_id, limits), _side(after, task_id, limits))
            for task_id in (None, *tasks)
        )
    )


def _change(task_id: str | None, before: _Side, after: _Side) -> TaskChange:
    return TaskChange(
        task_id=task_id,
        added=tuple(sorted(after.tools - before.tools)),
        removed=tuple(sorted(before.tools - after.tools)),
        reach_added=tuple(sorted(after.reach - before.reach)),
        reach_removed=tuple(sorted(before.reach - after.reach)),
        refusal_before=before.refusal,
        refusal_after=after.refusal,
        problem_before=before.problem,
        problem_after=after.problem,
    )


def _side(platform: Snapshot, task_id: str | None, limits: Limits) -> _Side:
    if task_id is None:
        return _composed(platform, None, limits)
    if task_id not in platform.tasks:
        return _Side()
    try:
        task = parse_task_policy(platform.tasks[task_id])
    except InvalidRecord as exc:
        return _Side(problem=str(exc))
    return _composed(platform, task, limits)


def _composed(platform: Snapshot, task: TaskPolicy | None, limits: Limits) -> _Side:
    platform = platform if task is None else within_reach(platform, task)
    scope = _ask(platform, task, SessionRequest(), limits)
    widest = SessionRequest(servers=None if task is None else task.allowed)
    return _Side(
        tools=frozenset(scope.refs),
        reach=scope.admitted | _ask(platform, task, widest, limits).admitted,
        refusal=scope.refusal,
    )


def _ask(platform: Snapshot, task: TaskPolicy | None, request: SessionRequest, limits: Limits) -> Scope:
    return compose(platform, Ceiling(), task=task, request=request, limits=limits)
