"""What happens on a node is found at control, each event once, the one that was gone meanwhile."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.eventually import eventually, eventually_equal
from tests.scenarios.fleet import WITHIN_S, Fleet, Member, open_fleet


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    root: Path = tmp_path_factory.mktemp("audit")
    with open_fleet(root, None, controls=1, nodes=1) as fleet:
        yield fleet


def events(fleet: Fleet, query: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = fleet.controls[0].gateway.get(f"/admin/api/audit?limit=1000&{query}")[
        "events"
    ]
    return found


def call(node: Member, words: list[str]) -> None:
    client = node.gateway.modern("/api/mcp?tools=local.echo")
    for word in words:
        assert client.text("local.echo", text=word) == word


def test_calls_on_a_node_are_found_at_control_once_each_through_crashes_of_both(fleet: Fleet) -> None:
    (control,), (node,) = fleet.controls, fleet.nodes

    def notified() -> list[int]:
        return [one["seq"] for one in events(fleet, "type=call&node=node-1&server=local")]

    def calls() -> list[int]:
        """Which of the events in its log are calls of the one server."""
        found = [json.loads(line) for line in reversed(node.gateway.audit.splitlines())]
        return [one["seq"] for one in found if one["type"] == "call" and one["server_id"] == "local"]

    call(node, ["one", "two"])
    eventually_equal(lambda: len(calls()), 3, WITHIN_S)
    eventually_equal(notified, calls(), WITHIN_S)
    control.kill()
    call(node, ["three", "four", "five"])
    control.start()
    eventually_equal(lambda: len(calls()), 6, WITHIN_S)
    eventually_equal(notified, calls(), WITHIN_S)
    control.stop()
    call(node, ["six"])
    eventually_equal(lambda: len(calls()), 7, WITHIN_S)
    node.kill()
    control.start()
    node.start()
    eventually_equal(notified, calls(), WITHIN_S)
    call(node, ["seven"])  # starts its server again
    eventually_equal(lambda: len(calls()), 8, WITHIN_S)
    eventually_equal(notified, calls(), WITHIN_S)
    spawns = "type=spawn&server=local"
    eventually_equal(lambda: [one["node"] for one in events(fleet, spawns)], ["node-1", "node-1"], WITHIN_S)

    assert len(notified()) == 8
    assert len({one["event_id"].partition("-")[0] for one in events(fleet, "node=node-1")}) == 1


def test_a_call_has_its_story_and_is_counted(fleet: Fleet) -> None:
    (node,) = fleet.nodes
    eventually(node.gateway.is_ready, WITHIN_S)
    call(node, ["again"])
    eventually_equal(lambda: bool(events(fleet, "type=call&server=local")), True, WITHIN_S)
    newest = events(fleet, "type=call&server=local")[0]
    gateway = fleet.controls[0].gateway

    story = gateway.get(f"/admin/api/audit/{newest['event_id']}")
    activity = gateway.get("/admin/api/activity?server=local")

    assert story["event"] == newest
    assert (newest["door"], newest["outcome"], newest["principal"]) == ("mcp", "ok", "local")
    assert newest["duration_us"] > 0
    assert [one["server_id"] for one in activity["servers"]] == ["local"]
    assert sum(one["calls"] for one in activity["buckets"]) == activity["servers"][0]["calls"] > 0
