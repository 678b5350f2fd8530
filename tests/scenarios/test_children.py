"""Children of a real gateway: one serves all calls, and none outlives the gateway, however it dies."""

from collections import Counter

import pytest

from tests.eventually import eventually, eventually_equal
from tests.scenarios.gateway import Gateway, Site, running, started
from tests.scenarios.soak import rounds

KILLS = rounds(suite=3, soak=50)
GROWN = 8
"""Children and helpers of the family that is killed, once all are there."""


@pytest.mark.requirement("002-089")
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
        wanted = min(4 * round_, GROWN)
        eventually(lambda: len(pids_of(gateway)) >= wanted)
        gateway.kill()

        gateway.check_gone()


def test_chd_14_two_hundred_servers_with_few_open_files_take_turns(site: Site) -> None:
    """A child takes four descriptors and 96 are kept for callers and files: so 40 run at a time."""
    names = [f"s{number:03}" for number in range(200)]
    site.place(*(site.stage(name, "tools=echo") for name in names))
    command = ["sh", "-c", 'ulimit -n 256; exec "$@"', "sh", *site.up("--json")]
    with started(site, command) as gateway:
        eventually_equal(lambda: Counter(states(gateway).values()), {"connected": 40, "idle": 160}, 120)
        eventually_equal(lambda: {gateway.health(name)["tools"] for name in names[-3:]}, {1}, 120)
        idle = [name for name, state in states(gateway).items() if state == "idle"]
        answered = [
            client.text(f"{name}.echo", text=name)
            for name in idle[:20]
            for client in (
                gateway.modern(f"/api/mcp?servers={name}"),
                gateway.legacy(f"/api/mcp?servers={name}"),
            )
        ]

        assert answered == [name for name in idle[:20] for _ in range(2)]
        assert len(pids_of(gateway)) <= 40


def states(gateway: Gateway) -> dict[str, str]:
    """The status of each server."""
    found: dict[str, str] = {}
    page = "/admin/api/mcp/servers?limit=1000"
    for server in gateway.get(page)["servers"]:
        found[server["server_id"]] = server["health"]["state"]
    return found


def pids_of(gateway: Gateway) -> set[int]:
    """Its children and their helpers, without those who supervise them."""
    return {process.pid for process in gateway.site.processes()} - {gateway.pid}
