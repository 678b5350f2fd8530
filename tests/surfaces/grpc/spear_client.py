"""A program on code generated from SPEAR's definitions alone: lists, watches, upserts, deletes.

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
    sms: Any = importlib.import_module("spear_pb2")
    stub_type: Any = importlib.import_module("spear_pb2_grpc").McpRegistryServiceStub
    with grpc.insecure_channel(address) as channel:
        print(json.dumps(use(sms, stub_type(channel), (("authorization", f"Bearer {key}"),))))  # noqa: T201


def use(sms: Any, stub: Any, metadata: tuple[tuple[str, str], ...]) -> dict[str, Any]:
    def ask(method: str, request: Any) -> Any:
        return getattr(stub, method)(request, metadata=metadata, timeout=TIMEOUT_S)

    listing = ask("ListMcpServers", sms.ListMcpServersRequest())
    watch = ask("WatchMcpServers", sms.WatchMcpServersRequest(since_revision=listing.revision))
    events = [next(watch)]
    record = next(one for one in listing.servers if one.server_id == "git")
    record.display_name = "changed"
    ask("UpsertMcpServer", sms.UpsertMcpServerRequest(record=record))
    made = sms.McpServerRecord(
        server_id="made",
        transport=sms.MCP_TRANSPORT_STREAMABLE_HTTP,
        http=sms.McpHttpConfig(url="https://made.example/mcp"),
        allowed_tools=["*"],
        budgets=sms.McpBudgets(max_concurrency=2),
    )
    ask("UpsertMcpServer", sms.UpsertMcpServerRequest(record=made))
    ask("DeleteMcpServer", sms.DeleteMcpServerRequest(server_id="old"))
    events += [next(watch) for _ in range(3)]
    watch.cancel()
    return {
        "listed": [one.server_id for one in listing.servers],
        "env": dict(record.stdio.env),
        "events": [[list(one.event.upserts), list(one.event.deletes)] for one in events],
        "refusals": [
            refusal(ask, "DeleteMcpServer", sms.DeleteMcpServerRequest(server_id="old")),
            refusal(ask, "UpsertMcpServer", sms.UpsertMcpServerRequest()),
        ],
    }


def refusal(ask: Any, method: str, request: Any) -> str:
    try:
        ask(method, request)
    except grpc.RpcError as exc:
        status: Any = exc
        return str(status.code().name)
    return "OK"


if __name__ == "__main__":
    main(*sys.argv[1:])
