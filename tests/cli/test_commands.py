"""Commands against a gateway's REST API: what they ask, what they print, how they end."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import Run
from tests.cli.fake_gateway import FakeGateway
from tests.cli.responses import applied, change, decision, explanation, health, server, tools
from toolgate import __version__


def test_servers_list_prints_a_table_and_with_json_one_object_a_line(gateway: FakeGateway, run: Run) -> None:
    gateway.respond("GET /admin/api/mcp/servers", {"revision": 3, "servers": [server("a"), server("b")]})

    table = run("servers", "list")
    lines = run("servers", "list", "--json")

    assert table.code == 0
    assert table.lines == [
        "SERVER  STATE      TOOLS  CALLS  VIA    TAGS",
        "a       connected     12      7  stdio",
        "b       connected     12      7  stdio",
    ]
    assert [json.loads(line)["server_id"] for line in lines.out.splitlines()] == ["a", "b"]


def test_servers_get_quotes_its_id_into_one_path_segment(gateway: FakeGateway, run: Run) -> None:
    gateway.respond("GET /admin/api/mcp/servers/..%2Fkeys", server("x"))

    assert run("servers", "get", "../keys").code == 0
    assert gateway.last.path == "/admin/api/mcp/servers/..%2Fkeys"


def test_servers_apply_sends_toml_and_json_as_they_are(
    gateway: FakeGateway, run: Run, tmp_path: Path
) -> None:
    record: dict[str, Any] = {"server_id": "git", "transport": "stdio", "stdio": {"command": "git-mcp"}}
    (tmp_path / "git.toml").write_text(
        'server_id = "git"\ntransport = "stdio"\n[stdio]\ncommand = "git-mcp"\n', "utf-8"
    )
    (tmp_path / "git.json").write_text(json.dumps(record), "utf-8")
    gateway.respond("PUT /admin/api/mcp/servers/git", {"revision": 4, "server": server(), "warnings": ["w"]})

    ran = run("servers", "apply", "-f", str(tmp_path / "git.toml"), "-f", str(tmp_path / "git.json"))

    assert (ran.code, ran.lines) == (0, ["✓ server git (revision 4)", "warning: w"] * 2)
    assert [asked.body for asked in gateway.asked] == [record, record]


def test_apply_with_a_revision_asks_for_that_one_only(gateway: FakeGateway, run: Run, tmp_path: Path) -> None:
    path = tmp_path / "p.json"
    path.write_text('{"profile_id": "p"}', "utf-8")
    gateway.refuse("PUT /admin/api/profiles/p", "conflict", "it changed", hint="read it again", status=409)

    ran = run("profiles", "apply", "-f", str(path), "--if-revision", "7")

    assert gateway.last.headers["if-match"] == '"7"'
    assert (ran.code, ran.err) == (1, "error: it changed\n  try: read it again\n")


def test_tasks_apply_turns_config_values_into_json_text(
    gateway: FakeGateway, run: Run, tmp_path: Path
) -> None:
    path = tmp_path / "t.toml"
    path.write_text(
        'task_id = "t"\n[config]\nmcp.enabled = true\nmcp.default_server_ids = ["git"]\n'
        'mcp.profile = "code"\n"mcp.tool_denylist" = \'["x_*"]\'\n"other.key" = 3\n',
        "utf-8",
    )
    gateway.respond("PUT /admin/api/tasks/t", {"revision": 2, "task": {}, "warnings": []})

    assert run("tasks", "apply", "-f", str(path)).code == 0
    assert gateway.last.body == {
        "task_id": "t",
        "config": {
            "mcp.enabled": "true",
            "mcp.default_server_ids": '["git"]',
            "mcp.profile": '"code"',
            "mcp.tool_denylist": '["x_*"]',
            "other.key": "3",
        },
    }


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        pytest.param("x.toml", "a = ", "cannot parse", id="broken TOML"),
        pytest.param("x.json", "[1]", "does not contain an object", id="not an object"),
        pytest.param("x.json", '{"task_id": "t"}', "it has no `server_id`", id="another kind"),
        pytest.param("x.json", '{"server_id": 3}', "`server_id` is not text", id="an id that is no text"),
        pytest.param(
            "x.json", '{"server_id": "a", "task_id": "b"}', "is not a server", id="two kinds at once"
        ),
    ],
)
def test_a_file_that_is_no_record_is_refused_before_anything_is_sent(
    gateway: FakeGateway, run: Run, tmp_path: Path, *, name: str, text: str, message: str
) -> None:
    (tmp_path / name).write_text(text, "utf-8")

    ran = run("servers", "apply", "-f", str(tmp_path / name))

    assert ran.code == 2
    assert message in ran.err
    assert gateway.asked == []


def test_a_missing_file_is_a_usage_error(gateway: FakeGateway, run: Run, tmp_path: Path) -> None:
    ran = run("servers", "apply", "-f", str(tmp_path / "none.toml"))

    assert ran.code == 2
    assert "cannot read" in ran.err


@pytest.mark.parametrize(
    ("words", "path"),
    [
        (("servers", "delete", "git"), "/admin/api/mcp/servers/git"),
        (("tasks", "delete", "t"), "/admin/api/tasks/t"),
        (("profiles", "delete", "p"), "/admin/api/profiles/p"),
        (("keys", "delete", "ada"), "/admin/api/keys/ada"),
    ],
)
def test_delete_names_what_is_gone(gateway: FakeGateway, run: Run, words: tuple[str, ...], path: str) -> None:
    gateway.respond(f"DELETE {path}", {"revision": 5, "warnings": []})

    assert run(*words).lines == [f"✓ {words[0].removesuffix('s')} {words[2]} deleted"]
    assert run(*words, "--json").json == {"deleted": words[2], "revision": 5, "warnings": []}


def test_delete_says_what_still_names_it(gateway: FakeGateway, run: Run) -> None:
    gateway.respond("DELETE /admin/api/tasks/t", {"revision": 5, "warnings": ["key `ada` names task `t`"]})

    assert run("tasks", "delete", "t").lines == ["✓ task t deleted", "warning: key `ada` names task `t`"]


def test_servers_test_ends_with_1_when_the_server_fails(gateway: FakeGateway, run: Run) -> None:
    report = {"ok": False, "error": "it hangs", "stderr_tail": "", "tools": [], "quarantined": {}}
    gateway.respond("POST /admin/api/mcp/servers/git/test", report)

    ran = run("servers", "test", "git")

    assert (ran.code, ran.lines) == (1, ["✗ git: it hangs"])


def test_a_server_in_a_file_is_tried_before_it_is_saved(
    gateway: FakeGateway, run: Run, tmp_path: Path
) -> None:
    path = tmp_path / "git.json"
    path.write_text('{"server_id": "git", "transport": "stdio"}', "utf-8")
    report = {"ok": False, "error": "it hangs", "stderr_tail": "", "tools": [], "quarantined": {}}
    gateway.respond("POST /admin/api/mcp/servers/git/test", report)

    ran = run("servers", "test", "-f", str(path))

    assert gateway.last.body == {"server_id": "git", "transport": "stdio"}
    assert (ran.code, ran.lines) == (1, ["✗ git: it hangs"])
    assert run("servers", "test").code == 2
    assert run("servers", "test", "git", "-f", str(path)).code == 2


def test_servers_refresh_shows_the_tools_there_are_now(gateway: FakeGateway, run: Run) -> None:
    response = {"server_id": "git", "health": health(), "tools": ["git_log"], "quarantined": {}}
    gateway.respond("POST /admin/api/mcp/servers/git/refresh", response)

    assert run("servers", "refresh", "git").lines == ["git: connected, 1 tool", "", "  git_log"]


def test_servers_import_hands_the_file_to_the_gateway_and_says_what_it_left_out(
    gateway: FakeGateway, run: Run, tmp_path: Path
) -> None:
    path = tmp_path / "mcp.json"
    path.write_text('{"mcpServers": {}} // as it is', "utf-8")
    skipped = [{"name": "old", "reason": "it has neither command nor URL"}]
    gateway.respond(
        "POST /admin/api/mcp/servers/import",
        applied(change("added", "server", "git"), skipped=skipped, plan=None),
    )

    ran = run("servers", "import", str(path), "--allow", "get_*")

    assert gateway.last.body == {
        "format": "auto",
        "content": '{"mcpServers": {}} // as it is',
        "allowed_tools": ["get_*"],
        "dry_run": False,
    }
    assert ran.lines == [
        "skipped old: it has neither command nor URL",
        "",
        "+ server git",
        "",
        "✓ 1 added (revision 4)",
    ]


def test_servers_import_can_be_a_dry_run(gateway: FakeGateway, run: Run, tmp_path: Path) -> None:
    path = tmp_path / "mcp.json"
    path.write_text("{}", "utf-8")
    gateway.respond(
        "POST /admin/api/mcp/servers/import", applied(change("added", "server", "git"), skipped=[], plan="0f")
    )

    assert run("servers", "import", str(path), "--dry-run").lines == [
        "+ server git",
        "",
        "1 added; nothing was written",
        "",
        "plan 0f",
    ]
    assert gateway.last.body["dry_run"] is True
    run("servers", "import", str(path), "--require-plan", "0f")
    assert gateway.last.headers["toolgate-plan"] == "0f"


def test_applying_the_file_of_another_program_says_how_to_import_it(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "mcp.json"
    path.write_text('{"mcpServers": {}}', "utf-8")

    ran = run("servers", "apply", "-f", str(path))

    assert ran.code == 2
    assert "toolgate servers import" in ran.err


def test_tasks_profiles_and_keys_are_listed(gateway: FakeGateway, run: Run) -> None:
    gateway.respond("GET /admin/api/tasks", {"revision": 1, "tasks": [{"task_id": "t", "config": {}}]})
    gateway.respond("GET /admin/api/tasks/t", {"task_id": "t", "config": {"mcp.enabled": "true"}})
    gateway.respond("GET /admin/api/profiles", {"revision": 1, "profiles": [{"profile_id": "p"}]})
    key: dict[str, Any] = {"key_id": "ada", "role": "agent", "ceiling": {}, "expires_at_s": None}
    gateway.respond("GET /admin/api/keys", {"revision": 1, "keys": [key]})

    assert run("tasks", "list", "--json").json == {"task_id": "t", "config": {}}
    assert run("tasks", "get", "t").lines == ["t", "", "KEY          VALUE", "mcp.enabled  true"]
    assert run("profiles", "list", "--json").json == {"profile_id": "p"}
    assert run("keys", "list").lines == ["KEY  ROLE   EXPIRES  REACHES", "ada  agent  never    everything"]


def test_keys_add_sends_the_ceiling_and_shows_the_key_once(gateway: FakeGateway, run: Run) -> None:
    made = {"key_id": "ada", "role": "agent", "secret": "tg_secret"}
    gateway.respond("POST /admin/api/keys", made, 201)

    words = (
        "keys",
        "create",
        "ada",
        "--tasks",
        "review, ops",
        "--deny",
        "*delete*",
        "--default-task",
        "review",
    )
    ran = run(*words)

    assert ran.lines[2] == "  tg_secret"
    assert gateway.last.body == {
        "key_id": "ada",
        "role": "agent",
        "ceiling": {"tasks": ["review", "ops"], "deny": ["*delete*"]},
        "default_task": "review",
    }
    assert run("keys", "create", "ada", "--expires-in", "1d", "--json").json == made
    assert "expires_at_s" in gateway.last.body


def test_a_key_can_go_into_a_file_and_nowhere_else(gateway: FakeGateway, run: Run, tmp_path: Path) -> None:
    gateway.respond("POST /admin/api/keys", {"key_id": "n", "role": "node", "secret": "tg_secret"}, 201)
    path = tmp_path / "node.key"

    ran = run("keys", "create", "n", "--role", "node", "--out", str(path), "--json")

    assert ran.json == {"key_id": "n", "role": "node"}
    assert (path.read_text("utf-8"), path.stat().st_mode & 0o777) == ("tg_secret\n", 0o600)
    asked = len(gateway.asked)
    assert run("keys", "create", "n", "--out", str(path)).code == 2
    assert len(gateway.asked) == asked


def test_a_key_that_was_refused_leaves_no_file(gateway: FakeGateway, run: Run, tmp_path: Path) -> None:
    gateway.refuse("POST /admin/api/keys", "forbidden", "no", status=403)

    assert run("keys", "create", "n", "--out", str(tmp_path / "node.key")).code == 3
    assert list(tmp_path.iterdir()) == []


def test_tools_asks_for_the_scope_of_the_url(gateway: FakeGateway, run: Run) -> None:
    gateway.respond("GET /api/v1/mcp/tools", tools("git.git_log"))

    ran = run("tools", "--task", "review", "--servers", "git", "--tools", "")

    assert gateway.last.query == {"task": "review", "servers": "git", "tools": ""}
    assert ran.lines[:2] == [
        "TOOL         TOKENS  ALLOWED BY",
        "git.git_log     100  task `review`: mcp.tool_allowlist",
    ]


@pytest.mark.parametrize(
    ("tool", "query"),
    [
        ("git/git_log", {"server": "git", "tool": "git_log"}),
        ("git.git_log", {"server": "git", "tool": "git_log"}),
        ("git_log", {"tool": "git_log"}),
    ],
)
def test_explain_finds_a_tool_however_it_is_written(
    gateway: FakeGateway, run: Run, tool: str, query: dict[str, str]
) -> None:
    gateway.respond("GET /api/v1/mcp/explain", explanation(decision("git", "git_log", "denied_by_task")))

    ran = run("explain", tool, "--task", "review", "--key", "ada")

    assert gateway.last.query == {"task": "review", "key": "ada", **query}
    assert ran.lines == [
        "0 tools visible",
        "",
        "1 tool hidden",
        "SERVER  TOOLS    HIDDEN BY",
        "git     git_log  task: denied_by_task",
        "                 mcp.tool_allowlist",
    ]


@pytest.mark.parametrize(
    ("name", "queries"),
    [
        ("prompt:greet", [{"tool": "prompt:greet"}]),
        ("prompt:git/greet", [{"server": "git", "tool": "prompt:greet"}, {"tool": "prompt:git/greet"}]),
        ("resource:file:///a", [{"tool": "resource:file:///a"}]),
        (
            "resource:fs/file:///a",
            [{"server": "fs", "tool": "resource:file:///a"}, {"tool": "resource:fs/file:///a"}],
        ),
    ],
)
def test_explain_reads_prompts_and_resources_as_patterns_do(
    gateway: FakeGateway, run: Run, name: str, queries: list[dict[str, str]]
) -> None:
    gateway.respond("GET /api/v1/mcp/explain", explanation())

    run("explain", name)

    assert [asked.query for asked in gateway.asked] == queries


def test_explain_of_an_unknown_tool_tries_both_readings_of_a_dot_and_fails(
    gateway: FakeGateway, run: Run
) -> None:
    gateway.respond("GET /api/v1/mcp/explain", explanation())

    ran = run("explain", "a.b")

    assert [asked.query for asked in gateway.asked] == [{"server": "a", "tool": "b"}, {"tool": "a.b"}]
    assert ran.code == 1
    assert ran.err.startswith("error: no server in your scope has a tool `a.b`")


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("prompt:greet", "error: no server in your scope has a prompt `prompt:greet`"),
        ("resource:note://1", "error: no server in your scope lists `resource:note://1`"),
    ],
)
def test_explain_of_an_unlisted_resource_says_how_to_name_it(
    gateway: FakeGateway, run: Run, name: str, expected: str
) -> None:
    gateway.respond("GET /api/v1/mcp/explain", explanation())

    ran = run("explain", name)

    assert (ran.code, ran.err.splitlines()[0]) == (1, expected)


def test_explain_of_a_server_with_unknown_tools_says_why_it_is_left_out(
    gateway: FakeGateway, run: Run
) -> None:
    gateway.respond(
        "GET /api/v1/mcp/explain", explanation(decision("web", None, "list_failed", layer="platform"))
    )

    ran = run("explain", "web/search")

    assert ran.code == 0
    assert "web     all of them  platform: list_failed" in ran.lines


def test_lint_ends_with_1_when_it_finds_something(gateway: FakeGateway, run: Run) -> None:
    finding = {"where": "task `t`", "rule": "mcp.tool_denylist", "message": "`x` matches nothing"}
    gateway.respond("GET /admin/api/lint", {"findings": [finding]})

    assert run("lint").code == 1
    gateway.respond("GET /admin/api/lint", {"findings": []})
    assert run("lint").code == 0


def test_lint_ends_with_5_when_some_rules_could_not_be_judged(gateway: FakeGateway, run: Run) -> None:
    open_rule = {"where": "server web", "rule": "allowed_tools", "message": "not listed yet: `web` (failed)"}
    gateway.respond("GET /admin/api/lint", {"findings": [], "unjudged": [open_rule]})

    ran = run("lint")

    assert ran.code == 5
    assert "every rule matches something" not in ran.out
    assert ran.lines[0] == "1 rule could not be checked"
    assert "not listed yet: `web` (failed)" in ran.out


def test_reload_can_be_a_dry_run_and_ends_with_1_on_problems(gateway: FakeGateway, run: Run) -> None:
    route = "POST /admin/api/registry/reload"
    gateway.respond(route, {"applied": ["added git (git.toml)"], "warnings": [], "problems": []})

    assert run("reload", "--dry-run").lines == ["1 change planned", "  added git (git.toml)"]
    assert gateway.last.query == {"dry_run": "true"}
    gateway.respond(route, {"applied": [], "warnings": [], "problems": ["x.toml: no"]})
    assert run("reload").code == 1


def test_the_version_is_an_option(run: Run) -> None:
    assert run("--version").out == f"toolgate {__version__}\n"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("keys", "add", "ada"), "`keys add` is now `keys create`"),
        (("publish", "notes"), "`publish` is now `packages publish`"),
        (("version",), "`version` is now `--version`"),
    ],
)
def test_an_old_name_fails_and_names_the_new_one(run: Run, words: tuple[str, ...], message: str) -> None:
    ran = run(*words)

    assert (ran.code, ran.err.splitlines()[0]) == (2, f"error: {message}")
