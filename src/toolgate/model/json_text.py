"""JSON as text: objects split one level deep, ambiguous member names, and JSON that people can read.

Values that the gateway only carries stay the JSON text they were. Toolgate reads a member by its exact name.
Many servers do not: Go and .NET ignore letter case by default, C stops at a NUL, others normalise Unicode. So
`{"name": "a", "NAME": "b"}` names one tool here and another there. The server must read exactly what was
decided, approved or recorded: a request with such a pair is rejected, and never repaired.
"""

import json
import re
import unicodedata
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any, Final

import msgspec

Members = dict[str, msgspec.Raw]
"""The members of an object by their names."""
NULL: Final = msgspec.Raw(b"null")
NO_ARGUMENTS: Final = msgspec.Raw()
"""Arguments that are not recorded. msgspec omits a default by identity: always use this object."""
UNREADABLE: Final = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
"""The exceptions of reading JSON. Values that are only carried are read late, part by part, or never."""

decode_members = msgspec.json.Decoder(Members).decode
"""Raises UNREADABLE for bytes that are not a JSON object."""
decode_array = msgspec.json.Decoder(list[msgspec.Raw]).decode
"""Raises UNREADABLE for bytes that are not a JSON array."""
encode_canonical = msgspec.json.Encoder(order="sorted").encode
"""Equal values have equal bytes."""


def encode_raw(value: object) -> msgspec.Raw:
    """`value` as a member of a value that is encoded later."""
    return msgspec.Raw(msgspec.json.encode(value))


def as_text(raw: msgspec.Raw | None) -> str | None:
    """`raw` as text; None if it is not a string."""
    return msgspec.json.decode(raw, type=str) if raw is not None and _starts_with(raw, b'"') else None


def as_object(raw: msgspec.Raw | None) -> Members | None:
    """`raw` as an object; None if it is not an object."""
    return decode_members(raw) if raw is not None and _starts_with(raw, b"{") else None


def as_array(raw: msgspec.Raw | None) -> list[msgspec.Raw]:
    """The entries of `raw` as an array; empty if it is not an array."""
    return decode_array(raw) if raw is not None and _starts_with(raw, b"[") else []


def _starts_with(raw: msgspec.Raw, sign: bytes) -> bool:
    return memoryview(raw)[:1] == sign  # not as bytes: that would copy all of it


# Printable by Unicode's categories, but invisible: fillers, joiners, variation selectors.
_INVISIBLE: Final = re.compile(
    "[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u2800\u3164\ufe00-\ufe0f\uffa0\U000e0100-\U000e01ef]"
)


def escape_invisible(text: str, spell: Callable[[str], str]) -> str:
    """`text` with every invisible character replaced by `spell(character)`."""
    if text.isprintable() and not _INVISIBLE.search(text):
        return text
    return "".join(one if one.isprintable() and not _INVISIBLE.match(one) else spell(one) for one in text)


def encode_json(value: Any, *, indent: int | None = None, sort_keys: bool = False) -> str:
    """`value` as JSON that any program can read, without invisible characters."""
    lines = json.dumps(value, ensure_ascii=False, indent=indent, sort_keys=sort_keys).split("\n")
    return "\n".join(escape_invisible(line, _escape_in_json) for line in lines)


def format_json(raw: bytes) -> str:
    """JSON with its original spelling, over several lines, without invisible characters."""
    lines = msgspec.json.format(raw, indent=2).decode().split("\n")
    return "\n".join(escape_invisible(line, _escape_in_json) for line in lines)


def _escape_in_json(character: str) -> str:
    """In a string the escape has the same meaning; outside of strings JSON has no such characters."""
    code = ord(character)
    return f"\\u{code:04x}" if code < 0x10000 else json.dumps(character)[1:-1]


# Unicode's Default_Ignorable_Code_Point (DerivedCoreProperties), outside of the categories for controls.
_IGNORABLE: Final = re.compile(
    "[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u3164\ufe00-\ufe0f\uffa0\U000e0100-\U000e01ef]"
)
MAX_FOLDED: Final = 1_024  # characters of a name that is not plain ASCII. Folding 3.9 MB of U+FDFA took 5.6 s


def fold_name(name: str) -> str:
    """`name` as the most lenient reader sees it: without case, width, invisible characters and outer
    spaces."""
    if name.isascii() and name.isprintable():
        return name.strip().lower()
    text = unicodedata.normalize("NFKC", _IGNORABLE.sub("", name))
    # Through upper case, as some readers compare: U+0131, an `i` without a dot, becomes `I`. In lower case
    # U+0130, an `I` with a dot, is `i` and a combining dot.
    text = unicodedata.normalize("NFKC", text.casefold().upper().casefold()).replace("i\u0307", "i")
    return "".join(one for one in text if unicodedata.category(one)[0] != "C").strip()


def is_unfoldable(name: str) -> bool:
    """Whether a name is too long to compare. Such a name counts as ambiguous."""
    return len(name) > MAX_FOLDED and not (name.isascii() and name.isprintable())


class KnownNames:
    """The important names of one kind of object. A member that only looks like one of them is rejected."""

    __slots__ = ("_folded", "_names", "_prefixes")

    def __init__(self, *names: str, prefixes: tuple[str, ...] = ()) -> None:
        """`prefixes`, in lower case: names with such a prefix are important, too."""
        self._names = frozenset(names)
        self._folded = frozenset(map(fold_name, names))
        self._prefixes = prefixes

    def find_impostor(self, members: Mapping[str, object]) -> str | None:
        """The first member that some reader confuses with one of these names or with another member."""
        if members.keys() <= self._names:  # true for nearly every object
            return None
        others = [name for name in members if name not in self._names]
        return next(filter(self._is_impostor, others), None) or find_clash(others)

    def _is_impostor(self, name: str) -> bool:
        if is_unfoldable(name):
            return True
        folded = fold_name(name)
        if folded in self._folded or (
            not name.isprintable() and any(unicodedata.category(one) == "Cc" for one in name)
        ):
            return True
        return folded.startswith(self._prefixes) and not name.startswith(self._prefixes)


def find_clash(names: Collection[str], *, declared: Collection[str] = ()) -> str | None:
    """The first name that some reader confuses with an earlier one, or that contains a NUL. Two `declared`
    names differ for the server that declares them."""
    text = "".join(names)
    is_plain = text.isascii() and text.isprintable() and " " not in text
    if is_plain and (len(names) < 2 or text.islower() or len({one.lower() for one in names}) == len(names)):
        return None
    seen: dict[str, str] = {}
    for name in names:
        if is_unfoldable(name):
            return name
        other = seen.setdefault(fold_name(name), name)
        if "\0" in name or (other != name and not (name in declared and other in declared)):
            return name
    return None


def find_deep_clash(value: Any) -> str | None:
    """The first clash of `find_clash` in any object of a decoded JSON value."""
    level = [value]
    while level:
        clashes = (find_clash(one) for one in level if isinstance(one, dict))
        clash = next((one for one in clashes if one is not None), None)
        if clash is not None:
            return clash
        level = [inner for one in level for inner in _children(one)]
    return None


def describe_ambiguity(name: str, place: str) -> str:
    """The error message for a member of `place`, with its name short and escaped."""
    return f"member `{ascii(name[:40])[1:-1]}` of {place} can be read as another member"


def _children(value: Any) -> Iterable[Any]:
    if isinstance(value, dict):
        return value.values()
    return value if isinstance(value, list) else ()
