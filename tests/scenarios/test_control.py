"""A control on SQLite with one node: it governs what it does not run, and says so."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest

from tests.eventually import eventually_equal
from tests.scenarios.canaries import MARK
from tests.scenarios.fleet import WITHIN_S, Fleet, open_fleet
from tests.scenarios.gateway import Site
from tests.scenarios.in_process import run_here

SERVERS = "/admin/api/mcp/servers"
LOCAL_TOOLS = ["complain", "echo", "environment", "hang", "pid", "wait"]


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    with open_fleet(tmp_path_factory.mktemp("control"), None, controls=1, nodes=1) as fleet:
        yield fleet


def explained(fleet: Fleet, *, at_node: bool = False) -> list[dict[str, Any]]:
    """The decisions on each tool, as control or the node explains them."""
    member = fleet.nodes[0] if at_node else fleet.controls[0]
    found: list[dict[str, Any]] = member.gateway.get("/api/v1/mcp/explain")["tools"]
    return found


def test_control_shows_each_server_as_its_nodes_see_it(fleet: Fleet) -> None:
    def states() -> dict[str, tuple[str, list[tuple[str, str]]]]:
        shown = fleet.controls[0].gateway.get(SERVERS)["servers"]
        return {
            one["server_id"]: (
                one["health"]["state"],
                [(node["node_id"], node["state"]) for node in one["nodes"]],
            )
            for one in shown
        }

    everywhere = ("connected", [("node-1", "connected")])
    eventually_equal(states, {"local": everywhere, "remote": everywhere}, WITHIN_S)


def test_control_explains_what_the_node_does(fleet: Fleet) -> None:
    eventually_equal(lambda: explained(fleet), explained(fleet, at_node=True), WITHIN_S)
    named = sorted(one["tool"] for one in explained(fleet) if one["server_id"] == "local")

    assert named == LOCAL_TOOLS


def test_control_calls_nothing_and_lists_nothing_and_says_where_to_go(fleet: Fleet) -> None:
    http = fleet.controls[0].gateway.http
    door = http.post("/api/mcp", json={"jsonrpc": "2.0", "id": 1, "method": "tools/list"})
    refresh = http.post(f"{SERVERS}/local/refresh")

    assert door.status_code == 404
    assert "node" in door.json()["error"]["hint"]
    assert (refresh.status_code, refresh.json()["error"]["code"]) == (400, "invalid_request")


def test_a_call_over_rest_is_made_at_the_node_and_refused_at_control_with_the_address_of_the_node(
    fleet: Fleet,
) -> None:
    [control], [node] = fleet.controls, fleet.nodes
    eventually_equal(lambda: explained(fleet), explained(fleet, at_node=True), WITHIN_S)
    body = {"name": "local.echo", "arguments": {"text": "hello"}}
    made = node.gateway.http.post("/api/v1/mcp/call", json=body)
    refused = control.gateway.http.post("/api/v1/mcp/call", json=body)

    assert made.json()["result"]["content"] == [{"type": "text", "text": "hello"}]
    assert (refused.status_code, refused.json()["error"]["code"]) == (502, "mcp_unavailable")
    assert node.gateway.url in refused.json()["error"]["hint"]


def test_a_node_governs_nothing_and_says_where_to_go(fleet: Fleet) -> None:
    response = fleet.nodes[0].gateway.http.get(SERVERS)

    assert response.status_code == 404
    assert fleet.wires[0].address in response.json()["error"]["hint"]


def test_sec_1_only_nodes_get_secrets_over_grpc(fleet: Fleet) -> None:
    keys = {role: fleet.make_key(f"grpc-{role}", role=role) for role in ("viewer", "admin", "node")}
    received = {role: grpc_received(fleet.grpc[0], key) for role, key in keys.items()}

    assert [role for role, responses in received.items() if MARK in "".join(responses)] == ["node"]
    assert all("local" in one for responses in received.values() for one in responses)


def grpc_received(address: str, key: str) -> list[str]:
    """What is told of the servers there: a list of them, and the first change there was."""
    credential = (("authorization", f"Bearer {key}"),)
    with grpc.insecure_channel(address) as channel:
        listed: Any = channel.unary_unary("/sms.McpRegistryService/ListMcpServers")
        watched: Any = channel.unary_stream("/sms.McpRegistryService/WatchMcpServers")
        changes = watched(b"", metadata=credential, timeout=WITHIN_S)
        responses = [listed(b"", metadata=credential, timeout=WITHIN_S), next(changes)]
        changes.cancel()
    return [response.decode(errors="replace") for response in responses]


def test_control_tries_a_server_from_where_it_is(fleet: Fleet) -> None:
    trial = fleet.controls[0].gateway.http.post(f"{SERVERS}/local/test").raise_for_status().json()

    assert (trial["ok"], trial["tools"]) == (True, LOCAL_TOOLS)


def test_a_control_that_was_restarted_knows_the_tools_before_any_node_reports(fleet: Fleet) -> None:
    eventually_equal(lambda: explained(fleet), explained(fleet, at_node=True), WITHIN_S)
    before = explained(fleet)
    fleet.nodes[0].stop()
    fleet.controls[0].stop()
    fleet.controls[0].start()
    after = explained(fleet)
    fleet.nodes[0].start()
    fleet.settle()

    assert after == before


@pytest.mark.parametrize(
    ("options", "notified"),
    [
        pytest.param(["--grpc-listen", "0.0.0.0:0"], "grpc.cert_file", id="keys in clear on the network"),
    ],
)
def test_control_does_not_start_where_it_could_not_serve_safely(
    tmp_path: Path, options: list[str], notified: str
) -> None:
    data = ["--data", str(Site(tmp_path).data)]
    ran = run_here(["control", "--listen", "127.0.0.1:0", *data, *options])

    assert ran.code == 1
    assert notified in ran.err
    assert "Traceback" not in ran.err
