"""What a caller gets of a conversation that has ended, whole or as the end of a stream."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec

from toolgate.chat.calls import ToolCall
from toolgate.chat.legacy_functions import FINISH as LEGACY_FINISH
from toolgate.chat.legacy_functions import to_function_call
from toolgate.chat.replies import Reply
from toolgate.chat.requests import Asked
from toolgate.chat.tool_loop import Finish, ToolLoop
from toolgate.model.raw import NULL, Members, decode_members, encode_raw

_ANSWERS: Final = frozenset({"stop", "length", "content_filter"})
"""The reasons to end that can stand where nothing is left to be called."""
_BLANK: Final = {"role": msgspec.Raw(b'"assistant"'), "content": NULL}
_encode = msgspec.json.encode


@dataclass(frozen=True, slots=True, kw_only=True)
class Ending:
    """The last words."""

    head: Members
    """`id`, `created`, `model`, and what else the model's server says of its answer."""
    reply: Reply | None
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
        return [to_function_call(one) for one in deltas[:1]] if self.is_legacy else deltas

    @property
    def finish_reason(self) -> str:
        if self.calls:
            return LEGACY_FINISH if self.is_legacy else "tool_calls"
        said = "stop" if self.reply is None else self.reply.finish_reason
        return said if said in _ANSWERS else "stop"


def handed_calls(reply: Reply, handed: Sequence[ToolCall], first_id: str | None) -> list[Members]:
    """The calls of the caller's own functions as the model made them; the first under `first_id` if given."""
    ids = {call.call_id for call in handed}
    pairs = zip(reply.calls, reply.entries, strict=True)
    entries = [decode_members(entry) for call, entry in pairs if call.call_id in ids]
    if first_id is not None:
        entries[0]["id"] = encode_raw(first_id)
    return entries


def encode_completion(ending: Ending) -> bytes:
    """A whole `chat.completion`."""
    choice: dict[str, Any] = dict(ending.reply.choice) if ending.reply is not None else {}
    choice |= {"index": 0, "message": _message(ending), "finish_reason": ending.finish_reason}
    choice.setdefault("logprobs", None)
    completion: dict[str, Any] = {**ending.head, "object": "chat.completion", "choices": [choice]}
    if ending.usage is not None:
        completion["usage"] = ending.usage
    if ending.extension:
        completion["toolgate"] = ending.extension
    return _encode(completion)


def _message(ending: Ending) -> Members:
    if ending.closing or ending.reply is None:
        return {**_BLANK, "content": encode_raw(ending.closing)}
    message = {**_BLANK, **ending.reply.without_calls()}
    if not ending.calls:
        return message
    message["tool_calls"] = encode_raw(ending.calls)
    return to_function_call(message) if ending.is_legacy else message


def remarks(finish: Finish, loop: ToolLoop, asked: Asked, *, shadowed: Sequence[str]) -> dict[str, Any]:
    """What the gateway itself has to say of a conversation; nothing where there is nothing to say."""
    said: dict[str, Any] = {}
    if finish.stopped is not None:
        said["stopped"] = finish.stopped
    if asked.progress or asked.explain:
        said |= {"rounds": loop.rounds, "tool_calls": loop.calls_made}
    if shadowed:
        said["shadowed"] = shadowed
    return said
