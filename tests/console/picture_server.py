"""An MCP server of tools whose results have every kind of content, and of one that takes its time."""

import json
import sys
import threading
from typing import Any

PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
ROWS = [{"id": 1, "name": "Green tea", "tags": ["hot"]}, {"id": 2, "name": "Black tea", "price": 5.5}]
CONTENT: list[dict[str, Any]] = [
    {"type": "text", "text": "Two products."},
    {"type": "text", "text": json.dumps({"total": 2})},
    {"type": "image", "mimeType": "image/png", "data": PIXEL},
    {"type": "image", "mimeType": "image/svg+xml", "data": PIXEL},
    {"type": "resource_link", "uri": "https://example.org/tea", "name": "Tea"},
    {"type": "resource", "resource": {"uri": "file:///tea.txt", "text": "Boil water."}},
]
LOOK_UP = {
    "type": "object",
    "required": ["words"],
    "properties": {
        "words": {"type": "string", "examples": ["tea", "cup"], "description": "Of the `name`."},
        "limit": {"type": "integer", "default": 5},
        "cheap": {"type": "boolean"},
    },
}
TOOLS: list[dict[str, Any]] = [
    {"name": "look_up", "inputSchema": LOOK_UP, "annotations": {"readOnlyHint": True}},
    {"name": "wait", "inputSchema": {"type": "object"}},
    {"name": "fail", "inputSchema": {"type": "object"}},
]
INFO = {"capabilities": {"tools": {}}, "serverInfo": {"name": "pictures", "version": "1"}}


def call(params: dict[str, Any]) -> dict[str, Any]:
    if params["name"] == "fail":
        return {"content": [{"type": "text", "text": "out of tea"}], "isError": True}
    if params["name"] == "wait":
        threading.Event().wait()  # until the process ends
    return {"content": CONTENT, "structuredContent": {"result": ROWS}}


def respond(method: str, params: dict[str, Any]) -> dict[str, Any] | None:
    if method == "initialize":
        return {"protocolVersion": params["protocolVersion"], **INFO}
    if method == "tools/list":
        return {"tools": TOOLS}
    return call(params) if method == "tools/call" else None


def serve(request: dict[str, Any]) -> None:
    result = respond(request["method"], request.get("params", {}))
    reply = {"error": {"code": -32601, "message": "no such method"}} if result is None else {"result": result}
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", "id": request["id"], **reply}) + "\n")
    sys.stdout.flush()


def main() -> None:
    for line in sys.stdin:
        request = json.loads(line)
        if "id" in request:
            threading.Thread(target=serve, args=[request], daemon=True).start()


if __name__ == "__main__":
    main()
