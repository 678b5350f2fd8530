"""`functions` and `function_call`, as requests had them before there were `tools`.

The tool loop knows tools alone: a request of the old form is put into the new one before it, and what is
handed to the caller is put back into the old one after it. The old form has no ids: one that has to come
back travels in the `function_call` itself, as clients send an assistant's message again as they got it.
"""

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Final

import msgspec

from toolgate.chat.client_tools import parse_choice
from toolgate.chat.hidden_turns import ID_PREFIX
from toolgate.chat.parsing import given, parse_array
from toolgate.chat.requests import ChatRequest
from toolgate.errors import InvalidChat
from toolgate.model.raw import UNREADABLE, Members, array_of, decode_members, encode_raw, object_of, text_of

FINISH: Final = "function_call"
"""How an answer in the old form ends that hands over a call."""
_OLD: Final = ("functions", "function_call")
_NEW: Final = ("tools", "tool_choice")
_EMPTY: Final = msgspec.Raw(b'""')


class _OldCall(msgspec.Struct):
    name: str
    id: str | None = None


class _OldMessage(msgspec.Struct):
    role: str
    name: str | None = None
    function_call: _OldCall | None = None


_decode_message = msgspec.json.Decoder(_OldMessage).decode


def is_legacy(request: ChatRequest) -> bool:
    """Whether a request is in the old form."""
    return given(request.members, "functions") is not None


def to_tools(request: ChatRequest) -> ChatRequest:
    """A request of the old form in the new one; InvalidChat for one that is in both."""
    members = {name: raw for name, raw in request.members.items() if name not in _OLD}
    for name in _NEW:
        if given(members, name) is not None:
            raise InvalidChat(f"'{name}' and 'functions' cannot be used together.", param=name)
        members.pop(name, None)
    functions = parse_array(request.members["functions"], "functions")
    members["tools"] = encode_raw([{"type": "function", "function": one} for one in functions])
    choice = _choice(given(request.members, "function_call"))
    if choice is not None:
        members["tool_choice"] = msgspec.Raw(choice)
    messages = _to_tool_messages(request.messages)
    return replace(request, members=members, messages=messages, choice=parse_choice(choice))


def to_function_call(message: Members) -> Members:
    """An assistant's message, or a delta of one, in the old form, which has room for one call alone."""
    calls = array_of(message.get("tool_calls"))
    rest = {name: raw for name, raw in message.items() if name != "tool_calls"}
    return {**rest, "function_call": encode_raw(_old_call(calls[0]))} if calls else rest


def _old_call(raw: msgspec.Raw) -> Members:
    call = object_of(raw) or {}
    function = object_of(call.get("function")) or {}
    parts = {name: function.get(name, _EMPTY) for name in ("name", "arguments")}
    call_id = text_of(call.get("id")) or ""
    return {**parts, "id": call["id"]} if call_id.startswith(ID_PREFIX) else parts


def _choice(raw: msgspec.Raw | None) -> bytes | None:
    """`function_call` of a request as `tool_choice`: a word is the same in both."""
    if raw is None:
        return None
    if bytes(raw)[:1] != b"{":
        return bytes(raw)
    return msgspec.json.encode({"type": "function", "function": raw})


def _to_tool_messages(messages: Sequence[msgspec.Raw]) -> tuple[msgspec.Raw, ...]:
    """Calls and their results in the new form. A call without a result, or the reverse, stays as it is."""
    ids: dict[int, str] = {}
    for place, (message, following) in enumerate(pairwise(map(_parse, messages))):
        call = message.function_call
        if call is not None and following.role == "function" and following.name == call.name:
            # Nine letters and digits: no server takes fewer kinds of ids than that.
            ids[place] = ids[place + 1] = call.id or f"fn{place:07}"
    return tuple(
        _to_tool_message(raw, ids[place]) if place in ids else raw for place, raw in enumerate(messages)
    )


def _parse(raw: msgspec.Raw) -> _OldMessage:
    try:
        return _decode_message(raw)
    except UNREADABLE:
        return _OldMessage(role="")


def _to_tool_message(raw: msgspec.Raw, call_id: str) -> msgspec.Raw:
    message = decode_members(raw)
    sent = message.pop("function_call", None)
    if sent is None:
        result = {"content": given(message, "content") or _EMPTY}
        return encode_raw({"role": "tool", "tool_call_id": call_id, **result})
    call = {name: part for name, part in decode_members(sent).items() if name != "id"}
    message["tool_calls"] = encode_raw([{"id": call_id, "type": "function", "function": call}])
    return encode_raw(message)
