"""The demo: what it ships is valid, what it prepares is there, and what it starts serves and ends."""

import asyncio
import json
import signal
import socket
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hatchling.builders.wheel import WheelBuilder

from tests.cli.conftest import Run
from tests.cli.fake_gateway import FakeGateway
from tests.cli.processes import running
from tests.cli.responses import health, server, tools
from toolgate.cli.command import CommandError
from toolgate.cli.demo.demo import UPSTREAM_NAME, Demo, check_port, demo_directory
from toolgate.cli.demo.kit import (
    DATA,
    LOCK,
    install,
    install_packages,
    is_installed,
    load_servers,
    load_tasks,
    make_repository,
    write_mark,
    write_servers,
)
from toolgate.cli.rest import open_client
from toolgate.model.tasks import Task
from toolgate.registry.records.codec import parse_record, parse_server

ROOT = Path(__file__).parents[3]
WITH_CONSOLE: Any = SimpleNamespace(console_url=lambda url: f"{url}/console/")
PLACES = {"bin": Path('/odd "place"/bin'), "repository": Path("/repo"), "kit": Path("/kit")}


def test_the_servers_are_valid_records_with_their_places_filled_in() -> None:
    records = [parse_server(body) for body in load_servers(PLACES)]

    assert [record.server_id for record in records] == ["git", "notes", "shop", "time"]
    assert [record.stdio and (record.stdio.command, *record.stdio.args) for record in records] == [
        ('/odd "place"/bin/mcp-server-git', "--repository", "/repo"),
        ('/odd "place"/bin/python', "/kit/notes_server"),
        ('/odd "place"/bin/python', "/kit/shop_server"),
        ('/odd "place"/bin/mcp-server-time', "--local-timezone", "UTC"),
    ]
    assert (DATA / "notes_server").read_bytes() == (ROOT / "examples" / "notes_server.py").read_bytes()


def test_the_tasks_are_valid_and_name_servers_there_are() -> None:
    records = [parse_record(record.kind, record.id, record.body) for record in load_tasks()]
    tasks = [record for record in records if isinstance(record, Task)]
    servers = {body["server_id"] for body in load_servers(PLACES)}

    assert [task.task_id for task in tasks] == ["review", "notes", "ops"]
    assert all(set(json.loads(task.config["mcp.default_server_ids"])) <= servers for task in tasks)


def test_the_registry_directory_holds_one_file_a_server_and_nothing_old(tmp_path: Path) -> None:
    (tmp_path / "gone.json").write_text("{}", "utf-8")

    write_servers(tmp_path, PLACES)

    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "git.json",
        "notes.json",
        "shop.json",
        "time.json",
    ]
    assert json.loads((tmp_path / "git.json").read_text("utf-8"))["server_id"] == "git"


def test_sup_5_every_package_of_the_lock_is_pinned_and_hashed() -> None:
    requirements = LOCK.read_text("utf-8").replace("\\\n", " ").splitlines()

    assert len(requirements) > 20
    assert all("==" in line and "--hash=sha256:" in line for line in requirements)


def test_the_wheel_carries_all_the_demo_needs() -> None:
    names = {file.distribution_path for file in WheelBuilder(str(ROOT)).recurse_included_files()}

    wanted = ["requirements.txt", "notes_server", "shop_server", "servers/git.toml", "tasks/review.toml"]
    wanted += ["model-requirements.txt", "model_server", "chat_template.jinja", "tasks/chat.toml"]
    assert {f"toolgate/cli/demo/data/{name}" for name in wanted} <= names


def test_the_repository_has_history_a_branch_and_an_open_change(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = tmp_path / "repository"
    monkeypatch.setenv("GIT_DIR", str(tmp_path / "elsewhere"))
    make_repository(directory)
    make_repository(directory)
    monkeypatch.delenv("GIT_DIR")

    def git(*words: str) -> str:
        return subprocess.run(
            ["git", "-C", directory, *words], capture_output=True, text=True, check=True
        ).stdout

    assert len(git("log", "--oneline").splitlines()) == 3
    assert git("branch", "--format=%(refname:short)").splitlines() == ["main", "milk-first"]
    assert git("status", "--short") == " M timer.py\n"


def test_without_git_the_demo_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))

    with pytest.raises(CommandError, match="needs `git`"):
        make_repository(tmp_path / "repository")


def test_an_environment_is_built_once_for_a_lock(tmp_path: Path) -> None:
    lock, environment = tmp_path / "lock.txt", tmp_path / "venv"
    lock.write_text("# nothing\n", "utf-8")
    output: list[str] = []

    install(environment, lock, output.append)

    assert output[0] == "making a virtual environment"
    assert is_installed(environment, lock)
    assert not is_installed(environment.rename(tmp_path / "moved"), lock)
    (tmp_path / "moved").rename(environment)
    lock.write_text("# something else\n", "utf-8")
    assert not is_installed(environment, lock)


def test_a_failed_installation_says_why_and_is_not_taken_for_complete(tmp_path: Path) -> None:
    lock, environment = tmp_path / "lock.txt", tmp_path / "venv"
    lock.write_text(
        f"no-such-package @ {(tmp_path / 'none.whl').as_uri()} --hash=sha256:{'0' * 64}\n", "utf-8"
    )

    _stand_in(environment, "python")

    with pytest.raises(CommandError, match="could not be installed") as failed:
        install_packages(environment, lock, lambda _: None)

    assert "index" in failed.value.hint
    assert not is_installed(environment, lock)


def test_the_demo_lives_in_a_project_or_in_the_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert demo_directory({"XDG_CACHE_HOME": "/cache"}) == Path("/cache/toolgate/demo")
    (tmp_path / ".git").mkdir()
    assert demo_directory({}) == tmp_path / ".toolgate" / "demo"


def test_a_port_in_use_is_reported_before_anything_is_installed(run: Run, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listen = f"127.0.0.1:{listener.getsockname()[1]}"
        ran = run("up", "--demo", "--data", str(tmp_path / "d"), "--listen", listen)

    assert ran.code == 1
    assert f"cannot listen on `{listen}`" in ran.err
    assert "--listen 127.0.0.1:8081" in ran.err
    assert not (tmp_path / "d").exists()
    check_port("127.0.0.1:0")


def test_the_demo_brings_its_own_servers(run: Run, tmp_path: Path) -> None:
    assert run("up", "--demo", "--mcp-registry-dir", str(tmp_path)).code == 2


def test_a_server_that_fails_is_named_and_the_rest_is_shown(
    gateway: FakeGateway, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    down = server("shop", health=health(state="down", last_error="it is closed"))
    gateway.respond("GET /admin/api/mcp/servers", {"revision": 1, "servers": [server("git"), down]})
    gateway.respond("GET /api/v1/mcp/tools", tools("git.git_log"))
    gateway.respond("GET /admin/api/chat-upstreams", {"revision": 1, "chat_upstreams": []})
    for task in ("review", "notes", "ops"):
        gateway.respond(f"PUT /admin/api/tasks/{task}", {"revision": 1, "warnings": []})

    asyncio.run(Demo(tmp_path, as_json=False).present(WITH_CONSOLE, gateway.url))

    shown = capsys.readouterr()
    assert shown.err.splitlines()[:3] == [
        "connecting the servers ...",
        "✓ git: 12 tools",
        "✗ shop: it is closed",
    ]
    assert "review  1 of 31" in shown.out
    assert f"its console is at {gateway.url}/console/" in shown.out


@pytest.mark.parametrize(("name", "is_removed"), [(UPSTREAM_NAME, True), ("my own", False)])
def test_no_model_of_an_earlier_run_is_left_and_no_other_is_touched(
    gateway: FakeGateway, tmp_path: Path, *, name: str, is_removed: bool
) -> None:
    left = {"upstream_id": "local", "display_name": name}
    gateway.respond("GET /admin/api/mcp/servers", {"revision": 1, "servers": [server("git")]})
    gateway.respond("GET /api/v1/mcp/tools", tools("git.git_log"))
    gateway.respond("GET /admin/api/chat-upstreams", {"revision": 1, "chat_upstreams": [left]})
    gateway.respond("DELETE /admin/api/chat-upstreams/local", {"revision": 2, "warnings": []})
    for task in ("review", "notes", "ops"):
        gateway.respond(f"PUT /admin/api/tasks/{task}", {"revision": 1, "warnings": []})

    asyncio.run(Demo(tmp_path, as_json=False).present(WITH_CONSOLE, gateway.url))

    removed = [asked.path for asked in gateway.asked if asked.method == "DELETE"]
    assert removed == ["/admin/api/chat-upstreams/local"] * is_removed


def test_a_gateway_that_stops_while_the_demo_starts_is_no_crash(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    asyncio.run(Demo(tmp_path, as_json=False).present(WITH_CONSOLE, "http://127.0.0.1:9"))

    assert "cannot reach the gateway" in capsys.readouterr().err


def test_the_demo_serves_three_tasks_and_leaves_nothing_behind(tmp_path: Path) -> None:
    environment = tmp_path / "demo-venv"
    _stand_in(environment, "python", "mcp-server-git", "mcp-server-time")
    write_mark(environment, LOCK)
    with running("up", "--demo", "--data", str(tmp_path), "--listen", "127.0.0.1:0") as (process, shown):
        seen = {task["task_id"]: {tool["name"] for tool in task["tools"]} for task in shown["tasks"]}
        urls = {task["task_id"]: task["url"] for task in shown["tasks"]}
        with open_client(shown["url"], None) as client:
            children = [one["health"]["pid"] for one in client.records("server")]
        listed = {line.partition(":")[0] for line in _list_and_call(urls["review"])}
        found = _list_and_call(urls["notes"], "notes.search_notes", "words=oats coffee")
        process.send_signal(signal.SIGINT)

        assert process.wait(timeout=60) == 0
        assert len(children) == 4
        assert not any(Path(f"/proc/{pid}").exists() for pid in children)

    assert "Groceries" in "".join(found)
    assert listed == seen["review"]
    assert shown["tasks"][0]["registered_tools"] >= 25
    assert seen["review"] == {
        *(
            f"git.git_{name}"
            for name in ("branch", "diff", "diff_staged", "diff_unstaged", "log", "show", "status")
        ),
        "time.convert_time",
        "time.get_current_time",
    }
    assert len(seen["notes"]) == 8
    assert "notes.delete_note" not in seen["notes"] | seen["ops"]
    assert not {"git.git_reset", "shop.refund_order", "shop.cancel_order"} & seen["ops"]


def _stand_in(environment: Path, *names: str) -> None:
    """The tests' own packages in place of those from PyPI."""
    (environment / "bin").mkdir(parents=True)
    for name in names:
        program = environment / "bin" / name
        program.write_text(f'#!/bin/sh\nexec "{Path(sys.prefix, "bin", name)}" "$@"\n', "utf-8")
        program.chmod(0o755)


def _list_and_call(*words: str) -> list[str]:
    """What the example client prints."""
    example = ROOT / "examples" / "list_and_call.py"
    done = subprocess.run([sys.executable, example, *words], capture_output=True, text=True, check=True)
    return done.stdout.splitlines()


def test_behind_a_company_ca_pip_uses_it_and_a_failure_names_the_variable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("PIP_CERT", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("SSL_CERT_FILE", "/company.pem")
    pip = tmp_path / "bin" / "python"
    pip.parent.mkdir()
    pip.write_text(
        f"#!/bin/sh\necho $PIP_CERT > {tmp_path / 'told'}\necho 'certificate verify failed: no issuer'\n"
        "for n in 1 2 3 4 5 6; do echo retrying; done\nexit 1\n"
    )
    pip.chmod(0o755)

    with pytest.raises(CommandError) as failed:
        install_packages(tmp_path, LOCK, lambda _: None)

    assert (tmp_path / "told").read_text() == "/company.pem\n"
    assert failed.value.hint == (
        "set `SSL_CERT_FILE` to the file with your company's CA, and start the demo again"
    )
