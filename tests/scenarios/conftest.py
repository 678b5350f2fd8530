"""What the scenarios share."""

from pathlib import Path

import pytest

from tests.scenarios.gateway import Site


@pytest.fixture
def site(tmp_path: Path) -> Site:
    """An installation of the test's own, not started yet."""
    return Site(tmp_path)
