"""The arguments of calls without secrets, for the audit log and for approvers.

It hides members with the name of a secret, members that the rules of the installation or of the server hide,
and all other values that look like secrets. Long values are cut with a mark, and never so that a part of a
secret is left. The output is one JSON object on one line, whatever the input.
"""

import json
import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from functools import lru_cache
from typing import Any, Final, NoReturn

import msgspec

from toolgate.model.approvals import MAX_ARGUMENT_BYTES
from toolgate.model.json_text import NO_ARGUMENTS, encode_canonical, fold_name, is_unfoldable
from toolgate.model.names import compile_globs
from toolgate.model.servers import RedactionRules
from toolgate.redaction.shapes import MASK, compile_prefilter, hides_word, looks_secret, redact_text

MAX_AUDITED_BYTES: Final = 2 * 1024  # of arguments in the audit
MAX_READ_BYTES: Final = 256 * 1024
"""Longer arguments are not read for the audit log: its cost must not grow with what callers send."""
MAX_ENTRIES: Final = 64  # members of an object and entries of an array, if not all can be shown
_MAX_TEXTS: Final = (2_048, 256, 64)
"""The lengths that texts are cut to, tried in order until everything fits."""
_MARGIN: Final = 1_280
"""Characters behind a cut that are searched for secrets that begin before it: a JWT's header has up to
1,024."""
_MAX_SEARCHED: Final = 20
"""The factor of text to search per room: a key of 1.3 kB leaves only a mask."""
_MORE: Final = "…"
# Other numbers are shown as text: readers disagree on their value.
_PLAIN_NUMBER: Final = re.compile(rb"-?\d{1,15}(\.\d{1,15})?")

_CLEAR_JSON: Final = bytes(range(ord(" "), ord("~") + 1))
_CLEAR_TEXT: Final = bytes(range(ord("\t"), ord("~") + 1))
"""Any other byte may be another spelling of a letter."""
_MAX_PLAIN_BYTES: Final = 1_024  # most arguments are shorter; others are redacted member by member
# JSON spells it in only one way, so bytes can be searched for it.
_WORD: Final = re.compile(r"[\w.-]+", re.ASCII)

_LABELS: Final = ("name", "key", "header", "variable")
_LABELLED: Final = frozenset({"value", "values"})
"""Members whose value another member names: `{"name": "Authorization", "value": …}`."""

_PROGRAMS: Final = ("command", "cmd", "program", "executable")

Members = dict[str, Any]
"""The members of an object. Numbers are `msgspec.Raw`, as they are spelled."""


class Redaction:
    """The compiled rules for the calls of one server: the installation's rules and its own."""

    __slots__ = ("_is_audited", "_is_hidden", "_is_shown", "_suspect")

    def __init__(self, platform: RedactionRules, server: RedactionRules) -> None:
        hide = tuple(pattern.lower() for pattern in (*platform.hide, *server.hide))
        self._is_hidden = compile_globs(hide)
        self._is_shown = compile_globs(pattern.lower() for pattern in server.show)
        self._is_audited = platform.arguments == server.arguments == "redacted"
        self._suspect = _compile_suspect(hide)

    def redact_for_audit(self, raw: msgspec.Raw | None) -> msgspec.Raw:
        """`raw`, a JSON object from a parsed message, as the audit log records it."""
        if raw is None or not self._is_audited:
            return NO_ARGUMENTS
        data = bytes(raw)
        if (
            len(data) <= _MAX_PLAIN_BYTES
            and not data.translate(None, _CLEAR_JSON)
            and self._suspect(data.lower()) is None
        ):
            return raw
        return msgspec.Raw(self._redact_data(data))

    def redact_for_approver(self, members: Members, size: int) -> bytes:
        """`members`, of `size` bytes of JSON, as the approver of the call sees them."""
        return self._fit(members, size, MAX_ARGUMENT_BYTES)

    def hides(self, name: str) -> bool:
        """Whether the value of a member with this name is hidden."""
        if is_unfoldable(name):
            return True
        lower, folded = name.lower(), fold_name(name)
        if self._is_hidden(lower) or self._is_hidden(folded):
            return True
        return (looks_secret(name) or looks_secret(folded)) and not self._is_shown(lower)

    def redact_text(self, text: str) -> str:
        """`text` without secrets, including names that the server shows if they are members."""
        if not self._suspects(text):
            return text
        return redact_text(text, hides=self._hides_in_text, is_prose=True)

    def redact_name(self, text: str, most: int) -> str:
        """At most `most` characters of a name or URI, without its secrets."""
        seen = text[: most + _MARGIN]
        if self._suspects(seen):
            seen = redact_text(seen, hides=self._hides_in_text)
        return seen[:most]

    def labels(self, entry: Any, *, is_pair: bool) -> bool:
        """Whether an entry of an array hides the next one: it is a flag, or the name in a pair."""
        is_label = isinstance(entry, str) and (is_pair or entry.startswith("-"))
        return is_label and self._hides_in_text(entry)

    def _suspects(self, text: str) -> bool:
        data = text.lower().encode(errors="replace")
        return bool(data.translate(None, _CLEAR_TEXT)) or self._suspect(data) is not None

    def _hides_in_text(self, name: str) -> bool:
        return looks_secret(name) or self._is_hidden(name.lower())

    def _redact_data(self, data: bytes) -> bytes:
        if len(data) > MAX_READ_BYTES:
            return _too_long(len(data))
        try:
            members = parse_members(data, _all_members)
            return self._fit(members, len(data), MAX_AUDITED_BYTES)
        except (ValueError, RecursionError):
            return encode_canonical({_MORE: f"{len(data)} unreadable bytes"})

    def _fit(self, members: Members, size: int, most: int) -> bytes:
        whole = [_Attempt(self, size, size, most)] if size <= most else []
        cut = [_Attempt(self, longest, MAX_ENTRIES, most) for longest in _MAX_TEXTS if longest < most]
        for attempt in (*whole, *cut):
            with suppress(_TooLongError):
                shown = encode_canonical(attempt.members(members))
                if len(shown) <= most:
                    return shown
        return _too_long(size)


class _TooLongError(Exception):
    """An attempt has no room left."""


class _Attempt:
    """One attempt at fitting arguments into `room`. It ends as soon as they cannot fit."""

    __slots__ = ("_entries", "_longest", "_redaction", "_room", "_searches_left")

    def __init__(self, redaction: Redaction, longest: int, entries: int, room: int) -> None:
        self._redaction = redaction
        self._longest = longest
        self._entries = entries
        self._room = room
        self._searches_left = room * _MAX_SEARCHED

    def members(self, members: Members) -> Members:
        hides = self._redaction.hides
        # The program that a call will start, if its arguments name one next to the program's own arguments.
        program = next((one for name in _PROGRAMS if isinstance(one := members.get(name), str)), "")
        if any(self._redaction.labels(members.get(name), is_pair=True) for name in _LABELS):
            hides = lambda name: name in _LABELLED or self._redaction.hides(name)  # noqa: E731
        shown = {
            self._text(name): _hidden(one) if hides(name) else self._value(one, program)
            for name, one in list(members.items())[: self._entries]
        }
        # Counted by the originals: two long names may look the same after they are cut.
        left = len(members) - len(shown.keys() - {_MORE})
        return shown | {_MORE: f"{left} more"} if left else shown

    def _value(self, value: Any, program: str = "") -> Any:
        if isinstance(value, dict):
            return self.members(value)
        if isinstance(value, list):
            entries = [*self._array(value[: self._entries], program, is_pair=len(value) == 2)]
            return entries + ([f"… {len(value) - self._entries} more"] if len(value) > self._entries else [])
        if isinstance(value, str):
            return self._text(value)
        if isinstance(value, msgspec.Raw) and not _PLAIN_NUMBER.fullmatch(value):
            return self._text(bytes(value).decode())
        self._take(1)
        return value

    def _array(self, entries: list[Any], program: str, *, is_pair: bool) -> Iterator[Any]:
        is_labelled = False
        words = [one if isinstance(one, str) else "" for one in entries]
        program = program or "".join(words[:1])
        for at, one in enumerate(entries):
            self._take(1)
            yield _hidden(one) if is_labelled or hides_word(program, words, at) else self._value(one)
            is_labelled = not is_labelled and self._redaction.labels(one, is_pair=is_pair)

    def _text(self, text: str) -> str:
        searched = text[: self._longest + _MARGIN]
        # Hidden text takes no room, but finding it takes time: both are bounded.
        self._searches_left -= len(searched)
        if self._searches_left < 0:
            raise _TooLongError
        seen = self._redaction.redact_text(searched)
        is_whole = len(text) <= self._longest + _MARGIN and len(seen) <= self._longest
        seen = seen if is_whole else f"{seen[: self._longest]}… ({len(text)} characters)"
        self._take(len(seen))
        return seen

    def _take(self, size: int) -> None:
        self._room -= size
        if self._room < 0:
            raise _TooLongError


def _hidden(value: Any) -> Any:
    """The mask of a value with everything nested in it. Only emptiness shows."""
    return value if value is None or value == "" else MASK


def parse_members(data: bytes, make_object: Callable[[list[tuple[str, Any]]], Members]) -> Members:
    """The members of a JSON object. Raises ValueError for anything else, and RecursionError."""
    members = json.loads(
        data.decode(),
        object_pairs_hook=make_object,
        # Numbers keep their spelling: rounded, two different numbers would look the same.
        parse_int=lambda text: msgspec.Raw(text.encode()),
        parse_float=lambda text: msgspec.Raw(text.encode()),
        parse_constant=_refuse_constant,
    )
    if not isinstance(members, dict):
        raise ValueError("not an object")  # noqa: TRY004  as every other fault of the input
    return members


def _all_members(pairs: list[tuple[str, Any]]) -> Members:
    """The last member of each name, and a count of the duplicates."""
    members = dict(pairs)
    again = len(pairs) - len(members)
    return members | {f"{_MORE} again": again} if again else members


def _refuse_constant(_text: str) -> NoReturn:
    raise ValueError("a number is not finite")


def _too_long(size: int) -> bytes:
    return encode_canonical({_MORE: f"{size} bytes, too many to show"})


def _compile_suspect(hide: Iterable[str]) -> Callable[[bytes], object]:
    """A search for the slightest sign of anything to hide, in lower case."""
    pieces = {max(re.split(r"[*?]", pattern), key=len) for pattern in hide}
    if not all(map(_WORD.fullmatch, pieces)):
        return lambda _: True  # a name with several spellings: every argument is read
    return compile_prefilter(pieces)


@lru_cache(maxsize=1_024)
def compile_redaction(platform: RedactionRules, server: RedactionRules) -> Redaction:
    """The compiled rules of one server. Most servers have none and share one object."""
    return Redaction(platform, server)


DEFAULT_REDACTION: Final = compile_redaction(RedactionRules(), RedactionRules())
"""Without rules of the installation or a server."""
