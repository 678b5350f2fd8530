"""The limits of calls and chats, and of the approvals, quotas and input requests that go with them."""

from typing import Final

from pages.markdown import Rows, duration, size
from toolgate.chat import hidden_turns, model_completion, streamed_completion, tool_calls
from toolgate.chat import parsing as chat_messages
from toolgate.chat.responses import tools
from toolgate.gateway.auth import signing
from toolgate.gateway.call import elicitation, quota
from toolgate.gateway.chat import session as chat_session
from toolgate.gateway.subscriptions import resources
from toolgate.govern import approvals as approval_webhook
from toolgate.model import approvals, chat, principals
from toolgate.policy import admission
from toolgate.registry import approvals as approval_store
from toolgate.registry.records import server_bodies
from toolgate.settings import Settings
from toolgate.surfaces.mcp import dispatch as mcp_dispatch
from toolgate.surfaces.mcp import input_required, session
from toolgate.upstream.connection import contract, relay
from toolgate.upstream.models import client as model_client

_POOL: Final = contract.DEFAULT_LIMITS
_BUDGETS: Final = server_bodies.BudgetsBody()


def call_limits() -> Rows:
    most_calls = Settings.model_fields["max_calls"].default
    timeout = f"{duration(_BUDGETS.tool_timeout_ms / 1000)}, at most {duration(contract.CALL_CEILING_S)}"
    return (
        ("time of a call (record)", timeout, "`mcp_timeout`"),
        ("concurrent calls of a server (record)", f"{_BUDGETS.max_concurrency}", "the next ones wait"),
        ("queued calls of a server", f"{_POOL.queue}", "`mcp_busy` at once"),
        ("concurrent calls on a node (setting)", f"{most_calls}", "the next ones wait, fairly by principal"),
        ("share of one principal in those", "four fifths", "the next ones wait"),
        ("queued calls on a node", f"{most_calls}", "`node_busy` at once"),
        (
            "result (record)",
            size(_BUDGETS.max_tool_output_bytes),
            "truncated to valid JSON, and marked",
        ),
    )


def chat_limits() -> Rows:
    budgets = chat.ChatBudgets()
    refused, unusable = "400 `invalid_chat`", "502 `model_unavailable`"
    not_called = "the model gets an error; the tool is not called"
    last = "a last completion without tools"
    dropped = "the hidden turns are dropped, and never run"
    return (
        ("messages, items of `input`", f"{chat_messages.MAX_MESSAGES:,}", refused),
        ("`tools` of a Responses request", f"{tools.MAX_TOOLS:,}", refused),
        (
            "rounds of tool calls (record, task, request)",
            f"{budgets.max_iterations}",
            last,
        ),
        (
            "tool calls (record, task, request)",
            f"{budgets.max_total_tool_calls}",
            last,
        ),
        ("concurrent calls of one completion", f"{chat_session.MAX_CONCURRENT_CALLS}", "the next ones wait"),
        ("calls in one completion", f"{model_completion.MAX_CALLS:,}", unusable),
        ("arguments of a call", size(tool_calls.MAX_ARGUMENT_BYTES), not_called),
        (
            "a result (record, task, request)",
            size(budgets.max_tool_output_bytes),
            "truncated, and marked",
        ),
        (
            "time of a chat (record, task, request)",
            duration(budgets.wall_clock_ms / 1000),
            "the completion ends with a notice",
        ),
        ("a response of a model, or one event of it", size(model_client.MAX_RESPONSE_BYTES), unusable),
        (
            "a streamed completion that the gateway assembles",
            size(streamed_completion.MAX_COMPLETION_BYTES),
            unusable,
        ),
        (
            "hidden turns in an id, compressed",
            size(hidden_turns.MAX_BYTES),
            "results are truncated, and marked",
        ),
        ("lifetime of such an id", duration(signing.SEAL_LIFETIME_S), dropped),
        ("hidden turns that one request restores", size(hidden_turns.MAX_RESTORED_BYTES), dropped),
        ("models of one upstream", f"{model_client.MAX_MODELS:,}", "the others are not listed"),
    )


def input_limits() -> Rows:
    bounds = (
        relay.MAX_CLIENT_REQUESTS,
        relay.MAX_CLIENT_REQUESTS_PER_PRINCIPAL,
        relay.MAX_CLIENT_REQUESTS_PER_CALL,
    )
    at_once = ", ".join(map(str, bounds))
    parked_bytes = f"{size(elicitation.MAX_PARKED_BYTES)}, {size(elicitation.MAX_PARKED_BYTES_EACH)}"
    parked = f"{elicitation.MAX_PARKED:,}, {elicitation.MAX_PARKED_EACH}"
    watched = f"{resources.MAX_WATCHED:,}, {resources.MAX_WATCHED_EACH:,}"
    state = size(input_required.MAX_STATE_BYTES)
    return (
        ("rounds of input requests in one call", f"{elicitation.MAX_ROUNDS}", "`mcp_unavailable`"),
        ("concurrent input requests of a stateless server", f"{elicitation.MAX_INPUTS}", "`mcp_unavailable`"),
        (
            "concurrent requests to clients: on a connection, to one caller, of one call",
            at_once,
            "the server gets an error",
        ),
        (
            "pending requests to the client of a session",
            f"{session.DEFAULT_LIMITS.max_client_requests}",
            "the server gets an error",
        ),
        (
            "time for a client's response",
            duration(contract.CALL_CEILING_S),
            "`mcp_timeout` or `mcp_input_not_given`",
        ),
        ("calls parked for input: on a node, of one caller", parked, "503 `session_limit`"),
        ("requests of parked calls: on a node, of one caller", parked_bytes, "503 `session_limit`"),
        (
            "lifetime of a `requestState`",
            duration(input_required.STATE_LIFETIME_S),
            "400 `input_state_refused`",
        ),
        ("a server's own state in it", state, "`mcp_unavailable`"),
        ("capabilities of a client", size(mcp_dispatch.MAX_BYTES), "the gateway passes on only their names"),
        ("a client's `progressToken`", f"{relay.MAX_TOKEN_BYTES} bytes", "`invalid_params`"),
        ("a log or progress notification", size(relay.MAX_NOTIFICATION_BYTES), "dropped"),
        ("subscribed resources: on a node, of one client", watched, "503 `session_limit`"),
    )


def quota_limits() -> Rows:
    granted = f"a tenth of the remaining quota, at most {admission.MAX_GRANT}"
    return (
        ("calls per minute, calls per day", f"1 to {principals.MAX_CALLS:,}", "`invalid_record`"),
        ("tokens per day", f"1 to {principals.MAX_TOKENS:,}", "`invalid_record`"),
        ("calls in one quota lease of a node", granted, "the node requests another lease"),
        ("time between reports of used tokens", duration(quota.REPORT_EVERY_S), "the node reports them"),
        (
            "time that a node caches an exceeded quota",
            duration(quota.CACHED_S),
            "the node requests a lease again",
        ),
        ("quotas in one lease request of a node", f"{principals.MAX_LEASE_REQUESTS}", "`INVALID_ARGUMENT`"),
    )


def approval_limits() -> Rows:
    limits = approval_store.DEFAULT_APPROVAL_LIMITS
    kept = f"{limits.keep_closed:,}, for {duration(approval_store.KEEP_CLOSED_MS / 1000)}"
    each = f"{limits.max_pending_each} of a principal, {limits.max_pending:,} in total"
    return (
        ("pending approvals", each, "`mcp_busy`"),
        ("time to decide, and to use an approval", duration(approval_store.EXPIRES_MS / 1000), "it expires"),
        (
            "time to respond to an elicited approval",
            duration(elicitation.APPROVAL_TIMEOUT_S),
            "`mcp_approval_required`",
        ),
        ("age of a webhook's signature", duration(approval_webhook.WINDOW_S), "401 `unauthenticated`"),
        (
            "time for further rounds of an approved call",
            duration(approval_store.ROUND_MS / 1000),
            "they need approval again",
        ),
        (
            "arguments shown to approvers",
            size(approvals.MAX_ARGUMENT_BYTES),
            "truncated, and marked",
        ),
        ("characters of a reason", f"{approvals.MAX_REASON}", "400 `invalid_request`"),
        ("decided approvals", kept, "the oldest are dropped"),
    )
