"""The published limits, read from the constants in the code."""

from typing import Final

from pages import call_limits, run_limits
from pages.markdown import Rows, duration, page, size, table
from toolgate.audit.index import statements
from toolgate.audit.log import files, writer
from toolgate.catalog import checks, definitions, find_tools, listings, naming, skills, word_search
from toolgate.gateway import search as searching
from toolgate.gateway import subscriptions
from toolgate.gateway.auth import identity, issuer
from toolgate.gateway.scope import view
from toolgate.gateway.search import semantic
from toolgate.gateway.subscriptions import resources
from toolgate.govern import catalog, operator_policy, watches
from toolgate.govern.changes import commit, history
from toolgate.govern.control import ControlLimits
from toolgate.model import names, reports, servers
from toolgate.policy import layers, learn, patterns
from toolgate.registry import store
from toolgate.registry.files import directory
from toolgate.registry.interchange import yaml as yaml_documents
from toolgate.registry.records import policy_bodies
from toolgate.registry.replication import sync
from toolgate.settings import Settings
from toolgate.surfaces import console
from toolgate.surfaces.grpc import coordination as grpc_audit
from toolgate.surfaces.grpc import dispatch as grpc_dispatch
from toolgate.surfaces.grpc import reports as grpc_reports
from toolgate.surfaces.grpc import server as grpc_server
from toolgate.surfaces.http import connection, parsing
from toolgate.surfaces.mcp import session, session_transports
from toolgate.surfaces.rest.framework import request as rest_request
from toolgate.surfaces.rest.framework import routing
from toolgate.surfaces.rest.resources import catalog as rest_catalog
from toolgate.surfaces.rest.resources import changes as rest_changes
from toolgate.surfaces.rest.resources import usage as rest_usage
from toolgate.telemetry import tracing
from toolgate.upstream.connection import contract
from toolgate.upstream.http import client_connection, responses
from toolgate.upstream.pool import discovery, health, kept_definitions
from toolgate.upstream.stdio import children

_INTRO: Final = """
All input is bounded. Limits marked `(setting)`, `(record)`, `(task)` or `(request)` can be changed there; the
others are constants of this version.
"""
_POOL: Final = contract.DEFAULT_LIMITS
_HTTP: Final = client_connection.HttpLimits()


def limits_page() -> str:
    """limits.md"""
    sections = {
        "Requests": _requests(),
        "Sessions and lists": _lists(),
        "Servers": _servers(),
        "Definitions": _definitions(),
        "Search": _search(),
        "Calls": call_limits.call_limits(),
        "Approvals": call_limits.approval_limits(),
        "Rate limits and quotas": call_limits.quota_limits(),
        "Chats": call_limits.chat_limits(),
        "Input requests and notifications": call_limits.input_limits(),
        "Packages": run_limits.package_limits(),
        "Modules": run_limits.module_limits(),
        "Guests": run_limits.guest_limits(),
        "Invocations": run_limits.invocation_limits(),
        "Registry": _registry(),
        "Nodes and gRPC": _fleet(),
        "Process": _process(),
    }
    head = ("what", "limit", "above the limit")
    return page("Limits", _INTRO, *(f"## {title}\n\n{table(head, rows)}" for title, rows in sections.items()))


def _requests() -> Rows:
    return (
        ("request body", size(connection.MAX_BODY_BYTES), "413 `too_large`"),
        (
            "bytes of a larger body that are read, so that clients get the 413",
            size(connection.MAX_DISCARDED_BYTES),
            "connection closed",
        ),
        (
            "request line and headers",
            size(connection.MAX_HEAD_BYTES),
            "431 `head_too_large`, connection closed",
        ),
        ("query string", size(parsing.MAX_QUERY_BYTES), "400 `invalid_request`"),
        ("nesting of JSON", f"{parsing.MAX_DEPTH} levels", "400 `parse_error`"),
        ("digits of a number", f"{parsing.MAX_DIGITS}", "400 `parse_error`"),
        ("objects and arrays in a body", f"{parsing.MAX_CONTAINERS:,}", "400 `parse_error`"),
        ("chunks of a body", f"{connection.MAX_BODY_PARTS:,}", "413 `too_large`"),
        ("time to send a request or read a response", duration(connection.REQUEST_S), "connection closed"),
        ("idle connection", duration(connection.KEEP_ALIVE_S), "connection closed"),
        ("pipelined requests on one connection", f"{connection.MAX_PIPELINED}", "connection closed"),
    )


def _lists() -> Rows:
    most_tools = Settings.model_fields["max_tools"].default
    expired = "`unknown_session`, once the session has left its node's table"
    return (
        ("sessions on a node", f"{session.DEFAULT_LIMITS.max_sessions:,}", "503 `session_limit`"),
        ("idle time of a session", duration(session.IDLE_S), "`unknown_session`"),
        ("lifetime of a session id", duration(session.LIFETIME_S), expired),
        (
            "a session id, which contains the session's selection",
            size(session.MAX_ID_BYTES),
            "`invalid_params`",
        ),
        (
            "requests without a response on an SSE stream",
            f"{session.DEFAULT_LIMITS.max_stream_requests}",
            "503 `session_limit`",
        ),
        ("messages in a batch (2025-03-26)", f"{session_transports.MAX_BATCH}", "400 `invalid_request`"),
        (
            "all responses to a batch",
            size(session.DEFAULT_LIMITS.max_batch_bytes),
            "`mcp_output_too_large` for the remaining ones",
        ),
        ("entries of `?tools=` or `?servers=`", f"{layers.MAX_ENTRIES:,}", "400 `invalid_request`"),
        ("entries with wildcards", f"{layers.MAX_WILDCARDS}", "400 `invalid_request`"),
        ("a pattern", f"{patterns.MAX_PATTERN} characters", "rejected"),
        ("a pattern of prompts or resources", f"{patterns.MAX_KIND_PATTERN:,} characters", "rejected"),
        ("patterns in a list of a record", f"{patterns.MAX_LISTED:,}", "`invalid_record`"),
        ("patterns with wildcards in such a list", f"{patterns.MAX_LISTED_WILDCARDS}", "`invalid_record`"),
        ("tools that a scope lists (setting)", f"{most_tools}", "find tools, or `too_many_tools`"),
        ("time that a client may cache a list", duration(view.TTL_MS / 1000), "the client requests it again"),
    )


def _servers() -> Rows:
    most_children = Settings.model_fields["max_children"].default
    waits = f"waits {_POOL.backoff_s:g} s to {_POOL.backoff_max_s:g} s"
    breaker = f"calls fail at once; one attempt every {duration(_HTTP.cooldown_s)}"
    starts = f"{_POOL.max_starts} in {duration(_POOL.start_window_s)}, {waits}"
    return (
        ("id of a server", f"{names.MAX_SERVER_ID} characters", "`invalid_record`"),
        ("a server file", size(directory.MAX_FILE_BYTES), "reported; the last valid version applies"),
        ("start, until the first response", duration(contract.START_TIMEOUT_S), "stopped, started again"),
        (
            "start by a package runner",
            f"{duration(servers.RUNNER_START_TIMEOUT_S)} (`start_timeout_s` of a record)",
            "stopped, started again",
        ),
        (
            "time that a call waits for a start",
            duration(_POOL.slow_start_s),
            "`mcp_unavailable`; the start continues",
        ),
        ("starts", starts, "down until the next start"),
        (
            "wait before the next attempt to connect to a URL",
            f"up to {duration(_POOL.reconnect_max_s)}",
            "down until the next attempt",
        ),
        (
            "`Retry-After` of a server",
            duration(responses.MAX_RETRY_AFTER_S),
            "the gateway tries again at the limit",
        ),
        ("failed attempts to connect in a row", f"{_HTTP.max_failed_connects}", breaker),
        ("wait after a permanent failure", duration(health.FATAL_WAIT_S), "a call starts the server again"),
        ("a message: a line of stdio, or an event", size(contract.MAX_MESSAGE_BYTES), "the connection ends"),
        ("stderr kept", size(health.STDERR_TAIL_BYTES), "the oldest is dropped"),
        (
            "stop: stdin closed, SIGTERM, SIGKILL",
            f"{duration(children.STOP_STEP_S)} a step",
            "killed",
        ),
        (
            "per-session connections to a server",
            f"{_POOL.session_connections}",
            "`mcp_busy` at once",
        ),
        (
            "idle time of a per-session connection",
            duration(_POOL.session_idle_s),
            "closed; the next call opens another",
        ),
        (
            "child processes (setting)",
            f"{most_children}",
            "an idle server is stopped; else the call waits, then `mcp_busy`",
        ),
        (
            "servers whose lists are cached for the next start",
            f"{kept_definitions.MAX_SERVERS:,}, {size(kept_definitions.MAX_BYTES)}",
            "the oldest are dropped",
        ),
    )


def _definitions() -> Rows:
    template = f"{listings.MAX_TEMPLATE_BYTES} bytes, {listings.MAX_EXPRESSIONS} expressions"
    sizes = ", ".join(f"{form.kind} {size(form.max_bytes)}" for form in discovery.FORMS.values())
    return (
        (
            "tools, prompts, resources, templates of a server",
            f"{checks.MAX_DEFINITIONS:,} of each",
            "the rest is omitted, and reported",
        ),
        ("a list", f"{discovery.MAX_PAGES} pages; {sizes}", "the rest is omitted, and reported"),
        ("time for all pages", duration(_POOL.list_timeout_s), "the last good list applies"),
        ("name of a tool", f"{names.MAX_TOOL_NAME} characters", "it gets an alias"),
        (
            "name of a tool that gets an alias",
            f"{naming.MAX_NATIVE_NAME} characters",
            "the tool is quarantined",
        ),
        ("name of a prompt", f"{listings.MAX_PROMPT_NAME} characters", "the prompt is quarantined"),
        ("arguments of a prompt", f"{listings.MAX_ARGUMENTS}", "the prompt is quarantined"),
        ("URI of a resource", size(listings.MAX_URI_BYTES), "the resource is quarantined"),
        ("URI template", template, "the template is quarantined"),
        (
            "all templates, as work to match them",
            f"{listings.MAX_WORK:,} characters",
            "the other templates are quarantined",
        ),
        ("description", size(checks.MAX_DESCRIPTION_BYTES), "the definition is quarantined"),
        ("schema", size(definitions.MAX_SCHEMA_BYTES), "the tool is quarantined"),
        ("depth of a schema", f"{checks.MAX_SCHEMA_DEPTH} levels", "the tool is quarantined"),
    )


def _search() -> Rows:
    query = f"{word_search.MAX_QUERY_CHARS:,} characters, {word_search.MAX_QUERY_TERMS} different terms"
    arguments = f"{word_search.MAX_PARAMETER_CHARS:,} characters"
    return (
        ("a query", query, "the rest is ignored"),
        ("one text of a tool", f"{word_search.MAX_TEXT_CHARS:,} characters", "the rest is not searched"),
        ("names and descriptions of arguments", arguments, "the rest is not searched"),
        ("embeddings kept between runs", f"{semantic.MAX_VECTORS:,}", "the oldest are dropped"),
        ("wait for the embedding model", duration(searching.SEMANTIC_TIMEOUT_S), "results by words only"),
        ("a query of `search_tools`", size(find_tools.MAX_QUERY_BYTES), "`mcp_invalid_arguments`"),
        (
            "results of `search_tools`",
            f"{find_tools.DEFAULT_RESULTS}, at most {find_tools.MAX_RESULTS}",
            "use a narrower query",
        ),
        (
            "queued searches: on a node, of one caller",
            f"{searching.MAX_WAITING}, {searching.MAX_WAITING_EACH}",
            "`mcp_busy` at once",
        ),
        ("time for a search, with building its index", duration(searching.SEARCH_TIMEOUT_S), "`mcp_timeout`"),
        ("`q` of `/api/catalog/search`", f"{rest_catalog.MAX_QUERY_CHARS:,} characters", "`invalid_request`"),
        ("results of it", f"the best {catalog.MAX_FOUND:,}", "use more words or filters"),
        ("schemas in a page of the catalog", size(rest_request.MAX_PAGE_BYTES), "the page ends sooner"),
    )


def _registry() -> Rows:
    kept = (
        f"{store.KEEP_LOG_REVISIONS:,} revisions and {duration(store.KEEP_LOG_MS / 1000)}, whichever is more"
    )
    yaml = f"{size(yaml_documents.MAX_YAML_BYTES)}, {yaml_documents.MAX_DEPTH}, {yaml_documents.MAX_NODES:,}"
    return (
        ("records of each kind", f"{commit.MAX_RECORDS:,}", "`invalid_record`"),
        (
            "integration choices of one caller",
            f"{policy_bodies.MAX_CHOICES}",
            "`invalid_record`",
        ),
        (
            "changes of integrations in a minute: of one caller, of all",
            f"{operator_policy.MAX_CHANGES}, {operator_policy.MAX_ALL_CHANGES}",
            "429 `too_many_attempts`",
        ),
        ("changes in one `apply`", f"{rest_changes.MAX_CHANGES:,}", "`invalid_request`"),
        ("a YAML file: size, levels, values", yaml, "`invalid_record`"),
        ("tools in a skill's manifest", f"{skills.MAX_SKILL_TOOLS:,}", "`invalid_record`"),
        ("records of a page", f"{rest_request.PAGE}, at most {rest_request.MAX_PAGE:,}", "the next page"),
        ("change log", kept, "older changes are compacted"),
        ("changes of a record that `history` shows", f"{history.MAX_HISTORY}", "`compacted`"),
        ("concurrent watches of one caller", f"{watches.MAX_WATCHES}", "`session_limit`"),
        (
            "wait for `Toolgate-Min-Revision`",
            duration(routing.MAX_REVISION_WAIT_S),
            "412 `revision_not_reached`",
        ),
    )


def _fleet() -> Rows:
    limits = sync.DEFAULT_LIMITS
    return (
        ("a gRPC request", size(grpc_dispatch.MAX_REQUEST_BYTES), "`RESOURCE_EXHAUSTED`"),
        ("a node's report", size(grpc_reports.MAX_REPORT_BYTES), "`RESOURCE_EXHAUSTED`"),
        ("concurrent gRPC calls", f"{grpc_server.MAX_CALLS:,}", "`RESOURCE_EXHAUSTED`"),
        ("nodes that report", f"{grpc_reports.MAX_NODES:,}", "the report is rejected"),
        ("silence of a node", duration(reports.LOST_AFTER_MS / 1000), "shown as lost"),
        ("silence of the control plane", duration(limits.silence_s), "the node opens a new watch"),
        (
            "polls of a node",
            f"every {limits.poll_min_s:g} to {duration(limits.poll_max_s)}",
            "a safety net",
        ),
        ("wait of a node between attempts", f"up to {duration(limits.backoff_max_s)}", "it never gives up"),
    )


def _process() -> Rows:
    wrong = f"{identity.MAX_ATTEMPTS} in {duration(identity.WINDOW_S)}"
    most, share = resources.max_for_one(subscriptions.MAX_OPEN), subscriptions.MAX_OPEN // resources.SHARE
    return (
        (
            "the administrator's key",
            f"at least {identity.MIN_KEY_CHARS} characters",
            "the gateway does not start",
        ),
        ("wrong credentials from one address", wrong, "429 `too_many_attempts`"),
        ("concurrent browser logins", f"{issuer.MAX_CONCURRENT_LOGINS}", "429 `too_many_attempts`"),
        ("files of the console", size(console.MAX_BYTES), "the gateway does not start"),
        ("event streams", f"{subscriptions.MAX_OPEN:,}", "503 `session_limit`"),
        (
            "event streams of one caller",
            f"{most:,}; once {most:,} are open in total, {share:,}",
            "503 `session_limit`",
        ),
        (
            "audit file, by default",
            size(writer.ROTATE_BYTES),
            f"rotated to `audit.jsonl.1`; {writer.KEEP_FILES} files are kept",
        ),
        (
            "audit lines buffered while the disk fails",
            size(writer.MAX_BEGIN_BYTES),
            "calls fail with `mcp_unavailable`; beyond twice that, events are lost and counted",
        ),
        (
            "audit events in one export",
            f"{ControlLimits().max_export:,}",
            "the last line reports it",
        ),
        (
            "prompts, or resources, of a server that a learned policy names",
            f"{learn.MAX_NAMED_OF_KIND}",
            "all of that kind are allowed",
        ),
        ("unused tools listed for each of several holders", f"{rest_usage.MAX_NAMED}", "counted"),
        ("audit events around a call", f"{2 * statements.MAX_AROUND}", "the nearest"),
        ("audit events in one upload of a node's log", f"{grpc_audit.MAX_EVENTS:,}", "`INVALID_ARGUMENT`"),
        ("one audit event", size(files.MAX_LINE_BYTES), "cannot be queried"),
        (
            "spans queued for a collector",
            f"{tracing.MAX_QUEUED_SPANS:,}",
            "further spans are dropped, and a warning is logged",
        ),
        (
            "drain at stop (setting)",
            duration(Settings.model_fields["drain_s"].default),
            "the remaining requests are aborted",
        ),
    )
