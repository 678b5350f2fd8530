"""Filters model responses: a client gets calls only of tools that it has declared.

The filter removes all other calls and changes nothing else. If a choice is empty then, the gateway prompts
the model once more, and the second response replaces the first. No tool runs here.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, TypeVar

import msgspec

from toolgate.chat.client_tools import ClientTools
from toolgate.chat.model_completion import add_usage
from toolgate.chat.parsing import get_member
from toolgate.errors import ModelUnavailable
from toolgate.model.json_text import NULL, UNREADABLE, Members, decode_array, decode_members, encode_raw

MAX_CALLS: Final = 1024  # of one response: more than any model makes, and little to remember
MAX_UNNAMED_PIECES: Final = 8  # of a call without a name: servers send it with the first piece or the second
MAX_CHOICES: Final = 128  # of one response: the limit of the OpenAI API
CLOSING: Final = "The model called only tools that this request does not declare."
"""The text for the client if both responses of a model are empty."""
NO_TOOLS: Final = ClientTools()
_EMPTY_VALUES: Final = (b"null", b'""', b"[]")
_CLOSING: Final = encode_raw(CLOSING)
_STOP: Final = msgspec.Raw(b'"stop"')
_CHUNK_CONTENT: Final = ("choices", "usage")
_SHARED: Final = ("id", "created")
_CALL_FINISHES: Final = (b'"tool_calls"', b'"function_call"')
_T = TypeVar("_T")


class _NamedWire(msgspec.Struct):
    name: str | None = None


class _CallWire(msgspec.Struct):
    """The members that identify a call and its tool, of a whole call or of a piece."""

    index: int | None = None
    id: str | int | None = None
    type: str | None = None
    function: _NamedWire | None = None
    custom: _NamedWire | None = None


_decode_call = msgspec.json.Decoder(_CallWire).decode
_decode_named = msgspec.json.Decoder(_NamedWire).decode
_decode_index = msgspec.json.Decoder(int).decode


def _read(raw: msgspec.Raw | bytes, decode: Callable[[msgspec.Raw | bytes], _T]) -> _T:
    """Decode a part of a response. Raises ModelUnavailable if it is invalid."""
    try:
        return decode(raw)
    except UNREADABLE as exc:
        raise ModelUnavailable("the model's server sent an invalid response") from exc


def _read_object(body: bytes) -> Members:
    """Decode a whole response, or one event. Checks UTF-8 here, since most strings are never decoded."""
    try:
        body.decode()
    except UnicodeDecodeError as exc:
        raise ModelUnavailable("the model's server sent a response that is not UTF-8") from exc
    return _read(body, decode_members)


def _read_part(whole: Members, name: str) -> Members:
    raw = get_member(whole, name)
    return {} if raw is None else _read(raw, decode_members)


class CallFilter:
    """Filters one choice of a response, whole or streamed.

    Servers send the name of a call once, in its first piece or soon after. Verdicts are kept by index and id,
    because some servers give all calls one index and only the ids differ.
    """

    def __init__(self, declared: ClientTools) -> None:
        self._declared = declared
        self._verdicts: dict[tuple[int | None, str | int | None], bool] = {}
        self._unnamed: dict[int | None, list[msgspec.Raw]] = {}
        self._numbers: dict[int, int] = {}
        """Old index → new: clients expect indices without gaps."""
        self._removed: set[int | None] = set()
        self._passes_legacy = False
        self._has_calls = False
        self.has_removed_calls = False
        """The filter removed a call, or holds pieces that have no name yet."""
        self.has_content = False
        self.has_role = False

    @property
    def lost_all_calls(self) -> bool:
        return self.has_removed_calls and not self._has_calls

    @property
    def is_empty(self) -> bool:
        """The filter removed calls, and nothing remains."""
        return self.lost_all_calls and not self.has_content

    def take(self, message: Members) -> Members:
        """Filter a message, or a piece of one. Returns `message` itself if it removes nothing."""
        self.has_content |= any(
            bytes(message.get(name, NULL)) not in _EMPTY_VALUES for name in ("content", "refusal", "audio")
        )
        self.has_role |= "role" in message
        filtered = dict(message)
        raws = get_member(message, "tool_calls")
        if raws is not None and (sent := _read(raws, decode_array)):
            kept = [piece for raw in sent for piece in self._filter_call(raw)]
            if not kept:
                del filtered["tool_calls"]
            elif kept != sent:
                filtered["tool_calls"] = encode_raw(kept)
        self._filter_legacy(filtered)
        return message if filtered == message else filtered

    def _filter_call(self, raw: msgspec.Raw) -> list[msgspec.Raw]:
        """Return the pieces that may pass now. The first piece with a name also releases those before it."""
        call = _read(raw, _decode_call)
        passes = self._judge(call)
        if len(self._verdicts) + len(self._unnamed) + len(self._removed) > MAX_CALLS:
            raise ModelUnavailable(f"the model's server sent a response with more than {MAX_CALLS} calls")
        if passes is None:
            self.has_removed_calls = True
            pieces = self._unnamed.setdefault(call.index, [])
            pieces += [raw] if len(pieces) < MAX_UNNAMED_PIECES else []
            return []
        waiting = self._unnamed.pop(call.index, [])
        if not passes:
            self.has_removed_calls = True
            self._removed.add(call.index)
            return []
        self._has_calls = True
        return [self._number(piece, call.index) for piece in (*waiting, raw)]

    def _judge(self, call: _CallWire) -> bool | None:
        """Decide whether a call passes. None: it has no name yet."""
        if call.type == "custom" or (call.custom is not None and not call.type):
            named, names = call.custom, self._declared.customs
        elif not call.type or call.type == "function":
            named, names = call.function, self._declared.functions
        else:
            return False
        verdicts = self._verdicts
        if named is not None and named.name:
            verdicts[call.index, call.id] = verdicts[call.index, None] = named.name in names
        return verdicts.get((call.index, call.id), verdicts.get((call.index, None)))

    def _number(self, raw: msgspec.Raw, index: int | None) -> msgspec.Raw:
        if index is None:
            return raw
        if index not in self._numbers:
            removed = [one for one in self._removed if one is not None and one not in self._numbers]
            number = index - sum(one < index for one in removed)
            while number in self._numbers.values():
                number += 1
            self._numbers[index] = number
        if self._numbers[index] == index:
            return raw
        piece = _read(raw, decode_members)
        piece["index"] = encode_raw(self._numbers[index])
        return encode_raw(piece)

    def _filter_legacy(self, message: Members) -> None:
        """Filter `function_call`, which responses had before `tool_calls`."""
        raw = get_member(message, "function_call")
        if raw is None:
            return
        call = _read(raw, _decode_named)
        if call.name:
            self._passes_legacy = call.name in self._declared.functions
        if self._passes_legacy:
            self._has_calls = True
        else:
            self.has_removed_calls = True
            del message["function_call"]


# Whole completions


@dataclass(frozen=True, slots=True)
class EmptyCompletion:
    """A completion with empty choices: prompt the model once more, then `complete` it."""

    completion: Members
    choices: list[tuple[Members, CallFilter]]

    def complete(self, body: bytes) -> bytes:
        """Fill the empty choices from a second completion. None of its calls passes."""
        second = _read_object(body)
        fills = dict(enumerate(_filter_choices(second, NO_TOOLS)))
        choices = [
            _fill_choice(choice, fills.get(at)) if calls.is_empty else choice
            for at, (choice, calls) in enumerate(self.choices)
        ]
        completion = {**self.completion, "choices": encode_raw(choices)}
        usage = add_usage(_read_part(self.completion, "usage"), _read_part(second, "usage"))
        if usage:
            completion["usage"] = encode_raw(usage)
        return msgspec.json.encode(completion)


def filter_completion(body: bytes, declared: ClientTools) -> bytes | EmptyCompletion:
    """Filter a whole completion. Returns `body` itself if it removes nothing."""
    completion = _read_object(body)
    filtered = _filter_choices(completion, declared)
    if any(calls.is_empty for _, calls in filtered):
        return EmptyCompletion(completion, filtered)
    if not any(calls.has_removed_calls for _, calls in filtered):
        return body
    return msgspec.json.encode({**completion, "choices": [choice for choice, _ in filtered]})


def _filter_choices(completion: Members, declared: ClientTools) -> list[tuple[Members, CallFilter]]:
    filtered = []
    for raw in _read_choices(completion):
        calls, choice = CallFilter(declared), _read(raw, decode_members)
        message = calls.take(_read_part(choice, "message"))
        if calls.has_removed_calls:
            choice |= {"message": encode_raw(message), "finish_reason": _finish_reason(choice, calls)}
        filtered.append((choice, calls))
    return filtered


def _fill_choice(choice: Members, fill: tuple[Members, CallFilter] | None) -> Members:
    if fill is not None and fill[1].has_content:
        return {**fill[0], "index": choice.get("index", NULL)}
    message = {**_read_part(choice, "message"), "content": _CLOSING}
    return {**choice, "message": encode_raw(message), "finish_reason": _STOP}


# Streams


class StreamFilter:
    """Filters a streamed response, event by event. It does not end an empty choice, and holds the usage back
    from then on: `StreamContinuation` sends both."""

    def __init__(self, declared: ClientTools) -> None:
        self._declared = declared
        self._filters: dict[int, CallFilter] = {}
        self._is_holding = False
        self._has_failed = False
        self.head: Members = {}
        """The first chunk without its content."""
        self.usage: Members | None = None

    @property
    def empty_choices(self) -> Mapping[int, CallFilter]:
        """The choices to continue once the stream has ended. None after an error in the stream: clients raise
        it and stop reading."""
        if self._has_failed:
            return {}
        return {index: one for index, one in self._filters.items() if one.is_empty}

    def feed(self, data: bytes) -> bytes | None:
        """Filter one event. Returns `data` itself if it removes nothing, None if nothing is left."""
        chunk = _read_object(data)
        sent = _read_choices(chunk)
        self._has_failed = self._has_failed or "error" in chunk
        self.head = self.head or {name: raw for name, raw in chunk.items() if name not in _CHUNK_CONTENT}
        kept = [choice for raw in sent if (choice := self._filter(raw)) is not None]
        usage = _read_part(chunk, "usage")
        self.usage = usage or self.usage
        if usage and self._is_holding:
            del chunk["usage"]
        elif kept == sent:
            return data
        return _encode_chunk(chunk, kept)

    def _filter(self, raw: msgspec.Raw) -> msgspec.Raw | None:
        original = _read(raw, decode_members)
        choice = _filter_repeated(original, self._declared)
        calls = self._filters.setdefault(_read_index(choice), CallFilter(self._declared))
        if len(self._filters) > MAX_CHOICES:
            raise ModelUnavailable(f"the model's server sent a response with more than {MAX_CHOICES} choices")
        sent = _read_part(choice, "delta")
        delta = calls.take(sent)
        finish = _finish_reason(choice, calls)
        if _is_over(choice) and calls.is_empty:
            self._is_holding = True
            finish = NULL
        if choice is original and delta is sent and finish == choice.get("finish_reason", NULL):
            return raw
        return _encode_choice({**choice, "finish_reason": finish}, delta)


class StreamContinuation:
    """Fills the empty choices of a stream from a second streamed response. None of its calls passes."""

    def __init__(self, first: StreamFilter) -> None:
        self._first = first
        self._empty_choices = first.empty_choices
        self._filters = {index: CallFilter(NO_TOOLS) for index in self._empty_choices}

    def feed(self, data: bytes) -> bytes | None:
        """Filter one event of the second response. None: nothing is left of it."""
        chunk = _read_object(data)
        chunk |= {name: raw for name, raw in self._first.head.items() if name in _SHARED and name in chunk}
        kept = [choice for raw in _read_choices(chunk) if (choice := self._filter(raw)) is not None]
        usage = _read_part(chunk, "usage")
        if usage:
            chunk["usage"] = encode_raw(add_usage(self._first.usage, usage))
        return _encode_chunk(chunk, kept)

    def end(self) -> bytes | None:
        """Encode a last chunk that ends all choices without content. None if all have content."""
        silent = [index for index, calls in self._filters.items() if not calls.has_content]
        closing = encode_raw({"content": _CLOSING})
        return _encode_chunk(
            self._first.head,
            [encode_raw({"index": index, "delta": closing, "finish_reason": _STOP}) for index in silent],
        )

    def _filter(self, raw: msgspec.Raw) -> msgspec.Raw | None:
        choice = _filter_repeated(_read(raw, decode_members), NO_TOOLS)
        index = _read_index(choice)
        if index not in self._empty_choices:
            return None
        calls = self._filters[index]
        delta = calls.take(_read_part(choice, "delta"))
        if self._empty_choices[index].has_role:
            delta = {name: raw for name, raw in delta.items() if name != "role"}
        finish = _finish_reason(choice, calls)
        if _is_over(choice) and not calls.has_content:
            calls.has_content = True
            delta, finish = {**delta, "content": _CLOSING}, _STOP
        return _encode_choice({**choice, "finish_reason": finish}, delta)


def _filter_repeated(choice: Members, declared: ClientTools) -> Members:
    """Filter `message` in a chunk too: some servers repeat the whole message so far there."""
    if "message" not in choice:
        return choice
    message = _read_part(choice, "message")
    kept = CallFilter(declared).take(message)
    return choice if kept is message else {**choice, "message": encode_raw(kept)}


def _read_choices(response: Members) -> list[msgspec.Raw]:
    return _read(response.get("choices", b"[]"), decode_array)


def _read_index(choice: Members) -> int:
    return _read(choice.get("index", b"0"), _decode_index)


def _is_over(choice: Members) -> bool:
    """Some servers send an empty finish reason instead of null."""
    return bytes(choice.get("finish_reason", NULL)) not in (b"null", b'""')


def _finish_reason(choice: Members, calls: CallFilter) -> msgspec.Raw:
    """The finish reason of a choice: `stop` instead of a call if no call remains."""
    reason = choice.get("finish_reason", NULL)
    return _STOP if calls.lost_all_calls and bytes(reason) in _CALL_FINISHES else reason


def _encode_choice(choice: Members, delta: Members) -> msgspec.Raw | None:
    if not delta and not _is_over(choice):
        return None
    return encode_raw({**choice, "delta": encode_raw(delta)})


def _encode_chunk(chunk: Members, choices: list[msgspec.Raw]) -> bytes | None:
    if not choices and not _read_part(chunk, "usage"):
        return None
    return msgspec.json.encode({**chunk, "choices": choices})
