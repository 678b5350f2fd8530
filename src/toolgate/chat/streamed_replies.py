"""JSON that comes in pieces: texts are joined, objects merged, lists made longer, all else is replaced.

What came once stays the JSON it came as. What it takes grows with what came, not with how often: a text
of a million pieces is joined once, at the end.

One streamed reply, put together from its deltas.

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
from typing import Final, TypeAlias

import msgspec

from toolgate.chat.replies import ModelCompletion, SurrogateMender, build_completion, read_arguments
from toolgate.errors import ModelRefused, ModelUnavailable
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

MAX_DEPTH: Final = 16
"""Below this level what comes later replaces what was there; real deltas have four."""

_LABELS: Final = frozenset({"id", "type", "role", "format"})
"""Said whole or not at all, and by some servers with every piece."""
_EMPTY: Final = msgspec.Raw(b'""')


@dataclass(slots=True)
class _PartialText:
    parts: list[str]


@dataclass(slots=True)
class _PartialArray:
    entries: "list[PartialValue]" = field(default_factory=list)
    places: dict[int, int] = field(default_factory=dict)
    """Where the entry stands that calls itself the n-th."""


@dataclass(slots=True)
class _PartialObject:
    members: "dict[str, PartialValue]"


PartialValue: TypeAlias = msgspec.Raw | _PartialText | _PartialArray | _PartialObject
"""A value, as far as it has come."""


class _IndexedEntry(msgspec.Struct):
    index: int | None = None


def merge_pieces(members: dict[str, PartialValue], pieces: Members, *, depth: int = MAX_DEPTH) -> None:
    """Add `pieces` to `members`."""
    for name, piece in pieces.items():
        old = members.get(name, NULL)
        if old == NULL:
            members[name] = piece
        elif piece != NULL and (name not in _LABELS or old == _EMPTY):
            members[name] = _merge_value(old, piece, depth=depth, is_name=name == "name")


def join_pieces(members: dict[str, PartialValue]) -> Members:
    """What has come, as JSON."""
    return {name: _join_value(grown) for name, grown in members.items()}


def _merge_value(old: PartialValue, piece: msgspec.Raw, *, depth: int, is_name: bool = False) -> PartialValue:
    opened = _open_value(old, depth=depth) if depth else piece
    match opened, bytes(piece)[:1]:
        case _PartialText(parts), b'"':
            text = msgspec.json.decode(piece, type=str)
            # Never cut up, but by some servers said with every piece.
            if not (is_name and parts == [text]):
                parts.append(text)
        case _PartialObject(members), b"{":
            merge_pieces(members, decode_members(piece), depth=depth - 1)
        case _PartialArray() as array, b"[":
            _merge_array(array, piece, depth=depth - 1)
        case _:
            return piece
    return opened


def _merge_array(array: _PartialArray, piece: msgspec.Raw, *, depth: int) -> None:
    for entry in decode_array(piece):
        index = _entry_index(entry)
        if index in array.places:
            place = array.places[index]
            array.entries[place] = _merge_value(array.entries[place], entry, depth=depth)
            continue
        if index is not None:
            array.places[index] = len(array.entries)
        array.entries.append(entry)


def _entry_index(entry: msgspec.Raw) -> int | None:
    try:
        return msgspec.json.decode(entry, type=_IndexedEntry).index
    except msgspec.ValidationError:
        return None


def _open_value(grown: PartialValue, *, depth: int) -> PartialValue:
    if not isinstance(grown, msgspec.Raw):
        return grown
    match bytes(grown)[:1]:
        case b'"':
            return _PartialText([msgspec.json.decode(grown, type=str)])
        case b"{":
            return _PartialObject(dict(decode_members(grown)))
        case b"[":
            array = _PartialArray()
            _merge_array(array, grown, depth=depth - 1)
            return array
        case _:
            return grown


def _join_value(grown: PartialValue) -> msgspec.Raw:
    match grown:
        case _PartialText(parts):
            return encode_raw("".join(parts))
        case _PartialObject(members):
            return encode_raw(join_pieces(members))
        case _PartialArray(entries):
            return encode_raw([_join_value(entry) for entry in entries])
        case _:
            return grown


MAX_REPLY_BYTES: Final = 32 * 1_048_576
"""Of all its chunks. Arguments that are too long for a tool come through, and are refused as such."""

_DONE: Final = b"[DONE]"
_COMPLETION: Final = msgspec.Raw(b'"chat.completion"')
_NOTHING: Final = (b"null", b'""', b"[]", b"{}")
_KEPT_BACK: Final = frozenset({"role", "tool_calls", "function_call"})


@dataclass(frozen=True, slots=True, kw_only=True)
class CompletionDelta:
    """What may be shown of a piece: no calls, no role, nothing that says nothing."""

    fields: Members
    """Of its `delta`."""
    choice: Members = field(default_factory=dict)
    """The rest of its choice: `logprobs`, and what else there is."""
    head: Members = field(default_factory=dict)
    """The rest of its chunk: `id`, `model`, `created`, and what else there is."""


class CompletionAssembler:
    """One reply, the `nth` of its conversation."""

    def __init__(self, *, nth: int = 0) -> None:
        self._nth = nth
        self._bytes = 0
        self._halves = SurrogateMender()
        self._head: Members = {}
        self._choice: dict[str, PartialValue] = {}
        self._message: dict[str, PartialValue] = {}
        self._calls = _PartialCalls()
        self._finish_reason: msgspec.Raw | None = None
        self._usage: Members | None = None
        self._is_done = False

    def feed(self, data: bytes) -> CompletionDelta | None:
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

    def finish(self) -> ModelCompletion:
        """The whole, or ModelUnavailable for one that broke off: no finish reason, and no `[DONE]` came.

        Whether what it calls is all that the model meant to say, nobody knows: none of it is run.
        """
        message, choice, calls = join_pieces(self._message), join_pieces(self._choice), self._calls.whole()
        if self._finish_reason is None and not (self._is_done and (message or calls)):
            raise ModelUnavailable("the model's server broke off its reply")
        if calls:
            message["tool_calls"] = encode_raw(calls)
        choice["finish_reason"] = self._finish_reason or NULL
        if "object" in self._head:
            self._head["object"] = _COMPLETION
        reply = build_completion(message, choice, self._head, nth=self._nth)
        reply.usage = self._usage
        return reply

    def _take(self, chunk: Members) -> CompletionDelta | None:
        choices = as_array(chunk.pop("choices", None))
        usage = as_object(chunk.pop("usage", None))
        self._usage = self._usage if usage is None else usage
        self._head |= {name: raw for name, raw in chunk.items() if raw != NULL or name not in self._head}
        choice = as_object(choices[0]) if choices else None
        if choice is None:
            return None
        delta = as_object(choice.pop("delta", None)) or {}
        for name in ("index", "message"):  # the latter is all there is so far, by servers that repeat it
            choice.pop(name, None)
        reason = choice.pop("finish_reason", NULL)
        self._finish_reason = self._finish_reason if reason == NULL else reason
        merge_pieces(self._choice, choice)
        for members in filter(None, map(as_object, as_array(delta.pop("tool_calls", None)))):
            self._calls.add(_CallPiece.of(members))
        merge_pieces(self._message, delta)
        fields = _drop_empty({name: raw for name, raw in delta.items() if name not in _KEPT_BACK})
        return CompletionDelta(fields=fields, choice=_drop_empty(choice), head=chunk) if fields else None


class _PartialCalls:
    """The calls of a reply, from their pieces."""

    def __init__(self) -> None:
        self._all: list[_PartialCall] = []
        self._latest: dict[int, _PartialCall] = {}
        self._by_id: dict[tuple[int, str], _PartialCall] = {}

    def add(self, piece: "_CallPiece") -> None:
        index = piece.index if piece.index is not None else self._all[-1].index if self._all else 0
        call = self._by_id.get((index, piece.call_id)) or self._latest.get(index)
        if call is None or call.is_over_before(piece):
            call = _PartialCall(index=index)
            self._all.append(call)
        call.add(piece)
        self._latest[index] = call
        if call.call_id:
            self._by_id[index, call.call_id] = call

    def whole(self) -> list[Members]:
        return [join_pieces(call.members) for call in sorted(self._all, key=lambda call: call.index)]


@dataclass(frozen=True, slots=True)
class _CallPiece:
    """One entry of a delta's `tool_calls`."""

    index: int | None
    call_id: str
    name: str
    arguments: str
    members: Members

    @classmethod
    def of(cls, members: Members) -> "_CallPiece":
        held = as_object(members.get("function")) or as_object(members.get("custom")) or {}
        return cls(
            index=_read_number(members.pop("index", NULL)),
            call_id=as_text(members.get("id")) or "",
            name=as_text(held.get("name")) or "",
            arguments=read_arguments(held.get("arguments", NULL)),
            members=members,
        )


@dataclass(slots=True)
class _PartialCall:
    index: int
    call_id: str = ""
    last: str = ""
    """The last character of its arguments so far."""
    members: dict[str, PartialValue] = field(default_factory=dict)

    def is_over_before(self, piece: _CallPiece) -> bool:
        if not piece.name:
            return False
        if piece.call_id and self.call_id and piece.call_id != self.call_id:
            return True
        return self.last == "}" and piece.arguments.lstrip()[:1] == "{"

    def add(self, piece: _CallPiece) -> None:
        self.call_id = self.call_id or piece.call_id
        self.last = piece.arguments.rstrip()[-1:] or self.last
        merge_pieces(self.members, piece.members)


def _read_number(raw: msgspec.Raw) -> int | None:
    try:
        return msgspec.json.decode(raw, type=int | None)
    except msgspec.ValidationError:
        return None


def _drop_empty(members: Members) -> Members:
    return {name: raw for name, raw in members.items() if bytes(raw) not in _NOTHING}


def _check_error(chunk: Members, data: bytes) -> None:
    error = chunk.get("error", NULL)
    if bytes(error) in _NOTHING:
        return
    told = as_object(error) or {"message": error}
    status = _read_number(told.get("code", NULL)) or 0
    raise ModelRefused(
        as_text(told.get("message")) or "the model's server broke off its reply with an error",
        data={"status": status if 400 <= status < 600 else 502, "body": data.decode()},
    )
