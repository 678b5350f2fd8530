"""One ranking of several that judge by different means: reciprocal rank fusion."""

from collections import defaultdict
from collections.abc import Sequence
from math import fsum
from typing import Final

from toolgate.catalog.search.index import Hit

# Usual is 60, found good for rankings of thousands. Those here are short, and their first places tell more.
_DAMPING: Final = 20


def fuse(rankings: Sequence[Sequence[str]], *, limit: int) -> list[Hit]:
    """The keys of all `rankings` (each best first, without repetitions), best first; equals by key."""
    votes: defaultdict[str, list[float]] = defaultdict(list)
    for ranking in rankings:
        for place, key in enumerate(ranking, start=1):
            votes[key].append(1 / (_DAMPING + place))
    # An exact sum: the order of the rankings must not decide between equals.
    hits = [Hit(key, fsum(shares)) for key, shares in votes.items()]
    return sorted(hits, key=lambda hit: (-hit.score, hit.key))[:limit]
