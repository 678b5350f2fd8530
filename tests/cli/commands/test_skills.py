"""Skills and prices on the command line, against a gateway that runs."""

import json
import sys
from pathlib import Path
from typing import Any

import httpx2
import pytest

from tests.cli.conftest import Run
from tests.cli.fake_gateway import FakeGateway
from tests.eventually import eventually
from tests.registry.official import LIST, check_official
from toolgate.cli.command import ExitCode

NOTES = Path(__file__).parents[3] / "examples" / "notes_server.py"


@pytest.fixture
def at_gateway(run: Run, url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """A gateway with one server, whose tools are listed."""
    monkeypatch.setenv("TOOLGATE_URL", url)
    server = {
        "server_id": "notes",
        "transport": "stdio",
        "allowed_tools": ["*_note", "search_notes"],
        "stdio": {"command": sys.executable, "args": [str(NOTES)]},
    }
    run("servers", "apply", "-f", str(write(tmp_path / "notes.json", server)))
    run("servers", "refresh", "notes")
    return run


def write(path: Path, document: Any) -> Path:
    path.write_text(json.dumps(document), "utf-8")
    return path


@pytest.fixture
def skill(tmp_path: Path) -> Path:
    return write(
        tmp_path / "skill.json",
        {"id": "diary", "name": "A diary", "tools": ["notes.add_note", "notes.get_note"]},
    )


def test_a_skill_is_checked_made_a_task_and_made_again(at_gateway: Run, skill: Path, url: str) -> None:
    checked = at_gateway("skills", "check", str(skill), "--json").json
    planned = at_gateway("skills", "apply", str(skill), "--dry-run", "--json").json
    applied = at_gateway("skills", "apply", str(skill), "--require-plan", planned["id"])
    again = at_gateway("skills", "apply", str(skill), "--json").json
    by_task = at_gateway("tokens", "price", "--task", "diary", "--json").json
    by_url = at_gateway("tokens", "price", "--tools", "notes.add_note,notes.get_note", "--json").json

    assert [(one["name"], one["state"]) for one in checked["tools"]] == [
        ("notes.add_note", "callable"),
        ("notes.get_note", "callable"),
    ]
    assert applied.code == 0
    assert applied.lines[-1] == f"at {url}/api/mcp/t/diary"
    assert again["changes"] == []
    assert by_task["prices"] == by_url["prices"]
    assert checked["tokens"] == by_task["tokens"] == sum(one["tokens"] for one in checked["tools"])
    at_gateway("tasks", "delete", "diary")


def test_what_a_skill_cannot_call_is_shown_with_the_reason_and_near_names(
    at_gateway: Run, tmp_path: Path
) -> None:
    file = write(
        tmp_path / "s.json",
        {
            "id": "s",
            "tools": ["notes.add_note", "notes.list_tags", "notes.add_nota", "nowhere.x", "notes.*_note"],
        },
    )

    ran = at_gateway("skills", "check", str(file))
    found = at_gateway("skills", "check", str(file), "--json").json["tools"]

    assert ran.code == ExitCode.FAILED
    assert [one["state"] for one in found] == ["callable", "hidden", "missing", "missing", "callable"]
    assert "notes.add_note" in found[2]["nearest"]
    assert found[4]["tokens"] > found[0]["tokens"]
    assert "did you mean" in ran.out
    assert "2 of 5 tools can be called" in ran.out


def test_a_price_is_shown_by_tool_with_what_everything_would_cost(at_gateway: Run) -> None:
    ran = at_gateway("tokens", "price", "--tools", "notes.add_note")

    assert ran.lines[0] == "TOOL            TOKENS  SHARE"
    assert ran.lines[1].split()[0] == "notes.add_note"
    assert ran.lines[1].split()[2] == "100%"
    assert "less" in ran.lines[3]


def test_a_price_says_where_clients_see_other_tools_than_these(at_gateway: Run) -> None:
    ran = at_gateway("tokens", "price", "--mode", "find")

    assert ran.lines[-1] == "mode find: clients see three tools, which find and call these"


def test_a_url_is_printed_to_be_copied(run: Run, skill: Path) -> None:
    url = "https://tools.example.com/with/a/long/path"
    wanted = f"{url}/api/mcp?tools=notes.add_note,notes.get_note"

    assert run("skills", "url", str(skill), "--url", url).lines == [wanted]
    assert run("skills", "url", str(skill), "--url", url, "--json").json == {
        "skill": "diary",
        "url": wanted,
        "config": {"mcpServers": {"diary": {"type": "http", "url": wanted}}},
    }


def test_the_official_registrys_clients_find_the_servers_at_the_gateways_own_listener(
    at_gateway: Run, url: str
) -> None:
    def look() -> Any:
        found = httpx2.get(f"{url}/v0.1/servers?search=notes&version=latest&limit=50", timeout=60).json()
        return found if found["servers"] else None

    listed = eventually(look)  # the catalog follows
    latest = httpx2.get(f"{url}/v0.1/servers/toolgate.local%2Fnotes/versions/latest", timeout=60)

    check_official(LIST, listed)
    assert listed["servers"] == [latest.json()]
    assert latest.json()["server"]["remotes"] == [
        {"type": "streamable-http", "url": f"{url}/api/mcp/s/notes"}
    ]


def test_a_server_is_exported_and_imported_again(at_gateway: Run, tmp_path: Path) -> None:
    far = {"mcpServers": {"far": {"url": "https://x.example/mcp", "headers": {"X-Key": "${FAR_KEY}"}}}}
    at_gateway("servers", "import", str(write(tmp_path / "mcp.json", far)))

    exported = at_gateway("servers", "export", "far")
    (tmp_path / "server.json").write_text(exported.out, "utf-8")
    refused = at_gateway("servers", "export", "notes")

    assert exported.json["name"] == "toolgate.local/far"
    assert at_gateway("servers", "import", str(tmp_path / "server.json"), "--dry-run").code == 0
    assert refused.code == ExitCode.FAILED
    at_gateway("servers", "delete", "far")


def test_a_catalog_of_docker_is_imported_with_what_it_may_not_decide_left_out(
    at_gateway: Run, tmp_path: Path
) -> None:
    file = tmp_path / "catalog.yaml"
    file.write_text(
        "registry:\n  far:\n    image: mcp/far\n    volumes: ['/:/host']\n  bad:\n    image: -v\n", "utf-8"
    )

    ran = at_gateway("servers", "import", str(file), "--dry-run", "--json").json
    shown = at_gateway("servers", "import", str(file), "--dry-run")

    assert ran["servers"] == ["far"]
    assert [one["name"] for one in ran["skipped"]] == ["bad"]
    assert "`volumes` is ignored" in " ".join(shown.out.split())


def test_a_bundle_is_to_be_installed(run: Run, tmp_path: Path) -> None:
    ran = run("servers", "import", str(tmp_path / "x.mcpb"))

    assert ran.code == ExitCode.USAGE
    assert f"toolgate packages install {tmp_path / 'x.mcpb'}" in ran.err


def test_a_skill_that_is_too_long_for_a_url_is_to_be_a_task(
    gateway: FakeGateway, run: Run, tmp_path: Path
) -> None:
    tools = [f"server-{n}.a_tool_with_a_long_name_{n}" for n in range(200)]
    file = write(tmp_path / "long.json", {"id": "long", "tools": tools})
    gateway.respond(
        "GET /api/v1/mcp/scope",
        {"prices": {}, "tokens": 0, "registered_tools": 9, "registered_tokens": 900},
    )
    gateway.respond("GET /api/v1/mcp/explain", {"tools": [], "servers": [], "pending": ["server-7"]})

    refused = run("skills", "url", str(file))
    checked = run("skills", "check", str(file), "--json").json

    assert refused.code == ExitCode.FAILED
    assert "toolgate skills apply" in refused.err
    assert f"{gateway.url}/api/mcp/t/long" in refused.err
    assert [one["state"] for one in checked["tools"]].count("unlisted") == 1
    assert len([one for one in gateway.asked if one.path == "/api/v1/mcp/scope"]) == 2


def test_what_hides_a_tool_or_its_server_is_named(gateway: FakeGateway, run: Run, tmp_path: Path) -> None:
    file = write(tmp_path / "s.json", {"id": "s", "tools": ["a.x", "b.y"]})
    hidden = {"allowed": False, "layer": "key", "reason": "not_allowed_by_key", "rule": "ceiling"}
    gateway.respond(
        "GET /api/v1/mcp/scope", {"prices": {}, "tokens": 0, "registered_tools": 9, "registered_tokens": 900}
    )
    gateway.respond(
        "GET /api/v1/mcp/explain",
        {
            "tools": [{"server_id": "a", "tool": "x", **hidden}],
            "servers": [{"server_id": "b", "tool": None, **hidden, "rule": ""}],
        },
    )

    ran = run("skills", "check", str(file))

    assert ran.code == ExitCode.FAILED
    assert ran.lines[1] == "a.x        -  hidden by key: not_allowed_by_key (ceiling)"
    assert ran.lines[2] == "b.y        -  hidden by key: not_allowed_by_key"


@pytest.mark.parametrize("text", ["{}", "[]", "{", '{"id": "a", "tools": ["x"]}'])
def test_a_manifest_that_cannot_be_read_is_refused_before_anything_is_asked(
    run: Run, tmp_path: Path, text: str
) -> None:
    file = tmp_path / "s.json"
    file.write_text(text, "utf-8")

    for command in ("check", "url", "apply"):
        ran = run("skills", command, str(file))
        assert ran.code == ExitCode.USAGE
        assert str(file) in ran.err.replace("\n", "")
