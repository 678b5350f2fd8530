"""A node that follows control in virtual time, and what tests write at the other end."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

from tests.registry.control_play import MemoryControl
from tests.registry.memory_store import MemoryStore
from tests.registry.server_files import body
from tests.upstream.virtual_time import pass_time
from toolgate.model.revisions import RecordWrite
from toolgate.registry.replication.state import RegistryState, parse_listing
from toolgate.registry.replication.sync import NodeSync, SyncStatus


class Node:
    """A node that follows, and all it was given."""

    def __init__(self, control: MemoryControl, jitter: float) -> None:
        self.states: list[RegistryState] = []
        self.contacts = 0
        self.sync = NodeSync(
            control,
            apply=self.states.append,
            on_contact=self._on_contact,
            jitter=lambda: jitter,
        )

    def _on_contact(self) -> None:
        self.contacts += 1

    @property
    def state(self) -> RegistryState:
        return self.states[-1]

    @property
    def status(self) -> SyncStatus:
        return self.sync.status


@asynccontextmanager
async def following(control: MemoryControl, *, jitter: float = 1.0) -> AsyncIterator[Node]:
    """A node, once it had a moment."""
    node = Node(control, jitter)
    task = asyncio.ensure_future(node.sync.run())
    await pass_time(0.001)
    try:
        yield node
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


def server(server_id: str, **more: object) -> RecordWrite:
    return RecordWrite(kind="server", id=server_id, body=body(server_id, **more))


def delete(server_id: str) -> RecordWrite:
    return RecordWrite(kind="server", id=server_id, body=None)


async def write(store: MemoryStore, *writes: RecordWrite) -> None:
    await store.write(writes, actor="ada")
    await pass_time(0.001)


async def listed(store: MemoryStore) -> RegistryState:
    return parse_listing(await store.list())
