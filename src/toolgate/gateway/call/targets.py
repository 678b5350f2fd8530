"""What requests ask for: tools, prompts, resources, and completions for the last two.

Each is found by the caller's name for it and goes on under its server's own.
"""

from typing import Final, NamedTuple

import msgspec

from toolgate.catalog.search.find_tools import CALL_TOOL, parse_meant
from toolgate.errors import (
    InvalidArguments,
    InvalidParams,
    MethodNotFound,
    ToolgateError,
    UnknownPrompt,
    UnknownResource,
    UnknownTool,
)
from toolgate.gateway.arguments import fill_empty_arguments
from toolgate.gateway.scope.routes import FIND_ROUTES, Route
from toolgate.gateway.scope.view import View
from toolgate.model.json_text import ambiguous, find_clash
from toolgate.model.names import PROMPT, RESOURCE
from toolgate.model.raw import UNREADABLE, decode_members
from toolgate.model.tools import ToolDefinition
from toolgate.upstream.connection.contract import Params

NO_ARGUMENTS: Final = "`arguments` must be an object"

_decode_text = msgspec.json.Decoder(str).decode


class _Schema(msgspec.Struct):
    properties: dict[str, msgspec.Raw] = {}


class _Declared(msgspec.Struct, rename="camel"):
    input_schema: _Schema = msgspec.field(default_factory=_Schema)


_decode_declared = msgspec.json.Decoder(_Declared).decode


class Wanted(NamedTuple):
    """What one request asks for."""

    name: str
    """For the audit, as the caller wrote it."""
    route: Route | None
    unknown: ToolgateError
    """What the caller is told where there is no such thing for it."""


def find_wanted(view: View, method: str, params: Params) -> Wanted:
    """What the request is for; `params` then say it in the server's words. Raises InvalidParams."""
    if method == "tools/call":
        return _find_tool(view, params)
    if method == "prompts/get":
        return _find_prompt(view, params)
    if method == "resources/read":
        return _find_resource(view, params)
    if method != "completion/complete":
        raise MethodNotFound(f"no method `{method}`")
    try:
        ref = decode_members(params.get("ref", b""))
    except msgspec.DecodeError as exc:
        raise InvalidParams("`ref` must be an object") from exc
    kind = _text(ref, "type")
    if kind not in {"ref/prompt", "ref/resource"}:
        raise InvalidParams("`ref.type` must be `ref/prompt` or `ref/resource`")
    wanted = _find_prompt(view, ref) if kind == "ref/prompt" else _find_resource(view, ref)
    ref.pop("uri" if kind == "ref/prompt" else "name", None)  # only one of them was decided on
    params["ref"] = msgspec.Raw(msgspec.json.encode(ref))
    if not are_members(params.get("argument")):
        raise InvalidParams("`argument` must be an object")
    return wanted


def find_argument_fault(params: Params, route: Route | None) -> str:
    """What is wrong with `arguments`: not an object, or one can be read as another. Empty: nothing.

    An empty text or `null` becomes `{}` where `route` leads to what requires nothing.
    """
    raw = params.get("arguments")
    if not are_members(raw):
        return "" if fill_empty_arguments(params, route) else NO_ARGUMENTS
    tool = None if route is None else route.tool
    names = () if raw is None else decode_members(raw).keys()
    clash = find_clash(names)
    if clash is None or (tool is not None and find_clash(names, declared=_declared(tool)) is None):
        return ""
    return ambiguous(clash, "`arguments`")


def check_arguments(params: Params, route: Route | None) -> None:
    """Raises InvalidArguments for what `find_argument_fault` finds."""
    if fault := find_argument_fault(params, route):
        raise InvalidArguments(fault)


def _declared(tool: ToolDefinition) -> frozenset[str]:
    """The parameters of a tool, as its schema names them."""
    try:
        return frozenset(_decode_declared(tool.raw).input_schema.properties)
    except UNREADABLE:
        return frozenset()


def are_members(raw: msgspec.Raw | None) -> bool:
    """Whether it is an object, or there is none."""
    return raw is None or memoryview(raw)[0] == ord("{")


def _find_tool(view: View, members: Params) -> Wanted:
    name = _text(members, "name")
    if view.found is not None and name in FIND_ROUTES:
        return _find_through(view, name, members)
    route = view.routes.get(name)
    if route is not None:
        members["name"] = route.upstream_name
    return Wanted(name, route, UnknownTool(f"Unknown tool: {name}"))


def _find_through(view: View, tool: str, members: Params) -> Wanted:
    """Only a call leads to a server; what the other find tools say, the gateway says itself."""
    if tool != CALL_TOOL:
        return Wanted(tool, FIND_ROUTES[tool], UnknownTool(f"Unknown tool: {tool}"))
    name, _ = parse_meant(tool, members)
    return Wanted(name, view.tools.get(name), UnknownTool(f"Unknown tool: {name}"))


def _find_prompt(view: View, members: Params) -> Wanted:
    name = _text(members, "name")
    route = view.prompts.get(name)
    if route is not None:
        members["name"] = route.upstream_name
    return Wanted(PROMPT + name, route, UnknownPrompt(f"Unknown prompt: {name}"))


def _find_resource(view: View, members: Params) -> Wanted:
    uri = _text(members, "uri")
    route = view.find_resource(uri)
    if route is not None:
        members["uri"] = route.upstream_name
    return Wanted(RESOURCE + uri, route, UnknownResource("Resource not found", data={"uri": uri}))


def _text(members: Params, key: str) -> str:
    try:
        text = _decode_text(members.get(key, b""))
    except msgspec.DecodeError as exc:
        raise InvalidParams(f"`{key}` must be text") from exc
    if not text:
        raise InvalidParams(f"`{key}` is empty")
    return text
