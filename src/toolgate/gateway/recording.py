"""What is written down and counted of calls: one record for each, and one for each that was denied."""

import asyncio
import time
from collections.abc import Callable
from typing import Final

import msgspec

from toolgate.audit.events import CallRecorded, Outcome
from toolgate.audit.log import AuditLog
from toolgate.errors import ToolgateError
from toolgate.gateway.caller import Caller, Trace
from toolgate.gateway.routes import Route, meant_ref
from toolgate.gateway.view import View
from toolgate.model.names import ToolRef
from toolgate.model.principals import Principal
from toolgate.policy.scope import Decision
from toolgate.telemetry import Metrics

MAX_AUDITED_NAME: Final = 200


class Ending(msgspec.Struct, frozen=True, gc=False):
    """What came of a call."""

    outcome: Outcome
    code: str
    took_s: float
    argument_bytes: int
    result_bytes: int


class Recording:
    """Takes note of calls. `decide` says why a caller does not have what it called."""

    def __init__(
        self, audit: AuditLog, metrics: Metrics, *, decide: Callable[[Caller, ToolRef], Decision]
    ) -> None:
        self._audit = audit
        self._metrics = metrics
        self._decide = decide

    def ended(self, view: View, route: Route, trace: Trace, ending: Ending, /) -> None:
        """A call that came to its tool has ended, well or not."""
        self._metrics.tool(route.server_id, route.label).add(
            ending.took_s * 1e3, ending.result_bytes, ending.code
        )
        caller = view.caller
        # By position: to match seventeen names takes longer than to make the record.
        record = CallRecorded(
            int(time.time() * 1e3),
            trace.door,
            caller.principal.id,
            route.name[:MAX_AUDITED_NAME],
            ending.outcome,
            route.server_id,
            caller.effective_task_id or "",
            trace.session,
            trace.request_id,
            ending.code,
            route.layer,
            route.rule,
            view.revision,
            route.digest,
            int(ending.took_s * 1e6),
            ending.argument_bytes,
            ending.result_bytes,
        )
        self._audit.record(record)

    def refused(self, principal: Principal, code: str, *, door: str, revision: int) -> None:
        """A request was turned away before it came to a call."""
        self._audit.record(
            CallRecorded(
                at_ms=int(time.time() * 1e3),
                door=door,
                principal=principal.id,
                tool="",
                outcome="denied",
                code=code,
                revision=revision,
            )
        )

    def unknown(self, view: View, name: str, trace: Trace, *, code: str) -> None:
        """A caller called what it does not have."""
        self._metrics.tool("", "").errors[code] += 1
        # After the answer: how long it takes must not tell what is denied from what does not exist.
        asyncio.get_running_loop().call_soon(
            self._denied, view, name[:MAX_AUDITED_NAME], trace, code, int(time.time() * 1e3)
        )

    def _denied(self, view: View, name: str, trace: Trace, code: str, at_ms: int, /) -> None:
        layer, rule = self._objection(view.caller, name)
        self._audit.record(
            CallRecorded(
                at_ms=at_ms,
                door=trace.door,
                principal=view.caller.principal.id,
                tool=name,
                outcome="denied",
                task_id=view.caller.effective_task_id or "",
                session=trace.session,
                request_id=trace.request_id,
                code=code,
                layer=layer,
                rule=rule,
                revision=view.revision,
            )
        )

    def _objection(self, caller: Caller, name: str) -> tuple[str, str]:
        """The layer and rule that keep from a caller what it called `name`; empty where nothing does."""
        ref = meant_ref(caller, name)
        try:
            decision = None if ref is None else self._decide(caller, ref)
        except ToolgateError:  # its task is gone
            decision = None
        return ("", "") if decision is None or decision.allowed else (decision.layer, decision.rule)
