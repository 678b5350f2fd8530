"""A client generated from SPEAR's definitions alone works as it is, and costs our fields nothing."""

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

import pytest
from grpc_tools import protoc

from tests.architecture.source_tree import ROOT
from tests.surfaces.grpc.grpc_world import open_grpc_world
from tests.surfaces.rest_world import secret_of, stdio, task

pytestmark = pytest.mark.anyio
HERE = Path(__file__).parent


async def run_client(address: str, generated: Path, module: str, service: str) -> Any:
    command = [str(HERE / "spear_client.py"), address, secret_of("admin"), str(generated), module, service]
    process = await asyncio.create_subprocess_exec(sys.executable, *command, stdout=asyncio.subprocess.PIPE)
    try:
        output, _ = await asyncio.wait_for(process.communicate(), 60)
    except TimeoutError:
        process.kill()
        await process.wait()
        raise
    return json.loads(output)


@pytest.mark.requirement("002-013", "002-070")
async def test_rep_6_a_client_of_spears_lists_watches_upserts_and_deletes(tmp_path: Path) -> None:
    arguments = [f"-I{HERE}", f"--python_out={tmp_path}", f"--grpc_python_out={tmp_path}", "spear.proto"]
    assert protoc.main(["protoc", *arguments]) == 0
    git = stdio(
        "git",
        stdio={"env": {"API_KEY": "canary"}, "env_from": ["HOME"]},
        tags=["code"],
        enabled=False,
        sharing="per_session",
    )
    async with open_grpc_world(trusts_local=False) as world:
        await world.rest.seed(server=[git, stdio("old", enabled=False)])
        saw = await run_client(world.address, tmp_path, "spear", "McpRegistryService")
        stored = {one.id: one.body for one in (await world.store.list("server")).records}

    assert saw == {
        "listed": ["git", "old"],
        "env": {"API_KEY": "***"},
        "events": [[[], []], [["git"], []], [["made"], []], [[], ["old"]]],
        "refusals": ["NOT_FOUND", "INVALID_ARGUMENT"],
    }
    assert stored["git"] == git | {"display_name": "changed"}
    assert stored["made"]["budgets"] == {"max_concurrency": 2}
    assert "old" not in stored


async def test_a_control_tool_of_spears_sets_the_mcp_policy_of_a_task(tmp_path: Path) -> None:
    sources = ROOT / "proto" / "sms"
    arguments = [f"-I{sources}", f"--python_out={tmp_path}", f"--grpc_python_out={tmp_path}", "task.proto"]
    assert protoc.main(["protoc", *arguments]) == 0
    async with open_grpc_world(trusts_local=False) as world:
        await world.rest.seed(server=[stdio("fs", enabled=False)], task=[task("old"), task("other")])
        saw = await run_client(world.address, tmp_path, "task", "TaskService")
        stored = {one.id: one.body for one in (await world.store.list("task")).records}

    config = {
        "mcp.enabled": "true",
        "mcp.default_server_ids": '["fs"]',
        "color": "blue",
        "mcp.tool_denylist": '["write_*"]',
    }
    refused = {why: status for why, (status, _) in saw["refused"].items()}
    assert saw["registered"][:2] == [True, "review"]
    assert "does not store `endpoint`, `version`" in saw["registered"][2]
    assert saw["changed"][:2] == [True, "Reviews"]
    assert saw["found"] == [True, config, "TASK_STATUS_REGISTERED"]
    assert saw["listed"] == [["old"], 3]
    assert saw["missing"] is False
    assert refused == {
        "unknown key": "INVALID_ARGUMENT",
        "executable": "UNIMPLEMENTED",
        "gone": "NOT_FOUND",
        "endpoint": "UNIMPLEMENTED",
    }
    assert "`workload.module`" in saw["refused"]["executable"][1]
    assert "`sms.TaskService/GetTask`" in saw["refused"]["endpoint"][1]
    assert stored["review"] == {"task_id": "review", "display_name": "Reviews", "config": config}
    assert "old" not in stored
