"""How nodes tell each other of ended sessions, at control."""

from typing import Final

import grpc.aio
import pytest

from tests.surfaces.grpc.grpc_house import GrpcHouse, open_house, refusal_of
from tests.surfaces.rest_house import NOW_MS, secret_of
from toolgate.model.sessions import EndedSession
from toolgate.proto import node_pb2
from toolgate.surfaces.grpc.sessions import MAX_AT_ONCE, OVERLAP_MS

pytestmark = pytest.mark.anyio

SYNC: Final = "toolgate.v1.NodeService/SyncSessions"
UNTIL_MS: Final = NOW_MS + 3_600_000
ENDED: Final = [node_pb2.EndedSession(nonce=f"{n:022}", until_ms=UNTIL_MS) for n in range(2)]


async def sync(house: GrpcHouse, *ended: node_pb2.EndedSession, after_ms: int = 0) -> list[str]:
    """The nonces that a node hears."""
    request = node_pb2.SyncSessionsRequest(ended=ended, after_ms=after_ms)
    answer = await house.ask(SYNC, request, key=secret_of("node"))
    assert isinstance(answer, node_pb2.SyncSessionsResponse)
    return [one.nonce for one in answer.ended]


async def test_try_10_what_one_node_tells_every_node_hears() -> None:
    async with open_house() as house:
        nonces = [one.nonce for one in ENDED]

        assert await sync(house, *ENDED) == nonces
        assert await sync(house) == nonces
        # What may have been stored late is told again, and older ones are not.
        assert await sync(house, after_ms=NOW_MS + OVERLAP_MS) == nonces
        assert await sync(house, after_ms=NOW_MS + OVERLAP_MS + 1) == []
        assert await house.rest.store.ended_sessions.list() == [
            EndedSession(nonce, UNTIL_MS, NOW_MS) for nonce in nonces
        ]


@pytest.mark.parametrize(
    "ended",
    [
        pytest.param([node_pb2.EndedSession(nonce="not a nonce", until_ms=UNTIL_MS)], id="no nonce"),
        pytest.param(ENDED[:1] * (MAX_AT_ONCE + 1), id="too many"),
    ],
)
async def test_what_is_no_session_is_refused(ended: list[node_pb2.EndedSession]) -> None:
    async with open_house() as house:
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await sync(house, *ended)

        assert refusal_of(refused.value)[0] == "INVALID_ARGUMENT"
        assert await house.rest.store.ended_sessions.list() == []
