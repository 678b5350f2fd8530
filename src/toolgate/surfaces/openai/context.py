"""What the handlers of this door have in common."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Any, Protocol

from toolgate.chat.requests import Asked
from toolgate.errors import BudgetExceeded, PolicyDenied
from toolgate.gateway.chat.scope import ChatScope, chat_scope
from toolgate.gateway.chat.session import counted
from toolgate.gateway.gateway import Gateway
from toolgate.gateway.scope.caller import Caller, Trace
from toolgate.gateway.sealed_turns import SealedTurns
from toolgate.gateway.signing import Signer
from toolgate.surfaces.openai.exchange import Exchange
from toolgate.telemetry.spans import trace_id_of
from toolgate.upstream.models.client import Models


class ScopedRequest(Protocol):
    """A parsed request, as far as it says what it is served with."""

    @property
    def model(self) -> str: ...
    @property
    def params(self) -> Mapping[str, Any]: ...
    @property
    def asked(self) -> Asked: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatParts:
    """All that is needed to ask models and to run tools. `wall_s` is the time of day."""

    gateway: Gateway
    models: Models
    signer: Signer
    wall_s: Callable[[], float]

    @property
    def turns(self) -> SealedTurns:
        """The hidden halves of turns, as clients keep them."""
        return SealedTurns(self.signer, self.wall_s)

    def scope(self, exchange: Exchange, request: ScopedRequest) -> ChatScope:
        """What a request is served with. Raises what every door refuses a scope with, and UnknownModel."""
        return chat_scope(
            self.gateway,
            exchange.principal,
            task_id=exchange.task_id,
            model=request.model,
            params=request.params,
            asked=request.asked,
        )

    @contextmanager
    def denials_recorded(self, exchange: Exchange, *, door: str) -> Iterator[None]:
        """Whoever asks for more than it may have is on record."""
        try:
            yield
        except (PolicyDenied, BudgetExceeded) as exc:
            trace = Trace(door, request_id=exchange.request_id, trace_id=trace_id_of(self.gateway.tracing))
            task_id = Caller(exchange.principal, exchange.task_id).effective_task_id
            self.gateway.record_refused(exchange.principal, exc, trace=trace, task_id=task_id)
            raise

    def counted(self, scope: ChatScope) -> AbstractContextManager[list[str]]:
        """Count one request by how it ends."""
        return counted(self.gateway, scope)
