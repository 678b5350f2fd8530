"""Metrics read twice, and what happened in between: rates, and percentiles by the buckets of histograms.

Pure: texts and numbers in, numbers out. Counters that begin anew count from nothing.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from toolgate.telemetry.exposition import parse_samples

Labels = frozenset[tuple[str, str]]
Buckets = Sequence[tuple[float, float]]
"""Upper bounds, each with how many values are up to it; rising, and the last is infinity."""
CALLS: Final = "mcp_tool_call_total"
ERRORS: Final = "mcp_tool_call_error_total"
LATENCY: Final = "mcp_tool_call_latency_ms_bucket"
DENIALS: Final = "mcp_denied_reason"
_HIGHEST_COUNTS: Final = frozenset(
    {"toolgate_loop_lag_ms", "toolgate_registry_revision", "toolgate_approvals_pending"}
)
"""Of several processes the highest counts: those that are not about what each does alone."""


@dataclass(frozen=True, slots=True)
class MetricsReading:
    """All samples of one process, or of several added up, at one time."""

    at_s: float
    samples: Mapping[str, Mapping[Labels, float]]

    def total(self, name: str) -> float | None:
        """A gauge over all its labels; None where the process has none."""
        found = self.samples.get(name)
        return None if found is None else sum(found.values())

    def by(self, name: str, label: str) -> Mapping[str, float]:
        """A metric added up for each value of one of its labels."""
        found: dict[str, float] = defaultdict(float)
        for labels, value in self.samples.get(name, {}).items():
            found[dict(labels).get(label, "")] += value
        return found


def parse_reading(texts: Iterable[str], at_s: float) -> MetricsReading:
    """What the metrics of one or more processes say together. Raises ValueError."""
    samples: dict[str, dict[Labels, float]] = defaultdict(dict)
    for text in texts:
        for name, labels, value in parse_samples(text):
            known, key = samples[name], frozenset(labels.items())
            before = known.get(key, 0.0)
            known[key] = max(before, value) if name in _HIGHEST_COUNTS else before + value
    return MetricsReading(at_s, dict(samples))


@dataclass(frozen=True, slots=True)
class MetricsInterval:
    """What happened between two readings of the same processes."""

    before: MetricsReading
    after: MetricsReading

    @property
    def seconds(self) -> float:
        return max(self.after.at_s - self.before.at_s, 1e-3)

    def grown(self, name: str, label: str) -> Mapping[str, float]:
        """By how much a counter rose, for each value of one of its labels."""
        found: dict[str, float] = defaultdict(float)
        for labels, rise in self._rises(name):
            found[dict(labels).get(label, "")] += rise
        return found

    def latencies(self) -> Mapping[str, Buckets]:
        """How long the calls of each server took, for `interpolate`."""
        found: dict[str, dict[float, float]] = defaultdict(lambda: defaultdict(float))
        for labels, rise in self._rises(LATENCY):
            one = dict(labels)
            found[one["server_id"]][float(one["le"])] += rise
        return {server_id: sorted(rising.items()) for server_id, rising in found.items()}

    def _rises(self, name: str) -> Iterable[tuple[Labels, float]]:
        known = self.before.samples.get(name, {})
        for labels, value in self.after.samples.get(name, {}).items():
            before = known.get(labels, 0.0)
            yield labels, value - before if value >= before else value


def merge_buckets(many: Iterable[Buckets]) -> Buckets:
    """The buckets of all together."""
    found: dict[float, float] = defaultdict(float)
    for buckets in many:
        for bound, upto in buckets:
            found[bound] += upto
    return sorted(found.items())


def interpolate(buckets: Buckets, share: float) -> float | None:
    """What `share` of the values are up to, as Prometheus estimates it: they lie evenly within each bucket.

    None: there are none.
    """
    total = buckets[-1][1] if buckets else 0.0
    if not total:
        return None
    rank, lower, below = share * total, 0.0, 0.0
    for bound, upto in buckets[:-1]:
        if upto >= rank:
            within = (rank - below) / (upto - below) if upto > below else 1.0
            return lower + (bound - lower) * within
        lower, below = bound, upto
    return lower
