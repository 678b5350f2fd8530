"""Sets of changes, plans that must be named, pages, and the past of records."""

import asyncio
from typing import Any, Final

import pytest

from tests.surfaces.rest_world import (
    KEYS,
    NOW_MS,
    PINS,
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
from toolgate.audit.events import AdminRecorded
from toolgate.govern.operator_policy import OperatorPolicy
from toolgate.model.revisions import RecordWrite

pytestmark = pytest.mark.anyio

APPLY: Final = "/admin/api/apply"
PLAN: Final = "/admin/api/plan"
CANARY: Final = "s3cr3t-canary"


def change(kind: str, record_id: str, body: Any) -> dict[str, Any]:
    return {"kind": kind, "id": record_id, "body": body}


WANTED: Final = [
    change("server", "git", http("git", tags=["code"])),
    change("profile", "coding", {"servers": ["git"]}),
    change("task", "review", task("review", default_server_ids=["git"])),
    change("pin", "git", {"tools": {"log": "0" * 64}}),
]


# Sets of changes


async def test_a_set_is_one_transaction_and_applying_it_again_changes_nothing() -> None:
    async with open_rest() as world:
        first = await world.post(APPLY, {"changes": WANTED})
        second = await world.post(APPLY, {"changes": WANTED})
        stored = (await world.store.list()).records

        assert [(one["operation"], one["kind"], one["id"]) for one in first["changes"]] == [
            ("added", "pin", "git"),
            ("added", "profile", "coding"),
            ("added", "server", "git"),
            ("added", "task", "review"),
        ]
        assert second == {"revision": first["revision"], "changes": [], "warnings": []}
        assert {one.revision for one in stored if one.kind != "key"} == {2}
        assert world.audited == [
            AdminRecorded(NOW_MS, "local", "put", kind, record_id, revision=2)
            for kind, record_id in (
                ("server", "git"),
                ("profile", "coding"),
                ("task", "review"),
                ("pin", "git"),
            )
        ]


async def test_one_wrong_record_and_nothing_is_applied_and_the_record_is_named() -> None:
    wrong = [*WANTED[:2], change("server", "bad", {"transport": "stdio"})]
    async with open_rest() as world:
        before = await world.store.list()
        response = await world.request("POST", APPLY, {"changes": wrong})

        assert error_of(response) == (400, "invalid_record")
        assert "server `bad`" in response.json()["error"]["message"]
        assert await world.store.list() == before
        assert world.audited == []


async def test_what_is_gone_already_needs_no_removal_and_what_changes_says_how() -> None:
    async with open_rest() as world:
        await world.seed(server=[http("git")], task=[task("review")])
        response = await world.post(
            APPLY,
            {
                "changes": [
                    change("server", "git", http("git", display_name="Git")),
                    change("task", "review", None),
                    change("task", "never", None),
                ]
            },
        )

        assert response["changes"] == [
            {
                "operation": "changed",
                "kind": "server",
                "id": "git",
                "fields": [{"field": "display_name", "before": "(default)", "after": "Git"}],
            },
            {
                "operation": "removed",
                "kind": "task",
                "id": "review",
                "fields": [
                    {"field": "task_id", "before": "review", "after": "(default)"},
                    {"field": "config.mcp.enabled", "before": "true", "after": "(default)"},
                ],
            },
        ]


async def test_pruning_removes_what_is_not_named_but_for_keys_pins_and_what_files_give() -> None:
    async with open_rest() as world:
        await world.seed(
            server=[http("old"), http("git")],
            task=[task("old")],
            profile=[{"profile_id": "old"}],
            pin=[{"server_id": "old"}],
        )
        await world.store.write(
            [RecordWrite(kind="server", id="filed", body=http("filed"), actor="directory:filed.toml")],
            actor="x",
        )
        wanted = {"changes": [change("server", "git", http("git"))], "prune": True}
        plan = await world.post(PLAN, wanted)
        done = await world.post(APPLY, {**wanted, "plan": plan["id"]})
        again = await world.post(APPLY, wanted)
        left = {(one.kind, one.id) for one in (await world.store.list()).records if one.kind != "key"}

        removed = [("removed", "profile", "old"), ("removed", "server", "old"), ("removed", "task", "old")]
        for response in (plan, done):
            assert [(one["operation"], one["kind"], one["id"]) for one in response["changes"]] == removed
        assert again["changes"] == []
        assert left == {("server", "git"), ("server", "filed"), ("pin", "old")}


async def test_a_publisher_may_apply_its_kinds_alone_and_prunes_no_server() -> None:
    publisher = secret_of("publisher")
    mine = [change("task", "review", task("review"))]
    async with open_rest() as world:
        await world.seed(server=[http("git")])
        allowed = await world.request("POST", APPLY, {"changes": mine}, key=publisher)
        before = await world.store.list()
        refused = [
            await world.request("POST", APPLY, body, key=publisher)
            for body in (
                {"changes": [*mine, change("server", "web", http("web"))]},
                {"changes": [change("server", "git", None)]},
                {"changes": [change("pin", "git", {})]},
                {"changes": [change("task", "other", task("other"))], "prune": True},
            )
        ]

        assert allowed.status_code == 200
        assert [error_of(one) for one in refused] == [(403, "forbidden")] * 4
        assert await world.store.list() == before


@pytest.mark.parametrize(
    ("path", "body"),
    [
        (APPLY, {"changes": [WANTED[0], WANTED[0]]}),
        (PLAN, {"changes": [WANTED[0], WANTED[0]]}),
        (APPLY, {"changes": [change("key", "k", {})]}),
        (APPLY, {"changes": [change("task", "t", None)] * 5_001}),
        (PLAN, {"kind": "task"}),
        (PLAN, {"kind": "task", "id": "a", "body": None, "changes": []}),
        (PLAN, {"prune": True}),
        (PLAN, {}),
        (PLAN, {"kind": "task", "id": None, "body": None}),
        (PLAN, {"kind": "task", "id": "a", "body": None, "revision": 1}),
        (PLAN, {"kind": "task", "id": "a", "revision": None}),
        (PLAN, {"kind": None, "id": "a", "body": None}),
        (PLAN, {"changes": None}),
    ],
)
async def test_a_set_that_could_be_read_in_two_ways_or_none_is_refused(path: str, body: Any) -> None:
    async with open_rest() as world:
        assert error_of(await world.request("POST", path, body)) == (400, "invalid_request")


async def test_thousands_of_changes_leave_the_loop_to_others() -> None:
    loop, gaps = asyncio.get_running_loop(), []

    async def measure() -> None:
        while True:
            before = loop.time()
            await asyncio.sleep(0)
            gaps.append(loop.time() - before)

    changes = [change("task", f"t{n}", task(f"t{n}", default_server_ids=["git"])) for n in range(2_000)]
    async with open_rest() as world:
        measuring = asyncio.create_task(measure())
        response = await world.request("POST", APPLY, {"changes": changes})
        measuring.cancel()

        assert len(response.json()["changes"]) == 2_000
        # Not a measure of speed: in one go this takes seconds, and others would see nothing of the loop.
        assert len(gaps) > 100


# Reviewed changes


@pytest.mark.requirement("000-37")
async def test_where_plans_are_required_a_change_is_made_as_it_was_shown_or_not_at_all() -> None:
    sent = task("review", default_server_ids=["git"])
    async with open_rest(operator_policy=OperatorPolicy(requires_plan=True)) as world:
        await world.seed(server=[http("git")])
        unplanned = await world.request("PUT", f"{TASKS}/review", sent)
        plan = (await world.post(PLAN, change("task", "review", sent)))["id"]
        other = await world.request("PUT", f"{TASKS}/review", task("review"), toolgate_plan=plan)
        done = await world.request("PUT", f"{TASKS}/review", sent, toolgate_plan=plan)
        stale = await world.request("PUT", f"{TASKS}/review", task("review"), toolgate_plan=plan)
        removal = (await world.post(PLAN, change("task", "review", None)))["id"]
        removed = await world.request("DELETE", f"{TASKS}/review", toolgate_plan=removal)
        unlisted = await world.request("POST", APPLY, {"changes": [change("task", "new", task("new"))]})
        tried = await world.request("POST", f"{SERVERS}/git/test", stdio("git"))

        assert error_of(unplanned) == (428, "plan_required")
        assert [error_of(one) for one in (other, stale)] == [(409, "plan_outdated")] * 2
        assert (done.status_code, removed.status_code) == (201, 200)
        assert error_of(unlisted) == error_of(tried) == (428, "plan_required")
        assert dict(world.net.servers) == {}


async def test_a_rollback_can_be_looked_at_before_it_is_made_and_shows_no_secret() -> None:
    async with open_rest(operator_policy=OperatorPolicy(requires_plan=True)) as world:
        await world.seed(server=[stdio("git", stdio={"command": "serve", "args": ["--token", CANARY]})])
        await world.seed(server=[stdio("git", display_name="Git")])
        revision = {"revision": world.store.revision - 1}
        unplanned = await world.request("POST", f"{SERVERS}/git/rollback", revision)
        plan = await world.post(PLAN, {"kind": "server", "id": "git", **revision})
        unchanged = await world.store.get("server", "git")
        back = await world.request("POST", f"{SERVERS}/git/rollback", revision, toolgate_plan=plan["id"])
        never = await world.request("POST", PLAN, {"kind": "server", "id": "never", **revision})

        assert error_of(unplanned) == (428, "plan_required")
        assert {one["field"] for one in plan["changes"][0]["fields"]} == {"display_name", "stdio.args"}
        assert CANARY not in str(plan)
        assert unchanged is not None
        assert unchanged.body["display_name"] == "Git"
        assert (back.status_code, back.json()["server"]["stdio"]["args"]) == (200, ["--token", "***"])
        assert error_of(never) == (404, "not_found")


# Pages


async def all_pages(world: RestWorld, url: str, member: str, limit: int) -> list[list[str]]:
    pages: list[list[str]] = []
    cursor: str | None = ""
    while cursor is not None:
        response = await world.get(f"{url}?limit={limit}{f'&cursor={cursor}' if cursor else ''}")
        assert response["revision"] == world.store.revision
        pages.append([next(iter(v for k, v in one.items() if k.endswith("_id"))) for one in response[member]])
        cursor = response["next_cursor"]
    return pages


async def test_pages_hold_every_record_once_in_order() -> None:
    ids = [f"s{n:02}" for n in range(7)]
    async with open_rest() as world:
        await world.seed(server=[http(one) for one in ids])
        by_three = await all_pages(world, SERVERS, "servers", 3)
        by_seven = await all_pages(world, SERVERS, "servers", 7)
        keys = await all_pages(world, KEYS, "keys", 2)

        assert by_three == [ids[:3], ids[3:6], ids[6:]]
        assert by_seven == [ids]
        assert [one for page in keys for one in page] == ["admin", "agent", "node", "publisher", "viewer"]


async def test_a_page_is_right_although_its_cursors_record_is_gone() -> None:
    async with open_rest() as world:
        await world.seed(server=[http(one) for one in ("a", "b", "c", "d")])
        first = await world.get(f"{SERVERS}?limit=2")
        await world.request("DELETE", f"{SERVERS}/b")
        second = await world.get(f"{SERVERS}?limit=2&cursor={first['next_cursor']}")

        assert [one["server_id"] for one in second["servers"]] == ["c", "d"]


async def test_servers_are_listed_by_tag() -> None:
    async with open_rest() as world:
        await world.seed(server=[http("a", tags=["code"]), http("b"), http("c", tags=["code", "x"])])
        found = await world.get(f"{SERVERS}?tag=code&limit=1")

        assert [one["server_id"] for one in found["servers"]] == ["a"]
        assert found["next_cursor"] is not None


@pytest.mark.parametrize(
    "query",
    ["limit=0", "limit=1001", "limit=x", "limit=-1", "limit=01", "cursor=", "cursor=!", "cursor=YQ=="],
)
async def test_a_page_that_no_one_can_mean_is_refused(query: str) -> None:
    async with open_rest() as world:
        for url in (SERVERS, TASKS, PROFILES, PINS, KEYS, "/api/v1/mcp/servers"):
            assert error_of(await world.request("GET", f"{url}?{query}")) == (400, "invalid_request")


# The past


async def test_the_history_tells_who_changed_what_when_and_never_a_secret() -> None:
    secret = {"command": "serve", "args": ["--token", CANARY]}
    async with open_rest() as world:
        await world.request("PUT", f"{SERVERS}/git", stdio("git", stdio=secret))
        await world.request(
            "PUT", f"{SERVERS}/git", stdio("git", stdio=secret | {"args": ["--token", CANARY * 2]})
        )
        await world.request("DELETE", f"{SERVERS}/git", key=secret_of("admin"))
        response = await world.request("GET", f"{SERVERS}/git/history", key=secret_of("viewer"))
        newest = await world.get(f"{SERVERS}/git/history?limit=1")
        diff = await world.request("GET", f"{SERVERS}/git/diff?since=2&upto=3")
        entries = response.json()["entries"]

        assert response.json()["revision"] == 4
        assert [(one["revision"], one["operation"], one["actor"], one["at_ms"]) for one in entries] == [
            (4, "delete", "key:admin", NOW_MS),
            (3, "put", "local", NOW_MS),
            (2, "put", "local", NOW_MS),
        ]
        hidden = {"field": "stdio.args", "before": ["--token", "***"], "after": ["--token", "***"]}
        assert entries[1]["fields"] == diff.json()["fields"] == [hidden]
        assert newest["entries"] == entries[:1]
        assert CANARY not in response.text + diff.text


async def test_the_history_of_a_key_shows_no_hash() -> None:
    async with open_rest() as world:
        await world.post(KEYS, {"key_id": "ci", "role": "agent"})
        stored = await world.store.get("key", "ci")
        response = await world.request("GET", f"{KEYS}/ci/history", key=secret_of("viewer"))

        assert stored is not None
        assert response.status_code == 200
        assert stored.body["sha256"] not in response.text


async def test_what_never_was_has_no_past() -> None:
    async with open_rest() as world:
        responses = [
            await world.request("GET", f"{TASKS}/never/history"),
            await world.request("GET", f"{TASKS}/never/diff?since=0"),
            await world.request("POST", f"{TASKS}/never/rollback", {"revision": 1}),
        ]
        early = await world.request("GET", f"{TASKS}/never/diff?since=99")
        missing = await world.request("GET", f"{TASKS}/never/diff")

        assert [error_of(one) for one in responses] == [(404, "not_found")] * 3
        assert [error_of(one) for one in (early, missing)] == [(400, "invalid_request")] * 2


async def test_a_rollback_brings_a_record_back_secrets_and_all_or_removes_it() -> None:
    secret = {"command": "serve", "args": ["--token", CANARY]}
    async with open_rest() as world:
        await world.put(f"{SERVERS}/git", stdio("git", stdio=secret, enabled=False))
        original = await world.store.get("server", "git")
        await world.put(f"{SERVERS}/git", stdio("git", display_name="Git", enabled=False))
        back = await world.request("POST", f"{SERVERS}/git/rollback", {"revision": 2}, if_match='"3"')
        restored = await world.store.get("server", "git")
        stale = await world.request("POST", f"{SERVERS}/git/rollback", {"revision": 3}, if_match='"3"')
        gone = await world.request("POST", f"{SERVERS}/git/rollback", {"revision": 1})
        revived = await world.request("POST", f"{SERVERS}/git/rollback", {"revision": 3})

        assert original is not None
        assert restored is not None
        assert restored.body == original.body
        assert back.json()["server"]["stdio"]["args"] == ["--token", "***"]
        assert back.headers["etag"] == '"4"'
        assert error_of(stale) == (409, "conflict")
        assert gone.json() == {"revision": 5, "warnings": []}
        assert (revived.status_code, revived.json()["server"]["display_name"]) == (201, "Git")


async def test_a_rollback_past_the_log_is_refused_as_compacted() -> None:
    async with open_rest() as world:
        for name in ("a", "b", "c"):
            await world.put(f"{TASKS}/review", {"display_name": name})
        await world.store.compact(keep_revisions=1, keep_ms=0)
        responses = [
            await world.request("POST", f"{TASKS}/review/rollback", {"revision": 2}),
            await world.request("GET", f"{TASKS}/review/diff?since=2"),
        ]

        assert [error_of(one) for one in responses] == [(410, "compacted")] * 2


# Pins


async def test_a_pin_is_written_by_administrators_and_holds() -> None:
    async with open_rest() as world:
        await world.seed(server=[stdio("git")])
        shown = (await world.get(f"{SERVERS}/git/tools"))["tools"]
        digests = {one["tool"]: one["digest"] for one in shown}
        await world.put(f"{PINS}/git", {"tools": digests})
        await world.served()
        pinned = await world.get(f"{SERVERS}/git/tools")
        await world.put(f"{PINS}/git", {"tools": {"echo": "0" * 64}})
        await world.served()
        changed = await world.get(f"{SERVERS}/git/tools")
        listed = await world.get(PINS)

        assert [one["allowed"] for one in pinned["tools"]] == [True]
        assert [(one["allowed"], one["reason"]) for one in changed["tools"]] == [(False, "quarantined")]
        assert listed["pins"] == [
            {
                "server_id": "git",
                "tools": {"echo": "0" * 64},
                "changed": {},
                "waiting": ["echo"],
                "revision": 4,
            }
        ]
