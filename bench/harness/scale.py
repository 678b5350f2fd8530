"""How the gateway's own cost grows with the registry: 10 to 10,000 servers of ten tools each, in one process.

Runs on the project's own environment, not on the harness's. Door, gateway, policy and catalog are the real ones; the
servers are values in memory that answer at once. Prints a Markdown table: what a change of the registry costs, what it
costs to compile a scope of five servers (by URL, by task, by tag, by key) and to answer its first list, and what a
list and a call cost from then on.

    ../.venv/bin/python harness/scale.py [--sizes 10,100,1000,10000]
"""
from __future__ import annotations

import argparse
import json
import time
from types import MappingProxyType

import msgspec
import uvloop

from toolgate.audit.log.files import EncodedLines
from toolgate.audit.log.writer import AuditLog
from toolgate.catalog.definitions import check_definition
from toolgate.gateway.auth.identity import Identities
from toolgate.gateway.gateway import Gateway
from toolgate.model.servers import HttpEndpoint, ServerRecord
from toolgate.model.tasks import Task
from toolgate.model.tools import ServerTools, Snapshot
from toolgate.policy.scope import ScopeLimits
from toolgate.registry.replication.state import RegistryState
from toolgate.surfaces.http.messages import HttpRequest
from toolgate.surfaces.mcp.endpoint import McpEndpoint
from toolgate.surfaces.mcp.session import ClientSessions
from toolgate.telemetry import Metrics
from toolgate.upstream.connection.contract import RpcResponse
from toolgate.upstream.pool.pool import ServerResponse

TOOLS = 10
SEEN = 5
META = {"io.modelcontextprotocol/protocolVersion": "2026-07-28", "io.modelcontextprotocol/clientCapabilities": {}}
RESULT = msgspec.json.decode(b'{"content":[{"type":"text","text":"hello"}]}', type=dict[str, msgspec.Raw])
SCHEMA = {"type": "object", "properties": {"path": {"type": "string"}, "limit": {"type": "integer"}}}


class MemorySink:
    """Takes audit events, and keeps none."""

    def write(self, lines: EncodedLines) -> None:
        """They are gone."""

    def close(self) -> None:
        """Nothing to release."""


def offer(number: int) -> ServerTools:
    """A server that has been listed."""
    server_id = f"s{number}"
    tags = ("five",) if number < SEEN else ("other",)
    record = ServerRecord(server_id=server_id, transport="streamable_http", allowed_tools=("*",), tags=tags,
                          http=HttpEndpoint(url=f"http://127.0.0.1:9/{number}"))
    tools = {}
    for name in (f"tool_{one}" for one in range(TOOLS)):
        raw = {"name": name, "description": f"{name} of {server_id}: looks something up.", "inputSchema": SCHEMA}
        tools[name] = check_definition(server_id, json.dumps(raw).encode())
    return ServerTools(record=record, state="ready", tools=MappingProxyType(tools), era="modern")


def task(task_id: str, **config) -> Task:
    values = {"mcp.enabled": True, **config}
    return Task(task_id=task_id, config={key: json.dumps(value) for key, value in values.items()})


class Servers:
    """All of them, in memory; each answers at once."""

    def __init__(self, offers):
        self._offers = {one.record.server_id: one for one in offers}

    def apply(self, records):
        pass

    def tools(self):
        return self._offers

    def watch(self, *_):
        return None

    def end_principal(self, *_):
        pass

    def end_session(self, *_):
        pass

    async def call(self, *_, **__):
        return ServerResponse(RpcResponse(members=RESULT), "modern")


class Taken:
    """Takes the answer to one request."""

    task = None

    def send(self, status, body, headers=()):
        self.status, self.body = status, body


def request(method: str, url: str, **params) -> HttpRequest:
    path, _, query = url.partition("?")
    name = {b"mcp-name": params["name"].encode()} if "name" in params else {}
    message = {"jsonrpc": "2.0", "id": 1, "method": method, "params": {**params, "_meta": META}}
    headers = {b"host": b"x", b"content-type": b"application/json", b"accept": b"application/json",
               b"mcp-protocol-version": b"2026-07-28", b"mcp-method": method.encode(), **name}
    return HttpRequest("POST", path, query.encode(), headers, json.dumps(message).encode())


def in_ms(seconds: float) -> str:
    return f"{seconds * 1e3:.1f}"


async def timed(door, asked: HttpRequest, times: int = 1) -> float:
    """Seconds for one, the best of five rounds of `times`."""
    best = float("inf")
    for _ in range(5 if times > 1 else 1):
        begun = time.perf_counter()
        for _ in range(times):
            taken = Taken()
            await door(asked, taken)
        best = min(best, (time.perf_counter() - begun) / times)
    assert taken.status == 200 and b'"error"' not in taken.body, taken.body[:300]
    return best


async def row(count: int) -> str:
    offers = [offer(number) for number in range(count)]
    five = tuple(f"s{number * (count // SEEN)}" for number in range(SEEN))
    gateway = Gateway(Servers(offers), AuditLog(MemorySink()), metrics=Metrics(), limits=ScopeLimits(max_tools=100_000),
                      snapshot=Snapshot())
    identities = Identities(admin_key=None, trusts_local=True, clock_s=time.time)
    sessions = ClientSessions(b"k" * 32, clock_s=time.monotonic, wall_s=time.time)
    door = McpEndpoint(gateway, identities, sessions=sessions)
    tasks = {
        "named": task("named", **{"mcp.default_server_ids": list(five)}),
        "tagged": task("tagged", **{"mcp.tags": ["five"]}),
    }
    state = RegistryState(revision=1, epoch="e", servers={one.record.server_id: one.record for one in offers},
                          tasks=tasks)
    gateway.apply(state)
    begun = time.perf_counter()
    gateway.apply(state)
    cells = [in_ms(time.perf_counter() - begun)]
    urls = [f"/api/mcp?servers={','.join(five)}", "/api/mcp/t/named", "/api/mcp/t/tagged",
            f"/api/mcp?tools={','.join(f'{one}.tool_1' for one in five)}"]
    for url in urls:
        cells.append(in_ms(await timed(door, request("tools/list", url))))
    cells.append(f"{await timed(door, request('tools/list', urls[0]), 2_000) * 1e6:.1f}")
    called = request("tools/call", urls[0], name=f"{five[1]}.tool_3", arguments={"path": "x"})
    cells.append(f"{await timed(door, called, 2_000) * 1e6:.1f}")
    return f"| {count:,} | {count * TOOLS:,} | " + " | ".join(cells) + " |"


async def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sizes", default="10,100,1000,10000")
    print("| servers | tools | change, ms | first list by `?servers=`, ms | by task, ms | by task with tags, ms "
          "| by `?tools=`, ms | list, µs | call, µs |")
    print("|---|---|---|---|---|---|---|---|---|")
    for size in map(int, parser.parse_args().sizes.split(",")):
        print(await row(size), flush=True)


if __name__ == "__main__":
    uvloop.run(main())
