"""STO-10: kill -9 of a gateway under load, again and again: what ran is audited, and the log holds.

Spies keep account of what they execute in a file of their own: a server behind a URL, and a child of the
gateway.
"""

import asyncio
import json
import logging
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import uvloop

from tests.eventually import eventually_equal
from tests.scenarios.busy import crowd_of, open_crowd
from tests.scenarios.gateway import TOOLGATE as COMMAND
from tests.scenarios.gateway import Gateway, Site, run, running
from tests.scenarios.soak import rounds
from tests.scenarios.tally import executed, open_tally_http, tally_child, wait_listed

KILLS = rounds(suite=3, soak=100)
_log = logging.getLogger(__name__)
TOOLS = ("remote.echo", "child.echo", "remote.slow")
CLIENTS = 16
WITHIN_S = 240.0


@dataclass
class CrashWorld:
    """A gateway that is killed and started again, at the same address."""

    site: Site
    stack: ExitStack
    spied: Path
    gateway: Gateway

    def kill(self) -> None:
        self.gateway.kill()
        self.gateway = self.stack.enter_context(running(self.site, listen=self.gateway.address))

    def lines(self) -> list[dict[str, Any]]:
        """The whole log, without its seals."""
        (file,) = self.site.data.glob("audit.jsonl")
        return [one for one in map(json.loads, file.read_bytes().splitlines()) if one["type"] != "seal"]

    def indexed(self) -> list[int]:
        """The numbers of calls that can be looked up, in order."""
        response = self.gateway.http.get("/admin/api/audit/export?format=jsonl&type=call")
        return sorted(json.loads(line)["seq"] for line in response.raise_for_status().text.splitlines())


@pytest.fixture
def world(site: Site, tmp_path_factory: pytest.TempPathFactory) -> Iterator[CrashWorld]:
    spied = tmp_path_factory.mktemp("calls") / "executed"
    with ExitStack() as stack:
        remote = stack.enter_context(open_tally_http(f"log={spied}"))
        site.place(tally_child(site, "child", f"log={spied}"), remote.record(site, "remote"))
        gateway = stack.enter_context(running(site))
        wait_listed(gateway, "child", "remote")
        yield CrashWorld(site, stack, spied, gateway)


async def play(world: CrashWorld) -> None:
    clients = crowd_of(world.gateway.address, TOOLS, size=CLIENTS)
    async with asyncio.timeout(WITHIN_S * KILLS), open_crowd(clients) as crowd:
        for number in range(KILLS):
            await crowd.all_get(1 + number % 5)
            await asyncio.to_thread(world.kill)
        await crowd.all_get(1)


@pytest.mark.soak
def test_sto_10_whatever_is_killed_when_each_executed_call_is_on_record_with_its_arguments(
    world: CrashWorld,
) -> None:
    uvloop.run(play(world))
    ran = executed(world.spied)
    world.kill()
    lines = world.lines()
    starts = {one["seq"]: one for one in lines if one["type"] == "start"}
    ends = [one for one in lines if one["type"] == "call" and "start" in one]
    verified = run([COMMAND, "audit", "verify", "--data", str(world.site.data), "--json"])
    begun = Counter(one["arguments"]["text"] for one in starts.values() if one["tool"] in ("echo", "slow"))
    outcomes = Counter(one["outcome"] for one in ends)
    _log.info("%d kills, %d executed, %d begun, ended as %s", KILLS + 1, len(ran), len(starts), outcomes)

    assert {text: begun[text] for text in ran if begun[text] != 1} == {}
    assert Counter(one["start"] for one in ends) == Counter(starts.keys())
    assert [one["seq"] for one in lines] == [*range(1, len(lines) + 1)]
    eventually_equal(world.indexed, [one["seq"] for one in lines if one["type"] == "call"], WITHIN_S)
    assert (verified.code, verified.json["breaks"]) == (0, [])
    assert outcomes["unknown"] > 0
    assert {one["code"] for one in ends if one["outcome"] == "unknown"} == {"gateway_ended"}
