"""The read API of the official MCP registry: its shapes, and no one's servers but the caller's own."""

import json
from typing import Any

import pytest

from tests.registry.official import ANSWER, LIST, NOT_FOUND, SERVER, check_official
from tests.surfaces.rest_world import (
    BASE_URL,
    SERVERS,
    RestWorld,
    error_of,
    open_rest,
    secret_of,
    stdio,
    task,
)
from tests.upstream.memory_link import MemoryNet, MemoryServer, definition
from toolgate.gateway.auth.identity import hash_key
from toolgate.model.revisions import RecordWrite
from toolgate.registry.interchange.imports import parse_imports
from toolgate.surfaces.rest.resources.interchange import namespace_of

pytestmark = pytest.mark.anyio

LISTED = "/v0.1/servers"
NARROW = "tg_narrow" * 6
CANARY = "canary-hunter2"
OFFICIAL = "io.modelcontextprotocol.registry/official"


def open_world() -> MemoryNet:
    git = MemoryServer(tools=[definition("log"), definition("push")])
    return MemoryNet(
        git=git,
        notes=MemoryServer(tools=[definition("add")]),
        web=MemoryServer(tools=[definition("get")]),
        dumb=MemoryServer(tools=[]),
    )


async def furnish(world: RestWorld) -> None:
    launch = {
        "command": "npx",
        "args": ["-y", "@ada/git@1.2.3", "--token", CANARY],
        "env": {"API_KEY": CANARY},
    }
    package = {
        "package_id": "notes",
        "version": "2.1.0",
        "sha256": "0" * 64,
        "name": "Notes",
        "description": f"Keeps\n notes. {'x' * 200}",
    }
    key = {
        "key_id": "narrow",
        "role": "agent",
        "sha256": hash_key(NARROW),
        "ceiling": {"servers": ["notes"]},
    }
    await world.store.write([RecordWrite(kind="package", id="notes", body=package)], actor="seed")
    await world.seed(
        server=[
            stdio("git", display_name="Git & friends", stdio=launch),
            stdio("notes"),
            stdio("web"),
            stdio("dumb"),
        ],
        key=[key],
    )
    await world.cataloged()


def names(response: Any) -> list[str]:
    return [one["server"]["name"] for one in response["servers"]]


async def test_servers_are_listed_as_the_official_registry_lists_them() -> None:
    async with open_rest(open_world()) as world:
        await furnish(world)
        response = await world.get(LISTED, key=secret_of("agent"))

        check_official(LIST, response)
        assert names(response) == ["toolgate.local/git", "toolgate.local/notes", "toolgate.local/web"]
        assert response["metadata"] == {"count": 3}
        git, notes, _ = (one["server"] for one in response["servers"])
        assert (git["title"], git["description"], git["version"]) == (
            "Git & friends",
            "Git & friends",
            "0.0.3",
        )
        assert (notes["title"], notes["version"]) == ("Notes", "2.1.0")
        assert notes["description"] == f"Keeps notes. {'x' * 87}"
        assert git["remotes"][0]["url"] == f"{BASE_URL}/api/mcp/s/git"
        assert response["servers"][0]["_meta"][OFFICIAL] == {
            "status": "active",
            "publishedAt": "2023-11-14T22:13:20.000Z",
            "updatedAt": "2023-11-14T22:13:20.000Z",
            "isLatest": True,
        }


async def test_a_client_that_needs_a_key_is_asked_to_ask_for_one() -> None:
    async with open_rest(open_world()) as world:
        await furnish(world)
        with_key = await world.get(LISTED, key=secret_of("agent"))
        without = await world.get(LISTED)

        (header,) = with_key["servers"][0]["server"]["remotes"][0]["headers"]
        assert header["variables"] == {"toolgate_key": {"isRequired": True, "isSecret": True}}
        assert "headers" not in without["servers"][0]["server"]["remotes"][0]
        imported = parse_imports(with_key)
        assert [one["server_id"] for one in imported.bodies] == ["git", "notes", "web"]
        assert imported.bodies[0]["http"]["headers"] == {"Authorization": "Bearer ${ENV:TOOLGATE_KEY}"}


@pytest.mark.parametrize(("default", "query"), [({}, "?task=review"), ({"default_task": "review"}, "")])
async def test_a_key_that_is_bound_to_tasks_gets_urls_that_work_for_it(
    default: dict[str, str], query: str
) -> None:
    bound = "tg_bound" * 6
    key = {
        "key_id": "bound",
        "role": "agent",
        "sha256": hash_key(bound),
        "ceiling": {"tasks": ["review", "unwritten"]},
    }
    async with open_rest(open_world()) as world:
        await furnish(world)
        await world.seed(key=[key | default], task=[task("review", default_server_ids=["git"])])
        (entry,) = (await world.get(LISTED, key=bound))["servers"]

        assert entry["server"]["remotes"][0]["url"] == f"{BASE_URL}/api/mcp/s/git{query}"


async def test_the_url_names_a_task_that_offers_something_of_the_server() -> None:
    bound = "tg_bound" * 6
    ceiling = {"tasks": ["a", "b", "c"]}
    key = {"key_id": "bound", "role": "agent", "sha256": hash_key(bound), "ceiling": ceiling}
    tasks = [
        task("a", default_server_ids=["git"], tool_denylist=["*"]),
        task("b", default_server_ids=["web"]),
        task("c", default_server_ids=["git"]),
    ]
    async with open_rest(open_world()) as world:
        await furnish(world)
        await world.seed(key=[key], task=tasks)
        listed = (await world.get(LISTED, key=bound))["servers"]

        urls = [entry["server"]["remotes"][0]["url"].removeprefix(BASE_URL) for entry in listed]
        assert urls == ["/api/mcp/s/git?task=c", "/api/mcp/s/web?task=b"]


async def test_nothing_that_starts_a_server_is_shown() -> None:
    async with open_rest(open_world()) as world:
        await furnish(world)
        texts = [
            json.dumps(await world.get(path, key=secret_of(role)))
            for path in (LISTED, f"{LISTED}/toolgate.local/git/versions/latest")
            for role in ("agent", "viewer", "admin")
        ]

        for text in texts:
            assert CANARY not in text
            assert "npx" not in text
            assert "@ada" not in text


@pytest.mark.parametrize("end", ["versions", "versions/latest", "versions/0.0.3"])
async def test_what_a_caller_cannot_reach_answers_like_what_is_not_there(end: str) -> None:
    async with open_rest(open_world()) as world:
        await furnish(world)
        listed = await world.get(LISTED, key=NARROW)
        hidden, missing, foreign, odd = [
            await world.request("GET", f"{LISTED}/{name}/{end}", key=NARROW)
            for name in (
                "toolgate.local/git",
                "toolgate.local/none",
                "com.example/notes",
                "toolgate.local/A%20B",
            )
        ]

        assert names(listed) == ["toolgate.local/notes"]
        check_official(NOT_FOUND, hidden.json())
        assert {(one.status_code, one.content) for one in (hidden, missing, foreign, odd)} == {
            (404, b'{"error":"Server not found"}')
        }


async def test_one_server_has_one_version_and_it_is_the_latest() -> None:
    async with open_rest(open_world()) as world:
        await furnish(world)
        versions = await world.get(f"{LISTED}/toolgate.local%2Fnotes/versions")
        latest = await world.get(f"{LISTED}/toolgate.local%2Fnotes/versions/latest")
        exact = await world.get(f"{LISTED}/toolgate.local%2Fnotes/versions/2.1.0")
        other = await world.request("GET", f"{LISTED}/toolgate.local%2Fnotes/versions/2.2.0")

        check_official(LIST, versions)
        check_official(ANSWER, latest)
        assert versions["servers"] == [latest]
        assert exact == latest
        assert other.status_code == 404


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("search=NOTE", ["notes"]),
        ("search=friends", ["git"]),
        ("search=toolgate", ["git", "notes", "web"]),
        ("search=none", []),
        ("version=latest", ["git", "notes", "web"]),
        ("version=2.1.0", ["notes"]),
        ("updated_since=2023-11-14T22:13:20Z", ["git", "notes", "web"]),
        ("updated_since=2023-11-15T00:13:21%2B02:00", []),
        ("include_deleted=true&limit=100", ["git", "notes", "web"]),
    ],
)
async def test_the_list_is_narrowed_as_the_official_registry_narrows_it(
    query: str, expected: list[str]
) -> None:
    async with open_rest(open_world()) as world:
        await furnish(world)
        response = await world.get(f"{LISTED}?{query}", key=secret_of("viewer"))

        assert names(response) == [f"toolgate.local/{one}" for one in expected]


async def test_the_list_comes_in_pages() -> None:
    async with open_rest(open_world()) as world:
        await furnish(world)
        first = await world.get(f"{LISTED}?limit=2")
        second = await world.get(f"{LISTED}?limit=2&cursor={first['metadata']['nextCursor']}")

        check_official(LIST, first)
        assert names(first) + names(second) == [f"toolgate.local/{one}" for one in ("git", "notes", "web")]
        assert second["metadata"] == {"count": 1}


@pytest.mark.parametrize(
    "query", ["updated_since=now", "updated_since=2023-11-14T22:13:20", "limit=0", "cursor=!", "x=1"]
)
async def test_a_query_that_cannot_be_read_is_refused(query: str) -> None:
    async with open_rest() as world:
        assert error_of(await world.request("GET", f"{LISTED}?{query}")) == (400, "invalid_request")


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("https://tools.example.com", "com.example.tools"),
        ("https://Tools.Example.com:8443/", "com.example.tools"),
        ("http://127.0.0.1:8080", "toolgate.local"),
        ("http://[::1]:8080", "toolgate.local"),
        ("http://10.0.0.7:8080", "toolgate.local"),
        ("http://localhost:8080", "toolgate.local"),
        ("http://gateway:8080", "toolgate.local"),
        ("http://a_b.example.com", "toolgate.local"),
    ],
)
def test_the_namespace_is_the_gateways_host_reversed(url: str, expected: str) -> None:
    assert namespace_of(url) == expected


async def test_names_and_urls_are_those_of_the_door_where_that_is_elsewhere() -> None:
    async with open_rest(open_world(), client_url=lambda: "https://tools.example.com") as world:
        await furnish(world)
        response = await world.get(f"{LISTED}/com.example.tools/git/versions/latest")

        assert response["server"]["remotes"][0]["url"] == "https://tools.example.com/api/mcp/s/git"


async def test_a_record_is_exported_without_its_secrets() -> None:
    async with open_rest(open_world()) as world:
        await furnish(world)
        found = await world.get(f"{SERVERS}/git/server.json", key=secret_of("viewer"))
        program = await world.request("GET", f"{SERVERS}/notes/server.json", key=secret_of("viewer"))
        missing = await world.request("GET", f"{SERVERS}/none/server.json", key=secret_of("viewer"))

        check_official(SERVER, found)
        assert CANARY not in json.dumps(found)
        assert found["packages"][0]["identifier"] == "@ada/git"
        assert error_of(program) == (400, "invalid_record")
        assert error_of(missing) == (404, "not_found")
