"""`toolgate up`: control and node in one process, on SQLite."""

import time
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from typing import Final

from toolgate.app.audit_index import open_index
from toolgate.app.components import (
    build_console_endpoint,
    build_discovery,
    build_model_trial,
    build_oidc_login,
    build_operator_policy,
    find_console_url,
    follow_registry,
    list_own_hosts,
    load_directory,
    load_session_key,
    open_identities,
    open_search_model,
    read_key_file,
    refuse_public_without_keys,
    run_in_background,
    wall_clock_ms,
)
from toolgate.app.control_plane import build_catalog_keeper, open_archives, open_upkeep, open_webhook
from toolgate.app.data_plane import (
    ConnectorDependencies,
    EndpointRouter,
    InvocationSource,
    build_authorizer,
    describe_data_plane,
    open_gateway,
    open_model_endpoints,
)
from toolgate.app.observability import describe_journal, open_exported_journal
from toolgate.app.process import ServingApp
from toolgate.app.sessions import EndedSessionExchange, build_store_sync, open_session_upkeep
from toolgate.errors import StartRefused
from toolgate.gateway.gateway import GatewayServices
from toolgate.gateway.search.index import HybridIndex
from toolgate.govern.control import Control
from toolgate.registry.store.engines import open_sqlite_store
from toolgate.settings import Settings
from toolgate.surfaces.http.guard import OriginGuard
from toolgate.surfaces.mcp.endpoint import McpEndpoint
from toolgate.surfaces.mcp.session import ClientSessions
from toolgate.surfaces.rest.app import ENDPOINTS
from toolgate.surfaces.rest.framework.routing import RestApi
from toolgate.telemetry import Metrics
from toolgate.upstream.oauth.grants import GrantFiles
from toolgate.upstream.oauth.logins import Logins

_ALONE_S: Final = 3600.0
"""Between looks at what was ended, where no other process ends sessions."""


@asynccontextmanager
async def open_up(
    settings: Settings, environ: Mapping[str, str], base_url: str = ""
) -> AsyncIterator[ServingApp]:
    """Build all parts on the data directory, load the registry, and keep everything running."""
    _refuse_database(settings)
    admin_key = read_key_file(settings.admin_key_file, "admin_key_file")
    async with AsyncExitStack() as stack:
        store = await stack.enter_async_context(open_sqlite_store(settings.registry_file, wall_clock_ms))
        await refuse_public_without_keys(settings, store, admin_key)
        journal = await stack.enter_async_context(open_exported_journal(settings))
        audit, index = journal.log, await stack.enter_async_context(open_index(settings, journal))
        meaning = await stack.enter_async_context(open_search_model(settings))
        sessions = ClientSessions(await load_session_key(store), clock_s=time.monotonic, wall_s=time.time)
        # What was ended before a restart is heard of first; nobody else ends any.
        endings = EndedSessionExchange(sessions, build_store_sync(store.ended_sessions), every_s=_ALONE_S)
        await endings.sync_once()
        await stack.enter_async_context(run_in_background(endings.run()))
        metrics = Metrics()
        describe_journal(metrics, journal)
        grants = GrantFiles(settings.data_dir / "logins")
        authorizer = build_authorizer(settings, environ, grants)
        archives = await stack.enter_async_context(open_archives(settings, environ))
        supplies = ConnectorDependencies(authorizer=authorizer, fetch=archives.fetch)
        gateway = await stack.enter_async_context(
            open_gateway(
                settings,
                environ,
                audit,
                metrics,
                supplies=supplies,
                services=GatewayServices(
                    approvals=store.approvals,
                    console_url=find_console_url(settings, base_url),
                    quotas=store.spending,
                    tool_index=HybridIndex(meaning),
                ),
            )
        )
        identities = await stack.enter_async_context(open_identities(settings, admin_key, audit))
        loader = await load_directory(settings, store, audit)
        logins = Logins(authorizer, grants, clock_s=time.time)
        await stack.enter_async_context(follow_registry(store, gateway, identities, loader, logins=logins))
        await stack.enter_async_context(open_upkeep(store, metrics, audit))
        keeper = await stack.enter_async_context(
            build_catalog_keeper(settings, store, gateway, archives, meaning)
        )
        control = Control(
            gateway=gateway,
            store=store,
            identities=identities,
            oidc_login=build_oidc_login(settings, identities),
            clock_ms=wall_clock_ms,
            discovery=build_discovery(settings),
            operator_policy=build_operator_policy(settings),
            try_models=build_model_trial(settings, environ),
            logins=logins,
            data_dir=settings.data_dir,
            artifacts=archives.artifacts,
            uploads=archives.uploads,
            modules=archives.modules,
            catalog=keeper,
            audit_index=index,
        )
        webhook = await stack.enter_async_context(open_webhook(settings, store, gateway))
        await stack.enter_async_context(open_session_upkeep(sessions))
        describe_data_plane(metrics, gateway, sessions)
        work = InvocationSource(queue=store.invocations, fetch=archives.modules.read)
        services = [one for one in (loader, webhook) if one is not None]
        app = await stack.enter_async_context(
            _open_app(settings, environ, control, sessions=sessions, work=work, services=services)
        )
        yield replace(app, loader=loader)


@asynccontextmanager
async def _open_app(
    settings: Settings,
    environ: Mapping[str, str],
    control: Control,
    *,
    sessions: ClientSessions,
    work: InvocationSource,
    services: Iterable[object],
) -> AsyncIterator[ServingApp]:
    """Every door over what is governed and served here."""
    gateway, identities = control.gateway, control.identities
    mcp = McpEndpoint(gateway, identities, sessions=sessions, discovery=control.discovery)
    async with open_model_endpoints(
        settings, environ, gateway, identities=identities, signer=sessions.signer, work=work
    ) as (chat, invoker):

        def end_streams() -> None:
            mcp.close()
            control.watches.close()
            invoker.stop()

        rest = build_console_endpoint(RestApi(ENDPOINTS, control, services=services))
        yield ServingApp(
            settings=settings,
            gateway=gateway,
            front=OriginGuard(
                EndpointRouter(mcp, chat, rest), list_own_hosts(settings), settings.allowed_origins
            ),
            console=rest.path,
            close_streams=end_streams,
        )


def _refuse_database(settings: Settings) -> None:
    if settings.database is not None:
        raise StartRefused(
            "`toolgate up` keeps its registry in the data directory, and `database` is set",
            hint="unset it, or run `toolgate control` with it and `toolgate node` beside",
        )
