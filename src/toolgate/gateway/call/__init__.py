"""The pipeline of one request to a server: quota, approval, audit, send.

The facade makes a `CallContext` and passes it to `CallPipeline.run`. The stages admit or deny the call, in
their order. Then the pipeline audits its start, sends the request, and audits its end, even after a failure.
This module has the values that stages take and return; it never sends, waits or writes a record.

- `targets`  the route of a request, and whether it still applies after waiting
- `quota`, `approval`  the stages
- `pipeline`  admission and sending, with a span if tracing is on
- `audit_trail`  the only place that writes audit records of calls
- `elicitation`  input that a server or an approval requests from the client; parked calls

Never sends a request twice, and never sends one that is not in the audit log.
"""

from typing import NamedTuple, Protocol

import msgspec

from toolgate.errors import ToolgateError
from toolgate.gateway.scope.caller import Trace
from toolgate.gateway.scope.routes import Route
from toolgate.gateway.scope.view import View
from toolgate.upstream.connection.contract import ClientChannel, Params


class CallContext(msgspec.Struct, frozen=True):
    """One request: who sent it, what policy decided, and what to send. Made once and never changed."""

    view: View
    route: Route
    method: str
    params: Params
    trace: Trace
    client: ClientChannel | None = None
    """The client behind the request, if the server may send it requests."""


class Denial(NamedTuple):
    """A stage denied the call."""

    error: ToolgateError
    """The error for the caller."""
    layer: str
    """The layer and rule that denied the call, for the audit log."""
    rule: str


class Admission:
    """A stage admitted the call. Stages that reserve something for the call override both methods."""

    __slots__ = ()

    def release(self) -> None:
        """A later stage denied the call, so it is not sent."""

    def settle(self, tokens: int) -> None:
        """The server responded with a result of `tokens` tokens."""


ADMITTED = Admission()


class CallStage(Protocol):
    """One step between a call and its server."""

    name: str
    """The name of its span."""

    def applies_to(self, call: CallContext) -> bool:
        """Whether the stage must admit this call."""

    async def admit(self, call: CallContext) -> Admission | Denial:
        """Admit or deny the call. Raises a `ToolgateError` if the stage cannot decide."""
