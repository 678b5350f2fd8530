"""The index in a file: the indexes SQLite uses, and a file that is not a database."""

from pathlib import Path

import pytest
from sqlalchemy import Connection, select
from sqlalchemy.dialects import sqlite

from toolgate.audit.index.index import IndexFile, open_sqlite_index
from toolgate.audit.index.statements import build_conditions
from toolgate.audit.index.tables import EVENTS, EventFilter
from toolgate.errors import StartRefused, StorageFailed

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize(
    ("equals", "index"),
    [
        pytest.param({}, "by_time", id="nothing"),
        pytest.param({"outcome": "ok"}, "by_time", id="what many events have"),
        pytest.param({"outcome": "denied"}, "by_outcome", id="what went wrong"),
        pytest.param({"task_id": "a"}, "by_task_id", id="task"),
        pytest.param({"tool": "a"}, "by_tool", id="tool"),
        pytest.param({"principal": "a"}, "by_principal", id="principal"),
        pytest.param({"server_id": "a"}, "by_server_id", id="server"),
        pytest.param({"code": "a"}, "by_code", id="code"),
        pytest.param({"session": "a", "outcome": "ok"}, "by_session", id="session"),
        pytest.param({"request_id": "a"}, "by_request_id", id="request"),
    ],
)
def test_a_page_is_found_in_order_by_an_index_and_never_sorted(
    tmp_path: Path, equals: dict[str, str], index: str
) -> None:
    file = IndexFile(tmp_path / "audit.db")
    file.prepare()
    query = select(EVENTS).where(*build_conditions(EventFilter(equals=equals)))
    query = query.order_by(EVENTS.c.at_ms.desc(), EVENTS.c.position.desc()).limit(100)
    text = query.compile(dialect=sqlite.dialect(), compile_kwargs={"literal_binds": True})

    def explain(connection: Connection) -> str:
        rows = connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {text}").all()
        return "; ".join(row[-1] for row in rows)

    plan = file.read(explain)
    file.close()

    assert f"INDEX audit_events_{index}" in plan
    assert "TEMP B-TREE" not in plan


async def test_a_file_that_is_no_index_is_named_with_what_to_do(tmp_path: Path) -> None:
    path = tmp_path / "audit.db"
    path.write_bytes(b"no database" * 1_000)

    with pytest.raises(StartRefused, match=r"cannot use the audit index `.*audit\.db`: ") as refused:
        async with open_sqlite_index(path):
            pass

    assert "rebuilds it from the kept audit log" in refused.value.hint


async def test_a_file_that_is_damaged_later_fails_what_is_asked_and_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "audit.db"
    async with open_sqlite_index(path) as index:
        for file in tmp_path.iterdir():
            file.write_bytes(b"\xff" * 8_192)

        with pytest.raises(StorageFailed, match="cannot read the audit index"):
            await index.newest()


async def test_the_file_is_for_its_owner_only(tmp_path: Path) -> None:
    async with open_sqlite_index(tmp_path / "audit.db"):
        modes = {file.stat().st_mode & 0o777 for file in tmp_path.iterdir()}

    assert modes == {0o600}
