"""Logs, metrics and traces: the only place that knows their libraries and formats.

- `metrics`     the counters of a process; the hot path adds to plain numbers
- `exposition`  their text for Prometheus, and back
- `spans`       traces as the program sees them; `tracing` makes them with OpenTelemetry, if tracing is on
- `logs`        log lines, and messages about full disks

No label, span or log line holds arguments, results or credentials.
"""

from toolgate.telemetry.exposition import CONTENT_TYPE
from toolgate.telemetry.logs import setup_logging
from toolgate.telemetry.metrics import CallStats, Histogram, Metrics

__all__ = ["CONTENT_TYPE", "CallStats", "Histogram", "Metrics", "setup_logging"]
