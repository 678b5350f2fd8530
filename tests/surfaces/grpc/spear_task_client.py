"""A control tool on code generated from SPEAR's task definitions alone: sets the MCP policy of a task.

Arguments: address, key, and the directory that the generated code is in. Prints what it saw, as JSON.
"""

import importlib
import json
import sys
from typing import Any

import grpc

TIMEOUT_S = 60


def main(address: str, key: str, generated: str) -> None:
    sys.path.insert(0, generated)
    sms: Any = importlib.import_module("task_pb2")
    stub_type: Any = importlib.import_module("task_pb2_grpc").TaskServiceStub
    with grpc.insecure_channel(address) as channel:
        print(json.dumps(use(sms, stub_type(channel), (("authorization", f"Bearer {key}"),))))  # noqa: T201


def use(sms: Any, stub: Any, metadata: tuple[tuple[str, str], ...]) -> dict[str, Any]:
    def ask(method: str, request: Any) -> Any:
        return getattr(stub, method)(request, metadata=metadata, timeout=TIMEOUT_S)

    config = {"mcp.enabled": "true", "mcp.default_server_ids": '["fs"]', "color": "blue"}
    made = ask(
        "RegisterTask",
        sms.RegisterTaskRequest(
            name="review", description="Reviews", endpoint="review", version="v1", config=config
        ),
    )
    narrowed = {**config, "mcp.tool_denylist": '["write_*"]'}
    changed = ask("RegisterTask", sms.RegisterTaskRequest(name="review", config=narrowed))
    found = ask("GetTask", sms.GetTaskRequest(task_id=made.task_id))
    listed = ask("ListTasks", sms.ListTasksRequest(limit=1))
    ask("UnregisterTask", sms.UnregisterTaskRequest(task_id="old", reason="over"))

    unknown_key = sms.RegisterTaskRequest(name="review", config={"mcp.colour": "1"})
    with_program = sms.RegisterTaskRequest(name="x", executable=sms.TaskExecutable(uri="smsfile://x"))
    return {
        "registered": [made.success, made.task_id, made.message],
        "changed": [changed.success, changed.task.description, changed.message],
        "found": [found.found, dict(found.task.config), sms.TaskStatus.Name(found.task.status)],
        "listed": [[one.name for one in listed.tasks], listed.total_count],
        "missing": ask("GetTask", sms.GetTaskRequest(task_id="old")).found,
        "refused": {
            "unknown key": refusal(ask, "RegisterTask", unknown_key),
            "executable": refusal(ask, "RegisterTask", with_program),
            "gone": refusal(ask, "UnregisterTask", sms.UnregisterTaskRequest(task_id="old")),
            "endpoint": refusal(ask, "ResolveEndpoint", sms.ResolveEndpointRequest(endpoint="review")),
        },
    }


def refusal(ask: Any, method: str, request: Any) -> list[str]:
    try:
        ask(method, request)
    except grpc.RpcError as exc:
        status: Any = exc
        return [str(status.code().name), str(status.details())]
    return ["OK", ""]


if __name__ == "__main__":
    main(*sys.argv[1:])
