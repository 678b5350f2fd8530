"""An MCP server behind a URL, in a thread of the test: of the handshake era, with one tool that echoes."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

TOOLS = [{"name": "echo", "description": "Say the same.", "inputSchema": {"type": "object"}}]


def respond(method: str, params: dict[str, Any]) -> dict[str, Any]:
    match method:
        case "initialize":
            info = {"name": "stage-http", "version": "1"}
            return {
                "result": {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}, "serverInfo": info}
            }
        case "tools/list":
            return {"result": {"tools": TOOLS}}
        case "tools/call":
            return {"result": {"content": [{"type": "text", "text": params["arguments"]["text"]}]}}
    return {"error": {"code": -32601, "message": "method not found"}}


class Handler(BaseHTTPRequestHandler):
    """One message a request."""

    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        message = json.loads(self.rfile.read(int(self.headers["content-length"])))
        if "id" not in message:
            return self._send(202, b"")
        body = {
            "jsonrpc": "2.0",
            "id": message["id"],
            **respond(message["method"], message.get("params", {})),
        }
        return self._send(200, json.dumps(body).encode())

    def do_GET(self) -> None:
        self._send(405, b"")

    def _send(self, status: int, body: bytes) -> None:
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """A test has no one to read it."""


@contextmanager
def open_http_stage() -> Iterator[str]:
    """Its URL."""
    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.daemon_threads = True
        serving = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
        serving.start()
        yield f"http://127.0.0.1:{server.server_port}/mcp"
        server.shutdown()
        serving.join(60)
