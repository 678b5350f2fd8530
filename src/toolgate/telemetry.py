"""Logging, metrics and traces set-up; the only place that knows their libraries."""
