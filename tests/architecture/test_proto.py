"""The gRPC definitions: the code made from them is theirs, and what is SPEAR's in them stays SPEAR's."""

import importlib.util
from pathlib import Path
from types import ModuleType
from typing import Final

from google.protobuf.descriptor import Descriptor, FieldDescriptor

from tests.architecture.source_tree import ROOT
from toolgate.proto import mcp_registry_pb2 as sms

OURS_FROM: Final = 100
OUR_MESSAGES: Final = {"McpOAuthConfig", "McpPackageRef", "McpRedaction", "McpServerExtras"}
# SPEAR's `proto/sms/mcp_registry.proto`: every message, with the fields of each by number.
SPEAR: Final = {
    "McpStdioConfig": "1 command string, 2 args string[], 3 env map, 4 cwd string",
    "McpHttpConfig": "1 url string, 2 headers map, 3 auth_ref string",
    "McpBudgets": "1 tool_timeout_ms uint64, 2 max_concurrency uint64, 3 max_tool_output_bytes uint64",
    "McpApprovalPolicy": "1 default_policy string, 2 per_tool map",
    "McpServerRecord": (
        "1 server_id string, 2 display_name string, 3 transport McpTransport, 4 stdio McpStdioConfig, "
        "5 http McpHttpConfig, 6 tool_namespace string, 7 allowed_tools string[], "
        "8 approval_policy McpApprovalPolicy, 9 budgets McpBudgets, 10 updated_at_ms uint64"
    ),
    "ListMcpServersRequest": "1 since_revision uint64",
    "ListMcpServersResponse": "1 revision uint64, 2 servers McpServerRecord[]",
    "WatchMcpServersRequest": "1 since_revision uint64",
    "WatchMcpServersResponse": "1 event McpRegistryEvent",
    "McpRegistryEvent": "1 revision uint64, 2 upserts string[], 3 deletes string[]",
    "UpsertMcpServerRequest": "1 record McpServerRecord",
    "UpsertMcpServerResponse": "1 revision uint64",
    "DeleteMcpServerRequest": "1 server_id string",
    "DeleteMcpServerResponse": "1 revision uint64",
}
SPEAR_RPCS: Final = {
    "ListMcpServers": "ListMcpServersRequest -> ListMcpServersResponse",
    "WatchMcpServers": "WatchMcpServersRequest -> stream WatchMcpServersResponse",
    "UpsertMcpServer": "UpsertMcpServerRequest -> UpsertMcpServerResponse",
    "DeleteMcpServer": "DeleteMcpServerRequest -> DeleteMcpServerResponse",
}
SPEAR_TRANSPORTS: Final = {
    "MCP_TRANSPORT_UNSPECIFIED": 0,
    "MCP_TRANSPORT_STDIO": 1,
    "MCP_TRANSPORT_STREAMABLE_HTTP": 2,
}


def load_generator() -> ModuleType:
    spec = importlib.util.spec_from_file_location("proto_generate", ROOT / "proto" / "generate.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_generated_code_is_that_of_the_definitions(tmp_path: Path) -> None:
    made = tmp_path / "toolgate" / "proto"
    made.mkdir(parents=True)
    generator = load_generator()
    generator.generate(made)

    committed = {path.name: path.read_bytes() for path in generator.GENERATED.glob("*_pb2.py*")}
    assert {path.name: path.read_bytes() for path in made.iterdir()} == committed, "run `proto/generate.py`"


def test_every_definition_is_generated() -> None:
    found = {path.name for path in (ROOT / "proto").rglob("*.proto")}

    assert found == set(load_generator().SOURCES)


def test_what_is_spears_in_the_registry_service_is_as_spear_has_it() -> None:
    described = {
        name: ", ".join(map(describe, spear_fields(message)))
        for name, message in sms.DESCRIPTOR.message_types_by_name.items()
        if name not in OUR_MESSAGES
    }

    assert sms.DESCRIPTOR.package == "sms"
    assert described == SPEAR


def test_its_rpcs_are_spears_and_no_others() -> None:
    (service,) = sms.DESCRIPTOR.services_by_name.values()

    assert service.full_name == "sms.McpRegistryService"
    assert {
        rpc.name: f"{rpc.input_type.name} -> {'stream ' * rpc.server_streaming}{rpc.output_type.name}"
        for rpc in service.methods
    } == SPEAR_RPCS


def test_its_transports_are_spears_below_a_hundred() -> None:
    numbers = dict(sms.McpTransport.items())

    assert {name: number for name, number in numbers.items() if number < OURS_FROM} == SPEAR_TRANSPORTS


def spear_fields(message: Descriptor) -> list[FieldDescriptor]:
    return sorted((one for one in message.fields if one.number < OURS_FROM), key=lambda one: one.number)


def describe(field: FieldDescriptor) -> str:
    plain = {FieldDescriptor.TYPE_STRING: "string", FieldDescriptor.TYPE_UINT64: "uint64"}
    named = field.enum_type or field.message_type
    if named is not None and named.name.endswith("Entry"):
        return f"{field.number} {field.name} map"
    kind = plain[field.type] if named is None else named.name
    return f"{field.number} {field.name} {kind}{'[]' if field.is_repeated else ''}"
