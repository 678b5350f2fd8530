"""Policy from the command line to open connections: apply, explain, plan, and every client sees it."""

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.scenarios.gateway import Gateway, Site, running
from tests.scenarios.in_process import cli

pytestmark = pytest.mark.xdist_group("scenario-policy")

LIST_CHANGED = "notifications/tools/list_changed"
DESK = "tools=complain,echo,environment,hang,pid,wait"


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    site = Site(tmp_path_factory.mktemp("policy"))
    clock = {"command": str(Path(sys.executable).with_name("mcp-server-time"))}
    site.place(
        site.stage("desk", DESK, allowed_tools=["echo", "pid", "wait", "hang"]),
        site.server("clock", stdio=clock),
        site.stage("attic", enabled=False),
    )
    with running(site) as gateway:
        gateway.modern().tools()
        yield gateway


def apply_task(gateway: Gateway, task_id: str, **config: Any) -> None:
    file = gateway.site.root / f"{task_id}.json"
    named = {f"mcp.{name}": value for name, value in ({"enabled": True} | config).items()}
    file.write_text(json.dumps({"task_id": task_id, "config": named}), "utf-8")
    ran = cli(gateway, "tasks", "apply", "-f", str(file))
    assert ran.code == 0, ran.err


def decisions(answer: Any, kind: str) -> list[tuple[Any, ...]]:
    return [
        (f"{one['server_id']}/{one['tool']}", one["layer"], one["reason"], one["rule"])
        for one in answer[kind]
        if not one["allowed"]
    ]


def test_explain_names_layer_and_rule_for_everything_that_is_hidden(gateway: Gateway) -> None:
    apply_task(gateway, "explained", default_server_ids=["desk", "clock", "attic"], tool_denylist=["desk/h*"])

    ran = cli(gateway, "explain", "--json", "--task", "explained", "--tools", "desk.echo,desk.hang,clock.*")

    assert (ran.code, ran.err) == (0, "")
    assert [f"{one['server_id']}/{one['tool']}" for one in ran.json["tools"] if one["allowed"]] == [
        "clock/convert_time",
        "clock/get_current_time",
        "desk/echo",
    ]
    assert decisions(ran.json, "tools") == [
        ("desk/complain", "platform", "not_in_server_allowlist", "allowed_tools"),
        ("desk/environment", "platform", "not_in_server_allowlist", "allowed_tools"),
        ("desk/hang", "task", "denied_by_task", "mcp.tool_denylist `desk/h*`"),
        ("desk/pid", "request", "not_in_request_allowlist", "?tools="),
        ("desk/wait", "request", "not_in_request_allowlist", "?tools="),
    ]
    assert decisions(ran.json, "servers") == [("attic/None", "platform", "server_disabled", "enabled")]


def test_what_explain_says_is_what_the_door_shows(gateway: Gateway) -> None:
    apply_task(gateway, "shown", default_server_ids=["desk"], tool_allowlist=["e*", "pid"])

    explained = cli(gateway, "explain", "--json", "--task", "shown").json["tools"]

    allowed = [f"{one['server_id']}.{one['tool']}" for one in explained if one["allowed"]]
    assert allowed == gateway.modern("/api/mcp/t/shown").tools() == ["desk.echo", "desk.pid"]
    for one in explained:
        answer = gateway.modern("/api/mcp/t/shown").call(f"desk.{one['tool']}", text="x")
        assert ("result" in answer) == one["allowed"]


def test_plan_shows_what_a_change_would_do_to_each_task_and_changes_nothing(gateway: Gateway) -> None:
    apply_task(gateway, "narrow", default_server_ids=["desk"], tool_allowlist=["pid"])
    apply_task(gateway, "wide", default_server_ids=["desk"])
    apply_task(gateway, "other", default_server_ids=["clock"])
    before = gateway.get("/healthz")["revision"]
    file = gateway.site.root / "desk-to-be.json"
    file.write_text(
        json.dumps(gateway.site.stage("desk", DESK, allowed_tools=["echo", "environment"])), "utf-8"
    )

    ran = cli(gateway, "plan", "-f", str(file), "--json")

    planned = {
        one["task_id"]: (one["added"], one["removed"])
        for one in ran.json["tasks"]
        if one["task_id"] in {"narrow", "wide", "other"}
    }
    assert (ran.code, planned) == (
        0,
        {
            "narrow": ([], ["desk/pid"]),
            "wide": (["desk/environment"], ["desk/hang", "desk/pid", "desk/wait"]),
        },
    )
    assert gateway.get("/healthz")["revision"] == before
    assert gateway.modern("/api/mcp/t/narrow").tools() == ["desk.pid"]


@pytest.mark.parametrize("era", ["modern", "legacy"])
def test_a_task_that_changes_changes_the_list_of_every_open_client(gateway: Gateway, era: str) -> None:
    apply_task(gateway, "moving", default_server_ids=["desk"], tool_allowlist=["echo"])
    path = "/api/mcp/t/moving"
    client = gateway.modern(path) if era == "modern" else gateway.legacy(path)
    with client.changes() as changes:
        before = client.tools()
        apply_task(gateway, "moving", default_server_ids=["desk"], tool_allowlist=["pid"])
        told = next(method for method in changes if method == LIST_CHANGED)
        after = client.tools()
        withdrawn = client.call("desk.echo", text="x")

    assert (before, told, after) == (["desk.echo"], LIST_CHANGED, ["desk.pid"])
    assert withdrawn["error"]["code"] == -32602
    assert withdrawn["error"]["message"] == "Unknown tool: desk.echo"


@pytest.mark.requirement("002-013")
def test_a_server_is_applied_tested_called_and_deleted_from_the_command_line(gateway: Gateway) -> None:
    file = gateway.site.root / "guest.json"
    file.write_text(
        json.dumps(gateway.site.stage("guest", "modern", "tools=echo,pid", allowed_tools=["echo"])), "utf-8"
    )
    client = gateway.legacy("/api/mcp?servers=guest")

    applied = cli(gateway, "servers", "apply", "-f", str(file), "--json")
    tested = cli(gateway, "servers", "test", "guest", "--json")
    listed = client.tools()
    said = client.text("guest.echo", text="hello")
    deleted = cli(gateway, "servers", "delete", "guest", "--json")

    assert (applied.code, tested.code, deleted.code) == (0, 0, 0)
    assert applied.json["server"]["server_id"] == "guest"
    assert (tested.json["ok"], tested.json["era"], tested.json["tools"]) == (True, "modern", ["echo", "pid"])
    assert (listed, said) == (["guest.echo"], "hello")
    assert client.tools() == []
    assert gateway.http.get("/admin/api/mcp/servers/guest").status_code == 404


def test_testing_a_server_that_cannot_start_says_why(gateway: Gateway) -> None:
    record = gateway.site.server("broken", stdio={"command": "/nowhere/at/all"})
    gateway.put("/admin/api/mcp/servers/broken", record)

    ran = cli(gateway, "servers", "test", "broken", "--json")

    assert (ran.code, ran.json["ok"], ran.json["error"]) == (1, False, "there is no file `/nowhere/at/all`")
