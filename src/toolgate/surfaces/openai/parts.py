"""What the handlers of this door have in common."""

from collections.abc import Callable
from dataclasses import dataclass

from toolgate.gateway.gateway import Gateway
from toolgate.gateway.sealed_turns import SealedTurns
from toolgate.gateway.signing import Signer
from toolgate.upstream.models.client import Models


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
