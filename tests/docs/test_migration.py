"""The guides to migrate, followed to the letter: from a file of another product to the same tools here.

Each guide begins with a configuration by that product's own rules. Its sessions are typed at a real gateway
with the reference servers behind it. Then clients of an SDK compare what the servers list with what the
gateway shows. What a file leaves out is read here in a few lines for each product, not by the importer.
"""

import asyncio
import json
import os
import re
import shlex
import shutil
import socket
import subprocess
import urllib.request
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Literal

import pytest
import yaml
from mcp import Client, StdioServerParameters
from mcp.client.stdio import stdio_client

from tests.docs.documents import EXAMPLES, ROOT, Step, document
from tests.docs.gateways import migration_gateway, write_runners
from tests.docs.test_sessions import MIGRATION, as_printed
from tests.eventually import eventually
from tests.forked_programs import forked
from tests.node import node, node_file
from tests.scenarios.ports import own_port
from toolgate.cli import main

FILES = EXAMPLES / "migration"
WITHIN_S = 300.0
DIRECT = {"time": ("mcp-server-time", "--local-timezone", "UTC"), "git": ("mcp-server-git",)}
"""How to start a reference server without a runner."""

PARTS = (
    *("What maps to what", "Import the servers", "Tasks and keys", "Point clients at the new URL"),
    *("Compare the tools", "Run side by side, then switch off", "What is different"),
    "What has no counterpart",
)

Names = set[str]


class Reader:
    """A person who follows a guide: in a directory with its files, at a terminal."""

    def __init__(
        self, directory: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        self.directory = directory
        self.programs = directory.parent / "bin"
        self._monkeypatch = monkeypatch
        self._capsys = capsys
        shutil.copytree(FILES, self.file(""))
        monkeypatch.chdir(directory)
        monkeypatch.setenv("COLUMNS", "80")
        monkeypatch.setenv("FASTMCP_CHECK_FOR_UPDATES", "off")
        monkeypatch.delenv("TOOLGATE_KEY", raising=False)

    def file(self, name: str) -> Path:
        return self.directory / FILES.relative_to(ROOT) / name

    def replace(self, name: str, written: str, own: str) -> None:
        """Have a file name what the test has in place of what it says."""
        text = self.file(name).read_text("utf-8")
        assert written in text
        self.file(name).write_text(text.replace(written, own), "utf-8")

    @contextmanager
    def gateway(self, **variables: str) -> Iterator[str]:
        """The URL of a gateway with these variables, in the reader's directory."""
        for name, value in variables.items():
            self._monkeypatch.setenv(name, value)
        with migration_gateway(self.programs, self.directory) as started:
            self._monkeypatch.setenv("TOOLGATE_URL", started.url)
            yield started.url

    def follow(self, guide: str, url: str) -> None:
        """Type all commands of a guide, and compare what they print."""
        expected = list(document(guide).steps())

        printed = [Step(one.command, as_printed(self._type(one.command, url), url)) for one in expected]

        assert printed == expected
        assert len(expected) > 3

    def _type(self, command: str, url: str) -> list[str]:
        eventually(lambda: have_settled(url), WITHIN_S)
        self._capsys.readouterr()
        with suppress(SystemExit):
            main(shlex.split(command)[1:])
        return "".join(self._capsys.readouterr()).splitlines()


@pytest.fixture
def reader(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Reader:
    return Reader(tmp_path / "reader", monkeypatch, capsys)


def have_settled(url: str) -> bool:
    """Whether each server has listed its tools, or waits until the reader does something."""
    with urllib.request.urlopen(f"{url}/admin/api/mcp/servers") as response:
        servers = json.load(response)["servers"]
    return all(
        one["health"]["tools"] or one["health"]["state"] == "down" for one in servers if one["enabled"]
    )


def list_tools(place: str | list[str], mode: Literal["auto", "legacy"] = "auto") -> Names:
    """The names that a client of the SDK sees: at a URL, or of a command."""

    async def ask() -> Names:
        # To a file: pytest's standard error has no descriptor that a child could write to.
        with Path(os.devnull).open("w") as nothing:
            server = place if isinstance(place, str) else stdio_client(launch(*place), errlog=nothing)
            async with Client(server, mode=mode) as client:
                return {tool.name for tool in (await client.list_tools()).tools}

    def launch(command: str, *words: str) -> StdioServerParameters:
        return StdioServerParameters(command=command, args=list(words))

    return asyncio.run(ask())


def prefix(server: str, tools: Iterable[str]) -> Names:
    """The names of a server's tools at the gateway."""
    return {f"{server}.{tool}" for tool in tools}


def direct(server: str) -> list[str]:
    return forked(*DIRECT[server])


def on_node(package: str, *words: str) -> list[str]:
    return [node(), node_file(f"@modelcontextprotocol/{package}/dist/index.js"), *words]


@contextmanager
def bridged(directory: Path, command: list[str], transport: str) -> Iterator[str]:
    """The address of a stdio server behind a bridge, such as `mcpgateway.translate`."""
    port = own_port()
    config = directory / f"{port}.json"
    config.write_text(json.dumps({"mcpServers": {"one": {"command": command[0], "args": command[1:]}}}))
    words = ["run", str(config), "--transport", transport, "--port", str(port), "--no-banner"]
    with serving(forked("fastmcp", *words), port):
        yield f"127.0.0.1:{port}"


@contextmanager
def serving(command: list[str], port: int) -> Iterator[None]:
    """A program that listens at this port."""
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as program:
        try:
            eventually(lambda: is_listening(port), WITHIN_S)
            yield
        finally:
            program.terminate()


def is_listening(port: int) -> bool:
    with socket.socket() as trial:
        return trial.connect_ex(("127.0.0.1", port)) == 0


def test_contextforge_gateways_show_the_same_tools_and_a_virtual_server_is_a_task(
    reader: Reader, tmp_path: Path
) -> None:
    with ExitStack() as stack:
        time = stack.enter_context(bridged(tmp_path, direct("time"), "sse"))
        git = stack.enter_context(bridged(tmp_path, direct("git"), "http"))
        reader.replace("contextforge/export.json", "127.0.0.1:8002", time)
        reader.replace("contextforge/export.json", "127.0.0.1:8003", git)
        url = stack.enter_context(reader.gateway(REPOSITORY_TOKEN="any"))
        reader.follow("docs/how-to/migrate-from-contextforge.md", url)
        listed = {
            "local-time": list_tools(direct("time")),
            "repository": list_tools(direct("git")),
        }
        all_shown, shown = list_tools(f"{url}/api/mcp"), list_tools(f"{url}/api/mcp/t/release-notes")

    export = json.loads(reader.file("contextforge/export.json").read_text("utf-8"))
    [virtual] = export["entities"]["servers"]
    names = {name for server, tools in listed.items() for name in prefix(server, tools)}
    assert all_shown == names
    assert shown == {name for name in names if re.sub(r"[._]", "-", name) in virtual["tool_ids"]}


def test_litellm_allowlists_denylists_and_access_groups_hold(reader: Reader, tmp_path: Path) -> None:
    port = own_port()
    reader.replace("litellm/config.yaml", "127.0.0.1:3001", f"127.0.0.1:{port}")
    everything = ["env", f"PORT={port}", *on_node("server-everything", "streamableHttp")]
    with (
        serving(everything, port),
        reader.gateway(MEMORY_FILE=str(tmp_path / "memory.jsonl"), EVERYTHING_TOKEN="any") as url,
    ):
        reader.follow("docs/how-to/migrate-from-litellm.md", url)
        listed = {
            "time": list_tools(direct("time")),
            "git": list_tools(direct("git")),
            "memory": list_tools(on_node("server-memory")),
            "everything": list_tools(f"http://127.0.0.1:{port}/mcp"),
        }
        shown = {path: list_tools(f"{url}/api/mcp{path}") for path in ("", "/t/desk", "/t/development")}

    servers = yaml.safe_load(reader.file("litellm/config.yaml").read_text("utf-8"))["mcp_servers"]
    kept = {
        name: listed[name]
        & set(one.get("allowed_tools", listed[name])) - set(one.get("disallowed_tools", ()))
        for name, one in servers.items()
    }
    groups = {name: set(one.get("access_groups", ())) for name, one in servers.items()}
    assert shown == {
        "": {tool for name in servers for tool in prefix(name, kept[name])},
        "/t/desk": {tool for name in servers if "desk" in groups[name] for tool in prefix(name, kept[name])},
        "/t/development": {
            tool
            for name in servers
            if "development" in groups[name] or not groups[name]
            for tool in prefix(name, kept[name])
        },
    }


def test_mcphub_groups_are_tasks_and_tools_that_were_off_stay_off(reader: Reader, tmp_path: Path) -> None:
    files = {"MEMORY_FILE": str(tmp_path / "1.jsonl"), "NOTES_MEMORY_FILE_PATH": str(tmp_path / "2.jsonl")}
    with reader.gateway(OFFICE_TIMEZONE="UTC", **files) as url:
        reader.follow("docs/how-to/migrate-from-mcphub.md", url)
        listed = {
            "time": list_tools(direct("time")),
            "git": list_tools(direct("git")),
            "memory": list_tools(on_node("server-memory")),
        }
        shown = {path: list_tools(f"{url}/api/mcp{path}") for path in ("", "/t/desk", "/t/development")}

    listed |= {"clock": listed["time"], "notes": listed["memory"]}
    hub = json.loads(reader.file("mcphub/mcp_settings.json").read_text("utf-8"))
    kept = dict(listed)
    for name, one in hub["mcpServers"].items():
        if one.get("enabled", True):
            off = {tool for tool, settings in one.get("tools", {}).items() if not settings["enabled"]}
            kept[name] = listed[name] - off
    kept["notes"] = listed["notes"] - {"delete_entities"}
    front, development = hub["groups"]
    git, time = development["servers"]
    assert shown == {
        "": {tool for name, tools in kept.items() for tool in prefix(name, tools)},
        "/t/desk": {tool for name in front["servers"] for tool in prefix(name, kept[name])},
        "/t/development": prefix(git["name"], git["tools"]) | prefix(time["name"], kept["time"]),
    }


def test_a_fastmcp_proxy_and_the_gateway_show_the_same_tools(
    reader: Reader, monkeypatch: pytest.MonkeyPatch
) -> None:
    port = own_port()
    write_runners(reader.programs)
    monkeypatch.setenv("PATH", str(reader.programs), prepend=":")
    reader.replace("old.toml", "127.0.0.1:8000", f"127.0.0.1:{port}")
    proxy = forked("fastmcp", "run", str(reader.file("fastmcp/mcp.json")))
    with (
        serving([*proxy, "--transport", "http", "--port", str(port), "--no-banner"], port),
        reader.gateway() as url,
    ):
        before = list_tools(f"http://127.0.0.1:{port}/mcp", mode="legacy")
        reader.follow("docs/how-to/migrate-from-fastmcp.md", url)
        after = list_tools(f"{url}/api/mcp")
        reviewed = list_tools(f"{url}/api/mcp/t/review")

    assert {tool.replace(".", "_", 1) for tool in after} == before | {"rates_convert"}
    assert reviewed < after


def test_a_pile_of_editors_files_is_one_list_without_what_they_switched_off(
    reader: Reader, tmp_path: Path
) -> None:
    with ExitStack() as stack:
        time = stack.enter_context(bridged(tmp_path, direct("time"), "http"))
        reader.replace("mcp-json/vscode.json", "127.0.0.1:3001", time)
        url = stack.enter_context(reader.gateway(TIME_TOKEN="any"))
        reader.follow("docs/how-to/migrate-from-mcp-json.md", url)
        listed = {
            "time": list_tools(direct("time")),
            "git": list_tools(direct("git")) - {"git_reset"},
            "memory": list_tools(on_node("server-memory")),
            "files": list_tools(on_node("server-filesystem", str(tmp_path))),
        }
        shown, reviewed = list_tools(f"{url}/api/mcp"), list_tools(f"{url}/api/mcp/t/review")

    windsurf = json.loads(reader.file("mcp-json/windsurf.json").read_text("utf-8"))["mcpServers"]
    assert (windsurf["git"]["disabledTools"], windsurf["everything"]["disabled"]) == (["git_reset"], True)
    assert shown == {tool for name, tools in listed.items() for tool in prefix(name, tools)}
    assert {name.partition(".")[0] for name in reviewed} == {"git", "files"}


@pytest.mark.parametrize("guide", MIGRATION)
def test_a_guide_shows_each_record_that_it_applies(guide: str) -> None:
    shown = document(guide).blocks("toml")
    directories = set(re.findall(r"docs/examples/migration/[\w-]+/records\b", document(guide).text))
    records = [file for name in directories for file in (ROOT / name).rglob("*.toml")]

    assert [str(file) for file in records if file.read_text("utf-8") not in shown] == []
    assert records


@pytest.mark.parametrize("guide", MIGRATION)
def test_a_guide_has_the_parts_that_a_move_needs(guide: str) -> None:
    headings = re.findall(r"^## (.+)$", document(guide).text, re.MULTILINE)

    assert [part for part in PARTS if part not in headings] == []


@pytest.mark.parametrize("name", ["litellm/config.yaml", "fastmcp/server.py"])
def test_an_example_that_is_neither_toml_nor_json_is_shown_as_it_is(name: str) -> None:
    blocks = [block for guide in MIGRATION for block in document(guide).blocks("yaml", "python")]

    assert (FILES / name).read_text("utf-8") in blocks
