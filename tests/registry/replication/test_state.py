"""The registry as a node follows it."""

import asyncio
import logging
from contextlib import aclosing
from typing import Any

import pytest

from tests.contract.stores import DEADLINE_S, Clock, delete
from tests.registry.memory_store import MemoryStore
from tests.registry.server_files import body
from toolgate.model.principals import Key
from toolgate.model.revisions import RecordWrite
from toolgate.model.tasks import Profile, Task
from toolgate.registry.records.codec import parse_server
from toolgate.registry.replication.state import PARSED_AT_ONCE, RegistryState, watch_registry
from toolgate.registry.store import WATCH_BUFFER

pytestmark = pytest.mark.anyio

FS = parse_server(body("fs"))
GIT = parse_server(body("git"))


@pytest.fixture
def store() -> MemoryStore:
    return MemoryStore(Clock(), epoch="e")


def server(server_id: str, **more: object) -> RecordWrite:
    return RecordWrite(kind="server", id=server_id, body=body(server_id, **more))


async def test_the_current_state_comes_first_then_one_after_each_transaction(store: MemoryStore) -> None:
    key = {"key_id": "ci", "sha256": "0" * 64, "role": "agent"}
    await store.write(
        [
            server("fs"),
            RecordWrite(kind="task", id="t", body={"task_id": "t"}),
            RecordWrite(kind="profile", id="p", body={"profile_id": "p"}),
            RecordWrite(kind="key", id="ci", body=key),
        ],
        actor="ada",
    )

    async with asyncio.timeout(DEADLINE_S), aclosing(watch_registry(store)) as states:
        first = await anext(states)
        await store.write([server("git"), delete("fs")], actor="ada")
        second = await anext(states)
        await store.write([delete("t", kind="task")], actor="ada")
        third = await anext(states)

    others: dict[str, Any] = {
        "profiles": {"p": Profile(profile_id="p")},
        "keys": {"ci": Key(key_id="ci", sha256="0" * 64, role="agent")},
    }
    tasks = {"t": Task(task_id="t")}
    assert first == RegistryState(revision=1, epoch="e", servers={"fs": FS}, tasks=tasks, **others)
    assert second == RegistryState(revision=2, epoch="e", servers={"git": GIT}, tasks=tasks, **others)
    assert third == RegistryState(revision=3, epoch="e", servers={"git": GIT}, tasks={}, **others)


async def test_a_record_that_does_not_parse_is_left_out_and_reported(
    store: MemoryStore, caplog: pytest.LogCaptureFixture
) -> None:
    wrong = RecordWrite(
        kind="server", id="bad", body={"server_id": "bad", "stdio": {"env": {"TOKEN": "c4n4ry"}}}
    )
    await store.write([server("fs"), wrong], actor="ada")

    with caplog.at_level(logging.WARNING):
        async with asyncio.timeout(DEADLINE_S), aclosing(watch_registry(store)) as states:
            first = await anext(states)
            await store.write([RecordWrite(kind="server", id="fs", body={"server_id": "fs"})], actor="ada")
            second = await anext(states)

    assert (first.servers, second.servers) == ({"fs": FS}, {})
    assert [record.getMessage().split(" because")[0] for record in caplog.records] == [
        "server `bad` is omitted",
        "server `fs` is omitted",
    ]
    assert "c4n4ry" not in caplog.text


async def test_rep_6_a_field_of_a_newer_version_does_not_cost_the_record(store: MemoryStore) -> None:
    await store.write([server("fs", colour="red")], actor="ada")

    async with asyncio.timeout(DEADLINE_S), aclosing(watch_registry(store)) as states:
        assert (await anext(states)).servers == {"fs": FS}


async def test_wat_5_a_node_that_fell_behind_lists_again(store: MemoryStore) -> None:
    async with asyncio.timeout(DEADLINE_S), aclosing(watch_registry(store)) as states:
        await anext(states)
        await store.write([server("fs")], actor="ada")
        await anext(states)
        for n in range(WATCH_BUFFER + 1):
            await store.write([server("fs", display_name=str(n))], actor="ada")
        await store.write([server("git")], actor="ada")

        state = await anext(states)

    assert (state.revision, set(state.servers)) == (store.revision, {"fs", "git"})


@pytest.mark.requirement("002-075")
async def test_wat_7_a_transaction_of_thousands_is_one_state(store: MemoryStore) -> None:
    async with asyncio.timeout(DEADLINE_S), aclosing(watch_registry(store)) as states:
        await anext(states)
        await store.write([server(f"s{n}") for n in range(10 * PARSED_AT_ONCE)], actor="ada")
        await store.write([delete(f"s{n}") for n in range(10 * PARSED_AT_ONCE - 1)], actor="ada")

        sizes = [len((await anext(states)).servers) for _ in range(2)]

    assert sizes == [10 * PARSED_AT_ONCE, 1]


async def test_a_closed_store_ends_the_following(store: MemoryStore) -> None:
    async with asyncio.timeout(DEADLINE_S), aclosing(watch_registry(store)) as states:
        await anext(states)
        await store.aclose()

        assert [state async for state in states] == []
