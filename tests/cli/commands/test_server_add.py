"""`toolgate servers add`: the record that is made of a command or a URL, its test, and what is offered."""

import json
from typing import Any

import pytest

from tests.cli.conftest import Run
from tests.cli.fake_gateway import FakeGateway
from tests.cli.responses import change, plan, server
from tests.cli.terminal import Reply, converse
from toolgate.cli.command import ExitCode

PATH = "/admin/api/mcp/servers/git"
REPORT = {
    "ok": True,
    "error": "",
    "tools": ["git_log", "git_push"],
    "quarantined": {},
    "connect_ms": 5,
    "list_ms": 1,
    "version": "2026-07-28",
}
SECRET = "ghp_abcdefghijklmnopqrstuvwxyz0123456789"


@pytest.fixture
def admin(gateway: FakeGateway) -> FakeGateway:
    """A gateway that takes the server `git`, whose test finds two tools, one of which is offered."""
    gateway.refuse(f"GET {PATH}", "not_found", "no server `git`", status=404)
    gateway.respond(f"POST {PATH}/test", REPORT)
    gateway.respond(f"PUT {PATH}", {"server": server(), "revision": 4, "warnings": []}, 201)
    refreshed = {"server_id": "git", "tools": REPORT["tools"], "visible": ["git_log"], "quarantined": {}}
    gateway.respond(f"POST {PATH}/refresh", refreshed)
    return gateway


def written(gateway: FakeGateway) -> Any:
    [found] = [one.body for one in gateway.asked if one.method == "PUT"]
    return found


def test_a_command_becomes_a_record_that_is_tried_written_and_listed(admin: FakeGateway, run: Run) -> None:
    ran = run("servers", "add", "git", "--allow", "@read_only", "--", "uvx", "mcp-server-git", "-r", ".")
    body = {
        "server_id": "git",
        "transport": "stdio",
        "stdio": {"command": "uvx", "args": ["mcp-server-git", "-r", "."]},
    }

    assert ran.code == 0
    assert [(one.method, one.path) for one in admin.asked] == [
        ("GET", PATH),
        ("POST", f"{PATH}/test"),
        ("PUT", PATH),
        ("POST", f"{PATH}/refresh"),
    ]
    assert admin.asked[1].body == body
    assert written(admin) == {**body, "allowed_tools": ["@read_only"]}
    assert admin.asked[2].headers["if-none-match"] == "*"
    assert ran.lines == [
        "✓ git: 2 tools, connected in 5 ms, listed in 1 ms, protocol 2026-07-28",
        "",
        "  git_log, git_push",
        "",
        "✓ server git (revision 4)",
        "",
        "offers 1 of 2 tools: git_log",
        "",
        "Connect a client:",
        f"  toolgate connect claude-code --servers git --write --url {admin.url}",
    ]


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        pytest.param(
            ("--env", "A=b=c", "--env", "TOKEN", "--cwd", "/srv", "--tag", "code", "--", "run"),
            {
                "transport": "stdio",
                "stdio": {"command": "run", "env": {"A": "b=c"}, "env_from": ["TOKEN"], "cwd": "/srv"},
                "tags": ["code"],
            },
            id="variables, a directory and tags",
        ),
        pytest.param(
            ("--url", "https://x.example/mcp"),
            {"transport": "streamable_http", "http": {"url": "https://x.example/mcp"}},
            id="URL",
        ),
        pytest.param(
            (
                "--url",
                "https://x.example",
                "--header",
                "A=b: c",
                "--header",
                "B: c ${ENV:T}",
            ),
            {
                "transport": "streamable_http",
                "http": {
                    "url": "https://x.example",
                    "headers": {"A": "b: c", "B": "c ${ENV:T}"},
                },
            },
            id="headers, written either way",
        ),
    ],
)
def test_options_are_fields_of_the_record(
    admin: FakeGateway, run: Run, words: tuple[str, ...], expected: dict[str, Any]
) -> None:
    ran = run("servers", "add", "git", "--allow", "*", *words)

    assert (ran.code, ran.err) == (0, "")
    assert written(admin) == {"server_id": "git", **expected, "allowed_tools": ["*"]}


@pytest.mark.parametrize(
    ("words", "message"),
    [
        pytest.param((), "give either the command of a local server or --url", id="nothing"),
        pytest.param(("--url", "http://x", "--", "run"), "--gateway-url", id="both"),
        pytest.param(("--url", "http://x", "--env", "A=b"), "--env and --cwd go with a command", id="env"),
        pytest.param(("--header", "A=b", "--", "run"), "--header goes with --url", id="header"),
        pytest.param(("--url", "http://x", "--header", "no sign"), "`no sign` is not NAME=VALUE", id="sign"),
    ],
)
def test_what_does_not_go_together_is_refused_before_anything_is_sent(
    admin: FakeGateway, run: Run, words: tuple[str, ...], message: str
) -> None:
    ran = run("servers", "add", "git", *words)

    assert (ran.code, admin.asked) == (ExitCode.USAGE, [])
    assert message in ran.err


@pytest.mark.parametrize(
    ("words", "field", "better"),
    [
        pytest.param(
            ("--env", f"TOKEN={SECRET}", "--", "run"), "stdio.env.TOKEN", "give `--env TOKEN`", id="variable"
        ),
        pytest.param(
            ("--url", "http://x", "--header", f"Authorization=Bearer {SECRET}"),
            "http.headers.Authorization",
            "`--header 'Authorization=${ENV:NAME}'`",
            id="header",
        ),
        pytest.param(("--", "run", "--token", SECRET), "stdio.args[1]", "write `${ENV:NAME}`", id="argument"),
        pytest.param(("--url", f"http://x?token={SECRET}"), "http.url", "write `${ENV:NAME}`", id="URL"),
    ],
)
def test_a_secret_that_is_written_out_is_warned_of_and_not_printed(
    admin: FakeGateway, run: Run, words: tuple[str, ...], field: str, better: str
) -> None:
    ran = run("servers", "add", "git", *words)
    quiet = run("servers", "add", "git", "--dry-run", "--json", *words)

    assert ran.code == 0
    assert f"warning: `{field}` looks like a secret" in ran.err
    assert better in " ".join(ran.err.split())
    assert SECRET not in ran.out + ran.err + quiet.out + quiet.err


def test_a_reference_is_no_secret(admin: FakeGateway, run: Run) -> None:
    ran = run("servers", "add", "git", "--env", "TOKEN=${ENV:TOKEN}", "--", "run")

    assert ran.err == ""


def test_without_allow_a_script_offers_nothing_and_reads_how_to(admin: FakeGateway, run: Run) -> None:
    ran = run("servers", "add", "git", "--", "run")

    assert ran.code == 0
    assert written(admin)["allowed_tools"] == []
    assert "no tool is offered: a new server offers only what --allow names" in ran.out
    assert "`--replace --allow '@read_only'`" in ran.out
    assert "toolgate connect" not in ran.out


@pytest.mark.parametrize(
    ("replies", "expected"),
    [
        pytest.param(["all"], ["*"], id="all"),
        pytest.param(["none"], [], id="none"),
        pytest.param([""], ["@read_only"], id="unless said otherwise, those that only read"),
        pytest.param(["some", "read-only"], ["@read_only"], id="asked again"),
    ],
)
def test_in_a_terminal_it_asks_which_tools_to_allow(
    admin: FakeGateway, run: Run, replies: list[str], expected: list[str]
) -> None:
    typed = [Reply("allow which of its tools?", one) for one in replies]

    ended = converse(["servers", "add", "git", "--", "run"], typed, {})

    assert ended.code == 0, ended.screen
    assert written(admin)["allowed_tools"] == expected


def test_patterns_that_match_nothing_are_shown(admin: FakeGateway, run: Run) -> None:
    admin.respond(f"POST {PATH}/refresh", {"visible": [], "tools": [], "quarantined": {}})

    assert (
        "offers 0 of 2 tools: none matches `get_*`"
        in run("servers", "add", "git", "--allow", "get_*", "--", "run").out
    )


def test_a_server_that_fails_its_test_is_not_registered(admin: FakeGateway, run: Run) -> None:
    admin.respond(f"POST {PATH}/test", {**REPORT, "error": "it exited", "hint": "look", "tools": []})

    ran = run("servers", "add", "git", "--", "run")
    quiet = run("servers", "add", "git", "--json", "--", "run")

    assert ran.code == ExitCode.FAILED
    assert ran.lines[0] == "✗ git: it exited"
    assert "--no-test registers it all the same" in ran.err
    assert json.loads(quiet.err)["error"]["message"].endswith("is not registered: it exited")
    assert "PUT" not in {one.method for one in admin.asked}


def test_where_servers_cannot_be_tried_it_says_how_to_register_untested(admin: FakeGateway, run: Run) -> None:
    admin.refuse(f"POST {PATH}/test", "mcp_unavailable", "it runs on nodes", status=503)

    refused = run("servers", "add", "git", "--", "run")
    made = run("servers", "add", "git", "--no-test", "--allow", "*", "--", "run")

    assert refused.code == ExitCode.FAILED
    assert "--no-test registers it without a test" in refused.err
    assert made.lines[0] == "✓ server git (revision 4)"
    assert [one.path for one in admin.asked[2:]] == [PATH, PATH]


def test_a_server_that_exists_is_replaced_only_with_replace(admin: FakeGateway, run: Run) -> None:
    admin.respond(f"GET {PATH}", server())

    refused = run("servers", "add", "git", "--", "run")
    made = run("servers", "add", "git", "--replace", "--", "run")

    assert refused.code == ExitCode.FAILED
    assert "server `git` already exists" in refused.err
    assert "toolgate servers apply -f FILE" in refused.err
    assert made.code == 0
    [put] = [one for one in admin.asked if one.method == "PUT"]
    assert (put.headers["if-match"], put.headers.get("if-none-match")) == ('"3"', None)


def test_a_dry_run_tests_and_plans_and_writes_nothing(admin: FakeGateway, run: Run) -> None:
    admin.respond("POST /admin/api/plan", plan(change("added", "server", "git")))

    ran = run("servers", "add", "git", "--dry-run", "--allow", "*", "--", "run")
    shown = run("servers", "add", "git", "--dry-run", "--allow", "*", "--json", "--", "run").json

    assert ran.code == 0
    assert "+ server git" in ran.lines
    assert admin.last.body["changes"][0]["body"]["allowed_tools"] == ["*"]
    assert "PUT" not in {one.method for one in admin.asked}
    assert (shown["plan"]["id"], shown["test"], shown["warnings"]) == ("0f" * 16, REPORT, [])


def test_the_plan_of_the_dry_run_can_be_required(admin: FakeGateway, run: Run) -> None:
    run("servers", "add", "git", "--require-plan", "0f", "--", "run")

    [put] = [one for one in admin.asked if one.method == "PUT"]
    assert put.headers["toolgate-plan"] == "0f"


def test_programs_get_one_object(admin: FakeGateway, run: Run) -> None:
    shown = run("servers", "add", "git", "--allow", "*", "--json", "--", "run").json

    assert shown["revision"] == 4
    assert (shown["test"], shown["offered"], shown["warnings"]) == (REPORT, ["git_log"], [])


def test_the_gateway_is_named_by_another_option(admin: FakeGateway, run: Run, monkeypatch: Any) -> None:
    monkeypatch.delenv("TOOLGATE_URL")

    ran = run("servers", "add", "git", "--gateway-url", admin.url, "--url", "http://x", "--allow", "*")

    assert ran.code == 0
    assert written(admin)["http"] == {"url": "http://x"}
