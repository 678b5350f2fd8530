"""The tools that a request declares: functions, the new way and the old, and others."""

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from toolgate.chat.parsing import given, missing, parse_array, parse_members, quoted, require_text
from toolgate.errors import InvalidChat
from toolgate.model.chat import OtherTools
from toolgate.model.raw import Members, object_of, text_of

MAX_FUNCTION_NAME: Final = 128
_FUNCTION_NAME: Final = re.compile(r"[A-Za-z0-9_.:-]+")
"""What any model's server takes; most take less, and say so themselves."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Declared:
    """The tools of a request. Calls of those that have a name here are its caller's to make."""

    functions: frozenset[str] = frozenset()
    customs: frozenset[str] = frozenset()
    other_kinds: tuple[str, ...] = ()
    """The types of all tools that are no functions."""

    @property
    def own(self) -> frozenset[str]:
        """All names that are the caller's: no tool of ours goes by one of them."""
        return self.functions | self.customs


def parse_tools(members: Members) -> Declared:
    """What a request declares, or InvalidChat. Of tools that are no functions, all but their type passes."""
    functions: list[str] = []
    customs: set[str] = set()
    other_kinds: list[str] = []
    for where, tool in _objects(members, "tools"):
        kind = require_text(tool, "type", where)
        if kind == "function":
            functions.append(_function_name(_held(tool, where), f"{where}.function"))
        else:
            other_kinds.append(kind)
            customs |= _custom_names(tool)
    functions += [_function_name(function, where) for where, function in _objects(members, "functions")]
    [(name, uses)] = Counter(functions).most_common(1) or [("", 1)]
    if uses > 1:
        raise InvalidChat(f"Tool names must be unique: '{name}' is declared twice.", param="tools")
    return Declared(
        functions=frozenset(functions), customs=frozenset(customs), other_kinds=tuple(other_kinds)
    )


def check_other_tools(other_kinds: Sequence[str], policy: OtherTools) -> None:
    """InvalidChat for tools that are no functions, where the model is not to have such."""
    if policy == "refuse" and other_kinds:
        raise InvalidChat(
            f"Invalid value: '{quoted(other_kinds[0])}'. Tools of this type are not passed to this model.",
            param="tools",
            hint="declare functions, or ask an operator for `other_tools: pass` on the chat upstream",
        )


def _custom_names(tool: Members) -> set[str]:
    """The name of a custom tool; none for any other, nor for one that the model's server will refuse."""
    held = object_of(tool.get("custom")) if text_of(tool["type"]) == "custom" else None
    name = None if held is None else text_of(held.get("name"))
    return set() if name is None else {name}


def _held(tool: Members, where: str) -> Members:
    if "function" not in tool:
        raise missing(f"{where}.function")
    return parse_members(tool["function"], f"{where}.function")


def _objects(members: Members, name: str) -> Iterator[tuple[str, Members]]:
    raw = given(members, name)
    if raw is None:
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
