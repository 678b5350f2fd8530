"""`toolgate control`: the control plane only; nodes are separate processes.

On SQLite it is one process; on PostgreSQL any number of replicas serve the same registry.
"""

from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Final

from toolgate.app import components, data_plane
from toolgate.app.control_plane import open_control_plane, open_registry_host
from toolgate.app.observability import open_loop_lag
from toolgate.app.process import ServingApp
from toolgate.errors import StartRefused, StorageUnavailable
from toolgate.gateway.cluster.reported_servers import ReportedServers
from toolgate.gateway.gateway import GatewayServices
from toolgate.govern.process import Readiness, ReadinessCondition
from toolgate.model.http import is_loopback, parse_address
from toolgate.registry.store.engines import open_store
from toolgate.settings import GrpcSettings, Settings
from toolgate.surfaces.grpc.server import Tls, open_grpc_server
from toolgate.surfaces.http.guard import OriginGuard

_ELSEWHERE: Final = (
    "see `/openapi.json` for all routes; MCP clients call a node, and `toolgate nodes` lists the nodes"
)


@asynccontextmanager
async def open_control(
    settings: Settings, environ: Mapping[str, str], base_url: str = ""
) -> AsyncIterator[ServingApp]:
    """Open the registry, follow the reports of nodes, serve REST and gRPC."""
    tls = _read_tls(settings.grpc)
    async with AsyncExitStack() as stack:
        enter = stack.enter_async_context
        place = settings.database or settings.registry_file
        opening = open_store(place, components.wall_clock_ms, waits=True)
        host = await enter(open_registry_host(settings, environ, opening))
        store = host.store
        await components.load_session_key(store)
        stack.enter_context(open_loop_lag(host.metrics))
        openers, _, _ = await enter(
            data_plane.open_connectors(
                host,
                authorizer=data_plane.build_authorizer(host),
                fetch=host.fetch_archive,
                named=lambda: data_plane.list_package_hashes(gateway.snapshot),
            )
        )

        def on_change(server_id: str) -> None:
            gateway.on_tools_changed(server_id)

        def read_readiness() -> Readiness:
            """Not ready without the database: without it, every response could be outdated."""
            is_ready = store.is_current
            return Readiness(() if is_ready else (ReadinessCondition.of(StorageUnavailable, blocks=True),))

        clock_ms = components.wall_clock_ms
        servers = ReportedServers(store.reports, openers, on_change=on_change, clock_ms=clock_ms)
        services = GatewayServices(console_url=components.find_console_url(settings, base_url))
        # This gateway explains scopes over the servers that nodes report, and calls no server.
        gateway = components.build_gateway(host, servers, services)
        await enter(servers)
        plane = await enter(
            open_control_plane(
                host,
                gateway,
                calls_tools=False,
                hint=_ELSEWHERE,
                sync_readiness=read_readiness,
                client_url=lambda: servers.node_url,
            )
        )
        control = plane.control
        components.describe_gateway(gateway)
        grpc_address = await enter(open_grpc_server(control, settings.grpc.listen, tls=tls))
        yield ServingApp(
            settings=settings,
            gateway=gateway,
            front=OriginGuard(plane.rest, components.list_own_hosts(settings), settings.allowed_origins),
            console=plane.rest.path,
            reload=plane.reload,
            close_streams=control.watches.close,
            details={"grpc": grpc_address},
        )


def _read_tls(grpc: GrpcSettings) -> Tls | None:
    """The gRPC listener's certificate and key. Raises StartRefused if keys would be sent unencrypted."""
    if (grpc.cert_file is None) != (grpc.key_file is None):
        hint = "set both, or neither"
        raise StartRefused("only one of `grpc.cert_file` and `grpc.key_file` is set", hint=hint)
    if grpc.cert_file is None or grpc.key_file is None:
        if is_loopback(parse_address(grpc.listen)[0]) or grpc.allow_plaintext:
            return None
        raise StartRefused(
            f"`{grpc.listen}` is reachable from other machines, and keys would be sent unencrypted",
            hint="set `grpc.cert_file` and `grpc.key_file`, or `grpc.allow_plaintext` if a mesh encrypts",
        )
    try:
        return Tls(certificate=grpc.cert_file.read_bytes(), private_key=grpc.key_file.read_bytes())
    except OSError as exc:
        raise StartRefused(f"cannot read the gRPC certificate or its key: {exc}") from exc
