"""Everything into a file and out of it again, between engines; and files that are not what they should be."""

import asyncio
import hashlib
import json
import random
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.contract.stores import DEADLINE_S, STORES, Clock, delete, put, read_watch
from tests.postgres import shared_server
from toolgate.errors import Compacted, ImportRefused, StartRefused, StorageFailed
from toolgate.model.reports import NodeReport
from toolgate.model.revisions import ChangeBatch, RecordList
from toolgate.registry.store.engines import export_store, import_store, open_store
from toolgate.registry.store.export import check_export
from toolgate.registry.store.sql_store import Store

pytestmark = pytest.mark.anyio


async def fill(store: Store) -> None:
    """Records of several kinds, some made, changed, deleted and made again; and a log that was cut."""
    await store.write([put("fs", text="é\u2028\0", n=1.5), put("fs", kind="task")], actor="ada")
    for n in range(6):
        await store.write([put("fs", n=n), put(f"s{n}", kind="key", hash="h" * n)], actor="bob")
    await store.write([delete("s1", kind="key"), put("Z", kind="profile")], actor="eve")
    await store.write([put("s1", kind="key", again=True)], actor="ada")
    await store.compact(keep_revisions=5, keep_ms=0)
    await store.reports.save_report(NodeReport(node_id="node-1"))


async def contents(store: Store) -> tuple[Any, ...]:
    """All that a store says of itself, but for the epoch."""
    listing = await store.list()
    log = await read_watch(store, listing.revision - 5, upto=listing.revision)
    with pytest.raises(Compacted):
        async with store.watch(listing.revision - 6):
            pass
    return listing.revision, listing.records, log


def new_target(engine: str, tmp_path: Path) -> str | Path:
    if engine == "postgresql":
        return shared_server().create_schema()
    return tmp_path / f"new-{random.getrandbits(32):x}" / "registry.db"


@pytest.fixture
def export(tmp_path: Path) -> Path:
    path = tmp_path / "export.jsonl"

    async def write() -> None:
        async with STORES["memory"](tmp_path, Clock()) as store:
            await fill(store)
            await store.export(path)

    asyncio.run(write())
    return path


async def test_everything_moves_from_sqlite_to_postgresql_and_back(tmp_path: Path) -> None:
    engines = ["sqlite", "postgresql", "postgresql", "sqlite"]
    source, epochs, files = new_target("sqlite", tmp_path), [], []
    async with open_store(source, Clock()) as store:
        await fill(store)
        before = await contents(store)
        epochs.append(store.epoch)
    for number, engine in enumerate(engines):
        file, target = tmp_path / f"{number}.jsonl", new_target(engine, tmp_path)
        exported = export_store(source, file)
        imported = import_store(file, target)
        async with open_store(target, Clock()) as store:
            assert await contents(store) == before
            assert await store.reports.list_reports() == []
            assert store.epoch == imported.epoch
        assert (exported.records, exported.changes) == (imported.records, imported.changes) == (9, 9)
        epochs.append(imported.epoch)
        files.append(file.read_text().splitlines()[1:-1])
        source = target

    assert len(set(epochs)) == len(epochs)
    assert all(lines == files[0] for lines in files)


@pytest.mark.parametrize("name", STORES)
async def test_a_running_store_exports_itself_and_goes_on(name: str, tmp_path: Path) -> None:
    path, target = tmp_path / "backup.jsonl", tmp_path / "restored" / "registry.db"
    async with asyncio.timeout(DEADLINE_S), STORES[name](tmp_path, Clock()) as store:
        await fill(store)
        before = await contents(store)
        exported = await store.export(path)
        await store.write([put("later")], actor="ada")
        header = check_export(path)

        assert (exported.epoch, exported.revision) == (store.epoch, before[0])
        assert (header.epoch, header.revision) == (store.epoch, before[0])
    import_store(path, target)
    async with open_store(target, Clock()) as store:
        assert await contents(store) == before


async def test_wat_12_an_imported_log_can_be_watched_from_each_of_its_revisions(export: Path) -> None:
    target = export.with_name("restored.db")
    import_store(export, target)
    async with asyncio.timeout(DEADLINE_S), open_store(target, Clock()) as store:
        seen = await read_watch(store, check_export(export).compacted, upto=store.revision)
        for batch in seen:
            async with store.watch(batch.revision, batch.digest):
                pass

        assert seen[-1].digest == store.digest
        assert all(batch.digest for batch in seen)


@pytest.mark.parametrize("name", STORES)
async def test_an_export_during_writes_is_of_one_moment(name: str, tmp_path: Path) -> None:
    async with asyncio.timeout(DEADLINE_S), STORES[name](tmp_path, Clock()) as store:

        async def write() -> None:
            for n in range(60):
                await store.write([put("a", n=n), put("b", n=n)], actor="ada")

        writing = asyncio.ensure_future(write())
        for number in range(8):
            await store.export(tmp_path / f"{number}.jsonl")
        await writing

    for number in range(8):
        check_export(tmp_path / f"{number}.jsonl")


async def test_fil_9_the_file_is_for_its_owner_only_and_replaced_as_a_whole(export: Path) -> None:
    assert stat.S_IMODE(export.stat().st_mode) == 0o600
    export.chmod(0o644)
    async with STORES["memory"](export.parent, Clock()) as store:
        await store.export(export)

    assert check_export(export).revision == 0
    assert stat.S_IMODE(export.stat().st_mode) == 0o600
    assert [entry.name for entry in export.parent.iterdir()] == [export.name]


async def test_an_export_that_cannot_be_written_leaves_nothing_behind(tmp_path: Path) -> None:
    async with STORES["sqlite"](tmp_path / "data", Clock()) as store:
        with pytest.raises(StorageFailed, match="No such file or directory"):
            await store.export(tmp_path / "gone" / "export.jsonl")
        (tmp_path / "taken").mkdir()
        with pytest.raises(StorageFailed, match="directory"):
            await store.export(tmp_path / "taken")

    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["data", "taken"]


def test_what_is_not_there_is_not_exported(tmp_path: Path) -> None:
    with pytest.raises(StartRefused, match="there is no registry"):
        export_store(tmp_path / "registry.db", tmp_path / "export.jsonl")

    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("engine", ["sqlite", "postgresql"])
async def test_only_an_empty_registry_takes_an_import(engine: str, tmp_path: Path, export: Path) -> None:
    target = new_target(engine, tmp_path)
    import_store(export, target)
    async with open_store(target, Clock()) as store:
        before = await contents(store)

    with pytest.raises(ImportRefused, match="not empty"):
        import_store(export, target)
    async with open_store(target, Clock()) as store:
        assert await contents(store) == before


async def test_a_registry_someone_runs_on_takes_no_import(tmp_path: Path, export: Path) -> None:
    async with open_store(tmp_path / "registry.db", Clock()):
        with pytest.raises(StartRefused, match="in use"):
            import_store(export, tmp_path / "registry.db")


async def test_replicas_notice_an_import_and_their_watchers_list_again(export: Path) -> None:
    url = shared_server().create_schema()
    async with asyncio.timeout(DEADLINE_S), open_store(url, Clock()) as store, store.watch(0) as batches:
        assert await anext(batches) == ChangeBatch(revision=0)
        await asyncio.to_thread(import_store, export, url)
        with pytest.raises(Compacted):
            await anext(batches)

        listing = await store.list()
        assert (store.epoch, store.revision) == (listing.epoch, listing.revision)
        assert listing.revision == check_export(export).revision


def test_progress_is_notified(tmp_path: Path, export: Path) -> None:
    notified: list[int] = []
    import_store(export, tmp_path / "registry.db", notified.append)
    export_store(tmp_path / "registry.db", tmp_path / "again.jsonl", notified.append)

    assert notified == [9, 18, 18]


# Files that are not as they should be


def edited(edit: Callable[[list[dict[str, Any]]], object]) -> Callable[[bytes], bytes]:
    """Lines changed by someone who also corrects the end: only the meaning is wrong."""

    def change(data: bytes) -> bytes:
        lines = [json.loads(line) for line in data.splitlines()]
        edit(lines)
        texts = [json.dumps(line, separators=(",", ":")).encode() + b"\n" for line in lines[:-1]]
        end = {
            "records": sum("record" in line for line in lines),
            "changes": sum("change" in line for line in lines),
            "sha256": hashlib.sha256(b"".join(texts)).hexdigest(),
        }
        return b"".join(texts) + json.dumps({"end": end}).encode() + b"\n"

    return change


def nested(depth: int) -> bytes:
    return b'{"record":{"body":' + b'{"a":' * depth + b"1" + b"}" * depth + b"}}\n"


@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        pytest.param(lambda data: b"", "line 1: .*truncated", id="empty"),
        pytest.param(lambda data: b"\x7fELF\n" + data, "not a backup", id="something else"),
        pytest.param(lambda data: b'{"mcpServers":{}}\n', "not a backup", id="another JSON"),
        pytest.param(lambda data: data[: len(data) // 2], "truncated", id="half"),
        pytest.param(lambda data: data[:-1], "truncated", id="the last byte"),
        pytest.param(lambda data: data[: data.rindex(b"\n", 0, -1) + 1], "truncated", id="no end"),
        pytest.param(lambda data: data + b"\n", "data after the end", id="more"),
        pytest.param(lambda data: data.replace(b'"n":5', b'"n":6', 1), "checksum", id="a changed value"),
        pytest.param(lambda data: data.replace(b'"n":5', b'"n":\xff', 1), "unreadable", id="not UTF-8"),
        pytest.param(
            lambda data: data.replace(b'"version":1', b'"version":2', 1), "version is 2", id="newer"
        ),
        pytest.param(lambda data: data.replace(b"\n", b"\n" + nested(100_000), 1), "line 2", id="too deep"),
        pytest.param(
            edited(lambda lines: lines[0]["header"].update(compacted=99)), "is inconsistent", id="header"
        ),
        pytest.param(
            edited(lambda lines: lines.insert(1, {})),
            "line 2: the line must have exactly one",
            id="an empty line",
        ),
        pytest.param(
            edited(lambda lines: lines.insert(3, lines[0])), "line 4: the line must", id="two headers"
        ),
        pytest.param(
            edited(lambda lines: lines.insert(2, lines[1])), "line 3: .*duplicate", id="a record twice"
        ),
        pytest.param(
            edited(lambda lines: lines.insert(-1, lines[1])),
            "a record follows the changes",
            id="out of place",
        ),
        pytest.param(
            edited(lambda lines: lines[1]["record"].update(revision=99)), "impossible revision", id="revision"
        ),
        pytest.param(
            edited(lambda lines: lines[1]["record"].update(kind="spell")), "line 2: .*kind", id="unknown kind"
        ),
        pytest.param(edited(lambda lines: lines[1]["record"].update(id="")), "valid id", id="no id"),
        pytest.param(edited(lambda lines: lines[1]["record"].update(id="x" * 65)), "valid id", id="long id"),
        pytest.param(edited(lambda lines: lines[1]["record"].update(actor="\0")), "valid id", id="actor"),
        pytest.param(edited(lambda lines: lines.__delitem__(slice(12, 14))), "gap", id="a gap in the log"),
        pytest.param(edited(lambda lines: lines.pop(-2)), "too early", id="no last change"),
        pytest.param(edited(lambda lines: lines.pop(8)), "do not match the log", id="a record less"),
        pytest.param(
            edited(lambda lines: lines[-2]["change"].update(operation="delete")),
            "does not match the body",
            id="operation",
        ),
        pytest.param(
            edited(lambda lines: lines.insert(-1, lines[-2])),
            "duplicate .* in one revision",
            id="a duplicate change",
        ),
        pytest.param(
            edited(lambda lines: lines[-2]["change"].update(after={"wider": True})),
            "do not match the log",
            id="another policy",
        ),
    ],
)
def test_a_file_that_is_not_one_whole_export_is_refused_precisely(
    export: Path, tmp_path: Path, damage: Callable[[bytes], bytes], reason: str
) -> None:
    export.write_bytes(damage(export.read_bytes()))

    with pytest.raises(ImportRefused, match=reason):
        import_store(export, tmp_path / "new" / "registry.db")
    assert not (tmp_path / "new").exists()


def test_a_file_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ImportRefused, match="No such file"):
        import_store(tmp_path / "gone", tmp_path / "registry.db")


def test_sto_4_every_bit_flip_and_every_cut_is_noticed(export: Path) -> None:
    sound, rng = export.read_bytes(), random.Random(4)

    for _ in range(300):
        damaged = bytearray(sound)
        if rng.random() < 0.3:
            del damaged[rng.randrange(len(damaged)) :]
        else:
            damaged[rng.randrange(len(damaged))] ^= 1 << rng.randrange(8)
        export.write_bytes(damaged)
        with pytest.raises(ImportRefused):
            check_export(export)


async def test_a_file_that_changes_while_it_is_imported_is_not_imported(
    export: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is looked at twice: all of it first, and again as it goes in."""
    target = tmp_path / "registry.db"

    def check_then_spoil(path: Path) -> Any:
        header = check_export(path)
        path.write_bytes(path.read_bytes().replace(b'"n":5', b'"n":6', 1))
        return header

    monkeypatch.setattr("toolgate.registry.store.engines.check_export", check_then_spoil)
    with pytest.raises(ImportRefused, match="checksum"):
        import_store(export, target)
    async with open_store(target, Clock()) as store:
        assert await store.list() == RecordList(epoch=store.epoch, revision=0, records=())
