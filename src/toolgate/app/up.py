"""`toolgate up`: control plane and node in one process, on SQLite."""

import logging
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from toolgate.app import components, data_plane
from toolgate.app.control_plane import open_control_plane, open_registry_host
from toolgate.app.process import ServingApp
from toolgate.errors import StartRefused, StorageFailed
from toolgate.gateway.auth.identity import can_authenticate
from toolgate.gateway.gateway import GatewayServices
from toolgate.gateway.search import HybridIndex
from toolgate.registry.files.reload import DirectoryLoader, ReloadReport
from toolgate.registry.replication.state import RegistryState
from toolgate.registry.store.engines import open_sqlite_store
from toolgate.settings import Settings
from toolgate.surfaces.mcp.session import ClientSessions
from toolgate.upstream.oauth.grants import GrantFiles
from toolgate.upstream.oauth.logins import Logins

_ALONE_S: Final = 3600.0
"""The pause between syncs of ended sessions: no other process ends any."""

_log: Final = logging.getLogger(__name__)


@asynccontextmanager
async def open_up(
    settings: Settings, environ: Mapping[str, str], base_url: str = ""
) -> AsyncIterator[ServingApp]:
    """Open all services on the data directory, load the registry, and run them."""
    if settings.database is not None:
        raise StartRefused(
            "`toolgate up` keeps its registry in the data directory and cannot use the setting `database`",
            hint="unset `database`, or run `toolgate control` and `toolgate node` instead",
        )
    async with AsyncExitStack() as stack:
        enter = stack.enter_async_context
        opening = open_sqlite_store(settings.registry_file, components.wall_clock_ms)
        host = await enter(open_registry_host(settings, environ, opening))
        store = host.store
        key = await components.load_session_key(store)
        sessions = ClientSessions(key, clock_s=time.monotonic, wall_s=time.time)
        # Sync the sessions that ended before a restart; no other process ends sessions.
        exchange = store.ended_sessions.exchange
        endings = components.EndedSessionExchange(sessions, exchange, every_s=_ALONE_S)
        await endings.sync_once()
        await enter(components.run_in_background(endings.run()))
        grants = GrantFiles(settings.data_dir / "logins")
        authorizer = data_plane.build_authorizer(host, grants)
        services = GatewayServices(
            approvals=store.approvals,
            console_url=components.find_console_url(settings, base_url),
            quotas=store.spending,
            tool_index=HybridIndex(host.semantic_search),
        )
        fetch = host.fetch_archive
        opening_gateway = data_plane.open_gateway(host, authorizer=authorizer, fetch=fetch, services=services)
        gateway = await enter(opening_gateway)
        logins = Logins(authorizer, grants, clock_s=time.time)

        async def tidy_logins(state: RegistryState) -> None:
            try:
                await logins.tidy(state.servers, lambda one: can_authenticate(one, state.keys))
            except StorageFailed as exc:
                _log.warning("cannot delete the file of a login that is no longer valid: %s", exc)

        client_url = partial(components.read_public_url, settings)
        plane = await enter(
            open_control_plane(host, gateway, on_state=tidy_logins, logins=logins, client_url=client_url)
        )
        control = plane.control
        app = await enter(
            data_plane.open_endpoints(
                host,
                control,
                sessions=sessions,
                queue=store.invocations,
                fetch_module=host.modules.read,
                rest=plane.rest,
            )
        )

        def close_streams() -> None:
            app.close_streams()
            control.watches.close()

        yield replace(app, console=plane.rest.path, reload=plane.reload, close_streams=close_streams)


async def preview_server_files(settings: Settings) -> ReloadReport:
    """The changes by server files that a start would make. Writes nothing, not even a registry."""
    assert settings.mcp_registry_dir is not None
    async with AsyncExitStack() as stack:
        file = settings.registry_file
        if not file.exists():
            # A preview must not create a registry: it compares with an empty one.
            file = Path(stack.enter_context(TemporaryDirectory())) / file.name
        store = await stack.enter_async_context(open_sqlite_store(file, components.wall_clock_ms))
        loader = DirectoryLoader(
            store, settings.mcp_registry_dir, strict=settings.strict, recursive=settings.registry_recursive
        )
        return await loader.preview()
