"""The data plane, for `up` and `node`: servers, gateway, MCP and chat endpoints, guests."""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Collection, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from toolgate.app import components
from toolgate.app.components import ProcessContext
from toolgate.app.observability import open_loop_lag, open_token_audit, open_traces
from toolgate.app.process import ServingApp
from toolgate.audit.events import ProcessSpawned
from toolgate.gateway.gateway import Gateway, GatewayServices
from toolgate.govern.process import GatewayProcess
from toolgate.lazy_modules import load_lazily
from toolgate.model.invocations import InvocationResult
from toolgate.model.servers import ServerRecord, Transport
from toolgate.model.tools import Snapshot
from toolgate.packages.connector import FetchArchive, NamedPackages, PackageCache, PackageConnector
from toolgate.redaction.records import redact_command
from toolgate.registry.invocations import InvocationQueue
from toolgate.settings import Settings
from toolgate.surfaces.http.guard import OriginGuard
from toolgate.surfaces.http.messages import HttpHandler, HttpRequest, Responder
from toolgate.surfaces.mcp.endpoint import McpEndpoint
from toolgate.surfaces.mcp.exchange import is_mcp_path
from toolgate.surfaces.mcp.session import ClientSessions
from toolgate.surfaces.openai.endpoint import ChatEndpoint
from toolgate.surfaces.openai.exchange import ChatServices, is_openai_path
from toolgate.surfaces.wasm.context import TaskContext
from toolgate.surfaces.wasm.invoker import GuestServices, Invoker
from toolgate.telemetry import Metrics
from toolgate.upstream.connection.contract import Connector, PoolLimits, Purpose
from toolgate.upstream.connection.secrets import Secrets
from toolgate.upstream.http.endpoint import EndpointResolver
from toolgate.upstream.http.fetch import Fetcher
from toolgate.upstream.http.sse_legacy import SseLegacyConnector
from toolgate.upstream.http.streamable import StreamableConnector
from toolgate.upstream.models.client import Models
from toolgate.upstream.oauth.authority import CLIENT_DOCUMENT
from toolgate.upstream.oauth.connector import Authorizer, OAuthConnector
from toolgate.upstream.oauth.grants import GrantFiles
from toolgate.upstream.pool.admission import NodeSlots
from toolgate.upstream.pool.kept_definitions import KeptDefinitions
from toolgate.upstream.pool.managed_connection import PoolServices
from toolgate.upstream.pool.pool import Pool
from toolgate.upstream.stdio.children import Warden
from toolgate.upstream.stdio.connector import StdioConnector
from toolgate.wasm.run import GuestRun

if TYPE_CHECKING:
    from toolgate.wasm.module_cache import CompiledModules, FetchModule
    from toolgate.wasm.slots import Slots

SWEEP_S: Final = 60.0
"""How late an idle session ends. A sweep checks each of at most 10,000 sessions."""


@dataclass(slots=True, eq=False)
class GuestRuntime:
    """Slots and modules of guests. The first guest loads them."""

    settings: Settings
    gateway: Gateway
    fetch: "FetchModule"
    stack: AsyncExitStack = field(default_factory=AsyncExitStack, init=False)
    """Closes slots and modules. Enter it before the first guest."""
    _turn: asyncio.Lock = field(default_factory=asyncio.Lock, init=False)
    _slots: "Slots[TaskContext] | None" = field(default=None, init=False)
    _modules: "CompiledModules | None" = field(default=None, init=False)

    async def open(self, sha256: str) -> Path:
        async with self._turn:
            modules = self._modules
            if modules is None:
                compiled = await asyncio.to_thread(load_lazily, "toolgate.wasm.module_cache")
                cache = self.settings.data_dir / "modules-cache"
                modules = compiled.CompiledModules(cache, self.fetch, named=self._named)
                self._modules = await self.stack.enter_async_context(modules)
        return await modules.open(sha256)

    async def run(self, run: GuestRun[TaskContext]) -> InvocationResult:
        async with self._turn:
            slots = self._slots
            if slots is None:
                runs = await asyncio.to_thread(load_lazily, "toolgate.wasm.slots")
                calls = await asyncio.to_thread(load_lazily, "toolgate.surfaces.wasm.functions")
                slots = runs.Slots(calls.ALL_FUNCTIONS, max_guests=self.settings.max_guests)
                self._slots = await self.stack.enter_async_context(slots)
        return await slots.run(run)

    def _named(self) -> Collection[str] | None:
        snapshot = self.gateway.snapshot
        if not snapshot.revision:  # the tasks are unknown so far
            return None
        return {task.workload.module for task in snapshot.tasks.values() if task.workload is not None}


def build_authorizer(context: ProcessContext, grants: GrantFiles | None = None) -> Authorizer:
    """Gets OAuth tokens for servers. Without `grants`, principals cannot log in to servers."""
    settings = context.settings
    public_url = settings.public_url or ""
    has_document = public_url.startswith("https://")  # authorization servers fetch it only over HTTPS
    return Authorizer(
        Secrets(context.environ, settings.secrets_dir),
        Fetcher(settings.egress),
        clock_s=time.time,
        grants=grants,
        own_url=public_url.rstrip("/") + CLIENT_DOCUMENT if has_document else None,
    )


@asynccontextmanager
async def open_connectors(
    context: ProcessContext, *, authorizer: Authorizer, fetch: FetchArchive, named: NamedPackages
) -> AsyncIterator[tuple[Mapping[Transport, Connector], Warden, PackageCache]]:
    """Open the connector of each transport, the warden of child processes, and the files of packages.

    Each start of a child is audited first. `named` returns the packages in use: the files of others are
    removed.
    """

    def spawning(record: ServerRecord, purpose: Purpose, /) -> None:
        launch = record.stdio
        context.audit.record(
            ProcessSpawned(
                at_ms=components.wall_clock_ms(),
                server_id=record.server_id,
                command="" if launch is None else redact_command(launch.command, launch.args),
                reason=purpose,
                package="" if record.package is None else record.package.sha256,
            )
        )

    settings = context.settings
    resolved, egress = Secrets(context.environ, settings.secrets_dir), settings.egress
    warden = Warden(max_children=settings.max_children)
    unpacked = PackageCache(settings.data_dir / "packages-cache", fetch, named=named)
    try:
        await warden.start()
        async with unpacked:
            endpoints = EndpointResolver(resolved, egress)
            openers: dict[Transport, Connector] = {
                "stdio": PackageConnector(StdioConnector(warden, resolved, on_spawn=spawning), unpacked),
                "streamable_http": OAuthConnector(StreamableConnector(endpoints), authorizer),
                "http_sse_legacy": SseLegacyConnector(endpoints),
            }
            yield openers, warden, unpacked
    finally:
        await warden.aclose()


@asynccontextmanager
async def open_gateway(
    context: ProcessContext, *, authorizer: Authorizer, fetch: FetchArchive, services: GatewayServices
) -> AsyncIterator[Gateway]:
    """Open a gateway over a pool of servers."""
    settings, metrics = context.settings, context.metrics
    async with AsyncExitStack() as stack:
        enter = stack.enter_async_context
        stack.enter_context(open_loop_lag(metrics))
        tracing = await enter(open_traces(settings, context.environ))
        opening = open_connectors(
            context,
            authorizer=authorizer,
            fetch=fetch,
            named=lambda: list_package_hashes(gateway.snapshot),
        )
        openers, warden, unpacked = await enter(opening)

        def changed(server_id: str) -> None:
            gateway.on_tools_changed(server_id)
            services.on_tools_changed()

        def updated(server_id: str, uri: str) -> None:
            gateway.subscriptions.watches.on_updated(server_id, uri)

        def verified(server_id: str) -> None:
            if (offer := pool.offer(server_id)) is not None and gateway.drift.confirm(offer):
                gateway.on_tools_changed(server_id)
            services.on_tools_changed()

        known = await enter(KeptDefinitions(settings.data_dir / "definitions"))
        pool = Pool(
            openers,
            on_change=changed,
            limits=PoolLimits(max_calls=settings.max_calls),
            on_updated=updated,
            metrics=metrics,
            services=PoolServices(
                kept=known,
                declared=unpacked.list_tools,
                on_verified=verified,
                max_children=lambda: warden.capacity,
                tracer=tracing,
            ),
        )
        _describe_slots(metrics, pool.slots)
        services = replace(services, tracer=tracing)
        gateway = components.build_gateway(context, pool, services)
        await enter(open_token_audit(gateway))
        await enter(gateway.quotas.reporting())
        await enter(pool)
        yield gateway


def list_package_hashes(snapshot: Snapshot) -> Collection[str] | None:
    """The hashes of the packages that servers run from. None: the servers are unknown so far."""
    if not snapshot.revision:
        return None
    records = (server.record for server in snapshot.servers.values())
    return {record.package.sha256 for record in records if record.package is not None}


def _describe_slots(metrics: Metrics, slots: NodeSlots) -> None:
    in_flight = "Calls in flight at all servers, except those that wait for client input."
    metrics.gauge("toolgate_node_calls_in_flight", in_flight, lambda: slots.in_flight)
    limit = "Limit of calls in flight: the setting `max_calls`."
    metrics.gauge("toolgate_node_calls_limit", limit, lambda: slots.limit)
    queued = "Calls waiting for a slot of the node."
    metrics.gauge("toolgate_node_calls_queued", queued, lambda: slots.queued)
    refused = "Calls rejected with `node_busy`, because the queue was full."
    metrics.gauge("toolgate_node_calls_refused_total", refused, lambda: slots.refused)


@asynccontextmanager
async def open_endpoints(
    context: ProcessContext,
    process: GatewayProcess,
    *,
    sessions: ClientSessions,
    queue: InvocationQueue,
    fetch_module: "FetchModule",
    rest: HttpHandler,
) -> AsyncIterator[ServingApp]:
    """Open all endpoints of `process`, and the invoker of guests. `rest` gets all other paths."""
    settings = context.settings
    gateway, identities, discovery = process.gateway, process.identities, process.discovery
    mcp = McpEndpoint(gateway, identities, sessions=sessions, discovery=discovery)
    runtime = GuestRuntime(settings, gateway, fetch_module)
    async with (
        Models(
            Secrets(context.environ, settings.secrets_dir), settings.egress, tracer=gateway.tracer
        ) as models,
        runtime.stack,
        Invoker(
            services=GuestServices(
                gateway=gateway,
                models=models,
                queue=queue,
                run_guest=runtime.run,
                open_module=runtime.open,
            ),
            node_id=settings.process_id,
            max_guests=settings.max_guests,
            drain_s=settings.drain_s,
        ) as invoker,
        # At the end all sessions end, so that their totals are audited.
        components.call_regularly(sessions.drop_idle, every_s=SWEEP_S, at_end=sessions.close),
    ):
        services = ChatServices(gateway=gateway, models=models, signer=sessions.signer, wall_s=time.time)
        chat = ChatEndpoint(identities, services, metadata=discovery)

        def route(request: HttpRequest, responder: Responder) -> Awaitable[None]:
            if is_mcp_path(request.path):  # the hot path first
                return mcp(request, responder)
            return (chat if is_openai_path(request.path) else rest)(request, responder)

        def close_streams() -> None:
            mcp.close()
            invoker.stop()

        _describe_data_plane(gateway, sessions, invoker)
        yield ServingApp(
            settings=settings,
            gateway=gateway,
            front=OriginGuard(route, components.list_own_hosts(settings), settings.allowed_origins),
            close_streams=close_streams,
        )


def _describe_data_plane(gateway: Gateway, sessions: ClientSessions, invoker: Invoker) -> None:
    metrics, load = gateway.metrics, gateway.servers.load
    metrics.gauge("toolgate_guests", "Running guests.", lambda: len(invoker))
    metrics.gauge("toolgate_sessions", "Open sessions of session-based clients.", lambda: len(sessions))
    metrics.gauge("toolgate_streams", "Open event streams.", lambda: len(gateway.subscriptions))
    metrics.gauge("toolgate_children", "Child processes of servers.", lambda: load().children)
    by_server = ("server_id",)
    running = "Calls in flight, by server."
    metrics.gauge("toolgate_calls_in_flight", running, lambda: load().in_flight, labels=by_server)
    waiting = "Calls waiting for a slot, by server."
    metrics.gauge("toolgate_calls_queued", waiting, lambda: load().queued, labels=by_server)
    components.describe_gateway(gateway)
