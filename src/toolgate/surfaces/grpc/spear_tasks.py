"""SPEAR's `sms.TaskService` over Toolgate's tasks, so that SPEAR's tools can set a task's MCP policy.

A SPEAR task is the Toolgate task of the same name. Only `config` has policy, so only it, the name and the
description are stored. RPCs without an equivalent in Toolgate are UNIMPLEMENTED; no result is invented.
"""

import asyncio
from collections.abc import AsyncGenerator, Mapping
from dataclasses import replace
from typing import Final

from google.protobuf.message import Message

from toolgate.errors import InvalidRecord, InvalidRequest, MethodNotFound
from toolgate.govern.changes.commit import commit_changes
from toolgate.govern.changes.permissions import WRITER_ROLES
from toolgate.govern.changes.records import PendingChange, show_record
from toolgate.model.revisions import StoredRecord
from toolgate.proto import task_pb2 as sms
from toolgate.registry.records.codec import parse_id
from toolgate.surfaces.grpc.dispatch import Rpc, RpcCall, rpc

SERVICE: Final = "sms.TaskService"
DEFAULT_LIMIT: Final = 100
"""The default limit of a list, as in SPEAR's console."""
MAX_LIMIT: Final = 1_000
"""The most tasks in one list: 5,000 tasks with a large `config` each would not fit into one message."""

_NOT_KEPT: Final = ("priority", "node_uuid", "endpoint", "version", "capabilities", "metadata")


@rpc(SERVICE, "RegisterTask", WRITER_ROLES["task"])
async def register_task(call: RpcCall[sms.RegisterTaskRequest]) -> sms.RegisterTaskResponse:
    """Create the task with this name, or replace the `config` of the one that exists.

    Fields without policy are not stored, and `message` names them. An `executable` is UNIMPLEMENTED.
    """
    sent = call.request
    if sent.HasField("executable"):
        raise MethodNotFound(
            "Toolgate does not run the `executable` of a SPEAR task",
            hint="register the task without it, upload the module with `toolgate modules upload FILE`, and "
            "set it as the task's `workload.module`",
        )
    task_id = parse_id("task", sent.name)
    body = {"task_id": task_id, "config": dict(sent.config)}
    if sent.description:
        body["display_name"] = sent.description
    draft = PendingChange(kind="task", id=task_id, sent=body, keeping=("display_name", "workload"))
    written = await commit_changes(call.control, call.caller, [draft])
    notes = ["registered" if written.is_new else "updated", *written.warnings]
    if ignored := [name for name in _NOT_KEPT if getattr(sent, name)]:
        notes.append(f"Toolgate does not store {', '.join(f'`{name}`' for name in ignored)}")
    return sms.RegisterTaskResponse(
        success=True, message="; ".join(notes), task_id=task_id, task=_encode_task(written.stored)
    )


@rpc(SERVICE, "ListTasks", "viewer")
async def list_tasks(call: RpcCall[sms.ListTasksRequest]) -> sms.ListTasksResponse:
    """Tasks sorted by name, `limit` at a time. They have no node or priority; all are `REGISTERED`."""
    asked = call.request
    if asked.limit < 0 or asked.offset < 0:
        raise InvalidRequest("`limit` and `offset` must not be negative")
    is_other = asked.node_uuid or asked.priority_filter
    if is_other or asked.status_filter not in (sms.TASK_STATUS_UNKNOWN, sms.TASK_STATUS_REGISTERED):
        return sms.ListTasksResponse()
    records = (await call.control.store.list("task")).records
    upto = asked.offset + min(asked.limit or DEFAULT_LIMIT, MAX_LIMIT)
    # In a thread: encoding a thousand large records would block the event loop.
    tasks = await asyncio.to_thread(lambda: [_encode_task(one) for one in records[asked.offset : upto]])
    return sms.ListTasksResponse(tasks=tasks, total_count=len(records))


@rpc(SERVICE, "GetTask", "viewer")
async def get_task(call: RpcCall[sms.GetTaskRequest]) -> sms.GetTaskResponse:
    """One task. `found` is false if the id is unknown."""
    try:
        stored = await call.control.store.get("task", parse_id("task", call.request.task_id))
    except InvalidRecord:
        stored = None
    if stored is None:
        return sms.GetTaskResponse(found=False)
    return sms.GetTaskResponse(found=True, task=_encode_task(stored))


@rpc(SERVICE, "UnregisterTask", WRITER_ROLES["task"])
async def unregister_task(call: RpcCall[sms.UnregisterTaskRequest]) -> sms.UnregisterTaskResponse:
    """Delete the task. NOT_FOUND if the id is unknown."""
    task_id = parse_id("task", call.request.task_id)
    draft = PendingChange(kind="task", id=task_id, sent=None)
    done = await commit_changes(call.control, call.caller, [draft])
    message = "; ".join(["unregistered", *done.warnings])
    return sms.UnregisterTaskResponse(success=True, message=message, task_id=task_id)


def _encode_task(stored: StoredRecord) -> sms.Task:
    body = show_record(stored)
    try:
        description, config = body["display_name"], body["config"]
        task = sms.Task(task_id=stored.id, name=stored.id, description=description, config=config)
    except (KeyError, TypeError, ValueError):  # another version stored it in a form that no message has
        task = sms.Task(task_id=stored.id, name=stored.id)
    task.status = sms.TASK_STATUS_REGISTERED
    task.registered_at = stored.updated_at_ms // 1_000
    return task


_UNSUPPORTED: Final[Mapping[str, tuple[str, str]]] = {
    "SubscribeTaskEvents": (
        "Toolgate sends no events to SPEAR's nodes",
        "watch tasks with `toolgate.v1.TaskService/WatchTasks`",
    ),
    "ResolveEndpoint": (
        "Toolgate's tasks have no endpoint",
        "use the name of the task, with `sms.TaskService/GetTask`",
    ),
    "UpdateTaskStatus": (
        "Toolgate's tasks have no status",
        "set `mcp.enabled` in its `config` with `sms.TaskService/RegisterTask`",
    ),
    "UpdateTaskResult": (
        "Toolgate records the results of runs itself",
        "read them at `/api/v1/tasks/{task_id}/invocations`",
    ),
}
"""RPCs of SPEAR's service that Toolgate does not support: the reason, and what to do instead."""


def _unsupported_rpc(method: str, why: str, instead: str) -> Rpc:
    async def reject(_call: RpcCall[Message]) -> Message:
        raise MethodNotFound(f"`{SERVICE}/{method}`: {why}", hint=instead)

    async def reject_stream(call: RpcCall[Message]) -> AsyncGenerator[Message, None]:
        yield await reject(call)

    reject.__doc__ = reject_stream.__doc__ = f"UNIMPLEMENTED: {why}; {instead}."
    row = rpc(SERVICE, method, "viewer")(reject)
    return replace(row, handler=reject_stream) if row.descriptor.server_streaming else row


SPEAR_TASK_RPCS: Final = (
    register_task,
    list_tasks,
    get_task,
    unregister_task,
    *(_unsupported_rpc(method, *reasons) for method, reasons in _UNSUPPORTED.items()),
)
