"""Children of a real gateway: one serves all calls, and none outlives the gateway, however it dies."""

import pytest

from tests.scenarios.gateway import Gateway, Site, running
from tests.scenarios.soak import rounds
from tests.scenarios.waiting import eventually

KILLS = rounds(suite=5, soak=50)
GROWN = 8
"""Children and helpers of the family that is killed, once all are there."""


def test_a_hundred_calls_reach_one_child(site: Site) -> None:
    site.place(site.stage("one"), site.stage("two", "modern"))
    with running(site) as gateway:
        clients = [gateway.modern(), gateway.legacy()]

        answered = {
            name: {client.text(f"{name}.pid") for _ in range(50) for client in clients}
            for name in ("one", "two")
        }

        assert answered == {name: {str(gateway.health(name)["pid"])} for name in ("one", "two")}
        assert pids_of(gateway) == {int(pid) for pids in answered.values() for pid in pids}


@pytest.mark.soak
@pytest.mark.parametrize("round_", range(KILLS))
def test_shu_4_nothing_outlives_a_gateway_that_is_killed(site: Site, round_: int) -> None:
    """Not the children, serving or starting, nor helpers of theirs that left their group and session."""
    site.place(
        site.stage("plain"),
        site.stage("group", "helper=group"),
        site.stage("daemon", "helper=daemon"),
        site.stage("deaf", "deaf", "helper=daemon"),
        site.stage("silent", "silent"),
    )
    with running(site) as gateway:
        # The later the round, the further the family has come.
        wanted = min(2 * round_, GROWN)
        eventually(lambda: len(pids_of(gateway)) >= wanted)
        gateway.kill()

        gateway.check_gone(within_s=5.0)


def pids_of(gateway: Gateway) -> set[int]:
    """Its children and their helpers, without those who supervise them."""
    return {process.pid for process in gateway.site.processes()} - {gateway.pid}
