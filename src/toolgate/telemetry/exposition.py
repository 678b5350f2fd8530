"""Numbers as Prometheus reads them: its text format, version 0.0.4.

Reading numbers that were written for Prometheus: the only place that knows its library.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final, Literal, NamedTuple

from prometheus_client.parser import text_string_to_metric_families

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"

MetricKind = Literal["counter", "gauge", "histogram"]
_TOTAL: Final = "_total"
_HELP_ESCAPES: Final = str.maketrans({"\\": r"\\", "\n": r"\n"})
_LABEL_ESCAPES: Final = str.maketrans({"\\": r"\\", "\n": r"\n", '"': r"\""})


class HistogramSample(NamedTuple):
    """A histogram as it is shown: its buckets, each with those below it, and the sum of all values."""

    buckets: list[tuple[str, float]]
    total: float


class MetricFamily(NamedTuple):
    """One metric with all its series."""

    name: str
    """As it is shown: what ends in `_total` is a counter's."""
    kind: MetricKind
    help_text: str
    labels: tuple[str, ...]
    samples: Mapping[Any, Any]
    """Numbers, or a histogram's Spreads, by the values of its labels: a tuple, or the one value."""


def render_families(read: Callable[[], Iterable[MetricFamily]]) -> bytes:
    """The text of what `read` returns."""
    return "".join(line for family in read() for line in _lines(family)).encode()


def _lines(family: MetricFamily) -> Iterator[str]:
    yield f"# HELP {family.name} {family.help_text.translate(_HELP_ESCAPES)}\n"
    yield f"# TYPE {family.name} {_type(family)}\n"
    for key, value in family.samples.items():
        labels = dict(zip(family.labels, (key,) if isinstance(key, str) else key, strict=True))
        if family.kind == "histogram":
            assert isinstance(value, HistogramSample)  # what is a histogram has nothing else
            yield from _histogram(family.name, labels, value)
        else:
            yield _sample(family.name, labels, value)


def _type(family: MetricFamily) -> str:
    # A counter's name has to end so. Of any other, untyped, the numbers are read in the same way.
    is_misnamed = family.kind == "counter" and not family.name.endswith(_TOTAL)
    return "untyped" if is_misnamed else family.kind


def _histogram(name: str, labels: Mapping[str, str], spread: HistogramSample) -> Iterator[str]:
    for bound, count in spread.buckets:
        yield _sample(f"{name}_bucket", {**labels, "le": bound}, count)
    yield _sample(f"{name}_count", labels, spread.buckets[-1][1])
    yield _sample(f"{name}_sum", labels, spread.total)


def _sample(name: str, labels: Mapping[str, str], value: float) -> str:
    pairs = ",".join(f'{label}="{text.translate(_LABEL_ESCAPES)}"' for label, text in sorted(labels.items()))
    return f"{name}{{{pairs}}} {_number(value)}\n" if pairs else f"{name} {_number(value)}\n"


def _number(value: float) -> str:
    if math.isinf(value):
        return "+Inf" if value > 0 else "-Inf"
    return "NaN" if math.isnan(value) else repr(float(value))


def parse_samples(text: str) -> Iterator[tuple[str, Mapping[str, str], float]]:
    """Every sample of a text: its name, its labels, its value. Raises ValueError."""
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            yield sample.name, sample.labels, float(sample.value)
