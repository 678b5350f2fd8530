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
    __slots__ = ("epoch", "revision", "records", "is_last", "digest")
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    REVISION_FIELD_NUMBER: _ClassVar[int]
    RECORDS_FIELD_NUMBER: _ClassVar[int]
    IS_LAST_FIELD_NUMBER: _ClassVar[int]
    DIGEST_FIELD_NUMBER: _ClassVar[int]
    epoch: str
    revision: int
    records: _containers.RepeatedCompositeFieldContainer[Record]
    is_last: bool
    digest: str
    def __init__(self, epoch: _Optional[str] = ..., revision: _Optional[int] = ..., records: _Optional[_Iterable[_Union[Record, _Mapping]]] = ..., is_last: _Optional[bool] = ..., digest: _Optional[str] = ...) -> None: ...

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
    __slots__ = ("epoch", "since_revision", "digest")
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    SINCE_REVISION_FIELD_NUMBER: _ClassVar[int]
    DIGEST_FIELD_NUMBER: _ClassVar[int]
    epoch: str
    since_revision: int
    digest: str
    def __init__(self, epoch: _Optional[str] = ..., since_revision: _Optional[int] = ..., digest: _Optional[str] = ...) -> None: ...

class WatchRecordsResponse(_message.Message):
    __slots__ = ("revision", "changes", "digest")
    REVISION_FIELD_NUMBER: _ClassVar[int]
    CHANGES_FIELD_NUMBER: _ClassVar[int]
    DIGEST_FIELD_NUMBER: _ClassVar[int]
    revision: int
    changes: _containers.RepeatedCompositeFieldContainer[Record]
    digest: str
    def __init__(self, revision: _Optional[int] = ..., changes: _Optional[_Iterable[_Union[Record, _Mapping]]] = ..., digest: _Optional[str] = ...) -> None: ...

class ServerReport(_message.Message):
    __slots__ = ("server_id", "state", "list_state", "since_ms", "last_error", "restarts", "tools", "quarantined", "calls", "is_stale", "definitions", "changed", "hint", "verified_ms")
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
    HINT_FIELD_NUMBER: _ClassVar[int]
    VERIFIED_MS_FIELD_NUMBER: _ClassVar[int]
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
    hint: str
    verified_ms: int
    def __init__(self, server_id: _Optional[str] = ..., state: _Optional[str] = ..., list_state: _Optional[str] = ..., since_ms: _Optional[int] = ..., last_error: _Optional[str] = ..., restarts: _Optional[int] = ..., tools: _Optional[int] = ..., quarantined: _Optional[int] = ..., calls: _Optional[int] = ..., is_stale: _Optional[bool] = ..., definitions: _Optional[str] = ..., changed: _Optional[_Mapping[str, str]] = ..., hint: _Optional[str] = ..., verified_ms: _Optional[int] = ...) -> None: ...

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

class ClaimInvocationsRequest(_message.Message):
    __slots__ = ("node_id", "limit", "wait_ms")
    NODE_ID_FIELD_NUMBER: _ClassVar[int]
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    WAIT_MS_FIELD_NUMBER: _ClassVar[int]
    node_id: str
    limit: int
    wait_ms: int
    def __init__(self, node_id: _Optional[str] = ..., limit: _Optional[int] = ..., wait_ms: _Optional[int] = ...) -> None: ...

class ClaimedInvocation(_message.Message):
    __slots__ = ("invocation_id", "attempt", "task_id", "principal", "revision", "input", "created_ms", "retries", "lease_until_ms")
    INVOCATION_ID_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    TASK_ID_FIELD_NUMBER: _ClassVar[int]
    PRINCIPAL_FIELD_NUMBER: _ClassVar[int]
    REVISION_FIELD_NUMBER: _ClassVar[int]
    INPUT_FIELD_NUMBER: _ClassVar[int]
    CREATED_MS_FIELD_NUMBER: _ClassVar[int]
    RETRIES_FIELD_NUMBER: _ClassVar[int]
    LEASE_UNTIL_MS_FIELD_NUMBER: _ClassVar[int]
    invocation_id: str
    attempt: int
    task_id: str
    principal: bytes
    revision: int
    input: bytes
    created_ms: int
    retries: int
    lease_until_ms: int
    def __init__(self, invocation_id: _Optional[str] = ..., attempt: _Optional[int] = ..., task_id: _Optional[str] = ..., principal: _Optional[bytes] = ..., revision: _Optional[int] = ..., input: _Optional[bytes] = ..., created_ms: _Optional[int] = ..., retries: _Optional[int] = ..., lease_until_ms: _Optional[int] = ...) -> None: ...

class ClaimInvocationsResponse(_message.Message):
    __slots__ = ("invocations",)
    INVOCATIONS_FIELD_NUMBER: _ClassVar[int]
    invocations: _containers.RepeatedCompositeFieldContainer[ClaimedInvocation]
    def __init__(self, invocations: _Optional[_Iterable[_Union[ClaimedInvocation, _Mapping]]] = ...) -> None: ...

class LogLine(_message.Message):
    __slots__ = ("seq", "at_ms", "stream", "level", "text")
    SEQ_FIELD_NUMBER: _ClassVar[int]
    AT_MS_FIELD_NUMBER: _ClassVar[int]
    STREAM_FIELD_NUMBER: _ClassVar[int]
    LEVEL_FIELD_NUMBER: _ClassVar[int]
    TEXT_FIELD_NUMBER: _ClassVar[int]
    seq: int
    at_ms: int
    stream: str
    level: str
    text: str
    def __init__(self, seq: _Optional[int] = ..., at_ms: _Optional[int] = ..., stream: _Optional[str] = ..., level: _Optional[str] = ..., text: _Optional[str] = ...) -> None: ...

class CallMade(_message.Message):
    __slots__ = ("server_id", "tool", "code", "ms")
    SERVER_ID_FIELD_NUMBER: _ClassVar[int]
    TOOL_FIELD_NUMBER: _ClassVar[int]
    CODE_FIELD_NUMBER: _ClassVar[int]
    MS_FIELD_NUMBER: _ClassVar[int]
    server_id: str
    tool: str
    code: str
    ms: int
    def __init__(self, server_id: _Optional[str] = ..., tool: _Optional[str] = ..., code: _Optional[str] = ..., ms: _Optional[int] = ...) -> None: ...

class RunUsage(_message.Message):
    __slots__ = ("fuel", "wall_ms", "memory_bytes", "hostcalls", "tool_calls", "model_asks")
    FUEL_FIELD_NUMBER: _ClassVar[int]
    WALL_MS_FIELD_NUMBER: _ClassVar[int]
    MEMORY_BYTES_FIELD_NUMBER: _ClassVar[int]
    HOSTCALLS_FIELD_NUMBER: _ClassVar[int]
    TOOL_CALLS_FIELD_NUMBER: _ClassVar[int]
    MODEL_ASKS_FIELD_NUMBER: _ClassVar[int]
    fuel: int
    wall_ms: int
    memory_bytes: int
    hostcalls: int
    tool_calls: int
    model_asks: int
    def __init__(self, fuel: _Optional[int] = ..., wall_ms: _Optional[int] = ..., memory_bytes: _Optional[int] = ..., hostcalls: _Optional[int] = ..., tool_calls: _Optional[int] = ..., model_asks: _Optional[int] = ...) -> None: ...

class Ending(_message.Message):
    __slots__ = ("state", "ended_by", "exit_code", "message", "stdout", "stderr", "is_truncated", "usage", "calls")
    STATE_FIELD_NUMBER: _ClassVar[int]
    ENDED_BY_FIELD_NUMBER: _ClassVar[int]
    EXIT_CODE_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    STDOUT_FIELD_NUMBER: _ClassVar[int]
    STDERR_FIELD_NUMBER: _ClassVar[int]
    IS_TRUNCATED_FIELD_NUMBER: _ClassVar[int]
    USAGE_FIELD_NUMBER: _ClassVar[int]
    CALLS_FIELD_NUMBER: _ClassVar[int]
    state: str
    ended_by: str
    exit_code: int
    message: str
    stdout: bytes
    stderr: bytes
    is_truncated: bool
    usage: RunUsage
    calls: _containers.RepeatedCompositeFieldContainer[CallMade]
    def __init__(self, state: _Optional[str] = ..., ended_by: _Optional[str] = ..., exit_code: _Optional[int] = ..., message: _Optional[str] = ..., stdout: _Optional[bytes] = ..., stderr: _Optional[bytes] = ..., is_truncated: _Optional[bool] = ..., usage: _Optional[_Union[RunUsage, _Mapping]] = ..., calls: _Optional[_Iterable[_Union[CallMade, _Mapping]]] = ...) -> None: ...

class ReportInvocationRequest(_message.Message):
    __slots__ = ("invocation_id", "attempt", "lines", "ending")
    INVOCATION_ID_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    LINES_FIELD_NUMBER: _ClassVar[int]
    ENDING_FIELD_NUMBER: _ClassVar[int]
    invocation_id: str
    attempt: int
    lines: _containers.RepeatedCompositeFieldContainer[LogLine]
    ending: Ending
    def __init__(self, invocation_id: _Optional[str] = ..., attempt: _Optional[int] = ..., lines: _Optional[_Iterable[_Union[LogLine, _Mapping]]] = ..., ending: _Optional[_Union[Ending, _Mapping]] = ...) -> None: ...

class ReportInvocationResponse(_message.Message):
    __slots__ = ("verdict",)
    VERDICT_FIELD_NUMBER: _ClassVar[int]
    verdict: str
    def __init__(self, verdict: _Optional[str] = ...) -> None: ...

class AskApprovalRequest(_message.Message):
    __slots__ = ("new_id", "principal", "task_id", "server_id", "tool", "arguments_digest", "definition", "arguments", "why", "session", "door", "round")
    NEW_ID_FIELD_NUMBER: _ClassVar[int]
    PRINCIPAL_FIELD_NUMBER: _ClassVar[int]
    TASK_ID_FIELD_NUMBER: _ClassVar[int]
    SERVER_ID_FIELD_NUMBER: _ClassVar[int]
    TOOL_FIELD_NUMBER: _ClassVar[int]
    ARGUMENTS_DIGEST_FIELD_NUMBER: _ClassVar[int]
    DEFINITION_FIELD_NUMBER: _ClassVar[int]
    ARGUMENTS_FIELD_NUMBER: _ClassVar[int]
    WHY_FIELD_NUMBER: _ClassVar[int]
    SESSION_FIELD_NUMBER: _ClassVar[int]
    DOOR_FIELD_NUMBER: _ClassVar[int]
    ROUND_FIELD_NUMBER: _ClassVar[int]
    new_id: str
    principal: str
    task_id: str
    server_id: str
    tool: str
    arguments_digest: str
    definition: str
    arguments: bytes
    why: str
    session: str
    door: str
    round: int
    def __init__(self, new_id: _Optional[str] = ..., principal: _Optional[str] = ..., task_id: _Optional[str] = ..., server_id: _Optional[str] = ..., tool: _Optional[str] = ..., arguments_digest: _Optional[str] = ..., definition: _Optional[str] = ..., arguments: _Optional[bytes] = ..., why: _Optional[str] = ..., session: _Optional[str] = ..., door: _Optional[str] = ..., round: _Optional[int] = ...) -> None: ...

class AskApprovalResponse(_message.Message):
    __slots__ = ("outcome", "approval_id", "expires_ms", "reason", "in_place", "console_url")
    OUTCOME_FIELD_NUMBER: _ClassVar[int]
    APPROVAL_ID_FIELD_NUMBER: _ClassVar[int]
    EXPIRES_MS_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    IN_PLACE_FIELD_NUMBER: _ClassVar[int]
    CONSOLE_URL_FIELD_NUMBER: _ClassVar[int]
    outcome: str
    approval_id: str
    expires_ms: int
    reason: str
    in_place: bool
    console_url: str
    def __init__(self, outcome: _Optional[str] = ..., approval_id: _Optional[str] = ..., expires_ms: _Optional[int] = ..., reason: _Optional[str] = ..., in_place: _Optional[bool] = ..., console_url: _Optional[str] = ...) -> None: ...

class DecideApprovalRequest(_message.Message):
    __slots__ = ("question", "approval_id", "is_approved")
    QUESTION_FIELD_NUMBER: _ClassVar[int]
    APPROVAL_ID_FIELD_NUMBER: _ClassVar[int]
    IS_APPROVED_FIELD_NUMBER: _ClassVar[int]
    question: AskApprovalRequest
    approval_id: str
    is_approved: bool
    def __init__(self, question: _Optional[_Union[AskApprovalRequest, _Mapping]] = ..., approval_id: _Optional[str] = ..., is_approved: _Optional[bool] = ...) -> None: ...

class Draw(_message.Message):
    __slots__ = ("kind", "id", "budget", "limit", "spent", "returned", "window_ms")
    KIND_FIELD_NUMBER: _ClassVar[int]
    ID_FIELD_NUMBER: _ClassVar[int]
    BUDGET_FIELD_NUMBER: _ClassVar[int]
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    SPENT_FIELD_NUMBER: _ClassVar[int]
    RETURNED_FIELD_NUMBER: _ClassVar[int]
    WINDOW_MS_FIELD_NUMBER: _ClassVar[int]
    kind: str
    id: str
    budget: str
    limit: int
    spent: int
    returned: int
    window_ms: int
    def __init__(self, kind: _Optional[str] = ..., id: _Optional[str] = ..., budget: _Optional[str] = ..., limit: _Optional[int] = ..., spent: _Optional[int] = ..., returned: _Optional[int] = ..., window_ms: _Optional[int] = ...) -> None: ...

class Drawn(_message.Message):
    __slots__ = ("amount", "window_ms", "left_ms")
    AMOUNT_FIELD_NUMBER: _ClassVar[int]
    WINDOW_MS_FIELD_NUMBER: _ClassVar[int]
    LEFT_MS_FIELD_NUMBER: _ClassVar[int]
    amount: int
    window_ms: int
    left_ms: int
    def __init__(self, amount: _Optional[int] = ..., window_ms: _Optional[int] = ..., left_ms: _Optional[int] = ...) -> None: ...

class SpendRequest(_message.Message):
    __slots__ = ("draws",)
    DRAWS_FIELD_NUMBER: _ClassVar[int]
    draws: _containers.RepeatedCompositeFieldContainer[Draw]
    def __init__(self, draws: _Optional[_Iterable[_Union[Draw, _Mapping]]] = ...) -> None: ...

class SpendResponse(_message.Message):
    __slots__ = ("drawn",)
    DRAWN_FIELD_NUMBER: _ClassVar[int]
    drawn: _containers.RepeatedCompositeFieldContainer[Drawn]
    def __init__(self, drawn: _Optional[_Iterable[_Union[Drawn, _Mapping]]] = ...) -> None: ...

class RecordEventsRequest(_message.Message):
    __slots__ = ("node_id", "log", "after", "upto", "events")
    NODE_ID_FIELD_NUMBER: _ClassVar[int]
    LOG_FIELD_NUMBER: _ClassVar[int]
    AFTER_FIELD_NUMBER: _ClassVar[int]
    UPTO_FIELD_NUMBER: _ClassVar[int]
    EVENTS_FIELD_NUMBER: _ClassVar[int]
    node_id: str
    log: str
    after: int
    upto: int
    events: _containers.RepeatedScalarFieldContainer[bytes]
    def __init__(self, node_id: _Optional[str] = ..., log: _Optional[str] = ..., after: _Optional[int] = ..., upto: _Optional[int] = ..., events: _Optional[_Iterable[bytes]] = ...) -> None: ...

class RecordEventsResponse(_message.Message):
    __slots__ = ("taken",)
    TAKEN_FIELD_NUMBER: _ClassVar[int]
    taken: int
    def __init__(self, taken: _Optional[int] = ...) -> None: ...

class EndedSession(_message.Message):
    __slots__ = ("nonce", "until_ms", "at_ms")
    NONCE_FIELD_NUMBER: _ClassVar[int]
    UNTIL_MS_FIELD_NUMBER: _ClassVar[int]
    AT_MS_FIELD_NUMBER: _ClassVar[int]
    nonce: str
    until_ms: int
    at_ms: int
    def __init__(self, nonce: _Optional[str] = ..., until_ms: _Optional[int] = ..., at_ms: _Optional[int] = ...) -> None: ...

class SyncSessionsRequest(_message.Message):
    __slots__ = ("ended", "after_ms")
    ENDED_FIELD_NUMBER: _ClassVar[int]
    AFTER_MS_FIELD_NUMBER: _ClassVar[int]
    ended: _containers.RepeatedCompositeFieldContainer[EndedSession]
    after_ms: int
    def __init__(self, ended: _Optional[_Iterable[_Union[EndedSession, _Mapping]]] = ..., after_ms: _Optional[int] = ...) -> None: ...

class SyncSessionsResponse(_message.Message):
    __slots__ = ("ended",)
    ENDED_FIELD_NUMBER: _ClassVar[int]
    ended: _containers.RepeatedCompositeFieldContainer[EndedSession]
    def __init__(self, ended: _Optional[_Iterable[_Union[EndedSession, _Mapping]]] = ...) -> None: ...
