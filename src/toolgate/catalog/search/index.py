"""What can be found of a tool, as text.

Finding tools by words: BM25 over weighted fields, kept in memory and changed group by group.

What a document weighs for a term is fixed when it comes in, by lengths that are usual and not by those of the
documents beside it. How rare a term is, is counted in each search over what that search may find. So what a
caller may not see has no influence on its answers, not even on their order.

Threads: one writer at a time (`put`, `drop`), which the caller sees to. Any number of threads may
search meanwhile; they see each group as it was before a change or as it is after it. For that a writer only
appends, behind the end of what readers look at, and then moves that end by one assignment.

One ranking of several that judge by different means: reciprocal rank fusion.
"""

import json
import math
from array import array
from bisect import bisect_left
from collections import defaultdict, deque
from collections.abc import Container, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, fields
from hashlib import sha256
from itertools import compress
from math import fsum
from operator import and_, attrgetter
from typing import Any, Final, NamedTuple

import msgspec

from toolgate.catalog.search.terms import SYNONYMS, split_query, split_terms
from toolgate.model.packages import ALL_TOOLS, CatalogRow

MAX_PARAMETER_CHARS: Final = 8_192
_MAX_TEXTS: Final = 512


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchEntry:
    """One tool that can be found."""

    key: str
    """Its full name, `server_id.tool`."""
    name: str
    server: str
    server_name: str
    """For people."""
    title: str = ""
    description: str = ""
    parameters: str = ""
    """Names and descriptions of its arguments: `collect_parameter_text`."""
    category: str = ""
    tags: tuple[str, ...] = ()


def make_entry(row: CatalogRow) -> SearchEntry:
    """A row of the catalog as it is found. A package of which no tool is known is found by what it says."""
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
    """Names and descriptions of the arguments that `schema` has, those of nested ones behind."""
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


MAX_QUERY_CHARS: Final = 4_096
MAX_QUERY_TERMS: Final = 48
"""Different terms of one query that count; of more, the first."""

_CONTENT: Final = attrgetter(*(field.name for field in fields(SearchEntry)))
_SATURATION: Final = 1.2  # k1 of BM25: how soon more of a term says nothing new
_SYNONYM_WEIGHT: Final = 0.3  # what a word that was not said counts for one that was
_MAX_DEAD: Final = 1_000  # documents that are gone before it pays to clean up


class SearchHit(NamedTuple):
    """Something found. The higher the score the better it suits; scores of two queries do not compare."""

    key: str
    score: float


class _Field(NamedTuple):
    """How a field counts: a term in it, its usual number of terms, and how much that number matters (b)."""

    weight: float
    usual_length: int
    normalisation: float


_NAME: Final = _Field(3.0, 3, 0.3)
_SERVER: Final = _Field(1.0, 3, 0.3)
_TITLE: Final = _Field(2.0, 4, 0.3)
_DESCRIPTION: Final = _Field(1.0, 30, 0.6)
_PARAMETERS: Final = _Field(0.3, 40, 0.7)
_LABELS: Final = _Field(1.0, 4, 0.3)


class _Posting(NamedTuple):
    """The documents that have a term, in ascending order, and what it weighs in each."""

    documents: "array[int]"
    weights: "array[float]"


class _IndexState(NamedTuple):
    """What readers look at."""

    keys: list[str]
    """By document. Longer than `live` while a writer is at work."""
    postings: dict[str, _Posting]
    live: bytes
    """By document: 1 where it is there, 0 where it is gone."""


class _Group(NamedTuple):
    digest: bytes
    documents: range


_NO_GROUP: Final = _Group(b"", range(0))


class SearchIndex:
    """The tools that can be found, in groups (of a server or package each) that change as one."""

    def __init__(self) -> None:
        self._shown = _IndexState([], {}, b"")
        self._groups: dict[str, _Group] = {}

    def groups(self) -> AbstractSet[str]:
        """The groups that are there now."""
        return frozenset(self._groups)

    def put(self, group: str, entries: Sequence[SearchEntry]) -> None:
        """Have exactly `entries` in `group`. Costs little where they are what is there."""
        digest = _digest_entries(entries)
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
        """Forget `group`, if it is there."""
        known = self._groups.pop(group, _NO_GROUP)
        self._show(added=range(0), gone=known.documents)
        self._clean_up()

    def search(self, query: str, *, limit: int, within: Container[str] | None = None) -> list[SearchHit]:
        """What suits `query`, best first; equals by key. What is not `within` is as if it were not there."""
        shown = self._shown
        visible = shown.live
        if within is not None:
            visible = bytes(map(and_, visible, map(within.__contains__, shown.keys)))
        scores = _score(shown.postings, visible, _weigh_query(query))
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
        # Between the end and `added` lies what a writer left that did not get this far. It never shows.
        live = bytearray(self._shown.live.ljust(added.start, b"\0"))
        live[gone.start : gone.stop] = bytes(len(gone))
        live += b"\1" * len(added)
        self._shown = self._shown._replace(live=bytes(live))

    def _clean_up(self) -> None:
        """Leave out what is gone, once it is more than what is there."""
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


def _digest_entries(entries: Sequence[SearchEntry]) -> bytes:
    digest = sha256()
    for entry in entries:  # one by one: nothing here keeps other threads waiting for long
        digest.update(json.dumps(_CONTENT(entry)).encode())
    return digest.digest()


def _weigh_entry(entry: SearchEntry) -> dict[str, float]:
    """What each term of `entry` weighs, between 0 and 1 (BM25F)."""
    frequencies: defaultdict[str, float] = defaultdict(float)
    for field, text in (
        (_NAME, entry.name),
        (_SERVER, f"{entry.server} {entry.server_name}"),
        (_TITLE, entry.title),
        (_DESCRIPTION, entry.description),
        (_PARAMETERS, entry.parameters),
        (_LABELS, " ".join((entry.category, *entry.tags))),
    ):
        found = split_terms(text)
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


def _weigh_query(query: str) -> dict[str, float]:
    """The terms to look for, and what each counts."""
    said = list(dict.fromkeys(split_query(query[:MAX_QUERY_CHARS])))[:MAX_QUERY_TERMS]
    others = {other: _SYNONYM_WEIGHT for term in said for other in SYNONYMS.get(term, ())}
    return others | dict.fromkeys(said, 1.0)


def _score(postings: dict[str, _Posting], visible: bytes, wanted: dict[str, float]) -> list[float]:
    scores = [0.0] * len(visible)
    total = visible.count(1)
    is_all = total == len(visible)
    for term, counts in wanted.items():
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


def _take_best(keys: list[str], scores: list[float], limit: int) -> list[SearchHit]:
    if limit < 1:
        return []
    # Scores alone are sorted many times faster than with their keys, which are looked at only near the limit.
    ordered = sorted(filter(None, scores), reverse=True)
    floor = ordered[:limit][-1] if ordered else math.inf
    found = [(-score, keys[document]) for document, score in enumerate(scores) if score >= floor]
    return [SearchHit(key, -negated) for negated, key in sorted(found)[:limit]]


# Usual is 60, found good for rankings of thousands. Those here are short, and their first places tell more.
_DAMPING: Final = 20


def fuse_rankings(rankings: Sequence[Sequence[str]], *, limit: int) -> list[SearchHit]:
    """The keys of all `rankings` (each best first, without repetitions), best first; equals by key."""
    votes: defaultdict[str, list[float]] = defaultdict(list)
    for ranking in rankings:
        for place, key in enumerate(ranking, start=1):
            votes[key].append(1 / (_DAMPING + place))
    # An exact sum: the order of the rankings must not decide between equals.
    hits = [SearchHit(key, fsum(shares)) for key, shares in votes.items()]
    return sorted(hits, key=lambda hit: (-hit.score, hit.key))[:limit]
