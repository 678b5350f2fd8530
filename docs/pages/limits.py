"""The published limits: each number read from the constant that the code goes by."""

from collections.abc import Sequence
from typing import Final

from pages.markdown import page, table
from toolgate.audit import lines, sinks, statements
from toolgate.audit import log as audit_log
from toolgate.catalog import (
    aliases,
    definitions,
    find_tools,
    listings,
    members,
    rows,
    schemas,
    search,
    skills,
    templates,
    words,
)
from toolgate.catalog import changes as tool_changes
from toolgate.catalog import entries as search_entries
from toolgate.chat import calls, deltas, hidden, replies, responses_tools
from toolgate.chat import messages as chat_messages
from toolgate.gateway import (
    finding,
    identity,
    in_place,
    inputs,
    oidc_login,
    parking,
    places,
    purses,
    refusals,
    sealed_ids,
    searching,
    spending,
    subscriptions,
    tool_runs,
    vectors,
    view,
)
from toolgate.gateway import watches as resource_watches
from toolgate.govern import approval_webhook, catalog, change_rate, changes, history, watches
from toolgate.govern import audit as govern_audit
from toolgate.model import allowances, approvals, chat, invocations, names, reports, runners, workloads
from toolgate.model.packages import MAX_PART_BYTES
from toolgate.packages import artifacts, entries, manifest, modules, unpacked, uploads
from toolgate.policy import allowances as policy_allowances
from toolgate.policy import layers, learn, patterns
from toolgate.registry import approvals as desk
from toolgate.registry import bodies, directory, key_bodies, store, sync, yaml_documents
from toolgate.registry import invocations as queue
from toolgate.settings import Settings
from toolgate.surfaces.console import files as console_files
from toolgate.surfaces.grpc import audit as grpc_audit
from toolgate.surfaces.grpc import invocations as grpc_invocations
from toolgate.surfaces.grpc import reports as grpc_reports
from toolgate.surfaces.grpc import rpc
from toolgate.surfaces.grpc import server as grpc_server
from toolgate.surfaces.http import intake, protocol, server
from toolgate.surfaces.mcp import asking, batches, capabilities, seals, session, sse
from toolgate.surfaces.rest import catalog as rest_catalog
from toolgate.surfaces.rest import change_shapes, freshness, learning_shapes, paging
from toolgate.surfaces.wasm import chat_session, context, guest_tools, mcp_calls, session_params
from toolgate.telemetry import tracing
from toolgate.upstream import child, health, http_connection, known, limits, link, lists, relay, restarts
from toolgate.upstream.models import client as models
from toolgate.upstream.models import lists as model_lists
from toolgate.upstream.streamable import messages
from toolgate.wasm import compile_limits, compiled, compiling, guest, wasi, wasi_poll

Rows = Sequence[tuple[str, str, str]]

_INTRO: Final = """
Everything that comes from outside is bounded. Limits that a setting or a record can change are marked so;
the others are constants of this version.
"""
_POOL: Final = limits.DEFAULT_LIMITS
_HTTP: Final = http_connection.HttpLimits()
_BUDGETS: Final = bodies.BudgetsBody()


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
        "Packages": _packages(),
        "Modules": _modules(),
        "Guests": _guests(),
        "Invocations": _invocations(),
        "Registry": _registry(),
        "Nodes and gRPC": _fleet(),
        "Process": _process(),
    }
    head = ("what", "limit", "past it")
    return page("Limits", _INTRO, *(f"## {title}\n\n{table(head, rows)}" for title, rows in sections.items()))


def _requests() -> Rows:
    return (
        ("body", _size(protocol.MAX_BODY_BYTES), "413 `too_large`"),
        ("what is read past it so that clients get the 413", _size(protocol.MAX_DISCARDED_BYTES), "cut off"),
        ("head", _size(protocol.MAX_HEAD_BYTES), "431 `head_too_large`, connection closed"),
        ("query", _size(intake.MAX_QUERY_BYTES), "400 `invalid_request`"),
        ("nesting of JSON", f"{intake.MAX_DEPTH} levels", "400 `parse_error`"),
        ("digits of a number", f"{intake.MAX_DIGITS}", "400 `parse_error`"),
        ("objects and arrays in a body", f"{intake.MAX_CONTAINERS:,}", "400 `parse_error`"),
        ("pieces a body comes in", f"{protocol.MAX_BODY_PARTS:,}", "413 `too_large`"),
        ("time to send a request or read an answer", _time(server.REQUEST_S), "connection closed"),
        ("connection without a request", _time(server.KEEP_ALIVE_S), "connection closed"),
        ("requests waiting on one connection", f"{protocol.MAX_PIPELINED}", "connection closed"),
    )


def _lists() -> Rows:
    most_tools = Settings.model_fields["max_tools"].default
    forgotten = "`unknown_session`, once its node has forgotten it"
    return (
        ("legacy sessions a node holds", f"{session.MAX_SESSIONS:,}", "503 `session_limit`"),
        ("a session without a request", _time(session.IDLE_S), "`unknown_session`"),
        ("a session in all", _time(session.LIFETIME_S), forgotten),
        ("what a session asks for, as its id", _size(session.MAX_ID_BYTES), "`invalid_params`"),
        ("requests without an answer on an SSE stream", f"{sse.MAX_UNANSWERED}", "503 `session_limit`"),
        ("messages in a batch (2025-03-26)", f"{batches.MAX_BATCH}", "400 `invalid_request`"),
        (
            "responses to a batch together",
            _size(batches.MAX_RESPONSE_BYTES),
            "`mcp_output_too_large` for the others",
        ),
        ("entries of `?tools=` or `?servers=`", f"{layers.MAX_ENTRIES:,}", "400 `invalid_request`"),
        ("entries with wildcards", f"{layers.MAX_WILDCARDS}", "400 `invalid_request`"),
        ("a pattern", f"{patterns.MAX_PATTERN} characters", "refused"),
        ("a pattern of prompts or resources", f"{patterns.MAX_KIND_PATTERN:,} characters", "refused"),
        ("patterns in a list of a record", f"{patterns.MAX_LISTED:,}", "`invalid_record`"),
        ("those with wildcards among them", f"{patterns.MAX_LISTED_WILDCARDS}", "`invalid_record`"),
        ("tools that a scope lists (setting)", f"{most_tools}", "searched, or `too_many_tools`"),
        ("how long a client may keep a list", _time(view.TTL_MS / 1000), "it asks again"),
    )


def _servers() -> Rows:
    most_children = Settings.model_fields["max_children"].default
    waits = f"waits {_POOL.backoff_s:g} s to {_POOL.backoff_max_s:g} s"
    breaker = f"calls fail at once; one try in {_time(_HTTP.cooldown_s)}"
    starts = f"{_POOL.max_starts} in {_time(_POOL.start_window_s)}, {waits}"
    return (
        ("id of a server", f"{names.MAX_SERVER_ID} characters", "`invalid_record`"),
        ("a server file", _size(directory.MAX_FILE_BYTES), "reported; the last good version stays"),
        ("start, up to the first answer", _time(link.START_TIMEOUT_S), "stopped, tried again"),
        (
            "the same for package runners",
            f"{_time(runners.RUNNER_START_TIMEOUT_S)} (`start_timeout_s` of a record)",
            "stopped, tried again",
        ),
        ("wait of a call for a start", _time(_POOL.slow_start_s), "`mcp_unavailable`; the start continues"),
        ("starts", starts, "down until the next try"),
        (
            "wait for a server behind a URL",
            f"up to {_time(_POOL.reconnect_max_s)}",
            "down until the next try",
        ),
        ("what its `Retry-After` may ask for", _time(messages.MAX_RETRY_AFTER_S), "tried again all the same"),
        ("attempts to connect that fail in a row", f"{_HTTP.max_failed_connects}", breaker),
        ("wait after a failure that stays", _time(restarts.FATAL_WAIT_S), "a call may try again"),
        ("a message: stdio line or event", _size(link.MAX_MESSAGE_BYTES), "the connection ends"),
        ("stderr that is kept", _size(health.STDERR_TAIL_BYTES), "the oldest goes"),
        ("stop: stdin closed, TERM, KILL", f"{_time(child.STOP_STEP_S)} between them", "killed"),
        (
            "sessions with a link of their own, per server",
            f"{_POOL.session_links}",
            "`mcp_busy` at once",
        ),
        ("a session's own link, unused", _time(_POOL.session_idle_s), "closed; the next call opens another"),
        (
            "child processes (setting)",
            f"{most_children}",
            "an idle server gives way; else the call waits, `mcp_busy`",
        ),
        (
            "servers whose lists are kept for the next start",
            f"{known.MAX_SERVERS:,}, {_size(known.MAX_BYTES)}",
            "the oldest are forgotten",
        ),
    )


def _definitions() -> Rows:
    template = f"{templates.MAX_TEMPLATE_BYTES} bytes, {templates.MAX_EXPRESSIONS} expressions"
    sizes = ", ".join(f"{form.kind} {_size(form.max_bytes)}" for form in lists.FORMS.values())
    return (
        (
            "tools, prompts, resources, templates of a server",
            f"{members.MAX_LISTED:,} of each",
            "the rest is left out, and said",
        ),
        ("a list", f"{lists.MAX_PAGES} pages; {sizes}", "the rest is left out, and said"),
        ("time for all pages", _time(_POOL.list_timeout_s), "the last good list stays"),
        ("name of a tool", f"{names.MAX_TOOL_NAME} characters", "it gets an alias"),
        (
            "name of a tool that gets an alias",
            f"{aliases.MAX_NATIVE_NAME} characters",
            "that tool is left out",
        ),
        ("name of a prompt", f"{listings.MAX_PROMPT_NAME} characters", "that prompt is left out"),
        ("arguments of a prompt", f"{listings.MAX_ARGUMENTS}", "that prompt is left out"),
        ("URI of a resource", _size(listings.MAX_URI_BYTES), "that resource is left out"),
        ("URI template", template, "that template is left out"),
        (
            "all of them, as work to match",
            f"{templates.MAX_WORK:,} characters",
            "the rest is left out, and said",
        ),
        ("description", _size(members.MAX_DESCRIPTION_BYTES), "that one is left out"),
        ("schema", _size(definitions.MAX_SCHEMA_BYTES), "that tool is left out"),
        ("depth of a schema", f"{schemas.MAX_SCHEMA_DEPTH} levels", "that tool is left out"),
    )


def _search() -> Rows:
    query = f"{search.MAX_QUERY_CHARS:,} characters, {search.MAX_QUERY_TERMS} different terms"
    arguments = f"{search_entries.MAX_PARAMETER_CHARS:,} characters"
    return (
        ("a query", query, "the rest is not looked at"),
        ("a text of a tool", f"{words.MAX_TEXT_CHARS:,} characters", "the rest is not found"),
        ("names and descriptions of arguments", arguments, "the rest is not found"),
        ("vectors kept between runs", f"{vectors.MAX_VECTORS:,}", "the oldest go"),
        ("waiting for the model", _time(searching.PATIENCE_S), "answered by words alone"),
        ("a query of `search_tools`", _size(find_tools.MAX_QUERY_BYTES), "`mcp_invalid_arguments`"),
        ("tools it shows", f"{find_tools.DEFAULT_FOUND}, at most {find_tools.MAX_FOUND}", "a narrower query"),
        (
            "searches that wait: on a node, of one caller",
            f"{finding.MAX_WAITING}, {finding.MAX_WAITING_EACH}",
            "`mcp_busy` at once",
        ),
        ("time for one, the index made first", _time(finding.PATIENCE_S), "`mcp_timeout`"),
        ("`q` of `/api/catalog/search`", f"{rest_catalog.MAX_QUERY_CHARS:,} characters", "`invalid_request`"),
        ("hits of it", f"the best {catalog.MAX_FOUND:,}", "more words, or filters"),
        ("schemas in a page of the catalog", _size(paging.MAX_PAGE_BYTES), "the page ends sooner"),
    )


def _calls() -> Rows:
    most_calls = Settings.model_fields["max_calls"].default
    timeout = f"{_time(_BUDGETS.tool_timeout_ms / 1000)}, at most {_time(limits.CALL_CEILING_S)}"
    return (
        ("time (record)", timeout, "`mcp_timeout`"),
        ("at once, per server (record)", f"{_BUDGETS.max_concurrency}", "the next ones wait"),
        ("waiting, per server", f"{_POOL.queue}", "`mcp_busy` at once"),
        ("at once, on a node (setting)", f"{most_calls}", "the next ones wait, fairly by principal"),
        ("of those, one principal", "four fifths", "the next ones wait"),
        ("waiting, on a node", f"{most_calls}", "`node_busy` at once"),
        ("result (record)", _size(_BUDGETS.max_tool_output_bytes), "cut into valid JSON, marked as cut"),
    )


def _chats() -> Rows:
    budgets = chat.ChatBudgets()
    refused, unusable = "400 `invalid_chat`", "502 `model_unavailable`"
    told = "the model is told so; the tool is not called"
    last = "a last answer without tools"
    forgotten = "what it holds is forgotten, and never run"
    return (
        ("messages, items of `input`", f"{chat_messages.MAX_MESSAGES:,}", refused),
        ("`tools` of a Responses request", f"{responses_tools.MAX_TOOLS:,}", refused),
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
        ("calls of one reply at once", f"{tool_runs.MAX_AT_ONCE}", "they wait"),
        ("calls of one reply", f"{replies.MAX_CALLS:,}", unusable),
        ("arguments of a call", _size(calls.MAX_ARGUMENT_BYTES), told),
        ("a result (record, task, request)", _size(budgets.max_tool_output_bytes), "cut, and says so"),
        (
            "the whole (record, task, request)",
            _time(budgets.wall_clock_ms / 1000),
            "the answer ends, and says so",
        ),
        ("an answer of a model, or one event of it", _size(models.MAX_ANSWER_BYTES), unusable),
        ("a streamed answer that is read here", _size(deltas.MAX_REPLY_BYTES), unusable),
        ("what an id holds of a turn, compressed", _size(hidden.MAX_BYTES), "results are cut, and say so"),
        ("such ids", _time(sealed_ids.LIFETIME_S), forgotten),
        ("what all of them bring into one request", _size(hidden.MAX_SPLICED_BYTES), forgotten),
        ("models of one upstream", f"{model_lists.MAX_MODELS:,}", "the others are not listed"),
    )


def _questions() -> Rows:
    at_once = f"{relay.MAX_ASKS}, {relay.MAX_ASKS_OF_ONE}, {relay.MAX_ASKS_EACH}"
    parked_bytes = f"{_size(parking.MAX_PARKED_BYTES)}, {_size(parking.MAX_PARKED_BYTES_EACH)}"
    parked = f"{parking.MAX_PARKED:,}, {parking.MAX_PARKED_EACH}"
    watched = f"{resource_watches.MAX_WATCHED:,}, {resource_watches.MAX_EACH:,}"
    state = _size(seals.MAX_STATE_BYTES)
    return (
        ("rounds of questions in one call", f"{inputs.MAX_ROUNDS}", "`mcp_unavailable`"),
        ("questions of a stateless server at once", f"{inputs.MAX_INPUTS}", "`mcp_unavailable`"),
        (
            "questions at once: on a connection, to one caller, of one call",
            at_once,
            "the server gets an error",
        ),
        ("questions a session has not answered", f"{asking.MAX_OPEN}", "the server gets an error"),
        ("time for an answer", _time(limits.CALL_CEILING_S), "`mcp_timeout` or `mcp_input_not_given`"),
        ("calls parked for input: on a node, of one caller", parked, "503 `session_limit`"),
        ("what those were asked with", parked_bytes, "503 `session_limit`"),
        ("a `requestState`", _time(seals.LIFETIME_S), "400 `input_state_refused`"),
        ("what a server puts into one", state, "`mcp_unavailable`"),
        ("capabilities of a client", _size(capabilities.MAX_BYTES), "their names alone are passed on"),
        ("a client's `progressToken`", f"{relay.MAX_TOKEN_BYTES} bytes", "`invalid_params`"),
        ("a log message or a word of progress", _size(relay.MAX_SAID_BYTES), "dropped"),
        ("watched resources: of a node, of one client", watched, "503 `session_limit`"),
    )


def _packages() -> Rows:
    path_parts = f"{entries.MAX_PATH_PARTS} parts of {entries.MAX_PATH_PART_BYTES} bytes"
    path = f"{entries.MAX_PATH_BYTES:,} bytes, {path_parts}"
    diff = f"{tool_changes.MAX_DIFF_LINES:,}, {tool_changes.MAX_SHOWN_LINES:,}"
    parts = f"{uploads.MAX_PARTS} of {_size(MAX_PART_BYTES)} each"
    staged = f"{_size(uploads.MAX_OWN_BYTES)}, {_size(uploads.MAX_STAGED_BYTES)}"
    return (
        ("an archive", _size(entries.MAX_ARCHIVE_BYTES), "413 `too_large`"),
        ("what it unpacks to", _size(entries.MAX_UNPACKED_BYTES), "413 `too_large`"),
        ("its files and directories", f"{entries.MAX_FILES:,}", "413 `too_large`"),
        ("a path in it", path, "400 `invalid_record`"),
        ("a manifest", _size(manifest.MAX_MANIFEST_BYTES), "413 `too_large`"),
        ("parts of an upload", parts, "`invalid_request` or 413 `too_large`"),
        ("uploads of one caller at once", f"{uploads.MAX_UPLOADS}", "503 `session_limit`"),
        ("bytes on their way in, of one caller and of all", staged, "503 `session_limit`"),
        ("an upload that nobody finishes", _time(uploads.MAX_AGE_MS / 1000), "forgotten"),
        ("versions of a package", f"{artifacts.MAX_VERSIONS}", "409 `conflict`"),
        ("files of a package that no server uses", _time(unpacked.UNUSED_S), "removed from the node"),
        ("annotations of a tool in the catalog", _size(rows.MAX_ANNOTATIONS_BYTES), "not kept there"),
        ("lines of a diff: of one tool, of all", diff, "the rest is counted, or said to be there"),
    )


def _modules() -> Rows:
    module = f"{_size(workloads.MAX_MODULE_BYTES)}, in parts as archives are"
    counts = (
        f"{compile_limits.MAX_FUNCTIONS:,}, {compile_limits.MAX_IMPORTS:,}, {compile_limits.MAX_EXPORTS:,}"
    )
    kept = f"{compiled.MAX_FILES}, {_size(compiled.MAX_BYTES)}"
    worked, by_the_clock = _time(compile_limits.MAX_CPU_S), _time(compiling.DEADLINE_S)
    compile_time = f"{worked} of a processor, {by_the_clock} by the clock"
    return (
        ("a module", module, "413 `too_large`"),
        ("modules that are kept", f"{modules.MAX_MODULES:,}", "409 `conflict`"),
        ("time to compile one", compile_time, "`invalid_module`"),
        ("memory to compile one", _size(compile_limits.MAX_MEMORY_BYTES), "`invalid_module`"),
        ("functions of one, imports, exports", counts, "`invalid_module`"),
        ("one when it is compiled", _size(compile_limits.MAX_COMPILED_BYTES), "`invalid_module`"),
        ("modules that wait to be compiled", f"{compiling.MAX_WAITING}", "429 `queue_full`"),
        ("compiled modules that a node keeps", kept, "the ones used longest ago are made again when needed"),
        ("a compiled module that no task names", _time(compiled.UNUSED_S), "removed from the node"),
        ("a module that cannot be compiled", _time(compiled.REFUSED_S), "not tried again before that"),
    )


def _guests() -> Rows:
    params = f"{session_params.MAX_PARAMS}, {_size(session_params.MAX_PARAM_BYTES)}"
    return (
        ("a line of the log", _size(invocations.MAX_LINE_BYTES), "`-EINVAL`"),
        ("bytes of one read or write of WASI", _size(wasi.MAX_TRANSFER_BYTES), "as many, and another call"),
        ("buffers of one", f"{wasi.MAX_IOVECS:,}", "`EINVAL`"),
        ("events that one call waits for", f"{wasi_poll.MAX_SUBSCRIPTIONS:,}", "`EINVAL`"),
        ("messages of a chat session", _size(chat_session.MAX_SESSION_BYTES), "`-ENOMEM`"),
        ("its parameters, and what they hold", params, "`-ENOMEM`"),
        ("functions of the guest in it", f"{chat_session.MAX_GUEST_TOOLS}", "`-ENOMEM`"),
        (
            "what one of them says",
            _size(guest_tools.MAX_OUTPUT_BYTES),
            "the model is told `tool_exec_failed`",
        ),
        ("chats within functions of chats", f"{guest.MAX_DEPTH} deep", "`-EAGAIN`"),
        ("sessions and answers of a guest together", _size(chat_session.MAX_KEPT_BYTES), "`-ENOMEM`"),
        ("results of tools that it had no room for", _size(mcp_calls.MAX_KEPT_BYTES), "`-ENOMEM`"),
        ("refusals of one run that are audited", f"{context.MAX_DENIALS_RECORDED}", "not audited"),
    )


def _budgets() -> Rows:
    granted = f"a tenth of what is left, {policy_allowances.MAX_GRANT} at most"
    return (
        ("calls per minute, calls per day", f"1 to {allowances.MAX_CALLS:,}", "`invalid_record`"),
        ("tokens per day", f"1 to {allowances.MAX_TOKENS:,}", "`invalid_record`"),
        ("calls a node is granted at once", granted, "it asks again"),
        ("tokens that control does not know of", _time(spending.REPORT_EVERY_S), "they are reported"),
        ("a refusal that a node remembers", _time(purses.REMEMBERED_S), "it asks again"),
        ("budgets in one question of a node", f"{allowances.MAX_DRAWS}", "`INVALID_ARGUMENT`"),
    )


def _approvals() -> Rows:
    kept = f"{desk.KEEP_CLOSED:,}, for {_time(desk.KEEP_CLOSED_MS / 1000)}"
    each = f"{desk.MAX_PENDING_EACH} of a principal, {desk.MAX_PENDING:,} in all"
    return (
        ("calls that wait for a person", each, "`mcp_busy`"),
        ("how long one waits, and an approval is good", _time(desk.EXPIRES_MS / 1000), "it has expired"),
        ("answer of a person who is asked in place", _time(in_place.ANSWER_S), "`mcp_approval_required`"),
        ("age of a webhook's signature", _time(approval_webhook.WINDOW_S), "401 `unauthenticated`"),
        ("rounds of a call under its approval, after it", _time(desk.ROUND_MS / 1000), "they wait anew"),
        ("arguments that people are shown", _size(approvals.MAX_ARGUMENT_BYTES), "cut, visibly"),
        ("characters of a reason", f"{approvals.MAX_REASON}", "400 `invalid_request`"),
        ("approvals that are decided on", kept, "the oldest are forgotten"),
    )


def _invocations() -> Rows:
    kept = f"{queue.KEEP_ENDED:,} of a task, for {_time(queue.KEEP_ENDED_MS / 1000)}"
    return (
        ("input", _size(invocations.MAX_INPUT_BYTES), "413 `too_large`"),
        ("invocations that wait", f"{queue.MAX_QUEUED:,}", "429 `queue_full`"),
        ("invocations that have ended", kept, "the oldest are forgotten"),
        (
            "lines of a log, and their size",
            f"{invocations.MAX_LOG_LINES:,}, {_size(invocations.MAX_LOG_BYTES)}",
            "the oldest are dropped",
        ),
        ("calls that an invocation tells of", f"{invocations.MAX_CALLS_KEPT}", "the others are counted"),
        ("silence of a node about what it runs", _time(queue.LEASE_MS / 1000), "it is taken for lost"),
        ("invocations that a node takes at once", f"{grpc_invocations.MAX_CLAIMED}", "it asks again"),
    )


def _registry() -> Rows:
    kept = f"{store.KEEP_REVISIONS:,} revisions and {_time(store.KEEP_MS / 1000)}, whichever is more"
    yaml = f"{_size(yaml_documents.MAX_YAML_BYTES)}, {yaml_documents.MAX_DEPTH}, {yaml_documents.MAX_NODES:,}"
    return (
        ("records of each kind", f"{changes.MAX_RECORDS:,}", "`invalid_record`"),
        (
            "servers that one caller switches on or off for itself",
            f"{key_bodies.MAX_CHOICES}",
            "`invalid_record`",
        ),
        (
            "changes of integrations in a minute, of one caller and of all",
            f"{change_rate.MAX_CHANGES}, {change_rate.MAX_ALL_CHANGES}",
            "429 `too_many_attempts`",
        ),
        ("changes in one `apply`", f"{change_shapes.MAX_CHANGES:,}", "`invalid_request`"),
        ("a YAML file, its levels and its values", yaml, "`invalid_record`"),
        ("tools in a skill's manifest", f"{skills.MAX_SKILL_TOOLS:,}", "`invalid_record`"),
        ("records of a page", f"{paging.PAGE}, at most {paging.MAX_PAGE:,}", "the next page"),
        ("change log", kept, "older changes are compacted"),
        ("changes of a record that `history` shows", f"{history.MAX_HISTORY}", "`compacted`"),
        ("watches of one caller", f"{watches.MAX_WATCHES}", "`session_limit`"),
        ("wait for `Toolgate-Min-Revision`", _time(freshness.PATIENCE_S), "412 `revision_not_reached`"),
    )


def _fleet() -> Rows:
    limits = sync.DEFAULT_LIMITS
    return (
        ("a request over gRPC", _size(rpc.MAX_REQUEST_BYTES), "`RESOURCE_EXHAUSTED`"),
        ("a node's report", _size(grpc_reports.MAX_REPORT_BYTES), "`RESOURCE_EXHAUSTED`"),
        ("calls over gRPC at once", f"{grpc_server.MAX_CALLS:,}", "`RESOURCE_EXHAUSTED`"),
        ("nodes that report", f"{grpc_reports.MAX_NODES:,}", "the report is refused"),
        ("silence of a node", _time(reports.LOST_AFTER_MS / 1000), "shown as lost"),
        ("silence of control", _time(limits.silence_s), "the watch is opened anew"),
        ("polls of a node", f"every {limits.poll_min_s:g} to {_time(limits.poll_max_s)}", "a safety net"),
        ("wait of a node between tries", f"up to {_time(limits.backoff_max_s)}", "it goes on for ever"),
    )


def _process() -> Rows:
    wrong = f"{refusals.MAX_WRONG} in {_time(refusals.WINDOW_S)}"
    most, share = places.most_for_one(subscriptions.MAX_OPEN), subscriptions.MAX_OPEN // places.SHARE
    return (
        ("key of an administrator", f"at least {identity.MIN_KEY_CHARS} characters", "refuses to start"),
        ("wrong credentials from one address", wrong, "429 `too_many_attempts`"),
        ("logins with a browser at once", f"{oidc_login.MAX_AT_ONCE}", "429 `too_many_attempts`"),
        ("files of the console", _size(console_files.MAX_BYTES), "refuses to start"),
        ("event streams", f"{subscriptions.MAX_OPEN:,}", "503 `session_limit`"),
        (
            "event streams of one caller",
            f"{most:,}; once {most:,} are open in all, {share:,}",
            "503 `session_limit`",
        ),
        (
            "audit file, by default",
            _size(sinks.ROTATE_BYTES),
            f"becomes `audit.jsonl.1`; {sinks.KEEP_FILES} are kept",
        ),
        (
            "audit lines held while the disk fails",
            _size(audit_log.BEGIN_BYTES),
            "calls are not sent (`mcp_unavailable`); past twice that, events are lost, and counted",
        ),
        ("audit events in one export", f"{govern_audit.MAX_EXPORT:,}", "the last line says so"),
        ("prompts, or resources, of a server that a lesson names", f"{learn.MAX_NAMED}", "all of its kind"),
        ("unused tools that are named of each of several", f"{learning_shapes.MAX_NAMED}", "counted"),
        ("audit events in a story", f"{2 * statements.AROUND}", "the nearest"),
        ("audit events in one piece of a node's log", f"{grpc_audit.MAX_EVENTS:,}", "`INVALID_ARGUMENT`"),
        ("one audit event", _size(lines.MAX_LINE_BYTES), "cannot be asked for"),
        ("spans that wait for a collector", f"{tracing.MAX_WAITING:,}", "more are dropped, and it is logged"),
        ("drain at stop (setting)", _time(Settings.model_fields["drain_s"].default), "the rest is cut off"),
    )


def _size(count: int) -> str:
    return f"{count // 2**20} MiB" if count % 2**20 == 0 else f"{count // 2**10} KiB"


def _time(seconds: float) -> str:
    if seconds >= 3600 and seconds % 3600 == 0:
        return f"{seconds / 3600:g} h"
    return f"{seconds / 60:g} min" if seconds > 300 and seconds % 60 == 0 else f"{seconds:g} s"
