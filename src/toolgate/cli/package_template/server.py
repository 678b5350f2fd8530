"""An MCP server on standard input and output that needs nothing but Python.

Each function with `@tool` is a tool: its name, its docstring and its parameters become the definition.
Write what you want to see yourself to standard error; standard output belongs to the protocol.
"""

import inspect
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, get_args, get_origin

VERSIONS = ("2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05")
TYPES = {str: "string", int: "integer", float: "number", bool: "boolean", list: "array", dict: "object"}
TOOLS: dict[str, Callable[..., Any]] = {}


def tool(function: Callable[..., Any]) -> Callable[..., Any]:
    """Offer a function as a tool."""
    TOOLS[function.__name__] = function
    return function


# Your tools


@tool
def greet(name: Annotated[str, "Whom to greet."], *, loudly: Annotated[bool, "In capitals."] = False) -> str:
    """Greet a person by name."""
    text = f"Hello, {name}!"
    return text.upper() if loudly else text


# The protocol


def define(name: str, function: Callable[..., Any]) -> dict[str, Any]:
    """A function as MCP defines a tool."""
    parameters = inspect.signature(function).parameters.values()
    return {
        "name": name,
        "description": inspect.getdoc(function) or "",
        "inputSchema": {
            "type": "object",
            "properties": {one.name: describe(one.annotation) for one in parameters},
            "required": [one.name for one in parameters if one.default is one.empty],
            "additionalProperties": False,
        },
    }


def describe(annotation: Any) -> dict[str, str]:
    """The JSON Schema of one parameter: `str`, or `Annotated[str, "What it is for."]`."""
    described = get_origin(annotation) is Annotated
    kind, *words = get_args(annotation) if described else (annotation,)
    schema = {"type": TYPES[get_origin(kind) or kind]}
    return {**schema, "description": words[0]} if words else schema


def call(function: Callable[..., Any], arguments: dict[str, Any]) -> dict[str, Any]:
    """The result of a tool. One that fails says so in its result, for the model to read."""
    try:
        inspect.signature(function).bind(**arguments)
        response = function(**arguments)
    except Exception as exc:
        return {"content": [{"type": "text", "text": f"{type(exc).__name__}: {exc}"}], "isError": True}
    text = response if isinstance(response, str) else json.dumps(response, ensure_ascii=False)
    return {"content": [{"type": "text", "text": text}]}


def handle(method: str, params: dict[str, Any]) -> dict[str, Any]:
    """The result of a request, or an error of JSON-RPC."""
    if method == "initialize":
        asked = params.get("protocolVersion")
        manifest = json.loads(Path(__file__).with_name("manifest.json").read_text("utf-8"))
        result: dict[str, Any] = {
            "protocolVersion": asked if asked in VERSIONS else VERSIONS[0],
            "capabilities": {"tools": {}},
            "serverInfo": {"name": manifest["id"], "version": manifest["version"]},
        }
        return {"result": result}
    if method == "ping":
        return {"result": {}}
    if method == "tools/list":
        return {"result": {"tools": [define(name, function) for name, function in TOOLS.items()]}}
    if method != "tools/call":
        return {"error": {"code": -32601, "message": f"Method not found: {method}"}}
    name = str(params.get("name"))
    if name not in TOOLS:
        return {"error": {"code": -32602, "message": f"Unknown tool: {name}"}}
    return {"result": call(TOOLS[name], params.get("arguments") or {})}


def serve() -> None:
    """Answer until the input ends. What has no id is a notification and gets no answer."""
    for line in sys.stdin:
        message = json.loads(line)
        if "id" not in message or "method" not in message:
            continue
        outcome = handle(message["method"], message.get("params") or {})
        response = {"jsonrpc": "2.0", "id": message["id"], **outcome}
        sys.stdout.write(json.dumps(response, ensure_ascii=False) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    sys.stdin.reconfigure(encoding="utf-8")  # type: ignore[union-attr]
    sys.stdout.reconfigure(encoding="utf-8")  # type: ignore[union-attr]
    serve()
