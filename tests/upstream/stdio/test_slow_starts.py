"""Children that read nothing for long, as servers do while a package runner downloads them: TRY-5."""

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from tests.eventually import eventually_async
from tests.upstream.stdio.test_start import methods
from tests.upstream.stdio_stage import FAULTY, Listener, call, command, open_opener
from toolgate.upstream.connection.contract import StartFailed
from toolgate.upstream.stdio.connector import StdioConnection, StdioConnector

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> tuple[str, dict[str, bool]]:
    return "asyncio", {"use_uvloop": True}


class Runner:
    """A fake `npx` on disk. It says that it downloads, and runs the faulty server once a file appears."""

    def __init__(self, directory: Path, *words: str) -> None:
        self.path = directory / "npx"
        self.log = directory / "log"
        self.starts = directory / "starts"
        self._packages = directory / "packages"
        server = f"{sys.executable} -I -S {FAULTY} log={self.log} {' '.join(words)}"
        self.path.write_text(
            f"#!/bin/sh\necho start >> {self.starts}\necho downloading >&2\n"
            f"while [ ! -e {self._packages} ]; do sleep 0.05; done\nexec {server}\n"
        )
        self.path.chmod(0o755)

    def finish(self) -> None:
        self._packages.touch()


@asynccontextmanager
async def opening(opener: StdioConnector, runner: Runner) -> AsyncIterator[asyncio.Task[StdioConnection]]:
    listener = Listener()
    task = asyncio.create_task(opener(command(str(runner.path)), listener, known_revision=None))
    try:
        await eventually_async(lambda: b"downloading" in listener.stderr)
        yield task
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


@pytest.mark.parametrize(("words", "era"), [((), "legacy"), (("modern",), "modern")])
async def test_try_5_a_runner_that_downloads_past_the_limits_of_start_and_probe_is_not_killed_nor_misjudged(
    words: tuple[str, ...], era: str, tmp_path: Path
) -> None:
    runner = Runner(tmp_path, *words)
    async with (
        open_opener(start_timeout_s=0.4, probe_timeout_s=0.2) as opener,
        opening(opener, runner) as task,
    ):
        done, _ = await asyncio.wait({task}, timeout=1.0)
        runner.finish()
        link = await task
        response = await call(link, "echo", text="ready")
        await link.aclose()

    greetings = {"legacy": ["initialize", "notifications/initialized"], "modern": []}
    assert not done
    assert (link.server_info.revision, response) == (era, "ready")
    assert methods(runner.log)[:-1] == ["server/discover", *greetings[era]]
    assert runner.starts.read_text() == "start\n"


async def test_a_runner_that_fails_before_its_server_runs_is_probed_again_the_next_time(
    tmp_path: Path,
) -> None:
    runner = Runner(tmp_path, "modern")
    broken = tmp_path / "broken"
    broken.mkdir()
    script = broken / "npx"
    script.write_text("#!/bin/sh\nexit 1\n")
    script.chmod(0o755)
    async with open_opener() as opener:
        with pytest.raises(StartFailed):
            await opener(command(str(script)), Listener(), known_revision=None)
        runner.finish()
        link = await opener(command(str(runner.path)), Listener(), known_revision=None)
        await link.aclose()

    assert methods(runner.log) == ["server/discover"]


async def test_a_limit_of_the_record_holds_for_runners_too(tmp_path: Path) -> None:
    runner = Runner(tmp_path)
    record = replace(command(str(runner.path)), start_timeout_s=1)
    async with open_opener(start_timeout_s=60) as opener:
        with pytest.raises(StartFailed, match="within 1 s"):
            await opener(record, Listener(), known_revision=None)
