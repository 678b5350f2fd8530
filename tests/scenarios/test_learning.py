"""A recorded week of the demo: under what it teaches the same calls pass, and what was not used is gone."""

import asyncio
import json
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

import pytest
from msgspec.structs import replace

from tests.eventually import eventually_equal
from tests.scenarios.gateway import Gateway, Site, running
from tests.scenarios.tally import wait_listed
from toolgate.audit.events import CallRecorded
from toolgate.audit.index.index import open_sqlite_index
from toolgate.audit.index.tables import EventFilter
from toolgate.audit.log.files import AuditLine, LineBatch
from toolgate.cli.demo.kit import DATA, load_servers, load_tasks

pytestmark = pytest.mark.xdist_group("scenario-learning")

DAY_MS: Final = 24 * 3_600_000
SERVERS: Final = ("notes", "shop", "time")
"""Of the demo: what `ops` may do with the repository adds nothing here but time."""


class Call(NamedTuple):
    """One call of the week."""

    days_ago: int
    name: str
    arguments: dict[str, Any]


WEEK: Final = (
    Call(6, "notes.add_note", {"title": "Monday", "text": "water the tea", "tags": ["work"]}),
    Call(6, "shop.search_products", {"words": "tea"}),
    Call(5, "shop.check_stock", {"sku": "TEA-1"}),
    Call(4, "notes.list_notes", {}),
    Call(3, "shop.check_stock", {"sku": "TEA-2"}),
    Call(2, "notes.search_notes", {"words": "tea"}),
    Call(1, "shop.check_stock", {"sku": "NONE-1"}),  # the shop has no such thing
    Call(0, "time.get_current_time", {"timezone": "Asia/Tokyo"}),
)
USED: Final = sorted({call.name for call in WEEK})


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    """The demo, and a second task that lets through what its task `ops` does."""
    site = Site(tmp_path_factory.mktemp("week"))
    places = {"bin": Path(sys.executable).parent, "repository": site.root, "kit": DATA}
    site.place(*(one for one in load_servers(places) if one["server_id"] in SERVERS))
    (ops,) = (record.body for record in load_tasks() if record.id == "ops")
    with running(site) as gateway:
        gateway.put("/admin/api/tasks/ops", ops)
        gateway.put("/admin/api/tasks/rehearsal", ops | {"task_id": "rehearsal"})
        wait_listed(gateway, *SERVERS)
        yield gateway


def outcomes(gateway: Gateway, task: str) -> list[str]:
    """What comes of the calls of the week, in the eyes of who makes them."""
    client = gateway.modern(f"/api/mcp/t/{task}")
    responses = [client.call(call.name, **call.arguments) for call in WEEK]
    return ["tool error" if one["result"].get("isError") else "ok" for one in responses]


def record_week(gateway: Gateway) -> list[str]:
    """Make the calls of the week, and have them audited as those of `ops`, each on its day."""
    found = outcomes(gateway, "rehearsal")
    query = "/admin/api/audit?type=call&task=rehearsal"
    eventually_equal(lambda: len(gateway.get(query)["events"]), len(WEEK))
    asyncio.run(_spread(gateway.site.data / "audit.db"))
    return found


async def _spread(path: Path) -> None:
    """As if a node had sent them."""
    now_ms = int(time.time() * 1e3)
    async with open_sqlite_index(path) as index:
        asked = EventFilter(equals={"type": "call", "task_id": "rehearsal"})
        page = await index.page(asked, before=None, limit=100)
        calls = [one.event for one in reversed(page) if isinstance(one.event, CallRecorded)]
        lines = [
            AuditLine(seq, replace(event, task_id="ops", at_ms=now_ms - call.days_ago * DAY_MS))
            for seq, (event, call) in enumerate(zip(calls, WEEK, strict=True), 1)
        ]
        await index.add(LineBatch(0, len(lines), lines), node="last-week", log="week")


def test_what_a_week_taught_lets_the_same_calls_through_and_nothing_else(gateway: Gateway) -> None:
    client = gateway.modern("/api/mcp/t/ops")
    recorded, before = record_week(gateway), client.tools()
    lesson = gateway.cli("learn", "ops", "--json").json
    applied = gateway.cli("learn", "ops", "--apply", "--require-plan", lesson["plan"]["id"])
    after = client.tools()
    removed = [f"{one['server_id']}.{one['tool']}" for one in lesson["removed"]]
    unused = gateway.cli("unused", "--task", "ops", "--since", "7d", "--json").json["holders"][0]

    assert (applied.code, applied.err) == (0, "")
    assert after == USED
    assert sorted(set(before) - set(after)) == removed
    assert "shop.restock_product" in removed
    assert lesson["calls"] == len(WEEK)
    assert lesson["tokens_saved"] == sum(one["tokens"] for one in lesson["removed"]) > 0
    assert {one["last_used_ms"] for one in lesson["removed"]} == {None}
    assert outcomes(gateway, "ops") == recorded == ["ok"] * 6 + ["tool error", "ok"]
    assert "Unknown tool" in json.dumps(client.call("shop.restock_product", sku="TEA-1", quantity=1))
    assert (unused["granted"], unused["unused"]) == (len(USED), 0)
