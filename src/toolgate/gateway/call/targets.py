"""Finds the route of a request, and checks after a wait whether it still applies.

A request has the caller's name of a tool, prompt or resource; the server gets its own name of it. While the
request waits for a slot or a connection, policy, keys and definitions may change: a request that would be
denied now must not be sent.
"""

from collections.abc import Collection
from typing import Any, Final, NamedTuple

import msgspec

from toolgate import errors
from toolgate.catalog.find_tools import CALL_TOOL, parse_target
from toolgate.gateway.scope.routes import FIND_ROUTES, Route, alias_of, caller_name
from toolgate.gateway.scope.view import View
from toolgate.model.json_text import decode_members, describe_ambiguity, encode_raw, find_clash
from toolgate.model.names import PROMPT, RESOURCE, ToolRef, kind_of
from toolgate.upstream.connection.contract import Params

_EMPTY: Final = frozenset({b'""', b"null"})
"""Values that some clients and models send as `arguments` of a tool without any."""

_decode_text = msgspec.json.Decoder(str).decode


class RequestTarget(NamedTuple):
    """The tool, prompt or resource that a request names."""

    name: str
    """The name for the audit log, as the caller wrote it."""
    route: Route | None
    unknown: errors.ToolgateError
    """The error for the caller if `route` is None."""


def find_target(view: View, method: str, params: Params) -> RequestTarget:
    """Find the target of a request, and put the server's name of it into `params`. Raises InvalidParams."""
    if method == "tools/call":
        return _find_tool(view, params)
    if method == "prompts/get":
        return _find_prompt(view, params)
    if method == "resources/read":
        return _find_resource(view, params)
    if method != "completion/complete":
        raise errors.MethodNotFound(f"no method `{method}`")
    try:
        ref = decode_members(params.get("ref", b""))
    except msgspec.DecodeError as exc:
        raise errors.InvalidParams("`ref` must be an object") from exc
    kind = _required_text(ref, "type")
    if kind not in {"ref/prompt", "ref/resource"}:
        raise errors.InvalidParams("`ref.type` must be `ref/prompt` or `ref/resource`")
    target = _find_prompt(view, ref) if kind == "ref/prompt" else _find_resource(view, ref)
    ref.pop("uri" if kind == "ref/prompt" else "name", None)  # policy decided on the other one
    params["ref"] = encode_raw(ref)
    if not _is_object(params.get("argument")):
        raise errors.InvalidParams("`argument` must be an object")
    return target


def _find_tool(view: View, members: Params) -> RequestTarget:
    name = _required_text(members, "name")
    if view.found is None or name not in FIND_ROUTES:
        route = view.routes.get(name)
        if route is not None:
            members["name"] = route.upstream_name
    elif name == CALL_TOOL:
        name, _ = parse_target(CALL_TOOL, members)
        route = view.tools.get(name)
    else:  # the gateway runs these itself
        route = FIND_ROUTES[name]
    return RequestTarget(name, route, errors.UnknownTool(f"Unknown tool: {name}"))


def _find_prompt(view: View, members: Params) -> RequestTarget:
    name = _required_text(members, "name")
    route = view.prompts.get(name)
    if route is not None:
        members["name"] = route.upstream_name
    return RequestTarget(PROMPT + name, route, errors.UnknownPrompt(f"Unknown prompt: {name}"))


def _find_resource(view: View, members: Params) -> RequestTarget:
    uri = _required_text(members, "uri")
    route = view.find_resource(uri)
    if route is not None:
        members["uri"] = route.upstream_name
    return RequestTarget(
        RESOURCE + uri, route, errors.UnknownResource("Resource not found", data={"uri": uri})
    )


def _required_text(members: Params, key: str) -> str:
    try:
        text = _decode_text(members.get(key, b""))
    except msgspec.DecodeError as exc:
        raise errors.InvalidParams(f"`{key}` must be a string") from exc
    if not text:
        raise errors.InvalidParams(f"`{key}` is empty")
    return text


def find_argument_fault(params: Params, route: Route | None) -> str:
    """Why `arguments` is invalid; empty if it is valid. Empty text becomes `{}` if nothing is required."""
    raw = params.get("arguments")
    if raw is None:
        return ""
    if not _is_object(raw):
        if bytes(raw) not in _EMPTY or route is None or _requires_arguments(route):
            return "`arguments` must be an object"
        params["arguments"] = msgspec.Raw(b"{}")
        return ""
    names = decode_members(raw).keys()
    clash = find_clash(names)
    if clash is None or find_clash(names, declared=_declared_parameters(route)) is None:
        return ""
    return describe_ambiguity(clash, "`arguments`")


def _is_object(raw: msgspec.Raw | None) -> bool:
    return raw is None or memoryview(raw)[0] == ord("{")


# Both parse a definition, which the catalog has checked, only for arguments that look invalid. So other calls
# do not pay for it.


def _declared_parameters(route: Route | None) -> Collection[str]:
    if route is None or route.tool is None:
        return ()
    properties: dict[str, Any] = msgspec.json.decode(route.tool.raw)["inputSchema"].get("properties", {})
    return properties


def _requires_arguments(route: Route) -> bool:
    if route.tool is not None:
        return bool(msgspec.json.decode(route.tool.raw)["inputSchema"].get("required"))
    if route.listing is None:
        return True
    arguments = msgspec.json.decode(route.listing.raw).get("arguments", ())
    return any(one.get("required") for one in arguments)


def find_current_route(view: View, route: Route) -> Route:
    """The same route in `view`. Raises the error of an unknown name if it is gone."""
    kind = kind_of(route.name)
    unknown: errors.ToolgateError
    if kind == RESOURCE:
        current = view.find_resource(alias_of(route.server_id, route.upstream_uri))
        unknown = errors.UnknownResource("resource not found")
    elif kind == PROMPT:
        same = (one for one in view.prompts.values() if one.name == route.name)
        current = next((one for one in same if one.server_id == route.server_id), None)
        unknown = errors.UnknownPrompt(f"Unknown prompt: {route.name[len(kind) :]}")
    else:
        name = caller_name(view.caller, ToolRef(route.server_id, route.name))
        current = view.tools.get(name)
        unknown = errors.UnknownTool(f"Unknown tool: {name}")
    if current is None:
        raise unknown
    return current
