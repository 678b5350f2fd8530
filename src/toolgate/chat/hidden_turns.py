"""Turns in which a model calls functions of the client and tools of the gateway at once.

The client gets only its own calls. The other calls and their results travel in the id of the first call that
the client gets. The gateway restores them when the client sends its results; it never runs those calls again,
and no node keeps them. `gateway.chat` signs the id, binds it to a principal and opens it.
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
"""Of all turns of one request; the gateway opens no more. A client can repeat a short id many times."""
HIDDEN_MARK: Final = ID_PREFIX.encode()
_CAPS: Final = (MAX_RAW_BYTES, *(65_536 >> halvings for halvings in range(9)))
"""Lengths to which results are cut, one after the other, until all of them fit."""
_FAST: Final = 1  # level of zlib: its fastest

Results = tuple[tuple[str, str], ...]
"""(call id, text) of each call."""


class HiddenRound(msgspec.Struct, array_like=True, forbid_unknown_fields=True, frozen=True, kw_only=True):
    """An assistant's message and the results of its calls, in the form in which they travel."""

    message: Members
    results: Results


class HiddenTurn(HiddenRound, frozen=True, kw_only=True):
    """The part of a turn that the client does not see: the calls that ran here, and their results."""

    own_ids: tuple[str, ...]
    """The ids of the client's calls, as the model's server made them."""
    earlier: tuple[HiddenRound, ...] = ()
    """The rounds between the client's last message and this turn."""

    @property
    def is_empty(self) -> bool:
        return not self.results and not self.earlier


def encode_hidden(turn: HiddenTurn, *, max_bytes: int = MAX_BYTES) -> bytes:
    """Encode `turn` in at most `max_bytes`. Cuts long results with a note, and drops what it cannot cut."""
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
        sizes = [len(text.encode()) for pairs in results for _, text in pairs]
        for cap in _CAPS:
            if sum(min(size, cap) for size in sizes) <= MAX_RAW_BYTES:
                cut = tuple(replace(one, results=_cut_results(one.results, cap)) for one in earlier)
                yield replace(turn, results=_cut_results(turn.results, cap), earlier=cut)
    # Arguments cannot be cut. With ones this long, the model does not see its calls here again.
    yield HiddenTurn(message={}, results=(), own_ids=turn.own_ids[:1])


def _cut_results(results: Results, cap: int) -> Results:
    return tuple((call_id, cut_text(text, cap)) for call_id, text in results)


def encode_tool_message(call_id: str, content: str) -> msgspec.Raw:
    return encode_raw({"role": "tool", "tool_call_id": call_id, "content": content})


def shorten_id(token: str) -> str:
    """Make the id that replaces one that does not open: always the same for the same `token`."""
    return f"call_{hashlib.sha256(token.encode()).hexdigest()[:24]}"


def restore_turns(
    messages: Sequence[msgspec.Raw], open_turn: Callable[[str], HiddenTurn | None]
) -> tuple[msgspec.Raw, ...]:
    """Restore the hidden turns of `messages`. `open_turn` gets ids that look like the gateway's. Never fails:
    an id that does not open becomes a short one, and its turn stays as the client sent it."""
    if not any(HIDDEN_MARK in bytes(raw) for raw in messages):
        return tuple(messages)
    restorer = _TurnRestorer(open_turn)
    return tuple(one for raw in messages for one in restorer.take(raw))


class _TurnRestorer:
    def __init__(self, open_turn: Callable[[str], HiddenTurn | None]) -> None:
        self._open_turn = open_turn
        self._ids: dict[str, str] = {}
        """The gateway's id → the id of the model's server, of all messages so far."""
        self._restored_bytes = 0

    def take(self, raw: msgspec.Raw) -> Sequence[msgspec.Raw]:
        if HIDDEN_MARK not in bytes(raw):
            return (raw,)
        try:
            members = decode_members(raw)
            if get_member(members, "tool_calls") is not None:
                return self._restore_calls(raw, members)
            call_id = _read_text(members.get("tool_call_id"))
        except UNREADABLE:
            return (raw,)
        if not call_id.startswith(ID_PREFIX):
            return (raw,)
        return (encode_raw({**members, "tool_call_id": self._ids.get(call_id) or shorten_id(call_id)}),)

    def _restore_calls(self, raw: msgspec.Raw, members: Members) -> Sequence[msgspec.Raw]:
        calls = [decode_members(one) for one in decode_array(members["tool_calls"])]
        ids = [_read_text(call.get("id")) for call in calls]
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
            restored += [encode_raw(one.message), *(encode_tool_message(*result) for result in one.results)]
        self._restored_bytes += sum(map(len, restored))
        return restored

    def _open_first(self, tokens: Sequence[str]) -> HiddenTurn | None:
        """Open the turn of a message. The gateway made one such id; the client invented any others."""
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
    """Merge the calls in the model's order: those that ran here as they were, the client's as it sends them.
    Drops a call that the client left out, since it gets no result. A call that the client added stays."""
    finished = {call_id for call_id, _ in turn.results}
    theirs = {_read_text(call.get("id")): call for call in handed}
    merged = []
    for call in map(decode_members, decode_array(turn.message.get("tool_calls", b"[]"))):
        call_id = _read_text(call.get("id"))
        if call_id in finished:
            merged.append(call)
        elif call_id in theirs:
            merged.append(_overlay_call(call, theirs.pop(call_id)))
    return [*merged, *theirs.values()]


def _overlay_call(original: Members, sent: Members) -> Members:
    call = _overlay_members(original, sent)
    if "function" in original and "function" in sent:
        function = decode_members(sent["function"])
        if isinstance(parse_arguments(_read_text(function.get("arguments"))), CallError):
            # The model wrote invalid arguments. They were repaired before the turn was hidden: keep those.
            function.pop("arguments", None)
        call["function"] = encode_raw(_overlay_members(decode_members(original["function"]), function))
    return call


def _overlay_members(original: Members, sent: Members) -> Members:
    """Members that the client sends win, except nulls: clients write null for members without a value."""
    return original | {name: raw for name, raw in sent.items() if raw != NULL}


def _restore_content(turn: HiddenTurn, sent: Members) -> Members:
    """The turn's own content, if the client sends back the text that it saw: the texts of all rounds."""
    rest = _read_text(sent.get("content"))
    for message in (*(one.message for one in turn.earlier), turn.message):
        rest = rest.strip().removeprefix(_read_text(message.get("content")).strip())
    is_unchanged = not rest.strip() and bytes(sent.get("content", b"null"))[:1] != b"["
    return {"content": turn.message["content"]} if is_unchanged and "content" in turn.message else {}


def _read_text(raw: msgspec.Raw | None) -> str:
    return json_text.as_text(raw) or ""
