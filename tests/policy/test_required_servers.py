"""Tasks that require a server: a scope without one is refused, with the reasons that its caller may see."""

from dataclasses import replace

import pytest

from tests.policy.worlds import offer, snapshot
from toolgate.model.principals import Ceiling
from toolgate.model.tools import Snapshot
from toolgate.policy.compose import compose
from toolgate.policy.layers import SessionRequest, TaskPolicy
from toolgate.policy.resolve import ALL_ON, Integrations, ScopeInputs
from toolgate.policy.scope import Refusal

OPEN = Ceiling()
ASK = SessionRequest()
TASK = TaskPolicy(task_id="t", enabled=True, default=("fs",))
NEEDY = replace(TASK, require_servers=True)
NONE_LEFT = "task `t` requires at least one MCP server, and no server is left"
OFF = snapshot(
    offer("fs", "read", enabled=False),
    offer("git", "log", state="ready", tags=("scm",)),
    offer("web", state="list_failed"),
    offer("bare"),
)


@pytest.mark.requirement("000-42")
@pytest.mark.parametrize(
    ("ceiling", "task", "request_", "why"),
    [
        pytest.param(OPEN, NEEDY, ASK, ": `fs` (server_disabled)", id="disabled"),
        pytest.param(
            OPEN,
            replace(NEEDY, default=("fs", "ghost", "web")),
            ASK,
            ": `fs` (server_disabled), `ghost` (unknown_server), `web` (list_failed)",
            id="each with its reason",
        ),
        pytest.param(OPEN, replace(NEEDY, default=()), ASK, "", id="no servers at all"),
        pytest.param(
            OPEN,
            replace(NEEDY, default=("git",), tags=("local",)),
            ASK,
            ": `git` (not_allowed_by_task)",
            id="not by the task",
        ),
        pytest.param(
            OPEN, replace(NEEDY, default=("bare",)), ASK, ": `bare` (no tool is allowed)", id="empty"
        ),
        pytest.param(
            OPEN,
            replace(NEEDY, default=("git",), deny=("*",)),
            ASK,
            ": `git` (no tool is allowed)",
            id="no tool",
        ),
        pytest.param(
            Ceiling(servers=("web",)),
            replace(NEEDY, default=("fs", "ghost", "web")),
            ASK,
            ": `web` (list_failed)",
            id="nothing of servers beyond the key",
        ),
        pytest.param(
            Ceiling(allow=("web/*",)), replace(NEEDY, default=("git",)), ASK, "", id="nor beyond its patterns"
        ),
        pytest.param(
            OPEN,
            replace(NEEDY, default=tuple(f"no{number:02}" for number in range(12))),
            ASK,
            ": " + ", ".join(f"`no{number:02}` (unknown_server)" for number in range(10)) + ", 2 more",
            id="ten by name",
        ),
        pytest.param(
            OPEN,
            replace(NEEDY, default=("fs", "git")),
            SessionRequest(servers=("fs",)),
            ": `fs` (server_disabled)",
            id="a request for less",
        ),
    ],
)
def test_a_task_that_requires_servers_refuses_a_scope_without_one_and_says_why(
    ceiling: Ceiling, task: TaskPolicy, request_: SessionRequest, why: str
) -> None:
    scope = compose(ScopeInputs(OFF, ceiling, task, request_))

    assert scope.refusal is not None
    assert (scope.refusal.code, scope.refusal.message) == ("mcp_policy_denied", NONE_LEFT + why)
    assert (scope.refs, scope.servers) == ((), ())


@pytest.mark.requirement("000-42")
@pytest.mark.parametrize(
    ("task", "request_"),
    [
        pytest.param(replace(NEEDY, default=("fs", "git")), ASK, id="one is left"),
        pytest.param(replace(NEEDY, enabled=False), ASK, id="a task without MCP"),
        pytest.param(NEEDY, SessionRequest(enabled=False), id="a session without MCP"),
        pytest.param(replace(NEEDY, enforced=False), SessionRequest(servers=("fs",)), id="not enforced"),
        pytest.param(TASK, ASK, id="not required"),
    ],
)
def test_otherwise_a_task_that_requires_servers_is_served_as_any(
    task: TaskPolicy, request_: SessionRequest
) -> None:
    assert compose(ScopeInputs(OFF, task=task, request=request_)).refusal is None


@pytest.mark.requirement("000-42")
def test_a_server_that_is_not_listed_yet_is_enough_for_a_task_that_requires_one() -> None:
    platform = snapshot(offer("fs", state="pending"))

    assert compose(ScopeInputs(platform, task=NEEDY, request=ASK)).refusal is None


@pytest.mark.parametrize(
    "ceiling",
    [
        pytest.param(Ceiling(servers=("web",)), id="by its servers"),
        pytest.param(Ceiling(allow=("web/*",)), id="by patterns for other servers"),
        pytest.param(Ceiling(allow=("none_such*",)), id="by patterns that nothing of it matches"),
        pytest.param(Ceiling(allow=("@read_only",)), id="by an effect that none of it has"),
        pytest.param(Ceiling(deny=("git/*",)), id="by a denial of all it has"),
        pytest.param(Ceiling(deny=("log",)), id="by a denial of each tool"),
        pytest.param(Ceiling(deny=("@destructive",)), id="by a denial of what it does not rule out"),
    ],
)
@pytest.mark.parametrize("integrations", [ALL_ON, Integrations("off")], ids=["on", "off"])
def test_a_server_that_the_key_hides_is_refused_with_the_words_of_one_that_does_not_exist(
    ceiling: Ceiling, integrations: Integrations
) -> None:
    task = replace(NEEDY, default=("git",))

    def refusal(platform: Snapshot) -> Refusal | None:
        return compose(ScopeInputs(platform, ceiling, task, ASK, integrations=integrations)).refusal

    hidden, absent = refusal(OFF), refusal(snapshot())

    assert hidden == absent
    assert hidden is not None
