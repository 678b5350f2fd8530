"""Every error that a caller may see. Codes are stable and documented; messages may change."""

from toolgate.errors.wires import WIRE as WIRE
from toolgate.errors.wires import ToolgateError as ToolgateError
from toolgate.errors.wires import Wire as Wire


class ParseFailed(ToolgateError, code="parse_error"):
    """The bytes are not valid JSON."""

    default_hint = "send one object as UTF-8 JSON, without duplicate names, NaN and Infinity"


class InvalidRequest(ToolgateError, code="invalid_request"):
    """Well-formed JSON, but not a request of this endpoint."""

    default_hint = "check the request against the reference at `/openapi.json` or the MCP specification"


class InvalidParams(ToolgateError, code="invalid_params"):
    """The method is known and its parameters are wrong."""

    default_hint = "check the method's parameters"


class InvalidRecord(ToolgateError, code="invalid_record"):
    """A server, task, profile or key that may not be stored."""

    default_hint = "correct the named field and send the record again"


class MethodNotFound(ToolgateError, code="method_not_found"):
    """No such method at this endpoint."""

    default_hint = "use the methods of the capabilities that this endpoint declares"


class HeaderMismatch(ToolgateError, code="header_mismatch"):
    """An `Mcp-*` header and the body differ, so one of them would be routed wrongly."""

    default_hint = "send the `Mcp-*` headers that match the body, each once"


class UnsupportedVersion(ToolgateError, code="unsupported_version"):
    """A protocol revision this gateway does not speak."""

    default_hint = "use one of the versions in `data.supported`"


class Unauthenticated(ToolgateError, code="unauthenticated"):
    """No credential, or an invalid one. Never treated as anonymous."""

    default_hint = "send `Authorization: Bearer <key>` with a key of this gateway"


class TooManyAttempts(ToolgateError, code="too_many_attempts", retryable=True):
    """Too many invalid credentials from one address (a valid one still passes), or too many changes of a
    caller's integrations."""

    default_hint = "wait a minute, or send a right credential"


class IssuerUnavailable(ToolgateError, code="issuer_unavailable", retryable=True):
    """A token was signed with an unknown key, and its issuer cannot be reached."""

    default_hint = "retry in a moment; an operator finds the reason in the log"


class Forbidden(ToolgateError, code="forbidden"):
    """The role of the caller does not allow it."""

    default_hint = "ask an administrator of this gateway for a key with the role this needs"


class ForeignOrigin(ToolgateError, code="foreign_origin"):
    """The Host or Origin is not one this gateway answers to (DNS rebinding)."""

    default_hint = "call the gateway by its own address, or add the host to `allowed_hosts`"


class NotFound(ToolgateError, code="not_found"):
    """It does not exist, or not for this caller: the response is the same."""

    default_hint = "list what there is first"


class UnknownSession(ToolgateError, code="unknown_session"):
    """A session id that was never issued, has expired, or belongs to another caller."""

    default_hint = "send `initialize` again to open a new session"


class UnknownTool(ToolgateError, code="unknown_tool"):
    """Not in this caller's scope. Whether it exists elsewhere must not show."""

    default_hint = "list the tools of this URL; `toolgate explain` says why one is missing"


class UnknownPrompt(ToolgateError, code="unknown_prompt"):
    """Not in this caller's scope. Whether it exists elsewhere must not show."""

    default_hint = "list the prompts of this URL; `toolgate explain` says why one is missing"


class UnknownResource(ToolgateError, code="unknown_resource"):
    """Not in this caller's scope, or not at any server. Which of the two must not show."""

    default_hint = "list the resources of this URL; `toolgate explain` says why one is missing"


class InputStateRefused(ToolgateError, code="input_state_refused"):
    """A `requestState` that is forged, has expired, or belongs to another caller or request."""

    default_hint = "send the request again without `requestState` and `inputResponses`"


class MissingCapability(ToolgateError, code="missing_capability"):
    """The server requires a capability that the client did not declare."""

    default_hint = "declare the capabilities in `data.requiredCapabilities`, or use another tool"


class InputNotGiven(ToolgateError, code="mcp_input_not_given"):
    """A server requested input from the client during a call, and got no valid response."""

    default_hint = "respond to the input requests of the tool, or call it with all it needs"


class PolicyDenied(ToolgateError, code="mcp_policy_denied"):
    """The request selects more than its task allows; nothing of it is applied."""

    default_hint = "ask for fewer servers, or have the task's `mcp.allowed_server_ids` extended"
    servers: tuple[str, ...] = ()
    """The servers in question, for metrics. The message names them to the caller."""


class TooManyTools(ToolgateError, code="too_many_tools"):
    """The scope is larger than its limit. Never cut silently."""

    default_hint = (
        "narrow it with `?tools=`, `?servers=`, a task or a profile, or search it with `?mode=find`"
    )


class Conflict(ToolgateError, code="conflict"):
    """The record changed since it was read."""

    default_hint = "read the record again and repeat the change on its new revision"


class PlanRequired(ToolgateError, code="plan_required"):
    """A change that requires a plan, and has none."""

    default_hint = "run `toolgate plan` on the change, then make it with `--require-plan` and the plan's id"


class PlanOutdated(ToolgateError, code="plan_outdated"):
    """The effect of the change differs from its plan."""

    default_hint = "plan the change again, look at it, and make it with the new plan's id"


class RevisionNotReached(ToolgateError, code="revision_not_reached", retryable=True):
    """A requested revision is not served here yet, and did not arrive in time."""

    default_hint = "retry in a moment, or ask where the change was made"


class Compacted(ToolgateError, code="compacted"):
    """The change log no longer reaches back that far."""

    default_hint = "list again and watch from the listed revision"


class WatchLagged(ToolgateError, code="watch_lagged", retryable=True):
    """A watcher read too slowly, and was disconnected instead of buffered without bound."""

    default_hint = "list again and watch from the listed revision"


class NotReady(ToolgateError, code="not_ready", retryable=True):
    """The node has no policy from the control plane yet."""

    default_hint = "retry in a moment; `/readyz` says when calls can be sent here"


class PolicyStale(ToolgateError, code="policy_stale", retryable=True):
    """The node has not reached the control plane for longer than it may serve without it."""

    default_hint = "retry when the node reaches control again; `/healthz` and its log say why it does not"


class ControlUnavailable(ToolgateError, code="control_unavailable", retryable=True):
    """The control plane cannot be reached, or sends invalid responses."""

    default_hint = "check the node's `control` setting, and that `toolgate control` runs there"


class BodyTooLarge(ToolgateError, code="too_large"):
    """More bytes than the published limit."""

    default_hint = "send less than the limit in the message"


class HeadTooLarge(ToolgateError, code="head_too_large"):
    """More header bytes than the published limit."""

    default_hint = "send fewer or shorter headers"


class UnsupportedMedia(ToolgateError, code="unsupported_media"):
    """Not JSON by its own declaration. Also what stops cross-site form posts."""

    default_hint = "send `Content-Type: application/json` and no content encoding"


class NotAcceptable(ToolgateError, code="not_acceptable"):
    """The client does not accept the media type of this route."""

    default_hint = "accept `application/json` and `text/event-stream`"


class MethodNotAllowed(ToolgateError, code="method_not_allowed"):
    """The route exists; this HTTP method does not."""

    default_hint = "see `/openapi.json` for the methods of this route"


class SessionLimit(ToolgateError, code="session_limit", retryable=True):
    """The node has as many sessions as it may."""

    default_hint = "close sessions with DELETE, or retry after a while"


class StorageFailed(ToolgateError, code="storage_failed", retryable=True):
    """The store could not make the write durable, so it was not acknowledged."""

    default_hint = "free disk space or repair the data directory, then repeat the change"


class StorageUnavailable(ToolgateError, code="storage_unavailable", retryable=True):
    """The database does not respond. The message says whether a change may have been stored."""

    default_hint = "retry in a moment; if it lasts, check the database and the network to it"


class ImportRefused(ToolgateError, code="import_refused"):
    """The file is not a complete export, or the registry is not empty. Nothing was stored."""

    default_hint = "import a file that `toolgate export` wrote, unchanged, into an empty registry"


class StartRefused(ToolgateError, code="start_refused"):
    """A configuration that would be unsafe or useless."""

    default_hint = "correct the setting named in the message"


class ServerUnavailable(ToolgateError, code="mcp_unavailable", retryable=True):
    """The server is down, or disconnected during the call."""

    default_hint = "see `toolgate servers list` for its state and last error"


class LoginRequired(ToolgateError, code="mcp_login_required"):
    """The server requires a login of the caller, which has none."""

    default_hint = "log in with `toolgate servers login ID` and your own key, then repeat the call"


class CallTimedOut(ToolgateError, code="mcp_timeout", retryable=True):
    """No response within the timeout. The call was cancelled at the server."""

    default_hint = "raise the server's `budgets.tool_timeout_ms`, or ask for less at once"


class ServerBusy(ToolgateError, code="mcp_busy", retryable=True):
    """Concurrency and queue of the server are both full; nothing was sent."""

    default_hint = "retry in a moment, or raise the server's `budgets.max_concurrency`"


class NodeBusy(ToolgateError, code="node_busy", retryable=True):
    """The node has as many calls in flight and waiting as `max_calls` allows; nothing was sent."""

    default_hint = "retry in a moment, or ask an operator to raise `max_calls` or to add a node"


class ServerRefused(ToolgateError, code="mcp_refused"):
    """The server responded to the call with an error."""

    default_hint = "the message has the error of the server"


class InvalidArguments(ToolgateError, code="mcp_invalid_arguments"):
    """Arguments that are not an object, or not valid for the tool."""

    default_hint = "send an object that fits the tool's `inputSchema`"


class OutputTooLarge(ToolgateError, code="mcp_output_too_large"):
    """A result over the limit that cannot be cut into a valid one."""

    default_hint = "ask for less at once, or raise the server's `budgets.max_tool_output_bytes`"


class ApprovalRequired(ToolgateError, code="mcp_approval_required"):
    """A person must approve this call first."""

    default_hint = "ask an operator of this gateway to approve the call"


class ApprovalDenied(ToolgateError, code="mcp_approval_denied"):
    """An approver denied this call."""

    default_hint = "do not repeat the call unchanged: that would request approval again"


class CallCancelled(ToolgateError, code="cancelled"):
    """The client cancelled the call; it was cancelled at the server, too."""

    default_hint = "nothing to do: the call was cancelled on request"


class ToolCallLimit(ToolgateError, code="tool_call_limit"):
    """The session or the chat has used all its calls."""

    default_hint = "finish with what is there, or start a new session"


class BudgetExceeded(ToolgateError, code="budget_exceeded", retryable=True):
    """A key or a task has exceeded a quota. `data` has the quota, its holder, and when it resets."""

    default_hint = "try again after `data.retry_after_s` seconds, or ask an operator for a larger budget"


class InvalidChat(ToolgateError, code="invalid_chat"):
    """A chat request that is not valid. `data["param"]` names the parameter."""

    default_hint = "send a valid request of the OpenAI API; see `docs/guides/chat.md`"

    def __init__(self, message: str, *, param: str | None = None, hint: str | None = None) -> None:
        super().__init__(message, hint=hint, data={} if param is None else {"param": param})


class UnknownModel(ToolgateError, code="model_not_found"):
    """No chat upstream serves a model of this name."""

    default_hint = "list the models with `GET /v1/models`"


class ModelUnavailable(ToolgateError, code="model_unavailable", retryable=True):
    """The model's server cannot be reached, or disconnected."""

    default_hint = "try again; if it stays so, ask an operator for `toolgate chat-upstreams test`"


class ModelTimedOut(ToolgateError, code="model_timeout", retryable=True):
    """The model did not respond in time."""

    default_hint = "try again, or ask an operator for a longer `answer_timeout_ms`"


class ModelBusy(ToolgateError, code="model_busy", retryable=True):
    """The model's server has as many requests as it may."""

    default_hint = "try again in a moment, or ask an operator for a higher `max_concurrency`"


class ModelRefused(ToolgateError, code="model_refused"):
    """The model's server responded with an error. `data` has its `status` and body."""

    default_hint = "the message has the error of the model's server"


class InvalidModule(ToolgateError, code="invalid_module"):
    """Not a WebAssembly module that can run here."""

    default_hint = "build it for WASI preview 1, with the header in `sdk/c`"


class NoWorkload(ToolgateError, code="no_workload"):
    """The task has no workload to run."""

    default_hint = "give it one: `workload.module` in its file, then `toolgate tasks apply -f FILE`"


class QueueFull(ToolgateError, code="queue_full", retryable=True):
    """The queue is full; this invocation was not accepted."""

    default_hint = "try again in a moment, or add nodes: queued invocations are not lost"
