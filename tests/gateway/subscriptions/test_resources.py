"""Resources that clients want to hear of: servers are synced of all together, clients of their own alone."""

import asyncio

import pytest

from toolgate.errors import SessionLimit
from toolgate.gateway.subscriptions.resources import MAX_NOTIFIED, ResourceWatch, ResourceWatches
from toolgate.upstream.connection.contract import Acknowledgement

pytestmark = pytest.mark.anyio


class Servers:
    """What servers were synced last, and how often."""

    def __init__(self) -> None:
        self.synced: dict[str, frozenset[str]] = {}
        self.times = 0
        self.known: dict[str, Acknowledgement] = {}
        """When a server knows of it, where that is not at once."""

    def watch(self, server_id: str, uris: frozenset[str]) -> Acknowledgement:
        self.synced[server_id] = uris
        self.times += 1
        return self.known.get(server_id)


async def test_servers_get_one_subscription_for_all_clients() -> None:
    servers = Servers()
    watches = ResourceWatches(servers.watch)
    ada, bob = ResourceWatch("ada"), ResourceWatch("bob")
    for number in range(100):
        watches.add(ada, f"x:{number}", server_id="one", uri=f"x:{number}")
    watches.add(bob, "x:0", server_id="one", uri="x:0")
    watches.add(bob, "alias", server_id="two", uri="y:0")
    await asyncio.sleep(0)
    before = dict(servers.synced)
    watches.drop(ada)
    watches.remove(bob, "alias")
    watches.remove(bob, "never watched")
    await asyncio.sleep(0)

    assert before == {"one": frozenset(f"x:{number}" for number in range(100)), "two": frozenset({"y:0"})}
    assert servers.synced == {"one": frozenset({"x:0"}), "two": frozenset()}
    assert servers.times == 4
    assert watches.slots.taken == 1


async def test_who_watches_can_wait_until_the_server_knows() -> None:
    servers, known = Servers(), asyncio.get_running_loop().create_future()
    servers.known["slow"] = known
    watches = ResourceWatches(servers.watch)
    for server_id in ("quick", "slow"):
        watches.add(ResourceWatch("ada"), "x:0", server_id=server_id, uri="x:0")
    await watches.settle(["quick", "none"])
    waiting = asyncio.ensure_future(watches.settle(["quick", "slow"]))
    for _ in range(5):
        await asyncio.sleep(0)

    assert not waiting.done()
    known.set_result(None)
    await waiting


async def test_a_server_that_does_not_answer_is_not_waited_for_long() -> None:
    servers = Servers()
    servers.known["mute"] = asyncio.get_running_loop().create_future()
    watches = ResourceWatches(servers.watch, wait_s=0.0)
    watches.add(ResourceWatch("ada"), "x:0", server_id="mute", uri="x:0")
    await watches.settle(["mute"])

    assert servers.synced == {"mute": frozenset({"x:0"})}


async def test_updates_reach_those_who_watch_under_the_names_they_know() -> None:
    watches = ResourceWatches(Servers().watch)
    ada, bob = ResourceWatch("ada"), ResourceWatch("bob")
    woken: list[str] = []
    ada.listener = lambda: woken.append("ada")
    watches.add(ada, "file:///a", server_id="one", uri="file:///a")
    watches.add(ada, "alias", server_id="one", uri="file:///a")
    watches.add(bob, "file:///b", server_id="one", uri="file:///b")
    watches.on_updated("two", "file:///a")
    watches.on_updated("one", "file:///c")
    watches.on_updated("none", "file:///b")
    assert not woken

    watches.on_updated("one", "file:///a")
    watches.on_updated("one", "file:///a")

    assert sorted(ada.take()) == ["alias", "file:///a"]
    assert set(woken) == {"ada"}
    assert (bob.updated, ada.updated, ada.take()) == ({}, {}, [])


@pytest.mark.parametrize(
    ("updated", "is_confirmed"),
    [
        ("file:///dir/sub/file", True),
        ("file:///dir/", True),
        ("file:///directory/file", False),
        ("file:///", False),
        ("file:///dir" + "/x" * 1_000, False),
    ],
)
async def test_a_part_of_what_is_watched_counts_as_it(updated: str, is_confirmed: bool) -> None:
    watches = ResourceWatches(Servers().watch)
    watch = ResourceWatch("ada")
    watches.add(watch, "file:///dir", server_id="one", uri="file:///dir")
    watches.on_updated("one", updated)

    assert bool(watch.updated) == is_confirmed


async def test_unwatched_resources_are_not_notified() -> None:
    watches = ResourceWatches(Servers().watch)
    watch = ResourceWatch("ada")
    watches.add(watch, "x:1", server_id="one", uri="x:1")
    watches.on_updated("one", "x:1")
    watches.add(watch, "x:1", server_id="two", uri="x:1")  # it means another server's now
    watches.on_updated("one", "x:1")

    assert not watch.updated
    assert watches.slots.taken == 1


async def test_many_updates_are_taken_in_turns() -> None:
    watches = ResourceWatches(Servers().watch)
    watch = ResourceWatch("ada")
    for number in range(MAX_NOTIFIED + 1):
        watches.add(watch, f"x:{number}", server_id="one", uri=f"x:{number}")
        watches.on_updated("one", f"x:{number}")

    assert watch.take() == [f"x:{number}" for number in range(MAX_NOTIFIED)]
    assert watch.take() == [f"x:{MAX_NOTIFIED}"]


async def test_one_client_and_all_together_have_limits() -> None:
    watches = ResourceWatches(Servers().watch, max_each=8, max_watched=10)
    ada, again, bob = ResourceWatch("ada"), ResourceWatch("ada"), ResourceWatch("bob")
    for number in range(8):
        watches.add(ada, f"x:{number}", server_id="one", uri=f"x:{number}")

    with pytest.raises(
        SessionLimit, match="you hold 8 watched resources; this node reserves the remaining ones"
    ):
        watches.add(again, "x:9", server_id="one", uri="x:9")
    watches.add(bob, "x:9", server_id="one", uri="x:9")
    with pytest.raises(SessionLimit, match="you have reached the limit of 8 resource subscriptions"):
        watches.add(ada, "x:10", server_id="one", uri="x:10")
    assert watches.slots.taken == 9
