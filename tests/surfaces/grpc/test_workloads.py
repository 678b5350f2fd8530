"""Workloads over gRPC: nodes get the modules, and clients the records."""

import asyncio
import hashlib
import os
from pathlib import Path
from typing import Any, Final

import grpc.aio
import pytest

from tests.surfaces.grpc.grpc_world import GrpcWorld, open_grpc_world, refusal_of
from tests.surfaces.rest_world import TASKS, secret_of
from toolgate.errors import ControlUnavailable, Forbidden, NotFound, ToolgateError
from toolgate.proto import policy_pb2 as policy
from toolgate.registry.replication.connection import ControlAddress, open_control_connection

pytestmark = pytest.mark.anyio

CONTENT: Final = os.urandom(5 * 1024 * 1024 + 1)
MODULE: Final = hashlib.sha256(CONTENT).hexdigest()
LIST: Final = "toolgate.v1.TaskService/ListTasks"
UPSERT: Final = "toolgate.v1.TaskService/UpsertTask"
DEADLINE_S: Final = 240
CANARY: Final = "canary-77d1"


async def keep(world: GrpcWorld, directory: Path) -> None:
    path = directory / "module"
    path.write_bytes(CONTENT)
    await world.rest.control.modules.put(path, sha256=MODULE)


async def read(world: GrpcWorld, sha256: str = MODULE, *, role: str = "node") -> list[bytes]:
    """The pieces that a node gets."""
    control = ControlAddress(targets=(world.address,), key=secret_of(role))
    async with asyncio.timeout(DEADLINE_S), open_control_connection(control) as link:
        return [piece async for piece in link.read_module(sha256)]


async def stored_workload(world: GrpcWorld) -> Any:
    stored = await world.store.get("task", "job")
    assert stored is not None
    return stored.body.get("workload")


async def test_a_module_comes_in_pieces_and_is_the_one_that_was_uploaded(tmp_path: Path) -> None:
    async with open_grpc_world() as world:
        await keep(world, tmp_path)
        pieces = await read(world)

    assert b"".join(pieces) == CONTENT
    assert max(map(len, pieces)) < len(CONTENT)


async def test_modules_are_for_nodes_alone_and_only_those_there_are(tmp_path: Path) -> None:
    """FIL-3"""
    refused = []
    async with open_grpc_world(trusts_local=False) as world:
        await keep(world, tmp_path)
        for sha256, role in ((MODULE, "admin"), ("0" * 64, "node"), ("../packages", "node")):
            with pytest.raises(ToolgateError) as raised:
                await read(world, sha256, role=role)
            refused.append(raised.type)

    assert refused == [Forbidden, NotFound, ControlUnavailable]


async def test_a_workload_is_written_shown_without_secrets_kept_and_removed(tmp_path: Path) -> None:
    """SEC-1"""
    workload = policy.Workload(
        module=MODULE,
        args=["-v"],
        env={"API_TOKEN": CANARY},
        limits=policy.WorkloadLimits(max_calls=0, fuel=5_000_000),
        retries=2,
    )
    async with open_grpc_world() as world:
        await keep(world, tmp_path)
        await world.request(
            UPSERT, policy.UpsertTaskRequest(task=policy.Task(task_id="job", workload=workload))
        )
        written = await stored_workload(world)
        shown = (await world.request(LIST, policy.ListRequest())).tasks[0]
        await world.request(UPSERT, policy.UpsertTaskRequest(task=shown))
        sent_back = await stored_workload(world)
        await world.request(
            UPSERT, policy.UpsertTaskRequest(task=policy.Task(task_id="job", display_name="J"))
        )
        kept = await stored_workload(world)
        over_rest = await world.rest.get(f"{TASKS}/job")
        empty = policy.Task(task_id="job", workload=policy.Workload())
        await world.request(UPSERT, policy.UpsertTaskRequest(task=empty))
        removed = await stored_workload(world)

    assert written == {
        "module": MODULE,
        "args": ["-v"],
        "env": {"API_TOKEN": CANARY},
        "limits": {"fuel": 5_000_000, "max_calls": 0},
        "retries": 2,
    }
    assert shown.workload.env == {"API_TOKEN": "***"}
    assert (shown.workload.limits.max_calls, shown.workload.limits.max_fds) == (0, 64)
    assert (sent_back, kept, removed) == (written, written, None)
    assert over_rest["workload"]["limits"]["fuel"] == 5_000_000


async def test_a_task_is_not_given_a_module_that_is_not_there() -> None:
    async with open_grpc_world() as world:
        task = policy.Task(task_id="job", workload=policy.Workload(module=MODULE))
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await world.request(UPSERT, policy.UpsertTaskRequest(task=task))

    assert refusal_of(caught.value) == ("INVALID_ARGUMENT", "invalid_record")
