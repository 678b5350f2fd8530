"""`toolgate control`: the registry and everything that governs it, for nodes that run elsewhere.

On SQLite it is one process; on PostgreSQL any number of replicas serve the same registry.
"""

from collections.abc import AsyncIterator, Callable, Collection, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from typing import Final

from toolgate.app.audit_index import open_index
from toolgate.app.components import (
    build_console_endpoint,
    build_discovery,
    build_limits,
    build_model_trial,
    build_oidc_login,
    build_operator_policy,
    describe_gateway,
    empty_snapshot,
    find_console_url,
    follow_registry,
    list_own_hosts,
    load_directory,
    load_session_key,
    open_identities,
    open_search_model,
    read_key_file,
    refuse_public_without_keys,
    wall_clock_ms,
)
from toolgate.app.control_plane import build_catalog_keeper, open_archives, open_upkeep, open_webhook
from toolgate.app.data_plane import (
    ConnectorDependencies,
    build_authorizer,
    list_package_hashes,
    open_connectors,
)
from toolgate.app.observability import describe_journal, open_exported_journal, open_loop_lag
from toolgate.app.process import ServingApp
from toolgate.audit.log.writer import AuditLog
from toolgate.errors import StartRefused, StorageUnavailable
from toolgate.gateway.cluster.reported_servers import ReportedServers
from toolgate.gateway.cluster.servers import Servers
from toolgate.gateway.gateway import Gateway, GatewayServices
from toolgate.govern.control import Control
from toolgate.govern.process import Readiness, ReadinessCondition
from toolgate.model.http import is_loopback, parse_address
from toolgate.packages.connector import FetchArchive
from toolgate.registry.store.contract import Store
from toolgate.registry.store.engines import open_store
from toolgate.settings import GrpcSettings, Settings
from toolgate.surfaces.grpc.server import Tls, open_grpc_server
from toolgate.surfaces.http.guard import OriginGuard
from toolgate.surfaces.rest.app import ENDPOINTS
from toolgate.surfaces.rest.framework.routing import RestApi
from toolgate.telemetry import Metrics

_ELSEWHERE: Final = (
    "see `/openapi.json` for what there is; MCP clients call the nodes, which `/admin/api/nodes` lists"
)


@asynccontextmanager
async def open_control(
    settings: Settings, environ: Mapping[str, str], base_url: str = ""
) -> AsyncIterator[ServingApp]:
    """Open the registry, follow what nodes report, serve REST and gRPC."""
    admin_key = read_key_file(settings.admin_key_file, "admin_key_file")
    tls = _read_tls(settings.grpc)
    async with AsyncExitStack() as stack:
        store = await stack.enter_async_context(
            open_store(settings.database or settings.registry_file, wall_clock_ms, waits=True)
        )
        await refuse_public_without_keys(settings, store, admin_key)
        journal = await stack.enter_async_context(open_exported_journal(settings))
        audit, index = journal.log, await stack.enter_async_context(open_index(settings, journal))
        meaning = await stack.enter_async_context(open_search_model(settings))
        await load_session_key(store)
        metrics = Metrics()
        describe_journal(metrics, journal)
        stack.enter_context(open_loop_lag(metrics))
        archives = await stack.enter_async_context(open_archives(settings, environ))
        make_gateway = partial(
            Gateway,
            metrics=metrics,
            limits=build_limits(settings),
            snapshot=empty_snapshot(settings),
            services=GatewayServices(console_url=find_console_url(settings, base_url)),
        )
        gateway, servers = await stack.enter_async_context(
            _open_gateway(settings, environ, store, audit, make_gateway=make_gateway, fetch=archives.fetch)
        )
        identities = await stack.enter_async_context(open_identities(settings, admin_key, audit))
        loader = await load_directory(settings, store, audit)
        await stack.enter_async_context(follow_registry(store, gateway, identities, loader))
        await stack.enter_async_context(open_upkeep(store, metrics, audit))
        keeper = await stack.enter_async_context(
            build_catalog_keeper(settings, store, gateway, archives, meaning)
        )
        control = Control(
            gateway=gateway,
            store=store,
            identities=identities,
            oidc_login=build_oidc_login(settings, identities),
            calls_tools=False,
            clock_ms=wall_clock_ms,
            sync_readiness=partial(_read_status, store),
            client_url=servers.door_url,
            discovery=build_discovery(settings),
            operator_policy=build_operator_policy(settings),
            try_models=build_model_trial(settings, environ),
            data_dir=settings.data_dir,
            artifacts=archives.artifacts,
            uploads=archives.uploads,
            modules=archives.modules,
            catalog=keeper,
            audit_index=index,
        )
        webhook = await stack.enter_async_context(open_webhook(settings, store, gateway))
        services = [one for one in (loader, webhook) if one is not None]
        describe_gateway(metrics, gateway)
        grpc_address = await stack.enter_async_context(
            open_grpc_server(control, settings.grpc.listen, tls=tls)
        )
        rest = build_console_endpoint(RestApi(ENDPOINTS, control, services=services, hint=_ELSEWHERE))
        yield ServingApp(
            settings=settings,
            gateway=gateway,
            front=OriginGuard(rest, list_own_hosts(settings), settings.allowed_origins),
            console=rest.path,
            loader=loader,
            close_streams=control.watches.close,
            details={"grpc": grpc_address},
        )


@asynccontextmanager
async def _open_gateway(
    settings: Settings,
    environ: Mapping[str, str],
    store: Store,
    audit: AuditLog,
    *,
    make_gateway: Callable[[Servers, AuditLog], Gateway],
    fetch: FetchArchive,
) -> AsyncIterator[tuple[Gateway, ReportedServers]]:
    """The pipeline over what nodes report: it answers every question, and calls nothing."""

    def named() -> Collection[str] | None:
        return list_package_hashes(gateway.snapshot)

    supplies = ConnectorDependencies(authorizer=build_authorizer(settings, environ), fetch=fetch)
    async with open_connectors(settings, environ, supplies, named=named, audit=audit) as transports:

        def changed(server_id: str) -> None:
            gateway.on_tools_changed(server_id)

        servers = ReportedServers(
            store.reports, transports.openers, on_change=changed, clock_ms=wall_clock_ms
        )
        gateway = make_gateway(servers, audit)
        async with servers:
            yield gateway, servers


def _read_status(store: Store) -> Readiness:
    """A control without its database has nothing to say that nodes and clients could rely on."""
    if store.is_current:
        return Readiness()
    return Readiness((ReadinessCondition.of(StorageUnavailable, blocks=True),))


def _read_tls(grpc: GrpcSettings) -> Tls | None:
    """Certificate and key of the gRPC listener. Raises StartRefused where keys would travel in clear."""
    if (grpc.cert_file is None) != (grpc.key_file is None):
        raise StartRefused(
            "only one of `grpc.cert_file` and `grpc.key_file` is set", hint="set both, or neither"
        )
    if grpc.cert_file is None or grpc.key_file is None:
        if is_loopback(parse_address(grpc.listen)[0]) or grpc.allow_plaintext:
            return None
        raise StartRefused(
            f"`{grpc.listen}` is reachable from other machines, and keys would travel in clear",
            hint="set `grpc.cert_file` and `grpc.key_file`; or `grpc.allow_plaintext` if a mesh encrypts",
        )
    try:
        return Tls(certificate=grpc.cert_file.read_bytes(), private_key=grpc.key_file.read_bytes())
    except OSError as exc:
        raise StartRefused(f"cannot read the gRPC certificate or its key: {exc}") from exc
