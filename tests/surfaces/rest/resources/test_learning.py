"""What tasks and keys use, over REST: lessons that are applied as they are, grants no one uses, shadows."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import pytest

from tests.contract.audit_indexes import add, call
from tests.surfaces.rest_world import NOW_MS, RestWorld, error_of, open_rest, secret_of, stdio, task
from tests.upstream.memory_link import MemoryNet, MemoryServer, definition
from toolgate.audit.events import AuditEvent, CallRecorded
from toolgate.audit.index.index import AuditIndex, open_sqlite_index
from toolgate.gateway.auth.identity import hash_key
from toolgate.govern.operator_policy import OperatorPolicy

pytestmark = pytest.mark.anyio

VIEWER: Final = secret_of("viewer")
AGENT: Final = secret_of("agent")
LEARN: Final = "/admin/api/tasks/review/learn"
UNUSED: Final = "/admin/api/unused"
SCOPE: Final = "/api/v1/mcp/scope?task=review"
UNENFORCED: Final = "the task is in shadow mode: the gateway audits denials and does not enforce them"
DAY_MS: Final = 24 * 3_600_000
WEEK_AGO: Final = NOW_MS - 7 * DAY_MS


def used(tool: str, days_ago: float = 1, **fields: Any) -> CallRecorded:
    known: dict[str, Any] = {"task_id": "review", "server_id": "git", "principal": "key:bound"}
    return call(NOW_MS - int(days_ago * DAY_MS), tool=tool, **known | fields)


def open_world() -> MemoryNet:
    git = MemoryServer(tools=[definition("log"), definition("push"), definition("show")])
    return MemoryNet(git=git, notes=MemoryServer(tools=[definition("add")]))


@asynccontextmanager
async def opened(
    directory: Path, *events: AuditEvent, **config: Any
) -> AsyncIterator[tuple[RestWorld, AuditIndex]]:
    async with (
        open_sqlite_index(directory / "audit.db") as index,
        open_rest(
            open_world(), audit_index=index, operator_policy=OperatorPolicy(requires_plan=True)
        ) as world,
    ):
        await add(index, *events)
        bound = {"key_id": "bound", "role": "agent", "sha256": hash_key("tg_b" * 12)}
        await world.seed(
            server=[stdio("git"), stdio("notes")],
            task=[task("review", **{"default_server_ids": ["git"]} | config), task("idle", tags=["x"])],
            key=[bound | {"ceiling": {"tasks": ["review", "unwritten"]}}],
        )
        yield world, index


async def tools_of(world: RestWorld) -> list[str]:
    response = await world.get(SCOPE, key=VIEWER)
    return list(response["tools"])


def names(found: Any) -> list[str]:
    return [f"{one['server_id']}/{one['tool']}" for one in found]


async def test_a_lesson_says_what_stays_and_what_goes_and_when_each_was_used_last(tmp_path: Path) -> None:
    events = [
        *(used("log", days) for days in range(6)),
        used("push", 9),
        used("show", outcome="denied", server_id=""),
        used("show", task_id="other"),
        used("log", 8),
    ]
    async with opened(tmp_path, *events) as (world, _):
        lesson = await world.get(f"{LEARN}?since={WEEK_AGO}", key=VIEWER)
        tokens = {one["tool"]: one.pop("tokens") for one in lesson["removed"]}

        assert lesson["kept"] == [
            {"server_id": "git", "tool": "log", "calls": 6, "last_used_ms": NOW_MS, "is_anew": False}
        ]
        assert lesson["removed"] == [
            {"server_id": "git", "tool": "push", "last_used_ms": NOW_MS - 9 * DAY_MS},
            {"server_id": "git", "tool": "show", "last_used_ms": None},
        ]
        assert lesson["tokens_saved"] == sum(tokens.values()) > 0
        assert (lesson["calls"], lesson["audit_begins_ms"]) == (6, NOW_MS - 9 * DAY_MS)
        assert json.loads(lesson["record"]["config"]["mcp.tool_allowlist"]) == ["git/log"]
        assert lesson["plan"]["tasks"][0]["removed"] == ["git/push", "git/show"]
        assert lesson["warnings"] == [
            "2 of 8 days have no events: either there were no calls, or a node's log is missing",
            "fewer than 20 calls are known: rarely used tools may be missing",
        ]


async def test_a_lesson_is_applied_as_its_plan_showed_and_not_once_that_is_outdated(tmp_path: Path) -> None:
    async with opened(tmp_path, used("log")) as (world, _):
        lesson = await world.get(LEARN, key=VIEWER)
        change = {"kind": "task", "id": "review", "body": lesson["record"]}
        bare = await world.request("POST", "/admin/api/apply", {"changes": [change]})
        sent = {"changes": [change], "plan": lesson["plan"]["id"]}
        done = await world.post("/admin/api/apply", sent)
        await world.served()
        seen = await tools_of(world)
        again = await world.get(LEARN, key=VIEWER)
        await world.seed(task=[task("review", default_server_ids=["git", "notes"])])
        late = await world.request("POST", "/admin/api/apply", sent)

    assert error_of(bare) == (428, "plan_required")
    assert [one["id"] for one in done["changes"]] == ["review"]
    assert seen == ["git.log"]
    assert (again["removed"], again["plan"]["changes"]) == ([], [])
    assert error_of(late) == (409, "plan_outdated")


async def test_where_nothing_was_used_there_is_no_lesson_unless_it_is_asked_for(tmp_path: Path) -> None:
    async with opened(tmp_path) as (world, _):
        refused = await world.request("GET", LEARN, key=VIEWER)
        asked = await world.get(f"{LEARN}?deny_all=true", key=VIEWER)

    assert error_of(refused) == (400, "invalid_request")
    assert (asked["kept"], names(asked["removed"])) == ([], ["git/log", "git/push", "git/show"])
    assert asked["warnings"][0] == "the audit log is empty: no usage is known"


@pytest.mark.parametrize("query", ["since=99999999999999", "since=-1", "since=x", "deny_all=yes", "until=1"])
async def test_what_a_lesson_is_asked_for_is_checked(tmp_path: Path, query: str) -> None:
    async with opened(tmp_path) as (world, _):
        response = await world.request("GET", f"{LEARN}?{query}", key=VIEWER)

    assert response.status_code == 400


async def test_there_is_no_lesson_for_a_task_that_is_not_there(tmp_path: Path) -> None:
    async with opened(tmp_path) as (world, _):
        response = await world.request("GET", "/admin/api/tasks/none/learn", key=VIEWER)

    assert error_of(response) == (404, "not_found")


async def test_what_a_task_that_is_not_enforced_would_deny_is_shown_and_learned(tmp_path: Path) -> None:
    config = {"enforce": False, "tool_allowlist": ["log"], "tool_denylist": ["add"]}
    events = [used("log"), used("add", server_id="notes")]
    async with opened(tmp_path, *events, **config) as (world, _):
        scope = await world.get(SCOPE, key=VIEWER)
        explained = await world.get("/api/v1/mcp/explain?task=review&tool=push", key=VIEWER)
        lesson = await world.get(LEARN, key=VIEWER)
        change = {"kind": "task", "id": "review", "body": lesson["record"]}
        await world.post("/admin/api/apply", {"changes": [change], "plan": lesson["plan"]["id"]})
        await world.served()

        assert scope["tools"] == ["git.log", "git.push", "git.show", "notes.add"]
        assert scope["shadowed"] == ["git/push", "git/show", "notes/add"]
        assert explained["tools"][0]["shadow"] == {
            "layer": "task",
            "reason": "not_in_task_allowlist",
            "rule": "mcp.tool_allowlist",
        }
        assert [one["is_anew"] for one in lesson["kept"]] == [False, True]
        assert await tools_of(world) == ["git.log", "notes.add"]
        assert {
            "allowed because the task used it, although its rules would deny it: `notes/add`",
            "rule left out, because it would deny a used tool: mcp.tool_denylist `add`",
        } <= set(lesson["warnings"])


async def test_an_agent_is_not_shown_that_its_task_is_not_enforced(tmp_path: Path) -> None:
    async with opened(tmp_path, enforce=False, tool_allowlist=["log"]) as (world, _):
        scope = await world.get(SCOPE, key=AGENT)
        explained = await world.get("/api/v1/mcp/explain?task=review", key=AGENT)

    assert len(scope["tools"]) == 4
    assert scope["shadowed"] == []
    assert {one["shadow"] for one in explained["tools"]} == {None}
    assert "enforce" not in json.dumps([scope, explained])


async def test_a_plan_warns_of_a_task_that_would_no_longer_be_enforced(tmp_path: Path) -> None:
    async with opened(tmp_path) as (world, _):
        body = task("review", default_server_ids=["git"], enforce=False)
        plan = await world.post("/admin/api/plan", {"kind": "task", "id": "review", "body": body})

    assert plan["tasks"][0]["added"] == ["notes/add"]
    assert plan["warnings"] == [f"task `review`, `mcp.enforce`: {UNENFORCED}"]


async def test_unused_grants_are_shown_by_task_and_by_key_and_servers_no_one_uses(tmp_path: Path) -> None:
    events = [used("log"), used("log", 40), used("push", 40)]
    async with opened(tmp_path, *events) as (world, _):
        response = await world.get(UNUSED, key=VIEWER)
        holders = {f"{one['kind']}/{one['id']}": one for one in response["holders"]}
        review, bound = holders["task/review"], holders["key/bound"]

        assert list(holders) == sorted(holders)
        assert "key/node" not in holders
        assert names(review["tools"]) == ["git/push", "git/show"]
        assert [one["last_used_ms"] for one in review["tools"]] == [NOW_MS - 40 * DAY_MS, None]
        assert (review["granted"], review["unused"], review["calls"]) == (3, 2, 1)
        assert review["unused_tokens"] == sum(one["tokens"] for one in review["tools"]) > 0
        assert bound | {"kind": "task", "id": "review"} == review
        assert (holders["task/idle"]["granted"], holders["task/idle"]["last_used_ms"]) == (0, None)
        assert (holders["key/viewer"]["granted"], holders["key/viewer"]["unused"]) == (4, 4)
        assert response["servers"] == [{"server_id": "notes", "last_used_ms": None}]


async def test_unused_grants_come_in_pages_or_of_one_task_or_key(tmp_path: Path) -> None:
    async with opened(tmp_path, used("log")) as (world, _):
        whole = await world.get(UNUSED, key=VIEWER)
        first = await world.get(f"{UNUSED}?limit=2", key=VIEWER)
        second = await world.get(f"{UNUSED}?cursor={first['next_cursor']}", key=VIEWER)
        tasks = await world.get(f"{UNUSED}?kind=task&limit=1", key=VIEWER)
        keys = await world.get(f"{UNUSED}?kind=key", key=VIEWER)
        no_kind = error_of(await world.request("GET", f"{UNUSED}?kind=node", key=VIEWER))
        one = await world.get(f"{UNUSED}?task=review", key=VIEWER)
        both = await world.get(f"{UNUSED}?task=review&key=bound", key=VIEWER)
        missing = [
            error_of(await world.request("GET", f"{UNUSED}?{query}", key=VIEWER))
            for query in ("task=none", "key=node", "key=none")
        ]

    assert first["holders"] + second["holders"] == whole["holders"]
    assert (first["servers"], second["servers"]) == (whole["servers"], [])
    assert keys["holders"] == [held for held in whole["holders"] if held["kind"] == "key"]
    assert tasks["holders"] == [held for held in whole["holders"] if held["kind"] == "task"][:1]
    assert tasks["servers"] == keys["servers"] == whole["servers"]
    assert tasks["next_cursor"] is not None
    assert no_kind == (400, "invalid_request")
    assert [held["id"] for held in one["holders"]] == ["review"]
    assert one["servers"] == []
    assert [held["id"] for held in both["holders"]] == ["bound", "review"]
    assert missing == [(404, "not_found")] * 3


async def test_a_call_that_an_unenforced_task_would_deny_goes_through_and_is_on_record(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    config = {"enforce": False, "tool_allowlist": ["log"], "allowed_server_ids": ["git"]}
    async with opened(tmp_path, **config) as (world, _):
        for tool in ("git.log", "git.push", "notes.add", "git.push"):
            sent: dict[str, Any] = {"name": tool, "arguments": {}}
            response = await world.request("POST", "/api/v1/mcp/call?task=review", sent, key=AGENT)
            assert response.json()["is_error"] is False, response.text
        gateway = world.control.gateway
        gateway.audit.flush()
        calls = [event for _, event in world.sink.events if isinstance(event, CallRecorded)]

        assert [(one.tool, one.outcome, one.shadow) for one in calls] == [
            ("log", "ok", ""),
            ("push", "ok", "mcp.tool_allowlist"),
            ("add", "ok", "mcp.allowed_server_ids"),
            ("push", "ok", "mcp.tool_allowlist"),
        ]
        assert gateway.metrics.shadow_denials == {
            ("git", "not_in_task_allowlist"): 2,
            ("notes", "not_allowed_by_task"): 1,
        }
        assert [line for line in caplog.messages if "shadow mode" in line] == [
            "key:agent: task `review` is in shadow mode; it would deny 3 tools, prompts or resources"
        ]


KEY_USAGE: Final = "/admin/api/key-usage"


async def test_each_key_has_its_reach_and_its_last_use_as_far_as_the_audit_reaches_back(
    tmp_path: Path,
) -> None:
    events = [used("log", 9), used("log", 2, outcome="denied"), used("log", 1, principal="key:other")]
    async with opened(tmp_path, *events) as (world, _):
        await world.seed(key=[{"key_id": "idle", "role": "viewer", "sha256": hash_key("tg_i" * 12)}])
        listed = await world.get(KEY_USAGE, key=VIEWER)
        found = {one["key_id"]: one for one in listed["keys"]}
        alone = await world.get(f"{KEY_USAGE}?key=bound", key=VIEWER)

        assert (listed["audit_begins_ms"], listed["registered_tools"]) == (NOW_MS - 9 * DAY_MS, 4)
        assert alone["keys"] == [found["bound"]]
        assert (found["bound"]["tools"], found["idle"]["tools"]) == (3, 4)
        assert found["bound"]["tokens"] > 0
        assert found["bound"]["last_used_ms"] == NOW_MS - 2 * DAY_MS
        assert (found["idle"]["last_used_ms"], found["idle"]["problem"]) == (None, "")


@pytest.mark.parametrize(
    ("ceiling", "problem"),
    [
        ({"tasks": []}, "its ceiling allows no task"),
        ({"servers": []}, "its ceiling allows no server"),
        ({"tasks": ["a", "b"]}, "no task that its ceiling allows exists: `a`, `b`"),
        ({"servers": ["gone"]}, "no server that its ceiling allows exists: `gone`"),
        ({"allow": ["nothing"]}, "no tool is within both its ceiling and the policy of the platform"),
        ({"tasks": ["idle"]}, "no tool is within both its ceiling and the policy of its tasks"),
    ],
)
async def test_a_key_that_reaches_no_tool_says_why(tmp_path: Path, ceiling: Any, problem: str) -> None:
    async with opened(tmp_path) as (world, _):
        key = {"key_id": "none", "role": "agent", "sha256": hash_key("tg_n" * 12), "ceiling": ceiling}
        await world.seed(key=[key])
        (found,) = (await world.get(f"{KEY_USAGE}?key=none", key=VIEWER))["keys"]

        assert (found["tools"], found["problem"]) == (0, problem)


async def test_where_no_server_has_a_tool_keys_say_so(tmp_path: Path) -> None:
    async with open_sqlite_index(tmp_path / "audit.db") as index, open_rest(audit_index=index) as world:
        await world.seed(key=[{"key_id": "none", "role": "agent", "sha256": hash_key("tg_n" * 12)}])
        listed = await world.get(f"{KEY_USAGE}?key=none", key=VIEWER)

        assert (listed["audit_begins_ms"], listed["keys"][0]["problem"]) == (
            None,
            "no server has listed a tool",
        )
