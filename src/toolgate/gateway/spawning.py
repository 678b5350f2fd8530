"""What is written down of a process that is started for a server: what the record says, never a secret."""

from toolgate.audit.events import ProcessSpawned
from toolgate.model.servers import ServerRecord
from toolgate.redaction.records import redact_command
from toolgate.upstream.connection.contract import Purpose


def spawned(record: ServerRecord, purpose: Purpose, *, at_ms: int) -> ProcessSpawned:
    """The process of `record` is about to be started."""
    launch = record.stdio
    return ProcessSpawned(
        at_ms=at_ms,
        server_id=record.server_id,
        command="" if launch is None else redact_command(launch.command, launch.args),
        reason=purpose,
        package="" if record.package is None else record.package.sha256,
    )
