"""A conversation by chat completions: what was said so far, and the body that asks a model to go on.

What the caller sent and what the model answered stays the JSON it came as. Changed is only what would have
the model's own server refuse its own words: arguments that are no JSON object, and names that no function can
have.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

import msgspec

from toolgate.chat.calls import ToolCall, sendable_arguments, sendable_name
from toolgate.chat.hidden_turns import HiddenTurn, Round, tool_message
from toolgate.chat.injection import Injection
from toolgate.chat.replies import Reply
from toolgate.chat.requests import ChatRequest
from toolgate.chat.tool_loop import AskModel
from toolgate.model.raw import Members, decode_members, encode_raw

_NONE: Final = b'"none"'
_IDLE_CHOICES: Final = (None, _NONE, b'"auto"')
_CALLS: Final = ("tool_calls", "function_call")
_ASSISTANT: Final = {"role": msgspec.Raw(b'"assistant"')}
_STREAM_MEMBERS: Final = ("stream", "stream_options")

_encode = msgspec.json.encode
_decode_tools = msgspec.json.Decoder(list[msgspec.Raw] | None).decode
_decode_options = msgspec.json.Decoder(Members | None).decode


@dataclass(slots=True)
class _Open:
    """A round whose calls are being answered."""

    message: Members
    results: list[tuple[str, str]] = field(default_factory=list)

    @property
    def is_answered(self) -> bool:
        """Whether it has no calls, or they have results: they come together."""
        return bool(self.results) or not any(name in self.message for name in _CALLS)


class Transcript:
    """The messages of one request and of the rounds that it took."""

    def __init__(self, request: ChatRequest, injection: Injection) -> None:
        self._injection = injection
        self._own = request.declared.own
        self._choice = request.choice.renamed(injection.declared)
        self._messages = list(request.messages)
        self._rounds: list[_Open] = []
        self._members = _asking(request, injection)

    def body(self, ask: AskModel) -> bytes:
        """The body of the next request for a completion."""
        members: dict[str, object] = {**self._members}
        choice = self._choice_of(ask)
        if "tools" not in members and choice in _IDLE_CHOICES:
            # Nothing to choose from. Servers refuse both of these where no tool is declared.
            members.pop("parallel_tool_calls", None)
        elif choice is not None:
            members["tool_choice"] = msgspec.Raw(choice)
        return _encode({**members, "messages": self._messages})

    def take(self, reply: Reply) -> None:
        """The model has answered."""
        message = reply.message
        if reply.calls:
            entries = [
                self._mended(entry, call) for entry, call in zip(reply.entries, reply.calls, strict=True)
            ]
            message = {**message, "tool_calls": encode_raw(entries)}
        self._rounds.append(_Open(message))
        self._messages.append(encode_raw(message))

    def answer(self, call: ToolCall, content: str) -> None:
        """A call of the last reply has its result. Each is answered once."""
        self._rounds[-1].results.append((call.call_id, content))
        self._messages.append(tool_message(call.call_id, content))

    def history(self, closing: str = "") -> tuple[msgspec.Raw, ...]:
        """All messages so far, fit to go on with; `closing` is what the last reply could not say itself.

        Calls of the last reply that have no result, for nothing could be run any more, are no part of it.
        """
        if not closing and (not self._rounds or self._rounds[-1].is_answered):
            return tuple(self._messages)
        if not self._rounds or self._rounds[-1].results:
            return (*self._messages, _said(_ASSISTANT, closing))
        last = {name: raw for name, raw in self._rounds[-1].message.items() if name not in _CALLS}
        return (*self._messages[:-1], _said(last, closing))

    def hidden(self, handed: Sequence[ToolCall]) -> HiddenTurn:
        """What the caller does not see where it is handed some calls of the last reply."""
        *earlier, last = self._rounds
        return HiddenTurn(
            message=last.message,
            results=tuple(last.results),
            own_ids=tuple(call.call_id for call in handed),
            earlier=tuple(Round(message=one.message, results=tuple(one.results)) for one in earlier),
        )

    def _choice_of(self, ask: AskModel) -> bytes | None:
        if ask.choice == "none":
            return _NONE
        return self._choice.raw if ask.choice == "sent" else self._choice.after_satisfied()

    def _mended(self, entry: msgspec.Raw, call: ToolCall) -> msgspec.Raw:
        """A call as it may stand in a history: one that names a function and holds a JSON object."""
        name, arguments = self._name_of(call), sendable_arguments(call.arguments)
        if call.kind == "other" or (name == call.name and arguments == call.arguments):
            return entry
        members = decode_members(entry)
        told = {"name": name, "arguments": arguments}
        function = {**decode_members(members["function"]), **told}
        return encode_raw({**members, "function": function})

    def _name_of(self, call: ToolCall) -> str:
        if call.name in self._own:
            return call.name
        return sendable_name(self._injection.declared.get(call.name, call.name))


def _said(message: Members, closing: str) -> msgspec.Raw:
    return encode_raw({**message, "content": encode_raw(closing)} if closing else message)


def _asking(request: ChatRequest, injection: Injection) -> Members:
    """The members of every request of a conversation, but for its messages and its `tool_choice`."""
    sent = request.members
    members = {
        name: raw for name, raw in sent.items() if name not in ("tools", "tool_choice", *_STREAM_MEMBERS)
    }
    own = _decode_tools(sent.get("tools", b"null")) or ()
    tools = [*own, *map(msgspec.Raw, injection.tools)]
    if tools:
        members["tools"] = encode_raw(tools)
    if request.is_stream:
        options = _decode_options(sent.get("stream_options", b"null")) or {}
        members["stream"] = msgspec.Raw(b"true")
        members["stream_options"] = encode_raw({**options, "include_usage": True})
    return members
