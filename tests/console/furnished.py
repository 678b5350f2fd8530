"""A gateway as someone may have it after a day: the demo's servers, calls, and things that wait."""

import json
import os
import random
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from tests.eventually import eventually
from tests.scenarios import reference
from tests.scenarios.gateway import ROOT, Gateway, Json, Site, running
from toolgate.audit.events import AuditEvent, CallRecorded, TokensCounted
from toolgate.audit.log.files import encode_line
from toolgate.cli.demo.kit import DATA, load_servers, load_tasks, make_repository

DAY_MS: Final = 24 * 3600 * 1000
CALLS: Final = 900
CALL: Final = "/api/v1/mcp/call"
RUG_SERVER: Final = ROOT / "tests" / "scenarios" / "rug_server.py"
GUEST: Final = ROOT / "build" / "guests" / "mcp_direct.wasm"
TRAFFIC: Final = (
    # Task, server, tool, milliseconds, how often.
    ("review", "git", "git_log", 34, 9),
    ("review", "git", "git_diff", 51, 6),
    ("review", "git", "git_status", 29, 5),
    ("notes", "notes", "search_notes", 4, 8),
    ("notes", "notes", "add_note", 6, 3),
    ("ops", "shop", "search_products", 7, 7),
    ("ops", "shop", "get_order", 5, 4),
    ("", "filesystem", "read_text_file", 12, 5),
    ("", "filesystem", "search_files", 240, 2),
)
CALLERS: Final = {"review": "key:ci", "notes": "key:assistant", "ops": "key:support", "": "key:ada"}


KEYS: Final[tuple[Json, ...]] = (
    {"key_id": "ada", "role": "admin"},
    {
        "key_id": "ci",
        "role": "agent",
        "default_task": "review",
        "ceiling": {"tasks": ["review"]},
        "budgets": {"calls_per_day": 5000},
    },
    {
        "key_id": "assistant",
        "role": "agent",
        "default_task": "notes",
        "ceiling": {"servers": ["notes", "time"]},
    },
    {"key_id": "support", "role": "agent", "ceiling": {"servers": ["shop"], "allow": ["get_*", "*_order"]}},
    {"key_id": "watch", "role": "viewer"},
)


def records(site: Site) -> Iterator[Json]:
    """The demo's servers, files, one that changes its tools, and one that is down."""
    repository = site.root / "repository"
    make_repository(repository)
    for server in load_servers({"bin": reference.BIN, "repository": repository, "kit": DATA}):
        asked = {"per_tool": {"refund_order": "always", "cancel_order": "always"}}
        # By names that are found on the path: pictures are of no machine in particular.
        server["stdio"]["command"] = Path(server["stdio"]["command"]).name
        yield {**server, **({"approval_policy": asked} if server["server_id"] == "shop" else {})}
    yield {
        **reference.filesystem(site),
        "display_name": "Shared files",
        "category": "files",
        "tags": ["code"],
    }
    rug = ["-I", "-S", str(RUG_SERVER), f"log={site.root / 'calls'}", f"site={site.root}"]
    stdio = {"command": sys.executable, "args": rug}
    yield site.server("archive", stdio=stdio, display_name="Archive", category="files", tags=["writing"])
    http = {"url": "http://127.0.0.1:9/mcp"}
    named = {"display_name": "Billing", "category": "commerce", "tags": ["commerce"]}
    yield site.server("billing", transport="streamable_http", http=http, **named)


def a_day(now_ms: int) -> list[AuditEvent]:
    """Calls as they may have been: more of them by day, some that failed, some that were denied."""
    luck = random.Random(8)
    events: list[CallRecorded] = []
    for _ in range(CALLS):
        task, server, tool, took_ms, _often = luck.choices(TRAFFIC, [one[4] for one in TRAFFIC])[0]
        at_ms = now_ms - int(DAY_MS * (1 - luck.triangular(0, 0.99, 0.75)))
        call = CallRecorded(
            at_ms=at_ms,
            door="mcp",
            principal=CALLERS[task],
            tool=tool,
            outcome="tool_error" if luck.random() < 0.03 else "ok",
            server_id=server,
            task_id=task,
            duration_us=int(took_ms * 1_000 * luck.lognormvariate(0, 0.4)),
            argument_bytes=luck.randint(10, 200),
        )
        events.append(call)
    return sorted(events, key=lambda one: one.at_ms)


def a_month(now_ms: int) -> list[AuditEvent]:
    """What lists and results of each task cost, day by day."""
    luck = random.Random(9)
    costs = {"review": (610, 40), "notes": (380, 60), "ops": (820, 25), "": (4_900, 8)}
    return [
        TokensCounted(now_ms - day * DAY_MS, task, lists, cost * lists, 4_900 * lists, 3 * lists, 90 * lists)
        for day in range(29, 0, -1)
        for task, (cost, most) in costs.items()
        for lists in [luck.randint(most // 2, most)]
    ]


def write_audit(site: Site, events: list[AuditEvent]) -> None:
    """As the log of a gateway that ran before; the next one seals it."""
    site.data.mkdir(parents=True)
    lines = (encode_line(number, event) for number, event in enumerate(events, start=1))
    (site.data / "audit.jsonl").write_bytes(b"".join(lines))


def furnish(gateway: Gateway) -> None:
    """Tasks, profiles, keys, a pin, a run, and what someone has to decide on."""
    for task in load_tasks():
        gateway.put(f"/admin/api/tasks/{task.id}", task.body)
    reading = {"allow": ["get_*", "search_*", "read_*", "list_*", "git_log"], "tags": ["code", "writing"]}
    gateway.put(
        "/admin/api/profiles/reading", reading | {"environments": {"prod": reading | {"deny": ["get_order"]}}}
    )
    gateway.put("/admin/api/profiles/writing", {"servers": ["notes"], "deny": ["delete_*"]})
    secrets = {one["key_id"]: gateway.http.post("/admin/api/keys", json=one).json()["secret"] for one in KEYS}
    upstream = {
        "base_url": "http://127.0.0.1:11434/v1",
        "models": ["qwen*", "llama*"],
        "display_name": "Ollama",
    }
    gateway.put("/admin/api/chat-upstreams/ollama", upstream)
    support = {"authorization": f"Bearer {secrets['support']}"}
    _call(gateway, "shop.place_order", {"lines": [{"sku": "TEA-1", "quantity": 2}]})
    _call(gateway, "shop.refund_order", {"order_id": 1001}, headers=support)
    _call(gateway, "shop.cancel_order", {"order_id": 1001}, headers=support)
    for _ in range(6):
        _call(gateway, "git.git_reset", {}, task="review")
    for _ in range(3):
        _call(gateway, "notes.delete_note", {}, task="notes")
    gateway.cli("pins", "approve", "archive")
    gateway.cli("pins", "approve", "shop")
    _call(gateway, "archive.turn", {})
    _run(gateway)


def _call(
    gateway: Gateway, name: str, arguments: Json, *, task: str = "", headers: dict[str, str] | None = None
) -> None:
    where = f"{CALL}?task={task}" if task else CALL
    gateway.http.post(where, json={"name": name, "arguments": arguments}, headers=headers)


def _run(gateway: Gateway) -> None:
    octets = {"content-type": "application/wasm"}
    sent = gateway.http.post("/admin/api/modules", content=GUEST.read_bytes(), headers=octets)
    workload = {"module": sent.raise_for_status().json()["sha256"], "args": ["shop", "search_products"]}
    config = {"mcp.enabled": True, "mcp.default_server_ids": ["shop"]}
    body = {"display_name": "Stock: what is for sale", "config": config, "workload": workload}
    gateway.put("/admin/api/tasks/stock", body)
    for words in ("tea", "cup"):
        run = {"input": json.dumps({"words": words})}
        gateway.http.post("/api/v1/tasks/stock/invocations", json=run).raise_for_status()


@contextmanager
def furnished() -> Iterator[Gateway]:
    """A gateway with something on every page."""
    with tempfile.TemporaryDirectory(prefix="toolgate-") as directory:
        site = Site(Path(directory))
        site.place(*records(site))
        now_ms = time.time_ns() // 1_000_000
        write_audit(site, a_month(now_ms) + a_day(now_ms))
        with running(site, environ={"PATH": f"{reference.BIN}:{os.environ['PATH']}"}) as gateway:
            eventually(lambda: _is_listed(gateway), 60)
            furnish(gateway)
            yield gateway


def _is_listed(gateway: Gateway) -> bool:
    servers = gateway.get("/admin/api/mcp/servers")["servers"]
    return all(one["server_id"] == "billing" or (one["health"] or {}).get("tools") for one in servers)


def pages(gateway: Gateway) -> dict[str, tuple[str, str]]:
    """By the name of its picture, where a page is, and a text by which one sees that it is there."""
    (run, *_) = gateway.get("/api/v1/tasks/stock/invocations")["invocations"]
    return {
        "login": ("login", "toolgate keys create"),
        "overview": ("", "Slowest tools"),
        "overview-tokens": ("", "for definitions"),
        "servers": ("servers", "Tea shop"),
        "server": ("servers/git", "Status on this node"),
        "server-tools": ("servers/git/tools", "git_diff_staged"),
        "server-edit": ("servers/git/edit", "Redaction of arguments"),
        "server-new": ("servers/-/new", "Command, URL or configuration"),
        "server-import": ("servers/-/import", "Definitions"),
        "tasks": ("tasks", "Code review"),
        "task": ("tasks/review", "git_log"),
        "task-learn": ("tasks/review?tab=learn", "Unused"),
        "task-edit": ("tasks/ops/edit", "What this change would do"),
        "profiles": ("profiles", "reading"),
        "profile": ("profiles/reading", "git_log"),
        "scope": ("scope?task=review&why=git.git_reset", "git_status"),
        "scope-why": ("scope?task=review&why=git.git_reset", "git_status"),
        "catalog": ("catalog", "commerce"),
        "catalog-search": ("catalog?q=order", "get_order"),
        "catalog-tool": ("catalog/tool?name=shop.place_order", "Input schema"),
        "playground": ("playground?tool=shop.place_order", "Call tool"),
        "catalog-picked": ("catalog/picked?tools=git.git_log,notes.add_note", "Save"),
        "approvals": ("approvals", "refund_order"),
        "pins": ("pins", "archive"),
        "pin": ("pins/archive", "Send it to me first"),
        "activity": ("activity", "git_reset"),
        "unused": ("unused", "review"),
        "unused-task": ("unused/task/review", "git_branch"),
        "runs": ("runs", "stock"),
        "run": (f"runs/stock/{run['invocation_id']}", "search_products"),
        "models": ("models", "Ollama"),
        "keys": ("keys", "assistant"),
        "hand-over": ("keys/-/hand-over", "What they get"),
        "connections": ("connections", "Your setting"),
        "guide": ("guides/how-to/servers", "Add a server from the command line"),
    }
