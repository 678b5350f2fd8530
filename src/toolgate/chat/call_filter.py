"""Answers of a model, whole and streamed, without the calls that their request does not declare.

Where nothing remains the model is to be asked once more, and that answer takes the place of the first.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import msgspec

from toolgate.chat.declarations import Declared
from toolgate.chat.filtering import (
    MEMBERS,
    NOTHING,
    RAWS,
    Decoder,
    Sieve,
    read_answer,
    read_object,
    read_part,
)
from toolgate.chat.usage import add_usage
from toolgate.errors import ModelUnavailable
from toolgate.model.raw import NULL, Members, encode_raw

MAX_CHOICES: Final = 128
"""Of one answer, as many as the OpenAI API makes."""
CLOSING: Final = "The model asked only for tools that this request does not declare."
"""What is answered where a model, asked twice, has said nothing."""
_CLOSING: Final = encode_raw(CLOSING)
_STOP: Final = msgspec.Raw(b'"stop"')
_NONE: Final = msgspec.Raw(b"[]")
_ZERO: Final = msgspec.Raw(b"0")
_INT: Final[Decoder[int]] = Decoder(int)
_SAID: Final = ("choices", "usage")
_SHARED: Final = ("id", "created")
_CALL_FINISHES: Final = (b'"tool_calls"', b'"function_call"')


@dataclass(frozen=True, slots=True, kw_only=True)
class NeedsAnswer:
    """A completion of which some choices say nothing: the model is to be asked once more."""

    completion: Members
    choices: tuple[Members, ...]
    unanswered: frozenset[int]

    def complete(self, body: bytes) -> bytes:
        """It, with what a second completion, `body`, says there. No call of that one is passed on."""
        second = read_object(body)
        answers = dict(enumerate(_sift_all(second, NOTHING)))
        choices = [
            _answered(choice, answers.get(at)) if at in self.unanswered else choice
            for at, choice in enumerate(self.choices)
        ]
        completion = {**self.completion, "choices": encode_raw(choices)}
        usage = add_usage(read_part(self.completion, "usage"), read_part(second, "usage"))
        if usage:
            completion["usage"] = encode_raw(usage)
        return msgspec.json.encode(completion)


def filter_completion(body: bytes, declared: Declared) -> bytes | NeedsAnswer:
    """A whole completion without the calls that are not declared: `body` itself where it has none."""
    completion = read_object(body)
    sifted = _sift_all(completion, declared)
    choices = tuple(choice for choice, _ in sifted)
    unanswered = frozenset(at for at, (_, sieve) in enumerate(sifted) if sieve.is_unanswered)
    if unanswered:
        return NeedsAnswer(completion=completion, choices=choices, unanswered=unanswered)
    if not any(sieve.has_removed for _, sieve in sifted):
        return body
    return msgspec.json.encode({**completion, "choices": encode_raw(choices)})


def _sift_all(completion: Members, declared: Declared) -> list[tuple[Members, Sieve]]:
    return [_sift(raw, declared) for raw in _choices(completion)]


def _sift(raw: msgspec.Raw, declared: Declared) -> tuple[Members, Sieve]:
    sieve = Sieve(declared)
    choice = read_answer(raw, MEMBERS)
    message = sieve.take(read_part(choice, "message"))
    if sieve.has_removed:
        choice |= {"message": encode_raw(message), "finish_reason": _finish(choice, sieve)}
    return choice, sieve


def _answered(choice: Members, answer: tuple[Members, Sieve] | None) -> Members:
    if answer is not None and answer[1].is_said:
        return {**answer[0], "index": choice.get("index", NULL)}
    message = {**read_part(choice, "message"), "content": _CLOSING}
    return {**choice, "message": encode_raw(message), "finish_reason": _STOP}


class StreamFilter:
    """A streamed answer, event by event, without the calls that are not declared.

    A choice of which nothing remains is not ended, and from then on the usage is kept back: both come with
    `Continuation`.
    """

    def __init__(self, declared: Declared) -> None:
        self._declared = declared
        self._sieves: dict[int, Sieve] = {}
        self._is_holding = False
        self._has_failed = False
        self.head: Members = {}
        """The first chunk, but for what it says."""
        self.usage: Members | None = None

    @property
    def unanswered(self) -> Mapping[int, Sieve]:
        """The choices of which nothing remains: when the stream is over the model is asked once more.

        None where the stream told of an error: clients have raised it, and hear no more.
        """
        if self._has_failed:
            return {}
        return {index: sieve for index, sieve in self._sieves.items() if sieve.is_unanswered}

    def feed(self, data: bytes) -> bytes | None:
        """What becomes of one event: `data` itself where nothing is taken out, None where nothing is left."""
        chunk = read_object(data)
        sent = _choices(chunk)
        self._has_failed = self._has_failed or "error" in chunk
        self.head = self.head or {name: raw for name, raw in chunk.items() if name not in _SAID}
        kept = [choice for raw in sent if (choice := self._filter(raw)) is not None]
        usage = read_part(chunk, "usage")
        self.usage = usage or self.usage
        if usage and self._is_holding:
            del chunk["usage"]
        elif kept == sent:
            return data
        return _encode_chunk(chunk, kept)

    def _filter(self, raw: msgspec.Raw) -> msgspec.Raw | None:
        choice = read_answer(raw, MEMBERS)
        sieve = self._sieves.setdefault(_index(choice), Sieve(self._declared))
        if len(self._sieves) > MAX_CHOICES:
            raise ModelUnavailable(f"the model's server sent an answer with more than {MAX_CHOICES} choices")
        sent = read_part(choice, "delta")
        delta = sieve.take(sent)
        finish = _finish(choice, sieve)
        if _is_over(choice) and sieve.is_unanswered:
            self._is_holding = True
            finish = NULL
        if delta is sent and finish == choice.get("finish_reason", NULL):
            return raw
        return _encode_choice({**choice, "finish_reason": finish}, delta)


class Continuation:
    """A second streamed answer as the rest of a first of which nothing remained. No call of it passes."""

    def __init__(self, first: StreamFilter) -> None:
        self._head = first.head
        self._usage = first.usage
        self._unanswered = dict(first.unanswered)
        self._sieves = {index: Sieve(NOTHING) for index in self._unanswered}

    def feed(self, data: bytes) -> bytes | None:
        """What becomes of one event: None where nothing is left."""
        chunk = read_object(data)
        chunk |= {name: self._head[name] for name in _SHARED if name in self._head and name in chunk}
        kept = [choice for raw in _choices(chunk) if (choice := self._filter(raw)) is not None]
        usage = read_part(chunk, "usage")
        if usage:
            chunk["usage"] = encode_raw(add_usage(self._usage, usage))
        return _encode_chunk(chunk, kept)

    def end(self) -> bytes | None:
        """What is to be said when the stream is over: None, but for a choice that has not ended."""
        silent = [index for index in self._unanswered if not self._sieves[index].is_said]
        return _encode_chunk(self._head, [encode_raw(_closing_choice(index)) for index in silent])

    def _filter(self, raw: msgspec.Raw) -> msgspec.Raw | None:
        choice = read_answer(raw, MEMBERS)
        index = _index(choice)
        if index not in self._unanswered:
            return None
        sieve = self._sieves[index]
        delta = sieve.take(read_part(choice, "delta"))
        if self._unanswered[index].has_role:
            delta = {name: raw for name, raw in delta.items() if name != "role"}
        finish = _finish(choice, sieve)
        if _is_over(choice) and not sieve.is_said:
            sieve.is_said = True
            delta, finish = {**delta, "content": _CLOSING}, _STOP
        return _encode_choice({**choice, "finish_reason": finish}, delta)


def _closing_choice(index: int) -> Members:
    return {"index": encode_raw(index), "delta": encode_raw({"content": _CLOSING}), "finish_reason": _STOP}


def _choices(answer: Members) -> list[msgspec.Raw]:
    return read_answer(answer.get("choices", _NONE), RAWS)


def _index(choice: Members) -> int:
    return read_answer(choice.get("index", _ZERO), _INT)


def _is_over(choice: Members) -> bool:
    """Some servers write an empty reason where there is none."""
    return bytes(choice.get("finish_reason", NULL)) not in (b"null", b'""')


def _finish(choice: Members, sieve: Sieve) -> msgspec.Raw:
    """Why a choice ends: not for a call, if none remains."""
    reason = choice.get("finish_reason", NULL)
    return _STOP if sieve.is_bare and bytes(reason) in _CALL_FINISHES else reason


def _encode_choice(choice: Members, delta: Members) -> msgspec.Raw | None:
    if not delta and not _is_over(choice):
        return None
    return encode_raw({**choice, "delta": encode_raw(delta)})


def _encode_chunk(chunk: Members, choices: list[msgspec.Raw]) -> bytes | None:
    if not choices and not read_part(chunk, "usage"):
        return None
    return msgspec.json.encode({**chunk, "choices": choices})
