"""Packages, from an empty directory to a call: published, upgraded under open connections, removed."""

import json
import signal
import zipfile
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.eventually import eventually_equal
from tests.package_kit import pack
from tests.scenarios.fleet import WITHIN_S, Fleet
from tests.scenarios.gateway import Gateway, Ran, Site, running
from tests.scenarios.in_process import cli
from tests.scenarios.inspector import Inspector
from tests.scenarios.stage_http import open_http_stage

pytestmark = pytest.mark.xdist_group("scenario-packages")

LIST_CHANGED = "notifications/tools/list_changed"
TEMPLATE = Path(__file__).parents[2] / "src/toolgate/cli/package_template/server.py"
TOOL = '''@tool
def {name}(a: Annotated[int, "One number."], b: Annotated[int, "The other."]) -> int:
    """{description}"""
    return a {sign} b


# The protocol
'''


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    with running(Site(tmp_path_factory.mktemp("packages"))) as gateway:
        yield gateway


def did(ran: Ran) -> Ran:
    """A command that succeeded."""
    assert ran.code == 0, ran.err
    return ran


def begin(gateway: Gateway, package_id: str) -> Path:
    """A new package, of the program's own making."""
    directory = gateway.site.root / "projects" / package_id
    did(cli(gateway, "packages", "init", str(directory)))
    return directory


def add_tool(directory: Path, name: str, description: str, sign: str = "+") -> None:
    file = directory / "server.py"
    tool = TOOL.format(name=name, description=description, sign=sign)
    file.write_text(file.read_text("utf-8").replace("# The protocol\n", tool), "utf-8")


def edit(directory: Path, before: str, after: str) -> None:
    file = directory / "server.py"
    file.write_text(file.read_text("utf-8").replace(before, after), "utf-8")


def publish(gateway: Gateway, directory: Path, *words: str) -> Any:
    return did(cli(gateway, "packages", "publish", str(directory), "--json", *words)).json


@pytest.mark.requirement("004-12")
def test_a_manifest_without_run_describes_a_server_that_is_registered(gateway: Gateway) -> None:
    directory = gateway.site.root / "described"
    directory.mkdir()
    tools = [{"name": "count", "description": "Counts.", "inputSchema": {"type": "object"}}]
    document = {"id": "tally", "name": "Tally", "category": "numbers", "tags": ["count"], "tools": tools}
    (directory / "manifest.json").write_text(json.dumps(document), "utf-8")
    record = {"server_id": "tally", "transport": "stdio", "stdio": {"command": "tally"}, "enabled": False}
    (directory / "tally.json").write_text(json.dumps(record), "utf-8")

    refused = cli(gateway, "packages", "publish", str(directory))
    did(cli(gateway, "servers", "apply", "-f", str(directory / "tally.json")))
    dry = publish(gateway, directory, "--dry-run")
    published = publish(gateway, directory)
    server = did(cli(gateway, "servers", "get", "tally", "--json")).json

    assert refused.code == 1
    assert "register the server `tally` first" in refused.err
    assert (dry["tools"]["added"], published["files"]) == (["count"], 1)
    assert (server["display_name"], server["category"], server["tags"]) == ("Tally", "numbers", ["count"])
    assert json.loads((directory / "manifest.json").read_text("utf-8")) == document


@pytest.mark.requirement("004-19")
def test_from_an_empty_directory_to_a_call_in_inspector(gateway: Gateway) -> None:
    directory = gateway.site.root / "reckoner"
    did(gateway.cli("packages", "init", str(directory)))
    manifest = directory / "manifest.json"
    document = json.loads(manifest.read_text("utf-8"))
    manifest.write_text(json.dumps({**document, "category": "maths", "x-team": "blue"}), "utf-8")
    add_tool(directory, "add", "Add two numbers.")

    dry = did(gateway.cli("packages", "publish", str(directory), "--json", "--dry-run")).json
    published = did(gateway.cli("packages", "publish", str(directory), "--json")).json

    assert (dry["tools"]["added"], dry["plan"]["tasks"][0]["added"]) == (
        ["add", "greet"],
        ["reckoner/add", "reckoner/greet"],
    )
    written = json.loads(manifest.read_text("utf-8"))
    assert [*written] == [*document, "x-team", "tools"]
    assert [tool["name"] for tool in written["tools"]] == ["greet", "add"]
    assert (published["server"]["health"]["state"], published["server"]["tools"]) == (
        "connected",
        ["add", "greet"],
    )

    categories = gateway.get("/api/catalog")["categories"]
    found = gateway.get("/api/catalog/search?q=numbers")["tools"]
    tools = gateway.get("/api/catalog/reckoner/tools")["tools"]
    assert [(one["id"], one["packageCount"], one["toolCount"]) for one in categories] == [("maths", 1, 2)]
    assert [(one["name"], one["serverId"]) for one in found] == [("add", "reckoner")]
    assert [(one["name"], one["source"]) for one in tools] == [("add", "manifest"), ("greet", "manifest")]

    url = f"{gateway.url}/api/mcp?tools=reckoner.add"
    listed = Inspector("modern").request(url, "tools/list")["tools"]
    response = Inspector("legacy").call(url, "reckoner.add", {"a": 40, "b": 2})
    assert [tool["name"] for tool in listed] == ["reckoner.add"]
    assert response["content"] == [{"type": "text", "text": "42"}]


def test_publishing_notifies_exactly_the_clients_with_changed_tools(site: Site) -> None:
    with running(site) as gateway:
        directory = begin(gateway, "news")
        add_tool(directory, "add", "Add.")
        publish(gateway, directory)
        wide, narrow = gateway.modern("/api/mcp?servers=news"), gateway.modern("/api/mcp?tools=news.greet")
        session, apart = gateway.legacy("/api/mcp?servers=news"), gateway.legacy("/api/mcp?tools=news.greet")
        with (
            wide.changes() as to_wide,
            narrow.changes() as to_narrow,
            session.changes() as to_session,
            apart.changes() as to_apart,
        ):
            assert next(to_wide) == next(to_narrow) == "notifications/subscriptions/acknowledged"
            publish(gateway, directory)  # the same again is no news to anyone
            add_tool(directory, "subtract", "Subtract.", "-")
            publish(gateway, directory, "--bump", "minor")
            received = next(to_wide), next(to_session)
            lists = [client.tools() for client in (wide, narrow, session, apart)]
            did(cli(gateway, "packages", "uninstall", "news"))
            ends = [next(stream) for stream in (to_wide, to_narrow, to_session, to_apart)]
            lasts = [client.tools() for client in (wide, narrow, session, apart)]
            gateway.signal(signal.SIGTERM)
            rests = [list(stream) for stream in (to_wide, to_narrow, to_session, to_apart)]
        assert gateway.wait() == 0

    assert received == (LIST_CHANGED, LIST_CHANGED)
    everything = ["news.add", "news.greet", "news.subtract"]
    assert lists == [everything, ["news.greet"], everything, ["news.greet"]]
    assert (ends, lasts) == ([LIST_CHANGED] * 4, [[]] * 4)
    assert rests == [["result"], ["result"], [], []]


def test_a_tool_that_another_version_defines_otherwise_is_offered_as_that_one_has_it(
    gateway: Gateway,
) -> None:
    """UPS-9: an installed version is approved; what runs in its place is not."""
    directory = begin(gateway, "shifting")
    publish(gateway, directory)
    edit(directory, "Greet a person by name.", "Greet a person, by any name.")
    conflict = cli(gateway, "packages", "publish", str(directory))
    dry = did(cli(gateway, "packages", "publish", str(directory), "--dry-run", "--bump", "patch"))
    publish(gateway, directory, "--bump", "patch")

    assert (conflict.code, "--bump patch" in conflict.err) == (1, True)
    assert '+  "description": "Greet a person, by any name."' in dry.out
    tools = gateway.modern("/api/mcp?servers=shifting").request("tools/list")["result"]["tools"]
    assert [tool["description"] for tool in tools] == ["Greet a person, by any name."]
    pin = gateway.get("/admin/api/pins/shifting")
    assert (list(pin["tools"]), pin["changed"]) == (["greet"], {})


def test_on_nodes_another_version_is_as_approved_as_the_first(tmp_path: Path) -> None:
    """UPS-9: what nodes listed of the version before is not held against the pin of the next."""
    with ExitStack() as stack:
        fleet = Fleet(tmp_path, None, stack)
        control = fleet.add_control().gateway
        node = fleet.add_node()
        client = node.gateway.modern("/api/mcp?servers=faraway")

        def described() -> list[str]:
            return [tool["description"] for tool in client.request("tools/list")["result"]["tools"]]

        def reported() -> list[str]:
            tools = control.get("/admin/api/mcp/servers/faraway/tools")["tools"]
            return [tool["description"] for tool in tools]

        directory = begin(control, "faraway")
        publish(control, directory)
        eventually_equal(described, ["Greet a person by name."], WITHIN_S)
        eventually_equal(reported, ["Greet a person by name."], WITHIN_S)
        edit(directory, "Greet a person by name.", "Greet anyone.")
        revision = publish(control, directory, "--bump", "patch")["install"]["revision"]
        eventually_equal(described, ["Greet anyone."], WITHIN_S)
        eventually_equal(reported, ["Greet anyone."], WITHIN_S)

        assert described() == ["Greet anyone."]
        assert control.get("/admin/api/pins/faraway")["changed"] == {}
        assert control.get("/admin/api/pins/faraway")["revision"] == revision


@pytest.mark.parametrize(
    ("package_id", "members", "words", "source"),
    [
        pytest.param(
            "summed",
            {"toolsSummary": {"greet": "Greets."}},
            [],
            "summary",
            id="summary",
        ),
        pytest.param("bare", {}, ["--allow", "*"], "legacy", id="nothing at all"),
    ],
)
def test_an_old_package_is_installed_listed_found_and_run(
    gateway: Gateway, package_id: str, members: dict[str, Any], words: list[str], source: str
) -> None:
    old = {"id": package_id, "version": "1", "command": "python3", "args": ["server.py"], **members}
    file = gateway.site.root / f"{package_id}.tar.gz"
    file.write_bytes(pack(old, {"server.py": TEMPLATE.read_bytes()}))
    installed = did(cli(gateway, "packages", "install", str(file), "--json", *words)).json
    shown = gateway.get(f"/api/packages/{package_id}")

    assert (shown["schema_version"], shown["source"], installed["pinned"]) == ("legacy", source, False)
    client = gateway.modern(f"/api/mcp?servers={package_id}")
    called = client.request("tools/call", {"name": f"{package_id}.greet", "arguments": {"name": "Ada"}})
    assert called["result"]["content"] == [{"type": "text", "text": "Hello, Ada!"}]

    def found() -> list[tuple[str, str]]:
        tools = gateway.get(f"/api/catalog/search?q=greet&server={package_id}")["tools"]
        return [(one["name"], one["serverId"]) for one in tools]

    eventually_equal(found, [("greet", package_id)])


def test_a_bundle_is_installed_and_run(gateway: Gateway) -> None:
    launch = {"command": "python3", "args": ["${__dirname}/server.py"]}
    bundle = {
        "manifest_version": "0.3",
        "name": "bundle",
        "version": "1.2.3",
        "description": "Greets.",
        "author": {"name": "someone"},
        "server": {"type": "python", "entry_point": "server.py", "mcp_config": launch},
        "tools": [{"name": "greet", "description": "Greets a person."}],
    }
    file = gateway.site.root / "bundle.mcpb"
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("manifest.json", json.dumps(bundle))
        archive.write(TEMPLATE, "server.py")
    dry = did(cli(gateway, "packages", "install", str(file), "--json", "--dry-run")).json
    installed = did(
        cli(gateway, "packages", "install", str(file), "--json", "--require-plan", dry["plan"]["id"])
    ).json
    tools = gateway.modern("/api/mcp?servers=bundle").tools()

    assert (installed["version"], installed["sha256"]) == ("1.2.3", dry["sha256"])
    assert (installed["server"]["tools"], tools) == (["greet"], ["bundle.greet"])
    spawns = "/admin/api/audit?type=spawn&server=bundle"
    eventually_equal(lambda: {one["package"] for one in gateway.get(spawns)["events"]}, {installed["sha256"]})


def test_an_uninstalled_package_is_gone_from_lists_catalog_and_search_and_runs_no_more(
    gateway: Gateway,
) -> None:
    publish(gateway, begin(gateway, "passing"))
    pid = gateway.health("passing")["pid"]
    removed = did(cli(gateway, "packages", "uninstall", "passing", "--purge", "--json")).json

    assert removed["removed_versions"] == ["0.1.0"]
    assert gateway.modern("/api/mcp?servers=passing").tools() == []
    assert gateway.http.get("/api/catalog/passing/tools").status_code == 404
    assert gateway.get("/api/catalog/search?q=greet&server=passing")["tools"] == []
    assert gateway.http.get("/api/packages/passing").status_code == 404
    eventually_equal(lambda: Path(f"/proc/{pid}").exists(), False)
    assert not list((gateway.site.data / "artifacts").rglob("*passing*"))


def test_a_package_of_a_url_is_connected_to_and_nothing_is_started(gateway: Gateway) -> None:
    directory = gateway.site.root / "projects" / "remote"
    directory.mkdir(parents=True)
    with open_http_stage() as url:
        run = {"transport": "streamable_http", "url": url}
        document = {"manifestSchemaVersion": "v2", "id": "remote", "version": "1", "run": run}
        (directory / "manifest.json").write_text(json.dumps(document), "utf-8")
        published = publish(gateway, directory)
        reply = gateway.modern("/api/mcp?servers=remote").text("remote.echo", text="hello")
        did(cli(gateway, "packages", "uninstall", "remote"))

    assert (published["files"], published["server"]["tools"], reply) == (1, ["echo"], "hello")


def test_a_server_that_does_not_start_is_not_published_and_its_last_words_are_shown(
    gateway: Gateway,
) -> None:
    directory = begin(gateway, "broken")
    (directory / "server.py").write_text("import sys\nsys.exit('no library `foo` here')\n", "utf-8")
    ran = cli(gateway, "packages", "publish", str(directory))

    assert ran.code == 1
    assert "no library `foo` here" in ran.err
    assert gateway.http.get("/api/packages/broken").status_code == 404


def test_init_touches_nothing_that_is_there(gateway: Gateway) -> None:
    directory = begin(gateway, "kept")
    (directory / "server.py").write_text("mine", "utf-8")
    again = cli(gateway, "packages", "init", str(directory))
    nameless = cli(gateway, "packages", "init", str(directory / "文件"))

    assert (again.code, (directory / "server.py").read_text("utf-8")) == (2, "mine")
    assert (nameless.code, "--id" in nameless.err) == (2, True)
