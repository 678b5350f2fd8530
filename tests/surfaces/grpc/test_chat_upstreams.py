"""Chat upstreams on nodes: they come and go with the watch, as they are stored."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from tests.surfaces.grpc.grpc_world import DEADLINE_S, GrpcWorld, open_grpc_world
from tests.surfaces.rest_world import CHAT_UPSTREAMS, chat_upstream, secret_of
from toolgate.model.chat import ChatUpstream
from toolgate.model.revisions import RecordWrite
from toolgate.registry.replication.connection import ControlAddress, open_control_connection
from toolgate.registry.replication.state import RegistryState
from toolgate.registry.replication.sync import NodeSync

pytestmark = pytest.mark.anyio

LOCAL = ChatUpstream(upstream_id="local", base_url="https://models.example/v1", models=("*",))


@asynccontextmanager
async def following(world: GrpcWorld) -> AsyncIterator["asyncio.Queue[RegistryState]"]:
    """The states of a node that follows."""
    states: asyncio.Queue[RegistryState] = asyncio.Queue()
    control = ControlAddress(targets=(world.address,), key=secret_of("node"))
    async with (
        asyncio.timeout(DEADLINE_S),
        open_control_connection(control) as link,
        asyncio.TaskGroup() as tasks,
    ):
        node = tasks.create_task(NodeSync(link, apply=states.put_nowait).run())
        yield states
        node.cancel()


async def test_a_node_gets_a_chat_upstream_by_the_watch_and_drops_it_again() -> None:
    body = chat_upstream("local", headers={"api-key": "canary"})
    async with open_grpc_world() as world, following(world) as states:
        seen = [(await states.get()).chat_upstreams]
        await world.rest.put(f"{CHAT_UPSTREAMS}/local", body)
        seen.append((await states.get()).chat_upstreams)
        await world.rest.request("DELETE", f"{CHAT_UPSTREAMS}/local")
        seen.append((await states.get()).chat_upstreams)

    [before, served, after] = seen
    assert (before, after) == ({}, {})
    assert served["local"].headers == {"api-key": "canary"}


async def test_rep_6_what_a_newer_control_adds_to_a_chat_upstream_costs_an_older_node_nothing() -> None:
    newer = chat_upstream("local", colour="red", budgets={"max_dollars": 3})
    async with open_grpc_world() as world:
        await world.store.write([RecordWrite(kind="chat_upstream", id="local", body=newer)], actor="newer")
        async with following(world) as states:
            listed = (await states.get()).chat_upstreams
            odd = chat_upstream("odd", mode="dream")
            await world.store.write([RecordWrite(kind="chat_upstream", id="odd", body=odd)], actor="newer")
            watched = (await states.get()).chat_upstreams

    assert listed == watched == {"local": LOCAL}
