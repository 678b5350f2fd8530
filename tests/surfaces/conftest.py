"""What tests of every surface may use."""

import pytest

from toolgate.gateway.search import tool_search


@pytest.fixture(autouse=True)
def patient_searches(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a busy machine a few tools may take seconds to be indexed."""
    monkeypatch.setattr(tool_search, "INDEX_WAIT_S", 60.0)
