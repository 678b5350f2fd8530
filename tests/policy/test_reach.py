"""How far tasks and keys reach, and what of that is not used."""

from dataclasses import replace

from tests.policy.worlds import TOKENS, offer, refs, snapshot
from toolgate.model.names import ToolRef
from toolgate.model.principals import Ceiling, Principal
from toolgate.model.tasks import Profile, Rollout, Selection, Task
from toolgate.policy.compose import compose_caller_scopes, compute_key_reach, compute_task_reach
from toolgate.policy.layers import parse_task_policy
from toolgate.policy.learn import UnusedTool, find_unused

REVIEW = Task(
    task_id="review",
    config={
        "mcp.enabled": "true",
        "mcp.default_server_ids": '["git"]',
        "mcp.allowed_server_ids": '["git", "mail"]',
    },
)
BROKEN = Task(task_id="broken", config={"mcp.enabled": "perhaps"})
PLATFORM = snapshot(
    offer("git", "log", "prompt:review", allowed=("*", "prompt:*")),
    offer("mail", "send"),
    offer("time", "now"),
    tasks=(REVIEW, BROKEN),
)
REACHED = frozenset(refs("git/log", "git/prompt:review", "mail/send"))


def test_a_task_reaches_what_requests_may_name_too() -> None:
    assert compute_task_reach(PLATFORM, parse_task_policy(REVIEW)) == REACHED


def test_a_task_that_is_not_enforced_reaches_everything() -> None:
    task = replace(parse_task_policy(REVIEW), enforced=False)

    assert compute_task_reach(PLATFORM, task) == REACHED | set(refs("time/now"))


def test_a_key_reaches_what_its_tasks_do_within_its_ceiling() -> None:
    tasks = ("review", "broken", "unwritten")

    assert compute_key_reach(PLATFORM, Ceiling()) == REACHED | set(refs("time/now"))
    assert compute_key_reach(PLATFORM, Ceiling(tasks=tasks)) == REACHED
    assert compute_key_reach(PLATFORM, Ceiling(tasks=tasks, servers=("mail", "time"))) == set(
        refs("mail/send")
    )
    assert compute_key_reach(PLATFORM, Ceiling(tasks=())) == frozenset()


def test_a_grant_is_weighed_by_the_tools_that_are_not_used() -> None:
    send = ToolRef("mail", "send")
    unused = find_unused(PLATFORM, REACHED, used=set(refs("git/log")), last_ms={send: 5})

    assert unused == [UnusedTool(*send, TOKENS, 5)]


def test_a_caller_reaches_what_its_own_versions_of_profiles_have() -> None:
    """While a profile is rolled out, a key reaches both versions at most, and each caller has one."""
    rollout = Rollout(version=2, share=100, selection=Selection(servers=("time",)))
    profile = Profile(profile_id="p", selection=Selection(servers=("mail",)), rollout=rollout)
    support = Task(task_id="support", config={"mcp.enabled": "true", "mcp.profile": '"p"'})
    platform = replace(PLATFORM, profiles={"p": profile}, tasks={"support": support})
    bound, free = Ceiling(tasks=("support",)), Ceiling(servers=("mail",))

    def own(ceiling: Ceiling) -> set[ToolRef]:
        caller = Principal(id="key:ada", role="agent", ceiling=ceiling)
        return {ref for scope in compose_caller_scopes(platform, caller) for ref in scope.admitted}

    assert compute_key_reach(platform, bound) == set(refs("mail/send", "time/now"))
    assert own(bound) == set(refs("time/now"))
    assert own(free) == set(refs("mail/send"))
