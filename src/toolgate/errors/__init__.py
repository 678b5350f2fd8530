"""Every error that a caller may see. Codes are stable and documented; messages may change."""

from toolgate.errors.wires import WIRE as WIRE
from toolgate.errors.wires import ToolgateError as ToolgateError
from toolgate.errors.wires import Wire as Wire


class ParseFailed(ToolgateError):
    """The bytes are not valid JSON."""

    code = "parse_error"
    default_hint = "send one object as UTF-8 JSON, without duplicate names, NaN and Infinity"


class InvalidRequest(ToolgateError):
    """Well-formed JSON, but not a request of this endpoint."""

    code = "invalid_request"
    default_hint = "check the request against the reference at `/openapi.json` or the MCP specification"


class InvalidParams(ToolgateError):
    """The method is known and its parameters are wrong."""

    code = "invalid_params"
    default_hint = "check the method's parameters"


class InvalidRecord(ToolgateError):
    """A server, task, profile or key that may not be stored."""

    code = "invalid_record"
    default_hint = "correct the named field and send the record again"


class MethodNotFound(ToolgateError):
    """No such method at this endpoint."""

    code = "method_not_found"
    default_hint = "use the methods of the capabilities that this endpoint declares"


class HeaderMismatch(ToolgateError):
    """An `Mcp-*` header and the body differ, so one of them would be routed wrongly."""

    code = "header_mismatch"
    default_hint = "send the `Mcp-*` headers that match the body, each once"


class UnsupportedVersion(ToolgateError):
    """A protocol revision this gateway does not speak."""

    code = "unsupported_version"
    default_hint = "use one of the versions in `data.supported`"


class Unauthenticated(ToolgateError):
    """No credential, or an invalid one. Never treated as anonymous."""

    code = "unauthenticated"
    default_hint = "send `Authorization: Bearer <key>` with a key of this gateway"


class TooManyAttempts(ToolgateError):
    """Too many invalid credentials from one address (a valid one still passes), or too many changes of a
    caller's integrations."""

    code = "too_many_attempts"
    default_hint = "wait a minute, or send a right credential"
    retryable = True


class IssuerUnavailable(ToolgateError):
    """A token was signed with an unknown key, and its issuer cannot be reached."""

    code = "issuer_unavailable"
    default_hint = "retry in a moment; an operator finds the reason in the log"
    retryable = True


class Forbidden(ToolgateError):
    """The role of the caller does not allow it."""

    code = "forbidden"
    default_hint = "ask an administrator of this gateway for a key with the role this needs"


class ForeignOrigin(ToolgateError):
    """The Host or Origin is not one this gateway answers to (DNS rebinding)."""

    code = "foreign_origin"
    default_hint = "call the gateway by its own address, or add the host to `allowed_hosts`"


class NotFound(ToolgateError):
    """It does not exist, or not for this caller: the response is the same."""

    code = "not_found"
    default_hint = "list what there is first"


class UnknownSession(ToolgateError):
    """A session id that was never issued, has expired, or belongs to another caller."""

    code = "unknown_session"
    default_hint = "send `initialize` again to open a new session"


class UnknownTool(ToolgateError):
    """Not in this caller's scope. Whether it exists elsewhere must not show."""

    code = "unknown_tool"
    default_hint = "list the tools of this URL; `toolgate explain` says why one is missing"


class UnknownPrompt(ToolgateError):
    """Not in this caller's scope. Whether it exists elsewhere must not show."""

    code = "unknown_prompt"
    default_hint = "list the prompts of this URL; `toolgate explain` says why one is missing"


class UnknownResource(ToolgateError):
    """Not in this caller's scope, or not at any server. Which of the two must not show."""

    code = "unknown_resource"
    default_hint = "list the resources of this URL; `toolgate explain` says why one is missing"


class InputStateRefused(ToolgateError):
    """A `requestState` that is forged, has expired, or belongs to another caller or request."""

    code = "input_state_refused"
    default_hint = "send the request again without `requestState` and `inputResponses`"


class MissingCapability(ToolgateError):
    """The server requires a capability that the client did not declare."""

    code = "missing_capability"
    default_hint = "declare the capabilities in `data.requiredCapabilities`, or use another tool"


class InputNotGiven(ToolgateError):
    """A server requested input from the client during a call, and got no valid response."""

    code = "mcp_input_not_given"
    default_hint = "respond to the input requests of the tool, or call it with all it needs"


class PolicyDenied(ToolgateError):
    """The request selects more than its task allows; nothing of it is applied."""

    code = "mcp_policy_denied"
    default_hint = "ask for fewer servers, or have the task's `mcp.allowed_server_ids` extended"
    servers: tuple[str, ...] = ()
    """The servers in question, for metrics. The message names them to the caller."""


class TooManyTools(ToolgateError):
    """The scope is larger than its limit. Never cut silently."""

    code = "too_many_tools"
    default_hint = (
        "narrow it with `?tools=`, `?servers=`, a task or a profile, or search it with `?mode=find`"
    )


class Conflict(ToolgateError):
    """The record changed since it was read."""

    code = "conflict"
    default_hint = "read the record again and repeat the change on its new revision"


class PlanRequired(ToolgateError):
    """A change that requires a plan, and has none."""

    code = "plan_required"
    default_hint = "run `toolgate plan` on the change, then make it with `--require-plan` and the plan's id"


class PlanOutdated(ToolgateError):
    """The effect of the change differs from its plan."""

    code = "plan_outdated"
    default_hint = "plan the change again, look at it, and make it with the new plan's id"


class RevisionNotReached(ToolgateError):
    """A requested revision is not served here yet, and did not arrive in time."""

    code = "revision_not_reached"
    default_hint = "retry in a moment, or ask where the change was made"
    retryable = True


class Compacted(ToolgateError):
    """The change log no longer reaches back that far."""

    code = "compacted"
    default_hint = "list again and watch from the listed revision"


class WatchLagged(ToolgateError):
    """A watcher read too slowly, and was disconnected instead of buffered without bound."""

    code = "watch_lagged"
    default_hint = "list again and watch from the listed revision"
    retryable = True


class NotReady(ToolgateError):
    """The node has no policy from the control plane yet."""

    code = "not_ready"
    default_hint = "retry in a moment; `/readyz` says when calls can be sent here"
    retryable = True


class PolicyStale(ToolgateError):
    """The node has not reached the control plane for longer than it may serve without it."""

    code = "policy_stale"
    default_hint = "retry when the node reaches control again; `/healthz` and its log say why it does not"
    retryable = True


class ControlUnavailable(ToolgateError):
    """The control plane cannot be reached, or sends invalid responses."""

    code = "control_unavailable"
    default_hint = "check the node's `control` setting, and that `toolgate control` runs there"
    retryable = True


class BodyTooLarge(ToolgateError):
    """More bytes than the published limit."""

    code = "too_large"
    default_hint = "send less than the limit in the message"


class HeadTooLarge(ToolgateError):
    """More header bytes than the published limit."""

    code = "head_too_large"
    default_hint = "send fewer or shorter headers"


class UnsupportedMedia(ToolgateError):
    """Not JSON by its own declaration. Also what stops cross-site form posts."""

    code = "unsupported_media"
    default_hint = "send `Content-Type: application/json` and no content encoding"


class NotAcceptable(ToolgateError):
    """The client does not accept the media type of this route."""

    code = "not_acceptable"
    default_hint = "accept `application/json` and `text/event-stream`"


class MethodNotAllowed(ToolgateError):
    """The route exists; this HTTP method does not."""

    code = "method_not_allowed"
    default_hint = "see `/openapi.json` for the methods of this route"


class SessionLimit(ToolgateError):
    """The node has as many sessions as it may."""

    code = "session_limit"
    default_hint = "close sessions with DELETE, or retry after a while"
    retryable = True


class StorageFailed(ToolgateError):
    """The store could not make the write durable, so it was not acknowledged."""

    code = "storage_failed"
    default_hint = "free disk space or repair the data directory, then repeat the change"
    retryable = True


class StorageUnavailable(ToolgateError):
    """The database does not respond. The message says whether a change may have been stored."""

    code = "storage_unavailable"
    default_hint = "retry in a moment; if it lasts, check the database and the network to it"
    retryable = True


class ImportRefused(ToolgateError):
    """The file is not a complete export, or the registry is not empty. Nothing was stored."""

    code = "import_refused"
    default_hint = "import a file that `toolgate export` wrote, unchanged, into an empty registry"


class StartRefused(ToolgateError):
    """A configuration that would be unsafe or useless."""

    code = "start_refused"
    default_hint = "correct the setting named in the message"


class ServerUnavailable(ToolgateError):
    """The server is down, or disconnected during the call."""

    code = "mcp_unavailable"
    default_hint = "see `toolgate servers list` for its state and last error"
    retryable = True


class LoginRequired(ToolgateError):
    """The server requires a login of the caller, which has none."""

    code = "mcp_login_required"
    default_hint = "log in with `toolgate servers login ID` and your own key, then repeat the call"


class CallTimedOut(ToolgateError):
    """No response within the timeout. The call was cancelled at the server."""

    code = "mcp_timeout"
    default_hint = "raise the server's `budgets.tool_timeout_ms`, or ask for less at once"
    retryable = True


class ServerBusy(ToolgateError):
    """Concurrency and queue of the server are both full; nothing was sent."""

    code = "mcp_busy"
    default_hint = "retry in a moment, or raise the server's `budgets.max_concurrency`"
    retryable = True


class NodeBusy(ToolgateError):
    """The node has as many calls in flight and waiting as `max_calls` allows; nothing was sent."""

    code = "node_busy"
    default_hint = "retry in a moment, or ask an operator to raise `max_calls` or to add a node"
    retryable = True


class ServerRefused(ToolgateError):
    """The server responded to the call with an error."""

    code = "mcp_refused"
    default_hint = "the message has the error of the server"


class InvalidArguments(ToolgateError):
    """Arguments that are not an object, or not valid for the tool."""

    code = "mcp_invalid_arguments"
    default_hint = "send an object that fits the tool's `inputSchema`"


class OutputTooLarge(ToolgateError):
    """A result over the limit that cannot be cut into a valid one."""

    code = "mcp_output_too_large"
    default_hint = "ask for less at once, or raise the server's `budgets.max_tool_output_bytes`"


class ApprovalRequired(ToolgateError):
    """A person must approve this call first."""

    code = "mcp_approval_required"
    default_hint = "ask an operator of this gateway to approve the call"


class ApprovalDenied(ToolgateError):
    """An approver denied this call."""

    code = "mcp_approval_denied"
    default_hint = "do not repeat the call unchanged: that would request approval again"


class CallCancelled(ToolgateError):
    """The client cancelled the call; it was cancelled at the server, too."""

    code = "cancelled"
    default_hint = "nothing to do: the call was cancelled on request"


class ToolCallLimit(ToolgateError):
    """The session or the chat has used all its calls."""

    code = "tool_call_limit"
    default_hint = "finish with what is there, or start a new session"


class BudgetExceeded(ToolgateError):
    """A key or a task has exceeded a quota. `data` has the quota, its holder, and when it resets."""

    code = "budget_exceeded"
    default_hint = "try again after `data.retry_after_s` seconds, or ask an operator for a larger budget"
    retryable = True


class InvalidChat(ToolgateError):
    """A chat request that is not valid. `data["param"]` names the parameter."""

    code = "invalid_chat"
    default_hint = "send a valid request of the OpenAI API; see `docs/guides/chat.md`"

    def __init__(self, message: str, *, param: str | None = None, hint: str | None = None) -> None:
        super().__init__(message, hint=hint, data={} if param is None else {"param": param})


class UnknownModel(ToolgateError):
    """No chat upstream serves a model of this name."""

    code = "model_not_found"
    default_hint = "list the models with `GET /v1/models`"


class ModelUnavailable(ToolgateError):
    """The model's server cannot be reached, or disconnected."""

    code = "model_unavailable"
    default_hint = "try again; if it stays so, ask an operator for `toolgate chat-upstreams test`"
    retryable = True


class ModelTimedOut(ToolgateError):
    """The model did not respond in time."""

    code = "model_timeout"
    default_hint = "try again, or ask an operator for a longer `answer_timeout_ms`"
    retryable = True


class ModelBusy(ToolgateError):
    """The model's server has as many requests as it may."""

    code = "model_busy"
    default_hint = "try again in a moment, or ask an operator for a higher `max_concurrency`"
    retryable = True


class ModelRefused(ToolgateError):
    """The model's server responded with an error. `data` has its `status` and body."""

    code = "model_refused"
    default_hint = "the message has the error of the model's server"


class InvalidModule(ToolgateError):
    """Not a WebAssembly module that can run here."""

    code = "invalid_module"
    default_hint = "build it for WASI preview 1, with the header in `sdk/c`"


class NoWorkload(ToolgateError):
    """The task has no workload to run."""

    code = "no_workload"
    default_hint = "give it one: `workload.module` in its file, then `toolgate tasks apply -f FILE`"


class QueueFull(ToolgateError):
    """The queue is full; this invocation was not accepted."""

    code = "queue_full"
    default_hint = "try again in a moment, or add nodes: queued invocations are not lost"
    retryable = True
