"""The services that surfaces of every serving process read, and its readiness. A node has nothing else.

Never imports the rest of `govern`: a node would load it at its start and never use it.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from toolgate.errors import ToolgateError
from toolgate.gateway.auth.identity import Identities
from toolgate.gateway.auth.issuer import KEYS_ONLY, ResourceMetadata
from toolgate.gateway.gateway import Gateway


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadinessCondition:
    """A reason why a process is degraded or not ready. It is public, so it names no server and no caller."""

    code: str
    hint: str
    blocks: bool = False
    """Whether the process rejects calls because of it."""

    @classmethod
    def of(cls, error: ToolgateError | type[ToolgateError], *, blocks: bool = False) -> "ReadinessCondition":
        """The condition with the code and hint of `error`."""
        hint = error.hint if isinstance(error, ToolgateError) else error.default_hint
        return cls(code=error.code, hint=hint, blocks=blocks)


AUDIT_UNWRITABLE: Final = "audit_unwritable"


@dataclass(frozen=True, slots=True)
class Readiness:
    """Whether this process serves, and whether its snapshot is current."""

    conditions: tuple[ReadinessCondition, ...] = ()

    @property
    def is_degraded(self) -> bool:
        return bool(self.conditions)

    @property
    def is_ready(self) -> bool:
        return not any(one.blocks for one in self.conditions)


@dataclass(frozen=True, slots=True, kw_only=True)
class GatewayProcess:
    """The services of every serving process. A node has only these; `Control` adds those that govern."""

    gateway: Gateway
    identities: Identities
    clock_ms: Callable[[], int]
    """The wall clock, for audit records."""
    sync_readiness: Callable[[], Readiness] = Readiness
    """Conditions by which this process's snapshot may be outdated."""
    client_url: Callable[[], str | None] = lambda: None
    """URL for MCP clients, if they call another process or a proxy."""
    discovery: ResourceMetadata = KEYS_ONLY
    """The metadata that names the issuer whose tokens this gateway accepts."""
    started_at_ms: int = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "started_at_ms", self.clock_ms())

    def readiness(self) -> Readiness:
        """The readiness of this process: of its snapshot, and of its audit log."""
        audit, synced = self.gateway.audit, self.sync_readiness()
        if not audit.is_failing:
            return synced
        hint = "free space in the data directory, and check its permissions; the process then recovers"
        unwritable = ReadinessCondition(code=AUDIT_UNWRITABLE, hint=hint, blocks=audit.is_full)
        return Readiness((*synced.conditions, unwritable))
