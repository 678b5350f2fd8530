"""Logging, metrics and traces set-up; the only place that knows their libraries."""

from toolgate.telemetry.exposition import CONTENT_TYPE
from toolgate.telemetry.logs import setup_logging
from toolgate.telemetry.metrics import CallStats, Histogram, Metrics

__all__ = ["CONTENT_TYPE", "CallStats", "Histogram", "Metrics", "setup_logging"]
