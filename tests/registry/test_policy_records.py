"""Tasks, profiles and keys: how their bodies become values, and what is refused."""

from typing import Any

import pytest

from toolgate.errors import InvalidRecord
from toolgate.model.principals import Ceiling, Key
from toolgate.model.tasks import Profile, Selection, Task
from toolgate.registry.records import parse_record


def test_a_task_keeps_its_config_as_written() -> None:
    body: dict[str, Any] = {
        "task_id": "Code.Review-1",
        "display_name": "Code review",
        "config": {"mcp.enabled": "true", "mcp.default_server_ids": '["fs"]', "other": "not ours"},
    }

    assert parse_record("task", body["task_id"], body) == Task(
        task_id="Code.Review-1", display_name="Code review", config=body["config"]
    )


@pytest.mark.parametrize(
    "config",
    [
        pytest.param({"mcp.enabled": "yes"}, id="not JSON"),
        pytest.param({"mcp.enabled": True}, id="not text"),
        pytest.param({"mcp.default_server_ids": '["a"'}, id="broken list"),
        pytest.param(
            {"mcp.default_server_ids": '["a"]', "mcp.allowed_server_ids": "[]"}, id="default not allowed"
        ),
        pytest.param({"mcp.colour": "1"}, id="unknown key"),
        pytest.param({"x": "\ud800"}, id="lone surrogate"),
    ],
)
def test_a_task_with_a_policy_that_cannot_be_read_is_refused(config: dict[str, Any]) -> None:
    with pytest.raises(InvalidRecord):
        parse_record("task", "t", {"config": config})


@pytest.mark.requirement("000-31")
def test_a_profile_has_a_common_selection_and_one_per_environment() -> None:
    body = {
        "profile_id": "reading",
        "servers": ["fs"],
        "allow": [],
        "environments": {"prod": {"tags": ["safe"], "deny": ["*delete*"]}},
    }

    assert parse_record("profile", "reading", body) == Profile(
        profile_id="reading",
        selection=Selection(servers=("fs",), allow=()),
        environments={"prod": Selection(tags=("safe",), deny=("*delete*",))},
    )


@pytest.mark.parametrize("field", ["allow", "deny", "servers", "tags"])
def test_sco_9_a_profile_with_lists_without_end_is_refused(field: str) -> None:
    with pytest.raises(InvalidRecord, match=f"`{field}`: "):
        parse_record("profile", "p", {"profile_id": "p", field: [f"a{number}" for number in range(2_001)]})


def test_a_profile_for_an_unknown_environment_is_refused() -> None:
    with pytest.raises(InvalidRecord, match=r"`environments\.test`"):
        parse_record("profile", "reading", {"environments": {"test": {}}})


def test_a_key_is_read_with_its_ceiling() -> None:
    body = {
        "key_id": "ci",
        "sha256": "0" * 64,
        "role": "agent",
        "ceiling": {"tasks": ["t"], "servers": [], "deny": ["x"]},
        "default_task": "t",
        "expires_at_s": 1_900_000_000,
    }

    assert parse_record("key", "ci", body) == Key(
        key_id="ci",
        sha256="0" * 64,
        role="agent",
        ceiling=Ceiling(tasks=("t",), servers=(), deny=("x",)),
        default_task="t",
        expires_at_s=1_900_000_000,
    )


@pytest.mark.parametrize(
    ("field", "value"),
    [
        pytest.param("sha256", "0" * 63, id="short hash"),
        pytest.param("sha256", "the key itself", id="the key instead of its hash"),
        pytest.param("role", "root", id="unknown role"),
        pytest.param("key_id", "a:b", id="bad name"),
        pytest.param("expires_at_s", -1, id="negative time"),
        pytest.param("ceiling", {"servers": ["A"]}, id="bad server id"),
    ],
)
def test_a_key_that_breaks_a_rule_is_refused(field: str, value: object) -> None:
    body: dict[str, Any] = {"key_id": "ci", "sha256": "0" * 64, "role": "agent", field: value}

    with pytest.raises(InvalidRecord, match=field):
        parse_record("key", body["key_id"], body)
