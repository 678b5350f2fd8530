from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class ListRecordsRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ListRecordsResponse(_message.Message):
    __slots__ = ("epoch", "revision", "records", "is_last")
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    REVISION_FIELD_NUMBER: _ClassVar[int]
    RECORDS_FIELD_NUMBER: _ClassVar[int]
    IS_LAST_FIELD_NUMBER: _ClassVar[int]
    epoch: str
    revision: int
    records: _containers.RepeatedCompositeFieldContainer[Record]
    is_last: bool
    def __init__(self, epoch: _Optional[str] = ..., revision: _Optional[int] = ..., records: _Optional[_Iterable[_Union[Record, _Mapping]]] = ..., is_last: _Optional[bool] = ...) -> None: ...

class Record(_message.Message):
    __slots__ = ("kind", "id", "body")
    KIND_FIELD_NUMBER: _ClassVar[int]
    ID_FIELD_NUMBER: _ClassVar[int]
    BODY_FIELD_NUMBER: _ClassVar[int]
    kind: str
    id: str
    body: bytes
    def __init__(self, kind: _Optional[str] = ..., id: _Optional[str] = ..., body: _Optional[bytes] = ...) -> None: ...

class WatchRecordsRequest(_message.Message):
    __slots__ = ("epoch", "since_revision")
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    SINCE_REVISION_FIELD_NUMBER: _ClassVar[int]
    epoch: str
    since_revision: int
    def __init__(self, epoch: _Optional[str] = ..., since_revision: _Optional[int] = ...) -> None: ...

class WatchRecordsResponse(_message.Message):
    __slots__ = ("revision", "changes")
    REVISION_FIELD_NUMBER: _ClassVar[int]
    CHANGES_FIELD_NUMBER: _ClassVar[int]
    revision: int
    changes: _containers.RepeatedCompositeFieldContainer[Record]
    def __init__(self, revision: _Optional[int] = ..., changes: _Optional[_Iterable[_Union[Record, _Mapping]]] = ...) -> None: ...

class ServerReport(_message.Message):
    __slots__ = ("server_id", "state", "list_state", "since_ms", "last_error", "restarts", "tools", "quarantined", "calls", "is_stale", "definitions", "changed")
    class ChangedEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    SERVER_ID_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    LIST_STATE_FIELD_NUMBER: _ClassVar[int]
    SINCE_MS_FIELD_NUMBER: _ClassVar[int]
    LAST_ERROR_FIELD_NUMBER: _ClassVar[int]
    RESTARTS_FIELD_NUMBER: _ClassVar[int]
    TOOLS_FIELD_NUMBER: _ClassVar[int]
    QUARANTINED_FIELD_NUMBER: _ClassVar[int]
    CALLS_FIELD_NUMBER: _ClassVar[int]
    IS_STALE_FIELD_NUMBER: _ClassVar[int]
    DEFINITIONS_FIELD_NUMBER: _ClassVar[int]
    CHANGED_FIELD_NUMBER: _ClassVar[int]
    server_id: str
    state: str
    list_state: str
    since_ms: int
    last_error: str
    restarts: int
    tools: int
    quarantined: int
    calls: int
    is_stale: bool
    definitions: str
    changed: _containers.ScalarMap[str, str]
    def __init__(self, server_id: _Optional[str] = ..., state: _Optional[str] = ..., list_state: _Optional[str] = ..., since_ms: _Optional[int] = ..., last_error: _Optional[str] = ..., restarts: _Optional[int] = ..., tools: _Optional[int] = ..., quarantined: _Optional[int] = ..., calls: _Optional[int] = ..., is_stale: _Optional[bool] = ..., definitions: _Optional[str] = ..., changed: _Optional[_Mapping[str, str]] = ...) -> None: ...

class Definitions(_message.Message):
    __slots__ = ("server_id", "digest", "tools", "quarantined", "prompts", "resources", "templates")
    class QuarantinedEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    SERVER_ID_FIELD_NUMBER: _ClassVar[int]
    DIGEST_FIELD_NUMBER: _ClassVar[int]
    TOOLS_FIELD_NUMBER: _ClassVar[int]
    QUARANTINED_FIELD_NUMBER: _ClassVar[int]
    PROMPTS_FIELD_NUMBER: _ClassVar[int]
    RESOURCES_FIELD_NUMBER: _ClassVar[int]
    TEMPLATES_FIELD_NUMBER: _ClassVar[int]
    server_id: str
    digest: str
    tools: _containers.RepeatedScalarFieldContainer[bytes]
    quarantined: _containers.ScalarMap[str, str]
    prompts: _containers.RepeatedScalarFieldContainer[bytes]
    resources: _containers.RepeatedScalarFieldContainer[bytes]
    templates: _containers.RepeatedScalarFieldContainer[bytes]
    def __init__(self, server_id: _Optional[str] = ..., digest: _Optional[str] = ..., tools: _Optional[_Iterable[bytes]] = ..., quarantined: _Optional[_Mapping[str, str]] = ..., prompts: _Optional[_Iterable[bytes]] = ..., resources: _Optional[_Iterable[bytes]] = ..., templates: _Optional[_Iterable[bytes]] = ...) -> None: ...

class ReportRequest(_message.Message):
    __slots__ = ("node_id", "url", "version", "epoch", "revision", "is_degraded", "servers", "definitions")
    NODE_ID_FIELD_NUMBER: _ClassVar[int]
    URL_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    REVISION_FIELD_NUMBER: _ClassVar[int]
    IS_DEGRADED_FIELD_NUMBER: _ClassVar[int]
    SERVERS_FIELD_NUMBER: _ClassVar[int]
    DEFINITIONS_FIELD_NUMBER: _ClassVar[int]
    node_id: str
    url: str
    version: str
    epoch: str
    revision: int
    is_degraded: bool
    servers: _containers.RepeatedCompositeFieldContainer[ServerReport]
    definitions: _containers.RepeatedCompositeFieldContainer[Definitions]
    def __init__(self, node_id: _Optional[str] = ..., url: _Optional[str] = ..., version: _Optional[str] = ..., epoch: _Optional[str] = ..., revision: _Optional[int] = ..., is_degraded: _Optional[bool] = ..., servers: _Optional[_Iterable[_Union[ServerReport, _Mapping]]] = ..., definitions: _Optional[_Iterable[_Union[Definitions, _Mapping]]] = ...) -> None: ...

class ReportResponse(_message.Message):
    __slots__ = ("wanted",)
    WANTED_FIELD_NUMBER: _ClassVar[int]
    wanted: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, wanted: _Optional[_Iterable[str]] = ...) -> None: ...

class ReadArtifactRequest(_message.Message):
    __slots__ = ("package_id", "version", "sha256")
    PACKAGE_ID_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    SHA256_FIELD_NUMBER: _ClassVar[int]
    package_id: str
    version: str
    sha256: str
    def __init__(self, package_id: _Optional[str] = ..., version: _Optional[str] = ..., sha256: _Optional[str] = ...) -> None: ...

class ReadArtifactResponse(_message.Message):
    __slots__ = ("content",)
    CONTENT_FIELD_NUMBER: _ClassVar[int]
    content: bytes
    def __init__(self, content: _Optional[bytes] = ...) -> None: ...

class ReadModuleRequest(_message.Message):
    __slots__ = ("sha256",)
    SHA256_FIELD_NUMBER: _ClassVar[int]
    sha256: str
    def __init__(self, sha256: _Optional[str] = ...) -> None: ...

class ReadModuleResponse(_message.Message):
    __slots__ = ("content",)
    CONTENT_FIELD_NUMBER: _ClassVar[int]
    content: bytes
    def __init__(self, content: _Optional[bytes] = ...) -> None: ...
