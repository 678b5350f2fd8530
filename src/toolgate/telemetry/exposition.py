"""Numbers as Prometheus reads them: the only place that knows its library."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final, Literal, NamedTuple

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
    UnknownMetricFamily,
)
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.registry import Collector

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"

Kind = Literal["counter", "gauge", "histogram"]
_TOTAL: Final = "_total"


class Spread(NamedTuple):
    """A histogram as it is shown: its buckets, each with those below it, and the sum of all values."""

    buckets: list[tuple[str, float]]
    total: float


class Family(NamedTuple):
    """One metric with all its series."""

    name: str
    """As it is shown: what ends in `_total` is a counter's."""
    kind: Kind
    help_text: str
    labels: tuple[str, ...]
    samples: Mapping[Any, Any]
    """Numbers, or a histogram's Spreads, by the values of its labels: a tuple, or the one value."""


def render_families(read: Callable[[], Iterable[Family]]) -> bytes:
    """The text of what `read` returns."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Families(read))
    return generate_latest(registry)


class _Families(Collector):
    def __init__(self, read: Callable[[], Iterable[Family]]) -> None:
        self._read = read

    def collect(self) -> Iterator[Metric]:
        return map(_metric, self._read())


def _metric(family: Family) -> Metric:
    if family.kind == "histogram":
        return _histogram(family)
    metric = _empty(family)
    for key, value in family.samples.items():
        metric.add_metric(_values(key), value)
    return metric


def _empty(family: Family) -> GaugeMetricFamily | CounterMetricFamily | UnknownMetricFamily:
    if family.kind == "gauge":
        return GaugeMetricFamily(family.name, family.help_text, labels=family.labels)
    if family.name.endswith(_TOTAL):
        return CounterMetricFamily(family.name.removesuffix(_TOTAL), family.help_text, labels=family.labels)
    # The library has no counters of another name. Untyped, it is read in the same way.
    return UnknownMetricFamily(family.name, family.help_text, labels=family.labels)


def _histogram(family: Family) -> Metric:
    metric = HistogramMetricFamily(family.name, family.help_text, labels=family.labels)
    for key, spread in family.samples.items():
        assert isinstance(spread, Spread)  # what is a histogram has nothing else
        metric.add_metric(_values(key), spread.buckets, spread.total)
    return metric


def _values(key: str | tuple[str, ...]) -> tuple[str, ...]:
    return (key,) if isinstance(key, str) else key


def parse_samples(text: str) -> Iterator[tuple[str, Mapping[str, str], float]]:
    """Every sample of a text: its name, its labels, its value. Raises ValueError."""
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            yield sample.name, sample.labels, float(sample.value)
