"""An indiscreet program behind URLs: it repeats the credentials it was given wherever it can.

`/mcp` is an MCP server whose tool `echo` works, while `fail` and `refuse` tell what they were called with;
`/v1` has models that call a tool, or refuse; all else refuses, be it a collector, a webhook or a server.
"""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Json = dict[str, Any]

TOOLS = [
    {"name": name, "description": "Talks.", "inputSchema": {"type": "object"}}
    for name in ("echo", "fail", "refuse")
]


@dataclass
class Gossip:
    """What it heard."""

    url: str
    received: list[str] = field(default_factory=list)
    """Of each request, its path and its headers."""
    arguments: Json = field(default_factory=dict)
    """With which its models call a tool."""


class Handler(BaseHTTPRequestHandler):
    """Everything that it does."""

    protocol_version = "HTTP/1.1"
    gossip: Gossip

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("content-length", 0)))
        reply = self._output()
        if self.path.startswith("/mcp"):
            self._serve(json.loads(body), reply)
        elif self.path.startswith("/v1/chat/completions") and json.loads(body)["model"] == "scripted":
            self._send(200, self._chat(json.loads(body)))
        else:
            self._send(401, {"error": {"message": f"you are not welcome: {reply}"}})

    def do_GET(self) -> None:
        reply = self._output()
        self._send(405 if self.path.startswith("/mcp") else 401, {"error": {"message": reply}})

    def _output(self) -> str:
        reply = json.dumps([self.path, dict(self.headers)])
        self.gossip.received.append(reply)
        return reply

    def _serve(self, message: Json, reply: str) -> None:
        if "id" not in message:
            self._send(202, None)
            return
        match message["method"], message.get("params", {}).get("name"):
            case "initialize", _:
                info = {"protocolVersion": "2025-11-25", "serverInfo": {"name": "gossip", "version": "1"}}
                response: Json = {"result": {**info, "capabilities": {"tools": {}}}}
            case "tools/list", _:
                response = {"result": {"tools": TOOLS}}
            case "tools/call", "echo":
                response = {"result": {"content": [{"type": "text", "text": "hello"}]}}
            case "tools/call", "fail":
                response = {"result": {"content": [{"type": "text", "text": reply}], "isError": True}}
            case _:
                response = {"error": {"code": -32603, "message": reply, "data": {"of": reply}}}
        self._send(200, {"jsonrpc": "2.0", "id": message["id"], **response})

    def _chat(self, request: Json) -> Json:
        message: Json = {"role": "assistant", "content": "done"}
        if not any(one["role"] == "tool" for one in request["messages"]):
            names = [one["function"]["name"] for one in request["tools"]]
            message = {
                "role": "assistant",
                "content": None,
                "tool_calls": [self._call(name) for name in names],
            }
        reason = "tool_calls" if "tool_calls" in message else "stop"
        choice = {"index": 0, "message": message, "finish_reason": reason}
        usage = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}
        about = {"id": "c", "object": "chat.completion", "created": 1, "model": "scripted", "usage": usage}
        return {**about, "choices": [choice]}

    def _call(self, name: str) -> Json:
        arguments = json.dumps(self.gossip.arguments)
        return {"id": f"call-{name}", "type": "function", "function": {"name": name, "arguments": arguments}}

    def _send(self, status: int, response: Json | None) -> None:
        body = b"" if response is None else json.dumps(response).encode()
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """A test has no one to read it."""


@contextmanager
def open_gossip() -> Iterator[Gossip]:
    """The program, in a thread of the test."""
    with ThreadingHTTPServer(("127.0.0.1", 0), type("Handler", (Handler,), {})) as server:
        gossip = Gossip(f"http://127.0.0.1:{server.server_port}")
        server.RequestHandlerClass.gossip = gossip  # type: ignore[attr-defined]
        server.daemon_threads = True
        serving = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
        serving.start()
        yield gossip
        server.shutdown()
        serving.join(60)
