"""What happened, over REST: found by everything, told as it comes, exported without harm, counted."""

import asyncio
import csv
import io
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import msgspec
import pytest

from tests.contract.audit_indexes import add, call
from tests.surfaces.rest_events import open_events
from tests.surfaces.rest_world import NOW_MS, RestWorld, error_of, open_rest, secret_of
from toolgate.audit.events import (
    AdminRecorded,
    AppliedFilter,
    AuditEvent,
    Exclusion,
    InvocationEnded,
    ProcessSpawned,
    ScopeOffered,
    TokensCounted,
)
from toolgate.audit.index.index import AuditIndex, open_sqlite_index
from toolgate.govern.control import ControlLimits
from toolgate.surfaces.rest.resources.audit import COLUMNS

pytestmark = pytest.mark.anyio

AUDIT: Final = "/admin/api/audit"
VIEWER: Final = secret_of("viewer")
FORMULAS: Final = ("=cmd|' /C calc'!A0", "+1", "-1", "@SUM(A1)", "\t=1", "\r=1", "\n=1")


@asynccontextmanager
async def audited(
    directory: Path, *events: AuditEvent, limits: ControlLimits | None = None
) -> AsyncIterator[tuple[RestWorld, AuditIndex]]:
    async with (
        open_sqlite_index(directory / "audit.db") as index,
        open_rest(audit_index=index, limits=limits or ControlLimits()) as world,
    ):
        await add(index, *events)
        yield world, index


async def listed(world: RestWorld, query: str = "") -> list[int]:
    """When the events were."""
    response = await world.get(f"{AUDIT}?{query}" if query else AUDIT, key=VIEWER)
    return [one["at_ms"] for one in response["events"]]


async def test_an_event_is_shown_flat_with_null_for_what_it_has_not(tmp_path: Path) -> None:
    async with audited(tmp_path, AdminRecorded(1, "key:ada", "put", "server", "git", 4)) as (world, _):
        (shown,) = (await world.get(AUDIT, key=VIEWER))["events"]

    assert len(shown.pop("event_id")) == 26
    assert {name: value for name, value in shown.items() if value is not None} == {
        "seq": 1,
        "node": "",
        "type": "admin",
        "at_ms": 1,
        "principal": "key:ada",
        "operation": "put",
        "kind": "server",
        "record_id": "git",
        "revision": 4,
    }
    assert {"event_id", *shown} == set(COLUMNS)


NARROWED: Final = {
    "": [4, 3, 2, 1],
    "type=invocation": [4],
    "outcome=denied": [2],
    "door=hostcall": [3],
    "principal=key:eve": [2],
    "task=t": [4, 3],
    "server=git": [3, 2, 1],
    "tool=git__push": [2],
    "code=tool_not_found": [2],
    "code=&type=call": [3, 1],
    "session=i": [4, 3],
    "request=7": [1],
    "node=": [4, 3, 2, 1],
    "since=2&until=4": [3, 2],
    "outcome=denied&principal=key:ada": [],
}


async def test_a_call_is_shown_with_its_arguments_and_all_that_came_of_it(tmp_path: Path) -> None:
    """XSS-5: in a spreadsheet they are a text."""
    received = call(
        1,
        start=4,
        arguments=msgspec.Raw(b'{"path":"=1\\u202e","deep":{"n":[1.50,null]}}'),
        result_tokens=9,
        shadow="mcp.denied_tools",
        trace_id="0af7",
    )
    odd = call(2, arguments=msgspec.Raw(b'{"n":1e999}'))
    async with audited(tmp_path, received, odd, ProcessSpawned(3, "git", "uvx git", "trial", "f0")) as (
        world,
        _,
    ):
        spawned, strange, shown = (await world.get(AUDIT, key=VIEWER))["events"]
        exported = await world.request("GET", f"{AUDIT}/export?format=csv&until=2", key=VIEWER)
    (row,) = csv.DictReader(io.StringIO(exported.text))

    assert shown["arguments"] == {"path": "=1\u202e", "deep": {"n": [1.5, None]}}
    assert [shown[name] for name in ("start", "result_tokens", "shadow", "trace_id")] == [
        4,
        9,
        "mcp.denied_tools",
        "0af7",
    ]
    assert strange["arguments"] == {"…": '{"n":1e999}'}
    assert [spawned[name] for name in ("type", "command", "reason", "package", "arguments")] == [
        "spawn",
        "uvx git",
        "trial",
        "f0",
        None,
    ]
    assert row["arguments"] == '{"path": "=1\\u202e", "deep": {"n": [1.5, null]}}'


async def test_an_offered_scope_is_shown_with_its_exclusions(tmp_path: Path) -> None:
    left_out = Exclusion("git", "denied_by_task", "task", "mcp.tool_denylist `push`", "push")
    down = Exclusion("web", "list_failed", "platform", "connection refused")
    offered = ScopeOffered(
        1,
        "mcp",
        "key:ada",
        "d" * 64,
        "list",
        1,
        2,
        0,
        0,
        90,
        2,
        task_id="ops",
        effective_servers=("git",),
        filters=(AppliedFilter("task", "mcp.tool_denylist", ("push",), is_deny=True),),
        offered=("git.log", "git.show"),
        reasons={"denied_by_task": 1, "list_failed": 1},
        exclusions=(left_out, down),
    )
    async with audited(tmp_path, offered) as (world, _):
        (shown,) = (await world.get(f"{AUDIT}?type=scope&task=ops", key=VIEWER))["events"]
        exported = await world.request("GET", f"{AUDIT}/export?format=csv", key=VIEWER)
    (row,) = csv.DictReader(io.StringIO(exported.text))

    assert (shown["scope"], shown["mode"], shown["tokens"]) == ("d" * 64, "list", 90)
    assert [shown[name] for name in ("servers", "tools", "prompts", "resources", "excluded")] == [
        1,
        2,
        0,
        0,
        2,
    ]
    assert (shown["effective_servers"], shown["offered"]) == (["git"], ["git.log", "git.show"])
    assert shown["filters"] == [
        {"layer": "task", "rule": "mcp.tool_denylist", "patterns": ["push"], "is_deny": True}
    ]
    assert shown["reasons"] == {"denied_by_task": 1, "list_failed": 1}
    assert [(one["server_id"], one["tool"], one["reason"]) for one in shown["exclusions"]] == [
        ("git", "push", "denied_by_task"),
        ("web", None, "list_failed"),
    ]
    assert json.loads(row["exclusions"]) == shown["exclusions"]


async def test_events_are_narrowed_by_everything(tmp_path: Path) -> None:
    events: list[AuditEvent] = [
        call(1, request_id="7"),
        call(2, outcome="denied", principal="key:eve", tool="git__push", code="tool_not_found"),
        call(3, door="hostcall", task_id="t", session="i"),
        InvocationEnded(4, "key:ada", "t", "i", 1, "succeeded", "guest"),
    ]
    async with audited(tmp_path, *events) as (world, _):
        assert {query: await listed(world, query) for query in NARROWED} == NARROWED


async def test_pages_lead_to_all_events(tmp_path: Path) -> None:
    async with audited(tmp_path, *(call(n) for n in range(5))) as (world, _):
        query, seen = "limit=2", []
        while query:
            response = await world.get(f"{AUDIT}?{query}", key=VIEWER)
            seen.append([one["at_ms"] for one in response["events"]])
            cursor = response["next_cursor"]
            query = f"limit=2&cursor={cursor}" if cursor else ""

    assert seen == [[4, 3], [2, 1], [0]]


REFUSED: Final = {
    "type=nothing": "`type` must be one of `call`, `admin`",
    "outcome=fine": "`outcome` must be one of `ok`, `tool_error`",
    f"tool={'x' * 401}": "longer than 400 characters",
    "since=2&until=1": "`since` must not be after `until`",
    "since=soon": "`since` must be a whole number",
    "limit=0": "`limit` must be from 1 to 1000",
    "limit=1001": "`limit` must be from 1 to 1000",
    "cursor=AAAA": "invalid cursor",
    "cursor=ZXZpbA": "invalid cursor",
    "who=me": "unknown query parameter `who`",
}


async def test_what_cannot_be_asked_is_refused_with_what_can(tmp_path: Path) -> None:
    async with audited(tmp_path) as (world, _):
        responses = {query: await world.request("GET", f"{AUDIT}?{query}", key=VIEWER) for query in REFUSED}

    assert {error_of(response) for response in responses.values()} == {(400, "invalid_request")}
    for query, rpc in REFUSED.items():
        assert rpc in responses[query].json()["error"]["message"]


async def test_one_event_is_shown_with_its_story(tmp_path: Path) -> None:
    events = [call(1, session="s"), call(2), call(3, session="s"), call(4, session="s")]
    async with audited(tmp_path, *events) as (world, _):
        third = (await world.get(f"{AUDIT}?since=3&until=4", key=VIEWER))["events"][0]
        story = await world.get(f"{AUDIT}/{third['event_id']}", key=VIEWER)
        missing = [
            await world.request("GET", f"{AUDIT}/{name}", key=VIEWER)
            for name in ("x", "0" * 24 + "-1", "-", "%2e")
        ]

    assert story["event"] == third
    assert [one["at_ms"] for one in story["around"]] == [1, 4]
    assert {error_of(one) for one in missing} == {(404, "not_found")}


async def test_the_tail_tells_what_comes_and_goes_on_after_the_last_that_was_got(tmp_path: Path) -> None:
    async with audited(tmp_path, call(1)) as (world, index):
        async with open_events(world.api, f"{AUDIT}/events?outcome=error", key=VIEWER) as stream:
            start = (await stream.read(1))[0]
            await add(index, call(2), call(3, outcome="error"), after=1)
            (received,) = await stream.read(1)
        await add(index, call(4, outcome="error"), after=3)
        async with open_events(
            world.api, f"{AUDIT}/events?outcome=error", key=VIEWER, last_id=received.id
        ) as stream:
            (_, again) = await stream.read(2)

    assert (start.name, start.id) == ("start", 1)
    assert (received.name, received.data["at_ms"], received.id) == ("event", 3, 3)
    assert (again.data["at_ms"], again.id) == (4, 4)


async def test_the_tail_finds_what_another_replica_took_in(tmp_path: Path) -> None:
    async with (
        audited(tmp_path, limits=ControlLimits(tail_poll_s=0.02)) as (world, _),
        open_sqlite_index(tmp_path / "audit.db") as other,
        open_events(world.api, f"{AUDIT}/events", key=VIEWER) as stream,
    ):
        await stream.read(1)
        await add(other, call(1))
        (received,) = await stream.read(1)

    assert received.data["at_ms"] == 1


async def test_the_tail_ends_with_the_key_it_was_opened_with(tmp_path: Path) -> None:
    async with (
        audited(tmp_path) as (world, _),
        open_events(world.api, f"{AUDIT}/events", key=VIEWER) as stream,
    ):
        await stream.read(1)
        assert (await world.request("DELETE", "/admin/api/keys/viewer")).is_success
        (received,) = await stream.read(1)

    assert (received.name, received.data["code"]) == ("error", "unauthenticated")


async def export(world: RestWorld, query: str) -> str:
    response = await world.request("GET", f"{AUDIT}/export?{query}", key=VIEWER)
    assert response.is_success, response.text
    kind = query.partition("&")[0].removeprefix("format=")
    assert response.headers["content-disposition"] == f'attachment; filename="audit.{kind}"'
    assert response.headers["x-content-type-options"] == "nosniff"
    return response.text


async def test_xss_5_no_cell_of_a_csv_export_is_a_formula(tmp_path: Path) -> None:
    events = [call(1, tool=one, principal=one, task_id=one) for one in FORMULAS]
    async with audited(tmp_path, *events) as (world, _):
        head, *rows = csv.reader(io.StringIO(await export(world, "format=csv"), newline=""))

    assert head == list(COLUMNS)
    assert [row for row in rows if any(cell[:1] in "=+-@\t\r\n" for cell in row if cell)] == []
    assert [row.count(f"'{one}") for row, one in zip(rows, reversed(FORMULAS), strict=True)] == [3] * 7


async def test_xss_3_json_lines_show_no_character_that_a_terminal_acts_upon(tmp_path: Path) -> None:
    odd = "\x1b]8;;http://evil\x07\u202e\u200b\x00=1"
    async with audited(tmp_path, call(1, tool=odd), call(2)) as (world, _):
        text = await export(world, "format=jsonl&outcome=ok")

    lines = [json.loads(line) for line in text.splitlines()]
    assert [(one["at_ms"], one["tool"]) for one in lines] == [(2, "git__log"), (1, odd)]
    assert text.replace("\n", "").isprintable()


async def test_an_export_is_streamed_page_by_page_and_says_where_it_stops(tmp_path: Path) -> None:
    limits = ControlLimits(export_page=2, max_export=5)
    async with audited(tmp_path, *(call(n) for n in range(7)), limits=limits) as (world, _):
        stopped = await export(world, "format=jsonl")
        whole = await export(world, "format=jsonl&since=3")
        sheet = await export(world, "format=csv")

    assert [json.loads(line).get("at_ms") for line in stopped.splitlines()] == [6, 5, 4, 3, 2, None]
    assert "stopped after 5 events: to get older events, set `until`" in stopped.splitlines()[-1]
    assert len(whole.splitlines()) == 4
    assert "stopped after" in sheet.splitlines()[-1]


async def test_an_export_of_another_format_is_refused(tmp_path: Path) -> None:
    async with audited(tmp_path) as (world, _):
        response = await world.request("GET", f"{AUDIT}/export?format=xlsx", key=VIEWER)

    assert error_of(response) == (400, "invalid_request")


async def test_calls_are_counted_over_the_last_day_by_default(tmp_path: Path) -> None:
    events = [
        call(NOW_MS - 1_000, duration_us=2_000),
        call(NOW_MS - 1_000, outcome="denied", server_id="", code="tool_not_found", layer="key", rule="deny"),
        call(NOW_MS - 90_000_000),
    ]
    async with audited(tmp_path, *events) as (world, _):
        found = await world.get("/admin/api/activity?buckets=2", key=VIEWER)
        other = await world.get(f"/admin/api/activity?since=0&until={NOW_MS}&server=time", key=VIEWER)

    assert (found["until_ms"] - found["since_ms"], found["bucket_ms"]) == (86_400_000, 43_200_000)
    assert [(one["calls"], one["errors"], one["denials"]) for one in found["buckets"]] == [
        (0, 0, 0),
        (1, 0, 1),
    ]
    assert [(one["server_id"], one["calls"], one["last_ms"]) for one in found["servers"]] == [
        ("git", 1, NOW_MS - 1_000)
    ]
    assert found["denials"] == [{"code": "tool_not_found", "layer": "key", "rule": "deny", "count": 1}]
    assert found["callers"] == [{"principal": "key:ada", "calls": 1}]
    assert (other["servers"], len(other["buckets"])) == ([], 60)


async def test_what_cannot_be_counted_is_refused(tmp_path: Path) -> None:
    queries = ("buckets=0", "buckets=501", "since=5&until=5", f"task={'x' * 401}")
    async with audited(tmp_path) as (world, _):
        responses = [await world.request("GET", f"/admin/api/activity?{one}", key=VIEWER) for one in queries]

    assert [error_of(response) for response in responses] == [(400, "invalid_request")] * 4


async def test_agents_see_nothing_of_it_and_viewers_everything(tmp_path: Path) -> None:
    async with audited(tmp_path, call(1)) as (world, _):
        asked: dict[str, Any] = {
            role: await asyncio.gather(
                *(
                    world.request("GET", path, key=secret_of(role))
                    for path in (
                        AUDIT,
                        f"{AUDIT}/export",
                        f"{AUDIT}/events",
                        f"{AUDIT}/x",
                        "/admin/api/activity",
                    )
                )
            )
            for role in ("agent", "viewer")
        }

    assert [one.status_code for one in asked["agent"]] == [403] * 5
    assert [one.status_code for one in asked["viewer"]] == [200, 200, 200, 404, 200]


async def test_tokens_are_shown_by_day_and_by_task(tmp_path: Path) -> None:
    """Days without any are left out, and those that were not asked for."""
    day = 24 * 3_600_000
    received = [
        TokensCounted(NOW_MS, "review", lists=2, definition_tokens=40, full_tokens=900),
        TokensCounted(NOW_MS - 2 * day, "review", calls=3, result_tokens=7),
        TokensCounted(NOW_MS, "", lists=1, definition_tokens=450, full_tokens=450),
        TokensCounted(NOW_MS - 7 * day, "review", lists=1),
    ]
    async with audited(tmp_path, *received) as (world, _):
        found = await world.get("/admin/api/tokens", key=VIEWER)
        one = await world.get("/admin/api/tokens?task=review&days=1", key=VIEWER)
        none = await world.get("/admin/api/tokens?task=no one", key=VIEWER)
        wrong = [
            error_of(await world.request("GET", f"/admin/api/tokens?days={days}", key=VIEWER))
            for days in ("0", "367", "x")
        ]

    assert (found["since"], found["until"]) == ("2023-11-08", "2023-11-14")
    assert [(one["day"], one["lists"], one["result_tokens"]) for one in found["days"]] == [
        ("2023-11-12", 0, 7),
        ("2023-11-14", 3, 0),
    ]
    assert [(one["task_id"], one["saved_tokens"]) for one in found["tasks"]] == [("", 0), ("review", 860)]
    assert found["total"] == {
        "lists": 3,
        "definition_tokens": 490,
        "full_tokens": 1350,
        "saved_tokens": 860,
        "calls": 3,
        "result_tokens": 7,
    }
    assert [one["total"]["lists"], none["days"], none["total"]["calls"]] == [2, [], 0]
    assert wrong == [(400, "invalid_request")] * 3
