"""Parses and checks parts of a chat request. Errors have the wording of the OpenAI API: clients look for it.

The structure of a conversation is checked strictly: some models respond to a faulty one with nonsense, others
with a 500. Unknown members and kinds of content parts pass, for the model's server to judge.
"""

from collections import Counter
from collections.abc import Sequence
from typing import Final, TypeVar

import msgspec

from toolgate.errors import InvalidChat
from toolgate.model.json_text import NULL, UNREADABLE, Members

MAX_QUOTED: Final = 80  # characters of a client's value that an error quotes
_KINDS: Final = {
    '"': "a string",
    "{": "an object",
    "[": "an array",
    "t": "a boolean",
    "f": "a boolean",
    "n": "null",
}

_Part = TypeVar("_Part")


def missing_param(param: str) -> InvalidChat:
    return InvalidChat(f"Missing required parameter: '{param}'.", param=param)


def wrong_type(param: str, expected: str, raw: msgspec.Raw) -> InvalidChat:
    found = _KINDS.get(chr(bytes(raw)[0]), "a number")
    message = f"Invalid type for '{param}': expected {expected}, but got {found} instead."
    return InvalidChat(message, param=param)


def unsupported_value(param: str, value: str, supported: Sequence[str]) -> InvalidChat:
    *most, last = (f"'{one}'" for one in supported)
    values = f"{', '.join(most)}{',' if len(most) > 1 else ''} and {last}" if most else last
    return InvalidChat(f"Invalid value: '{quote(value)}'. Supported values are: {values}.", param=param)


def quote(text: str) -> str:
    return ascii(text[:MAX_QUOTED])[1:-1]


def get_member(members: Members, name: str) -> msgspec.Raw | None:
    """Get a member; None if it is absent or null, which mean the same to the OpenAI API."""
    raw = members.get(name, NULL)
    return None if raw == NULL else raw


def parse_members(raw: msgspec.Raw, param: str) -> Members:
    return _parse(raw, param, expected="an object", kind=Members)


def parse_array(raw: msgspec.Raw, param: str) -> list[msgspec.Raw]:
    return _parse(raw, param, expected="an array of objects", kind=list[msgspec.Raw])


def parse_text(raw: msgspec.Raw, param: str) -> str:
    return _parse(raw, param, expected="a string", kind=str)


def parse_optional_flag(members: Members, name: str, *, param: str = "") -> bool:
    raw = get_member(members, name)
    return raw is not None and _parse(raw, param or name, expected="a boolean", kind=bool)


def require_text(members: Members, name: str, within: str) -> str:
    param = f"{within}.{name}"
    if name not in members:
        raise missing_param(param)
    return parse_text(members[name], param)


def require_members(members: Members, name: str, within: str) -> Members:
    param = f"{within}.{name}"
    if name not in members:
        raise missing_param(param)
    return parse_members(members[name], param)


def _parse(raw: msgspec.Raw, param: str, *, expected: str, kind: type[_Part]) -> _Part:
    try:
        return msgspec.json.decode(raw, type=kind)
    except UNREADABLE as exc:
        raise wrong_type(param, expected, raw) from exc


MAX_MESSAGES: Final = 10_000  # far more than any model's context holds; each costs the checks here
_MAX_NAMED: Final = 20  # as many as `MAX_NAMES_LISTED` of the tool loop: enough to read
_ROLES: Final = ("system", "assistant", "user", "function", "tool", "developer")
_OTHER_CONTENT: Final = ("tool_calls", "function_call", "refusal", "audio")
"""Members that replace the content of an assistant's message."""


def parse_messages(raw: msgspec.Raw | None) -> tuple[msgspec.Raw, ...]:
    """Parse the messages of a request into one value each, as it came. Raises InvalidChat."""
    if raw is None or raw == NULL:
        raise missing_param("messages")
    messages = parse_array(raw, "messages")
    if not messages:
        raise InvalidChat(
            "Invalid 'messages': empty array. Expected an array with minimum length 1, "
            "but got an empty array instead.",
            param="messages",
        )
    if len(messages) > MAX_MESSAGES:
        raise InvalidChat(
            f"Invalid 'messages': array too long. Expected an array with maximum length {MAX_MESSAGES}, "
            f"but got an array with length {len(messages)} instead.",
            param="messages",
        )
    return tuple(messages)


def check_messages(messages: Sequence[msgspec.Raw]) -> None:
    """Raises InvalidChat for an invalid message, and for calls and results that do not match."""
    turn = _ToolTurn()
    for place, raw in enumerate(messages):
        where = f"messages[{place}]"
        members = parse_members(raw, where)
        role = require_text(members, "role", where)
        if role not in _ROLES:
            raise unsupported_value(f"{where}.role", role, _ROLES)
        if role == "tool":
            turn.add_result(members, place)
            continue
        turn.check_results()
        _check_content(members, role, where)
        if role == "function":
            require_text(members, "name", where)
        turn = _ToolTurn(place, _parse_call_ids(members, where) if role == "assistant" else ())
    turn.check_results()


class _ToolTurn:
    """One message that is not a result, and the calls in it that have no result so far."""

    def __init__(self, place: int = 0, call_ids: Sequence[str] = ()) -> None:
        self._place = place
        self._open = Counter(call_ids)
        self._result_places: dict[str, int] = {}
        """Call id → the place of its newest result."""

    def add_result(self, members: Members, place: int) -> None:
        where = f"messages[{place}]"
        if not self._open:
            raise InvalidChat(
                "Invalid parameter: messages with role 'tool' must be a response to a preceeding message "
                "with 'tool_calls'.",
                param=f"messages.[{place}].role",
            )
        call_id = require_text(members, "tool_call_id", where)
        _check_result_content(members, where)
        fault = ""
        if call_id not in self._open:
            fault = f"'tool_call_id' of '{quote(call_id)}' not found in 'tool_calls' of previous message"
        elif not self._open[call_id]:
            places = f"in messages[{self._result_places[call_id]}] and messages[{place}]"
            fault = f"Duplicate value for 'tool_call_id' of '{quote(call_id)}', {places}"
        if fault:
            raise InvalidChat(f"Invalid parameter: {fault}.", param=f"messages.[{place}].tool_call_id")
        self._open[call_id] -= 1
        self._result_places[call_id] = place

    def check_results(self) -> None:
        """Raises InvalidChat for calls without a result."""
        still_open = list(self._open.elements())
        if not still_open:
            return
        named = ", ".join(quote(call_id) for call_id in still_open[:_MAX_NAMED])
        raise InvalidChat(
            "An assistant message with 'tool_calls' must be followed by tool messages responding to each "
            f"'tool_call_id'. The following tool_call_ids did not have response messages: {named}",
            param=f"messages.[{self._place}].role",
        )


def _check_content(members: Members, role: str, where: str) -> None:
    raw = get_member(members, "content")
    if raw is not None:
        for part, at in _parse_parts(raw, f"{where}.content"):
            require_text(part, "type", at)
        return
    has_other = any(get_member(members, name) is not None for name in _OTHER_CONTENT)
    if role == "function" or (role == "assistant" and has_other):
        return
    if "content" not in members:
        raise missing_param(f"{where}.content")
    raise InvalidChat("Invalid value for 'content': expected a string, got null.", param=f"{where}.content")


def _check_result_content(members: Members, where: str) -> None:
    """Check that a result is text: it may hold no image and no file."""
    raw = members.get("content")
    if raw is None:
        raise missing_param(f"{where}.content")
    for part, at in _parse_parts(raw, f"{where}.content"):
        kind = require_text(part, "type", at)
        if kind != "text":
            raise unsupported_value(f"{at}.type", kind, ("text",))
        require_text(part, "text", at)


def _parse_parts(raw: msgspec.Raw, param: str) -> list[tuple[Members, str]]:
    """Parse a content into parts and their places; empty if the content is text."""
    start = bytes(raw)[:1]
    if start == b'"':
        parse_text(raw, param)
        return []
    if start != b"[":
        raise wrong_type(param, "one of a string or array of objects", raw)
    parts = parse_array(raw, param)
    return [(parse_members(part, f"{param}[{at}]"), f"{param}[{at}]") for at, part in enumerate(parts)]


def _parse_call_ids(members: Members, where: str) -> list[str]:
    raw = get_member(members, "tool_calls")
    ids = []
    for at, one in enumerate([] if raw is None else parse_array(raw, f"{where}.tool_calls")):
        place = f"{where}.tool_calls[{at}]"
        call = parse_members(one, place)
        ids.append(require_text(call, "id", place))
        if "type" not in call or parse_text(call["type"], f"{place}.type") == "function":
            function = require_members(call, "function", place)
            require_text(function, "name", f"{place}.function")
            require_text(function, "arguments", f"{place}.function")
    return ids
