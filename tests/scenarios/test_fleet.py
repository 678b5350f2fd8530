"""Two controls on one PostgreSQL and three nodes: a change is a change everywhere, and any one may fail."""

import asyncio
import json
import statistics
import sys
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from psycopg import sql

from tests.eventually import eventually, eventually_equal
from tests.postgres import PostgresServer, own_server
from tests.scenarios.askable import AskableClient, Received
from tests.scenarios.clients import LegacyClient, McpClient, ModernClient, error_of
from tests.scenarios.fleet import WITHIN_S, Fleet, Member, open_fleet
from tests.scenarios.gateway import START_S, TOOLGATE, Site, run
from tests.scenarios.soak import rounds
from tests.scenarios.tally import executed, tally_child
from tests.scenarios.test_rug_pull import rug
from tests.scenarios.wires import open_wire

WRITES = rounds(suite=20, soak=500)
CUTS = rounds(suite=3, soak=50)
KILLS = rounds(suite=1, soak=10)
STALENESS_S = 10
RUG_TASK = {
    "task_id": "rug",
    "config": {"mcp.enabled": "true", "mcp.default_server_ids": json.dumps(["rug"])},
}
ASKING_TASK = {
    "task_id": "asking",
    "config": {
        "mcp.enabled": "true",
        "mcp.default_server_ids": '["local"]',
        "mcp.approval_policy": '"always"',
    },
}


@pytest.fixture(scope="module")
def postgres() -> Iterator[PostgresServer]:
    with own_server() as server:
        yield server


@pytest.fixture(scope="module")
def shared(postgres: PostgresServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    root = tmp_path_factory.mktemp("fleet")
    with open_fleet(root, postgres.create_database(), controls=2, nodes=3) as fleet:
        yield fleet


@pytest.fixture
def fleet(shared: Fleet) -> Fleet:
    """Whole, whatever the test before has done to it."""
    shared.settle()
    return shared


def show_times(what: str, times_s: list[float]) -> None:
    """For the one that runs with `-s`; how busy the machine is makes no test fail."""
    ordered = sorted(times_s)
    p99_s = ordered[max(0, -(-len(ordered) * 99 // 100) - 1)]
    sys.stdout.write(
        f"\n{what}: {len(ordered)} times, p50 {statistics.median(ordered) * 1e3:.0f} ms,"
        f" p99 {p99_s * 1e3:.0f} ms, longest {ordered[-1] * 1e3:.0f} ms\n"
    )


# What is written


@pytest.mark.soak
def test_rep_2_a_write_at_either_replica_reaches_every_node(fleet: Fleet) -> None:
    times_s = []
    for number in range(WRITES):
        began_s = time.monotonic()
        fleet.reaches_all(fleet.put_task("wave", number, at=number % 2))
        times_s.append(time.monotonic() - began_s)

    show_times("from the request to the last node", times_s)


@pytest.mark.soak
def test_rep_2_also_after_the_line_to_control_was_cut(fleet: Fleet) -> None:
    node = fleet.nodes[-1]
    times_s = []
    for number in range(CUTS):
        assert sum(wire.cut() for wire in fleet.wires) > 0
        began_s = time.monotonic()
        node.follows(fleet.put_task("cut", number, at=number % 2))
        times_s.append(time.monotonic() - began_s)
        eventually(lambda: any(wire.is_carrying for wire in fleet.wires))

    show_times("from the request to the node that was cut off", times_s)
    eventually_equal(node.is_degraded, False, WITHIN_S)


def test_rep_4_who_names_a_revision_reads_nothing_older_anywhere(fleet: Fleet) -> None:
    for number in range(5):
        revision = fleet.put_task("read", number, at=number % 2)
        reader = fleet.controls[1 - number % 2].gateway.http
        response = reader.get("/admin/api/tasks/read", headers={"toolgate-min-revision": str(revision)})

        assert response.json()["config"] == {"mcp.tool_denylist": json.dumps([str(number)])}
    with ThreadPoolExecutor(len(fleet.members)) as threads:
        seen = list(threads.map(partial(_read_at, revision), fleet.members))
        ahead = list(threads.map(partial(_read_at, revision + 1_000), fleet.members))

    assert seen == [(200, "")] * len(fleet.members)
    assert ahead == [(412, "revision_not_reached")] * len(fleet.members)


def _read_at(revision: int, member: Member) -> tuple[int, str]:
    """Status and code of a read that names a revision."""
    headers = {"toolgate-min-revision": str(revision)}
    response = member.gateway.http.get("/api/v1/mcp/servers", headers=headers)
    return response.status_code, response.json().get("error", {"code": ""})["code"]


# Who may call


def test_rep_5_a_key_revoked_at_one_control_is_refused_at_every_node_and_its_streams_end(
    fleet: Fleet,
) -> None:
    secret = fleet.make_key("leaver", role="agent")
    fleet.reaches_all(fleet.controls[0].state["revision"])
    clients: list[McpClient] = []
    for node in fleet.nodes:
        http, url = fleet.caller(node, secret), f"{node.gateway.url}/api/mcp?tools=local.echo"
        clients += ModernClient(http, url), LegacyClient(http, url)
    with ThreadPoolExecutor(len(clients)) as threads:
        streams = [threads.submit(_listen_to_the_end, client) for client in clients]
        before = [client.tools() for client in clients]
        began_s = time.monotonic()
        fleet.revoke("leaver", at=0)
        ended = [stream.result(WITHIN_S) for stream in streams]
        took_s = time.monotonic() - began_s
    refused = [fleet.caller(node, secret).post("/api/mcp", json={}).status_code for node in fleet.nodes]

    show_times("from the request to the end of the last stream", [took_s])
    assert before == [["local.echo"]] * len(clients)
    assert ended == [True] * len(clients)
    assert refused == [401] * len(fleet.nodes)


def _listen_to_the_end(client: McpClient) -> bool:
    assert isinstance(client, ModernClient | LegacyClient)
    with client.changes() as methods:
        for _ in methods:
            pass
    return True


def test_try_10_delete_ends_a_session_on_every_node_also_on_one_that_was_started_again(fleet: Fleet) -> None:
    one, other, restarted = fleet.nodes[:3]
    url, listing = "/api/mcp", {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}
    session = one.gateway.legacy().session

    def status(node: Member) -> int:
        return node.gateway.http.post(url, json=listing, headers=session).status_code

    assert [status(node) for node in (one, other, restarted)] == [200, 200, 200]
    assert one.gateway.http.delete(url, headers=session).status_code == 200
    for node in (one, other, restarted):
        eventually_equal(partial(status, node), 404, WITHIN_S)
    restarted.kill()
    restarted.start()
    eventually(restarted.gateway.is_ready, START_S)
    eventually_equal(partial(status, restarted), 404, WITHIN_S)


def test_rep_1_a_session_opened_at_one_node_goes_on_at_every_other_with_the_same_scope(fleet: Fleet) -> None:
    secret = fleet.make_key("traveller", role="agent", at=1)
    stranger = fleet.make_key("stranger", role="agent", at=1)
    fleet.reaches_all(max(control.state["revision"] for control in fleet.controls))
    first, *others = fleet.nodes
    opened = LegacyClient(fleet.caller(first, secret), f"{first.gateway.url}/api/mcp?tools=local.echo")
    listed = opened.tools()
    for node in others:
        url = f"{node.gateway.url}/api/mcp"
        there = LegacyClient(fleet.caller(node, secret), url, opened.session)
        stolen = fleet.caller(node, stranger).post(
            url, json={"jsonrpc": "2.0", "id": 1, "method": "tools/list"}, headers=opened.session
        )

        assert listed == there.tools() == ["local.echo"]
        assert there.text("local.echo", text="still here") == "still here"
        assert there.call("remote.echo", text="wider")["error"]["message"] == "Unknown tool: remote.echo"
        assert stolen.status_code == 404


# Who fails


@pytest.mark.soak
@pytest.mark.parametrize("which", [0, 1])
def test_kill_9_of_a_control_leaves_the_other_one_and_all_nodes_at_work(fleet: Fleet, which: int) -> None:
    for number in range(KILLS):
        killed = fleet.controls[which]
        killed.kill()
        fleet.reaches_all(fleet.put_task(f"orphan-{which}", number, at=1 - which))
        for node in fleet.nodes:
            node.serves()
        killed.start()
        fleet.settle()
        fleet.reaches_all(fleet.put_task(f"heir-{which}", number, at=which))


@pytest.mark.soak
def test_kill_9_of_a_node_leaves_the_others_and_it_catches_up_when_it_is_back(fleet: Fleet) -> None:
    for number in range(KILLS):
        killed, *others = fleet.nodes
        killed.kill()
        revision = fleet.put_task("missed", number)
        for node in others:
            node.follows(revision)
            node.serves()
        killed.start()
        killed.follows(revision)
        killed.serves()


@pytest.mark.soak
def test_kill_9_of_the_database_stops_writes_alone_and_all_recovers(
    fleet: Fleet, postgres: PostgresServer
) -> None:
    for number in range(KILLS):
        before = fleet.put_task("kept", number)
        fleet.reaches_all(before)
        postgres.crash()
        refused = [
            control.gateway.http.put(
                "/admin/api/tasks/refused", json={"task_id": "refused", "config": {}}, timeout=60
            )
            for control in fleet.controls
        ]
        for node in fleet.nodes:
            node.serves()
        postgres.start()
        for at in (0, 1):
            eventually(partial(_writes, fleet, at), WITHIN_S)
        fleet.settle()
        kept = [control.gateway.get("/admin/api/tasks/kept") for control in fleet.controls]

        assert [response.status_code for response in refused] == [503, 503]
        assert [response.json()["error"]["code"] for response in refused] == ["storage_unavailable"] * 2
        assert [task["config"] for task in kept] == [{"mcp.tool_denylist": json.dumps([str(number)])}] * 2


def _writes(fleet: Fleet, at: int) -> bool:
    body = {"task_id": f"back-{at}", "config": {}}
    return fleet.controls[at].gateway.http.put(f"/admin/api/tasks/back-{at}", json=body).is_success


@pytest.mark.requirement("002-076")
def test_rep_3_without_any_control_nodes_serve_on_marked_and_refuse_where_that_was_asked_for(
    fleet: Fleet,
) -> None:
    strict = fleet.add_node(TOOLGATE_MAX_POLICY_STALENESS_S=str(STALENESS_S))
    strict.serves()
    fleet.reaches_all(fleet.put("/admin/api/tasks/asking", ASKING_TASK))
    for control in fleet.controls:
        control.stop()
    for node in fleet.nodes:
        eventually_equal(node.is_degraded, True, WITHIN_S)
        eventually_equal(partial(node.gauge, "toolgate_sync_degraded"), 1.0, WITHIN_S)
    eventually_equal(partial(_code_of_a_list, strict), "policy_stale", WITHIN_S)
    strict.kill()
    strict.start()
    eventually_equal(partial(_code_of_a_list, strict), "not_ready", WITHIN_S)
    for node in fleet.nodes[:-1]:
        node.serves()
    asked = fleet.nodes[0].gateway.modern("/api/mcp/t/asking").call("local.echo", text="x")
    for control in fleet.controls:
        control.start()
    fleet.settle()

    assert error_of(asked) == "mcp_unavailable"  # no one can be asked whether it was approved
    assert [node.gauge("toolgate_sync_degraded") for node in fleet.nodes] == [0.0] * 4
    fleet.dismiss(strict)


def _code_of_a_list(node: Member) -> str:
    response = node.gateway.modern().request("tools/list")
    return str(response["error"]["data"]["code"]) if "error" in response else ""


def test_rep_2_nodes_leave_a_control_that_has_lost_its_database(
    fleet: Fleet, postgres: PostgresServer
) -> None:
    """It cannot know of what is written elsewhere, so it must not tell a node that it is up to date."""
    lost, other = fleet.controls
    assert fleet.database is not None
    with open_wire(f"{postgres.directory}/.s.PGSQL.5432") as wire:
        lost.stop()
        lost.environ["TOOLGATE_DATABASE"] = f"postgresql://postgres@{wire.address}/{_name_of(fleet.database)}"
        lost.start()
        other.kill()
        fleet.reaches_all(fleet.put_task("all-follow-one", 1))
        other.start()
        wire.hold()
        eventually_equal(lost.is_degraded, True, WITHIN_S)
        readiness = lost.gateway.http.get("/readyz")
        fleet.reaches_all(fleet.put_task("written-elsewhere", 1, at=1))
        wire.release()
        lost.environ["TOOLGATE_DATABASE"] = fleet.database
        lost.stop()
        lost.start()

    assert readiness.status_code == 503
    assert [one["code"] for one in readiness.json()["reasons"]] == ["storage_unavailable"]


def test_a_node_that_joins_late_has_everything_and_is_seen(fleet: Fleet) -> None:
    revision = fleet.put_task("before", 1)
    late = fleet.add_node()
    late.follows(revision)
    late.serves()
    for control in fleet.controls:
        eventually(partial(_is_shown, control, late), WITHIN_S)
    fleet.dismiss(late)


def _is_shown(control: Member, node: Member) -> bool:
    """Whether control shows that `local` is connected on this node."""
    shown = control.gateway.get("/admin/api/mcp/servers/local")["nodes"]
    return node.name in [each["node_id"] for each in shown if each["state"] == "connected"]


def test_all_notice_that_the_database_was_replaced_by_a_backup_of_it(
    fleet: Fleet, postgres: PostgresServer, tmp_path: Path
) -> None:
    """WAT-3, REP-2: a new epoch is no change one could watch for."""
    assert fleet.database is not None
    before = fleet.put_task("before-the-backup", 1)
    _copy("backup", str(tmp_path / "backup"), fleet.database)
    fleet.reaches_all(fleet.put_task("after-the-backup", 1))
    relists = [node.gauge("toolgate_sync_relists_total") for node in fleet.nodes]
    restored = postgres.create_database()
    _copy("restore", str(tmp_path / "backup"), restored)
    old, new = (sql.Identifier(_name_of(url)) for url in (fleet.database, restored))
    postgres.execute(sql.SQL("DROP DATABASE {} WITH (FORCE)").format(old))
    postgres.execute(sql.SQL("ALTER DATABASE {} RENAME TO {}").format(new, old))
    for member in fleet.members:
        eventually_equal(partial(_revision_of, member), before, WITHIN_S)
    fleet.settle()
    fleet.reaches_all(fleet.put_task("after-the-restore", 1))

    for node, relisted in zip(fleet.nodes, relists, strict=True):
        assert node.gauge("toolgate_sync_relists_total") > relisted


def _copy(command: str, file: str, database: str) -> None:
    ran = run([TOOLGATE, command, file, "--database", database])

    assert ran.code == 0, ran.err


def _name_of(url: str) -> str:
    return urlsplit(url).path.removeprefix("/")


def _revision_of(member: Member) -> int:
    return int(member.state["revision"])


# What is approved


def test_ups_9_a_tool_that_changes_at_one_node_is_out_of_reach_at_all(fleet: Fleet) -> None:
    for path, body in {"mcp/servers/rug": rug(Site(fleet.root)), "tasks/rug": RUG_TASK}.items():
        fleet.reaches_all(fleet.put(f"/admin/api/{path}", body))
    clients = [node.gateway.modern("/api/mcp/t/rug") for node in fleet.nodes]
    for client in clients:
        eventually_equal(client.tools, ["rug.read", "rug.turn"], WITHIN_S)
    governing = fleet.controls[1].gateway
    eventually_equal(lambda: governing.cli("pins", "approve", "rug").code, 0, WITHIN_S)
    fleet.reaches_all(governing.get("/admin/api/pins/rug")["revision"])
    began_s = time.monotonic()
    clients[0].text("rug.turn")
    for client in clients:
        eventually_equal(client.tools, ["rug.turn"], WITHIN_S)
    show_times("from the change at one node to the last of the others", [time.monotonic() - began_s])

    assert list(governing.get("/admin/api/pins/rug")["changed"]) == ["read"]
    assert [client.call("rug.read")["error"]["code"] for client in clients] == [-32602] * len(clients)
    for path in ("pins/rug", "tasks/rug", "mcp/servers/rug"):
        fleet.controls[0].gateway.http.delete(f"/admin/api/{path}").raise_for_status()


def test_an_approval_asked_at_one_node_and_given_at_control_is_used_once_by_any(fleet: Fleet) -> None:
    path, log = "/admin/api/mcp/servers/guarded", fleet.root / "guarded.log"
    policy = {"approval_policy": {"per_tool": {"e*": "always"}}}
    secret = fleet.make_key("asker", role="agent")
    fleet.reaches_all(fleet.put(path, tally_child(Site(fleet.root), "guarded", f"log={log}") | policy))
    clients = [
        ModernClient(fleet.caller(node, secret), f"{node.gateway.url}/api/mcp/s/guarded")
        for node in fleet.nodes
    ]
    for client in clients:
        eventually_equal(lambda client=client: "echo" in client.tools(), True, WITHIN_S)  # type: ignore[misc]
    notified = [client.call("echo", text="once")["result"]["_meta"]["toolgate/error"] for client in clients]
    approval_id = notified[0]["data"]["approval_id"]
    listed = fleet.controls[1].gateway.cli("approvals", "list", "--json").json
    approved = fleet.controls[1].gateway.cli("approvals", "approve", approval_id, "--reason", "fine")
    changed = clients[1].call("echo", text="other")
    with ThreadPoolExecutor(12) as threads:
        retries = list(threads.map(lambda n: clients[n % 3].call("echo", text="once"), range(48)))
    used = fleet.controls[0].gateway.get(f"/admin/api/approvals/{approval_id}")

    pages = {f"{control.gateway.url}/console/approvals/{approval_id}" for control in fleet.controls}
    assert {one["data"].pop("url") for one in notified} <= pages
    assert [(one["code"], one["data"]) for one in notified] == [
        (notified[0]["code"], notified[0]["data"])
    ] * 3
    assert (listed["approval_id"], listed["principal"], approved.code) == (approval_id, "key:asker", 0)
    assert error_of(changed) == "mcp_approval_required"
    assert Counter(one["result"].get("isError", False) for one in retries) == {True: 47, False: 1}
    assert (used["state"], used["reason"]) == ("used", "fine")
    assert executed(log) == {"once": 1}
    asyncio.run(_agree_elsewhere(fleet, secret))
    assert executed(log) == {"once": 1, "there": 1, "live": 1}
    fleet.revoke("asker")
    fleet.controls[0].gateway.http.delete(path).raise_for_status()


async def _agree_elsewhere(fleet: Fleet, secret: str) -> None:
    """A client is asked in place at one node, and says yes at another; one with a session, at a third."""
    here, there = (
        AskableClient("ada", node.gateway.address, "modern", secret)
        for node in (fleet.nodes[0], fleet.nodes[1])
    )
    received, params = Received(), here.params("guarded.echo", "there", token=1)
    asked = await here.request(params, 1, received)
    await there.go_on(params, asked, 2, received)
    replayed = Received()
    await there.go_on(params, asked, 3, replayed)
    live = AskableClient("eve", fleet.nodes[2].gateway.address, "legacy", secret)
    await live.open()
    notified = await live.call("guarded.echo", "live", number=1, token=1)

    assert (received.text, replayed.text, notified.text) == ("there", None, "live")
    assert [len(one.questions) for one in (received, replayed, notified)] == [1, 1, 1]


def test_every_control_shows_the_same_catalog_of_what_nodes_list(fleet: Fleet) -> None:
    def found(control: Member) -> list[tuple[str, str]]:
        response = control.gateway.get("/api/catalog/search?q=say+the+same&server=local&limit=1")
        return [(tool["fullName"], tool["category"]) for tool in response["tools"]]

    first, second = fleet.controls
    record = first.gateway.get("/admin/api/mcp/servers/local")
    body = {name: record[name] for name in ("server_id", "transport", "allowed_tools", "stdio")}
    fleet.put("/admin/api/mcp/servers/local", {**body, "category": "舞台"})
    for control in fleet.controls:
        eventually_equal(partial(found, control), [("local.echo", "舞台")], WITHIN_S)
    shown = [control.gateway.get("/api/catalog/local/tools") for control in (first, second)]

    assert shown[0] == shown[1]
