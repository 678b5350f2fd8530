"""`lint`: rules that match nothing, name what is not there, or cancel out."""

import json

import pytest

from tests.policy.worlds import offer, snapshot
from toolgate.model.principals import Ceiling, Key, Quotas
from toolgate.model.tasks import Environment, Profile, Selection, Task
from toolgate.model.tools import Snapshot
from toolgate.policy.lint import FindingCode, LintFinding, lint

SERVERS = (
    offer("fs", "read", "write", tags=("local",)),
    offer("git", "log", "push"),
    offer("off", "x", enabled=False),
    offer("slow", state="pending"),
)


def with_task(**config: object) -> Snapshot:
    """A platform with one task on `fs`, with more `mcp.` keys."""
    values = {"enabled": True, "default_server_ids": ["fs"], **config}
    texts = {f"mcp.{key}": json.dumps(value) for key, value in values.items()}
    return snapshot(*SERVERS, tasks=(Task(task_id="t", config=texts),))


def with_profile(selection: Selection, dev: Selection | None = None) -> Snapshot:
    environments: dict[Environment, Selection] = {} if dev is None else {"dev": dev}
    return snapshot(
        *SERVERS, profiles=(Profile(profile_id="p", selection=selection, environments=environments),)
    )


def with_key(ceiling: Ceiling, default_task: str | None = None) -> Snapshot:
    key = Key(key_id="k", sha256="", role="agent", ceiling=ceiling, default_task=default_task)
    return snapshot(*SERVERS, keys=(key,), tasks=(Task(task_id="t"), Task(task_id="u")))


def in_task(code: FindingCode, rule: str, subject: str, message: str) -> LintFinding:
    return LintFinding(code=code, kind="task", id="t", rule=rule, subject=subject, message=message)


def in_profile(code: FindingCode, rule: str, subject: str, message: str) -> LintFinding:
    return LintFinding(code=code, kind="profile", id="p", rule=rule, subject=subject, message=message)


def in_key(code: FindingCode, rule: str, subject: str, message: str) -> LintFinding:
    return LintFinding(code=code, kind="key", id="k", rule=rule, subject=subject, message=message)


@pytest.mark.parametrize(
    "platform",
    [
        pytest.param(snapshot(), id="an empty platform"),
        pytest.param(snapshot(*SERVERS), id="servers alone"),
        pytest.param(
            with_task(tool_allowlist=["r*"], tool_denylist=["fs/write"], tags=["local"]), id="a good task"
        ),
        pytest.param(
            with_task(default_server_ids=["slow"], tool_denylist=["any"]), id="a server not listed yet"
        ),
        pytest.param(with_task(enabled=False, default_server_ids=[]), id="a task that is off"),
        pytest.param(with_profile(Selection(servers=("git",), allow=("*",), deny=("push",))), id="a profile"),
        pytest.param(with_key(Ceiling(tasks=("t",), servers=("fs",), allow=("*",)), "t"), id="a good key"),
        pytest.param(with_key(Ceiling(), "u"), id="a key without a ceiling"),
    ],
)
def test_rules_that_do_what_they_say_are_not_complained_of(platform: Snapshot) -> None:
    assert lint(platform).findings == ()


@pytest.mark.parametrize(
    ("allowed", "expected"),
    [
        pytest.param(("read", "raed"), ["raed"], id="a slip of the pen"),
        pytest.param(("git/*", "fs/*"), ["git/*"], id="a pattern for another server"),
        pytest.param((), [], id="nothing allowed is a decision, not a slip"),
    ],
)
def test_allowed_tools_that_match_nothing_are_found(allowed: tuple[str, ...], expected: list[str]) -> None:
    findings = lint(snapshot(offer("fs", "read", allowed=allowed))).findings

    assert findings == tuple(
        LintFinding(
            code="matches_nothing",
            kind="server",
            id="fs",
            rule="allowed_tools",
            subject=text,
            message=f"no name matches `{text}`",
        )
        for text in expected
    )


def test_a_server_that_has_not_listed_its_tools_does_not_count_as_without_any() -> None:
    assert lint(snapshot(offer("fs", state="list_failed", allowed=("read",)))).findings == ()
    assert [
        one.subject for one in lint(snapshot(offer("fs", state="pending", allowed=("git/x",)))).findings
    ] == ["git/x"]


@pytest.mark.parametrize(
    ("platform", "expected"),
    [
        pytest.param(
            with_task(allowed_server_ids=["fs", "ghost"]),
            in_task("unknown_server", "mcp.allowed_server_ids", "ghost", "server `ghost` does not exist"),
            id="an allowed server that does not exist",
        ),
        pytest.param(
            with_task(default_server_ids=["fs", "ghost"]),
            in_task("unknown_server", "mcp.default_server_ids", "ghost", "server `ghost` does not exist"),
            id="a default server that does not exist",
        ),
        pytest.param(
            with_task(default_server_ids=["fs", "off"]),
            in_task("disabled_server", "mcp.default_server_ids", "off", "server `off` is disabled"),
            id="a default server that is disabled",
        ),
        pytest.param(
            with_task(tool_allowlist=["read", "log"]),
            in_task("matches_nothing", "mcp.tool_allowlist", "log", "no name matches `log`"),
            id="an allow that matches nothing on the task's servers",
        ),
        pytest.param(
            with_task(tool_denylist=["delete_*"]),
            in_task("matches_nothing", "mcp.tool_denylist", "delete_*", "no name matches `delete_*`"),
            id="a deny that matches nothing",
        ),
        pytest.param(
            with_task(tool_allowlist=["read", "w*"], tool_denylist=["write"]),
            in_task(
                "shadowed",
                "mcp.tool_allowlist",
                "w*",
                "`mcp.tool_denylist` denies everything that `w*` allows",
            ),
            id="a deny that takes all an allow gives",
        ),
        pytest.param(
            with_task(tags=["local", "remote"]),
            in_task("matches_nothing", "mcp.tags", "remote", "no server has the tag `remote`"),
            id="a tag no server has",
        ),
        pytest.param(
            with_task(profile="nowhere"),
            in_task(
                "unknown_profile",
                "mcp.profile",
                "nowhere",
                "profile `nowhere` does not exist, so no tool is allowed",
            ),
            id="a profile that does not exist",
        ),
        pytest.param(
            with_task(profile_overrides={"server_ids": ["ghost"]}),
            in_task(
                "unknown_server", "mcp.profile_overrides server_ids", "ghost", "server `ghost` does not exist"
            ),
            id="overrides",
        ),
        pytest.param(
            with_task(default_server_ids=[]),
            in_task("no_servers", "mcp.default_server_ids", "t", "the task is enabled and has no servers"),
            id="enabled without a server",
        ),
        pytest.param(
            snapshot(tasks=(Task(task_id="t", config={"mcp.x": "1"}),)),
            in_task("invalid_record", "config", "t", "task `t`: unknown key `mcp.x`"),
            id="a config that cannot be read",
        ),
        pytest.param(
            with_profile(Selection(servers=("fs", "ghost"))),
            in_profile("unknown_server", "servers", "ghost", "server `ghost` does not exist"),
            id="a profile's server",
        ),
        pytest.param(
            with_profile(Selection(servers=("fs",), allow=("log",))),
            in_profile("matches_nothing", "allow", "log", "no name matches `log`"),
            id="a profile's allow",
        ),
        pytest.param(
            with_profile(Selection(), Selection(tags=("remote",))),
            in_profile("matches_nothing", "dev tags", "remote", "no server has the tag `remote`"),
            id="a profile's selection for an environment",
        ),
        pytest.param(
            with_key(Ceiling(servers=("ghost",))),
            in_key("unknown_server", "key servers", "ghost", "server `ghost` does not exist"),
            id="a key's server",
        ),
        pytest.param(
            with_key(Ceiling(servers=("fs",), deny=("log",))),
            in_key("matches_nothing", "key deny", "log", "no name matches `log`"),
            id="a key's deny",
        ),
        pytest.param(
            with_key(Ceiling(tasks=("t", "v"))),
            in_key("unknown_task", "key tasks", "v", "task `v` does not exist"),
            id="a key's task",
        ),
        pytest.param(
            with_key(Ceiling(), "v"),
            in_key("unknown_task", "default_task", "v", "task `v` does not exist, or the key may not use it"),
            id="a key's default task",
        ),
        pytest.param(
            with_key(Ceiling(tasks=("u",)), "t"),
            in_key("unknown_task", "default_task", "t", "task `t` does not exist, or the key may not use it"),
            id="a default task outside the key's own",
        ),
    ],
)
def test_a_rule_that_does_nothing_is_found(platform: Snapshot, expected: LintFinding) -> None:
    assert lint(platform).findings == (expected,)


def test_findings_are_sorted_by_record_and_rule() -> None:
    task = Task(task_id="t", config={"mcp.tool_denylist": '["z", "y"]', "mcp.default_server_ids": '["fs"]'})
    platform = snapshot(
        offer("git", "log", allowed=("x",)),
        offer("fs", "read", allowed=("x",)),
        tasks=(task,),
        keys=(Key(key_id="k", sha256="", role="agent", default_task="v"),),
    )

    assert [(one.kind, one.id, one.subject) for one in lint(platform).findings] == [
        ("key", "k", "v"),
        ("server", "fs", "x"),
        ("server", "git", "x"),
        ("task", "t", "y"),
        ("task", "t", "z"),
    ]


@pytest.mark.parametrize(
    ("budgets", "subject"),
    [
        pytest.param({"calls_per_minute": 60}, None, id="only one"),
        pytest.param({"calls_per_minute": 60, "calls_per_day": 1_000}, None, id="both hold"),
        pytest.param(
            {"calls_per_minute": 60, "calls_per_day": 60}, "calls_per_minute", id="a day in a minute"
        ),
        pytest.param({"calls_per_minute": 1, "calls_per_day": 1_440}, "calls_per_day", id="no such day"),
    ],
)
def test_a_budget_that_another_is_always_used_up_before_is_found(
    budgets: dict[str, int], subject: str | None
) -> None:
    key = Key(key_id="k", sha256="", role="agent", budgets=Quotas(**budgets))
    of_key = lint(snapshot(*SERVERS, keys=(key,))).findings
    of_task = lint(with_task(budgets=budgets)).findings

    expected = [] if subject is None else [("shadowed", subject)]
    assert [(one.code, one.subject) for one in of_key] == expected
    assert [(one.code, one.subject) for one in of_task] == expected


def test_a_rule_that_only_unlisted_servers_could_match_is_not_judged() -> None:
    platform = snapshot(
        offer("fs", "read"),
        offer("slow", state="pending"),
        offer("late", state="list_failed"),
        offer("off", state="pending", enabled=False),
        tasks=(
            Task(
                task_id="t",
                config={
                    "mcp.enabled": "true",
                    "mcp.default_server_ids": '["fs", "slow", "late", "off"]',
                    "mcp.tool_allowlist": '["read", "slow/*", "write", "off/*"]',
                },
            ),
        ),
    )

    unjudged = [one for one in lint(platform).unjudged if one.kind == "task"]

    assert [(one.code, one.subject, one.message) for one in unjudged] == [
        ("not_judged", "slow/*", "server `slow` has not listed its tools (pending)"),
        ("not_judged", "write", "servers `late`, `slow` have not listed their tools"),
    ]
