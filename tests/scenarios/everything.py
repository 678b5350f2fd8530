"""A fixed script of calls on every door of one gateway, and all that is known of them afterwards.

What callers do here is what `test_observability` counts; nothing else happens meanwhile.
"""

import json
import sys
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import anyio
import anyio.to_thread
from wasmtime import wat2wasm

from tests.eventually import eventually_equal
from tests.scenarios.chat import Chat, put_task, put_upstream
from tests.scenarios.gateway import Gateway, Json, Ran, Site, running
from tests.scenarios.test_invocations import add_task
from tests.scenarios.test_package_files import publish, record_of
from tests.scenarios.test_sse import connected
from tests.upstream.responses_model import ResponsesScript, say
from tests.upstream.responses_model import call as response_call
from tests.upstream.scripted_model import calls, scripted_model, text
from toolgate.telemetry.exposition import parse_samples

LISTED: Final = {"stage": 3, "guarded": 1, "rug": 2, "greeter": 1}
"""Servers, and how many tools each has."""
SETTLED: Final = {
    "toolgate_approvals_pending": 1.0,
    "toolgate_chat_total": 2.0,
    "toolgate_guests": 0.0,
    "toolgate_calls_in_flight": 0.0,
    "toolgate_streams": 0.0,
}
"""What the last metrics sum up to, a moment after the script."""
RUG_SERVER: Final = Path(__file__).with_name("rug_server.py")
GUEST: Final = b"""(module
  (import "spear" "mcp_open" (func $open (param i32 i32) (result i32)))
  (import "spear" "mcp_list_tools" (func $list (param i32 i32 i32) (result i32)))
  (import "spear" "mcp_call_tool" (func $call (param i32 i32 i32 i32 i32 i32 i32) (result i32)))
  (memory (export "memory") 1)
  (data (i32.const 8) "stageecho{\\22text\\22:\\22hi\\22}none[]")
  (func (export "_start") (local $fd i32)
    (local.set $fd (call $open (i32.const 8) (i32.const 5)))
    (i32.store (i32.const 48) (i32.const 9000))
    (drop (call $list (local.get $fd) (i32.const 64) (i32.const 48)))
    (i32.store (i32.const 48) (i32.const 9000))
    (drop (call $call (local.get $fd) (i32.const 13) (i32.const 4)
      (i32.const 17) (i32.const 13) (i32.const 64) (i32.const 48)))
    (drop (call $call (local.get $fd) (i32.const 30) (i32.const 4)
      (i32.const 17) (i32.const 13) (i32.const 64) (i32.const 48)))
    (drop (call $call (local.get $fd) (i32.const 13) (i32.const 4)
      (i32.const 34) (i32.const 2) (i32.const 64) (i32.const 48)))))"""
"""Lists the tools of `stage`, calls `echo`, then what is not there, then `echo` with what is no object."""


@dataclass
class Known:
    """What the gateway tells of the script."""

    metrics: dict[str, dict[frozenset[tuple[str, str]], float]] = field(default_factory=dict)
    """Every sample, by name and labels."""
    events: list[Json] = field(default_factory=list)
    """Every line of the audit log."""
    verified: Ran | None = None
    """What `toolgate audit verify` says of it."""

    def of(self, kind: str) -> list[Json]:
        return [event for event in self.events if event["type"] == kind]


def run_script(site: Site) -> Known:
    """Run it on a gateway of its own, from the start to the end of that."""
    known = Known()
    publish(str(site.data / "artifacts"), {}, site.root, version="1.0.0", greeting="hello ")
    site.place(*_records(site))
    otlp = json.dumps({"endpoint": "http://127.0.0.1:9"})
    with running(site, environ={"TOOLGATE_OTLP": otlp}) as gateway:
        _set_up(gateway)
        for play in (
            _approvals,
            _mcp,
            _legacy,
            _sse,
            _find,
            _rest,
            _budget,
            _shadow,
            _guest,
            _pin,
            _trial,
            _stranger,
        ):
            play(gateway)
        anyio.run(_chats, gateway)
        eventually_equal(lambda: _sums(gateway, SETTLED), SETTLED)
        with connected(gateway, "/api/mcp?servers=stage"):
            known.metrics = read_metrics(gateway)
    lines = (site.data / "audit.jsonl").read_bytes().splitlines()
    known.events = [json.loads(line) for line in lines]
    known.verified = gateway.cli("audit", "verify", "--data", str(site.data))
    return known


def _sums(gateway: Gateway, names: Iterable[str]) -> dict[str, float]:
    metrics = read_metrics(gateway)
    return {name: sum(metrics.get(name, {}).values()) for name in names}


def read_metrics(gateway: Gateway) -> dict[str, dict[frozenset[tuple[str, str]], float]]:
    """All samples as they are now."""
    found: dict[str, dict[frozenset[tuple[str, str]], float]] = {}
    for name, labels, value in parse_samples(gateway.http.get("/metrics").raise_for_status().text):
        found.setdefault(name, {})[frozenset(labels.items())] = value
    return found


def _records(site: Site) -> list[Json]:
    rug = ["-I", "-S", str(RUG_SERVER), f"log={site.root / 'calls'}", f"site={site.root}"]
    return [
        site.stage("stage", "tools=echo,fail,hang", budgets={"tool_timeout_ms": 4_000}),
        site.stage("guarded", "tools=echo", approval_policy={"default": "always"}),
        site.server("rug", stdio={"command": sys.executable, "args": rug}),
        site.stage("broken", stdio={"env": {"TOKEN": "${ENV:NOBODY_SET_THIS}"}}),
        record_of("1.0.0", "hello "),
    ]


def _set_up(gateway: Gateway) -> None:
    eventually_equal(lambda: {server_id: gateway.health(server_id)["tools"] for server_id in LISTED}, LISTED)
    eventually_equal(lambda: gateway.health("broken")["state"], "down")
    one = {"mcp.enabled": True, "mcp.default_server_ids": ["stage"]}
    put_task(gateway, "desk", one)
    put_task(gateway, "tight", {**one, "mcp.budgets": {"calls_per_day": 1}})
    put_task(gateway, "trial", {**one, "mcp.enforce": False, "mcp.tool_denylist": ["stage/echo"]})


def _mcp(gateway: Gateway) -> None:
    client = gateway.modern("/api/mcp?servers=stage,broken,missing")
    client.tools()
    client.call("stage.echo", text="one")
    client.call("stage.fail")
    client.call("stage.nope")
    client.request("tools/call", {"name": "stage.echo", "arguments": []})


def _legacy(gateway: Gateway) -> None:
    client = gateway.legacy("/api/mcp?tools=stage.echo")
    client.tools()
    client.call("stage.echo", text="two", api_key="s3cr3t")
    client.call("stage.fail")


def _sse(gateway: Gateway) -> None:
    with connected(gateway, "/api/mcp?servers=stage") as client:
        client.call(1, "stage.echo", text="three")
        client.respond()
        client.call(1, "stage.hang")
        client.respond()


def _find(gateway: Gateway) -> None:
    client = gateway.modern("/api/mcp?servers=stage&mode=find")
    client.tools()
    client.call("search_tools", query="say the same")
    meant = {"name": "stage.echo", "arguments": {"text": "four"}}
    client.request("tools/call", {"name": "call_tool", "arguments": meant})


def _rest_call(gateway: Gateway, name: str, query: str = "", **arguments: Any) -> Json:
    sent = {"name": name, "arguments": arguments}
    response: Json = gateway.http.post(f"/api/v1/mcp/call{query}", json=sent).json()
    return response


def _rest(gateway: Gateway) -> None:
    _rest_call(gateway, "stage.echo", text="five")
    _rest_call(gateway, "stage.echo", "?task=desk&servers=rug", text="refused")


def _approvals(gateway: Gateway) -> None:
    for decision, word in (("approve", "six"), ("deny", "seven")):
        asked = _rest_call(gateway, "guarded.echo", text=word)
        approval_id = asked["error"]["data"]["approval_id"]
        gateway.http.post(f"/admin/api/approvals/{approval_id}/{decision}", json={"reason": "so be it"})
        _rest_call(gateway, "guarded.echo", text=word)
    _rest_call(gateway, "guarded.echo", text="undecided")


def _budget(gateway: Gateway) -> None:
    for word in ("eight", "nine"):
        _rest_call(gateway, "stage.echo", "?task=tight", text=word)


def _shadow(gateway: Gateway) -> None:
    _rest_call(gateway, "stage.echo", "?task=trial", text="ten")


def _guest(gateway: Gateway) -> None:
    add_task(gateway.http, "guest", bytes(wat2wasm(GUEST)))
    task = gateway.get("/admin/api/tasks/guest")
    config = {"mcp.enabled": "true", "mcp.default_server_ids": '["stage"]'}
    gateway.put(
        "/admin/api/tasks/guest", {"task_id": "guest", "workload": task["workload"], "config": config}
    )
    ran = gateway.cli("run", "guest", "--json")
    assert ran.code == 0, ran


def _pin(gateway: Gateway) -> None:
    client = gateway.modern("/api/mcp?servers=rug")
    assert gateway.cli("pins", "approve", "rug").code == 0
    client.call("rug.turn")
    eventually_equal(lambda: list(gateway.get("/admin/api/pins/rug")["changed"]), ["read"])
    client.call("rug.read")


def _trial(gateway: Gateway) -> None:
    gateway.http.post("/admin/api/mcp/servers/stage/test", json={}).raise_for_status()


def _stranger(gateway: Gateway) -> None:
    gateway.http.get("/api/v1/me", headers={"authorization": "Bearer " + "x" * 40})


async def _chats(gateway: Gateway) -> None:
    reply = calls(("mcp__stage__echo", '{"text":"eleven"}'), ("mcp__stage__nope", "{}"))
    async with scripted_model(reply, text("done")) as model:
        put_upstream(gateway, model.url)
        chat = Chat(f"{gateway.url}/t/desk/v1")
        async with chat.client:
            await chat.request("Say.", stream=True)
    script = ResponsesScript([response_call("mcp__stage__echo", '{"text":"twelve"}')], [say("done")])
    async with scripted_model(script) as model:
        put_upstream(gateway, model.url)
        sent = {"model": "scripted", "input": "Say."}
        await anyio.to_thread.run_sync(lambda: gateway.http.post("/t/desk/v1/responses", json=sent))
