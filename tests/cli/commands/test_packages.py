"""Packages on the command line: directories completed and packed, archives sent, what people see of it."""

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import Run
from tests.cli.fake_gateway import FakeGateway
from tests.cli.screen import shown
from tests.package_kit import manifest, pack
from toolgate.catalog.definitions import check_tools
from toolgate.cli.command import DEFAULT_URL, CommandError
from toolgate.cli.commands.packages import (
    VersionBump,
    render_install_plan,
    render_installed,
    render_package,
    render_packages,
)
from toolgate.cli.commands.publish import PackageDirectory, bump_version, render_published
from toolgate.model.tools import ToolDefinition

EVIL = "\x1b[31mred\u202e"


def tools(*names: str) -> list[ToolDefinition]:
    raws = [json.dumps({"name": name, "inputSchema": {"type": "object"}}).encode() for name in names]
    return list(check_tools("notes", raws)[0].values())


def directory(tmp_path: Path, document: Any) -> Path:
    (tmp_path / "manifest.json").write_text(json.dumps(document), "utf-8")
    return tmp_path


@pytest.mark.parametrize(
    ("version", "bump", "expected"),
    [
        pytest.param("1.2.3", "patch", "1.2.4", id="patch"),
        pytest.param("1.2.3", "minor", "1.3.0", id="minor"),
        pytest.param("1.2.3", "major", "2.0.0", id="major"),
        pytest.param("1.2.3-rc.1+build", "patch", "1.2.4", id="what follows is left out"),
    ],
)
def test_the_next_version(version: str, bump: VersionBump, expected: str) -> None:
    assert bump_version(version, bump) == expected


def test_a_version_of_another_form_has_no_next_one() -> None:
    with pytest.raises(CommandError, match=r"1\.2\.3"):
        bump_version("2026-11", "patch")


@pytest.mark.requirement("004-19")
def test_a_manifest_is_completed_in_place_and_keeps_what_else_it_says(tmp_path: Path) -> None:
    document = {"x-team": "blue", **manifest(), "toolsSummary": ["old"], "tools": [{"broken": True}]}
    package = PackageDirectory(directory(tmp_path, document), bump="minor")
    package.write(package.complete(tools("add", "echo")))
    written = json.loads((tmp_path / "manifest.json").read_text("utf-8"))

    assert [*written] == ["x-team", *(name for name in manifest() if name != "tools"), "tools"]
    assert (written["version"], [one["name"] for one in written["tools"]]) == ("1.1.0", ["add", "echo"])
    assert [path.name for path in tmp_path.iterdir()] == ["manifest.json"]


def test_a_manifest_from_before_version_2_is_made_one_of_it(tmp_path: Path) -> None:
    old = {"id": "notes", "version": "3", "command": "serve", "toolsSummary": "echo, add"}
    package = PackageDirectory(directory(tmp_path, old))
    written = json.loads(package.complete(tools("echo")))

    assert (written["manifestSchemaVersion"], written["version"]) == ("v2", "3")
    assert written["run"] == {"transport": "stdio", "command": "serve"}


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        pytest.param(None, "toolgate packages init", id="none"),
        pytest.param("[]", "JSON object", id="no object"),
        pytest.param("{", "JSON object", id="no JSON"),
    ],
)
def test_a_directory_without_a_manifest_is_no_package(
    run: Run, tmp_path: Path, content: str | None, expected: str
) -> None:
    if content is not None:
        (tmp_path / "manifest.json").write_text(content, "utf-8")
    ran = run("packages", "publish", str(tmp_path))

    assert (ran.code, expected in ran.err) == (2, True)


def test_only_the_parts_that_are_missing_are_sent(gateway: FakeGateway, run: Run, tmp_path: Path) -> None:
    archive = pack(manifest(), {"noise": hashlib.shake_256(b"").digest(9 * 1024 * 1024)})
    path = f"/api/uploads/{hashlib.sha256(archive).hexdigest()}"
    file = tmp_path / "notes.tar.gz"
    file.write_bytes(archive)
    gateway.respond(f"GET {path}", {"parts": [1, 3]})
    gateway.respond(f"PUT {path}/2", {"part": 2})
    gateway.respond(f"POST {path}", {"package_id": "notes", "version": "1.0.0"})
    gateway.respond("POST /api/packages/notes/install", respond())
    ran = run("packages", "install", str(file), "--allow", "a*", "--no-pin", "--require-plan", "x", "--json")
    sent = {f"{one.method} {one.path}": one for one in gateway.asked}
    half = 4 * 1024 * 1024

    assert ran.code == 0, ran.err
    assert [one for one in sent if one.startswith("PUT")] == [f"PUT {path}/2"]
    assert sent[f"PUT {path}/2"].body == archive[half : 2 * half]
    assert sent[f"POST {path}"].body == {"parts": 3}
    install = sent["POST /api/packages/notes/install"]
    assert install.headers["toolgate-plan"] == "x"
    assert install.body == {"allowed_tools": ["a*"], "pin": False, "version": "1.0.0", "dry_run": False}


def test_a_dry_run_of_a_file_sends_its_manifest_alone(gateway: FakeGateway, run: Run, tmp_path: Path) -> None:
    archive = pack(manifest())
    (tmp_path / "notes.tgz").write_bytes(archive)
    gateway.respond("POST /api/packages/notes/install", respond(plan=plan()))
    ran = run("packages", "install", str(tmp_path / "notes.tgz"), "--dry-run")

    assert ran.code == 0, ran.err
    assert [one.path for one in gateway.asked] == ["/api/packages/notes/install"]
    assert json.loads(gateway.last.body["manifest"]) == manifest()
    assert gateway.last.body["sha256"] == hashlib.sha256(archive).hexdigest()


def test_a_version_is_named_behind_an_at(gateway: FakeGateway, run: Run) -> None:
    gateway.respond("POST /api/packages/notes/install", respond())
    run("packages", "install", "notes@1.0.0", "--json")

    assert gateway.asked[0].body == {"version": "1.0.0", "dry_run": False}


def test_a_directory_is_published_and_not_installed(run: Run, tmp_path: Path) -> None:
    ran = run("packages", "install", str(tmp_path))

    assert (ran.code, "toolgate packages publish" in ran.err) == (2, True)


def test_an_archive_is_removed_by_its_version(gateway: FakeGateway, run: Run) -> None:
    gateway.respond("DELETE /api/packages/notes/1.0.0", {"package_id": "notes", "version": "1.0.0"})

    assert run("packages", "delete", "notes", "1.0.0").lines == ["✓ deleted the archive of notes 1.0.0"]


def test_packages_alone_lists_them_page_by_page(gateway: FakeGateway, run: Run) -> None:
    first = {"revision": 3, "packages": [package()], "next_cursor": "x"}
    gateway.respond("GET /api/packages", first)
    gateway.respond("GET /api/packages?cursor=x", {**first, "packages": [package("b")], "next_cursor": None})

    assert run("packages").lines == run("packages", "list").lines
    assert [json.loads(line)["package_id"] for line in run("packages", "--json").out.splitlines()] == [
        "notes",
        "b",
    ]


def respond(**members: Any) -> dict[str, Any]:
    return {
        "package_id": "notes",
        "version": "1.1.0",
        "sha256": "0" * 64,
        "before": "1.0.0",
        "allowed_tools": ["echo"],
        "pinned": True,
        "tools": {
            "added": ["add"],
            "removed": ["drop"],
            "renamed": [{"before": "a", "after": "b"}],
            "changed": {"echo": ["@@ -1 +1 @@", f'-  "description": "{EVIL}"', '+  "description": "new"']},
        },
        "revision": 7,
        "changes": [
            {"operation": "changed", "kind": "pin", "id": "notes", "fields": []},
            {
                "operation": "changed",
                "kind": "server",
                "id": "notes",
                "fields": [{"field": "stdio.command", "before": "serve", "after": "serve2"}],
            },
        ],
        "warnings": [f"careful {EVIL}"],
        "plan": None,
    } | members


def plan() -> dict[str, Any]:
    return {
        "id": "f00",
        "revision": 7,
        "changes": [],
        "tasks": [
            {
                "task_id": None,
                "added": ["notes/add"],
                "removed": [],
                "reach_added": [],
                "reach_removed": [],
                "refusal": None,
                "problem": None,
            }
        ],
        "unchanged": 2,
        "unlisted": [],
        "warnings": [],
    }


def package(package_id: str = "notes") -> dict[str, Any]:
    return {
        "package_id": package_id,
        "installed": "1.0.0",
        "revision": 3,
        "name": EVIL,
        "description": "",
        "category": "office",
        "tags": ["text"],
        "schema_version": "v2",
        "source": "manifest",
        "tools": ["echo"],
        "versions": [
            {
                "version": "1.0.0",
                "sha256": "0" * 64,
                "size": 2_405,
                "at_ms": 1_700_000_000_000,
                "installed": True,
            }
        ],
    }


def test_what_people_see_of_an_installation() -> None:
    server = {"server_id": "notes", "tools": ["add", "echo"], "health": {"state": "connected"}}
    url = "http://gateway/api/mcp?servers=notes"

    assert shown(render_installed(respond(), server, url, gateway="http://gateway")) == [
        "✓ notes 1.1.0 is installed (was 1.0.0)  revision 7",
        "  + add",
        "  - drop",
        "  ~ a is now b",
        "  ~ echo",
        "    @@ -1 +1 @@",
        '    -  "description": "\\x1b[31mred\\u202e"',
        '    +  "description": "new"',
        "",
        "warning: careful \\x1b[31mred\\u202e",
        "",
        "✓ server connected: 2 of 2 tools visible",
        "",
        "Paste this URL into a client, or run:",
        "  http://gateway/api/mcp?servers=notes",
        "  toolgate connect claude-code --servers notes --write --url http://gateway",
    ]


@pytest.mark.parametrize(
    ("visible", "line"),
    [
        (["add"], "✓ server connected: 1 of 2 tools visible"),
        ([], "✗ server connected: 0 of 2 tools visible; see `toolgate explain --servers notes`"),
    ],
)
def test_an_installation_says_how_many_tools_callers_can_see(visible: list[str], line: str) -> None:
    server = {
        "server_id": "notes",
        "tools": ["add", "echo"],
        "visible": visible,
        "health": {"state": "connected"},
    }

    assert line in shown(render_installed(respond(), server, "http://gateway", gateway="http://gateway"))


def test_what_people_see_of_one_that_was_not_made() -> None:
    lines = shown(
        render_install_plan(respond(plan=plan()), ["packages", "publish", "a dir", "--bump", "patch"])
    )

    assert lines[0] == "notes 1.1.0 would be installed (was 1.0.0)  revision 7"
    assert lines[-13:] == [
        "~ pin notes",
        "~ server notes",
        "    stdio.command",
        "      -  serve",
        "      +  serve2",
        "",
        "without a task  +1  -0",
        "  +  notes  add",
        "",
        "2 tasks unchanged; nothing was written",
        "",
        "To apply exactly this change:",
        "  toolgate packages publish 'a dir' --bump patch --require-plan f00",
    ]


def test_a_server_that_does_not_run_says_why() -> None:
    server = {"server_id": "notes", "tools": [], "health": {"state": "down", "last_error": "no `X`"}}
    installed = {"package_id": "notes", "version": "1", "files": 3, "size": 9, "uploaded": True}
    published = {**installed, "install": respond(changes=[]), "server": server, "url": "http://g/api/mcp"}
    lines = shown(render_published(published, gateway=DEFAULT_URL))

    assert lines[0] == "✓ notes 1: 3 files, 9 bytes"
    assert "notes 1.1.0 was installed already: nothing to do (was 1.0.0)  revision 7" in lines
    assert "✗ server not connected: no `X`; see `toolgate servers get notes`" in lines


def test_what_is_only_kept_says_how_to_install_it() -> None:
    kept = {"package_id": "notes", "version": "1", "files": 3, "size": 9, "uploaded": False, "install": None}

    assert shown(render_published(kept, gateway=DEFAULT_URL)) == [
        "✓ notes 1: 3 files, 9 bytes, already published",
        "",
        "The package is not installed. To install it, run:",
        "  toolgate packages install notes@1",
    ]


def test_what_people_see_of_packages() -> None:
    assert shown(render_packages([package()])) == [
        "PACKAGE  INSTALLED  VERSIONS  TOOLS  NAME",
        "notes    1.0.0      1         1      \\x1b[31mred\\u202e",
    ]
    assert shown(render_packages([]))[0].startswith("no packages:")
    assert shown(render_package(package())) == [
        "notes",
        "",
        "name       \\x1b[31mred\\u202e",
        "category   office",
        "tags       text",
        "installed  1.0.0",
        "tools      echo",
        "",
        "VERSION  PUBLISHED         BYTES  SHA-256",
        "1.0.0    2023-11-14 22:13  2,405  0000000000000000",
    ]
