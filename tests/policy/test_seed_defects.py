"""Defects known from an earlier implementation of the same policy, each as a test that it is not ours.

Those of its defects that are not about policy (processes, output, arguments, storage) are tested where
those things are built.
"""

import pytest

from tests.policy.worlds import offer, refs, snapshot
from toolgate.errors import InvalidParams, InvalidRecord
from toolgate.model.names import ToolRef
from toolgate.model.tasks import Task
from toolgate.model.tools import UNSTATED, Snapshot
from toolgate.policy.compose import compose, explain
from toolgate.policy.layers import SessionRequest, parse_session_params, parse_task_policy
from toolgate.policy.patterns import Patterns
from toolgate.policy.resolve import ScopeInputs
from toolgate.policy.scope import Reason, Scope

PLATFORM = snapshot(offer("fs", "read", "delete"), offer("other", "tool"))


def scope_of(config: dict[str, str], params: dict[str, object] | None = None) -> Scope:
    """The scope of a task with this config in a session with these parameters."""
    task = parse_task_policy(Task(task_id="t", config=config))
    return compose(ScopeInputs(PLATFORM, task=task, request=parse_session_params(params or {})))


@pytest.mark.requirement("000-05")
def test_defect_1_nothing_can_be_called_while_mcp_is_disabled_for_the_task() -> None:
    scope = scope_of({"mcp.default_server_ids": '["fs"]'})

    assert not set(scope.tools) & set(refs("fs/read", "fs/delete", "other/tool"))


def test_defect_1_a_registered_tool_outside_the_requested_servers_cannot_be_called() -> None:
    config = {
        "mcp.enabled": "true",
        "mcp.default_server_ids": '["fs"]',
        "mcp.allowed_server_ids": '["fs","other"]',
    }
    scope = scope_of(config, {"mcp.server_ids": ["fs"]})

    assert ToolRef("fs", "read") in scope.tools
    assert ToolRef("other", "tool") not in scope.tools


def test_defect_2_the_tasks_denylist_holds_when_its_default_is_empty_and_the_session_names_servers() -> None:
    config = {"mcp.enabled": "true", "mcp.allowed_server_ids": '["fs"]', "mcp.tool_denylist": '["delete"]'}
    scope = scope_of(config, {"mcp.server_ids": ["fs"]})

    assert scope.tools == refs("fs/read")


def test_defect_2_the_tasks_allowlist_holds_when_its_default_is_empty_and_the_session_names_servers() -> None:
    config = {"mcp.enabled": "true", "mcp.allowed_server_ids": '["fs"]', "mcp.tool_allowlist": '["read"]'}
    scope = scope_of(config, {"mcp.server_ids": ["fs"], "mcp.tool_allowlist": ["*"]})

    assert scope.tools == refs("fs/read")


@pytest.mark.parametrize(
    ("platform", "request_", "expected"),
    [
        pytest.param(
            snapshot(), SessionRequest(servers=("fs",)), Reason.UNKNOWN_SERVER, id="an unknown server"
        ),
        pytest.param(
            snapshot(offer("fs", "read", allowed=())),
            SessionRequest(),
            Reason.DENY_ALL,
            id="empty allowed_tools",
        ),
        pytest.param(
            snapshot(offer("fs", state="list_failed")),
            SessionRequest(),
            Reason.LIST_FAILED,
            id="a failed list",
        ),
        pytest.param(
            snapshot(offer("fs", state="list_timeout")),
            SessionRequest(),
            Reason.LIST_TIMEOUT,
            id="a slow list",
        ),
        pytest.param(
            snapshot(offer("fs", state="env_missing")),
            SessionRequest(),
            Reason.ENV_MISSING,
            id="a missing variable",
        ),
    ],
)
def test_defect_9_why_a_tool_is_missing_can_be_seen(
    platform: Snapshot, request_: SessionRequest, expected: Reason
) -> None:
    explanation = explain(ScopeInputs(platform, request=request_))

    assert [(one.server_id, one.reason) for one in explanation.servers] == [("fs", expected)]


@pytest.mark.parametrize("text", ['["a","b"', '["a",1]', "a,b", "a"])
def test_a_broken_list_is_never_split_at_its_commas(text: str) -> None:
    with pytest.raises(InvalidRecord, match=r"mcp\.allowed_server_ids"):
        parse_task_policy(Task(task_id="t", config={"mcp.allowed_server_ids": text}))


@pytest.mark.parametrize("text", ["yes", "on", "1", "True", " TRUE ", "maybe"])
def test_a_flag_that_is_not_json_is_neither_true_nor_silently_false(text: str) -> None:
    with pytest.raises(InvalidRecord, match=r"mcp\.enabled"):
        parse_task_policy(Task(task_id="t", config={"mcp.enabled": text}))


@pytest.mark.parametrize("key", ["mcp.server_ids", "mcp.tool_allowlist", "mcp.tool_denylist"])
@pytest.mark.parametrize("odd", [1, None, True, ["fs"], ""])
def test_an_odd_element_of_a_session_list_is_not_dropped_silently(key: str, odd: object) -> None:
    with pytest.raises(InvalidParams):
        parse_session_params({key: ["fs", odd]})


@pytest.mark.parametrize("config", [{"mcp.tool_allowlist": "[]"}, {"mcp.allowed_server_ids": "[]"}])
def test_an_empty_list_of_the_task_is_not_no_restriction(config: dict[str, str]) -> None:
    defaults = {} if "mcp.allowed_server_ids" in config else {"mcp.default_server_ids": '["fs"]'}

    assert scope_of({"mcp.enabled": "true", **defaults, **config}).tools == ()


def test_an_empty_list_of_the_session_is_not_no_restriction() -> None:
    config = {"mcp.enabled": "true", "mcp.default_server_ids": '["fs"]'}

    assert scope_of(config, {"mcp.tool_allowlist": []}).tools == ()
    assert scope_of(config, {"mcp.server_ids": []}).tools == ()


def test_a_request_outside_the_allowed_servers_is_not_cut_down_silently() -> None:
    config = {"mcp.enabled": "true", "mcp.default_server_ids": '["fs"]'}
    scope = scope_of(config, {"mcp.server_ids": ["fs", "other"]})

    assert scope.tools == ()
    assert scope.refusal is not None
    assert scope.refusal.code == "mcp_policy_denied"


@pytest.mark.parametrize(
    ("pattern", "name", "expected"),
    [
        pytest.param("*a", "*ba", True, id="the star still matches what comes before"),
        pytest.param("a*b", "a*cb", True, id="in the middle"),
        pytest.param("*read", "*", False, id="and is not used up by one"),
        pytest.param("read_*", "read_*", True, id="a name like the pattern"),
        pytest.param("?", "*", True, id="one character"),
        pytest.param("read", "*", False, id="a name is never a pattern"),
    ],
)
def test_a_star_in_a_tools_name_never_uses_up_the_patterns_star(
    pattern: str, name: str, expected: bool
) -> None:
    assert (
        Patterns([pattern]).first_match(ToolRef("fs", name), effects=UNSTATED, is_deny=False) is not None
    ) is expected


def test_a_question_mark_matches_one_character_of_any_alphabet() -> None:
    assert Patterns(["caf?"]).first_match(ToolRef("fs", "café"), effects=UNSTATED, is_deny=False) == "caf?"


def test_a_pattern_can_name_the_server_too() -> None:
    config = {
        "mcp.enabled": "true",
        "mcp.default_server_ids": '["fs","other"]',
        "mcp.tool_denylist": '["fs/*"]',
    }

    assert scope_of(config).tools == refs("other/tool")
