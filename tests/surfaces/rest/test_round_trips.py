"""How often a write goes to the database and back. Each costs the way to another machine, inside the turn."""

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final
from urllib.parse import parse_qs, quote, urlsplit

import pytest

from tests.contract.stores import schema_url
from tests.postgres import shared_server
from tests.surfaces.rest_world import NOW_MS, TASKS, open_rest, task
from toolgate.registry.store import StoreLimits
from toolgate.registry.store.postgresql import open_postgres_store

pytestmark = pytest.mark.anyio

MOST: Final = 6


class RoundTrips:
    """Counts, over all connections through a wire, how often a request follows a response."""

    def __init__(self, listener: socket.socket, target: str) -> None:
        self.count = 0
        self._listener = listener
        self._target = target

    def accept(self) -> None:
        with suppress(OSError):
            while True:
                near = self._listener.accept()[0]
                far = socket.socket(socket.AF_UNIX)
                far.connect(self._target)
                turn = [False]
                for source, sink, is_request in ((near, far, True), (far, near, False)):
                    threading.Thread(
                        target=self._pump, args=(source, sink, turn, is_request), daemon=True
                    ).start()

    def _pump(self, source: socket.socket, sink: socket.socket, turn: list[bool], is_request: bool) -> None:
        with suppress(OSError):
            while chunk := source.recv(1 << 16):
                if is_request and not turn[0]:
                    self.count += 1
                turn[0] = is_request
                sink.sendall(chunk)
            sink.shutdown(socket.SHUT_WR)
        source.close()


@contextmanager
def open_counted(directory: Path) -> Iterator[tuple[RoundTrips, str]]:
    """A line to the database that counts, and the URL over it."""
    options = parse_qs(urlsplit(schema_url(directory)).query)["options"][0]
    with socket.create_server(("127.0.0.1", 0)) as listener:
        trips = RoundTrips(listener, f"{shared_server().directory}/.s.PGSQL.5432")
        threading.Thread(target=trips.accept, daemon=True).start()
        host, port = listener.getsockname()
        yield trips, f"postgresql://postgres@{host}:{port}/postgres?options={quote(options)}"
        listener.shutdown(socket.SHUT_RDWR)


async def test_a_put_is_a_few_round_trips_to_the_database(tmp_path: Path) -> None:
    limits = StoreLimits(poll_s=3_600)
    counts = []
    with open_counted(tmp_path) as (trips, database):
        async with (
            # On a channel without notifications: for each one, the replica would read the log as well.
            open_postgres_store(database, lambda: NOW_MS, limits=limits, channel="silence") as store,
            open_rest(store=store) as world,
        ):
            for n in range(6):
                before = trips.count
                await world.put(f"{TASKS}/t", task("t", tool_denylist=[str(n)]))
                counts.append(trips.count - before)
                await world.served()

    assert min(counts) <= MOST, counts
