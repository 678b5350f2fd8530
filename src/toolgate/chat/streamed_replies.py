"""One streamed reply, put together from its deltas.

What may be shown at once comes back from `feed`; calls are kept back until the end. Servers do not agree
on how calls are cut up: some put all of them at index 0, some leave ids out, some give the name, or even
another id, with every piece. At an index that is in use:

    the piece has                                        then
    ---------------------------------------------------  -------------------------------
    the id of a call there                               that call goes on
    another id, and a name                               a call begins
    a name, and `{` after arguments that ended in `}`    a call begins, whatever its id
    anything else                                        the last call there goes on
"""

from dataclasses import dataclass, field
from typing import Final

import msgspec

from toolgate.chat.pieces import Grown, grow, whole
from toolgate.chat.replies import Reply, arguments_of, make_reply
from toolgate.chat.surrogates import Halves
from toolgate.errors import ModelRefused, ModelUnavailable
from toolgate.model.raw import (
    NULL,
    UNREADABLE,
    Members,
    array_of,
    decode_members,
    encode_raw,
    object_of,
    text_of,
)

MAX_REPLY_BYTES: Final = 32 * 1_048_576
"""Of all its chunks. Arguments that are too long for a tool come through, and are refused as such."""

_DONE: Final = b"[DONE]"
_COMPLETION: Final = msgspec.Raw(b'"chat.completion"')
_NOTHING: Final = (b"null", b'""', b"[]", b"{}")
_KEPT_BACK: Final = frozenset({"role", "tool_calls", "function_call"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Delta:
    """What may be shown of a piece: no calls, no role, nothing that says nothing."""

    fields: Members
    """Of its `delta`."""
    choice: Members = field(default_factory=dict)
    """The rest of its choice: `logprobs`, and what else there is."""
    head: Members = field(default_factory=dict)
    """The rest of its chunk: `id`, `model`, `created`, and what else there is."""


class Assembly:
    """One reply, the `nth` of its conversation."""

    def __init__(self, *, nth: int = 0) -> None:
        self._nth = nth
        self._bytes = 0
        self._halves = Halves()
        self._head: Members = {}
        self._choice: dict[str, Grown] = {}
        self._message: dict[str, Grown] = {}
        self._calls = _Calls()
        self._finish_reason: msgspec.Raw | None = None
        self._usage: Members | None = None
        self._is_done = False

    def feed(self, data: bytes) -> Delta | None:
        """What of a `data:` may be shown; ModelRefused for an error in it, ModelUnavailable for garbage."""
        if data == _DONE:
            self._is_done = True
            return None
        self._bytes += len(data)
        if self._bytes > MAX_REPLY_BYTES:
            raise ModelUnavailable(f"the model's reply is longer than {MAX_REPLY_BYTES} bytes")
        try:
            data.decode()
            chunk = decode_members(self._halves.mend(data))
            _check_error(chunk, data)
            return self._take(chunk)
        except UNREADABLE as exc:
            raise ModelUnavailable("the model's server sent something that is no chunk of a reply") from exc

    def finish(self) -> Reply:
        """The whole, or ModelUnavailable for one that broke off: no finish reason, and no `[DONE]` came.

        Whether what it calls is all that the model meant to say, nobody knows: none of it is run.
        """
        message, choice, calls = whole(self._message), whole(self._choice), self._calls.whole()
        if self._finish_reason is None and not (self._is_done and (message or calls)):
            raise ModelUnavailable("the model's server broke off its reply")
        if calls:
            message["tool_calls"] = encode_raw(calls)
        choice["finish_reason"] = self._finish_reason or NULL
        if "object" in self._head:
            self._head["object"] = _COMPLETION
        reply = make_reply(message, choice, self._head, nth=self._nth)
        reply.usage = self._usage
        return reply

    def _take(self, chunk: Members) -> Delta | None:
        choices = array_of(chunk.pop("choices", None))
        usage = object_of(chunk.pop("usage", None))
        self._usage = self._usage if usage is None else usage
        self._head |= {name: raw for name, raw in chunk.items() if raw != NULL or name not in self._head}
        choice = object_of(choices[0]) if choices else None
        if choice is None:
            return None
        delta = object_of(choice.pop("delta", None)) or {}
        for name in ("index", "message"):  # the latter is all there is so far, by servers that repeat it
            choice.pop(name, None)
        reason = choice.pop("finish_reason", NULL)
        self._finish_reason = self._finish_reason if reason == NULL else reason
        grow(self._choice, choice)
        for members in filter(None, map(object_of, array_of(delta.pop("tool_calls", None)))):
            self._calls.add(_Piece.of(members))
        grow(self._message, delta)
        fields = _said({name: raw for name, raw in delta.items() if name not in _KEPT_BACK})
        return Delta(fields=fields, choice=_said(choice), head=chunk) if fields else None


class _Calls:
    """The calls of a reply, from their pieces."""

    def __init__(self) -> None:
        self._all: list[_Call] = []
        self._latest: dict[int, _Call] = {}
        self._by_id: dict[tuple[int, str], _Call] = {}

    def add(self, piece: "_Piece") -> None:
        index = piece.index if piece.index is not None else self._all[-1].index if self._all else 0
        call = self._by_id.get((index, piece.call_id)) or self._latest.get(index)
        if call is None or call.is_over_before(piece):
            call = _Call(index=index)
            self._all.append(call)
        call.add(piece)
        self._latest[index] = call
        if call.call_id:
            self._by_id[index, call.call_id] = call

    def whole(self) -> list[Members]:
        return [whole(call.members) for call in sorted(self._all, key=lambda call: call.index)]


@dataclass(frozen=True, slots=True)
class _Piece:
    """One entry of a delta's `tool_calls`."""

    index: int | None
    call_id: str
    name: str
    arguments: str
    members: Members

    @classmethod
    def of(cls, members: Members) -> "_Piece":
        held = object_of(members.get("function")) or object_of(members.get("custom")) or {}
        return cls(
            index=_number(members.pop("index", NULL)),
            call_id=text_of(members.get("id")) or "",
            name=text_of(held.get("name")) or "",
            arguments=arguments_of(held.get("arguments", NULL)),
            members=members,
        )


@dataclass(slots=True)
class _Call:
    index: int
    call_id: str = ""
    last: str = ""
    """The last character of its arguments so far."""
    members: dict[str, Grown] = field(default_factory=dict)

    def is_over_before(self, piece: _Piece) -> bool:
        if not piece.name:
            return False
        if piece.call_id and self.call_id and piece.call_id != self.call_id:
            return True
        return self.last == "}" and piece.arguments.lstrip()[:1] == "{"

    def add(self, piece: _Piece) -> None:
        self.call_id = self.call_id or piece.call_id
        self.last = piece.arguments.rstrip()[-1:] or self.last
        grow(self.members, piece.members)


def _number(raw: msgspec.Raw) -> int | None:
    try:
        return msgspec.json.decode(raw, type=int | None)
    except msgspec.ValidationError:
        return None


def _said(members: Members) -> Members:
    return {name: raw for name, raw in members.items() if bytes(raw) not in _NOTHING}


def _check_error(chunk: Members, data: bytes) -> None:
    error = chunk.get("error", NULL)
    if bytes(error) in _NOTHING:
        return
    told = object_of(error) or {"message": error}
    status = _number(told.get("code", NULL)) or 0
    raise ModelRefused(
        text_of(told.get("message")) or "the model's server broke off its reply with an error",
        data={"status": status if 400 <= status < 600 else 502, "body": data.decode()},
    )
