"""Writes Prometheus' text format, version 0.0.4, for scrapes, and parses it for `toolgate top`.

`metrics` counts; this module only turns its values into text and back, and never keeps state. Prometheus'
client library is an oracle of the tests, not a dependency: its registry would cost the hot path a lock for
each number.
"""

import math
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final, Literal, NamedTuple

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"

MetricKind = Literal["counter", "gauge", "histogram"]
_HELP_ESCAPES: Final = str.maketrans({"\\": r"\\", "\n": r"\n"})
_LABEL_ESCAPES: Final = str.maketrans({"\\": r"\\", "\n": r"\n", '"': r"\""})
_LABEL: Final = r'[a-zA-Z_]\w*="(?:[^"\\]|\\.)*"'
_SAMPLE: Final = re.compile(rf"([a-zA-Z_:][\w:]*)(?:\{{((?:{_LABEL},?)*)\}})? +(\S+)(?: +-?\d+)?", re.ASCII)
_LABEL_PARTS: Final = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')
_ESCAPED: Final = re.compile(r"\\(.)")


class HistogramSample(NamedTuple):
    """The state of a histogram: its cumulative buckets by upper bound, and the sum of all values."""

    buckets: list[tuple[str, float]]
    total: float


class MetricFamily(NamedTuple):
    """One metric with all its series."""

    name: str
    """A counter's name ends in `_total`."""
    kind: MetricKind
    help_text: str
    labels: tuple[str, ...]
    samples: Mapping[Any, Any]
    """Numbers or HistogramSamples by label values: a tuple, or the value of a single label."""


def render_families(families: Iterable[MetricFamily]) -> bytes:
    return "".join(line for family in families for line in _render(family)).encode()


def parse_samples(text: str) -> Iterator[tuple[str, Mapping[str, str], float]]:
    """The name, labels and value of each sample in `text`. Raises ValueError."""
    for line in text.split("\n"):
        if not line.strip() or line.startswith("#"):
            continue
        sample = _SAMPLE.fullmatch(line.strip())
        if sample is None:
            raise ValueError(f"invalid sample: {line[:200]!r}")
        name, labels, value = sample.groups()
        parts = _LABEL_PARTS.findall(labels or "")
        yield name, {key: _unescape(escaped) for key, escaped in parts}, float(value)


def _unescape(text: str) -> str:
    return _ESCAPED.sub(lambda found: "\n" if found[1] == "n" else found[1], text) if "\\" in text else text


def _render(family: MetricFamily) -> Iterator[str]:
    # The format requires names of counters to end in `_total`. Others are `untyped`, with the same numbers.
    is_misnamed = family.kind == "counter" and not family.name.endswith("_total")
    yield f"# HELP {family.name} {family.help_text.translate(_HELP_ESCAPES)}\n"
    yield f"# TYPE {family.name} {'untyped' if is_misnamed else family.kind}\n"
    for key, value in family.samples.items():
        labels = dict(zip(family.labels, (key,) if isinstance(key, str) else key, strict=True))
        if isinstance(value, HistogramSample):
            for bound, count in value.buckets:
                yield _render_sample(f"{family.name}_bucket", {**labels, "le": bound}, count)
            yield _render_sample(f"{family.name}_count", labels, value.buckets[-1][1])
            yield _render_sample(f"{family.name}_sum", labels, value.total)
        else:
            yield _render_sample(family.name, labels, value)


def _render_sample(name: str, labels: Mapping[str, str], value: float) -> str:
    pairs = ",".join(f'{label}="{text.translate(_LABEL_ESCAPES)}"' for label, text in sorted(labels.items()))
    return f"{name}{{{pairs}}} {_number(value)}\n" if pairs else f"{name} {_number(value)}\n"


def _number(value: float) -> str:
    if math.isinf(value):
        return "+Inf" if value > 0 else "-Inf"
    return "NaN" if math.isnan(value) else repr(float(value))
