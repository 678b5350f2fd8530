"""What every test may use."""

import pytest
from hypothesis import HealthCheck, settings

# A property is about values, not about how busy the machine is that checks it.
settings.register_profile("unhurried", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("unhurried")


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"
