"""A task that is not enforced: nothing is denied by it, and what it would deny is known exactly."""

import re
from dataclasses import replace

import pytest
from hypothesis import given, settings

from tests.policy.test_properties import explanation_of, ref_of, scope_of, seeds, worlds
from tests.policy.worlds import World, offer, refs, snapshot
from tests.scenarios.soak import rounds
from toolgate.errors import InvalidRecord
from toolgate.model.principals import Ceiling
from toolgate.model.tasks import Task
from toolgate.policy.compose import compose, decide_one
from toolgate.policy.layers import SessionRequest, TaskPolicy, parse_task_policy
from toolgate.policy.lint import lint
from toolgate.policy.plan import Planner
from toolgate.policy.resolve import ScopeInputs
from toolgate.policy.scope import Decision, Scope, ScopeLimits

PLATFORM = snapshot(
    offer("git", "git_log", "git_commit", "prompt:review", allowed=("*", "prompt:*")), offer("mail", "send")
)
TASK = TaskPolicy(task_id="t", enabled=True, default=("git",), allow=("*_log",), enforced=False)


def lax(world: World) -> World:
    assert world.task is not None
    return replace(world, task=replace(world.task, enforced=False))


def without_task(world: World) -> World:
    """The same caller where there is no task; a key that is bound to it may call without it, then."""
    return replace(world, task=None, ceiling=replace(world.ceiling, tasks=None))


def unshadowed(decision: Decision) -> Decision:
    return replace(decision, shadow=None)


def is_usable(world: World) -> bool:
    """Whether the task could be used at all: `mcp.enabled`, and a key's list of tasks, hold in any case."""
    task, tasks = world.task, world.ceiling.tasks
    return task is not None and task.enabled and (tasks is None or task.task_id in tasks)


def unnamed(scope: Scope) -> tuple[str, ...]:
    """The warnings without the name of the task, as they are for a caller that has none."""
    return tuple(re.sub("the scope of task `[^`]+`", "this scope", one) for one in scope.warnings)


FEW = settings(max_examples=rounds(suite=20, soak=17_000), database=None)


@FEW
@given(seeds)
def test_a_task_that_is_not_enforced_denies_nothing_that_is_let_through_without_it(seed: int) -> None:
    for _, world in worlds(seed):
        if is_usable(world):
            found, plain = scope_of(lax(world)), scope_of(without_task(world))
            bare = replace(found, decisions=tuple(map(unshadowed, found.decisions)))

            assert replace(bare, warnings=unnamed(bare)) == plain


@FEW
@given(seeds)
def test_what_is_shadowed_is_exactly_what_the_enforced_task_would_refuse_and_why(seed: int) -> None:
    for _, world in worlds(seed):
        if world.task is not None:
            enforced, found = explanation_of(world), scope_of(lax(world))
            reasons = {ref_of(one): one for one in enforced.tools}
            refused = set(found.refs) - set(enforced.scope.refs)

            assert found.shadowed == {ref: reasons[ref] for ref in refused}
            assert set(enforced.scope.refs) <= set(found.refs)
            assert not enforced.scope.shadowed


@FEW
@given(seeds)
def test_alone_and_in_a_list_the_shadow_is_the_same(seed: int) -> None:
    for _, world in worlds(seed):
        if world.task is not None:
            asked = lax(world)
            for one in explanation_of(asked).tools:
                alone = decide_one(
                    ScopeInputs(asked.platform, asked.ceiling, asked.task, asked.request), ref_of(one)
                )

                assert alone == one


def shadows(*servers: str) -> dict[str, str]:
    request = SessionRequest(servers=servers or None)
    scope = compose(ScopeInputs(PLATFORM, task=TASK, request=request))
    return {str(ref): f"{one.layer}: {one.rule}" for ref, one in scope.shadowed.items()}


def test_each_shadow_names_the_layer_and_rule() -> None:
    assert shadows() == {
        "git/git_commit": "task: mcp.tool_allowlist",
        "prompt:git/review": "task: mcp.tool_allowlist",
        "mail/send": "task: mcp.default_server_ids",
    }


def test_a_request_that_the_task_would_refuse_whole_goes_through() -> None:
    scope = compose(ScopeInputs(PLATFORM, task=TASK, request=SessionRequest(servers=("mail",))))

    assert (scope.tools, scope.refusal) == (refs("mail/send"), None)
    assert shadows("mail") == {"mail/send": "task: mcp.default_server_ids"}


def test_a_disabled_task_stays_disabled() -> None:
    scope = compose(ScopeInputs(PLATFORM, task=replace(TASK, enabled=False)))

    assert (scope.refs, scope.shadowed) == ((), {})


def test_a_key_narrows_whether_or_not_the_task_is_enforced() -> None:
    bound = compose(ScopeInputs(PLATFORM, Ceiling(servers=("mail",)), TASK))
    elsewhere = compose(ScopeInputs(PLATFORM, Ceiling(tasks=("u",)), TASK))

    assert bound.tools == refs("mail/send")
    assert (elsewhere.refs, elsewhere.refusal and elsewhere.refusal.code) == ((), "not_found")


def test_the_limits_of_a_scope_hold_in_any_case() -> None:
    scope = compose(ScopeInputs(PLATFORM, task=TASK), limits=ScopeLimits(max_tools=2, on_too_many="refuse"))

    assert scope.refusal is not None
    assert scope.refusal.code == "too_many_tools"


def test_a_profile_that_does_not_exist_is_no_concern_of_a_task_that_is_not_enforced() -> None:
    task = replace(TASK, profile="gone")
    scope = compose(ScopeInputs(PLATFORM, task=task))

    assert scope.warnings == ()


@pytest.mark.parametrize(("text", "enforced"), [("false", False), ("true", True), (None, True)])
def test_a_task_is_enforced_unless_it_says_otherwise(text: str | None, enforced: bool) -> None:
    config = {} if text is None else {"mcp.enforce": text}

    assert parse_task_policy(Task(task_id="t", config=config)).enforced is enforced


@pytest.mark.parametrize("text", ["no", "0", '"false"', "null", ""])
def test_whether_a_task_is_enforced_is_never_guessed(text: str) -> None:
    with pytest.raises(InvalidRecord, match=r"mcp\.enforce"):
        parse_task_policy(Task(task_id="t", config={"mcp.enforce": text}))


def task_record(**config: str) -> Task:
    own = {"mcp.enabled": "true", "mcp.default_server_ids": '["git"]', "mcp.tool_allowlist": '["*_log"]'}
    return Task(task_id="t", config=own | {f"mcp.{key}": text for key, text in config.items()})


def test_a_plan_shows_what_is_let_through_once_a_task_is_no_longer_enforced() -> None:
    before = replace(PLATFORM, tasks={"t": task_record()})
    after = replace(PLATFORM, tasks={"t": task_record(enforce="false")})
    change = Planner().plan(before, after)[1]

    assert change.added == refs("git/git_commit", "git/prompt:review", "mail/send")
    assert change.reach_added == change.added
    assert [one.code for one in lint(after).findings] == ["not_enforced"]
    assert lint(before).findings == ()
