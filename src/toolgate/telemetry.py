"""Logging, metrics and traces set-up; the only place that knows their libraries.

The hot path adds to plain numbers (`CallStats`); Prometheus reads them when it is asked. Label sets
are bounded by the registry: what callers make up is counted under empty labels.
"""

import logging
import sys
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import Final

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

LATENCY_MS: Final = (1, 2, 5, 10, 25, 50, 100, 250, 500, 1_000, 2_500, 5_000, 10_000, 30_000)
RUN_MS: Final = (5, 10, 50, 100, 500, 1_000, 5_000, 10_000, 30_000, 60_000, 300_000, 600_000)
OUTPUT_BYTES: Final = (256, 1_024, 4_096, 16_384, 65_536, 262_144, 1_048_576, 8_388_608)
CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"


class Distribution:
    """A histogram that costs one bisection to add to."""

    __slots__ = ("bounds", "counts", "total")

    def __init__(self, bounds: tuple[int, ...]) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.total = 0.0

    def add(self, value: float) -> None:
        self.counts[bisect_left(self.bounds, value)] += 1
        self.total += value

    def buckets(self) -> list[tuple[str, float]]:
        """Cumulative, as Prometheus wants them."""
        rising, found = 0, []
        for bound, count in zip((*map(str, self.bounds), "+Inf"), self.counts, strict=True):
            rising += count
            found.append((bound, float(rising)))
        return found


class CallStats:
    """What is counted for one tool, from its first call on."""

    __slots__ = ("calls", "errors", "latency_ms", "output_bytes")

    def __init__(self) -> None:
        self.calls = 0
        self.errors: Counter[str] = Counter()
        self.latency_ms = Distribution(LATENCY_MS)
        self.output_bytes = Distribution(OUTPUT_BYTES)

    def add(self, latency_ms: float, size: int, code: str) -> None:
        """One call ended; `code` is empty when it went well."""
        self.calls += 1
        self.latency_ms.add(latency_ms)
        if code:
            self.errors[code] += 1
        else:
            self.output_bytes.add(size)


class Metrics:
    """All counters of a node, and their Prometheus text."""

    def __init__(self) -> None:
        self.calls: dict[tuple[str, str], CallStats] = {}
        self.injections: Counter[tuple[str, str]] = Counter()
        self.denials: Counter[tuple[str, str]] = Counter()
        self.connects: Counter[tuple[str, str]] = Counter()
        self.list_latency_ms: dict[str, Distribution] = {}
        self.effective_servers: dict[str, int] = {}
        self.empty_scopes = 0
        self.scope_tools = Distribution((0, 1, 5, 10, 20, 50, 100, 200, 500))
        self.scope_tokens = Distribution((0, 100, 500, 1_000, 5_000, 10_000, 50_000))
        self.chats: Counter[tuple[str, str]] = Counter()
        """Conversations by upstream, and by how they ended."""
        self.chat_rounds = Distribution((0, 1, 2, 3, 5, 8, 13, 21))
        self.model_latency_ms: dict[str, Distribution] = {}
        self.invocations: Counter[tuple[str, str]] = Counter()
        """Runs of tasks on this node, by the state they ended in and by what ended them."""
        self.invocation_ms = Distribution(RUN_MS)
        self.gauges: dict[str, tuple[str, Callable[[], float]]] = {}

    def tool(self, server_id: str, tool: str) -> CallStats:
        """The numbers of a tool that was called. Callers' inventions are none: use `tool("", "")`."""
        stats = self.calls.get((server_id, tool))
        if stats is None:
            stats = self.calls[server_id, tool] = CallStats()
        return stats

    def list_latency(self, server_id: str) -> Distribution:
        return self.list_latency_ms.setdefault(server_id, Distribution(LATENCY_MS))

    def model_latency(self, upstream_id: str) -> Distribution:
        return self.model_latency_ms.setdefault(upstream_id, Distribution(LATENCY_MS))

    def gauge(self, name: str, help_text: str, read: Callable[[], float]) -> None:
        """A value read when somebody looks."""
        self.gauges[name] = (help_text, read)

    def render(self) -> bytes:
        return self.capture()()

    def capture(self) -> Callable[[], bytes]:
        """Reads the gauges now; what it returns makes the text, in a thread where that takes long."""
        registry = CollectorRegistry(auto_describe=False)
        gauges = {name: (help_text, read()) for name, (help_text, read) in self.gauges.items()}
        registry.register(_NodeCollector(self, gauges))
        return partial(generate_latest, registry)


class _NodeCollector(Collector):
    """Reads while others count: whatever may grow meanwhile is copied before it is gone through."""

    def __init__(self, metrics: Metrics, gauges: Mapping[str, tuple[str, float]]) -> None:
        self._metrics = metrics
        self._gauges = gauges

    def collect(self) -> Iterable[Metric]:
        metrics = self._metrics
        yield from _call_families(metrics.calls)
        yield _counters(
            "mcp_injection",
            "Lists answered and injected, by server and status.",
            metrics.injections,
            "status",
        )
        yield _counters(
            "mcp_denied_reason",
            "Exclusions when a scope is compiled, of what it was asked for.",
            metrics.denials,
            "reason",
        )
        yield _counters("mcp_server_connect", "Connections tried, by outcome.", metrics.connects, "status")
        listed = HistogramMetricFamily(
            "mcp_list_tools_latency_ms", "Time of a full tools/list.", labels=["server_id"]
        )
        for server_id, spread in list(metrics.list_latency_ms.items()):
            listed.add_metric([server_id], spread.buckets(), spread.total)
        yield listed
        effective = GaugeMetricFamily(
            "mcp_effective_servers", "Servers in the newest scope.", labels=["task_id"]
        )
        for task_id, count in list(metrics.effective_servers.items()):
            effective.add_metric([task_id], count)
        yield effective
        yield CounterMetricFamily(
            "toolgate_empty_scopes", "Compiled scopes without a tool.", value=metrics.empty_scopes
        )
        for name, spread in (("tools", metrics.scope_tools), ("tokens", metrics.scope_tokens)):
            family = HistogramMetricFamily(
                f"toolgate_scope_{name}", f"Compiled scopes, by {name}.", labels=[]
            )
            family.add_metric([], spread.buckets(), spread.total)
            yield family
        yield from _chat_families(metrics)
        yield from _invocation_families(metrics)
        for name, (help_text, value) in self._gauges.items():
            yield GaugeMetricFamily(name, help_text, value=value)


def _call_families(calls: Mapping[tuple[str, str], CallStats]) -> Iterator[Metric]:
    labels = ["server_id", "tool"]
    total = CounterMetricFamily("mcp_tool_call", "Tool calls.", labels=labels)
    errors = CounterMetricFamily("mcp_tool_call_error", "Failed tool calls.", labels=[*labels, "code"])
    latency = HistogramMetricFamily("mcp_tool_call_latency_ms", "Time of a tool call.", labels=labels)
    output = HistogramMetricFamily("mcp_tool_call_output_bytes", "Size of a tool's result.", labels=labels)
    for key, stats in list(calls.items()):
        total.add_metric(list(key), stats.calls)
        latency.add_metric(list(key), stats.latency_ms.buckets(), stats.latency_ms.total)
        output.add_metric(list(key), stats.output_bytes.buckets(), stats.output_bytes.total)
        for code, count in list(stats.errors.items()):
            errors.add_metric([*key, code], count)
    yield from (total, errors, latency, output)


def _chat_families(metrics: Metrics) -> Iterator[Metric]:
    yield _counters(
        "toolgate_chat",
        "Chat requests, by upstream and by how they ended.",
        metrics.chats,
        "outcome",
        of="upstream",
    )
    rounds = HistogramMetricFamily("toolgate_chat_rounds", "Rounds of tools in a conversation.", labels=[])
    rounds.add_metric([], metrics.chat_rounds.buckets(), metrics.chat_rounds.total)
    yield rounds
    latency = HistogramMetricFamily(
        "toolgate_chat_model_latency_ms", "Time of a model's whole reply.", labels=["upstream"]
    )
    for upstream_id, spread in list(metrics.model_latency_ms.items()):
        latency.add_metric([upstream_id], spread.buckets(), spread.total)
    yield latency


def _invocation_families(metrics: Metrics) -> Iterator[Metric]:
    yield _counters(
        "toolgate_invocations",
        "Runs of tasks that ended on this node, by state and by what ended them.",
        metrics.invocations,
        "ended_by",
        of="state",
    )
    took = HistogramMetricFamily("toolgate_invocation_ms", "Time of a run of a task.", labels=[])
    took.add_metric([], metrics.invocation_ms.buckets(), metrics.invocation_ms.total)
    yield took


def _counters(
    name: str, help_text: str, counts: Counter[tuple[str, str]], label: str, *, of: str = "server_id"
) -> Metric:
    family = CounterMetricFamily(name, help_text, labels=[of, label])
    for key, count in list(counts.items()):
        family.add_metric(list(key), count)
    return family


class _OneLine(logging.Formatter):
    """A record is one line whatever is in it: control characters come out escaped."""

    def format(self, record: logging.LogRecord) -> str:
        text = super().format(record)
        return "".join(char if char.isprintable() else ascii(char)[1:-1] for char in text)


def setup_logging(level: str) -> None:
    """Log to standard error, one line a record."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_OneLine("%(asctime)s %(levelname)-7s %(name)s %(message)s"))
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)
    logging.getLogger("watchfiles").setLevel(logging.WARNING)
