"""The one way to a server: what must be agreed to first, then the request, and what is written down of it."""

import asyncio
import time
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any, Final

from msgspec.structs import replace

from toolgate.audit.events import CallEnded, Outcome
from toolgate.errors import ApprovalDenied, ApprovalRequired, CallTimedOut, ToolgateError
from toolgate.gateway.call.approval import ApprovalStage
from toolgate.gateway.call.audit_trail import AuditTrail, CallEnd
from toolgate.gateway.call.quota import QuotaLeases, QuotaReservation
from toolgate.gateway.call.tracing import TracedServers
from toolgate.gateway.cluster.servers import ServerCaller
from toolgate.gateway.scope.caller import Caller, Trace
from toolgate.gateway.scope.routes import Route, approval_route
from toolgate.gateway.scope.token_counts import estimate_result
from toolgate.gateway.scope.view import View
from toolgate.telemetry.spans import Tracer, open_span
from toolgate.upstream.connection.contract import ClientChannel, Params
from toolgate.upstream.connection.messages import is_tool_error
from toolgate.upstream.pool.pool import CallOrigin, ServerResponse

_TIMER_SLACK_S: Final = 0.01
"""By so much a timer may be early."""


class CallPipeline:
    """Sends requests to servers, each written down with what came of it."""

    def __init__(
        self,
        servers: ServerCaller,
        recording: AuditTrail,
        approving: ApprovalStage,
        spending: QuotaLeases,
        *,
        recheck: Callable[[Caller, Route], bool],
        check_again: Callable[[Caller, Route], None],
    ) -> None:
        """`recheck`: whether a call may still be made after somebody took time over it: see `Gateway`.

        `check_again`: raises what a request is refused with after it waited for its server.
        """
        self._servers = servers
        self._recording = recording
        self.approving = approving
        """Asks for approvals. One that knows whom to ask may take its place before anybody calls."""
        self.spending = spending
        """Takes calls out of budgets over time. It too may be replaced by one that knows whom to ask."""
        self._recheck = recheck
        self._check_again = check_again
        self._tracing: Tracer | None = None

    def trace(self, tracing: Tracer) -> None:
        """Make a span of every request from now on."""
        self._tracing = tracing
        self._servers = TracedServers(self._servers, tracing)

    # Not a coroutine of its own: a plain call is worth one frame less on the way to its server.

    def send(
        self,
        view: View,
        route: Route,
        method: str,
        params: Params,
        *,
        trace: Trace,
        client: ClientChannel | None,
    ) -> Coroutine[Any, Any, ServerResponse]:
        """What the server of `route` answers to `params` of `method`."""
        is_plain = route.approval is None and not view.allowances
        send = self._send if is_plain else self._send_checked
        return send(view, route, method, params, trace=trace, client=client)

    async def _send_checked(
        self,
        view: View,
        route: Route,
        method: str,
        params: Params,
        *,
        trace: Trace,
        client: ClientChannel | None,
    ) -> ServerResponse:
        """As `_send`, once there is room in the caller's budgets, and a person has agreed."""
        ticket = await self._pay(view, route, params, trace) if view.allowances else QuotaReservation()
        if route.approval is not None:
            began = time.perf_counter()
            try:
                with open_span(self._tracing, "approval"):
                    await self.approving.admit(
                        view.caller,
                        route,
                        params,
                        trace=trace,
                        client=client,
                        recheck=partial(self._recheck, view.caller, route),
                    )
            except (ToolgateError, asyncio.CancelledError) as exc:
                ticket.give_back()
                is_denial = isinstance(exc, ApprovalRequired | ApprovalDenied)
                ending = _unsent_end(exc, route, params, began, is_denial=is_denial, trace=trace)
                self._recording.ended(view, approval_route(route) if is_denial else route, trace, ending)
                raise
        answer = await self._send(view, route, method, params, trace=trace, client=client)
        self.spending.spent(view.allowances, estimate_result(answer.reply))
        return answer

    async def _pay(self, view: View, route: Route, params: Params, trace: Trace, /) -> QuotaReservation:
        """Take a call out of the caller's budgets. Raises what says that one of them is used up."""
        began = time.perf_counter()
        try:
            with open_span(self._tracing, "budget"):
                paid = await self.spending.admit(view.allowances)
        except (ToolgateError, asyncio.CancelledError) as exc:
            ending = _unsent_end(exc, route, params, began, is_denial=False, trace=trace)
            self._recording.ended(view, route, trace, ending)
            raise
        if isinstance(paid, QuotaReservation):
            return paid
        error = paid.error()
        refusing = replace(route, layer=paid.holder.kind, rule=paid.rule)
        ending = _unsent_end(error, route, params, began, is_denial=True, trace=trace)
        self._recording.ended(view, refusing, trace, ending)
        raise error

    async def _send(
        self,
        view: View,
        route: Route,
        method: str,
        params: Params,
        *,
        trace: Trace,
        client: ClientChannel | None,
    ) -> ServerResponse:
        arguments = params.get("arguments")
        if arguments is None and method == "completion/complete":
            arguments = params.get("argument")
        sent = 0 if arguments is None else memoryview(arguments).nbytes
        start = self._recording.began(view, route, trace, route.redaction.redact_for_audit(arguments), sent)
        began = time.perf_counter()
        outcome: Outcome = "error"
        code, size, tokens = "internal", 0, 0
        try:
            answer = await self._servers.call(
                route.server_id,
                method,
                params,
                tool=route.tool,
                client=client,
                origin=CallOrigin(
                    trace.session or view.session_key,
                    partial(self._check_again, view.caller, route),
                    view.caller.principal.id,
                ),
            )
            reply = answer.reply
            size, tokens = reply.size, estimate_result(reply)
            if reply.members is None:
                code = "server_error"
            else:
                is_failure = route.tool is not None and is_tool_error(reply.members)
                outcome, code = "tool_error" if is_failure else "ok", ""
        except ToolgateError as exc:
            code = exc.code
            raise
        except asyncio.CancelledError:
            outcome, code = _cancellation_outcome(trace)
            raise
        finally:
            took_us = int((time.perf_counter() - began) * 1e6)
            end = CallEnded(int(time.time() * 1e3), outcome, start, code, took_us, size, tokens)
            self._recording.record_response(view, route, end)
        return answer


def _cancellation_outcome(trace: Trace) -> tuple[Outcome, str]:
    """What is on record of a call that was cancelled: its time was up, or somebody would not have it."""
    is_late = asyncio.get_running_loop().time() >= trace.deadline_s - _TIMER_SLACK_S
    return ("error", CallTimedOut.code) if is_late else ("cancelled", "cancelled")


def _unsent_end(
    exc: BaseException, route: Route, params: Params, began: float, *, is_denial: bool, trace: Trace
) -> CallEnd:
    """What is on record of a call that was not sent because of `exc`."""
    outcome: Outcome = "denied" if is_denial else "error"
    if isinstance(exc, ToolgateError):
        code = exc.code
    else:
        outcome, code = _cancellation_outcome(trace)
    arguments = params.get("arguments")
    sent = 0 if arguments is None else memoryview(arguments).nbytes
    took_s, shown = time.perf_counter() - began, route.redaction.redact_for_audit(arguments)
    return CallEnd(outcome, code, took_s, sent, 0, arguments=shown)
