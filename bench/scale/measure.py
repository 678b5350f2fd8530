"""What a control plane and a node do at 1,000 servers of 100 tools each, in one process.

    .venv/bin/python bench/scale/measure.py [--servers 1000] [--tools 100] [--only plan,find,reports]

Prints one line a figure: wall time, and the longest that the event loop stood still meanwhile.
"""

import argparse
import asyncio
import json
import random
import resource
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

PROJECT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(PROJECT))

from tests.memory_audit import MemorySink  # noqa: E402
from tests.registry.memory_store import MemoryStore  # noqa: E402
from tests.upstream.memory_link import definition, record  # noqa: E402

from toolgate.audit.log.writer import AuditLog  # noqa: E402
from toolgate.catalog.find_tools import SearchArguments  # noqa: E402
from toolgate.catalog.listings import check_lists, digest_lists  # noqa: E402
from toolgate.gateway.cluster.reported_servers import ReportedServers  # noqa: E402
from toolgate.gateway.gateway import Gateway  # noqa: E402
from toolgate.gateway.scope.caller import Caller  # noqa: E402
from toolgate.govern.changes.impact import lint_edits  # noqa: E402
from toolgate.model.principals import Principal  # noqa: E402
from toolgate.model.reports import Definitions, NodeReport, ServerReport  # noqa: E402
from toolgate.model.tasks import Task  # noqa: E402
from toolgate.model.tools import (
    ServerTools,  # noqa: E402
    Snapshot,  # noqa: E402
)
from toolgate.policy.admission import find_weakened_guards  # noqa: E402
from toolgate.policy.plan import Planner  # noqa: E402
from toolgate.policy.scope import ScopeLimits  # noqa: E402
from toolgate.registry.store.engines import open_sqlite_store  # noqa: E402
from toolgate.telemetry import Metrics  # noqa: E402

WORDS: Final = ["read", "write", "file", "directory", "search", "query", "table", "row", "column", "issue", "branch", "commit", "message", "channel", "user", "calendar", "event", "mail", "send", "list", "create", "page", "invoice", "customer", "order", "payment", "ticket", "report", "metric", "alert", "deploy", "build", "test", "release", "document", "image", "video", "audio"]
LIMITS: Final = ScopeLimits()


def raw_tools(seed: int, count: int) -> tuple[bytes, ...]:
    chance = random.Random(seed)

    def text(words: int) -> str:
        return " ".join(chance.choices(WORDS, k=words))

    def schema() -> dict[str, Any]:
        arguments = {f"{text(1)}_{n}": {"type": "string", "description": text(6)} for n in range(4)}
        return {"type": "object", "properties": arguments}

    return tuple(
        definition(f"{text(1)}_{n}", description=text(20), inputSchema=schema()) for n in range(count)
    )


def offers(servers: int, tools: int) -> dict[str, ServerTools]:
    found = {}
    for n in range(servers):
        server_id = f"s{n:04}"
        lists = check_lists(server_id, tools=raw_tools(n, tools), prompts=(), resources=(), templates=())
        found[server_id] = ServerTools(
            record=record(server_id, allowed_tools=("*",)), state="ready", **lists._asdict()
        )
    return found


def tasks(servers: int) -> dict[str, Task]:
    """Fifty tasks of five servers each."""
    chance = random.Random(0)
    found = {}
    for n in range(50):
        ids = [f"s{one:04}" for one in chance.sample(range(servers), min(5, servers))]
        config = {"mcp.enabled": "true", "mcp.default_server_ids": json.dumps(ids)}
        found[f"t{n}"] = Task(task_id=f"t{n}", config=config)
    return found


@asynccontextmanager
async def measuring(what: str) -> AsyncIterator[None]:
    longest_s, clock = 0.0, time.perf_counter

    async def look() -> None:
        nonlocal longest_s
        while True:
            before_s = clock()
            await asyncio.sleep(0.005)
            longest_s = max(longest_s, clock() - before_s - 0.005)

    looking, began_s, cpu_s = asyncio.create_task(look()), clock(), time.process_time()
    try:
        yield
    finally:
        looking.cancel()
        took_s, used_s = clock() - began_s, time.process_time() - cpu_s
        rss_mib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        print(
            f"{what}: {took_s * 1e3:.0f} ms, {used_s * 1e3:.0f} ms of a processor, "
            f"longest lag {longest_s * 1e3:.0f} ms, peak {rss_mib:.0f} MiB",
            flush=True,
        )


async def measure_plan(snapshot: Snapshot) -> None:
    """One server's record changes what it lets through."""
    for turn, server_id in enumerate(("s0000", "s0001", "s0002")):
        offer = snapshot.servers[server_id]
        narrowed = replace(offer, record=replace(offer.record, allowed_tools=("read_*",)))
        after = replace(snapshot, servers=MappingProxyType({**snapshot.servers, server_id: narrowed}))
        async with measuring(f"plan of one server, turn {turn + 1}"):
            found = await asyncio.to_thread(Planner().plan, snapshot, after, limits=LIMITS)
        assert found[0].reach_removed
        async with measuring("warnings of that change"):
            await asyncio.to_thread(lambda after=after: (list(find_weakened_guards(snapshot, after)), lint_edits(after, [])))


async def measure_find(gateway: Gateway) -> None:
    caller = Caller(Principal(id="a", role="agent"), mode="find")
    async with measuring("view of everything"):
        view = gateway.view(caller)
    async with measuring("first search"):
        await gateway.tool_search.search(view, gateway.snapshot, SearchArguments(query="send an invoice to a customer"))
    async with measuring("the rest of the index"):
        await gateway.tool_search.settled()
    async with measuring("second search"):
        await gateway.tool_search.search(view, gateway.snapshot, SearchArguments(query="send an invoice to a customer"))


async def measure_reports(snapshot: Snapshot) -> None:
    """A node sends what it has in reports of 8 MiB; how long until all is shown."""
    wall_ms = lambda: int(time.time() * 1e3)  # noqa: E731
    with tempfile.TemporaryDirectory() as root:
        async with open_sqlite_store(Path(root) / "registry.db", wall_ms) as store:
            reported = ReportedServers(store.reports, {}, on_change=lambda _: None, clock_ms=wall_ms)
            reported.apply({one: offer.record for one, offer in snapshot.servers.items()})
            async with reported, measuring("tools of a node are shown"):
                await _report(store.reports, snapshot)
                began_s = time.perf_counter()
                while missing := sum(not offer.tools for offer in reported.tools().values()):
                    if time.perf_counter() - began_s > 300:
                        print(f"gave up: {missing} servers are empty")
                        break
                    await asyncio.sleep(0.1)


async def _report(reports: Any, snapshot: Snapshot) -> None:
    now_ms = int(time.time() * 1e3)
    found = []
    for count, (server_id, offer) in enumerate(snapshot.servers.items(), start=1):
        lists = check_lists(server_id, tools=[t.raw for t in offer.tools.values()], prompts=(), resources=(), templates=())
        digest = digest_lists(lists)
        definitions = Definitions(
            server_id=server_id, digest=digest, tools=tuple(tool.raw for tool in offer.tools.values()), at_ms=now_ms
        )
        await reports.save_definitions(definitions)
        found.append(ServerReport(server_id=server_id, state="connected", list_state="ready", definitions=digest))
        if count % 60 == 0 or count == len(snapshot.servers):
            await reports.save_report(
                NodeReport(node_id="n", at_ms=int(time.time() * 1e3), servers=tuple(found))
            )


async def main(servers: int, tools: int, only: str) -> None:
    async with measuring(f"{servers * tools} definitions are read"):
        found = offers(servers, tools)
    snapshot = Snapshot(servers=MappingProxyType(found), tasks=MappingProxyType(tasks(servers)))
    chosen = only.split(",")
    if "plan" in chosen:
        await measure_plan(snapshot)
    if "find" in chosen:
        nodes = ReportedServers(MemoryStore(lambda: 0).reports, {}, on_change=lambda _: None, clock_ms=lambda: 0)
        await measure_find(Gateway(nodes, AuditLog(MemorySink()), metrics=Metrics(), limits=LIMITS, snapshot=snapshot))
    if "reports" in chosen:
        await measure_reports(snapshot)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--servers", type=int, default=1_000)
    parser.add_argument("--tools", type=int, default=100)
    parser.add_argument("--only", default="plan,find,reports")
    asked = parser.parse_args()
    asyncio.run(main(asked.servers, asked.tools, asked.only))
