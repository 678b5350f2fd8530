"""Every error that a caller may see, and its form on each wire. Codes are stable; messages may change.

One table has the HTTP, JSON-RPC, gRPC and errno form, so no surface invents another. Toolgate's JSON-RPC
codes are outside -32768..-32000, which belong to JSON-RPC and MCP.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Final


@dataclass(frozen=True, slots=True)
class Wire:
    """The form of one error code on each wire."""

    http: int
    jsonrpc: int
    grpc: str
    errno: str


WIRE: Final[Mapping[str, Wire]] = {
    "internal": Wire(http=500, jsonrpc=-32603, grpc="INTERNAL", errno="EIO"),
    "parse_error": Wire(http=400, jsonrpc=-32700, grpc="INVALID_ARGUMENT", errno="EINVAL"),
    "invalid_request": Wire(http=400, jsonrpc=-32600, grpc="INVALID_ARGUMENT", errno="EINVAL"),
    "invalid_params": Wire(http=400, jsonrpc=-32602, grpc="INVALID_ARGUMENT", errno="EINVAL"),
    "invalid_record": Wire(http=400, jsonrpc=-32602, grpc="INVALID_ARGUMENT", errno="EINVAL"),
    "method_not_found": Wire(http=404, jsonrpc=-32601, grpc="UNIMPLEMENTED", errno="ENOSYS"),
    "header_mismatch": Wire(http=400, jsonrpc=-32020, grpc="INVALID_ARGUMENT", errno="EINVAL"),
    "unsupported_version": Wire(http=400, jsonrpc=-32022, grpc="FAILED_PRECONDITION", errno="EINVAL"),
    "unauthenticated": Wire(http=401, jsonrpc=-31001, grpc="UNAUTHENTICATED", errno="EACCES"),
    "too_many_attempts": Wire(http=429, jsonrpc=-31015, grpc="RESOURCE_EXHAUSTED", errno="EAGAIN"),
    "issuer_unavailable": Wire(http=503, jsonrpc=-31016, grpc="UNAVAILABLE", errno="EAGAIN"),
    "forbidden": Wire(http=403, jsonrpc=-31002, grpc="PERMISSION_DENIED", errno="EACCES"),
    "foreign_origin": Wire(http=403, jsonrpc=-31003, grpc="PERMISSION_DENIED", errno="EACCES"),
    "not_found": Wire(http=404, jsonrpc=-31004, grpc="NOT_FOUND", errno="ENOENT"),
    "unknown_session": Wire(http=404, jsonrpc=-31005, grpc="NOT_FOUND", errno="EBADF"),
    "unknown_prompt": Wire(http=404, jsonrpc=-32602, grpc="NOT_FOUND", errno="ENOENT"),
    "unknown_resource": Wire(http=404, jsonrpc=-32602, grpc="NOT_FOUND", errno="ENOENT"),
    "input_state_refused": Wire(http=400, jsonrpc=-32602, grpc="INVALID_ARGUMENT", errno="EINVAL"),
    "missing_capability": Wire(http=400, jsonrpc=-32021, grpc="FAILED_PRECONDITION", errno="ENOTSUP"),
    "unknown_tool": Wire(http=404, jsonrpc=-32602, grpc="NOT_FOUND", errno="ENOENT"),
    "mcp_policy_denied": Wire(http=403, jsonrpc=-31006, grpc="PERMISSION_DENIED", errno="EACCES"),
    "too_many_tools": Wire(http=422, jsonrpc=-31007, grpc="RESOURCE_EXHAUSTED", errno="E2BIG"),
    "conflict": Wire(http=409, jsonrpc=-31008, grpc="ABORTED", errno="EAGAIN"),
    "plan_required": Wire(http=428, jsonrpc=-31013, grpc="FAILED_PRECONDITION", errno="EACCES"),
    "plan_outdated": Wire(http=409, jsonrpc=-31014, grpc="FAILED_PRECONDITION", errno="EAGAIN"),
    "revision_not_reached": Wire(http=412, jsonrpc=-31017, grpc="FAILED_PRECONDITION", errno="EAGAIN"),
    "compacted": Wire(http=410, jsonrpc=-31009, grpc="FAILED_PRECONDITION", errno="EINVAL"),
    "watch_lagged": Wire(http=503, jsonrpc=-31010, grpc="ABORTED", errno="EAGAIN"),
    "too_large": Wire(http=413, jsonrpc=-32600, grpc="RESOURCE_EXHAUSTED", errno="EINVAL"),
    "head_too_large": Wire(http=431, jsonrpc=-32600, grpc="RESOURCE_EXHAUSTED", errno="EINVAL"),
    "unsupported_media": Wire(http=415, jsonrpc=-32600, grpc="INVALID_ARGUMENT", errno="EINVAL"),
    "not_acceptable": Wire(http=406, jsonrpc=-32600, grpc="INVALID_ARGUMENT", errno="EINVAL"),
    "method_not_allowed": Wire(http=405, jsonrpc=-32600, grpc="UNIMPLEMENTED", errno="ENOSYS"),
    "session_limit": Wire(http=503, jsonrpc=-31011, grpc="RESOURCE_EXHAUSTED", errno="EAGAIN"),
    "not_ready": Wire(http=503, jsonrpc=-31030, grpc="UNAVAILABLE", errno="EAGAIN"),
    "policy_stale": Wire(http=503, jsonrpc=-31031, grpc="UNAVAILABLE", errno="EAGAIN"),
    "control_unavailable": Wire(http=503, jsonrpc=-31032, grpc="UNAVAILABLE", errno="EAGAIN"),
    "storage_failed": Wire(http=507, jsonrpc=-31012, grpc="UNAVAILABLE", errno="EIO"),
    "storage_unavailable": Wire(http=503, jsonrpc=-31018, grpc="UNAVAILABLE", errno="EAGAIN"),
    "import_refused": Wire(http=400, jsonrpc=-32602, grpc="FAILED_PRECONDITION", errno="EINVAL"),
    "start_refused": Wire(http=500, jsonrpc=-32603, grpc="FAILED_PRECONDITION", errno="EIO"),
    "invalid_chat": Wire(http=400, jsonrpc=-32602, grpc="INVALID_ARGUMENT", errno="EINVAL"),
    "model_not_found": Wire(http=404, jsonrpc=-32602, grpc="NOT_FOUND", errno="ENOENT"),
    "model_unavailable": Wire(http=502, jsonrpc=-31033, grpc="UNAVAILABLE", errno="EIO"),
    "model_timeout": Wire(http=504, jsonrpc=-31034, grpc="DEADLINE_EXCEEDED", errno="ETIMEDOUT"),
    "model_busy": Wire(http=429, jsonrpc=-31035, grpc="RESOURCE_EXHAUSTED", errno="EAGAIN"),
    "model_refused": Wire(http=502, jsonrpc=-31036, grpc="FAILED_PRECONDITION", errno="EIO"),
    "invalid_module": Wire(http=400, jsonrpc=-32602, grpc="INVALID_ARGUMENT", errno="EINVAL"),
    "no_workload": Wire(http=409, jsonrpc=-31038, grpc="FAILED_PRECONDITION", errno="EINVAL"),
    "queue_full": Wire(http=429, jsonrpc=-31037, grpc="RESOURCE_EXHAUSTED", errno="EAGAIN"),
    "mcp_unavailable": Wire(http=502, jsonrpc=-31020, grpc="UNAVAILABLE", errno="EIO"),
    "mcp_login_required": Wire(http=403, jsonrpc=-31028, grpc="FAILED_PRECONDITION", errno="EACCES"),
    "mcp_refused": Wire(http=502, jsonrpc=-31029, grpc="FAILED_PRECONDITION", errno="EIO"),
    "mcp_timeout": Wire(http=504, jsonrpc=-31021, grpc="DEADLINE_EXCEEDED", errno="ETIMEDOUT"),
    "mcp_busy": Wire(http=503, jsonrpc=-31022, grpc="RESOURCE_EXHAUSTED", errno="EAGAIN"),
    "node_busy": Wire(http=503, jsonrpc=-31041, grpc="RESOURCE_EXHAUSTED", errno="EAGAIN"),
    "mcp_invalid_arguments": Wire(http=400, jsonrpc=-32602, grpc="INVALID_ARGUMENT", errno="EINVAL"),
    "mcp_output_too_large": Wire(http=502, jsonrpc=-31023, grpc="RESOURCE_EXHAUSTED", errno="EIO"),
    "mcp_approval_required": Wire(http=403, jsonrpc=-31024, grpc="FAILED_PRECONDITION", errno="EACCES"),
    "mcp_approval_denied": Wire(http=403, jsonrpc=-31039, grpc="PERMISSION_DENIED", errno="EACCES"),
    "mcp_input_not_given": Wire(http=502, jsonrpc=-31027, grpc="FAILED_PRECONDITION", errno="EIO"),
    "cancelled": Wire(http=499, jsonrpc=-31026, grpc="CANCELLED", errno="EIO"),
    "tool_call_limit": Wire(http=429, jsonrpc=-31025, grpc="RESOURCE_EXHAUSTED", errno="EAGAIN"),
    "budget_exceeded": Wire(http=429, jsonrpc=-31040, grpc="RESOURCE_EXHAUSTED", errno="EAGAIN"),
}
HINTS: Final[Mapping[str, str]] = {
    "internal": "this is a bug in Toolgate: report it with the request id",
    "parse_error": "send one JSON object in UTF-8, without duplicate names, NaN or Infinity",
    "invalid_request": "compare the request with `/openapi.json` or the MCP specification",
    "invalid_params": "compare the parameters with `/openapi.json` or the MCP specification",
    "invalid_record": "correct the field named in the message and send the record again",
    "method_not_found": "call only methods of the capabilities that this endpoint declares",
    "header_mismatch": "send each `Mcp-*` header once, with the value that the body has",
    "unsupported_version": "use one of the versions in `data.supported`",
    "unauthenticated": "send `Authorization: Bearer <key>` with a key of this gateway",
    "too_many_attempts": "wait a minute, or send a valid credential",
    "issuer_unavailable": "retry in a moment; the gateway's log shows why it cannot reach the issuer",
    "forbidden": "ask an admin of this gateway for a key with the required role",
    "foreign_origin": "use the gateway's own address, or add the host to `allowed_hosts`",
    "not_found": "check the name, or list what this key can access",
    "unknown_session": "send `initialize` to start a new session",
    "unknown_tool": "list the tools of this URL; `toolgate explain` shows why a tool is missing",
    "unknown_prompt": "list the prompts of this URL; `toolgate explain` shows why a prompt is missing",
    "unknown_resource": "list the resources of this URL; `toolgate explain` shows why a resource is missing",
    "input_state_refused": "send the request again without `requestState` and `inputResponses`",
    "missing_capability": "declare the capabilities in `data.requiredCapabilities`, or use another tool",
    "mcp_input_not_given": "respond to the server's input requests, or send everything it needs as arguments",
    "mcp_policy_denied": "request fewer servers, or add them to the task's `mcp.allowed_server_ids`",
    "too_many_tools": (
        "narrow the scope with `?tools=`, `?servers=`, a task or a profile, or search it with `?mode=find`"
    ),
    "conflict": "read the record again and repeat the change on its new revision",
    "plan_required": "run `toolgate plan` for the change, then apply it with `--require-plan` and its id",
    "plan_outdated": "plan the change again, review it, and apply it with the new plan's id",
    "revision_not_reached": "retry in a moment, or send the request to the gateway that made the change",
    "compacted": "list the records again, and watch from the revision of that list",
    "watch_lagged": "list the records again, and watch from the revision of that list",
    "not_ready": "retry in a moment; `/readyz` shows when this node accepts calls",
    "policy_stale": "retry once the node reaches the control plane; `/healthz` and its log show the error",
    "control_unavailable": "check the node's `control` setting, and that `toolgate control` runs there",
    "too_large": "send less than the limit in the message",
    "head_too_large": "send fewer or shorter headers",
    "unsupported_media": "send `Content-Type: application/json` and no content encoding",
    "not_acceptable": "send `Accept: application/json, text/event-stream`",
    "method_not_allowed": "see `/openapi.json` for the methods of this route",
    "session_limit": "close sessions, streams or uploads that you no longer use, or retry later",
    "storage_failed": "free disk space or repair the data directory, then repeat the change",
    "storage_unavailable": "retry in a moment; if it fails again, check the database and the network to it",
    "import_refused": "restore an unchanged file from `toolgate backup` into an empty registry",
    "start_refused": "correct the setting named in the message",
    "mcp_unavailable": "see `toolgate servers list` for the server's state and last error",
    "mcp_login_required": "run `toolgate servers login ID` with your own key, then repeat the call",
    "mcp_timeout": "request less at once, or raise the server's `budgets.tool_timeout_ms`",
    "mcp_busy": "retry in a moment, or raise the server's `budgets.max_concurrency`",
    "node_busy": "retry in a moment, or ask an operator to raise `max_calls` or to add a node",
    "mcp_refused": "correct the call as the server's error in the message requires",
    "mcp_invalid_arguments": "send arguments that match the tool's `inputSchema`",
    "mcp_output_too_large": "request less at once, or raise the server's `budgets.max_tool_output_bytes`",
    "mcp_approval_required": "ask an operator of this gateway to approve the call, then repeat it unchanged",
    "mcp_approval_denied": "do not repeat the call unchanged: that would request approval again",
    "cancelled": "nothing to do: the client cancelled the call",
    "tool_call_limit": "finish with the results so far, or start a new session",
    "budget_exceeded": "retry after `data.retry_after_s` seconds, or ask an operator for a larger quota",
    "invalid_chat": "send a valid OpenAI API request; see `docs/how-to/chat.md`",
    "model_not_found": "list the models with `GET /v1/models`",
    "model_unavailable": "retry; if it fails again, ask an operator to run `toolgate chat-upstreams test`",
    "model_timeout": "retry, or ask an operator to raise the upstream's `answer_timeout_ms`",
    "model_busy": "retry in a moment, or ask an operator to raise the upstream's `max_concurrency`",
    "model_refused": "correct the request as the model server's error in the message requires",
    "invalid_module": "build the module for WASI preview 1, with the header in `sdk/c`",
    "no_workload": "set `workload.module` in the task's file, then run `toolgate tasks apply -f FILE`",
    "queue_full": "retry in a moment, or add nodes; queued invocations are not lost",
}
"""What to do next, if the error is raised without a hint."""


class ToolgateError(Exception):
    """A failure that a caller may see. The code is stable; the message is for people."""

    code: ClassVar[str] = "internal"
    default_hint: ClassVar[str] = HINTS["internal"]
    retryable: ClassVar[bool] = False

    def __init_subclass__(cls, *, code: str, retryable: bool = False) -> None:
        cls.code, cls.default_hint, cls.retryable = code, HINTS[code], retryable

    def __init__(
        self, message: str, *, hint: str | None = None, data: Mapping[str, Any] | None = None
    ) -> None:
        super().__init__(message)
        self.hint = self.default_hint if hint is None else hint
        self.data: Mapping[str, Any] = data or {}

    @property
    def wire(self) -> Wire:
        return WIRE[self.code]

    @property
    def retry_after_s(self) -> int | None:
        """Seconds until a retry can succeed, if known."""
        return self.data.get("retry_after_s")

    @property
    def detail(self) -> Mapping[str, Any]:
        """The error as an object, for wires with room for it."""
        detail = {"code": self.code, "message": str(self), "hint": self.hint}
        return {**detail, "data": self.data} if self.data else detail


class ParseFailed(ToolgateError, code="parse_error"):
    """The bytes are not valid JSON."""


class InvalidRequest(ToolgateError, code="invalid_request"):
    """The JSON is valid, but not a request to this endpoint."""


class InvalidParams(ToolgateError, code="invalid_params"):
    """The method exists, but its parameters are invalid."""


class InvalidRecord(ToolgateError, code="invalid_record"):
    """The registry cannot store this record: a field is invalid."""


class MethodNotFound(ToolgateError, code="method_not_found"):
    """This endpoint has no such method."""


class HeaderMismatch(ToolgateError, code="header_mismatch"):
    """An `Mcp-*` header differs from the body, so a proxy could route the request wrongly."""


class UnsupportedVersion(ToolgateError, code="unsupported_version"):
    """The gateway does not support this protocol revision."""


class Unauthenticated(ToolgateError, code="unauthenticated"):
    """The request has no credential, or an invalid one. It is never treated as anonymous."""


class TooManyAttempts(ToolgateError, code="too_many_attempts", retryable=True):
    """One address sent too many invalid credentials (valid ones still pass), or one caller changed its
    integrations too often."""


class IssuerUnavailable(ToolgateError, code="issuer_unavailable", retryable=True):
    """A token was signed with an unknown key, and the gateway cannot reach its issuer."""


class Forbidden(ToolgateError, code="forbidden"):
    """The caller's role does not allow this request."""


class ForeignOrigin(ToolgateError, code="foreign_origin"):
    """The Host or Origin header names a site that may not call this gateway (DNS rebinding)."""


class NotFound(ToolgateError, code="not_found"):
    """The named thing does not exist, or this caller may not see it. The response is the same."""


class UnknownSession(ToolgateError, code="unknown_session"):
    """The session id was never issued, has expired, or belongs to another caller."""


class UnknownTool(ToolgateError, code="unknown_tool"):
    """The tool is not in this caller's scope. The error never reveals whether it exists elsewhere."""


class UnknownPrompt(ToolgateError, code="unknown_prompt"):
    """The prompt is not in this caller's scope. The error never reveals whether it exists elsewhere."""


class UnknownResource(ToolgateError, code="unknown_resource"):
    """The resource is not in this caller's scope. The error never reveals whether it exists elsewhere."""


class InputStateRefused(ToolgateError, code="input_state_refused"):
    """The `requestState` is forged, has expired, or belongs to another caller or request."""


class MissingCapability(ToolgateError, code="missing_capability"):
    """The server requires a capability that the client did not declare."""


class InputNotGiven(ToolgateError, code="mcp_input_not_given"):
    """A server requested input from the client during a call, and got no valid response."""


class PolicyDenied(ToolgateError, code="mcp_policy_denied"):
    """The request selects more than its task allows. The gateway applies none of it."""

    servers: tuple[str, ...] = ()
    """The servers that are not allowed, for metrics. The message names them to the caller."""


class TooManyTools(ToolgateError, code="too_many_tools"):
    """The scope is larger than its limit. The gateway never cuts it silently."""


class Conflict(ToolgateError, code="conflict"):
    """The record changed since it was read."""


class PlanRequired(ToolgateError, code="plan_required"):
    """The gateway requires a plan for this change, and the request names none."""


class PlanOutdated(ToolgateError, code="plan_outdated"):
    """The change no longer has the effect that its plan showed."""


class RevisionNotReached(ToolgateError, code="revision_not_reached", retryable=True):
    """This process does not serve the requested revision so far, and it did not arrive in time."""


class Compacted(ToolgateError, code="compacted"):
    """The change log no longer has the requested revision."""


class WatchLagged(ToolgateError, code="watch_lagged", retryable=True):
    """The watcher read too slowly, so the gateway disconnected it."""


class NotReady(ToolgateError, code="not_ready", retryable=True):
    """The node has not received its policy from the control plane."""


class PolicyStale(ToolgateError, code="policy_stale", retryable=True):
    """The node lost the control plane for longer than `max_policy_staleness_s` allows."""


class ControlUnavailable(ToolgateError, code="control_unavailable", retryable=True):
    """The node cannot reach the control plane, or receives invalid responses from it."""


class BodyTooLarge(ToolgateError, code="too_large"):
    """The body is larger than the limit in the message."""


class HeadTooLarge(ToolgateError, code="head_too_large"):
    """The request line and headers are larger than the limit in the message."""


class UnsupportedMedia(ToolgateError, code="unsupported_media"):
    """The request does not declare its body as JSON. This check also stops cross-site form posts."""


class NotAcceptable(ToolgateError, code="not_acceptable"):
    """The client does not accept the media type of this route."""


class MethodNotAllowed(ToolgateError, code="method_not_allowed"):
    """The route exists; this HTTP method does not."""


class SessionLimit(ToolgateError, code="session_limit", retryable=True):
    """The gateway has reached a limit of open sessions, connections, streams or uploads."""


class StorageFailed(ToolgateError, code="storage_failed", retryable=True):
    """The store could not make the write durable, so the change is not acknowledged."""


class StorageUnavailable(ToolgateError, code="storage_unavailable", retryable=True):
    """The database does not respond. The message says whether a change may have been stored."""


class ImportRefused(ToolgateError, code="import_refused"):
    """The file is not a complete backup, or the registry is not empty. The restore stored nothing."""


class StartRefused(ToolgateError, code="start_refused"):
    """The configuration is invalid, or would be unsafe."""


class ServerUnavailable(ToolgateError, code="mcp_unavailable", retryable=True):
    """The server is down, or disconnected during the call."""


class LoginRequired(ToolgateError, code="mcp_login_required"):
    """The server requires the caller to log in, and the caller has not."""


class CallTimedOut(ToolgateError, code="mcp_timeout", retryable=True):
    """The server did not respond within the timeout. The gateway cancelled the call there."""


class ServerBusy(ToolgateError, code="mcp_busy", retryable=True):
    """The server has reached its concurrency limit, and its queue is full. The call was not sent."""


class NodeBusy(ToolgateError, code="node_busy", retryable=True):
    """The node has reached `max_calls`, and its queue is full. The call was not sent."""


class ServerRefused(ToolgateError, code="mcp_refused"):
    """The server responded to the call with an error."""


class InvalidArguments(ToolgateError, code="mcp_invalid_arguments"):
    """The arguments are not an object, or not valid for the tool."""


class OutputTooLarge(ToolgateError, code="mcp_output_too_large"):
    """The result is over the limit, and cannot be cut to a valid one."""


class ApprovalRequired(ToolgateError, code="mcp_approval_required"):
    """A person must approve the call first."""


class ApprovalDenied(ToolgateError, code="mcp_approval_denied"):
    """An approver denied the call."""


class CallCancelled(ToolgateError, code="cancelled"):
    """The client cancelled the call, and the gateway cancelled it at the server."""


class ToolCallLimit(ToolgateError, code="tool_call_limit"):
    """The session or chat has used all its tool calls."""


class BudgetExceeded(ToolgateError, code="budget_exceeded", retryable=True):
    """A key or a task has exceeded a quota. `data` has the quota, its holder, and when it resets."""


class InvalidChat(ToolgateError, code="invalid_chat"):
    """The chat request is invalid. `data.param` names the parameter."""

    def __init__(self, message: str, *, param: str | None = None, hint: str | None = None) -> None:
        super().__init__(message, hint=hint, data={} if param is None else {"param": param})


class UnknownModel(ToolgateError, code="model_not_found"):
    """No chat upstream serves a model of this name."""


class ModelUnavailable(ToolgateError, code="model_unavailable", retryable=True):
    """The gateway cannot reach the model's server, or lost the connection."""


class ModelTimedOut(ToolgateError, code="model_timeout", retryable=True):
    """The model did not respond in time."""


class ModelBusy(ToolgateError, code="model_busy", retryable=True):
    """The model's server has reached its limit of concurrent requests."""


class ModelRefused(ToolgateError, code="model_refused"):
    """The model's server responded with an error. `data` has its status and body."""


class InvalidModule(ToolgateError, code="invalid_module"):
    """The file is not a WebAssembly module that Toolgate can run."""


class NoWorkload(ToolgateError, code="no_workload"):
    """The task has no workload to run."""


class QueueFull(ToolgateError, code="queue_full", retryable=True):
    """The queue is full, so the invocation was not accepted."""
