"""Text to the terms that search compares, for people's words and for identifiers, in any language.

The same text gives the same terms everywhere. Nothing here knows a dictionary: scripts written without spaces
are cut into overlapping pairs of characters, English loses its commonest endings.
"""

import re
import unicodedata
from functools import lru_cache
from itertools import pairwise
from typing import Final

MAX_TEXT_CHARS: Final = 16_384
"""What stands behind it in one text is not looked at."""
MAX_TERM_CHARS: Final = 48
"""Longer words are cut here: keys and digests are found by their beginning."""

_REMEMBERED: Final = 16_384
"""Words of which the terms are remembered: about 4 MiB. Indexing 100,000 tools meets each of them often."""

# Scripts whose words run together: Han, kana, Hangul (with its particles), Thai, Lao, Burmese, Khmer.
_UNSPACED: Final = (
    "\u3005-\u3007\u3041-\u3096\u309d-\u309f\u30a1-\u30fa\u30fc-\u30ff\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff"
    "\uf900-\ufaff\U00020000-\U0003ffff\uac00-\ud7af\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff"
)
# Signs that belong to the letter before them but are no letters: accents, and the vowels of Indian scripts.
_MARKS: Final = "\u0300-\u036f\u0900-\u0dff"
_RUN: Final = re.compile(rf"([{_UNSPACED}]+)|((?:[^\W_{_UNSPACED}]|[{_MARKS}])+)")
_ASCII_RUN: Final = re.compile("[A-Za-z0-9]+")
"""The same in a text of ASCII alone."""
# Where a word of an identifier ends: before a capital (`readFile`, `HTTPServer`; not `PDFs`), around digits.
_SEAM: Final = re.compile(
    r"(?<=[a-z])(?=[A-Z])|(?<=[A-Z])(?=[A-Z](?!s(?:[A-Z0-9]|\Z))[a-z])|(?<=\d)(?=[^\W\d])|(?<=[^\W\d])(?=\d)"
)
_APOSTROPHE: Final = re.compile(r"(?<=[A-Za-z])['\u2019\u02bc](?:s|t|re|ve|ll|d|m)\b", re.IGNORECASE)

_IDLE: Final = """
    a about also am an and any are as at be been being both but by can could did do does each either etc for
    from had has have how i if in into is it its me my need of on onto or our per please should so such than
    that the their them then there these they this those through to up us via want was we were what when
    where which while who whom whose will with would you your
"""
# What people say around what they look for. Tools may well be called so: it is left out of queries alone.
_COURTESY: Final = "get give help just let like some sure tell use using"
_STOP_WORDS: Final = frozenset(_IDLE.split())
_QUERY_STOP_WORDS: Final = _STOP_WORDS | frozenset(_COURTESY.split())


def terms(text: str) -> list[str]:
    """The terms of a text that is searched, in its order, with repetitions.

    A word that falls into parts is there whole as well (`GitHub`: git, hub, github). Of a script without
    spaces, each character is there beside the pairs, for queries of one character.
    """
    return _without(_STOP_WORDS, _pieces(text, is_query=False))


def query_terms(text: str) -> list[str]:
    """The terms of a text that is searched for: as in `terms`, but of scripts without spaces pairs alone."""
    return _without(_QUERY_STOP_WORDS, _pieces(text, is_query=True))


def split_name(name: str) -> str:
    """An identifier as the words it is made of: `readFile`, `read_file` and `read-file` as `read file`."""
    runs = _RUN.finditer(unicodedata.normalize("NFKC", name[:MAX_TEXT_CHARS]))
    return " ".join(part.lower() for run in runs for part in _SEAM.split(run[0]))


def _without(idle: frozenset[str], words: list[str]) -> list[str]:
    """Stems of the `words` that say something; of all where none does, so that `do it` finds `do_it`."""
    return [stem(word) for word in words if word not in idle] or list(map(stem, words))


def _pieces(text: str, *, is_query: bool) -> list[str]:
    found: list[str] = []
    text = text[:MAX_TEXT_CHARS]
    if text.isascii():  # most texts: their words are found in a third of the time
        plain = _APOSTROPHE.sub("", text) if "'" in text else text
        for word in _ASCII_RUN.findall(plain):
            found += _known_parts(word) if len(word) <= MAX_TERM_CHARS else _parts(word)
        return found
    normal = unicodedata.normalize("NFKC", text)[:MAX_TEXT_CHARS]
    for unspaced, spaced in _RUN.findall(_APOSTROPHE.sub("", normal)):
        if unspaced:
            if len(unspaced) == 1 or not is_query:
                found += unspaced
            found += map("".join, pairwise(unspaced))
        else:
            found += _known_parts(spaced) if len(spaced) <= MAX_TERM_CHARS else _parts(spaced)
    return found


def _parts(spaced: str) -> tuple[str, ...]:
    """The parts of one word, and the word where it has several."""
    parts = [part.casefold()[:MAX_TERM_CHARS] for part in _SEAM.split(spaced)]
    return (*parts, spaced.casefold()[:MAX_TERM_CHARS]) if len(parts) > 1 else tuple(parts)


_known_parts: Final = lru_cache(maxsize=_REMEMBERED)(_parts)


@lru_cache(maxsize=_REMEMBERED)
def stem(word: str) -> str:
    """`word` without English endings that seldom change what is meant: convert(s|ed|ing), creat(e|ion)."""
    if len(word) < 3 or not word.isascii() or not word.isalpha():
        return word
    return _without_e(_without_suffix(_without_plural(word)))


def _without_plural(word: str) -> str:
    if not word.endswith("s") or word.endswith(("ss", "us", "is", "as")):
        return word
    if word.endswith("ies") and len(word) > 4:
        return word[:-3] + "y"
    if word.endswith(("sses", "shes", "ches", "xes", "zes")):
        return word[:-2]
    return word[:-1]


def _without_suffix(word: str) -> str:
    for suffix in ("ing", "ed", "ion"):
        rest = word.removesuffix(suffix)
        if rest != word and len(rest) > 2 and re.search("[aeiouy]", rest):
            is_doubled = rest[-1] == rest[-2] and rest[-1] not in "lsz"
            return rest[:-1] if is_doubled else rest
    return word


def _without_e(word: str) -> str:
    return word[:-1] if len(word) > 3 and word.endswith("e") else word
