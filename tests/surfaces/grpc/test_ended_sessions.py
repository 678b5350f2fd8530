"""How nodes tell each other of ended sessions, at control."""

from collections.abc import Sequence
from typing import Final

import grpc.aio
import pytest

from tests.registry.memory_store import MemoryEndedSessions, MemoryStore
from tests.surfaces.grpc.grpc_world import GrpcWorld, open_grpc_world, refusal_of
from tests.surfaces.rest_world import NOW_MS, secret_of
from toolgate.model.reports import EndedSession
from toolgate.proto import node_pb2
from toolgate.surfaces.grpc.coordination import MAX_ENDED_AT_ONCE, OVERLAP_MS

pytestmark = pytest.mark.anyio

SYNC: Final = "toolgate.v1.NodeService/SyncSessions"
UNTIL_MS: Final = NOW_MS + 3_600_000
ENDED: Final = [node_pb2.EndedSession(nonce=f"{n:022}", until_ms=UNTIL_MS) for n in range(2)]


async def sync(world: GrpcWorld, *ended: node_pb2.EndedSession, after_ms: int = 0) -> list[str]:
    """The nonces that a node hears."""
    request = node_pb2.SyncSessionsRequest(ended=ended, after_ms=after_ms)
    response = await world.request(SYNC, request, key=secret_of("node"))
    assert isinstance(response, node_pb2.SyncSessionsResponse)
    return [one.nonce for one in response.ended]


async def test_try_10_what_one_node_tells_every_node_hears() -> None:
    async with open_grpc_world() as world:
        nonces = [one.nonce for one in ENDED]

        assert await sync(world, *ENDED) == nonces
        assert await sync(world) == nonces
        # What may have been stored late is received again, and older ones are not.
        assert await sync(world, after_ms=NOW_MS + OVERLAP_MS) == nonces
        assert await sync(world, after_ms=NOW_MS + OVERLAP_MS + 1) == []
        assert await world.rest.store.ended_sessions.list() == [
            EndedSession(nonce, UNTIL_MS, NOW_MS) for nonce in nonces
        ]


class CountedReads(MemoryEndedSessions):
    def __init__(self) -> None:
        super().__init__(lambda: NOW_MS)
        self.reads: list[int] = []

    async def list(self, *, after_ms: int = 0) -> Sequence[EndedSession]:
        self.reads.append(after_ms)
        return await super().list(after_ms=after_ms)


async def test_however_many_sessions_end_the_database_is_read_once_in_a_moment() -> None:
    """A read of all that are remembered takes 0.13 s, and clients end sessions all the time."""
    async with open_grpc_world() as world:
        store, kept = world.rest.store, CountedReads()
        assert isinstance(store, MemoryStore)
        store.ended_sessions = kept
        for one in ENDED:
            await sync(world, one)

        assert kept.reads == [0]
        assert len(await MemoryEndedSessions.list(kept)) == len(ENDED)


@pytest.mark.parametrize(
    "ended",
    [
        pytest.param([node_pb2.EndedSession(nonce="not a nonce", until_ms=UNTIL_MS)], id="no nonce"),
        pytest.param(ENDED[:1] * (MAX_ENDED_AT_ONCE + 1), id="too many"),
    ],
)
async def test_what_is_no_session_is_refused(ended: list[node_pb2.EndedSession]) -> None:
    async with open_grpc_world() as world:
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await sync(world, *ended)

        assert refusal_of(refused.value)[0] == "INVALID_ARGUMENT"
        assert await world.rest.store.ended_sessions.list() == []
