"""A plan composes what the change can touch, and says what composing everything would say."""

import json
from dataclasses import replace
from random import Random
from types import MappingProxyType
from typing import Any

import pytest
from hypothesis import given, settings

from tests.policy.test_properties import seeds
from tests.policy.worlds import ALL_PATTERNS, GHOST, SERVERS, TAGS, Maker, offer, snapshot
from tests.scenarios.soak import rounds
from toolgate.errors import InvalidRecord
from toolgate.model.tasks import Task
from toolgate.model.tools import Pin, Snapshot
from toolgate.policy.compose import compose
from toolgate.policy.layers import SessionRequest, parse_task_policy
from toolgate.policy.plan import Planner, TaskChange
from toolgate.policy.resolve import ScopeInputs
from toolgate.policy.scope import ScopeLimits

REFUSING = ScopeLimits(max_tools=128, on_too_many="refuse")
CHANGES_PER_EXAMPLE = 20


def task(task_id: str, **config: Any) -> Task:
    values = {"enabled": True, **config}
    return Task(task_id=task_id, config={f"mcp.{key}": json.dumps(value) for key, value in values.items()})


# The same as composing everything


def side(platform: Snapshot, task_id: str | None, limits: ScopeLimits) -> tuple[Any, ...]:
    """What callers get and could get, the refusal and the problem, by composing all of it."""
    nothing: frozenset[Any] = frozenset()
    if task_id is not None and task_id not in platform.tasks:
        return nothing, nothing, None, None
    try:
        policy = None if task_id is None else parse_task_policy(platform.tasks[task_id])
    except InvalidRecord as exc:
        return nothing, nothing, None, str(exc)
    requests = [SessionRequest(), SessionRequest(servers=None if policy is None else policy.allowed)]
    scope, widest = (
        compose(ScopeInputs(platform, task=policy, request=one), limits=limits) for one in requests
    )
    return frozenset(scope.refs), scope.admitted | widest.admitted, scope.refusal, None


def expected(before: Snapshot, after: Snapshot, limits: ScopeLimits) -> list[TaskChange]:
    changes = []
    for task_id in (None, *sorted(before.tasks.keys() | after.tasks.keys())):
        old, new = side(before, task_id, limits), side(after, task_id, limits)
        changes.append(
            TaskChange(
                task_id=task_id,
                added=tuple(sorted(new[0] - old[0])),
                removed=tuple(sorted(old[0] - new[0])),
                reach_added=tuple(sorted(new[1] - old[1])),
                reach_removed=tuple(sorted(old[1] - new[1])),
                refusal_before=old[2],
                refusal_after=new[2],
                problem_before=old[3],
                problem_after=new[3],
            )
        )
    return [one for one in changes if one.has_effect]


class Changes:
    """Draws platforms, and what becomes of them."""

    def __init__(self, seed: int) -> None:
        self._maker, self._random = Maker(seed), Random(seed)

    def _some(self, choices: tuple[str, ...]) -> list[str]:
        return list(self._maker.some(choices))

    def _task(self, task_id: str) -> Task:
        default = self._some((*SERVERS, GHOST))
        options: dict[str, Any] = {
            "default_server_ids": default,
            "allowed_server_ids": sorted({*default, *self._some(SERVERS)}),
            "tool_allowlist": self._some(ALL_PATTERNS),
            "tool_denylist": self._some(ALL_PATTERNS),
            "profile": self._random.choice(("p", "q")),
            "tags": self._some(TAGS),
            "enforce": False,
            "enabled": self._random.choice((True, False, "broken")),
        }
        chosen = {name: value for name, value in options.items() if self._random.random() < 0.3}
        return task(task_id, **chosen)

    def start(self) -> Snapshot:
        tasks = {one: self._task(one) for one in ("t", "u", "v")}
        return replace(self._maker.platform(), tasks=MappingProxyType(tasks))

    def step(self, platform: Snapshot) -> Snapshot:
        """`platform` with one or two of its records as in another one."""
        other = self.start()
        if self._random.random() < 0.1:
            return replace(platform, environment=other.environment)
        fields = self._random.sample(("servers", "servers", "servers", "tasks", "profiles", "pins"), 2)
        for name in fields:
            mine, theirs = dict(getattr(platform, name)), getattr(other, name)
            one = self._random.choice(SERVERS if name in ("servers", "pins") else ("t", "u", "v", "p", "q"))
            mine.pop(one, None)
            if name == "pins" and self._random.random() < 0.5:
                mine[one] = Pin(server_id=one, tools={"read": "", "del": "other"})
            elif one in theirs:
                mine[one] = theirs[one]
            changed: dict[str, Any] = {name: MappingProxyType(mine)}
            platform = replace(platform, **changed)
        return platform


@settings(max_examples=rounds(suite=25, soak=4_000), database=None, deadline=None)
@given(seeds)
def test_a_plan_says_what_composing_everything_says(seed: int) -> None:
    changes, planner, chance = Changes(seed), Planner(), Random(seed)
    platform = changes.start()
    limits = ScopeLimits(
        max_tools=chance.choice((1, 3, 6, 128)),
        max_definition_tokens=chance.choice((None, None, 40)),
        on_too_many=chance.choice(("refuse", "refuse", "find")),
    )
    for _ in range(CHANGES_PER_EXAMPLE):
        after = changes.step(platform)
        found = [one for one in planner.plan(platform, after, limits=limits) if one.has_effect]
        assert found == expected(platform, after, limits)
        if chance.random() < 0.7:
            platform = after


# The work


def platform_of(servers: int, **fields: Any) -> Snapshot:
    ids = [f"s{n:03}" for n in range(servers)]
    tasks = (
        *(task(f"t{n}", default_server_ids=[one]) for n, one in enumerate(ids)),
        task("wide", default_server_ids=ids),
    )
    offers = (offer(one, "read", "write", "list", "send") for one in ids)
    return replace(snapshot(*offers, tasks=tasks), **fields)


def narrowed(platform: Snapshot, server_id: str) -> Snapshot:
    one = platform.servers[server_id]
    changed = replace(one, record=replace(one.record, allowed_tools=("read",)))
    return replace(platform, servers=MappingProxyType({**platform.servers, server_id: changed}))


@pytest.mark.parametrize("limits", [ScopeLimits(), REFUSING], ids=["find", "refuse"])
def test_a_plan_of_one_server_composes_that_server_alone(limits: ScopeLimits) -> None:
    before, planner = platform_of(100), Planner()
    planner.plan(before, narrowed(before, "s000"), limits=limits)
    already = planner.composed

    found = planner.plan(before, narrowed(before, "s007"), limits=limits)

    assert {one.task_id for one in found if one.has_effect} == {None, "t7", "wide"}
    # On both sides, for each of the three; and s000 is counted where tasks are refused for their size.
    assert planner.composed - already <= 3 * 2 + (2 if limits is REFUSING else 0)


def test_a_plan_of_one_task_composes_its_servers_alone() -> None:
    before, planner = platform_of(100), Planner()
    changed = task("t3", default_server_ids=["s003", "s004"])

    found = planner.plan(before, replace(before, tasks=MappingProxyType({**before.tasks, "t3": changed})))

    assert {one.task_id for one in found if one.has_effect} == {"t3"}
    assert planner.composed == 3


def test_what_is_remembered_is_bounded() -> None:
    before, planner = platform_of(100), Planner(max_tallies=50)
    for server_id in ("s000", "s001", "s002"):
        planner.plan(before, narrowed(before, server_id), limits=REFUSING)

    assert sum(len(one.servers) for one in planner._tallies.values()) <= 2 * 100
