"""`backup` and `restore`: a whole registry through a file, without a gateway."""

import asyncio
import json
import stat
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import Run
from tests.cli.fake_gateway import FakeGateway
from toolgate.model.revisions import RecordList, RecordWrite
from toolgate.registry.store.engines import open_sqlite_store


def fill(directory: Path) -> RecordList:
    """A registry with a task that was changed once."""

    async def write() -> RecordList:
        async with open_sqlite_store(directory / "registry.db", lambda: 1) as store:
            for name in ("before", "after"):
                body: dict[str, Any] = {"task_id": "review", "display_name": name}
                await store.write([RecordWrite(kind="task", id="review", body=body)], actor="ada")
            return await store.list()

    return asyncio.run(write())


def read(directory: Path) -> tuple[RecordList, list[str]]:
    """What is there, and who is in its history."""

    async def look() -> tuple[RecordList, list[str]]:
        async with open_sqlite_store(directory / "registry.db", lambda: 1) as store:
            history = await store.history("task", "review", limit=10)
            return await store.list(), [one.actor for one in history]

    return asyncio.run(look())


def test_a_registry_moves_through_a_file_with_its_history(run: Run, tmp_path: Path) -> None:
    old, new, file = tmp_path / "old", tmp_path / "new", tmp_path / "copy.jsonl"
    before = fill(old)

    saved = run("backup", str(file), "--data", str(old))
    restored = run("restore", str(file), "--data", str(new))
    after, actors = read(new)

    assert saved.lines == ["✓ 1 record at revision 2, in", f"  {file}"]
    assert restored.lines == ["✓ restored 1 record at revision 2; nodes will list everything again"]
    assert (after.revision, after.records, actors) == (before.revision, before.records, ["ada", "ada"])
    assert after.epoch != before.epoch
    assert stat.S_IMODE(file.stat().st_mode) == 0o600


def test_programs_get_the_same_as_json(run: Run, tmp_path: Path) -> None:
    before = fill(tmp_path / "old")
    file = tmp_path / "copy.jsonl"

    assert run("backup", str(file), "--data", str(tmp_path / "old"), "--json").json == {
        "path": str(file),
        "epoch": before.epoch,
        "revision": 2,
        "records": 1,
        "changes": 2,
    }


def test_the_data_directory_comes_from_the_settings_unless_given(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(tmp_path / "data")
    monkeypatch.setenv("TOOLGATE_DATA_DIR", str(tmp_path / "data"))

    assert run("backup", str(tmp_path / "copy.jsonl")).code == 0


NEWER = b'{"header":{"format":"toolgate-registry","version":2}}\n'
OTHER = b'{"mcpServers": {}}\n'


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        pytest.param(("backup", "{file}", "--data", "{old}"), 2, "already exists", id="file exists"),
        pytest.param(("backup", "{tmp}/x", "--data", "{tmp}/none"), 1, "there is no registry", id="nothing"),
        pytest.param(
            ("backup", "{tmp}/x", "--data", "{old}", "--database", "postgresql://h/d"),
            2,
            "either --data or --database",
            id="two places",
        ),
        pytest.param(("backup", "--data", "{old}"), 2, "need a file to write", id="no file"),
        pytest.param(
            ("backup", "{tmp}/x", "--url", "http://127.0.0.1:9"),
            2,
            "into its own data directory",
            id="a gateway and a file",
        ),
        pytest.param(
            ("backup", "{tmp}/x", "--context", "prod"),
            2,
            "into its own data directory",
            id="a context and a file",
        ),
        pytest.param(("restore", "{file}", "--data", "{old}"), 1, "is not empty", id="not empty"),
        pytest.param(("restore", "{cut}", "--data", "{tmp}/new"), 1, "the file is truncated", id="cut short"),
        pytest.param(("restore", "{other}", "--data", "{tmp}/new"), 1, "not a backup", id="another file"),
        pytest.param(
            ("restore", "{newer}", "--data", "{tmp}/new"),
            1,
            "restore it with the Toolgate that wrote it, or a newer one",
            id="newer",
        ),
        pytest.param(("restore", "{tmp}/none", "--data", "{tmp}/new"), 1, "No such file", id="no backup"),
    ],
)
def test_what_cannot_be_is_refused_and_changes_nothing(
    run: Run, tmp_path: Path, *, words: tuple[str, ...], code: int, message: str
) -> None:
    names = ("old", "file", "cut", "other", "newer")
    places = {name: tmp_path / name for name in names}
    old, file = places["old"], places["file"]
    before = fill(old)
    run("backup", str(file), "--data", str(old))
    places["cut"].write_bytes(file.read_bytes()[:-80])
    places["other"].write_bytes(OTHER)
    places["newer"].write_bytes(NEWER)

    ran = run(*(word.format(**places, tmp=tmp_path) for word in words))

    assert ran.code == code
    assert message in ran.err
    assert "  try: " in ran.err or code == 2
    assert read(old)[0] == before
    assert not (tmp_path / "x").exists()
    assert not (tmp_path / "new").exists()


def test_a_gateway_in_the_environment_does_not_keep_a_stopped_one_from_being_read(
    gateway: FakeGateway, run: Run, tmp_path: Path
) -> None:
    fill(tmp_path / "old")

    ran = run("backup", str(tmp_path / "copy.jsonl"), "--data", str(tmp_path / "old"))

    assert (ran.code, gateway.asked) == (0, [])


def test_a_running_gateway_chooses_the_file(gateway: FakeGateway, run: Run) -> None:
    response = {"path": "/data/backup-7.jsonl", "epoch": "e", "revision": 7, "records": 3, "changes": 7}
    gateway.respond("POST /admin/api/backup", response)

    assert run("backup").lines == ["✓ 3 records at revision 7, in", "  /data/backup-7.jsonl"]
    assert run("backup", "--json").json == response


def test_a_registry_in_use_is_refused_with_what_to_do(run: Run, tmp_path: Path) -> None:
    async def export_while_open() -> tuple[int, str]:
        async with open_sqlite_store(tmp_path / "registry.db", lambda: 1):
            ran = run("backup", str(tmp_path / "copy.jsonl"), "--data", str(tmp_path), "--json")
            return ran.code, json.loads(ran.err)["error"]["code"]

    assert asyncio.run(export_while_open()) == (1, "start_refused")
