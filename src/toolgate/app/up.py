"""`toolgate up`: control and node in one process, on SQLite."""

import time
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Final

from toolgate.app.audit_index import open_index
from toolgate.app.background import in_background
from toolgate.app.components import (
    console_door,
    console_reached,
    discovery_of,
    follow_registry,
    load_directory,
    model_trials_of,
    oidc_login_of,
    open_identities,
    open_search_model,
    own_hosts,
    read_key_file,
    refuse_open_door,
    session_key,
    terms_of,
    wall_ms,
)
from toolgate.app.control_plane import keeper_of, open_archives
from toolgate.app.data_plane import Doors, Supplies, authorizer_of, describe_doors, open_askers, open_gateway
from toolgate.app.guests import Work
from toolgate.app.journals import describe_journal
from toolgate.app.observability import open_exported_journal
from toolgate.app.process import App
from toolgate.app.sessions import SessionEndings, open_session_upkeep, sync_with
from toolgate.app.upkeep import open_upkeep
from toolgate.app.webhooks import open_webhook
from toolgate.errors import StartRefused
from toolgate.gateway.call.approval import Approving
from toolgate.gateway.call.quota import Spending
from toolgate.gateway.search.index import Searching
from toolgate.gateway.search.tool_search import Finding
from toolgate.govern.control import Control
from toolgate.registry.store.sqlite import open_sqlite_store
from toolgate.settings import Settings
from toolgate.surfaces.http.asgi import AsgiDoor
from toolgate.surfaces.http.guard import Guard
from toolgate.surfaces.mcp.endpoint import McpDoor
from toolgate.surfaces.mcp.session import Sessions
from toolgate.surfaces.rest.app import rest_app
from toolgate.telemetry import Metrics
from toolgate.upstream.oauth.grants import GrantFiles
from toolgate.upstream.oauth.logins import Logins

_ALONE_S: Final = 3600.0
"""Between looks at what was ended, where no other process ends sessions."""


@asynccontextmanager
async def open_up(settings: Settings, environ: Mapping[str, str]) -> AsyncIterator[App]:
    """Build all parts on the data directory, load the registry, and keep everything running."""
    _refuse_database(settings)
    admin_key = read_key_file(settings.admin_key_file, "admin_key_file")
    async with AsyncExitStack() as stack:
        store = await stack.enter_async_context(open_sqlite_store(settings.registry_file, wall_ms))
        await refuse_open_door(settings, store, admin_key)
        journal = await stack.enter_async_context(open_exported_journal(settings))
        audit, index = journal.log, await stack.enter_async_context(open_index(settings, journal))
        meaning = await stack.enter_async_context(open_search_model(settings))
        sessions = Sessions(await session_key(store), clock_s=time.monotonic, wall_s=time.time)
        # What was ended before a restart is heard of first; nobody else ends any.
        endings = SessionEndings(sessions, sync_with(store.ended_sessions), every_s=_ALONE_S)
        await endings.sync_once()
        await stack.enter_async_context(in_background(endings.run()))
        metrics = Metrics()
        describe_journal(metrics, journal)
        grants = GrantFiles(settings.data_dir / "logins")
        authorizer = authorizer_of(settings, environ, grants)
        archives = await stack.enter_async_context(open_archives(settings, environ))
        supplies = Supplies(authorizer=authorizer, fetch=archives.fetch)
        gateway = await stack.enter_async_context(
            open_gateway(settings, environ, audit, metrics, supplies=supplies)
        )
        gateway.finding = Finding(Searching(meaning))
        gateway.sending.approving = Approving(audit, store.approvals, console_url=settings.public_url or "")
        gateway.sending.spending = Spending(store.spending, metrics=metrics)
        await stack.enter_async_context(gateway.sending.spending.running())
        identities = await stack.enter_async_context(open_identities(settings, admin_key, audit))
        loader = await load_directory(settings, store, audit)
        logins = Logins(authorizer, grants, clock_s=time.time)
        await stack.enter_async_context(follow_registry(store, gateway, identities, loader, logins=logins))
        await stack.enter_async_context(open_upkeep(store, metrics, audit))
        keeper = await stack.enter_async_context(keeper_of(settings, store, gateway, archives, meaning))
        control = Control(
            gateway=gateway,
            store=store,
            identities=identities,
            oidc_login=oidc_login_of(settings, identities),
            loader=loader,
            clock_ms=wall_ms,
            discovery=discovery_of(settings),
            terms=terms_of(settings),
            try_models=model_trials_of(settings, environ),
            logins=logins,
            backup_dir=settings.data_dir,
            artifacts=archives.artifacts,
            uploads=archives.uploads,
            modules=archives.modules,
            keeper=keeper,
            audit_index=index,
            webhook=await stack.enter_async_context(open_webhook(settings, store, gateway)),
        )
        await stack.enter_async_context(open_session_upkeep(sessions))
        describe_doors(metrics, gateway, sessions)
        work = Work(queue=store.invocations, fetch=archives.modules.read)
        yield await stack.enter_async_context(
            _open_app(settings, environ, control, sessions=sessions, work=work)
        )


@asynccontextmanager
async def _open_app(
    settings: Settings, environ: Mapping[str, str], control: Control, *, sessions: Sessions, work: Work
) -> AsyncIterator[App]:
    """Every door over what is governed and served here."""
    gateway, identities = control.gateway, control.identities
    mcp = McpDoor(gateway, identities, sessions=sessions, discovery=control.discovery)
    async with open_askers(
        settings, environ, gateway, identities=identities, signer=sessions.signer, work=work
    ) as (chat, invoker):

        def end_streams() -> None:
            mcp.close()
            control.watches.close()
            invoker.stop()

        rest = console_door(AsgiDoor(rest_app(control)))
        yield App(
            settings=settings,
            gateway=gateway,
            front=Guard(Doors(mcp, chat, rest), own_hosts(settings), settings.allowed_origins),
            console=rest.path,
            loader=control.loader,
            end_streams=end_streams,
            on_listening=console_reached(settings, gateway),
        )


def _refuse_database(settings: Settings) -> None:
    if settings.database is not None:
        raise StartRefused(
            "`toolgate up` keeps its registry in the data directory, and `database` is set",
            hint="unset it, or run `toolgate control` with it and `toolgate node` beside",
        )
