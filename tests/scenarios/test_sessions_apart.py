"""`sharing = "per_session"` at a real gateway: each session has a child of its own, which ends with it."""

from tests.eventually import eventually
from tests.scenarios.gateway import Site, running


def test_sessions_have_children_of_their_own_and_a_session_that_ends_ends_its_child(site: Site) -> None:
    site.place(site.stage("own", sharing="per_session"), site.stage("shared"))
    with running(site) as gateway:
        first, second, stateless = gateway.legacy(), gateway.legacy(), gateway.modern()
        pids = [client.text("own.pid") for client in (first, second, stateless) for _ in range(3)]
        shared = {client.text("shared.pid") for client in (first, second, stateless)}
        links = gateway.health("own")["session_links"]
        gateway.http.delete(first.url, headers=first.session).raise_for_status()
        eventually(lambda: gateway.health("own")["session_links"] == 2)
        eventually(lambda: int(pids[0]) not in {process.pid for process in site.processes()})

        assert (pids[::3], len(set(pids)), links, len(shared)) == (sorted(set(pids), key=pids.index), 3, 3, 1)
        assert second.text("own.pid") == pids[3]
