"""The arguments of a call or a prompt: one JSON object, however a client writes that there are none.

What requests ask for: tools, prompts, resources, and completions for the last two.

Each is found by the caller's name for it and goes on under its server's own.

Deciding on a request again that was allowed, and then waited: for room at its server, or for a connection.

Policy, keys and definitions may change meanwhile. What would not be let through now must not be sent.
"""

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

import msgspec

from toolgate.catalog.search.find_tools import CALL_TOOL, parse_target
from toolgate.errors import (
    InvalidArguments,
    InvalidParams,
    MethodNotFound,
    NotFound,
    PolicyDenied,
    ServerUnavailable,
    ToolgateError,
    TooManyTools,
    UnknownPrompt,
    UnknownResource,
    UnknownTool,
)
from toolgate.gateway.auth.identity import credential_lapsed, principal_of
from toolgate.gateway.scope.resources import alias_of
from toolgate.gateway.scope.routes import FIND_ROUTES, Route, caller_name
from toolgate.gateway.scope.view import View
from toolgate.model.json_text import UNREADABLE, decode_members, describe_ambiguity, find_clash
from toolgate.model.names import PROMPT, RESOURCE, ToolRef, kind_of
from toolgate.model.principals import Key, Principal
from toolgate.model.tools import ToolDefinition
from toolgate.policy.scope import Refusal
from toolgate.upstream.connection.contract import Params

_EMPTY: Final = frozenset({b'""', b"null"})
"""What some clients and models send for a tool without arguments."""
_NOTHING: Final = msgspec.Raw(b"{}")


class _RequiredSchema(msgspec.Struct):
    required: list[Any] | msgspec.UnsetType = msgspec.UNSET


class _ToolArguments(msgspec.Struct, rename="camel"):
    input_schema: _RequiredSchema


class _PromptArgument(msgspec.Struct):
    required: bool = False


class _PromptArguments(msgspec.Struct):
    arguments: list[_PromptArgument] = []


def fill_empty_arguments(params: Params, route: Route | None) -> bool:
    """Make an empty text or `null` an empty object, if what `route` leads to requires nothing."""
    if bytes(params["arguments"]) not in _EMPTY or route is None or _requires_any(route):
        return False
    params["arguments"] = _NOTHING
    return True


def _requires_any(route: Route) -> bool:
    """Read only for a call that is wrong otherwise, so that others pay nothing for it."""
    try:
        if route.tool is not None:
            return bool(msgspec.json.decode(route.tool.raw, type=_ToolArguments).input_schema.required or ())
        if route.listing is not None:
            prompt = msgspec.json.decode(route.listing.raw, type=_PromptArguments)
            return any(one.required for one in prompt.arguments)
    except msgspec.DecodeError:
        pass
    return True


NO_ARGUMENTS: Final = "`arguments` must be an object"

_decode_text = msgspec.json.Decoder(str).decode


class _Schema(msgspec.Struct):
    properties: dict[str, msgspec.Raw] = {}


class _DeclaredTool(msgspec.Struct, rename="camel"):
    input_schema: _Schema = msgspec.field(default_factory=_Schema)


_decode_declared = msgspec.json.Decoder(_DeclaredTool).decode


class RequestTarget(NamedTuple):
    """What one request asks for."""

    name: str
    """For the audit, as the caller wrote it."""
    route: Route | None
    unknown: ToolgateError
    """What the caller is told where there is no such thing for it."""


def find_target(view: View, method: str, params: Params) -> RequestTarget:
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
    kind = _required_text(ref, "type")
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
    if clash is None or (tool is not None and find_clash(names, declared=_declared_parameters(tool)) is None):
        return ""
    return describe_ambiguity(clash, "`arguments`")


def check_arguments(params: Params, route: Route | None) -> None:
    """Raises InvalidArguments for what `find_argument_fault` finds."""
    if fault := find_argument_fault(params, route):
        raise InvalidArguments(fault)


def _declared_parameters(tool: ToolDefinition) -> frozenset[str]:
    """The parameters of a tool, as its schema names them."""
    try:
        return frozenset(_decode_declared(tool.raw).input_schema.properties)
    except UNREADABLE:
        return frozenset()


def are_members(raw: msgspec.Raw | None) -> bool:
    """Whether it is an object, or there is none."""
    return raw is None or memoryview(raw)[0] == ord("{")


def _find_tool(view: View, members: Params) -> RequestTarget:
    name = _required_text(members, "name")
    if view.found is not None and name in FIND_ROUTES:
        return _find_via_find_tool(view, name, members)
    route = view.routes.get(name)
    if route is not None:
        members["name"] = route.upstream_name
    return RequestTarget(name, route, UnknownTool(f"Unknown tool: {name}"))


def _find_via_find_tool(view: View, tool: str, members: Params) -> RequestTarget:
    """Only a call leads to a server; what the other find tools say, the gateway says itself."""
    if tool != CALL_TOOL:
        return RequestTarget(tool, FIND_ROUTES[tool], UnknownTool(f"Unknown tool: {tool}"))
    name, _ = parse_target(tool, members)
    return RequestTarget(name, view.tools.get(name), UnknownTool(f"Unknown tool: {name}"))


def _find_prompt(view: View, members: Params) -> RequestTarget:
    name = _required_text(members, "name")
    route = view.prompts.get(name)
    if route is not None:
        members["name"] = route.upstream_name
    return RequestTarget(PROMPT + name, route, UnknownPrompt(f"Unknown prompt: {name}"))


def _find_resource(view: View, members: Params) -> RequestTarget:
    uri = _required_text(members, "uri")
    route = view.find_resource(uri)
    if route is not None:
        members["uri"] = route.upstream_name
    return RequestTarget(RESOURCE + uri, route, UnknownResource("Resource not found", data={"uri": uri}))


def _required_text(members: Params, key: str) -> str:
    try:
        text = _decode_text(members.get(key, b""))
    except msgspec.DecodeError as exc:
        raise InvalidParams(f"`{key}` must be text") from exc
    if not text:
        raise InvalidParams(f"`{key}` is empty")
    return text


_REFUSALS: Final = {"mcp_policy_denied": PolicyDenied, "too_many_tools": TooManyTools, "not_found": NotFound}


def check_key(keys: Mapping[str, Key], principal: Principal) -> None:
    """Raises what the principal of a key is refused with that is gone or changed."""
    key = keys.get(principal.id.removeprefix("key:"))
    if principal.id.startswith("key:") and (key is None or principal_of(key) != principal):
        raise credential_lapsed()


def recheck_route(view: View, route: Route) -> None:
    """Raises what a request on `route` is refused with by `view`, the newest of its caller."""
    current = find_current_route(view, route)
    must_be_approved = current.approval is not None and route.approval is None
    if must_be_approved or current.digest != route.digest:
        message = "the tool or its policy changed while the call waited; nothing was sent"
        raise ServerUnavailable(message, hint="call it again")


def find_current_route(view: View, route: Route) -> Route:
    """The same way as `view` has it. Raises what the request is refused with where it has none."""
    current = _find_current(view, route)
    if current is None:
        raise _unknown_error(view, route)
    return current


def _find_current(view: View, route: Route) -> Route | None:
    kind = kind_of(route.name)
    if kind == RESOURCE:
        return view.find_resource(alias_of(route.server_id, route.upstream_uri))
    if kind == PROMPT:
        same = (one for one in view.prompts.values() if one.name == route.name)
        return next((one for one in same if one.server_id == route.server_id), None)
    return view.tools.get(caller_name(view.caller, ToolRef(route.server_id, route.name)))


def _unknown_error(view: View, route: Route) -> ToolgateError:
    kind = kind_of(route.name)
    if kind == RESOURCE:
        return UnknownResource("resource not found")
    if kind == PROMPT:
        return UnknownPrompt(f"Unknown prompt: {route.name[len(kind) :]}")
    return UnknownTool(f"Unknown tool: {caller_name(view.caller, ToolRef(route.server_id, route.name))}")


def refusal_error(refusal: Refusal) -> ToolgateError:
    """What a scope that is refused as a whole is refused with."""
    exc = _REFUSALS[refusal.code](refusal.message, hint=refusal.hint)
    if isinstance(exc, PolicyDenied):
        exc.servers = refusal.servers
    return exc
