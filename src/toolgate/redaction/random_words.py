"""Detects random words, such as keys and tokens: their letters follow each other unlike those of a language.

Wide on purpose, like `secret_names`: a masked identifier costs a look into the file, a shown token costs
more. Paths, URLs, package names, versions and labelled digests stay unchanged.
"""

import re
import sys
from collections.abc import Iterator
from itertools import pairwise
from typing import Final

from toolgate.redaction.shapes import Spans, mask_spans

MIN_RANDOM: Final = 16  # characters. A shorter word may be an unusual name
MIN_SUSPECT: Final = 8  # the shortest password that most systems accept

_FOLLOWERS: Final = {
    "a": "bcdgiklmnprstuvy",
    "b": "aeilorsu",
    "c": "acehiklorstu",
    "d": "adeilorsu",
    "e": "abcdefgilmnopqrstvwx",
    "f": "aefiloru",
    "g": "aehinorsu",
    "h": "aeiot",
    "i": "abcdefglmnoprstvxz",
    "k": "eis",
    "l": "adeilostuy",
    "m": "abeimopsu",
    "n": "acdefgiklnopstuv",
    "o": "abcdfgiklmnoprstuvw",
    "p": "aeiloprstuy",
    "q": "u",
    "r": "acdegiklmnoprstuvy",
    "s": "acehiklopstuy",
    "t": "acdehilmoprstuy",
    "u": "abcegilmnprst",
    "v": "aei",
    "w": "aeior",
    "x": "eipt",
    "y": "npst",
    "z": "e",
}
"""The 250 pairs of letters that make up 93 % of those in English words and package names. In random words
they are 37 %."""
_UNLIKELY: Final = 0.4
"""The share of unlikely pairs from which a word is random. Tokens have 0.55 and more, names at most 0.3."""
# In a short word a share means little, so there must also be this many unlikely pairs.
_MIN_UNLIKELY: Final = 8
_MIN_SUSPICIOUS: Final = 5  # of a word shorter than `MIN_RANDOM`

# `&` and `?` separate the members of a query; elsewhere they are signs that a password may contain.
_WORD: Final = re.compile(r"""(?:[^\s"'`=,;:()\[\]{}<>|&?\\]|[&?](?![\w.-]{1,64}=))+""")
_NAME_BEFORE: Final = re.compile(r"([\w-]{1,64})[=:]\s{0,8}\Z")
# The name of a package, an image or a revision of a repository: `@scope/name@1.2`, `org/repo#main`.
_SPEC: Final = re.compile(r"@?[\w.-]+(?:/[\w.-]+)*[@#][\w.^~*+-]*")
_BASE64: Final = re.compile(r"[A-Za-z0-9+/_-]+")
_UUID: Final = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.IGNORECASE)
_HEX: Final = re.compile(r"(?=[a-f]*[0-9])(?=[0-9]*[a-f])[0-9a-f]{24,}", re.IGNORECASE)
_SHORT: Final = re.compile(r"[A-Za-z0-9!#$%^&*?]+")
# `--commit`, `PROJECT_ID`, `sha256`: such a name labels its value as an identifier.
_IDENTIFIES: Final = re.compile(
    r"(?:.*[-_])?(?:id|uuid|guid|commit|ref|rev|revision|sha-?\d{0,3}|md5|digest|checksum|hash|fingerprint|version|tag)",
    re.IGNORECASE,
)


def random_spans(text: str, name: str = "", begin: int = 0, end: int = sys.maxsize) -> Spans:
    """The places of random words in `text[begin:end]`. `name`: the flag or variable that is set to it."""
    for found in _WORD.finditer(text, begin, end):
        word = found[0]
        if len(word) >= MIN_RANDOM and looks_random(word):
            before = _NAME_BEFORE.search(text, max(begin, found.start() - 80), found.start())
            if not (_is_identifier(word) and _IDENTIFIES.fullmatch(before[1] if before else name)):
                yield found.span()


def looks_random(word: str) -> bool:
    """Whether a word without spaces is a token by its letters, whatever its name."""
    if len(word) < MIN_RANDOM or not word.isascii() or word.startswith(("/", "./", "../", "~")):
        return False
    if _is_identifier(word):
        return True
    if "/" in word and not _BASE64.fullmatch(word):
        return False
    if _SPEC.fullmatch(word) and not looks_random(re.split("[@#]", word.lstrip("@"))[0]):
        return False
    return any(_is_random(part) for part in word.split("."))


def find_suspects(text: str) -> Iterator[str]:
    """Words that may be secrets and that `random_spans` does not find: short ones, and parts of URLs."""
    shown = mask_spans(text, random_spans(text), lambda _: "")
    for found in _WORD.finditer(shown):
        for part in found[0].split("/"):
            if looks_random(part) or _is_suspicious(part):
                yield part


def _is_identifier(word: str) -> bool:
    """Whether it is as random as a token, but usually an id: a UUID, a digest."""
    return bool(_UUID.fullmatch(word) or _HEX.fullmatch(word))


def _is_random(part: str) -> bool:
    pairs, unlikely = _count_pairs(part)
    return len(part) >= MIN_RANDOM and unlikely >= max(_MIN_UNLIKELY, _UNLIKELY * pairs)


def _is_suspicious(part: str) -> bool:
    """Whether a short word could be a password: letters and digits in an order unlike names."""
    if not MIN_SUSPECT <= len(part) < MIN_RANDOM or not _SHORT.fullmatch(part):
        return False
    if part.isalpha() or part.isdigit():
        return False
    pairs, unlikely = _count_pairs(part)
    return unlikely >= max(_MIN_SUSPICIOUS, pairs / 2)


def _count_pairs(part: str) -> tuple[int, int]:
    """The number of adjacent pairs of letters, digits and signs, and how many of them are unlikely."""
    pairs = unlikely = 0
    for one, other in pairwise(part):
        if one in "-_/" or other in "-_/":
            continue
        pairs += 1
        if one.isalpha() and other.isalpha():
            is_camel = one.islower() and other.isupper()
            unlikely += is_camel or other.lower() not in _FOLLOWERS.get(one.lower(), "")
        else:
            unlikely += not (one.isdigit() and other.isdigit())
    return pairs, unlikely
