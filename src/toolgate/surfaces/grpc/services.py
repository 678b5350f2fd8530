"""The services over the registry's records: SPEAR's for servers, and those of our own that work like it."""

from typing import Final

from toolgate.model.revisions import Kind
from toolgate.proto import mcp_registry_pb2 as sms
from toolgate.proto import policy_pb2 as policy
from toolgate.surfaces.grpc.collection import Collection, MakeMessage, collection_rpcs
from toolgate.surfaces.grpc.rpc import Rpc

SERVERS: Final = Collection(
    kind="server",
    service="sms.McpRegistryService",
    noun="McpServer",
    sent="record",
    listed="servers",
    id_field="server_id",
    listing=sms.ListMcpServersResponse,
    watched=sms.WatchMcpServersResponse,
    event=sms.McpRegistryEvent,
    written=sms.UpsertMcpServerResponse,
    deleted=sms.DeleteMcpServerResponse,
    readers=("viewer", "node"),
)


def _policy_collection(kind: Kind, listing: MakeMessage) -> Collection:
    noun = kind.capitalize()
    return Collection(
        kind=kind,
        service=f"toolgate.v1.{noun}Service",
        noun=noun,
        sent=kind,
        listed=f"{kind}s",
        id_field="id",
        listing=listing,
        watched=policy.WatchResponse,
        event=policy.Event,
        written=policy.WriteResponse,
        deleted=policy.WriteResponse,
    )


TASKS: Final = _policy_collection("task", policy.ListTasksResponse)
PROFILES: Final = _policy_collection("profile", policy.ListProfilesResponse)
PINS: Final = _policy_collection("pin", policy.ListPinsResponse)

RPCS: Final[tuple[Rpc, ...]] = (
    *collection_rpcs(SERVERS),
    *collection_rpcs(TASKS),
    *collection_rpcs(PROFILES),
    *collection_rpcs(PINS),
)
