"""What people see, whole, at 80 columns."""

from typing import Any

import pytest

from tests.cli.responses import decision, explanation, health, server, tools
from tests.cli.screen import shown
from toolgate.cli.demo.demo import render_demo
from toolgate.cli.render.changes import render_applied, render_lint, render_reload
from toolgate.cli.render.records import (
    render_keys,
    render_new_key,
    render_profiles,
    render_task,
    render_tasks,
    render_versions,
)
from toolgate.cli.render.scope import render_explanation, render_tools
from toolgate.cli.render.servers import (
    render_refreshed,
    render_server,
    render_servers,
    render_test,
)


def test_servers_are_listed_with_their_troubles_under_them() -> None:
    servers = [
        server(tags=["code", "local"]),
        server(
            "web", transport="streamable_http", health=health(state="down", tools=0, last_error="no route")
        ),
        server("odd", allowed_tools=[], health=health(quarantined=2)),
        server("new", transport="http_sse_legacy", health=None),
    ]

    assert shown(render_servers(servers)) == [
        "SERVER  STATE      TOOLS  CALLS  VIA    TAGS",
        "git     connected     12      7  stdio  code, local",
        "web     down           0      7  http",
        "odd     connected     12      7  stdio",
        "new     unknown        0      0  sse",
        "",
        "web: no route",
        "odd: 2 definitions rejected; see `toolgate servers tools odd`",
        "odd: no tools are allowed: set `allowed_tools`",
    ]


def test_an_empty_registry_says_how_to_fill_it() -> None:
    assert shown(render_servers([])) == ["no servers: add one with `toolgate servers add NAME -- COMMAND`"]
    assert shown(render_tasks([])) == ["no tasks: add one with `toolgate tasks apply -f FILE`"]
    assert shown(render_profiles([])) == ["no profiles: add one with `toolgate profiles apply -f FILE`"]
    assert shown(render_keys([], 0)) == ["no keys: create one with `toolgate keys create NAME --role agent`"]


@pytest.mark.parametrize(
    ("sharing", "expected"),
    [("shared", []), ("per_session", ["connections    one per session, 3 open"])],
)
def test_a_server_shows_whether_sessions_have_connections_of_their_own(
    sharing: str, expected: list[str]
) -> None:
    lines = shown(render_server(server(sharing=sharing, health=health(session_links=3))))

    assert [line for line in lines if line.startswith("connections")] == expected


def test_one_server_is_shown_in_full_and_its_last_words_escaped() -> None:
    one = server(
        display_name="Git",
        tags=["code"],
        budgets={"tool_timeout_ms": 30_000, "max_concurrency": 16},
        stdio={"command": "mcp-server-git", "args": ["--repository", "."], "env": {"TOKEN": "***"}},
        health=health(
            state="degraded",
            last_error="it went away",
            restarts=2,
            stderr_tail="a\n\x1b[2Jb\n",
            verified_ms=1_700_000_000_000,
        ),
    )

    assert shown(render_server(one)) == [
        "server         git",
        "name           Git",
        "state          degraded",
        "last error     it went away",
        "command        mcp-server-git --repository .",
        "environment    TOKEN",
        "allowed tools  *",
        "tools          12",
        "tools listed   2023-11-14 22:13 UTC, not verified since",
        "tags           code",
        "budgets        tool_timeout_ms 30,000, max_concurrency 16",
        "protocol       2026-07-28",
        "process        4711",
        "restarts       2",
        "revision       3",
        "",
        "last output:",
        "  a",
        "  \\x1b[2Jb",
    ]


def test_a_server_behind_a_url_shows_the_url() -> None:
    one = server(transport="streamable_http", http={"url": "https://mcp.example/x"}, health=None)

    assert "url            https://mcp.example/x" in shown(render_server(one))


REPORT: dict[str, Any] = {
    "ok": True,
    "connect_ms": 12,
    "list_ms": 3,
    "era": "modern",
    "version": "2026-07-28",
    "tools": ["git_log", "git_show"],
    "quarantined": {"bad": "its schema is too deep"},
    "error": "",
    "stderr_tail": "",
}


def test_a_good_test_names_the_tools_and_what_was_refused() -> None:
    assert shown(render_test("git", REPORT)) == [
        "✓ git: 2 tools, connected in 12 ms, listed in 3 ms, protocol 2026-07-28",
        "",
        "  git_log, git_show",
        "",
        "rejected definitions:",
        "  bad: its schema is too deep",
    ]


def test_a_failed_test_says_why_with_the_output_of_the_server() -> None:
    report = {
        **REPORT,
        "ok": False,
        "error": "there is no command `gitt` on its PATH",
        "stderr_tail": "oops\n",
    }

    assert shown(render_test("git", report)) == [
        "✗ git: there is no command `gitt` on its PATH",
        "",
        "last output:",
        "  oops",
    ]


def test_a_refreshed_server_shows_what_it_has_now() -> None:
    response = {"server_id": "git", "health": health(), "tools": ["git_log"], "quarantined": {}}
    failed = {
        "server_id": "git",
        "health": health(state="down", last_error="gone"),
        "tools": [],
        "quarantined": {},
    }

    assert shown(render_refreshed(response)) == ["git: connected, 1 tool", "", "  git_log"]
    assert shown(render_refreshed(failed)) == ["git: down, 0 tools", "  gone"]


def test_a_write_shows_its_revision_and_warnings() -> None:
    response = {"revision": 9, "warnings": ["task `x` names no server"]}

    assert shown(render_applied("task", "x", response)) == [
        "✓ task x (revision 9)",
        "warning: task `x` names no server",
    ]


def test_tools_are_listed_with_tokens_rules_and_what_is_saved() -> None:
    assert shown(render_tools(tools("git.git_log", "time.convert_time"))) == [
        "TOOL               TOKENS  ALLOWED BY",
        "git.git_log           100  task `review`: mcp.tool_allowlist",
        "time.convert_time     100  task `review`: mcp.tool_allowlist",
        "",
        "2 tools of 31, 200 of 4,000 tokens, 95% less",
        "at http://127.0.0.1:8080/api/mcp/t/review",
    ]


def test_an_explanation_shows_what_the_server_calls_a_tool_that_has_an_alias() -> None:
    aliased = {**decision("git", "list_files_ea3cdaac"), "native_name": "list files"}

    assert "list_files_ea3cdaac (`list files`)" in "\n".join(shown(render_explanation(explanation(aliased))))


def test_find_mode_is_shown() -> None:
    found = {**tools("git.git_log"), "mode": "find"}
    explained = {**explanation(decision("git", "git_log")), "mode": "find"}

    how = "mode find: clients see three tools, which find and call these"
    assert shown(render_tools(found))[-1] == how
    assert shown(render_explanation(explained))[0] == how


def test_an_explanation_groups_tools_by_the_rule_that_decided() -> None:
    response = explanation(
        decision("git", "git_log"),
        decision("git", "git_show"),
        decision("git", "git_add", "not_in_task_allowlist"),
        decision("git", "git_reset", "denied_by_task", rule="mcp.tool_denylist: git_reset"),
        decision("shop", "get_order", "not_requested", rule="mcp.default_server_ids"),
        decision("shop", "refund_order", "not_requested", rule="mcp.default_server_ids"),
        decision("shop", None, "not_requested", rule="mcp.default_server_ids"),
        warnings=["a rule matches nothing"],
    )

    assert shown(render_explanation(response)) == [
        "2 tools visible",
        "SERVER  TOOLS              ALLOWED BY",
        "git     git_log, git_show  task: mcp.tool_allowlist",
        "",
        "4 tools, 1 whole server hidden",
        "SERVER  TOOLS          HIDDEN BY",
        "git     git_add        task: not_in_task_allowlist",
        "                       mcp.tool_allowlist",
        "git     git_reset      task: denied_by_task",
        "                       mcp.tool_denylist: git_reset",
        "shop    all 2 of them  task: not_requested",
        "                       mcp.default_server_ids",
        "",
        "warning: a rule matches nothing",
    ]


def test_an_explanation_counts_each_kind_for_itself() -> None:
    response = explanation(
        decision("git", "git_log"),
        decision("git", "prompt:review"),
        decision("git", "prompt:bye", "denied_by_task"),
        decision("git", "resource:file:///a", "denied_by_task"),
        decision("git", "resource:file:///b", "denied_by_task"),
    )
    lines = shown(render_explanation(response))

    assert lines[0] == "1 tool, 1 prompt visible"
    assert "1 prompt, 2 resources hidden" in lines
    assert [line.split()[1] for line in lines if line.startswith("SERVER")] == ["NAMES", "NAMES"]


def test_a_refusal_comes_first_with_what_to_do() -> None:
    refusal = {"code": "too_many_tools", "message": "131 tools are more than 128", "hint": "narrow the scope"}

    assert shown(render_explanation(explanation(refusal=refusal))) == [
        "refused: 131 tools are more than 128",
        "    try: narrow the scope",
        "",
        "0 tools visible",
    ]


def test_lint_shows_where_and_what() -> None:
    finding = {"where": "task `review`", "rule": "mcp.tool_denylist", "message": "`x_*` matches no tool"}

    assert shown(render_lint([finding])) == [
        "WHERE          RULE               FINDING",
        "task `review`  mcp.tool_denylist  `x_*` matches no tool",
    ]
    assert shown(render_lint([])) == ["✓ every rule matches something"]


def test_a_reload_shows_changes_warnings_and_problems() -> None:
    response = {"applied": ["+ server git"], "warnings": ["a link"], "problems": ["x.toml:3: no value"]}

    assert shown(render_reload(response, is_dry_run=True)) == [
        "1 change planned",
        "  + server git",
        "",
        "warning: a link",
        "",
        "problem: x.toml:3: no value",
    ]


def test_tasks_profiles_and_keys_have_a_line_each() -> None:
    tasks = [
        {
            "task_id": "review",
            "display_name": "Code review",
            "config": {"mcp.enabled": "true", "mcp.default_server_ids": '["git"]'},
        },
        {"task_id": "old", "display_name": "", "config": {"mcp.profile": '"code"'}},
        {"task_id": "bare", "display_name": "", "config": {}},
    ]
    profiles: list[dict[str, Any]] = [
        {"profile_id": "code", "version": 1, "tags": ["code"], "allow": [], "deny": ["x_*"]},
        {
            "profile_id": "new",
            "version": 4,
            "rollout": {"version": 5, "share": 10, "by": "task", "allow": ["a"]},
        },
    ]
    keys: list[dict[str, Any]] = [
        {
            "key_id": "ada",
            "role": "agent",
            "ceiling": {"tasks": ["review"], "deny": []},
            "expires_at_s": 864_000,
        },
        {"key_id": "bob", "role": "admin", "ceiling": {}, "expires_at_s": None},
        {"key_id": "eve", "role": "viewer", "ceiling": {"servers": [], "deny": ["*"]}, "expires_at_s": -1},
        {"key_id": "dan", "role": "agent", "ceiling": {}, "expires_at_s": 7_200},
    ]

    assert shown(render_tasks(tasks)) == [
        "TASK    TOOLS  NAME         SERVERS",
        "review  on     Code review  git",
        "old     off                 those of profile code",
        "bare    off                 those of the request",
    ]
    assert shown(render_profiles(profiles)) == [
        "PROFILE  VERSION            SERVERS  TAGS  ALLOW  DENY",
        "code     1                  any      code  none   x_*",
        "new      4                  any      any   any",
        "         5 (10 % of tasks)  any      any   a",
    ]
    assert shown(render_keys(keys, 0.0)) == [
        "KEY  ROLE    EXPIRES     REACHES",
        "ada  agent   in 10 days  tasks review",
        "bob  admin   never       everything",
        "eve  viewer  expired     servers none; deny *",
        "dan  agent   in 2 hours  everything",
    ]


def test_the_versions_of_a_profile_have_a_line_each_with_what_became_of_their_calls() -> None:
    counted = {"calls": 1_234, "errors": 5, "denied": 6, "p50_ms": 1.25, "p95_ms": 10.0}
    silent = {"calls": 0, "errors": 0, "denied": 0, "p50_ms": None, "p95_ms": None}
    versions = [
        {"version": 3, "side": None, "share": 0, **silent},
        {"version": 4, "side": "stable", "share": 90, **counted},
        {"version": 5, "side": "candidate", "share": 10, **silent},
    ]

    assert shown(render_versions({"versions": versions})) == [
        "VERSION      SHARE  CALLS  ERRORS  DENIED  P50     P95",
        "3            -      0      0       0       -       -",
        "4 stable     90 %   1,234  5       6       1.2 ms  10.0 ms",
        "5 candidate  10 %   0      0       0       -       -",
    ]


def test_one_task_is_shown_with_its_config() -> None:
    task = {"task_id": "review", "display_name": "Code review", "config": {"mcp.enabled": "true"}}

    assert shown(render_task(task)) == [
        "review  Code review",
        "",
        "KEY          VALUE",
        "mcp.enabled  true",
    ]


def test_a_new_key_is_shown_whole_and_once() -> None:
    assert shown(render_new_key({"key_id": "ada", "role": "agent", "secret": "tg_abc"})) == [
        "✓ key ada (agent)",
        "",
        "  tg_abc",
        "",
        "The key is shown only now: the gateway stores its hash. To use it, run:",
        "  export TOOLGATE_KEY=…",
    ]


def test_the_demo_shows_what_each_task_sees_and_what_to_paste() -> None:
    servers = [server("git", health=health(tools=12)), server("time", health=health(tools=2))]
    views = [{"task_id": "review", **tools("git.git_log", "git.git_show", "time.convert_time")}]

    console = "http://127.0.0.1:9000/console/"
    assert shown(render_demo("http://127.0.0.1:9000", servers, views, console=console)) == [
        "",
        "Toolgate serves 14 tools of 2 servers at http://127.0.0.1:9000",
        "its console is at http://127.0.0.1:9000/console/",
        "",
        "TASK    TOOLS    TOKENS        URL, AND WHAT IT SHOWS",
        "review  3 of 31  300 of 4,000  http://127.0.0.1:8080/api/mcp/t/review",
        "                               git 2/12, time 1/2",
        "",
        "Connect Claude Code to a task:",
        "  claude mcp add --transport http review http://127.0.0.1:8080/api/mcp/t/review",
        "",
        "Another client, what it will see, and why it sees no more:",
        "  toolgate connect cursor --task review --write --url http://127.0.0.1:9000",
        "  toolgate tools --task review --url http://127.0.0.1:9000",
        "  toolgate explain --task review --url http://127.0.0.1:9000",
        "",
        "Look for a tool, or let a model find its tools by itself:",
        '  toolgate catalog search "what changed" --url http://127.0.0.1:9000',
        "  http://127.0.0.1:9000/api/mcp/find",
        "",
        "Ctrl-C stops the gateway and all its servers.",
    ]


def test_xss_3_nothing_a_server_says_reaches_the_screen_unescaped() -> None:
    evil = "\x1b]8;;http://evil\x07x\u202e[bold]\u200b"
    rendered = [
        render_servers([server("git", tags=[evil], health=health(state="down", last_error=evil))]),
        render_server(server(display_name=evil, health=health(stderr_tail=evil, last_error=evil))),
        render_test("git", {**REPORT, "tools": [evil], "quarantined": {evil: evil}, "version": evil}),
        render_test("git", {**REPORT, "error": evil, "stderr_tail": evil}),
        render_tools({**tools(evil), "warnings": [evil], "url": evil}),
        render_explanation(
            explanation(decision(evil, evil, evil, rule=evil), decision(evil, evil), warnings=[evil])
        ),
        render_lint([{"where": evil, "rule": evil, "message": evil}]),
        render_reload({"applied": [evil], "warnings": [evil], "problems": [evil]}, is_dry_run=False),
        render_task({"task_id": evil, "display_name": evil, "config": {evil: evil}}),
        render_applied("task", evil, {"revision": 1, "warnings": [evil]}),
    ]

    for one in rendered:
        text = "\n".join(shown(one))
        assert "[bold]" in text
        assert not {"\x1b", "\x07", "\u202e", "\u200b"} & set(text)
