"""SCO-20: no one can tell a tool that is denied from one that does not exist, not even by how long it takes.

Time is the machine's, so what is compared is the work: which functions are called, in which order.
"""

import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from types import CodeType, FrameType

import pytest

import toolgate
from tests.surfaces.mcp.mcp_world import McpWorld, Response, Stream, open_mcp_world, task
from tests.upstream.memory_link import MemoryNet, MemoryServer, definition, record

pytestmark = pytest.mark.anyio

OURS = str(Path(toolgate.__file__).parent)
DENIED, ABSENT = "git.push", "git.pull"
"""Of the same length, as the tools of someone who guesses would be."""


@asynccontextmanager
async def open_review() -> AsyncIterator[McpWorld]:
    """A task that may see one of two tools."""
    net = MemoryNet(git=MemoryServer(tools=[definition("log"), definition("push")]))
    review = task("review", default_server_ids=["git"], tool_denylist=["push"])
    async with open_mcp_world(net, record("git", allowed_tools=("*",)), tasks=(review,)) as world:
        yield world


async def work_of(act: Callable[[], Awaitable[Response]]) -> list[CodeType]:
    """Every call of a function of the gateway, or from one, that `act` leads to, until the answer is out."""
    calls: list[CodeType] = []

    def note(frame: FrameType, event: str, _argument: object) -> None:
        if frame.f_code is Stream.send.__code__:
            sys.setprofile(None)
        elif event in ("call", "c_call") and frame.f_code.co_filename.startswith(f"{OURS}/"):
            calls.append(frame.f_code)

    sys.setprofile(note)
    try:
        await act()
    finally:
        sys.setprofile(None)
    return calls


@pytest.mark.parametrize("era", ["legacy", "modern"])
async def test_sco_20_a_denied_tool_and_one_that_does_not_exist_take_the_same_work(era: str) -> None:
    async with open_review() as world:
        session = await world.session("/api/mcp/t/review")

        def call(name: str) -> Awaitable[Response]:
            if era == "legacy":
                return session.call(name)
            return world.modern("/api/mcp/t/review", "tools/call", {"name": name})

        for name in (DENIED, ABSENT):  # by now whatever is made once is made
            await call(name)
        denied, absent = await work_of(partial(call, DENIED)), await work_of(partial(call, ABSENT))
        responses = [await call(name) for name in (DENIED, ABSENT) for _ in range(50)]
        bodies = {response.body.replace(ABSENT.encode(), DENIED.encode()) for response in responses}

        assert len(bodies) == 1
        assert len(denied) > 20
        assert denied == absent
