"""The limits of what runs here: packages, modules, guests and their invocations."""

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
        ("what it unpacks to", size(entries.MAX_UNPACKED_BYTES), "413 `too_large`"),
        ("its files and directories", f"{entries.MAX_FILES:,}", "413 `too_large`"),
        ("a path in it", path, "400 `invalid_record`"),
        ("a manifest", size(manifest.MAX_MANIFEST_BYTES), "413 `too_large`"),
        ("parts of an upload", parts, "`invalid_request` or 413 `too_large`"),
        ("uploads of one caller at once", f"{UPLOADS.max_uploads}", "503 `session_limit`"),
        ("bytes on their way in, of one caller and of all", staged, "503 `session_limit`"),
        ("an upload that nobody finishes", duration(uploads.MAX_AGE_MS / 1000), "forgotten"),
        ("versions of a package", f"{artifacts.MAX_VERSIONS}", "409 `conflict`"),
        ("files of a package that no server uses", duration(connector.UNUSED_S), "removed from the node"),
        ("annotations of a tool in the catalog", size(rows.MAX_ANNOTATIONS_BYTES), "not kept there"),
        ("lines of a diff: of one tool, of all", diff, "the rest is counted, or said to be there"),
    )


def module_limits() -> Rows:
    module = f"{size(tasks.MAX_MODULE_BYTES)}, in parts as archives are"
    counts = f"{compiling.LIMITS.functions:,}, {compiling.LIMITS.imports:,}, {compiling.LIMITS.exports:,}"
    kept = f"{module_cache.MAX_FILES}, {size(module_cache.MAX_BYTES)}"
    worked, by_the_clock = duration(compiling.LIMITS.cpu_s), duration(compiling.LIMITS.deadline_s)
    compile_time = f"{worked} of a processor, {by_the_clock} by the clock"
    return (
        ("a module", module, "413 `too_large`"),
        ("modules that are kept", f"{artifacts.MAX_MODULES:,}", "409 `conflict`"),
        ("time to compile one", compile_time, "`invalid_module`"),
        ("memory to compile one", size(compiling.LIMITS.memory_bytes), "`invalid_module`"),
        ("functions of one, imports, exports", counts, "`invalid_module`"),
        ("one when it is compiled", size(compiling.LIMITS.compiled_bytes), "`invalid_module`"),
        ("modules that wait to be compiled", f"{compiling.LIMITS.max_waiting}", "429 `queue_full`"),
        ("compiled modules that a node keeps", kept, "the ones used longest ago are made again when needed"),
        ("a compiled module that no task names", duration(module_cache.UNUSED_S), "removed from the node"),
        ("a module that cannot be compiled", duration(module_cache.REFUSED_S), "not tried again before that"),
    )


def guest_limits() -> Rows:
    params = f"{session_params.MAX_PARAMS}, {size(session_params.MAX_PARAM_BYTES)}"
    return (
        ("a line of the log", size(invocations.MAX_LINE_BYTES), "`-EINVAL`"),
        ("bytes of one read or write of WASI", size(wasi.MAX_TRANSFER_BYTES), "as many, and another call"),
        ("buffers of one", f"{wasi.MAX_IOVECS:,}", "`EINVAL`"),
        ("events that one call waits for", f"{wasi_poll.MAX_SUBSCRIPTIONS:,}", "`EINVAL`"),
        ("messages of a chat session", size(HOST.max_session_bytes), "`-ENOMEM`"),
        ("its parameters, and what they hold", params, "`-ENOMEM`"),
        ("functions of the guest in it", f"{HOST.max_guest_tools}", "`-ENOMEM`"),
        (
            "what one of them says",
            size(guest_tools.MAX_OUTPUT_BYTES),
            "the model is told `tool_exec_failed`",
        ),
        ("chats within functions of chats", f"{guest.MAX_DEPTH} deep", "`-EAGAIN`"),
        ("sessions and answers of a guest together", size(HOST.max_chat_bytes), "`-ENOMEM`"),
        ("results of tools that it had no room for", size(HOST.max_result_bytes), "`-ENOMEM`"),
        ("refusals of one run that are audited", f"{context.MAX_DENIALS_RECORDED}", "not audited"),
    )


def invocation_limits() -> Rows:
    kept = f"{queue.DEFAULT_QUEUE_LIMITS.keep_ended:,} of a task, for {duration(queue.KEEP_ENDED_MS / 1000)}"
    return (
        ("input", size(invocations.MAX_INPUT_BYTES), "413 `too_large`"),
        ("invocations that wait", f"{queue.DEFAULT_QUEUE_LIMITS.max_queued:,}", "429 `queue_full`"),
        ("invocations that have ended", kept, "the oldest are forgotten"),
        (
            "lines of a log, and their size",
            f"{invocations.MAX_LOG_LINES:,}, {size(invocations.MAX_LOG_BYTES)}",
            "the oldest are dropped",
        ),
        ("calls that an invocation tells of", f"{invocations.MAX_CALLS_KEPT}", "the others are counted"),
        ("silence of a node about what it runs", duration(queue.LEASE_MS / 1000), "it is taken for lost"),
        ("invocations that a node takes at once", f"{grpc_reports.MAX_CLAIMED}", "it asks again"),
    )
