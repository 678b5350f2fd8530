"""`Task.config`: read exactly, or refused with the key and the reason."""

import json

import pytest

from toolgate.errors import InvalidRecord
from toolgate.model.principals import Quotas
from toolgate.model.tasks import Selection, Task
from toolgate.policy.layers import TaskPolicy, parse_task_policy
from toolgate.policy.patterns import MAX_LISTED, MAX_LISTED_WILDCARDS


def parse(**config: str) -> TaskPolicy:
    """The policy of a task with these `mcp.` keys."""
    return parse_task_policy(Task(task_id="t", config={f"mcp.{key}": text for key, text in config.items()}))


@pytest.mark.requirement("000-05")
def test_a_task_without_mcp_keys_is_disabled_and_empty() -> None:
    task = Task(task_id="t", config={"model": "not JSON", "mcpx": "["})

    assert parse_task_policy(task) == TaskPolicy(task_id="t")


def test_every_key_is_read() -> None:
    policy = parse(
        enabled="true",
        default_server_ids='["git", "fs"]',
        allowed_server_ids='["fs", "git", "time"]',
        tool_allowlist='["read_*", "git/*"]',
        tool_denylist='["*_delete"]',
        profile='"code-review"',
        profile_overrides='{"server_ids": ["fs"], "tags": ["scm"], "tool_allowlist": ["*"], '
        '"tool_denylist": ["x"]}',
        tags='["scm", "local"]',
    )

    assert policy == TaskPolicy(
        task_id="t",
        enabled=True,
        default=("fs", "git"),
        allowed=("fs", "git", "time"),
        allow=("git/*", "read_*"),
        deny=("*_delete",),
        profile="code-review",
        overrides=Selection(servers=("fs",), tags=("scm",), allow=("*",), deny=("x",)),
        tags=("local", "scm"),
    )


@pytest.mark.requirement("000-19")
@pytest.mark.parametrize(
    ("key", "text", "expected"),
    [
        pytest.param("enabled", "false", TaskPolicy(task_id="t"), id="false"),
        pytest.param(
            "enabled", " true\n", TaskPolicy(task_id="t", enabled=True), id="JSON may have space around"
        ),
        pytest.param(
            "default_server_ids", "[]", TaskPolicy(task_id="t", is_default_empty=True), id="an empty default"
        ),
        pytest.param("allowed_server_ids", "[]", TaskPolicy(task_id="t", allowed=()), id="nothing allowed"),
        pytest.param("tool_allowlist", "[]", TaskPolicy(task_id="t", allow=()), id="an empty allowlist"),
        pytest.param("tool_denylist", "[]", TaskPolicy(task_id="t"), id="an empty denylist"),
        pytest.param("tags", "[]", TaskPolicy(task_id="t", tags=()), id="no tag will do"),
        pytest.param("profile_overrides", "{}", TaskPolicy(task_id="t"), id="no overrides"),
        pytest.param(
            "profile_overrides",
            '{"tool_allowlist": []}',
            TaskPolicy(task_id="t", overrides=Selection(allow=())),
            id="an empty list in the overrides",
        ),
    ],
)
def test_absent_and_empty_differ(key: str, text: str, expected: TaskPolicy) -> None:
    assert parse(**{key: text}) == expected


@pytest.mark.requirement("000-18")
@pytest.mark.parametrize(
    "text", ["True", "TRUE", "1", "0", "yes", "on", '"true"', "null", "", "[true]", "true,"]
)
def test_a_flag_is_the_json_true_or_false_and_nothing_else(text: str) -> None:
    with pytest.raises(InvalidRecord, match=r"task `t`: `mcp\.enabled`: invalid value"):
        parse(enabled=text)


LISTS = ("default_server_ids", "allowed_server_ids", "tool_allowlist", "tool_denylist", "tags")


@pytest.mark.requirement("000-19")
@pytest.mark.parametrize("key", LISTS)
@pytest.mark.parametrize(
    "text",
    [
        "",
        "fs",
        "fs,git",
        '["fs","git"',
        '["fs",1]',
        '["fs",null]',
        '"fs"',
        "{}",
        "null",
        '[["fs"]]',
        "\ud800",
    ],
)
def test_a_list_is_a_json_array_of_strings_and_nothing_else(key: str, text: str) -> None:
    with pytest.raises(InvalidRecord, match=rf"task `t`: `mcp\.{key}`: invalid value"):
        parse(**{key: text})


@pytest.mark.parametrize(
    ("key", "text", "expected"),
    [
        pytest.param(
            "enabled",
            "yes",
            "task `t`: `mcp.enabled`: invalid value: JSON is malformed: invalid character (byte 0)",
            id="not JSON",
        ),
        pytest.param(
            "tool_allowlist",
            '["read_*", 7]',
            "task `t`: `mcp.tool_allowlist`: invalid value: Expected `str`, got `int` - at `$[1]`",
            id="an element that is no string",
        ),
        pytest.param(
            "tool_denylist",
            '["read file"]',
            "task `t`: `mcp.tool_denylist`: the pattern `read file` contains a space or "
            "an invisible character",
            id="an element that is no pattern",
        ),
        pytest.param(
            "default_server_ids",
            '["FS"]',
            "task `t`: `mcp.default_server_ids`: invalid server id `FS`",
            id="an element that is no server id",
        ),
        pytest.param(
            "default_server_ids",
            '[" fs"]',
            "task `t`: `mcp.default_server_ids`: invalid server id ` fs`",
            id="elements are not trimmed",
        ),
        pytest.param(
            "allowed_server_ids",
            '[""]',
            "task `t`: `mcp.allowed_server_ids`: invalid server id ``",
            id="empty elements are not dropped",
        ),
        pytest.param("tags", '["a\\u0000"]', "task `t`: `mcp.tags`: invalid tag `a\\x00`", id="no tag"),
        pytest.param("tags", '[""]', "task `t`: `mcp.tags`: invalid tag ``", id="an empty tag"),
        pytest.param("profile", '"a b"', "task `t`: `mcp.profile`: invalid id `a b`", id="no profile name"),
        pytest.param(
            "profile",
            "review",
            "task `t`: `mcp.profile`: invalid value: JSON is malformed: invalid character (byte 0)",
            id="a name without quotes",
        ),
        pytest.param(
            "profile_overrides",
            '{"servers": ["fs"]}',
            "task `t`: `mcp.profile_overrides`: invalid value: Object contains unknown field `servers`",
            id="an unknown name in the overrides",
        ),
        pytest.param(
            "profile_overrides",
            '{"tool_denylist": null}',
            "task `t`: `mcp.profile_overrides`: invalid value: "
            "Expected `array`, got `null` - at `$.tool_denylist`",
            id="a null is not an absent list",
        ),
        pytest.param(
            "profile_overrides",
            '{"tool_denylist": ["a"], "tool_denylist": []}',
            "task `t`: `mcp.profile_overrides`: duplicate name in the object",
            id="a name twice in the overrides",
        ),
        pytest.param(
            "profile_overrides",
            '{"server_ids": ["a.b"]}',
            "task `t`: `mcp.profile_overrides`: invalid server id `a.b`",
            id="no server id in the overrides",
        ),
        pytest.param(
            "tool_allow_list",
            "[]",
            "task `t`: unknown key `mcp.tool_allow_list`",
            id="an unknown key is not passed over",
        ),
        pytest.param(
            "a\x1b[2J",
            "[]",
            "task `t`: unknown key `mcp.a\\x1b[2J`",
            id="an unknown key is shown harmless",
        ),
    ],
)
def test_an_error_has_the_key_and_the_reason(key: str, text: str, expected: str) -> None:
    with pytest.raises(InvalidRecord) as caught:
        parse(**{key: text})

    assert str(caught.value) == expected


@pytest.mark.parametrize(
    ("key", "expected"),
    [
        ("enabled", "write `true` or `false`"),
        ("tags", 'write a JSON array of strings, like `["a", "b"]`'),
        ("profile", 'write a JSON string, like `"code-review"`'),
        ("profile_overrides", 'write a JSON object, like `{"tool_denylist": ["delete_*"]}`'),
    ],
)
def test_the_hint_says_what_to_write_instead(key: str, expected: str) -> None:
    with pytest.raises(InvalidRecord) as caught:
        parse(**{key: "?"})

    assert caught.value.hint == expected


@pytest.mark.requirement("000-21")
def test_the_default_must_lie_within_the_allowed_servers() -> None:
    with pytest.raises(InvalidRecord) as caught:
        parse(default_server_ids='["fs", "git"]', allowed_server_ids='["fs"]')

    assert str(caught.value) == (
        "task `t`: `mcp.default_server_ids`: `git` is not in `mcp.allowed_server_ids`"
    )


@pytest.mark.parametrize("key", ["tool_allowlist", "tool_denylist", "profile_overrides"])
def test_sco_9_more_patterns_than_can_be_held_against_thousands_of_tools_are_refused(key: str) -> None:
    def texts(patterns: list[str]) -> dict[str, str]:
        value: object = {"tool_denylist": patterns} if key == "profile_overrides" else patterns
        return {key: json.dumps(value)}

    most = [f"*{number}" for number in range(MAX_LISTED_WILDCARDS)]
    parse(**texts(most))
    with pytest.raises(InvalidRecord, match=f"`mcp.{key}`: the list has 129 patterns with wildcards"):
        parse(**texts([*most, "*"]))
    with pytest.raises(InvalidRecord, match=f"`mcp.{key}`: the list has 2001 patterns"):
        parse(**texts([str(number) for number in range(MAX_LISTED + 1)]))


def test_deeply_nested_text_is_refused_like_any_other() -> None:
    with pytest.raises(InvalidRecord):
        parse(profile_overrides='{"tags":' + "[" * 100_000)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param("{}", None, id="none"),
        pytest.param('{"calls_per_minute": 60}', Quotas(calls_per_minute=60), id="one"),
        pytest.param(
            '{"calls_per_minute": 1, "calls_per_day": 2, "tokens_per_day": 1000000000000}',
            Quotas(1, 2, 10**12),
            id="all",
        ),
    ],
)
def test_budgets_over_time_are_read(text: str, expected: Quotas | None) -> None:
    assert parse(budgets=text) == TaskPolicy(task_id="t", budgets=expected)


@pytest.mark.parametrize(
    "text",
    [
        "60",
        '{"calls_per_minute": 0}',
        '{"calls_per_day": -1}',
        '{"tokens_per_day": NaN}',
        '{"tokens_per_day": 1e18}',
        '{"calls_per_minute": 1.5}',
        '{"calls_per_minute": "60"}',
        '{"calls_per_minute": true}',
        '{"calls_per_minute": null}',
        '{"calls_per_second": 1}',
        '{"calls_per_day": 1, "calls_per_day": 9}',
    ],
)
def test_bud_7_what_is_no_budget_over_time_is_refused(text: str) -> None:
    with pytest.raises(InvalidRecord) as refused:
        parse(budgets=text)

    assert str(refused.value).startswith("task `t`: `mcp.budgets`: ")
