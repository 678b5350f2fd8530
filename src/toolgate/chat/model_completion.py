"""One completion of a model: the assistant's message as it came, its calls, and the tokens it used.

Servers are sloppy about calls: they omit or repeat ids, leave out `type`, or send arguments as an object. A
`ModelCompletion` holds calls that every server and client accepts. All other members of the message stay as
they came: some servers need members back that only they understand (a thought signature next to a call).
"""

import base64
import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import count
from math import isfinite
from typing import Any, Final

import msgspec

from toolgate.chat.tool_calls import ToolCall
from toolgate.errors import ModelUnavailable
from toolgate.model import json_text
from toolgate.model.json_text import NULL, UNREADABLE, Members, as_object, as_text, decode_members, encode_raw

ID_CHARACTERS: Final = 9
"""Of generated ids: Mistral requires exactly nine letters and digits, and all others accept them."""
MAX_CALLS: Final = 2_048
"""Of one completion: more than any model intends. Each needs a result, and all are sent back."""
_MAX_USAGE_DEPTH: Final = 8  # real usage objects have two levels
_ASSISTANT: Final = msgspec.Raw(b'"assistant"')
CALL_MEMBERS: Final = ("tool_calls", "function_call")
EMPTY_VALUES: Final = (b"null", b'""', b"[]", b"{}")


@dataclass(slots=True, kw_only=True)
class ModelCompletion:
    message: Members
    """The assistant's message, fit to be sent back."""
    calls: tuple[ToolCall, ...]
    entries: tuple[msgspec.Raw, ...]
    """The calls as entries of `message["tool_calls"]`, in the same order."""
    text: str | None
    finish_reason: str
    usage: Members | None
    head: Members = field(default_factory=dict)
    """The other members of the completion: `id`, `model`, `created` and so on."""
    choice: Members = field(default_factory=dict)
    """The other members of the choice: `logprobs` and so on."""

    @property
    def has_text(self) -> bool:
        """Whether it has content for the client: text, a refusal or audio."""
        others = (self.message.get(name) for name in ("refusal", "audio"))
        return bool(self.text) or any(raw is not None and bytes(raw) not in EMPTY_VALUES for raw in others)

    def without_calls(self) -> Members:
        """The message without its calls, which would need results."""
        return {name: raw for name, raw in self.message.items() if name not in CALL_MEMBERS}


def parse_completion(body: bytes, *, nth: int = 0) -> ModelCompletion:
    """Parse a whole `chat.completion`, the `nth` of its chat. Raises ModelUnavailable."""
    try:
        body.decode()
        head = decode_members(SurrogateMender().mend(body))
        choice = decode_members(json_text.decode_array(head.pop("choices"))[0])
        message = decode_members(choice.pop("message"))
    except (*UNREADABLE, LookupError) as exc:
        raise ModelUnavailable("the model's server sent a response that is not a completion") from exc
    return build_completion(message, choice, head, nth=nth)


def build_completion(message: Members, choice: Members, head: Members, *, nth: int) -> ModelCompletion:
    """Build a completion from these three and take ownership. They and `nth` determine the generated ids."""
    usage, reason = head.pop("usage", NULL), choice.pop("finish_reason", NULL)
    choice.pop("index", None)
    message.setdefault("role", _ASSISTANT)
    entries = map(as_object, json_text.as_array(message.get("tool_calls")))
    sent = [entry for entry in entries if entry is not None]
    legacy = message.get("function_call", NULL)
    if not sent and as_object(legacy) is not None:
        sent = [{"function": legacy}]
    if len(sent) > MAX_CALLS:
        raise ModelUnavailable(f"the model's completion makes more than {MAX_CALLS} calls")
    seed = f"{bytes(head.get('id', NULL))!r} {nth}"
    ids = _assign_ids([as_text(call.get("id")) for call in sent], seed=seed)
    repaired = [_repair_call(call, call_id) for call, call_id in zip(sent, ids, strict=True)]
    if repaired:
        message.pop("function_call", None)
        message["tool_calls"] = encode_raw([entry for _, entry in repaired])
    return ModelCompletion(
        message=message,
        calls=tuple(call for call, _ in repaired),
        entries=tuple(entry for _, entry in repaired),
        text=_read_text(message.get("content", NULL)),
        finish_reason=as_text(reason) or ("tool_calls" if repaired else "stop"),
        usage=as_object(usage),
        head=head,
        choice=choice,
    )


def _repair_call(sent: Members, call_id: str) -> tuple[ToolCall, msgspec.Raw]:
    """Parse a call, and make its entry one that every server accepts."""
    kind = as_text(sent.get("type")) or "function"
    held = as_object(sent.get("function"))
    if held is None and kind != "function":
        held = as_object(sent.get(kind)) or sent
        name, written = as_text(held.get("name")) or "", as_text(held.get("input")) or ""
        call = ToolCall(call_id=call_id, name=name, arguments=written, kind="other")
        return call, encode_raw({**sent, "id": call_id})
    held = held or {}
    name, arguments = as_text(held.get("name")) or "", read_arguments(held.get("arguments", NULL))
    function = {**held, "name": name, "arguments": arguments}
    entry = {**sent, "id": call_id, "type": "function", "function": function}
    return ToolCall(call_id=call_id, name=name, arguments=arguments), encode_raw(entry)


def read_arguments(raw: msgspec.Raw) -> str:
    """Read arguments as the model wrote them. Some servers send them parsed."""
    text = as_text(raw)
    return text if text is not None else "" if raw == NULL else bytes(raw).decode()


def _assign_ids(sent: Sequence[str | None], *, seed: str) -> list[str]:
    """Keep the ids that were sent; generate missing and duplicate ones."""
    taken, ids = {one for one in sent if one}, dict[str, None]()
    for index, one in enumerate(sent):
        digests = (hashlib.sha256(f"{seed} {index} {attempt}".encode()).digest() for attempt in count())
        made = (base64.b32encode(digest).decode().lower()[:ID_CHARACTERS] for digest in digests)
        own = one if one and one not in ids else next(new for new in made if new not in taken)
        taken.add(own)
        ids[own] = None
    return list(ids)


def _read_text(content: msgspec.Raw) -> str | None:
    if bytes(content)[:1] != b"[":
        return as_text(content)
    parts = [as_object(part) or {} for part in json_text.as_array(content)]
    return "".join(as_text(part.get("text")) or "" for part in parts)


# Matches one escape after another, so an escaped backslash does not start one.
_ESCAPE: Final = re.compile(
    rb"\\(?:(?P<pair>u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2})"
    rb"|(?P<high>u[dD][89abAB][0-9a-fA-F]{2})(?P<cut>(?=\"))?"
    rb"|(?P<low>u[dD][c-fC-F][0-9a-fA-F]{2})"
    rb"|.)",
    re.DOTALL,
)


class SurrogateMender:
    """Rejoins characters that a server split between the pieces of one stream.

    Servers that count in UTF-16 split a text between the halves of a surrogate pair and write each half as an
    escape. Strict parsers reject that.
    """

    def __init__(self) -> None:
        self._first = b""

    def mend(self, data: bytes) -> bytes:
        """Rejoin halves. A half at the end waits for the next `data`; other lone halves are replaced."""
        if not self._first and b"\\ud" not in data and b"\\uD" not in data:
            return data
        waiting, self._first = self._first, b""

        def mend_one(found: re.Match[bytes]) -> bytes:
            nonlocal waiting
            if found["high"] and found["cut"] is not None:
                self._first = found[0]
                return b""
            if found["low"] and waiting and data[found.start() - 1 : found.start()] == b'"':
                first, waiting = waiting, b""
                return first + found[0]
            return rb"\ufffd" if found["high"] or found["low"] else found[0]

        return _ESCAPE.sub(mend_one, data)


# Usage


class _UsageWire(msgspec.Struct, gc=False):
    total_tokens: int | None = None


class _CompletionWire(msgspec.Struct, gc=False):
    usage: _UsageWire | None = None


class _EventWire(_CompletionWire, gc=False):
    """A completion, a chunk, a response, or the event that ends one."""

    response: _CompletionWire | None = None
    choices: msgspec.Raw = NULL


_decode_event = msgspec.json.Decoder(_EventWire).decode
_decode_options = msgspec.json.Decoder(dict[str, Any] | None).decode
_decode_number = msgspec.json.Decoder(int | float).decode


def count_reported_tokens(data: bytes) -> int:
    """Count the tokens that a response, or an event of one, reports; 0 if it reports none."""
    return _read_usage(data)[0]


def is_usage_only(data: bytes) -> bool:
    """Whether a chunk reports usage and nothing else."""
    tokens, choices = _read_usage(data)
    return bool(tokens) and bytes(choices)[:1] == b"[" and not json_text.as_array(choices)


def _read_usage(data: bytes) -> tuple[int, msgspec.Raw]:
    if b'"total_tokens"' not in data:  # true of most events: do not decode them
        return 0, NULL
    try:
        event = _decode_event(data)
    except UNREADABLE:
        return 0, NULL
    used = event.usage or (event.response and event.response.usage)
    return max((used and used.total_tokens) or 0, 0), event.choices


def request_usage(body: bytes) -> bytes | None:
    """Add `include_usage` to a request for a streamed completion. None: it is not one, or has it already."""
    try:
        members = decode_members(body)
        options = _decode_options(members.get("stream_options", NULL)) or {}
    except UNREADABLE:
        return None
    is_streamed = "messages" in members and bytes(members.get("stream", b"")) == b"true"
    if not is_streamed or options.get("include_usage") is True:
        return None
    return msgspec.json.encode({**members, "stream_options": {**options, "include_usage": True}})


def add_usage(total: Members | None, one: Members | None) -> Members | None:
    """Add each number of `one` to the same member of `total`, at any level. Other values come from `one`."""
    if total is None or one is None:
        return one if total is None else total
    return _add_members(total, one, _MAX_USAGE_DEPTH)


def _add_members(total: Members, one: Members, depth: int) -> Members:
    return total | {name: _add_values(total.get(name, NULL), raw, depth) for name, raw in one.items()}


def _add_values(old: msgspec.Raw, new: msgspec.Raw, depth: int) -> msgspec.Raw:
    if new == NULL:
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
