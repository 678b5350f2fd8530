"""What every index of the audit does: takes each event once, finds it by everything, counts calls."""

import asyncio
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest
from sqlalchemy import text

from tests.contract.audit_indexes import INDEXES, LOG, add, batch, call, times
from tests.contract.stores import schema_url
from toolgate.audit.events import (
    AdminRecorded,
    ApprovalRecorded,
    AuditEvent,
    CallStarted,
    CredentialRefused,
    DefinitionChanged,
    InvocationEnded,
    ProcessSpawned,
    SessionEnded,
    TokensCounted,
)
from toolgate.audit.index.activity import (
    ActivityBucket,
    CallerActivity,
    DenialCount,
    ServerActivity,
    ToolActivity,
)
from toolgate.audit.index.index import AuditIndex, IndexFile, name_log
from toolgate.audit.index.statements import DAY_MS, TokenReport
from toolgate.audit.index.tables import EventFilter, IndexedEvent, TokenSums, prepare_tables
from toolgate.audit.log.files import AuditLine, LineBatch
from toolgate.errors import StartRefused
from toolgate.registry.database.postgresql import PostgresDatabase

pytestmark = pytest.mark.anyio

EVERY: list[AuditEvent] = [
    call(
        1,
        outcome="denied",
        task_id="t",
        session="s",
        request_id="7",
        code="tool_not_found",
        layer="task",
        rule="mcp.denied_tools",
        revision=3,
        definition="d",
        duration_us=5,
        argument_bytes=6,
        result_bytes=7,
        start=8,
        arguments=msgspec.Raw(b'{"path": "/\\u0000"}'),
        result_tokens=2,
        shadow="mcp.denied_tools",
        trace_id="0af7",
    ),
    AdminRecorded(2, "key:ada", "put", "server", "git", 4),
    CredentialRefused(3, "10.0.0.9", "unauthenticated"),
    DefinitionChanged(4, "git", "log", "a", "b"),
    InvocationEnded(5, "key:ada", "t", "i", 1, "succeeded", "guest", "m", 8, 9),
    ApprovalRecorded(6, "p", "approved", "key:ada", "t", "git", "log", "key:eve", "fine"),
    ProcessSpawned(7, "git", "uvx git-server", "trial", "f00d"),
    SessionEnded(8, "chat", "key:bob", "idle", "of bob", "", "of bob", 9, 10, 11, {"node_busy": 12}),
]


@pytest.fixture(params=INDEXES)
async def index(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[AuditIndex]:
    async with INDEXES[request.param](tmp_path) as opened:
        yield opened


async def page(index: AuditIndex, **equals: str) -> list[IndexedEvent]:
    return list(await index.page(EventFilter(equals=equals), before=None, limit=100))


async def test_every_type_of_event_is_read_back_whole_the_newest_first(index: AuditIndex) -> None:
    await add(index, *EVERY)

    found = await page(index)

    assert [one.event for one in found] == EVERY[::-1]
    assert [(one.seq, one.node, one.position) for one in found] == [(n, "", n) for n in range(8, 0, -1)]


@pytest.mark.parametrize(
    ("column", "value", "expected"),
    [
        pytest.param("type", "admin", [2], id="type"),
        pytest.param("outcome", "denied", [1], id="outcome"),
        pytest.param("door", "mcp", [1], id="door"),
        pytest.param("principal", "key:ada", [6, 5, 2, 1], id="principal"),
        pytest.param("task_id", "t", [6, 5, 1], id="task"),
        pytest.param("server_id", "git", [7, 6, 4, 1], id="server"),
        pytest.param("tool", "log", [6, 4], id="tool"),
        pytest.param("code", "tool_not_found", [1], id="code"),
        pytest.param("code", "", [8, 7, 6, 5, 4, 2], id="no code"),
        pytest.param("session", "s", [1], id="session"),
        pytest.param("session", "i", [5], id="a run is the session of its calls"),
        pytest.param("session", "of bob", [8], id="the end of a session is one of its events"),
        pytest.param("request_id", "7", [1], id="request"),
        pytest.param("node", "", [8, 7, 6, 5, 4, 3, 2, 1], id="of no node"),
        pytest.param("node", "n", [], id="node"),
    ],
)
async def test_events_are_found_by(index: AuditIndex, column: str, value: str, expected: list[int]) -> None:
    await add(index, *EVERY)

    assert times(await page(index, **{column: value})) == expected


@pytest.mark.parametrize(
    ("group", "expected"),
    [
        pytest.param("admitted", [4, 3, 2, 1], id="admitted"),
        pytest.param("failed", [3, 2], id="failed"),
        pytest.param("pending", [6], id="pending"),
        pytest.param("rejected", [7, 5], id="rejected"),
    ],
)
async def test_calls_are_found_by_a_group_of_outcomes(
    index: AuditIndex, group: str, expected: list[int]
) -> None:
    """The groups that activity counts, so that each number leads to the calls that it counted."""
    await add(
        index,
        call(1),
        call(2, outcome="error"),
        call(3, outcome="tool_error"),
        call(4, outcome="cancelled"),
        call(5, outcome="denied", code="tool_not_found"),
        call(6, outcome="denied", code="mcp_approval_required"),
        call(7, outcome="denied"),
    )

    assert times(await page(index, outcome=group)) == expected


async def test_events_are_found_by_time_and_by_all_that_is_asked_for_at_once(index: AuditIndex) -> None:
    await add(index, *EVERY)
    spring = EventFilter(since_ms=2, until_ms=5)
    both = EventFilter(equals={"principal": "key:ada", "task_id": "t"}, since_ms=5)

    assert times(await index.page(spring, before=None, limit=10)) == [4, 3, 2]
    assert times(await index.page(both, before=None, limit=10)) == [6, 5]


async def test_pages_follow_each_other_without_gap_or_repetition(index: AuditIndex) -> None:
    """Also of one moment, and while newer events come in."""
    await add(index, *(call(at_ms) for at_ms in (1, 2, 2, 2, 3)))

    first = await index.page(EventFilter(), before=None, limit=2)
    await add(index, call(9), call(0), after=5)
    second = await index.page(EventFilter(), before=first[-1].place, limit=2)
    third = await index.page(EventFilter(), before=second[-1].place, limit=9)

    assert [one.seq for one in (*first, *second, *third)] == [5, 4, 3, 2, 1, 7]


async def test_each_event_is_taken_once_however_often_it_is_sent(index: AuditIndex) -> None:
    sent = [
        await add(index, call(1), call(2)),
        await add(index, call(1), call(2)),
        await add(index, call(2), call(3), after=1),
        await index.add(LineBatch(0, 0, ()), node="", log=LOG),
    ]

    assert sent == [2, 2, 3, 3]
    assert times(await page(index)) == [3, 2, 1]


async def test_that_a_call_began_is_the_logs_alone(index: AuditIndex) -> None:
    """Its number is taken all the same: the one that follows goes on after it."""
    began = CallStarted(1, "mcp", "key:ada", "log", "git")

    assert await add(index, began, call(2, start=1), began) == 3
    assert await add(index, call(4, start=3), after=3) == 4
    assert [(one.seq, one.position) for one in await page(index)] == [(4, 2), (2, 1)]


async def test_a_piece_that_would_leave_a_gap_is_not_taken(index: AuditIndex) -> None:
    """As after a database was put back: the one that sends hears where to go on."""
    await add(index, call(1))

    assert await add(index, call(5), after=4) == 1
    assert times(await page(index)) == [1]


async def test_what_a_log_lost_is_no_reason_to_stop(index: AuditIndex) -> None:
    lost = LineBatch(1, 9, [AuditLine(9, call(9))])
    await add(index, call(1))

    assert await index.add(lost, node="", log=LOG) == 9
    assert times(await page(index)) == [9, 1]


async def test_two_that_send_the_same_at_once_add_it_once(index: AuditIndex) -> None:
    sent = batch(*(call(n) for n in range(50)))

    taken = await asyncio.gather(*(index.add(sent, node="n", log=LOG) for _ in range(4)))

    assert taken == [50] * 4
    assert len(await page(index)) == 50


async def test_no_node_can_write_into_the_log_of_another(index: AuditIndex) -> None:
    await add(index, call(1), node="one")
    await add(index, call(2), node="two")

    found = await page(index)

    assert [(one.node, one.seq, one.event.at_ms) for one in found] == [("two", 1, 2), ("one", 1, 1)]
    assert name_log("one", LOG) != name_log("two", LOG)


async def test_an_event_is_found_by_its_name(index: AuditIndex) -> None:
    await add(index, *EVERY)
    (first, *_) = await page(index)

    assert await index.find(first.log, first.seq) == first
    assert await index.find(first.log, 99) is None
    assert await index.find("0" * 24, 1) is None


@pytest.mark.parametrize(
    ("events", "which", "expected"),
    [
        pytest.param(
            [call(1, session="s"), call(2), call(3, session="s"), call(4, session="s")],
            3,
            [1, 4],
            id="a session",
        ),
        pytest.param(
            [
                call(1, session="i", door="hostcall"),
                InvocationEnded(2, "key:ada", "t", "i", 1, "succeeded", "guest"),
            ],
            2,
            [1],
            id="a run and its calls",
        ),
        pytest.param(
            [
                call(1, request_id="1"),
                call(2, request_id="1", principal="key:eve"),
                call(3, request_id="1"),
                call(10_000_000, request_id="1"),
            ],
            1,
            [3],
            id="a request of the same caller about the same time",
        ),
        pytest.param(
            [
                ApprovalRecorded(1, "p", "asked", "key:ada", "t", "git", "log"),
                ApprovalRecorded(2, "q", "asked", "key:ada", "t", "git", "log"),
                ApprovalRecorded(3, "p", "used", "key:ada", "t", "git", "log"),
            ],
            3,
            [1],
            id="an approval",
        ),
        pytest.param([AdminRecorded(1, "a", "put", "task", "t"), call(2)], 1, [], id="nothing"),
    ],
)
async def test_an_event_has_its_story(
    index: AuditIndex, events: list[Any], which: int, expected: list[int]
) -> None:
    await add(index, *events)
    found = await index.find(name_log("", LOG), which)
    assert found is not None

    assert times(await index.around(found)) == expected


async def test_a_story_is_bounded_by_the_nearest(index: AuditIndex) -> None:
    await add(index, *(call(n, session="s") for n in range(1, 302)))
    found = await index.find(name_log("", LOG), 151)
    assert found is not None

    assert times(await index.around(found)) == [*range(51, 151), *range(152, 252)]


async def test_what_comes_in_is_followed_in_that_order(index: AuditIndex) -> None:
    await add(index, call(5), call(9, outcome="error"))
    before = await index.newest()
    news = index.news
    await add(index, call(7), call(1, outcome="error"), call(8), after=2)

    assert news.is_set()
    everything = await index.following(EventFilter(), after=before, limit=10)
    errors = await index.following(EventFilter(equals={"outcome": "error"}), after=0, limit=1)
    assert (times(everything.events), everything.position) == ([7, 1, 8], 5)
    assert (times(errors.events), errors.position) == ([9], 2)
    assert tuple(await index.following(EventFilter(), after=5, limit=10)) == ((), 5)


async def test_texts_that_no_database_likes_are_kept_and_found(index: AuditIndex) -> None:
    odd = "a\0b\u202e'\";--\U0001f600" + "x" * 500
    await add(index, call(1, tool=odd, request_id="\0"))

    (found,) = await page(index, tool=odd[:400].replace("\0", "\ufffd"))
    assert found.event == call(1, tool=odd, request_id="\0")


async def test_old_events_are_dropped_and_then_those_that_are_too_many(index: AuditIndex) -> None:
    await add(index, *(call(n) for n in range(1, 11)))

    assert await index.prune(before_ms=4, keep=100) is False
    assert times(await page(index)) == [10, 9, 8, 7, 6, 5, 4]
    assert await index.prune(before_ms=0, keep=3) is False
    assert times(await page(index)) == [10, 9, 8]
    assert await add(index, *(call(n) for n in range(1, 11))) == 10
    assert times(await page(index)) == [10, 9, 8]


async def test_calls_are_counted(index: AuditIndex) -> None:
    await add(
        index,
        *(call(100 + n, duration_us=1_000) for n in range(18)),
        call(250, outcome="error", duration_us=100_000, principal="key:eve"),
        call(299, outcome="tool_error", duration_us=100_000, server_id="time", tool="now"),
        call(150, outcome="cancelled", duration_us=1_000),
        call(160, outcome="denied", server_id="", code="tool_not_found", layer="task", rule="r"),
        call(170, outcome="denied", server_id="", code="tool_not_found", layer="task", rule="r"),
        call(175, outcome="denied", server_id="", code="busy"),
        call(180, outcome="denied", code="mcp_approval_required"),
        call(99),
        call(300),
        AdminRecorded(150, "key:ada", "put", "server", "git", 4),
    )

    found: Any = await index.activity(EventFilter(), since_ms=100, until_ms=300, buckets=4)
    millisecond: Any = pytest.approx(1, rel=0.05)
    slow: Any = pytest.approx(100, rel=0.05)

    assert (found.since_ms, found.until_ms, found.bucket_ms) == (100, 300, 50)
    assert found.buckets == [
        ActivityBucket(100, 18, 0, 0, 0),
        ActivityBucket(150, 1, 0, 3, 1),
        ActivityBucket(200, 0, 0, 0, 0),
        ActivityBucket(250, 2, 2, 0, 0),
    ]
    assert found.servers == [
        ServerActivity("git", 20, 1, millisecond, millisecond, 250),
        ServerActivity("time", 1, 1, slow, slow, 299),
    ]
    assert found.tools == [
        ToolActivity("time", "now", 1, 1, slow, slow),
        ToolActivity("git", "git__log", 20, 1, millisecond, millisecond),
    ]
    assert found.denials == [DenialCount("tool_not_found", "task", "r", 2), DenialCount("busy", "", "", 1)]
    assert found.callers == [CallerActivity("key:ada", 20), CallerActivity("key:eve", 1)]


async def test_calls_of_one_server_or_task_are_counted(index: AuditIndex) -> None:
    await add(index, call(1), call(2, server_id="time"), call(3, task_id="t"))

    of_git = await index.activity(
        EventFilter(equals={"server_id": "git"}), since_ms=0, until_ms=10, buckets=1
    )
    of_task = await index.activity(EventFilter(equals={"task_id": "t"}), since_ms=0, until_ms=10, buckets=1)

    assert (of_git.buckets, of_task.buckets) == (
        [ActivityBucket(0, 2, 0, 0, 0)],
        [ActivityBucket(0, 1, 0, 0, 0)],
    )


@pytest.mark.parametrize("engine", INDEXES)
async def test_an_index_is_opened_again_with_all_that_is_in_it(engine: str, tmp_path: Path) -> None:
    async with INDEXES[engine](tmp_path) as index:
        await add(index, *EVERY)
    async with INDEXES[engine](tmp_path) as index:
        assert [one.event for one in await page(index)] == EVERY[::-1]
        assert await add(index, call(9), after=7) == 8


@pytest.mark.parametrize("engine", INDEXES)
async def test_an_older_index_is_brought_up_to_date_and_a_newer_one_refused(
    engine: str, tmp_path: Path
) -> None:
    async with INDEXES[engine](tmp_path) as index:
        await add(index, call(1))
    steps: list[int] = []
    newer = {n: lambda _connection, n=n: steps.append(n) for n in (4, 5)}
    database = (
        IndexFile(tmp_path / "audit.db")
        if engine == "sqlite"
        else PostgresDatabase(schema_url(tmp_path), topic="audit")
    )
    for _ in range(2):
        await asyncio.to_thread(database.change, partial(prepare_tables, steps=newer))
    async with AuditIndex(database) as index:
        assert times(await page(index)) == [1]
    database.close()

    assert steps == [4, 5]
    with pytest.raises(StartRefused, match="schema 5, this version knows 3"):
        async with INDEXES[engine](tmp_path):
            pass


async def test_calls_are_compared_by_the_version_of_the_profile_that_decided(index: AuditIndex) -> None:
    took = {"ok": 1_000, "error": 3_000, "tool_error": 3_000, "denied": 0}
    notified = [
        ("p@1", "ok"),
        ("p@1", "denied"),
        ("p@2", "ok"),
        ("q@7 p@2", "error"),
        ("p@2 q@7", "tool_error"),
        ("up@9", "ok"),
        ("p@%", "ok"),
        ("", "ok"),
    ]
    await add(
        index,
        *(
            msgspec.structs.replace(call(5), profile=profile, outcome=outcome, duration_us=took[outcome])
            for profile, outcome in notified
        ),
        msgspec.structs.replace(call(99), profile="p@1"),
    )

    found = await index.versions("p", since_ms=5, until_ms=99)
    counts = [(one.version, one.calls, one.errors, one.denied) for one in found]

    assert counts == [(1, 1, 0, 1), (2, 3, 2, 0)]
    assert [(round(one.p50_ms or 0), round(one.p95_ms or 0)) for one in found] == [(1, 1), (3, 3)]
    assert await index.versions("absent", since_ms=0, until_ms=99) == []


async def test_tokens_are_added_up_by_task_and_day_each_event_once(index: AuditIndex) -> None:
    counted = [
        TokensCounted(DAY_MS - 1, "t", 1, 10, 100, 2, 7),
        TokensCounted(DAY_MS, "t", 1, 10, 100, 2, 7),
        TokensCounted(DAY_MS + 5, "t", lists=2, definition_tokens=20, full_tokens=200),
        TokensCounted(DAY_MS, "", calls=1, result_tokens=9),
    ]
    for _ in range(2):
        await add(index, *counted)
    await add(index, *counted, call(1), TokensCounted(DAY_MS, "t", calls=1, result_tokens=3))

    found = await index.tokens(since_ms=0, task_id=None)
    of_t = await index.tokens(since_ms=DAY_MS + 9, task_id="t")

    assert found == TokenReport(
        days={0: TokenSums(1, 10, 100, 2, 7), 1: TokenSums(3, 30, 300, 4, 19)},
        tasks={"t": TokenSums(4, 40, 400, 5, 17), "": TokenSums(0, 0, 0, 1, 9)},
    )
    assert list(found.tasks) == ["t", ""]
    assert of_t == TokenReport({1: TokenSums(3, 30, 300, 3, 10)}, {"t": TokenSums(3, 30, 300, 3, 10)})
    assert times(await page(index)) == [1]


async def test_days_and_logs_that_are_too_old_are_forgotten(index: AuditIndex) -> None:
    """What is sent again then is taken again, and is too old again."""
    counted = [TokensCounted(day * DAY_MS, "t", lists=1) for day in (1, 2, 3)]
    await add(index, *counted, call(1))
    await index.prune(before_ms=3 * DAY_MS - 1, keep=100)

    assert list((await index.tokens(since_ms=0, task_id=None)).days) == [2, 3]
    assert await index.add(LineBatch(0, 0, ()), node="", log=LOG) == 4
    await index.prune(before_ms=2**52, keep=100)
    assert await index.add(LineBatch(0, 0, ()), node="", log=LOG) == 0


_UNDO = (
    "DROP TABLE audit_tokens",
    "ALTER TABLE audit_logs DROP COLUMN seen_ms",
    "ALTER TABLE audit_events DROP COLUMN profile",
    *(f"DROP INDEX audit_events_by_{name}" for name in ("task_id", "tool", "outcome")),
    "UPDATE audit_head SET schema_version = 1",
)
"""Makes of an index what the first version had."""


@pytest.mark.parametrize("engine", INDEXES)
async def test_an_index_of_the_first_version_goes_on(engine: str, tmp_path: Path) -> None:
    async with INDEXES[engine](tmp_path) as index:
        await add(index, call(5))
        await index._change(lambda connection: [connection.execute(text(step)) for step in _UNDO])
    async with INDEXES[engine](tmp_path) as index:
        await index.prune(before_ms=5, keep=100)

        assert await add(index, TokensCounted(5, "t", lists=1), after=1) == 2
        assert times(await page(index, tool="git__log")) == [5]
        assert list((await index.tokens(since_ms=0, task_id="t")).days) == [0]
