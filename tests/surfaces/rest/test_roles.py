"""Who may do what: every route against every kind of caller, as a table that must be complete."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Final

import pytest

from tests.surfaces.rest_world import (
    KEYS,
    PROFILES,
    ROLES,
    SERVERS,
    TASKS,
    RestWorld,
    chat_upstream,
    error_of,
    open_rest,
    operations,
    secret_of,
    stdio,
    task,
)
from toolgate.gateway.auth.identity import hash_key

pytestmark = pytest.mark.anyio

CALLERS: Final = ("none", "wrong", "expired", "node", "agent", "viewer", "publisher", "admin")
# One column for each caller, in that order. A route that is not here fails the test below.
MATRIX: Final = {
    "GET /healthz": "200 401 401 200 200 200 200 200",
    "GET /readyz": "200 401 401 200 200 200 200 200",
    "GET /openapi.json": "200 401 401 200 200 200 200 200",
    "GET /.well-known/oauth-protected-resource": "404 401 401 404 404 404 404 404",
    "GET /.well-known/oauth-protected-resource/api/mcp": "404 401 401 404 404 404 404 404",
    "GET /.well-known/oauth-protected-resource/api/mcp/s/{server_id}": "404 401 401 404 404 404 404 404",
    "GET /.well-known/oauth-protected-resource/api/mcp/t/{task_id}": "404 401 401 404 404 404 404 404",
    "GET /.well-known/oauth-protected-resource/mcp": "404 401 401 404 404 404 404 404",
    "GET /.well-known/oauth-protected-resource/mcp/s/{server_id}": "404 401 401 404 404 404 404 404",
    "GET /.well-known/oauth-protected-resource/mcp/t/{task_id}": "404 401 401 404 404 404 404 404",
    "GET /.well-known/oauth-client": "404 401 401 404 404 404 404 404",
    "GET /metrics": "401 401 401 403 403 200 200 200",
    "GET /admin/api/mcp/servers": "401 401 401 403 403 200 200 200",
    "POST /admin/api/mcp/servers": "401 401 401 403 403 403 403 201",
    "GET /admin/api/mcp/servers/{server_id}": "401 401 401 403 403 200 200 200",
    "PUT /admin/api/mcp/servers/{server_id}": "401 401 401 403 403 403 403 200",
    "DELETE /admin/api/mcp/servers/{server_id}": "401 401 401 403 403 403 403 200",
    "GET /admin/api/mcp/servers/{server_id}/history": "401 401 401 403 403 200 200 200",
    "GET /admin/api/mcp/servers/{server_id}/diff": "401 401 401 403 403 200 200 200",
    "POST /admin/api/mcp/servers/{server_id}/rollback": "401 401 401 403 403 403 403 200",
    "GET /admin/api/mcp/servers/{server_id}/tools": "401 401 401 403 403 200 200 200",
    "POST /admin/api/mcp/servers/import": "401 401 401 403 403 403 403 200",
    "POST /admin/api/mcp/servers/{server_id}/test": "401 401 401 403 403 403 403 200",
    "POST /admin/api/mcp/servers/{server_id}/refresh": "401 401 401 403 403 403 403 200",
    "GET /admin/api/tasks": "401 401 401 403 403 200 200 200",
    "POST /admin/api/tasks": "401 401 401 403 403 403 201 201",
    "GET /admin/api/tasks/{task_id}": "401 401 401 403 403 200 200 200",
    "PUT /admin/api/tasks/{task_id}": "401 401 401 403 403 403 200 200",
    "DELETE /admin/api/tasks/{task_id}": "401 401 401 403 403 403 200 200",
    "GET /admin/api/tasks/{task_id}/history": "401 401 401 403 403 200 200 200",
    "GET /admin/api/tasks/{task_id}/diff": "401 401 401 403 403 200 200 200",
    "GET /admin/api/tasks/{task_id}/learn": "401 401 401 403 403 400 400 400",
    "POST /admin/api/tasks/{task_id}/rollback": "401 401 401 403 403 403 200 200",
    "GET /api/v1/tasks/{task_id}/invocations": "401 401 401 403 200 200 200 200",
    "POST /api/v1/tasks/{task_id}/invocations": "401 401 401 403 409 409 409 409",
    "GET /api/v1/tasks/{task_id}/invocations/{invocation_id}": "401 401 401 403 404 404 404 404",
    "GET /api/v1/tasks/{task_id}/invocations/{invocation_id}/logs": "401 401 401 403 404 404 404 404",
    "GET /api/v1/tasks/{task_id}/invocations/{invocation_id}/events": "401 401 401 403 404 404 404 404",
    "POST /api/v1/tasks/{task_id}/invocations/{invocation_id}/cancel": "401 401 401 403 404 404 404 404",
    "GET /admin/api/profiles": "401 401 401 403 403 200 200 200",
    "POST /admin/api/profiles": "401 401 401 403 403 403 201 201",
    "GET /admin/api/profiles/{profile_id}": "401 401 401 403 403 200 200 200",
    "PUT /admin/api/profiles/{profile_id}": "401 401 401 403 403 403 200 200",
    "DELETE /admin/api/profiles/{profile_id}": "401 401 401 403 403 403 200 200",
    "GET /admin/api/profiles/{profile_id}/versions": "401 401 401 403 403 200 200 200",
    "GET /admin/api/profiles/{profile_id}/history": "401 401 401 403 403 200 200 200",
    "GET /admin/api/profiles/{profile_id}/diff": "401 401 401 403 403 200 200 200",
    "POST /admin/api/profiles/{profile_id}/rollback": "401 401 401 403 403 403 200 200",
    "GET /admin/api/pins": "401 401 401 403 403 200 200 200",
    "POST /admin/api/pins": "401 401 401 403 403 403 403 201",
    "GET /admin/api/pins/{server_id}": "401 401 401 403 403 200 200 200",
    "PUT /admin/api/pins/{server_id}": "401 401 401 403 403 403 403 200",
    "DELETE /admin/api/pins/{server_id}": "401 401 401 403 403 403 403 200",
    "GET /admin/api/pins/{server_id}/history": "401 401 401 403 403 200 200 200",
    "GET /admin/api/pins/{server_id}/diff": "401 401 401 403 403 200 200 200",
    "POST /admin/api/pins/{server_id}/rollback": "401 401 401 403 403 403 403 200",
    "GET /admin/api/chat-upstreams": "401 401 401 403 403 200 200 200",
    "POST /admin/api/chat-upstreams": "401 401 401 403 403 403 403 201",
    "GET /admin/api/chat-upstreams/{upstream_id}": "401 401 401 403 403 200 200 200",
    "PUT /admin/api/chat-upstreams/{upstream_id}": "401 401 401 403 403 403 403 200",
    "DELETE /admin/api/chat-upstreams/{upstream_id}": "401 401 401 403 403 403 403 200",
    "GET /admin/api/chat-upstreams/{upstream_id}/history": "401 401 401 403 403 200 200 200",
    "GET /admin/api/chat-upstreams/{upstream_id}/diff": "401 401 401 403 403 200 200 200",
    "POST /admin/api/chat-upstreams/{upstream_id}/rollback": "401 401 401 403 403 403 403 200",
    "POST /admin/api/chat-upstreams/{upstream_id}/test": "401 401 401 403 403 403 403 200",
    "GET /admin/api/keys": "401 401 401 403 403 200 200 200",
    "POST /admin/api/keys": "401 401 401 403 403 403 403 201",
    "GET /admin/api/keys/{key_id}": "401 401 401 403 403 200 200 200",
    "PUT /admin/api/keys/{key_id}/budgets": "401 401 401 403 403 403 403 200",
    "DELETE /admin/api/keys/{key_id}": "401 401 401 403 403 403 403 200",
    "GET /admin/api/keys/{key_id}/history": "401 401 401 403 403 200 200 200",
    "POST /admin/api/plan": "401 401 401 403 403 200 200 200",
    "POST /admin/api/apply": "401 401 401 403 403 403 200 200",
    "GET /admin/api/watch": "401 401 401 403 403 200 200 200",
    "GET /admin/api/nodes": "401 401 401 403 403 200 200 200",
    "GET /admin/api/unused": "401 401 401 403 403 200 200 200",
    "GET /admin/api/key-usage": "401 401 401 403 403 200 200 200",
    "GET /admin/api/activity": "401 401 401 403 403 200 200 200",
    "GET /admin/api/budgets": "401 401 401 403 403 200 200 200",
    "GET /admin/api/tokens": "401 401 401 403 403 200 200 200",
    "GET /admin/api/audit": "401 401 401 403 403 200 200 200",
    "GET /admin/api/audit/events": "401 401 401 403 403 200 200 200",
    "GET /admin/api/audit/export": "401 401 401 403 403 200 200 200",
    "GET /admin/api/audit/{event_id}": "401 401 401 403 403 404 404 404",
    "POST /admin/api/backup": "401 401 401 403 403 403 403 201",
    "GET /admin/api/data-directory": "401 401 401 403 403 403 403 200",
    "GET /admin/api/lint": "401 401 401 403 403 200 200 200",
    "GET /admin/api/mcp/tasks-overview": "401 401 401 403 403 200 200 200",
    "GET /admin/api/mcp/profiles-overview": "401 401 401 403 403 200 200 200",
    "POST /admin/api/registry/reload": "401 401 401 403 403 403 403 404",
    "GET /api/packages": "401 401 401 403 403 200 200 200",
    "GET /api/packages/{package_id}": "401 401 401 403 403 404 404 404",
    "DELETE /api/packages/{package_id}": "401 401 401 403 403 403 403 404",
    "POST /api/packages/{package_id}/install": "401 401 401 403 403 403 403 404",
    "GET /api/packages/{package_id}/{version}/manifest": "401 401 401 403 403 404 404 404",
    "DELETE /api/packages/{package_id}/{version}": "401 401 401 403 403 403 403 404",
    "GET /api/schemas/manifest.v2.json": "200 401 401 200 200 200 200 200",
    "GET /api/uploads/{sha256}": "401 401 401 403 403 403 200 200",
    "DELETE /api/uploads/{sha256}": "401 401 401 403 403 403 200 200",
    "POST /api/uploads/{sha256}": "401 401 401 403 403 403 403 400",
    "PUT /api/uploads/{sha256}/{part}": "401 401 401 403 403 403 415 415",
    "GET /admin/api/modules": "401 401 401 403 403 200 200 200",
    "POST /admin/api/modules": "401 401 401 403 403 403 415 415",
    "GET /admin/api/modules/{sha256}": "401 401 401 403 403 404 404 404",
    "POST /admin/api/modules/{sha256}": "401 401 401 403 403 403 400 400",
    "DELETE /admin/api/modules/{sha256}": "401 401 401 403 403 403 403 404",
    "GET /admin/api/mcp/servers/{server_id}/server.json": "401 401 401 403 403 400 400 400",
    "GET /v0.1/servers": "401 401 401 403 200 200 200 200",
    "GET /v0.1/servers/{namespace}/{server_name}/versions": "401 401 401 403 404 404 404 404",
    "GET /v0.1/servers/{namespace}/{server_name}/versions/{server_version}": (
        "401 401 401 403 404 404 404 404"
    ),
    "GET /api/catalog": "401 401 401 403 200 200 200 200",
    "GET /api/catalog/search": "401 401 401 403 200 200 200 200",
    "GET /api/catalog/{category}": "401 401 401 403 404 404 404 404",
    "GET /api/catalog/{package}/tools": "401 401 401 403 404 404 404 404",
    "GET /api/v1/catalog/quality": "401 401 401 403 200 200 200 200",
    "POST /admin/api/catalog/backfill": "401 401 401 403 403 403 403 200",
    "GET /api/v1/me": "401 401 401 403 200 200 200 200",
    "GET /api/v1/me/integrations": "401 401 401 403 200 200 200 200",
    "PUT /api/v1/me/integrations/{server_id}": "401 401 401 403 404 200 200 200",
    "DELETE /api/v1/me/integrations/{server_id}": "401 401 401 403 404 200 200 200",
    "GET /admin/api/integrations": "401 401 401 403 403 403 403 200",
    "DELETE /admin/api/integrations/{choice_id}": "401 401 401 403 403 403 403 404",
    "GET /api/v1/login": "200 401 401 200 200 200 200 200",
    "POST /api/v1/login": "400 401 401 400 400 400 400 400",
    "GET /api/v1/mcp/servers": "401 401 401 403 200 200 200 200",
    "GET /api/v1/mcp/servers/{server_id}": "401 401 401 403 404 200 200 200",
    "POST /api/v1/mcp/servers/{server_id}/login": "401 401 401 403 404 403 403 400",
    "POST /api/v1/mcp/servers/{server_id}/login/finish": "401 401 401 403 404 403 403 400",
    "DELETE /api/v1/mcp/servers/{server_id}/login": "401 401 401 403 404 403 403 400",
    "GET /api/v1/mcp/health": "401 401 401 403 200 200 200 200",
    "GET /api/v1/mcp/scope": "401 401 401 403 200 200 200 200",
    "GET /api/v1/mcp/tools": "401 401 401 403 200 200 200 200",
    "GET /api/v1/mcp/explain": "401 401 401 403 200 200 200 200",
    "GET /api/v1/mcp/connect": "401 401 401 403 200 200 200 200",
    "POST /api/v1/mcp/call": "401 401 401 403 404 404 404 404",
    "GET /admin/api/approvals": "401 401 401 403 403 200 200 200",
    "GET /admin/api/approvals/{approval_id}": "401 401 401 403 403 404 404 404",
    "POST /admin/api/approvals/{approval_id}/approve": "401 401 401 403 403 403 404 404",
    "POST /admin/api/approvals/{approval_id}/deny": "401 401 401 403 403 403 404 404",
    "POST /admin/api/approvals/{approval_id}/decision": "401 401 401 401 401 401 401 401",
    "POST /admin/api/match": "401 401 401 403 403 200 200 200",
}
BODIES: Final[dict[str, Any]] = {
    "PUT /api/v1/me/integrations/{server_id}": {"state": "off"},
    "PUT /admin/api/keys/{key_id}/budgets": {"calls_per_day": 5},
    "POST /admin/api/mcp/servers": stdio("new"),
    "PUT /admin/api/mcp/servers/{server_id}": stdio("git", display_name="Git"),
    "POST /api/v1/mcp/servers/{server_id}/login": {"redirect_uri": "http://127.0.0.1:9/callback"},
    "POST /api/v1/mcp/servers/{server_id}/login/finish": {"state": "x", "code": "y"},
    "POST /api/v1/login": {"code": "x", "code_verifier": "v" * 43, "redirect_uri": "http://x/console/login"},
    "POST /api/v1/mcp/call": {"name": "git.echo"},
    "POST /admin/api/approvals/{approval_id}/deny": {"reason": "no"},
    "POST /admin/api/approvals/{approval_id}/decision": {"decision": "approved"},
    "POST /admin/api/match": {"patterns": ["*"]},
    "POST /admin/api/tasks": task("new"),
    "PUT /admin/api/tasks/{task_id}": task("review", default_server_ids=["git"]),
    "POST /api/v1/tasks/{task_id}/invocations": {"input": "hello"},
    "POST /admin/api/profiles": {"profile_id": "new"},
    "PUT /admin/api/profiles/{profile_id}": {"deny": ["push"]},
    "POST /admin/api/chat-upstreams": chat_upstream("new"),
    "PUT /admin/api/chat-upstreams/{upstream_id}": chat_upstream("local", display_name="Local"),
    "POST /admin/api/keys": {"key_id": "new", "role": "agent"},
    "POST /admin/api/pins": {"server_id": "web"},
    "PUT /admin/api/pins/{server_id}": {"tools": {"log": "0" * 64}},
    "POST /admin/api/mcp/servers/import": {"content": {"mcpServers": {"new": {"command": "serve"}}}},
    "POST /api/packages/{package_id}/install": {},
    "POST /api/uploads/{sha256}": {"parts": 1},
    "PUT /api/uploads/{sha256}/{part}": b"...",
    "POST /admin/api/modules": b"...",
    "POST /admin/api/modules/{sha256}": {"parts": 1},
    "POST /admin/api/plan": {"kind": "task", "id": "review", "body": None},
    "POST /admin/api/apply": {"changes": [{"kind": "task", "id": "review", "body": None}]},
} | {
    f"POST {path}/rollback": {"revision": 2}
    for path in (
        "/admin/api/mcp/servers/{server_id}",
        "/admin/api/tasks/{task_id}",
        "/admin/api/profiles/{profile_id}",
        "/admin/api/pins/{server_id}",
        "/admin/api/chat-upstreams/{upstream_id}",
    )
}
SECRETS: Final = {"none": None, "wrong": "tg_wrong", "expired": "tg_late" * 8} | {
    role: secret_of(role) for role in ROLES
}
IDS: Final = {
    "server_id": "git",
    "task_id": "review",
    "profile_id": "coding",
    "upstream_id": "local",
    "key_id": "spare",
    "choice_id": "a" * 64,
    "package_id": "notes",
    "package": "git",
    "category": "uncategorized",
    "version": "1.0.0",
    "sha256": "0" * 64,
    "invocation_id": "018bcfe56800" + "0" * 16,
    "event_id": "0" * 24 + "-1",
    "approval_id": "0" * 32,
    "part": "1",
    "namespace": "toolgate.local",
    "server_name": "git",
    "server_version": "latest",
}


def url_of(path: str) -> str:
    """The path of an operation with ids in it, and with what it cannot do without in its query."""
    return path.format(**IDS) + ("?since=2" if path.endswith("/diff") else "")


def test_adm_1_the_matrix_and_the_routes_match_both_ways() -> None:
    assert set(MATRIX) == {f"{method} {path}" for method, path in operations()}


@pytest.mark.parametrize("row", MATRIX)
async def test_adm_1_every_route_answers_every_caller_as_the_matrix_says(row: str) -> None:
    method, path = row.split()
    found: list[str] = []
    while len(found) < len(CALLERS):
        async with _open_furnished() as world:
            for caller in CALLERS[len(found) :]:
                response = await world.request(method, url_of(path), BODIES.get(row), key=SECRETS[caller])
                found.append(str(response.status_code))
                if method != "GET" and response.is_success:
                    break  # it changed this world

    assert " ".join(found) == MATRIX[row]


@asynccontextmanager
async def _open_furnished() -> AsyncIterator[RestWorld]:
    async with open_rest(trusts_local=False) as world:
        late = {"key_id": "late", "role": "admin", "sha256": hash_key("tg_late" * 8), "expires_at_s": 1}
        spare = {"key_id": "spare", "role": "agent", "sha256": hash_key("tg_spare" * 8)}
        await world.seed(
            server=[stdio("git")],
            task=[task("review")],
            profile=[{"profile_id": "coding"}],
            key=[late, spare],
            pin=[{"server_id": "git"}],
            chat_upstream=[chat_upstream("local")],
        )
        yield world


async def test_adm_7_a_wrong_credential_is_never_anonymous_whatever_the_path_and_its_shape() -> None:
    paths = [path.format(**IDS) for path in {path for _, path in operations()}]
    paths += ["/", "/admin", "/admin/api/nothing", "/console", "/api/v1/mcp/servers/", "//healthz"]
    credentials = ["Bearer wrong", "Bearer ", "Basic YWRtaW46", "bearer", "Bearer a b", "", " ", "admin"]
    async with open_rest(trusts_local=True) as world:
        statuses = {
            (path, credential): (await world.request("GET", path, authorization=credential)).status_code
            for path in paths
            for credential in credentials
        }

    assert {pair: status for pair, status in statuses.items() if status != 401} == {}


async def test_two_credentials_are_one_wrong_one() -> None:
    async with open_rest() as world:
        pair = [("authorization", f"Bearer {secret_of(role)}") for role in ("viewer", "admin")]
        response = await world.http.get(SERVERS, headers=pair)

    assert error_of(response) == (401, "unauthenticated")
    assert response.headers["www-authenticate"] == 'Bearer realm="toolgate", error="invalid_token"'


async def test_adm_9_nothing_but_the_credential_says_who_calls() -> None:
    admin = secret_of("admin")
    async with open_rest(trusts_local=False) as world:
        responses = [
            await world.request("GET", f"{SERVERS}?key={admin}"),
            await world.request("GET", f"{SERVERS}?role=admin&user=admin"),
            await world.request("GET", f"/admin/{SERVERS}"),
            await world.request("GET", SERVERS, x_user="admin", x_forwarded_user="admin", x_api_key=admin),
            await world.request("GET", SERVERS, cookie=f"key={admin}"),
            await world.request(
                "POST", TASKS, {**task("new"), "_meta": {"authorization": f"Bearer {admin}"}}
            ),
        ]

    assert [error_of(response) for response in responses] == [(401, "unauthenticated")] * 6


async def test_without_a_key_a_caller_is_the_local_administrator_only_where_loopback_is_trusted() -> None:
    async with open_rest(trusts_local=True) as trusting, open_rest(trusts_local=False) as strict:
        statuses = [
            (await world.request("POST", TASKS, task("a"))).status_code for world in (trusting, strict)
        ]

    assert statuses == [201, 401]


async def test_adm_3_and_4_a_viewer_or_publisher_starts_no_program() -> None:
    async with open_rest() as world:
        await world.seed(server=[stdio("idle", enabled=False)])
        refused = [
            await world.request(method, path, body, key=secret_of(role))
            for role in ("viewer", "publisher")
            for method, path, body in (
                ("POST", SERVERS, stdio("evil")),
                ("PUT", f"{SERVERS}/evil", stdio("evil")),
                ("PUT", f"{SERVERS}/idle", stdio("idle", stdio={"command": "evil"})),
                ("POST", f"{SERVERS}/idle/test", None),
                ("POST", f"{SERVERS}/idle/test", stdio("evil")),
                ("POST", f"{SERVERS}/idle/refresh", None),
            )
        ]
        plan = {"kind": "server", "id": "evil", "body": stdio("evil")}
        planned = await world.request("POST", "/admin/api/plan", plan, key=secret_of("viewer"))
        await world.served()

        assert {error_of(response) for response in refused} == {(403, "forbidden")}
        assert planned.status_code == 200
        assert dict(world.net.servers) == {}
        assert [one.id for one in (await world.store.list("server")).records] == ["idle"]


async def test_adm_2_no_get_changes_state() -> None:
    async with open_rest() as world:
        await world.seed(
            server=[stdio("git")],
            task=[task("review")],
            profile=[{"profile_id": "coding"}],
            pin=[{"server_id": "git"}],
            chat_upstream=[chat_upstream("local")],
            key=[{"key_id": "spare", "role": "agent", "sha256": "0" * 64}],
        )
        before = await world.store.list()
        for method, path in operations():
            if method == "GET":
                response = await world.request("GET", url_of(path))
                assert str(response.status_code) == MATRIX[f"GET {path}"].split()[-1], path
        await world.served()

        assert await world.store.list() == before
        assert world.audited == []


@pytest.mark.parametrize("path", [SERVERS, TASKS, PROFILES, KEYS, f"{SERVERS}/git/test", "/admin/api/apply"])
async def test_adm_2_a_form_that_a_foreign_page_can_send_is_refused(path: str) -> None:
    form = {"content_type": "application/x-www-form-urlencoded", "cookie": "session=valid"}
    async with open_rest() as world:
        await world.seed(server=[stdio("git", enabled=False)])
        response = await world.request("POST", path, b"a=b", **form)
        text = await world.request("POST", path, b"{}", content_type="text/plain")

        assert error_of(response) == (415, "unsupported_media")
        assert error_of(text) == (415, "unsupported_media")
        assert world.audited == []
