"""`up`: the form scripts rely on, its dry run, and what it refuses."""

import json
import signal
import urllib.request
from pathlib import Path

import pytest

from tests.cli.conftest import Run
from tests.cli.processes import running
from tests.cli.screen import shown
from toolgate.cli.commands.serve import render_ready

RECORD = 'server_id = "git"\ntransport = "stdio"\nallowed_tools = ["*"]\n[stdio]\ncommand = "git-mcp"\n'


def test_up_serves_health_says_where_and_ends_with_0_on_sigint(tmp_path: Path) -> None:
    registry = tmp_path / "registry"
    registry.mkdir()
    where = ("--listen", "127.0.0.1:0", "--data", str(tmp_path / "d"), "--mcp-registry-dir", str(registry))
    with running("up", *where) as (process, shown):
        with urllib.request.urlopen(f"{shown['url']}/healthz", timeout=60) as response:
            assert (response.status, json.load(response)["status"]) == (200, "ok")
        with urllib.request.urlopen(shown["console"], timeout=60) as response:
            assert response.headers["content-type"] == "text/html; charset=utf-8"
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=60) == 0


@pytest.mark.requirement("002-057")
def test_a_dry_run_shows_the_difference_and_makes_nothing(run: Run, tmp_path: Path) -> None:
    registry, data = tmp_path / "registry", tmp_path / "data"
    registry.mkdir()
    (registry / "git.toml").write_text(RECORD, "utf-8")

    ran = run("up", "--dry-run", "--data", str(data), "--mcp-registry-dir", str(registry))

    assert (ran.code, ran.lines) == (0, ["1 change planned", "  added git (git.toml)"])
    assert not data.exists()


def test_a_dry_run_ends_with_1_when_a_file_is_wrong(run: Run, tmp_path: Path) -> None:
    (tmp_path / "bad.toml").write_text("server_id = \n", "utf-8")

    ran = run("up", "--dry-run", "--data", str(tmp_path / "d"), "--mcp-registry-dir", str(tmp_path), "--json")

    assert ran.code == 1
    assert ran.json["problems"][0].startswith("bad.toml:1")


def test_a_dry_run_needs_a_directory(run: Run, tmp_path: Path) -> None:
    assert run("up", "--dry-run", "--data", str(tmp_path)).code == 2


def test_adm_5_an_open_address_without_keys_is_refused_with_the_reason(run: Run, tmp_path: Path) -> None:
    ran = run("up", "--listen", "0.0.0.0:0", "--data", str(tmp_path / "d"))

    assert ran.code == 1
    assert "no key is configured" in ran.err


def test_a_setting_that_is_wrong_is_named(run: Run, tmp_path: Path) -> None:
    ran = run("up", "--listen", "nowhere", "--data", str(tmp_path))

    assert ran.code == 1
    assert "setting `listen`" in ran.err


def test_people_without_any_server_see_how_to_add_some_and_what_comes_then() -> None:
    console = "http://127.0.0.1:8085/console/"

    lines = shown(render_ready("http://127.0.0.1:8085", console=console, is_empty=True))

    assert max(map(len, lines)) <= 80
    assert lines[1:] == [
        "its console is at http://127.0.0.1:8085/console/",
        "",
        "No servers are registered. In another terminal, import or add some:",
        "  export TOOLGATE_URL=http://127.0.0.1:8085",
        "  toolgate servers import mcp.json --allow '*'",
        "  toolgate servers add time -- uvx mcp-server-time",
        "",
        "Then connect a client and check:",
        "  toolgate connect claude-code --write",
        "  toolgate doctor",
        "",
        "Ctrl-C stops the gateway and all its servers.",
    ]
    assert "export" not in "".join(shown(render_ready("http://127.0.0.1:8080", is_empty=True)))


def test_people_with_servers_see_how_to_connect_a_client() -> None:
    assert shown(render_ready("http://127.0.0.1:8080"))[1:4] == [
        "",
        "  toolgate connect claude-code",
        "  toolgate doctor",
    ]
