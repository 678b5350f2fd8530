"""How severe a log message is, and who wants to hear it."""

from collections.abc import Mapping
from typing import Final

import msgspec

from toolgate.errors import InvalidParams
from toolgate.model.protocol import LOG_LEVELS

_SEVERITY: Final[Mapping[str, int]] = {level: rank for rank, level in enumerate(LOG_LEVELS)}


class _LogMessage(msgspec.Struct):
    level: str = ""


_decode_message = msgspec.json.Decoder(_LogMessage).decode


def parse_level(level: str | None) -> str:
    """A level that a client asks for. Raises InvalidParams."""
    if level is None or level not in _SEVERITY:
        raise InvalidParams("`level` is not a log level", hint=f"use one of {', '.join(LOG_LEVELS)}")
    return level


def is_heard(params: bytes, least: str) -> bool:
    """Whether a log message is at least as severe as `least`; any is where that is empty.

    What has no level of the specification is not heard: clients refuse it.
    """
    try:
        level = _decode_message(params).level
    except msgspec.DecodeError:
        return False
    return level in _SEVERITY and (not least or _SEVERITY[level] >= _SEVERITY[least])
