"""Policy from the command line to open connections: apply, explain, plan, and every client sees it."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import groupby
from typing import Any

import httpx2
import pytest

from tests.eventually import eventually_equal
from tests.forked_programs import forked
from tests.scenarios.clients import UNTRUSTING, ModernClient
from tests.scenarios.gateway import Gateway, Site, running
from tests.scenarios.in_process import cli

pytestmark = pytest.mark.xdist_group("scenario-policy")

LIST_CHANGED = "notifications/tools/list_changed"
APPROVALS = "tools=complain,echo,environment,hang,pid,wait"


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    site = Site(tmp_path_factory.mktemp("policy"))
    command, *args = forked("mcp-server-time")
    clock = {"command": command, "args": args}
    site.place(
        site.stage("desk", APPROVALS, allowed_tools=["echo", "pid", "wait", "hang"]),
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


def decisions(response: Any, kind: str) -> list[tuple[Any, ...]]:
    return [
        (f"{one['server_id']}/{one['tool']}", one["layer"], one["reason"], one["rule"])
        for one in response[kind]
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
        response = gateway.modern("/api/mcp/t/shown").call(f"desk.{one['tool']}", text="x")
        assert ("result" in response) == one["allowed"]


def test_plan_shows_what_a_change_would_do_to_each_task_and_changes_nothing(gateway: Gateway) -> None:
    apply_task(gateway, "narrow", default_server_ids=["desk"], tool_allowlist=["pid"])
    apply_task(gateway, "wide", default_server_ids=["desk"])
    apply_task(gateway, "other", default_server_ids=["clock"])
    before = gateway.get("/healthz")["revision"]
    file = gateway.site.root / "desk-to-be.json"
    file.write_text(
        json.dumps(gateway.site.stage("desk", APPROVALS, allowed_tools=["echo", "environment"])), "utf-8"
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
        notified = next(method for method in changes if method == LIST_CHANGED)
        after = client.tools()
        withdrawn = client.call("desk.echo", text="x")

    assert (before, notified, after) == (["desk.echo"], LIST_CHANGED, ["desk.pid"])
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
    reply = client.text("guest.echo", text="hello")
    deleted = cli(gateway, "servers", "delete", "guest", "--json")

    assert (applied.code, tested.code, deleted.code) == (0, 0, 0)
    assert applied.json["server"]["server_id"] == "guest"
    assert (tested.json["ok"], tested.json["era"], tested.json["tools"]) == (True, "modern", ["echo", "pid"])
    assert (listed, reply) == (["guest.echo"], "hello")
    assert client.tools() == []
    assert gateway.http.get("/admin/api/mcp/servers/guest").status_code == 404


def test_testing_a_server_that_cannot_start_says_why(gateway: Gateway) -> None:
    record = gateway.site.server("broken", stdio={"command": "/nowhere/at/all"})
    gateway.put("/admin/api/mcp/servers/broken", record)

    ran = cli(gateway, "servers", "test", "broken", "--json")

    assert (ran.code, ran.json["ok"], ran.json["error"]) == (1, False, "there is no file `/nowhere/at/all`")


@contextmanager
def caller_of(gateway: Gateway, key_id: str, path: str) -> Iterator[ModernClient]:
    """A client with a key of its own."""
    made = gateway.http.post("/admin/api/keys", json={"key_id": key_id, "role": "agent"})
    headers = {"authorization": f"Bearer {made.raise_for_status().json()['secret']}"}
    with httpx2.Client(
        base_url=gateway.url, timeout=60, trust_env=False, verify=UNTRUSTING, headers=headers
    ) as http:
        yield ModernClient(http, gateway.url + path)


def roll(gateway: Gateway, *words: str) -> Any:
    ran = cli(gateway, "profiles", *words, "--json")
    assert ran.code == 0, ran.err
    return ran.json


def compared(gateway: Gateway) -> list[tuple[int, int, int]]:
    found = roll(gateway, "compare", "staged")["versions"]
    return [(each["version"], each["calls"], each["denied"]) for each in found]


def offered_to_early(gateway: Gateway) -> list[str]:
    events = gateway.get("/admin/api/audit?type=scope&principal=key:early&task=staged")["events"]
    return [version for version, _ in groupby(each["profile"] for each in reversed(events))]


@pytest.mark.requirement("000-38")
def test_a_profile_is_rolled_out_to_a_share_compared_promoted_and_rolled_back(gateway: Gateway) -> None:
    gateway.put("/admin/api/profiles/staged", {"servers": ["desk"], "allow": ["echo"]})
    apply_task(gateway, "staged", profile="staged")
    path = "/api/mcp/t/staged"
    # Of version 2, `key:early` draws below 50 % and `key:later` above: see `draw_bucket`.
    with caller_of(gateway, "early", path) as early, caller_of(gateway, "later", path) as late:
        words = ("staged", "--allow", "echo", "--allow", "pid", "--share", "50")
        planned = roll(gateway, "rollout", *words, "--dry-run")
        begun = roll(gateway, "rollout", *words, "--require-plan", planned["id"])
        seen = [early.tools(), late.tools()]
        calls = ["result" in early.call("desk.pid"), "result" in late.call("desk.pid")]
        explained = cli(gateway, "explain", "--task", "staged", "--key", "early").out
        other = cli(
            gateway, "explain", "--task", "staged", "--key", "early", "--side", "stable", "--json"
        ).json
        metrics = gateway.http.get("/metrics").text
        with late.changes() as changes:
            next(changes)
            roll(gateway, "promote", "staged")
            notified = next(method for method in changes if method == LIST_CHANGED)
            promoted = [early.tools(), late.tools()]
        roll(gateway, "rollout", "staged", "--allow", "wait", "--share", "1")
        again = roll(gateway, "rollout", "staged", "--share", "100")
        third = [early.tools(), late.tools()]
        with early.changes() as changes:
            next(changes)
            ended = roll(gateway, "rollback", "staged")
            next(method for method in changes if method == LIST_CHANGED)
            back = [early.tools(), late.tools()]

    both, one = ["desk.echo", "desk.pid"], ["desk.echo"]
    assert [(each["added"], each["share"]) for each in planned["tasks"]] == [(["desk/pid"], 50)]
    assert (begun["profile"]["version"], begun["profile"]["rollout"]["version"]) == (1, 2)
    assert (seen, calls, notified, promoted) == ([both, one], [True, False], LIST_CHANGED, [both, both])
    assert "profile staged version 2 (candidate, 50 % of callers)" in explained
    assert [each["side"] for each in other["profiles"]] == ["stable"]
    assert 'toolgate_profile_calls_total{profile="staged",side="candidate"} 1' in metrics
    assert (
        'toolgate_profile_call_errors_total{code="unknown_tool",profile="staged",side="stable"} 1' in metrics
    )
    assert (again["profile"]["version"], again["profile"]["rollout"]["version"]) == (2, 3)
    assert (third, back, ended["profile"].get("rollout")) == ([["desk.wait"]] * 2, [both, both], None)
    eventually_equal(lambda: compared(gateway), [(1, 0, 1), (2, 1, 0)])
    eventually_equal(lambda: offered_to_early(gateway), ["staged@2", "staged@3", "staged@2"])


def test_a_candidate_comes_from_a_file_and_a_profile_without_one_has_nothing_to_promote(
    gateway: Gateway,
) -> None:
    gateway.put("/admin/api/profiles/filed", {"version": 7, "servers": ["desk"], "allow": ["echo"]})
    file = gateway.site.root / "next.toml"
    file.write_text('servers = ["desk"]\nallow = ["pid"]\n[environments.dev]\nallow = ["wait"]\n', "utf-8")

    begun = roll(gateway, "rollout", "filed", "--file", str(file), "--share", "100", "--by", "task")[
        "profile"
    ]
    shown = gateway.modern("/api/mcp?profile=filed").tools()
    listed = cli(gateway, "profiles", "list").out
    roll(gateway, "rollback", "filed")
    nothing = [cli(gateway, "profiles", word, "filed") for word in ("promote", "rollback")]
    back = roll(gateway, "rollback", "filed", "--to", str(begun["revision"]))["profile"]

    candidate = {"servers": ["desk"], "allow": ["pid"], "deny": [], "version": 8, "share": 100, "by": "task"}
    assert begun["rollout"] == {**candidate, "environments": {"dev": {"allow": ["wait"], "deny": []}}}
    assert (shown, back["rollout"]) == (["desk.pid"], begun["rollout"])
    assert "8 (100 % of tasks)" in listed
    assert [ran.code for ran in nothing] == [2, 2]
    assert all("profile `filed` has no rollout" in ran.err for ran in nothing)
