"""List the servers of a control over gRPC, then print each change as it is made.

    python examples/watch_servers.py 127.0.0.1:8090

Needs `pip install grpcio grpcio-tools`; the messages are made from the definitions in `proto/`. Where
control wants a key, put one of role `viewer` into TOOLGATE_KEY.
"""

import os
import sys
from pathlib import Path

import grpc

sys.path.append(str(Path(__file__).parents[1] / "proto"))
messages, services = grpc.protos_and_services("sms/mcp_registry.proto")


def main(address: str) -> None:
    key = os.environ.get("TOOLGATE_KEY")
    metadata = [("authorization", f"Bearer {key}")] if key else []
    with grpc.insecure_channel(address) as channel:
        registry = services.McpRegistryServiceStub(channel)
        listed = registry.ListMcpServers(messages.ListMcpServersRequest(), metadata=metadata)
        for server in listed.servers:
            print(f"{server.server_id}: {', '.join(server.allowed_tools) or 'no tools allowed'}")
        print(f"revision {listed.revision}", flush=True)
        since = messages.WatchMcpServersRequest(since_revision=listed.revision)
        for answer in registry.WatchMcpServers(since, metadata=metadata):
            event = answer.event
            for sign, names in (("+", event.upserts), ("-", event.deletes)):
                for name in names:
                    print(f"{event.revision} {sign} {name}", flush=True)


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    main(sys.argv[1])
