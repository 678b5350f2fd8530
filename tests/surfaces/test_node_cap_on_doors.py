"""A node at `max_calls`, as each endpoint says it: every call that is sent counts, wherever it came in."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Final

import pytest

from tests.surfaces.mcp.house import open_house
from tests.surfaces.openai.chat_house import asking, error_in, open_chat_house, upstream
from tests.surfaces.rest_world import open_rest, stdio
from tests.surfaces.wasm.task_house import PlayedGuest, open_task_house
from tests.surfaces.wasm.test_mcp_calls import FUNCTIONS, status
from tests.upstream.memory_link import MemoryNet
from tests.upstream.scripted_model import calls, scripted_model, text
from toolgate.gateway.gateway import Gateway
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
    async with open_house(MemoryNet(), max_calls=1) as house:
        session = await house.session("/api/mcp")
        async with full(house.gateway) as slots:
            refused = [await house.modern("/api/mcp", "tools/call", ECHO), await session.call("one.echo")]
            counted = slots.refused
        served = await session.call("one.echo")

        for one in refused:
            detail = one.json["result"]["_meta"]["toolgate/error"]
            assert (detail["code"], detail["retryable"]) == ("node_busy", True)
            assert "this node has 1 calls in flight and 1 waiting" in detail["message"]
            assert "`max_calls`" in detail["hint"]
        assert "isError" not in served.json["result"]
        assert counted == 2
        assert [(one.outcome, one.code) for one in house.audited] == [("error", "node_busy")] * 2 + [
            ("ok", "")
        ]
        assert len(house.net["one"].calls) == 1


async def test_rest_answers_503() -> None:
    async with open_rest(MemoryNet()) as house:
        await house.seed(server=[stdio("one")])
        async with full(house.control.gateway):
            refused = await house.ask("POST", "/api/v1/mcp/call", ECHO)

        assert (refused.status_code, refused.json()["error"]["code"]) == (503, "node_busy")


async def test_a_model_gets_it_as_the_result_of_its_call() -> None:
    script = (calls(("mcp__one__echo", "{}", "a")), text("done"))
    async with (
        scripted_model(*script) as model,
        open_chat_house(MemoryNet(), upstreams=(upstream(model.url),), max_calls=1) as house,
    ):
        async with full(house.house.gateway):
            answer = await house.post(asking())

        assert answer.status == 200
        told = error_in(model.requests[1], "a")
        assert (told["code"], told["retryable"]) == ("node_busy", True)


async def test_a_guest_gets_eagain_and_the_reason() -> None:
    def ask(guest: PlayedGuest) -> Any:
        fd = guest.call("mcp_open", "one")
        code, _ = guest.ask("mcp_call_tool", fd, "echo", "{}")
        return code, status(guest, fd)

    async with open_task_house(MemoryNet(), max_calls=1) as house:
        async with full(house.house.gateway):
            code, told = await house.play(FUNCTIONS, ask)

        assert (code, told["last_error"]["code"]) == (EAGAIN, "node_busy")
