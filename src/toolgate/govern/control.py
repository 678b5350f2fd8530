"""What the surfaces read and govern, handed to them whole by the composition root. They keep nothing else."""

import asyncio
from dataclasses import dataclass, field
from pathlib import Path

from toolgate.audit.index.index import AuditIndex
from toolgate.gateway.auth.issuer import OidcLogin
from toolgate.govern.approval_webhook import ApprovalWebhook
from toolgate.govern.catalog_projection import CatalogProjection
from toolgate.govern.change_rate import IntegrationRateLimit
from toolgate.govern.invocation_marks import InvocationPoller
from toolgate.govern.operator_policy import OperatorPolicy
from toolgate.govern.process import GatewayProcess
from toolgate.govern.visibility import CatalogVisibility
from toolgate.govern.watches import RegistryWatches
from toolgate.packages.artifacts import ArtifactStore
from toolgate.packages.modules import ModuleStore
from toolgate.packages.uploads import UploadStore
from toolgate.policy.plan import Planner
from toolgate.registry.files.reload import DirectoryLoader
from toolgate.registry.store.contract import Store
from toolgate.upstream.models.client import TryModels
from toolgate.upstream.oauth.logins import Logins


@dataclass(frozen=True, slots=True, kw_only=True)
class Control(GatewayProcess):
    """The parts of a process that also governs."""

    store: Store
    calls_tools: bool = True
    """Whether this process has doors that tools are called by, or leaves that to nodes."""
    oidc_login: OidcLogin | None = None
    """How people log in with a browser. None: they show a key."""
    loader: DirectoryLoader | None = None
    """None: no directory of server files is configured."""
    backup_dir: Path | None = None
    """Where backups go. None: this process keeps no files."""
    logins: Logins | None = None
    """None: nobody can log in to a server here."""
    try_models: TryModels | None = None
    """Asks a chat upstream for its models. None: this process asks none."""
    artifacts: ArtifactStore | None = None
    """The archives of packages. None: this process keeps none."""
    modules: ModuleStore | None = None
    """Those of workloads. None: this process keeps none."""
    keeper: CatalogProjection | None = None
    """The catalog. None: none is kept here."""
    uploads: UploadStore | None = None
    """Archives on their way in. None: this process takes none."""
    audit_index: AuditIndex | None = None
    """Where what happened is looked up. None: it is written down, and cannot be asked."""
    webhook: ApprovalWebhook | None = None
    """Who is told of calls that wait for a person. None: nobody is."""
    terms: OperatorPolicy = field(default_factory=OperatorPolicy)
    turn: asyncio.Lock = field(default_factory=asyncio.Lock)
    """Held while a write is checked and committed, so that those who write here do not hinder each other."""
    watches: RegistryWatches = field(default_factory=RegistryWatches)
    marks: InvocationPoller = field(default_factory=InvocationPoller)
    change_rate: IntegrationRateLimit = field(default_factory=IntegrationRateLimit)
    """How often callers change their integrations."""
    planner: Planner = field(default_factory=Planner)
    """Makes plans, and remembers what of the last ones still holds."""
    visibility: CatalogVisibility = field(default_factory=CatalogVisibility)
    """What callers see of the catalog, remembered."""
