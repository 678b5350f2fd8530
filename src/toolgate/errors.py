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
    "parse_error": "send one object as UTF-8 JSON, without duplicate names, NaN and Infinity",
    "invalid_request": "check the request against the reference at `/openapi.json` or the MCP specification",
    "invalid_params": "check the method's parameters",
    "invalid_record": "correct the named field and send the record again",
    "method_not_found": "use the methods of the capabilities that this endpoint declares",
    "header_mismatch": "send the `Mcp-*` headers that match the body, each once",
    "unsupported_version": "use one of the versions in `data.supported`",
    "unauthenticated": "send `Authorization: Bearer <key>` with a key of this gateway",
    "too_many_attempts": "wait a minute, or send a right credential",
    "issuer_unavailable": "retry in a moment; an operator finds the reason in the log",
    "forbidden": "ask an administrator of this gateway for a key with the role this needs",
    "foreign_origin": "call the gateway by its own address, or add the host to `allowed_hosts`",
    "not_found": "list what there is first",
    "unknown_session": "send `initialize` again to open a new session",
    "unknown_tool": "list the tools of this URL; `toolgate explain` says why one is missing",
    "unknown_prompt": "list the prompts of this URL; `toolgate explain` says why one is missing",
    "unknown_resource": "list the resources of this URL; `toolgate explain` says why one is missing",
    "input_state_refused": "send the request again without `requestState` and `inputResponses`",
    "missing_capability": "declare the capabilities in `data.requiredCapabilities`, or use another tool",
    "mcp_input_not_given": "respond to the input requests of the tool, or call it with all it needs",
    "mcp_policy_denied": "ask for fewer servers, or have the task's `mcp.allowed_server_ids` extended",
    "too_many_tools": (
        "narrow it with `?tools=`, `?servers=`, a task or a profile, or search it with `?mode=find`"
    ),
    "conflict": "read the record again and repeat the change on its new revision",
    "plan_required": (
        "run `toolgate plan` on the change, then make it with `--require-plan` and the plan's id"
    ),
    "plan_outdated": "plan the change again, look at it, and make it with the new plan's id",
    "revision_not_reached": "retry in a moment, or ask where the change was made",
    "compacted": "list again and watch from the listed revision",
    "watch_lagged": "list again and watch from the listed revision",
    "not_ready": "retry in a moment; `/readyz` says when calls can be sent here",
    "policy_stale": "retry when the node reaches control again; `/healthz` and its log say why it does not",
    "control_unavailable": "check the node's `control` setting, and that `toolgate control` runs there",
    "too_large": "send less than the limit in the message",
    "head_too_large": "send fewer or shorter headers",
    "unsupported_media": "send `Content-Type: application/json` and no content encoding",
    "not_acceptable": "accept `application/json` and `text/event-stream`",
    "method_not_allowed": "see `/openapi.json` for the methods of this route",
    "session_limit": "close sessions with DELETE, or retry after a while",
    "storage_failed": "free disk space or repair the data directory, then repeat the change",
    "storage_unavailable": "retry in a moment; if it lasts, check the database and the network to it",
    "import_refused": "import a file that `toolgate export` wrote, unchanged, into an empty registry",
    "start_refused": "correct the setting named in the message",
    "mcp_unavailable": "see `toolgate servers list` for its state and last error",
    "mcp_login_required": "log in with `toolgate servers login ID` and your own key, then repeat the call",
    "mcp_timeout": "raise the server's `budgets.tool_timeout_ms`, or ask for less at once",
    "mcp_busy": "retry in a moment, or raise the server's `budgets.max_concurrency`",
    "node_busy": "retry in a moment, or ask an operator to raise `max_calls` or to add a node",
    "mcp_refused": "the message has the error of the server",
    "mcp_invalid_arguments": "send an object that fits the tool's `inputSchema`",
    "mcp_output_too_large": "ask for less at once, or raise the server's `budgets.max_tool_output_bytes`",
    "mcp_approval_required": "ask an operator of this gateway to approve the call",
    "mcp_approval_denied": "do not repeat the call unchanged: that would request approval again",
    "cancelled": "nothing to do: the call was cancelled on request",
    "tool_call_limit": "finish with what is there, or start a new session",
    "budget_exceeded": "try again after `data.retry_after_s` seconds, or ask an operator for a larger budget",
    "invalid_chat": "send a valid request of the OpenAI API; see `docs/guides/chat.md`",
    "model_not_found": "list the models with `GET /v1/models`",
    "model_unavailable": "try again; if it stays so, ask an operator for `toolgate chat-upstreams test`",
    "model_timeout": "try again, or ask an operator for a longer `answer_timeout_ms`",
    "model_busy": "try again in a moment, or ask an operator for a higher `max_concurrency`",
    "model_refused": "the message has the error of the model's server",
    "invalid_module": "build it for WASI preview 1, with the header in `sdk/c`",
    "no_workload": "give it one: `workload.module` in its file, then `toolgate tasks apply -f FILE`",
    "queue_full": "try again in a moment, or add nodes: queued invocations are not lost",
}
"""What to do next, if the one who raises an error knows nothing better."""


class ToolgateError(Exception):
    """A failure a caller may see. The code is stable; the message is for people."""

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
        """When to retry, if that is known."""
        return self.data.get("retry_after_s")

    @property
    def detail(self) -> Mapping[str, Any]:
        """All its details, for wires with room for them."""
        detail = {"code": self.code, "message": str(self), "hint": self.hint}
        return {**detail, "data": self.data} if self.data else detail


class ParseFailed(ToolgateError, code="parse_error"):
    """The bytes are not valid JSON."""


class InvalidRequest(ToolgateError, code="invalid_request"):
    """Well-formed JSON, but not a request of this endpoint."""


class InvalidParams(ToolgateError, code="invalid_params"):
    """The method is known and its parameters are wrong."""


class InvalidRecord(ToolgateError, code="invalid_record"):
    """A server, task, profile or key that may not be stored."""


class MethodNotFound(ToolgateError, code="method_not_found"):
    """No such method at this endpoint."""


class HeaderMismatch(ToolgateError, code="header_mismatch"):
    """An `Mcp-*` header and the body differ, so one of them would be routed wrongly."""


class UnsupportedVersion(ToolgateError, code="unsupported_version"):
    """A protocol revision this gateway does not speak."""


class Unauthenticated(ToolgateError, code="unauthenticated"):
    """No credential, or an invalid one. Never treated as anonymous."""


class TooManyAttempts(ToolgateError, code="too_many_attempts", retryable=True):
    """Too many invalid credentials from one address (a valid one still passes), or too many changes of a
    caller's integrations."""


class IssuerUnavailable(ToolgateError, code="issuer_unavailable", retryable=True):
    """A token was signed with an unknown key, and its issuer cannot be reached."""


class Forbidden(ToolgateError, code="forbidden"):
    """The role of the caller does not allow it."""


class ForeignOrigin(ToolgateError, code="foreign_origin"):
    """The Host or Origin is not one this gateway answers to (DNS rebinding)."""


class NotFound(ToolgateError, code="not_found"):
    """It does not exist, or not for this caller: the response is the same."""


class UnknownSession(ToolgateError, code="unknown_session"):
    """A session id that was never issued, has expired, or belongs to another caller."""


class UnknownTool(ToolgateError, code="unknown_tool"):
    """Not in this caller's scope. Whether it exists elsewhere must not show."""


class UnknownPrompt(ToolgateError, code="unknown_prompt"):
    """Not in this caller's scope. Whether it exists elsewhere must not show."""


class UnknownResource(ToolgateError, code="unknown_resource"):
    """Not in this caller's scope, or not at any server. Which of the two must not show."""


class InputStateRefused(ToolgateError, code="input_state_refused"):
    """A `requestState` that is forged, has expired, or belongs to another caller or request."""


class MissingCapability(ToolgateError, code="missing_capability"):
    """The server requires a capability that the client did not declare."""


class InputNotGiven(ToolgateError, code="mcp_input_not_given"):
    """A server requested input from the client during a call, and got no valid response."""


class PolicyDenied(ToolgateError, code="mcp_policy_denied"):
    """The request selects more than its task allows; nothing of it is applied."""

    servers: tuple[str, ...] = ()
    """The servers in question, for metrics. The message names them to the caller."""


class TooManyTools(ToolgateError, code="too_many_tools"):
    """The scope is larger than its limit. Never cut silently."""


class Conflict(ToolgateError, code="conflict"):
    """The record changed since it was read."""


class PlanRequired(ToolgateError, code="plan_required"):
    """A change that requires a plan, and has none."""


class PlanOutdated(ToolgateError, code="plan_outdated"):
    """The effect of the change differs from its plan."""


class RevisionNotReached(ToolgateError, code="revision_not_reached", retryable=True):
    """A requested revision is not served here yet, and did not arrive in time."""


class Compacted(ToolgateError, code="compacted"):
    """The change log no longer reaches back that far."""


class WatchLagged(ToolgateError, code="watch_lagged", retryable=True):
    """A watcher read too slowly, and was disconnected instead of buffered without bound."""


class NotReady(ToolgateError, code="not_ready", retryable=True):
    """The node has no policy from the control plane yet."""


class PolicyStale(ToolgateError, code="policy_stale", retryable=True):
    """The node has not reached the control plane for longer than it may serve without it."""


class ControlUnavailable(ToolgateError, code="control_unavailable", retryable=True):
    """The control plane cannot be reached, or sends invalid responses."""


class BodyTooLarge(ToolgateError, code="too_large"):
    """More bytes than the published limit."""


class HeadTooLarge(ToolgateError, code="head_too_large"):
    """More header bytes than the published limit."""


class UnsupportedMedia(ToolgateError, code="unsupported_media"):
    """Not JSON by its own declaration. Also what stops cross-site form posts."""


class NotAcceptable(ToolgateError, code="not_acceptable"):
    """The client does not accept the media type of this route."""


class MethodNotAllowed(ToolgateError, code="method_not_allowed"):
    """The route exists; this HTTP method does not."""


class SessionLimit(ToolgateError, code="session_limit", retryable=True):
    """The node has as many sessions as it may."""


class StorageFailed(ToolgateError, code="storage_failed", retryable=True):
    """The store could not make the write durable, so it was not acknowledged."""


class StorageUnavailable(ToolgateError, code="storage_unavailable", retryable=True):
    """The database does not respond. The message says whether a change may have been stored."""


class ImportRefused(ToolgateError, code="import_refused"):
    """The file is not a complete export, or the registry is not empty. Nothing was stored."""


class StartRefused(ToolgateError, code="start_refused"):
    """A configuration that would be unsafe or useless."""


class ServerUnavailable(ToolgateError, code="mcp_unavailable", retryable=True):
    """The server is down, or disconnected during the call."""


class LoginRequired(ToolgateError, code="mcp_login_required"):
    """The server requires a login of the caller, which has none."""


class CallTimedOut(ToolgateError, code="mcp_timeout", retryable=True):
    """No response within the timeout. The call was cancelled at the server."""


class ServerBusy(ToolgateError, code="mcp_busy", retryable=True):
    """Concurrency and queue of the server are both full; nothing was sent."""


class NodeBusy(ToolgateError, code="node_busy", retryable=True):
    """The node has as many calls in flight and waiting as `max_calls` allows; nothing was sent."""


class ServerRefused(ToolgateError, code="mcp_refused"):
    """The server responded to the call with an error."""


class InvalidArguments(ToolgateError, code="mcp_invalid_arguments"):
    """Arguments that are not an object, or not valid for the tool."""


class OutputTooLarge(ToolgateError, code="mcp_output_too_large"):
    """A result over the limit that cannot be cut into a valid one."""


class ApprovalRequired(ToolgateError, code="mcp_approval_required"):
    """A person must approve this call first."""


class ApprovalDenied(ToolgateError, code="mcp_approval_denied"):
    """An approver denied this call."""


class CallCancelled(ToolgateError, code="cancelled"):
    """The client cancelled the call; it was cancelled at the server, too."""


class ToolCallLimit(ToolgateError, code="tool_call_limit"):
    """The session or the chat has used all its calls."""


class BudgetExceeded(ToolgateError, code="budget_exceeded", retryable=True):
    """A key or a task has exceeded a quota. `data` has the quota, its holder, and when it resets."""


class InvalidChat(ToolgateError, code="invalid_chat"):
    """A chat request that is not valid. `data["param"]` names the parameter."""

    def __init__(self, message: str, *, param: str | None = None, hint: str | None = None) -> None:
        super().__init__(message, hint=hint, data={} if param is None else {"param": param})


class UnknownModel(ToolgateError, code="model_not_found"):
    """No chat upstream serves a model of this name."""


class ModelUnavailable(ToolgateError, code="model_unavailable", retryable=True):
    """The model's server cannot be reached, or disconnected."""


class ModelTimedOut(ToolgateError, code="model_timeout", retryable=True):
    """The model did not respond in time."""


class ModelBusy(ToolgateError, code="model_busy", retryable=True):
    """The model's server has as many requests as it may."""


class ModelRefused(ToolgateError, code="model_refused"):
    """The model's server responded with an error. `data` has its `status` and body."""


class InvalidModule(ToolgateError, code="invalid_module"):
    """Not a WebAssembly module that can run here."""


class NoWorkload(ToolgateError, code="no_workload"):
    """The task has no workload to run."""


class QueueFull(ToolgateError, code="queue_full", retryable=True):
    """The queue is full; this invocation was not accepted."""
