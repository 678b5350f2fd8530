"""The counters of a process. The hot path adds to plain numbers (`CallStats`), which a scrape reads.

The registry bounds the label values: unknown names count under empty labels, counters of removed records are
dropped, and a server's tools beyond a limit count as one.
"""

from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Final

from toolgate.policy.scope import ProfileVersion
from toolgate.telemetry.exposition import HistogramSample, MetricFamily, MetricKind, render_families

LATENCY_MS: Final = (
    *(1, 2, 5, 10, 20, 50, 100, 200, 500),
    *(1_000, 2_000, 5_000, 10_000, 20_000, 30_000),
    *(60_000, 120_000, 300_000),
)
"""From the gateway's overhead to the longest call, 300 s."""
ROUNDS: Final = (0, 1, 2, 3, 5, 8, 13, 21)
SCOPE_TOOLS: Final = (0, 1, 5, 10, 20, 50, 100, 200, 500)
SCOPE_TOKENS: Final = (0, 100, 500, 1_000, 5_000, 10_000, 50_000)
SESSION_CALLS: Final = (0, 1, 2, 5, 10, 20, 50, 100, 200, 500, 1_000, 10_000)
RUN_MS: Final = (5, 10, 50, 100, 500, 1_000, 5_000, 10_000, 30_000, 60_000, 300_000, 600_000)
OUTPUT_BYTES: Final = (256, 1_024, 4_096, 16_384, 65_536, 262_144, 1_048_576, 8_388_608)
MAX_TOOLS_COUNTED: Final = 2_000
"""Tools of one server to count separately, as many as a server may list. Later names count as one."""

_HELP: Final = {
    "mcp_injection_total": "Servers in tool lists for clients or models, by status.",
    "mcp_denied_reason": "Requested names that policy denied, by server and reason.",
    "mcp_server_connect_total": "Attempts to connect to servers, by status.",
    "toolgate_shadow_denials_total": "Calls that tasks in shadow mode would have denied.",
    "toolgate_budget_refusals_total": "Calls denied by a rate limit or quota.",
    "mcp_list_tools_latency_ms": "Duration of a full tools/list at a server.",
    "mcp_effective_servers": "Servers in the newest scope of each task.",
    "toolgate_scope_tools": "Tools per compiled scope.",
    "toolgate_scope_tokens": "Tokens of the definitions per compiled scope.",
    "toolgate_chat_total": "Chat requests, by upstream and outcome.",
    "toolgate_chat_rounds": "Tool rounds per chat request.",
    "toolgate_chat_model_latency_ms": "Duration of a whole model completion, by upstream.",
    "toolgate_session_calls": "Tool calls per ended session.",
    "toolgate_session_rounds": "Rounds per ended session.",
    "toolgate_session_limit_hits_total": "Limits that sessions reached, by endpoint and limit.",
    "toolgate_invocations_total": "Ended invocations on this node, by state and cause.",
    "toolgate_invocation_ms": "Duration of an invocation.",
    "mcp_tool_call_total": "Tool calls, including denied and failed ones.",
    "mcp_tool_call_error_total": "Failed or denied tool calls, by error code.",
    "mcp_tool_call_latency_ms": "Duration of a tool call, without denied calls.",
    "mcp_tool_call_output_bytes": "Size of a tool's result.",
    "toolgate_profile_calls_total": "Calls with a profile in a rollout, by version, including denied calls.",
    "toolgate_profile_call_errors_total": "Failed or denied calls with a profile in a rollout.",
    "toolgate_profile_call_latency_ms": "Duration of a call with a profile in a rollout, by version.",
}
_CALL_METRICS: Final = ("mcp_tool_call_total", "mcp_tool_call_error_total", "mcp_tool_call_latency_ms")
_ARM_METRICS: Final = (
    "toolgate_profile_calls_total",
    "toolgate_profile_call_errors_total",
    "toolgate_profile_call_latency_ms",
)

_Names = Container[str]
Reader = Callable[[], float | Mapping[Any, float]]
"""Reads a value, or values by one label or by a tuple of several labels."""


class Histogram:
    """Counts values by bucket, with one bisection each."""

    __slots__ = ("bounds", "counts", "total")

    def __init__(self, bounds: tuple[int, ...]) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.total = 0.0

    def add(self, value: float) -> None:
        self.counts[bisect_left(self.bounds, value)] += 1
        self.total += value

    def cumulate(self) -> HistogramSample:
        """The cumulative buckets, as Prometheus defines them."""
        rising, found = 0, []
        for bound, count in zip((*map(str, self.bounds), "+Inf"), self.counts, strict=True):
            rising += count
            found.append((bound, float(rising)))
        return HistogramSample(found, self.total)


class CallStats:
    """The counters of one tool since its first call."""

    __slots__ = ("calls", "errors", "latency_ms", "output_bytes")

    def __init__(self) -> None:
        self.calls = 0
        self.errors: Counter[str] = Counter()
        self.latency_ms = Histogram(LATENCY_MS)
        self.output_bytes = Histogram(OUTPUT_BYTES)

    def add(self, latency_ms: float, size: int, code: str) -> None:
        """Count a call, with a result of `size` if it has one. `code` is empty if it succeeded."""
        self.calls += 1
        # As `Histogram.add`, inlined: every tool call runs through here.
        latency, output = self.latency_ms, self.output_bytes
        latency.counts[bisect_left(LATENCY_MS, latency_ms)] += 1
        latency.total += latency_ms
        if code:
            self.errors[code] += 1
        if size:
            output.counts[bisect_left(OUTPUT_BYTES, size)] += 1
            output.total += size

    def refuse(self, code: str) -> None:
        """Count a call that was denied before it was sent: it has no latency."""
        self.calls += 1
        self.errors[code] += 1


class Metrics:
    """All counters of a process, and their text for Prometheus."""

    def __init__(self) -> None:
        self._families: list[MetricFamily] = []
        """The metrics declared here, with samples that are still counted."""
        self._gauges: dict[str, Callable[[], MetricFamily]] = {}
        self.calls: dict[tuple[str, str], CallStats] = {}
        self._tools: Counter[str] = Counter()
        """How many tools of a server are counted separately."""
        self.profile_arms: dict[tuple[str, str], CallStats] = {}
        """Calls by profile in a rollout and its side: `stable` or `candidate`."""
        self.injections = self._counter("mcp_injection_total", "server_id", "status")
        """By status: `success`, `stale`, `failed` or `denied`."""
        self.denials = self._counter("mcp_denied_reason", "server_id", "reason")
        self.connects = self._counter("mcp_server_connect_total", "server_id", "status")
        """By status: `success` or `failed`."""
        self.shadow_denials = self._counter("toolgate_shadow_denials_total", "server_id", "reason")
        self.budget_refusals: Counter[str] = self._counter("toolgate_budget_refusals_total", "budget")
        self.list_latency_ms = self._histograms("mcp_list_tools_latency_ms", LATENCY_MS, "server_id")
        self.effective_servers: dict[str, int] = {}
        self._declare("mcp_effective_servers", "gauge", self.effective_servers, "task_id")
        self.scope_tools = self._histogram("toolgate_scope_tools", SCOPE_TOOLS)
        self.scope_tokens = self._histogram("toolgate_scope_tokens", SCOPE_TOKENS)
        self.chats = self._counter("toolgate_chat_total", "upstream", "outcome")
        self.chat_rounds = self._histogram("toolgate_chat_rounds", ROUNDS)
        self.model_latency_ms = self._histograms("toolgate_chat_model_latency_ms", LATENCY_MS, "upstream")
        self.session_calls = self._histograms("toolgate_session_calls", SESSION_CALLS, "endpoint")
        self.session_rounds = self._histograms("toolgate_session_rounds", ROUNDS, "endpoint")
        self.limit_hits = self._counter("toolgate_session_limit_hits_total", "endpoint", "limit")
        self.invocations = self._counter("toolgate_invocations_total", "state", "ended_by")
        self.invocation_ms = self._histogram("toolgate_invocation_ms", RUN_MS)
        self.evictions = 0
        evicted = "Child processes of idle servers that the node ended to start another server."
        self.gauge("toolgate_child_evictions_total", evicted, lambda: self.evictions)
        self.empty_scopes = 0
        empty = "Compiled scopes without any tool."
        self.gauge("toolgate_empty_scopes_total", empty, lambda: self.empty_scopes)

    def _declare(self, name: str, kind: MetricKind, samples: Mapping[Any, Any], *labels: str) -> None:
        self._families.append(MetricFamily(name, kind, _HELP[name], labels, samples))

    def _counter(self, name: str, *labels: str) -> Counter[Any]:
        """A counter by the value of one label, or by a tuple of label values."""
        counts: Counter[Any] = Counter()
        self._declare(name, "counter", counts, *labels)
        return counts

    def _histogram(self, name: str, bounds: tuple[int, ...]) -> Histogram:
        found = Histogram(bounds)
        self._declare(name, "histogram", {(): found})
        return found

    def _histograms(self, name: str, bounds: tuple[int, ...], label: str) -> defaultdict[str, Histogram]:
        found = defaultdict[str, Histogram](partial(Histogram, bounds))
        self._declare(name, "histogram", found, label)
        return found

    def tool(self, server_id: str, tool: str) -> CallStats:
        """The counters of a tool. For unknown names, use `tool("", "")`."""
        stats = self.calls.get((server_id, tool))
        if stats is not None:
            return stats
        if self._tools[server_id] >= MAX_TOOLS_COUNTED:
            return self.calls.setdefault((server_id, ""), CallStats())
        self._tools[server_id] += 1
        return self.calls.setdefault((server_id, tool), CallStats())

    def arms(self, versions: Iterable[ProfileVersion]) -> tuple[CallStats, ...]:
        """The counters of profile versions; only versions in a rollout have counters."""
        return tuple(
            self.profile_arms.setdefault((one.profile_id, one.side), CallStats())
            for one in versions
            if one.side is not None
        )

    def on_evicted(self) -> None:
        self.evictions += 1

    def gauge(self, name: str, help_text: str, read: Reader, *, labels: tuple[str, ...] = ()) -> None:
        """Register a value that a scrape reads: one value, or one for each value of `labels`.

        A name that ends in `_total` is a counter.
        """

        def measure() -> MetricFamily:
            value = read()
            samples: Mapping[Any, float] = {**value} if isinstance(value, Mapping) else {(): value}
            kind: MetricKind = "counter" if name.endswith("_total") else "gauge"
            return MetricFamily(name, kind, help_text, labels, samples)

        self._gauges[name] = measure

    def keep(self, servers: _Names, tasks: _Names, chat_upstreams: _Names, *, rollouts: _Names) -> None:
        """Drop the counters of all other records, which were removed. `rollouts`: profiles in a rollout."""
        for by_tool in [key for key in self.calls if key[0] and key[0] not in servers]:
            del self.calls[by_tool]
            self._tools.pop(by_tool[0], None)
        by_server: tuple[dict[Any, Any], ...] = (self.injections, self.denials, self.connects)
        by_server += (self.shadow_denials, self.list_latency_ms)
        by_chat_upstream: tuple[dict[Any, Any], ...] = (self.chats, self.model_latency_ms)
        _keep_known(by_server, servers)
        _keep_known((self.effective_servers,), tasks)
        _keep_known(by_chat_upstream, chat_upstreams)
        _keep_known((self.profile_arms,), rollouts)

    def families(self) -> Sequence[MetricFamily]:
        """All metrics with their current values."""
        return [*self._read_families(), *(measure() for measure in self._gauges.values())]

    def render(self) -> bytes:
        return self.capture()()

    def capture(self) -> Callable[[], bytes]:
        """Read the gauges now. Returns a function that renders the text, which a thread may run."""
        gauges = [measure() for measure in self._gauges.values()]
        return lambda: render_families([*self._read_families(), *gauges])

    def _read_families(self) -> Iterator[MetricFamily]:
        """Other threads count meanwhile, so every growing mapping is copied before iteration."""
        for family in (*self._families, *_read_calls(dict(self.calls), dict(self.profile_arms))):
            samples: dict[Any, Any] = dict(family.samples)
            if family.kind == "histogram":
                samples = {key: one.cumulate() for key, one in samples.items()}
            yield family._replace(samples=samples)


def _keep_known(counters: Iterable[dict[Any, Any]], known: Container[str]) -> None:
    for counts in counters:
        for key in list(counts):
            name = key if isinstance(key, str) else key[0]
            if name and name not in known:
                del counts[key]


def _read_calls(
    calls: Mapping[tuple[str, str], CallStats], arms: Mapping[tuple[str, str], CallStats]
) -> Iterator[MetricFamily]:
    for stats, labels, (total, failed, latency) in (
        (calls, ("server_id", "tool"), _CALL_METRICS),
        (arms, ("profile", "side"), _ARM_METRICS),
    ):
        numbers = {key: one.calls for key, one in stats.items()}
        yield MetricFamily(total, "counter", _HELP[total], labels, numbers)
        errors = {(*key, code): n for key, one in stats.items() for code, n in list(one.errors.items())}
        yield MetricFamily(failed, "counter", _HELP[failed], (*labels, "code"), errors)
        times = {key: one.latency_ms for key, one in stats.items()}
        yield MetricFamily(latency, "histogram", _HELP[latency], labels, times)
    name, sizes = "mcp_tool_call_output_bytes", {key: one.output_bytes for key, one in calls.items()}
    yield MetricFamily(name, "histogram", _HELP[name], ("server_id", "tool"), sizes)
