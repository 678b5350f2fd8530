"""The figures of one set of queries: hit@1/5/10, recall@10, nDCG@10, in percent."""

import math
from collections.abc import Sequence

from dataset import Query

DEPTH = 10
HEADINGS = ("hit@1", "hit@5", "hit@10", "recall@10", "nDCG@10")


def figures(queries: Sequence[Query], rankings: Sequence[Sequence[str]]) -> list[float]:
    """Means over `queries`, each answered by the ranking at its place."""
    rows = [_of_one(query, ranking) for query, ranking in zip(queries, rankings, strict=True)]
    return [100 * sum(column) / len(rows) for column in zip(*rows, strict=True)]


def _of_one(query: Query, ranking: Sequence[str]) -> tuple[float, ...]:
    found = [key in query.right for key in ranking[:DEPTH]]
    gain = sum(1 / math.log2(place + 2) for place, is_right in enumerate(found) if is_right)
    ideal = sum(1 / math.log2(place + 2) for place in range(min(DEPTH, len(query.right))))
    return any(found[:1]), any(found[:5]), any(found), sum(found) / len(query.right), gain / ideal
