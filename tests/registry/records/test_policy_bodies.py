"""Tasks, profiles and keys: how their bodies become values, and what is refused."""

from typing import Any

import pytest

from toolgate.errors import InvalidRecord
from toolgate.model.principals import Ceiling, Key
from toolgate.model.tasks import Profile, Rollout, Selection, Task
from toolgate.registry.records.codec import encode_record, parse_record


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


def test_a_profile_has_its_next_version_while_that_is_rolled_out() -> None:
    body: dict[str, Any] = {
        "profile_id": "reading",
        "version": 4,
        "servers": ["fs"],
        "rollout": {"share": 10, "servers": ["fs", "git"], "environments": {"dev": {"allow": []}}},
    }

    found = parse_record("profile", "reading", body)

    assert found == Profile(
        profile_id="reading",
        version=4,
        selection=Selection(servers=("fs",)),
        rollout=Rollout(
            version=5,
            share=10,
            selection=Selection(servers=("fs", "git")),
            environments={"dev": Selection(allow=())},
        ),
    )
    assert encode_record(found) == {**body, "rollout": {"version": 5, **body["rollout"]}}


@pytest.mark.parametrize(
    ("rollout", "why"),
    [
        ({}, r"`rollout\.share`"),
        ({"share": 0}, r"`rollout\.share`"),
        ({"share": 101}, r"`rollout\.share`"),
        ({"share": 10.5}, r"`rollout\.share`"),
        ({"share": 10, "by": "region"}, r"`rollout\.by`"),
        ({"share": 10, "version": 4}, r"`rollout\.version` must be higher than the profile's version 4"),
        ({"share": 10, "rollout": {"share": 5}}, r"`rollout\.rollout`"),
        ({"share": 10, "servers": ["Bad Id"]}, r"`rollout\.servers\[0\]`"),
    ],
)
def test_a_rollout_that_means_nothing_is_refused(rollout: dict[str, Any], why: str) -> None:
    with pytest.raises(InvalidRecord, match=why):
        parse_record("profile", "p", {"version": 4, "rollout": rollout})


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
