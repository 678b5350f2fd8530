"""The reports of nodes to the control plane: the nodes, their servers, and ended sessions. State, not
records."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final, Literal, NamedTuple

from toolgate.model.tools import ListState

HealthState = Literal["connected", "starting", "degraded", "down", "idle", "disabled"]

LOST_AFTER_MS: Final = 30_000  # three times the 10 s between two reports


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerReport:
    """The status of one server on one node."""

    server_id: str
    state: HealthState
    list_state: ListState = "pending"
    since_ms: int = 0
    """When `state` began, by the node's clock."""
    last_error: str = ""
    """Redacted on the node."""
    hint: str = ""
    """Why its start takes time, or how to fix `last_error`. Redacted on the node."""
    restarts: int = 0
    tools: int = 0
    quarantined: int = 0
    calls: int = 0
    is_stale: bool = False
    definitions: str = ""
    """The digest of the definitions that the node serves; empty if the server never listed any."""
    changed: Mapping[str, str] = field(default_factory=dict)
    """Tool name → digest of the changed definition, until its pin records it."""
    verified_ms: int = 0
    """When the server last listed its tools, in this run or before, by the node's clock. 0: never."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeReport:
    node_id: str
    url: str = ""
    """The configured URL of its endpoints."""
    version: str = ""
    epoch: str = ""
    revision: int = 0
    """The registry revision that it serves."""
    is_degraded: bool = False
    """Whether it lost the control plane and serves its last state."""
    at_ms: int = 0
    """When the control plane received it, by its clock."""
    servers: tuple[ServerReport, ...] = ()

    def is_lost(self, now_ms: int) -> bool:
        return now_ms - self.at_ms > LOST_AFTER_MS


@dataclass(frozen=True, slots=True, kw_only=True)
class Definitions:
    """The lists of one server, as a node discovered them."""

    server_id: str
    digest: str
    tools: tuple[bytes, ...] = ()
    prompts: tuple[bytes, ...] = ()
    resources: tuple[bytes, ...] = ()
    templates: tuple[bytes, ...] = ()
    """The definitions as the server wrote them."""
    quarantined: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    """Name in policy → why its definition is quarantined."""
    at_ms: int = 0


MAX_ENDED: Final = 20_000  # kept, the newest. An older session could be resumed, by its own principal only


class EndedSession(NamedTuple):
    """A session that its client ended, so that no node serves it."""

    nonce: str
    until_ms: int
    """When its id expires."""
    at_ms: int = 0
    """When the registry's database stored it, by its clock. 0: not stored so far."""
