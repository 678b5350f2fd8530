"""What a model answered: the assistant's message as it came, and the calls in it.

Servers are sloppy about calls: ids are missing or stand twice, `type` is left out, arguments come as an
object. A reply holds them as everybody takes them; all else in the message stays as it was written, since
some servers want back what only they understand (a thought's signature beside a call).
"""

import base64
import hashlib
from collections.abc import Container, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Final

import msgspec

from toolgate.chat.calls import ToolCall
from toolgate.chat.surrogates import Halves
from toolgate.errors import ModelUnavailable
from toolgate.model.raw import (
    NULL,
    UNREADABLE,
    Members,
    array_of,
    decode_array,
    decode_members,
    encode_raw,
    object_of,
    text_of,
)

ID_CHARACTERS: Final = 9
"""Of ids that are made up: Mistral takes exactly so many letters and digits, all others take them too."""
MAX_CALLS: Final = 2_048
"""Of one reply. Nobody means more; each has to be answered, and all of them sent back."""

_ASSISTANT: Final = msgspec.Raw(b'"assistant"')
_NOTHING: Final = (b"null", b'""', b"[]", b"{}")


@dataclass(slots=True, kw_only=True)
class Reply:
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
        return bool(self.text) or any(_is_said(self.message.get(name)) for name in ("refusal", "audio"))

    def without_calls(self) -> Members:
        """The message, with nothing in it that would have to be answered."""
        return {
            name: raw for name, raw in self.message.items() if name not in ("tool_calls", "function_call")
        }


def parse_reply(body: bytes, *, nth: int = 0) -> Reply:
    """The reply in a whole `chat.completion`, the `nth` of its conversation, or ModelUnavailable."""
    try:
        body.decode()
        head = decode_members(Halves().mend(body))
        choice = decode_members(decode_array(head.pop("choices"))[0])
        message = decode_members(choice.pop("message"))
    except (*UNREADABLE, LookupError) as exc:
        raise ModelUnavailable("the model's server answered with something that is no completion") from exc
    return make_reply(message, choice, head, nth=nth)


def make_reply(message: Members, choice: Members, head: Members, *, nth: int) -> Reply:
    """The reply of these three, which become its own. Made-up ids depend on them and on `nth` alone."""
    usage, said = head.pop("usage", NULL), choice.pop("finish_reason", NULL)
    choice.pop("index", None)
    message.setdefault("role", _ASSISTANT)
    sent = _sent_calls(message)
    if len(sent) > MAX_CALLS:
        raise ModelUnavailable(f"the model's reply makes more than {MAX_CALLS} calls")
    ids = _unique_ids(
        [text_of(call.get("id")) for call in sent], seed=f"{bytes(head.get('id', NULL))!r} {nth}"
    )
    repaired = [_repair_call(call, call_id) for call, call_id in zip(sent, ids, strict=True)]
    if repaired:
        message.pop("function_call", None)
        message["tool_calls"] = encode_raw([entry for _, entry in repaired])
    return Reply(
        message=message,
        calls=tuple(call for call, _ in repaired),
        entries=tuple(entry for _, entry in repaired),
        text=_spoken(message.get("content", NULL)),
        finish_reason=text_of(said) or ("tool_calls" if repaired else "stop"),
        usage=object_of(usage),
        head=head,
        choice=choice,
    )


def _sent_calls(message: Members) -> list[Members]:
    """The calls of a message in the form of today, also where it has the one of old."""
    entries = [object_of(raw) for raw in array_of(message.get("tool_calls"))]
    calls = [entry for entry in entries if entry is not None]
    old = message.get("function_call", NULL)
    return [{"function": old}] if not calls and object_of(old) is not None else calls


def _repair_call(sent: Members, call_id: str) -> tuple[ToolCall, msgspec.Raw]:
    """A call, and the entry of a message that everybody takes for it."""
    kind = text_of(sent.get("type")) or "function"
    held = object_of(sent.get("function"))
    if held is None and kind != "function":
        return _other_call(sent, object_of(sent.get(kind)) or sent, call_id)
    held = held or {}
    name, arguments = text_of(held.get("name")) or "", arguments_of(held.get("arguments", NULL))
    function = held | _raws(name=name, arguments=arguments)
    entry = sent | _raws(id=call_id, type="function") | {"function": encode_raw(function)}
    return ToolCall(call_id=call_id, name=name, arguments=arguments), encode_raw(entry)


def _other_call(sent: Members, held: Members, call_id: str) -> tuple[ToolCall, msgspec.Raw]:
    said = ToolCall(
        call_id=call_id,
        name=text_of(held.get("name")) or "",
        arguments=text_of(held.get("input")) or "",
        kind="other",
    )
    return said, encode_raw(sent | _raws(id=call_id))


def arguments_of(raw: msgspec.Raw) -> str:
    """As the model wrote them; some servers have parsed them already."""
    said = text_of(raw)
    return said if said is not None else "" if raw == NULL else bytes(raw).decode()


def _unique_ids(sent: Sequence[str | None], *, seed: str) -> list[str]:
    """Those that were sent; what is missing or stands there already is made up."""
    taken, ids = {one for one in sent if one}, dict[str, None]()
    for index, one in enumerate(sent):
        own = one if one and one not in ids else _made_up_id(f"{seed} {index}", taken)
        taken.add(own)
        ids[own] = None
    return list(ids)


def _made_up_id(seed: str, taken: Container[str]) -> str:
    made = (hashlib.sha256(f"{seed} {again}".encode()).digest() for again in count())
    ids = (base64.b32encode(digest).decode().lower()[:ID_CHARACTERS] for digest in made)
    return next(one for one in ids if one not in taken)


def _spoken(content: msgspec.Raw) -> str | None:
    """The text of a message, whether it is one or stands in parts."""
    if bytes(content)[:1] != b"[":
        return text_of(content)
    parts = [object_of(part) or {} for part in array_of(content)]
    return "".join(text_of(part.get("text")) or "" for part in parts)


def _is_said(raw: msgspec.Raw | None) -> bool:
    return raw is not None and bytes(raw) not in _NOTHING


def _raws(**texts: str) -> Members:
    return {name: encode_raw(text) for name, text in texts.items()}
