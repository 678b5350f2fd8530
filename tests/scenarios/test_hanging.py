"""One server hangs: it costs its own callers their budget, and no one else anything."""

import asyncio
import json
import os
import signal
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from tests.eventually import eventually, eventually_equal
from tests.scenarios.clients import McpClient, error_of
from tests.scenarios.gateway import Gateway, Site, running
from tests.scenarios.lines import Caller, Unanswered

pytestmark = pytest.mark.xdist_group("scenario-hanging")

BUDGET_S = 2.0
DEFAULT_S = 30.0
"""The budget of a server that has none of its own: who ends far before it was ended by `BUDGET_S`."""
AT_ONCE_S = 1.0
BUDGETS = {"tool_timeout_ms": int(BUDGET_S * 1000)}


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    """`good` is well, `stuck` never starts, `tired` starts only once; `sleepy` and `narrow` can hang."""
    site = Site(tmp_path_factory.mktemp("hanging"))
    site.place(
        site.stage("good", "tools=echo"),
        site.stage("stuck", "silent", budgets=BUDGETS),
        site.stage("sleepy", "tools=echo,hang", budgets=BUDGETS),
        site.stage("narrow", "tools=echo,hang", budgets={"max_concurrency": 1}),
        site.stage("tired", "tools=echo", f"once={site.root / 'started'}", budgets=BUDGETS),
    )
    with running(site) as gateway:
        well = ("good", "sleepy", "narrow", "tired")
        eventually_equal(lambda: {gateway.health(name)["tools"] > 0 for name in well}, {True})
        yield gateway


@pytest.fixture(params=["modern", "legacy"])
def client(gateway: Gateway, request: pytest.FixtureRequest) -> McpClient:
    path = "/api/mcp?servers=good,sleepy,tired"
    return gateway.modern(path) if request.param == "modern" else gateway.legacy(path)


def timed(act: Callable[[], Any]) -> tuple[Any, float]:
    began = time.monotonic()
    return act(), time.monotonic() - began


def at_once(act: Callable[[], Any]) -> Any:
    """What comes of it as soon as it comes without delay: a busy machine may need several tries."""

    def look() -> tuple[Any] | None:
        found, took_s = timed(act)
        return (found,) if took_s < AT_ONCE_S else None

    (found,) = eventually(look, within_s=60)
    return found


@pytest.mark.requirement("000-03")
def test_a_server_that_never_starts_delays_no_list_and_no_call_of_the_others(client: McpClient) -> None:
    tools = at_once(client.tools)
    text = at_once(lambda: client.text("good.echo", text="here"))

    assert tools == ["good.echo", "sleepy.echo", "sleepy.hang", "tired.echo"]
    assert text == "here"


def test_a_list_that_includes_it_waits_for_it_once_and_then_no_more(gateway: Gateway) -> None:
    client = gateway.modern("/api/mcp?servers=good,sleepy,stuck,tired")

    client.tools()

    assert at_once(client.tools) == ["good.echo", "sleepy.echo", "sleepy.hang", "tired.echo"]


def test_chd_3_a_call_that_hangs_ends_at_its_budget_and_holds_up_no_other(client: McpClient) -> None:
    with ThreadPoolExecutor() as threads:
        hanging = threads.submit(timed, lambda: client.call("sleepy.hang"))
        alongside = []
        while not hanging.done():
            alongside += [timed(lambda: client.text("good.echo", text="x"))]
            alongside += [timed(lambda: client.text("sleepy.echo", text="x"))]
        response, hung_s = hanging.result()

    assert (error_of(response), response["result"]["isError"]) == ("mcp_timeout", True)
    assert BUDGET_S <= hung_s < DEFAULT_S
    assert {text for text, _ in alongside} == {"x"}
    assert min(took_s for _, took_s in alongside) < BUDGET_S / 2


def test_a_server_that_hangs_when_it_is_started_again_keeps_its_tools_and_answers_at_its_budget(
    gateway: Gateway,
) -> None:
    client = gateway.modern("/api/mcp?servers=good,tired")
    eventually(lambda: gateway.health("tired")["pid"])
    os.kill(gateway.health("tired")["pid"], signal.SIGKILL)
    eventually_equal(lambda: gateway.health("tired")["pid"], None)

    response, hung_s = timed(lambda: client.call("tired.echo", text="x"))

    assert error_of(response) == "mcp_timeout"
    assert BUDGET_S <= hung_s < DEFAULT_S
    assert at_once(client.tools) == ["good.echo", "tired.echo"]


def test_bud_8_a_client_that_goes_away_frees_its_place_and_is_audited_as_cancelled(gateway: Gateway) -> None:
    for _ in range(3):
        asyncio.run(call_and_go_away(gateway))
    text = gateway.modern("/api/mcp?servers=narrow").text("narrow.echo", text="there is room")

    assert text == "there is room"
    # The audit is written in batches.
    eventually_equal(lambda: outcomes_at(gateway, "narrow"), [("hang", "cancelled")] * 3 + [("echo", "ok")])


async def call_and_go_away(gateway: Gateway) -> None:
    """Once the call is at the server; returns when its place is free."""

    def in_flight() -> int:
        return int(gateway.health("narrow")["in_flight"])

    caller = Caller(gateway.address, "modern", "/api/mcp?servers=narrow")
    call = asyncio.ensure_future(caller.call("narrow.hang", ""))
    await asyncio.to_thread(eventually_equal, in_flight, 1)
    caller.close()
    with pytest.raises(Unanswered):
        await call
    await asyncio.to_thread(eventually_equal, in_flight, 0)


def outcomes_at(gateway: Gateway, server_id: str) -> list[tuple[str, str]]:
    events = map(json.loads, gateway.audit.splitlines())
    calls = [one for one in events if one["type"] == "call"]
    return [(one["tool"], one["outcome"]) for one in calls if one.get("server_id") == server_id]
