"""The functions that a request declares, the new way and the old."""

import re
from collections import Counter
from collections.abc import Iterator
from typing import Final

from toolgate.chat.faults import is_null, missing, parse_array, parse_members, require_text
from toolgate.errors import InvalidChat
from toolgate.model.raw import Members

MAX_FUNCTION_NAME: Final = 128
_FUNCTION_NAME: Final = re.compile(r"[A-Za-z0-9_.:-]+")
"""What any model's server takes; most take less, and say so themselves."""


def parse_tools(members: Members) -> tuple[tuple[str, ...], bool]:
    """The names of the functions that a request declares, and whether it declares other tools."""
    names: list[str] = []
    other_tools = False
    for where, tool in _objects(members, "tools"):
        if require_text(tool, "type", where) != "function":
            other_tools = True
            continue
        if "function" not in tool:
            raise missing(f"{where}.function")
        names.append(
            _function_name(parse_members(tool["function"], f"{where}.function"), f"{where}.function")
        )
    names += [_function_name(function, where) for where, function in _objects(members, "functions")]
    [(name, uses)] = Counter(names).most_common(1) or [("", 1)]
    if uses > 1:
        raise InvalidChat(f"Tool names must be unique: '{name}' is declared twice.", param="tools")
    return tuple(names), other_tools


def _objects(members: Members, name: str) -> Iterator[tuple[str, Members]]:
    raw = members.get(name)
    if raw is None or is_null(raw):
        return
    for at, one in enumerate(parse_array(raw, name)):
        yield f"{name}[{at}]", parse_members(one, f"{name}[{at}]")


def _function_name(function: Members, where: str) -> str:
    param = f"{where}.name"
    name = require_text(function, "name", where)
    if not _FUNCTION_NAME.fullmatch(name):
        raise InvalidChat(
            f"Invalid '{param}': string does not match pattern. Expected a string that matches the pattern "
            f"'^{_FUNCTION_NAME.pattern}$'.",
            param=param,
        )
    if len(name) > MAX_FUNCTION_NAME:
        raise InvalidChat(
            f"Invalid '{param}': string too long. Expected a string with maximum length {MAX_FUNCTION_NAME}, "
            f"but got a string with length {len(name)} instead.",
            param=param,
        )
    return name
