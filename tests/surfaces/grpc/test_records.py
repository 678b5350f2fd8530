"""Listing and writing records over gRPC: what is shown, what is kept, what is refused."""

from typing import Any, Final

import grpc
import grpc.aio
import pytest

from tests.surfaces.grpc.grpc_world import SERVERS, GrpcWorld, open_grpc_world, refusal_of, server_message
from tests.surfaces.rest_world import http, secret_of, stdio, task
from toolgate.gateway.auth.identity import hash_key
from toolgate.govern.operator_policy import OperatorPolicy
from toolgate.govern.pins import record_quarantined
from toolgate.proto import mcp_registry_pb2 as sms
from toolgate.proto import policy_pb2 as policy

pytestmark = pytest.mark.anyio

LIST: Final = f"{SERVERS}/ListMcpServers"
UPSERT: Final = f"{SERVERS}/UpsertMcpServer"
DELETE: Final = f"{SERVERS}/DeleteMcpServer"
CANARY: Final = "canary-5f2c"


async def refused(response: Any) -> tuple[str, str]:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await response
    return refusal_of(caught.value)


async def body_of(world: GrpcWorld, server_id: str) -> Any:
    stored = await world.store.get("server", server_id)
    assert stored is not None
    return stored.body


@pytest.mark.requirement("002-067")
async def test_a_listing_has_one_revision_and_each_record_its_own() -> None:
    async with open_grpc_world() as world:
        await world.upsert(server_message("b"))
        await world.upsert(server_message("a"))
        listing = await world.request(LIST, sms.ListMcpServersRequest())

        assert (listing.revision, listing.epoch) == (world.store.revision, world.store.epoch)
    assert [(one.server_id, one.revision) for one in listing.servers] == [
        ("a", listing.revision),
        ("b", listing.revision - 1),
    ]
    assert {one.updated_at_ms for one in listing.servers} == {1_700_000_000_000}


async def test_an_unchanged_listing_may_come_without_bodies_and_only_if_asked_for_so() -> None:
    async with open_grpc_world() as world:
        now = await world.upsert(server_message("git"))
        epoch = world.store.epoch
        asked = [
            sms.ListMcpServersRequest(since_revision=now, epoch=epoch, may_omit_unchanged=True),
            sms.ListMcpServersRequest(since_revision=now, epoch=epoch),
            sms.ListMcpServersRequest(since_revision=now - 1, epoch=epoch, may_omit_unchanged=True),
            sms.ListMcpServersRequest(since_revision=now, epoch="another", may_omit_unchanged=True),
            sms.ListMcpServersRequest(since_revision=now, may_omit_unchanged=True),
        ]
        responses = [await world.request(LIST, request) for request in asked]

    assert [(one.unchanged, len(one.servers)) for one in responses] == [(True, 0)] + [(False, 1)] * 4
    assert {one.revision for one in responses} == {now}


async def test_sec_1_secrets_are_masked_for_everyone_but_a_node() -> None:
    async with open_grpc_world() as world:
        await world.rest.seed(
            server=[
                stdio("git", stdio={"env": {"API_KEY": CANARY}, "args": ["--token", CANARY]}),
                http("web", http={"headers": {"Authorization": f"Bearer {CANARY}"}}),
            ]
        )
        shown = {
            role: str(await world.servers(key=secret_of(role))) for role in ("viewer", "publisher", "admin")
        }
        node = await world.servers(key=secret_of("node"))

    assert [role for role, text in shown.items() if CANARY in text] == []
    assert node["git"].stdio.env["API_KEY"] == CANARY
    assert node["web"].http.headers["Authorization"] == f"Bearer {CANARY}"


async def test_a_listed_record_that_is_changed_and_sent_back_loses_nothing() -> None:
    body = stdio(
        "git",
        stdio={"env": {"API_KEY": CANARY}, "env_from": ["HOME"], "cwd": "/srv"},
        tags=["code"],
        sharing="per_session",
        idle_timeout_s=60,
        budgets={"max_concurrency": 3},
    )
    async with open_grpc_world() as world:
        await world.rest.seed(server=[body])
        before = await body_of(world, "git")
        record = (await world.servers())["git"]
        record.display_name = "Git"
        await world.upsert(record, if_revision=record.revision)

        assert await body_of(world, "git") == before | {"display_name": "Git"}


async def test_rep_6_what_a_newer_version_stored_survives_a_change_by_this_one() -> None:
    async with open_grpc_world() as world:
        await world.rest.seed(server=[stdio("git", enabled=False) | {"of_the_future": {"x": 1}}])
        record = (await world.servers())["git"]
        record.display_name = "Git"
        await world.upsert(record)

        assert (await body_of(world, "git"))["of_the_future"] == {"x": 1}


async def test_a_client_without_our_fields_leaves_what_they_hold() -> None:
    async with open_grpc_world() as world:
        policy = {"default": "always", "in_place": False}
        await world.rest.seed(
            server=[stdio("git", tags=["code"], category="dev", enabled=False, approval_policy=policy)]
        )
        asked = sms.McpApprovalPolicy(default_policy="policy")
        await world.upsert(server_message("git", display_name="Git", approval_policy=asked))

        body = await body_of(world, "git")
    assert body["approval_policy"] == {"default": "policy", "in_place": False}
    assert (body["tags"], body["category"], body["enabled"]) == (["code"], "dev", False)
    assert body["display_name"] == "Git"


async def test_a_client_with_our_fields_replaces_them_all() -> None:
    async with open_grpc_world() as world:
        await world.rest.seed(server=[stdio("git", tags=["code"], category="dev", enabled=False)])
        await world.upsert(server_message("git", extras=sms.McpServerExtras(tags=["vcs"])))

        body = await body_of(world, "git")
    assert body["tags"] == ["vcs"]
    assert "category" not in body
    assert "enabled" not in body


@pytest.mark.parametrize(
    ("record", "field"),
    [
        pytest.param(server_message(""), "server_id", id="no id"),
        pytest.param(server_message("git", transport=0), "transport", id="no transport"),
        pytest.param(server_message("git", transport=7), "transport", id="a transport no one knows"),
        pytest.param(
            server_message("git", stdio=sms.McpStdioConfig(args=["x"])), "stdio.command", id="no command"
        ),
        pytest.param(
            server_message("web", transport=2, stdio=None, http=sms.McpHttpConfig(auth_ref="x")),
            "http.url",
            id="no url",
        ),
        pytest.param(server_message("git", stdio=None), "stdio", id="no stdio"),
        pytest.param(
            server_message("git", approval_policy=sms.McpApprovalPolicy(default_policy="perhaps")),
            "approval_policy.default",
            id="a policy no one knows",
        ),
        pytest.param(
            server_message("git", budgets=sms.McpBudgets(max_tool_output_bytes=2**64 - 1)),
            "budgets.max_tool_output_bytes",
            id="a budget past all bounds",
        ),
        pytest.param(
            server_message("git", stdio=sms.McpStdioConfig(command="x", env={"API_KEY": "***"})),
            "stdio.env.API_KEY",
            id="a mask without a secret",
        ),
    ],
)
async def test_a_wrong_record_is_refused_by_the_name_of_its_field(
    record: sms.McpServerRecord, field: str
) -> None:
    async with open_grpc_world() as world:
        before = world.store.revision
        with pytest.raises(grpc.aio.AioRpcError, match=f"`{field}`") as caught:
            await world.upsert(record)

        assert refusal_of(caught.value) == ("INVALID_ARGUMENT", "invalid_record")
        assert world.store.revision == before


async def test_adm_12_a_stale_revision_aborts_and_changes_nothing() -> None:
    async with open_grpc_world() as world:
        first = await world.upsert(server_message("git"), if_revision=0)
        again = refused(world.upsert(server_message("git"), if_revision=0))
        stale = refused(world.upsert(server_message("git", display_name="x"), if_revision=first - 1))
        gone = refused(
            world.request(DELETE, sms.DeleteMcpServerRequest(server_id="git", if_revision=first + 1))
        )

        assert [await again, await stale, await gone] == [("ABORTED", "conflict")] * 3
        assert world.store.revision == first


async def test_removing_what_is_not_there_is_not_found() -> None:
    async with open_grpc_world() as world:
        await world.upsert(server_message("git"))
        removed = await world.request(DELETE, sms.DeleteMcpServerRequest(server_id="git"))
        again = await refused(world.request(DELETE, sms.DeleteMcpServerRequest(server_id="git")))

        assert removed.revision == world.store.revision
    assert again == ("NOT_FOUND", "not_found")


async def test_what_still_names_a_removed_server_is_shown() -> None:
    async with open_grpc_world() as world:
        await world.rest.seed(server=[stdio("git")], task=[task("review", default_server_ids=["git"])])
        removed = await world.request(DELETE, sms.DeleteMcpServerRequest(server_id="git"))

    assert any("review" in warning for warning in removed.warnings)


async def test_a_command_that_may_not_be_started_is_not_stored() -> None:
    async with open_grpc_world() as world:
        object.__setattr__(world.rest.control, "operator_policy", OperatorPolicy(allowed_commands=("uvx",)))

        assert await refused(world.upsert(server_message("git"))) == ("INVALID_ARGUMENT", "invalid_record")
        assert await world.upsert(server_message("git", stdio=sms.McpStdioConfig(command="uvx")))


async def test_where_changes_are_reviewed_they_name_their_plan() -> None:
    async with open_grpc_world() as world:
        object.__setattr__(world.rest.control, "operator_policy", OperatorPolicy(requires_plan=True))
        record = server_message("git")
        unplanned = await refused(world.upsert(record))
        outdated = await refused(world.upsert(record, plan="0" * 32))
        body = {"kind": "server", "id": "git", "body": stdio("git")}
        plan = await world.rest.post("/admin/api/plan", body)

        assert await world.upsert(record, plan=plan["id"]) == world.store.revision
    assert unplanned == ("FAILED_PRECONDITION", "plan_required")
    assert outdated == ("FAILED_PRECONDITION", "plan_outdated")


@pytest.mark.requirement("000-33")
async def test_tasks_profiles_and_pins_are_written_listed_and_removed_alike() -> None:
    written = {
        "Task": policy.Task(task_id="a", display_name="A", config={"mcp.enabled": "true"}),
        "Profile": policy.Profile(
            profile_id="a",
            selection=policy.Selection(servers=policy.Names(), deny=["push"]),
            environments={"prod": policy.Selection(allow=policy.Names(values=["read_*"]))},
            version=4,
            rollout=policy.Rollout(
                version=5,
                share=10,
                by="task",
                selection=policy.Selection(tags=policy.Names(values=["code"])),
                environments={"dev": policy.Selection(deny=["push"])},
            ),
        ),
        "Pin": policy.Pin(server_id="a", tools={"read": "0" * 64}),
    }
    async with open_grpc_world() as world:
        for noun, message in written.items():
            service, field = f"toolgate.v1.{noun}Service", noun.lower()
            request = getattr(policy, f"Upsert{noun}Request")(**{field: message})
            done = await world.request(f"{service}/Upsert{noun}", request)
            (listed,) = getattr(
                await world.request(f"{service}/List{noun}s", policy.ListRequest()), f"{field}s"
            )
            assert listed.revision == done.revision == world.store.revision
            listed.ClearField("revision")
            listed.ClearField("updated_at_ms")
            assert listed == message
            await world.request(f"{service}/Delete{noun}", policy.DeleteRequest(id="a"))
            gone = await world.request(f"{service}/List{noun}s", policy.ListRequest())
            assert not getattr(gone, f"{field}s")


async def test_ups_9_a_client_that_knows_nothing_of_changed_tools_approves_of_none_by_accident() -> None:
    service, found = "toolgate.v1.PinService", {"read": "1" * 64}
    approved = policy.Pin(server_id="a", tools={"read": "0" * 64})

    async with open_grpc_world() as world:

        async def upsert(pin: policy.Pin) -> dict[str, str]:
            await world.request(f"{service}/UpsertPin", policy.UpsertPinRequest(pin=pin))
            (listed,) = (await world.request(f"{service}/ListPins", policy.ListRequest())).pins
            return dict(listed.changed)

        await upsert(approved)
        await record_quarantined(world.store, {"a": found}, seen=world.store.revision)
        kept = await upsert(approved)
        sent_back = await upsert(policy.Pin(server_id="a", tools=approved.tools, changed=found))
        received = await upsert(policy.Pin(server_id="a", tools=approved.tools, changed={"read": ""}))

    assert (kept, sent_back, received) == (found, found, {})


async def test_adm_8_no_one_grants_more_than_they_have() -> None:
    secret = "tg_bound" * 8
    bound = {"key_id": "bound", "role": "publisher", "ceiling": {"servers": ["git"]}}
    async with open_grpc_world() as world:
        await world.rest.seed(key=[bound | {"sha256": hash_key(secret)}])

        def write(server_id: str) -> Any:
            config = {"mcp.default_server_ids": f'["{server_id}"]'}
            request = policy.UpsertTaskRequest(task=policy.Task(task_id="t", config=config))
            return world.request("toolgate.v1.TaskService/UpsertTask", request, key=secret)

        await write("git")
        assert await refused(write("fs")) == ("PERMISSION_DENIED", "forbidden")


async def test_every_write_is_in_the_audit_log() -> None:
    async with open_grpc_world() as world:
        await world.upsert(server_message("git"), key=secret_of("admin"))
        await world.request(DELETE, sms.DeleteMcpServerRequest(server_id="git"), key=secret_of("admin"))

        noted = [(one.principal, one.operation, one.record_id) for one in world.rest.audited]
    assert noted == [("key:admin", "put", "git"), ("key:admin", "delete", "git")]
