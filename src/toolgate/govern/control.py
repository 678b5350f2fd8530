"""What the surfaces govern, handed to them whole by the composition root. They keep nothing of their own."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field

from toolgate.gateway.gateway import Gateway
from toolgate.gateway.identity import Identities
from toolgate.govern.terms import Terms
from toolgate.registry.reload import DirectoryLoader
from toolgate.registry.store import Store


@dataclass(frozen=True, slots=True, kw_only=True)
class Control:
    """The parts of a running gateway that surfaces read and govern."""

    gateway: Gateway
    store: Store
    identities: Identities
    loader: DirectoryLoader | None
    """None: no directory of server files is configured."""
    clock_ms: Callable[[], int]
    """Wall clock: what audit records are dated by."""
    terms: Terms = field(default_factory=Terms)
    turn: asyncio.Lock = field(default_factory=asyncio.Lock)
    """Held while a write is checked and committed, so that those who write here do not hinder each other."""
    started_at_ms: int = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "started_at_ms", self.clock_ms())
