from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class McpTransport(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    MCP_TRANSPORT_UNSPECIFIED: _ClassVar[McpTransport]
    MCP_TRANSPORT_STDIO: _ClassVar[McpTransport]
    MCP_TRANSPORT_STREAMABLE_HTTP: _ClassVar[McpTransport]
    MCP_TRANSPORT_HTTP_SSE_LEGACY: _ClassVar[McpTransport]
MCP_TRANSPORT_UNSPECIFIED: McpTransport
MCP_TRANSPORT_STDIO: McpTransport
MCP_TRANSPORT_STREAMABLE_HTTP: McpTransport
MCP_TRANSPORT_HTTP_SSE_LEGACY: McpTransport

class McpStdioConfig(_message.Message):
    __slots__ = ("command", "args", "env", "cwd", "env_from")
    class EnvEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    COMMAND_FIELD_NUMBER: _ClassVar[int]
    ARGS_FIELD_NUMBER: _ClassVar[int]
    ENV_FIELD_NUMBER: _ClassVar[int]
    CWD_FIELD_NUMBER: _ClassVar[int]
    ENV_FROM_FIELD_NUMBER: _ClassVar[int]
    command: str
    args: _containers.RepeatedScalarFieldContainer[str]
    env: _containers.ScalarMap[str, str]
    cwd: str
    env_from: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, command: _Optional[str] = ..., args: _Optional[_Iterable[str]] = ..., env: _Optional[_Mapping[str, str]] = ..., cwd: _Optional[str] = ..., env_from: _Optional[_Iterable[str]] = ...) -> None: ...

class McpHttpConfig(_message.Message):
    __slots__ = ("url", "headers", "auth_ref", "oauth")
    class HeadersEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    URL_FIELD_NUMBER: _ClassVar[int]
    HEADERS_FIELD_NUMBER: _ClassVar[int]
    AUTH_REF_FIELD_NUMBER: _ClassVar[int]
    OAUTH_FIELD_NUMBER: _ClassVar[int]
    url: str
    headers: _containers.ScalarMap[str, str]
    auth_ref: str
    oauth: McpOAuthConfig
    def __init__(self, url: _Optional[str] = ..., headers: _Optional[_Mapping[str, str]] = ..., auth_ref: _Optional[str] = ..., oauth: _Optional[_Union[McpOAuthConfig, _Mapping]] = ...) -> None: ...

class McpOAuthConfig(_message.Message):
    __slots__ = ("grant", "client_id", "client_secret_ref", "issuer", "scopes", "per_principal")
    GRANT_FIELD_NUMBER: _ClassVar[int]
    CLIENT_ID_FIELD_NUMBER: _ClassVar[int]
    CLIENT_SECRET_REF_FIELD_NUMBER: _ClassVar[int]
    ISSUER_FIELD_NUMBER: _ClassVar[int]
    SCOPES_FIELD_NUMBER: _ClassVar[int]
    PER_PRINCIPAL_FIELD_NUMBER: _ClassVar[int]
    grant: str
    client_id: str
    client_secret_ref: str
    issuer: str
    scopes: _containers.RepeatedScalarFieldContainer[str]
    per_principal: bool
    def __init__(self, grant: _Optional[str] = ..., client_id: _Optional[str] = ..., client_secret_ref: _Optional[str] = ..., issuer: _Optional[str] = ..., scopes: _Optional[_Iterable[str]] = ..., per_principal: _Optional[bool] = ...) -> None: ...

class McpBudgets(_message.Message):
    __slots__ = ("tool_timeout_ms", "max_concurrency", "max_tool_output_bytes")
    TOOL_TIMEOUT_MS_FIELD_NUMBER: _ClassVar[int]
    MAX_CONCURRENCY_FIELD_NUMBER: _ClassVar[int]
    MAX_TOOL_OUTPUT_BYTES_FIELD_NUMBER: _ClassVar[int]
    tool_timeout_ms: int
    max_concurrency: int
    max_tool_output_bytes: int
    def __init__(self, tool_timeout_ms: _Optional[int] = ..., max_concurrency: _Optional[int] = ..., max_tool_output_bytes: _Optional[int] = ...) -> None: ...

class McpApprovalPolicy(_message.Message):
    __slots__ = ("default_policy", "per_tool", "in_place")
    class PerToolEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    DEFAULT_POLICY_FIELD_NUMBER: _ClassVar[int]
    PER_TOOL_FIELD_NUMBER: _ClassVar[int]
    IN_PLACE_FIELD_NUMBER: _ClassVar[int]
    default_policy: str
    per_tool: _containers.ScalarMap[str, str]
    in_place: bool
    def __init__(self, default_policy: _Optional[str] = ..., per_tool: _Optional[_Mapping[str, str]] = ..., in_place: _Optional[bool] = ...) -> None: ...

class McpServerRecord(_message.Message):
    __slots__ = ("server_id", "display_name", "transport", "stdio", "http", "tool_namespace", "allowed_tools", "approval_policy", "budgets", "updated_at_ms", "extras", "revision")
    SERVER_ID_FIELD_NUMBER: _ClassVar[int]
    DISPLAY_NAME_FIELD_NUMBER: _ClassVar[int]
    TRANSPORT_FIELD_NUMBER: _ClassVar[int]
    STDIO_FIELD_NUMBER: _ClassVar[int]
    HTTP_FIELD_NUMBER: _ClassVar[int]
    TOOL_NAMESPACE_FIELD_NUMBER: _ClassVar[int]
    ALLOWED_TOOLS_FIELD_NUMBER: _ClassVar[int]
    APPROVAL_POLICY_FIELD_NUMBER: _ClassVar[int]
    BUDGETS_FIELD_NUMBER: _ClassVar[int]
    UPDATED_AT_MS_FIELD_NUMBER: _ClassVar[int]
    EXTRAS_FIELD_NUMBER: _ClassVar[int]
    REVISION_FIELD_NUMBER: _ClassVar[int]
    server_id: str
    display_name: str
    transport: McpTransport
    stdio: McpStdioConfig
    http: McpHttpConfig
    tool_namespace: str
    allowed_tools: _containers.RepeatedScalarFieldContainer[str]
    approval_policy: McpApprovalPolicy
    budgets: McpBudgets
    updated_at_ms: int
    extras: McpServerExtras
    revision: int
    def __init__(self, server_id: _Optional[str] = ..., display_name: _Optional[str] = ..., transport: _Optional[_Union[McpTransport, str]] = ..., stdio: _Optional[_Union[McpStdioConfig, _Mapping]] = ..., http: _Optional[_Union[McpHttpConfig, _Mapping]] = ..., tool_namespace: _Optional[str] = ..., allowed_tools: _Optional[_Iterable[str]] = ..., approval_policy: _Optional[_Union[McpApprovalPolicy, _Mapping]] = ..., budgets: _Optional[_Union[McpBudgets, _Mapping]] = ..., updated_at_ms: _Optional[int] = ..., extras: _Optional[_Union[McpServerExtras, _Mapping]] = ..., revision: _Optional[int] = ...) -> None: ...

class McpServerExtras(_message.Message):
    __slots__ = ("tags", "category", "enabled", "sharing", "idle_timeout_s", "prewarm", "package", "redaction", "start_timeout_s", "protocol", "list_ttl_s")
    TAGS_FIELD_NUMBER: _ClassVar[int]
    CATEGORY_FIELD_NUMBER: _ClassVar[int]
    ENABLED_FIELD_NUMBER: _ClassVar[int]
    SHARING_FIELD_NUMBER: _ClassVar[int]
    IDLE_TIMEOUT_S_FIELD_NUMBER: _ClassVar[int]
    PREWARM_FIELD_NUMBER: _ClassVar[int]
    PACKAGE_FIELD_NUMBER: _ClassVar[int]
    REDACTION_FIELD_NUMBER: _ClassVar[int]
    START_TIMEOUT_S_FIELD_NUMBER: _ClassVar[int]
    PROTOCOL_FIELD_NUMBER: _ClassVar[int]
    LIST_TTL_S_FIELD_NUMBER: _ClassVar[int]
    tags: _containers.RepeatedScalarFieldContainer[str]
    category: str
    enabled: bool
    sharing: str
    idle_timeout_s: int
    prewarm: bool
    package: McpPackageRef
    redaction: McpRedaction
    start_timeout_s: int
    protocol: str
    list_ttl_s: int
    def __init__(self, tags: _Optional[_Iterable[str]] = ..., category: _Optional[str] = ..., enabled: _Optional[bool] = ..., sharing: _Optional[str] = ..., idle_timeout_s: _Optional[int] = ..., prewarm: _Optional[bool] = ..., package: _Optional[_Union[McpPackageRef, _Mapping]] = ..., redaction: _Optional[_Union[McpRedaction, _Mapping]] = ..., start_timeout_s: _Optional[int] = ..., protocol: _Optional[str] = ..., list_ttl_s: _Optional[int] = ...) -> None: ...

class McpRedaction(_message.Message):
    __slots__ = ("hide", "show", "arguments")
    HIDE_FIELD_NUMBER: _ClassVar[int]
    SHOW_FIELD_NUMBER: _ClassVar[int]
    ARGUMENTS_FIELD_NUMBER: _ClassVar[int]
    hide: _containers.RepeatedScalarFieldContainer[str]
    show: _containers.RepeatedScalarFieldContainer[str]
    arguments: str
    def __init__(self, hide: _Optional[_Iterable[str]] = ..., show: _Optional[_Iterable[str]] = ..., arguments: _Optional[str] = ...) -> None: ...

class McpPackageRef(_message.Message):
    __slots__ = ("version", "sha256")
    VERSION_FIELD_NUMBER: _ClassVar[int]
    SHA256_FIELD_NUMBER: _ClassVar[int]
    version: str
    sha256: str
    def __init__(self, version: _Optional[str] = ..., sha256: _Optional[str] = ...) -> None: ...

class ListMcpServersRequest(_message.Message):
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

class ListMcpServersResponse(_message.Message):
    __slots__ = ("revision", "servers", "epoch", "unchanged", "digest")
    REVISION_FIELD_NUMBER: _ClassVar[int]
    SERVERS_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    UNCHANGED_FIELD_NUMBER: _ClassVar[int]
    DIGEST_FIELD_NUMBER: _ClassVar[int]
    revision: int
    servers: _containers.RepeatedCompositeFieldContainer[McpServerRecord]
    epoch: str
    unchanged: bool
    digest: str
    def __init__(self, revision: _Optional[int] = ..., servers: _Optional[_Iterable[_Union[McpServerRecord, _Mapping]]] = ..., epoch: _Optional[str] = ..., unchanged: _Optional[bool] = ..., digest: _Optional[str] = ...) -> None: ...

class WatchMcpServersRequest(_message.Message):
    __slots__ = ("since_revision", "epoch", "digest")
    SINCE_REVISION_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    DIGEST_FIELD_NUMBER: _ClassVar[int]
    since_revision: int
    epoch: str
    digest: str
    def __init__(self, since_revision: _Optional[int] = ..., epoch: _Optional[str] = ..., digest: _Optional[str] = ...) -> None: ...

class WatchMcpServersResponse(_message.Message):
    __slots__ = ("event",)
    EVENT_FIELD_NUMBER: _ClassVar[int]
    event: McpRegistryEvent
    def __init__(self, event: _Optional[_Union[McpRegistryEvent, _Mapping]] = ...) -> None: ...

class McpRegistryEvent(_message.Message):
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

class UpsertMcpServerRequest(_message.Message):
    __slots__ = ("record", "if_revision", "plan")
    RECORD_FIELD_NUMBER: _ClassVar[int]
    IF_REVISION_FIELD_NUMBER: _ClassVar[int]
    PLAN_FIELD_NUMBER: _ClassVar[int]
    record: McpServerRecord
    if_revision: int
    plan: str
    def __init__(self, record: _Optional[_Union[McpServerRecord, _Mapping]] = ..., if_revision: _Optional[int] = ..., plan: _Optional[str] = ...) -> None: ...

class UpsertMcpServerResponse(_message.Message):
    __slots__ = ("revision", "warnings")
    REVISION_FIELD_NUMBER: _ClassVar[int]
    WARNINGS_FIELD_NUMBER: _ClassVar[int]
    revision: int
    warnings: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, revision: _Optional[int] = ..., warnings: _Optional[_Iterable[str]] = ...) -> None: ...

class DeleteMcpServerRequest(_message.Message):
    __slots__ = ("server_id", "if_revision", "plan")
    SERVER_ID_FIELD_NUMBER: _ClassVar[int]
    IF_REVISION_FIELD_NUMBER: _ClassVar[int]
    PLAN_FIELD_NUMBER: _ClassVar[int]
    server_id: str
    if_revision: int
    plan: str
    def __init__(self, server_id: _Optional[str] = ..., if_revision: _Optional[int] = ..., plan: _Optional[str] = ...) -> None: ...

class DeleteMcpServerResponse(_message.Message):
    __slots__ = ("revision", "warnings")
    REVISION_FIELD_NUMBER: _ClassVar[int]
    WARNINGS_FIELD_NUMBER: _ClassVar[int]
    revision: int
    warnings: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, revision: _Optional[int] = ..., warnings: _Optional[_Iterable[str]] = ...) -> None: ...
