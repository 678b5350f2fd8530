"""Sends the audit log to an OpenTelemetry collector: each event is a log record with its line as the body.

Loaded only if a collector is configured. Its progress is kept in a small file next to the log, so a process
continues where the last one ended. An event that is sent twice has the same number twice.
"""

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final

from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, InstrumentationScope, KeyValue
from opentelemetry.proto.logs.v1.logs_pb2 import LogRecord, ResourceLogs, ScopeLogs, SeverityNumber
from opentelemetry.proto.resource.v1.resource_pb2 import Resource

from toolgate import __version__
from toolgate.audit.log.files import LogChunk, parse_line
from toolgate.disk import replace_file
from toolgate.errors import StorageUnavailable
from toolgate.telemetry.spans import ExportRejected

REFUSED: Final = frozenset({400, 413, 422})  # HTTP statuses for records that the collector will never accept
_ATTRIBUTES: Final = ("door", "principal", "task_id", "server_id", "tool", "outcome", "code", "request_id")
_SEVERITIES: Final[Mapping[str, SeverityNumber.ValueType]] = {
    "denied": SeverityNumber.SEVERITY_NUMBER_WARN,
    "tool_error": SeverityNumber.SEVERITY_NUMBER_WARN,
    "error": SeverityNumber.SEVERITY_NUMBER_ERROR,
    "unknown": SeverityNumber.SEVERITY_NUMBER_ERROR,
}
_log = logging.getLogger(__name__)
Send = Callable[[bytes], Awaitable[None]]
"""Sends encoded records. Raises ExportRejected."""


class AuditExport:
    """Delivers pieces of a log for `LogFollower`. A file keeps how far the collector has the log."""

    def __init__(self, send: Send, path: Path, *, resource: Mapping[str, Any], log: str) -> None:
        """`path`: the progress file. The progress of another log does not count for this one."""
        self._send = send
        self._path = path
        self._resource = resource
        self._log = log
        self._lock = asyncio.Lock()
        try:
            found = json.loads(path.read_text("ascii"))
            self._taken = int(found["taken"]) if found["log"] == log else 0
        except (OSError, ValueError, KeyError, TypeError):
            self._taken = 0

    async def deliver(self, read: LogChunk) -> int:
        """Returns the number up to which the collector has the log. Raises StorageUnavailable and OSError.

        Cancelling does not cancel a request in flight: the next call waits for its end, and sends nothing
        twice.
        """
        return await asyncio.shield(self._take(read))

    async def _take(self, read: LogChunk) -> int:
        async with self._lock:
            if read.upto > self._taken:
                if read.lines:
                    await self._deliver(read.lines)
                progress = json.dumps({"log": self._log, "taken": read.upto})
                replace_file(self._path, progress.encode("ascii"), is_synced=False)
                self._taken = read.upto
            return self._taken

    async def _deliver(self, lines: Sequence[bytes]) -> None:
        try:
            encode = partial(encode_lines, lines, resource=self._resource, log=self._log)
            await self._send(await asyncio.to_thread(encode))
        except ExportRejected as exc:
            if exc.status not in REFUSED:
                raise StorageUnavailable(str(exc)) from exc
            if len(lines) == 1:
                _log.error("the collector rejected an audit event and will lack it: %s", exc)
                return
            half = len(lines) // 2
            await self._deliver(lines[:half])
            await self._deliver(lines[half:])


def encode_lines(lines: Sequence[bytes], *, resource: Mapping[str, Any], log: str) -> bytes:
    """Lines of a log as one request. Damaged lines are omitted."""
    records = [record for line in lines if (record := _make_record(line, log)) is not None]
    scope = InstrumentationScope(name="toolgate.audit", version=__version__)
    logs = ResourceLogs(
        resource=Resource(attributes=[_make_attribute(name, str(value)) for name, value in resource.items()]),
        scope_logs=[ScopeLogs(scope=scope, log_records=records)],
    )
    return ExportLogsServiceRequest(resource_logs=[logs]).SerializeToString()


def _make_record(line: bytes, log: str) -> LogRecord | None:
    parsed = parse_line(line)
    if parsed is None:
        return None
    event = parsed.event
    try:
        trace_id = bytes.fromhex(getattr(event, "trace_id", ""))
    except ValueError:
        trace_id = b""
    notes = [
        _make_attribute(f"toolgate.{name}", value)
        for name in _ATTRIBUTES
        if (value := getattr(event, name, ""))
    ]
    number = KeyValue(key="toolgate.audit.seq", value=AnyValue(int_value=parsed.seq))
    severity = _SEVERITIES.get(getattr(event, "outcome", ""), SeverityNumber.SEVERITY_NUMBER_INFO)
    return LogRecord(
        time_unix_nano=event.at_ms * 1_000_000,
        observed_time_unix_nano=event.at_ms * 1_000_000,
        severity_number=severity,
        event_name=f"toolgate.audit.{event.__struct_config__.tag}",
        body=AnyValue(string_value=line.decode()),
        attributes=[number, _make_attribute("toolgate.audit.log.writer", log), *notes],
        trace_id=trace_id,
    )


def _make_attribute(name: str, value: str) -> KeyValue:
    return KeyValue(key=name, value=AnyValue(string_value=value))
