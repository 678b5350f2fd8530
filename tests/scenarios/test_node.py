"""A node as a process of its own: how it starts without control, and how it stops."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.eventually import eventually, eventually_equal
from tests.scenarios.canaries import leaks, lines_of_key, written_by
from tests.scenarios.fleet import WITHIN_S, Fleet, open_fleet
from tests.scenarios.gateway import START_S, TOOLGATE, Gateway, Site, started
from tests.scenarios.in_process import run_here
from tests.upstream.certificates import Authority

NO_ONE = "127.0.0.1:1"
KEY = "tg_node_0123456789abcdefghijklmnopqrstuv"


@contextmanager
def lonely_node(site: Site, *, key: str = KEY, **settings: str) -> Iterator[Gateway]:
    """A node whose control is not there, unless `settings` say otherwise."""
    key_file = site.root / "node.key"
    key_file.write_text(key)
    environ = {
        "TOOLGATE_LISTEN": "127.0.0.1:0",
        "TOOLGATE_DATA_DIR": str(site.root / "node"),
        "TOOLGATE_CONTROL": NO_ONE,
        "TOOLGATE_CONTROL_KEY_FILE": str(key_file),
        **settings,
    }
    with started(site, [TOOLGATE, "node", "--json"], environ) as node:
        yield node


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    with open_fleet(tmp_path_factory.mktemp("fleet"), None, controls=1, nodes=1) as fleet:
        yield fleet


@pytest.fixture
def fleet(shared: Fleet) -> Fleet:
    """A control and a node that follows it, whatever the test before has stopped."""
    for member in (*shared.controls, *shared.nodes):
        if member.gateway.process.poll() is not None:
            member.start()
    [node] = shared.nodes
    node.serves()
    eventually_equal(node.is_degraded, False)
    return shared


def degraded_by(node: Gateway) -> str:
    """The code of what keeps it from control; empty while nothing does."""
    reasons = node.get("/healthz")["reasons"]
    return str(reasons[-1]["code"]) if reasons else ""


def takes_calls(node: Gateway) -> bool:
    return node.http.get("/readyz").status_code == 200


def test_rep_3_a_node_without_control_says_so_and_calls_no_key_wrong(site: Site) -> None:
    with lonely_node(site) as node:
        eventually_equal(lambda: degraded_by(node), "control_unavailable")
        readiness = node.http.get("/readyz")
        wrong = {"authorization": "Bearer " + "x" * 40}
        refused = node.modern().request("tools/list")["error"]["data"]
        doors = [
            node.http.post("/api/mcp", json={}, headers=wrong),
            node.http.get("/api/v1/mcp/tools", headers=wrong),
            node.http.get("/api/v1/mcp/servers"),
        ]

    assert (readiness.status_code, readiness.json()["status"]) == (503, "not_ready")
    assert [one["code"] for one in readiness.json()["reasons"]] == ["not_ready"]
    assert (refused["code"], refused["retryable"]) == ("not_ready", True)
    assert [response.status_code for response in doors] == [503, 503, 503]
    assert all("not_ready" in response.text for response in doors)
    assert doors[0].headers["retry-after"] == "1"
    assert node.log.count("degraded, nothing to serve") == 1


@pytest.mark.parametrize("word", [signal.SIGTERM, signal.SIGINT])
def test_shu_6_a_node_that_never_found_its_control_stops_at_once(site: Site, word: signal.Signals) -> None:
    with lonely_node(site) as node:
        eventually_equal(lambda: degraded_by(node), "control_unavailable")
        node.signal(word)

        assert node.wait() == 0
        node.check_stopped()


def test_a_node_that_was_there_first_is_ready_once_control_is(fleet: Fleet) -> None:
    [control], [node] = fleet.controls, fleet.nodes
    node.stop()
    control.stop()
    node.start()
    eventually_equal(lambda: degraded_by(node.gateway), "control_unavailable")
    ready_early = takes_calls(node.gateway)

    control.start()
    eventually(lambda: takes_calls(node.gateway), START_S)

    node.serves()
    assert ready_early is False
    eventually_equal(node.is_degraded, False)


def test_a_key_that_control_does_not_take_is_named_as_the_cause(fleet: Fleet) -> None:
    site = Site(fleet.root / "stranger")
    site.root.mkdir()
    with lonely_node(site, TOOLGATE_CONTROL=fleet.grpc[0]) as node:
        eventually_equal(lambda: degraded_by(node), "unauthenticated")

        assert "put a key of role `node` into the file" in node.log
        assert KEY not in node.log


def test_the_line_to_control_is_encrypted_where_it_has_a_certificate(site: Site, tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    authority.server_context(["127.0.0.1"], days=1)
    certificate = str(tmp_path / "server.pem")
    environ = {
        "TOOLGATE_LISTEN": "127.0.0.1:0",
        "TOOLGATE_GRPC_LISTEN": "127.0.0.1:0",
        "TOOLGATE_GRPC_CERT_FILE": certificate,
        "TOOLGATE_GRPC_KEY_FILE": certificate,
        "TOOLGATE_DATA_DIR": str(site.data),
    }
    with started(site, [TOOLGATE, "control", "--json"], environ) as control:
        made = control.http.post("/admin/api/keys", json={"key_id": "n", "role": "node"}).json()
        settings = {"TOOLGATE_CONTROL": control.announced["grpc"]}
        with lonely_node(site, key=made["secret"], **settings) as node:
            eventually_equal(lambda: degraded_by(node), "control_unavailable")
        with lonely_node(
            site, key=made["secret"], TOOLGATE_CONTROL_CA_FILE=str(authority.path), **settings
        ) as node:
            eventually(lambda: takes_calls(node))
    secrets = [made["secret"], *lines_of_key(Path(certificate))]
    written = [path for outputs in site.root.glob("out-*") for path in written_by(site.data, outputs)]
    assert len(secrets) > 2
    assert leaks({*written, *(site.root / "node").iterdir()}, secrets) == []  # SEC-1


@pytest.mark.requirement("002-020")
def test_what_a_caller_switches_at_control_holds_at_the_node(fleet: Fleet) -> None:
    [control], [node] = fleet.controls, fleet.nodes
    secret = fleet.make_key("chooser", role="agent")
    at_node = fleet.caller(node, secret)

    def tools() -> list[str]:
        listed = at_node.get("/api/v1/mcp/tools").json().get("tools", ())
        return [one["server_id"] for one in listed]

    server_id = eventually(tools)[0]
    at_control = fleet.caller(control, secret)
    path = f"/api/v1/me/integrations/{server_id}"
    at_control.put(path, json={"state": "off"}).raise_for_status()

    eventually_equal(lambda: server_id in tools(), expected=False, within_s=WITHIN_S)
    at_control.delete(path).raise_for_status()
    eventually_equal(lambda: server_id in tools(), expected=True, within_s=WITHIN_S)
    fleet.revoke("chooser")


@pytest.mark.requirement("002-004")
def test_a_node_keeps_nothing_on_disk_but_its_audit_log_and_what_servers_listed(fleet: Fleet) -> None:
    [node] = fleet.nodes
    node.serves()
    node.stop()

    kept = {"audit.jsonl", "audit.jsonl.id", "audit.jsonl.lock", "definitions"}
    assert {file.name for file in node.site.data.iterdir()} == kept
    assert '"tool":"echo"' in (node.site.data / "audit.jsonl").read_text("utf-8")


def test_shu_6_a_node_stops_while_control_is_down_and_takes_its_servers_with_it(fleet: Fleet) -> None:
    [node] = fleet.nodes
    fleet.controls[0].kill()
    eventually_equal(node.is_degraded, True)
    node.serves()

    node.stop()


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ([], "a node needs the address of a control plane"),
        (["--control", "control"], "invalid address `control`"),
        (["--control", "a:1,:2"], "invalid address `:2`"),
        (["--control", NO_ONE, "--control-key-file", "missing.key"], "cannot read `control_key_file`"),
        (["--control", NO_ONE, "--control-ca-file", "missing.pem"], "cannot read `control_ca_file`"),
    ],
)
def test_a_node_does_not_start_where_it_could_not_follow(options: list[str], problem: str) -> None:
    ran = run_here(["node", "--listen", "127.0.0.1:0", *options])

    assert ran.code == 1
    assert problem in ran.err
    assert "Traceback" not in ran.err
