"""What the surfaces read and govern, handed to them whole by the composition root. They keep nothing else."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from toolgate.gateway.discovery import Discovery
from toolgate.gateway.gateway import Gateway
from toolgate.gateway.identity import Identities
from toolgate.govern.catalog_keeper import CatalogKeeper
from toolgate.govern.invocation_marks import InvocationMarks
from toolgate.govern.terms import Terms
from toolgate.govern.visibility import Visibility
from toolgate.govern.watches import Watches
from toolgate.packages.artifacts import Artifacts
from toolgate.packages.modules import Modules
from toolgate.packages.uploads import Uploads
from toolgate.registry.reload import DirectoryLoader
from toolgate.registry.store import Store
from toolgate.upstream.models.trial import TryModels
from toolgate.upstream.oauth.logins import Logins


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """Whether this process serves, and whether what it serves is known to be current."""

    is_degraded: bool = False
    """It cannot reach what it follows, and goes on with what it has."""
    degraded_by: str | None = None
    """The code of the error that it is degraded by."""
    obstacle: str | None = None
    """The code of the error that callers are refused with for now. None: it is ready."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Serving:
    """The parts that every process has which serves: a node has no others."""

    gateway: Gateway
    identities: Identities
    clock_ms: Callable[[], int]
    """Wall clock: what audit records are dated by."""
    standing: Callable[[], Standing] = Standing
    door_url: Callable[[], str | None] = lambda: None
    """Where agents and editors call, if that is known and not this process."""
    discovery: Discovery | None = None
    """Where tokens come from. None: keys only."""
    started_at_ms: int = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "started_at_ms", self.clock_ms())


@dataclass(frozen=True, slots=True, kw_only=True)
class Control(Serving):
    """The parts of a process that also governs."""

    store: Store
    loader: DirectoryLoader | None = None
    """None: no directory of server files is configured."""
    backup_dir: Path | None = None
    """Where backups go. None: this process keeps no files."""
    logins: Logins | None = None
    """None: nobody can log in to a server here."""
    try_models: TryModels | None = None
    """Asks a chat upstream for its models. None: this process asks none."""
    artifacts: Artifacts | None = None
    """The archives of packages. None: this process keeps none."""
    modules: Modules | None = None
    """Those of workloads. None: this process keeps none."""
    keeper: CatalogKeeper | None = None
    """The catalog. None: none is kept here."""
    uploads: Uploads | None = None
    """Archives on their way in. None: this process takes none."""
    terms: Terms = field(default_factory=Terms)
    turn: asyncio.Lock = field(default_factory=asyncio.Lock)
    """Held while a write is checked and committed, so that those who write here do not hinder each other."""
    watches: Watches = field(default_factory=Watches)
    marks: InvocationMarks = field(default_factory=InvocationMarks)
    visibility: Visibility = field(default_factory=Visibility)
    """What callers see of the catalog, remembered."""
