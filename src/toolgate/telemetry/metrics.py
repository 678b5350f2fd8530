"""The counters of a process. The hot path adds to plain numbers (`CallStats`), which are read on a scrape.

Label sets are bounded by the registry: names that callers invent are counted under empty labels, removed
records are forgotten, and tools of a server past a limit are counted as one.
"""

from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Final, NamedTuple

from toolgate.policy.scope import ProfileVersion
from toolgate.telemetry.exposition import HistogramSample, MetricFamily, MetricKind, render_families

LATENCY_MS: Final = (
    *(1, 2, 5, 10, 20, 50, 100, 200, 500),
    *(1_000, 2_000, 5_000, 10_000, 20_000, 30_000),
    *(60_000, 120_000, 300_000),
)
"""From the gateway's own time to the longest call, 300 s."""
ROUNDS: Final = (0, 1, 2, 3, 5, 8, 13, 21)
SESSION_CALLS: Final = (0, 1, 2, 5, 10, 20, 50, 100, 200, 500, 1_000, 10_000)
RUN_MS: Final = (5, 10, 50, 100, 500, 1_000, 5_000, 10_000, 30_000, 60_000, 300_000, 600_000)
OUTPUT_BYTES: Final = (256, 1_024, 4_096, 16_384, 65_536, 262_144, 1_048_576, 8_388_608)
MAX_TOOLS_COUNTED: Final = 2_000
"""Of one server: as many as it may have at once. Later names are counted as one."""

Reader = Callable[[], float | Mapping[Any, float]]
"""Reads a value, or values by one label, or by a tuple of several."""


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
        """The cumulative buckets of Prometheus."""
        rising, found = 0, []
        for bound, count in zip((*map(str, self.bounds), "+Inf"), self.counts, strict=True):
            rising += count
            found.append((bound, float(rising)))
        return HistogramSample(found, self.total)


class CallStats:
    """The counters of one tool, from its first call on."""

    __slots__ = ("calls", "errors", "latency_ms", "output_bytes")

    def __init__(self) -> None:
        self.calls = 0
        self.errors: Counter[str] = Counter()
        self.latency_ms = Histogram(LATENCY_MS)
        self.output_bytes = Histogram(OUTPUT_BYTES)

    def add(self, latency_ms: float, size: int, code: str) -> None:
        """Count a call, with a result of `size` if it has one. `code` is empty if it succeeded."""
        self.calls += 1
        # As `Histogram.add`, inlined: every tool call comes through here.
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


class _Gauge(NamedTuple):
    help_text: str
    labels: tuple[str, ...]
    read: Reader

    def family(self, name: str) -> MetricFamily:
        """The present value."""
        value = self.read()
        samples: Mapping[Any, float] = {**value} if isinstance(value, Mapping) else {(): value}
        kind: MetricKind = "counter" if name.endswith("_total") else "gauge"
        return MetricFamily(name, kind, self.help_text, self.labels, samples)


class Metrics:
    """All counters of a process, and their text for Prometheus."""

    def __init__(self) -> None:
        self.calls: dict[tuple[str, str], CallStats] = {}
        self._tools: Counter[str] = Counter()
        """How many tools of a server are counted separately."""
        self.injections: Counter[tuple[str, str]] = Counter()
        """Lists by server and status: `success`, `stale`, `failed` or `denied`."""
        self.denials: Counter[tuple[str, str]] = Counter()
        """Requested names that were left out, by server and reason."""
        self.connects: Counter[tuple[str, str]] = Counter()
        """Connections by server and status: `success` or `failed`."""
        self.evictions = 0
        """Idle servers whose child process was ended to start another's."""
        self.list_latency_ms: dict[str, Histogram] = {}
        self.effective_servers: dict[str, int] = {}
        self.empty_scopes = 0
        self.scope_tools = Histogram((0, 1, 5, 10, 20, 50, 100, 200, 500))
        self.scope_tokens = Histogram((0, 100, 500, 1_000, 5_000, 10_000, 50_000))
        self.chats: Counter[tuple[str, str]] = Counter()
        """Chats by upstream and outcome."""
        self.chat_rounds = Histogram(ROUNDS)
        self.session_calls: dict[str, Histogram] = {}
        """Of ended sessions, by endpoint."""
        self.session_rounds: dict[str, Histogram] = {}
        self.limit_hits: Counter[tuple[str, str]] = Counter()
        """Limits that sessions hit, by endpoint and limit."""
        self.model_latency_ms: dict[str, Histogram] = {}
        self.invocations: Counter[tuple[str, str]] = Counter()
        """Ended runs of tasks on this node, by state and cause."""
        self.invocation_ms = Histogram(RUN_MS)
        self.budget_refusals: Counter[str] = Counter()
        """Calls over a quota, by quota."""
        self.shadow_denials: Counter[tuple[str, str]] = Counter()
        """Calls that a policy without enforcement would have denied, by server and reason."""
        self.profile_arms: dict[tuple[str, str], CallStats] = {}
        """Calls by profile in a rollout and side: `stable` or `candidate`."""
        self._gauges: dict[str, _Gauge] = {}

    def tool(self, server_id: str, tool: str) -> CallStats:
        """The counters of a tool. For names that callers invent use `tool("", "")`."""
        stats = self.calls.get((server_id, tool))
        return self._first_call(server_id, tool) if stats is None else stats

    def _first_call(self, server_id: str, tool: str) -> CallStats:
        if self._tools[server_id] >= MAX_TOOLS_COUNTED:
            return self.calls.setdefault((server_id, ""), CallStats())
        self._tools[server_id] += 1
        stats = self.calls[server_id, tool] = CallStats()
        return stats

    def arms(self, versions: Iterable[ProfileVersion]) -> tuple[CallStats, ...]:
        """The counters of these versions of profiles: only those in a rollout are counted."""
        return tuple(
            self.profile_arms.setdefault((one.profile_id, one.side), CallStats())
            for one in versions
            if one.side is not None
        )

    def on_evicted(self) -> None:
        self.evictions += 1

    def list_latency(self, server_id: str) -> Histogram:
        return self.list_latency_ms.setdefault(server_id, Histogram(LATENCY_MS))

    def model_latency(self, upstream_id: str) -> Histogram:
        return self.model_latency_ms.setdefault(upstream_id, Histogram(LATENCY_MS))

    def end_session(self, endpoint: str, *, calls: int, rounds: int) -> None:
        """Count an ended session by its endpoint."""
        self.session_calls.setdefault(endpoint, Histogram(SESSION_CALLS)).add(calls)
        self.session_rounds.setdefault(endpoint, Histogram(ROUNDS)).add(rounds)

    def gauge(self, name: str, help_text: str, read: Reader, *, labels: tuple[str, ...] = ()) -> None:
        """Register a value that is read on a scrape: one, or one for each value of `labels`.

        A name that ends in `_total` is a counter.
        """
        self._gauges[name] = _Gauge(help_text, labels, read)

    def keep(self, servers: Container[str], tasks: Container[str], chat_upstreams: Container[str], /) -> None:
        """Forget the counters of all other records: they were removed."""
        for by_tool in [key for key in self.calls if key[0] and key[0] not in servers]:
            del self.calls[by_tool]
            self._tools.pop(by_tool[0], None)
        for counts in (self.injections, self.denials, self.connects, self.shadow_denials):
            _drop_others(counts, servers)
        _drop_others(self.chats, chat_upstreams)
        _drop_unknown(self.list_latency_ms, servers)
        _drop_unknown(self.effective_servers, tasks)
        _drop_unknown(self.model_latency_ms, chat_upstreams)

    def keep_arms(self, profiles: Iterable[str]) -> None:
        """Forget the versions of all other profiles: their rollouts are over."""
        kept = frozenset(profiles)
        for arm in [arm for arm in self.profile_arms if arm[0] not in kept]:
            del self.profile_arms[arm]

    def families(self) -> Sequence[MetricFamily]:
        """Every metric with its present value."""
        return [*_families(self), *self._read_gauges()]

    def render(self) -> bytes:
        return self.capture()()

    def capture(self) -> Callable[[], bytes]:
        """Read the gauges now, and return what makes the text, for a thread if that takes long."""
        gauges = self._read_gauges()
        return partial(render_families, lambda: [*_families(self), *gauges])

    def _read_gauges(self) -> Sequence[MetricFamily]:
        return [gauge.family(name) for name, gauge in self._gauges.items()]


def _drop_others(counts: Counter[tuple[str, str]], known: Container[str]) -> None:
    for key in [key for key in counts if key[0] and key[0] not in known]:
        del counts[key]


def _drop_unknown(found: dict[str, Histogram] | dict[str, int], known: Container[str]) -> None:
    for key in [key for key in found if key and key not in known]:
        del found[key]


_TOOL: Final = ("server_id", "tool")
_ARM: Final = ("profile", "side")
_STATUS: Final = ("server_id", "status")
_REASON: Final = ("server_id", "reason")


def _families(metrics: Metrics) -> Iterator[MetricFamily]:
    """Other threads count meanwhile, so whatever may grow is copied before it is iterated."""
    yield from _call_families(dict(metrics.calls), dict(metrics.profile_arms))
    yield from _policy_families(metrics)
    yield from _chat_families(metrics)
    by_cause = "Ended runs of tasks on this node, by state and cause."
    yield _counters("toolgate_invocations_total", by_cause, metrics.invocations, "state", "ended_by")
    yield _histogram("toolgate_invocation_ms", "Time of a run of a task.", metrics.invocation_ms)


def _call_families(
    calls: Mapping[tuple[str, str], CallStats], arms: Mapping[tuple[str, str], CallStats]
) -> Iterator[MetricFamily]:
    number = {key: one.calls for key, one in calls.items()}
    yield _counters("mcp_tool_call_total", "Tool calls, denied and failed ones included.", number, *_TOOL)
    failed = "Tool calls without a good result."
    yield _counters("mcp_tool_call_error_total", failed, _errors(calls), *_TOOL, "code")
    latency = {key: one.latency_ms for key, one in calls.items()}
    yield _histogram("mcp_tool_call_latency_ms", "Time of a tool call, denied ones aside.", latency, *_TOOL)
    sizes = {key: one.output_bytes for key, one in calls.items()}
    yield _histogram("mcp_tool_call_output_bytes", "Size of a tool's result.", sizes, *_TOOL)
    number = {arm: one.calls for arm, one in arms.items()}
    by_version = "Calls under a profile in a rollout, by version; denied ones included."
    yield _counters("toolgate_profile_calls_total", by_version, number, *_ARM)
    failed = "Of those, calls without a good result."
    yield _counters("toolgate_profile_call_errors_total", failed, _errors(arms), *_ARM, "code")
    latency = {arm: one.latency_ms for arm, one in arms.items()}
    yield _histogram("toolgate_profile_call_latency_ms", "Time of those that were sent.", latency, *_ARM)


def _errors(stats: Mapping[tuple[str, str], CallStats]) -> Mapping[tuple[str, str, str], int]:
    return {(*key, code): many for key, one in stats.items() for code, many in list(one.errors.items())}


def _policy_families(metrics: Metrics) -> Iterator[MetricFamily]:
    listed = "Servers in lists of tools, for clients or models."
    yield _counters("mcp_injection_total", listed, metrics.injections, *_STATUS)
    left_out = "Requested names that were left out, alone or with the whole request."
    yield _counters("mcp_denied_reason", left_out, metrics.denials, *_REASON)
    shadow = "Calls that a policy without enforcement would have denied."
    yield _counters("toolgate_shadow_denials_total", shadow, metrics.shadow_denials, *_REASON)
    over = "Calls over a rate limit or quota."
    yield _counters("toolgate_budget_refusals_total", over, metrics.budget_refusals, "budget")
    yield _counters("mcp_server_connect_total", "Attempted connections.", metrics.connects, *_STATUS)
    evicted = "Idle servers whose child process was ended to start another's."
    yield _counters("toolgate_child_evictions_total", evicted, metrics.evictions)
    latency = metrics.list_latency_ms
    yield _histogram("mcp_list_tools_latency_ms", "Time of a full tools/list.", latency, "server_id")
    effective, newest = dict(metrics.effective_servers), "Servers in the newest scope."
    yield MetricFamily("mcp_effective_servers", "gauge", newest, ("task_id",), effective)
    yield _counters("toolgate_empty_scopes_total", "Compiled scopes without a tool.", metrics.empty_scopes)
    yield _histogram("toolgate_scope_tools", "Compiled scopes, by tools.", metrics.scope_tools)
    yield _histogram("toolgate_scope_tokens", "Compiled scopes, by tokens.", metrics.scope_tokens)


def _chat_families(metrics: Metrics) -> Iterator[MetricFamily]:
    """Chats, and sessions of all endpoints."""
    by_outcome = "Chat requests, by upstream and outcome."
    yield _counters("toolgate_chat_total", by_outcome, metrics.chats, "upstream", "outcome")
    yield _histogram("toolgate_chat_rounds", "Rounds of tools in a conversation.", metrics.chat_rounds)
    latency, whole = metrics.model_latency_ms, "Time of a model's whole completion."
    yield _histogram("toolgate_chat_model_latency_ms", whole, latency, "upstream")
    calls, rounds = metrics.session_calls, metrics.session_rounds
    yield _histogram("toolgate_session_calls", "Tool calls of a session that ended.", calls, "endpoint")
    yield _histogram("toolgate_session_rounds", "Rounds of a session that ended.", rounds, "endpoint")
    hits, by_limit = metrics.limit_hits, "Limits that sessions hit, by endpoint and limit."
    yield _counters("toolgate_session_limit_hits_total", by_limit, hits, "endpoint", "limit")


def _counters(name: str, help_text: str, counts: Mapping[Any, int] | int, *labels: str) -> MetricFamily:
    samples: Mapping[Any, float] = {(): counts} if isinstance(counts, int) else dict(counts)
    return MetricFamily(name, "counter", help_text, labels, samples)


def _histogram(
    name: str, help_text: str, histograms: Mapping[Any, Histogram] | Histogram, *labels: str
) -> MetricFamily:
    each = {(): histograms} if isinstance(histograms, Histogram) else dict(histograms)
    samples = {key: one.cumulate() for key, one in each.items()}
    return MetricFamily(name, "histogram", help_text, labels, samples)
