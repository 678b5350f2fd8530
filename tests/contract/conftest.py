"""What the suites of links share. One that tries other links says so by a fixture `subject` of its own."""

from collections.abc import AsyncIterator

import pytest

from tests.contract.links import RELAYING, Ears, Subject
from toolgate.upstream.link import Link


@pytest.fixture(params=RELAYING)
async def subject(request: pytest.FixtureRequest) -> AsyncIterator[Subject]:
    opens, era = RELAYING[request.param]
    async with opens(era) as subject:
        yield subject


@pytest.fixture
def ears() -> Ears:
    return Ears()


@pytest.fixture
async def link(subject: Subject, ears: Ears) -> AsyncIterator[Link]:
    link = await subject.opener(subject.record, ears, known_era=None)
    yield link
    await link.aclose()
