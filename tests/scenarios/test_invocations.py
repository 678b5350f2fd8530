"""Runs of tasks in real processes: they outlive what they can, and end with what they rest on."""

import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager
from functools import partial
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import httpx2
import pytest
from wasmtime import wat2wasm

from tests.eventually import eventually, eventually_equal
from tests.postgres import own_server
from tests.scenarios import short_leases
from tests.scenarios.clients import UNTRUSTING
from tests.scenarios.fleet import Fleet
from tests.scenarios.gateway import START_S, TOOLGATE, Gateway, Json, Site, environment, started
from tests.scenarios.soak import rounds

SHORT = [sys.executable, str(Path(short_leases.__file__))]
DATABASES = ["SQLite", "PostgreSQL"][: rounds(suite=1, soak=2)]
WITHIN_S = 60.0


def guest(sleep_ms: int) -> bytes:
    """Logs `begun`, sleeps, writes `done`."""
    return bytes(
        wat2wasm(f"""(module
          (import "spear" "log" (func $log (param i32 i32 i32) (result i32)))
          (import "spear" "sleep_ms" (func $sleep (param i32)))
          (import "wasi_snapshot_preview1" "fd_write"
            (func $write (param i32 i32 i32 i32) (result i32)))
          (memory (export "memory") 1)
          (data (i32.const 0) "\\10\\00\\00\\00\\05\\00\\00\\00") (data (i32.const 16) "done\\nbegun")
          (func (export "_start")
            (drop (call $log (i32.const 2) (i32.const 21) (i32.const 5)))
            (call $sleep (i32.const {sleep_ms}))
            (drop (call $write (i32.const 1) (i32.const 0) (i32.const 1) (i32.const 8)))))""")
    )


LONG, SHORTLY, AT_ONCE = guest(120_000), guest(2_000), guest(0)


def add_task(http: httpx2.Client, task_id: str, module: bytes, **workload: Any) -> int:
    """A task that runs `module`; the revision."""
    sent = http.post("/admin/api/modules", content=module, headers={"content-type": "application/wasm"})
    limits = {"wall_clock_ms": 300_000}
    body = {"workload": {"module": sent.raise_for_status().json()["sha256"], "limits": limits, **workload}}
    response = http.put(f"/admin/api/tasks/{task_id}", json={"task_id": task_id, **body})
    return int(response.raise_for_status().json()["revision"])


class Runs:
    """The runs that are asked for at one gateway, by one caller."""

    def __init__(self, http: httpx2.Client) -> None:
        self._http = http

    def begin(self, task_id: str, *, key: str | None = None, **body: Any) -> str:
        headers = {} if key is None else {"idempotency-key": key}
        response = self._http.post(
            f"/api/v1/tasks/{task_id}/invocations", json={"mode": "async", **body}, headers=headers
        )
        return f"/api/v1/tasks/{task_id}/invocations/{response.raise_for_status().json()['invocation_id']}"

    def get(self, run: str) -> Json:
        found: Json = self._http.get(run).raise_for_status().json()
        return found

    def state(self, run: str) -> str:
        return str(self.get(run)["state"])

    def cancel(self, run: str) -> None:
        self._http.post(f"{run}/cancel").raise_for_status()

    def lines(self, run: str) -> list[str]:
        found = self._http.get(f"{run}/logs").raise_for_status().json()["lines"]
        return [line["text"] for line in found]

    def begun(self, run: str, times: int = 1) -> None:
        """Passes once the guest has said so."""
        eventually_equal(partial(self.lines, run), ["begun"] * times, WITHIN_S)


@contextmanager
def up(site: Site, **environ: str) -> Iterator[Gateway]:
    """`toolgate up` with short leases, while it serves."""
    command = [*SHORT, *site.up("--json")[1:]]
    with started(site, command, environ) as gateway:
        eventually(gateway.is_ready, START_S)
        yield gateway


def test_what_waits_outlives_the_process_and_what_ran_is_begun_again_only_where_its_task_says_so(
    site: Site,
) -> None:
    with up(site, TOOLGATE_MAX_GUESTS="2") as gateway:
        add_task(gateway.http, "once", LONG)
        add_task(gateway.http, "again", LONG, retries=1)
        add_task(gateway.http, "quick", AT_ONCE)
        runs = Runs(gateway.http)
        once, again = runs.begin("once"), runs.begin("again")
        for run in (once, again):
            runs.begun(run)
        quick = runs.begin("quick")
        waiting = runs.state(quick)
        gateway.kill()

    assert waiting == "queued"
    with up(site, TOOLGATE_MAX_GUESTS="2") as gateway:
        runs = Runs(gateway.http)
        eventually_equal(partial(runs.state, quick), "succeeded", WITHIN_S)
        eventually_equal(partial(runs.state, once), "crashed", WITHIN_S)
        runs.begun(again, times=2)

        assert runs.get(quick)["ending"]["stdout"] == "done\n"
        assert runs.get(once)["ended_by"] == "node_lost"
        assert (runs.state(again), runs.get(again)["attempt"]) == ("running", 2)
        runs.cancel(again)
        eventually_equal(partial(runs.state, again), "cancelled", WITHIN_S)


def test_a_run_ends_when_its_client_leaves_its_key_is_revoked_or_it_is_cancelled(site: Site) -> None:
    with up(site) as gateway:
        add_task(gateway.http, "long", LONG)
        add_task(gateway.http, "quick", AT_ONCE)
        runs = Runs(gateway.http)
        made = gateway.http.post("/admin/api/keys", json={"key_id": "ada", "role": "agent"}).json()
        with agent(gateway, made["secret"]) as http:
            revoked = Runs(http).begin("long")
            runs.begun(revoked)
            gateway.http.delete("/admin/api/keys/ada")
            eventually_equal(lambda: runs.get(revoked)["ended_by"], "revoked", WITHIN_S)

        ran = gateway.cli("run", "quick", "--idempotency-key", "once")
        again = gateway.cli("run", "quick", "--idempotency-key", "once", "--json")
        assert (ran.code, ran.out, ran.err) == (0, "done\n", "info  begun\n")
        assert len(gateway.get("/api/v1/tasks/quick/invocations")["invocations"]) == 1
        assert again.json["ending"]["stdout"] == "done\n"

        ask_and_go_away(gateway)
        interrupted = interrupt_run(gateway)
        eventually_equal(lambda: states(gateway, "long"), ["cancelled"] * 3, WITHIN_S)

        assert interrupted == 130


def states(gateway: Gateway, task_id: str) -> list[str]:
    return [one["state"] for one in gateway.get(f"/api/v1/tasks/{task_id}/invocations")["invocations"]]


def agent(gateway: Gateway, secret: str) -> httpx2.Client:
    headers = {"authorization": f"Bearer {secret}"}
    return httpx2.Client(
        base_url=gateway.url, headers=headers, timeout=60, trust_env=False, verify=UNTRUSTING
    )


def ask_and_go_away(gateway: Gateway) -> None:
    """A client that closes its connection while the run it asked for sleeps."""
    with closing(HTTPConnection(gateway.address, timeout=WITHIN_S)) as line:
        line.request("POST", "/api/v1/tasks/long/invocations", "{}", {"content-type": "application/json"})
        eventually(lambda: "running" in states(gateway, "long"), WITHIN_S)


def interrupt_run(gateway: Gateway) -> int:
    """The exit code of `toolgate run` that gets a Ctrl-C while its guest sleeps."""
    process = subprocess.Popen(
        [TOOLGATE, "run", "long"], stderr=subprocess.PIPE, env=environment({"TOOLGATE_URL": gateway.url})
    )
    with process:
        assert process.stderr is not None
        assert process.stderr.readline() == b"info  begun\n"
        process.send_signal(signal.SIGINT)
        return process.wait(WITHIN_S)


@pytest.fixture(params=DATABASES)
def database(request: pytest.FixtureRequest) -> Iterator[str | None]:
    if request.param == "SQLite":
        yield None
        return
    with own_server() as server:
        yield server.create_database()


@pytest.mark.soak
def test_what_a_node_leaves_unfinished_another_finishes(tmp_path: Path, database: str | None) -> None:
    with ExitStack() as stack:
        fleet = Fleet(tmp_path, database, stack, program=SHORT)
        control = fleet.add_control().gateway
        for _ in range(2):
            fleet.add_node(TOOLGATE_MAX_GUESTS="1")
        fleet.reaches_all(add_task(control.http, "again", SHORTLY, retries=1))
        runs = Runs(control.http)
        elsewhere = fleet.nodes[0].gateway.http.get("/api/v1/tasks/again/invocations")
        for left in reversed(range(rounds(suite=1, soak=20))):
            run = runs.begin("again")
            runs.begun(run)
            (busy,) = [node for node in fleet.nodes if node.gauge("toolgate_guests")]
            busy.kill()
            eventually_equal(partial(runs.state, run), "succeeded", WITHIN_S)

            ended: Mapping[str, Any] = runs.get(run)
            assert (ended["attempt"], ended["ending"]["stdout"]) == (2, "done\n")
            assert runs.lines(run) == ["begun", "begun", "done"]
            if left:
                busy.start()
                eventually(busy.gateway.is_ready, START_S)
        assert elsewhere.status_code == 404
        assert "control plane at" in elsewhere.json()["error"]["hint"]
    fleet.check_gone()
