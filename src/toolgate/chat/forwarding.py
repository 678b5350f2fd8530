"""A request as it is passed on: as it came, byte for byte, but for what is ours in it."""

from typing import Any, Final

import msgspec

from toolgate.chat.hidden_turns import ID_PREFIX
from toolgate.chat.parsing import given
from toolgate.chat.requests import ChatRequest
from toolgate.model.raw import Members, decode_array, decode_members, encode_raw

_NO_CALL: Final = msgspec.Raw(b'"none"')
_CHOICES: Final = {"tools": "tool_choice", "functions": "function_call"}
_MARK: Final = ID_PREFIX.encode()


def forwarded(body: Members, request: ChatRequest) -> Members:
    """`body` in its order, as `request`, which was made of it, has it now: equal to it if nothing is ours."""
    members: Members = {}
    for name, sent in body.items():
        if name == "messages":
            members[name] = _messages(sent, request)
        elif name in request.members:
            now = request.members[name]
            members[name] = sent if sent == now or _decode(sent) == _decode(now) else now
    return members


def for_an_answer(members: Members) -> Members:
    """The same request, its tools still declared, to a model that may call none of them."""
    declared = [choice for name, choice in _CHOICES.items() if _decode(members.get(name))]
    return {**members, **dict.fromkeys(declared, _NO_CALL)}


def _messages(sent: msgspec.Raw, request: ChatRequest) -> msgspec.Raw:
    messages = tuple(_without_id(raw) for raw in request.messages)
    if tuple(decode_array(sent)) == messages:
        return sent
    return encode_raw(messages)


def _without_id(raw: msgspec.Raw) -> msgspec.Raw:
    """A message without the id of ours that a `function_call` may carry (`legacy_functions`)."""
    if _MARK not in bytes(raw):
        return raw
    message = decode_members(raw)
    call = given(message, "function_call")
    if call is None:
        return raw
    message["function_call"] = encode_raw(
        {name: part for name, part in decode_members(call).items() if name != "id"}
    )
    return encode_raw(message)


def _decode(raw: msgspec.Raw | None) -> Any:
    return None if raw is None else msgspec.json.decode(raw)
