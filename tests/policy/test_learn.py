"""The least policy: all that was used is allowed, for every caller as before, and nothing else."""

import json
from dataclasses import replace

import pytest
from hypothesis import given, settings

from tests.policy.test_properties import scope_of, seeds, worlds
from tests.policy.worlds import World, offer, refs, snapshot
from tests.scenarios.soak import rounds
from toolgate.model.names import ToolRef
from toolgate.model.tasks import Profile, Selection, Task
from toolgate.model.tools import Snapshot
from toolgate.policy.compose import compose
from toolgate.policy.layers import SessionRequest, TaskPolicy, parse_task_policy
from toolgate.policy.learn import MAX_NAMED_OF_KIND, Lesson, encode_lesson, learn
from toolgate.policy.patterns import MAX_LISTED, MAX_PATTERN
from toolgate.policy.resolve import ScopeInputs, bind_task

FEW = settings(max_examples=rounds(suite=12, soak=17_000), database=None)

PLATFORM = snapshot(
    offer("git", "git_log", "git_commit", "prompt:review", allowed=("*", "prompt:*")),
    offer("mail", "send", "purge"),
    offer("time", "now"),
    profiles=(Profile(profile_id="p", selection=Selection(servers=("git", "time"), deny=("git_commit",))),),
)
TASK = TaskPolicy(
    task_id="t", enabled=True, default=("git", "time"), allowed=("git", "mail", "time"), deny=("purge",)
)


def reach(platform: Snapshot, task: TaskPolicy) -> set[ToolRef]:
    """All that any caller could get of the task."""
    every = SessionRequest(servers=tuple(bind_task(platform, task).allowed))
    asked = (SessionRequest(), every)
    return {ref for one in asked for ref in compose(ScopeInputs(platform, task=task, request=one)).refs}


def learned(used: tuple[ToolRef, ...], task: TaskPolicy = TASK) -> Lesson:
    return learn(PLATFORM, task, used)


@FEW
@given(seeds)
def test_what_was_used_passes_for_the_same_request_and_nothing_unused_is_left(seed: int) -> None:
    for maker, world in worlds(seed):
        if world.task is not None and world.task.enabled:
            before = scope_of(world)
            used = frozenset(ref for ref in before.refs if maker.pick((True, False)))
            lesson = learn(world.platform, world.task, used)
            after = scope_of(replace(world, task=lesson.policy))

            assert set(lesson.kept) == used
            assert set(after.refs) == used
            assert reach(world.platform, lesson.policy) <= used


@FEW
@given(seeds)
def test_what_was_used_against_rules_that_were_not_enforced_passes_once_they_are(seed: int) -> None:
    for maker, world in worlds(seed):
        if world.task is not None and world.task.enabled:
            lax = replace(world, task=replace(world.task, enforced=False))
            used = frozenset(ref for ref in scope_of(lax).refs if maker.pick((True, False)))
            lesson = learn(world.platform, lax.task, used)  # type: ignore[arg-type]

            assert lesson.policy.enforced
            assert set(lesson.kept) == used
            assert reach(world.platform, lesson.policy) == used
            if _names_allowed(world, lesson.policy):
                assert set(scope_of(replace(world, task=lesson.policy)).refs) == used


def _names_allowed(world: World, task: TaskPolicy) -> bool:
    """Which servers requests named is not known: one that names an unused one may be refused."""
    return set(world.request.servers or ()) <= bind_task(world.platform, task).allowed


def test_a_lesson_names_each_tool_and_prompt_and_keeps_what_the_task_says_otherwise() -> None:
    lesson = learned(refs("git/git_log", "mail/send", "git/prompt:review"))

    assert lesson.policy == replace(
        TASK, default=("git",), allow=("git/git_log", "mail/send", "prompt:git/review")
    )
    assert (lesson.newly_allowed, lesson.refused, lesson.gone, lesson.dropped) == ((), (), (), ())


def test_servers_of_which_nothing_was_used_may_still_be_named() -> None:
    """Else a request that names one among others would be denied whole."""
    task = replace(TASK, allowed=None)
    lesson = learned(refs("git/git_log"), task)
    scope = compose(
        ScopeInputs(PLATFORM, task=lesson.policy, request=SessionRequest(servers=("git", "time")))
    )

    assert (lesson.policy.default, lesson.policy.allowed) == (("git",), ("git", "time"))
    assert (scope.tools, scope.refusal) == (refs("git/git_log"), None)


def test_a_task_whose_servers_come_from_its_profile_keeps_the_profile() -> None:
    task = TaskPolicy(task_id="t", enabled=True, profile="p")

    assert learned(refs("git/git_log"), task).policy == replace(task, allow=("git/git_log",))


def test_where_nothing_was_used_nothing_is_left() -> None:
    lesson = learned(())

    assert (lesson.policy.default, lesson.policy.is_default_empty, lesson.policy.allow) == ((), True, ())
    assert reach(PLATFORM, lesson.policy) == set()


def test_what_the_rules_refuse_by_now_stays_refused_and_what_is_gone_is_reported() -> None:
    lesson = learned(refs("mail/purge", "mail/gone", "left/x", "mail/send"))

    assert lesson.policy.allow == ("mail/send",)
    assert [(one.tool, one.rule) for one in lesson.refused] == [("purge", "mcp.tool_denylist `purge`")]
    assert lesson.gone == refs("left/x", "mail/gone")


def test_what_was_used_stays_though_its_server_is_not_well_at_the_moment() -> None:
    platform = snapshot(
        offer("off", "x", enabled=False),
        offer("down", state="list_failed"),
        offer("odd", "kept", quarantined={"x": "no schema"}),
        offer("shut", "x", allowed=()),
    )
    ids = ("down", "odd", "off", "shut")
    task = TaskPolicy(task_id="t", enabled=True, default=ids, deny=("off/x",))
    lesson = learn(platform, task, refs(*(f"{one}/x" for one in ids)))

    assert lesson.kept == refs("down/x", "odd/x", "shut/x")
    assert [one.rule for one in lesson.refused] == ["mcp.tool_denylist `off/x`"]


def test_rules_that_were_not_enforced_and_would_deny_what_was_used_are_left_out() -> None:
    task = TaskPolicy(
        task_id="t",
        enabled=True,
        enforced=False,
        default=("git",),
        deny=("purge", "prune_*"),
        profile="p",
        overrides=Selection(allow=("git_log",)),
        tags=("blue",),
    )
    lesson = learned(refs("mail/purge", "git/git_commit"), task)

    assert lesson.policy == TaskPolicy(
        task_id="t",
        enabled=True,
        default=("git", "mail"),
        deny=("prune_*",),
        allow=("git/git_commit", "mail/purge"),
    )
    assert lesson.newly_allowed == refs("git/git_commit", "mail/purge")
    assert lesson.dropped == (
        "mcp.tool_denylist `purge`",
        "mcp.profile `p`",
        "mcp.profile_overrides",
        "mcp.tags",
    )


def test_a_profile_that_lets_through_what_was_used_stays_though_it_was_not_enforced() -> None:
    task = TaskPolicy(task_id="t", enabled=True, enforced=False, profile="p", deny=("now",))

    assert learned(refs("git/git_log"), task).policy == replace(task, enforced=True, allow=("git/git_log",))


def test_a_disabled_task_is_learned_and_stays_disabled() -> None:
    lesson = learned(refs("git/git_log"), replace(TASK, enabled=False))

    assert (lesson.kept, lesson.policy.enabled) == (refs("git/git_log"), False)


def test_too_many_resources_to_name_are_all_of_their_server() -> None:
    uris = [f"file:///{number}" for number in range(MAX_NAMED_OF_KIND + 1)]
    platform = snapshot(
        offer("files", "read", allowed=("*", "resource:*")), offer("few", "x", allowed=("*", "resource:*"))
    )
    task = TaskPolicy(task_id="t", enabled=True, default=("files", "few"))
    used = [ToolRef("files", f"resource:{uri}") for uri in uris]
    lesson = learn(platform, task, [*used, ToolRef("files", "read"), ToolRef("few", "resource:a:/b?c")])

    assert lesson.policy.allow == ("files/read", "resource:few/a:/b?c", "resource:files/*")
    assert lesson.widened == ("resource:files/*",)


def test_too_many_resources_to_name_are_never_more_than_the_task_had() -> None:
    used = [ToolRef("docs", f"resource:pub:/{number}") for number in range(MAX_NAMED_OF_KIND + 1)]
    platform = snapshot(offer("docs", allowed=("resource:*",)))
    allow = ("resource:docs/priv:/1", "resource:docs/pub:*")
    task = TaskPolicy(task_id="t", enabled=True, default=("docs",), allow=allow)
    lesson = learn(platform, task, used)

    assert lesson.policy.allow == ("resource:docs/pub:*",)
    assert lesson.widened == ("resource:docs/pub:*",)


def test_a_list_never_holds_more_than_it_may() -> None:
    names = tuple(f"tool_{number}" for number in range(MAX_LISTED))
    platform = snapshot(offer("many", *names), offer("few", "x"))
    task = TaskPolicy(task_id="t", enabled=True, default=("few", "many"))
    lesson = learn(platform, task, [ToolRef("few", "x"), *(ToolRef("many", name) for name in names)])

    assert lesson.policy.allow == ("few/x", "many/*")


def test_wildcards_in_names_never_add_up_to_more_than_a_list_may_hold() -> None:
    servers = [f"s{number}" for number in range(3)]
    platform = snapshot(*(offer(one, "x", allowed=("resource:*",)) for one in servers))
    task = TaskPolicy(task_id="t", enabled=True, default=tuple(servers))
    used = [ToolRef(one, f"resource:a:/{number}?") for one in servers for number in range(60)]
    lesson = learn(platform, task, used)

    assert len(lesson.widened) == 1
    assert set(lesson.kept) == set(used)


@pytest.mark.parametrize(
    ("name", "pattern"),
    [
        pytest.param("prompt:two words", "prompt:s/two?words", id="what no pattern may hold"),
        pytest.param(f"resource:a:/{'b' * 188}*", f"resource:s/a:/{'b' * 188}*", id="a name that was cut"),
        pytest.param("resource:a://***@b", "resource:s/a://*@b", id="a secret that is hidden"),
        pytest.param("prompt:*", "prompt:s/?", id="a name that looks like a pattern"),
        pytest.param("resource:a:/**/b?", "resource:s/a:/??/b?", id="a URI that looks like a pattern"),
        pytest.param("t" * 128, f"s/{'t' * (MAX_PATTERN - 3)}*", id="longer than a pattern"),
    ],
)
def test_a_name_that_cannot_be_written_as_it_is_still_passes(name: str, pattern: str) -> None:
    platform = snapshot(offer("s", name, allowed=("*", "prompt:*", "resource:*")))
    task = TaskPolicy(task_id="t", enabled=True, default=("s",))
    lesson = learn(platform, task, [ToolRef("s", name)])

    assert lesson.policy.allow == (pattern,)
    assert learn(platform, lesson.policy, lesson.kept).kept == lesson.kept


def test_a_lesson_is_written_into_the_config_and_the_rest_stays_as_it_was() -> None:
    config = {
        "mcp.enabled": " true",
        "mcp.enforce": "false",
        "mcp.default_server_ids": '["git"]',
        "mcp.tool_denylist": '["b",  "a"]',
        "mcp.profile_overrides": '{"tags": ["x"]}',
        "chat.mode": '"find"',
    }
    task = Task(task_id="t", config=config)
    before = parse_task_policy(task)
    lesson = learn(PLATFORM, before, refs("git/git_log", "mail/send"))
    written = encode_lesson(config, before, lesson.policy)

    assert parse_task_policy(replace(task, config=written)) == lesson.policy
    assert written == {
        "mcp.enabled": " true",
        "mcp.default_server_ids": json.dumps(["git", "mail"]).replace(" ", ""),
        "mcp.tool_denylist": '["b",  "a"]',
        "mcp.tool_allowlist": '["git/git_log","mail/send"]',
        "chat.mode": '"find"',
    }
