"""A conversation by chat completions: what was said so far, and the body that asks a model to go on.

What the caller sent and what the model answered stays the JSON it came as. Changed is only what would have
the model's own server refuse its own words: arguments that are no JSON object, and names that no function can
have.

What a caller gets of a conversation that has ended, whole or as the end of a stream.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec

from toolgate.chat.hidden_turns import HiddenRound, HiddenTurn, tool_message
from toolgate.chat.injection import InjectedTools
from toolgate.chat.replies import ModelCompletion
from toolgate.chat.requests import LEGACY_FINISH, ChatRequest, GatewayOptions, convert_to_function_call
from toolgate.chat.tool_calls import ToolCall, repair_arguments, repair_name
from toolgate.chat.tool_loop import AskModel, Finish, ToolLoop
from toolgate.model.json_text import NULL, Members, decode_members, encode_raw

_NONE: Final = b'"none"'
_IDLE_CHOICES: Final = (None, _NONE, b'"auto"')
_CALLS: Final = ("tool_calls", "function_call")
_ASSISTANT: Final = {"role": msgspec.Raw(b'"assistant"')}
_STREAM_MEMBERS: Final = ("stream", "stream_options")

_encode_body = msgspec.json.encode
_decode_tools = msgspec.json.Decoder(list[msgspec.Raw] | None).decode
_decode_options = msgspec.json.Decoder(Members | None).decode


@dataclass(slots=True)
class _AnsweredRound:
    """A round whose calls are being answered."""

    message: Members
    results: list[tuple[str, str]] = field(default_factory=list)

    @property
    def is_answered(self) -> bool:
        """Whether it has no calls, or they have results: they come together."""
        return bool(self.results) or not any(name in self.message for name in _CALLS)


class Transcript:
    """The messages of one request and of the rounds that it took."""

    def __init__(self, request: ChatRequest, injection: InjectedTools) -> None:
        self._injection = injection
        self._own = request.declared.own
        self._choice = request.choice.renamed(injection.declared)
        self._messages = list(request.messages)
        self._rounds: list[_AnsweredRound] = []
        self._members = _request_members(request, injection)

    def body(self, ask: AskModel) -> bytes:
        """The body of the next request for a completion."""
        members: dict[str, object] = {**self._members}
        choice = self._choice_of(ask)
        if "tools" not in members and choice in _IDLE_CHOICES:
            # Nothing to choose from. Servers refuse both of these where no tool is declared.
            members.pop("parallel_tool_calls", None)
        elif choice is not None:
            members["tool_choice"] = msgspec.Raw(choice)
        return _encode_body({**members, "messages": self._messages})

    def take(self, reply: ModelCompletion) -> None:
        """The model has answered."""
        message = reply.message
        if reply.calls:
            entries = [
                self._mended(entry, call) for entry, call in zip(reply.entries, reply.calls, strict=True)
            ]
            message = {**message, "tool_calls": encode_raw(entries)}
        self._rounds.append(_AnsweredRound(message))
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
            return (*self._messages, _with_content(_ASSISTANT, closing))
        last = {name: raw for name, raw in self._rounds[-1].message.items() if name not in _CALLS}
        return (*self._messages[:-1], _with_content(last, closing))

    def hidden(self, handed: Sequence[ToolCall]) -> HiddenTurn:
        """What the caller does not see where it is handed some calls of the last reply."""
        *earlier, last = self._rounds
        return HiddenTurn(
            message=last.message,
            results=tuple(last.results),
            own_ids=tuple(call.call_id for call in handed),
            earlier=tuple(HiddenRound(message=one.message, results=tuple(one.results)) for one in earlier),
        )

    def _choice_of(self, ask: AskModel) -> bytes | None:
        if ask.choice == "none":
            return _NONE
        return self._choice.raw if ask.choice == "sent" else self._choice.after_first_call()

    def _mended(self, entry: msgspec.Raw, call: ToolCall) -> msgspec.Raw:
        """A call as it may stand in a history: one that names a function and holds a JSON object."""
        name, arguments = self._name_of(call), repair_arguments(call.arguments)
        if call.kind == "other" or (name == call.name and arguments == call.arguments):
            return entry
        members = decode_members(entry)
        told = {"name": name, "arguments": arguments}
        function = {**decode_members(members["function"]), **told}
        return encode_raw({**members, "function": function})

    def _name_of(self, call: ToolCall) -> str:
        if call.name in self._own:
            return call.name
        return repair_name(self._injection.declared.get(call.name, call.name))


def _with_content(message: Members, closing: str) -> msgspec.Raw:
    return encode_raw({**message, "content": encode_raw(closing)} if closing else message)


def _request_members(request: ChatRequest, injection: InjectedTools) -> Members:
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


_ANSWERS: Final = frozenset({"stop", "length", "content_filter"})
"""The reasons to end that can stand where nothing is left to be called."""
_BLANK: Final = {"role": msgspec.Raw(b'"assistant"'), "content": NULL}
_encode = msgspec.json.encode


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientCompletion:
    """The last words."""

    head: Members
    """`id`, `created`, `model`, and what else the model's server says of its answer."""
    reply: ModelCompletion | None
    """The newest, where there is one."""
    closing: str = ""
    """What is said in place of it, or after it where it was passed on already."""
    calls: Sequence[Members] = ()
    """Of the caller's own functions, as it gets them."""
    usage: Members | None = None
    extension: Mapping[str, Any] = field(default_factory=dict)
    """What the gateway itself has to say; empty where that is nothing."""
    is_legacy: bool = False
    """Whether the caller knows functions, and no tools."""

    @property
    def call_deltas(self) -> list[Members]:
        """The calls as pieces of a stream, each whole."""
        deltas = [{"tool_calls": encode_raw([{"index": at, **call}])} for at, call in enumerate(self.calls)]
        return [convert_to_function_call(one) for one in deltas[:1]] if self.is_legacy else deltas

    @property
    def finish_reason(self) -> str:
        if self.calls:
            return LEGACY_FINISH if self.is_legacy else "tool_calls"
        said = "stop" if self.reply is None else self.reply.finish_reason
        return said if said in _ANSWERS else "stop"


def select_handed_calls(
    reply: ModelCompletion, handed: Sequence[ToolCall], first_id: str | None
) -> list[Members]:
    """The calls of the caller's own functions as the model made them; the first under `first_id` if given."""
    ids = {call.call_id for call in handed}
    pairs = zip(reply.calls, reply.entries, strict=True)
    entries = [decode_members(entry) for call, entry in pairs if call.call_id in ids]
    if first_id is not None:
        entries[0]["id"] = encode_raw(first_id)
    return entries


def encode_completion(ending: ClientCompletion) -> bytes:
    """A whole `chat.completion`."""
    choice: dict[str, Any] = dict(ending.reply.choice) if ending.reply is not None else {}
    choice |= {"index": 0, "message": _build_message(ending), "finish_reason": ending.finish_reason}
    choice.setdefault("logprobs", None)
    completion: dict[str, Any] = {**ending.head, "object": "chat.completion", "choices": [choice]}
    if ending.usage is not None:
        completion["usage"] = ending.usage
    if ending.extension:
        completion["toolgate"] = ending.extension
    return _encode(completion)


def _build_message(ending: ClientCompletion) -> Members:
    if ending.closing or ending.reply is None:
        return {**_BLANK, "content": encode_raw(ending.closing)}
    message = {**_BLANK, **ending.reply.without_calls()}
    if not ending.calls:
        return message
    message["tool_calls"] = encode_raw(ending.calls)
    return convert_to_function_call(message) if ending.is_legacy else message


def build_extension(
    finish: Finish, loop: ToolLoop, asked: GatewayOptions, *, shadowed: Sequence[str]
) -> dict[str, Any]:
    """What the gateway itself has to say of a conversation; nothing where there is nothing to say."""
    said: dict[str, Any] = {}
    if finish.stopped_by is not None:
        said["stopped"] = finish.stopped_by
    if asked.progress or asked.explain:
        said |= {"rounds": loop.rounds, "tool_calls": loop.calls_made}
    if shadowed:
        said["shadowed"] = shadowed
    return said
