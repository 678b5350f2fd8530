"""`explain`: every registered tool, in or out, by which layer and rule."""

from dataclasses import replace

from tests.policy.worlds import offer, refs, snapshot
from toolgate.policy.compose import Explanation, OfferCount, compose, count_offer, explain
from toolgate.policy.layers import TaskPolicy
from toolgate.policy.resolve import ScopeInputs
from toolgate.policy.scope import Decision, Reason, ScopeLimits

PLATFORM = snapshot(
    offer("fs", "read", "write", allowed=("read",)),
    offer("git", "push", "log", quarantined={"bad": "no schema"}),
    offer("slow", state="pending"),
)
TASK = TaskPolicy(task_id="t", enabled=True, default=("fs", "ghost", "slow"))


def test_every_registered_tool_has_one_decision_and_so_has_a_server_that_does_not_exist() -> None:
    explanation = explain(ScopeInputs(PLATFORM, task=TASK))
    git = Decision(
        server_id="git",
        tool=None,
        allowed=False,
        layer="task",
        reason=Reason.NOT_ALLOWED_BY_TASK,
        rule="mcp.default_server_ids",
    )
    ghost = Decision(
        server_id="ghost",
        tool=None,
        allowed=False,
        layer="platform",
        reason=Reason.UNKNOWN_SERVER,
        rule="mcp.default_server_ids",
    )

    assert explanation == Explanation(
        scope=compose(ScopeInputs(PLATFORM, task=TASK)),
        tools=(
            Decision(
                server_id="fs",
                tool="read",
                allowed=True,
                layer="platform",
                reason=None,
                rule="allowed_tools `read`",
            ),
            Decision(
                server_id="fs",
                tool="write",
                allowed=False,
                layer="platform",
                reason=Reason.NOT_IN_SERVER_ALLOWLIST,
                rule="allowed_tools",
            ),
            replace(git, tool="bad"),
            replace(git, tool="log"),
            replace(git, tool="push"),
        ),
        servers=(ghost, git),
        pending=("slow",),
    )


def test_a_scope_refused_for_its_size_is_explained_by_what_the_rules_admit() -> None:
    explanation = explain(ScopeInputs(PLATFORM), limits=ScopeLimits(max_tools=1, on_too_many="refuse"))

    assert explanation.scope.refusal is not None
    assert explanation.scope.admitted == set(refs("fs/read", "git/log", "git/push"))
    assert [one.tool for one in explanation.tools if one.allowed] == ["read", "log", "push"]


def test_a_server_that_listed_nothing_is_not_pending() -> None:
    explanation = explain(ScopeInputs(snapshot(offer("fs"))))

    assert (explanation.tools, explanation.servers, explanation.pending) == ((), (), ())


def test_a_server_offers_what_no_layer_but_its_own_excludes() -> None:
    counts = {server_id: count_offer(PLATFORM, one) for server_id, one in PLATFORM.servers.items()}

    assert counts == {
        "fs": OfferCount(offered=1, listed=2, reason=Reason.NOT_IN_SERVER_ALLOWLIST),
        "git": OfferCount(offered=2, listed=3, reason=Reason.INVALID_DEFINITION),
        "slow": OfferCount(offered=0, listed=0, reason=None),
    }


def test_prompts_are_not_counted_as_tools_and_a_server_without_allowed_tools_says_why() -> None:
    denied = offer("fs", "read", "prompt:ask", allowed=())
    platform = snapshot(denied, offer("git", "log", "prompt:ask", allowed=("*", "prompt:*")))

    assert count_offer(platform, denied) == OfferCount(offered=0, listed=1, reason=Reason.DENY_ALL)
    assert count_offer(platform, platform.servers["git"]) == OfferCount(offered=1, listed=1, reason=None)
