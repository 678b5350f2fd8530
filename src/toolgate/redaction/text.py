"""A text without the secrets in it: those one can tell by their name, their shape, or their place in a URL.

These expressions are searched for in the texts of strangers. None may begin at every character of a word and
read on to its end.
"""

import re
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Final

from toolgate.model.names import REFERENCE
from toolgate.redaction.shapes import (
    BEARER,
    MASK,
    URL_USERINFO,
    looks_secret,
    mask_spans,
    redact_commands,
    redact_shapes,
    redact_statements,
)

Hides = Callable[[str], bool]
"""Whether what goes by a name is hidden."""

_SCHEME_AND_REFERENCE: Final = re.compile(rf"(?:(?i:Bearer|Basic|Token) )?{REFERENCE.pattern}")
_BEARER: Final = re.compile(BEARER.pattern)
_URL_USERINFO: Final = re.compile(URL_USERINFO.pattern)
# A name, and what separates it from its value: `name=value` in a URL, `name = 'value'` in a connection
# string, `"name": "value"` in JSON. The value is not part of the match: it may be `url=https://host/?token=…`.
_SEPARATOR: Final = r"""\]?\s{0,2}=\s{0,2}["']?|\\{0,3}["']\s{0,8}:\s{0,8}\\{0,3}["']?"""
_PAIR: Final = re.compile(rf"(?<![\w.-])(--?)?([A-Za-z_][\w.-]*)(?:{_SEPARATOR})")
# Also `Name: value` of a header, `--name value` of a command, `NAME 'value'` of a statement.
_PROSE_PAIR: Final = re.compile(
    rf"""(?<![\w.-])(--?)?([A-Za-z_][\w.-]*)(?:{_SEPARATOR}|:[ \t]{{0,8}}["']?|\s{{1,4}}(?(1)["']?|["']))"""
)
_QUOTED: Final = {
    '"': re.compile(r'(?:[^"\\]|\\.)*', re.DOTALL),
    "'": re.compile(r"(?:[^'\\]|\\.)*", re.DOTALL),
}
_LINE: Final = re.compile(r"""[^\r\n"']*""")
_WORD: Final = re.compile(r"""\{[^}]*\}?|\[[^\]]*\]?|[^\s&;,"'#]*""")
_ELEMENT: Final = re.compile(r"<(?:[\w.-]{1,64}:)?([\w.-]{1,64})(?:\s[^<>]{0,256})?>(?=[^<])")
_ELEMENT_TEXT: Final = re.compile(r"[^<]*")
_ENCODED_WORD: Final = re.compile(r"[^\s\"'<>]+")
_ENCODED_BYTES: Final = re.compile("(?:%[0-9A-Fa-f]{2})+")
_MAX_ENCODED: Final = 3
"""Times that one text may have been percent-encoded: a URL in a query of a URL in a query."""
_SPACE: Final = re.compile(r"\s")


def redact_text(text: str, *, hides: Hides = looks_secret, is_prose: bool = False) -> str:
    """`text` without its secrets.

    `is_prose`: people or programs may state them in words, like `Token: …`, which messages of errors mostly
    do not.
    """
    return _redact(text, hides, is_prose=is_prose, encoded=_MAX_ENCODED)


def _redact(text: str, hides: Hides, *, is_prose: bool, encoded: int) -> str:
    text = _URL_USERINFO.sub(rf"\1{MASK}@", text)
    text = _BEARER.sub(rf"\1 {MASK}", text)
    text = mask_spans(text, _find_values(text, _PROSE_PAIR if is_prose else _PAIR, hides), mask_value)
    if is_prose:
        text = redact_statements(mask_spans(text, _find_elements(text, hides)))
    text = redact_shapes(redact_commands(text))
    if encoded and "%" in text:
        decode = partial(_redact_encoded, hides=hides, is_prose=is_prose, encoded=encoded - 1)
        text = _ENCODED_WORD.sub(decode, text)
    return text


def _redact_encoded(word: re.Match[str], *, hides: Hides, is_prose: bool, encoded: int) -> str:
    """A word as it came, unless something in it shows when it is decoded: then decoded, and without that."""
    if "%" not in word[0]:
        return word[0]
    plain = _SPACE.sub("+", percent_decode(word[0]))
    shown = _redact(plain, hides, is_prose=is_prose, encoded=encoded) if plain != word[0] else plain
    return word[0] if shown == plain else shown


def percent_decode(text: str) -> str:
    """`text` as `urllib.parse.unquote` has it; what is not UTF-8 becomes U+FFFD."""
    return _ENCODED_BYTES.sub(
        lambda found: bytes.fromhex(found[0].replace("%", "")).decode(errors="replace"), text
    )


def _find_values(text: str, pair: re.Pattern[str], hides: Hides) -> Iterator[tuple[int, int]]:
    end = 0
    for found in pair.finditer(text):
        if found.start() >= end and hides(found[2]):
            sign = text[found.end(2) : found.end()]
            value = _QUOTED.get(sign[-1], _LINE if sign[0] == ":" else _WORD).match(text, found.end())
            end = found.end() if value is None else value.end()
            yield found.end(), end


def _find_elements(text: str, hides: Hides) -> Iterable[tuple[int, int]]:
    """The texts of XML elements by the name of a secret."""
    for found in _ELEMENT.finditer(text):
        if hides(found[1]):
            value = _ELEMENT_TEXT.match(text, found.end())
            yield found.end(), found.end() if value is None else value.end()


def mask_value(value: str) -> str:
    """The mask of a secret. A reference is shown, but not the default in it, which may be the secret."""
    if not value or not _SCHEME_AND_REFERENCE.fullmatch(value):
        return value and MASK
    return REFERENCE.sub(lambda match: f"${{ENV:{match[1]}:-{MASK}}}" if match[2] else match[0], value)
