"""What is written down and counted of calls: one record for each, and one for each that was denied."""

import asyncio
import time
from collections.abc import Callable
from typing import Final

import msgspec
from msgspec.structs import replace

from toolgate.audit.events import CallEnded, CallRecorded, CallStarted, Outcome
from toolgate.audit.log.lines import encode_call_fields
from toolgate.audit.log.writer import AuditLog
from toolgate.errors import PolicyDenied, ServerUnavailable, ToolgateError
from toolgate.gateway.scope.caller import Caller, Trace
from toolgate.gateway.scope.routes import Route, guess_ref
from toolgate.gateway.scope.view import View
from toolgate.model.json_text import NO_ARGUMENTS
from toolgate.model.names import MAX_AUDITED_NAME, ToolRef
from toolgate.model.principals import Principal
from toolgate.model.snapshot import Snapshot
from toolgate.policy.scope import Decision
from toolgate.redaction.arguments import DEFAULT_REDACTION
from toolgate.telemetry import Metrics

MAX_REASON: Final = 160
"""Characters of the reason for which a request was refused."""
MAX_NAME: Final = 2_048
"""Of what is unknown, so much is looked at."""

_encode = msgspec.json.Encoder().encode


class CallEnd(msgspec.Struct, frozen=True, gc=False):
    """What came of a call."""

    outcome: Outcome
    code: str
    took_s: float
    argument_bytes: int
    result_bytes: int
    start: int = 0
    """The number under which its beginning is on record; 0 where nothing was sent."""
    arguments: msgspec.Raw = NO_ARGUMENTS
    """Redacted."""
    result_tokens: int = 0


class _CallOwnFields(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """What a start says of its call alone, by the names of CallStarted."""

    argument_bytes: int = 0
    session: str = ""
    request_id: str = ""
    arguments: msgspec.Raw = NO_ARGUMENTS
    trace_id: str = ""


class AuditTrail:
    """Takes note of calls. `decide` says why a caller does not have what it called."""

    def __init__(
        self, audit: AuditLog, metrics: Metrics, *, decide: Callable[[Caller, ToolRef], Decision]
    ) -> None:
        self._audit = audit
        self._metrics = metrics
        self._decide = decide

    def began(
        self, view: View, route: Route, trace: Trace, arguments: msgspec.Raw, argument_bytes: int, /
    ) -> int:
        """A call is about to be sent: on record, whatever becomes of this process, when this returns.

        Gives the number of the record. Raises ServerUnavailable: what cannot be recorded is not sent.
        """
        own = _encode(
            _CallOwnFields(argument_bytes, trace.session, trace.request_id, arguments, trace.trace_id)
        )
        said = view.start_records.get((trace.door, route.server_id, route.name))
        if said is None:
            said = _start_record_of(view, route, trace.door)
        said = said + own[1:] if len(own) > len(b"{}") else said[:-1] + b"}"
        try:
            return self._audit.begin(int(time.time() * 1e3), said)
        except ServerUnavailable as exc:
            self._metrics.tool(route.server_id, route.label).refuse(exc.code)
            raise

    def record_response(self, view: View, route: Route, end: CallEnded, /) -> None:
        """A call that was sent has ended, well or not."""
        self._audit.end(end)
        metrics, code = self._metrics, end.code
        stats = metrics.calls.get((route.server_id, route.label))
        if stats is None:
            stats = metrics.tool(route.server_id, route.label)
        if code:
            stats.add(end.duration_us / 1e3, end.result_bytes, code)
        else:
            stats.add(end.duration_us / 1e3, end.result_bytes, "" if end.outcome == "ok" else end.outcome)
            view.tokens.record_result(end.result_tokens)
        if route.shadow:
            metrics.shadow_denials[route.server_id, route.shadow_reason] += 1
        for arm in view.arms:
            arm.add(end.duration_us / 1e3, 0, code or ("" if end.outcome == "ok" else end.outcome))

    def ended(self, view: View, route: Route, trace: Trace, ending: CallEnd, /) -> None:
        """A call that came to its tool has ended, well or not."""
        for stats in (self._metrics.tool(route.server_id, route.label), *view.arms):
            if ending.outcome == "denied":
                stats.refuse(ending.code)
            else:
                code = "tool_error" if ending.outcome == "tool_error" else ending.code
                stats.add(ending.took_s * 1e3, ending.result_bytes, code)
        if route.shadow:
            self._metrics.shadow_denials[route.server_id, route.shadow_reason] += 1
        if not ending.code:
            view.tokens.record_result(ending.result_tokens)
        at_ms, took_us = int(time.time() * 1e3), int(ending.took_s * 1e6)
        if ending.start:
            self._audit.end(
                CallEnded(
                    at_ms,
                    ending.outcome,
                    ending.start,
                    ending.code,
                    took_us,
                    ending.result_bytes,
                    ending.result_tokens,
                )
            )
            return
        caller = view.caller
        self._audit.record(
            CallRecorded(
                at_ms=at_ms,
                door=trace.door,
                principal=caller.principal.id,
                tool=_audited_name(route),
                outcome=ending.outcome,
                server_id=route.server_id,
                task_id=caller.effective_task_id or "",
                session=trace.session,
                request_id=trace.request_id,
                code=ending.code,
                layer=route.layer,
                rule=route.rule,
                revision=view.revision,
                definition=route.digest,
                duration_us=took_us,
                argument_bytes=ending.argument_bytes,
                result_bytes=ending.result_bytes,
                arguments=ending.arguments,
                result_tokens=ending.result_tokens,
                shadow=route.shadow,
                trace_id=trace.trace_id,
                profile=view.profiles,
            )
        )

    def record_unmade(self, view: View, route: Route, trace: Trace, *, code: str) -> None:
        """A call of what the caller has was turned away before it was made, and by no rule."""
        self.ended(view, replace(route, layer="", rule=""), trace, CallEnd("denied", code, 0.0, 0, 0))

    def refused(
        self,
        principal: Principal,
        why: ToolgateError | str,
        trace: Trace,
        /,
        *,
        task_id: str,
        snapshot: Snapshot,
    ) -> None:
        """A request was refused, with an error or a code, before it came to a call."""
        code = why if isinstance(why, str) else why.code
        asked = why.servers if isinstance(why, PolicyDenied) else ()
        registered = [server_id for server_id in asked if server_id in snapshot.servers]
        self._metrics.denials.update((server_id, code) for server_id in registered or [""])
        self._audit.record(
            CallRecorded(
                at_ms=int(time.time() * 1e3),
                door=trace.door,
                principal=principal.id,
                tool="",
                outcome="denied",
                server_id=asked[0] if len(asked) == 1 else "",
                task_id=task_id,
                session=trace.session,
                request_id=trace.request_id,
                code=code,
                layer="task" if asked else "",
                rule="" if isinstance(why, str) else str(why)[:MAX_REASON],
                revision=snapshot.revision,
                trace_id=trace.trace_id,
            )
        )

    def unknown(self, view: View, name: str, trace: Trace, *, code: str) -> None:
        """A caller called what it does not have."""
        for stats in (self._metrics.tool("", ""), *view.arms):
            stats.refuse(code)
        # After the answer: how long it takes must not tell what is denied from what does not exist.
        asyncio.get_running_loop().call_soon(
            self._denied, view, name[:MAX_NAME], trace, code, int(time.time() * 1e3)
        )

    def _denied(self, view: View, name: str, trace: Trace, code: str, at_ms: int, /) -> None:
        layer, rule = self._find_denial(view.caller, name)
        self._audit.record(
            CallRecorded(
                at_ms=at_ms,
                door=trace.door,
                principal=view.caller.principal.id,
                tool=DEFAULT_REDACTION.redact_name(name, MAX_AUDITED_NAME),
                outcome="denied",
                task_id=view.caller.effective_task_id or "",
                session=trace.session,
                request_id=trace.request_id,
                code=code,
                layer=layer,
                rule=rule,
                revision=view.revision,
                trace_id=trace.trace_id,
                profile=view.profiles,
            )
        )

    def _find_denial(self, caller: Caller, name: str) -> tuple[str, str]:
        """The layer and rule that keep from a caller what it called `name`; empty where nothing does."""
        ref = guess_ref(caller, name)
        try:
            decision = None if ref is None else self._decide(caller, ref)
        except ToolgateError:  # its task is gone
            decision = None
        return ("", "") if decision is None or decision.allowed else (decision.layer, decision.rule)


def _start_record_of(view: View, route: Route, door: str) -> bytes:
    """What the starts of all calls by this way say. Encoded once: that is most of what a record costs."""
    caller = view.caller
    start = CallStarted(
        at_ms=0,
        door=door,
        principal=caller.principal.id,
        tool=route.name if route.tool is not None else _audited_name(route),
        server_id=route.server_id,
        task_id=caller.effective_task_id or "",
        layer=route.layer,
        rule=route.rule,
        revision=view.revision,
        definition=route.digest,
        shadow=route.shadow,
        profile=view.profiles,
    )
    said = encode_call_fields(start)[:-1] + b","
    if route.tool is not None:  # of others there may be as many as callers can think of
        view.start_records[door, route.server_id, route.name] = said
    return said


def _audited_name(route: Route) -> str:
    """What the audit calls it: a URI may hold a password, and it may be long."""
    return route.redaction.redact_name(route.name, MAX_AUDITED_NAME)
