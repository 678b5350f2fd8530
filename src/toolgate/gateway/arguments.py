"""The arguments of a call or a prompt: one JSON object, however a client writes that there are none."""

from typing import Any, Final

import msgspec

from toolgate.gateway.scope.routes import Route
from toolgate.upstream.connection.contract import Params

_EMPTY: Final = frozenset({b'""', b"null"})
"""What some clients and models send for a tool without arguments."""
_NOTHING: Final = msgspec.Raw(b"{}")


class _Schema(msgspec.Struct):
    required: list[Any] | msgspec.UnsetType = msgspec.UNSET


class _Tool(msgspec.Struct, rename="camel"):
    input_schema: _Schema


class _Argument(msgspec.Struct):
    required: bool = False


class _Prompt(msgspec.Struct):
    arguments: list[_Argument] = []


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
            return bool(msgspec.json.decode(route.tool.raw, type=_Tool).input_schema.required or ())
        if route.listing is not None:
            prompt = msgspec.json.decode(route.listing.raw, type=_Prompt)
            return any(one.required for one in prompt.arguments)
    except msgspec.DecodeError:
        pass
    return True
