"""What the suites of links share. Each says by a fixture `subject` which links it tries."""

from collections.abc import AsyncIterator

import pytest

from tests.contract.links import Ears, Subject
from toolgate.upstream.link import Link


@pytest.fixture
def ears() -> Ears:
    return Ears()


@pytest.fixture
async def link(subject: Subject, ears: Ears) -> AsyncIterator[Link]:
    link = await subject.opener(subject.record, ears, known_era=None)
    yield link
    await link.aclose()
