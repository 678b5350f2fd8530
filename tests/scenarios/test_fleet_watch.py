"""What watchers of both controls see while writers write at both, lines are cut and the log is compacted."""

import asyncio
import random
import sys
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import httpx2
import pytest

from tests.contract.watch_guarantees import broken_guarantees, events
from tests.postgres import shared_server
from tests.scenarios.fleet import Fleet, open_fleet
from tests.scenarios.soak import rounds
from toolgate.errors import Compacted, ControlUnavailable, WatchLagged
from toolgate.model.revisions import ChangeBatch, RecordWrite
from toolgate.registry.replication.connection import ControlAddress, open_control_connection
from toolgate.registry.replication.sync import ControlConnection, HistoryPosition
from toolgate.registry.store.postgresql import open_postgres_store

pytestmark = [pytest.mark.anyio, pytest.mark.soak]

TRANSACTIONS = rounds(suite=120, soak=9_000)
"""By each writer."""
CUT_EVERY = 15
COMPACT_EVERY = 20
KEPT = 2
"""Revisions the log still holds after it was compacted."""
RECORDERS = 2
"""At each control."""
DEADLINE_S = rounds(suite=240, soak=3_600)
TASKS = "/admin/api/tasks"
END = "end"
"""The task that is written last."""


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    root = tmp_path_factory.mktemp("watched")
    with open_fleet(root, shared_server().create_database(), controls=2, nodes=1) as fleet:
        yield fleet


class Milestone:
    """Something that happens again and again, for those who wait for the next time."""

    def __init__(self) -> None:
        self._next = asyncio.Event()
        self._is_over = False

    def reach(self) -> None:
        passed, self._next = self._next, asyncio.Event()
        passed.set()

    def end(self) -> None:
        self._is_over = True
        self.reach()

    async def wait(self) -> None:
        if not self._is_over:
            await self._next.wait()


@dataclass
class Recording:
    """What one watcher saw from a listing on, over any number of connections."""

    since: int
    seen: list[ChangeBatch] = field(default_factory=list)

    @property
    def newest(self) -> int:
        return max((batch.revision for batch in self.seen), default=self.since)


@dataclass
class Recorder:
    """Follows one control as a node does, and keeps all it was sent."""

    link: ControlConnection
    compacted: Milestone
    dice: random.Random
    recordings: list[Recording] = field(default_factory=list)
    breaks: int = 0
    relists: int = 0

    async def run(self) -> None:
        """Until it has seen the last task, or a listing that holds it."""
        while await self._list():
            while await self._watch(self.recordings[-1]):
                self.breaks += 1
                if self.dice.random() < 0.5:
                    await self.compacted.wait()  # by then the log may not reach back to where it stood

    async def _list(self) -> bool:
        """Begin again; whether there is still something to come."""
        while True:
            try:
                listing = await self.link.list_records()
            except ControlUnavailable:
                continue
            self.recordings.append(Recording(listing.revision))
            self.epoch = listing.epoch
            return END not in [record.id for record in listing.records]

    async def _watch(self, recording: Recording) -> bool:
        """Whether it is to be taken up again where it ended."""
        try:
            async with self.link.watch_records(HistoryPosition(self.epoch, recording.newest)) as batches:
                async for batch in batches:
                    recording.seen.append(batch)
                    if END in [change.id for change in batch.changes]:
                        return False
        except Compacted:
            self.relists += 1
            return False
        except (ControlUnavailable, WatchLagged):
            return True
        return True


@dataclass
class Writer:
    """Writes sets of tasks at one control, and knows which revision each became."""

    name: str
    http: httpx2.AsyncClient
    dice: random.Random
    committed: dict[int, list[RecordWrite]]
    _there: set[str] = field(default_factory=set)

    async def write(self, number: int) -> None:
        """One transaction of one to four tasks: made, changed, deleted."""
        ids = sorted(self.dice.sample([f"{self.name}-{n}" for n in range(8)], self.dice.randint(1, 4)))
        writes = [self._write(task_id, number) for task_id in ids]
        self._there -= {write.id for write in writes if write.body is None}
        self._there |= {write.id for write in writes if write.body is not None}
        await self.commit(writes)

    async def commit(self, writes: list[RecordWrite]) -> None:
        changes = [{"kind": write.kind, "id": write.id, "body": write.body} for write in writes]
        response = await self.http.post("/admin/api/apply", json={"changes": changes})
        while response.status_code == 409:  # the other control was first, again and again
            response = await self.http.post("/admin/api/apply", json={"changes": changes})

        assert response.is_success, response.text
        self.committed[response.json()["revision"]] = writes

    def _write(self, task_id: str, number: int) -> RecordWrite:
        if task_id in self._there and self.dice.random() < 0.25:
            return RecordWrite(kind="task", id=task_id, body=None)
        return RecordWrite(kind="task", id=task_id, body=task(task_id, number))


def task(task_id: str, number: int) -> dict[str, Any]:
    return {"task_id": task_id, "config": {"number": str(number)}}


async def test_wat_1_every_watcher_of_either_control_sees_every_change_once_whole_and_in_order(
    fleet: Fleet,
) -> None:
    secret = fleet.make_key("recorder", role="node")
    base = max(control.state["revision"] for control in fleet.controls)
    committed: dict[int, list[RecordWrite]] = {base: []}
    compacted = Milestone()
    async with asyncio.timeout(DEADLINE_S), AsyncExitStack() as stack:
        recorders = [
            Recorder(
                await stack.enter_async_context(_open_link(wire.address, secret)), compacted, _dice(seed)
            )
            for seed, wire in enumerate(fleet.wires * RECORDERS)
        ]
        writers = [
            await stack.enter_async_context(_open_writer(fleet, at, committed))
            for at in range(len(fleet.controls))
        ]
        following = asyncio.gather(*(recorder.run() for recorder in recorders))
        await _write_and_disturb(fleet, writers, compacted)
        await writers[0].commit([RecordWrite(kind="task", id=END, body=task(END, 0))])
        compacted.end()
        await following
    recordings = [one for recorder in recorders for one in recorder.recordings]
    broken = [broken_guarantees(one.seen, committed, since=one.since) for one in recordings]
    seen = sum(len(batch.changes) for one in recordings for batch in events(one.seen))
    breaks, relists = sum(one.breaks for one in recorders), sum(one.relists for one in recorders)
    _show(f"{seen} events seen, {breaks} watches broken off, {relists} compacted")

    assert broken == [[]] * len(recordings)
    assert breaks > 0
    assert relists > 0
    fleet.reaches_all(max(committed))


async def _write_and_disturb(fleet: Fleet, writers: list[Writer], compacted: Milestone) -> None:
    assert fleet.database is not None
    async with open_postgres_store(fleet.database, _wall_ms) as store:

        async def write(writer: Writer) -> None:
            for number in range(TRANSACTIONS):
                await writer.write(number)
                if number % CUT_EVERY == 0:
                    for wire in fleet.wires:
                        wire.cut()
                if number % COMPACT_EVERY == 0:
                    await store.compact(keep_revisions=KEPT, keep_ms=0)
                    compacted.reach()

        await asyncio.gather(*map(write, writers))


@asynccontextmanager
async def _open_link(address: str, secret: str) -> AsyncIterator[ControlConnection]:
    async with open_control_connection(ControlAddress(targets=(address,), key=secret)) as link:
        yield link


@asynccontextmanager
async def _open_writer(
    fleet: Fleet, at: int, committed: dict[int, list[RecordWrite]]
) -> AsyncIterator[Writer]:
    url = fleet.controls[at].gateway.url
    async with httpx2.AsyncClient(base_url=url, timeout=60, trust_env=False) as http:
        yield Writer(f"w{at}", http, _dice(100 + at), committed)


def _dice(seed: int) -> random.Random:
    return random.Random(seed)


def _wall_ms() -> int:
    """The clock of the controls, by which the log is dated that is compacted here."""
    return time.time_ns() // 1_000_000


def _show(text: str) -> None:
    sys.stdout.write(f"\n{text}\n")
