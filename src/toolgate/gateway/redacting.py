"""What may be written down of a call's arguments, and what people who judge it are shown.

Hidden is what goes by the name of a secret, or by a name that the rules of the installation or of the server
hide; of all else, what looks like a token wherever it stands. What is too long is cut, visibly, and never so
that a part of a secret is left over. The output is one JSON object on one line, whatever came in.
"""

import json
import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from functools import lru_cache
from typing import Any, Final, NoReturn

import msgspec

from toolgate.audit.events import NO_ARGUMENTS
from toolgate.model.approvals import MAX_ARGUMENT_BYTES
from toolgate.model.json_text import fold_name, is_unfoldable
from toolgate.model.servers import RedactionRules
from toolgate.policy.patterns import compile_globs
from toolgate.redaction.records import redact_text
from toolgate.redaction.secret_names import looks_secret
from toolgate.redaction.shapes import MASK, hides_word

MAX_AUDITED_BYTES: Final = 2 * 1024
"""Of arguments as the audit has them."""
MAX_READ_BYTES: Final = 256 * 1024
"""Longer arguments are not read for the audit: what it costs must not grow with what callers send."""
MAX_ENTRIES: Final = 64
"""Members of an object, and entries of an array, that are shown where not all can be."""
_LONGEST: Final = (2_048, 256, 64)
"""How long texts may be, one after the other, until all of it fits."""
_MARGIN: Final = 1_280
"""How far behind the end of a text that is cut is looked, to see what begins before it."""
_LOOKS: Final = 20
"""How much more may be looked at than there is room for: a text that is cut to a few is looked at so far."""
_MORE: Final = "…"
# Others are shown as text: what a reader makes of them is not certain.
_PLAIN_NUMBER: Final = re.compile(rb"-?\d{1,15}(\.\d{1,15})?")

# What is in lower case, and in which this is not found, holds no secret name and no token. Most arguments are
# written down for the price of this one search, so each word is looked for by its rarest letter.
_SUSPECT: Final = (
    rb":(?:[/\\][/\\]+(?:[^/?#@ ]*+@|[^/?#@: ]*+:[^@ \"]{1,130}+@)|aa[\w-]{32})"  # who is named in a URL
    rb"|k(?:e[ny]|ie|ia|-|_(?:live_|test_|(?<=gsk_)))"  # key, token, cookie; AKIA…, sk-…
    rb"|w(?:d|ebhooks)"  # pwd
    rb"|c(?:re[dt]|v[cv][^\w.-]"  # credential, secret
    rb"|url[\s\"\\]|li(?<=redis-cli)|spx-|rudjti)"  # curl -u …; GOCSPX-…, a key in Base64
    rb"|uth(?<=auth)(?!or(?!i[sz]))"
    rb"|h(?:rase|[pousr]_|ub_|sec_|f_|p(?:at|ca|pa|ss)_|v[brs]\.|ooks\.s)"  # passphrase; ghp_…, github_pat_…
    rb"|b(?:earer|asic)"
    rb"|s(?:ession|ig(?:nature|[^\w.-])|sw|ia[0-9a-z]{16}|g\.[\w-]{16})"  # passw; ASIA…, SG.…
    rb"|p(?:a(?:t[^\w.]|ss(?:[^\w.-]|code))|w[^\w.-]|i(?:n[\s\\]|[_-](?<=api.))"  # pat, pass, pw, PIN
    rb"|[^\w.-](?<=otp.)|m_(?<=npm_)|ypi-|plx-)"
    rb"|-p(?:(?<=[\s\"']-p)|(?<=\\[fnrt]-p))"  # mysql -p…
    rb"|fied(?<=identified)|d(?:sn[^\w.-]|ap(?:i[0-9a-f]{32}|(?<=ldap))|op_v1_|_(?<=figd_))"
    rb"|x(?:ox|app-|ai-)|z(?<=aiz)|j(?:wt[^\w.-]|(?<=eyj))|ya29\."
    rb"|%[0-9a-f]{2}"  # what shows when it is decoded
)
# Each of them begins with a letter and none with a class of them: so the engine passes over all other letters
# without trying each, which makes it three times as quick.
_ESCAPED: Final = rb"\\u"
_CLEAR_JSON: Final = bytes(range(ord(" "), ord("~") + 1))
_CLEAR_TEXT: Final = bytes(range(ord("\t"), ord("~") + 1))
"""All others may be another spelling of a letter."""
_MAX_PLAIN_BYTES: Final = 1_024
# What JSON writes in one way only, so that it can be looked for in bytes.
_WORD: Final = re.compile(r"[\w.-]+", re.ASCII)

_LABELS: Final = ("name", "key", "header", "variable")
_LABELLED: Final = frozenset({"value", "values"})
"""Members that say what another one is called: `{"name": "Authorization", "value": …}`."""

_PROGRAMS: Final = ("command", "cmd", "program", "executable")

_encode_canonical: Final = msgspec.json.Encoder(order="sorted").encode

Members = dict[str, Any]
"""Of an object; its numbers are `msgspec.Raw`, as they are spelled."""


class Redaction:
    """The rules for the calls of one server, compiled: those of the installation and its own."""

    __slots__ = ("_is_audited", "_is_hidden", "_is_shown", "_suspect")

    def __init__(self, platform: RedactionRules, server: RedactionRules) -> None:
        hide = tuple(pattern.lower() for pattern in (*platform.hide, *server.hide))
        self._is_hidden = compile_globs(hide)
        self._is_shown = compile_globs(pattern.lower() for pattern in server.show)
        self._is_audited = platform.arguments == server.arguments == "redacted"
        self._suspect = _compile_suspect(hide)

    def shown(self, raw: msgspec.Raw | None) -> msgspec.Raw:
        """What the audit has of `raw`: an object out of a message that was read as JSON."""
        if raw is None or not self._is_audited:
            return NO_ARGUMENTS
        data = bytes(raw)
        if (
            len(data) <= _MAX_PLAIN_BYTES
            and not data.translate(None, _CLEAR_JSON)
            and self._suspect(data.lower()) is None
        ):
            return raw
        return msgspec.Raw(self._audited(data))

    def for_people(self, members: Members, size: int) -> bytes:
        """`members`, of `size` bytes, as whoever is to agree to them is shown them."""
        return self._fitting(members, size, MAX_ARGUMENT_BYTES)

    def hides(self, name: str) -> bool:
        """Whether what a member of this name holds is hidden."""
        if is_unfoldable(name):
            return True
        lower, folded = name.lower(), fold_name(name)
        if self._is_hidden(lower) or self._is_hidden(folded):
            return True
        return (looks_secret(name) or looks_secret(folded)) and not self._is_shown(lower)

    def redact(self, text: str) -> str:
        """`text` without what looks like a secret, also by names that are shown where they are members."""
        if not self._suspects(text):
            return text
        return redact_text(text, hides=self._hides_in_text, is_said=True)

    def name(self, text: str, most: int) -> str:
        """A name or a URI, of which no more than `most` characters are shown, without the secrets in it."""
        seen = text[: most + _MARGIN]
        if self._suspects(seen):
            seen = redact_text(seen, hides=self._hides_in_text)
        return seen[:most]

    def labels(self, entry: Any, *, is_pair: bool) -> bool:
        """Whether an entry of an array says that the next one is hidden: a flag, or the name in a pair."""
        is_label = isinstance(entry, str) and (is_pair or entry.startswith("-"))
        return is_label and self._hides_in_text(entry)

    def _suspects(self, text: str) -> bool:
        data = text.lower().encode(errors="replace")
        return bool(data.translate(None, _CLEAR_TEXT)) or self._suspect(data) is not None

    def _hides_in_text(self, name: str) -> bool:
        return looks_secret(name) or self._is_hidden(name.lower())

    def _audited(self, data: bytes) -> bytes:
        if len(data) > MAX_READ_BYTES:
            return _too_long(len(data))
        try:
            members = parse_members(data, _all_members)
            return self._fitting(members, len(data), MAX_AUDITED_BYTES)
        except (ValueError, RecursionError):
            return _encode_canonical({_MORE: f"{len(data)} bytes, which cannot be read"})

    def _fitting(self, members: Members, size: int, most: int) -> bytes:
        attempts = [_Attempt(self, longest, MAX_ENTRIES, most) for longest in _LONGEST if longest < most]
        whole = [_Attempt(self, size, size, most)] if size <= most else []
        for attempt in (*whole, *attempts):
            with suppress(_TooLongError):
                shown = _encode_canonical(attempt.members(members))
                if len(shown) <= most:
                    return shown
        return _too_long(size)


class _TooLongError(Exception):
    """An attempt has used up its room."""


class _Attempt:
    """An attempt at showing arguments, which is given up as soon as they cannot fit."""

    __slots__ = ("_entries", "_longest", "_looks", "_redaction", "_room")

    def __init__(self, redaction: Redaction, longest: int, entries: int, room: int) -> None:
        self._redaction = redaction
        self._longest = longest
        self._entries = entries
        self._room = room
        self._looks = room * _LOOKS

    def members(self, members: Members) -> Members:
        hides, program = self._redaction.hides, _program_in(members)
        if any(self._redaction.labels(members.get(name), is_pair=True) for name in _LABELS):
            hides = lambda name: name in _LABELLED or self._redaction.hides(name)  # noqa: E731
        shown = {
            self._text(name): _hidden(one) if hides(name) else self._value(one, program)
            for name, one in list(members.items())[: self._entries]
        }
        # Counted by what is there: two long names may look the same once they are cut.
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
        looked_at = text[: self._longest + _MARGIN]
        # What is hidden takes no room, and may have taken long to find.
        self._looks -= len(looked_at)
        if self._looks < 0:
            raise _TooLongError
        seen = self._redaction.redact(looked_at)
        is_whole = len(text) <= self._longest + _MARGIN and len(seen) <= self._longest
        seen = seen if is_whole else f"{seen[: self._longest]}… ({len(text)} characters)"
        self._take(len(seen))
        return seen

    def _take(self, size: int) -> None:
        self._room -= size
        if self._room < 0:
            raise _TooLongError


def _program_in(members: Members) -> str:
    """What is to be started, where the arguments of a call say so beside what it is started with."""
    return next((one for name in _PROGRAMS if isinstance(one := members.get(name), str)), "")


def _hidden(value: Any) -> Any:
    """Nothing is left of it, nor of what is nested in it; only that there is nothing may be seen."""
    return value if value is None or value == "" else MASK


def parse_members(data: bytes, make_object: Callable[[list[tuple[str, Any]]], Members]) -> Members:
    """The members of a JSON object. Raises ValueError, also where it is none, and RecursionError."""
    members = json.loads(
        data.decode(),
        object_pairs_hook=make_object,
        parse_int=_number,
        parse_float=_number,
        parse_constant=_refuse_constant,
    )
    if not isinstance(members, dict):
        raise ValueError("they are no object")  # noqa: TRY004  as all else that is wrong with them
    return members


def _all_members(pairs: list[tuple[str, Any]]) -> Members:
    """Of a name that stands there twice the last, and how many others there are."""
    members = dict(pairs)
    again = len(pairs) - len(members)
    return members | {f"{_MORE} again": again} if again else members


def _number(text: str) -> msgspec.Raw:
    """As it is spelled: who rounds would take two different numbers for one."""
    return msgspec.Raw(text.encode())


def _refuse_constant(_text: str) -> NoReturn:
    raise ValueError("a number is not finite")


def _too_long(size: int) -> bytes:
    return _encode_canonical({_MORE: f"{size} bytes, which are too many to be shown"})


def _compile_suspect(hide: Iterable[str]) -> Callable[[bytes], object]:
    """What finds the slightest sign of anything to hide, in lower case."""
    pieces = {max(re.split(r"[*?]", pattern), key=len) for pattern in hide}
    if not all(map(_WORD.fullmatch, pieces)):
        return lambda _: True  # a name that can be spelled in many ways: every argument is read
    return re.compile(
        b"|".join([_ESCAPED, _SUSPECT, *(re.escape(piece).encode() for piece in pieces)])
    ).search


@lru_cache(maxsize=1_024)
def redaction_of(platform: RedactionRules, server: RedactionRules) -> Redaction:
    """The rules of one server: most have none of their own, and share."""
    return Redaction(platform, server)


BUILT_IN: Final = redaction_of(RedactionRules(), RedactionRules())
"""Where nobody has said anything."""
