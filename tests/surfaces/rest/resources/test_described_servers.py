"""Manifests without `run`: they describe a server that is registered already, and never run it."""

import json
from typing import Any, Final

import pytest

from tests.docs.documents import EXAMPLES
from tests.package_kit import manifest, pack, upload
from tests.surfaces.rest_world import PINS, SERVERS, RestWorld, error_of, open_rest, stdio
from tests.upstream.memory_link import definition
from toolgate.registry.records.codec import parse_server

pytestmark = pytest.mark.anyio

INSTALL: Final = "/api/packages/excel-tools/install"
# As the document on selective exposure has it.
DOCUMENTS: Final = """{
  "id": "excel-tools",
  "name": "Excel 工具集",
  "category": "data",
  "tags": ["excel", "spreadsheet", "office"],
  "tools": [
    {
      "name": "create_workbook",
      "description": "创建新的 Excel 工作簿",
      "inputSchema": {
        "type": "object",
        "properties": {
          "filename": { "type": "string", "description": "文件名" },
          "sheets": { "type": "array" }
        },
        "required": ["filename"]
      }
    }
  ]
}"""
DECLARED: Final = json.dumps(json.loads(DOCUMENTS)["tools"][0]).encode()


async def describe(world: RestWorld, document: Any = DOCUMENTS) -> dict[str, Any]:
    """Upload a manifest and install it."""
    content = document.encode() if isinstance(document, str) else document
    uploaded = await upload(world.request, pack(content))
    assert uploaded.status_code == 200, uploaded.text
    response = await world.request("POST", INSTALL, {})
    assert response.is_success, response.text
    await world.served()
    done: dict[str, Any] = response.json()
    return done


async def catalog(world: RestWorld) -> dict[str, tuple[str, str]]:
    """The rows of the server: name to source and category."""
    tools = (await world.get("/api/catalog/excel-tools/tools"))["tools"]
    return {one["name"]: (one["source"], one["category"]) for one in tools}


@pytest.mark.requirement("004-12")
async def test_the_documents_manifest_describes_a_server_that_is_registered() -> None:
    async with open_rest() as world:
        world.net.servers["excel-tools"] = world.net.servers["notes"]
        world.net.servers["excel-tools"].tools = (DECLARED, definition("other"))
        await world.seed(server=[stdio("excel-tools", allowed_tools=["create_*"])])
        before = await world.get(f"{SERVERS}/excel-tools")
        done = await describe(world)
        server = await world.get(f"{SERVERS}/excel-tools")
        package = await world.get("/api/packages/excel-tools")
        pin = await world.request("GET", f"{PINS}/excel-tools")

        described = {
            "display_name": "Excel 工具集",
            "category": "data",
            "tags": ["excel", "spreadsheet", "office"],
        }
        ignored = {"revision": 0, "updated_at_ms": 0, "health": 0, "nodes": 0}
        assert server | ignored == before | described | ignored
        assert (package["attached"], package["tools"]) == (True, ["create_workbook"])
        assert (done["allowed_tools"], done["pinned"], pin.status_code) == (None, False, 404)
        assert await catalog(world) == {"create_workbook": ("manifest", "data")}


@pytest.mark.requirement("004-12")
async def test_a_manifest_without_run_says_what_to_do_if_its_server_is_not_registered() -> None:
    async with open_rest() as world:
        refused = await upload(world.request, pack(DOCUMENTS.encode()))
        await world.seed(server=[stdio("excel-tools")])
        taken = await upload(world.request, pack(DOCUMENTS.encode()))

    error = refused.json()["error"]
    assert (refused.status_code, taken.status_code) == (400, 200)
    assert (
        error["message"] == "the manifest of package `excel-tools` has no `run`, so there is nothing to start"
    )
    assert "register the server `excel-tools` first" in error["hint"]
    assert "add `run`" in error["hint"]


async def test_what_an_operator_has_written_stays_and_what_a_manifest_wrote_follows_the_next_one() -> None:
    first = manifest("excel-tools", "1", run=None, name="Tables", category="data", tags=["a"])
    second = first | {"version": "2", "name": "Sheets", "category": "office", "tags": ["b"]}
    async with open_rest() as world:
        await world.seed(server=[stdio("excel-tools", category="finance")])
        await describe(world, json.dumps(first))
        once = await world.get(f"{SERVERS}/excel-tools")
        await describe(world, json.dumps(second))
        twice = await world.get(f"{SERVERS}/excel-tools")

    words = [(one["display_name"], one["category"], one["tags"]) for one in (once, twice)]
    assert words == [("Tables", "finance", ["a"]), ("Sheets", "finance", ["b"])]


async def test_its_definitions_are_pinned_and_its_tools_allowed_only_where_that_is_asked_for() -> None:
    async with open_rest() as world:
        await world.seed(server=[stdio("excel-tools", allowed_tools=[])])
        await describe(world, (EXAMPLES / "packages" / "described.json").read_bytes())
        plain = (await world.get(f"{SERVERS}/excel-tools"))["allowed_tools"]
        await world.post(INSTALL, {"pin": True, "allowed_tools": ["create_*"]})
        pin = await world.get(f"{PINS}/excel-tools")
        server = await world.get(f"{SERVERS}/excel-tools")

    assert (plain, server["allowed_tools"], list(pin["tools"])) == ([], ["create_*"], ["create_workbook"])


async def test_uninstalling_leaves_the_server_and_what_it_lists_differently_was_never_the_manifests() -> None:
    async with open_rest() as world:
        world.net.servers["excel-tools"] = world.net.servers["notes"]
        world.net.servers["excel-tools"].tools = (definition("create_workbook"),)
        await world.seed(server=[stdio("excel-tools")])
        await describe(world)
        rows = await catalog(world)
        gone = await world.request("DELETE", "/api/packages/excel-tools")
        server = await world.store.get("server", "excel-tools")

    assert rows == {"create_workbook": ("discovered", "data")}
    assert gone.json()["changes"][0]["kind"] == "package"
    assert server is not None
    assert parse_server(server.body).category == "data"


async def test_a_package_that_runs_is_not_replaced_by_one_that_only_describes() -> None:
    async with open_rest() as world:
        assert (await upload(world.request, pack(manifest("excel-tools")))).status_code == 200
        assert (await world.request("POST", INSTALL, {})).status_code == 201
        refused = await upload(world.request, pack(manifest("excel-tools", "2", run=None)))

    assert error_of(refused) == (400, "invalid_record")
