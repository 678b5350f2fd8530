"""The control plane, for `up` and `control`: the registry, and the services that govern it.

`open_registry_host` opens the services that a gateway needs: the store, the audit log with its index, the
archives. `open_control_plane` builds the rest over that gateway: authentication, the catalog, the webhook,
upkeep. A node loads none of this.
"""

import asyncio
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Coroutine, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from toolgate.app import components
from toolgate.app.audit_index import open_index
from toolgate.app.observability import open_exported_journal
from toolgate.app.process import reload_nothing
from toolgate.audit.events import AdminRecorded
from toolgate.audit.index.index import AuditIndex
from toolgate.audit.log.writer import AuditLog
from toolgate.catalog.rows import SOURCES, CatalogQuality
from toolgate.errors import StartRefused, ToolgateError
from toolgate.gateway.auth.identity import Identities
from toolgate.gateway.auth.issuer import NoOidcLogin, OidcLogin
from toolgate.gateway.gateway import Gateway
from toolgate.gateway.search import HybridIndex, open_semantic_search
from toolgate.govern.approvals import ApprovalWebhook, BodySigner, audit_outcome
from toolgate.govern.catalog_projection import CatalogProjection
from toolgate.govern.control import Control
from toolgate.govern.operator_policy import OperatorPolicy
from toolgate.govern.pins import follow_pins
from toolgate.model.servers import PackageRef
from toolgate.packages.artifacts import ArtifactStore, ModuleStore
from toolgate.packages.objects import open_object_store
from toolgate.packages.uploads import UploadStore
from toolgate.registry.files.reload import DirectoryLoader, ReloadReport
from toolgate.registry.replication.state import RegistryState, watch_registry
from toolgate.registry.store.sql_store import Store
from toolgate.settings import Settings
from toolgate.surfaces.console import ConsoleEndpoint, find_console, load_console
from toolgate.surfaces.rest.app import ENDPOINTS
from toolgate.surfaces.rest.framework.routing import SEE_DOCUMENT, RestApi
from toolgate.telemetry import Metrics
from toolgate.upstream.connection.secrets import Secrets
from toolgate.upstream.http.egress import EgressRefused
from toolgate.upstream.http.fetch import Fetcher, parse_secure_target
from toolgate.upstream.models.client import try_models

if TYPE_CHECKING:
    from toolgate.gateway.search.semantic import SemanticSearch

SWEEP_EVERY_S: Final = 600  # often, compared with the hour that an upload may rest
COMPACT_EVERY_S: Final = 600  # as long as every change at least stays in the log
FORGET_EVERY_S: Final = 3600  # often, compared with the day or more that these rows stay
FORGET_AFTER_MS: Final = 24 * 3600 * 1000
"""The age of a node's last report at which the node is forgotten."""
LEASES_EVERY_S: Final = 5
"""How late an invocation counts as lost if no node requests work."""
APPROVALS_EVERY_S: Final = 5
"""How late the audit log has the expiry of an approval. No call passes meanwhile."""

_log: Final = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class RegistryHost(components.ProcessContext):
    """The services that a process with the registry opens before its gateway."""

    admin_key: str | None
    store: Store
    audit_index: AuditIndex
    semantic_search: "SemanticSearch | None"
    artifacts: ArtifactStore
    modules: ModuleStore
    uploads: UploadStore

    def fetch_archive(self, package_id: str, ref: PackageRef) -> AsyncGenerator[bytes, None]:
        """The archive of a package that a server of this process runs from."""
        return self.artifacts.read(package_id, ref.version)


@asynccontextmanager
async def open_registry_host(
    settings: Settings, environ: Mapping[str, str], opening: AbstractAsyncContextManager[Store]
) -> AsyncIterator[RegistryHost]:
    """Open the store, the audit log with its index, and the archives. Raises StartRefused."""
    admin_key, metrics = components.read_key_file(settings.admin_key_file, "admin_key_file"), Metrics()
    async with AsyncExitStack() as stack:
        enter = stack.enter_async_context
        store = await enter(opening)
        await _refuse_public_without_keys(settings, store, admin_key)
        journal = await enter(open_exported_journal(settings, metrics))
        index = await enter(open_index(settings, journal))
        semantic_search = await enter(open_semantic_search(settings.semantic_model, settings.data_dir))
        objects = open_object_store(settings.artifacts or str(settings.data_dir / "artifacts"), environ)
        uploads = UploadStore(objects, settings.data_dir / "uploads", clock_ms=components.wall_clock_ms)
        sweep = _repeat(uploads.sweep, every_s=SWEEP_EVERY_S, what="removal of abandoned uploads")
        await enter(components.run_in_background(sweep))
        yield RegistryHost(
            settings=settings,
            environ=environ,
            admin_key=admin_key,
            store=store,
            audit=journal.log,
            audit_index=index,
            semantic_search=semantic_search,
            metrics=metrics,
            artifacts=ArtifactStore(objects, clock_ms=components.wall_clock_ms),
            modules=ModuleStore(objects),
            uploads=uploads,
        )


async def _refuse_public_without_keys(settings: Settings, store: Store, admin_key: str | None) -> None:
    """Raises StartRefused if the gateway is reachable from other machines without any key."""
    if settings.is_loopback or admin_key is not None or settings.oidc is not None:
        return
    if (await store.list("key")).records:
        return
    raise StartRefused(
        f"`{settings.listen}` is reachable from other machines and no key is configured",
        hint="listen on 127.0.0.1, or put a key of 32 characters into a file and set `admin_key_file` to it",
    )


async def _ignore_state(_state: RegistryState) -> None:
    """For a process that keeps no state by principal."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ControlPlane:
    """The services that govern, and those that the surfaces need."""

    control: Control
    rest: ConsoleEndpoint
    """REST behind the console."""
    reload: Callable[[], Awaitable[object]] = reload_nothing
    """Reloads the directory of server files."""


@asynccontextmanager
async def open_control_plane(
    host: RegistryHost,
    gateway: Gateway,
    *,
    on_state: Callable[[RegistryState], Awaitable[None]] = _ignore_state,
    hint: str = SEE_DOCUMENT,
    **own: Any,
) -> AsyncIterator[ControlPlane]:
    """Open the control plane over `gateway`. `hint`: of the error for unknown paths. `own`: the services that
    only this process adds to `Control`. Raises StartRefused."""
    settings, store = host.settings, host.store
    async with AsyncExitStack() as stack:
        enter = stack.enter_async_context
        identities = await enter(components.open_identities(host, host.admin_key))
        directory = settings.mcp_registry_dir
        loaders = [] if directory is None else [await _load_directory(host, directory.expanduser())]

        async def apply(state: RegistryState) -> None:
            identities.apply(state.keys)
            gateway.apply(state)
            await on_state(state)

        watchers = [follow_pins(store, gateway), *(loader.watch() for loader in loaders)]
        await enter(_follow_registry(store, apply, *watchers))
        await enter(open_upkeep(store, host.metrics, host.audit))
        catalog = await enter(_build_catalog(host, gateway))
        control = Control(
            gateway=gateway,
            store=store,
            identities=identities,
            oidc_login=_build_oidc_login(settings, identities),
            clock_ms=components.wall_clock_ms,
            discovery=components.build_discovery(settings),
            operator_policy=OperatorPolicy(
                allowed_commands=settings.allowed_commands,
                requires_plan=settings.require_plan,
                egress=settings.egress,
            ),
            try_models=partial(try_models, Secrets(host.environ, settings.secrets_dir), settings.egress),
            data_dir=settings.data_dir,
            artifacts=host.artifacts,
            uploads=host.uploads,
            modules=host.modules,
            catalog=catalog,
            audit_index=host.audit_index,
            **own,
        )
        webhook = await enter(open_webhook(settings, store, gateway))
        services = [*loaders, *([] if webhook is None else [webhook])]
        console = find_console()
        yield ControlPlane(
            control=control,
            rest=ConsoleEndpoint(
                None if console is None else load_console(console),
                RestApi(ENDPOINTS, control, services=services, hint=hint),
            ),
            reload=loaders[0].reload if loaders else reload_nothing,
        )


def _build_oidc_login(settings: Settings, identities: Identities) -> OidcLogin | NoOidcLogin:
    oidc = settings.oidc
    if oidc is None or oidc.client_id is None:
        return NoOidcLogin()
    fetcher = components.build_issuer_fetcher(settings)
    return OidcLogin(oidc.client_id, oidc.issuer, fetcher, identities, scopes=oidc.scopes)


async def _load_directory(host: RegistryHost, directory: Path) -> DirectoryLoader:
    def audit_reload(report: ReloadReport, by: str) -> None:
        for change in report.applied:
            host.audit.record(
                AdminRecorded(
                    at_ms=components.wall_clock_ms(),
                    principal=by,
                    operation="reload",
                    kind="server",
                    record_id=change.server_id,
                    revision=report.revision,
                )
            )

    loader = DirectoryLoader(
        host.store,
        directory,
        strict=host.settings.strict,
        recursive=host.settings.registry_recursive,
        on_applied=audit_reload,
    )
    await loader.reload()
    return loader


@asynccontextmanager
async def _follow_registry(
    store: Store, apply: Callable[[RegistryState], Awaitable[None]], *watchers: Coroutine[Any, Any, None]
) -> AsyncIterator[None]:
    """Apply the registry once before the block, and follow it while the block runs."""
    first = asyncio.Event()

    async def follow() -> None:
        async for state in watch_registry(store):
            await apply(state)
            first.set()

    async def compact() -> None:
        await asyncio.sleep(COMPACT_EVERY_S)  # the start has other work
        await _repeat(store.compact, every_s=COMPACT_EVERY_S, what="compaction of the change log")

    async with asyncio.TaskGroup() as tasks:
        running = [tasks.create_task(each) for each in (follow(), compact(), *watchers)]
        await first.wait()
        try:
            yield
        finally:
            for task in running:
                task.cancel()


def _build_catalog(host: RegistryHost, gateway: Gateway) -> CatalogProjection:
    quality = CatalogQuality(host.settings.summary_fallback)
    host.metrics.gauge(
        "toolgate_catalog_rows",
        "Catalog rows by source. Rows from `manifest` and `discovered` have full definitions.",
        lambda: {source: float(getattr(quality.total, source)) for source in SOURCES},
        labels=("source",),
    )
    ended = "1 while the catalog hides rows from summaries, because it reached `summary_fallback`."
    host.metrics.gauge("toolgate_catalog_fallback_ended", ended, lambda: quality.has_ended)
    return CatalogProjection(
        host.store,
        gateway,
        searching=HybridIndex(host.semantic_search),
        clock_ms=components.wall_clock_ms,
        artifacts=host.artifacts,
        quality=quality,
    )


@asynccontextmanager
async def open_webhook(
    settings: Settings, store: Store, gateway: Gateway
) -> AsyncIterator[ApprovalWebhook | None]:
    """Notify the webhook's receiver while the block runs. None without the setting. Raises StartRefused."""
    config, egress = settings.approval_webhook, settings.egress
    if config is None:
        yield None
        return
    try:
        egress.check_literal(parse_secure_target(config.url))
    except EgressRefused as exc:
        raise StartRefused(f"setting `approval_webhook.url`: {exc}") from exc
    if settings.is_everywhere and not settings.public_url:
        _log.warning(
            "`approval_webhook` gets no URL for decisions: set `public_url` to the URL of this gateway"
        )
    secret = components.read_key_file(config.secret_file, "approval_webhook.secret_file")
    assert secret is not None  # the setting names a file
    webhook = ApprovalWebhook(
        config.url,
        BodySigner(secret, components.wall_clock_ms),
        approvals=store.approvals,
        audit=gateway.audit,
        fetcher=Fetcher(egress),
        own_url=lambda: gateway.console_url,
    )
    async with components.run_in_background(webhook.run()):
        yield webhook


@asynccontextmanager
async def open_upkeep(
    store: Store, metrics: Metrics, audit: AuditLog, *, leases_every_s: float = LEASES_EVERY_S
) -> AsyncIterator[None]:
    """Delete old rows, end lost invocations and expired approvals, and count pending ones."""
    waiting = pending = 0
    metrics.gauge("toolgate_approvals_pending", "Pending approvals of calls.", lambda: pending)
    metrics.gauge("toolgate_invocations_queued", "Invocations waiting for a node.", lambda: waiting)

    async def end_leases() -> None:
        nonlocal waiting
        await store.invocations.claim("", limit=0)
        waiting = await store.invocations.waiting()

    async def end_approvals() -> None:
        nonlocal pending
        for one in await store.approvals.expire():
            audit_outcome(audit, one, at_ms=components.wall_clock_ms())
        pending = await store.approvals.pending()

    forget = "removal of old rows"
    async with components.run_in_background(
        *(
            _repeat(work, every_s=FORGET_EVERY_S, what=forget)
            for work in (
                store.approvals.forget,
                store.spending.forget,
                store.ended_sessions.forget,
                lambda: store.reports.forget(before_ms=components.wall_clock_ms() - FORGET_AFTER_MS),
                lambda: store.invocations.forget(now_ms=components.wall_clock_ms()),
            )
        ),
        _repeat(end_approvals, every_s=APPROVALS_EVERY_S, what="expiry of approvals"),
        _repeat(end_leases, every_s=leases_every_s, what="expiry of leases"),
    ):
        yield


async def _repeat(work: Callable[[], Awaitable[object]], *, every_s: float, what: str) -> None:
    is_failing = False
    while True:
        try:
            await work()
            is_failing = False
        except (ToolgateError, OSError) as exc:
            if not is_failing:
                _log.warning("the %s failed; retrying: %s", what, exc)
            is_failing = True
        await asyncio.sleep(every_s)
