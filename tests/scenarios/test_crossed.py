"""Answers are never crossed: many clients use the same ids at the same time, and each gets what is its own.

Clients of both eras, of all transports and of several principals, some of them two to a session, call servers
of both eras and all transports, which answer out of order. In between, calls are abandoned and calls run out
of time, and the server answers those too, when no one wants it any more.
"""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

import pytest
import uvloop

from tests.eventually import eventually_equal
from tests.scenarios.gateway import Gateway, Site, running
from tests.scenarios.lines import Caller
from tests.scenarios.soak import rounds
from tests.scenarios.sse_lines import SseCaller
from tests.scenarios.tally import open_tally_http, tally_child, wait_listed

CALLS = rounds(suite=10_000, soak=1_000_000)
WITHIN_S = rounds(suite=240, soak=3_600)
CALLERS = 60
IDS: list[int | str] = [0, 1, "1", "a", -1, 2**53, "", "0"]
SERVERS = ("child-legacy", "child-modern", "http-legacy", "http-modern", "sse")
HASTY = "hasty"
"""Gives its calls less time than they need."""
ABANDON_EVERY = 97
EXPIRE_EVERY = 131


@dataclass
class Outcome:
    """What came of the calls of all clients."""

    right: int = 0
    expired: int = 0
    abandoned: int = 0
    wrong: list[str] = field(default_factory=list)


@contextmanager
def open_gateway(site: Site) -> Iterator[Gateway]:
    """With all the servers behind it, listed."""
    with open_tally_http() as legacy, open_tally_http("modern") as modern, open_tally_http("sse") as sse:
        site.place(
            tally_child(site, "child-legacy"),
            tally_child(site, "child-modern", "modern"),
            legacy.record(site, "http-legacy"),
            modern.record(site, "http-modern"),
            sse.record(site, "sse"),
            tally_child(site, HASTY, tool_timeout_ms=100),
        )
        with running(site) as gateway:
            wait_listed(gateway, *SERVERS, HASTY)
            yield gateway


async def open_callers(gateway: Gateway) -> list[Caller | SseCaller]:
    """Of each era and transport as many; two share a session, or a key."""
    secrets = [None, *(make_key(gateway, key_id) for key_id in ("first", "second"))]
    callers: list[Caller | SseCaller] = []
    for number in range(CALLERS // 6):
        secret = secrets[number % len(secrets)]
        legacy, modern = (Caller(gateway.address, era, secret=secret) for era in ("legacy", "modern"))
        await legacy.open()
        old = [SseCaller(gateway.address, secret) for _ in range(2)]
        for caller in old:
            await caller.open()
        callers += [legacy, replace(legacy), modern, replace(modern), *old]
    return callers


def make_key(gateway: Gateway, key_id: str) -> str:
    made = gateway.http.post("/admin/api/keys", json={"key_id": key_id, "role": "agent"})
    return str(made.raise_for_status().json()["secret"])


async def call_in_turn(caller: Caller | SseCaller, who: int, outcome: Outcome) -> None:
    """One client's share of the calls. Every client goes through the ids in step with the others."""
    for n in range(CALLS // CALLERS):
        text, number = f"{who}.{n}", IDS[n % len(IDS)]
        server = SERVERS[(who + n) % len(SERVERS)]
        if (who + n) % ABANDON_EVERY == 0:
            await caller.abandon(f"{server}.late", text, number)
            outcome.abandoned += 1
        elif (who + n) % EXPIRE_EVERY == 0:
            response = await caller.call(f"{HASTY}.slow", text, number)
            # A machine that is busy enough gives the server the time that the gateway does not.
            outcome.expired += (has_expired := response.text is None)
            outcome.right += not has_expired
            found = response.code if has_expired else response.text
            check(outcome, (response.id, found), (number, "mcp_timeout" if has_expired else text))
        else:
            response = await caller.call(f"{server}.echo", text, number)
            check(outcome, (response.id, response.text), (number, text))
            outcome.right += 1


def check(outcome: Outcome, found: object, expected: object) -> None:
    if found != expected:
        outcome.wrong.append(f"{found} instead of {expected}")


async def play(gateway: Gateway) -> Outcome:
    outcome = Outcome()
    callers = await open_callers(gateway)
    try:
        async with asyncio.timeout(WITHIN_S), asyncio.TaskGroup() as clients:
            for who, caller in enumerate(callers):
                clients.create_task(call_in_turn(caller, who, outcome))
    finally:
        for caller in callers:
            caller.close()
    return outcome


@pytest.mark.soak
def test_sco_17_and_fuz_7_no_answer_is_crossed_however_ids_collide(site: Site) -> None:
    """Nor by answers that come late (CHD-10): over all servers and eras, for three principals."""
    with open_gateway(site) as gateway:
        outcome = uvloop.run(play(gateway))
        eventually_equal(lambda: [gateway.health(name)["in_flight"] for name in SERVERS], [0] * len(SERVERS))

    assert outcome.wrong == []
    assert outcome.right + outcome.expired + outcome.abandoned == CALLS // CALLERS * CALLERS
    assert min(outcome.expired, outcome.abandoned) > 0
