"""Texts and identifiers as the terms that search compares, in any language, and synonyms.

The same text gives the same terms everywhere. There is no dictionary: scripts without spaces are cut into
overlapping pairs of characters, English loses its commonest endings. The synonyms are few on purpose: words
that are general to tools, and no products or services, except kinds of files that people call by their
program.
"""

import re
import unicodedata
from collections.abc import Mapping
from functools import lru_cache
from itertools import pairwise
from typing import Final

MAX_TEXT_CHARS: Final = 16_384
"""The rest of a text is ignored."""
MAX_TERM_CHARS: Final = 48
"""Longer words are cut: keys and digests are found by their beginning."""

_MAX_CACHED: Final = 16_384
"""Words whose terms are cached: about 4 MiB. Indexing 100,000 tools repeats each often."""

# Scripts whose words run together: Han, kana, Hangul (with its particles), Thai, Lao, Burmese, Khmer.
_UNSPACED: Final = (
    "\u3005-\u3007\u3041-\u3096\u309d-\u309f\u30a1-\u30fa\u30fc-\u30ff\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff"
    "\uf900-\ufaff\U00020000-\U0003ffff\uac00-\ud7af\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff"
)
# Marks that belong to the letter before them: accents, and the vowels of Indian scripts.
_MARKS: Final = "\u0300-\u036f\u0900-\u0dff"
_RUN: Final = re.compile(rf"([{_UNSPACED}]+)|((?:[^\W_{_UNSPACED}]|[{_MARKS}])+)")
_ASCII_RUN: Final = re.compile("[A-Za-z0-9]+")
"""The same in a text of ASCII alone."""
# Where a word of an identifier ends: before a capital (`readFile`, `HTTPServer`; not `PDFs`), around digits.
_WORD_BOUNDARY: Final = re.compile(
    r"(?<=[a-z])(?=[A-Z])|(?<=[A-Z])(?=[A-Z](?!s(?:[A-Z0-9]|\Z))[a-z])|(?<=\d)(?=[^\W\d])|(?<=[^\W\d])(?=\d)"
)
_APOSTROPHE: Final = re.compile(r"(?<=[A-Za-z])['\u2019\u02bc](?:s|t|re|ve|ll|d|m)\b", re.IGNORECASE)

_STOP: Final = """
    a about also am an and any are as at be been being both but by can could did do does each either etc for
    from had has have how i if in into is it its me my need of on onto or our per please should so such than
    that the their them then there these they this those through to up us via want was we were what when
    where which while who whom whose will with would you your
"""
# Words of politeness. Tools may have such names, so they are dropped from queries alone.
_QUERY_STOP: Final = "get give help just let like some sure tell use using"
_STOP_WORDS: Final = frozenset(_STOP.split())
_QUERY_STOP_WORDS: Final = _STOP_WORDS | frozenset(_QUERY_STOP.split())


def split_terms(text: str) -> list[str]:
    """The terms of a document, in order, with repetitions.

    A word with parts is a term, too (`GitHub`: git, hub, github). In scripts without spaces so is each
    character, for queries of one character.
    """
    return _drop_stop_words(_STOP_WORDS, _split_words(text, is_query=False))


def split_query(text: str) -> list[str]:
    """The terms of a query: as `split_terms`, but of scripts without spaces pairs alone."""
    return _drop_stop_words(_QUERY_STOP_WORDS, _split_words(text, is_query=True))


def split_name(name: str) -> str:
    """The words of an identifier: `read file` for `readFile`, `read_file` and `read-file`."""
    runs = _RUN.finditer(unicodedata.normalize("NFKC", name[:MAX_TEXT_CHARS]))
    return " ".join(part.lower() for run in runs for part in _WORD_BOUNDARY.split(run[0]))


def _drop_stop_words(idle: frozenset[str], words: list[str]) -> list[str]:
    """Stems of `words` without stop words; of all if there are no others, so that `do it` finds `do_it`."""
    return [stem(word) for word in words if word not in idle] or list(map(stem, words))


def _split_words(text: str, *, is_query: bool) -> list[str]:
    found: list[str] = []
    text = text[:MAX_TEXT_CHARS]
    if text.isascii():  # most texts, at a third of the time
        plain = _APOSTROPHE.sub("", text) if "'" in text else text
        for word in _ASCII_RUN.findall(plain):
            found += _cached_split_word(word) if len(word) <= MAX_TERM_CHARS else _split_word(word)
        return found
    normal = unicodedata.normalize("NFKC", text)[:MAX_TEXT_CHARS]
    for unspaced, spaced in _RUN.findall(_APOSTROPHE.sub("", normal)):
        if unspaced:
            if len(unspaced) == 1 or not is_query:
                found += unspaced
            found += map("".join, pairwise(unspaced))
        else:
            found += _cached_split_word(spaced) if len(spaced) <= MAX_TERM_CHARS else _split_word(spaced)
    return found


def _split_word(spaced: str) -> tuple[str, ...]:
    """The parts of one word, and the word if it has several."""
    parts = [part.casefold()[:MAX_TERM_CHARS] for part in _WORD_BOUNDARY.split(spaced)]
    return (*parts, spaced.casefold()[:MAX_TERM_CHARS]) if len(parts) > 1 else tuple(parts)


_cached_split_word: Final = lru_cache(maxsize=_MAX_CACHED)(_split_word)


@lru_cache(maxsize=_MAX_CACHED)
def stem(word: str) -> str:
    """`word` without English endings that seldom change its meaning: convert(s|ed|ing), creat(e|ion)."""
    if len(word) < 3 or not word.isascii() or not word.isalpha():
        return word
    word = _without_suffix(_without_plural(word))
    return word[:-1] if len(word) > 3 and word.endswith("e") else word


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


_SAME: Final = """
    search find lookup query discover locate
    create make generate build new add write
    delete remove erase
    get fetch retrieve read obtain view show
    update edit modify change
    change diff difference
    change history log
    list enumerate show
    save write store
    send post publish
    calculate compute
    convert transform
    picture image photo png jpg figure
    chart plot graph draw
    docx word
    xlsx excel spreadsheet workbook sheet csv
    pptx ppt powerpoint presentation slide
    md markdown
    website webpage page site url
    directory folder
    map location place
    directions route
    command shell terminal
    paper article
    news headline story
    movie film video
    trending trend hot rank popular
    price quote
    创建 新建 新增 添加
    删除 移除
    搜索 查询 查找 检索
    获取 读取 查看
    更新 修改 编辑
    图片 图像 照片
"""


def _by_term() -> Mapping[str, tuple[str, ...]]:
    found: dict[str, dict[str, None]] = {}
    for line in _SAME.strip().splitlines():
        group = [stem(word) for word in line.split()]
        for term in group:
            found.setdefault(term, {}).update(dict.fromkeys(other for other in group if other != term))
    return {term: tuple(others) for term, others in found.items()}


SYNONYMS: Final = _by_term()
"""Term to its synonyms."""
