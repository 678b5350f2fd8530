"""What every index of the audit knows of what was used."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.contract.audit_indexes import INDEXES, add, call
from toolgate.audit.events import AdminRecorded
from toolgate.audit.index.index import AuditIndex
from toolgate.audit.index.statements import DAY_MS, IndexExtent, ToolUse

pytestmark = pytest.mark.anyio


@pytest.fixture(params=INDEXES)
async def index(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[AuditIndex]:
    async with INDEXES[request.param](tmp_path) as opened:
        yield opened


async def test_what_was_called_and_not_denied_was_used_whatever_came_of_it(index: AuditIndex) -> None:
    await add(
        index,
        call(1, task_id="t", tool="log"),
        call(5, task_id="t", tool="log", outcome="tool_error"),
        call(6, task_id="t", tool="log", outcome="unknown", principal="key:eve"),
        call(7, task_id="t", tool="log", outcome="denied"),
        call(2, task_id="t", tool="old", outcome="error"),
        call(3, task_id="u", tool="log"),
        call(8, tool="log"),
        call(9, task_id="t", tool="search_tools", server_id=""),
        AdminRecorded(9, "key:ada", "put", "task", "t"),
    )

    mine = await index.uses("task_id", since_ms=5, holder="t")
    everyone = await index.uses("task_id", since_ms=5)
    callers = await index.uses("principal", since_ms=0)

    assert sorted(mine) == [ToolUse("t", "git", "log", 2, 6), ToolUse("t", "git", "old", 0, 2)]
    assert sorted(everyone) == [
        ToolUse("", "git", "log", 1, 8),
        *sorted(mine),
        ToolUse("u", "git", "log", 0, 3),
    ]
    assert await index.uses("task_id", since_ms=0, holder="") == [ToolUse("", "git", "log", 1, 8)]
    assert sorted(callers) == [
        ToolUse("key:ada", "git", "log", 4, 8),
        ToolUse("key:ada", "git", "old", 1, 2),
        ToolUse("key:eve", "git", "log", 1, 6),
    ]


async def test_it_is_known_how_far_back_and_on_which_days_nothing_is_written_down(index: AuditIndex) -> None:
    nothing = await index.extent(since_ms=0, until_ms=9 * DAY_MS)
    await add(index, call(2 * DAY_MS + 5), call(2 * DAY_MS + 6), call(5 * DAY_MS), call(9 * DAY_MS))

    assert nothing == IndexExtent(None, 0, 0)
    assert await index.extent(since_ms=0, until_ms=6 * DAY_MS) == IndexExtent(2 * DAY_MS + 5, 5, 3)
    assert await index.extent(since_ms=4 * DAY_MS + 1, until_ms=5 * DAY_MS + 1) == IndexExtent(
        2 * DAY_MS + 5, 2, 1
    )
    assert await index.extent(since_ms=0, until_ms=DAY_MS) == IndexExtent(2 * DAY_MS + 5, 0, 0)
