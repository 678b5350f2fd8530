"""Every store remembers ended sessions alike, and nodes hear of them through control."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress

import pytest

from tests.contract.stores import DEADLINE_S, Clock
from toolgate.app.components import EndedSessionExchange, SyncEndedSessions
from toolgate.errors import ControlUnavailable, UnknownSession
from toolgate.gateway.scope.caller import Caller
from toolgate.model.principals import Principal
from toolgate.model.reports import EndedSession
from toolgate.policy.layers import SessionRequest
from toolgate.registry.store import StoreLimits
from toolgate.registry.store.sql_store import Store
from toolgate.surfaces.mcp.session import ClientSessions

pytestmark = pytest.mark.anyio

ADA = Principal(id="key:ada", role="agent")
CALLER = Caller(ADA, None, SessionRequest(), None)
HOUR_MS = 3_600_000


def sessions() -> ClientSessions:
    return ClientSessions(b"k" * 32, clock_s=lambda: 1_000.0, wall_s=lambda: 1_000.0)


@asynccontextmanager
async def following(
    node: ClientSessions, sync: SyncEndedSessions, *, every_s: float = 0.01
) -> AsyncIterator[None]:
    task = asyncio.ensure_future(EndedSessionExchange(node, sync, every_s=every_s, retry_s=0.01).run())
    try:
        yield
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


async def test_ended_sessions_are_listed_from_a_time_on_until_they_expire(
    queue_store: Store, lease_clock: Clock
) -> None:
    kept, now_ms = queue_store.ended_sessions, lease_clock.now_ms
    await kept.add([EndedSession("a" * 22, now_ms + HOUR_MS)])
    lease_clock.now_ms += 10
    await kept.add([EndedSession("b" * 22, now_ms + 2 * HOUR_MS), EndedSession("a" * 22, now_ms)])
    listed, since = await kept.list(), await kept.list(after_ms=now_ms + 1)
    lease_clock.now_ms += HOUR_MS
    later = await kept.list()
    await kept.forget()
    lease_clock.now_ms = now_ms

    assert listed == [
        EndedSession("a" * 22, now_ms + HOUR_MS, now_ms),
        EndedSession("b" * 22, now_ms + 2 * HOUR_MS, now_ms + 10),
    ]
    assert (since, later) == (listed[1:], listed[1:])
    assert await kept.list() == listed[1:]


@pytest.mark.parametrize("store_limits", [StoreLimits(max_ended_sessions=3)])
async def test_only_the_newest_are_kept(queue_store: Store, lease_clock: Clock) -> None:
    until_ms = lease_clock.now_ms + HOUR_MS
    for n in range(5):
        lease_clock.now_ms += 1
        await queue_store.ended_sessions.add([EndedSession(f"{n:022}", until_ms)])
    await queue_store.ended_sessions.forget()

    assert [int(one.nonce) for one in await queue_store.ended_sessions.list()] == [2, 3, 4]


async def test_try_10_a_session_that_is_ended_at_one_node_is_over_at_all(queue_store: Store) -> None:
    sync = queue_store.ended_sessions.exchange
    here, there, restarted = sessions(), sessions(), sessions()
    async with asyncio.timeout(DEADLINE_S), following(here, sync), following(there, sync):
        session_id = here.issue(CALLER, "2025-11-25")
        there.find(session_id, ADA)
        here.end(session_id, ADA, everywhere=True)
        while len(there):
            await asyncio.sleep(0.01)
    await EndedSessionExchange(restarted, sync).sync_once()

    for node in (here, there, restarted):
        with pytest.raises(UnknownSession):
            node.find(session_id, ADA)


async def test_what_ends_while_control_is_away_is_reported_later(queue_store: Store) -> None:
    failures = 3

    async def sync(ended: Sequence[EndedSession], after_ms: int) -> Sequence[EndedSession]:
        nonlocal failures
        failures -= 1
        if failures >= 0:
            raise ControlUnavailable("connection refused")
        return await queue_store.ended_sessions.exchange(ended, after_ms)

    here = sessions()
    async with asyncio.timeout(DEADLINE_S), following(here, sync):
        here.end(here.issue(CALLER, "2025-11-25"), ADA, everywhere=True)
        while not await queue_store.ended_sessions.list():
            await asyncio.sleep(0.01)

    assert failures < 0


async def test_a_failure_is_tried_again_long_before_the_next_look_is_due() -> None:
    done, tries = asyncio.Event(), 0

    async def sync(_ended: Sequence[EndedSession], _after_ms: int) -> Sequence[EndedSession]:
        nonlocal tries
        tries += 1
        if tries == 1:
            raise ControlUnavailable("the database is away")
        done.set()
        return ()

    async with following(sessions(), sync, every_s=3_600.0), asyncio.timeout(DEADLINE_S):
        await done.wait()

    assert tries == 2
