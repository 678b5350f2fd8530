"""Turns in which a model calls functions of the client and tools of the gateway at once.

The client gets only its own calls. The other half, what the model called here and the results, travels in the
id of the first call that the client gets, and is restored when the client sends the results. No node keeps
it, and nothing of it ever runs again. Signing an id, binding it to a principal and opening it is up to
`gateway.chat`.
"""

import hashlib
import zlib
from collections.abc import Callable, Iterator, Sequence
from typing import Final

import msgspec
from msgspec.structs import replace

from toolgate.chat.parsing import get_member
from toolgate.chat.tool_calls import CallError, cut_text, parse_arguments
from toolgate.model import json_text
from toolgate.model.json_text import NULL, UNREADABLE, Members, decode_array, decode_members, encode_raw

ID_PREFIX: Final = "tgc_"
"""Starts the id of a client's call that carries a hidden turn."""
MAX_BYTES: Final = 48 * 1024  # compressed: it travels with every later request of its chat
MAX_RAW_BYTES: Final = 512 * 1024  # before compression: opening a turn never takes more memory than this
MAX_RESTORED_BYTES: Final = 4 * 1024 * 1024
"""Of all turns of one request; further ones are not opened. A client can send a short id again and again."""
HIDDEN_MARK: Final = ID_PREFIX.encode()
_CAPS: Final = (MAX_RAW_BYTES, *(65_536 >> halvings for halvings in range(9)))
"""Lengths to which results are cut, one after the other, until all of them fit."""
_FAST: Final = 1  # level of zlib: its fastest

Results = tuple[tuple[str, str], ...]
"""(call id, text) of each call."""


class HiddenRound(msgspec.Struct, array_like=True, forbid_unknown_fields=True, frozen=True, kw_only=True):
    """An assistant's message, and the results of its calls. Travels in this form."""

    message: Members
    results: Results


class HiddenTurn(HiddenRound, frozen=True, kw_only=True):
    """What a client does not see of a turn that it has to continue: only some of its calls ran here."""

    own_ids: tuple[str, ...]
    """The calls handed over, by the ids of the model's server."""
    earlier: tuple[HiddenRound, ...] = ()
    """Rounds before this turn and after what the client sent."""

    @property
    def is_empty(self) -> bool:
        return not self.results and not self.earlier


def encode_hidden(turn: HiddenTurn, *, max_bytes: int = MAX_BYTES) -> bytes:
    """Encode `turn` in at most `max_bytes`.

    Long results are cut with a note; what cannot be cut is left out.
    """
    for smaller in _shrink_turn(turn):
        raw = msgspec.json.encode(smaller)
        if len(raw) <= MAX_RAW_BYTES and len(data := zlib.compress(raw, _FAST)) <= max_bytes:
            return data
    return b""


def decode_hidden(data: bytes) -> HiddenTurn | None:
    """Decode what `encode_hidden` made; None for anything else."""
    try:
        return msgspec.json.decode(zlib.decompressobj().decompress(data, MAX_RAW_BYTES), type=HiddenTurn)
    except (*UNREADABLE, zlib.error):
        return None


def _shrink_turn(turn: HiddenTurn) -> Iterator[HiddenTurn]:
    for earlier in (turn.earlier, ()):
        results = [turn.results, *(one.results for one in earlier)]
        sizes = [len(text.encode()) for of_one in results for _, text in of_one]
        for cap in _CAPS:
            if sum(min(size, cap) for size in sizes) <= MAX_RAW_BYTES:
                cut = tuple(replace(one, results=_cut_results(one.results, cap)) for one in earlier)
                yield replace(turn, results=_cut_results(turn.results, cap), earlier=cut)
    # Such long arguments cannot be cut: the model does not see again what it called here.
    yield HiddenTurn(message={}, results=(), own_ids=turn.own_ids[:1])


def _cut_results(results: Results, cap: int) -> Results:
    return tuple((call_id, cut_text(text, cap)) for call_id, text in results)


def tool_message(call_id: str, content: str) -> msgspec.Raw:
    return encode_raw({"role": "tool", "tool_call_id": call_id, "content": content})


def shorten_id(token: str) -> str:
    """The id that replaces one that does not open; the same wherever it occurs."""
    return f"call_{hashlib.sha256(token.encode()).hexdigest()[:24]}"


def restore_turns(
    messages: Sequence[msgspec.Raw], open_turn: Callable[[str], HiddenTurn | None]
) -> tuple[msgspec.Raw, ...]:
    """Put hidden turns back in their places. `open_turn` gets ids that look like the gateway's. Never fails:
    an id that does not open becomes a short one, and its turn stays as the client sent it."""
    if not any(HIDDEN_MARK in bytes(raw) for raw in messages):
        return tuple(messages)
    restorer = _TurnRestorer(open_turn)
    return tuple(one for raw in messages for one in restorer.take(raw))


class _TurnRestorer:
    def __init__(self, open_turn: Callable[[str], HiddenTurn | None]) -> None:
        self._open_turn = open_turn
        self._ids: dict[str, str] = {}
        """The gateway's ids so far → those of the model's server."""
        self._restored_bytes = 0

    def take(self, raw: msgspec.Raw) -> Sequence[msgspec.Raw]:
        if HIDDEN_MARK not in bytes(raw):
            return (raw,)
        try:
            members = decode_members(raw)
            if get_member(members, "tool_calls") is not None:
                return self._restore_calls(raw, members)
            call_id = _text(members.get("tool_call_id"))
        except UNREADABLE:
            return (raw,)
        if not call_id.startswith(ID_PREFIX):
            return (raw,)
        return (encode_raw({**members, "tool_call_id": self._ids.get(call_id) or shorten_id(call_id)}),)

    def _restore_calls(self, raw: msgspec.Raw, members: Members) -> Sequence[msgspec.Raw]:
        calls = [decode_members(one) for one in decode_array(members["tool_calls"])]
        ids = [_text(call.get("id")) for call in calls]
        tokens = [call_id for call_id in ids if call_id.startswith(ID_PREFIX)]
        if not tokens:
            return (raw,)
        turn = self._open_first(tokens)
        for call, call_id in zip(calls, ids, strict=True):
            call["id"] = encode_raw(self._ids.get(call_id, call_id))
        if turn is None or not turn.message:
            return (encode_raw({**members, "tool_calls": calls}),)
        whole = _overlay_members(turn.message, members) | _restore_content(turn, members)
        whole["tool_calls"] = encode_raw(_merge_calls(turn, calls))
        rounds = (*turn.earlier, HiddenRound(message=whole, results=turn.results))
        restored = []
        for one in rounds:
            restored += [encode_raw(one.message), *(tool_message(*result) for result in one.results)]
        self._restored_bytes += sum(map(len, restored))
        return restored

    def _open_first(self, tokens: Sequence[str]) -> HiddenTurn | None:
        """Open the turn of a message. It has one such id; any others are the client's own invention."""
        turn: HiddenTurn | None = None
        for token in tokens:
            self._ids[token] = shorten_id(token)
            may_open = turn is None and self._restored_bytes < MAX_RESTORED_BYTES
            opened = self._open_turn(token) if may_open else None
            if opened is not None and opened.own_ids:
                turn = opened
                self._ids[token] = opened.own_ids[0]
        return turn


def _merge_calls(turn: HiddenTurn, handed: Sequence[Members]) -> list[Members]:
    """All calls in their first order: those that ran here as they were, the client's as it sends them. A call
    that the client left out will not be answered, and is gone; one that it added stays."""
    answered = {call_id for call_id, _ in turn.results}
    theirs = {_text(call.get("id")): call for call in handed}
    merged = []
    for call in map(decode_members, decode_array(turn.message.get("tool_calls", b"[]"))):
        call_id = _text(call.get("id"))
        if call_id in answered:
            merged.append(call)
        elif call_id in theirs:
            merged.append(_overlay_call(call, theirs.pop(call_id)))
    return [*merged, *theirs.values()]


def _overlay_call(original: Members, sent: Members) -> Members:
    call = _overlay_members(original, sent)
    if "function" in original and "function" in sent:
        function = decode_members(sent["function"])
        if isinstance(parse_arguments(_text(function.get("arguments"))), CallError):
            # The model wrote them so: they were repaired before the turn was hidden.
            function.pop("arguments", None)
        call["function"] = encode_raw(_overlay_members(decode_members(original["function"]), function))
    return call


def _overlay_members(original: Members, sent: Members) -> Members:
    """What the client sends wins, except nulls: clients write them for members that they know and do not
    have."""
    return original | {name: raw for name, raw in sent.items() if raw != NULL}


def _restore_content(turn: HiddenTurn, sent: Members) -> Members:
    """The turn's own content, if the client sends what it was shown: the texts of all rounds, one by one."""
    rest = _text(sent.get("content"))
    for message in (*(one.message for one in turn.earlier), turn.message):
        rest = rest.strip().removeprefix(_text(message.get("content")).strip())
    is_unchanged = not rest.strip() and bytes(sent.get("content", b"null"))[:1] != b"["
    return {"content": turn.message["content"]} if is_unchanged and "content" in turn.message else {}


def _text(raw: msgspec.Raw | None) -> str:
    return json_text.as_text(raw) or ""
