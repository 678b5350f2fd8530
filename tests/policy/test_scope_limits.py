"""How large a scope may be."""

from dataclasses import replace

import pytest

from tests.policy.worlds import TOKENS, offer, refs, snapshot
from toolgate.policy.compose import compose
from toolgate.policy.layers import SessionRequest, TaskPolicy
from toolgate.policy.resolve import ScopeInputs
from toolgate.policy.scope import NO_LIMITS, Refusal, Scope, ScopeLimits

PLATFORM = snapshot(offer("fs", "list", "read", "write"))
TOOLS = refs("fs/list", "fs/read", "fs/write")
HINT = "narrow the scope with `?tools=`, `?servers=`, a task or a profile, or search it with `?mode=find`"


def scope_within(limits: ScopeLimits, request: SessionRequest | None = None) -> Scope:
    return compose(ScopeInputs(PLATFORM, request=request or SessionRequest()), limits=limits)


def test_the_limits_unless_set_otherwise() -> None:
    assert ScopeLimits() == ScopeLimits(max_tools=128, max_definition_tokens=None, on_too_many="find")


@pytest.mark.parametrize(
    "limits",
    [ScopeLimits(max_tools=3), ScopeLimits(max_definition_tokens=3 * TOKENS)],
    ids=["tools", "tokens"],
)
def test_a_scope_may_be_as_large_as_its_limit(limits: ScopeLimits) -> None:
    scope = scope_within(limits)

    assert (scope.tools, scope.tokens, scope.refusal, scope.is_searchable) == (TOOLS, 3 * TOKENS, None, False)


@pytest.mark.requirement("004-26")
@pytest.mark.parametrize(
    ("limits", "message"),
    [
        pytest.param(
            ScopeLimits(max_tools=1), "the scope has 3 tools, 2 more than `max_tools` 1", id="tools"
        ),
        pytest.param(
            ScopeLimits(max_definition_tokens=25),
            "the scope has definitions of 30 tokens, 5 more than `max_definition_tokens` 25",
            id="tokens",
        ),
        pytest.param(
            ScopeLimits(max_tools=2, max_definition_tokens=25),
            "the scope has 3 tools, 1 more than `max_tools` 2",
            id="both",
        ),
    ],
)
def test_a_larger_scope_is_refused_whole_and_says_by_how_much(limits: ScopeLimits, message: str) -> None:
    scope = scope_within(replace(limits, on_too_many="refuse"))

    assert scope.refusal == Refusal(code="too_many_tools", message=message, hint=HINT)
    assert (scope.tools, scope.servers, scope.tokens, scope.warnings) == ((), (), 0, ())
    assert TOOLS[0] not in scope.tools


def test_a_scope_refused_for_its_size_still_shows_what_the_rules_admit() -> None:
    scope = scope_within(ScopeLimits(max_tools=1, on_too_many="refuse"))

    assert scope.admitted == set(TOOLS)


def test_a_larger_scope_is_made_searchable_loses_nothing_and_says_how_to_narrow_it() -> None:
    scope = scope_within(ScopeLimits(max_tools=1))

    assert (scope.tools, scope.refusal, scope.is_searchable) == (TOOLS, None, True)
    assert scope.servers == ("fs",)
    assert scope.tokens == 3 * TOKENS
    assert scope.warnings == (
        (
            "the scope has 3 tools, 2 more than `max_tools` 1: clients search its tools instead of listing "
            "them, and can still call each by name. To list them, narrow the scope with `?tools=`, "
            "`?servers=`, a task or a profile"
        ),
    )


def test_without_limits_no_scope_is_too_large() -> None:
    scope = scope_within(NO_LIMITS)

    assert (scope.tools, scope.is_searchable, scope.warnings) == (TOOLS, False, ())


def test_a_narrower_request_brings_a_scope_under_its_limit() -> None:
    scope = scope_within(ScopeLimits(max_tools=1), SessionRequest(tools=("fs/read",)))

    assert (scope.tools, scope.refusal) == (refs("fs/read"), None)


def test_a_request_the_task_refuses_is_refused_for_that_and_not_for_its_size() -> None:
    task = TaskPolicy(task_id="t", enabled=True, default=("fs",))
    scope = compose(
        ScopeInputs(PLATFORM, task=task, request=SessionRequest(servers=("git",))),
        limits=ScopeLimits(max_tools=0),
    )

    assert scope.refusal is not None
    assert scope.refusal.code == "mcp_policy_denied"
