"""A server of the handshake era with one tool, `go`, after which it behaves badly. Standard library only.

The first word says how: it `hangs`, `floods` (messages without end), `drones` (one line without end) or
`crashes`.
With `http` as the second it serves streamable HTTP, on a port that it says first; on stdio otherwise.
"""

import itertools
import json
import os
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Message = dict[str, Any]
MANNER, *WORDS = sys.argv[1:]
INFO = {"name": "rude", "version": "1"}
START = '{"jsonrpc"'
NOISE = {"jsonrpc": "2.0", "method": "notifications/message", "params": {"level": "info", "data": "x" * 50}}


def respond(message: Message) -> Message:
    """The answer to anything but a call."""
    match message["method"]:
        case "initialize":
            members: Message = {
                "protocolVersion": "2025-11-25",
                "capabilities": {"tools": {}},
                "serverInfo": INFO,
            }
        case "tools/list":
            members = {"tools": [{"name": "go", "inputSchema": {"type": "object"}}]}
        case _:
            error = {"code": -32601, "message": "method not found"}
            return {"jsonrpc": "2.0", "id": message["id"], "error": error}
    return {"jsonrpc": "2.0", "id": message["id"], "result": members}


def misbehave() -> Iterator[str]:
    """What comes instead of the answer."""
    if MANNER == "crashes":
        os._exit(1)
    if MANNER == "floods":
        yield from itertools.repeat((json.dumps(NOISE) + "\n") * 100)
    if MANNER == "drones":
        yield from itertools.repeat("x" * 65536)
    threading.Event().wait()


def serve_pipe() -> None:
    for line in sys.stdin:
        message = json.loads(line)
        if message["method"] == "tools/call":
            for noise in misbehave():
                os.write(1, noise.encode())
        elif "id" in message:
            os.write(1, json.dumps(respond(message)).encode() + b"\n")


class Handler(BaseHTTPRequestHandler):
    """One message a request."""

    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        message = json.loads(self.rfile.read(int(self.headers["content-length"])))
        if "id" not in message:
            self._send(202, b"")
        elif message["method"] == "tools/call":
            self._go()
        else:
            self._send(200, json.dumps(respond(message)).encode())

    def do_GET(self) -> None:
        self._send(405, b"")

    def _go(self) -> None:
        if MANNER == "crashes":
            self.close_connection = True
            return
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("connection", "close")
        self.end_headers()
        if MANNER == "drones":
            self.wfile.write(b"data: ")
        for noise in misbehave():
            self.wfile.write(noise.replace(START, f"data: {START}").replace("\n", "\n\n").encode())

    def _send(self, status: int, body: bytes) -> None:
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """No one reads it."""


class Server(ThreadingHTTPServer):
    """Callers that go away do not concern it."""

    daemon_threads = True

    def handle_error(self, *_: object) -> None:
        """Says nothing."""


def serve_http() -> None:
    with Server(("127.0.0.1", 0), Handler) as server:
        sys.stdout.write(f"{server.server_port}\n")
        sys.stdout.flush()
        server.serve_forever()


if __name__ == "__main__":
    serve_http() if "http" in WORDS else serve_pipe()
