"""The validators themselves: each must notice the breach it is named after."""

import pytest

from tests.contract.stores import put
from tests.contract.watch_guarantees import broken_guarantees
from toolgate.model.revisions import ChangeBatch, RecordChange, RecordWrite

COMMITTED: dict[int, list[RecordWrite]] = {1: [put("a"), put("b")], 2: [put("a", n=2)], 3: [put("c")]}


def batch(revision: int) -> ChangeBatch:
    changes = tuple(
        RecordChange(
            revision=revision,
            kind=write.kind,
            id=write.id,
            operation="put",
            actor="ada",
            at_ms=0,
            before=None,
            after=write.body,
        )
        for write in COMMITTED[revision]
    )
    return ChangeBatch(revision=revision, changes=changes)


def bookmark(revision: int) -> ChangeBatch:
    return ChangeBatch(revision=revision)


@pytest.mark.parametrize(
    ("seen", "since", "expected"),
    [
        pytest.param([batch(1), batch(2), bookmark(2), batch(3)], 0, [], id="as it should be"),
        pytest.param([bookmark(1), batch(2), bookmark(2), batch(3)], 1, [], id="resumed twice"),
        pytest.param([batch(2), batch(1)], 0, ["ordered", "reliable"], id="out of order"),
        pytest.param([batch(1), batch(1)], 0, ["unique", "reliable"], id="twice"),
        pytest.param(
            [ChangeBatch(revision=1, changes=batch(1).changes[:1]), batch(2)],
            0,
            ["atomic"],
            id="half a transaction",
        ),
        pytest.param([batch(1), batch(3)], 0, ["reliable"], id="a hole"),
        pytest.param([batch(1), batch(2)], 1, ["reliable", "resumable"], id="already known"),
        pytest.param([batch(1), bookmark(2), batch(2)], 0, ["bookmarked"], id="bookmark before its events"),
        pytest.param(
            [batch(1), batch(2), batch(3), bookmark(4)], 0, ["bookmarked"], id="bookmark of the future"
        ),
    ],
)
def test_each_breach_has_its_name(seen: list[ChangeBatch], since: int, expected: list[str]) -> None:
    assert broken_guarantees(seen, COMMITTED, since=since) == expected
