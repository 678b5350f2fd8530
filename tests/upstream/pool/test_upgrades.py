"""One version of a package in place of another: no one sees an empty list in between."""

import asyncio
from typing import Any

import pytest

from tests.upstream.memory_link import MemoryNet, definition, params, pool_of, record
from toolgate.gateway.cluster import DriftDetector
from toolgate.model.servers import PackageRef, ServerRecord
from toolgate.model.tools import Pin
from toolgate.upstream.connection.contract import StartFailed
from toolgate.upstream.pool.pool import Pool

pytestmark = pytest.mark.anyio


def version(number: int, **fields: Any) -> ServerRecord:
    """A server that runs from this version of its package."""
    ref = PackageRef(version=str(number), sha256=f"{number}" * 64)
    return record("notes", package=ref, **fields)


def shown(pool: Pool) -> tuple[str, list[str], list[str]]:
    offer = pool.tools()["notes"]
    return offer.state, sorted(offer.tools), sorted(offer.prompts)


async def test_the_tools_of_one_version_are_shown_until_the_next_was_listed() -> None:
    net = MemoryNet()
    server = net.servers["notes"]
    server.capabilities = {"tools": {}, "prompts": {}}
    server.prompts = (b'{"name":"plan"}',)
    opening = asyncio.Event()

    async def open_late() -> None:
        await opening.wait()

    async with pool_of(net) as pool:
        pool.apply({"notes": version(1)})
        await pool.settled(["notes"])
        first = shown(pool)
        server.on_start, server.tools = open_late, (definition("echo"), definition("add"))
        pool.apply({"notes": version(2)})
        between = shown(pool)
        called = asyncio.create_task(pool.call("notes", "tools/call", params("echo")))
        opening.set()
        await pool.settled(["notes"])
        await called

        assert first == ("ready", ["echo"], ["plan"])
        assert between == ("pending", ["echo"], ["plan"])
        assert shown(pool) == ("ready", ["add", "echo"], ["plan"])


async def test_a_version_that_does_not_start_offers_nothing() -> None:
    net = MemoryNet()

    async def fail() -> None:
        raise StartFailed("it is broken", fatal=True)

    async with pool_of(net) as pool:
        pool.apply({"notes": version(1)})
        await pool.settled(["notes"])
        net.servers["notes"].on_start = fail
        pool.apply({"notes": version(2)})
        await pool.settled(["notes"])

        assert shown(pool) == ("list_failed", [], [])


@pytest.mark.requirement("002-079")
@pytest.mark.parametrize(
    ("before", "after"),
    [
        pytest.param(record("notes"), record("notes", command="other"), id="another program"),
        pytest.param(record("notes"), version(1), id="a package in place of a program"),
        pytest.param(version(1), version(2, enabled=False), id="it is disabled"),
    ],
)
async def test_what_is_no_other_version_starts_from_nothing(
    before: ServerRecord, after: ServerRecord
) -> None:
    async with pool_of(MemoryNet()) as pool:
        pool.apply({"notes": before})
        await pool.settled(["notes"])
        pool.apply({"notes": after})

        assert shown(pool) == ("pending", [], [])


async def test_what_an_earlier_version_listed_is_not_held_against_the_pin_of_the_next() -> None:
    """UPS-9"""
    net, drift = MemoryNet(), DriftDetector()
    async with pool_of(net) as pool:
        pool.apply({"notes": version(1)})
        await pool.settled(["notes"])
        drift.check_servers(pool.tools())
        net.servers["notes"].tools = (definition("echo", description="Another."),)
        drift.apply_pins({"notes": Pin(server_id="notes", tools={"echo": "0" * 64})})
        pool.apply({"notes": version(2)})
        early = drift.check_servers(pool.tools())
        await pool.settled(["notes"])
        listed = drift.check_servers(pool.tools())

        assert early == []
        assert [one.tool for one in listed] == ["echo"]
