"""The SQLite store killed at each system call that writes, and on a disk that fails or is full.

`strace` injects the faults, where there is one; a few in the suite, each of them under `make soak`.
"""

import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from tests.contract.stores import Clock, put
from tests.scenarios.soak import rounds
from toolgate.registry.store.engines import open_sqlite_store

pytestmark = [pytest.mark.anyio, pytest.mark.soak]

WRITES = 100
CALLS = ("pwrite64", "fdatasync", "fsync", "rename", "unlink", "ftruncate")[: rounds(suite=1, soak=6)]
STRIDE = rounds(suite=500, soak=5)
"""Of some 1,400 writes of pages, each so manieth is the last; of the rarer calls, each."""
EIO_AT = range(3, 3 + rounds(suite=1, soak=25))

SCRIPT = """
import asyncio, sys
from pathlib import Path
from toolgate.errors import StorageFailed
from toolgate.model.revisions import RecordWrite
from toolgate.registry.store.engines import open_sqlite_store

async def main(path, writes):
    async with open_sqlite_store(Path(path), lambda: 0) as store:
        for n in range(writes):
            server = RecordWrite(kind="server", id=f"s{n % 7}", body={"n": n})
            try:
                task = RecordWrite(kind="task", id="t", body={"n": n})
                revision = await store.write([server, task], actor="w")
                print(revision, flush=True)
            except StorageFailed:
                print("failed", flush=True)
                assert (await store.list()).revision == store.revision

asyncio.run(main(sys.argv[1], int(sys.argv[2])))
print("done")
"""
"""Opens the store, writes, tells what was acknowledged, closes it."""


def can_trace() -> bool:
    strace = shutil.which("strace")
    traced = [strace, "-f", "-o", "/dev/null", "-e", "trace=fsync", "true"] if strace else ["false"]
    return subprocess.run(traced, capture_output=True, check=False).returncode == 0


needs_strace = pytest.mark.skipif(not can_trace(), reason="strace cannot trace here")


def run(path: Path, writes: int, *, fault: str = "") -> list[str]:
    """What the script says, on a `fault` in the words of strace: `call:what:when=n`."""
    command = [sys.executable, "-c", SCRIPT, str(path), str(writes)]
    if fault:
        calls = fault.partition(":")[0]
        tracing = [
            "-f",
            "-qq",
            "-o",
            "/dev/null",
            "-e",
            f"trace={calls}",
            "-e",
            f"inject={fault}",
        ]
        command = ["strace", *tracing, *command]
    finished = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    return finished.stdout.splitlines()


def steps(call: str, stride: int) -> Iterator[str]:
    """Faults that kill at the first such call, the second, and so on."""
    step = stride if call == "pwrite64" else 1
    return (f"{call}:signal=SIGKILL:when={n}" for n in range(1 + step // 2, 3_000, step))


async def check(path: Path, reply: list[str]) -> int:
    """Every acknowledged revision is there, and nothing is there by halves. The newest revision."""
    acknowledged = max((int(line) for line in reply if line.isdigit()), default=0)
    async with open_sqlite_store(path, Clock()) as store:
        task = await store.get("task", "t")
        history = await store.history("task", "t", limit=10_000)

        assert store.revision >= acknowledged
        assert task is None or task.revision == store.revision
        assert [change.revision for change in history] == list(range(store.revision, 0, -1))
        return store.revision


@needs_strace
@pytest.mark.parametrize("call", CALLS)
async def test_sto_1_killed_at_any_write_nothing_acknowledged_is_lost(tmp_path: Path, call: str) -> None:
    path = tmp_path / "registry.db"
    for kills, fault in enumerate(steps(call, STRIDE)):
        reply = run(path, WRITES, fault=fault)
        newest = await check(path, reply)
        if reply[-1:] == ["done"]:
            assert (kills > 0, newest) == (True, WRITES)
            return
        shutil.rmtree(tmp_path)
        tmp_path.mkdir()
    raise AssertionError("it never came to an end")


@pytest.fixture(scope="module")
def crashed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store whose last process was killed: the log is still next to the file."""
    path = tmp_path_factory.mktemp("crashed") / "registry.db"
    run(path, 1_000, fault="fdatasync:signal=SIGKILL:when=40")
    assert path.with_name("registry.db-wal").stat().st_size > 0
    return path


@needs_strace
@pytest.mark.parametrize("call", sorted({*CALLS} - {"fsync", "rename"}))
async def test_sto_9_killed_during_the_recovery_the_next_start_recovers(
    crashed: Path, tmp_path: Path, call: str
) -> None:
    path = tmp_path / "copy" / "registry.db"
    for kills, fault in enumerate(steps(call, rounds(suite=9, soak=1))):
        shutil.copytree(crashed.parent, path.parent)
        reply = run(path, 0, fault=fault)
        newest = await check(path, [])
        shutil.rmtree(path.parent)
        assert newest >= 30
        if reply == ["done"]:
            assert kills > 0
            return
    raise AssertionError("it never came to an end")


@needs_strace
@pytest.mark.parametrize("call", CALLS)
async def test_sto_9_killed_during_the_migration_the_next_start_migrates(tmp_path: Path, call: str) -> None:
    release = (Path(__file__).parent / "release_0_1.sql").read_text()
    path = tmp_path / "old" / "registry.db"
    for kills, fault in enumerate(steps(call, rounds(suite=50, soak=1))):
        path.parent.mkdir()
        with closing(sqlite3.connect(path)) as connection:
            connection.executescript(release)
        reply = run(path, 0, fault=fault)
        async with open_sqlite_store(path, Clock()) as store:
            listing = await store.list()
            assert [(stored.id, stored.body["n"]) for stored in listing.records] == [("fs", 2)]
            assert (listing.revision, await store.reports.list_reports()) == (3, [])
        shutil.rmtree(path.parent)
        if reply == ["done"]:
            assert kills > 0
            return
    raise AssertionError("it never came to an end")


@needs_strace
@pytest.mark.parametrize("when", ["{n}", "{n}+"], ids=["once", "for ever"])
async def test_sto_2_after_a_failed_fsync_nothing_is_acknowledged_till_a_restart(
    tmp_path: Path, when: str
) -> None:
    for n in EIO_AT:
        path = tmp_path / f"{n}" / "registry.db"
        notified = run(path, 50, fault=f"fdatasync:error=EIO:when={when.format(n=10 + n)}")
        failed = notified.index("failed")
        assert set(notified[failed:50]) == {"failed"}

        assert await check(path, notified) >= failed
        async with open_sqlite_store(path, Clock()) as store:
            assert await store.write([put("after")], actor="ada") == store.revision


FULL = """
import asyncio, os, sys
from pathlib import Path
from toolgate.errors import StorageFailed
from toolgate.model.revisions import RecordWrite
from toolgate.registry.store.engines import open_sqlite_store

def big(n):
    return [RecordWrite(kind="server", id=f"s{n}", body={"text": os.urandom(10_000).hex()})]

async def main(directory):
    ballast = directory / "ballast"
    ballast.write_bytes(bytes(400_000))
    async with open_sqlite_store(directory / "registry.db", lambda: 0) as store:
        written = 0
        try:
            while True:
                await store.write(big(written), actor="w")
                written += 1
        except StorageFailed as exc:
            print(exc.wire.http, "full" in str(exc))
        print(written > 3, (await store.list()).revision == store.revision == written)
        try:
            await store.write(big(written), actor="w")
        except StorageFailed as exc:
            print(exc.wire.http)
        ballast.unlink()
        print(await store.write(big(written), actor="w") == written + 1)

asyncio.run(main(Path(sys.argv[1])))
"""
IN_ONE_MEBIBYTE = 'mount -t tmpfs -o size=1m tmpfs "$1" && exec "$2" -c "$3" "$1"'


def can_mount() -> bool:
    probe = ["unshare", "--mount", "mount", "-t", "tmpfs", "tmpfs", "/mnt"]
    return (
        bool(shutil.which("unshare"))
        and subprocess.run(probe, capture_output=True, check=False).returncode == 0
    )


@pytest.mark.skipif(not can_mount(), reason="this user cannot mount a small disk")
def test_sto_3_a_disk_of_one_mebibyte_fills_refuses_serves_and_heals(tmp_path: Path) -> None:
    shell = ["unshare", "--mount", "sh", "-c", IN_ONE_MEBIBYTE, "sh", str(tmp_path), sys.executable, FULL]
    finished = subprocess.run(shell, capture_output=True, text=True, check=False, timeout=60)

    assert finished.stdout.splitlines() == ["507 True", "True True", "507", "True"], finished.stderr
