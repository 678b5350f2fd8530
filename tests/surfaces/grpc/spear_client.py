"""A program on code generated from SPEAR's definitions alone, for one of its services.

`McpRegistryService`: lists, watches, upserts, deletes. `TaskService`: sets the MCP policy of a task.

Arguments: address, key, the directory that the generated code is in, its module and the service. Prints what
it saw, as JSON.
"""

import importlib
import json
import sys
from typing import Any

import grpc

TIMEOUT_S = 60


def main(address: str, key: str, generated: str, module: str, service: str) -> None:
    sys.path.insert(0, generated)
    sms: Any = importlib.import_module(f"{module}_pb2")
    stub_type: Any = getattr(importlib.import_module(f"{module}_pb2_grpc"), f"{service}Stub")
    use = {"McpRegistryService": use_registry, "TaskService": use_tasks}[service]
    metadata = (("authorization", f"Bearer {key}"),)
    with grpc.insecure_channel(address) as channel:
        stub = stub_type(channel)

        def send(method: str, request: Any) -> Any:
            return getattr(stub, method)(request, metadata=metadata, timeout=TIMEOUT_S)

        print(json.dumps(use(sms, send)))  # noqa: T201


def use_registry(sms: Any, send: Any) -> dict[str, Any]:
    listing = send("ListMcpServers", sms.ListMcpServersRequest())
    watch = send("WatchMcpServers", sms.WatchMcpServersRequest(since_revision=listing.revision))
    events = [next(watch)]
    record = next(one for one in listing.servers if one.server_id == "git")
    record.display_name = "changed"
    send("UpsertMcpServer", sms.UpsertMcpServerRequest(record=record))
    made = sms.McpServerRecord(
        server_id="made",
        transport=sms.MCP_TRANSPORT_STREAMABLE_HTTP,
        http=sms.McpHttpConfig(url="https://made.example/mcp"),
        allowed_tools=["*"],
        budgets=sms.McpBudgets(max_concurrency=2),
    )
    send("UpsertMcpServer", sms.UpsertMcpServerRequest(record=made))
    send("DeleteMcpServer", sms.DeleteMcpServerRequest(server_id="old"))
    events += [next(watch) for _ in range(3)]
    watch.cancel()
    return {
        "listed": [one.server_id for one in listing.servers],
        "env": dict(record.stdio.env),
        "events": [[list(one.event.upserts), list(one.event.deletes)] for one in events],
        "refusals": [
            refusal(send, "DeleteMcpServer", sms.DeleteMcpServerRequest(server_id="old"))[0],
            refusal(send, "UpsertMcpServer", sms.UpsertMcpServerRequest())[0],
        ],
    }


def use_tasks(sms: Any, send: Any) -> dict[str, Any]:
    config = {"mcp.enabled": "true", "mcp.default_server_ids": '["fs"]', "color": "blue"}
    made = send(
        "RegisterTask",
        sms.RegisterTaskRequest(
            name="review", description="Reviews", endpoint="review", version="v1", config=config
        ),
    )
    narrowed = {**config, "mcp.tool_denylist": '["write_*"]'}
    changed = send("RegisterTask", sms.RegisterTaskRequest(name="review", config=narrowed))
    found = send("GetTask", sms.GetTaskRequest(task_id=made.task_id))
    listed = send("ListTasks", sms.ListTasksRequest(limit=1))
    send("UnregisterTask", sms.UnregisterTaskRequest(task_id="old", reason="over"))

    unknown_key = sms.RegisterTaskRequest(name="review", config={"mcp.colour": "1"})
    with_program = sms.RegisterTaskRequest(name="x", executable=sms.TaskExecutable(uri="smsfile://x"))
    return {
        "registered": [made.success, made.task_id, made.message],
        "changed": [changed.success, changed.task.description, changed.message],
        "found": [found.found, dict(found.task.config), sms.TaskStatus.Name(found.task.status)],
        "listed": [[one.name for one in listed.tasks], listed.total_count],
        "missing": send("GetTask", sms.GetTaskRequest(task_id="old")).found,
        "refused": {
            "unknown key": refusal(send, "RegisterTask", unknown_key),
            "executable": refusal(send, "RegisterTask", with_program),
            "gone": refusal(send, "UnregisterTask", sms.UnregisterTaskRequest(task_id="old")),
            "endpoint": refusal(send, "ResolveEndpoint", sms.ResolveEndpointRequest(endpoint="review")),
        },
    }


def refusal(send: Any, method: str, request: Any) -> list[str]:
    try:
        send(method, request)
    except grpc.RpcError as exc:
        status: Any = exc
        return [str(status.code().name), str(status.details())]
    return ["OK", ""]


if __name__ == "__main__":
    main(*sys.argv[1:])
