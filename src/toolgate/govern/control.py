"""The services of REST and gRPC handlers on a control plane. The composition root builds them.

No service here is optional: if a service is absent, the surface is composed without its routes, or gets a
stand-in whose error names what is missing. Never does anything itself.
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
    """Limits of one query: its size, and how long it waits."""

    max_export: int = 100_000
    """Events in one export: about as many as a spreadsheet shows. `until` selects earlier ones."""
    export_page: int = 1_000
    """Events of an export that are in memory at a time."""
    tail_poll_s: float = 1.0
    """How late the audit tail shows events that another replica indexed."""
    search_wait_s: float = 3.0
    """How long a search right after a start waits for the index. After it, it searches the indexed part."""


class NoLogins:
    """Takes the place of `Logins` in a process that calls no servers."""

    own_url: Final = None

    def of(self, _key: LoginKey) -> None:
        return None

    async def _refuse(self, *_args: object, **_kwargs: object) -> Never:
        raise InvalidRequest(
            "this process is control plane only, so you cannot log in to a server here",
            hint="with separate nodes, set the server's `oauth.grant` to `client_credentials`",
        )

    begin = finish = end = _refuse


@dataclass(frozen=True, slots=True, kw_only=True)
class Control(GatewayProcess):
    """The services of a control plane, in addition to those of every serving process."""

    store: Store
    audit_index: AuditIndex
    catalog: CatalogProjection
    artifacts: ArtifactStore
    """The packages' archives."""
    uploads: UploadStore
    """Uploads of archives and modules whose parts are still arriving."""
    modules: ModuleStore
    """The modules of workloads."""
    data_dir: Path
    """Writes backups."""
    try_models: TryModels
    """Lists the models of a chat upstream."""
    calls_tools: bool = True
    """Whether this process has endpoints that call tools; if not, only nodes have them."""
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
    """Makes plans, and caches the parts of recent plans that are still valid."""
    visibility: CatalogVisibility = field(default_factory=CatalogVisibility)
    """Caches which catalog rows each caller sees."""
