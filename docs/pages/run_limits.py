"""The limits of packages, modules, guests and invocations."""

from pages.markdown import Rows, duration, size
from toolgate.catalog import definitions as tool_changes
from toolgate.catalog import (
    rows,
)
from toolgate.model import invocations, tasks
from toolgate.model.packages import MAX_PART_BYTES
from toolgate.packages import artifacts, connector, entries, manifest, uploads
from toolgate.registry import invocations as queue
from toolgate.surfaces.grpc import reports as grpc_reports
from toolgate.surfaces.wasm import chat_session as guest_tools
from toolgate.surfaces.wasm import chat_session as session_params
from toolgate.surfaces.wasm import context
from toolgate.wasm import compiling, guest, module_cache, wasi
from toolgate.wasm import wasi as wasi_poll

HOST = context.HostLimits()
UPLOADS = uploads.UploadLimits()


def package_limits() -> Rows:
    path_parts = f"{entries.MAX_PATH_PARTS} parts of {entries.MAX_PATH_PART_BYTES} bytes"
    path = f"{entries.MAX_PATH_BYTES:,} bytes, {path_parts}"
    diff = f"{tool_changes.MAX_DIFF_LINES:,}, {tool_changes.MAX_SHOWN_LINES:,}"
    parts = f"{uploads.MAX_PARTS} of {size(MAX_PART_BYTES)} each"
    staged = f"{size(UPLOADS.max_own_bytes)}, {size(UPLOADS.max_staged_bytes)}"
    return (
        ("an archive", size(entries.MAX_ARCHIVE_BYTES), "413 `too_large`"),
        ("unpacked size of an archive", size(entries.MAX_UNPACKED_BYTES), "413 `too_large`"),
        ("files and directories in an archive", f"{entries.MAX_FILES:,}", "413 `too_large`"),
        ("a path in an archive", path, "400 `invalid_record`"),
        ("a manifest", size(manifest.MAX_MANIFEST_BYTES), "413 `too_large`"),
        ("parts of an upload", parts, "`invalid_request` or 413 `too_large`"),
        ("concurrent uploads of one caller", f"{UPLOADS.max_uploads}", "503 `session_limit`"),
        ("bytes of unfinished uploads: of one caller, of all", staged, "503 `session_limit`"),
        ("idle time of an unfinished upload", duration(uploads.MAX_AGE_MS / 1000), "deleted"),
        ("versions of a package", f"{artifacts.MAX_VERSIONS}", "409 `conflict`"),
        (
            "time without a server for the files of a package",
            duration(connector.UNUSED_S),
            "deleted on the node",
        ),
        ("annotations of a tool in the catalog", size(rows.MAX_ANNOTATIONS_BYTES), "dropped"),
        ("lines of a diff: of one tool, of all", diff, "further lines are counted, further diffs omitted"),
    )


def module_limits() -> Rows:
    module = f"{size(tasks.MAX_MODULE_BYTES)}, uploaded in parts"
    counts = f"{compiling.LIMITS.functions:,}, {compiling.LIMITS.imports:,}, {compiling.LIMITS.exports:,}"
    kept = f"{module_cache.MAX_FILES}, {size(module_cache.MAX_BYTES)}"
    worked, by_the_clock = duration(compiling.LIMITS.cpu_s), duration(compiling.LIMITS.deadline_s)
    compile_time = f"{worked} of CPU time, {by_the_clock} in total"
    return (
        ("a module", module, "413 `too_large`"),
        ("stored modules", f"{artifacts.MAX_MODULES:,}", "409 `conflict`"),
        ("time to compile a module", compile_time, "`invalid_module`"),
        ("memory to compile a module", size(compiling.LIMITS.memory_bytes), "`invalid_module`"),
        ("functions, imports, exports of a module", counts, "`invalid_module`"),
        ("a compiled module", size(compiling.LIMITS.compiled_bytes), "`invalid_module`"),
        ("queued modules to compile", f"{compiling.LIMITS.max_waiting}", "429 `queue_full`"),
        ("compiled modules that a node caches", kept, "the least recently used are dropped"),
        ("time without a task for a compiled module", duration(module_cache.UNUSED_S), "deleted on the node"),
        (
            "wait after a failed compilation of a module",
            duration(module_cache.REFUSED_S),
            "the node compiles it again",
        ),
    )


def guest_limits() -> Rows:
    params = f"{session_params.MAX_PARAMS}, {size(session_params.MAX_PARAM_BYTES)}"
    return (
        ("a line of the log", size(invocations.MAX_LINE_BYTES), "`-EINVAL`"),
        ("bytes of one read or write of WASI", size(wasi.MAX_TRANSFER_BYTES), "a partial transfer"),
        ("buffers of one read or write", f"{wasi.MAX_IOVECS:,}", "`EINVAL`"),
        ("events that one call waits for", f"{wasi_poll.MAX_SUBSCRIPTIONS:,}", "`EINVAL`"),
        ("messages of a chat session", size(HOST.max_session_bytes), "`-ENOMEM`"),
        ("parameters of a chat session: number, size", params, "`-ENOMEM`"),
        ("functions of the guest in a chat session", f"{HOST.max_guest_tools}", "`-ENOMEM`"),
        (
            "output of such a function",
            size(guest_tools.MAX_OUTPUT_BYTES),
            "the model gets `tool_exec_failed`",
        ),
        ("chats nested in functions of chats", f"{guest.MAX_DEPTH} levels", "`-EAGAIN`"),
        ("sessions and completions of a guest together", size(HOST.max_chat_bytes), "`-ENOMEM`"),
        ("tool results that did not fit the guest's buffer", size(HOST.max_result_bytes), "`-ENOMEM`"),
        ("audited denials of one run", f"{context.MAX_DENIALS_RECORDED}", "further denials are not audited"),
    )


def invocation_limits() -> Rows:
    kept = f"{queue.DEFAULT_QUEUE_LIMITS.keep_ended:,} of a task, for {duration(queue.KEEP_ENDED_MS / 1000)}"
    return (
        ("input", size(invocations.MAX_INPUT_BYTES), "413 `too_large`"),
        ("queued invocations", f"{queue.DEFAULT_QUEUE_LIMITS.max_queued:,}", "429 `queue_full`"),
        ("ended invocations", kept, "the oldest are deleted"),
        (
            "lines of a log, and their total size",
            f"{invocations.MAX_LOG_LINES:,}, {size(invocations.MAX_LOG_BYTES)}",
            "the oldest are dropped",
        ),
        (
            "calls in the result of an invocation",
            f"{invocations.MAX_CALLS_KEPT}",
            "further calls are counted",
        ),
        (
            "time without a report of the node about a run",
            duration(queue.LEASE_MS / 1000),
            "the run counts as lost",
        ),
        ("invocations in one claim of a node", f"{grpc_reports.MAX_CLAIMED}", "the node claims again"),
    )
