"""Writes the audit records and metrics of calls. No other module writes audit records of calls.

A call that is sent has two records: a start, written before the first byte is sent, and an end. A call that
is not sent has one record. A call of an unknown name is recorded after the response, so that the response
time does not distinguish a denied tool from a missing one.
"""

import asyncio
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec

from toolgate.audit.events import CallEnded, CallRecorded, CallStarted, Outcome, SessionEnded
from toolgate.audit.log.files import encode_call_fields
from toolgate.audit.log.writer import AuditLog
from toolgate.errors import CallTimedOut, PolicyDenied, ServerUnavailable, ToolgateError
from toolgate.gateway.call import CallContext
from toolgate.gateway.scope.caller import Caller, Trace
from toolgate.gateway.scope.routes import Route, guess_ref
from toolgate.gateway.scope.token_counts import estimate_result
from toolgate.gateway.scope.view import View
from toolgate.model.json_text import NO_ARGUMENTS
from toolgate.model.names import MAX_AUDITED_NAME, ToolRef
from toolgate.model.principals import Principal
from toolgate.model.tools import Snapshot, ToolDefinition
from toolgate.policy.scope import Decision
from toolgate.redaction.arguments import DEFAULT_REDACTION
from toolgate.telemetry import Metrics
from toolgate.upstream.connection.messages import is_tool_error
from toolgate.upstream.pool.pool import ServerResponse

MAX_REASON: Final = 160  # characters of the reason for rejecting a request: a sentence
MAX_NAME: Final = 2_048
"""Characters of an unknown name to redact and audit. Callers choose its length."""
_TIMER_SLACK_S: Final = 0.01  # timers of the event loop may fire this early
LIMITS: Final = frozenset(
    {
        *("budget_exceeded", "mcp_busy", "mcp_output_too_large", "mcp_timeout", "node_busy"),
        *("tool_call_limit", "call_limit", "repeated_calls", "round_limit", "time_limit"),
        *("model_busy", "model_timeout"),
    }
)
"""What a session counts as a limit hit: codes of calls, reasons for which a chat ends, limits of models."""

_encode = msgspec.json.Encoder().encode


class CallOutcome(msgspec.Struct, frozen=True, gc=False):
    """How a call ended."""

    outcome: Outcome
    code: str = ""
    result_bytes: int = 0
    result_tokens: int = 0


FAILED: Final = CallOutcome("error", "internal")
"""The outcome of a call that failed by a bug in the gateway."""


def outcome_of_response(response: ServerResponse, tool: ToolDefinition | None, /) -> CallOutcome:
    rpc = response.rpc
    if rpc.members is None:
        return CallOutcome("error", "server_error", rpc.size)
    is_failure = tool is not None and is_tool_error(rpc.members)
    return CallOutcome("tool_error" if is_failure else "ok", "", rpc.size, estimate_result(rpc))


def outcome_of_error(exc: BaseException, trace: Trace) -> CallOutcome:
    """The outcome of a call that raised `exc`: a cancellation at its deadline is a timeout."""
    if isinstance(exc, ToolgateError):
        return CallOutcome("error", exc.code)
    if asyncio.get_running_loop().time() >= trace.deadline_s - _TIMER_SLACK_S:
        return CallOutcome("error", CallTimedOut.code)
    return CallOutcome("cancelled", "cancelled")


class _StartFields(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """The fields of CallStarted that differ from call to call."""

    argument_bytes: int = 0
    session: str = ""
    request_id: str = ""
    arguments: msgspec.Raw = NO_ARGUMENTS
    trace_id: str = ""


@dataclass(frozen=True, slots=True)
class AuditTrail:
    """Records and counts calls. `decide` returns the rule that denies a name to a caller."""

    audit: AuditLog
    metrics: Metrics
    decide: Callable[[Caller, ToolRef], Decision]

    def record_start(self, call: CallContext) -> int:
        """Write a call durably before it is sent. Returns its number. Raises ServerUnavailable on failure."""
        route, trace, arguments = call.route, call.trace, call.params.get("arguments")
        if arguments is None and call.method == "completion/complete":
            arguments = call.params.get("argument")
        size = 0 if arguments is None else memoryview(arguments).nbytes
        shown = route.redaction.redact_for_audit(arguments)
        own = _encode(_StartFields(size, trace.session, trace.request_id, shown, trace.trace_id))
        shared = call.view.start_records.get((trace.door, route.server_id, route.name))
        if shared is None:
            shared = _encode_shared_fields(call)
        line = shared + own[1:] if len(own) > len(b"{}") else shared[:-1] + b"}"
        try:
            return self.audit.begin(int(time.time() * 1e3), line)
        except ServerUnavailable as exc:
            self.metrics.tool(route.server_id, route.label).refuse(exc.code)
            raise

    def record_end(self, call: CallContext, start: int, took_s: float, outcome: CallOutcome) -> None:
        """Write the end of the call with the start record `start`."""
        at_ms, took_us = int(time.time() * 1e3), int(took_s * 1e6)
        size, tokens = outcome.result_bytes, outcome.result_tokens
        self.audit.end(CallEnded(at_ms, outcome.outcome, start, outcome.code, took_us, size, tokens))
        self._count(call, took_s, outcome)

    def record_unsent(
        self,
        call: CallContext,
        took_s: float,
        outcome: CallOutcome,
        *,
        rule: tuple[str, str] | None = None,
        shows_arguments: bool = True,
    ) -> None:
        """Write the outcome of a call that no server got. `rule`: layer and rule, if not the route's."""
        route, arguments = call.route, call.params.get("arguments")
        layer, rule_text = (route.layer, route.rule) if rule is None else rule
        if outcome.outcome == "denied":
            for stats in (self.metrics.tool(route.server_id, route.label), *call.view.arms):
                stats.refuse(outcome.code)
            if route.shadow:
                self.metrics.shadow_denials[route.server_id, route.shadow_reason] += 1
        else:
            self._count(call, took_s, outcome)
        self._record(
            call.trace,
            **_view_fields(call.view),
            tool=_audited_name(route),
            outcome=outcome.outcome,
            server_id=route.server_id,
            code=outcome.code,
            layer=layer,
            rule=rule_text,
            definition=route.digest,
            duration_us=int(took_s * 1e6),
            argument_bytes=0 if arguments is None else memoryview(arguments).nbytes,
            result_bytes=outcome.result_bytes,
            arguments=route.redaction.redact_for_audit(arguments) if shows_arguments else NO_ARGUMENTS,
            result_tokens=outcome.result_tokens,
            shadow=route.shadow,
        )

    def record_unmade(self, view: View, route: Route, trace: Trace, *, code: str) -> None:
        """Write that an allowed call was rejected with `code`, and not by a rule."""
        denied = CallOutcome("denied", code)
        self.record_unsent(CallContext(view, route, "", {}, trace), 0.0, denied, rule=("", ""))

    def record_refused(
        self,
        principal: Principal,
        reason: ToolgateError | str,
        trace: Trace,
        *,
        task_id: str,
        snapshot: Snapshot,
    ) -> None:
        """Write that a request was rejected, with an error or a code, before it became a call."""
        code = reason if isinstance(reason, str) else reason.code
        servers = reason.servers if isinstance(reason, PolicyDenied) else ()
        registered = [server_id for server_id in servers if server_id in snapshot.servers]
        self.metrics.denials.update((server_id, code) for server_id in registered or [""])
        self._record(
            trace,
            principal=principal.id,
            tool="",
            outcome="denied",
            server_id=servers[0] if len(servers) == 1 else "",
            task_id=task_id,
            code=code,
            layer="task" if servers else "",
            rule="" if isinstance(reason, str) else str(reason)[:MAX_REASON],
            revision=snapshot.revision,
        )

    def record_unknown(self, view: View, name: str, trace: Trace, *, code: str) -> None:
        """Write that a caller named a tool, prompt or resource that is not in its view."""
        for stats in (self.metrics.tool("", ""), *view.arms):
            stats.refuse(code)
        # After the response: its time must not distinguish a denied name from a missing one.
        asyncio.get_running_loop().call_soon(
            self._record_denied, view, name[:MAX_NAME], trace, code, int(time.time() * 1e3)
        )

    def _record_denied(self, view: View, name: str, trace: Trace, code: str, at_ms: int, /) -> None:
        ref = guess_ref(view.caller, name)
        try:
            decision = None if ref is None else self.decide(view.caller, ref)
        except ToolgateError:  # the caller's task was removed
            decision = None
        # Empty if no rule denies the name to the caller.
        layer, rule = ("", "") if decision is None or decision.allowed else (decision.layer, decision.rule)
        tool = DEFAULT_REDACTION.redact_name(name, MAX_AUDITED_NAME)
        fields = {"tool": tool, "outcome": "denied", "code": code, "layer": layer, "rule": rule}
        self._record(trace, at_ms, **fields, **_view_fields(view))

    def _record(self, trace: Trace, at_ms: int = 0, /, **fields: Any) -> None:
        fields |= {"session": trace.session, "request_id": trace.request_id, "trace_id": trace.trace_id}
        self.audit.record(CallRecorded(at_ms=at_ms or int(time.time() * 1e3), door=trace.door, **fields))

    def _count(self, call: CallContext, took_s: float, outcome: CallOutcome) -> None:
        metrics, route, view, took_ms = self.metrics, call.route, call.view, took_s * 1e3
        code = outcome.code or ("" if outcome.outcome == "ok" else outcome.outcome)
        stats = metrics.calls.get((route.server_id, route.label))
        if stats is None:
            stats = metrics.tool(route.server_id, route.label)
        stats.add(took_ms, outcome.result_bytes, code)
        for arm in view.arms:
            arm.add(took_ms, 0, code)
        if not outcome.code:
            view.tokens.calls += 1
            view.tokens.results += outcome.result_tokens
        if route.shadow:
            metrics.shadow_denials[route.server_id, route.shadow_reason] += 1


def _view_fields(view: View) -> dict[str, Any]:
    caller = view.caller
    return {
        "principal": caller.principal.id,
        "task_id": caller.effective_task_id or "",
        "revision": view.revision,
        "profile": view.profiles,
    }


def _encode_shared_fields(call: CallContext) -> bytes:
    """The start fields that all calls of a route share, encoded once: they are most of a record's cost."""
    view, route = call.view, call.route
    start = CallStarted(
        at_ms=0,
        door=call.trace.door,
        tool=route.name if route.tool is not None else _audited_name(route),
        server_id=route.server_id,
        layer=route.layer,
        rule=route.rule,
        definition=route.digest,
        shadow=route.shadow,
        **_view_fields(view),
    )
    encoded = encode_call_fields(start)[:-1] + b","
    if route.tool is not None:  # callers can send any number of resource URIs
        view.start_records[call.trace.door, route.server_id, route.name] = encoded
    return encoded


def _audited_name(route: Route) -> str:
    """The route's name for the audit log, redacted and cut: a URI may contain a password."""
    return route.redaction.redact_name(route.name, MAX_AUDITED_NAME)


@dataclass(slots=True)
class SessionTotals:
    """Calls, rounds and limit hits of one session, counted while it lasts and audited once at its end.

    A session is an MCP session (`Mcp-Session-Id`, on this node) or one chat whose tools the gateway runs.
    Requests of the stateless MCP revision have none. No metric has a session as its label.
    """

    began_s: float = field(default_factory=time.monotonic)
    calls: int = 0
    """Tool calls, failed ones included."""
    rounds: int = 0
    """In a chat: rounds in which tools ran. In an MCP session: requests from servers to its client."""
    limits: Counter[str] = field(default_factory=Counter)
    """How often each limit was hit."""

    def count_limit_hit(self, metrics: Metrics, door: str, code: str) -> None:
        if code in LIMITS:
            self.limits[code] += 1
            metrics.limit_hits[door, code] += 1

    def record_end(
        self, audit: AuditLog, metrics: Metrics, caller: Caller, trace: Trace, *, ended_by: str
    ) -> None:
        """Write the totals to the metrics and the audit log, once."""
        metrics.session_calls[trace.door].add(self.calls)
        metrics.session_rounds[trace.door].add(self.rounds)
        audit.record(
            SessionEnded(
                at_ms=int(time.time() * 1e3),
                door=trace.door,
                principal=caller.principal.id,
                ended_by=ended_by,
                session=trace.session,
                request_id=trace.request_id,
                task_id=caller.effective_task_id or "",
                duration_ms=int((time.monotonic() - self.began_s) * 1e3),
                tool_calls=self.calls,
                rounds=self.rounds,
                limits=dict(self.limits),
            )
        )
