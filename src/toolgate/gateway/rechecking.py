"""Deciding on a request again that was allowed, and then waited: for room at its server, or for a connection.

Policy, keys and definitions may change meanwhile. What would not be let through now must not be sent.
"""

from collections.abc import Mapping
from typing import Final

from toolgate.errors import (
    NotFound,
    PolicyDenied,
    ServerUnavailable,
    ToolgateError,
    TooManyTools,
    UnknownPrompt,
    UnknownResource,
    UnknownTool,
)
from toolgate.gateway.auth.identity import has_lapsed, principal_of
from toolgate.gateway.scope.resources import alias_of
from toolgate.gateway.scope.routes import Route, name_on_door
from toolgate.gateway.scope.view import View
from toolgate.model.names import PROMPT, RESOURCE, ToolRef, kind_of
from toolgate.model.principals import Key, Principal
from toolgate.policy.scope import Refusal

_REFUSALS: Final = {"mcp_policy_denied": PolicyDenied, "too_many_tools": TooManyTools, "not_found": NotFound}


def check_key(keys: Mapping[str, Key], principal: Principal) -> None:
    """Raises what the principal of a key is refused with that is gone or changed."""
    key = keys.get(principal.id.removeprefix("key:"))
    if principal.id.startswith("key:") and (key is None or principal_of(key) != principal):
        raise has_lapsed()


def check_again(view: View, route: Route) -> None:
    """Raises what a request on `route` is refused with by `view`, the newest of its caller."""
    current = find_again(view, route)
    must_be_approved = current.approval is not None and route.approval is None
    if must_be_approved or current.digest != route.digest:
        message = "the tool or its policy changed while the call waited; nothing was sent"
        raise ServerUnavailable(message, hint="call it again")


def find_again(view: View, route: Route) -> Route:
    """The same way as `view` has it. Raises what the request is refused with where it has none."""
    current = _current(view, route)
    if current is None:
        raise _unknown(view, route)
    return current


def _current(view: View, route: Route) -> Route | None:
    kind = kind_of(route.name)
    if kind == RESOURCE:
        return view.find_resource(alias_of(route.server_id, route.upstream_uri))
    if kind == PROMPT:
        same = (one for one in view.prompts.values() if one.name == route.name)
        return next((one for one in same if one.server_id == route.server_id), None)
    return view.tools.get(name_on_door(view.caller, ToolRef(route.server_id, route.name)))


def _unknown(view: View, route: Route) -> ToolgateError:
    kind = kind_of(route.name)
    if kind == RESOURCE:
        return UnknownResource("resource not found")
    if kind == PROMPT:
        return UnknownPrompt(f"Unknown prompt: {route.name[len(kind) :]}")
    return UnknownTool(f"Unknown tool: {name_on_door(view.caller, ToolRef(route.server_id, route.name))}")


def refusal_error(refusal: Refusal) -> ToolgateError:
    """What a scope that is refused as a whole is refused with."""
    exc = _REFUSALS[refusal.code](refusal.message, hint=refusal.hint)
    if isinstance(exc, PolicyDenied):
        exc.servers = refusal.servers
    return exc
