"""What clients and servers declare, where the gateway carries it: capabilities and log levels.

Each side relies on what it is told, so nothing is passed on that would get lost on the way.
"""

from collections.abc import Mapping
from typing import Final

import msgspec

from toolgate.errors import InvalidParams
from toolgate.gateway.scope.view import View
from toolgate.model.json_text import Members, decode_members
from toolgate.model.protocol import LOG_LEVELS
from toolgate.model.tools import FEATURES

MAX_BYTES: Final = 1_024
"""Of what is carried. Of a client that sends more, only the names of its capabilities are."""
_CARRIED: Final = ("elicitation", "roots", "sampling")
_NOT_CARRIED_EXTENSIONS: Final = frozenset({"io.modelcontextprotocol/tasks"})
"""A task continues at its server, and the gateway has no way back to it: no server learns that a client
supports them."""

_ANNOUNCED: Final[Mapping[str, dict[str, bool]]] = {
    "tools": {"listChanged": True},
    "prompts": {"listChanged": True},
    "resources": {"listChanged": True, "subscribe": True},
    "completions": {},
    "logging": {},
}

_encode = msgspec.json.Encoder(order="deterministic").encode
_EMPTY: Final = msgspec.Raw(b"{}")


def filter_client_capabilities(sent: bytes | msgspec.Raw | None) -> bytes:
    """The capabilities in `sent` that are carried, as a JSON object. An invalid one is left out."""
    members = _members(sent)
    carried = {name: members[name] for name in _CARRIED if _is_object(members.get(name))}
    extensions = {
        name: settings
        for name, settings in _members(members.get("extensions")).items()
        if name not in _NOT_CARRIED_EXTENSIONS and _is_object(settings)
    }
    if extensions:
        carried["extensions"] = msgspec.Raw(_encode(extensions))
    encoded = _encode(carried)
    if len(encoded) <= MAX_BYTES:
        return encoded
    return _encode({name: _EMPTY for name in carried if name != "extensions"})


def build_server_capabilities(view: View) -> dict[str, dict[str, bool]]:
    """What the servers of a view support, including what is not known yet."""
    can = FEATURES if view.is_partial else view.features
    announced = {name: settings for name, settings in _ANNOUNCED.items() if name == "tools" or name in can}
    # In find mode the list is fixed. Others get the find tools when their scope grows too large.
    return announced | {"tools": {"listChanged": False}} if view.caller.mode == "find" else announced


def _members(raw: bytes | msgspec.Raw | None) -> Members:
    try:
        return decode_members(raw) if raw else {}
    except msgspec.DecodeError:
        return {}


def _is_object(raw: msgspec.Raw | None) -> bool:
    return raw is not None and bytes(raw)[:1] == b"{"


_SEVERITY: Final[Mapping[str, int]] = {level: rank for rank, level in enumerate(LOG_LEVELS)}


class _LogMessage(msgspec.Struct):
    level: str = ""


_decode_message = msgspec.json.Decoder(_LogMessage).decode


def parse_log_level(level: str | None) -> str:
    """A log level that a client requests. Raises InvalidParams."""
    if level is None or level not in _SEVERITY:
        raise InvalidParams("`level` is not a log level", hint=f"use one of {', '.join(LOG_LEVELS)}")
    return level


def is_severe_enough(params: bytes, least: str) -> bool:
    """Whether a log message is at least as severe as `least`; empty: any.

    A message without a level of the specification is dropped: clients reject it.
    """
    try:
        level = _decode_message(params).level
    except msgspec.DecodeError:
        return False
    return level in _SEVERITY and (not least or _SEVERITY[level] >= _SEVERITY[least])
