"""A node at `max_calls`, as each endpoint says it: every call that is sent counts, wherever it came in."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Final

import pytest

from tests.surfaces.mcp.mcp_world import open_mcp_world
from tests.surfaces.openai.chat_world import asking, error_in, open_chat_world, upstream
from tests.surfaces.rest_world import open_rest, stdio
from tests.surfaces.wasm.guest_world import PlayedGuest, open_guest_world
from tests.surfaces.wasm.test_mcp_calls import status
from tests.upstream.memory_link import MemoryNet
from tests.upstream.scripted_model import calls, scripted_model, text
from toolgate.gateway.gateway import Gateway
from toolgate.surfaces.wasm.functions import ALL_FUNCTIONS
from toolgate.upstream.pool.admission import NodeSlots
from toolgate.upstream.pool.pool import Pool

pytestmark = pytest.mark.anyio

EAGAIN: Final = -11
ECHO: Final = {"name": "one.echo", "arguments": {}}


def slots_of(gateway: Gateway) -> NodeSlots:
    assert isinstance(gateway.servers, Pool)
    return gateway.servers.slots


@asynccontextmanager
async def full(gateway: Gateway) -> AsyncIterator[NodeSlots]:
    """While every slot is taken and the queue is full, each by another principal."""
    slots = slots_of(gateway)
    others = [f"other-{number}" for number in range(slots.limit)]
    assert all(map(slots.try_take, others))
    waiting = [asyncio.create_task(slots.take(f"{one}-waits", float("inf"))) for one in others]
    await asyncio.sleep(0)
    try:
        yield slots
    finally:
        for one in waiting:
            one.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)
        for other in others:
            slots.release(other)


async def test_both_revisions_of_mcp_return_a_retryable_error_and_the_audit_has_it() -> None:
    async with open_mcp_world(MemoryNet(), max_calls=1) as world:
        session = await world.session("/api/mcp")
        async with full(world.gateway) as slots:
            refused = [await world.modern("/api/mcp", "tools/call", ECHO), await session.call("one.echo")]
            counted = slots.refused
        served = await session.call("one.echo")

        for one in refused:
            detail = one.json["result"]["_meta"]["toolgate/error"]
            assert (detail["code"], detail["retryable"]) == ("node_busy", True)
            assert "this node has 1 calls in flight and 1 waiting" in detail["message"]
            assert "`max_calls`" in detail["hint"]
        assert "isError" not in served.json["result"]
        assert counted == 2
        assert [(one.outcome, one.code) for one in world.audited] == [("error", "node_busy")] * 2 + [
            ("ok", "")
        ]
        assert len(world.net["one"].calls) == 1


async def test_rest_answers_503() -> None:
    async with open_rest(MemoryNet()) as world:
        await world.seed(server=[stdio("one")])
        async with full(world.control.gateway):
            refused = await world.request("POST", "/api/v1/mcp/call", ECHO)

        assert (refused.status_code, refused.json()["error"]["code"]) == (503, "node_busy")


async def test_a_model_gets_it_as_the_result_of_its_call() -> None:
    script = (calls(("mcp__one__echo", "{}", "a")), text("done"))
    async with (
        scripted_model(*script) as model,
        open_chat_world(MemoryNet(), upstreams=(upstream(model.url),), max_calls=1) as world,
    ):
        async with full(world.world.gateway):
            response = await world.post(asking())

        assert response.status == 200
        notified = error_in(model.requests[1], "a")
        assert (notified["code"], notified["retryable"]) == ("node_busy", True)


async def test_a_guest_gets_eagain_and_the_reason() -> None:
    def play(guest: PlayedGuest) -> Any:
        fd = guest.call("mcp_open", "one")
        code, _ = guest.hostcall("mcp_call_tool", fd, "echo", "{}")
        return code, status(guest, fd)

    async with open_guest_world(MemoryNet(), max_calls=1) as world:
        async with full(world.world.gateway):
            code, notified = await world.play(ALL_FUNCTIONS, play)

        assert (code, notified["last_error"]["code"]) == (EAGAIN, "node_busy")
