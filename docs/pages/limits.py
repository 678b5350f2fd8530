"""The published limits: each number read from the constant that the code goes by."""

from typing import Final

from pages import run_limits
from pages.markdown import Rows, duration, page, size, table
from toolgate.audit.index import statements
from toolgate.audit.log import files, writer
from toolgate.audit.log import writer as audit_log
from toolgate.catalog import checks, definitions, find_tools, listings, naming, skills, word_search
from toolgate.catalog import checks as members
from toolgate.catalog import listings as templates
from toolgate.catalog import word_search as search
from toolgate.catalog import word_search as search_entries
from toolgate.chat import hidden_turns, model_completion, streamed_completion, tool_calls
from toolgate.chat import parsing as chat_messages
from toolgate.chat.responses import tools
from toolgate.gateway import search as searching
from toolgate.gateway import subscriptions
from toolgate.gateway.auth import identity, issuer, signing
from toolgate.gateway.call import elicitation, quota
from toolgate.gateway.call import elicitation as in_place
from toolgate.gateway.call import quota as purses
from toolgate.gateway.chat import session as chat_session
from toolgate.gateway.scope import view
from toolgate.gateway.search import semantic
from toolgate.gateway.subscriptions import resources
from toolgate.gateway.subscriptions import resources as resource_watches
from toolgate.govern import approvals as approval_webhook
from toolgate.govern import catalog, operator_policy, watches
from toolgate.govern.changes import checks as change_checks
from toolgate.govern.changes import history
from toolgate.govern.control import ControlLimits
from toolgate.model import approvals, chat, names, principals, reports, servers
from toolgate.policy import admission as policy_allowances
from toolgate.policy import layers, learn, patterns
from toolgate.registry import approvals as desk
from toolgate.registry import store
from toolgate.registry.files import directory
from toolgate.registry.interchange import yaml as yaml_documents
from toolgate.registry.records import policy_bodies, server_bodies
from toolgate.registry.replication import sync
from toolgate.settings import Settings
from toolgate.surfaces import console
from toolgate.surfaces.grpc import coordination as grpc_audit
from toolgate.surfaces.grpc import dispatch as grpc_dispatch
from toolgate.surfaces.grpc import reports as grpc_reports
from toolgate.surfaces.grpc import server as grpc_server
from toolgate.surfaces.http import connection, parsing
from toolgate.surfaces.mcp import dispatch as mcp_dispatch
from toolgate.surfaces.mcp import input_required, session, session_transports
from toolgate.surfaces.rest.framework import request as rest_request
from toolgate.surfaces.rest.framework import routing
from toolgate.surfaces.rest.resources import catalog as rest_catalog
from toolgate.surfaces.rest.resources import changes as rest_changes
from toolgate.surfaces.rest.resources import usage as rest_usage
from toolgate.telemetry import tracing
from toolgate.upstream.connection import contract, relay
from toolgate.upstream.connection import contract as link
from toolgate.upstream.http import client_connection, responses
from toolgate.upstream.models import client as model_lists
from toolgate.upstream.models import client as models
from toolgate.upstream.pool import discovery, health, kept_definitions
from toolgate.upstream.pool import health as restarts
from toolgate.upstream.stdio import children

_INTRO: Final = """
Everything that comes from outside is bounded. Limits that a setting or a record can change are marked so;
the others are constants of this version.
"""
_POOL: Final = contract.DEFAULT_LIMITS
_HTTP: Final = client_connection.HttpLimits()
_BUDGETS: Final = server_bodies.BudgetsBody()


def limits_page() -> str:
    """limits.md"""
    sections = {
        "Requests": _requests(),
        "Sessions and lists": _lists(),
        "Servers": _servers(),
        "Definitions": _definitions(),
        "Search": _search(),
        "Calls": _calls(),
        "Approvals": _approvals(),
        "Budgets over time": _budgets(),
        "Chats": _chats(),
        "What servers ask and say": _questions(),
        "Packages": run_limits.package_limits(),
        "Modules": run_limits.module_limits(),
        "Guests": run_limits.guest_limits(),
        "Invocations": run_limits.invocation_limits(),
        "Registry": _registry(),
        "Nodes and gRPC": _fleet(),
        "Process": _process(),
    }
    head = ("what", "limit", "past it")
    return page("Limits", _INTRO, *(f"## {title}\n\n{table(head, rows)}" for title, rows in sections.items()))


def _requests() -> Rows:
    return (
        ("body", size(connection.MAX_BODY_BYTES), "413 `too_large`"),
        ("what is read past it so that clients get the 413", size(connection.MAX_DISCARDED_BYTES), "cut off"),
        ("head", size(connection.MAX_HEAD_BYTES), "431 `head_too_large`, connection closed"),
        ("query", size(parsing.MAX_QUERY_BYTES), "400 `invalid_request`"),
        ("nesting of JSON", f"{parsing.MAX_DEPTH} levels", "400 `parse_error`"),
        ("digits of a number", f"{parsing.MAX_DIGITS}", "400 `parse_error`"),
        ("objects and arrays in a body", f"{parsing.MAX_CONTAINERS:,}", "400 `parse_error`"),
        ("pieces a body comes in", f"{connection.MAX_BODY_PARTS:,}", "413 `too_large`"),
        ("time to send a request or read an answer", duration(connection.REQUEST_S), "connection closed"),
        ("connection without a request", duration(connection.KEEP_ALIVE_S), "connection closed"),
        ("requests waiting on one connection", f"{connection.MAX_PIPELINED}", "connection closed"),
    )


def _lists() -> Rows:
    most_tools = Settings.model_fields["max_tools"].default
    forgotten = "`unknown_session`, once its node has forgotten it"
    return (
        ("sessions a node holds", f"{session.DEFAULT_LIMITS.max_sessions:,}", "503 `session_limit`"),
        ("a session without a request", duration(session.IDLE_S), "`unknown_session`"),
        ("a session in all", duration(session.LIFETIME_S), forgotten),
        ("what a session asks for, as its id", size(session.MAX_ID_BYTES), "`invalid_params`"),
        (
            "requests without an answer on an SSE stream",
            f"{session.DEFAULT_LIMITS.max_stream_requests}",
            "503 `session_limit`",
        ),
        ("messages in a batch (2025-03-26)", f"{session_transports.MAX_BATCH}", "400 `invalid_request`"),
        (
            "responses to a batch together",
            size(session.DEFAULT_LIMITS.max_batch_bytes),
            "`mcp_output_too_large` for the others",
        ),
        ("entries of `?tools=` or `?servers=`", f"{layers.MAX_ENTRIES:,}", "400 `invalid_request`"),
        ("entries with wildcards", f"{layers.MAX_WILDCARDS}", "400 `invalid_request`"),
        ("a pattern", f"{patterns.MAX_PATTERN} characters", "refused"),
        ("a pattern of prompts or resources", f"{patterns.MAX_KIND_PATTERN:,} characters", "refused"),
        ("patterns in a list of a record", f"{patterns.MAX_LISTED:,}", "`invalid_record`"),
        ("those with wildcards among them", f"{patterns.MAX_LISTED_WILDCARDS}", "`invalid_record`"),
        ("tools that a scope lists (setting)", f"{most_tools}", "searched, or `too_many_tools`"),
        ("how long a client may keep a list", duration(view.TTL_MS / 1000), "it asks again"),
    )


def _servers() -> Rows:
    most_children = Settings.model_fields["max_children"].default
    waits = f"waits {_POOL.backoff_s:g} s to {_POOL.backoff_max_s:g} s"
    breaker = f"calls fail at once; one try in {duration(_HTTP.cooldown_s)}"
    starts = f"{_POOL.max_starts} in {duration(_POOL.start_window_s)}, {waits}"
    return (
        ("id of a server", f"{names.MAX_SERVER_ID} characters", "`invalid_record`"),
        ("a server file", size(directory.MAX_FILE_BYTES), "reported; the last good version stays"),
        ("start, up to the first answer", duration(link.START_TIMEOUT_S), "stopped, tried again"),
        (
            "the same for package runners",
            f"{duration(servers.RUNNER_START_TIMEOUT_S)} (`start_timeout_s` of a record)",
            "stopped, tried again",
        ),
        (
            "wait of a call for a start",
            duration(_POOL.slow_start_s),
            "`mcp_unavailable`; the start continues",
        ),
        ("starts", starts, "down until the next try"),
        (
            "wait for a server behind a URL",
            f"up to {duration(_POOL.reconnect_max_s)}",
            "down until the next try",
        ),
        (
            "what its `Retry-After` may ask for",
            duration(responses.MAX_RETRY_AFTER_S),
            "tried again all the same",
        ),
        ("attempts to connect that fail in a row", f"{_HTTP.max_failed_connects}", breaker),
        ("wait after a failure that stays", duration(restarts.FATAL_WAIT_S), "a call may try again"),
        ("a message: stdio line or event", size(link.MAX_MESSAGE_BYTES), "the connection ends"),
        ("stderr that is kept", size(health.STDERR_TAIL_BYTES), "the oldest goes"),
        ("stop: stdin closed, TERM, KILL", f"{duration(children.STOP_STEP_S)} between them", "killed"),
        (
            "sessions with a link of their own, per server",
            f"{_POOL.session_links}",
            "`mcp_busy` at once",
        ),
        (
            "a session's own link, unused",
            duration(_POOL.session_idle_s),
            "closed; the next call opens another",
        ),
        (
            "child processes (setting)",
            f"{most_children}",
            "an idle server gives way; else the call waits, `mcp_busy`",
        ),
        (
            "servers whose lists are kept for the next start",
            f"{kept_definitions.MAX_SERVERS:,}, {size(kept_definitions.MAX_BYTES)}",
            "the oldest are forgotten",
        ),
    )


def _definitions() -> Rows:
    template = f"{templates.MAX_TEMPLATE_BYTES} bytes, {templates.MAX_EXPRESSIONS} expressions"
    sizes = ", ".join(f"{form.kind} {size(form.max_bytes)}" for form in discovery.FORMS.values())
    return (
        (
            "tools, prompts, resources, templates of a server",
            f"{members.MAX_DEFINITIONS:,} of each",
            "the rest is left out, and said",
        ),
        ("a list", f"{discovery.MAX_PAGES} pages; {sizes}", "the rest is left out, and said"),
        ("time for all pages", duration(_POOL.list_timeout_s), "the last good list stays"),
        ("name of a tool", f"{names.MAX_TOOL_NAME} characters", "it gets an alias"),
        (
            "name of a tool that gets an alias",
            f"{naming.MAX_NATIVE_NAME} characters",
            "that tool is left out",
        ),
        ("name of a prompt", f"{listings.MAX_PROMPT_NAME} characters", "that prompt is left out"),
        ("arguments of a prompt", f"{listings.MAX_ARGUMENTS}", "that prompt is left out"),
        ("URI of a resource", size(listings.MAX_URI_BYTES), "that resource is left out"),
        ("URI template", template, "that template is left out"),
        (
            "all of them, as work to match",
            f"{templates.MAX_WORK:,} characters",
            "the rest is left out, and said",
        ),
        ("description", size(members.MAX_DESCRIPTION_BYTES), "that one is left out"),
        ("schema", size(definitions.MAX_SCHEMA_BYTES), "that tool is left out"),
        ("depth of a schema", f"{checks.MAX_SCHEMA_DEPTH} levels", "that tool is left out"),
    )


def _search() -> Rows:
    query = f"{search.MAX_QUERY_CHARS:,} characters, {search.MAX_QUERY_TERMS} different terms"
    arguments = f"{search_entries.MAX_PARAMETER_CHARS:,} characters"
    return (
        ("a query", query, "the rest is not looked at"),
        ("a text of a tool", f"{word_search.MAX_TEXT_CHARS:,} characters", "the rest is not found"),
        ("names and descriptions of arguments", arguments, "the rest is not found"),
        ("vectors kept between runs", f"{semantic.MAX_VECTORS:,}", "the oldest go"),
        ("waiting for the model", duration(searching.SEMANTIC_TIMEOUT_S), "answered by words alone"),
        ("a query of `search_tools`", size(find_tools.MAX_QUERY_BYTES), "`mcp_invalid_arguments`"),
        (
            "tools it shows",
            f"{find_tools.DEFAULT_RESULTS}, at most {find_tools.MAX_RESULTS}",
            "a narrower query",
        ),
        (
            "searches that wait: on a node, of one caller",
            f"{searching.MAX_WAITING}, {searching.MAX_WAITING_EACH}",
            "`mcp_busy` at once",
        ),
        ("time for one, the index made first", duration(searching.SEARCH_TIMEOUT_S), "`mcp_timeout`"),
        ("`q` of `/api/catalog/search`", f"{rest_catalog.MAX_QUERY_CHARS:,} characters", "`invalid_request`"),
        ("hits of it", f"the best {catalog.MAX_FOUND:,}", "more words, or filters"),
        ("schemas in a page of the catalog", size(rest_request.MAX_PAGE_BYTES), "the page ends sooner"),
    )


def _calls() -> Rows:
    most_calls = Settings.model_fields["max_calls"].default
    timeout = f"{duration(_BUDGETS.tool_timeout_ms / 1000)}, at most {duration(contract.CALL_CEILING_S)}"
    return (
        ("time (record)", timeout, "`mcp_timeout`"),
        ("at once, per server (record)", f"{_BUDGETS.max_concurrency}", "the next ones wait"),
        ("waiting, per server", f"{_POOL.queue}", "`mcp_busy` at once"),
        ("at once, on a node (setting)", f"{most_calls}", "the next ones wait, fairly by principal"),
        ("of those, one principal", "four fifths", "the next ones wait"),
        ("waiting, on a node", f"{most_calls}", "`node_busy` at once"),
        ("result (record)", size(_BUDGETS.max_tool_output_bytes), "cut into valid JSON, marked as cut"),
    )


def _chats() -> Rows:
    budgets = chat.ChatBudgets()
    refused, unusable = "400 `invalid_chat`", "502 `model_unavailable`"
    told = "the model is told so; the tool is not called"
    last = "a last answer without tools"
    forgotten = "what it holds is forgotten, and never run"
    return (
        ("messages, items of `input`", f"{chat_messages.MAX_MESSAGES:,}", refused),
        ("`tools` of a Responses request", f"{tools.MAX_TOOLS:,}", refused),
        (
            "rounds of tools (record, task, request)",
            f"{budgets.max_iterations}",
            last,
        ),
        (
            "calls of tools (record, task, request)",
            f"{budgets.max_total_tool_calls}",
            last,
        ),
        ("calls of one reply at once", f"{chat_session.MAX_CONCURRENT_CALLS}", "they wait"),
        ("calls of one reply", f"{model_completion.MAX_CALLS:,}", unusable),
        ("arguments of a call", size(tool_calls.MAX_ARGUMENT_BYTES), told),
        ("a result (record, task, request)", size(budgets.max_tool_output_bytes), "cut, and says so"),
        (
            "the whole (record, task, request)",
            duration(budgets.wall_clock_ms / 1000),
            "the answer ends, and says so",
        ),
        ("an answer of a model, or one event of it", size(models.MAX_RESPONSE_BYTES), unusable),
        ("a streamed answer that is read here", size(streamed_completion.MAX_COMPLETION_BYTES), unusable),
        (
            "what an id holds of a turn, compressed",
            size(hidden_turns.MAX_BYTES),
            "results are cut, and say so",
        ),
        ("such ids", duration(signing.SEAL_LIFETIME_S), forgotten),
        ("what all of them bring into one request", size(hidden_turns.MAX_RESTORED_BYTES), forgotten),
        ("models of one upstream", f"{model_lists.MAX_MODELS:,}", "the others are not listed"),
    )


def _questions() -> Rows:
    bounds = (
        relay.MAX_CLIENT_REQUESTS,
        relay.MAX_CLIENT_REQUESTS_PER_PRINCIPAL,
        relay.MAX_CLIENT_REQUESTS_PER_CALL,
    )
    at_once = ", ".join(map(str, bounds))
    parked_bytes = f"{size(elicitation.MAX_PARKED_BYTES)}, {size(elicitation.MAX_PARKED_BYTES_EACH)}"
    parked = f"{elicitation.MAX_PARKED:,}, {elicitation.MAX_PARKED_EACH}"
    watched = f"{resource_watches.MAX_WATCHED:,}, {resource_watches.MAX_WATCHED_EACH:,}"
    state = size(input_required.MAX_STATE_BYTES)
    return (
        ("rounds of questions in one call", f"{elicitation.MAX_ROUNDS}", "`mcp_unavailable`"),
        ("questions of a stateless server at once", f"{elicitation.MAX_INPUTS}", "`mcp_unavailable`"),
        (
            "questions at once: on a connection, to one caller, of one call",
            at_once,
            "the server gets an error",
        ),
        (
            "questions a session has not answered",
            f"{session.DEFAULT_LIMITS.max_client_requests}",
            "the server gets an error",
        ),
        ("time for an answer", duration(contract.CALL_CEILING_S), "`mcp_timeout` or `mcp_input_not_given`"),
        ("calls parked for input: on a node, of one caller", parked, "503 `session_limit`"),
        ("what those were asked with", parked_bytes, "503 `session_limit`"),
        ("a `requestState`", duration(input_required.STATE_LIFETIME_S), "400 `input_state_refused`"),
        ("what a server puts into one", state, "`mcp_unavailable`"),
        ("capabilities of a client", size(mcp_dispatch.MAX_BYTES), "their names alone are passed on"),
        ("a client's `progressToken`", f"{relay.MAX_TOKEN_BYTES} bytes", "`invalid_params`"),
        ("a log message or a word of progress", size(relay.MAX_NOTIFICATION_BYTES), "dropped"),
        ("watched resources: of a node, of one client", watched, "503 `session_limit`"),
    )


def _budgets() -> Rows:
    granted = f"a tenth of what is left, {policy_allowances.MAX_GRANT} at most"
    return (
        ("calls per minute, calls per day", f"1 to {principals.MAX_CALLS:,}", "`invalid_record`"),
        ("tokens per day", f"1 to {principals.MAX_TOKENS:,}", "`invalid_record`"),
        ("calls a node is granted at once", granted, "it asks again"),
        ("tokens that control does not know of", duration(quota.REPORT_EVERY_S), "they are reported"),
        ("a refusal that a node remembers", duration(purses.CACHED_S), "it asks again"),
        ("budgets in one question of a node", f"{principals.MAX_LEASE_REQUESTS}", "`INVALID_ARGUMENT`"),
    )


def _approvals() -> Rows:
    limits = desk.DEFAULT_APPROVAL_LIMITS
    kept = f"{limits.keep_closed:,}, for {duration(desk.KEEP_CLOSED_MS / 1000)}"
    each = f"{limits.max_pending_each} of a principal, {limits.max_pending:,} in all"
    return (
        ("calls that wait for a person", each, "`mcp_busy`"),
        ("how long one waits, and an approval is good", duration(desk.EXPIRES_MS / 1000), "it has expired"),
        (
            "answer of a person who is asked in place",
            duration(in_place.APPROVAL_TIMEOUT_S),
            "`mcp_approval_required`",
        ),
        ("age of a webhook's signature", duration(approval_webhook.WINDOW_S), "401 `unauthenticated`"),
        ("rounds of a call under its approval, after it", duration(desk.ROUND_MS / 1000), "they wait anew"),
        ("arguments that people are shown", size(approvals.MAX_ARGUMENT_BYTES), "cut, visibly"),
        ("characters of a reason", f"{approvals.MAX_REASON}", "400 `invalid_request`"),
        ("approvals that are decided on", kept, "the oldest are forgotten"),
    )


def _registry() -> Rows:
    kept = (
        f"{store.KEEP_LOG_REVISIONS:,} revisions and {duration(store.KEEP_LOG_MS / 1000)}, whichever is more"
    )
    yaml = f"{size(yaml_documents.MAX_YAML_BYTES)}, {yaml_documents.MAX_DEPTH}, {yaml_documents.MAX_NODES:,}"
    return (
        ("records of each kind", f"{change_checks.MAX_RECORDS:,}", "`invalid_record`"),
        (
            "servers that one caller switches on or off for itself",
            f"{policy_bodies.MAX_CHOICES}",
            "`invalid_record`",
        ),
        (
            "changes of integrations in a minute, of one caller and of all",
            f"{operator_policy.MAX_CHANGES}, {operator_policy.MAX_ALL_CHANGES}",
            "429 `too_many_attempts`",
        ),
        ("changes in one `apply`", f"{rest_changes.MAX_CHANGES:,}", "`invalid_request`"),
        ("a YAML file, its levels and its values", yaml, "`invalid_record`"),
        ("tools in a skill's manifest", f"{skills.MAX_SKILL_TOOLS:,}", "`invalid_record`"),
        ("records of a page", f"{rest_request.PAGE}, at most {rest_request.MAX_PAGE:,}", "the next page"),
        ("change log", kept, "older changes are compacted"),
        ("changes of a record that `history` shows", f"{history.MAX_HISTORY}", "`compacted`"),
        ("watches of one caller", f"{watches.MAX_WATCHES}", "`session_limit`"),
        (
            "wait for `Toolgate-Min-Revision`",
            duration(routing.MAX_REVISION_WAIT_S),
            "412 `revision_not_reached`",
        ),
    )


def _fleet() -> Rows:
    limits = sync.DEFAULT_LIMITS
    return (
        ("a request over gRPC", size(grpc_dispatch.MAX_REQUEST_BYTES), "`RESOURCE_EXHAUSTED`"),
        ("a node's report", size(grpc_reports.MAX_REPORT_BYTES), "`RESOURCE_EXHAUSTED`"),
        ("calls over gRPC at once", f"{grpc_server.MAX_CALLS:,}", "`RESOURCE_EXHAUSTED`"),
        ("nodes that report", f"{grpc_reports.MAX_NODES:,}", "the report is refused"),
        ("silence of a node", duration(reports.LOST_AFTER_MS / 1000), "shown as lost"),
        ("silence of control", duration(limits.silence_s), "the watch is opened anew"),
        ("polls of a node", f"every {limits.poll_min_s:g} to {duration(limits.poll_max_s)}", "a safety net"),
        ("wait of a node between tries", f"up to {duration(limits.backoff_max_s)}", "it goes on for ever"),
    )


def _process() -> Rows:
    wrong = f"{identity.MAX_ATTEMPTS} in {duration(identity.WINDOW_S)}"
    most, share = resources.max_for_one(subscriptions.MAX_OPEN), subscriptions.MAX_OPEN // resources.SHARE
    return (
        ("key of an administrator", f"at least {identity.MIN_KEY_CHARS} characters", "refuses to start"),
        ("wrong credentials from one address", wrong, "429 `too_many_attempts`"),
        ("logins with a browser at once", f"{issuer.MAX_CONCURRENT_LOGINS}", "429 `too_many_attempts`"),
        ("files of the console", size(console.MAX_BYTES), "refuses to start"),
        ("event streams", f"{subscriptions.MAX_OPEN:,}", "503 `session_limit`"),
        (
            "event streams of one caller",
            f"{most:,}; once {most:,} are open in all, {share:,}",
            "503 `session_limit`",
        ),
        (
            "audit file, by default",
            size(writer.ROTATE_BYTES),
            f"becomes `audit.jsonl.1`; {writer.KEEP_FILES} are kept",
        ),
        (
            "audit lines held while the disk fails",
            size(audit_log.MAX_BEGIN_BYTES),
            "calls are not sent (`mcp_unavailable`); past twice that, events are lost, and counted",
        ),
        ("audit events in one export", f"{ControlLimits().max_export:,}", "the last line says so"),
        (
            "prompts, or resources, of a server that a lesson names",
            f"{learn.MAX_NAMED_OF_KIND}",
            "all of its kind",
        ),
        ("unused tools that are named of each of several", f"{rest_usage.MAX_NAMED}", "counted"),
        ("audit events in a story", f"{2 * statements.MAX_AROUND}", "the nearest"),
        ("audit events in one piece of a node's log", f"{grpc_audit.MAX_EVENTS:,}", "`INVALID_ARGUMENT`"),
        ("one audit event", size(files.MAX_LINE_BYTES), "cannot be asked for"),
        (
            "spans that wait for a collector",
            f"{tracing.MAX_QUEUED_SPANS:,}",
            "more are dropped, and it is logged",
        ),
        (
            "drain at stop (setting)",
            duration(Settings.model_fields["drain_s"].default),
            "the rest is cut off",
        ),
    )
