from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class TaskStatus(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    TASK_STATUS_UNKNOWN: _ClassVar[TaskStatus]
    TASK_STATUS_REGISTERED: _ClassVar[TaskStatus]
    TASK_STATUS_ACTIVE: _ClassVar[TaskStatus]
    TASK_STATUS_INACTIVE: _ClassVar[TaskStatus]

class TaskPriority(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    TASK_PRIORITY_UNKNOWN: _ClassVar[TaskPriority]
    TASK_PRIORITY_LOW: _ClassVar[TaskPriority]
    TASK_PRIORITY_NORMAL: _ClassVar[TaskPriority]
    TASK_PRIORITY_HIGH: _ClassVar[TaskPriority]
    TASK_PRIORITY_URGENT: _ClassVar[TaskPriority]

class ExecutableType(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    EXECUTABLE_TYPE_UNKNOWN: _ClassVar[ExecutableType]
    EXECUTABLE_TYPE_BINARY: _ClassVar[ExecutableType]
    EXECUTABLE_TYPE_SCRIPT: _ClassVar[ExecutableType]
    EXECUTABLE_TYPE_CONTAINER: _ClassVar[ExecutableType]
    EXECUTABLE_TYPE_WASM: _ClassVar[ExecutableType]
    EXECUTABLE_TYPE_PROCESS: _ClassVar[ExecutableType]

class TaskEventKind(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    TASK_EVENT_KIND_UNKNOWN: _ClassVar[TaskEventKind]
    TASK_EVENT_KIND_CREATE: _ClassVar[TaskEventKind]
    TASK_EVENT_KIND_UPDATE: _ClassVar[TaskEventKind]
    TASK_EVENT_KIND_CANCEL: _ClassVar[TaskEventKind]
TASK_STATUS_UNKNOWN: TaskStatus
TASK_STATUS_REGISTERED: TaskStatus
TASK_STATUS_ACTIVE: TaskStatus
TASK_STATUS_INACTIVE: TaskStatus
TASK_PRIORITY_UNKNOWN: TaskPriority
TASK_PRIORITY_LOW: TaskPriority
TASK_PRIORITY_NORMAL: TaskPriority
TASK_PRIORITY_HIGH: TaskPriority
TASK_PRIORITY_URGENT: TaskPriority
EXECUTABLE_TYPE_UNKNOWN: ExecutableType
EXECUTABLE_TYPE_BINARY: ExecutableType
EXECUTABLE_TYPE_SCRIPT: ExecutableType
EXECUTABLE_TYPE_CONTAINER: ExecutableType
EXECUTABLE_TYPE_WASM: ExecutableType
EXECUTABLE_TYPE_PROCESS: ExecutableType
TASK_EVENT_KIND_UNKNOWN: TaskEventKind
TASK_EVENT_KIND_CREATE: TaskEventKind
TASK_EVENT_KIND_UPDATE: TaskEventKind
TASK_EVENT_KIND_CANCEL: TaskEventKind

class TaskExecutable(_message.Message):
    __slots__ = ("type", "uri", "name", "checksum_sha256", "args", "env")
    class EnvEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    TYPE_FIELD_NUMBER: _ClassVar[int]
    URI_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    CHECKSUM_SHA256_FIELD_NUMBER: _ClassVar[int]
    ARGS_FIELD_NUMBER: _ClassVar[int]
    ENV_FIELD_NUMBER: _ClassVar[int]
    type: ExecutableType
    uri: str
    name: str
    checksum_sha256: str
    args: _containers.RepeatedScalarFieldContainer[str]
    env: _containers.ScalarMap[str, str]
    def __init__(self, type: _Optional[_Union[ExecutableType, str]] = ..., uri: _Optional[str] = ..., name: _Optional[str] = ..., checksum_sha256: _Optional[str] = ..., args: _Optional[_Iterable[str]] = ..., env: _Optional[_Mapping[str, str]] = ...) -> None: ...

class Task(_message.Message):
    __slots__ = ("task_id", "name", "description", "status", "priority", "node_uuid", "endpoint", "version", "capabilities", "registered_at", "last_heartbeat", "metadata", "config", "executable", "result_uris", "last_result_uri", "last_result_status", "last_completed_at", "last_result_metadata")
    class MetadataEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    class ConfigEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    class LastResultMetadataEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    TASK_ID_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    DESCRIPTION_FIELD_NUMBER: _ClassVar[int]
    STATUS_FIELD_NUMBER: _ClassVar[int]
    PRIORITY_FIELD_NUMBER: _ClassVar[int]
    NODE_UUID_FIELD_NUMBER: _ClassVar[int]
    ENDPOINT_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    CAPABILITIES_FIELD_NUMBER: _ClassVar[int]
    REGISTERED_AT_FIELD_NUMBER: _ClassVar[int]
    LAST_HEARTBEAT_FIELD_NUMBER: _ClassVar[int]
    METADATA_FIELD_NUMBER: _ClassVar[int]
    CONFIG_FIELD_NUMBER: _ClassVar[int]
    EXECUTABLE_FIELD_NUMBER: _ClassVar[int]
    RESULT_URIS_FIELD_NUMBER: _ClassVar[int]
    LAST_RESULT_URI_FIELD_NUMBER: _ClassVar[int]
    LAST_RESULT_STATUS_FIELD_NUMBER: _ClassVar[int]
    LAST_COMPLETED_AT_FIELD_NUMBER: _ClassVar[int]
    LAST_RESULT_METADATA_FIELD_NUMBER: _ClassVar[int]
    task_id: str
    name: str
    description: str
    status: TaskStatus
    priority: TaskPriority
    node_uuid: str
    endpoint: str
    version: str
    capabilities: _containers.RepeatedScalarFieldContainer[str]
    registered_at: int
    last_heartbeat: int
    metadata: _containers.ScalarMap[str, str]
    config: _containers.ScalarMap[str, str]
    executable: TaskExecutable
    result_uris: _containers.RepeatedScalarFieldContainer[str]
    last_result_uri: str
    last_result_status: str
    last_completed_at: int
    last_result_metadata: _containers.ScalarMap[str, str]
    def __init__(self, task_id: _Optional[str] = ..., name: _Optional[str] = ..., description: _Optional[str] = ..., status: _Optional[_Union[TaskStatus, str]] = ..., priority: _Optional[_Union[TaskPriority, str]] = ..., node_uuid: _Optional[str] = ..., endpoint: _Optional[str] = ..., version: _Optional[str] = ..., capabilities: _Optional[_Iterable[str]] = ..., registered_at: _Optional[int] = ..., last_heartbeat: _Optional[int] = ..., metadata: _Optional[_Mapping[str, str]] = ..., config: _Optional[_Mapping[str, str]] = ..., executable: _Optional[_Union[TaskExecutable, _Mapping]] = ..., result_uris: _Optional[_Iterable[str]] = ..., last_result_uri: _Optional[str] = ..., last_result_status: _Optional[str] = ..., last_completed_at: _Optional[int] = ..., last_result_metadata: _Optional[_Mapping[str, str]] = ...) -> None: ...

class RegisterTaskRequest(_message.Message):
    __slots__ = ("name", "description", "priority", "node_uuid", "endpoint", "version", "capabilities", "metadata", "config", "executable")
    class MetadataEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    class ConfigEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    NAME_FIELD_NUMBER: _ClassVar[int]
    DESCRIPTION_FIELD_NUMBER: _ClassVar[int]
    PRIORITY_FIELD_NUMBER: _ClassVar[int]
    NODE_UUID_FIELD_NUMBER: _ClassVar[int]
    ENDPOINT_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    CAPABILITIES_FIELD_NUMBER: _ClassVar[int]
    METADATA_FIELD_NUMBER: _ClassVar[int]
    CONFIG_FIELD_NUMBER: _ClassVar[int]
    EXECUTABLE_FIELD_NUMBER: _ClassVar[int]
    name: str
    description: str
    priority: TaskPriority
    node_uuid: str
    endpoint: str
    version: str
    capabilities: _containers.RepeatedScalarFieldContainer[str]
    metadata: _containers.ScalarMap[str, str]
    config: _containers.ScalarMap[str, str]
    executable: TaskExecutable
    def __init__(self, name: _Optional[str] = ..., description: _Optional[str] = ..., priority: _Optional[_Union[TaskPriority, str]] = ..., node_uuid: _Optional[str] = ..., endpoint: _Optional[str] = ..., version: _Optional[str] = ..., capabilities: _Optional[_Iterable[str]] = ..., metadata: _Optional[_Mapping[str, str]] = ..., config: _Optional[_Mapping[str, str]] = ..., executable: _Optional[_Union[TaskExecutable, _Mapping]] = ...) -> None: ...

class RegisterTaskResponse(_message.Message):
    __slots__ = ("success", "message", "task_id", "task")
    SUCCESS_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    TASK_ID_FIELD_NUMBER: _ClassVar[int]
    TASK_FIELD_NUMBER: _ClassVar[int]
    success: bool
    message: str
    task_id: str
    task: Task
    def __init__(self, success: _Optional[bool] = ..., message: _Optional[str] = ..., task_id: _Optional[str] = ..., task: _Optional[_Union[Task, _Mapping]] = ...) -> None: ...

class ListTasksRequest(_message.Message):
    __slots__ = ("node_uuid", "status_filter", "priority_filter", "limit", "offset")
    NODE_UUID_FIELD_NUMBER: _ClassVar[int]
    STATUS_FILTER_FIELD_NUMBER: _ClassVar[int]
    PRIORITY_FILTER_FIELD_NUMBER: _ClassVar[int]
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    node_uuid: str
    status_filter: TaskStatus
    priority_filter: TaskPriority
    limit: int
    offset: int
    def __init__(self, node_uuid: _Optional[str] = ..., status_filter: _Optional[_Union[TaskStatus, str]] = ..., priority_filter: _Optional[_Union[TaskPriority, str]] = ..., limit: _Optional[int] = ..., offset: _Optional[int] = ...) -> None: ...

class ListTasksResponse(_message.Message):
    __slots__ = ("tasks", "total_count")
    TASKS_FIELD_NUMBER: _ClassVar[int]
    TOTAL_COUNT_FIELD_NUMBER: _ClassVar[int]
    tasks: _containers.RepeatedCompositeFieldContainer[Task]
    total_count: int
    def __init__(self, tasks: _Optional[_Iterable[_Union[Task, _Mapping]]] = ..., total_count: _Optional[int] = ...) -> None: ...

class GetTaskRequest(_message.Message):
    __slots__ = ("task_id",)
    TASK_ID_FIELD_NUMBER: _ClassVar[int]
    task_id: str
    def __init__(self, task_id: _Optional[str] = ...) -> None: ...

class GetTaskResponse(_message.Message):
    __slots__ = ("found", "task")
    FOUND_FIELD_NUMBER: _ClassVar[int]
    TASK_FIELD_NUMBER: _ClassVar[int]
    found: bool
    task: Task
    def __init__(self, found: _Optional[bool] = ..., task: _Optional[_Union[Task, _Mapping]] = ...) -> None: ...

class UnregisterTaskRequest(_message.Message):
    __slots__ = ("task_id", "reason")
    TASK_ID_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    task_id: str
    reason: str
    def __init__(self, task_id: _Optional[str] = ..., reason: _Optional[str] = ...) -> None: ...

class UnregisterTaskResponse(_message.Message):
    __slots__ = ("success", "message", "task_id")
    SUCCESS_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    TASK_ID_FIELD_NUMBER: _ClassVar[int]
    success: bool
    message: str
    task_id: str
    def __init__(self, success: _Optional[bool] = ..., message: _Optional[str] = ..., task_id: _Optional[str] = ...) -> None: ...

class TaskEvent(_message.Message):
    __slots__ = ("event_id", "ts", "node_uuid", "task_id", "kind", "execution_id")
    EVENT_ID_FIELD_NUMBER: _ClassVar[int]
    TS_FIELD_NUMBER: _ClassVar[int]
    NODE_UUID_FIELD_NUMBER: _ClassVar[int]
    TASK_ID_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    EXECUTION_ID_FIELD_NUMBER: _ClassVar[int]
    event_id: int
    ts: int
    node_uuid: str
    task_id: str
    kind: TaskEventKind
    execution_id: str
    def __init__(self, event_id: _Optional[int] = ..., ts: _Optional[int] = ..., node_uuid: _Optional[str] = ..., task_id: _Optional[str] = ..., kind: _Optional[_Union[TaskEventKind, str]] = ..., execution_id: _Optional[str] = ...) -> None: ...

class SubscribeTaskEventsRequest(_message.Message):
    __slots__ = ("node_uuid", "last_event_id")
    NODE_UUID_FIELD_NUMBER: _ClassVar[int]
    LAST_EVENT_ID_FIELD_NUMBER: _ClassVar[int]
    node_uuid: str
    last_event_id: int
    def __init__(self, node_uuid: _Optional[str] = ..., last_event_id: _Optional[int] = ...) -> None: ...

class ResolveEndpointRequest(_message.Message):
    __slots__ = ("endpoint",)
    ENDPOINT_FIELD_NUMBER: _ClassVar[int]
    endpoint: str
    def __init__(self, endpoint: _Optional[str] = ...) -> None: ...

class ResolveEndpointResponse(_message.Message):
    __slots__ = ("found", "task")
    FOUND_FIELD_NUMBER: _ClassVar[int]
    TASK_FIELD_NUMBER: _ClassVar[int]
    found: bool
    task: Task
    def __init__(self, found: _Optional[bool] = ..., task: _Optional[_Union[Task, _Mapping]] = ...) -> None: ...

class UpdateTaskStatusRequest(_message.Message):
    __slots__ = ("task_id", "status", "node_uuid", "status_version", "updated_at", "reason")
    TASK_ID_FIELD_NUMBER: _ClassVar[int]
    STATUS_FIELD_NUMBER: _ClassVar[int]
    NODE_UUID_FIELD_NUMBER: _ClassVar[int]
    STATUS_VERSION_FIELD_NUMBER: _ClassVar[int]
    UPDATED_AT_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    task_id: str
    status: TaskStatus
    node_uuid: str
    status_version: int
    updated_at: int
    reason: str
    def __init__(self, task_id: _Optional[str] = ..., status: _Optional[_Union[TaskStatus, str]] = ..., node_uuid: _Optional[str] = ..., status_version: _Optional[int] = ..., updated_at: _Optional[int] = ..., reason: _Optional[str] = ...) -> None: ...

class UpdateTaskStatusResponse(_message.Message):
    __slots__ = ("success", "message", "task")
    SUCCESS_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    TASK_FIELD_NUMBER: _ClassVar[int]
    success: bool
    message: str
    task: Task
    def __init__(self, success: _Optional[bool] = ..., message: _Optional[str] = ..., task: _Optional[_Union[Task, _Mapping]] = ...) -> None: ...

class UpdateTaskResultRequest(_message.Message):
    __slots__ = ("task_id", "result_uri", "result_status", "completed_at", "result_metadata")
    class ResultMetadataEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    TASK_ID_FIELD_NUMBER: _ClassVar[int]
    RESULT_URI_FIELD_NUMBER: _ClassVar[int]
    RESULT_STATUS_FIELD_NUMBER: _ClassVar[int]
    COMPLETED_AT_FIELD_NUMBER: _ClassVar[int]
    RESULT_METADATA_FIELD_NUMBER: _ClassVar[int]
    task_id: str
    result_uri: str
    result_status: str
    completed_at: int
    result_metadata: _containers.ScalarMap[str, str]
    def __init__(self, task_id: _Optional[str] = ..., result_uri: _Optional[str] = ..., result_status: _Optional[str] = ..., completed_at: _Optional[int] = ..., result_metadata: _Optional[_Mapping[str, str]] = ...) -> None: ...

class UpdateTaskResultResponse(_message.Message):
    __slots__ = ("success", "message", "task")
    SUCCESS_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    TASK_FIELD_NUMBER: _ClassVar[int]
    success: bool
    message: str
    task: Task
    def __init__(self, success: _Optional[bool] = ..., message: _Optional[str] = ..., task: _Optional[_Union[Task, _Mapping]] = ...) -> None: ...
