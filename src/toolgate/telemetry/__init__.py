"""Logs, metrics and traces: the only package that imports their libraries and knows their formats.

- `metrics`     the counters of a process; the hot path adds to plain numbers
- `exposition`  writes and parses Prometheus' text format
- `spans`       the interface of traces; `tracing` implements it with OpenTelemetry, if tracing is on
- `logs`        log lines, and messages about full disks

No label, span or log line contains arguments, results or credentials.
"""

from toolgate.telemetry.exposition import CONTENT_TYPE
from toolgate.telemetry.logs import setup_logging
from toolgate.telemetry.metrics import CallStats, Histogram, Metrics

__all__ = ["CONTENT_TYPE", "CallStats", "Histogram", "Metrics", "setup_logging"]
