"""Children and what becomes of them: however they, their supervisors or the node end, none is left."""

import asyncio
import os
import resource
import signal
import sys
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path

import pytest

from tests.eventually import eventually_async
from tests.scenarios.soak import rounds
from tests.upstream.stdio_stage import (
    FAULTY,
    Listener,
    call,
    command,
    faulty,
    is_alive,
    resident_bytes,
)
from toolgate.errors import ServerUnavailable
from toolgate.upstream.connection.contract import StartFailed
from toolgate.upstream.connection.secrets import Secrets
from toolgate.upstream.stdio.children import FDS_PER_CHILD, RESERVED_FDS, STOP_STEP_S, Child, Warden
from toolgate.upstream.stdio.connector import StdioConnection, StdioConnector

pytestmark = pytest.mark.anyio
on_one_loop = pytest.mark.parametrize("anyio_backend", [("asyncio", {"use_uvloop": True})], ids=["uvloop"])

NODE_KILLS = int(os.environ.get("TOOLGATE_TEST_NODE_KILLS", "5"))
"""How often the node is killed (SHU-4). Raise it for a soak."""


@pytest.fixture(params=["asyncio", "uvloop"])
def anyio_backend(request: pytest.FixtureRequest) -> tuple[str, dict[str, bool]]:
    return "asyncio", {"use_uvloop": request.param == "uvloop"}


@asynccontextmanager
async def open_warden(max_children: int = 50, reserved_fds: int = RESERVED_FDS) -> AsyncIterator[Warden]:
    warden = Warden(max_children=max_children, reserved_fds=reserved_fds)
    try:
        yield warden
    finally:
        await warden.aclose()


async def start(warden: Warden, *words: str, listener: Listener | None = None) -> StdioConnection:
    return await StdioConnector(warden, Secrets(os.environ))(
        faulty(*words), listener or Listener(), known_revision="legacy"
    )


def parent_of(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def is_running(pid: int) -> bool:
    """Whether it is more than a zombie: one whose parent was killed is reaped by init, in init's own time."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def open_fds() -> set[str]:
    return {entry.name for entry in Path("/proc/self/fd").iterdir()}


class Collector:
    """The simplest owner of a child: collects its output."""

    def __init__(self) -> None:
        self.stdout = b""
        self.stderr = b""
        self.ended: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    def on_stdout(self, data: bytes) -> None:
        self.stdout += data

    def on_stderr(self, data: bytes) -> None:
        self.stderr += data

    def on_ended(self, how: str) -> None:
        self.ended.set_result(how)


async def test_a_child_that_ends_by_itself_has_sent_all_it_had_to_say() -> None:
    async with open_warden() as warden:
        owner = Collector()
        script = "echo out; echo err >&2; exit 4"
        child = await warden.spawn(["sh", "-c", script], env={"PATH": "/usr/bin:/bin"}, cwd="/", owner=owner)
        async with asyncio.timeout(60):
            how = await owner.ended
            await child.gone

    assert (how, owner.stdout, owner.stderr) == ("exited with status 4", b"out\n", b"err\n")
    assert not is_alive(child.pid)


async def test_output_written_before_the_end_is_not_lost_however_long_it_is() -> None:
    async with open_warden() as warden:
        owner = Collector()
        script = "head -c 3000000 /dev/zero; kill -SEGV $$"
        await warden.spawn(["sh", "-c", script], env={"PATH": "/usr/bin:/bin"}, cwd="/", owner=owner)
        async with asyncio.timeout(60):
            how = await owner.ended

    assert (how, len(owner.stdout)) == ("was killed by SIGSEGV", 3_000_000)


async def test_a_polite_child_ends_when_its_stdin_is_closed() -> None:
    listener = Listener()
    async with open_warden() as warden:
        took_s = STOP_STEP_S
        for _ in range(20):  # a busy machine may need several tries to be quick
            link = await start(warden, listener=listener)
            pid = await call(link, "pid")
            started = time.monotonic()
            await asyncio.gather(link.aclose(), link.aclose(), link.aclose())
            took_s = min(took_s, time.monotonic() - started)
            assert not is_alive(pid)
            with pytest.raises(ServerUnavailable, match="was stopped; nothing was sent"):
                await call(link, "pid")
            if took_s < STOP_STEP_S:
                break

    assert took_s < STOP_STEP_S
    assert listener.closed == []


async def test_stopping_fails_the_calls_in_flight() -> None:
    async with open_warden() as warden:
        link = await start(warden)
        hanging = asyncio.ensure_future(call(link, "hang"))
        await call(link, "echo", text="it is in flight")
        await link.aclose()
        with pytest.raises(ServerUnavailable, match="was stopped; the outcome of the call is unknown"):
            await hanging


@on_one_loop
async def test_chd_8_and_9_a_deaf_child_and_its_helpers_are_gone_by_six_seconds() -> None:
    async with open_warden() as warden:
        link = await start(warden, "deaf")
        pids = [
            await call(link, "pid"),
            await call(link, "helper", kind="group"),
            await call(link, "helper", kind="daemon"),
        ]
        parents = {parent_of(pid) for pid in pids}
        started = time.monotonic()
        await link.aclose()
        took_s = time.monotonic() - started

        await eventually_async(lambda: not any(map(is_alive, pids)))
        assert took_s >= 4.0
        # The daemon had become the keeper's own child, as the first one was.
        assert len(parents) == 2


async def test_a_stop_goes_on_when_a_caller_that_waits_for_it_is_cancelled() -> None:
    async with open_warden() as warden:
        link = await start(warden)
        pid = await call(link, "pid")
        closing = asyncio.ensure_future(link.aclose())
        await asyncio.sleep(0)
        closing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await closing
        await eventually_async(lambda: not is_alive(pid))


async def test_helpers_do_not_outlive_a_child_that_dies() -> None:
    async with open_warden() as warden:
        link = await start(warden)
        helpers = [await call(link, "helper", kind=kind) for kind in ("group", "daemon", "daemon")]
        with pytest.raises(ServerUnavailable):
            await call(link, "die", status=0)
        await eventually_async(lambda: not any(map(is_alive, helpers)))


async def test_closing_the_warden_stops_what_is_left() -> None:
    listener = Listener()
    async with open_warden() as warden:
        link = await start(warden, listener=listener)
        pid = await call(link, "pid")
        supervisors = [parent_of(pid), parent_of(parent_of(pid))]

    assert not any(map(is_alive, [pid, *supervisors]))
    assert listener.closed == ["exited with status 0"]
    with pytest.raises(StartFailed, match="this node is stopping"):
        await start(warden)


async def test_a_keeper_that_is_killed_takes_its_child_and_all_helpers_with_it() -> None:
    listener = Listener()
    async with open_warden() as warden:
        link = await start(warden, "deaf", listener=listener)
        pids = [
            await call(link, "pid"),
            *[await call(link, "helper", kind=kind) for kind in ("group", "daemon")],
        ]
        other = await start(warden)
        os.kill(parent_of(pids[0]), signal.SIGKILL)
        await eventually_async(lambda: not any(map(is_alive, pids)))
        async with asyncio.timeout(60):
            await listener.has_closed.wait()

        assert await call(other, "echo", text="still here") == "still here"
        await other.aclose()
    assert listener.closed == ["was killed because its supervisor died"]


async def test_a_warden_that_is_killed_takes_its_children_with_it_and_the_next_spawn_starts_another() -> None:
    listener = Listener()
    async with open_warden() as warden:
        link = await start(warden, "deaf", listener=listener)
        pids = [
            await call(link, "pid"),
            *[await call(link, "helper", kind=kind) for kind in ("group", "daemon")],
        ]
        old = parent_of(parent_of(pids[0]))
        os.kill(old, signal.SIGKILL)
        await eventually_async(lambda: not is_alive(old))
        successor = await start(warden)
        await eventually_async(lambda: not any(map(is_alive, pids)))
        async with asyncio.timeout(60):
            await listener.has_closed.wait()

        assert parent_of(parent_of(await call(successor, "pid"))) != old
        await successor.aclose()
    assert listener.closed == ["was killed by SIGKILL"]


async def test_a_warden_found_dead_by_a_spawn_is_replaced_there_and_then() -> None:
    async with open_warden() as warden:
        await warden.start()
        first = await start(warden)
        old = parent_of(parent_of(await call(first, "pid")))
        os.kill(old, signal.SIGKILL)
        # Without a turn of the loop, in which the node would notice.
        os.waitid(os.P_PID, old, os.WEXITED | os.WNOWAIT)
        successor = await start(warden)

        assert parent_of(parent_of(await call(successor, "pid"))) != old


async def test_supervisors_do_not_end_by_signals_meant_for_the_node() -> None:
    async with open_warden() as warden:
        link = await start(warden)
        keeper = parent_of(await call(link, "pid"))
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            os.kill(keeper, number)
            os.kill(parent_of(keeper), number)

        assert await call(link, "echo", text="still here") == "still here"
        assert os.getsid(parent_of(keeper)) != os.getsid(0)
        await link.aclose()


@pytest.mark.requirement("002-103")
async def test_chd_14_one_child_too_many_is_refused_and_the_others_go_on() -> None:
    async with open_warden(max_children=2) as warden:
        links = [await start(warden), await start(warden)]
        with pytest.raises(StartFailed) as caught:
            await start(warden)
        responses = [await call(link, "echo", text="still here") for link in links]
        await links[0].aclose()
        third = await start(warden)
        responses.append(await call(third, "echo", text="room again"))

    assert (str(caught.value), caught.value.fatal) == (
        "this node may run 2 children, and 2 are running",
        False,
    )
    assert responses == ["still here", "still here", "room again"]


async def test_chd_14_too_few_open_files_fail_a_start_with_the_reason() -> None:
    async with open_warden() as warden:
        link = await start(warden)
        with open_files_limited_to(RESERVED_FDS + 2 * FDS_PER_CHILD):
            second = await start(warden)
            with pytest.raises(
                StartFailed, match=r"may open 104 files, which is enough for 2 children, and 2 are"
            ):
                await start(warden)
        with open_files_limited_to(RESERVED_FDS):
            with pytest.raises(StartFailed, match="enough for 0 children"):
                await start(warden)

            assert await call(link, "echo", text="still here") == "still here"
            assert await call(second, "echo", text="so am I") == "so am I"


@pytest.mark.parametrize("spare", range(9))
async def test_chd_14_running_out_of_files_in_the_middle_of_a_start_leaks_none(
    spare: int,
) -> None:
    async with open_warden(reserved_fds=-1000) as warden:
        link = await start(warden)
        before = open_fds()
        with open_files_limited_to(max(map(int, before)) + 1 + spare):
            hoard = fill_gaps()
            with pytest.raises(StartFailed, match="no child can be started: too many open files"):
                await start(warden)
            for fd in hoard:
                os.close(fd)

        assert open_fds() == before
        assert await call(link, "echo", text="still here") == "still here"


def fill_gaps() -> list[int]:
    """Take every free descriptor below the highest one in use."""
    taken = [os.open("/dev/null", os.O_RDONLY)]
    highest = max(map(int, open_fds()))
    with suppress(OSError):  # none is free any more
        while taken[-1] < highest - 1:
            taken.append(os.open("/dev/null", os.O_RDONLY))
    return taken


@contextmanager
def open_files_limited_to(count: int) -> Iterator[None]:
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (count, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)


@on_one_loop
@pytest.mark.soak
async def test_chd_15_crash_cycles_leave_no_process_no_descriptor_and_little_memory() -> None:
    async with open_warden(max_children=3) as warden:
        link = await start(warden)
        supervisor = parent_of(parent_of(await call(link, "pid")))
        await link.aclose()
        before, resident = open_fds(), resident_bytes()
        for number in range(rounds(suite=50, soak=1000)):
            link = await start(warden)
            with pytest.raises(ServerUnavailable):
                await call(link, "die", status=number % 256)
            with pytest.raises(StartFailed):
                await StdioConnector(warden, Secrets({}))(
                    command("/no/such"), Listener(), known_revision=None
                )
        await eventually_async(lambda: open_fds() == before and not children_of(supervisor))

        assert resident_bytes() - resident <= 20 * 1024 * 1024


def children_of(pid: int) -> list[int]:
    """Its own, the dead that no one has collected included."""
    tasks = Path(f"/proc/{pid}/task").iterdir()
    return [int(child) for task in tasks for child in (task / "children").read_text().split()]


async def test_a_thousand_long_arguments_and_a_large_environment_reach_the_child() -> None:
    async with open_warden() as warden:
        owner = Collector()
        script = 'printf %s "$#-${#0}-${#VALUE}"'
        argv = ["sh", "-c", script, "x" * 100_000, *(["y" * 500] * 1000)]
        env = {"PATH": "/usr/bin:/bin", "VALUE": "v" * 100_000}
        await warden.spawn(argv, env=env, cwd=None, owner=owner)
        async with asyncio.timeout(60):
            await owner.ended

    assert owner.stdout == b"1000-100000-100000"


async def test_a_cancelled_spawn_leaves_no_child(tmp_path: Path) -> None:
    async with open_warden() as warden:
        pids = tmp_path / "pids"
        argv = [sys.executable, "-I", "-S", FAULTY, "deaf", f"pids={pids}"]
        spawning: asyncio.Future[Child] = asyncio.ensure_future(
            warden.spawn(argv, env={}, cwd=None, owner=Collector())
        )
        await asyncio.sleep(0)
        spawning.cancel()
        with pytest.raises(asyncio.CancelledError):
            await spawning

    assert not pids.exists() or not is_alive(int(pids.read_text()))


@on_one_loop
@pytest.mark.parametrize("attempt", range(NODE_KILLS))
async def test_shu_4_a_killed_node_leaves_no_child_and_no_grandchild(attempt: int, tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    node = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tests.upstream.node_play", str(pids), "group", "daemon", "daemon"),
        stdout=asyncio.subprocess.PIPE,
        cwd=Path(__file__).parents[3],
    )
    assert node.stdout is not None
    async with asyncio.timeout(60):
        assert await node.stdout.readline() == b"3 children\n"
    family = [int(pid) for pid in pids.read_text().split()]
    supervisors = {parent_of(pid) for pid in family[::2]} | {parent_of(parent_of(family[0]))}
    node.kill()
    await node.wait()
    await eventually_async(lambda: not any(map(is_alive, family)) and not any(map(is_running, supervisors)))

    assert (len(family), len(supervisors)) == (6, 4)
