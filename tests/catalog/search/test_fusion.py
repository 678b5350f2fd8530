"""One ranking made of several."""

from hypothesis import example, given
from hypothesis import strategies as st

from toolgate.catalog.word_search import fuse_rankings

RANKINGS = st.lists(st.lists(st.sampled_from("abcdefgh"), unique=True), max_size=4)


def keys(rankings: list[list[str]], limit: int = 100) -> list[str]:
    return fuse_rankings(rankings, limit=limit)


def test_what_both_find_comes_before_what_one_finds_first() -> None:
    assert keys([["a", "c"], ["b", "c"]]) == ["c", "a", "b"]


def test_one_ranking_stays_as_it_is() -> None:
    assert keys([["c", "a", "b"], []]) == ["c", "a", "b"]


@given(RANKINGS, st.integers(0, 10))
@example([list("bach"), list("bach"), list("bhca"), list("bhca")], 0)  # equals by an exact sum alone
def test_nothing_is_made_up_or_lost_and_the_order_does_not_matter(
    rankings: list[list[str]], limit: int
) -> None:
    hits = fuse_rankings(rankings, limit=limit)

    assert sorted(keys(rankings)) == sorted({key for ranking in rankings for key in ranking})
    assert hits == fuse_rankings(rankings, limit=100)[:limit]
    assert keys(rankings[::-1]) == keys(rankings)
