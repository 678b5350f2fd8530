"""Rollouts of profiles: who has the next version, what that does to a scope, and what a plan says of it."""

import json
from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.policy.worlds import offer, refs, snapshot
from tests.scenarios.soak import rounds
from toolgate.model.tasks import Profile, Rollout, RolloutBy, Selection, Task
from toolgate.model.tools import Snapshot
from toolgate.policy.compose import compose, compute_task_reach, explain
from toolgate.policy.layers import SessionRequest, parse_task_policy
from toolgate.policy.learn import learn
from toolgate.policy.lint import lint
from toolgate.policy.plan import Planner, TaskChange
from toolgate.policy.resolve import NO_CEILING, ScopeInputs
from toolgate.policy.rollouts import (
    BUCKETS,
    Cohort,
    draw_bucket,
    draw_side,
    draw_versions,
    find_candidates,
    find_version,
    split_cohorts,
)
from toolgate.policy.scope import ProfileVersion

FEW = settings(max_examples=rounds(suite=50, soak=20_000), database=None)
CALLERS = [f"key:{number}" for number in range(10_000)]
NARROW, WIDE = Selection(servers=("fs",)), Selection(servers=("fs", "git"))
FS, GIT = offer("fs", "read"), offer("git", "log")
REVIEW = Task(task_id="review", config={"mcp.enabled": "true", "mcp.profile": '"p"'})
ASKS_NOTHING = SessionRequest()


def rolled_out(share: int, *, by: RolloutBy = "caller", version: int = 2) -> Profile:
    return Profile(
        profile_id="p",
        selection=NARROW,
        rollout=Rollout(version=version, share=share, by=by, selection=WIDE),
    )


STABLE = replace(rolled_out(1), rollout=None)
PROMOTED = replace(STABLE, version=2, selection=WIDE)


def platform(profile: Profile, *tasks: Task) -> Snapshot:
    return snapshot(FS, GIT, tasks=tasks or (REVIEW,), profiles=(profile,))


def having(profile: Profile, callers: list[str] = CALLERS) -> set[str]:
    """The callers that have the candidate."""
    return {one for one in callers if draw_side(profile, principal_id=one, task_id="") == "candidate"}


@pytest.mark.requirement("000-38")
@pytest.mark.parametrize("share", [1, 10, 50, 99])
def test_a_share_of_ten_thousand_callers_is_that_share(share: int) -> None:
    found = len(having(rolled_out(share)))

    expected, deviation = 100 * share, (100 * share * (100 - share) / 100) ** 0.5
    assert abs(found - expected) < 5 * deviation


@pytest.mark.requirement("000-38")
def test_a_higher_share_adds_callers_and_takes_the_candidate_from_none() -> None:
    groups = [having(rolled_out(share), CALLERS[:1_000]) for share in (1, 5, 10, 33, 50, 90, 99, 100)]

    assert all(low < high for low, high in pairwise(groups))
    assert groups[-1] == set(CALLERS[:1_000])


def test_another_version_draws_independently() -> None:
    first, second = having(rolled_out(50)), having(rolled_out(50, version=3))

    # Of a quarter of the callers, five standard deviations.
    assert abs(len(first & second) - 2_500) < 5 * (10_000 * 0.25 * 0.75) ** 0.5


def test_the_draw_is_the_same_in_every_process() -> None:
    drawn = [draw_bucket("code-review", 5, one) for one in ("caller:local", "caller:key:ci", "task:nightly")]

    # Written down: callers would change sides if a release drew differently.
    assert drawn == [4415, 3233, 8405]


@FEW
@given(st.text(max_size=40), st.integers(1, 2**31 - 1), st.text(st.characters(), max_size=80))
def test_every_name_draws_a_number_and_draws_it_again(profile: str, version: int, subject: str) -> None:
    number = draw_bucket(profile, version, subject)

    assert 0 <= number < BUCKETS
    assert draw_bucket(profile, version, subject) == number


def test_by_task_all_callers_of_a_task_are_on_one_side() -> None:
    profile = rolled_out(50, by="task")
    sides = {
        task_id: {draw_side(profile, principal_id=one, task_id=task_id) for one in CALLERS[:20]}
        for task_id in map(str, range(50))
    }

    assert all(len(found) == 1 for found in sides.values())
    assert set().union(*sides.values()) == {"stable", "candidate"}


def scope_for(
    profile: Profile, principal_id: str, request: SessionRequest = ASKS_NOTHING
) -> tuple[object, ...]:
    task = None if request.profile else parse_task_policy(REVIEW)
    drawn = draw_versions(platform(profile), principal_id, task=task, request=request)
    scope = compose(ScopeInputs(drawn, task=task, request=request))
    return scope.tools, scope.profiles


def test_each_side_sees_its_version_and_the_scope_names_it() -> None:
    profile = rolled_out(30)
    on, off = min(having(profile)), min(set(CALLERS) - having(profile))

    assert scope_for(profile, on) == (
        refs("fs/read", "git/log"),
        (ProfileVersion("p", 2, "candidate", 30, "caller"),),
    )
    assert scope_for(profile, off) == (refs("fs/read"), (ProfileVersion("p", 1, "stable", 70, "caller"),))
    assert scope_for(profile, on, SessionRequest(profile="p"))[0] == refs("fs/read", "git/log")
    assert scope_for(STABLE, on) == (refs("fs/read"), (ProfileVersion("p", 1),))


def test_the_candidate_of_an_environment_replaces_its_common_one() -> None:
    profile = rolled_out(100)
    assert profile.rollout is not None
    here = replace(
        profile, rollout=replace(profile.rollout, environments={"prod": Selection(servers=("git",))})
    )

    assert scope_for(here, "key:a")[0] == refs("git/log")
    assert STABLE.selection_for("prod", "candidate") == NARROW


def test_explain_names_version_side_and_share() -> None:
    drawn = draw_versions(
        platform(rolled_out(100)), "key:a", task=parse_task_policy(REVIEW), request=ASKS_NOTHING
    )
    found = explain(ScopeInputs(drawn, task=parse_task_policy(REVIEW), request=ASKS_NOTHING))
    stable = explain(
        ScopeInputs(platform(rolled_out(30, by="task")), task=parse_task_policy(REVIEW), request=ASKS_NOTHING)
    )

    assert [str(one) for one in found.scope.profiles] == ["p@2"]
    assert [one.rule for one in stable.servers] == ["mcp.profile `p` version 1 (stable)"]
    assert find_version(drawn, "absent") is None


def test_a_task_that_is_not_enforced_has_no_part_in_a_rollout() -> None:
    lax = Task(task_id="review", config={**REVIEW.config, "mcp.enforce": "false"})
    scope = compose(
        ScopeInputs(platform(rolled_out(50), lax), task=parse_task_policy(lax), request=ASKS_NOTHING)
    )

    assert scope.profiles == ()
    assert Planner().plan(platform(STABLE, lax), platform(rolled_out(50), lax))[1] == TaskChange(
        task_id="review"
    )


GAIN = TaskChange(task_id="review", added=refs("git/log"), reach_added=refs("git/log"))
LOSS = TaskChange(task_id="review", removed=refs("git/log"), reach_removed=refs("git/log"))


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        (STABLE, rolled_out(10), [replace(GAIN, share=10)]),
        (rolled_out(10), rolled_out(50), [replace(GAIN, share=40)]),
        (rolled_out(50), rolled_out(10), [replace(LOSS, share=40)]),
        (rolled_out(10), PROMOTED, [replace(GAIN, share=90)]),
        (rolled_out(10), STABLE, [replace(LOSS, share=10)]),
        (rolled_out(50), rolled_out(50, version=3), [replace(GAIN, share=25), replace(LOSS, share=25)]),
        (rolled_out(10), rolled_out(10), [TaskChange(task_id="review")]),
        (STABLE, rolled_out(100, by="task"), [GAIN]),
        (rolled_out(100, by="task"), PROMOTED, [TaskChange(task_id="review")]),
    ],
    ids=["start", "widen", "shrink", "promote", "roll back", "replace", "same", "by task", "promote a task"],
)
def test_a_plan_says_what_share_of_callers_gains_and_loses(
    before: Profile, after: Profile, expected: list[TaskChange]
) -> None:
    assert list(Planner().plan(platform(before), platform(after))[1:]) == expected


def test_a_change_of_a_server_shows_for_those_whose_version_has_it() -> None:
    before = platform(rolled_out(10))
    without_git = replace(before, servers={"fs": FS})
    without_fs = replace(before, servers={"git": GIT})
    planner = Planner()

    assert planner.plan(before, without_git)[1:] == (replace(LOSS, share=10),)
    gone = refs("fs/read")
    assert planner.plan(before, without_fs)[1:] == (
        TaskChange(task_id="review", removed=gone, reach_removed=gone),
    )


def test_cohorts_of_one_rollout_nest_and_those_of_two_cross() -> None:
    assert split_cohorts(rolled_out(10), rolled_out(50), "t") == (
        Cohort("stable", "stable", 50),
        Cohort("stable", "candidate", 40),
        Cohort("candidate", "candidate", 10),
    )
    assert split_cohorts(rolled_out(10), rolled_out(50, version=3), "t") == (
        Cohort("stable", "stable", 45),
        Cohort("stable", "candidate", 45),
        Cohort("candidate", "stable", 5),
        Cohort("candidate", "candidate", 5),
    )
    assert split_cohorts(None, None, "t") == (Cohort("stable", "stable", 100),)


def test_lint_looks_at_the_candidate_too() -> None:
    profile = rolled_out(10)
    assert profile.rollout is not None
    wrong = replace(
        profile,
        rollout=replace(
            profile.rollout,
            selection=Selection(servers=("gone",)),
            environments={"dev": Selection(allow=("nothing_*",))},
        ),
    )

    assert [
        (one.code, one.rule, one.subject) for one in lint(platform(wrong)).findings if one.kind == "profile"
    ] == [
        ("matches_nothing", "rollout dev allow", "nothing_*"),
        ("unknown_server", "rollout servers", "gone"),
    ]


def test_lint_takes_a_rule_of_a_task_for_useful_that_only_the_candidate_needs() -> None:
    config = {**REVIEW.config, "mcp.tool_denylist": '["git/log"]'}
    task = Task(task_id="review", config=config)

    assert lint(platform(rolled_out(10), task)).findings == ()
    assert [one.code for one in lint(platform(STABLE, task)).findings] == ["matches_nothing"]


def test_reach_and_learning_know_both_versions_while_one_is_rolled_out() -> None:
    task = parse_task_policy(REVIEW)
    both = refs("fs/read", "git/log")

    assert compute_task_reach(platform(rolled_out(10)), task) == frozenset(both)
    assert compute_task_reach(platform(STABLE), task) == frozenset(refs("fs/read"))
    assert compute_task_reach(platform(rolled_out(100, by="task")), task) == frozenset(both)
    assert learn(platform(rolled_out(10)), task, both).kept == both
    assert learn(platform(STABLE), task, both).kept == refs("fs/read")


def test_the_candidates_of_a_caller_are_those_it_has_under_every_task() -> None:
    mixed = snapshot(
        profiles=(
            rolled_out(100),
            replace(rolled_out(100, by="task"), profile_id="q"),
            replace(STABLE, profile_id="r"),
        )
    )

    assert find_candidates(mixed, "key:a") == {"p"}


def test_a_rollout_never_goes_past_the_task_and_the_key() -> None:
    config = {**REVIEW.config, "mcp.allowed_server_ids": json.dumps(["fs"])}
    task = parse_task_policy(Task(task_id="review", config=config))
    drawn = draw_versions(platform(rolled_out(100)), "key:a", task=task, request=ASKS_NOTHING)
    ceiling = replace(NO_CEILING, servers=("fs",))

    assert compose(ScopeInputs(drawn, task=task, request=ASKS_NOTHING)).tools == refs("fs/read")
    assert compose(ScopeInputs(drawn, ceiling, parse_task_policy(REVIEW), ASKS_NOTHING)).tools == refs(
        "fs/read"
    )
