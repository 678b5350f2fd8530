"""A Chat Completions chat: its history, its requests to the model, and the completion for the client.

Messages of the client and of the model stay the JSON they came as. The transcript changes only what the
model's server would reject: arguments that are not a JSON object, and names that no function can have.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from toolgate.chat.config import ChatOptions
from toolgate.chat.hidden_turns import HiddenRound, HiddenTurn, encode_tool_message
from toolgate.chat.injection import InjectedTools
from toolgate.chat.model_completion import CALL_MEMBERS, ModelCompletion
from toolgate.chat.requests import LEGACY_FINISH, ChatRequest, convert_to_function_call
from toolgate.chat.tool_calls import ToolCall, repair_arguments, repair_name
from toolgate.chat.tool_loop import Finish, PromptModel, ToolLoop
from toolgate.model.json_text import NULL, Members, decode_members, encode_raw

_NONE: Final = b'"none"'
_IDLE_CHOICES: Final = (None, _NONE, b'"auto"')
_ASSISTANT: Final = {"role": msgspec.Raw(b'"assistant"')}
_REBUILT: Final = ("tools", "tool_choice", "stream", "stream_options")
_FINISHES: Final = frozenset({"stop", "length", "content_filter"})
"""The finish reasons of a completion without calls."""

_decode_tools = msgspec.json.Decoder(list[msgspec.Raw] | None).decode
_decode_options = msgspec.json.Decoder(Members | None).decode


class Transcript:
    """The messages of one request and of its rounds."""

    def __init__(self, request: ChatRequest, injection: InjectedTools) -> None:
        self._injection = injection
        self._own = request.declared.own
        self._choice = request.choice.rename(injection.declared)
        self._messages = list(request.messages)
        self._rounds: list[HiddenRound] = []
        sent = request.members
        self._members: Members = {name: raw for name, raw in sent.items() if name not in _REBUILT}
        tools = [*(_decode_tools(sent.get("tools", NULL)) or ()), *map(msgspec.Raw, injection.tools)]
        if tools:
            self._members["tools"] = encode_raw(tools)
        if request.is_stream:
            options = _decode_options(sent.get("stream_options", NULL)) or {}
            self._members["stream"] = msgspec.Raw(b"true")
            self._members["stream_options"] = encode_raw({**options, "include_usage": True})

    def build_request(self, prompt: PromptModel) -> bytes:
        members: dict[str, object] = {**self._members}
        choice: bytes | None = _NONE
        if prompt.choice != "none":
            choice = self._choice.raw if prompt.choice == "sent" else self._choice.after_first_call()
        if "tools" not in members and choice in _IDLE_CHOICES:
            # Servers reject both of these if no tool is declared.
            members.pop("parallel_tool_calls", None)
        elif choice is not None:
            members["tool_choice"] = msgspec.Raw(choice)
        return msgspec.json.encode({**members, "messages": self._messages})

    def take(self, completion: ModelCompletion) -> None:
        message = completion.message
        if completion.calls:
            pairs = zip(completion.entries, completion.calls, strict=True)
            message = {**message, "tool_calls": encode_raw([self._repair(*pair) for pair in pairs])}
        self._rounds.append(HiddenRound(message=message, results=()))
        self._messages.append(encode_raw(message))

    def add_result(self, call: ToolCall, content: str) -> None:
        """Add the result of a call of the last completion. Each call gets one."""
        last = self._rounds[-1]
        self._rounds[-1] = replace(last, results=(*last.results, (call.call_id, content)))
        self._messages.append(encode_tool_message(call.call_id, content))

    def build_history(self, closing: str = "") -> tuple[msgspec.Raw, ...]:
        """Build a history to continue with. `closing` is added as the assistant's text. Leaves out calls of
        the last completion that have no result, since no more tools could run."""
        last = self._rounds[-1].message if self._rounds else {}
        # Results come together: a completion with calls has all of them, or none.
        is_open = bool(self._rounds) and not self._rounds[-1].results
        if not closing and not (is_open and any(name in last for name in CALL_MEMBERS)):
            return tuple(self._messages)
        if not is_open:
            return (*self._messages, _with_content(_ASSISTANT, closing))
        kept = {name: raw for name, raw in last.items() if name not in CALL_MEMBERS}
        return (*self._messages[:-1], _with_content(kept, closing))

    def hide_turn(self, handed: Sequence[ToolCall]) -> HiddenTurn:
        """Collect what the client does not see if it gets the calls `handed` of the last completion."""
        *earlier, last = self._rounds
        own_ids = tuple(call.call_id for call in handed)
        return HiddenTurn(message=last.message, results=last.results, own_ids=own_ids, earlier=tuple(earlier))

    def _repair(self, entry: msgspec.Raw, call: ToolCall) -> msgspec.Raw:
        """Make a call fit for a history: it names a function, and its arguments are a JSON object."""
        name, arguments = call.name, repair_arguments(call.arguments)
        if name not in self._own:
            name = repair_name(self._injection.declared.get(name, name))
        if call.kind == "other" or (name == call.name and arguments == call.arguments):
            return entry
        members = decode_members(entry)
        function = {**decode_members(members["function"]), "name": name, "arguments": arguments}
        return encode_raw({**members, "function": function})


def _with_content(message: Members, closing: str) -> msgspec.Raw:
    return encode_raw({**message, "content": closing} if closing else message)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientCompletion:
    """The completion of a whole chat, or the end of a streamed one, for the client."""

    head: Members
    """`id`, `created`, `model` and other members that the model's server sent."""
    completion: ModelCompletion | None
    """The model's last one, if there is one."""
    closing: str = ""
    """Text that replaces the model's, or follows it in a stream."""
    calls: Sequence[Members] = ()
    """Calls of the client's own functions, as the client gets them."""
    usage: Members | None = None
    extension: Mapping[str, Any] = field(default_factory=dict)
    """The member `toolgate`; left out if empty."""
    is_legacy: bool = False
    """Whether the client knows functions, and no tools."""

    @property
    def call_deltas(self) -> list[Members]:
        """The calls as deltas of a stream, one whole call each."""
        deltas = [{"tool_calls": encode_raw([{"index": at, **call}])} for at, call in enumerate(self.calls)]
        return [convert_to_function_call(one) for one in deltas[:1]] if self.is_legacy else deltas

    @property
    def finish_reason(self) -> str:
        if self.calls:
            return LEGACY_FINISH if self.is_legacy else "tool_calls"
        reason = "stop" if self.completion is None else self.completion.finish_reason
        return reason if reason in _FINISHES else "stop"


def select_handed_calls(
    completion: ModelCompletion, handed: Sequence[ToolCall], first_id: str | None
) -> list[Members]:
    """Select the calls for the client as the model made them; the first with `first_id`, if given."""
    ids = {call.call_id for call in handed}
    pairs = zip(completion.calls, completion.entries, strict=True)
    entries = [decode_members(entry) for call, entry in pairs if call.call_id in ids]
    if first_id is not None:
        entries[0]["id"] = encode_raw(first_id)
    return entries


def encode_completion(ending: ClientCompletion) -> bytes:
    completion = ending.completion
    message: Members = {**_ASSISTANT, "content": NULL}
    if ending.closing or completion is None:
        message["content"] = encode_raw(ending.closing)
    else:
        message |= completion.without_calls()
        if ending.calls:
            message["tool_calls"] = encode_raw(ending.calls)
            message = convert_to_function_call(message) if ending.is_legacy else message
    choice: dict[str, Any] = {} if completion is None else dict(completion.choice)
    choice |= {"index": 0, "message": message, "finish_reason": ending.finish_reason}
    choice.setdefault("logprobs", None)
    body: dict[str, Any] = {**ending.head, "object": "chat.completion", "choices": [choice]}
    if ending.usage is not None:
        body["usage"] = ending.usage
    if ending.extension:
        body["toolgate"] = ending.extension
    return msgspec.json.encode(body)


def build_extension(
    finish: Finish, loop: ToolLoop, options: ChatOptions, *, shadowed: Sequence[str]
) -> dict[str, Any]:
    """Build the member `toolgate`, the gateway's report on a chat. Empty if there is nothing to report."""
    extension: dict[str, Any] = {}
    if finish.stopped_by is not None:
        extension["stopped"] = finish.stopped_by
    if options.progress or options.explain:
        extension |= {"rounds": loop.rounds, "tool_calls": loop.calls_made}
    if shadowed:
        extension["shadowed"] = shadowed
    return extension
