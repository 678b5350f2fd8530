"""How many places of a kind one principal gets: what the page of limits says is what happens."""

import re
from contextlib import suppress
from pathlib import Path

from toolgate.errors import SessionLimit
from toolgate.gateway.subscriptions import MAX_OPEN
from toolgate.gateway.subscriptions.resources import FairSlots

LIMITS = Path(__file__).parents[3] / "docs" / "reference" / "limits.md"


def take_all(places: FairSlots, principal_id: str) -> int:
    """How many it gets before it is refused."""
    before = places.taken
    with suppress(SessionLimit):
        while True:
            places.take(principal_id, of=MAX_OPEN)
    return places.taken - before


def test_one_caller_gets_as_many_event_streams_as_the_page_of_limits_says() -> None:
    row = re.search(
        r"\| event streams of one caller \| ([\d,]+); once ([\d,]+) are .* ([\d,]+) \|", LIMITS.read_text()
    )
    assert row is not None
    most, filled, share = (int(one.replace(",", "")) for one in row.groups())
    places = FairSlots("event streams")

    first, second = take_all(places, "one"), take_all(places, "two")

    assert (first, places.taken - second, second) == (most, filled, share)
