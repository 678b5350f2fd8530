"""Calls, rounds and limit hits of each session: counted while it lasts, recorded once when it ends.

A session is an MCP session (`Mcp-Session-Id`, as far as this node serves it), or one chat whose tools the
gateway runs. Requests of the stateless MCP revision have none. No metric has a session as its label.
"""

import time
from collections import Counter
from typing import Final

from toolgate.audit.events import SessionEnded
from toolgate.gateway.gateway import Gateway
from toolgate.gateway.scope.caller import Caller, Trace

LIMITS: Final = frozenset(
    {
        *(
            "budget_exceeded",
            "mcp_busy",
            "mcp_output_too_large",
            "mcp_timeout",
            "node_busy",
            "tool_call_limit",
        ),
        *("call_limit", "repeated_calls", "round_limit", "time_limit"),
        *("model_busy", "model_timeout"),
    }
)
"""What can be hit: the codes of calls that a limit ends, why a chat ends by one, and the limits of models."""


class SessionTotals:
    """What one session has used."""

    __slots__ = ("_began_s", "calls", "limits", "rounds")

    def __init__(self) -> None:
        self._began_s = time.monotonic()
        self.calls = 0
        """Tool calls, those that failed included."""
        self.rounds = 0
        """Of a chat: rounds in which tools were run. Of an MCP session: requests of servers to its client."""
        self.limits: Counter[str] = Counter()
        """How often each limit was hit."""

    def count_limit_hit(self, gateway: Gateway, door: str, code: str) -> None:
        """Count a limit hit, if `code` is that of a limit."""
        if code in LIMITS:
            self.limits[code] += 1
            gateway.metrics.limit_hits[door, code] += 1

    def record_end(self, gateway: Gateway, caller: Caller, trace: Trace, ended_by: str) -> None:
        """Put the totals into the metrics and the audit, once."""
        gateway.metrics.end_session(trace.door, calls=self.calls, rounds=self.rounds)
        gateway.audit.record(
            SessionEnded(
                at_ms=int(time.time() * 1e3),
                door=trace.door,
                principal=caller.principal.id,
                ended_by=ended_by,
                session=trace.session,
                request_id=trace.request_id,
                task_id=caller.effective_task_id or "",
                duration_ms=int((time.monotonic() - self._began_s) * 1e3),
                tool_calls=self.calls,
                rounds=self.rounds,
                limits=dict(self.limits),
            )
        )
