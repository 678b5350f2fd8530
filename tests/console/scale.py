"""The console of a large world: 500 servers with 10,000 tools, and 100,000 events in the audit.

Where each page is, and what of it must be there before anyone would call it usable.
"""

import random
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from playwright.sync_api import Page, expect

from tests.console.fleet import SERVERS, TOOLS, await_catalog, large_gateway
from tests.eventually import eventually
from tests.scenarios.gateway import Gateway
from toolgate.audit.events import AuditEvent, CallRecorded
from toolgate.audit.log.files import encode_line

EVENTS: Final = 100_000
DAY_MS: Final = 24 * 3600 * 1000
TAKEN_IN_S: Final = 120.0


@dataclass(frozen=True)
class Place:
    """A page, the text that is there once it can be used, and a field that answers to typing."""

    path: str
    shown: str
    field: str = ""
    typed: str = ""
    found: str = ""
    """What typing brings."""


PLACES: Final = {
    "overview": Place("", "Slowest tools"),
    "servers": Place("servers", "fleet-003", "Find by ID, name, tag or error", "fleet-117", "fleet-117"),
    "server": Place("servers/fleet-007", "Status on this node"),
    "server's tools": Place("servers/fleet-007/tools", "read_invoice_1"),
    "tasks": Place("tasks", "large"),
    "task": Place("tasks/large", "fleet-000."),
    "edit task": Place("tasks/large/edit", "What this change would do"),
    "profiles": Place("profiles", "wide"),
    "scope": Place("scope?task=large", "excludes"),
    "catalog": Place("catalog", "billing", "What should the tool do?", "invoice", "read_invoice"),
    "category": Place("catalog/in/billing", "fleet-000"),
    "package": Place("catalog/packages/fleet-007", "read_invoice_1"),
    "tool": Place("catalog/tool?name=fleet-007.read_invoice_1", "Input schema"),
    "approvals": Place("approvals", "No pending approvals"),
    "pins": Place("pins", "fleet-003"),
    "activity": Place("activity?type=call", "Show older"),
    "unused": Place("unused?of=key", "key-01"),
    "runs": Place("runs", "WASM tasks"),
    "models": Place("models", "No chat upstreams yet"),
    "keys": Place("keys", "key-01"),
}


def events(count: int) -> Iterator[AuditEvent]:
    """Calls of a day, in order."""
    luck = random.Random(8)
    now_ms = time.time_ns() // 1_000_000
    for number in range(count):
        yield CallRecorded(
            at_ms=now_ms - DAY_MS + DAY_MS * number // count,
            door="mcp",
            principal=f"key:{luck.randrange(50)}",
            tool=f"read_invoice_{luck.randrange(20)}",
            outcome=luck.choices(("ok", "tool_error", "denied"), (90, 5, 5))[0],
            server_id=f"fleet-{luck.randrange(500):03}",
            session=f"s{number // 20}",
            request_id=f"req-{number}",
            duration_us=int(20_000 * luck.lognormvariate(0, 0.7)),
        )


@contextmanager
def large_world(
    root: Path, *, servers: int = SERVERS, tools: int = TOOLS, audited: int = EVENTS
) -> Iterator[Gateway]:
    """With a task, a profile and keys, its catalog complete and its audit taken in."""
    _write_audit(root / "data", audited)
    with large_gateway(root, servers=servers, tools=tools) as gateway:
        started = [f"fleet-{number:03}" for number in range(0, servers, servers // 5)]
        config = {"mcp.enabled": True, "mcp.default_server_ids": started}
        gateway.put("/admin/api/tasks/large", {"config": config})
        gateway.put("/admin/api/profiles/wide", {"tags": ["billing"]})
        for number in range(60):
            gateway.http.post("/admin/api/keys", json={"key_id": f"key-{number:02}", "role": "agent"})
        await_catalog(gateway)
        last = f"/admin/api/audit?type=call&request=req-{audited - 1}"
        eventually(lambda: gateway.get(last)["events"], TAKEN_IN_S)
        yield gateway


def _write_audit(directory: Path, count: int) -> None:
    directory.mkdir(parents=True)
    lines = (encode_line(number, event) for number, event in enumerate(events(count), start=1))
    (directory / "audit.jsonl").write_bytes(b"".join(lines))


def open_place(tab: Page, place: Place) -> None:
    """Returns when the page can be used."""
    tab.goto(f"/console/{place.path}", wait_until="commit")
    expect(tab.get_by_role("main").get_by_text(place.shown).first).to_be_visible()


def type_into(tab: Page, place: Place) -> None:
    """Returns when what was typed has brought something."""
    tab.get_by_placeholder(place.field).fill(place.typed)
    expect(tab.get_by_role("main").get_by_text(place.found).first).to_be_visible()
