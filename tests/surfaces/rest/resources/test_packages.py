"""Packages over REST: uploaded, installed, upgraded, planned, uninstalled."""

import json
from typing import Any, Final

import httpx2
import pytest

from tests.package_kit import manifest, pack, sha256, tool, upload
from tests.surfaces.rest_world import (
    PINS,
    SERVERS,
    RestWorld,
    error_of,
    open_rest,
    secret_of,
    stdio,
    task,
)
from tests.upstream.memory_link import definition
from toolgate.catalog.definitions import check_tools
from toolgate.govern.operator_policy import OperatorPolicy

pytestmark = pytest.mark.anyio

PACKAGES: Final = "/api/packages"
ECHO: Final = check_tools("notes", [json.dumps(tool("echo")).encode()])[0]["echo"].digest

Json = dict[str, Any]


async def publish(world: RestWorld, **members: Any) -> Json:
    """Upload a package."""
    response = await upload(world.request, pack(manifest(**members)))
    assert response.status_code == 200, response.text
    found: Json = response.json()
    return found


async def install(world: RestWorld, package_id: str = "notes", **body: Any) -> httpx2.Response:
    response = await world.request("POST", f"{PACKAGES}/{package_id}/install", body)
    if response.is_success:
        await world.served()
    return response


async def installed(world: RestWorld, **members: Any) -> Json:
    """Upload a package and install it."""
    await publish(world, **members)
    response = await install(world)
    assert response.is_success, response.text
    found: Json = response.json()
    return found


async def served_tools(world: RestWorld) -> list[str]:
    return [one["name"] for one in (await world.get("/api/v1/mcp/tools"))["tools"]]


async def test_an_uploaded_package_is_listed_and_installed_as_package_server_and_pin_together() -> None:
    async with open_rest() as world:
        archive = pack(manifest(category="office", tags=["text"]), {"server.py": b"pass"})
        uploaded = (await upload(world.request, archive, part_bytes=100)).json()
        before = world.store.revision
        response = await install(world)
        package = await world.get(f"{PACKAGES}/notes")
        server = await world.get(f"{SERVERS}/notes")
        pin = await world.get(f"{PINS}/notes")

        assert uploaded == {
            "package_id": "notes",
            "version": "1.0.0",
            "sha256": sha256(archive),
            "size": len(archive),
            "files": 2,
            "unpacked_bytes": uploaded["unpacked_bytes"],
            "schema_version": "v2",
            "source": "manifest",
            "tools": ["echo"],
            "kept": True,
        }
        assert (response.status_code, response.json()["revision"]) == (201, before + 1)
        assert [one["kind"] for one in response.json()["changes"]] == ["package", "pin", "server"]
        assert package["installed"] == "1.0.0"
        assert [(one["version"], one["installed"]) for one in package["versions"]] == [("1.0.0", True)]
        assert server["package"] == {"version": "1.0.0", "sha256": sha256(archive)}
        assert (server["category"], server["tags"], server["allowed_tools"]) == ("office", ["text"], ["echo"])
        assert pin["tools"] == {"echo": ECHO}
        assert await served_tools(world) == ["notes.echo"]
        assert [(one.operation, one.kind) for one in world.audited] == [
            ("publish", "package"),
            ("put", "package"),
            ("put", "server"),
            ("put", "pin"),
        ]


async def test_installing_again_what_is_installed_changes_nothing() -> None:
    async with open_rest() as world:
        await installed(world)
        revision = world.store.revision
        again = await installed(world)

        assert (again["changes"], again["revision"], world.store.revision) == ([], revision, revision)


async def test_an_upgrade_replaces_what_was_declared_and_keeps_what_an_operator_has_set() -> None:
    async with open_rest() as world:
        await installed(world)
        server = await world.get(f"{SERVERS}/notes")
        await world.put(f"{SERVERS}/notes", {**server, "budgets": {"max_concurrency": 2}, "prewarm": True})
        world.net.servers["notes"].tools = (definition("echo"), definition("add"))
        response = await installed(
            world, version="1.1.0", name="Better notes", tools=[tool("echo"), tool("add")]
        )
        after = await world.get(f"{SERVERS}/notes")

        assert (response["before"], response["version"]) == ("1.0.0", "1.1.0")
        assert response["tools"] == {"added": ["add"], "removed": [], "renamed": [], "changed": {}}
        assert after["allowed_tools"] == ["echo", "add"]
        assert (after["display_name"], after["prewarm"]) == ("Better notes", True)
        assert after["budgets"]["max_concurrency"] == 2
        assert set((await world.get(f"{PINS}/notes"))["tools"]) == {"echo", "add"}


async def test_a_list_of_tools_that_an_operator_chose_survives_upgrades_until_another_is_given() -> None:
    async with open_rest() as world:
        await installed(world)
        server = await world.get(f"{SERVERS}/notes")
        await world.put(f"{SERVERS}/notes", {**server, "allowed_tools": ["e*"]})
        kept = await installed(world, version="2", tools=[tool("echo"), tool("erase")])
        chosen = await world.post(f"{PACKAGES}/notes/install", {"allowed_tools": ["erase"]})

        assert kept["allowed_tools"] is None
        assert (await world.get(f"{SERVERS}/notes"))["allowed_tools"] == ["erase"]
        assert chosen["allowed_tools"] == ["erase"]


async def test_variables_that_an_operator_set_survive_an_upgrade_and_others_follow_the_manifest() -> None:
    def run(**env: str) -> Json:
        return {"transport": "stdio", "command": "serve", "env": env}

    async with open_rest() as world:
        await installed(world, run=run(REGION="eu", COLOUR="red", OLD="1"))
        server = await world.get(f"{SERVERS}/notes")
        env = {**server["stdio"]["env"], "REGION": "us", "API_KEY": "${ENV:NOTES_KEY}"}
        await world.put(f"{SERVERS}/notes", {**server, "stdio": {**server["stdio"], "env": env}})
        await installed(
            world, version="2", run={**run(REGION="asia", COLOUR="blue", NEW="1"), "args": ["-v"]}
        )
        launch = (await world.get(f"{SERVERS}/notes"))["stdio"]

        assert launch["args"] == ["-v"]
        assert launch["env"] == {
            "REGION": "us",
            "COLOUR": "blue",
            "NEW": "1",
            "API_KEY": "${ENV:NOTES_KEY}",
        }


async def test_credentials_that_an_operator_set_survive_an_upgrade() -> None:
    def run(**members: Any) -> Json:
        return {"transport": "streamable_http", "url": "https://mcp.example/mcp", **members}

    async with open_rest() as world:
        await installed(world, run=run(headers={"x-team": "red"}))
        server = await world.get(f"{SERVERS}/notes")
        http = {**server["http"], "auth_ref": "notes-token"}
        await world.put(f"{SERVERS}/notes", {**server, "http": http})
        await installed(world, version="2", run=run(headers={"x-team": "blue"}))
        endpoint = (await world.get(f"{SERVERS}/notes"))["http"]

        assert (endpoint["auth_ref"], endpoint["headers"]) == ("notes-token", {"x-team": "blue"})


async def test_a_pin_that_an_operator_took_off_stays_off_until_asked_for() -> None:
    async with open_rest() as world:
        await installed(world)
        await world.request("DELETE", f"{PINS}/notes")
        await installed(world, version="2")
        without = (await world.request("GET", f"{PINS}/notes")).status_code
        await install(world, pin=True)
        asked = (await world.request("GET", f"{PINS}/notes")).status_code
        await install(world, pin=False)
        declined = (await world.request("GET", f"{PINS}/notes")).status_code

        assert (without, asked, declined) == (404, 200, 404)


async def test_what_an_operator_has_approved_since_stays_approved_when_the_same_is_installed_again() -> None:
    async with open_rest() as world:
        await installed(world)
        await world.put(f"{PINS}/notes", {"tools": {"echo": "0" * 64}})
        await installed(world)

        assert (await world.get(f"{PINS}/notes"))["tools"] == {"echo": "0" * 64}


async def test_what_someone_else_changes_meanwhile_is_not_undone() -> None:
    async with open_rest() as world:
        await installed(world)
        await publish(world, version="2")
        server = await world.get(f"{SERVERS}/notes")
        read = world.control.artifacts.manifest

        async def read_slowly(package_id: str, version: str) -> bytes:
            if version == "1.0.0":  # of what is installed: the records were read by then
                await world.put(f"{SERVERS}/notes", {**server, "allowed_tools": ["e*"]})
            return await read(package_id, version)

        vars(world.control.artifacts)["manifest"] = read_slowly
        response = await install(world)

        assert error_of(response) == (409, "conflict")
        assert (await world.get(f"{SERVERS}/notes"))["allowed_tools"] == ["e*"]


async def test_a_server_that_was_registered_by_itself_is_not_taken_over() -> None:
    async with open_rest() as world:
        await world.seed(server=[stdio("notes")])
        await publish(world)
        response = await install(world)

        assert error_of(response) == (409, "conflict")
        assert "servers delete notes" in response.json()["error"]["hint"]
        assert "package" not in (await world.get(f"{SERVERS}/notes"))


async def test_a_dry_run_shows_diff_and_plan_of_what_was_not_even_uploaded_and_its_id_holds() -> None:
    async with open_rest() as world:
        await world.seed(task=[task("review", default_server_ids=["notes"])])
        await installed(world)
        document = manifest(version="2", tools=[tool("echo", description="Says it again."), tool("add")])
        archive = pack(document)
        offered = {"manifest": json.dumps(document), "sha256": sha256(archive), "dry_run": True}
        revision = world.store.revision
        dry = await world.post(f"{PACKAGES}/notes/install", offered)
        unchanged = world.store.revision
        await upload(world.request, archive)
        other = await world.request(
            "POST", f"{PACKAGES}/notes/install", {"pin": False}, toolgate_plan=dry["plan"]["id"]
        )
        same = await world.request("POST", f"{PACKAGES}/notes/install", {}, toolgate_plan=dry["plan"]["id"])

        assert unchanged == revision
        assert (dry["before"], dry["version"], dry["tools"]["added"]) == ("1.0.0", "2", ["add"])
        assert "+" in "".join(line[0] for line in dry["tools"]["changed"]["echo"])
        assert {(one["task_id"], *one["added"]) for one in dry["plan"]["tasks"]} == {
            ("review", "notes/add"),
            (None, "notes/add"),
        }
        assert error_of(other) == (409, "plan_outdated")
        assert same.status_code == 200


async def test_where_plans_are_required_installing_and_uninstalling_need_theirs() -> None:
    async with open_rest(operator_policy=OperatorPolicy(requires_plan=True)) as world:
        await publish(world)
        path = f"{PACKAGES}/notes"
        refused = await install(world)
        dry = await world.post(f"{path}/install", {"dry_run": True})
        done = await world.request("POST", f"{path}/install", {}, toolgate_plan=dry["plan"]["id"])
        kept = await world.request("DELETE", path)
        removal = (await world.request("DELETE", f"{path}?dry_run=true")).json()
        gone = await world.request("DELETE", path, toolgate_plan=removal["plan"]["id"])

        assert (error_of(refused)[1], error_of(kept)[1]) == ("plan_required", "plan_required")
        assert (done.status_code, gone.status_code) == (201, 200)


async def test_what_the_operator_allows_to_run_holds_for_packages() -> None:
    async with open_rest(operator_policy=OperatorPolicy(allowed_commands=("uvx",))) as world:
        await publish(world)
        response = await install(world)

        assert error_of(response) == (400, "invalid_record")
        assert "stdio.command" in response.json()["error"]["message"]
        assert (await world.store.list("package")).records == ()


async def test_uninstalling_removes_all_three_records_and_leaves_the_archive_unless_asked_to_purge() -> None:
    async with open_rest() as world:
        await installed(world)
        gone = (await world.request("DELETE", f"{PACKAGES}/notes")).json()
        left = await world.get(f"{PACKAGES}/notes")
        await install(world)
        purged = (await world.request("DELETE", f"{PACKAGES}/notes?purge=true")).json()
        nothing = await world.request("GET", f"{PACKAGES}/notes")

        assert sorted((one["operation"], one["kind"]) for one in gone["changes"]) == [
            ("removed", "package"),
            ("removed", "pin"),
            ("removed", "server"),
        ]
        assert (left["installed"], len(left["versions"])) == (None, 1)
        assert purged["removed_versions"] == ["1.0.0"]
        assert nothing.status_code == 404
        assert (await world.request("DELETE", f"{PACKAGES}/notes")).status_code == 404


async def test_fil_3_an_archive_that_is_installed_stays_and_another_goes_alone() -> None:
    async with open_rest() as world:
        await publish(world, package_id="other")
        await installed(world)
        await publish(world, version="2")
        kept = await world.request("DELETE", f"{PACKAGES}/notes/1.0.0")
        gone = await world.request("DELETE", f"{PACKAGES}/notes/2")
        listed = await world.get(PACKAGES)

        assert error_of(kept) == (409, "conflict")
        assert gone.json() == {"package_id": "notes", "version": "2"}
        assert [(one["package_id"], len(one["versions"])) for one in listed["packages"]] == [
            ("notes", 1),
            ("other", 1),
        ]


async def test_an_archive_that_a_server_was_taken_back_to_stays() -> None:
    async with open_rest() as world:
        first = (await installed(world))["revision"]
        await installed(world, version="2.0.0")
        back = await world.request("POST", f"{SERVERS}/notes/rollback", {"revision": first})
        kept = await world.request("DELETE", f"{PACKAGES}/notes/1.0.0")

        assert back.is_success, back.text
        assert error_of(kept) == (409, "conflict")


async def test_a_server_that_someone_made_their_own_stays_when_its_package_goes() -> None:
    async with open_rest() as world:
        await installed(world)
        await world.request("DELETE", f"{SERVERS}/notes")
        await world.put(f"{SERVERS}/notes", stdio("notes"))
        gone = await world.request("DELETE", f"{PACKAGES}/notes")

        assert [(one["kind"], one["id"]) for one in gone.json()["changes"]] == [("package", "notes")]
        assert (await world.get(f"{SERVERS}/notes"))["server_id"] == "notes"


async def test_pruning_leaves_what_was_installed_alone() -> None:
    async with open_rest() as world:
        await installed(world)
        await world.seed(server=[stdio("other")])
        done = await world.post("/admin/api/apply", {"changes": [], "prune": True})

        assert [(one["kind"], one["id"]) for one in done["changes"]] == [("server", "other")]


async def test_a_version_never_changes() -> None:
    async with open_rest() as world:
        await publish(world)
        same = await upload(world.request, pack(manifest()))
        other = await upload(world.request, pack(manifest(), {"more.txt": b"more"}))

        assert same.status_code == 200
        assert error_of(other) == (409, "conflict")


async def test_all_that_is_wrong_with_a_manifest_is_shown_at_once() -> None:
    wrong = manifest(version="../2", tools=[{"name": "a b", "inputSchema": {}}], colour="red")
    async with open_rest() as world:
        response = await upload(world.request, pack(wrong))
        fields = {one["field"] for one in response.json()["error"]["data"]["problems"]}

        assert error_of(response) == (400, "invalid_record")
        assert {"version", "colour"} <= fields
        assert any(field.startswith("tools[0]") for field in fields)


async def test_an_upload_that_is_only_checked_is_not_kept() -> None:
    async with open_rest() as world:
        response = await upload(world.request, pack(manifest()), dry_run=True)

        assert (response.status_code, response.json()["kept"]) == (200, False)
        assert (await world.get(PACKAGES))["packages"] == []


async def test_parts_that_are_there_need_not_be_sent_again() -> None:
    archive = pack(manifest())
    path = f"/api/uploads/{sha256(archive)}"
    octets = {"content_type": "application/octet-stream"}
    async with open_rest() as world:
        await world.request("PUT", f"{path}/2", archive[100:], **octets)
        early = await world.request("POST", path, {"parts": 2})
        there = await world.get(path)
        await world.request("PUT", f"{path}/1", archive[:100], **octets)
        done = await world.request("POST", path, {"parts": 2})

        assert error_of(early) == (400, "invalid_request")
        assert there == {"parts": [2]}
        assert done.status_code == 200


async def test_an_upload_that_no_one_wants_any_more_is_discarded() -> None:
    path = f"/api/uploads/{'0' * 64}"
    async with open_rest() as world:
        await world.request("PUT", f"{path}/1", b"...", content_type="application/octet-stream")
        discarded = await world.request("DELETE", path)

        assert (discarded.status_code, discarded.json()) == (200, {"parts": []})
        assert await world.get(path) == {"parts": []}


@pytest.mark.parametrize(
    ("part", "media_type", "expected"),
    [
        pytest.param("1", "application/json", (415, "unsupported_media"), id="a part is no JSON"),
        pytest.param("0", "application/octet-stream", (400, "invalid_request"), id="parts count from 1"),
        pytest.param("x", "application/octet-stream", (400, "invalid_record"), id="a part is a number"),
        pytest.param("999", "application/octet-stream", (400, "invalid_request"), id="parts are few"),
    ],
)
async def test_what_is_no_part_is_refused(part: str, media_type: str, expected: tuple[int, str]) -> None:
    async with open_rest() as world:
        response = await world.request(
            "PUT", f"/api/uploads/{'0' * 64}/{part}", b"...", content_type=media_type
        )

        assert error_of(response) == expected


async def test_a_manifest_is_shown_in_one_form_without_its_secrets() -> None:
    run = {"transport": "stdio", "command": "serve", "env": {"API_KEY": "hunter2", "REGION": "eu"}}
    async with open_rest() as world:
        await publish(world, run=run, **{"x-team": "blue"})
        shown = await world.get(f"{PACKAGES}/notes/1.0.0/manifest")
        old = await upload(world.request, pack({"id": "old", "command": "serve", "toolsSummary": ["a", "b"]}))
        modern = await world.get(f"{PACKAGES}/old/{old.json()['version']}/manifest")

        assert shown["run"]["env"] == {"API_KEY": "***", "REGION": "eu"}
        assert (shown["x-team"], [one["name"] for one in shown["tools"]]) == ("blue", ["echo"])
        assert (modern["manifestSchemaVersion"], [one["name"] for one in modern["toolsSummary"]]) == (
            "v2",
            ["a", "b"],
        )


async def test_what_only_names_its_tools_or_says_nothing_is_installed_without_a_pin() -> None:
    async with open_rest() as world:
        await upload(
            world.request, pack({"id": "old", "command": "serve", "toolsSummary": {"echo": "Says it."}})
        )
        await upload(world.request, pack({"id": "bare", "command": "serve"}))
        summary = (await install(world, "old")).json()
        nothing = (await install(world, "bare")).json()
        offered = await served_tools(world)
        await install(world, "bare", allowed_tools=["*"])

        assert (summary["allowed_tools"], summary["pinned"]) == (["echo"], False)
        assert (nothing["allowed_tools"], nothing["pinned"]) == ([], False)
        assert any("--allow" in warning for warning in nothing["warnings"])
        assert offered == ["old.echo"]
        assert await served_tools(world) == ["bare.echo", "old.echo"]


async def test_a_key_that_is_bound_to_servers_publishes_and_installs_those_alone() -> None:
    async with open_rest(trusts_local=False) as world:
        bound = {"key_id": "bound", "role": "admin", "ceiling": {"servers": ["notes"]}}
        admin = {"authorization": f"Bearer {secret_of('admin')}"}
        made = await world.request("POST", "/admin/api/keys", bound, **admin)
        key = {"authorization": f"Bearer {made.json()['secret']}"}

        async def request(method: str, url: str, body: Any = None, **headers: str) -> httpx2.Response:
            return await world.request(method, url, body, **key, **headers)

        async def ask_as_admin(method: str, url: str, body: Any = None, **headers: str) -> httpx2.Response:
            return await world.request(method, url, body, **admin, **headers)

        own = await upload(request, pack(manifest()))
        foreign = await upload(request, pack(manifest(package_id="other")))
        await upload(ask_as_admin, pack(manifest(package_id="other")))
        installs = [await request("POST", f"{PACKAGES}/{one}/install", {}) for one in ("notes", "other")]
        removal = await request("DELETE", f"{PACKAGES}/other/1.0.0")

        assert (own.status_code, error_of(foreign)) == (200, (403, "forbidden"))
        assert [response.status_code for response in installs] == [201, 403]
        assert removal.status_code == 403


async def test_a_condition_is_held_against_the_record_of_the_package() -> None:
    async with open_rest() as world:
        await installed(world)
        revision = (await world.get(f"{PACKAGES}/notes"))["revision"]
        await publish(world, version="2")
        stale = await world.request("POST", f"{PACKAGES}/notes/install", {}, if_match='"1"')
        fresh = await world.request("POST", f"{PACKAGES}/notes/install", {}, if_match=f'"{revision}"')
        late = await world.request("DELETE", f"{PACKAGES}/notes", if_match=f'"{revision}"')

        assert [stale.status_code, fresh.status_code, late.status_code] == [409, 200, 409]


async def test_the_schema_of_manifests_is_for_anyone() -> None:
    async with open_rest(trusts_local=False) as world:
        schema = await world.get("/api/schemas/manifest.v2.json")

        assert schema["$schema"] == "https://json-schema.org/draft/2020-12/schema"
