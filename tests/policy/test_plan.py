"""`plan`: what a change would add and remove, for every task, before it is applied."""

import json
from dataclasses import replace

import pytest

from tests.policy.worlds import offer, refs, snapshot
from toolgate.errors import TooManyTools
from toolgate.model.tasks import Profile, Selection, Task
from toolgate.model.tools import Snapshot
from toolgate.policy.plan import Planner, TaskChange
from toolgate.policy.scope import Refusal, ScopeLimits


def task(task_id: str, *servers: str, **config: object) -> Task:
    """An enabled task on these servers, with more `mcp.` keys."""
    values = {"enabled": True, "default_server_ids": servers, **config}
    return Task(task_id=task_id, config={f"mcp.{key}": json.dumps(value) for key, value in values.items()})


FS = offer("fs", "read", "write", allowed=("read",))
FS_OPEN = replace(FS, record=replace(FS.record, allowed_tools=("*",)))
GIT = offer("git", "log")
TASKS = (task("coder", "fs", "git"), task("writer", "git"))
BEFORE = snapshot(FS, GIT, tasks=TASKS)
NO_CHANGES = (TaskChange(task_id=None), TaskChange(task_id="coder"), TaskChange(task_id="writer"))


def test_a_change_to_a_record_shows_what_it_does_to_plain_urls_and_to_each_task() -> None:
    opened = refs("fs/write")

    assert Planner().plan(BEFORE, snapshot(FS_OPEN, GIT, tasks=TASKS)) == (
        TaskChange(task_id=None, added=opened, reach_added=opened),
        TaskChange(task_id="coder", added=opened, reach_added=opened),
        TaskChange(task_id="writer"),
    )


def test_a_removed_server_takes_its_tools_from_those_that_had_them() -> None:
    gone = refs("git/log")

    assert Planner().plan(BEFORE, snapshot(FS, tasks=TASKS)) == tuple(
        replace(change, removed=gone, reach_removed=gone) for change in NO_CHANGES
    )


def test_nothing_changed_means_nothing_to_see() -> None:
    same = Planner().plan(BEFORE, replace(BEFORE, revision=7))

    assert same == NO_CHANGES
    assert not any(change.has_effect for change in same)


def test_a_new_task_and_a_deleted_one() -> None:
    after = snapshot(FS, GIT, tasks=(task("coder", "fs", "git"), task("reader", "fs")))

    assert Planner().plan(BEFORE, after) == (
        TaskChange(task_id=None),
        TaskChange(task_id="coder"),
        TaskChange(task_id="reader", added=refs("fs/read"), reach_added=refs("fs/read")),
        TaskChange(task_id="writer", removed=refs("git/log"), reach_removed=refs("git/log")),
    )


def test_a_server_a_task_may_now_ask_for_shows_in_its_reach() -> None:
    before = snapshot(FS, GIT, tasks=(task("t", "fs"),))
    after = snapshot(FS, GIT, tasks=(task("t", "fs", allowed_server_ids=["fs", "git"]),))

    assert Planner().plan(before, after)[1] == TaskChange(task_id="t", reach_added=refs("git/log"))
    assert Planner().plan(after, before)[1] == TaskChange(task_id="t", reach_removed=refs("git/log"))
    assert any(change.has_effect for change in Planner().plan(before, after))


@pytest.mark.requirement("000-37")
def test_a_change_to_a_profile_shows_in_the_tasks_that_use_it() -> None:
    def platform(*servers: str) -> Snapshot:
        profile = Profile(profile_id="p", selection=Selection(servers=servers))
        config = {"mcp.enabled": "true", "mcp.profile": '"p"'}
        return snapshot(FS, GIT, tasks=(Task(task_id="t", config=config),), profiles=(profile,))

    assert Planner().plan(platform("fs"), platform("git")) == (
        TaskChange(task_id=None),
        TaskChange(
            task_id="t",
            added=refs("git/log"),
            removed=refs("fs/read"),
            reach_added=refs("git/log"),
            reach_removed=refs("fs/read"),
        ),
    )


def test_a_change_that_makes_a_scope_too_large_shows_the_refusal_and_what_came_in() -> None:
    limits = ScopeLimits(max_tools=2, on_too_many="refuse")
    change = Planner().plan(BEFORE, snapshot(FS_OPEN, GIT, tasks=TASKS), limits=limits)[1]

    assert change == TaskChange(
        task_id="coder",
        removed=refs("fs/read", "git/log"),
        reach_added=refs("fs/write"),
        refusal_after=Refusal(
            code="too_many_tools",
            message="the scope has 3 tools, 1 more than `max_tools` 2",
            hint=TooManyTools.default_hint,
        ),
    )


def test_a_task_whose_config_cannot_be_read_has_no_tools_and_says_why() -> None:
    broken = Task(task_id="writer", config={"mcp.enabled": "yes"})
    change = Planner().plan(BEFORE, snapshot(FS, GIT, tasks=(TASKS[0], broken)))[2]

    assert change == TaskChange(
        task_id="writer",
        removed=refs("git/log"),
        reach_removed=refs("git/log"),
        problem_after="task `writer`: `mcp.enabled`: invalid value: "
        "JSON is malformed: invalid character (byte 0)",
    )


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        pytest.param(TaskChange(task_id="t"), False, id="nothing"),
        pytest.param(
            TaskChange(task_id="t", problem_before="x", problem_after="x"), False, id="as broken as before"
        ),
        pytest.param(TaskChange(task_id="t", problem_before="x"), True, id="mended"),
        pytest.param(TaskChange(task_id="t", problem_after="x"), True, id="broken"),
        pytest.param(TaskChange(task_id="t", added=refs("a/x")), True, id="added"),
        pytest.param(TaskChange(task_id="t", removed=refs("a/x")), True, id="removed"),
        pytest.param(TaskChange(task_id="t", reach_removed=refs("a/x")), True, id="out of reach"),
    ],
)
def test_a_change_has_an_effect_when_a_caller_would_notice(change: TaskChange, expected: bool) -> None:
    assert change.has_effect is expected
