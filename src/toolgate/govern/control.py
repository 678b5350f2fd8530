"""The control plane of a process: what REST and gRPC handlers govern with, built by the composition root.

Holds no service that may be absent: a surface is composed without the routes of such a service, or gets a
stand-in that says what is missing. Never does anything itself.
"""

import asyncio
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Never

from toolgate.audit.index.index import AuditIndex
from toolgate.errors import InvalidRequest
from toolgate.gateway.auth.issuer import NoOidcLogin, OidcLogin
from toolgate.govern.catalog_projection import CatalogProjection
from toolgate.govern.operator_policy import IntegrationRateLimit, OperatorPolicy
from toolgate.govern.process import GatewayProcess
from toolgate.govern.visibility import CatalogVisibility
from toolgate.govern.watches import InvocationPoller, RegistryWatches
from toolgate.packages.artifacts import ArtifactStore, ModuleStore
from toolgate.packages.uploads import UploadStore
from toolgate.policy.plan import Planner
from toolgate.registry.store.sql_store import Store
from toolgate.upstream.models.client import TryModels
from toolgate.upstream.oauth.grants import LoginKey
from toolgate.upstream.oauth.logins import Logins


@dataclass(frozen=True, slots=True, kw_only=True)
class ControlLimits:
    """How much one query may take, and how long it waits."""

    max_export: int = 100_000
    """Events in one export: about a spreadsheet's worth. `until` selects earlier ones."""
    export_page: int = 1_000
    """Events of an export in memory at a time."""
    tail_poll_s: float = 1.0
    """How late the tail of the audit is with events that another replica indexed."""
    search_wait_s: float = 3.0
    """How long a search right after a start waits for the index. Then it finds what is indexed."""


class NoLogins:
    """Stands for `Logins` in a process that calls no servers: no one can log in to one here."""

    own_url: Final = None

    def of(self, _key: LoginKey) -> None:
        return None

    async def _refuse(self, *_args: object, **_kwargs: object) -> Never:
        raise InvalidRequest(
            "this process calls no servers, so no one can log in to one here",
            hint="use the grant `client_credentials` where nodes run apart from control",
        )

    begin = finish = end = _refuse


@dataclass(frozen=True, slots=True, kw_only=True)
class Control(GatewayProcess):
    """What a process that governs has in addition to what it serves."""

    store: Store
    audit_index: AuditIndex
    catalog: CatalogProjection
    artifacts: ArtifactStore
    """The archives of packages."""
    uploads: UploadStore
    """Archives and modules while their parts arrive."""
    modules: ModuleStore
    """The modules of workloads."""
    data_dir: Path
    """Where backups go."""
    try_models: TryModels
    """Asks a chat upstream for its models."""
    calls_tools: bool = True
    """Whether this process has endpoints that call tools, or leaves that to nodes."""
    oidc_login: OidcLogin | NoOidcLogin = field(default_factory=NoOidcLogin)
    logins: Logins | NoLogins = field(default_factory=NoLogins)
    """Logins to servers."""
    operator_policy: OperatorPolicy = field(default_factory=OperatorPolicy)
    write_lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    """Held while a change is checked and committed, so that writers in this process do not conflict."""
    watches: RegistryWatches = field(default_factory=RegistryWatches)
    invocation_poller: InvocationPoller = field(default_factory=InvocationPoller)
    integration_rate: IntegrationRateLimit = field(default_factory=IntegrationRateLimit)
    limits: ControlLimits = field(default_factory=ControlLimits)
    planner: Planner = field(default_factory=Planner)
    """Makes plans, and caches the parts of the last ones that still hold."""
    visibility: CatalogVisibility = field(default_factory=CatalogVisibility)
    """Which rows of the catalog each caller sees, cached."""
