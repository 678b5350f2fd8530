"""Servers that a real gateway knows from its last run: listed at once, started by their first call."""

import json
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.eventually import eventually_equal
from tests.scenarios.gateway import Gateway, Site, running
from tests.scenarios.soak import rounds
from tests.scenarios.test_rug_pull import RUG_SERVER

SERVERS = rounds(suite=12, soak=300)
CALLS = rounds(suite=24, soak=10_000)
CHILDREN = rounds(suite=3, soak=32)


def states(gateway: Gateway) -> dict[str, str]:
    servers = gateway.get("/admin/api/mcp/servers")["servers"]
    return {one["server_id"]: one["health"]["state"] for one in servers}


def processes(gateway: Gateway) -> int:
    """Its children, without those who supervise them."""
    return len({one.pid for one in gateway.site.processes()} - {gateway.pid})


@pytest.mark.requirement("002-015")
def test_more_servers_than_children_are_learned_listed_and_called_without_a_failure(site: Site) -> None:
    names = [f"s{number:03}" for number in range(SERVERS)]
    site.place(*(site.stage(name, "tools=echo") for name in names))
    cap = {"TOOLGATE_MAX_CHILDREN": str(CHILDREN), "TOOLGATE_MAX_TOOLS": "1000"}
    with running(site, environ=cap) as gateway:
        eventually_equal(lambda: len(gateway.modern().tools()), SERVERS, 300)
    learned = gateway.audit.count('"type":"spawn"')

    with running(site, environ=cap) as gateway:
        listed, idle = len(gateway.modern().tools()), set(states(gateway).values())
        verified = {gateway.health(name)["verified_ms"] > 0 for name in names[:3]}
        started = processes(gateway)
        shown = gateway.cli("servers", "get", names[0]).out
        unverified = gateway.get("/api/v1/mcp/explain")["unverified"]
        with ThreadPoolExecutor(8) as threads:
            clients = [gateway.modern() for _ in range(8)]

            def call(number: int) -> str:
                name = names[number * 7 % SERVERS]
                return clients[number % 8].text(f"{name}.echo", text=str(number))

            answered = list(threads.map(call, range(CALLS)))
        living = processes(gateway)

    assert learned == SERVERS
    assert (listed, idle, verified, started) == (SERVERS, {"idle"}, {True}, 0)
    assert ("not verified since" in shown, unverified) == (True, names)
    assert [str(number) in text for number, text in enumerate(answered)] == [True] * CALLS
    assert living <= CHILDREN


def test_a_tool_that_changed_between_two_runs_is_quarantined_by_the_call_that_starts_its_server(
    site: Site,
) -> None:
    program, calls = site.root / "rug.py", site.root / "calls"
    program.write_text(RUG_SERVER.read_text("utf-8"), "utf-8")
    args = ["-I", "-S", str(program), f"log={calls}", f"site={site.root}"]
    site.place(site.server("rug", stdio={"command": sys.executable, "args": args}))
    with running(site) as gateway:
        eventually_equal(gateway.modern().tools, ["rug.read", "rug.turn"])
        assert gateway.cli("pins", "approve", "rug").code == 0
    program.write_text(program.read_text("utf-8").replace("Reads a file.", "Reads all files."), "utf-8")

    with running(site) as gateway:
        client = gateway.modern()
        listed, started = client.tools(), processes(gateway)
        refused = client.call("rug.read")
        eventually_equal(lambda: list(gateway.get("/admin/api/pins/rug")["changed"]), ["read"])
        left, same = client.tools(), client.text("rug.turn")
    audited = [json.loads(line) for line in gateway.audit.splitlines()]

    assert (listed, started) == (["rug.read", "rug.turn"], 0)
    assert (refused["error"]["code"], left, same) == (-32602, ["rug.turn"], "done")
    assert [one["tool"] for one in audited if one["type"] == "definition"] == ["read"]
    assert calls.read_text("utf-8").split() == ["turn"]
