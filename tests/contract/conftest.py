"""What the suites of links share, and those of places to keep archives in.

One that tries other links says so by a fixture `subject` of its own.
"""

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from tests.contract.links import RELAYING, Ears, Subject
from tests.contract.object_stores import KINDS, open_bucket, open_objects
from toolgate.packages.objects import Objects
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


@pytest.fixture(scope="module")
def bucket() -> Iterator[dict[str, str]]:
    with open_bucket() as environ:
        yield environ


@pytest.fixture(params=KINDS)
def objects(request: pytest.FixtureRequest, tmp_path: Path, bucket: dict[str, str]) -> Objects:
    return open_objects(request.param, tmp_path, bucket)
