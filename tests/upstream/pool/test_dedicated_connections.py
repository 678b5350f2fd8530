"""Links per session over real transports: processes and HTTP sessions of their own, and none left behind."""

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from tests.contract.link_clients import SilentClient
from tests.eventually import eventually_async
from tests.upstream.faulty_http import FakeMcp, FaultyHttp
from tests.upstream.http_links import opener as http_opener
from tests.upstream.http_links import record_for
from tests.upstream.stdio_stage import content, faulty, is_alive, tool
from toolgate.errors import ServerUnavailable
from toolgate.model.servers import Transport
from toolgate.upstream.connection.contract import ClientChannel, Connector, PoolLimits
from toolgate.upstream.connection.secrets import Secrets
from toolgate.upstream.pool.pool import CallOrigin, Pool
from toolgate.upstream.stdio.children import Warden
from toolgate.upstream.stdio.connector import StdioConnector

pytestmark = pytest.mark.anyio

ROOTS = b'{"roots":{"listChanged":true}}'
QUICK = PoolLimits(session_idle_s=0.05)


@pytest.fixture
def anyio_backend() -> tuple[str, dict[str, object]]:
    return "asyncio", {"use_uvloop": True}


@dataclass(frozen=True)
class Stage:
    """A pool with one server, `faulty`."""

    pool: Pool

    async def call(
        self, name: str, session: str = "", *, client: ClientChannel | None = None, **arguments: Any
    ) -> Any:
        params = tool(name, **arguments)
        response = await self.pool.call(
            "faulty", "tools/call", params, origin=CallOrigin(session), client=client
        )
        return content(response.rpc)

    @property
    def session_links(self) -> int:
        return self.pool.health()["faulty"].session_links


@asynccontextmanager
async def open_stage(
    *words: str, sharing: Any = "per_session", max_children: int = 10, limits: PoolLimits | None = None
) -> AsyncIterator[Stage]:
    warden = Warden(max_children=max_children)
    openers: dict[Transport, Connector] = {"stdio": StdioConnector(warden, Secrets(os.environ))}
    try:
        async with (
            asyncio.timeout(60),
            Pool(openers, on_change=lambda _: None, limits=limits or PoolLimits()) as pool,
        ):
            pool.apply({"faulty": replace(faulty(*words), sharing=sharing)})
            await pool.settled(["faulty"])
            yield Stage(pool)
    finally:
        await warden.aclose()


def calls_in(seen: list[dict[str, Any]]) -> list[str]:
    return [one["params"]["arguments"]["text"] for one in seen if one.get("params", {}).get("name") == "echo"]


async def test_each_session_has_a_process_of_its_own_with_its_state_no_other_sees() -> None:
    async with open_stage() as stage:
        for session, text in (("a", "1"), ("b", "2"), ("a", "3")):
            await stage.call("echo", session, text=text)
        pids = {await stage.call("pid", session) for session in ("a", "b", "a", "b")}

        assert len(pids | {stage.pool.health()["faulty"].pid}) == 3
        assert calls_in(await stage.call("seen", "a")) == ["1", "3"]
        assert calls_in(await stage.call("seen", "b")) == ["2"]


async def test_a_process_hears_what_the_client_of_its_session_can_do() -> None:
    async with open_stage() as stage:
        seen = await stage.call("seen", "a", client=SilentClient(capabilities=ROOTS))

        notified = [one["params"]["capabilities"] for one in seen if one["method"] == "initialize"]
        assert notified == [{"roots": {"listChanged": True}}]


async def test_a_session_that_ends_ends_its_process_and_no_other() -> None:
    async with open_stage() as stage:
        ended, kept = await stage.call("pid", "a"), await stage.call("pid", "b")
        stage.pool.end_session("a")
        await eventually_async(lambda: not is_alive(ended))

        assert (await stage.call("pid", "b"), stage.session_links) == (kept, 1)
        assert await stage.call("pid", "a") not in (ended, kept)


async def test_a_process_that_its_session_does_not_use_is_ended() -> None:
    async with open_stage(limits=QUICK) as stage:
        pid = await stage.call("pid", "a")
        await eventually_async(lambda: not is_alive(pid))

        assert stage.session_links == 0
        assert is_alive(stage.pool.health()["faulty"].pid or 0)


async def test_a_changed_record_ends_the_processes_of_sessions() -> None:
    async with open_stage() as stage:
        pids = [await stage.call("pid", session) for session in ("a", "b")]
        stage.pool.apply({"faulty": replace(faulty("wordy=1"), sharing="per_session")})
        await eventually_async(lambda: not any(map(is_alive, pids)))

        assert await stage.call("pid", "a") not in pids


async def test_chd_4_a_session_with_its_process_dies_gets_another_and_others_keep_theirs() -> None:
    async with open_stage() as stage:
        pid, kept = await stage.call("pid", "a"), await stage.call("pid", "b")
        with pytest.raises(ServerUnavailable, match="the outcome of the call is unknown"):
            await stage.call("die", "a", status=3)

        assert await stage.call("pid", "a") != pid
        assert await stage.call("pid", "b") == kept
        assert stage.pool.health()["faulty"].last_error == "exited with status 3: last words"


async def test_sessions_count_against_the_children_of_a_node() -> None:
    async with open_stage(max_children=2) as stage:
        pid = await stage.call("pid", "a")
        with pytest.raises(ServerUnavailable, match="`faulty` is down"):
            await stage.call("pid", "b")

        assert stage.pool.health()["faulty"].last_error == "this node may run 2 children, and 2 are running"
        assert await stage.call("pid", "a") == pid


@pytest.mark.requirement("002-089")
async def test_a_child_that_died_between_calls_is_started_again_and_the_next_call_waits_for_it() -> None:
    async with open_stage(sharing="shared") as stage:
        pid = await stage.call("pid")
        os.kill(pid, signal.SIGKILL)
        await eventually_async(lambda: stage.pool.health()["faulty"].pid != pid)

        assert await stage.call("pid") != pid


async def test_shu_4_a_killed_node_leaves_no_process_of_a_session(tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    node = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tests.upstream.session_play", str(pids)),
        stdout=asyncio.subprocess.PIPE,
        cwd=Path(__file__).parents[3],
    )
    assert node.stdout is not None
    async with asyncio.timeout(60):
        assert await node.stdout.readline() == b"ready\n"
    family = [int(pid) for pid in pids.read_text().split()]
    node.kill()
    await node.wait()
    await eventually_async(lambda: not any(map(is_alive, family)))

    assert len(family) == 4


@pytest.mark.parametrize("era", ["legacy", "modern"])
async def test_sessions_do_not_share_a_session_at_a_server_behind_a_url(era: str) -> None:
    async with asyncio.timeout(60), FaultyHttp(FakeMcp(era)) as server:
        async with Pool({"streamable_http": http_opener()}, on_change=lambda _: None) as pool:
            pool.apply({"there": replace(record_for(server.url), sharing="per_session")})
            await pool.settled(["there"])
            for session in ("a", "b", "a"):
                await pool.call(
                    "there",
                    "tools/call",
                    tool("echo"),
                    origin=CallOrigin(session),
                    client=SilentClient(capabilities=ROOTS),
                )
            pool.end_session("a")
            links = pool.health()["there"].session_links

        calls = [one for one in server.requests if one.rpc == "tools/call"]
        ids = [one.headers.get("mcp-session-id") for one in calls]
        starts = [one.message["params"]["capabilities"] for one in server.requests if one.rpc == "initialize"]
        ended = [one.headers["mcp-session-id"] for one in server.requests if one.method == "DELETE"]

    assert links == 1
    if era == "legacy":
        assert (ids[0] == ids[2] != ids[1], ended.count(str(ids[0]))) == (True, 1)
        assert starts[1:] == [{"roots": {"listChanged": True}}] * 2
        assert "roots" in starts[0]
    else:
        assert (ids, len(starts), ended) == ([None] * 3, 1, [])
