"""The audit of a process, written down."""

import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Final

from toolgate.audit.journal import Journal
from toolgate.errors import StartRefused
from toolgate.registry.database.disk import lock_beside
from toolgate.settings import Settings
from toolgate.telemetry import Metrics
from toolgate.telemetry.disks import HINT, describe_full_disk

AUDIT_FILE: Final = "audit.jsonl"


@contextmanager
def open_journal(settings: Settings) -> Iterator[Journal]:
    """The audit log of one process, in a directory that is its own. Raises StartRefused."""
    path, kept = settings.data_dir / AUDIT_FILE, settings.audit
    with ExitStack() as stack:
        # Two processes that number the records of one log would each undo the other's order.
        stack.callback(os.close, lock_beside(path))
        try:
            journal = Journal(path, rotate_bytes=kept.file_mb * 1024**2, keep=kept.files)
        except OSError as exc:
            if full := describe_full_disk(path, exc):
                raise StartRefused(full, hint=HINT) from exc
            raise StartRefused(
                f"cannot use the audit log `{path}`: {exc.strerror}",
                hint="see that the gateway's user may write there, or move the log away",
            ) from exc
        stack.callback(journal.close)
        yield journal


def describe_journal(metrics: Metrics, journal: Journal) -> None:
    """The gauges of a process that writes down what happens: all of them."""
    log = journal.log
    metrics.gauge(
        "toolgate_audit_events_total", "Lines of the audit log, by the newest.", lambda: log.last_sequence
    )
    metrics.gauge(
        "toolgate_audit_failing", "1 while the audit log cannot be written.", lambda: float(log.is_failing)
    )
    metrics.gauge(
        "toolgate_audit_lag",
        "Lines of the audit log that who follows has still to take.",
        journal.lag,
        labels=("follower",),
    )
