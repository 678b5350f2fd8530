from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Names(_message.Message):
    __slots__ = ("values",)
    VALUES_FIELD_NUMBER: _ClassVar[int]
    values: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, values: _Optional[_Iterable[str]] = ...) -> None: ...

class WorkloadLimits(_message.Message):
    __slots__ = ("fuel", "wall_clock_ms", "memory_bytes", "table_elements", "max_output_bytes", "max_fds", "max_calls")
    FUEL_FIELD_NUMBER: _ClassVar[int]
    WALL_CLOCK_MS_FIELD_NUMBER: _ClassVar[int]
    MEMORY_BYTES_FIELD_NUMBER: _ClassVar[int]
    TABLE_ELEMENTS_FIELD_NUMBER: _ClassVar[int]
    MAX_OUTPUT_BYTES_FIELD_NUMBER: _ClassVar[int]
    MAX_FDS_FIELD_NUMBER: _ClassVar[int]
    MAX_CALLS_FIELD_NUMBER: _ClassVar[int]
    fuel: int
    wall_clock_ms: int
    memory_bytes: int
    table_elements: int
    max_output_bytes: int
    max_fds: int
    max_calls: int
    def __init__(self, fuel: _Optional[int] = ..., wall_clock_ms: _Optional[int] = ..., memory_bytes: _Optional[int] = ..., table_elements: _Optional[int] = ..., max_output_bytes: _Optional[int] = ..., max_fds: _Optional[int] = ..., max_calls: _Optional[int] = ...) -> None: ...

class Workload(_message.Message):
    __slots__ = ("module", "args", "env", "limits", "retries")
    class EnvEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    MODULE_FIELD_NUMBER: _ClassVar[int]
    ARGS_FIELD_NUMBER: _ClassVar[int]
    ENV_FIELD_NUMBER: _ClassVar[int]
    LIMITS_FIELD_NUMBER: _ClassVar[int]
    RETRIES_FIELD_NUMBER: _ClassVar[int]
    module: str
    args: _containers.RepeatedScalarFieldContainer[str]
    env: _containers.ScalarMap[str, str]
    limits: WorkloadLimits
    retries: int
    def __init__(self, module: _Optional[str] = ..., args: _Optional[_Iterable[str]] = ..., env: _Optional[_Mapping[str, str]] = ..., limits: _Optional[_Union[WorkloadLimits, _Mapping]] = ..., retries: _Optional[int] = ...) -> None: ...

class Task(_message.Message):
    __slots__ = ("task_id", "display_name", "config", "revision", "updated_at_ms", "workload")
    class ConfigEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    TASK_ID_FIELD_NUMBER: _ClassVar[int]
    DISPLAY_NAME_FIELD_NUMBER: _ClassVar[int]
    CONFIG_FIELD_NUMBER: _ClassVar[int]
    REVISION_FIELD_NUMBER: _ClassVar[int]
    UPDATED_AT_MS_FIELD_NUMBER: _ClassVar[int]
    WORKLOAD_FIELD_NUMBER: _ClassVar[int]
    task_id: str
    display_name: str
    config: _containers.ScalarMap[str, str]
    revision: int
    updated_at_ms: int
    workload: Workload
    def __init__(self, task_id: _Optional[str] = ..., display_name: _Optional[str] = ..., config: _Optional[_Mapping[str, str]] = ..., revision: _Optional[int] = ..., updated_at_ms: _Optional[int] = ..., workload: _Optional[_Union[Workload, _Mapping]] = ...) -> None: ...

class Selection(_message.Message):
    __slots__ = ("servers", "tags", "allow", "deny")
    SERVERS_FIELD_NUMBER: _ClassVar[int]
    TAGS_FIELD_NUMBER: _ClassVar[int]
    ALLOW_FIELD_NUMBER: _ClassVar[int]
    DENY_FIELD_NUMBER: _ClassVar[int]
    servers: Names
    tags: Names
    allow: Names
    deny: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, servers: _Optional[_Union[Names, _Mapping]] = ..., tags: _Optional[_Union[Names, _Mapping]] = ..., allow: _Optional[_Union[Names, _Mapping]] = ..., deny: _Optional[_Iterable[str]] = ...) -> None: ...

class Profile(_message.Message):
    __slots__ = ("profile_id", "selection", "environments", "revision", "updated_at_ms", "version", "rollout")
    class EnvironmentsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: Selection
        def __init__(self, key: _Optional[str] = ..., value: _Optional[_Union[Selection, _Mapping]] = ...) -> None: ...
    PROFILE_ID_FIELD_NUMBER: _ClassVar[int]
    SELECTION_FIELD_NUMBER: _ClassVar[int]
    ENVIRONMENTS_FIELD_NUMBER: _ClassVar[int]
    REVISION_FIELD_NUMBER: _ClassVar[int]
    UPDATED_AT_MS_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    ROLLOUT_FIELD_NUMBER: _ClassVar[int]
    profile_id: str
    selection: Selection
    environments: _containers.MessageMap[str, Selection]
    revision: int
    updated_at_ms: int
    version: int
    rollout: Rollout
    def __init__(self, profile_id: _Optional[str] = ..., selection: _Optional[_Union[Selection, _Mapping]] = ..., environments: _Optional[_Mapping[str, Selection]] = ..., revision: _Optional[int] = ..., updated_at_ms: _Optional[int] = ..., version: _Optional[int] = ..., rollout: _Optional[_Union[Rollout, _Mapping]] = ...) -> None: ...

class Rollout(_message.Message):
    __slots__ = ("version", "share", "by", "selection", "environments")
    class EnvironmentsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: Selection
        def __init__(self, key: _Optional[str] = ..., value: _Optional[_Union[Selection, _Mapping]] = ...) -> None: ...
    VERSION_FIELD_NUMBER: _ClassVar[int]
    SHARE_FIELD_NUMBER: _ClassVar[int]
    BY_FIELD_NUMBER: _ClassVar[int]
    SELECTION_FIELD_NUMBER: _ClassVar[int]
    ENVIRONMENTS_FIELD_NUMBER: _ClassVar[int]
    version: int
    share: int
    by: str
    selection: Selection
    environments: _containers.MessageMap[str, Selection]
    def __init__(self, version: _Optional[int] = ..., share: _Optional[int] = ..., by: _Optional[str] = ..., selection: _Optional[_Union[Selection, _Mapping]] = ..., environments: _Optional[_Mapping[str, Selection]] = ...) -> None: ...

class Pin(_message.Message):
    __slots__ = ("server_id", "tools", "revision", "updated_at_ms", "changed")
    class ToolsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    class ChangedEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    SERVER_ID_FIELD_NUMBER: _ClassVar[int]
    TOOLS_FIELD_NUMBER: _ClassVar[int]
    REVISION_FIELD_NUMBER: _ClassVar[int]
    UPDATED_AT_MS_FIELD_NUMBER: _ClassVar[int]
    CHANGED_FIELD_NUMBER: _ClassVar[int]
    server_id: str
    tools: _containers.ScalarMap[str, str]
    revision: int
    updated_at_ms: int
    changed: _containers.ScalarMap[str, str]
    def __init__(self, server_id: _Optional[str] = ..., tools: _Optional[_Mapping[str, str]] = ..., revision: _Optional[int] = ..., updated_at_ms: _Optional[int] = ..., changed: _Optional[_Mapping[str, str]] = ...) -> None: ...

class ListRequest(_message.Message):
    __slots__ = ("since_revision", "may_omit_unchanged", "epoch", "digest")
    SINCE_REVISION_FIELD_NUMBER: _ClassVar[int]
    MAY_OMIT_UNCHANGED_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    DIGEST_FIELD_NUMBER: _ClassVar[int]
    since_revision: int
    may_omit_unchanged: bool
    epoch: str
    digest: str
    def __init__(self, since_revision: _Optional[int] = ..., may_omit_unchanged: _Optional[bool] = ..., epoch: _Optional[str] = ..., digest: _Optional[str] = ...) -> None: ...

class ListTasksResponse(_message.Message):
    __slots__ = ("revision", "epoch", "unchanged", "tasks", "digest")
    REVISION_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    UNCHANGED_FIELD_NUMBER: _ClassVar[int]
    TASKS_FIELD_NUMBER: _ClassVar[int]
    DIGEST_FIELD_NUMBER: _ClassVar[int]
    revision: int
    epoch: str
    unchanged: bool
    tasks: _containers.RepeatedCompositeFieldContainer[Task]
    digest: str
    def __init__(self, revision: _Optional[int] = ..., epoch: _Optional[str] = ..., unchanged: _Optional[bool] = ..., tasks: _Optional[_Iterable[_Union[Task, _Mapping]]] = ..., digest: _Optional[str] = ...) -> None: ...

class ListProfilesResponse(_message.Message):
    __slots__ = ("revision", "epoch", "unchanged", "profiles", "digest")
    REVISION_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    UNCHANGED_FIELD_NUMBER: _ClassVar[int]
    PROFILES_FIELD_NUMBER: _ClassVar[int]
    DIGEST_FIELD_NUMBER: _ClassVar[int]
    revision: int
    epoch: str
    unchanged: bool
    profiles: _containers.RepeatedCompositeFieldContainer[Profile]
    digest: str
    def __init__(self, revision: _Optional[int] = ..., epoch: _Optional[str] = ..., unchanged: _Optional[bool] = ..., profiles: _Optional[_Iterable[_Union[Profile, _Mapping]]] = ..., digest: _Optional[str] = ...) -> None: ...

class ListPinsResponse(_message.Message):
    __slots__ = ("revision", "epoch", "unchanged", "pins", "digest")
    REVISION_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    UNCHANGED_FIELD_NUMBER: _ClassVar[int]
    PINS_FIELD_NUMBER: _ClassVar[int]
    DIGEST_FIELD_NUMBER: _ClassVar[int]
    revision: int
    epoch: str
    unchanged: bool
    pins: _containers.RepeatedCompositeFieldContainer[Pin]
    digest: str
    def __init__(self, revision: _Optional[int] = ..., epoch: _Optional[str] = ..., unchanged: _Optional[bool] = ..., pins: _Optional[_Iterable[_Union[Pin, _Mapping]]] = ..., digest: _Optional[str] = ...) -> None: ...

class WatchRequest(_message.Message):
    __slots__ = ("since_revision", "epoch", "digest")
    SINCE_REVISION_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    DIGEST_FIELD_NUMBER: _ClassVar[int]
    since_revision: int
    epoch: str
    digest: str
    def __init__(self, since_revision: _Optional[int] = ..., epoch: _Optional[str] = ..., digest: _Optional[str] = ...) -> None: ...

class WatchResponse(_message.Message):
    __slots__ = ("event",)
    EVENT_FIELD_NUMBER: _ClassVar[int]
    event: Event
    def __init__(self, event: _Optional[_Union[Event, _Mapping]] = ...) -> None: ...

class Event(_message.Message):
    __slots__ = ("revision", "upserts", "deletes", "digest")
    REVISION_FIELD_NUMBER: _ClassVar[int]
    UPSERTS_FIELD_NUMBER: _ClassVar[int]
    DELETES_FIELD_NUMBER: _ClassVar[int]
    DIGEST_FIELD_NUMBER: _ClassVar[int]
    revision: int
    upserts: _containers.RepeatedScalarFieldContainer[str]
    deletes: _containers.RepeatedScalarFieldContainer[str]
    digest: str
    def __init__(self, revision: _Optional[int] = ..., upserts: _Optional[_Iterable[str]] = ..., deletes: _Optional[_Iterable[str]] = ..., digest: _Optional[str] = ...) -> None: ...

class UpsertTaskRequest(_message.Message):
    __slots__ = ("task", "if_revision", "plan")
    TASK_FIELD_NUMBER: _ClassVar[int]
    IF_REVISION_FIELD_NUMBER: _ClassVar[int]
    PLAN_FIELD_NUMBER: _ClassVar[int]
    task: Task
    if_revision: int
    plan: str
    def __init__(self, task: _Optional[_Union[Task, _Mapping]] = ..., if_revision: _Optional[int] = ..., plan: _Optional[str] = ...) -> None: ...

class UpsertProfileRequest(_message.Message):
    __slots__ = ("profile", "if_revision", "plan")
    PROFILE_FIELD_NUMBER: _ClassVar[int]
    IF_REVISION_FIELD_NUMBER: _ClassVar[int]
    PLAN_FIELD_NUMBER: _ClassVar[int]
    profile: Profile
    if_revision: int
    plan: str
    def __init__(self, profile: _Optional[_Union[Profile, _Mapping]] = ..., if_revision: _Optional[int] = ..., plan: _Optional[str] = ...) -> None: ...

class UpsertPinRequest(_message.Message):
    __slots__ = ("pin", "if_revision", "plan")
    PIN_FIELD_NUMBER: _ClassVar[int]
    IF_REVISION_FIELD_NUMBER: _ClassVar[int]
    PLAN_FIELD_NUMBER: _ClassVar[int]
    pin: Pin
    if_revision: int
    plan: str
    def __init__(self, pin: _Optional[_Union[Pin, _Mapping]] = ..., if_revision: _Optional[int] = ..., plan: _Optional[str] = ...) -> None: ...

class DeleteRequest(_message.Message):
    __slots__ = ("id", "if_revision", "plan")
    ID_FIELD_NUMBER: _ClassVar[int]
    IF_REVISION_FIELD_NUMBER: _ClassVar[int]
    PLAN_FIELD_NUMBER: _ClassVar[int]
    id: str
    if_revision: int
    plan: str
    def __init__(self, id: _Optional[str] = ..., if_revision: _Optional[int] = ..., plan: _Optional[str] = ...) -> None: ...

class WriteResponse(_message.Message):
    __slots__ = ("revision", "warnings")
    REVISION_FIELD_NUMBER: _ClassVar[int]
    WARNINGS_FIELD_NUMBER: _ClassVar[int]
    revision: int
    warnings: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, revision: _Optional[int] = ..., warnings: _Optional[_Iterable[str]] = ...) -> None: ...
