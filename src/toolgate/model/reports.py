"""What a node tells control about itself and its servers. Reports are state, not records: no revision.

Sessions that their clients have ended, as nodes tell each other of them.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final, Literal, NamedTuple

from toolgate.model.tools import ListState

HealthState = Literal["connected", "starting", "degraded", "down", "idle", "disabled"]

LOST_AFTER_MS: Final = 30_000
"""A node reports at least every 10 s. One that was not heard of for three times that is lost."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerReport:
    """One server as one node sees it."""

    server_id: str
    state: HealthState
    list_state: ListState = "pending"
    since_ms: int = 0
    """Wall clock of the node at which `state` was entered."""
    last_error: str = ""
    """Redacted on the node."""
    hint: str = ""
    """What its start is waiting for, or what to do about `last_error`. Redacted on the node."""
    restarts: int = 0
    tools: int = 0
    quarantined: int = 0
    calls: int = 0
    is_stale: bool = False
    definitions: str = ""
    """Digest of the definitions the node serves; empty where none were ever listed."""
    changed: Mapping[str, str] = field(default_factory=dict)
    """Tool name → digest found in place of the approved one, as long as its pin's record does not say so."""
    verified_ms: int = 0
    """Wall clock of the node at which the server last listed its tools, in this run or before. 0: never."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeReport:
    """One node."""

    node_id: str
    url: str = ""
    """Where its doors are, as the node knows it."""
    version: str = ""
    epoch: str = ""
    revision: int = 0
    """The registry revision it serves."""
    is_degraded: bool = False
    """It could not reach control for a while, and served what it had."""
    at_ms: int = 0
    """When control received it, by control's clock."""
    servers: tuple[ServerReport, ...] = ()

    def is_lost(self, now_ms: int) -> bool:
        """Whether the node has been silent for too long for its word to count."""
        return now_ms - self.at_ms > LOST_AFTER_MS


@dataclass(frozen=True, slots=True, kw_only=True)
class Definitions:
    """What one server offers, as a node discovered it."""

    server_id: str
    digest: str
    tools: tuple[bytes, ...] = ()
    prompts: tuple[bytes, ...] = ()
    resources: tuple[bytes, ...] = ()
    templates: tuple[bytes, ...] = ()
    """Each definition as the server wrote it."""
    quarantined: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    """Name, as policy has it → why its definition was refused."""
    at_ms: int = 0


MAX_ENDED: Final = 20_000
"""How many are remembered, the newest. An older one could be revived, by its own principal only."""


class EndedSession(NamedTuple):
    """A session that no node serves any more."""

    nonce: str
    until_ms: int
    """When its id is good for nothing anyway. Wall clock."""
    at_ms: int = 0
    """When the registry's database took note of it, by its clock; 0: it has not."""
