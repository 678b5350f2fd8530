"""The directory of server files, applied to a store."""

import asyncio
import json
import logging
from pathlib import Path

import pytest

from tests.contract.stores import Clock, delete
from tests.registry.memory_store import MemoryStore
from tests.registry.server_files import body, save
from toolgate.errors import InvalidRecord, NotFound
from toolgate.model.revisions import RecordWrite
from toolgate.registry.files.directory import FileProblem
from toolgate.registry.files.reload import DirectoryLoader, ReloadReport
from toolgate.registry.records.codec import FieldDiff, RecordDiff
from toolgate.registry.store.sql_store import Store

pytestmark = pytest.mark.anyio


@pytest.fixture
def store() -> MemoryStore:
    return MemoryStore(Clock())


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    (tmp_path / "mcp.d").mkdir(mode=0o700)
    return tmp_path / "mcp.d"


async def servers(store: Store) -> dict[str, str]:
    """The servers there are, each with who wrote it last."""
    return {stored.id: stored.actor for stored in (await store.list("server")).records}


async def titles(store: Store) -> dict[str, str]:
    return {stored.id: stored.body.get("display_name", "") for stored in (await store.list("server")).records}


async def write_by_api(store: Store, server_id: str, **more: object) -> None:
    await store.write([RecordWrite(kind="server", id=server_id, body=body(server_id, **more))], actor="ada")


def added(server_id: str) -> RecordDiff:
    fields = (
        FieldDiff("server_id", "(default)", server_id),
        FieldDiff("transport", "(default)", "stdio"),
        FieldDiff("stdio.command", "(default)", server_id),
    )
    return RecordDiff(operation="added", server_id=server_id, file=f"{server_id}.json", fields=fields)


# What a reload does


@pytest.mark.requirement("002-055")
async def test_a_reload_is_one_transaction_and_the_next_one_changes_nothing(
    store: MemoryStore, directory: Path
) -> None:
    save(directory / "fs.json", server_id="fs")
    save(directory / "git.json", server_id="git")
    loader = DirectoryLoader(store, directory)

    assert await loader.reload() == ReloadReport(revision=1, applied=(added("fs"), added("git")))
    assert await loader.reload() == ReloadReport(revision=1)
    assert await servers(store) == {"fs": "directory:fs.json", "git": "directory:git.json"}


async def test_a_changed_file_changes_its_server_and_the_report_says_which_fields(
    store: MemoryStore, directory: Path
) -> None:
    save(directory / "fs.json", server_id="fs", allowed_tools=["a"], enabled=False)
    loader = DirectoryLoader(store, directory)
    await loader.reload()
    save(directory / "fs.json", server_id="fs", allowed_tools=["a", "b"], budgets={"max_concurrency": 2})

    report = await loader.reload()

    fields = (
        FieldDiff("allowed_tools", ["a"], ["a", "b"]),
        FieldDiff("enabled", False, "(default)"),
        FieldDiff("budgets.max_concurrency", "(default)", 2),
    )
    changed = RecordDiff(operation="changed", server_id="fs", file="fs.json", fields=fields)
    assert report == ReloadReport(revision=2, applied=(changed,))
    assert str(changed) == (
        "changed fs (fs.json): allowed_tools: ['a'] → ['a', 'b']; enabled: False → (default);"
        " budgets.max_concurrency: (default) → 2"
    )


async def test_sec_1_a_changed_secret_shows_as_changed_and_not_as_itself(
    store: MemoryStore, directory: Path
) -> None:
    loader = DirectoryLoader(store, directory)
    for secret in ("c4n4ry-1", "c4n4ry-2"):
        save(directory / "fs.json", server_id="fs", stdio={"command": "fs", "env": {"TOKEN": secret}})
        report = await loader.reload()

    assert report.applied[0].fields == (FieldDiff("stdio.env.TOKEN", "***", "***"),)
    assert "c4n4ry" not in repr(report)


async def test_a_server_goes_with_its_file(store: MemoryStore, directory: Path) -> None:
    save(directory / "fs.json", server_id="fs")
    loader = DirectoryLoader(store, directory)
    await loader.reload()
    (directory / "fs.json").unlink()

    report = await loader.reload()

    assert [str(change) for change in report.applied] == ["removed fs (fs.json)"]
    assert await servers(store) == {}


async def test_a_server_goes_with_its_file_also_when_no_one_was_watching(
    store: MemoryStore, directory: Path
) -> None:
    save(directory / "fs.json", server_id="fs")
    await DirectoryLoader(store, directory).reload()
    await store.compact(keep_revisions=0, keep_ms=0)
    (directory / "fs.json").unlink()

    await DirectoryLoader(store, directory).reload()

    assert await servers(store) == {}


async def test_what_the_api_wrote_is_never_deleted_by_a_reload(store: MemoryStore, directory: Path) -> None:
    await write_by_api(store, "web")
    await write_by_api(store, "same")
    save(directory / "same.json", server_id="same")
    save(directory / "fs.json", server_id="fs")
    loader = DirectoryLoader(store, directory)
    await loader.reload()
    await write_by_api(store, "fs", display_name="by hand")
    for file in directory.iterdir():
        file.unlink()

    await loader.reload()

    assert await servers(store) == {"fs": "ada", "same": "ada", "web": "ada"}


async def test_while_its_file_is_there_the_file_decides(store: MemoryStore, directory: Path) -> None:
    save(directory / "fs.json", server_id="fs", display_name="by file")
    loader = DirectoryLoader(store, directory)
    await loader.reload()
    await write_by_api(store, "fs", display_name="by hand")
    assert await titles(store) == {"fs": "by hand"}
    await loader.reload()
    assert await titles(store) == {"fs": "by file"}

    await store.write([delete("fs")], actor="ada")
    await loader.reload()
    assert await servers(store) == {"fs": "directory:fs.json"}


async def test_other_kinds_are_left_alone(store: MemoryStore, directory: Path) -> None:
    await store.write([RecordWrite(kind="task", id="fs", body={"task_id": "fs"})], actor="directory:fs.json")

    await DirectoryLoader(store, directory).reload()

    assert await store.get("task", "fs") is not None


async def test_a_home_directory_is_expanded(
    store: MemoryStore, directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(directory.parent))
    save(directory / "fs.json", server_id="fs")

    await DirectoryLoader(store, Path("~/mcp.d")).reload()

    assert set(await servers(store)) == {"fs"}


async def test_a_directory_that_is_gone_changes_nothing(store: MemoryStore, directory: Path) -> None:
    save(directory / "fs.json", server_id="fs")
    loader = DirectoryLoader(store, directory)
    await loader.reload()
    directory.rename(directory.with_name("away"))

    with pytest.raises(NotFound):
        await loader.reload()
    assert set(await servers(store)) == {"fs"}


@pytest.mark.requirement("002-065")
async def test_a_dry_run_tells_everything_and_changes_nothing(store: MemoryStore, directory: Path) -> None:
    save(directory / "fs.json", server_id="fs")
    (directory / "bad.toml").write_text("=")
    loader = DirectoryLoader(store, directory)

    preview = await loader.preview()

    problem = FileProblem(file="bad.toml", line=1, message="is not TOML: Invalid statement")
    assert preview == ReloadReport(revision=0, applied=(added("fs"),), problems=(problem,))
    assert (store.revision, await servers(store)) == (0, {})


async def test_a_write_between_plan_and_commit_is_not_overlooked(store: MemoryStore, directory: Path) -> None:
    """Two servers may not share a namespace, the one that comes second."""
    save(directory / "fs.json", server_id="fs", tool_namespace="files")
    loader = DirectoryLoader(store, directory)

    reports = await asyncio.gather(
        loader.reload(), write_by_api(store, "other", tool_namespace="files"), loader.reload()
    )

    assert await servers(store) == {"other": "ada"}
    assert [str(problem) for problem in reports[2].problems] == [
        "fs.json: `tool_namespace`: `files` is already used by server `other`"
    ]


# Namespaces


async def test_two_files_may_exchange_their_namespaces(store: MemoryStore, directory: Path) -> None:
    loader = DirectoryLoader(store, directory)
    for one, other in (("x", "y"), ("y", "x")):
        save(directory / "a.json", server_id="a", tool_namespace=one)
        save(directory / "b.json", server_id="b", tool_namespace=other)
        report = await loader.reload()
        assert report.problems == ()

    stored = await store.list("server")
    assert {each.id: each.body["tool_namespace"] for each in stored.records} == {"a": "y", "b": "x"}


async def test_a_namespace_that_is_taken_keeps_the_last_good_version(
    store: MemoryStore, directory: Path
) -> None:
    save(directory / "a.json", server_id="a")
    save(directory / "b.json", server_id="b", display_name="good")
    loader = DirectoryLoader(store, directory)
    await loader.reload()
    save(directory / "b.json", server_id="b", display_name="bad", tool_namespace="mcp.a")

    report = await loader.reload()

    assert [str(problem) for problem in report.problems] == [
        "b.json: `tool_namespace`: `mcp.a` is already used by server `a`"
    ]
    assert report.kept == ("b",)
    assert await titles(store) == {"a": "", "b": "good"}


# Bad files


async def test_fil_8_one_bad_file_among_fifty_costs_only_its_own_change(
    store: MemoryStore, directory: Path
) -> None:
    for n in range(50):
        save(directory / f"s{n}.json", server_id=f"s{n}", display_name="old")
    loader = DirectoryLoader(store, directory)
    await loader.reload()
    for n in range(50):
        save(directory / f"s{n}.json", server_id=f"s{n}", display_name="new")
    (directory / "s7.json").write_text('{"server_id": "s7",\n oops}')

    report = await loader.reload()

    message = "is not JSON: Expecting property name enclosed in double quotes"
    assert report.problems == (FileProblem(file="s7.json", line=2, message=message, claimed_id="s7"),)
    assert (len(report.applied), report.kept) == (49, ("s7",))
    assert {name for name, title in (await titles(store)).items() if title == "old"} == {"s7"}


@pytest.mark.parametrize("is_restarted", [False, True])
@pytest.mark.parametrize(
    "content",
    [
        pytest.param("", id="truncated to nothing"),
        pytest.param('{"server_id": "fs", "transp', id="written in part"),
        pytest.param(json.dumps(body("fs", enabled="yes")), id="a wrong field"),
        pytest.param(json.dumps(body("FS!")), id="no longer a server id"),
        pytest.param("x" * (1024 * 1024 + 1), id="too large"),
    ],
)
async def test_a_bad_file_keeps_its_server_also_across_a_restart(
    store: MemoryStore, directory: Path, content: str, is_restarted: bool
) -> None:
    save(directory / "10-files.json", server_id="fs", display_name="good")
    loader = DirectoryLoader(store, directory)
    await loader.reload()
    (directory / "10-files.json").write_text(content)

    report = await (DirectoryLoader(store, directory) if is_restarted else loader).reload()

    assert (report.applied, report.kept, len(report.problems)) == ((), ("fs",), 1)
    assert await titles(store) == {"fs": "good"}


async def test_a_file_renamed_and_broken_at_once_still_keeps_its_server(
    store: MemoryStore, directory: Path
) -> None:
    save(directory / "a.json", server_id="fs")
    loader = DirectoryLoader(store, directory)
    await loader.reload()
    (directory / "a.json").unlink()
    (directory / "b.json").write_text('{"server_id": "fs", ')

    assert (await loader.reload()).kept == ("fs",)


async def test_a_file_renamed_then_broken_keeps_its_server(store: MemoryStore, directory: Path) -> None:
    save(directory / "a.json", server_id="fs")
    loader = DirectoryLoader(store, directory)
    await loader.reload()
    (directory / "a.json").rename(directory / "b.json")
    assert (await loader.reload()).applied == ()
    (directory / "b.json").write_text("")

    assert (await loader.reload()).kept == ("fs",)


async def test_a_broken_new_file_saves_no_server_whose_file_was_removed(
    store: MemoryStore, directory: Path
) -> None:
    save(directory / "fs.json", server_id="fs")
    loader = DirectoryLoader(store, directory)
    await loader.reload()
    (directory / "fs.json").unlink()
    (directory / "new.json").write_text("")

    report = await loader.reload()

    assert (report.kept, await servers(store)) == ((), {})


async def test_of_two_files_for_one_server_the_winner_stays_last_good(
    store: MemoryStore, directory: Path
) -> None:
    save(directory / "a.json", server_id="fs", display_name="a")
    save(directory / "b.json", server_id="fs", display_name="b")
    loader = DirectoryLoader(store, directory)
    await loader.reload()
    (directory / "b.json").write_text("")
    await loader.reload()
    assert await titles(store) == {"fs": "b"}

    (directory / "b.json").unlink()
    await loader.reload()
    assert await titles(store) == {"fs": "a"}


@pytest.mark.requirement("002-066")
async def test_strict_refuses_the_whole_load_and_lists_every_problem(
    store: MemoryStore, directory: Path
) -> None:
    save(directory / "good.json", server_id="good")
    save(directory / "odd.json", server_id="odd", colour="red")
    (directory / "bad.toml").write_text("=")
    loader = DirectoryLoader(store, directory, strict=True)

    with pytest.raises(InvalidRecord) as caught:
        await loader.reload()
    assert caught.value.data == {
        "problems": [
            "bad.toml:1: is not TOML: Invalid statement",
            "odd.json:1: `colour`: is not a known field",
        ]
    }
    assert await servers(store) == {}

    (directory / "bad.toml").unlink()
    save(directory / "odd.json", server_id="odd")
    await loader.reload()
    assert set(await servers(store)) == {"good", "odd"}


async def test_each_warning_is_logged_once_and_not_with_every_reload(
    store: MemoryStore, directory: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (directory / "fs.json~").write_text("")
    (directory / "bad.toml").write_text("=")
    loader = DirectoryLoader(store, directory)

    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            await loader.reload()

    assert [record.getMessage() for record in caplog.records] == [
        "registry directory: fs.json~: ignored because it is a temporary file",
        "registry directory: bad.toml:1: is not TOML: Invalid statement",
    ]
