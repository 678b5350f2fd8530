"""Commands against a gateway that runs: what the fake one answers is what a real one does."""

import json
import re
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import Run
from tests.cli.fake_gateway import open_fake_gateway
from tests.cli.processes import DEADLINE_S, running
from toolgate.cli.command import ExitCode

ECHO = Path(__file__).parents[2] / "examples" / "notes_server.py"


@pytest.fixture
def at_gateway(run: Run, url: str, monkeypatch: pytest.MonkeyPatch) -> Run:
    monkeypatch.setenv("TOOLGATE_URL", url)
    return run


@pytest.fixture
def records(tmp_path: Path) -> Path:
    """A server and a task, in files."""
    server = {
        "server_id": "notes",
        "transport": "stdio",
        "allowed_tools": ["*"],
        "stdio": {"command": sys.executable, "args": [str(ECHO)]},
    }
    task = {"task_id": "write", "config": {"mcp.enabled": True, "mcp.default_server_ids": ["notes"]}}
    (tmp_path / "notes.json").write_text(json.dumps(server), "utf-8")
    (tmp_path / "write.json").write_text(json.dumps(task), "utf-8")
    return tmp_path


def objects(out: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in out.splitlines()]


def test_a_directory_is_planned_applied_and_then_the_same(at_gateway: Run, records: Path) -> None:
    where = ("-f", str(records))

    assert at_gateway("diff", *where).code == 1
    plan = at_gateway("plan", *where, "--json").json
    applied = at_gateway("apply", *where, "--require-plan", plan["id"], "--json").json

    assert [(one["operation"], one["id"]) for one in applied["changes"]] == [
        ("added", "notes"),
        ("added", "write"),
    ]
    assert at_gateway("diff", *where).lines == ["no difference"]
    assert at_gateway("apply", *where).lines == [f"✓ nothing to do (revision {applied['revision']})"]
    assert at_gateway("apply", *where, "--require-plan", plan["id"]).code == 1


def test_a_record_goes_back_to_what_it_was(at_gateway: Run, records: Path) -> None:
    at_gateway("apply", "-f", str(records))
    before = at_gateway("tasks", "get", "write", "--json").json
    task = {"task_id": "write", "display_name": "another"}
    (records / "write.json").write_text(json.dumps(task), "utf-8")
    at_gateway("apply", "-f", str(records))
    then = before["revision"]

    [changed, *_] = objects(at_gateway("tasks", "history", "write", "--json").out)
    differences = at_gateway("tasks", "diff", "write", "--since", str(then), "--json").json["fields"]
    back = at_gateway("tasks", "rollback", "write", "--to", str(then))

    assert "display_name" in {one["field"] for one in changed["fields"]}
    assert {one["field"] for one in differences} == {one["field"] for one in changed["fields"]}
    assert back.lines[0].startswith(f"✓ task write restored as of revision {then}")
    after = at_gateway("tasks", "get", "write", "--json").json
    assert {**after, "revision": 0} == {**before, "revision": 0}


def test_pinning_approves_the_tools_that_are_served(at_gateway: Run, records: Path) -> None:
    at_gateway("apply", "-f", str(records))
    at_gateway("servers", "refresh", "notes")

    shown = objects(at_gateway("servers", "tools", "notes", "--json").out)
    pinned = at_gateway("pins", "approve", "notes")
    [pin] = objects(at_gateway("pins", "list", "--json").out)

    assert pin["tools"] == {one["tool"]: one["digest"] for one in shown}
    assert len(shown) == 9
    assert pinned.lines[0].startswith("✓ notes: 9 tools approved")
    assert at_gateway("pins", "delete", "notes").code == 0


def test_pruning_removes_what_is_in_no_file_and_nothing_from_elsewhere(
    at_gateway: Run, records: Path
) -> None:
    at_gateway("apply", "-f", str(records))
    (records / "write.json").unlink()

    refused = at_gateway("apply", "-f", str(records), "--prune")
    pruned = at_gateway("apply", "-f", str(records), "--prune", "--yes")

    assert refused.code == 2
    assert pruned.lines[0] == "- task write"
    assert at_gateway("tasks", "get", "write").code == 1


def test_a_wrong_file_changes_nothing_and_is_named_with_its_line(at_gateway: Run, records: Path) -> None:
    (records / "bad.toml").write_text('task_id = "bad"\n\n[config]\nmcp.enabled = "perhaps"\n', "utf-8")
    before = at_gateway("tasks", "list", "--json").out

    ran = at_gateway("apply", "-f", str(records))

    assert ran.code == 1
    assert str(records / "bad.toml") in ran.err
    assert "mcp.enabled" in ran.err
    assert at_gateway("tasks", "list", "--json").out == before


def test_servers_of_another_program_are_imported(at_gateway: Run, tmp_path: Path) -> None:
    file = tmp_path / "mcp.json"
    file.write_text(
        '{"mcpServers": {"Far Away": {"url": "https://x.example/mcp"},}} // trailing comma and all\n', "utf-8"
    )

    planned = at_gateway("servers", "import", str(file), "--dry-run")
    denied = at_gateway("servers", "import", str(file))
    imported = at_gateway("servers", "import", str(file), "--allow", "get_*")

    assert planned.lines[0] == "+ server far-away"
    assert "no tools are allowed of `far-away`: import again with `--allow '*'`" in " ".join(denied.lines)
    assert (imported.code, "no tool is allowed" in " ".join(imported.lines)) == (0, False)
    assert at_gateway("servers", "get", "far-away", "--json").json["allowed_tools"] == ["get_*"]
    at_gateway("servers", "delete", "far-away")


def test_a_running_gateway_is_backed_up_into_a_file_that_can_be_restored(
    at_gateway: Run, records: Path, tmp_path: Path
) -> None:
    at_gateway("apply", "-f", str(records))

    backup = at_gateway("backup", "--json").json
    restored = at_gateway("restore", backup["path"], "--data", str(tmp_path / "new"), "--json").json

    assert restored["revision"] == backup["revision"]
    assert restored["records"] == backup["records"]


def test_there_are_no_nodes_in_one_process(at_gateway: Run) -> None:
    assert "no node has reported" in at_gateway("nodes").out


def test_watch_follows_every_change(at_gateway: Run, records: Path) -> None:
    with running("watch") as (process, start):
        assert process.stdout is not None
        at_gateway("apply", "-f", str(records), "--prune", "--yes")
        (records / "more.json").write_text('{"profile_id": "more"}', "utf-8")
        at_gateway("apply", "-f", str(records))
        at_gateway("profiles", "delete", "more")
        seen: list[dict[str, Any]] = []
        while not any(one.get("deletes") == [{"kind": "profile", "id": "more"}] for one in seen):
            seen.append(json.loads(process.stdout.readline()))

    changes = [one for one in seen if one["event"] == "change"]
    assert start["event"] == "start"
    assert [(one["upserts"], one["deletes"]) for one in changes[-2:]] == [
        ([{"kind": "profile", "id": "more"}], []),
        ([], [{"kind": "profile", "id": "more"}]),
    ]
    assert changes[-1]["revision"] == changes[-2]["revision"] + 1


def test_watch_ends_with_its_key_and_says_so(
    at_gateway: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    key_file = tmp_path / "watcher.key"
    at_gateway("keys", "create", "watcher", "--role", "viewer", "--out", str(key_file))
    with monkeypatch.context() as environ:
        environ.setenv("TOOLGATE_KEY", key_file.read_text("utf-8").strip())
        with running("watch") as (process, _):
            environ.delenv("TOOLGATE_KEY")
            at_gateway("keys", "delete", "watcher")
            code = process.wait(DEADLINE_S)

    assert code == ExitCode.AUTH


def test_a_chat_upstream_is_written_tried_and_removed(at_gateway: Run, tmp_path: Path) -> None:
    file = tmp_path / "local.json"
    with open_fake_gateway() as model:
        model.respond("GET /v1/models", {"object": "list", "data": [{"id": "llama3.2"}, {"id": "whisper"}]})
        body = {"upstream_id": "local", "base_url": f"{model.url}/v1", "models": ["llama*"]}
        file.write_text(json.dumps(body), "utf-8")
        unsaved = at_gateway("chat-upstreams", "test", "-f", str(file), "--json").json
        written = at_gateway("chat-upstreams", "apply", "-f", str(file))
        tried = at_gateway("chat-upstreams", "test", "local")
        shown = at_gateway("chat-upstreams", "get", "local", "--json").json
    dead = at_gateway("chat-upstreams", "test", "local")
    removed = at_gateway("chat-upstreams", "delete", "local")

    assert (unsaved["admitted"], unsaved["others"]) == (["llama3.2"], ["whisper"])
    assert written.lines[0].startswith("✓ chat upstream local (revision ")
    assert tried.lines[2:4] == ["offered models:", "  llama3.2"]
    assert shown["models"] == ["llama*"]
    assert (dead.code, dead.lines[0][:40]) == (1, "✗ local: chat upstream `local` cannot be")
    assert removed.lines == ["✓ chat upstream local deleted"]


def test_a_key_for_a_task_that_does_not_exist_is_made_with_a_warning(at_gateway: Run) -> None:
    ran = at_gateway("keys", "create", "typo", "--tasks", "reveiw")

    assert ran.code == 0
    assert "warning: key `typo`, `key tasks`: task `reveiw` does not exist" in ran.out


def test_connect_writes_nothing_for_a_task_that_does_not_exist(
    at_gateway: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))

    ran = at_gateway("connect", "cursor", "--task", "reveiw", "--write")

    assert (ran.code, list(tmp_path.iterdir())) == (ExitCode.FAILED, [])
    assert "no task `reveiw`" in ran.err


def test_doctor_looks_at_the_data_directory_of_the_gateway(at_gateway: Run, tmp_path: Path) -> None:
    ran = at_gateway("doctor", "--json")

    found = next(one for one in map(json.loads, ran.out.splitlines()) if one["where"] == "data")
    assert found["level"] == "ok"
    assert re.search(r"/data\d+`", found["message"])  # what the gateway was started with
    assert str(tmp_path) not in found["message"]
