"""Traces of a real `toolgate up` at a collector: one from the one that asks to the server that answers."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from http.server import ThreadingHTTPServer
from itertools import count
from threading import Thread
from typing import Any, ClassVar

import anyio
import pytest
from mcp import Client
from opentelemetry.trace import NonRecordingSpan, SpanContext, TraceFlags, use_span
from wasmtime import wat2wasm

from tests.eventually import eventually, eventually_equal
from tests.scenarios.chat import Chat, put_task, put_upstream
from tests.scenarios.clients import ACCEPT, LEGACY, META, MODERN
from tests.scenarios.collector import Collector, Span, open_collector
from tests.scenarios.gateway import Gateway, Site, running
from tests.scenarios.stage_http import Handler
from tests.scenarios.test_invocations import Runs, add_task
from tests.scenarios.test_sse import connected
from tests.upstream.responses_model import ResponsesScript, say
from tests.upstream.responses_model import call as response_call
from tests.upstream.scripted_model import calls, scripted_model, text

pytestmark = pytest.mark.anyio

SECRET = "s3cr3t-argument-value"
CALL_META = b"""(module
  (import "spear" "mcp_open" (func $open (param i32 i32) (result i32)))
  (import "spear" "mcp_call_tool" (func $call (param i32 i32 i32 i32 i32 i32 i32) (result i32)))
  (memory (export "memory") 1)
  (data (i32.const 8) "stagemeta{}")
  (func (export "_start")
    (i32.store (i32.const 32) (i32.const 1000))
    (drop (call $call (call $open (i32.const 8) (i32.const 5)) (i32.const 13) (i32.const 4)
      (i32.const 17) (i32.const 2) (i32.const 64) (i32.const 32)))))"""

_numbers = count(1)


@dataclass(frozen=True)
class Caller:
    """Someone who traces what it asks for."""

    trace_id: str
    span_id: str

    @property
    def traceparent(self) -> str:
        return f"00-{self.trace_id}-{self.span_id}-01"

    @property
    def carried(self) -> dict[str, str]:
        return {"traceparent": self.traceparent, "tracestate": "vendor=7"}


@dataclass(frozen=True)
class Stage:
    """A gateway, and the collector it is set up for."""

    gateway: Gateway
    collector: Collector

    def trace(self, caller: Caller, size: int) -> list[Span]:
        """The spans of one trace, once there are that many: those nearest to the caller first."""
        eventually(lambda: len(self.collector.of(caller.trace_id)) >= size)
        found = {span.parent_id: span for span in self.collector.of(caller.trace_id)}
        assert len(found) == size, self.collector.of(caller.trace_id)
        chain, nearest = [], caller.span_id
        while nearest in found:
            chain.append(found[nearest])
            nearest = found[nearest].span_id
        return chain


@pytest.fixture
def caller() -> Caller:
    number = next(_numbers)
    return Caller(f"{number:032x}", f"{number:016x}")


class CarriedHandler(Handler):
    """A server behind a URL that says what it was handed on."""

    seen: ClassVar[list[dict[str, Any]]]

    def do_POST(self) -> None:
        traced = {name: self.headers[name] for name in ("traceparent", "tracestate") if name in self.headers}
        self.seen.append(traced)
        super().do_POST()


@pytest.fixture(scope="module")
def far() -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """The URL of a server, and the trace headers of what came there."""

    class OwnHandler(CarriedHandler):
        seen: ClassVar[list[dict[str, Any]]] = []

    with ThreadingHTTPServer(("127.0.0.1", 0), OwnHandler) as server:
        server.daemon_threads = True
        serving = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
        serving.start()
        yield f"http://127.0.0.1:{server.server_port}/mcp", OwnHandler.seen
        server.shutdown()
        serving.join(60)


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory, far: tuple[str, list[dict[str, Any]]]) -> Iterator[Stage]:
    site = Site(tmp_path_factory.mktemp("tracing"))
    site.place(
        site.stage("stage", "tools=meta,echo,fail"),
        site.stage("new", "modern", "tools=meta"),
        site.server("far", transport="streamable_http", http={"url": far[0]}),
    )
    with open_collector() as collector:
        otlp = {"endpoint": collector.url, "headers": "x-own=token%20of%20mine"}
        with running(
            site, environ={"TOOLGATE_OTLP": json.dumps(otlp), "OTEL_BSP_SCHEDULE_DELAY": "20"}
        ) as gateway:
            put_task(gateway, "desk", {"mcp.enabled": True, "mcp.default_server_ids": ["stage"]})
            eventually_equal(
                lambda: sorted(gateway.modern().tools()),
                ["far.echo", "new.meta", "stage.echo", "stage.fail", "stage.meta"],
            )
            yield Stage(gateway, collector)


def modern(stage: Stage, name: str, meta: dict[str, Any], **headers: str) -> Any:
    params = {"name": name, "arguments": {"text": SECRET}, "_meta": {**META, **meta}}
    body = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
    own = {"mcp-protocol-version": MODERN, "mcp-method": "tools/call", "mcp-name": name}
    return stage.gateway.http.post("/api/mcp", json=body, headers={**ACCEPT, **own, **headers}).json()


def reply(response: Any) -> Any:
    """What the tool `meta` says: the `_meta` that it got."""
    return json.loads(response["result"]["content"][0]["text"])


def parts(spans: list[Span]) -> list[tuple[str, str, bool]]:
    return [(span.name, span.kind, span.is_failed) for span in spans]


def test_a_call_is_one_trace_from_its_client_to_its_server(stage: Stage, caller: Caller) -> None:
    got = reply(modern(stage, "stage.meta", {**caller.carried, "mine": {"b": 1, "a": [1.50]}}))
    server, client = stage.trace(caller, 2)

    assert parts([server, client]) == [
        ("tools/call stage.meta", "SERVER", False),
        ("tools/call meta", "CLIENT", False),
    ]
    assert got == {
        "mine": {"b": 1, "a": [1.5]},
        "traceparent": f"00-{caller.trace_id}-{client.span_id}-01",
        "tracestate": "vendor=7",
    }
    assert server.notes == {
        "mcp.method.name": "tools/call",
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": "stage.meta",
        "jsonrpc.request.id": "1",
        "network.transport": "tcp",
        "network.protocol.name": "http",
        "toolgate.door": "mcp",
        "toolgate.principal": "local",
    }
    assert client.notes == {
        "mcp.method.name": "tools/call",
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": "meta",
        "mcp.protocol.version": LEGACY,
        "network.transport": "pipe",
        "toolgate.server_id": "stage",
    }


def test_a_modern_server_gets_the_trace_alongside_its_envelope(stage: Stage, caller: Caller) -> None:
    got = reply(modern(stage, "new.meta", caller.carried))
    _, client = stage.trace(caller, 2)

    assert got["traceparent"] == f"00-{caller.trace_id}-{client.span_id}-01"
    assert got["io.modelcontextprotocol/protocolVersion"] == MODERN


def test_the_meta_of_a_request_wins_over_the_headers_of_its_transport(stage: Stage, caller: Caller) -> None:
    other = Caller("f" * 32, "f" * 16)
    modern(stage, "stage.meta", caller.carried, traceparent=other.traceparent)
    server, _ = stage.trace(caller, 2)

    assert server.parent_id == caller.span_id
    assert stage.collector.of(other.trace_id) == []


@pytest.mark.parametrize(
    "carried",
    [
        {"traceparent": "nonsense"},
        {"traceparent": 7},
        {"traceparent": "0" * 5_000},
        {"traceparent": f"00-{'0' * 32}-{'0' * 16}-01", "tracestate": "x" * 5_000},
    ],
    ids=["no trace", "no text", "too long", "zeros"],
)
def test_what_names_no_trace_begins_one(stage: Stage, carried: dict[str, Any]) -> None:
    got = reply(modern(stage, "stage.meta", carried))
    version, trace_id, span_id, flags = got["traceparent"].split("-")
    spans = eventually(lambda: (found := stage.collector.of(trace_id))[1:] and found)

    assert (version, int(flags, 16) & 1, "tracestate" in got) == ("00", 1, False)
    assert {span.parent_id for span in spans} == {"", *(one.span_id for one in spans if one.kind == "SERVER")}
    assert span_id in {span.span_id for span in spans}


def test_a_legacy_client_hands_on_its_trace_by_header(stage: Stage, caller: Caller) -> None:
    client = stage.gateway.legacy()
    client.session |= caller.carried

    client.call("stage.meta")
    server, asked = stage.trace(caller, 2)

    assert parts([server, asked]) == [
        ("tools/call stage.meta", "SERVER", False),
        ("tools/call meta", "CLIENT", False),
    ]
    assert "mcp.session.id" in server.notes


def test_a_server_behind_a_url_gets_the_trace_in_its_headers_too(
    stage: Stage, caller: Caller, far: tuple[str, list[dict[str, Any]]]
) -> None:
    modern(stage, "far.echo", caller.carried)
    _, client = stage.trace(caller, 2)

    assert client.notes["network.transport"] == "tcp"
    assert {"traceparent": f"00-{caller.trace_id}-{client.span_id}-01", "tracestate": "vendor=7"} in far[1]


def test_a_call_on_the_stream_of_2024_ends_when_it_is_answered(stage: Stage, caller: Caller) -> None:
    with connected(stage.gateway, "/api/mcp") as client:
        params = {"name": "stage.meta", "arguments": {}}
        client.http.post(
            client.endpoint,
            json={"jsonrpc": "2.0", "id": 5, "method": "tools/call", "params": params},
            headers=caller.carried,
        )
        got = reply(client.respond())
    server, asked = stage.trace(caller, 2)

    assert got["traceparent"].split("-")[1:3] == [caller.trace_id, asked.span_id]
    assert parts([server]) == [("tools/call stage.meta", "SERVER", False)]


def test_a_call_over_rest_is_part_of_its_callers_trace(stage: Stage, caller: Caller) -> None:
    sent = {"name": "stage.meta", "arguments": {"text": SECRET}}
    response = stage.gateway.http.post("/api/v1/mcp/call", json=sent, headers=caller.carried).json()
    spans = stage.trace(caller, 2)

    assert reply(response)["traceparent"] == f"00-{caller.trace_id}-{spans[1].span_id}-01"
    assert parts(spans) == [("POST /api/v1/mcp/call", "SERVER", False), ("tools/call meta", "CLIENT", False)]


async def test_a_chat_is_one_trace_with_its_model_and_its_tools(stage: Stage, caller: Caller) -> None:
    async with scripted_model(calls(("mcp__stage__meta", "{}")), text("done")) as model:
        put_upstream(stage.gateway, model.url)
        chat = Chat(f"{stage.gateway.url}/t/desk/v1")
        async with chat.client:
            await chat.request("Say.", stream=True, extra_headers=caller.carried)
    eventually(lambda: len(stage.collector.of(caller.trace_id)) == 4)
    door, *others = sorted(stage.collector.of(caller.trace_id), key=lambda span: span.kind, reverse=True)

    assert door.parent_id == caller.span_id
    assert {span.parent_id for span in others} == {door.span_id}
    assert (door.name, door.notes["toolgate.outcome"]) == (
        "POST /t/{task_id}/v1/chat/completions",
        "answered",
    )
    assert sorted(span.name for span in others) == ["chat scripted", "chat scripted", "tools/call meta"]
    assert "traceparent" not in model.requests[0].headers


async def test_a_response_is_one_trace_too(stage: Stage, caller: Caller) -> None:
    script = ResponsesScript([response_call("mcp__stage__meta")], [say("done")])
    async with scripted_model(script) as model:
        put_upstream(stage.gateway, model.url)
        sent = {"model": "scripted", "input": "Say."}
        url, http = "/t/desk/v1/responses", stage.gateway.http
        response = await anyio.to_thread.run_sync(lambda: http.post(url, json=sent, headers=caller.carried))
    eventually(lambda: len(stage.collector.of(caller.trace_id)) == 4)
    spans = stage.collector.of(caller.trace_id)

    assert response.status_code == 200
    assert sorted(span.name for span in spans) == [
        "POST /t/{task_id}/v1/responses",
        "chat scripted",
        "chat scripted",
        "tools/call meta",
    ]


def test_a_run_of_a_guest_is_a_trace_with_what_it_calls(stage: Stage) -> None:
    add_task(
        stage.gateway.http,
        "guest",
        bytes(wat2wasm(CALL_META)),
    )
    put = stage.gateway.get("/admin/api/tasks/guest")
    config = {"mcp.enabled": "true", "mcp.default_server_ids": '["stage"]'}
    stage.gateway.put(
        "/admin/api/tasks/guest", {"task_id": "guest", "workload": put["workload"], "config": config}
    )
    runs = Runs(stage.gateway.http)
    run = runs.begin("guest")
    eventually_equal(lambda: runs.state(run), "succeeded")
    root = eventually(lambda: next((one for one in stage.collector.spans if one.name == "run guest"), None))
    asked = eventually(
        lambda: next((one for one in stage.collector.spans if one.parent_id == root.span_id), None)
    )

    assert parts([root, asked]) == [("run guest", "SERVER", False), ("tools/call meta", "CLIENT", False)]
    assert (root.trace_id, root.notes["toolgate.task_id"]) == (asked.trace_id, "guest")


def test_what_fails_says_by_which_code_and_nothing_more(stage: Stage, caller: Caller) -> None:
    modern(stage, "stage.fail", caller.carried)
    failed = stage.trace(caller, 2)
    other = Caller("e" * 32, "e" * 16)
    modern(stage, "stage.none", other.carried)
    (unknown,) = stage.trace(other, 1)

    assert [(span.is_failed, span.notes["error.type"]) for span in failed] == [(True, "tool_error")] * 2
    assert (unknown.is_failed, unknown.notes["error.type"]) == (True, "unknown_tool")


def test_a_client_of_the_python_sdk_is_the_parent_of_its_calls(stage: Stage, caller: Caller) -> None:
    context = SpanContext(
        int(caller.trace_id, 16), int(caller.span_id, 16), is_remote=False, trace_flags=TraceFlags(1)
    )

    async def request() -> None:
        async with Client(f"{stage.gateway.url}/api/mcp") as client:
            with use_span(NonRecordingSpan(context)):
                await client.call_tool("stage.meta", {})

    def of_the_call() -> list[Span]:
        """Not of the lists that the client asks for next to it."""
        found = [one for one in stage.collector.of(caller.trace_id) if one.name.startswith("tools/call")]
        return sorted(found, key=lambda span: span.kind, reverse=True)

    anyio.run(request)
    server, asked = eventually(lambda: (found := of_the_call())[1:] and found)

    assert (server.parent_id, asked.parent_id) == (caller.span_id, server.span_id)


def test_sec_what_is_called_with_is_in_no_span_and_the_audit_has_the_trace(
    stage: Stage, caller: Caller
) -> None:
    """SEC-1"""
    modern(stage, "stage.meta", caller.carried)
    stage.trace(caller, 2)
    eventually_equal(lambda: stage.gateway.audit.count(f'"trace_id":"{caller.trace_id}"') >= 2, True)

    assert not [body for body in stage.collector.raw if SECRET.encode() in body]
    assert {one["x-own"] for one in stage.collector.headers} == {"token of mine"}
    assert {one["service.name"] for one in stage.collector.resources} == {"toolgate"}
