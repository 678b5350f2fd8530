"""`export` and `import`: a whole registry through a file, without a gateway."""

import asyncio
import json
import stat
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import Run
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

    exported = run("export", str(file), "--data", str(old))
    imported = run("import", str(file), "--data", str(new))
    after, actors = read(new)

    assert exported.lines == ["✓ 1 record at revision 2, in", f"  {file}"]
    assert imported.lines == ["✓ imported 1 record at revision 2; nodes will list everything again"]
    assert (after.revision, after.records, actors) == (before.revision, before.records, ["ada", "ada"])
    assert after.epoch != before.epoch
    assert stat.S_IMODE(file.stat().st_mode) == 0o600


def test_programs_get_the_same_as_json(run: Run, tmp_path: Path) -> None:
    before = fill(tmp_path / "old")
    file = tmp_path / "copy.jsonl"

    assert run("export", str(file), "--data", str(tmp_path / "old"), "--json").json == {
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

    assert run("export", str(tmp_path / "copy.jsonl")).code == 0


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        pytest.param(("export", "{file}", "--data", "{old}"), 2, "is there already", id="file exists"),
        pytest.param(("export", "{tmp}/x", "--data", "{tmp}/none"), 1, "there is no registry", id="nothing"),
        pytest.param(("import", "{file}", "--data", "{old}"), 1, "is not empty", id="not empty"),
        pytest.param(("import", "{cut}", "--data", "{tmp}/new"), 1, "", id="cut short"),
        pytest.param(
            ("export", "{tmp}/x", "--data", "{old}", "--database", "postgresql://h/d"),
            2,
            "either --data or --database",
            id="two places",
        ),
    ],
)
def test_what_cannot_be_is_refused_and_changes_nothing(
    run: Run, tmp_path: Path, *, words: tuple[str, ...], code: int, message: str
) -> None:
    old, file, cut = tmp_path / "old", tmp_path / "copy.jsonl", tmp_path / "cut.jsonl"
    before = fill(old)
    run("export", str(file), "--data", str(old))
    cut.write_bytes(file.read_bytes()[:-80])
    places = {"old": old, "file": file, "cut": cut, "tmp": tmp_path}

    ran = run(*(word.format(**places) for word in words))

    assert ran.code == code
    assert message in ran.err
    assert "  try: " in ran.err or code == 2
    assert read(old)[0] == before


def test_a_registry_in_use_is_refused_with_what_to_do(run: Run, tmp_path: Path) -> None:
    async def export_while_open() -> tuple[int, str]:
        async with open_sqlite_store(tmp_path / "registry.db", lambda: 1):
            ran = run("export", str(tmp_path / "copy.jsonl"), "--data", str(tmp_path), "--json")
            return ran.code, json.loads(ran.err)["error"]["code"]

    assert asyncio.run(export_while_open()) == (1, "start_refused")
