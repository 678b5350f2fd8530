"""The audit file belongs to one process."""

import asyncio
import os
from pathlib import Path

import pytest
from msgspec.structs import replace

from toolgate.app.audit_index import open_index
from toolgate.app.components import wall_clock_ms
from toolgate.app.observability import AUDIT_FILE, open_journal
from toolgate.audit.events import AdminRecorded
from toolgate.audit.index.tables import EventFilter
from toolgate.errors import StartRefused
from toolgate.settings import Settings


def test_two_processes_do_not_number_one_audit_log(tmp_path: Path) -> None:
    data = tmp_path / "data"
    refused = pytest.raises(StartRefused, match=rf"in use by .*process \({os.getpid()}\)")
    settings = Settings(data_dir=data)
    with open_journal(settings), refused, open_journal(settings):
        pass

    with open_journal(settings):
        assert data.stat().st_mode & 0o777 == 0o700


def test_a_data_directory_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")

    refused = pytest.raises(StartRefused, match=r"cannot use `.*/file/data` for data: Not a directory")
    with refused, open_journal(Settings(data_dir=tmp_path / "file" / "data")):
        pass


@pytest.mark.anyio
async def test_a_log_that_lost_its_end_gives_no_number_a_second_time(tmp_path: Path) -> None:
    """STO-10: what is recorded as soon as there is an index is found in it."""
    settings = Settings(data_dir=tmp_path / "data")
    event = AdminRecorded(
        at_ms=wall_clock_ms(), principal="local", operation="put", kind="server", record_id="a"
    )
    file = settings.data_dir / AUDIT_FILE
    with open_journal(settings) as journal:
        async with open_index(settings, journal):
            journal.log.record(event)
            journal.log.flush()
            kept = file.read_bytes()
            journal.log.record(event)
    file.write_bytes(kept)
    with open_journal(settings) as journal:
        async with open_index(settings, journal) as index:
            assert journal.log.record(replace(event, record_id="b")) == 3
            journal.log.flush()
            async with asyncio.timeout(60):
                news = index.news
                while await index.newest() < 3:
                    await news.wait()
                    news = index.news
            found = await index.page(EventFilter(), before=None, limit=10)

    assert [one.seq for one in found] == [3, 2, 1]
