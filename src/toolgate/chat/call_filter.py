"""What a model's answer may ask of a client: only tools that the client has declared.

Calls of anything else are taken out, whatever else is said stays as it came. Nothing is ever run here.

Answers of a model, whole and streamed, without the calls that their request does not declare.

Where nothing remains the model is to be asked once more, and that answer takes the place of the first.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, TypeVar

import msgspec

from toolgate.chat.client_tools import ClientTools
from toolgate.chat.replies import add_usage
from toolgate.errors import ModelUnavailable
from toolgate.model.json_text import NULL, UNREADABLE, Members, encode_raw

MAX_CALLS: Final = 1024
"""Of one answer. More than any model makes, and little to remember."""
MAX_UNNAMED_PIECES: Final = 8
"""Of a call that has no name yet: it comes with the first piece, or with the next."""
_EMPTY_VALUES: Final = (b"null", b'""', b"[]")
_CONTENT_MEMBERS: Final = ("content", "refusal", "audio")
_T = TypeVar("_T")
Decoder = msgspec.json.Decoder


class _NamedWire(msgspec.Struct):
    name: str | None = None


class _CallWire(msgspec.Struct):
    """A call, or a piece of one, as far as it says what is called."""

    index: int | None = None
    id: str | int | None = None
    type: str | None = None
    function: _NamedWire | None = None
    custom: _NamedWire | None = None


NO_TOOLS: Final = ClientTools()
MEMBERS: Final[Decoder[Members]] = Decoder(Members)
RAWS: Final[Decoder[list[msgspec.Raw]]] = Decoder(list[msgspec.Raw])
_MEMBERS_OR_NULL: Final[Decoder[Members | None]] = Decoder(Members | None)
_RAWS_OR_NULL: Final[Decoder[list[msgspec.Raw] | None]] = Decoder(list[msgspec.Raw] | None)
_CALL: Final[Decoder[_CallWire]] = Decoder(_CallWire)
_NAMED_OR_NULL: Final[Decoder[_NamedWire | None]] = Decoder(_NamedWire | None)


def read_answer(raw: msgspec.Raw | bytes, decoder: Decoder[_T]) -> _T:
    """A part of an answer; ModelUnavailable where it is none."""
    try:
        return decoder.decode(raw)
    except UNREADABLE as exc:
        raise ModelUnavailable("the model's server sent an answer that cannot be read") from exc


def read_object(body: bytes) -> Members:
    """A whole answer, or an event of one. Its texts are looked at late or never: they are checked here."""
    try:
        body.decode()
    except UnicodeDecodeError as exc:
        raise ModelUnavailable("the model's server sent an answer that is not UTF-8") from exc
    return read_answer(body, MEMBERS)


def read_part(whole: Members, name: str) -> Members:
    """The object that is a member of `whole`: an empty one where there is none."""
    return read_answer(whole.get(name, NULL), _MEMBERS_OR_NULL) or {}


class CallFilter:
    """What of one choice of an answer passes, whether it comes whole or in pieces.

    The name of a call comes once, in the first piece or soon after; what is known of a call is kept by its
    index and its id, as some servers give one index to all calls and tell them apart by their ids.
    """

    def __init__(self, declared: ClientTools) -> None:
        self._declared = declared
        self._verdicts: dict[tuple[int | None, str | int | None], bool] = {}
        self._unnamed: dict[int | None, list[msgspec.Raw]] = {}
        self._numbers: dict[int, int] = {}
        """What each index that passes has become, as none may be left out of those a client adds up by."""
        self._removed: set[int | None] = set()
        self._legacy = False
        self._has_calls = False
        self.has_removed_calls = False
        """Something was taken out, or waits for its name."""
        self.has_content = False
        """Something was said to people."""
        self.has_role = False

    @property
    def lost_all_calls(self) -> bool:
        """Calls were taken out, and none remains."""
        return self.has_removed_calls and not self._has_calls

    @property
    def is_empty(self) -> bool:
        """Nothing remains at all."""
        return self.lost_all_calls and not self.has_content

    def take(self, message: Members) -> Members:
        """A message, or a piece of one, without the calls that do not pass: itself where it has none."""
        self.has_content = self.has_content or any(
            bytes(message.get(one, NULL)) not in _EMPTY_VALUES for one in _CONTENT_MEMBERS
        )
        self.has_role = self.has_role or "role" in message
        filtered = dict(message)
        self._take_calls(filtered)
        self._take_legacy(filtered)
        return message if filtered == message else filtered

    def _take_calls(self, message: Members) -> None:
        sent = read_answer(message.get("tool_calls", NULL), _RAWS_OR_NULL)
        if not sent:
            return
        kept = [piece for raw in sent for piece in self._sift(raw)]
        if not kept:
            del message["tool_calls"]
        elif kept != sent:
            message["tool_calls"] = encode_raw(kept)

    def _sift(self, raw: msgspec.Raw) -> list[msgspec.Raw]:
        """The pieces that may pass now: with the first that has a name also those that waited for it."""
        call = read_answer(raw, _CALL)
        passes = self._judge(call)
        if len(self._verdicts) + len(self._unnamed) + len(self._removed) > MAX_CALLS:
            raise ModelUnavailable(f"the model's server sent an answer with more than {MAX_CALLS} calls")
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
        """Whether a call passes. None: it has not been named yet."""
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
            gone = [one for one in self._removed if one is not None and one not in self._numbers]
            number = index - sum(one < index for one in gone)
            while number in self._numbers.values():
                number += 1
            self._numbers[index] = number
        if self._numbers[index] == index:
            return raw
        piece = read_answer(raw, MEMBERS)
        piece["index"] = msgspec.Raw(b"%d" % self._numbers[index])
        return encode_raw(piece)

    def _take_legacy(self, message: Members) -> None:
        """The one `function_call` that answers had before there were `tool_calls`."""
        call = read_answer(message.get("function_call", NULL), _NAMED_OR_NULL)
        if call is None:
            return
        if call.name:
            self._legacy = call.name in self._declared.functions
        if self._legacy:
            self._has_calls = True
        else:
            self.has_removed_calls = True
            del message["function_call"]


MAX_CHOICES: Final = 128
"""Of one answer, as many as the OpenAI API makes."""
CLOSING: Final = "The model asked only for tools that this request does not declare."
"""What is answered where a model, asked twice, has said nothing."""
_CLOSING: Final = encode_raw(CLOSING)
_STOP: Final = msgspec.Raw(b'"stop"')
_NONE: Final = msgspec.Raw(b"[]")
_ZERO: Final = msgspec.Raw(b"0")
_INT: Final[Decoder[int]] = Decoder(int)
_CHUNK_CONTENT: Final = ("choices", "usage")
_SHARED: Final = ("id", "created")
_CALL_FINISHES: Final = (b'"tool_calls"', b'"function_call"')


@dataclass(frozen=True, slots=True, kw_only=True)
class EmptyCompletion:
    """A completion of which some choices say nothing: the model is to be asked once more."""

    completion: Members
    choices: tuple[Members, ...]
    unanswered: frozenset[int]

    def complete(self, body: bytes) -> bytes:
        """It, with what a second completion, `body`, says there. No call of that one is passed on."""
        second = read_object(body)
        answers = dict(enumerate(_filter_choices(second, NO_TOOLS)))
        choices = [
            _fill_choice(choice, answers.get(at)) if at in self.unanswered else choice
            for at, choice in enumerate(self.choices)
        ]
        completion = {**self.completion, "choices": encode_raw(choices)}
        usage = add_usage(read_part(self.completion, "usage"), read_part(second, "usage"))
        if usage:
            completion["usage"] = encode_raw(usage)
        return msgspec.json.encode(completion)


def filter_completion(body: bytes, declared: ClientTools) -> bytes | EmptyCompletion:
    """A whole completion without the calls that are not declared: `body` itself where it has none."""
    completion = read_object(body)
    sifted = _filter_choices(completion, declared)
    choices = tuple(choice for choice, _ in sifted)
    unanswered = frozenset(at for at, (_, sieve) in enumerate(sifted) if sieve.is_empty)
    if unanswered:
        return EmptyCompletion(completion=completion, choices=choices, unanswered=unanswered)
    if not any(sieve.has_removed_calls for _, sieve in sifted):
        return body
    return msgspec.json.encode({**completion, "choices": encode_raw(choices)})


def _filter_choices(completion: Members, declared: ClientTools) -> list[tuple[Members, CallFilter]]:
    return [_filter_choice(raw, declared) for raw in _read_choices(completion)]


def _filter_choice(raw: msgspec.Raw, declared: ClientTools) -> tuple[Members, CallFilter]:
    sieve = CallFilter(declared)
    choice = read_answer(raw, MEMBERS)
    message = sieve.take(read_part(choice, "message"))
    if sieve.has_removed_calls:
        choice |= {"message": encode_raw(message), "finish_reason": _finish_reason(choice, sieve)}
    return choice, sieve


def _fill_choice(choice: Members, answer: tuple[Members, CallFilter] | None) -> Members:
    if answer is not None and answer[1].has_content:
        return {**answer[0], "index": choice.get("index", NULL)}
    message = {**read_part(choice, "message"), "content": _CLOSING}
    return {**choice, "message": encode_raw(message), "finish_reason": _STOP}


class StreamFilter:
    """A streamed answer, event by event, without the calls that are not declared.

    A choice of which nothing remains is not ended, and from then on the usage is kept back: both come with
    `StreamContinuation`.
    """

    def __init__(self, declared: ClientTools) -> None:
        self._declared = declared
        self._sieves: dict[int, CallFilter] = {}
        self._is_holding = False
        self._has_failed = False
        self.head: Members = {}
        """The first chunk, but for what it says."""
        self.usage: Members | None = None

    @property
    def unanswered(self) -> Mapping[int, CallFilter]:
        """The choices of which nothing remains: when the stream is over the model is asked once more.

        None where the stream told of an error: clients have raised it, and hear no more.
        """
        if self._has_failed:
            return {}
        return {index: sieve for index, sieve in self._sieves.items() if sieve.is_empty}

    def feed(self, data: bytes) -> bytes | None:
        """What becomes of one event: `data` itself where nothing is taken out, None where nothing is left."""
        chunk = read_object(data)
        sent = _read_choices(chunk)
        self._has_failed = self._has_failed or "error" in chunk
        self.head = self.head or {name: raw for name, raw in chunk.items() if name not in _CHUNK_CONTENT}
        kept = [choice for raw in sent if (choice := self._filter(raw)) is not None]
        usage = read_part(chunk, "usage")
        self.usage = usage or self.usage
        if usage and self._is_holding:
            del chunk["usage"]
        elif kept == sent:
            return data
        return _encode_chunk(chunk, kept)

    def _filter(self, raw: msgspec.Raw) -> msgspec.Raw | None:
        original = read_answer(raw, MEMBERS)
        choice = _filter_repeated(original, self._declared)
        sieve = self._sieves.setdefault(_read_index(choice), CallFilter(self._declared))
        if len(self._sieves) > MAX_CHOICES:
            raise ModelUnavailable(f"the model's server sent an answer with more than {MAX_CHOICES} choices")
        sent = read_part(choice, "delta")
        delta = sieve.take(sent)
        finish = _finish_reason(choice, sieve)
        if _is_over(choice) and sieve.is_empty:
            self._is_holding = True
            finish = NULL
        if choice is original and delta is sent and finish == choice.get("finish_reason", NULL):
            return raw
        return _encode_choice({**choice, "finish_reason": finish}, delta)


class StreamContinuation:
    """A second streamed answer as the rest of a first of which nothing remained. No call of it passes."""

    def __init__(self, first: StreamFilter) -> None:
        self._head = first.head
        self._usage = first.usage
        self._unanswered = dict(first.unanswered)
        self._sieves = {index: CallFilter(NO_TOOLS) for index in self._unanswered}

    def feed(self, data: bytes) -> bytes | None:
        """What becomes of one event: None where nothing is left."""
        chunk = read_object(data)
        chunk |= {name: self._head[name] for name in _SHARED if name in self._head and name in chunk}
        kept = [choice for raw in _read_choices(chunk) if (choice := self._filter(raw)) is not None]
        usage = read_part(chunk, "usage")
        if usage:
            chunk["usage"] = encode_raw(add_usage(self._usage, usage))
        return _encode_chunk(chunk, kept)

    def end(self) -> bytes | None:
        """What is to be said when the stream is over: None, but for a choice that has not ended."""
        silent = [index for index in self._unanswered if not self._sieves[index].has_content]
        return _encode_chunk(self._head, [encode_raw(_closing_choice(index)) for index in silent])

    def _filter(self, raw: msgspec.Raw) -> msgspec.Raw | None:
        choice = _filter_repeated(read_answer(raw, MEMBERS), NO_TOOLS)
        index = _read_index(choice)
        if index not in self._unanswered:
            return None
        sieve = self._sieves[index]
        delta = sieve.take(read_part(choice, "delta"))
        if self._unanswered[index].has_role:
            delta = {name: raw for name, raw in delta.items() if name != "role"}
        finish = _finish_reason(choice, sieve)
        if _is_over(choice) and not sieve.has_content:
            sieve.has_content = True
            delta, finish = {**delta, "content": _CLOSING}, _STOP
        return _encode_choice({**choice, "finish_reason": finish}, delta)


def _filter_repeated(choice: Members, declared: ClientTools) -> Members:
    """Some servers repeat in each chunk, as `message`, all that came so far: filter it, too."""
    if "message" not in choice:
        return choice
    message = read_part(choice, "message")
    kept = CallFilter(declared).take(message)
    return choice if kept is message else {**choice, "message": encode_raw(kept)}


def _closing_choice(index: int) -> Members:
    return {"index": encode_raw(index), "delta": encode_raw({"content": _CLOSING}), "finish_reason": _STOP}


def _read_choices(answer: Members) -> list[msgspec.Raw]:
    return read_answer(answer.get("choices", _NONE), RAWS)


def _read_index(choice: Members) -> int:
    return read_answer(choice.get("index", _ZERO), _INT)


def _is_over(choice: Members) -> bool:
    """Some servers write an empty reason where there is none."""
    return bytes(choice.get("finish_reason", NULL)) not in (b"null", b'""')


def _finish_reason(choice: Members, sieve: CallFilter) -> msgspec.Raw:
    """Why a choice ends: not for a call, if none remains."""
    reason = choice.get("finish_reason", NULL)
    return _STOP if sieve.lost_all_calls and bytes(reason) in _CALL_FINISHES else reason


def _encode_choice(choice: Members, delta: Members) -> msgspec.Raw | None:
    if not delta and not _is_over(choice):
        return None
    return encode_raw({**choice, "delta": encode_raw(delta)})


def _encode_chunk(chunk: Members, choices: list[msgspec.Raw]) -> bytes | None:
    if not choices and not read_part(chunk, "usage"):
        return None
    return msgspec.json.encode({**chunk, "choices": choices})
