"""An MCP server of one tool whose schema has every kind of field, and which answers with its arguments."""

import json
import sys
from typing import Any

NODE = {
    "type": "object",
    "required": ["value"],
    "properties": {
        "value": {"type": "string"},
        "children": {"type": "array", "items": {"$ref": "#/$defs/node"}},
    },
}
POINT = {
    "title": "Point",
    "type": "object",
    "required": ["lat"],
    "properties": {"lat": {"type": "number", "minimum": -90, "maximum": 90}},
}
SCHEMA = {
    "type": "object",
    "required": ["where", "mode"],
    "properties": {
        "where": {"oneOf": [{"title": "Name", "type": "string"}, POINT]},
        "mode": {"enum": ["fast", "slow"]},
        "day": {"type": ["string", "null"], "format": "date"},
        "force": {"type": "boolean", "default": False},
        "tree": {"$ref": "#/$defs/node"},
        "extra": {"type": "object"},
    },
    "$defs": {"node": NODE},
}
INFO = {"capabilities": {"tools": {}}, "serverInfo": {"name": "form", "version": "1"}}


def respond(method: str, params: dict[str, Any]) -> dict[str, Any] | None:
    if method == "initialize":
        return {"protocolVersion": params["protocolVersion"], **INFO}
    if method == "tools/list":
        return {"tools": [{"name": "fill", "inputSchema": SCHEMA}]}
    if method == "tools/call":
        return {"content": [{"type": "text", "text": json.dumps(params["arguments"])}]}
    return None


def main() -> None:
    for line in sys.stdin:
        request = json.loads(line)
        if "id" not in request:
            continue
        result = respond(request["method"], request.get("params", {}))
        reply = (
            {"error": {"code": -32601, "message": "no such method"}} if result is None else {"result": result}
        )
        sys.stdout.write(json.dumps({"jsonrpc": "2.0", "id": request["id"], **reply}) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
