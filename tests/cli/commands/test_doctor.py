"""`doctor`: what it finds and what it advises."""

import json
import socket
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import Run
from tests.cli.fake_gateway import FakeGateway
from tests.cli.responses import health, node, server
from tests.cli.screen import shown
from tests.scenarios.collector import open_collector
from toolgate import __version__
from toolgate.cli.commands.doctor import (
    Diagnosis,
    diagnose_data_directory,
    diagnose_gateway,
    diagnose_node,
    diagnose_open_files,
    diagnose_pin,
    diagnose_port,
    diagnose_scope,
    diagnose_server,
    render_findings,
)


@pytest.mark.parametrize(
    ("error", "remedy"),
    [
        pytest.param(
            "environment variable `GH_TOKEN` is not set",
            "set `GH_TOKEN` where the gateway runs and start it again, then `toolgate servers refresh git`",
            id="env_missing names the variable",
        ),
        pytest.param(
            "secret `gh` is not in the environment",
            "put the secret `gh` into the secrets directory, then `toolgate servers refresh git`",
            id="a secret by its name",
        ),
        pytest.param(
            "there is no command `npx` on its PATH",
            "install `npx`, or write its full path as `stdio.command`, then `toolgate servers refresh git`",
            id="a missing command by its name",
        ),
        pytest.param(
            "its working directory `/x` cannot be entered: no such file or directory",
            "make `/x`, or correct `stdio.cwd`, then `toolgate servers refresh git`",
            id="a missing directory",
        ),
        pytest.param(
            "`/x/run` may not be executed: permission denied",
            "make it executable: chmod +x /x/run, then `toolgate servers refresh git`",
            id="no execute bit",
        ),
        pytest.param(
            "no connection within 10 s",
            "run its command yourself to see what it waits for, then `toolgate servers refresh git`",
            id="too slow",
        ),
        pytest.param(
            "it rejected `initialize`: no",
            "see its last output with `toolgate servers test git`",
            id="anything else",
        ),
    ],
)
def test_a_server_that_is_down_comes_with_its_remedy(error: str, remedy: str) -> None:
    one = server(health=health(state="down", last_error=error))

    assert diagnose_server(one) == Diagnosis("problem", "server git", error, remedy)


def test_an_http_server_is_looked_for_at_its_url() -> None:
    one = server(
        transport="streamable_http",
        http={"url": "https://x.example/mcp"},
        health=health(state="degraded", last_error="connection refused"),
    )

    assert diagnose_server(one) == Diagnosis(
        "warning",
        "server git",
        "connection refused",
        "see that the server answers at `https://x.example/mcp`, then `toolgate servers refresh git`",
    )


@pytest.mark.parametrize(
    ("one", "expected"),
    [
        pytest.param(server(), Diagnosis("ok", "server git", "connected, 12 tools"), id="well"),
        pytest.param(server(health=None), Diagnosis("ok", "server git", "not checked so far"), id="new"),
        pytest.param(
            server(health=health(state="disabled"), allowed_tools=[]),
            Diagnosis("ok", "server git", "disabled by its record"),
            id="disabled",
        ),
        pytest.param(
            server(allowed_tools=[]),
            Diagnosis(
                "problem",
                "server git",
                "no tools are allowed (deny_all)",
                'list patterns in `allowed_tools`, `["*"]` for all, and apply the record again',
            ),
            id="deny_all",
        ),
        pytest.param(
            server(health=health(quarantined=1)),
            Diagnosis(
                "warning",
                "server git",
                "1 definition rejected",
                "see why with `toolgate servers tools git`",
            ),
            id="quarantined definitions",
        ),
    ],
)
def test_each_state_of_a_server_has_its_finding(one: dict[str, object], expected: Diagnosis) -> None:
    assert diagnose_server(one) == expected


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, Diagnosis("ok", "node a", "serves revision 17, 4 servers")),
        (
            {"is_degraded": True},
            Diagnosis(
                "warning",
                "node a",
                "degraded: it serves revision 17 and lost the control plane",
                "see its `/healthz` for the reason",
            ),
        ),
        (
            {"is_lost": True, "age_s": 95.0},
            Diagnosis(
                "problem",
                "node a",
                "no report for 95 s",
                "check that it runs and reaches the control plane",
            ),
        ),
    ],
    ids=["follows", "degraded", "lost"],
)
def test_each_node_has_its_finding(changes: dict[str, object], expected: Diagnosis) -> None:
    assert diagnose_node(node("a", **changes)) == expected


def test_the_installation_is_judged_too() -> None:
    assert diagnose_gateway({"version": "0", "revision": 1}, own_version="1").level == "warning"
    assert diagnose_gateway({"version": "1", "revision": 1}, own_version="1").level == "ok"
    assert diagnose_gateway(
        {"version": "1", "reasons": [{"code": "audit_unwritable", "hint": "free space"}]}, own_version="1"
    ) == Diagnosis("warning", "gateway", "the gateway is degraded: `audit_unwritable`", "free space")
    assert diagnose_data_directory("/d", None, is_writable=False).level == "ok"
    assert diagnose_data_directory("/d", 0o700, is_writable=False).level == "problem"
    assert diagnose_data_directory("/d", 0o755, is_writable=True).remedy == "make it private: chmod 700 /d"
    assert diagnose_data_directory("/d", 0o700, is_writable=True).level == "ok"
    assert diagnose_open_files(256).level == "warning"
    assert diagnose_open_files(4096).level == "ok"
    assert diagnose_port("h:1", is_free=True).remedy == "start it: toolgate up"
    assert shown(render_findings([Diagnosis("ok", "", ""), Diagnosis("warning", "", "")]))[-1] == "1 warning"
    assert shown(render_findings([]))[-1] == "no problems"


@pytest.fixture
def data(tmp_path: Path) -> str:
    path = tmp_path / "data"
    path.mkdir(mode=0o700)
    return str(path)


def respond_with_scopes(gateway: FakeGateway, **task: Any) -> None:
    """One task without a finding, except those in `task`."""
    gateway.respond("GET /api/v1/mcp/scope", {"refusal": None, "warnings": []})
    overview = {"task_id": "ops", "refusal": None, "warnings": []} | task
    gateway.respond("GET /admin/api/mcp/tasks-overview", {"tasks": [overview]})


def test_a_scope_over_the_limit_is_a_warning_and_one_that_is_refused_a_problem() -> None:
    refusal = {"code": "too_many_tools", "message": "the scope has 131 tools", "hint": "narrow it"}
    warned = {"refusal": None, "warnings": ["the scope has 131 tools"]}
    remedy = "see the tools and the rules with `toolgate explain"

    assert diagnose_scope("task ops", {"refusal": refusal, "warnings": []}) == [
        Diagnosis("problem", "task ops", "the scope has 131 tools", "narrow it")
    ]
    assert diagnose_scope("task ops", warned) == [
        Diagnosis("warning", "task ops", "the scope has 131 tools", f"{remedy} --task ops`")
    ]
    assert diagnose_scope("scope without a task", warned) == [
        Diagnosis("warning", "scope without a task", "the scope has 131 tools", f"{remedy}`")
    ]


def test_a_key_bound_to_tasks_has_no_scope_without_one(gateway: FakeGateway, run: Run, data: str) -> None:
    gateway.respond("GET /healthz", {"status": "ok", "version": __version__, "revision": 4})
    gateway.respond("GET /admin/api/mcp/servers", {"revision": 4, "servers": [server()]})
    gateway.respond("GET /admin/api/nodes", {"revision": 4, "nodes": []})
    gateway.respond("GET /admin/api/pins", {"revision": 4, "pins": []})
    gateway.respond("GET /admin/api/lint", {"findings": []})
    respond_with_scopes(gateway, warnings=["too many"])
    gateway.refuse("GET /api/v1/mcp/scope", "not_found", "name a task", status=404)

    ran = run("doctor", "--data", data)

    assert ran.code == 0
    assert "too many" in ran.out


def test_a_healthy_installation_ends_with_0(gateway: FakeGateway, run: Run, data: str) -> None:
    gateway.respond("GET /healthz", {"status": "ok", "version": __version__, "revision": 4})
    gateway.respond("GET /admin/api/mcp/servers", {"revision": 4, "servers": [server()]})
    gateway.respond("GET /admin/api/nodes", {"revision": 4, "nodes": []})
    gateway.respond("GET /admin/api/pins", {"revision": 4, "pins": []})
    gateway.respond("GET /admin/api/lint", {"findings": []})
    respond_with_scopes(gateway)

    ran = run("doctor", "--data", data)

    assert ran.code == 0
    assert ran.lines[-1] == "no problems"


@pytest.mark.parametrize(("status", "message"), [(200, "accepts data"), (503, "responded with status 503")])
def test_doctor_sends_a_collector_an_empty_export(
    run: Run, data: str, monkeypatch: pytest.MonkeyPatch, status: int, message: str
) -> None:
    with open_collector() as collector:
        collector.status = status
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.url)
        ran = run("doctor", "--data", data)

    assert message in " ".join(ran.out.split())


def test_problems_come_first_and_end_with_1(gateway: FakeGateway, run: Run, data: str) -> None:
    gateway.respond("GET /healthz", {"status": "ok", "version": __version__, "revision": 4})
    down = server("web", health=health(state="down", last_error="there is no command `npx` on its PATH"))
    gateway.respond("GET /admin/api/mcp/servers", {"revision": 4, "servers": [server(), down]})
    finding = {"where": "task `t`", "rule": "mcp.tool_denylist", "message": "`x` matches nothing"}
    gateway.respond("GET /admin/api/nodes", {"revision": 4, "nodes": []})
    gateway.respond("GET /admin/api/pins", {"revision": 4, "pins": []})
    gateway.respond("GET /admin/api/lint", {"findings": [finding]})
    respond_with_scopes(gateway)

    ran = run("doctor", "--data", data)

    assert ran.code == 1
    assert ran.lines[:5] == [
        "✗  server web  there is no command `npx` on its PATH",
        "               → install `npx`, or write its full path as `stdio.command`, then",
        "               `toolgate servers refresh web`",
        "!  task `t`    `x` matches nothing",
        "               → correct `mcp.tool_denylist`, or delete it",
    ]
    assert ran.lines[-1] == "1 problem, 1 warning"


def test_an_empty_registry_is_worth_a_word(gateway: FakeGateway, run: Run, data: str) -> None:
    gateway.respond("GET /healthz", {"status": "ok", "version": __version__, "revision": 0})
    gateway.respond("GET /admin/api/mcp/servers", {"revision": 0, "servers": []})
    gateway.respond("GET /admin/api/nodes", {"revision": 4, "nodes": []})
    gateway.respond("GET /admin/api/pins", {"revision": 4, "pins": []})
    gateway.respond("GET /admin/api/lint", {"findings": []})
    respond_with_scopes(gateway)

    ran = run("doctor", "--data", data, "--json")

    findings = [json.loads(line) for line in ran.out.splitlines()]
    assert ran.code == 0
    assert ("warning", "servers") in {(one["level"], one["where"]) for one in findings}


def test_a_key_that_does_not_reach_far_enough_is_a_finding(gateway: FakeGateway, run: Run, data: str) -> None:
    gateway.respond("GET /healthz", {"status": "ok", "version": __version__, "revision": 4})
    gateway.refuse("GET /admin/api/mcp/servers", "forbidden", "this needs the role `viewer`", status=403)

    ran = run("doctor", "--data", data)

    assert ran.code == 1
    assert "✗  gateway  this needs the role `viewer`" in ran.lines


def test_where_nothing_listens_the_advice_is_to_start(run: Run, data: str) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]

    ran = run("doctor", "--data", data, "--url", f"http://127.0.0.1:{port}")

    assert ran.code == 1
    assert f"✗  gateway  nothing listens at 127.0.0.1:{port}" in ran.lines
    assert "            → start it: toolgate up" in ran.lines


def test_tools_that_wait_for_approval_are_found_with_the_way_to_look_at_them() -> None:
    pin = {"server_id": "git", "tools": {"log": "0" * 64}, "waiting": ["log"]}

    assert diagnose_pin({**pin, "waiting": []}) is None
    assert diagnose_pin(pin) == Diagnosis(
        "warning",
        "pin git",
        "1 tool is quarantined: new or changed since approval",
        "see what changed with `toolgate pins review git`, then `toolgate pins approve git`",
    )


@pytest.mark.parametrize("is_here", [True, False])
def test_the_data_directory_is_the_one_the_gateway_uses(
    gateway: FakeGateway, run: Run, data: str, *, is_here: bool
) -> None:
    used = data if is_here else f"{data}/elsewhere"
    gateway.respond("GET /admin/api/data-directory", {"path": used})

    ran = run("doctor", "--json")

    found = next(one for one in map(json.loads, ran.out.splitlines()) if one["where"] == "data")
    assert (found["level"], used in found["message"]) == ("ok", True)
    assert "does not exist yet" not in found["message"]


def test_without_a_gateway_the_data_directory_is_that_of_its_settings(
    run: Run, tmp_path: Path, data: str
) -> None:
    config = tmp_path / "toolgate.toml"
    config.write_text(f'data_dir = "{data}"\n', "utf-8")

    ran = run("doctor", "--config", str(config), "--url", "http://127.0.0.1:9", "--json")

    assert (
        data
        in next(one for one in map(json.loads, ran.out.splitlines()) if one["where"] == "data")["message"]
    )
