"""Characters that a server cut in two.

Servers that count in UTF-16 cut a text between the halves of one character, and write each half as an
escape of its own, which is no text to anybody who is strict.

What a conversation has used: the numbers of its rounds, added up.

What a model answered: the assistant's message as it came, and the calls in it.

Servers are sloppy about calls: ids are missing or stand twice, `type` is left out, arguments come as an
object. A reply holds them as everybody takes them; all else in the message stays as it was written, since
some servers want back what only they understand (a thought's signature beside a call).
"""

import base64
import hashlib
import re
from collections.abc import Container, Sequence
from dataclasses import dataclass, field
from itertools import count
from math import isfinite
from typing import Any, Final

import msgspec

from toolgate.chat.tool_calls import ToolCall
from toolgate.errors import ModelUnavailable
from toolgate.model.json_text import (
    NULL,
    UNREADABLE,
    Members,
    as_array,
    as_object,
    as_text,
    decode_array,
    decode_members,
    encode_raw,
)

# Escapes one after another, so that a backslash that is itself escaped begins none.
_ESCAPE: Final = re.compile(
    rb"\\(?:(?P<pair>u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2})"
    rb"|(?P<high>u[dD][89abAB][0-9a-fA-F]{2})(?P<cut>(?=\"))?"
    rb"|(?P<low>u[dD][c-fC-F][0-9a-fA-F]{2})"
    rb"|.)",
    re.DOTALL,
)
_UNREADABLE: Final = rb"\ufffd"


class SurrogateMender:
    """Puts them together over the pieces of one stream."""

    def __init__(self) -> None:
        self._first = b""

    def mend(self, data: bytes) -> bytes:
        """`data`, of which a text's last half waits for the next `data`; any half alone is unreadable."""
        if not self._first and b"\\ud" not in data and b"\\uD" not in data:
            return data
        waiting, self._first = self._first, b""

        def mended(found: re.Match[bytes]) -> bytes:
            nonlocal waiting
            if found["high"] and found["cut"] is not None:
                self._first = found[0]
                return b""
            if found["low"] and waiting and data[found.start() - 1 : found.start()] == b'"':
                first, waiting = waiting, b""
                return first + found[0]
            return _UNREADABLE if found["high"] or found["low"] else found[0]

        return _ESCAPE.sub(mended, data)


_MAX_USAGE_DEPTH: Final = 8
"""Real ones have two levels."""

_decode_number = msgspec.json.Decoder(int | float).decode
_NULL: Final = b"null"


class _UsageWire(msgspec.Struct, gc=False):
    total_tokens: int | None = None


class _CompletionWire(msgspec.Struct, gc=False):
    usage: _UsageWire | None = None


class _EventWire(_CompletionWire, gc=False):
    """A completion, a piece of one, a response, or what ends the events of one."""

    response: _CompletionWire | None = None


class _ChunkWire(msgspec.Struct, gc=False):
    choices: list[msgspec.Raw] | None = None


_decode_piece = msgspec.json.Decoder(_ChunkWire).decode
_decode_options = msgspec.json.Decoder(dict[str, Any] | None).decode
_decode_event = msgspec.json.Decoder(_EventWire).decode


def reported_tokens(data: bytes) -> int:
    """How many tokens a model's server says an answer took, or an event of one; 0 where it does not say."""
    if b'"total_tokens"' not in data:
        return 0
    try:
        event = _decode_event(data)
    except UNREADABLE:
        return 0
    used = event.usage or (event.response and event.response.usage)
    return max((used and used.total_tokens) or 0, 0)


def request_usage(body: bytes) -> bytes | None:
    """A request for a streamed chat, with a demand for what it takes. None: that need not be added."""
    try:
        members = decode_members(body)
        options = _decode_options(members.get("stream_options", _NULL)) or {}
    except UNREADABLE:
        return None
    is_streamed = "messages" in members and bytes(members.get("stream", b"")) == b"true"
    if not is_streamed or options.get("include_usage") is True:
        return None
    return msgspec.json.encode({**members, "stream_options": {**options, "include_usage": True}})


def is_usage_only(data: bytes) -> bool:
    """Whether an event of a chat says what it took, and nothing else."""
    try:
        return bool(reported_tokens(data)) and _decode_piece(data).choices == []
    except UNREADABLE:
        return False


def add_usage(total: Members | None, one: Members | None) -> Members | None:
    """Every number of `one` added to that of `total`, at any level; of all else the later stays."""
    if total is None or one is None:
        return one if total is None else total
    return _add_members(total, one, _MAX_USAGE_DEPTH)


def _add_members(total: Members, one: Members, depth: int) -> Members:
    return total | {
        name: _add_values(total[name], raw, depth) if name in total else raw for name, raw in one.items()
    }


def _add_values(old: msgspec.Raw, new: msgspec.Raw, depth: int) -> msgspec.Raw:
    if bytes(new) == _NULL:
        return old
    if bytes(old)[:1] == bytes(new)[:1] == b"{":
        if depth == 0:
            return new
        return encode_raw(_add_members(decode_members(old), decode_members(new), depth - 1))
    try:
        total = _decode_number(old) + _decode_number(new)
    except msgspec.DecodeError:
        return new
    return encode_raw(total) if isfinite(total) else new


ID_CHARACTERS: Final = 9
"""Of ids that are made up: Mistral takes exactly so many letters and digits, all others take them too."""
MAX_CALLS: Final = 2_048
"""Of one reply. Nobody means more; each has to be answered, and all of them sent back."""

_ASSISTANT: Final = msgspec.Raw(b'"assistant"')
_NOTHING: Final = (b"null", b'""', b"[]", b"{}")


@dataclass(slots=True, kw_only=True)
class ModelCompletion:
    """One answer of a model, whole."""

    message: Members
    """The assistant's, fit to be sent back."""
    calls: tuple[ToolCall, ...]
    entries: tuple[msgspec.Raw, ...]
    """Each of the calls as it stands in `message["tool_calls"]`, in the same order."""
    text: str | None
    finish_reason: str
    usage: Members | None
    head: Members = field(default_factory=dict)
    """The rest of the completion: `id`, `model`, `created`, and what else there is."""
    choice: Members = field(default_factory=dict)
    """The rest of the choice: `logprobs`, and what else there is."""

    @property
    def has_text(self) -> bool:
        """Whether it can stand as an answer: a refusal can, and so can spoken words."""
        return bool(self.text) or any(_has_content(self.message.get(name)) for name in ("refusal", "audio"))

    def without_calls(self) -> Members:
        """The message, with nothing in it that would have to be answered."""
        return {
            name: raw for name, raw in self.message.items() if name not in ("tool_calls", "function_call")
        }


def parse_completion(body: bytes, *, nth: int = 0) -> ModelCompletion:
    """The reply in a whole `chat.completion`, the `nth` of its conversation, or ModelUnavailable."""
    try:
        body.decode()
        head = decode_members(SurrogateMender().mend(body))
        choice = decode_members(decode_array(head.pop("choices"))[0])
        message = decode_members(choice.pop("message"))
    except (*UNREADABLE, LookupError) as exc:
        raise ModelUnavailable("the model's server answered with something that is no completion") from exc
    return build_completion(message, choice, head, nth=nth)


def build_completion(message: Members, choice: Members, head: Members, *, nth: int) -> ModelCompletion:
    """The reply of these three, which become its own. Made-up ids depend on them and on `nth` alone."""
    usage, said = head.pop("usage", NULL), choice.pop("finish_reason", NULL)
    choice.pop("index", None)
    message.setdefault("role", _ASSISTANT)
    sent = _read_calls(message)
    if len(sent) > MAX_CALLS:
        raise ModelUnavailable(f"the model's reply makes more than {MAX_CALLS} calls")
    ids = _assign_ids(
        [as_text(call.get("id")) for call in sent], seed=f"{bytes(head.get('id', NULL))!r} {nth}"
    )
    repaired = [_repair_call(call, call_id) for call, call_id in zip(sent, ids, strict=True)]
    if repaired:
        message.pop("function_call", None)
        message["tool_calls"] = encode_raw([entry for _, entry in repaired])
    return ModelCompletion(
        message=message,
        calls=tuple(call for call, _ in repaired),
        entries=tuple(entry for _, entry in repaired),
        text=_read_text(message.get("content", NULL)),
        finish_reason=as_text(said) or ("tool_calls" if repaired else "stop"),
        usage=as_object(usage),
        head=head,
        choice=choice,
    )


def _read_calls(message: Members) -> list[Members]:
    """The calls of a message in the form of today, also where it has the one of old."""
    entries = [as_object(raw) for raw in as_array(message.get("tool_calls"))]
    calls = [entry for entry in entries if entry is not None]
    old = message.get("function_call", NULL)
    return [{"function": old}] if not calls and as_object(old) is not None else calls


def _repair_call(sent: Members, call_id: str) -> tuple[ToolCall, msgspec.Raw]:
    """A call, and the entry of a message that everybody takes for it."""
    kind = as_text(sent.get("type")) or "function"
    held = as_object(sent.get("function"))
    if held is None and kind != "function":
        return _read_other_call(sent, as_object(sent.get(kind)) or sent, call_id)
    held = held or {}
    name, arguments = as_text(held.get("name")) or "", read_arguments(held.get("arguments", NULL))
    function = held | _encode_texts(name=name, arguments=arguments)
    entry = sent | _encode_texts(id=call_id, type="function") | {"function": encode_raw(function)}
    return ToolCall(call_id=call_id, name=name, arguments=arguments), encode_raw(entry)


def _read_other_call(sent: Members, held: Members, call_id: str) -> tuple[ToolCall, msgspec.Raw]:
    said = ToolCall(
        call_id=call_id,
        name=as_text(held.get("name")) or "",
        arguments=as_text(held.get("input")) or "",
        kind="other",
    )
    return said, encode_raw(sent | _encode_texts(id=call_id))


def read_arguments(raw: msgspec.Raw) -> str:
    """As the model wrote them; some servers have parsed them already."""
    said = as_text(raw)
    return said if said is not None else "" if raw == NULL else bytes(raw).decode()


def _assign_ids(sent: Sequence[str | None], *, seed: str) -> list[str]:
    """Those that were sent; what is missing or stands there already is made up."""
    taken, ids = {one for one in sent if one}, dict[str, None]()
    for index, one in enumerate(sent):
        own = one if one and one not in ids else _make_id(f"{seed} {index}", taken)
        taken.add(own)
        ids[own] = None
    return list(ids)


def _make_id(seed: str, taken: Container[str]) -> str:
    made = (hashlib.sha256(f"{seed} {again}".encode()).digest() for again in count())
    ids = (base64.b32encode(digest).decode().lower()[:ID_CHARACTERS] for digest in made)
    return next(one for one in ids if one not in taken)


def _read_text(content: msgspec.Raw) -> str | None:
    """The text of a message, whether it is one or stands in parts."""
    if bytes(content)[:1] != b"[":
        return as_text(content)
    parts = [as_object(part) or {} for part in as_array(content)]
    return "".join(as_text(part.get("text")) or "" for part in parts)


def _has_content(raw: msgspec.Raw | None) -> bool:
    return raw is not None and bytes(raw) not in _NOTHING


def _encode_texts(**texts: str) -> Members:
    return {name: encode_raw(text) for name, text in texts.items()}
