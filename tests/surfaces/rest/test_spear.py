"""What SPEAR's users bring along, over REST and gRPC: their records, their uploads, their watches."""

import tomllib
from typing import Any, Final

import grpc.aio
import pytest

from tests.registry.spear_files import SPEAR_FILES
from tests.surfaces.grpc.grpc_world import SERVERS as SERVICE
from tests.surfaces.grpc.grpc_world import open_grpc_world, refusal_of
from tests.surfaces.rest_world import SERVERS, TASKS, error_of, open_rest, secret_of, stdio, task
from toolgate.proto import mcp_registry_pb2 as sms

pytestmark = pytest.mark.anyio

IMPORT: Final = f"{SERVERS}/import"
BOUNDARY: Final = "------------------------d74496d66958873e"
FORM: Final = f"multipart/form-data; boundary={BOUNDARY}"


def form(*parts: tuple[str, str]) -> bytes:
    """A form as `curl --form` sends it; a part called `file` has a file name."""
    lines = []
    for name, text in parts:
        file = '; filename="fs.toml"\r\nContent-Type: application/octet-stream' if name == "file" else ""
        lines.append(f'--{BOUNDARY}\r\nContent-Disposition: form-data; name="{name}"{file}\r\n\r\n{text}\r\n')
    return "".join([*lines, f"--{BOUNDARY}--\r\n"]).encode()


async def test_a_record_with_empty_texts_is_stored_alike_over_rest_and_grpc() -> None:
    async with open_rest() as world:
        for text in SPEAR_FILES.values():
            body = tomllib.loads(text)
            await world.put(f"{SERVERS}/{body['server_id']}", body)
        by_rest = {one.id: one.body for one in (await world.store.list("server")).records}
    async with open_grpc_world() as grpc_world:
        for text in SPEAR_FILES.values():
            await grpc_world.upsert(_message(tomllib.loads(text)))
        by_grpc = {one.id: one.body for one in (await grpc_world.store.list("server")).records}

    assert sorted(by_rest) == ["fs", "gitlab", "kubernetes", "web-search"]
    assert by_rest == by_grpc


def _message(body: dict[str, Any]) -> sms.McpServerRecord:
    return sms.McpServerRecord(
        server_id=body["server_id"],
        display_name=body["display_name"],
        transport=sms.MCP_TRANSPORT_STDIO,
        stdio=sms.McpStdioConfig(**body["stdio"]),
        tool_namespace=body["tool_namespace"],
        allowed_tools=body["allowed_tools"],
        budgets=sms.McpBudgets(**body["budgets"]),
    )


async def test_a_task_over_rest_may_name_its_profile_without_quotes() -> None:
    async with open_rest() as world:
        sent = {"config": {"mcp.enabled": "true", "mcp.profile": "code-review"}}
        await world.put(f"{TASKS}/review", sent)
        stored = await world.store.get("task", "review")

    assert stored is not None
    assert stored.body["config"]["mcp.profile"] == '"code-review"'


@pytest.mark.requirement("002-085")
async def test_a_registry_file_is_imported_as_a_multipart_upload() -> None:
    async with open_rest() as world:
        file, allowed = SPEAR_FILES["fs.toml"], (("allowed_tools", "read_*"), ("allowed_tools", "stat_*"))
        without_list = "".join(line for line in file.splitlines(True) if not line.startswith("allowed_tools"))
        sent = form(("file", without_list), *allowed)
        tried = await world.request(
            "POST", IMPORT, form(("file", file), ("dry_run", "true")), content_type=FORM
        )
        unchanged = world.store.revision
        done = await world.request("POST", IMPORT, sent, content_type=FORM)
        stored = await world.store.get("server", "fs")

    assert (tried.status_code, done.status_code) == (200, 200)
    assert tried.json()["plan"] is not None
    assert done.json()["revision"] == unchanged + 1
    assert stored is not None
    assert stored.body["allowed_tools"] == ["read_*", "stat_*"]


async def test_the_tools_allowed_for_an_import_do_not_widen_what_its_file_allows() -> None:
    async with open_rest() as world:
        sent = form(("file", SPEAR_FILES["fs.toml"]), ("allowed_tools", "*"))
        done = await world.request("POST", IMPORT, sent, content_type=FORM)
        stored = await world.store.get("server", "fs")

    assert done.status_code == 200
    assert stored is not None
    assert stored.body["allowed_tools"] == ["read_*", "list_*", "stat_*", "search_*"]


@pytest.mark.parametrize(
    "body",
    [
        pytest.param(b"", id="nothing"),
        pytest.param(form(("file", "x"))[:-4], id="no end"),
        pytest.param(form(("file", "x"), ("file", "y")), id="two files"),
        pytest.param(form(("files", "x")), id="an unknown part"),
        pytest.param(form(("dry_run", "yes"), ("file", "x")), id="a flag that is neither true nor false"),
        pytest.param(form(*[("only", "x")] * 65), id="too many parts"),
        pytest.param(form(("file", "x")).replace(b"x\r\n", b"\xff\r\n"), id="not UTF-8"),
        pytest.param(form(("file", "x")).replace(b'name="file"', b"name=file"), id="no name"),
    ],
)
async def test_a_form_that_cannot_be_read_is_refused(body: bytes) -> None:
    async with open_rest() as world:
        response = await world.request("POST", IMPORT, body, content_type=FORM)

    assert error_of(response) == (400, "invalid_request")


async def test_only_programs_send_forms_and_only_where_one_is_taken() -> None:
    async with open_rest() as world:
        sent = form(("file", SPEAR_FILES["fs.toml"]))
        of_a_page = await world.request(
            "POST", IMPORT, sent, content_type=FORM, origin="http://127.0.0.1:8080"
        )
        elsewhere = await world.request("POST", SERVERS, sent, content_type=FORM)
        without_boundary = await world.request("POST", IMPORT, sent, content_type="multipart/form-data")

    assert [error_of(one) for one in (of_a_page, elsewhere)] == [(415, "unsupported_media")] * 2
    assert error_of(without_boundary) == (400, "invalid_request")


async def test_a_watch_ahead_of_the_registry_is_asked_to_list_again_over_grpc() -> None:
    async with open_grpc_world() as world:
        request = sms.WatchMcpServersRequest(since_revision=world.store.revision + 1)
        call = world.stream(f"{SERVICE}/WatchMcpServers", request, key=secret_of("node"), timeout_s=60)
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await call.read()

    assert refusal_of(caught.value) == ("FAILED_PRECONDITION", "compacted")
    assert "ahead of this registry" in (caught.value.details() or "")


@pytest.mark.requirement("000-46")
async def test_a_denied_request_is_counted_under_the_servers_it_named() -> None:
    async with open_rest() as world:
        await world.seed(
            server=[stdio("git"), stdio("web")],
            task=[task("review", default_server_ids=["git", "gone"], allowed_server_ids=["git", "gone"])],
        )
        denied = await world.request("POST", "/api/v1/mcp/call?task=review&servers=web", {"name": "web.x"})
        await world.request("POST", "/api/v1/mcp/call?task=review", {"name": "git.x"})
        counted = dict(world.control.gateway.metrics.denials)

    assert error_of(denied) == (403, "mcp_policy_denied")
    assert counted["web", "mcp_policy_denied"] == 1
    assert counted["gone", "unknown_server"] == 1
    assert [server_id for server_id, _ in counted if not server_id] == []
