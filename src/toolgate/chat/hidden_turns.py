"""Turns in which a model calls functions of the caller and tools of ours at once.

The caller is handed its own calls alone. The other half, what the model has called here and what came of
it, travels in the id of the first call handed over, and is put back when the caller answers. Nothing of it is
kept here, and nothing of it is ever run again. Signing it, binding it to somebody and opening it is the
door's.
"""

import hashlib
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

import msgspec

from toolgate.chat.parsing import get_member
from toolgate.chat.tool_calls import CallError, cut_text, parse_arguments
from toolgate.model.json_text import (
    NULL,
    UNREADABLE,
    Members,
    as_text,
    decode_array,
    decode_members,
    encode_raw,
)

ID_PREFIX: Final = "tgc_"
"""Begins the id of a call of the caller's own, where that carries what was done beside it."""
MAX_BYTES: Final = 48 * 1024
"""Compressed: it travels with every later request of its conversation."""
MAX_RAW_BYTES: Final = 512 * 1024
"""Before compression: opening a turn never takes more memory than this."""
MAX_RESTORED_BYTES: Final = 4 * 1024 * 1024
"""Of all turns of one request. Ids are short where what they hold compresses well, and can be sent again
and again: past this none is opened any more."""
_MARK: Final = ID_PREFIX.encode()
_CAPS: Final = (MAX_RAW_BYTES, *(65_536 >> halvings for halvings in range(9)))
"""How long a result may be, one after the other, until all of them fit."""
_FAST: Final = 1
_NOTHING: Final = b""

_encode = msgspec.json.encode
_decode = msgspec.json.decode

Results = tuple[tuple[str, str], ...]
"""(call id, text) of each call."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HiddenRound:
    """An assistant's message all of whose calls were answered here."""

    message: Members
    results: Results


@dataclass(frozen=True, slots=True, kw_only=True)
class HiddenTurn:
    """What a caller does not see of a turn that it is to go on with."""

    message: Members
    """The assistant's, with all calls."""
    results: Results
    """Of the calls that were answered here."""
    own_ids: tuple[str, ...]
    """The calls handed over, by the ids the model's server knows."""
    earlier: tuple[HiddenRound, ...] = ()
    """Rounds before this turn and after what the caller sent."""

    @property
    def is_empty(self) -> bool:
        """Whether the caller sees everything anyway."""
        return not self.results and not self.earlier


class _HiddenTurnWire(msgspec.Struct, array_like=True, forbid_unknown_fields=True):
    """As it travels."""

    message: Members
    results: Results
    own_ids: tuple[str, ...]
    earlier: tuple[tuple[Members, Results], ...]


def encode_hidden(turn: HiddenTurn, *, max_bytes: int = MAX_BYTES) -> bytes:
    """`turn` in at most `max_bytes`. What is too long is cut and says so; what cannot be is left out."""
    for smaller in _shrink_turn(turn):
        earlier = tuple((one.message, one.results) for one in smaller.earlier)
        raw = _encode(_HiddenTurnWire(smaller.message, smaller.results, smaller.own_ids, earlier))
        if len(raw) <= MAX_RAW_BYTES and len(data := zlib.compress(raw, _FAST)) <= max_bytes:
            return data
    return _NOTHING


def decode_hidden(data: bytes) -> HiddenTurn | None:
    """What `encode_hidden` made; None for anything else."""
    try:
        sent = _decode(zlib.decompressobj().decompress(data, MAX_RAW_BYTES), type=_HiddenTurnWire)
    except (*UNREADABLE, zlib.error):
        return None
    return HiddenTurn(
        message=sent.message,
        results=sent.results,
        own_ids=sent.own_ids,
        earlier=tuple(HiddenRound(message=message, results=results) for message, results in sent.earlier),
    )


def _shrink_turn(turn: HiddenTurn) -> Iterator[HiddenTurn]:
    for earlier in (turn.earlier, ()):
        results = [turn.results, *(one.results for one in earlier)]
        sizes = [len(text.encode()) for of_one in results for _, text in of_one]
        for cap in _CAPS:
            if sum(min(size, cap) for size in sizes) <= MAX_RAW_BYTES:
                cut = tuple(replace(one, results=_cut_results(one.results, cap)) for one in earlier)
                yield replace(turn, results=_cut_results(turn.results, cap), earlier=cut)
    # Arguments as long as that cannot be cut: the model is not told again what it called here.
    yield HiddenTurn(message={}, results=(), own_ids=turn.own_ids[:1])


def _cut_results(results: Results, cap: int) -> Results:
    return tuple((call_id, cut_text(text, cap)) for call_id, text in results)


def restore_turns(
    messages: Sequence[msgspec.Raw], open_turn: Callable[[str], HiddenTurn | None]
) -> tuple[msgspec.Raw, ...]:
    """`messages` with what was hidden back in its place. `open_turn` gets ids that look like ours.

    Total: an id that does not open becomes a short one, and its turn stays as the caller tells it.
    """
    if not any(_MARK in bytes(raw) for raw in messages):
        return tuple(messages)
    splicing = _TurnRestorer(open_turn)
    return tuple(one for raw in messages for one in splicing.take(raw))


def tool_message(call_id: str, content: str) -> msgspec.Raw:
    """The one message that answers a call."""
    return encode_raw({"role": "tool", "tool_call_id": call_id, "content": content})


def round_messages(one: HiddenRound) -> Iterator[msgspec.Raw]:
    """A round as it stands in a history."""
    yield encode_raw(one.message)
    yield from (tool_message(call_id, text) for call_id, text in one.results)


class _TurnRestorer:
    """Goes through the messages of one request."""

    def __init__(self, open_turn: Callable[[str], HiddenTurn | None]) -> None:
        self._open_turn = open_turn
        self._ids: dict[str, str] = {}
        """Ids of ours that were met → those that the model's server knows."""
        self._spliced_bytes = 0

    def take(self, raw: msgspec.Raw) -> Sequence[msgspec.Raw]:
        if _MARK not in bytes(raw):
            return (raw,)
        try:
            members = decode_members(raw)
            if get_member(members, "tool_calls") is not None:
                return self._take_calls(raw, members)
            return (self._take_result(raw, members),)
        except UNREADABLE:
            return (raw,)

    def _take_result(self, raw: msgspec.Raw, members: Members) -> msgspec.Raw:
        call_id = _text(members.get("tool_call_id"))
        if not call_id.startswith(ID_PREFIX):
            return raw
        return encode_raw({**members, "tool_call_id": self._ids.get(call_id) or shorten_id(call_id)})

    def _take_calls(self, raw: msgspec.Raw, members: Members) -> Sequence[msgspec.Raw]:
        calls = [decode_members(one) for one in decode_array(members["tool_calls"])]
        tokens = [call_id for call in calls if (call_id := _text(call.get("id"))).startswith(ID_PREFIX)]
        if not tokens:
            return (raw,)
        turn = self._open_first(tokens)
        handed = [
            {**call, "id": encode_raw(self._ids.get(call_id, call_id))}
            for call, call_id in _pair_with_ids(calls)
        ]
        if turn is None or not turn.message:
            return (encode_raw({**members, "tool_calls": handed}),)
        whole = _overlay_members(turn.message, members) | _restore_content(turn, members)
        whole["tool_calls"] = encode_raw(_merge_calls(turn, handed))
        spliced = (
            *(one for earlier in turn.earlier for one in round_messages(earlier)),
            *round_messages(HiddenRound(message=whole, results=turn.results)),
        )
        self._spliced_bytes += sum(map(len, spliced))
        return spliced

    def _open_first(self, tokens: Sequence[str]) -> HiddenTurn | None:
        """The turn that a message is of. It has one such id; more of them are somebody's own invention."""
        turn: HiddenTurn | None = None
        for token in tokens:
            self._ids[token] = shorten_id(token)
            may_open = turn is None and self._spliced_bytes < MAX_RESTORED_BYTES
            opened = self._open_turn(token) if may_open else None
            if opened is not None and opened.own_ids:
                turn = opened
                self._ids[token] = opened.own_ids[0]
        return turn


def shorten_id(token: str) -> str:
    """What an id that does not open is called from then on; the same wherever it stands."""
    return f"call_{hashlib.sha256(token.encode()).hexdigest()[:24]}"


def _merge_calls(turn: HiddenTurn, handed: Sequence[Members]) -> list[Members]:
    """All calls in their first order: those answered here as they were, the caller's as it tells them.

    A call that the caller no longer has is gone, for it will not be answered; one it has added stays.
    """
    answered = {call_id for call_id, _ in turn.results}
    theirs = {call_id: call for call, call_id in _pair_with_ids(handed)}
    merged = []
    for call, call_id in _pair_with_ids([decode_members(one) for one in _calls_of(turn.message)]):
        if call_id in answered:
            merged.append(call)
        elif call_id in theirs:
            merged.append(_overlay_call(call, theirs.pop(call_id)))
    return [*merged, *theirs.values()]


def _calls_of(message: Members) -> list[msgspec.Raw]:
    return decode_array(message.get("tool_calls", b"[]"))


def _overlay_call(original: Members, told: Members) -> Members:
    call = _overlay_members(original, told)
    if "function" in original and "function" in told:
        function = decode_members(told["function"])
        if isinstance(parse_arguments(_text(function.get("arguments"))), CallError):
            # What the model wrote so was mended before it was hidden.
            function.pop("arguments", None)
        call["function"] = encode_raw(_overlay_members(decode_members(original["function"]), function))
    return call


def _overlay_members(original: Members, told: Members) -> Members:
    """What is told wins, but for nulls: clients write them for all that they know and do not have."""
    return original | {name: raw for name, raw in told.items() if raw != NULL}


def _restore_content(turn: HiddenTurn, told: Members) -> Members:
    """The turn's own content where the caller tells what it was shown: the text of all rounds, one by one."""
    messages = [*(one.message for one in turn.earlier), turn.message]
    rest = _text(told.get("content"))
    for text in (_text(message.get("content")) for message in messages):
        rest = rest.strip().removeprefix(text.strip())
    is_unchanged = not rest.strip() and bytes(told.get("content", b"null"))[:1] != b"["
    return {"content": turn.message["content"]} if is_unchanged and "content" in turn.message else {}


def _pair_with_ids(calls: Sequence[Members]) -> list[tuple[Members, str]]:
    return [(call, _text(call.get("id"))) for call in calls]


def _text(raw: msgspec.Raw | None) -> str:
    return as_text(raw) or ""
