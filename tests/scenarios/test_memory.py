"""What long messages of servers cost a real gateway, and that it gives the memory back."""

from pathlib import Path

import pytest

from tests.eventually import eventually
from tests.scenarios.gateway import Gateway, Site, running
from tests.scenarios.soak import rounds

MIB = 1024 * 1024
LONG = 8 * MIB - 300
"""With its envelope just within the longest message that is taken."""
DRIPPED = rounds(suite=MIB // 4, soak=LONG)
"""A child needs half a minute for the whole of it."""
BUDGETS = {"max_tool_output_bytes": 64 * MIB, "tool_timeout_ms": 300_000}


def memory(gateway: Gateway, name: str) -> int:
    """Of the gateway: `VmRSS` now, `VmHWM` at most since `reset`."""
    lines = Path(f"/proc/{gateway.pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(f"{name}:"))


def cost(gateway: Gateway, size: int) -> int:
    """How far the memory of the gateway grew during one long call, after which it must be as before."""
    before = memory(gateway, "VmRSS")
    Path(f"/proc/{gateway.pid}/clear_refs").write_text("5")  # proc(5): the peak begins from here
    text = gateway.modern().text("one.long", bytes=size)
    peak = memory(gateway, "VmHWM")
    eventually(lambda: memory(gateway, "VmRSS") < before + 4 * MIB)
    assert len(text) == size
    return peak - before


def test_a_result_of_8_mib_costs_at_most_20_mib_and_is_given_back(site: Site) -> None:
    site.place(site.stage("one", "tools=long", budgets=BUDGETS))
    with running(site) as gateway:
        gateway.modern().text("one.long", bytes=1)

        assert max(cost(gateway, LONG) for _ in range(3)) < 20 * MIB


@pytest.mark.soak
def test_try_6_a_line_of_8_mib_in_one_byte_writes_costs_at_most_32_mib(site: Site) -> None:
    site.place(site.stage("one", "drips", "tools=long", budgets=BUDGETS))
    with running(site) as gateway:
        gateway.http.timeout = 300  # seconds
        gateway.modern().text("one.long", bytes=1)

        assert cost(gateway, DRIPPED) < 32 * MIB
