"""`toolgate chat-upstreams`: what it asks, what it prints, how it ends."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import Run
from tests.cli.fake_gateway import FakeGateway
from tests.cli.screen import shown
from toolgate.cli.render.servers import render_chat_trial, render_chat_upstream, render_chat_upstreams

PATH = "/admin/api/chat-upstreams"
TOML = 'upstream_id = "local"\nbase_url = "http://127.0.0.1:11434/v1"\nmodels = ["llama3.*", "qwen*"]\n'
BODY = {
    "upstream_id": "local",
    "base_url": "http://127.0.0.1:11434/v1",
    "models": ["llama3.*", "qwen*"],
}


def upstream(upstream_id: str = "local", **fields: Any) -> dict[str, Any]:
    """One as the gateway shows it."""
    budgets = {
        "max_iterations": 8,
        "max_total_tool_calls": 32,
        "max_tool_output_bytes": 65_536,
        "tool_timeout_ms": 30_000,
        "wall_clock_ms": 300_000,
    }
    return {
        **BODY,
        "upstream_id": upstream_id,
        "display_name": "",
        "headers": {},
        "mode": "inject",
        "name_profile": "default",
        "other_tools": "pass",
        "filter_undeclared_calls": False,
        "budgets": budgets,
        "answer_timeout_ms": 60_000,
        "max_concurrency": 64,
        "enabled": True,
        "revision": 7,
    } | fields


def trial(**fields: Any) -> dict[str, Any]:
    return {
        "ok": True,
        "took_ms": 1_234,
        "found": 3,
        "admitted": ["llama3.2", "qwen3"],
        "others": ["whisper"],
        "error": "",
        "hint": "",
    } | fields


def test_chat_upstreams_are_listed_within_80_columns() -> None:
    upstreams = [
        upstream(),
        upstream(
            "openai",
            base_url="https://api.openai.com/v1",
            models=["gpt-*", "o4-mini"],
            mode="passthrough",
            enabled=False,
        ),
    ]

    assert shown(render_chat_upstreams(upstreams)) == [
        "UPSTREAM  STATE     MODE         MODELS           URL",
        "local     enabled   inject       llama3.*, qwen*  http://127.0.0.1:11434/v1",
        "openai    disabled  passthrough  gpt-*, o4-mini   https://api.openai.com/v1",
    ]


def test_without_any_chat_upstream_the_list_says_how_to_add_one() -> None:
    assert shown(render_chat_upstreams([])) == [
        "no chat upstreams: add one with `toolgate chat-upstreams apply -f FILE`"
    ]


def test_a_chat_upstream_is_shown_with_what_is_set_and_without_what_is_not() -> None:
    full = upstream(auth_ref="openai-key", headers={"api-key": "***", "X-Team": "tools"})

    assert shown(render_chat_upstream(full)) == [
        "upstream      local",
        "state         enabled",
        "url           http://127.0.0.1:11434/v1",
        "models        llama3.*, qwen*",
        "secret        openai-key",
        "headers       api-key: ***, X-Team: tools",
        "mode          inject",
        "name profile  default",
        "other tools   pass",
        "budgets       max_iterations 8, max_total_tool_calls 32, max_tool_output_bytes",
        "              65,536, tool_timeout_ms 30,000, wall_clock_ms 300,000",
        "timeout       60,000 ms",
        "concurrency   64",
        "revision      7",
    ]


@pytest.mark.parametrize(
    ("report", "expected"),
    [
        pytest.param(
            trial(),
            [
                "✓ local: 3 models in 1,234 ms",
                "",
                "offered models:",
                "  llama3.2, qwen3",
                "",
                "other models:",
                "  whisper",
            ],
            id="models",
        ),
        pytest.param(
            trial(found=1, admitted=[], others=["whisper"]),
            [
                "✓ local: 1 model in 1,234 ms",
                "",
                "no model matches the patterns in `models`",
                "",
                "other models:",
                "  whisper",
            ],
            id="none that callers get",
        ),
        pytest.param(
            trial(ok=False, found=0, error="no route", hint="check `base_url`"),
            ["✗ local: no route", "  check `base_url`"],
            id="an error",
        ),
    ],
)
def test_a_trial_fits_80_columns(report: dict[str, Any], expected: list[str]) -> None:
    assert shown(render_chat_trial("local", report)) == expected


def test_many_models_are_counted_and_not_all_named() -> None:
    lines = shown(render_chat_trial("local", trial(admitted=[f"m{n}" for n in range(60)], others=[])))

    assert lines[-1].endswith("m49, and 10 more")


def test_list_and_show_print_json_when_asked(gateway: FakeGateway, run: Run) -> None:
    gateway.respond(f"GET {PATH}", {"revision": 3, "chat_upstreams": [upstream("a"), upstream("b")]})
    gateway.respond(f"GET {PATH}/a", upstream("a"))

    lines = run("chat-upstreams", "list", "--json").out.splitlines()

    assert [json.loads(line)["upstream_id"] for line in lines] == ["a", "b"]
    assert run("chat-upstreams", "get", "a", "--json").json == upstream("a")


def test_apply_and_delete_say_what_was_done(gateway: FakeGateway, run: Run, tmp_path: Path) -> None:
    file = tmp_path / "local.toml"
    file.write_text(TOML, "utf-8")
    gateway.respond(f"PUT {PATH}/local", {"revision": 4, "chat_upstream": upstream(), "warnings": ["w"]})
    gateway.respond(f"DELETE {PATH}/local", {"revision": 5, "warnings": []})

    applied = run("chat-upstreams", "apply", "-f", str(file), "--if-revision", "3")
    sent = gateway.last
    deleted = run("chat-upstreams", "delete", "local")

    assert (applied.code, applied.lines) == (0, ["✓ chat upstream local (revision 4)", "warning: w"])
    assert (sent.body, sent.headers["if-match"]) == (BODY, '"3"')
    assert (deleted.code, deleted.lines) == (0, ["✓ chat upstream local deleted"])


def test_a_trial_of_a_file_sends_its_record_and_fails_with_it(
    gateway: FakeGateway, run: Run, tmp_path: Path
) -> None:
    file = tmp_path / "local.toml"
    file.write_text(TOML, "utf-8")
    gateway.respond(f"POST {PATH}/local/test", trial(ok=False, error="no route", hint="look again"))

    of_file = run("chat-upstreams", "test", "-f", str(file))
    sent = gateway.last.body
    of_saved = run("chat-upstreams", "test", "local", "--json")

    assert (of_file.code, of_file.lines) == (1, ["✗ local: no route", "  look again"])
    assert (sent, gateway.last.body) == (BODY, None)
    assert (of_saved.code, of_saved.json["error"]) == (1, "no route")
    assert run("chat-upstreams", "test").code == 2


def test_a_file_that_is_no_chat_upstream_is_named_with_what_it_lacks(run: Run, tmp_path: Path) -> None:
    file = tmp_path / "a.toml"
    file.write_text('server_id = "git"\n', "utf-8")

    ran = run("chat-upstreams", "apply", "-f", str(file))

    assert ran.code == 2
    assert f"`{file}` is not a chat upstream: it has no `upstream_id`" in ran.err


def test_its_history_is_shown_and_rolled_back(gateway: FakeGateway, run: Run) -> None:
    field = {"field": "mode", "before": "(default)", "after": "passthrough"}
    entry = {"revision": 3, "operation": "put", "actor": "ada", "at_ms": 0, "fields": [field]}
    gateway.respond(f"GET {PATH}/local/history", {"revision": 3, "entries": [entry]})
    gateway.respond(f"GET {PATH}/local/diff", {"revision": 3, "fields": [field]})
    gateway.respond(
        f"POST {PATH}/local/rollback", {"revision": 4, "chat_upstream": upstream(), "warnings": []}
    )

    assert run("chat-upstreams", "history", "local").lines[1] == "       3  1970-01-01 00:00:00  ada  mode"
    assert run("chat-upstreams", "diff", "local", "--since", "2").lines == ["mode", "  +  passthrough"]
    assert run("chat-upstreams", "rollback", "local", "--to", "2").lines == [
        "✓ chat upstream local restored as of revision 2 (revision 4)"
    ]


def test_a_directory_of_files_may_hold_chat_upstreams_and_what_tasks_say_of_chats(
    gateway: FakeGateway, run: Run, tmp_path: Path
) -> None:
    (tmp_path / "local.toml").write_text(TOML, "utf-8")
    (tmp_path / "task.toml").write_text(
        'task_id = "t"\n[config]\nchat.mode = "passthrough"\nchat.budgets.max_iterations = 2\n', "utf-8"
    )
    change = {"operation": "added", "kind": "chat_upstream", "id": "local", "fields": []}
    gateway.respond("POST /admin/api/apply", {"revision": 4, "changes": [change], "warnings": []})

    ran = run("apply", "-f", str(tmp_path))

    assert gateway.last.body["changes"] == [
        {"kind": "chat_upstream", "id": "local", "body": BODY},
        {
            "kind": "task",
            "id": "t",
            "body": {
                "task_id": "t",
                "config": {"chat.mode": '"passthrough"', "chat.budgets": '{"max_iterations": 2}'},
            },
        },
    ]
    assert "+ chat upstream local" in ran.lines


def test_a_plan_may_remove_a_chat_upstream(gateway: FakeGateway, run: Run) -> None:
    gateway.refuse("POST /admin/api/plan", "not_found", "no")

    run("plan", "--delete", "chat-upstream/local")

    assert gateway.last.body["changes"] == [{"kind": "chat_upstream", "id": "local", "body": None}]
