"""Session ids: signed, bound to their principal, and good on any node that has the key."""

import asyncio
import base64
from dataclasses import replace

import pytest

from tests.surfaces.mcp.mcp_world import open_mcp_world, task
from tests.upstream.memory_link import MemoryNet
from toolgate.errors import InvalidParams, NotFound, SessionLimit, UnknownSession
from toolgate.gateway.scope.caller import Caller
from toolgate.gateway.scope.view import View
from toolgate.gateway.subscriptions import Subscription
from toolgate.model.principals import Ceiling, Principal
from toolgate.model.reports import EndedSession
from toolgate.policy.layers import SessionRequest
from toolgate.surfaces.mcp.session import IDLE_S, LIFETIME_S, MAX_ID_BYTES, ClientSessions, SessionLimits

ADA = Principal(id="key:ada", role="agent")
BOB = Principal(id="key:bob", role="agent")
CALLER = Caller(ADA, "review", SessionRequest(tools=("git/status",)), None)
KEY = b"k" * 32


class Clock:
    """Time that moves only when told."""

    def __init__(self) -> None:
        self.now = 1_000_000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


def sessions_on(clock: Clock, key: bytes = KEY, **limits: int) -> ClientSessions:
    return ClientSessions(key, clock_s=clock, wall_s=clock, limits=SessionLimits(**limits))


def open_stream() -> Subscription:
    def view(_caller: Caller) -> View:
        raise NotFound("nothing to see")

    return Subscription(CALLER, view, None)


def test_a_session_is_found_again_with_its_caller(clock: Clock) -> None:
    sessions = sessions_on(clock)

    session = sessions.find(sessions.issue(CALLER, "2025-11-25"), ADA)

    assert (session.bind(ADA).caller, session.version) == (CALLER, "2025-11-25")


def test_rep_1_what_its_client_can_do_is_known_on_every_node(clock: Clock) -> None:
    capabilities = b'{"elicitation":{"url":{}},"roots":{}}'
    session_id = sessions_on(clock).issue(CALLER, "2025-11-25", capabilities)

    assert sessions_on(clock).find(session_id, ADA).capabilities == capabilities


def test_who_keeps_something_for_sessions_hears_when_they_are_gone(clock: Clock) -> None:
    sessions = sessions_on(clock, max_sessions=3, displaced_per_session=1)
    gone: list[tuple[str, bool]] = []
    sessions.on_dropped = lambda session: gone.append((session.nonce, session.has_ended))
    ids = [sessions.issue(CALLER, "2025-11-25") for _ in range(3)]
    nonces = [sessions.find(one, ADA).nonce for one in ids]
    clock.now += 1
    for one in ids[1:]:
        sessions.find(one, ADA)

    sessions.issue(Caller(BOB), "2025-11-25")  # displaces the one that was used longest ago
    sessions.end(ids[1], ADA)
    clock.now += IDLE_S + 1
    with pytest.raises(UnknownSession):
        sessions.find(ids[2], ADA)
    sessions.use_key(b"x" * 32)

    assert gone[:3] == [(nonces[0], False), (nonces[1], True), (nonces[2], True)]
    assert [has_ended for _, has_ended in gone[3:]] == [True]


def test_lod_1_a_selection_too_long_for_a_header_opens_no_session(clock: Clock) -> None:
    sessions = sessions_on(clock)

    def issue(tools: int) -> bytes:
        request = SessionRequest(tools=tuple(f"server/tool-{number:03d}" for number in range(tools)))
        return sessions.issue(replace(CALLER, request=request), "2025-06-18")

    assert len(issue(200)) < MAX_ID_BYTES
    with pytest.raises(InvalidParams, match="too long for a session"):
        issue(400)
    assert len(sessions) == 1


def test_rep_1_another_node_with_the_key_serves_it_with_the_same_scope(clock: Clock) -> None:
    session_id = sessions_on(clock).issue(CALLER, "2025-06-18")

    assert sessions_on(clock).find(session_id, ADA).bind(ADA).caller == CALLER


def test_a_node_with_another_key_does_not(clock: Clock) -> None:
    session_id = sessions_on(clock).issue(CALLER, "2025-06-18")

    with pytest.raises(UnknownSession):
        sessions_on(clock, b"x" * 32).find(session_id, ADA)


def test_sco_13_another_principal_does_not_find_it_on_any_node(clock: Clock) -> None:
    sessions = sessions_on(clock)
    session_id = sessions.issue(CALLER, "2025-11-25")

    for node in (sessions, sessions_on(clock)):
        with pytest.raises(UnknownSession):
            node.find(session_id, BOB)
    assert sessions.find(session_id, ADA).bind(ADA).caller == CALLER


def test_sco_14_an_id_that_was_never_issued_is_unknown(clock: Clock) -> None:
    sessions = sessions_on(clock)
    real = sessions.issue(CALLER, "2025-11-25")
    forged = base64.urlsafe_b64encode(b"\0" * 32 + b'["x","key:ada","2025-11-25",0,null,null,{}]')
    respelled = base64.urlsafe_b64encode(base64.urlsafe_b64decode(real + b"==")) + b"="

    for guess in (b"mine", b"", b"\xe9", forged, real[:-2] + b"AA", respelled, real * 40, b"x" * 100_000):
        with pytest.raises(UnknownSession):
            sessions.find(guess, ADA)


def test_sco_14_ids_are_unique(clock: Clock) -> None:
    sessions = sessions_on(clock)

    assert len({sessions.issue(CALLER, "2025-11-25") for _ in range(5_000)}) == 5_000


def test_sco_15_only_its_own_principal_ends_it(clock: Clock) -> None:
    sessions = sessions_on(clock)
    session_id = sessions.issue(CALLER, "2025-11-25")

    with pytest.raises(UnknownSession):
        sessions.end(session_id, BOB)
    sessions.end(session_id, ADA)
    with pytest.raises(UnknownSession):
        sessions.find(session_id, ADA)


def test_sco_16_an_idle_session_ends_and_does_not_come_back(clock: Clock) -> None:
    sessions = sessions_on(clock)
    session_id = sessions.issue(CALLER, "2025-11-25")

    clock.now += IDLE_S - 1
    sessions.find(session_id, ADA)
    clock.now += IDLE_S + 1
    for _ in range(2):
        with pytest.raises(UnknownSession):
            sessions.find(session_id, ADA)


def test_sco_16_an_open_stream_keeps_it_alive(clock: Clock) -> None:
    sessions = sessions_on(clock)
    session_id = sessions.issue(CALLER, "2025-11-25")
    sessions.find(session_id, ADA).stream = open_stream()

    clock.now += 2 * IDLE_S

    assert sessions.find(session_id, ADA).is_busy


def test_an_id_does_not_outlive_its_lifetime_on_a_node_that_never_saw_it(clock: Clock) -> None:
    session_id = sessions_on(clock).issue(CALLER, "2025-11-25")
    clock.now += LIFETIME_S + 1

    with pytest.raises(UnknownSession):
        sessions_on(clock).find(session_id, ADA)


def test_lod_9_a_full_table_refuses_new_sessions_and_keeps_the_old(clock: Clock) -> None:
    sessions = sessions_on(clock, max_sessions=2)
    first = sessions.issue(CALLER, "2025-11-25")
    sessions.issue(CALLER, "2025-11-25")

    with pytest.raises(SessionLimit):
        sessions.issue(CALLER, "2025-11-25")
    assert sessions.find(first, ADA).bind(ADA).caller == CALLER
    clock.now += IDLE_S + 1
    assert sessions.issue(CALLER, "2025-11-25")
    assert len(sessions) == 1


def test_no_principal_takes_the_whole_table(clock: Clock) -> None:
    sessions = sessions_on(clock, max_sessions=20, displaced_per_session=1)
    oldest, *others = [sessions.issue(CALLER, "2025-11-25") for _ in range(20)]
    clock.now += 1
    for session_id in others:
        sessions.find(session_id, ADA)

    bobs = [sessions.issue(Caller(BOB), "2025-11-25") for _ in range(2)]
    with pytest.raises(SessionLimit, match="2 of them yours"):
        sessions.issue(Caller(BOB), "2025-11-25")
    with pytest.raises(SessionLimit, match="18 of them yours"):
        sessions.issue(CALLER, "2025-11-25")

    # Those that had to go come back when they are used: none is lost.
    assert all(sessions.find(session_id, ADA).bind(ADA).caller == CALLER for session_id in (oldest, *others))
    assert all(sessions.find(session_id, BOB) for session_id in bobs)
    assert len(sessions) == 20


def test_a_session_in_use_is_not_displaced(clock: Clock) -> None:
    sessions = sessions_on(clock, max_sessions=20)
    for _ in range(20):
        sessions.find(sessions.issue(CALLER, "2025-11-25"), ADA).stream = open_stream()

    with pytest.raises(SessionLimit, match="all are in use"):
        sessions.issue(Caller(BOB), "2025-11-25")
    assert len(sessions) == 20


def test_a_key_whose_ceiling_changed_takes_its_sessions_along(clock: Clock) -> None:
    sessions = sessions_on(clock)
    session_id = sessions.issue(CALLER, "2025-11-25")
    narrowed = replace(ADA, ceiling=Ceiling(servers=("time",)))

    assert sessions.find(session_id, narrowed).bind(narrowed).caller.principal == narrowed


def test_rep_1_nodes_that_were_given_the_same_key_know_each_others_sessions(clock: Clock) -> None:
    one, two = sessions_on(clock, b"a" * 32), sessions_on(clock, b"b" * 32)
    for sessions in (one, two):
        sessions.use_key(KEY)

    session = two.find(one.issue(CALLER, "2025-11-25"), ADA)

    assert session.bind(ADA).caller == CALLER


def test_rep_1_a_session_signed_with_a_key_that_was_replaced_is_unknown(clock: Clock) -> None:
    sessions = sessions_on(clock, b"a" * 32)
    old = sessions.issue(CALLER, "2025-11-25")
    sessions.use_key(KEY)
    kept = sessions.issue(CALLER, "2025-11-25")
    sessions.use_key(KEY)

    with pytest.raises(UnknownSession):
        sessions.find(old, ADA)
    assert sessions.find(kept, ADA).bind(ADA).caller == CALLER
    assert len(sessions) == 1


@pytest.mark.anyio
async def test_a_node_that_is_behind_catches_up_before_it_serves_a_session() -> None:
    """A session may come to a node before the change that made its task does."""
    async with open_mcp_world(MemoryNet()) as ahead, open_mcp_world(MemoryNet()) as behind:
        behind.sessions.use_key(ahead.sessions.signer.key)
        ahead.apply(tasks={"new": task("new", default_server_ids=["one"])})
        client = await ahead.session("/mcp/t/new")
        elsewhere = replace(client, world=behind)
        listing = asyncio.ensure_future(elsewhere.tools())
        for _ in range(20):
            await asyncio.sleep(0)
        assert not listing.done()
        behind.apply(tasks={"new": task("new", default_server_ids=["one"])})

        assert await asyncio.wait_for(listing, 60) == ["one.echo"]


def test_a_session_that_was_ended_on_another_node_is_closed_and_does_not_come_back(clock: Clock) -> None:
    here, there, later = sessions_on(clock), sessions_on(clock), sessions_on(clock)
    ended: list[EndedSession] = []
    here.on_ended = ended.append
    session_id = here.issue(CALLER, "2025-11-25")
    other_id = there.issue(CALLER, "2025-11-25")
    session = there.find(session_id, ADA)
    stream = open_stream()

    with session.attach_stream(stream):
        here.end(session_id, ADA, everywhere=True)
        for node in (there, later):
            node.apply_ended([one.nonce for one in ended])
            with pytest.raises(UnknownSession):
                node.find(session_id, ADA)

    assert ended == [EndedSession(session.nonce, int(clock.now + LIFETIME_S) * 1000)]
    assert session.has_ended
    assert there.find(other_id, ADA).principal_id == ADA.id


def test_only_sessions_that_their_clients_end_are_announced_to_other_nodes(clock: Clock) -> None:
    sessions = sessions_on(clock)
    ended: list[EndedSession] = []
    sessions.on_ended = ended.append
    idle, closed = (sessions.issue(CALLER, "2025-11-25") for _ in range(2))
    sessions.end(closed, ADA)
    clock.now += IDLE_S + 1

    with pytest.raises(UnknownSession):
        sessions.find(idle, ADA)
    assert ended == []


def test_a_session_that_is_dropped_says_why(clock: Clock) -> None:
    sessions = sessions_on(clock, max_sessions=2)
    dropped: list[str] = []
    sessions.on_dropped = lambda session: dropped.append(session.ended_by)

    sessions.end(sessions.issue(CALLER, "2025-11-25"), ADA, everywhere=True)
    sessions.end(sessions.issue(CALLER, "2025-11-25"), ADA)
    elsewhere = sessions.find(sessions.issue(CALLER, "2025-11-25"), ADA)
    sessions.apply_ended([elsewhere.nonce])
    sessions.issue(CALLER, "2025-11-25")
    clock.now += IDLE_S + 1
    sessions.drop_idle()
    for _ in range(2):
        sessions.issue(CALLER, "2025-11-25")
    sessions.issue(replace(CALLER, principal=BOB), "2025-11-25")
    sessions.close()
    sessions.issue(CALLER, "2025-11-25")
    sessions.use_key(b"another" * 8)

    ways = ["deleted", "closed", "deleted", "idle", "displaced", "displaced", "shutdown", "key_changed"]
    assert dropped == ways
