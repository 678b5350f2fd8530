"""The gRPC definitions: the code made from them is theirs, and what is SPEAR's in them stays SPEAR's."""

import importlib.util
from pathlib import Path
from types import ModuleType
from typing import Final

from google.protobuf.descriptor import Descriptor, FieldDescriptor, ServiceDescriptor

from tests.architecture.source_tree import ROOT
from toolgate.proto import mcp_registry_pb2 as sms
from toolgate.proto import task_pb2

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
# SPEAR's `proto/sms/task.proto`, to which Toolgate adds nothing.
SPEAR_TASKS: Final = {
    "TaskExecutable": (
        "1 type ExecutableType, 2 uri string, 3 name string, 4 checksum_sha256 string, 5 args string[], "
        "6 env map"
    ),
    "Task": (
        "1 task_id string, 2 name string, 3 description string, 4 status TaskStatus, "
        "5 priority TaskPriority, 6 node_uuid string, 7 endpoint string, 8 version string, "
        "9 capabilities string[], 10 registered_at int64, 11 last_heartbeat int64, 12 metadata map, "
        "13 config map, 14 executable TaskExecutable, 15 result_uris string[], 16 last_result_uri string, "
        "17 last_result_status string, 18 last_completed_at int64, 19 last_result_metadata map"
    ),
    "RegisterTaskRequest": (
        "1 name string, 2 description string, 3 priority TaskPriority, 4 node_uuid string, "
        "5 endpoint string, 6 version string, 7 capabilities string[], 8 metadata map, 9 config map, "
        "10 executable TaskExecutable"
    ),
    "RegisterTaskResponse": "1 success bool, 2 message string, 3 task_id string, 4 task Task",
    "ListTasksRequest": (
        "1 node_uuid string, 2 status_filter TaskStatus, 3 priority_filter TaskPriority, 4 limit int32, "
        "5 offset int32"
    ),
    "ListTasksResponse": "1 tasks Task[], 2 total_count int32",
    "GetTaskRequest": "1 task_id string",
    "GetTaskResponse": "1 found bool, 2 task Task",
    "UnregisterTaskRequest": "1 task_id string, 2 reason string",
    "UnregisterTaskResponse": "1 success bool, 2 message string, 3 task_id string",
    "TaskEvent": (
        "1 event_id int64, 2 ts int64, 3 node_uuid string, 4 task_id string, 5 kind TaskEventKind, "
        "7 execution_id string"
    ),
    "SubscribeTaskEventsRequest": "1 node_uuid string, 2 last_event_id int64",
    "ResolveEndpointRequest": "1 endpoint string",
    "ResolveEndpointResponse": "1 found bool, 2 task Task",
    "UpdateTaskStatusRequest": (
        "1 task_id string, 2 status TaskStatus, 3 node_uuid string, 4 status_version uint64, "
        "5 updated_at int64, 6 reason string"
    ),
    "UpdateTaskStatusResponse": "1 success bool, 2 message string, 3 task Task",
    "UpdateTaskResultRequest": (
        "1 task_id string, 2 result_uri string, 3 result_status string, 4 completed_at int64, "
        "5 result_metadata map"
    ),
    "UpdateTaskResultResponse": "1 success bool, 2 message string, 3 task Task",
}
SPEAR_TASK_ENUMS: Final = {
    "TaskStatus": ["UNKNOWN", "REGISTERED", "ACTIVE", "INACTIVE"],
    "TaskPriority": ["UNKNOWN", "LOW", "NORMAL", "HIGH", "URGENT"],
    "ExecutableType": ["UNKNOWN", "BINARY", "SCRIPT", "CONTAINER", "WASM", "PROCESS"],
    "TaskEventKind": ["UNKNOWN", "CREATE", "UPDATE", "CANCEL"],
}
SPEAR_TASK_RPCS: Final = {
    "RegisterTask": "RegisterTaskRequest -> RegisterTaskResponse",
    "ListTasks": "ListTasksRequest -> ListTasksResponse",
    "GetTask": "GetTaskRequest -> GetTaskResponse",
    "UnregisterTask": "UnregisterTaskRequest -> UnregisterTaskResponse",
    "SubscribeTaskEvents": "SubscribeTaskEventsRequest -> stream TaskEvent",
    "ResolveEndpoint": "ResolveEndpointRequest -> ResolveEndpointResponse",
    "UpdateTaskStatus": "UpdateTaskStatusRequest -> UpdateTaskStatusResponse",
    "UpdateTaskResult": "UpdateTaskResultRequest -> UpdateTaskResultResponse",
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
    assert rpcs_of(service) == SPEAR_RPCS


def test_the_task_service_is_spears_in_every_message_number_and_rpc() -> None:
    file = task_pb2.DESCRIPTOR
    (service,) = file.services_by_name.values()
    enums = {
        name: {value.name.rpartition("_")[2]: value.number for value in one.values}
        for name, one in file.enum_types_by_name.items()
    }

    assert (file.package, service.full_name) == ("sms", "sms.TaskService")
    assert {
        name: ", ".join(map(describe, sorted(message.fields, key=lambda one: one.number)))
        for name, message in file.message_types_by_name.items()
    } == SPEAR_TASKS
    assert enums == {
        name: {word: number for number, word in enumerate(words)} for name, words in SPEAR_TASK_ENUMS.items()
    }
    assert rpcs_of(service) == SPEAR_TASK_RPCS


def test_its_transports_are_spears_below_a_hundred() -> None:
    numbers = dict(sms.McpTransport.items())

    assert {name: number for name, number in numbers.items() if number < OURS_FROM} == SPEAR_TRANSPORTS


def rpcs_of(service: ServiceDescriptor) -> dict[str, str]:
    return {
        rpc.name: f"{rpc.input_type.name} -> {'stream ' * rpc.server_streaming}{rpc.output_type.name}"
        for rpc in service.methods
    }


def spear_fields(message: Descriptor) -> list[FieldDescriptor]:
    return sorted((one for one in message.fields if one.number < OURS_FROM), key=lambda one: one.number)


def describe(field: FieldDescriptor) -> str:
    plain = {
        FieldDescriptor.TYPE_STRING: "string",
        FieldDescriptor.TYPE_UINT64: "uint64",
        FieldDescriptor.TYPE_INT64: "int64",
        FieldDescriptor.TYPE_INT32: "int32",
        FieldDescriptor.TYPE_BOOL: "bool",
    }
    named = field.enum_type or field.message_type
    if named is not None and named.name.endswith("Entry"):
        return f"{field.number} {field.name} map"
    kind = plain[field.type] if named is None else named.name
    return f"{field.number} {field.name} {kind}{'[]' if field.is_repeated else ''}"
