"""Plans: the effect of a change to the registry on every task, before it is applied.

Both sides are composed as for a caller of the task; nothing is predicted by other means. Servers that are
equal on both sides cannot change a scope, so only the others are composed.
"""

from collections.abc import Collection, Iterable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Final, NamedTuple

from toolgate.errors import InvalidRecord
from toolgate.model.names import ToolRef, kind_of
from toolgate.model.tasks import Profile, Side, Task
from toolgate.model.tools import Pin, ServerTools, Snapshot
from toolgate.policy.compose import compose
from toolgate.policy.layers import SessionRequest, TaskPolicy, parse_task_policy
from toolgate.policy.resolve import ScopeInputs, bind_task, restrict_to_task
from toolgate.policy.rollouts import split_cohorts
from toolgate.policy.scope import DEFAULT_LIMITS, NO_LIMITS, Refusal, ScopeLimits, refuse_oversize

MAX_TALLIES: Final = 50_000
"""Cached counts of a task's tools on one server: about 8 MiB. When full, the cache is emptied."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskChange:
    """The changes for callers of one task without a selection, and for those with one."""

    task_id: str | None
    """None: callers of the plain URL, without a task."""
    added: tuple[ToolRef, ...] = ()
    """Tools, prompts and resources."""
    removed: tuple[ToolRef, ...] = ()
    reach_added: tuple[ToolRef, ...] = ()
    """The refs that a request could newly reach by naming servers, regardless of limits. Includes `added`."""
    reach_removed: tuple[ToolRef, ...] = ()
    refusal_before: Refusal | None = None
    refusal_after: Refusal | None = None
    problem_before: str | None = None
    """Why the task's config is invalid; it then has no tools."""
    problem_after: str | None = None
    share: float = 100
    """The percentage of the task's callers. During a rollout of its profile, a task has several entries."""

    @property
    def has_effect(self) -> bool:
        before, after = (self.refusal_before, self.problem_before), (self.refusal_after, self.problem_after)
        return bool(self.added or self.removed or self.reach_added or self.reach_removed) or before != after


@dataclass(frozen=True, slots=True, kw_only=True)
class _Side:
    """One task on one side of the change."""

    tools: frozenset[ToolRef] = frozenset()
    reach: frozenset[ToolRef] = frozenset()
    refusal: Refusal | None = None
    problem: str | None = None


class _Task(NamedTuple):
    """A task on one side, or callers without one."""

    policy: TaskPolicy | None = None
    is_there: bool = True
    problem: str | None = None
    """Why its config is invalid."""

    @property
    def has_policy(self) -> bool:
        return self.is_there and self.problem is None


_Size = tuple[int, int]
"""A number of tools, and the tokens of their definitions."""


class _Tally(NamedTuple):
    """The size of a task on one server, and the state of the server at the count."""

    offer: ServerTools
    pin: Pin | None
    size: _Size


class _Tallies(NamedTuple):
    """The cached counts of a task. They are valid while the task and its profile stay the same."""

    made_for: tuple[Task | None, Profile | None, str]
    servers: Mapping[str, _Tally]


class _Comparison(NamedTuple):
    """Two snapshots, and the records in which they differ."""

    before: Snapshot
    after: Snapshot
    limits: ScopeLimits
    servers: AbstractSet[str]
    profiles: AbstractSet[str]


class Planner:
    """Makes plans. It caches how many tools the tasks have on unchanged servers."""

    def __init__(self, *, max_tallies: int = MAX_TALLIES) -> None:
        self._max_tallies = max_tallies
        self._tallies: dict[tuple[str | None, bool], _Tallies] = {}
        """By task, and by whether its profile is the candidate."""
        self.composed = 0
        """Servers composed so far: the work of plans."""

    def plan(
        self, before: Snapshot, after: Snapshot, *, limits: ScopeLimits = DEFAULT_LIMITS
    ) -> tuple[TaskChange, ...]:
        """The difference from `before` to `after`: for the plain URL, then for each task of either side,
        sorted. Thread-safe.

        During a rollout of its profile, a task has an entry for each share of callers that the change
        affects. If the change cannot affect a task, its entry is empty, even if the task is denied.
        """
        if sum(len(one.servers) for one in self._tallies.values()) > self._max_tallies:
            self._tallies = {}
        old, new = before.servers, after.servers
        servers = {one for one in old.keys() | new.keys() if old.get(one) is not new.get(one)}
        pins = _find_differences(before.pins, after.pins)
        profiles = _find_differences(before.profiles, after.profiles)
        compared = _Comparison(before, after, limits, servers | pins, profiles)
        tasks = (None, *sorted(before.tasks.keys() | after.tasks.keys()))
        return tuple(one for task_id in tasks for one in self._changes(compared, task_id))

    def _changes(self, compared: _Comparison, task_id: str | None) -> Iterable[TaskChange]:
        before, after = compared.before, compared.after
        profiles = _find_profile(before, task_id), _find_profile(after, task_id)
        shares: dict[TaskChange, float] = {}
        for cohort in split_cohorts(*profiles, task_id or ""):
            old = _with_version(before, profiles[0], cohort.before)
            new = _with_version(after, profiles[1], cohort.after)
            change = self._change(compared._replace(before=old, after=new), task_id)
            shares[change] = shares.get(change, 0) + cohort.share
        if len(shares) == 1:
            return shares
        return [replace(change, share=share) for change, share in shares.items() if change.has_effect]

    def _change(self, compared: _Comparison, task_id: str | None) -> TaskChange:
        before, after, limits = compared.before, compared.after, compared.limits
        old, new = _read_task(before, task_id), _read_task(after, task_id)
        profile = None if new.policy is None else new.policy.profile
        if (
            before.environment != after.environment
            or profile in compared.profiles
            or (task_id is not None and before.tasks.get(task_id) != after.tasks.get(task_id))
        ):
            return _compare(task_id, self._side(before, old, limits), self._side(after, new, limits))
        touched = compared.servers & (_reachable_servers(before, old) | _reachable_servers(after, new))
        if not touched:
            return TaskChange(task_id=task_id)
        pairs = ((before, old), (after, new))
        sides = [self._side(_restrict_servers(side, touched), task, NO_LIMITS) for side, task in pairs]
        if limits.on_too_many != "find":
            sides = self._bound(compared, new, sides, self._count_untouched(after, task_id, new, touched))
        return _compare(task_id, *sides)

    def _bound(self, compared: _Comparison, task: _Task, sides: list[_Side], rest: _Size) -> list[_Side]:
        """The sides of a task that is denied because of too many tools. `rest`: on unchanged servers."""
        platforms, limits = (compared.before, compared.after), compared.limits
        sizes = map(_measure, platforms, (side.tools for side in sides))
        excesses = [limits.describe_excess(rest[0] + tools, rest[1] + tokens) for tools, tokens in sizes]
        if excesses.count(None) == 1:  # it gains or loses all its tools
            return [self._side(platform, task, limits) for platform in platforms]
        return [
            side if excess is None else replace(side, tools=frozenset(), refusal=refuse_oversize(excess))
            for side, excess in zip(sides, excesses, strict=True)
        ]

    def _count_untouched(
        self, platform: Snapshot, task_id: str | None, task: _Task, touched: AbstractSet[str]
    ) -> _Size:
        """The size of a task on the servers that are equal on both sides."""
        profile = None if task.policy is None or task.policy.profile is None else task.policy.profile
        made_for = (
            None if task_id is None else platform.tasks.get(task_id),
            None if profile is None else platform.profiles.get(profile),
            platform.environment,
        )
        key = task_id, profile in platform.candidates
        known = self._tallies.get(key)
        tallies = dict(known.servers) if known is not None and known.made_for == made_for else {}
        ids = (_reachable_servers(platform, task) & platform.servers.keys()) - touched
        missing = [one for one in ids if not _is_current(tallies.get(one), platform, one)]
        tallies |= self._count(platform, task, missing)
        kept = {one: tally for one, tally in tallies.items() if one in platform.servers}
        self._tallies[key] = _Tallies(made_for, kept)
        sizes = [tallies[one].size for one in ids]
        return sum(tools for tools, _ in sizes), sum(tokens for _, tokens in sizes)

    def _count(self, platform: Snapshot, task: _Task, server_ids: Collection[str]) -> Mapping[str, _Tally]:
        found: dict[str, list[ToolRef]] = {one: [] for one in server_ids}
        if server_ids:
            for ref in self._side(_restrict_servers(platform, server_ids), task, NO_LIMITS).tools:
                found[ref.server_id].append(ref)
        return {
            one: _Tally(platform.servers[one], platform.pins.get(one), _measure(platform, refs))
            for one, refs in found.items()
        }

    def _side(self, platform: Snapshot, task: _Task, limits: ScopeLimits) -> _Side:
        if not task.has_policy:
            return _Side(problem=task.problem)
        policy = task.policy
        platform = platform if policy is None else restrict_to_task(platform, policy)
        requests = [SessionRequest()]
        if policy is not None and policy.allowed is not None:
            requests.append(SessionRequest(servers=policy.allowed))
        self.composed += len(requests) * len(platform.servers)
        inputs = (ScopeInputs(platform, task=policy, request=request) for request in requests)
        scope, *wider = (compose(one, limits=limits) for one in inputs)
        reach = scope.admitted.union(*(one.admitted for one in wider))
        return _Side(tools=frozenset(scope.refs), reach=reach, refusal=scope.refusal)


def _find_differences(before: Mapping[str, object], after: Mapping[str, object]) -> AbstractSet[str]:
    return {one for one in before.keys() | after.keys() if before.get(one) != after.get(one)}


def _compare(task_id: str | None, before: _Side, after: _Side) -> TaskChange:
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


def _read_task(platform: Snapshot, task_id: str | None) -> _Task:
    if task_id is None:
        return _Task()
    if task_id not in platform.tasks:
        return _Task(is_there=False)
    try:
        return _Task(parse_task_policy(platform.tasks[task_id]))
    except InvalidRecord as exc:
        return _Task(problem=str(exc))


def _find_profile(platform: Snapshot, task_id: str | None) -> Profile | None:
    """The profile that narrows a task; None if the task is not enforced."""
    policy = _read_task(platform, task_id).policy
    if policy is None or policy.profile is None or not policy.enforced:
        return None
    return platform.profiles.get(policy.profile)


def _with_version(platform: Snapshot, profile: Profile | None, side: Side) -> Snapshot:
    if profile is None or side == "stable":
        return platform
    return replace(platform, candidates=frozenset({profile.profile_id}))


def _reachable_servers(platform: Snapshot, task: _Task) -> AbstractSet[str]:
    """The servers that the task could reach, registered or not."""
    if not task.has_policy:
        return frozenset()
    if task.policy is None:
        return platform.servers.keys()
    bound = bind_task(platform, task.policy)
    return bound.default | bound.allowed


def _restrict_servers(platform: Snapshot, server_ids: Iterable[str]) -> Snapshot:
    servers = {one: platform.servers[one] for one in server_ids if one in platform.servers}
    return replace(platform, servers=MappingProxyType(servers))


def _is_current(tally: _Tally | None, platform: Snapshot, server_id: str) -> bool:
    return (
        tally is not None
        and tally.offer is platform.servers[server_id]
        and tally.pin == platform.pins.get(server_id)
    )


def _measure(platform: Snapshot, refs: Iterable[ToolRef]) -> _Size:
    tools = [ref for ref in refs if not kind_of(ref.name)]
    return len(tools), sum(platform.servers[ref.server_id].tools[ref.name].tokens for ref in tools)
