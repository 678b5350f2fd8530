"""The base of all errors, and the wire form of each error code.

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


class ToolgateError(Exception):
    """A failure a caller may see. The code is stable; the message is for people."""

    code: ClassVar[str] = "internal"
    default_hint: ClassVar[str] = "this is a bug in Toolgate: report it with the request id"
    retryable: ClassVar[bool] = False

    def __init_subclass__(cls, *, code: str, retryable: bool = False) -> None:
        cls.code, cls.retryable = code, retryable

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
