"""A collector of OpenTelemetry in a thread of the test: what it was sent is all there is to see."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple

from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue
from opentelemetry.proto.logs.v1.logs_pb2 import LogRecord
from opentelemetry.proto.trace.v1.trace_pb2 import Span as WireSpan


class Span(NamedTuple):
    """One span, as it came."""

    name: str
    kind: str
    trace_id: str
    span_id: str
    parent_id: str
    is_failed: bool
    notes: dict[str, Any]


@dataclass
class Collector:
    """What has come, and what it answers."""

    url: str = ""
    status: int = 200
    spans: list[Span] = field(default_factory=list)
    logs: list[LogRecord] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)
    resources: list[dict[str, Any]] = field(default_factory=list)
    refused: int = 0
    raw: list[bytes] = field(default_factory=list)

    def of(self, trace_id: str) -> list[Span]:
        """The spans of one trace, parents before their children where they began in order."""
        return [span for span in self.spans if span.trace_id == trace_id]

    def take(self, path: str, body: bytes, headers: dict[str, str]) -> int:
        if self.status != 200:
            self.refused += 1
            return self.status
        self.raw.append(body)
        self.headers.append(headers)
        if path == "/v1/traces":
            for resource in ExportTraceServiceRequest.FromString(body).resource_spans:
                self.resources.append(_notes(resource.resource.attributes))
                self.spans.extend(_span(span) for scope in resource.scope_spans for span in scope.spans)
        elif path == "/v1/logs":
            for logs in ExportLogsServiceRequest.FromString(body).resource_logs:
                self.resources.append(_notes(logs.resource.attributes))
                self.logs.extend(record for scope in logs.scope_logs for record in scope.log_records)
        else:
            return 404
        return 200


@contextmanager
def open_collector() -> Iterator[Collector]:
    """One that listens."""
    collector = Collector()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            named = {name.lower(): value for name, value in self.headers.items()}
            self.send_response(collector.take(self.path, body, named))
            self.send_header("content-type", "application/x-protobuf")
            self.send_header("content-length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            """A test has no one to read it."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.daemon_threads = True
        serving = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
        serving.start()
        collector.url = f"http://127.0.0.1:{server.server_port}"
        yield collector
        server.shutdown()
        serving.join(60)


def _span(span: WireSpan) -> Span:
    return Span(
        name=span.name,
        kind=WireSpan.SpanKind.Name(span.kind).removeprefix("SPAN_KIND_"),
        trace_id=span.trace_id.hex(),
        span_id=span.span_id.hex(),
        parent_id=span.parent_span_id.hex(),
        is_failed=span.status.code == 2,
        notes=_notes(span.attributes),
    )


def _notes(attributes: Any) -> dict[str, Any]:
    return {one.key: _value(one.value) for one in attributes}


def _value(value: AnyValue) -> Any:
    return getattr(value, value.WhichOneof("value") or "string_value")
