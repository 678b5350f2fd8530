"""Servers over REST beyond their records: trials, previews, imports, and how they fare on nodes."""

import asyncio
import os
from pathlib import Path
from typing import Any, Final

import pytest

from tests.surfaces.rest_world import (
    NOW_MS,
    SERVERS,
    TASKS,
    error_of,
    http,
    open_rest,
    secret_of,
    stdio,
    task,
)
from tests.upstream.memory_link import MemoryNet, MemoryServer, definition
from toolgate.audit.events import AdminRecorded
from toolgate.govern.operator_policy import OperatorPolicy
from toolgate.model.reports import NodeReport, ServerReport
from toolgate.registry.store.export import check_export

pytestmark = pytest.mark.anyio

IMPORT: Final = f"{SERVERS}/import"


def open_world() -> MemoryNet:
    net = MemoryNet()
    net.servers["git"] = MemoryServer(
        tools=[definition("log"), definition("push", description="Pushes."), definition("bad", inputSchema=7)]
    )
    return net


def processes() -> set[str]:
    return {entry.name for entry in Path("/proc").iterdir() if entry.name.isdigit()}


# Trials


async def test_a_test_shows_what_a_choice_among_the_tools_depends_on() -> None:
    net = open_world()
    hints = {"readOnlyHint": True, "destructiveHint": False}
    net.servers["git"].tools = [
        definition("log", description="Reads.", annotations=hints),
        definition("push"),
    ]
    async with open_rest(net) as world:
        tried = await world.post(f"{SERVERS}/git/test", stdio("git"))
        tokens = [one.pop("tokens") for one in tried["found"]]

        assert tried["found"] == [
            {"name": "log", "description": "Reads.", "effects": ["read_only"]},
            {"name": "push", "description": "", "effects": []},
        ]
        assert min(tokens) > 0


async def test_a_server_shows_how_many_of_its_tools_are_offered_and_why_not_more() -> None:
    async with open_rest(open_world()) as world:
        await world.seed(server=[stdio("git", allowed_tools=[])])
        (none,) = (await world.get(SERVERS))["servers"]
        await world.put(f"{SERVERS}/git", stdio("git", allowed_tools=["log"]))
        (some,) = (await world.get(SERVERS))["servers"]
        await world.put(f"{SERVERS}/git", some)

        assert none["offer"] == {"offered": 0, "listed": 3, "reason": "deny_all"}
        assert some["offer"] == {"offered": 1, "listed": 3, "reason": "invalid_definition"}


async def test_a_draft_is_tried_and_not_saved() -> None:
    async with open_rest(open_world()) as world:
        tried = await world.post(f"{SERVERS}/git/test", stdio("git"))
        missing = await world.request("POST", f"{SERVERS}/git/test")

        assert (tried["ok"], tried["tools"]) == (True, ["log", "push"])
        assert (await world.store.list("server")).records == ()
        assert world.audited == [AdminRecorded(NOW_MS, "local", "test", "server", "git", revision=1)]
        assert error_of(missing) == (404, "not_found")


@pytest.mark.parametrize("role", ["viewer", "publisher", "agent", "node"])
async def test_adm_3_who_may_not_save_a_program_starts_none(role: str) -> None:
    async with open_rest() as world:
        await world.seed(server=[stdio("idle", enabled=False)])
        before = processes()
        responses = [
            await world.request("POST", f"{SERVERS}/{name}/test", stdio(name), key=secret_of(role))
            for name in ("idle", "evil")
        ]

        assert [error_of(one) for one in responses] == [(403, "forbidden")] * 2
        assert dict(world.net.servers) == {}
        assert {one for one in processes() - before if _is_child(one)} == set()


def _is_child(pid: str) -> bool:
    """Whether it is our one: other tests run next to this one."""
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return False
    return f"\nPPid:\t{os.getpid()}\n" in status


@pytest.mark.parametrize(
    "draft",
    [
        stdio("git", stdio={"command": "/bin/sh"}),
        stdio("git", stdio={"command": "other"}),
        stdio("other"),
        stdio("git", tool_namespace="mcp.taken"),
        stdio("git", stdio={"args": ["--token", "***"]}),
        {"transport": "stdio"},
    ],
)
async def test_adm_3_what_may_not_be_saved_is_never_started(draft: dict[str, Any]) -> None:
    async with open_rest(operator_policy=OperatorPolicy(allowed_commands=("serve",))) as world:
        await world.seed(server=[http("taken", tool_namespace="mcp.taken")])
        tried = await world.request("POST", f"{SERVERS}/git/test", draft)
        saved = await world.request("PUT", f"{SERVERS}/git", draft)

        assert error_of(tried) == error_of(saved) == (400, "invalid_record")
        assert tried.json() == saved.json()
        assert dict(world.net.servers) == {}


# Previews


@pytest.mark.requirement("002-084")
async def test_the_tools_of_a_server_show_with_their_names_and_what_becomes_of_them() -> None:
    async with open_rest(open_world()) as world:
        await world.seed(
            server=[stdio("git", allowed_tools=["log"])],
            task=[task("review", default_server_ids=["git"], tool_denylist=["log"])],
        )
        shown = await world.get(f"{SERVERS}/git/tools", key=secret_of("viewer"))
        narrowed = await world.get(f"{SERVERS}/git/tools?task=review")
        found = {one["tool"]: one for one in shown["tools"]}

        assert (shown["state"], shown["is_stale"]) == ("ready", False)
        assert {name: (one["allowed"], one["reason"]) for name, one in found.items()} == {
            "bad": (False, "invalid_definition"),
            "log": (True, None),
            "push": (False, "not_in_server_allowlist"),
        }
        assert {(one["name"], one["chat_name"]) for one in shown["tools"]} == {
            ("git.bad", "mcp__git__bad"),
            ("git.log", "mcp__git__log"),
            ("git.push", "mcp__git__push"),
        }
        assert (found["push"]["description"], found["bad"]["digest"]) == ("Pushes.", None)
        assert shown["tokens"] == found["log"]["tokens"] > 0
        assert [one["reason"] for one in narrowed["tools"] if one["tool"] == "log"] == ["denied_by_task"]


async def test_sco_2_prompts_and_resources_show_with_what_becomes_of_them() -> None:
    notes = MemoryServer(
        capabilities={"tools": {}, "prompts": {}, "resources": {}},
        prompts=[b'{"name":"greet"}', b'{"name":"bye"}'],
        resources=[b'{"uri":"note://1","name":"one"}'],
        templates=[b'{"uriTemplate":"note://{id}","name":"any"}'],
    )
    agent = secret_of("agent")
    async with open_rest(MemoryNet(notes=notes)) as world:
        await world.seed(server=[stdio("notes", allowed_tools=["prompt:greet", "resource:note://*"])])
        shown = await world.get(f"{SERVERS}/notes/tools")
        scope = await world.get("/api/v1/mcp/scope", key=agent)
        explained = await world.get("/api/v1/mcp/explain", key=agent)
        reached = await world.get("/api/v1/mcp/servers", key=agent)
        hidden = await world.get("/api/v1/mcp/explain?tool=prompt:bye")

        assert {one["tool"]: one["reason"] for one in shown["others"]} == {
            "prompt:bye": "not_in_server_allowlist",
            "prompt:greet": None,
            "resource:note://1": None,
            "resource:note://{id}": None,
        }
        assert (scope["tools"], scope["prompts"], scope["resources"]) == (
            [],
            ["notes.greet"],
            ["note://1", "note://{id}"],
        )
        assert scope["servers"] == ["notes"]
        assert [one["tool"] for one in explained["tools"]] == [
            "prompt:greet",
            "resource:note://1",
            "resource:note://{id}",
        ]
        assert [(one["server_id"], one["tools"]) for one in reached["servers"]] == [("notes", 0)]
        assert [one["reason"] for one in hidden["tools"]] == ["not_in_server_allowlist"]


async def test_a_preview_of_what_is_not_there_says_so() -> None:
    async with open_rest() as world:
        await world.seed(server=[http("web")])
        missing = await world.request("GET", f"{SERVERS}/none/tools")
        task_id = await world.request("GET", f"{SERVERS}/web/tools?task=none")
        odd = await world.request("GET", f"{SERVERS}/web/tools?task=%20")

        assert [error_of(one)[0] for one in (missing, task_id, odd)] == [404, 404, 400]


# Nodes


async def test_nodes_show_as_they_report_and_servers_on_each() -> None:
    def report(node_id: str, age_ms: int, state: Any) -> NodeReport:
        server = ServerReport(server_id="git", state=state, last_error="token=hidden", tools=2, restarts=1)
        return NodeReport(
            node_id=node_id, url="http://n", version="1", revision=1, at_ms=NOW_MS - age_ms, servers=(server,)
        )

    async with open_rest() as world:
        await world.seed(server=[http("git"), http("web")])
        await world.store.reports.save_report(report("a", 1_500, "down"))
        await world.store.reports.save_report(report("b", 30_001, "connected"))
        nodes = await world.get("/admin/api/nodes", key=secret_of("viewer"))
        servers = (await world.get(SERVERS))["servers"]

        assert [(one["node_id"], one["is_lost"], one["age_s"], one["servers"]) for one in nodes["nodes"]] == [
            ("a", False, 1.5, 1),
            ("b", True, 30.001, 1),
        ]
        assert [one["nodes"] for one in servers] == [
            [
                {
                    "node_id": "a",
                    "state": "down",
                    "last_error": "token=***",
                    "hint": "",
                    "tools": 2,
                    "restarts": 1,
                    "since_ms": 0,
                    "verified_ms": 0,
                }
            ],
            [],
        ]


# What every process says


async def test_rep_4_a_reader_waits_for_the_revision_it_names_or_is_shown() -> None:
    async with open_rest() as world:
        waiting = asyncio.create_task(world.request("GET", TASKS, toolgate_min_revision="2"))
        await asyncio.sleep(0)
        written = await world.put(f"{TASKS}/review", task("review"))
        reached = await waiting
        scope = await world.request(
            "GET", "/api/v1/mcp/scope", toolgate_min_revision=str(written["revision"])
        )
        odd = await world.request("GET", TASKS, toolgate_min_revision="x")

        assert [one["task_id"] for one in reached.json()["tasks"]] == ["review"]
        assert reached.headers["toolgate-revision"] == "2"
        assert scope.json()["revision"] == 2
        assert error_of(odd) == (400, "invalid_request")


async def test_rep_4_a_revision_that_does_not_come_is_412() -> None:
    async with open_rest(max_revision_wait_s=0.01) as world:
        response = await world.request("GET", SERVERS, toolgate_min_revision="99")

        assert error_of(response) == (412, "revision_not_reached")
        assert response.json()["error"]["data"] == {"revision": 1}


async def test_a_backup_is_one_whole_export_for_its_owner_only(tmp_path: Path) -> None:
    async with open_rest(data_dir=tmp_path) as world:
        await world.seed(server=[http("git")])
        response = await world.request("POST", "/admin/api/backup")
        path = Path(response.json()["path"])

        assert response.status_code == 201
        assert path.parent == tmp_path.resolve()
        assert path.stat().st_mode & 0o077 == 0
        assert (response.json()["revision"], response.json()["records"]) == (2, 6)
        assert check_export(path).revision == 2
        assert [one.operation for one in world.audited] == ["backup"]


# What agents see


async def test_an_agent_sees_its_scope_and_the_state_of_what_it_reaches_and_nothing_else() -> None:
    net = open_world()
    net.servers["hidden"] = MemoryServer(tools=[definition("secret")])
    agent = secret_of("agent")
    async with open_rest(net) as world:
        await world.seed(
            server=[stdio("git"), stdio("hidden", allowed_tools=[])],
            task=[task("review", default_server_ids=["git"], tool_denylist=["push"])],
        )
        servers = await world.get("/api/v1/mcp/servers", key=agent)
        health = await world.get("/api/v1/mcp/health", key=agent)
        scope = await world.get("/api/v1/mcp/scope?task=review", key=agent)
        seen = await world.get("/api/v1/mcp/servers/git", key=agent)
        hidden = await world.request("GET", "/api/v1/mcp/servers/hidden", key=agent)
        missing = await world.request("GET", "/api/v1/mcp/servers/not-there", key=agent)

        assert [one["server_id"] for one in servers["servers"]] == ["git"]
        assert seen == servers["servers"][0]
        assert health == {"revision": 2, "degraded": False, "servers": {"git": "connected"}}
        assert {**scope, "tokens": 0, "prices": {}, "registered_tokens": 0} == {
            "revision": 2,
            "url": "http://127.0.0.1:8080/api/mcp/t/review",
            "task_id": "review",
            "servers": ["git"],
            "tools": ["git.log"],
            "prompts": [],
            "resources": [],
            "tokens": 0,
            "warnings": [],
            "refusal": None,
            "prices": {},
            "registered_tools": 2,
            "registered_tokens": 0,
            "mode": "list",
            "shadowed": [],
        }
        assert hidden.status_code == missing.status_code == 404
        assert hidden.text.replace("hidden", "…") == missing.text.replace("not-there", "…")


async def test_a_scope_that_is_refused_says_why() -> None:
    async with open_rest(open_world()) as world:
        await world.seed(server=[stdio("git")], task=[task("review", default_server_ids=[])])
        scope = await world.get("/api/v1/mcp/scope?task=review&servers=git")

        assert (scope["tools"], scope["servers"]) == ([], [])
        assert scope["refusal"]["code"] == "mcp_policy_denied"


# Who may have programs started


@pytest.mark.requirement("002-003")
@pytest.mark.parametrize("role", ["viewer", "publisher", "agent"])
async def test_adm_4_only_an_administrator_has_a_program_started_in_whatever_way_it_is_asked_for(
    role: str,
) -> None:
    async with open_rest(open_world(), trusts_local=False) as world:
        await world.seed(server=[http("web"), stdio("git")])
        before = await world.store.list("server")
        key = secret_of(role)
        changed = {"kind": "server", "id": "web", "body": stdio("web")}
        refused = [
            await world.request("POST", SERVERS, stdio("new"), key=key),
            await world.request("PUT", f"{SERVERS}/web", stdio("web"), key=key),
            await world.request("PUT", f"{SERVERS}/git", stdio("git", stdio={"command": "other"}), key=key),
            await world.request("POST", f"{SERVERS}/git/rollback", {"revision": 1}, key=key),
            await world.request("POST", "/admin/api/apply", {"changes": [changed]}, key=key),
            await world.request(
                "POST", IMPORT, {"content": {"mcpServers": {"a": {"command": "npx"}}}}, key=key
            ),
        ]

        assert [error_of(one) for one in refused] == [(403, "forbidden")] * 6
        assert await world.store.list("server") == before


async def test_who_writes_a_secret_into_a_record_is_shown_of_a_better_place() -> None:
    async with open_rest(open_world()) as world:
        sent = stdio("git", stdio={"env": {"API_KEY": "hunter2", "OTHER_KEY": "${ENV:OTHER_KEY}"}})
        written = await world.put(f"{SERVERS}/git", sent)

        assert written["warnings"] == [
            "server `git`, `stdio.env.API_KEY`: the record contains a secret as plain text; use `${ENV:NAME}`"
        ]
