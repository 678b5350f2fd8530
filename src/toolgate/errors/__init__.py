"""Every failure a caller may see. Codes are stable and documented; messages may change."""

from toolgate.errors.wires import WIRE as WIRE
from toolgate.errors.wires import ToolgateError as ToolgateError
from toolgate.errors.wires import Wire as Wire


class ParseFailed(ToolgateError):
    """The bytes are not the JSON they should be."""

    code = "parse_error"
    default_hint = "send one object as UTF-8 JSON: no name twice in it, neither NaN nor Infinity"


class InvalidRequest(ToolgateError):
    """Well-formed, but not a request this door understands."""

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
    """No such method on this door."""

    code = "method_not_found"
    default_hint = "this door serves the methods its capabilities announce"


class HeaderMismatch(ToolgateError):
    """An `Mcp-*` header and the body disagree, so one of them would be routed wrongly."""

    code = "header_mismatch"
    default_hint = "send the `Mcp-*` headers that match the body, each once"


class UnsupportedVersion(ToolgateError):
    """A protocol revision this gateway does not speak."""

    code = "unsupported_version"
    default_hint = "use one of the versions in `data.supported`"


class Unauthenticated(ToolgateError):
    """No credential, or one that proves nothing. Never treated as anonymous."""

    code = "unauthenticated"
    default_hint = "send `Authorization: Bearer <key>` with a key of this gateway"


class TooManyAttempts(ToolgateError):
    """Wrong credentials keep coming from one address, while a right one still passes; or a caller changes its
    integrations too often."""

    code = "too_many_attempts"
    default_hint = "wait a minute, or send a right credential"
    retryable = True


class IssuerUnavailable(ToolgateError):
    """A token was signed with a key nobody here knows, and its issuer cannot be asked."""

    code = "issuer_unavailable"
    default_hint = "retry in a moment; an operator finds the reason in the log"
    retryable = True


class Forbidden(ToolgateError):
    """The caller is known and its role does not reach this far."""

    code = "forbidden"
    default_hint = "ask an administrator of this gateway for a key with the role this needs"


class ForeignOrigin(ToolgateError):
    """The Host or Origin is not one this gateway answers to (DNS rebinding)."""

    code = "foreign_origin"
    default_hint = "call the gateway by its own address, or add the host to `allowed_hosts`"


class NotFound(ToolgateError):
    """Not there, or not for this caller: the answer is the same."""

    code = "not_found"
    default_hint = "list what there is first"


class UnknownSession(ToolgateError):
    """A session id that was never issued, has expired, or is somebody else's."""

    code = "unknown_session"
    default_hint = "send `initialize` again to open a new session"


class UnknownTool(ToolgateError):
    """Not in this caller's scope. It may be in another's: do not say which."""

    code = "unknown_tool"
    default_hint = "list the tools of this URL; `toolgate explain` says why one is missing"


class UnknownPrompt(ToolgateError):
    """Not in this caller's scope. It may be in another's: do not say which."""

    code = "unknown_prompt"
    default_hint = "list the prompts of this URL; `toolgate explain` says why one is missing"


class UnknownResource(ToolgateError):
    """Not in this caller's scope, or not at any server. Which of the two is not said."""

    code = "unknown_resource"
    default_hint = "list the resources of this URL; `toolgate explain` says why one is missing"


class InputStateRefused(ToolgateError):
    """A `requestState` that is not ours, has expired, or belongs to another caller or another request."""

    code = "input_state_refused"
    default_hint = "send the request again without `requestState` and `inputResponses`"


class MissingCapability(ToolgateError):
    """The server needs something of the client that it did not say it can do."""

    code = "missing_capability"
    default_hint = "declare the capabilities in `data.requiredCapabilities`, or use another tool"


class InputNotGiven(ToolgateError):
    """A server asked the client something in the middle of a call, and got no answer it can go on with."""

    code = "mcp_input_not_given"
    default_hint = "answer what the tool asks, or call it with all it needs"


class PolicyDenied(ToolgateError):
    """The request asks for more than its task may have; nothing of it is applied."""

    code = "mcp_policy_denied"
    default_hint = "ask for fewer servers, or have the task's `mcp.allowed_server_ids` extended"
    servers: tuple[str, ...] = ()
    """The ids of the servers it is about, for metrics. The message names them to the caller."""


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
    """A change that must be looked at before it is made, and was not."""

    code = "plan_required"
    default_hint = "run `toolgate plan` on the change, then make it with `--require-plan` and the plan's id"


class PlanOutdated(ToolgateError):
    """What the change would do is not what its plan showed."""

    code = "plan_outdated"
    default_hint = "plan the change again, look at it, and make it with the new plan's id"


class RevisionNotReached(ToolgateError):
    """A reader asked for a revision that is not served here yet, and did not come in time."""

    code = "revision_not_reached"
    default_hint = "retry in a moment, or ask where the change was made"
    retryable = True


class Compacted(ToolgateError):
    """The change log no longer reaches back that far."""

    code = "compacted"
    default_hint = "list again and watch from the listed revision"


class WatchLagged(ToolgateError):
    """A watcher read too slowly and was cut off rather than buffered without bound."""

    code = "watch_lagged"
    default_hint = "list again and watch from the listed revision"
    retryable = True


class NotReady(ToolgateError):
    """A node that has not heard from control yet, and so does not know what anybody may do."""

    code = "not_ready"
    default_hint = "retry in a moment; `/readyz` says when calls can be sent here"
    retryable = True


class PolicyStale(ToolgateError):
    """A node that has not heard from control for longer than it may serve without."""

    code = "policy_stale"
    default_hint = "retry when the node reaches control again; `/healthz` and its log say why it does not"
    retryable = True


class ControlUnavailable(ToolgateError):
    """Control cannot be reached, or does not answer as it should."""

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
    """The client cannot take what this route answers with."""

    code = "not_acceptable"
    default_hint = "accept `application/json` and `text/event-stream`"


class MethodNotAllowed(ToolgateError):
    """The route exists; this HTTP method does not."""

    code = "method_not_allowed"
    default_hint = "see `/openapi.json` for the methods of this route"


class SessionLimit(ToolgateError):
    """As many sessions as this node holds."""

    code = "session_limit"
    default_hint = "close sessions with DELETE, or retry after a while"
    retryable = True


class StorageFailed(ToolgateError):
    """The store could not make the write durable, so it was not acknowledged."""

    code = "storage_failed"
    default_hint = "free disk space or mend the data directory, then repeat the change"
    retryable = True


class StorageUnavailable(ToolgateError):
    """The database does not answer. The message says whether a change may have been stored all the same."""

    code = "storage_unavailable"
    default_hint = "retry in a moment; if it lasts, see to the database and the network to it"
    retryable = True


class ImportRefused(ToolgateError):
    """A file that is not one whole export, or a place that is not empty. Nothing was stored."""

    code = "import_refused"
    default_hint = "import a file that `toolgate export` wrote, unchanged, into an empty registry"


class StartRefused(ToolgateError):
    """A configuration in which starting would be unsafe or useless."""

    code = "start_refused"
    default_hint = "correct the setting named in the message"


class ServerUnavailable(ToolgateError):
    """The server is down, or went away during the call."""

    code = "mcp_unavailable"
    default_hint = "see `toolgate servers list` for its state and last error"
    retryable = True


class LoginRequired(ToolgateError):
    """The server is used on behalf of whoever calls, and the caller has not logged in to it."""

    code = "mcp_login_required"
    default_hint = "log in with `toolgate servers login ID` and your own key, then repeat the call"


class CallTimedOut(ToolgateError):
    """No answer within the server's budget. The server was told to stop."""

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
    """The server answered the call with an error of its own."""

    code = "mcp_refused"
    default_hint = "what the server says is in the message"


class InvalidArguments(ToolgateError):
    """Arguments that are not an object, or not what the tool takes."""

    code = "mcp_invalid_arguments"
    default_hint = "send an object that fits the tool's `inputSchema`"


class OutputTooLarge(ToolgateError):
    """A result past the cap that cannot be cut into something valid."""

    code = "mcp_output_too_large"
    default_hint = "ask for less at once, or raise the server's `budgets.max_tool_output_bytes`"


class ApprovalRequired(ToolgateError):
    """A person must approve this call first."""

    code = "mcp_approval_required"
    default_hint = "ask an operator of this gateway to approve the call"


class ApprovalDenied(ToolgateError):
    """A person was asked about this call, and denied it."""

    code = "mcp_approval_denied"
    default_hint = "do not repeat the call as it is: that would ask again"


class CallCancelled(ToolgateError):
    """The caller took the call back; the server was told to stop."""

    code = "cancelled"
    default_hint = "nothing to do: the call was cancelled on request"


class ToolCallLimit(ToolgateError):
    """The session, or the chat, has used up its calls."""

    code = "tool_call_limit"
    default_hint = "finish with what is there, or start a new session"


class BudgetExceeded(ToolgateError):
    """A key or a task has used up what it may use in a day. `data` says which budget, of whom, and when it
    opens again."""

    code = "budget_exceeded"
    default_hint = "try again after `data.retry_after_s` seconds, or ask an operator for a larger budget"
    retryable = True


class InvalidChat(ToolgateError):
    """A chat request that no model could be asked. `data["param"]` says which part of it."""

    code = "invalid_chat"
    default_hint = "send a request as the OpenAI API takes it; see `docs/guides/chat.md`"

    def __init__(self, message: str, *, param: str | None = None, hint: str | None = None) -> None:
        super().__init__(message, hint=hint, data={} if param is None else {"param": param})


class UnknownModel(ToolgateError):
    """No chat upstream serves a model of this name."""

    code = "model_not_found"
    default_hint = "list the models with `GET /v1/models`"


class ModelUnavailable(ToolgateError):
    """The model's server cannot be reached, or broke off."""

    code = "model_unavailable"
    default_hint = "try again; if it stays so, ask an operator for `toolgate chat-upstreams test`"
    retryable = True


class ModelTimedOut(ToolgateError):
    """The model did not answer in time."""

    code = "model_timeout"
    default_hint = "try again, or ask an operator for a longer `answer_timeout_ms`"
    retryable = True


class ModelBusy(ToolgateError):
    """As many requests as it may have are at the model's server already."""

    code = "model_busy"
    default_hint = "try again in a moment, or ask an operator for a higher `max_concurrency`"
    retryable = True


class ModelRefused(ToolgateError):
    """The model's server answered with an error of its own. `data` holds its `status` and what it said."""

    code = "model_refused"
    default_hint = "what the model's server says is in the message"


class InvalidModule(ToolgateError):
    """What was sent is no WebAssembly module that can be run here."""

    code = "invalid_module"
    default_hint = "build it for WASI preview 1, with the header in `sdk/c`"


class NoWorkload(ToolgateError):
    """The task that was to be run holds policy, and nothing that could be run."""

    code = "no_workload"
    default_hint = "give it one: `workload.module` in its file, then `toolgate tasks apply -f FILE`"


class QueueFull(ToolgateError):
    """As many invocations as may wait are waiting already; this one was not taken."""

    code = "queue_full"
    default_hint = "try again in a moment, or add nodes: what waits is not lost"
    retryable = True
