"""What a model's answer may ask of a client: only tools that the client has declared.

Calls of anything else are taken out, whatever else is said stays as it came. Nothing is ever run here.
"""

from typing import Final, TypeVar

import msgspec

from toolgate.chat.declarations import Declared
from toolgate.errors import ModelUnavailable
from toolgate.model.raw import NULL, UNREADABLE, Members, encode_raw

MAX_CALLS: Final = 1024
"""Of one answer. More than any model makes, and little to remember."""
MAX_UNNAMED_PIECES: Final = 8
"""Of a call that has no name yet: it comes with the first piece, or with the next."""
_NOTHINGS: Final = (b"null", b'""', b"[]")
_SPOKEN: Final = ("content", "refusal", "audio")
_T = TypeVar("_T")
Decoder = msgspec.json.Decoder


class _Named(msgspec.Struct):
    name: str | None = None


class _Call(msgspec.Struct):
    """A call, or a piece of one, as far as it says what is called."""

    index: int | None = None
    id: str | int | None = None
    type: str | None = None
    function: _Named | None = None
    custom: _Named | None = None


NOTHING: Final = Declared()
MEMBERS: Final[Decoder[Members]] = Decoder(Members)
RAWS: Final[Decoder[list[msgspec.Raw]]] = Decoder(list[msgspec.Raw])
_MEMBERS_OR_NULL: Final[Decoder[Members | None]] = Decoder(Members | None)
_RAWS_OR_NULL: Final[Decoder[list[msgspec.Raw] | None]] = Decoder(list[msgspec.Raw] | None)
_CALL: Final[Decoder[_Call]] = Decoder(_Call)
_NAMED_OR_NULL: Final[Decoder[_Named | None]] = Decoder(_Named | None)


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


class Sieve:
    """What of one choice of an answer passes, whether it comes whole or in pieces.

    The name of a call comes once, in the first piece or soon after; what is known of a call is kept by its
    index and its id, as some servers give one index to all calls and tell them apart by their ids.
    """

    def __init__(self, declared: Declared) -> None:
        self._declared = declared
        self._verdicts: dict[tuple[int | None, str | int | None], bool] = {}
        self._unnamed: dict[int | None, list[msgspec.Raw]] = {}
        self._numbers: dict[int, int] = {}
        """What each index that passes has become, as none may be left out of those a client adds up by."""
        self._removed: set[int | None] = set()
        self._legacy = False
        self._has_calls = False
        self.has_removed = False
        """Something was taken out, or waits for its name."""
        self.is_said = False
        """Something was said to people."""
        self.has_role = False

    @property
    def is_bare(self) -> bool:
        """Calls were taken out, and none remains."""
        return self.has_removed and not self._has_calls

    @property
    def is_unanswered(self) -> bool:
        """Nothing remains at all."""
        return self.is_bare and not self.is_said

    def take(self, message: Members) -> Members:
        """A message, or a piece of one, without the calls that do not pass: itself where it has none."""
        self.is_said = self.is_said or any(bytes(message.get(one, NULL)) not in _NOTHINGS for one in _SPOKEN)
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
            self.has_removed = True
            pieces = self._unnamed.setdefault(call.index, [])
            pieces += [raw] if len(pieces) < MAX_UNNAMED_PIECES else []
            return []
        waiting = self._unnamed.pop(call.index, [])
        if not passes:
            self.has_removed = True
            self._removed.add(call.index)
            return []
        self._has_calls = True
        return [self._number(piece, call.index) for piece in (*waiting, raw)]

    def _judge(self, call: _Call) -> bool | None:
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
            self.has_removed = True
            del message["function_call"]
