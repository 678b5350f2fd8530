"""Assembles one streamed completion from its deltas.

`feed` returns what to show at once; calls are held back until the end. Servers split calls in different ways:
some put all of them at index 0, some leave out ids, some send the name, or even another id, with each piece.
At an index that is in use:

    the piece has                                        then
    ---------------------------------------------------  -------------------------------
    the id of a call there                               that call continues
    another id, and a name                               a call begins
    a name, and `{` after arguments that ended in `}`    a call begins, whatever its id
    anything else                                        the last call there continues

Pieces are merged as JSON: strings are joined, objects merged, arrays extended, other values replaced. A value
that came once stays the JSON it came as. The cost grows with the bytes, not with the number of pieces: a
string of a million pieces is joined once, at the end.
"""

from dataclasses import dataclass, field
from operator import attrgetter
from typing import Final, TypeAlias

import msgspec

from toolgate.chat import model_completion
from toolgate.chat.model_completion import EMPTY_VALUES, ModelCompletion, SurrogateMender
from toolgate.errors import ModelRefused, ModelUnavailable
from toolgate.model import json_text
from toolgate.model.json_text import NULL, UNREADABLE, Members, as_object, as_text, decode_members, encode_raw

MAX_COMPLETION_BYTES: Final = 32 * 1_048_576
"""Of all chunks together. Arguments too long for a tool still fit, and get their own error."""
MAX_DEPTH: Final = 16  # below this level a later value replaces the earlier one; real deltas have four levels
_COMPLETION: Final = msgspec.Raw(b'"chat.completion"')
_HELD_BACK: Final = frozenset({"role", "tool_calls", "function_call"})
_LABELS: Final = frozenset({"id", "type", "role", "format"})
"""Servers never split these, but some repeat them with each piece."""
_EMPTY: Final = msgspec.Raw(b'""')


@dataclass(slots=True)
class _PartialArray:
    entries: "list[PartialValue]" = field(default_factory=list)
    places: dict[int, int] = field(default_factory=dict)
    """`index` of an entry → its place."""


PartialValue: TypeAlias = "msgspec.Raw | list[str] | _PartialArray | dict[str, PartialValue]"
"""A value as it came, the pieces of a text, an array, or an object."""


def merge_pieces(members: dict[str, PartialValue], pieces: Members, *, depth: int = MAX_DEPTH) -> None:
    for name, piece in pieces.items():
        old = members.get(name, NULL)
        if old == NULL:
            members[name] = piece
        elif piece != NULL and (name not in _LABELS or old == _EMPTY):
            members[name] = _merge_value(old, piece, depth=depth, is_name=name == "name")


def join_pieces(members: dict[str, PartialValue]) -> Members:
    return {name: _join_value(value) for name, value in members.items()}


def _merge_value(old: PartialValue, piece: msgspec.Raw, *, depth: int, is_name: bool = False) -> PartialValue:
    opened = _open_value(old, depth=depth) if depth else piece
    match opened, bytes(piece)[:1]:
        case list() as parts, b'"':
            text = msgspec.json.decode(piece, type=str)
            # Servers never split a name, but some repeat it with each piece.
            if not (is_name and parts == [text]):
                parts.append(text)
        case dict() as members, b"{":
            merge_pieces(members, decode_members(piece), depth=depth - 1)
        case _PartialArray() as array, b"[":
            _merge_array(array, piece, depth=depth - 1)
        case _:
            return piece
    return opened


def _merge_array(array: _PartialArray, piece: msgspec.Raw, *, depth: int) -> None:
    for entry in json_text.decode_array(piece):
        index = _read_number((as_object(entry) or {}).get("index", NULL))
        if index in array.places:
            place = array.places[index]
            array.entries[place] = _merge_value(array.entries[place], entry, depth=depth)
            continue
        if index is not None:
            array.places[index] = len(array.entries)
        array.entries.append(entry)


def _open_value(value: PartialValue, *, depth: int) -> PartialValue:
    if not isinstance(value, msgspec.Raw):
        return value
    match bytes(value)[:1]:
        case b'"':
            return [msgspec.json.decode(value, type=str)]
        case b"{":
            return dict(decode_members(value))
        case b"[":
            array = _PartialArray()
            _merge_array(array, value, depth=depth - 1)
            return array
        case _:
            return value


def _join_value(value: PartialValue) -> msgspec.Raw:
    match value:
        case list() as parts:
            return encode_raw("".join(parts))
        case dict() as members:
            return encode_raw(join_pieces(members))
        case _PartialArray(entries):
            return encode_raw([_join_value(entry) for entry in entries])
        case _:
            return value


@dataclass(frozen=True, slots=True, kw_only=True)
class CompletionDelta:
    """The part of a chunk to show: no calls, no role, no empty values."""

    fields: Members
    """Members of its `delta`."""
    choice: Members = field(default_factory=dict)
    """The other members of its choice: `logprobs` and so on."""
    head: Members = field(default_factory=dict)
    """The other members of the chunk: `id`, `model`, `created` and so on."""


@dataclass(slots=True)
class _PartialCall:
    index: int
    call_id: str = ""
    last: str = ""
    """The last character of its arguments so far."""
    members: dict[str, PartialValue] = field(default_factory=dict)

    def is_ended_by(self, next_id: str, next_arguments: str) -> bool:
        """Whether a piece with a name begins another call: see the table above."""
        is_other = bool(next_id and self.call_id and next_id != self.call_id)
        return is_other or (self.last == "}" and next_arguments.lstrip()[:1] == "{")


class CompletionAssembler:
    """Assembles one completion, the `nth` of its chat."""

    def __init__(self, *, nth: int = 0) -> None:
        self._nth = nth
        self._bytes = 0
        self._mender = SurrogateMender()
        self._head: Members = {}
        self._choice: dict[str, PartialValue] = {}
        self._message: dict[str, PartialValue] = {}
        self._calls: list[_PartialCall] = []
        self._latest: dict[int, _PartialCall] = {}
        self._by_id: dict[tuple[int, str], _PartialCall] = {}
        self._finish_reason: msgspec.Raw | None = None
        self._usage: Members | None = None
        self._is_done = False

    def feed(self, data: bytes) -> CompletionDelta | None:
        """Take the `data:` of one event. Raises ModelRefused for an error in it, else ModelUnavailable."""
        if data == b"[DONE]":
            self._is_done = True
            return None
        self._bytes += len(data)
        if self._bytes > MAX_COMPLETION_BYTES:
            raise ModelUnavailable(f"the model's completion is longer than {MAX_COMPLETION_BYTES} bytes")
        try:
            data.decode()
            chunk = decode_members(self._mender.mend(data))
            _check_error(chunk, data)
            return self._take(chunk)
        except UNREADABLE as exc:
            raise ModelUnavailable("the model's server sent an event that is not a completion chunk") from exc

    def finish(self) -> ModelCompletion:
        """Build the whole completion. Raises ModelUnavailable if it has neither a finish reason nor `[DONE]`:
        a stream that broke off may lack calls, so none of them runs."""
        message, choice = join_pieces(self._message), join_pieces(self._choice)
        calls = [join_pieces(call.members) for call in sorted(self._calls, key=attrgetter("index"))]
        if self._finish_reason is None and not (self._is_done and (message or calls)):
            raise ModelUnavailable("the model's server broke off its response")
        if calls:
            message["tool_calls"] = encode_raw(calls)
        choice["finish_reason"] = self._finish_reason or NULL
        if "object" in self._head:
            self._head["object"] = _COMPLETION
        completion = model_completion.build_completion(message, choice, self._head, nth=self._nth)
        completion.usage = self._usage
        return completion

    def _take(self, chunk: Members) -> CompletionDelta | None:
        choices = json_text.as_array(chunk.pop("choices", None))
        usage = as_object(chunk.pop("usage", None))
        self._usage = self._usage if usage is None else usage
        self._head |= {name: raw for name, raw in chunk.items() if raw != NULL or name not in self._head}
        choice = as_object(choices[0]) if choices else None
        if choice is None:
            return None
        delta = as_object(choice.pop("delta", None)) or {}
        for name in ("index", "message"):  # some servers repeat the message so far in each chunk
            choice.pop(name, None)
        reason = choice.pop("finish_reason", NULL)
        self._finish_reason = self._finish_reason if reason == NULL else reason
        merge_pieces(self._choice, choice)
        for members in filter(None, map(as_object, json_text.as_array(delta.pop("tool_calls", None)))):
            self._add_call(members)
        merge_pieces(self._message, delta)
        fields = _drop_empty({name: raw for name, raw in delta.items() if name not in _HELD_BACK})
        return CompletionDelta(fields=fields, choice=_drop_empty(choice), head=chunk) if fields else None

    def _add_call(self, piece: Members) -> None:
        number = _read_number(piece.pop("index", NULL))
        index = number if number is not None else self._calls[-1].index if self._calls else 0
        held = as_object(piece.get("function")) or as_object(piece.get("custom")) or {}
        arguments = model_completion.read_arguments(held.get("arguments", NULL))
        call_id, name = as_text(piece.get("id")) or "", as_text(held.get("name")) or ""
        call = self._by_id.get((index, call_id)) or self._latest.get(index)
        if call is None or (name and call.is_ended_by(call_id, arguments)):
            call = _PartialCall(index=index)
            self._calls.append(call)
        call.call_id = call.call_id or call_id
        call.last = arguments.rstrip()[-1:] or call.last
        merge_pieces(call.members, piece)
        self._latest[index] = call
        if call.call_id:
            self._by_id[index, call.call_id] = call


def _read_number(raw: msgspec.Raw) -> int | None:
    try:
        return msgspec.json.decode(raw, type=int | None)
    except msgspec.ValidationError:
        return None


def _drop_empty(members: Members) -> Members:
    return {name: raw for name, raw in members.items() if bytes(raw) not in EMPTY_VALUES}


def _check_error(chunk: Members, data: bytes) -> None:
    error = chunk.get("error", NULL)
    if bytes(error) in EMPTY_VALUES:
        return
    details = as_object(error) or {"message": error}
    status = _read_number(details.get("code", NULL)) or 0
    raise ModelRefused(
        as_text(details.get("message")) or "the model's server broke off its response with an error",
        data={"status": status if 400 <= status < 600 else 502, "body": data.decode()},
    )
