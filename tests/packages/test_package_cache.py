"""A package runs from all of its files, which are removed when no server needs them."""

import asyncio
import hashlib
import signal
import subprocess
import sys
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Collection
from pathlib import Path
from typing import Final

import pytest

from tests.packages.archive_samples import FILES, tar_of
from toolgate.errors import ControlUnavailable, NotFound
from toolgate.model.servers import PackageRef
from toolgate.packages.connector import SWEEP_EVERY_S, UNUSED_S, PackageCache
from toolgate.packages.entries import MAX_ARCHIVE_BYTES
from toolgate.upstream.connection.contract import StartFailed

pytestmark = pytest.mark.anyio

ARCHIVE: Final = tar_of([])
BOOT: Final = "this-boot"
DEADLINE_S: Final = 240


def ref_of(content: bytes) -> PackageRef:
    return PackageRef(version="1.0.0", sha256=hashlib.sha256(content).hexdigest())


class Source:
    """Where archives come from: it hands out what it has, in pieces, when it may."""

    def __init__(self) -> None:
        self.content = ARCHIVE
        self.failure: Exception | None = None
        self.may_go_on = asyncio.Event()
        self.may_go_on.set()
        self.asked: list[tuple[str, PackageRef]] = []

    async def fetch(self, package_id: str, ref: PackageRef) -> AsyncGenerator[bytes, None]:
        self.asked.append((package_id, ref))
        half = len(self.content) // 2
        yield self.content[:half]
        await self.may_go_on.wait()
        if self.failure is not None:
            raise self.failure
        yield self.content[half:]


class World:
    """One process that runs packages, and what it goes by."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.boot_id_file = directory.with_name("boot_id")
        self.source = Source()
        self.named: Collection[str] | None = ()
        self.now_s = 0.0

    def open(self, boot_id: str = BOOT, max_archive_bytes: int = MAX_ARCHIVE_BYTES) -> PackageCache:
        self.boot_id_file.write_text(f"{boot_id}\n")
        return PackageCache(
            self.directory,
            self.source.fetch,
            named=lambda: self.named,
            clock_s=lambda: self.now_s,
            boot_id_file=self.boot_id_file,
            max_archive_bytes=max_archive_bytes,
        )

    def files(self) -> list[str]:
        """All there is, as far as the names of packages and of what is being made."""
        return sorted(str(path.relative_to(self.directory)) for path in self.directory.glob("*/*"))


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path / "cache")


@pytest.fixture
async def packages(world: World) -> AsyncIterator[PackageCache]:
    async with asyncio.timeout(DEADLINE_S), world.open() as packages:
        yield packages


async def test_a_package_is_unpacked_once_and_found_from_then_on(
    world: World, packages: PackageCache
) -> None:
    ref = ref_of(ARCHIVE)
    path = await packages.open("pkg", ref)
    again = await packages.open("pkg", ref)
    async with world.open() as after_a_restart:
        found = await after_a_restart.open("pkg", ref)

    assert path == again == found == world.directory / BOOT / ref.sha256
    assert (path / "manifest.json").read_bytes() == FILES["manifest.json"]
    assert world.source.asked == [("pkg", ref)]
    assert world.files() == [f"{BOOT}/{ref.sha256}"]


async def test_a_directory_means_the_same_wherever_a_program_is_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    async with asyncio.timeout(DEADLINE_S), World(Path("cache")).open() as packages:
        path = await packages.open("pkg", ref_of(ARCHIVE))

    assert path == tmp_path / "cache" / BOOT / ref_of(ARCHIVE).sha256


async def test_starts_at_the_same_time_share_one_unpacking(world: World, packages: PackageCache) -> None:
    paths = await asyncio.gather(*(packages.open("pkg", ref_of(ARCHIVE)) for _ in range(20)))

    assert len(set(paths)) == 1
    assert len(world.source.asked) == 1


async def test_a_caller_that_gives_up_does_not_end_it_for_others(
    world: World, packages: PackageCache
) -> None:
    world.source.may_go_on.clear()
    ref = ref_of(ARCHIVE)
    impatient, patient = (asyncio.create_task(packages.open("pkg", ref)) for _ in range(2))
    while not world.source.asked:
        await asyncio.sleep(0)
    impatient.cancel()
    await asyncio.gather(impatient, return_exceptions=True)
    world.source.may_go_on.set()

    assert (await patient / "manifest.json").exists()
    assert len(world.source.asked) == 1


async def test_a_start_that_takes_too_long_says_why_and_the_next_one_finds_it_done(
    world: World, packages: PackageCache
) -> None:
    world.source.may_go_on.clear()
    with pytest.raises(StartFailed, match="fetching continues") as raised:
        await packages.open("pkg", ref_of(ARCHIVE), timeout_s=0.001)
    world.source.may_go_on.set()

    assert (raised.value.state, raised.value.fatal) == ("list_timeout", False)
    assert (await packages.open("pkg", ref_of(ARCHIVE))).is_dir()
    assert len(world.source.asked) == 1


async def test_what_is_not_the_archive_that_was_installed_is_not_run(
    world: World, packages: PackageCache
) -> None:
    world.source.content = tar_of([]) + b"\0"
    with pytest.raises(StartFailed, match="has another hash"):
        await packages.open("pkg", ref_of(ARCHIVE))

    assert world.files() == []
    world.source.content = ARCHIVE
    assert (await packages.open("pkg", ref_of(ARCHIVE)) / "manifest.json").exists()


@pytest.mark.parametrize(
    ("failure", "output"),
    [
        pytest.param(
            NotFound("no"), "the artifact store does not have version `1.0.0` of its package", id="missing"
        ),
        pytest.param(
            ControlUnavailable("the line to `control` failed"),
            "cannot get its package: the line to `control` failed",
            id="no control",
        ),
        pytest.param(OSError(28, "No space left"), "cannot unpack its package: no space left", id="full"),
    ],
)
async def test_a_start_fails_with_the_reason_and_can_be_tried_again(
    world: World, packages: PackageCache, failure: Exception, output: str
) -> None:
    world.source.failure = failure
    with pytest.raises(StartFailed) as raised:
        await packages.open("pkg", ref_of(ARCHIVE))

    assert (str(raised.value), raised.value.fatal) == (output, False)
    assert world.files() == []
    world.source.failure = None
    assert (await packages.open("pkg", ref_of(ARCHIVE))).is_dir()


async def test_fil_2_an_archive_that_is_none_makes_nothing(world: World, packages: PackageCache) -> None:
    world.source.content = b"no archive at all"
    with pytest.raises(StartFailed, match="cannot get its package"):
        await packages.open("pkg", ref_of(world.source.content))

    assert world.files() == []


async def test_fil_4_a_source_that_never_ends_is_cut_off(world: World) -> None:
    async with world.open(max_archive_bytes=len(ARCHIVE) - 1) as packages:
        with pytest.raises(StartFailed, match="is larger than"):
            await packages.open("pkg", ref_of(ARCHIVE))

    assert world.files() == []


@pytest.mark.parametrize(
    "spoil", [Path.touch, lambda path: path.symlink_to("/tmp")], ids=["a file", "a link"]
)
async def test_what_has_the_name_and_is_no_directory_is_replaced(
    world: World, packages: PackageCache, spoil: Callable[[Path], None]
) -> None:
    ref = ref_of(ARCHIVE)
    path = world.directory / BOOT / ref.sha256
    path.parent.mkdir(parents=True)
    spoil(path)

    assert await packages.open("pkg", ref) == path
    assert not path.is_symlink()
    assert (path / "manifest.json").exists()


async def test_what_another_boot_has_left_is_not_trusted_and_goes(world: World) -> None:
    ref = ref_of(ARCHIVE)
    async with world.open("before") as before, world.open() as packages:
        await before.open("pkg", ref)
        path = await packages.open("pkg", ref)
        await packages.sweep()

    assert len(world.source.asked) == 2
    assert world.files() == [f"{BOOT}/{path.name}"]


async def test_what_no_record_names_goes_when_it_was_not_used_for_a_while(
    world: World, packages: PackageCache
) -> None:
    used = await packages.open("pkg", ref_of(ARCHIVE))
    leftover = world.directory / BOOT / ".new-of-a-process-that-was-killed"
    leftover.mkdir()
    (leftover / "package.tar.gz").write_bytes(b"half")

    world.named = None
    world.now_s += 10 * UNUSED_S
    await packages.sweep()
    assert len(world.files()) == 2, "nothing goes before it is known what is named"

    world.named = {used.name}
    await packages.sweep()
    assert world.files() == [f"{BOOT}/{used.name}"]

    world.named = ()
    world.now_s += SWEEP_EVERY_S
    await packages.sweep()
    assert used.exists(), "the server that was replaced may still run"

    await packages.open("pkg", ref_of(ARCHIVE))
    world.now_s += SWEEP_EVERY_S
    await packages.sweep()
    assert used.exists(), "something was just started from it"

    world.now_s += SWEEP_EVERY_S
    await packages.sweep()
    assert world.files() == []


KILLED: Final = """
import asyncio, os, sys
from pathlib import Path
from toolgate.model.servers import PackageRef
from toolgate.packages import connector

def stopped(source, directory):
    directory.mkdir()
    (directory / "manifest.json").write_text("half")
    print("unpacking", flush=True)
    sys.stdin.read()

async def fetch(package_id, ref):
    yield Path(sys.argv[2]).read_bytes()

async def main():
    connector.unpack_archive = stopped
    directory, boot_id_file = Path(sys.argv[1]), Path(sys.argv[4])
    packages = connector.PackageCache(directory, fetch, named=lambda: None, boot_id_file=boot_id_file)
    await packages.open("pkg", PackageRef(version="1.0.0", sha256=sys.argv[3]))

asyncio.run(main())
"""


async def test_what_a_killed_process_had_half_unpacked_is_never_taken_for_whole(
    world: World, packages: PackageCache, tmp_path: Path
) -> None:
    archive, ref = tmp_path / "archive", ref_of(ARCHIVE)
    archive.write_bytes(ARCHIVE)
    command = [
        sys.executable,
        "-c",
        KILLED,
        str(world.directory),
        str(archive),
        ref.sha256,
        str(world.boot_id_file),
    ]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"unpacking\n"
        process.send_signal(signal.SIGKILL)
    assert len(world.files()) == 1

    path = await packages.open("pkg", ref)
    world.named = {ref.sha256}
    await packages.sweep()

    assert (path / "manifest.json").read_bytes() == FILES["manifest.json"]
    assert world.files() == [f"{BOOT}/{ref.sha256}"]


async def test_the_kernel_tells_boots_apart(tmp_path: Path) -> None:
    async with PackageCache(tmp_path, Source().fetch, named=lambda: None) as packages:
        path = await packages.open("pkg", ref_of(ARCHIVE))

    assert path.parent.name == Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    assert path.parent.stat().st_mode & 0o077 == 0


async def test_where_the_kernel_does_not_say_no_process_trusts_another(tmp_path: Path) -> None:
    nothing = tmp_path / "nothing"
    for _ in range(2):
        process = PackageCache(tmp_path, Source().fetch, named=lambda: None, boot_id_file=nothing)
        async with process as packages:
            await packages.open("pkg", ref_of(ARCHIVE))

    assert len(list(tmp_path.glob(f"*/{ref_of(ARCHIVE).sha256}"))) == 2
