"""Hundreds of MCP servers in one process: each path is one, stateless, with tools of its own.

`fleet_server.py TOOLS` serves any `/mcp/<name>`, prints its port, and ends when its standard input does. Runs
on the standard library alone.
"""

import asyncio
import json
import sys
from functools import cache
from typing import Any

VERBS = ["list", "read", "create", "update", "delete", "search", "export", "archive", "approve", "compare"]
NOUNS = ["invoice", "ticket", "branch", "report", "customer", "device", "alert", "release", "page", "order"]


def tool(server: str, number: int) -> dict[str, Any]:
    """A definition of the usual size, as hand-written servers have them."""
    verb, noun = VERBS[number % len(VERBS)], NOUNS[number // len(VERBS) % len(NOUNS)]
    return {
        "name": f"{verb}_{noun}_{number}",
        "title": f"{verb.title()} {noun}",
        "description": (
            f"{verb.title()} one {noun} of {server}. Takes the id of the {noun}, and says what came of it."
        ),
        "inputSchema": {
            "type": "object",
            "properties": {
                f"{noun}_id": {"type": "string", "description": f"Which {noun} it is."},
                "limit": {"type": "integer", "minimum": 1, "description": "How many at most."},
                "dry_run": {"type": "boolean", "description": "Change nothing, only say what would."},
            },
            "required": [f"{noun}_id"],
        },
        "annotations": {"readOnlyHint": verb in {"list", "read", "search", "compare"}},
    }


@cache
def listed(server: str) -> dict[str, Any]:
    return {"tools": [tool(server, number) for number in range(int(sys.argv[1]))], **CACHED}


CACHED = {"resultType": "complete", "ttlMs": 600_000, "cacheScope": "public"}
DISCOVERED = {"supportedVersions": ["2026-07-28"], "capabilities": {"tools": {}}, **CACHED}


def respond(server: str, message: dict[str, Any]) -> dict[str, Any]:
    match message["method"]:
        case "server/discover":
            return {"result": DISCOVERED}
        case "tools/list":
            return {"result": listed(server)}
        case "tools/call":
            reply = json.dumps(message["params"].get("arguments", {}))
            return {"result": {"resultType": "complete", "content": [{"type": "text", "text": reply}]}}
    return {"error": {"code": -32601, "message": "method not found"}}


async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """All requests of one connection."""
    try:
        while head := (await reader.readuntil(b"\r\n\r\n")).decode("latin-1"):
            lines = dict(line.lower().split(": ", 1) for line in head.split("\r\n")[1:] if line)
            message = json.loads(await reader.readexactly(int(lines.get("content-length", 0))) or b"{}")
            server = head.split(" ", 2)[1].removeprefix("/mcp/")
            body = json.dumps({"jsonrpc": "2.0", "id": message["id"], **respond(server, message)}).encode()
            head = f"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n"
            writer.write(head.encode() + body)
    except (asyncio.IncompleteReadError, ConnectionError):
        writer.close()


async def main() -> None:
    server = await asyncio.start_server(serve, "127.0.0.1", 0, backlog=1_024)
    sys.stdout.write(f"{server.sockets[0].getsockname()[1]}\n")
    sys.stdout.flush()
    await asyncio.to_thread(sys.stdin.read)


if __name__ == "__main__":
    asyncio.run(main())
