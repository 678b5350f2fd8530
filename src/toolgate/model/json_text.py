"""Names of JSON members that two readers may take for the same one.

Toolgate reads a member by its exact name. Many servers do not: Go and .NET ignore letter case by default, C
stops at a NUL, others normalise Unicode. So `{"name": "a", "NAME": "b"}` names one tool here and another one
there. What is decided, approved or recorded must be what the server reads: a request with such a pair is
refused, and never repaired.
"""

import re
import unicodedata
from collections.abc import Collection, Iterable, Mapping
from typing import Any, Final

# Unicode's Default_Ignorable_Code_Point (DerivedCoreProperties), outside of the categories for controls.
_IGNORABLE: Final = re.compile(
    "[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u3164\ufe00-\ufe0f\uffa0\U000e0100-\U000e01ef]"
)
_NUL: Final = "\0"
MAX_FOLDED: Final = 1_024
"""Characters of a name that is not plain ASCII. To fold a longer one takes time: 3.9 MB of U+FDFA, 5.6 s."""


def fold_name(name: str) -> str:
    """`name` to the most lenient reader: no letter case, width, invisible characters or outer spaces."""
    if name.isascii() and name.isprintable():
        return name.strip().lower()
    text = unicodedata.normalize("NFKC", _IGNORABLE.sub("", name))
    # Through upper case, as some readers compare: there U+0131, an `i` without a dot, becomes `I`. In lower
    # case U+0130, an `I` with a dot, is `i` and a combining dot.
    text = unicodedata.normalize("NFKC", text.casefold().upper().casefold()).replace("i\u0307", "i")
    return "".join(one for one in text if unicodedata.category(one)[0] != "C").strip()


def is_unfoldable(name: str) -> bool:
    """Whether a name is too long to be compared. It counts as one that can be read as another."""
    return len(name) > MAX_FOLDED and not (name.isascii() and name.isprintable())


class KnownNames:
    """Names that matter in one kind of object. A member that only looks like one of them is refused."""

    __slots__ = ("_folded", "_names", "_prefixes")

    def __init__(self, *names: str, prefixes: tuple[str, ...] = ()) -> None:
        """`prefixes`, in lower case: every name that begins with one of them matters, too."""
        self._names = frozenset(names)
        self._folded = frozenset(map(fold_name, names))
        self._prefixes = prefixes

    def find_impostor(self, members: Mapping[str, object]) -> str | None:
        """The first member that some reader takes for one of these names, or for another member."""
        # Nearly every object has only these names.
        return None if members.keys() <= self._names else self._search(members)

    def _search(self, members: Mapping[str, object]) -> str | None:
        others = [name for name in members if name not in self._names]
        return next(filter(self._is_impostor, others), None) or find_clash(others)

    def _is_impostor(self, name: str) -> bool:
        if is_unfoldable(name):
            return True
        folded = fold_name(name)
        if folded in self._folded or (not name.isprintable() and _has_control(name)):
            return True
        return folded.startswith(self._prefixes) and not name.startswith(self._prefixes)


def find_clash(names: Collection[str], *, declared: Collection[str] = ()) -> str | None:
    """The first of different names that some reader takes for one before it, or that holds a NUL.

    Two names that are both `declared` are different to the one that declares them.
    """
    text = "".join(names)
    is_plain = text.isascii() and text.isprintable() and " " not in text
    if is_plain and (len(names) < 2 or text.islower() or len({one.lower() for one in names}) == len(names)):
        return None
    seen: dict[str, str] = {}
    for name in names:
        if is_unfoldable(name):
            return name
        other = seen.setdefault(fold_name(name), name)
        if _NUL in name or (other != name and not (name in declared and other in declared)):
            return name
    return None


def find_deep_clash(value: Any) -> str | None:
    """The same for every object in a decoded JSON value, at any depth."""
    level = [value]
    while level:
        clashes = (find_clash(one) for one in level if isinstance(one, dict))
        clash = next((one for one in clashes if one is not None), None)
        if clash is not None:
            return clash
        level = [inner for one in level for inner in _entries(one)]
    return None


def ambiguous(name: str, place: str) -> str:
    """What to say of a member of `place`: its name short, with escapes for what cannot be seen."""
    return f"member `{ascii(name[:40])[1:-1]}` of {place} can be read as another member"


def _has_control(name: str) -> bool:
    return any(unicodedata.category(one) == "Cc" for one in name)


def _entries(value: Any) -> Iterable[Any]:
    if isinstance(value, dict):
        return value.values()
    return value if isinstance(value, list) else ()
