"""Servers, tasks and profiles over REST: written whole or not at all, never with a secret in an answer."""

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.registry.memory_store import MemoryStore
from tests.surfaces.rest_world import (
    NOW_MS,
    PROFILES,
    SERVERS,
    TASKS,
    RestWorld,
    error_of,
    http,
    open_rest,
    secret_of,
    stdio,
    task,
)
from tests.upstream.memory_link import MemoryNet, MemoryServer, definition
from toolgate.audit.events import AdminRecorded
from toolgate.govern.changes.commit import MAX_RECORDS
from toolgate.model.revisions import ChangeBatch, Kind, RecordList, RecordWrite
from toolgate.registry.store.engines import open_sqlite_store
from toolgate.upstream.connection.contract import RpcResponse, StartFailed

pytestmark = pytest.mark.anyio


async def body_of(world: RestWorld, kind: Kind, record_id: str) -> Any:
    stored = await world.store.get(kind, record_id)
    return None if stored is None else stored.body


@pytest.mark.requirement("002-013", "002-086")
async def test_a_server_is_created_read_replaced_and_deleted() -> None:
    async with open_rest() as world:
        created = await world.request("POST", SERVERS, stdio("git", tags=["code"]))
        await world.served()
        read = await world.request("GET", f"{SERVERS}/git")
        replaced = await world.request("PUT", f"{SERVERS}/git", stdio("git", display_name="Git"))
        deleted = await world.request("DELETE", f"{SERVERS}/git")
        gone = await world.request("GET", f"{SERVERS}/git")

        assert [one.status_code for one in (created, read, replaced, deleted, gone)] == [
            201,
            200,
            200,
            200,
            404,
        ]
        assert [one.headers.get("etag") for one in (created, read, replaced)] == ['"2"', '"2"', '"3"']
        assert read.json() | {"health": None, "offer": None} == {
            "version": 1,
            "server_id": "git",
            "transport": "stdio",
            "stdio": {"command": "serve", "args": [], "env": {}, "env_from": []},
            "display_name": "",
            "tool_namespace": "mcp.git",
            "allowed_tools": ["*"],
            "approval_policy": {"default": "never", "per_tool": {}, "in_place": True},
            "budgets": {
                "tool_timeout_ms": 30_000,
                "max_concurrency": 16,
                "max_tool_output_bytes": 1_048_576,
            },
            "redaction": {"hide": [], "show": [], "arguments": "redacted"},
            "tags": ["code"],
            "category": "",
            "enabled": True,
            "sharing": "shared",
            "idle_timeout_s": 0,
            "start_timeout_s": 0,
            "list_ttl_s": 0,
            "prewarm": False,
            "protocol": "auto",
            "revision": 2,
            "updated_at_ms": NOW_MS,
            "health": None,
            "offer": None,
            "nodes": [],
            "login": None,
        }
        assert read.json()["health"]["state"] == "connected"
        assert replaced.json()["server"]["display_name"] == "Git"
        assert deleted.json() == {"revision": 4, "warnings": []}


async def test_every_acknowledged_write_is_audited_with_who_and_what() -> None:
    async with open_rest() as world:
        await world.post(SERVERS, http("git"))
        await world.post(TASKS, task("review"), key=secret_of("publisher"))
        await world.request("POST", TASKS, {"task_id": "bad", "config": {"mcp.enabled": "maybe"}})
        await world.request("DELETE", f"{TASKS}/review", key=secret_of("admin"))
        await world.request("DELETE", f"{TASKS}/review", key=secret_of("admin"))

        assert world.audited == [
            AdminRecorded(NOW_MS, "local", "put", "server", "git", revision=2),
            AdminRecorded(NOW_MS, "key:publisher", "put", "task", "review", revision=3),
            AdminRecorded(NOW_MS, "key:admin", "delete", "task", "review", revision=4),
        ]


class Slow(MemoryStore):
    """A store whose writes wait for a word."""

    def __init__(self) -> None:
        super().__init__(lambda: NOW_MS)
        self.begun, self.go_on = asyncio.Event(), asyncio.Event()
        self.go_on.set()

    async def commit(
        self, writes: Sequence[RecordWrite], *, actor: str, if_store_revision: int | None = None
    ) -> ChangeBatch:
        self.begun.set()
        await self.go_on.wait()
        return await super().commit(writes, actor=actor, if_store_revision=if_store_revision)


async def test_a_write_that_its_caller_abandons_is_audited_all_the_same() -> None:
    store = Slow()
    async with open_rest(store=store) as world, asyncio.timeout(60):
        store.begun.clear()
        store.go_on.clear()
        asking = asyncio.create_task(world.request("PUT", f"{TASKS}/review", task("review")))
        await store.begun.wait()
        asking.cancel()
        await asyncio.gather(asking, return_exceptions=True)
        store.go_on.set()
        while store.revision == 1:
            await asyncio.sleep(0)

        assert world.audited == [AdminRecorded(NOW_MS, "local", "put", "task", "review", revision=2)]


async def test_lists_are_sorted_and_stand_at_one_revision() -> None:
    async with open_rest() as world:
        await world.seed(server=[http("b"), http("a")], task=[task("z"), task("y")])
        servers, tasks, profiles = [await world.get(path) for path in (SERVERS, TASKS, PROFILES)]

        assert [one["server_id"] for one in servers["servers"]] == ["a", "b"]
        assert tasks == {
            "revision": 2,
            "digest": world.store.digest,
            "tasks": [
                {"task_id": name, "display_name": "", "config": {"mcp.enabled": "true"}, "revision": 2}
                for name in ("y", "z")
            ],
            "next_cursor": None,
        }
        assert profiles == {
            "revision": 2,
            "digest": world.store.digest,
            "profiles": [],
            "next_cursor": None,
        }


async def test_config_values_may_be_json_and_are_stored_as_their_text() -> None:
    sent = {
        "mcp.enabled": True,
        "mcp.default_server_ids": ["git"],
        "mcp.profile": '"coding"',
        "mcp.profile_overrides": {"tool_denylist": ["push"]},
        "owner": 7,
    }
    async with open_rest() as world:
        response = await world.put(f"{TASKS}/review", {"config": sent})

        assert response["task"]["config"] == {
            "mcp.enabled": "true",
            "mcp.default_server_ids": '["git"]',
            "mcp.profile": '"coding"',
            "mcp.profile_overrides": '{"tool_denylist":["push"]}',
            "owner": "7",
        }


async def test_what_was_read_can_be_sent_back_as_it_is() -> None:
    async with open_rest() as world:
        await world.seed(
            server=[stdio("git")],
            task=[task("review", default_server_ids=["git"])],
            profile=[{"profile_id": "coding", "allow": ["git/*"], "environments": {"dev": {"tags": ["x"]}}}],
        )
        before = await world.store.list()
        for path in (f"{SERVERS}/git", f"{TASKS}/review", f"{PROFILES}/coding"):
            await world.put(path, await world.get(path))

        assert await world.store.list() == before


@pytest.mark.requirement("002-088")
@pytest.mark.parametrize(
    ("path", "body", "message"),
    [
        pytest.param(SERVERS, {}, "`server_id`: missing, or not a string", id="no id"),
        pytest.param(
            SERVERS, {"server_id": 7}, "`server_id`: missing, or not a string", id="an id of no text"
        ),
        pytest.param(SERVERS, stdio("Git"), "invalid server id `Git`", id="an id with capitals"),
        pytest.param(SERVERS, stdio("a__b"), "invalid server id `a__b`", id="SCO-7 the separator in an id"),
        pytest.param(SERVERS, stdio("a.b"), "invalid server id `a.b`", id="SCO-7 a dot in an id"),
        pytest.param(
            SERVERS, stdio("git", owner="me"), "`owner`: is not a known field", id="an unknown field"
        ),
        pytest.param(
            SERVERS,
            stdio("git", budgets={"tool_timeout_ms": 0}),
            "`budgets.tool_timeout_ms`: input should be greater than or equal to 100",
            id="BUD-7 a budget of nothing",
        ),
        pytest.param(
            SERVERS,
            http("git", http={"url": "file:///etc/passwd"}),
            "`http.url`: invalid URL: start it with `http://` or `https://` and a host",
            id="SSR-4 a file as a URL",
        ),
        pytest.param(
            TASKS,
            {
                "task_id": "t",
                "config": {"mcp.allowed_server_ids": ["a"], "mcp.default_server_ids": ["a", "b"]},
            },
            "task `t`: `mcp.default_server_ids`: `b` is not in `mcp.allowed_server_ids`",
            id="a default outside the allowed",
        ),
        pytest.param(
            TASKS,
            {"task_id": "t", "config": {"mcp.enable": True}},
            "task `t`: unknown key `mcp.enable`",
            id="a misspelt key",
        ),
        pytest.param(PROFILES, {"profile_id": "a/b"}, "invalid id `a/b`", id="a slash in a name"),
    ],
)
async def test_a_record_that_is_wrong_is_refused_with_its_field_and_nothing_is_stored(
    path: str, body: Any, message: str
) -> None:
    async with open_rest() as world:
        response = await world.request("POST", path, body)

        assert error_of(response) == (400, "invalid_record")
        assert response.json()["error"]["message"] == message
        assert world.store.revision == 1


async def test_the_id_in_the_path_and_in_the_body_must_be_the_same() -> None:
    async with open_rest() as world:
        response = await world.request("PUT", f"{TASKS}/review", task("other"))

        assert error_of(response) == (400, "invalid_record")
        assert world.store.revision == 1


async def test_adm_12_a_stale_revision_is_a_conflict_and_changes_nothing() -> None:
    async with open_rest() as world:
        first = await world.request("PUT", f"{TASKS}/review", task("review"))
        second = await world.request(
            "PUT", f"{TASKS}/review", {"display_name": "B"}, if_match=first.headers["etag"]
        )
        stale = [
            await world.request(
                "PUT", f"{TASKS}/review", {"display_name": "C"}, if_match=first.headers["etag"]
            ),
            await world.request("DELETE", f"{TASKS}/review", if_match=first.headers["etag"]),
            await world.request("PUT", f"{TASKS}/review", {}, if_none_match="*"),
            await world.request("POST", TASKS, task("review"), if_none_match="*"),
            await world.request("PUT", f"{TASKS}/absent", {}, if_match='"7"'),
        ]
        stored = await body_of(world, "task", "review")
        deleted = await world.request("DELETE", f"{TASKS}/review", if_match=second.headers["etag"])

        assert second.status_code == 200
        assert [error_of(one) for one in stale] == [(409, "conflict")] * 5
        assert stored == {"task_id": "review", "display_name": "B"}
        assert deleted.status_code == 200


@pytest.mark.parametrize(
    "tag", ["*", "7", 'W/"7"', '"x"', '"1", "2"', '"-1"', '""', '"01"', '"' + "9" * 30 + '"']
)
async def test_a_precondition_that_cannot_be_read_is_refused(tag: str) -> None:
    async with open_rest() as world:
        responses = [
            await world.request("PUT", f"{TASKS}/review", {}, if_match=tag),
            await world.request("PUT", f"{TASKS}/review", {}, if_none_match=tag.replace("*", '"*"')),
            await world.request("PUT", f"{TASKS}/review", {}, if_match='"1"', if_none_match="*"),
        ]

        assert [error_of(one) for one in responses] == [(400, "invalid_request")] * 3
        assert world.store.revision == 1


async def test_a_tool_namespace_belongs_to_one_server() -> None:
    async with open_rest() as world:
        await world.post(SERVERS, http("a", tool_namespace="shared"))
        taken = await world.request("POST", SERVERS, http("b", tool_namespace="shared"))
        defaults = await world.request("POST", SERVERS, http("b", tool_namespace="mcp.c"))
        default_taken = await world.request("POST", SERVERS, http("c"))
        again = await world.request(
            "PUT", f"{SERVERS}/a", http("a", tool_namespace="shared", display_name="A")
        )

        assert error_of(taken) == (400, "invalid_record")
        assert defaults.status_code == 201
        assert error_of(default_taken) == (400, "invalid_record")
        assert again.status_code == 200


async def test_of_many_who_want_one_namespace_at_once_one_gets_it(tmp_path: Path) -> None:
    async with (
        open_sqlite_store(tmp_path / "registry.db", lambda: NOW_MS) as store,
        open_rest(store=store) as world,
    ):
        responses = await asyncio.gather(
            *(world.request("POST", SERVERS, http(f"s{n}", tool_namespace="shared")) for n in range(4))
        )

        assert sorted(one.status_code for one in responses) == [201, 400, 400, 400]


async def test_many_who_write_different_records_at_once_are_in_nobodys_way(tmp_path: Path) -> None:
    async with (
        open_sqlite_store(tmp_path / "registry.db", lambda: NOW_MS) as store,
        open_rest(store=store) as world,
    ):
        responses = await asyncio.gather(
            *(world.request("PUT", f"{TASKS}/t{n}", task(f"t{n}")) for n in range(32))
        )

        assert [one.status_code for one in responses] == [201] * 32


class Restless(MemoryStore):
    """A store in which someone commits whenever it is read."""

    async def list(self, kind: Kind | None = None) -> RecordList:
        listing = await super().list(kind)
        if kind == "task":
            name = f"other-{listing.revision}"
            await self.write([RecordWrite(kind="profile", id=name, body={"profile_id": name})], actor="other")
        return listing


async def test_a_registry_that_never_holds_still_is_a_conflict_in_the_end() -> None:
    async with open_rest(store=Restless(lambda: NOW_MS)) as world:
        response = await world.request("PUT", f"{TASKS}/review", task("review"))

        assert error_of(response) == (409, "conflict")
        assert await body_of(world, "task", "review") is None


async def test_deleting_what_others_name_is_allowed_and_shown() -> None:
    async with open_rest() as world:
        await world.seed(
            server=[http("git"), http("notes")],
            task=[task("review", default_server_ids=["git"], profile="coding")],
            profile=[{"profile_id": "coding", "servers": ["git"]}],
        )
        response = await world.request("DELETE", f"{SERVERS}/git")
        profile = await world.request("DELETE", f"{PROFILES}/coding")
        quiet = await world.request("DELETE", f"{SERVERS}/notes")

        assert response.json()["warnings"] == [
            "profile `coding`, `servers`: server `git` does not exist",
            "task `review`, `mcp.default_server_ids`: server `git` does not exist",
        ]
        assert [one for one in profile.json()["warnings"] if "coding" in one] != []
        assert quiet.json()["warnings"] == []


async def test_adm_14_the_registry_takes_only_so_many_records_of_a_kind() -> None:
    async with open_rest() as world:
        await world.seed(profile=[{"profile_id": f"p{n}"} for n in range(MAX_RECORDS)])
        more = await world.request("POST", PROFILES, {"profile_id": "more"})
        replaced = await world.request("PUT", f"{PROFILES}/p1", {"deny": ["x"]})

        assert error_of(more) == (400, "invalid_record")
        assert replaced.status_code == 200


@pytest.mark.requirement("002-083", "002-086")
async def test_a_saved_server_is_tried_alongside_the_connection_in_use() -> None:
    net = MemoryNet(git=MemoryServer(era="legacy", tools=[definition("log"), definition("bad\0name")]))
    async with open_rest(net) as world:
        await world.seed(server=[stdio("git")])
        report = await world.post(f"{SERVERS}/git/test")
        missing = await world.request("POST", f"{SERVERS}/none/test")
        health = (await world.get(f"{SERVERS}/git"))["health"]

        assert {name: report[name] for name in ("ok", "era", "version", "tools", "error")} == {
            "ok": True,
            "era": "legacy",
            "version": "2025-11-25",
            "tools": ["log"],
            "error": "",
        }
        assert list(report["quarantined"]) == [r"bad\x00name"]
        assert error_of(missing) == (404, "not_found")
        assert (health["state"], health["restarts"], len(net["git"].starts_s)) == ("connected", 0, 2)
        assert [(one.operation, one.record_id) for one in world.audited] == [("test", "git")]


async def test_a_server_that_does_not_start_is_a_report_and_not_an_error() -> None:
    async def fail() -> None:
        raise StartFailed("no such command `serve`", fatal=True)

    async with open_rest(MemoryNet(git=MemoryServer(on_start=fail))) as world:
        await world.seed(server=[stdio("git")])
        report = await world.post(f"{SERVERS}/git/test")

        assert (report["ok"], report["error"], report["tools"]) == (False, "no such command `serve`", [])


async def test_a_refresh_lists_the_tools_again_now() -> None:
    net = MemoryNet(git=MemoryServer(capabilities={"tools": {}}, tools=[definition("log")]))
    async with open_rest(net) as world:
        await world.seed(server=[stdio("git")])
        net["git"].tools = [definition("log"), definition("push")]
        response = await world.post(f"{SERVERS}/git/refresh", {})
        missing = await world.request("POST", f"{SERVERS}/none/refresh")

        assert (response["server_id"], response["tools"], response["quarantined"]) == (
            "git",
            ["log", "push"],
            {},
        )
        assert response["health"]["tools"] == 2
        assert error_of(missing) == (404, "not_found")


async def test_a_server_that_is_deleted_while_it_is_refreshed_is_not_there_any_more() -> None:
    listing = asyncio.Event()

    async def hang(_params: Any) -> RpcResponse:
        listing.set()
        await asyncio.Event().wait()
        raise AssertionError

    net = MemoryNet(git=MemoryServer(tools=[definition("log")]))
    async with open_rest(net) as world, asyncio.timeout(60):
        await world.seed(server=[stdio("git")])
        net["git"].on_list = hang
        refreshing = asyncio.create_task(world.request("POST", f"{SERVERS}/git/refresh"))
        await listing.wait()
        await world.request("DELETE", f"{SERVERS}/git")

        assert error_of(await refreshing) == (404, "not_found")


async def test_a_record_of_another_version_is_shown_as_it_is_and_can_be_replaced() -> None:
    async with open_rest() as world:
        await world.seed(server=[http("git", version=2, novelty={"a": 1})])
        listed = await world.http.get(SERVERS)
        replaced = await world.request("PUT", f"{SERVERS}/git", http("git"))

        assert [one["version"] for one in listed.json()["servers"]] == [2]
        assert replaced.status_code == 200
