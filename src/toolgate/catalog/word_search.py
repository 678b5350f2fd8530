"""Tool search by words: BM25 over weighted fields, kept in memory and changed group by group.

The weight of a term in a document is fixed when the document is added, by usual field lengths instead of
those of other documents. Each search counts how rare a term is among the documents that it may return. So
tools that a caller may not see have no influence on its results, not even on their order.

The same text gives the same terms everywhere, in any language. There is no dictionary: scripts without spaces
are split into overlapping pairs of characters, English loses its most common endings. The synonyms are few on
purpose: general words of tools, and no products, except file types that people call by their program.

Threads: one writer at a time (`put`, `drop`), which the caller ensures. Any number of threads may search
meanwhile, and see each group as before or after a change. For that a writer only appends behind the end that
readers use, and then moves the end by one assignment.
"""

import json
import math
import re
import unicodedata
from array import array
from bisect import bisect_left
from collections import defaultdict, deque
from collections.abc import Callable, Container, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, fields
from functools import lru_cache
from hashlib import sha256
from itertools import compress, pairwise
from math import fsum
from operator import and_, attrgetter
from typing import Any, Final, NamedTuple

import msgspec

from toolgate.model.packages import ALL_TOOLS, CatalogRow

MAX_TEXT_CHARS: Final = 16_384  # the rest of a text is ignored
MAX_TERM_CHARS: Final = 48  # longer words are cut: keys and digests are found by their beginning

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
"""The same for a text of ASCII only."""
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
# Words of politeness. Tools may have such names, so they are dropped only from queries.
_QUERY_STOP: Final = "get give help just let like some sure tell use using"
_STOP_WORDS: Final = frozenset(_STOP.split())
_QUERY_STOP_WORDS: Final = _STOP_WORDS | frozenset(_QUERY_STOP.split())


def split_terms(text: str, *, is_query: bool = False) -> list[str]:
    """The stems of a document, in order, with repetitions, without stop words.

    A word with parts is also a term (`GitHub`: git, hub, github). Scripts without spaces have pairs of
    characters as terms; in a document each character is one, too, for queries of one character. If there are
    only stop words, all of them are terms, so that `do it` finds `do_it`.
    """
    words, idle = _split_words(text, is_query=is_query), _QUERY_STOP_WORDS if is_query else _STOP_WORDS
    return [stem(word) for word in words if word not in idle] or list(map(stem, words))


def split_name(name: str) -> str:
    """The words of an identifier: `read file` for `readFile`, `read_file` and `read-file`."""
    runs = _RUN.finditer(unicodedata.normalize("NFKC", name[:MAX_TEXT_CHARS]))
    return " ".join(part.lower() for run in runs for part in _WORD_BOUNDARY.split(run[0]))


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


MAX_PARAMETER_CHARS: Final = 8_192  # half of `MAX_TEXT_CHARS`: arguments count less than the description
_MAX_TEXTS: Final = 512  # 16 characters each fill `MAX_PARAMETER_CHARS`


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchEntry:
    """The searchable texts of one tool."""

    key: str
    """Its full name, `server_id.tool`."""
    name: str
    server: str
    server_name: str
    """The server's name for people."""
    title: str = ""
    description: str = ""
    parameters: str = ""
    """Names and descriptions of its arguments: `collect_parameter_text`."""
    category: str = ""
    tags: tuple[str, ...] = ()


def make_entry(row: CatalogRow) -> SearchEntry:
    """The entry of a catalog row. A package without known tools is found by its description."""
    is_known = row.tool_name != ALL_TOOLS
    return SearchEntry(
        key=row.full_name,
        name=row.tool_name if is_known else "",
        server=row.package_id,
        server_name=row.package_name,
        title=row.title,
        description=row.description or ("" if is_known else row.package_description),
        parameters=collect_parameter_text(_decode_schema(row.input_schema)),
        category=row.category,
        tags=row.tags,
    )


def collect_parameter_text(schema: Mapping[str, Any]) -> str:
    """Names and descriptions of the arguments of `schema`, nested ones last."""
    texts: list[str] = []
    pending: deque[Mapping[str, Any]] = deque([schema])
    while pending and len(texts) < _MAX_TEXTS:
        node = pending.popleft()
        properties = node.get("properties")
        for name, argument in properties.items() if isinstance(properties, Mapping) else ():
            texts.append(name)
            if isinstance(argument, Mapping):
                description = argument.get("description")
                texts += [description] if isinstance(description, str) else []
                pending.append(argument)
        items = node.get("items")
        pending += [items] if isinstance(items, Mapping) else []
    return " ".join(texts)[:MAX_PARAMETER_CHARS]


def _decode_schema(schema: bytes) -> Mapping[str, Any]:
    try:
        decoded = msgspec.json.decode(schema)
    except (msgspec.DecodeError, RecursionError):
        return {}
    return decoded if isinstance(decoded, Mapping) else {}


MAX_QUERY_CHARS: Final = 4_096  # four times what a surface accepts; splitting costs by length
MAX_QUERY_TERMS: Final = 48  # distinct terms of a query that count, the first ones

_CONTENT: Final = attrgetter(*(field.name for field in fields(SearchEntry)))
_SATURATION: Final = 1.2  # k1 of BM25: how soon repetitions of a term stop counting
_SYNONYM_WEIGHT: Final = 0.3  # of a synonym, compared with the word itself
_MAX_DEAD: Final = 1_000  # deleted documents before cleaning up pays


class _Field(NamedTuple):
    """The weight of a term in a field, the usual number of terms in it, b of BM25, and the field itself."""

    weight: float
    usual_length: int
    normalisation: float
    read: Callable[[SearchEntry], str]


_FIELDS: Final = (
    _Field(3.0, 3, 0.3, attrgetter("name")),
    _Field(1.0, 3, 0.3, lambda entry: f"{entry.server} {entry.server_name}"),
    _Field(2.0, 4, 0.3, attrgetter("title")),
    _Field(1.0, 30, 0.6, attrgetter("description")),
    _Field(0.3, 40, 0.7, attrgetter("parameters")),
    _Field(1.0, 4, 0.3, lambda entry: " ".join((entry.category, *entry.tags))),
)


class _Posting(NamedTuple):
    """The documents that have a term, ascending, and its weight in each."""

    documents: "array[int]"
    weights: "array[float]"


class _IndexState(NamedTuple):
    """The data that readers use."""

    keys: list[str]
    """By document. Longer than `live` during a change."""
    postings: dict[str, _Posting]
    live: bytes
    """By document: 1, or 0 if it is deleted."""


class _Group(NamedTuple):
    digest: bytes
    documents: range


_NO_GROUP: Final = _Group(b"", range(0))


class SearchIndex:
    """The tools that can be found, in groups of a server or package that change as one."""

    def __init__(self) -> None:
        self._shown = _IndexState([], {}, b"")
        self._groups: dict[str, _Group] = {}

    def groups(self) -> AbstractSet[str]:
        return frozenset(self._groups)

    def put(self, group: str, entries: Sequence[SearchEntry]) -> None:
        """Replace the entries of `group`. Cheap if they are equal."""
        hashed = sha256()
        for entry in entries:  # one by one, so that other threads run in between
            hashed.update(json.dumps(_CONTENT(entry)).encode())
        digest = hashed.digest()
        known = self._groups.get(group, _NO_GROUP)
        if known.digest == digest:
            return
        first = len(self._shown.keys)
        for entry in entries:
            self._append(entry)
        added = range(first, first + len(entries))
        self._show(added=added, gone=known.documents)
        self._groups[group] = _Group(digest, added)
        self._clean_up()

    def drop(self, group: str) -> None:
        known = self._groups.pop(group, _NO_GROUP)
        self._show(added=range(0), gone=known.documents)
        self._clean_up()

    def search(self, query: str, *, limit: int, within: Container[str] | None = None) -> list[str]:
        """The keys of the best results for `query`; equal scores by key. Documents not `within` are ignored
        completely."""
        shown = self._shown
        visible = shown.live
        if within is not None:
            visible = bytes(map(and_, visible, map(within.__contains__, shown.keys)))
        terms = split_terms(query[:MAX_QUERY_CHARS], is_query=True)
        words = list(dict.fromkeys(terms))[:MAX_QUERY_TERMS]
        weights = {other: _SYNONYM_WEIGHT for term in words for other in SYNONYMS.get(term, ())}
        scores = _score(shown.postings, visible, weights | dict.fromkeys(words, 1.0))
        return _take_best(shown.keys, scores, limit)

    def _append(self, entry: SearchEntry) -> None:
        keys, postings, _ = self._shown
        document = len(keys)
        keys.append(entry.key)
        for term, weight in _weigh_entry(entry).items():
            posting = postings.get(term)
            if posting is None:
                posting = postings[term] = _Posting(array("I"), array("f"))
            posting.documents.append(document)
            posting.weights.append(weight)

    def _show(self, *, added: range, gone: range) -> None:
        # Between the end and `added` are documents of a failed change. They never show.
        live = bytearray(self._shown.live.ljust(added.start, b"\0"))
        live[gone.start : gone.stop] = bytes(len(gone))
        live += b"\1" * len(added)
        self._shown = self._shown._replace(live=bytes(live))

    def _clean_up(self) -> None:
        """Drop deleted documents when they outnumber the others."""
        keys, postings, live = self._shown
        count = live.count(1)
        if len(live) - count <= count + _MAX_DEAD:
            return
        places = array("I", bytes(4 * len(live)))
        for place, document in enumerate(compress(range(len(live)), live)):
            places[document] = place
        kept = {term: _compact_posting(posting, places, live) for term, posting in postings.items()}
        self._shown = _IndexState(
            list(compress(keys, live)),
            {term: posting for term, posting in kept.items() if posting.documents},
            b"\1" * count,
        )
        for name, (digest, documents) in self._groups.items():
            first = places[documents.start] if documents else 0
            self._groups[name] = _Group(digest, range(first, first + len(documents)))


def _weigh_entry(entry: SearchEntry) -> dict[str, float]:
    """The weight of each term of `entry`, between 0 and 1 (BM25F)."""
    frequencies: defaultdict[str, float] = defaultdict(float)
    for field in _FIELDS:
        found = split_terms(field.read(entry))
        length = 1 - field.normalisation + field.normalisation * len(found) / field.usual_length
        for term in found:
            frequencies[term] += field.weight / length
    return {term: frequency / (_SATURATION + frequency) for term, frequency in frequencies.items()}


def _compact_posting(posting: _Posting, places: "array[int]", live: bytes) -> _Posting:
    documents = posting.documents[: bisect_left(posting.documents, len(live))]
    flags = bytes(map(live.__getitem__, documents))
    return _Posting(
        array("I", map(places.__getitem__, compress(documents, flags))),
        array("f", compress(posting.weights, flags)),
    )


def _score(postings: dict[str, _Posting], visible: bytes, weights_by_term: dict[str, float]) -> list[float]:
    scores = [0.0] * len(visible)
    total = visible.count(1)
    is_all = total == len(visible)
    for term, counts in weights_by_term.items():
        if (posting := postings.get(term)) is None:
            continue
        end = bisect_left(posting.documents, len(visible))
        documents, weights = posting.documents[:end], posting.weights[:end]
        flags = b"" if is_all else bytes(map(visible.__getitem__, documents))
        having = end if is_all else flags.count(1)
        factor = counts * math.log1p((total - having + 0.5) / (having + 0.5))
        pairs = zip(documents, weights, strict=True)
        for document, weight in pairs if is_all else compress(pairs, flags):
            scores[document] += factor * weight
    return scores


def _take_best(keys: list[str], scores: list[float], limit: int) -> list[str]:
    if limit < 1:
        return []
    # Scores alone sort many times faster than with their keys, which matter only near the limit.
    ordered = sorted(filter(None, scores), reverse=True)
    floor = ordered[:limit][-1] if ordered else math.inf
    found = [(-score, keys[document]) for document, score in enumerate(scores) if score >= floor]
    return [key for _, key in sorted(found)[:limit]]


# The usual value is 60, for rankings of thousands. These are short, and their first places matter more.
_DAMPING: Final = 20


def fuse_rankings(rankings: Sequence[Sequence[str]], *, limit: int) -> list[str]:
    """Merge several rankings (each best first, without duplicates) by reciprocal rank; equal scores by
    key."""
    votes: defaultdict[str, list[float]] = defaultdict(list)
    for ranking in rankings:
        for place, key in enumerate(ranking, start=1):
            votes[key].append(1 / (_DAMPING + place))
    # An exact sum: the order of rankings must not decide between equals.
    return sorted(votes, key=lambda key: (-fsum(votes[key]), key))[:limit]
