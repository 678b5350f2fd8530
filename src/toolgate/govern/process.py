"""What the surfaces of every process that serves read, and how it stands: all there is on a node."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from toolgate.errors import ToolgateError
from toolgate.gateway.auth.identity import Identities
from toolgate.gateway.auth.issuer import ResourceMetadata
from toolgate.gateway.gateway import Gateway


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadinessCondition:
    """Why a process does not serve, or not as it should. It names nothing that is not for everybody."""

    code: str
    hint: str
    blocks: bool = False
    """Callers are refused for it."""

    @classmethod
    def of(cls, error: ToolgateError | type[ToolgateError], *, blocks: bool = False) -> "ReadinessCondition":
        """The trouble that callers would be told of by `error`."""
        hint = error.hint if isinstance(error, ToolgateError) else error.default_hint
        return cls(code=error.code, hint=hint, blocks=blocks)


AUDIT_UNWRITABLE: Final = "audit_unwritable"


@dataclass(frozen=True, slots=True)
class Readiness:
    """Whether this process serves, and whether what it serves is known to be current."""

    troubles: tuple[ReadinessCondition, ...] = ()

    @property
    def is_degraded(self) -> bool:
        """It goes on as far as it can."""
        return bool(self.troubles)

    @property
    def is_ready(self) -> bool:
        return not any(one.blocks for one in self.troubles)


@dataclass(frozen=True, slots=True, kw_only=True)
class GatewayProcess:
    """The parts that every process has which serves: a node has no others."""

    gateway: Gateway
    identities: Identities
    clock_ms: Callable[[], int]
    """Wall clock: what audit records are dated by."""
    standing: Callable[[], Readiness] = Readiness
    door_url: Callable[[], str | None] = lambda: None
    """Where agents and editors call, if that is known and not this process."""
    discovery: ResourceMetadata | None = None
    """Where tokens come from. None: keys only."""
    started_at_ms: int = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "started_at_ms", self.clock_ms())

    def troubles(self) -> Readiness:
        """How this process stands by all that is known."""
        audit = self.gateway.audit
        if not audit.is_failing:
            return self.standing()
        hint = "free space in its data directory, and see that it may write there; it goes on by itself"
        unwritable = ReadinessCondition(code=AUDIT_UNWRITABLE, hint=hint, blocks=audit.is_full)
        return Readiness((*self.standing().troubles, unwritable))
