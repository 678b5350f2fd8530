"""Reading numbers that were written for Prometheus: the only place that knows its library."""

from collections.abc import Iterator, Mapping

from prometheus_client.parser import text_string_to_metric_families


def parse_samples(text: str) -> Iterator[tuple[str, Mapping[str, str], float]]:
    """Every sample of a text: its name, its labels, its value. Raises ValueError."""
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            yield sample.name, sample.labels, float(sample.value)
