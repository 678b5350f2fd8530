"""TRY-9: a key that is bound to some servers and tasks acts within them, on every route that does something.

Outside of its bounds, what exists is refused exactly like what does not.
"""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Final, NamedTuple

import pytest

from tests.surfaces.rest_world import (
    PROFILES,
    SERVERS,
    TASKS,
    RestWorld,
    chat_upstream,
    open_rest,
    secret_of,
    stdio,
    task,
)
from tests.upstream.memory_link import MemoryNet, MemoryServer, definition
from toolgate.gateway.auth.identity import hash_key
from toolgate.model.approvals import ApprovalRequest
from toolgate.surfaces.rest.app import ENDPOINTS

pytestmark = pytest.mark.anyio

KEYS: Final = {
    "servers": {"servers": ["mine"]},
    "tasks": {"tasks": ["own"]},
    "tools": {"allow": ["mine/*"], "deny": ["secret"]},
}
"""What bound administrators are bound to."""
THERE, MISSING = "theirs", "absent"


class Act(NamedTuple):
    """A request about what is outside of the bounds. `@` is its id, in the URL and in the body."""

    url: str
    body: Any = None
    bound: tuple[str, ...] = ("servers", "tasks", "tools")
    """The keys for which it is outside."""


OTHER_TASK: Final = {
    "task_id": "@",
    "config": {"mcp.enabled": "true", "mcp.default_server_ids": '["theirs"]'},
}
DOCUMENT: Final = {"mcpServers": {"@": {"command": "another"}}}
SEES_IT_NOT: Final = ("servers", "tasks")
"""The keys that do not see the server as callers: to the third it is there, without tools."""
LOGIN: Final = {"redirect_uri": "http://127.0.0.1:7777/callback"}
ACTS: Final[dict[str, Act]] = {
    "POST /admin/api/mcp/servers": Act(SERVERS, stdio("@")),
    "PUT /admin/api/mcp/servers/{server_id}": Act(f"{SERVERS}/@", stdio("@")),
    "DELETE /admin/api/mcp/servers/{server_id}": Act(f"{SERVERS}/@"),
    "POST /admin/api/mcp/servers/{server_id}/rollback": Act(f"{SERVERS}/@/rollback", {"revision": 1}),
    "POST /admin/api/mcp/servers/{server_id}/test": Act(f"{SERVERS}/@/test"),
    "POST /admin/api/mcp/servers/{server_id}/refresh": Act(f"{SERVERS}/@/refresh"),
    "POST /api/v1/mcp/servers/{server_id}/login": Act("/api/v1/mcp/servers/@/login", LOGIN, SEES_IT_NOT),
    "POST /api/v1/mcp/servers/{server_id}/login/finish": Act(
        "/api/v1/mcp/servers/@/login/finish", {"state": "x", "code": "x"}, SEES_IT_NOT
    ),
    "DELETE /api/v1/mcp/servers/{server_id}/login": Act("/api/v1/mcp/servers/@/login", None, SEES_IT_NOT),
    "PUT /api/v1/me/integrations/{server_id}": Act("/api/v1/me/integrations/@", {"state": "on"}),
    "DELETE /api/v1/me/integrations/{server_id}": Act("/api/v1/me/integrations/@"),
    "DELETE /admin/api/integrations/{choice_id}": Act(f"/admin/api/integrations/{'a' * 64}"),
    "POST /admin/api/mcp/servers/import": Act(f"{SERVERS}/import", {"content": DOCUMENT}),
    "POST /admin/api/catalog/backfill": Act("/admin/api/catalog/backfill"),
    "POST /admin/api/tasks": Act(TASKS, OTHER_TASK),
    "PUT /admin/api/tasks/{task_id}": Act(f"{TASKS}/@", OTHER_TASK),
    "DELETE /admin/api/tasks/{task_id}": Act(f"{TASKS}/@"),
    "POST /admin/api/tasks/{task_id}/rollback": Act(f"{TASKS}/@/rollback", {"revision": 1}),
    "POST /admin/api/profiles": Act(PROFILES, {"profile_id": "@", "servers": ["theirs"]}),
    "PUT /admin/api/profiles/{profile_id}": Act(f"{PROFILES}/@", {"profile_id": "@", "servers": ["theirs"]}),
    "DELETE /admin/api/profiles/{profile_id}": Act(f"{PROFILES}/@"),
    "POST /admin/api/profiles/{profile_id}/rollback": Act(f"{PROFILES}/@/rollback", {"revision": 1}),
    "POST /api/v1/tasks/{task_id}/invocations": Act("/api/v1/tasks/@/invocations", {}, ("tasks",)),
    "POST /api/v1/tasks/{task_id}/invocations/{invocation_id}/cancel": Act(
        "/api/v1/tasks/@/invocations/run/cancel"
    ),
    "POST /admin/api/pins": Act("/admin/api/pins", {"server_id": "@"}),
    "PUT /admin/api/pins/{server_id}": Act("/admin/api/pins/@", {"server_id": "@"}),
    "DELETE /admin/api/pins/{server_id}": Act("/admin/api/pins/@"),
    "POST /admin/api/pins/{server_id}/rollback": Act("/admin/api/pins/@/rollback", {"revision": 1}),
    "POST /admin/api/approvals/{approval_id}/approve": Act("/admin/api/approvals/@/approve", {}),
    "POST /admin/api/approvals/{approval_id}/deny": Act("/admin/api/approvals/@/deny", {"reason": "x"}),
    "POST /admin/api/chat-upstreams": Act("/admin/api/chat-upstreams", chat_upstream("@")),
    "PUT /admin/api/chat-upstreams/{upstream_id}": Act("/admin/api/chat-upstreams/@", chat_upstream("@")),
    "DELETE /admin/api/chat-upstreams/{upstream_id}": Act("/admin/api/chat-upstreams/@"),
    "POST /admin/api/chat-upstreams/{upstream_id}/rollback": Act(
        "/admin/api/chat-upstreams/@/rollback", {"revision": 1}
    ),
    "POST /admin/api/chat-upstreams/{upstream_id}/test": Act("/admin/api/chat-upstreams/@/test"),
    "POST /admin/api/keys": Act("/admin/api/keys", {"key_id": "@", "role": "agent"}),
    "PUT /admin/api/keys/{key_id}/budgets": Act("/admin/api/keys/@/budgets", {"calls_per_day": 1}),
    "DELETE /admin/api/keys/{key_id}": Act("/admin/api/keys/@"),
    "POST /admin/api/plan": Act(
        "/admin/api/plan", {"changes": [{"kind": "server", "id": "@", "body": None}]}
    ),
    "POST /admin/api/apply": Act(
        "/admin/api/apply", {"changes": [{"kind": "server", "id": "@", "body": None}]}
    ),
    "DELETE /api/packages/{package_id}": Act("/api/packages/@"),
    "POST /api/packages/{package_id}/install": Act("/api/packages/@/install", {}),
    "DELETE /api/packages/{package_id}/{version}": Act("/api/packages/@/1.0.0"),
    "DELETE /admin/api/modules/{sha256}": Act(f"/admin/api/modules/{'a' * 64}"),
    "POST /admin/api/registry/reload": Act("/admin/api/registry/reload"),
    "POST /admin/api/backup": Act("/admin/api/backup"),
}
BY_CONTENT: Final = {
    "POST /api/v1/mcp/call": "decided by the caller's scope",
    "POST /api/v1/login": "has no credential yet",
    "POST /admin/api/approvals/{approval_id}/decision": "is signed by the webhook's receiver",
    "POST /admin/api/match": "reads",
    "PUT /api/uploads/{sha256}/{part}": "the caller's own upload, of which nothing is kept yet",
    "DELETE /api/uploads/{sha256}": "the caller's own upload",
    "POST /api/uploads/{sha256}": "decided by the manifest: see `test_rest_packages`",
    "POST /admin/api/modules": "content by its hash: it runs when a task names it",
    "POST /admin/api/modules/{sha256}": "content by its hash: it runs when a task names it",
}
"""Routes on which nothing outside of a key's bounds can be named, and why."""


def bound_key(name: str) -> str:
    return f"tg_bound_{name}_{'x' * 40}"


@asynccontextmanager
async def furnished() -> AsyncIterator[tuple[RestWorld, str]]:
    """A world with something of each kind called `theirs`, and an approval that is asked for there."""
    tools = [definition("echo"), definition("secret")]
    net = MemoryNet(mine=MemoryServer(tools=tools), theirs=MemoryServer(tools=tools))
    async with open_rest(net) as world:
        await world.seed(
            server=[stdio("mine"), stdio("theirs")],
            task=[task("own", default_server_ids=["mine"]), task("theirs", default_server_ids=["theirs"])],
            profile=[{"profile_id": "theirs", "servers": ["theirs"]}],
            pin=[{"server_id": "theirs", "tools": {}}],
            chat_upstream=[chat_upstream("theirs")],
            key=[
                *(
                    {"key_id": name, "role": "admin", "sha256": hash_key(bound_key(name)), "ceiling": ceiling}
                    for name, ceiling in KEYS.items()
                ),
                {"key_id": "theirs", "role": "agent", "sha256": hash_key("tg_other" * 8)},
            ],
        )
        yield world, await request(world, "theirs", "echo", task_id="theirs")


async def request(world: RestWorld, server_id: str, tool: str, *, task_id: str = "own") -> str:
    """Have someone ask for an approval; its id."""
    question = ApprovalRequest(
        principal="key:agent",
        task_id=task_id,
        server_id=server_id,
        tool=tool,
        arguments_digest="0" * 64,
        definition="0" * 64,
        arguments=b"{}",
        why="",
        session="",
        door="mcp",
        round=0,
    )
    number = len(await world.store.approvals.list(state=None, limit=100))
    return (await world.store.approvals.request(question, new_id=f"{number:016x}")).approval_id


def test_the_table_has_every_route_that_does_something() -> None:
    routes = {f"{one.method} {one.path}" for one in ENDPOINTS if one.method != "GET"}

    assert routes == ACTS.keys() | BY_CONTENT.keys()
    assert not ACTS.keys() & BY_CONTENT.keys()


@pytest.mark.parametrize("name", KEYS)
async def test_try_9_outside_of_its_bounds_a_key_does_nothing_and_learns_nothing(name: str) -> None:
    wrong = []
    async with furnished() as (world, approval_id):
        before = await state_of(world)
        for route, act in ACTS.items():
            if name in act.bound:
                there = approval_id if "/approvals/" in act.url else THERE
                responses = [
                    await do(world, route, act, one, key=bound_key(name)) for one in (there, MISSING)
                ]
                if responses[0] != responses[1] or responses[0][0] not in {403, 404}:
                    wrong.append((route, *responses))
        after = await state_of(world)

        assert wrong == []
        assert after == before


async def do(world: RestWorld, route: str, act: Act, record_id: str, *, key: str) -> tuple[int, str]:
    """Status and text of the answer, which names nothing."""
    body = None if act.body is None else json.loads(json.dumps(act.body).replace("@", record_id))
    response = await world.request(route.split(maxsplit=1)[0], act.url.replace("@", record_id), body, key=key)
    return response.status_code, response.text.replace(record_id, "@")


async def state_of(world: RestWorld) -> Any:
    """What acts could change: records, connections, approvals."""
    approvals = await world.store.approvals.list(state=None, limit=100)
    servers = [(len(one.starts_s), len(one.lists)) for _, one in sorted(world.net.servers.items())]
    return world.store.revision, servers, [one.state for one in approvals], len(world.audited)


async def test_try_9_a_record_that_reaches_further_is_not_replaced_by_one_that_does_not() -> None:
    within = task("theirs", default_server_ids=["mine"])
    async with furnished() as (world, _):
        response = await world.request("PUT", f"{TASKS}/theirs", within, key=bound_key("servers"))
        kept = await world.get(f"{TASKS}/theirs", key=secret_of("admin"))

        assert response.status_code == 403
        assert kept["config"]["mcp.default_server_ids"] == '["theirs"]'


async def test_within_its_bounds_a_key_acts() -> None:
    async with furnished() as (world, _):
        key, statuses = bound_key("servers"), []
        for method, url, body in (
            ("POST", f"{SERVERS}/mine/test", None),
            ("POST", f"{SERVERS}/mine/refresh", None),
            ("PUT", f"{SERVERS}/mine", stdio("mine", display_name="Mine")),
            ("PUT", f"{TASKS}/new", task("new", default_server_ids=["mine"], allowed_server_ids=["mine"])),
            ("DELETE", f"{TASKS}/new", None),
            ("DELETE", f"{SERVERS}/mine", None),
        ):
            statuses.append((await world.request(method, url, body, key=key)).status_code)

        assert statuses == [200, 200, 200, 201, 200, 200]


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("servers", ["mine.secret", "mine.echo"]),
        ("tasks", ["mine.secret", "mine.echo"]),
        ("tools", ["mine.echo"]),
    ],
)
async def test_try_9_an_approver_sees_and_decides_on_what_its_ceiling_contains(
    name: str, expected: list[str]
) -> None:
    async with furnished() as (world, _):
        asked = {tool: await request(world, "mine", tool) for tool in ("echo", "secret")}
        key = bound_key(name)
        first = await world.get("/admin/api/approvals?limit=1", key=key)
        seen = [f"{one['server_id']}.{one['tool']}" for one in await every_approval(world, key)]
        approved = await world.request("POST", f"/admin/api/approvals/{asked['echo']}/approve", {}, key=key)
        other = await world.request("GET", f"/admin/api/approvals/{asked['secret']}", key=key)

        assert (len(first["approvals"]), seen, approved.status_code) == (1, expected, 200)
        assert other.status_code == (404 if name == "tools" else 200)


async def every_approval(world: RestWorld, key: str) -> list[Any]:
    """All pages of one each."""
    page = await world.get("/admin/api/approvals?limit=1", key=key)
    found = list(page["approvals"])
    while page["next_cursor"] is not None:
        page = await world.get(f"/admin/api/approvals?limit=1&cursor={page['next_cursor']}", key=key)
        found += page["approvals"]
    return found
