"""`connect`: what is printed for each client, and what --write does to its settings."""

import json
import stat
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import Run
from tests.cli.fake_gateway import FakeGateway
from toolgate.cli.command import CommandError
from toolgate.cli.commands.connect import MergeResult, merge_entry
from toolgate.surfaces.http.parsing import format_scope_url

URL = "http://127.0.0.1:8080/api/mcp/t/review"
NOW = datetime(2026, 11, 15, 12, 30, 0, tzinfo=UTC)
ENTRY = {"type": "http", "url": URL}


@pytest.mark.parametrize(
    ("client", "expected"),
    [
        ("claude-code", {"mcpServers": {"review": {"type": "http", "url": URL}}}),
        ("claude-desktop", {"mcpServers": {"review": {"command": "npx", "args": ["-y", "mcp-remote", URL]}}}),
        ("cursor", {"mcpServers": {"review": {"url": URL}}}),
        ("vscode", {"servers": {"review": {"type": "http", "url": URL}}}),
        ("windsurf", {"mcpServers": {"review": {"serverUrl": URL}}}),
        ("generic", {"mcpServers": {"review": {"type": "http", "url": URL}}}),
    ],
)
def test_each_client_gets_its_own_shape(run: Run, client: str, expected: dict[str, Any]) -> None:
    ran = run("connect", client, "--task", "review", "--json")

    shown = {"client": client, "name": "review", "url": URL, "config": expected}
    assert ran.json == {**shown, "note": "", "warnings": []}


def test_claude_code_is_given_the_exact_command(run: Run) -> None:
    ran = run("connect", "claude-code", "--task", "review")

    assert ran.lines[:4] == [
        f"Claude Code at {URL}",
        "",
        "run",
        f"  claude mcp add --transport http review {URL}",
    ]


def test_a_line_to_paste_is_never_cut(run: Run) -> None:
    ran = run("connect", "vscode", "--tools", "git.git_log,git.git_show,git.git_diff,time.convert_time")

    assert (
        """  code --add-mcp '{"name": "toolgate", "type": "http", "url": "http://127.0.0.1:8080"""
        """/api/mcp?tools=git.git_log,git.git_show,git.git_diff,time.convert_time"}'"""
    ) in ran.lines


@pytest.mark.parametrize("client", ["claude-code", "claude-desktop", "cursor", "vscode", "windsurf"])
def test_sec_3_a_key_is_named_and_never_written(
    run: Run, monkeypatch: pytest.MonkeyPatch, client: str
) -> None:
    monkeypatch.setenv("TOOLGATE_KEY", "tg_canary")

    ran = run("connect", client, "--url", "https://gate.example")

    assert "Authorization" in ran.out
    assert "tg_canary" not in ran.out


def test_urls_carry_the_scope() -> None:
    query = {"task": "review", "servers": "git,time", "tools": "git.*", "profile": "a b"}

    assert format_scope_url("http://h/", {}) == "http://h/api/mcp"
    assert (
        format_scope_url("http://h", query)
        == "http://h/api/mcp/t/review?servers=git,time&tools=git.*&profile=a%20b"
    )


def test_a_task_that_cannot_be_one_is_refused(run: Run) -> None:
    assert run("connect", "cursor", "--task", "../x").code == 1


SCOPE = "GET /api/v1/mcp/scope"
SEEN: dict[str, Any] = {"tools": ["git.log"], "warnings": [], "refusal": None}


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HOME", str(tmp_path))
    return tmp_path


def test_write_puts_the_entry_into_the_users_file(
    gateway: FakeGateway, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    gateway.respond(SCOPE, SEEN)

    first = run("connect", "cursor", "--task", "review", "--write")
    again = run("connect", "cursor", "--task", "review", "--write")

    path = tmp_path / ".cursor" / "mcp.json"
    url = f"{gateway.url}/api/mcp/t/review"
    assert json.loads(path.read_text("utf-8")) == {"mcpServers": {"review": {"url": url}}}
    assert gateway.last.query == {"task": "review"}
    assert "review is in" in first.out
    assert "already in" in again.out
    assert sorted(one.name for one in path.parent.iterdir()) == ["mcp.json"]


def test_write_with_project_uses_the_current_directory(
    gateway: FakeGateway, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    gateway.respond(SCOPE, SEEN)

    ran = run("connect", "vscode", "--write", "--project", "--json")

    path = tmp_path / ".vscode" / "mcp.json"
    url = f"{gateway.url}/api/mcp"
    assert ran.json == {"file": str(path), "changed": True, "backup": None, "url": url, "warnings": []}
    assert json.loads(path.read_text("utf-8")) == {"servers": {"toolgate": {"type": "http", "url": url}}}


@pytest.mark.parametrize(("refusal", "exit_code"), [((404, "not_found"), 1), ((401, "unauthenticated"), 3)])
def test_write_changes_nothing_when_the_gateway_refuses_the_scope(
    gateway: FakeGateway, run: Run, home: Path, refusal: tuple[int, str], exit_code: int
) -> None:
    status, code = refusal
    gateway.refuse(SCOPE, code, "no task `reveiw`", status=status)

    ran = run("connect", "cursor", "--task", "reveiw", "--write")

    assert (ran.code, list(home.iterdir())) == (exit_code, [])
    assert "no task `reveiw`" in ran.err


def test_write_changes_nothing_when_the_request_is_denied_as_a_whole(
    gateway: FakeGateway, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    denied = {"code": "mcp_policy_denied", "message": "task `t` does not allow `x`", "hint": "ask for less"}
    gateway.respond(SCOPE, {**SEEN, "tools": [], "refusal": denied})

    ran = run("connect", "cursor", "--task", "t", "--servers", "x", "--write")

    assert (ran.code, list(tmp_path.iterdir())) == (1, [])


def test_write_changes_nothing_when_no_gateway_responds(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))

    ran = run("connect", "cursor", "--write", "--url", "http://127.0.0.1:9")

    assert (ran.code, list(tmp_path.iterdir())) == (4, [])


@pytest.mark.parametrize(
    ("seen", "warning"),
    [
        ({"tools": []}, "no tool is visible at this URL"),
        ({"tools": [], "warnings": ["server `x` is not registered"]}, "server `x` is not registered"),
        (
            {"tools": [], "refusal": {"code": "too_many_tools", "message": "200 tools", "hint": ""}},
            "200 tools",
        ),
    ],
)
def test_write_warns_of_a_scope_that_shows_no_tool(
    gateway: FakeGateway, run: Run, home: Path, seen: dict[str, Any], warning: str
) -> None:
    gateway.respond(SCOPE, {**SEEN, **seen})

    ran = run("connect", "cursor", "--write")

    assert ran.code == 0
    assert f"warning: {warning}" in ran.out
    assert (home / ".cursor" / "mcp.json").exists()


@pytest.mark.parametrize("words", [("generic", "--write"), ("windsurf", "--write", "--project")])
def test_a_client_without_such_a_file_is_a_usage_error(run: Run, words: tuple[str, ...]) -> None:
    assert run("connect", *words).code == 2


OTHERS: dict[str, Any] = {
    "theme": "dark",
    "mcpServers": {"other": {"command": "x", "env": {"TOKEN": "s3cret"}}},
    "großes": [1, 2.5, None, {"🎉": "\u2028"}],
}


@pytest.mark.parametrize("indent", [2, 4, "\t"])
def test_merging_loses_nothing_and_keeps_the_files_style_and_mode(tmp_path: Path, indent: int | str) -> None:
    path = tmp_path / "mcp.json"
    before = json.dumps(OTHERS, indent=indent, ensure_ascii=False)
    path.write_text(before, "utf-8")
    path.chmod(0o640)

    merged = merge_entry(path, "mcpServers", "review", ENTRY, now=NOW)

    expected = {**OTHERS, "mcpServers": {**OTHERS["mcpServers"], "review": ENTRY}}
    assert path.read_text("utf-8") == json.dumps(expected, indent=indent, ensure_ascii=False) + "\n"
    assert stat.S_IMODE(path.stat().st_mode) == 0o640
    assert merged == MergeResult(
        path, is_changed=True, backup=tmp_path / "mcp.json.20261115-123000-000000.bak"
    )
    assert (tmp_path / "mcp.json.20261115-123000-000000.bak").read_text("utf-8") == before


def test_a_file_of_its_own_is_made_for_its_owner_only(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "mcp.json"

    assert merge_entry(path, "servers", "x", ENTRY, now=NOW) == MergeResult(path, is_changed=True)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_an_empty_file_counts_as_no_settings(tmp_path: Path) -> None:
    path = tmp_path / "mcp.json"
    path.write_text(" \n", "utf-8")

    merge_entry(path, "servers", "x", ENTRY, now=NOW)

    assert json.loads(path.read_text("utf-8")) == {"servers": {"x": ENTRY}}


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("{nope", id="broken"),
        pytest.param('{"a": 1, // mine\n"b": 2}', id="comments"),
        pytest.param("[1]", id="no object"),
        pytest.param('{"mcpServers": [1]}', id="servers that are no object"),
        pytest.param('{"mcpServers": {"a": 1, "a": 2}}', id="a key twice"),
        pytest.param('{"a": NaN}', id="not a number"),
        pytest.param(
            '{"mcpServers": {"review": {"url": "https://elsewhere.example/mcp"}}}', id="another's name"
        ),
        pytest.param('{"mcpServers": {"review": {"command": "x"}}}', id="a program's name"),
    ],
)
def test_a_file_one_cannot_merge_into_is_left_byte_for_byte(tmp_path: Path, text: str) -> None:
    path = tmp_path / "mcp.json"
    path.write_text(text, "utf-8")

    with pytest.raises(CommandError):
        merge_entry(path, "mcpServers", "review", ENTRY, now=NOW)

    assert path.read_text("utf-8") == text
    assert list(tmp_path.iterdir()) == [path]


def test_an_older_entry_of_ours_is_brought_up_to_date_and_keeps_what_its_user_added(tmp_path: Path) -> None:
    path = tmp_path / "mcp.json"
    old = {"type": "http", "url": "http://127.0.0.1:8080/api/mcp", "disabled": True}
    path.write_text(json.dumps({"mcpServers": {"review": old}}), "utf-8")

    merge_entry(path, "mcpServers", "review", ENTRY, now=NOW)

    assert json.loads(path.read_text("utf-8")) == {"mcpServers": {"review": {**ENTRY, "disabled": True}}}


def test_a_link_to_the_settings_stays_a_link(tmp_path: Path) -> None:
    real = tmp_path / "dotfiles.json"
    real.write_text("{}", "utf-8")
    link = tmp_path / "mcp.json"
    link.symlink_to(real)

    merge_entry(link, "servers", "x", ENTRY, now=NOW)

    assert link.is_symlink()
    assert json.loads(real.read_text("utf-8")) == {"servers": {"x": ENTRY}}


def test_half_a_surrogate_pair_survives(tmp_path: Path) -> None:
    path = tmp_path / "mcp.json"
    path.write_text(r'{"odd": "\ud83d"}', "utf-8")

    merge_entry(path, "servers", "x", ENTRY, now=NOW)

    assert json.loads(path.read_text("utf-8"))["odd"] == "\ud83d"


def test_a_backup_is_never_written_over(tmp_path: Path) -> None:
    path = tmp_path / "mcp.json"
    path.write_text("{}", "utf-8")
    merge_entry(path, "servers", "a", ENTRY, now=NOW)

    with pytest.raises(CommandError):
        merge_entry(path, "servers", "b", ENTRY, now=NOW)

    assert json.loads(path.read_text("utf-8")) == {"servers": {"a": ENTRY}}
