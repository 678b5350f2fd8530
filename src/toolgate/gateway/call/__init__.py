"""The pipeline of one request to a server: quota, approval, audit, send.

The facade makes a `CallContext` and hands it to `CallPipeline.run`. Stages admit the call in their order or
deny it; then its start is audited, the request is sent, and its end is audited, whatever happens. This module
has the values that stages take and return; it never sends, waits or writes a record.

- `targets`  which route a request leads to, and whether it still does after waiting
- `quota`, `approval`  the stages
- `pipeline`  admission and sending, with a span if tracing is on
- `audit_trail`  the only place that writes audit records of calls
- `elicitation`  input that a server or an approval needs from the client; calls that wait for it

Never sends a request twice, and never sends one that is not recorded.
"""

from typing import NamedTuple, Protocol

import msgspec

from toolgate.errors import ToolgateError
from toolgate.gateway.scope.caller import Trace
from toolgate.gateway.scope.routes import Route
from toolgate.gateway.scope.view import View
from toolgate.upstream.connection.contract import ClientChannel, Params


class CallContext(msgspec.Struct, frozen=True):
    """One request: who sent it, what policy decided, and what to send. Made once, then only passed on."""

    view: View
    route: Route
    method: str
    params: Params
    trace: Trace
    client: ClientChannel | None = None
    """The client behind the request, if the server may ask it something."""

    @property
    def needs_admission(self) -> bool:
        """Whether this call needs a quota or an approval."""
        return self.route.approval is not None or bool(self.view.quotas)


class Denial(NamedTuple):
    """A stage does not let a call through."""

    error: ToolgateError
    """What the caller gets."""
    layer: str
    """The layer and rule that denied it, for the audit."""
    rule: str


class Admission:
    """A stage let a call through. Stages that hold something for the call override both methods."""

    __slots__ = ()

    def release(self) -> None:
        """A later stage stopped the call: it is not sent."""

    def settle(self, tokens: int) -> None:
        """The server responded with a result of `tokens` tokens."""


ADMITTED = Admission()


class CallStage(Protocol):
    """One step between a call and its server."""

    name: str
    """What its span is called."""

    def applies_to(self, call: CallContext) -> bool:
        """Whether this call has to pass the stage."""

    async def admit(self, call: CallContext) -> Admission | Denial:
        """Let the call through or deny it. Raises a `ToolgateError` if neither can be decided."""
