"""Plan, lint, overview and reload over REST: what a change would do is told before it is made."""

import re
from pathlib import Path
from typing import Any

import pytest

from tests.registry.memory_store import MemoryStore
from tests.surfaces.rest_world import (
    BASE_URL,
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
from toolgate.policy.scope import ScopeLimits
from toolgate.registry.files.reload import DirectoryLoader
from toolgate.upstream.connection.contract import StartFailed

pytestmark = pytest.mark.anyio

PLAN = "/admin/api/plan"
LINT = "/admin/api/lint"
OVERVIEW = "/admin/api/mcp/tasks-overview"
RELOAD = "/admin/api/registry/reload"


def open_world() -> MemoryNet:
    git = MemoryServer(tools=[definition("log"), definition("push"), definition("status")])
    return MemoryNet(git=git, notes=MemoryServer(tools=[definition("add")]))


RECORDS: dict[str, list[Any]] = {
    "server": [stdio("git"), stdio("notes")],
    "task": [
        task("review", default_server_ids=["git"], tool_denylist=["push"]),
        task("write", default_server_ids=["notes"], allowed_server_ids=["notes", "git"]),
    ],
}


async def test_a_plan_shows_what_each_task_would_gain_and_lose_and_changes_nothing() -> None:
    async with open_rest(open_world()) as world:
        await world.seed(**RECORDS)
        before = await world.store.list()
        narrower = stdio("git", allowed_tools=["log"])
        plan = await world.post(
            PLAN, {"kind": "server", "id": "git", "body": narrower}, key=secret_of("viewer")
        )
        await world.served()

        assert re.fullmatch("[0-9a-f]{32}", plan.pop("id"))
        assert plan == {
            "revision": 2,
            "changes": [
                {
                    "operation": "changed",
                    "kind": "server",
                    "id": "git",
                    "fields": [{"field": "allowed_tools", "before": ["*"], "after": ["log"]}],
                }
            ],
            "warnings": [],
            "tasks": [
                {
                    "task_id": None,
                    "added": [],
                    "removed": ["git/push", "git/status"],
                    "reach_added": [],
                    "reach_removed": ["git/push", "git/status"],
                    "refusal": None,
                    "problem": None,
                    "share": 100,
                },
                {
                    "task_id": "review",
                    "added": [],
                    "removed": ["git/status"],
                    "reach_added": [],
                    "reach_removed": ["git/status"],
                    "refusal": None,
                    "problem": None,
                    "share": 100,
                },
                {
                    "task_id": "write",
                    "added": [],
                    "removed": [],
                    "reach_added": [],
                    "reach_removed": ["git/push", "git/status"],
                    "refusal": None,
                    "problem": None,
                    "share": 100,
                },
            ],
            "unchanged": 0,
            "unlisted": [],
        }
        assert await world.store.list() == before
        assert world.audited == []


@pytest.mark.parametrize(
    ("sent", "changes", "unchanged"),
    [
        pytest.param(
            {"kind": "task", "id": "review", "body": task("review", default_server_ids=["notes"])},
            {"review": (["notes/add"], ["git/log", "git/status"])},
            1,
            id="a task is changed",
        ),
        pytest.param(
            {"kind": "task", "id": "new", "body": {"config": {"mcp.enabled": True, "mcp.profile": '"p"'}}},
            {"new": (["git/log", "git/push", "git/status", "notes/add"], [])},
            2,
            id="a task is added",
        ),
        pytest.param(
            {"kind": "server", "id": "notes", "body": None},
            {None: ([], ["notes/add"]), "write": ([], ["notes/add"])},
            1,
            id="a server is removed",
        ),
        pytest.param(
            {"kind": "profile", "id": "p", "body": {"deny": ["*"]}},
            {},
            2,
            id="a profile no one uses is changed",
        ),
        pytest.param({"kind": "server", "id": "new", "body": stdio("new")}, {}, 2, id="a server is added"),
    ],
)
async def test_a_plan_for_every_kind_of_change(sent: Any, changes: Any, unchanged: int) -> None:
    async with open_rest(open_world()) as world:
        await world.seed(**RECORDS, profile=[{"profile_id": "p"}])
        plan = await world.post(PLAN, sent)

        assert {one["task_id"]: (one["added"], one["removed"]) for one in plan["tasks"]} == changes
        assert plan["unchanged"] == unchanged
        assert plan["unlisted"] == (["new"] if sent["kind"] == "server" and sent["id"] == "new" else [])


@pytest.mark.parametrize(
    ("sent", "status", "code"),
    [
        ({"kind": "server", "id": "none", "body": None}, 404, "not_found"),
        ({"kind": "server", "id": "A" * 5_000, "body": None}, 400, "invalid_record"),
        ({"kind": "server", "id": "git", "body": {}}, 400, "invalid_record"),
        ({"kind": "server", "id": "git", "body": stdio("other")}, 400, "invalid_record"),
        ({"kind": "task", "id": "t", "body": {"config": {"mcp.enabled": "maybe"}}}, 400, "invalid_record"),
        ({"kind": "key", "id": "viewer", "body": None}, 400, "invalid_request"),
        ({"kind": "task", "id": "t"}, 400, "invalid_request"),
        ({"kind": "task", "id": "t", "body": []}, 400, "invalid_request"),
        ({"kind": "task", "id": "t", "body": {}, "apply": True}, 400, "invalid_request"),
    ],
)
async def test_a_plan_that_cannot_be_made_is_refused(sent: Any, status: int, code: str) -> None:
    async with open_rest() as world:
        response = await world.request("POST", PLAN, sent)

        assert error_of(response) == (status, code)
        assert len(response.text) < 1_000


async def test_lint_names_the_rule_that_does_nothing() -> None:
    async with open_rest(open_world()) as world:
        await world.seed(server=[stdio("git")], task=[task("review", default_server_ids=["git", "gone"])])
        findings = (await world.get(LINT))["findings"]

        assert [(one["code"], one["where"], one["rule"], one["subject"]) for one in findings] == [
            ("unknown_server", "task review", "mcp.default_server_ids", "gone")
        ]


async def test_lint_says_which_rules_it_could_not_judge_while_a_server_is_down() -> None:
    async def fail() -> None:
        raise StartFailed("it does not start")

    net = open_world()
    net.servers["down"] = MemoryServer(on_start=fail)
    async with open_rest(net) as world:
        await world.seed(
            server=[stdio("git"), stdio("down", allowed_tools=["read_*"]), stdio("off", enabled=False)],
            task=[task("review", default_server_ids=["git", "down"], tool_allowlist=["log", "down/write_*"])],
        )
        response = await world.get(LINT)

    assert response["findings"] == []
    assert [(one["where"], one["rule"], one["subject"]) for one in response["unjudged"]] == [
        ("server down", "allowed_tools", "read_*"),
        ("task review", "mcp.tool_allowlist", "down/write_*"),
    ]
    assert {one["message"] for one in response["unjudged"]} == {
        "server `down` has not listed its tools (list failed)"
    }


async def test_a_write_tells_of_rules_that_do_nothing_in_what_was_written() -> None:
    async with open_rest(open_world()) as world:
        await world.seed(server=[stdio("git")])
        received = [
            await world.put(f"{TASKS}/review", task("review", default_server_ids=["gone"])) for _ in range(2)
        ]
        other = await world.put(f"{TASKS}/other", task("other", default_server_ids=["git"]))

        assert [len(one["warnings"]) for one in received] == [1, 1]
        assert received[0]["warnings"][0].startswith("task `review`, `mcp.default_server_ids`: ")
        assert other["warnings"] == []


@pytest.mark.requirement("000-48")
async def test_the_overview_shows_what_each_task_sees_and_where() -> None:
    many = task("many", default_server_ids=["git", "big"])
    big = MemoryServer(tools=[definition(f"t{n}") for n in range(9)])
    net = open_world()
    net.servers["big"] = big
    async with open_rest(net) as world:
        world.control.gateway.limits = ScopeLimits(max_tools=8, on_too_many="refuse")
        await world.seed(server=[*RECORDS["server"], stdio("big")], task=[*RECORDS["task"], many])
        overview = await world.get(OVERVIEW, key=secret_of("viewer"))
        tokens = {one["task_id"]: one.pop("tokens") for one in overview["tasks"]}
        refusal = overview["tasks"][0].pop("refusal")

        assert overview["registered_tools"] == 13
        assert overview["registered_tokens"] > tokens["review"] > tokens["write"] > tokens["many"] == 0
        assert refusal["code"] == "too_many_tools"
        assert overview["tasks"] == [
            {
                "task_id": "many",
                "display_name": "",
                "servers": [],
                "tools": 0,
                "url": f"{BASE_URL}/api/mcp/t/many",
                "warnings": [],
            },
            {
                "task_id": "review",
                "display_name": "",
                "servers": ["git"],
                "tools": 2,
                "url": f"{BASE_URL}/api/mcp/t/review",
                "refusal": None,
                "warnings": [],
            },
            {
                "task_id": "write",
                "display_name": "",
                "servers": ["notes"],
                "tools": 1,
                "url": f"{BASE_URL}/api/mcp/t/write",
                "refusal": None,
                "warnings": [],
            },
        ]


GIT_FILE = 'server_id = "git"\ntransport = "stdio"\nallowed_tools = ["*"]\n[stdio]\ncommand = "serve"\n'


@pytest.mark.requirement("002-056")
async def test_a_reload_applies_the_files_and_a_dry_run_only_says_what_it_would_do(tmp_path: Path) -> None:
    store, noted = MemoryStore(lambda: 0), []
    loader = DirectoryLoader(store, tmp_path, on_applied=lambda report, by: noted.append((report, by)))
    (tmp_path / "git.toml").write_text(GIT_FILE)
    async with open_rest(store=store, services=[loader]) as world:
        dry = await world.post(f"{RELOAD}?dry_run=true")
        untouched = store.revision
        added = await world.post(RELOAD, {})
        (tmp_path / "git.toml").write_text(GIT_FILE.replace('["*"]', '["log"]'))
        changed = await world.post(f"{RELOAD}?dry_run=false")
        (tmp_path / "git.toml").unlink()
        (tmp_path / "bad.toml").write_text("not toml")
        removed = await world.post(RELOAD)

        assert dry | {"revision": 0} == added | {"revision": 0}
        assert (dry["applied"], dry["problems"], untouched) == (["+ git (git.toml)"], [], 1)
        assert changed["applied"] == ["~ git (git.toml): allowed_tools: ['*'] → ['log']"]
        assert removed["applied"] == ["- git (git.toml)"]
        assert [one.startswith("bad.toml:1: ") for one in removed["problems"]] == [True]
        done = [(change.server_id, by) for report, by in noted for change in report.applied]
        assert done == [("git", "local")] * 3


async def test_changing_a_server_that_comes_from_a_file_is_asked_to_last_only_until_the_next_reload(
    tmp_path: Path,
) -> None:
    store = MemoryStore(lambda: 0)
    loader = DirectoryLoader(store, tmp_path)
    (tmp_path / "git.toml").write_text(GIT_FILE)
    async with open_rest(store=store, services=[loader]) as world:
        await world.post(RELOAD)
        response = await world.put(f"{SERVERS}/git", http("git"))

        assert (
            response["warnings"][0]
            == "`git` comes from `git.toml`, which overwrites it when files are next loaded"
        )


async def test_a_reload_without_a_directory_or_with_another_query_is_refused(tmp_path: Path) -> None:
    loader = DirectoryLoader(MemoryStore(lambda: 0), tmp_path / "gone")
    async with open_rest(services=()) as world, open_rest(services=[loader]) as other:
        responses = [
            await world.request("POST", RELOAD),
            await other.request("POST", RELOAD),
            await other.request("POST", f"{RELOAD}?dry_run=yes"),
        ]

        assert [error_of(response) for response in responses] == [
            (404, "not_found"),
            (404, "not_found"),
            (400, "invalid_request"),
        ]
