"""The data plane, as `up` and `node` both have it: servers, gateway, MCP and chat endpoints, guests."""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple, Self

from toolgate.app.components import (
    build_discovery,
    build_egress,
    build_limits,
    choose_node_id,
    describe_gateway,
    empty_snapshot,
    wall_clock_ms,
)
from toolgate.app.observability import open_loop_lag, open_token_audit, open_traces
from toolgate.audit.events import ProcessSpawned
from toolgate.audit.log.writer import AuditLog
from toolgate.gateway.auth.identity import Identities
from toolgate.gateway.auth.signing import Signer
from toolgate.gateway.gateway import Gateway, GatewayServices
from toolgate.lazy_modules import load_lazily
from toolgate.model.invocations import InvocationResult
from toolgate.model.servers import ServerRecord, Transport
from toolgate.model.tools import Snapshot
from toolgate.packages.connector import (
    FetchArchive,
    ManifestTools,
    NamedPackages,
    PackageCache,
    PackageConnector,
)
from toolgate.redaction.records import redact_command
from toolgate.registry.invocations.contract import InvocationQueue
from toolgate.settings import Settings
from toolgate.surfaces.http.messages import HttpHandler, HttpRequest, Responder
from toolgate.surfaces.mcp.exchange import is_mcp_path
from toolgate.surfaces.mcp.session import ClientSessions
from toolgate.surfaces.openai.context import ChatServices, is_openai_path
from toolgate.surfaces.openai.endpoint import ChatEndpoint
from toolgate.surfaces.wasm.context import TaskContext
from toolgate.surfaces.wasm.invocation import GuestServices
from toolgate.surfaces.wasm.invoker import Invoker
from toolgate.telemetry import Metrics
from toolgate.upstream.connection.contract import Connector, PoolLimits, Purpose
from toolgate.upstream.connection.secrets import Secrets
from toolgate.upstream.http.fetch import Fetcher
from toolgate.upstream.http.sse_legacy import SseLegacyConnector
from toolgate.upstream.http.streamable import StreamableConnector
from toolgate.upstream.models.client import Models
from toolgate.upstream.oauth.authorizer import Authorizer
from toolgate.upstream.oauth.connector import OAuthConnector
from toolgate.upstream.oauth.grants import GrantFiles
from toolgate.upstream.oauth.tokens import CLIENT_DOCUMENT
from toolgate.upstream.pool.admission import NodeSlots
from toolgate.upstream.pool.kept_definitions import DeclareTools, KeptDefinitions
from toolgate.upstream.pool.pool import Pool, PoolServices
from toolgate.upstream.stdio.children import Warden
from toolgate.upstream.stdio.connector import StdioConnector
from toolgate.wasm.run import GuestRun

if TYPE_CHECKING:
    from toolgate.wasm.module_cache import CompiledModules, FetchModule
    from toolgate.wasm.slots import Slots

MODULE_CACHE_DIR: Final = "modules-cache"
"""In the data directory: what was compiled, and can be compiled again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InvocationSource:
    """Where invocations come from, and the modules that they run."""

    queue: InvocationQueue
    fetch: "FetchModule"


class GuestRuntime:
    """Slots and modules, loaded with the first guest."""

    def __init__(self, settings: Settings, gateway: Gateway, fetch: "FetchModule") -> None:
        self._settings = settings
        self._gateway = gateway
        self._fetch = fetch
        self._turn = asyncio.Lock()
        self._stack = AsyncExitStack()
        self._slots: Slots[TaskContext] | None = None
        self._modules: CompiledModules | None = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        await self._stack.aclose()

    async def open(self, sha256: str) -> Path:
        """See `CompiledModules`."""
        async with self._turn:
            modules = self._modules
            if modules is None:
                compiled = await asyncio.to_thread(load_lazily, "toolgate.wasm.module_cache")
                modules = compiled.CompiledModules(
                    self._settings.data_dir / MODULE_CACHE_DIR, self._fetch, named=self._named
                )
                self._modules = await self._stack.enter_async_context(modules)
        return await modules.open(sha256)

    async def run(self, run: GuestRun[TaskContext]) -> InvocationResult:
        """See `Slots`."""
        async with self._turn:
            slots = self._slots
            if slots is None:
                runs = await asyncio.to_thread(load_lazily, "toolgate.wasm.slots")
                calls = await asyncio.to_thread(load_lazily, "toolgate.surfaces.wasm.functions")
                slots = runs.Slots(calls.ALL_FUNCTIONS, max_guests=self._settings.max_guests)
                self._slots = await self._stack.enter_async_context(slots)
        return await slots.run(run)

    def _named(self) -> Collection[str] | None:
        snapshot = self._gateway.snapshot
        if not snapshot.revision:  # nothing is known of tasks yet
            return None
        return {task.workload.module for task in snapshot.tasks.values() if task.workload is not None}


@asynccontextmanager
async def open_invoker(
    settings: Settings, gateway: Gateway, models: Models, work: InvocationSource
) -> AsyncIterator[Invoker]:
    """Runs guests in this process, up to `max_guests` at once."""
    async with GuestRuntime(settings, gateway, work.fetch) as runtime:
        invoker = Invoker(
            GuestServices(gateway=gateway, models=models, queue=work.queue, slots=runtime, modules=runtime),
            node_id=choose_node_id(settings),
            max_guests=settings.max_guests,
            drain_s=settings.drain_s,
        )
        gateway.metrics.gauge("toolgate_guests", "Guests that run.", lambda: float(len(invoker)))
        async with invoker:
            yield invoker


DEFINITIONS_DIR: Final = "definitions"
"""Under the data directory: what servers offered when they were last listed."""


class EndpointRouter:
    """Routes requests to MCP, chat or REST: the hot path first."""

    def __init__(self, mcp: HttpHandler, chat: HttpHandler, rest: HttpHandler) -> None:
        self._mcp = mcp
        self._chat = chat
        self._rest = rest

    def __call__(self, request: HttpRequest, responder: Responder) -> Awaitable[None]:
        if is_mcp_path(request.path):
            return self._mcp(request, responder)
        return (self._chat if is_openai_path(request.path) else self._rest)(request, responder)


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectorDependencies:
    """What connecting needs in addition to records: tokens, and the files of packages."""

    authorizer: Authorizer
    fetch: FetchArchive


class ServerConnectors(NamedTuple):
    """The connector of each transport, and how many child processes there may be."""

    openers: Mapping[Transport, Connector]
    max_children: Callable[[], int]
    declared: DeclareTools


def build_authorizer(
    settings: Settings, environ: Mapping[str, str], grants: GrantFiles | None = None
) -> Authorizer:
    """Gets tokens for servers. Without `grants`, no principal can log in to one."""
    return Authorizer(
        Secrets(environ, settings.secrets_dir),
        Fetcher(build_egress(settings)),
        clock_s=time.time,
        grants=grants,
        own_url=_client_url(settings.public_url),
    )


def _client_url(public_url: str | None) -> str | None:
    """The URL of this gateway's client metadata document, for authorization servers."""
    is_fit = public_url is not None and public_url.startswith("https://")
    return f"{public_url}".rstrip("/") + CLIENT_DOCUMENT if is_fit else None


@asynccontextmanager
async def open_connectors(
    settings: Settings,
    environ: Mapping[str, str],
    supplies: ConnectorDependencies,
    *,
    named: NamedPackages,
    audit: AuditLog,
) -> AsyncIterator[ServerConnectors]:
    """The connectors of servers, with the warden of their processes. Each start is audited beforehand.

    `named` says which packages are in use: the files of others are removed.
    """

    def spawning(record: ServerRecord, purpose: Purpose, /) -> None:
        launch = record.stdio
        audit.record(
            ProcessSpawned(
                at_ms=wall_clock_ms(),
                server_id=record.server_id,
                command="" if launch is None else redact_command(launch.command, launch.args),
                reason=purpose,
                package="" if record.package is None else record.package.sha256,
            )
        )

    resolved = Secrets(environ, settings.secrets_dir)
    egress = build_egress(settings)
    warden = Warden(max_children=settings.max_children)
    unpacked = PackageCache(settings.data_dir / "packages-cache", supplies.fetch, named=named)
    try:
        await warden.start()
        async with unpacked:
            openers: dict[Transport, Connector] = {
                "stdio": PackageConnector(StdioConnector(warden, resolved, on_spawn=spawning), unpacked),
                "streamable_http": OAuthConnector(
                    StreamableConnector(resolved, egress), supplies.authorizer, clock_s=time.time
                ),
                "http_sse_legacy": SseLegacyConnector(resolved, egress),
            }
            yield ServerConnectors(openers, lambda: warden.capacity, ManifestTools(unpacked))
    finally:
        await warden.aclose()


@asynccontextmanager
async def open_gateway(
    settings: Settings,
    environ: Mapping[str, str],
    audit: AuditLog,
    metrics: Metrics,
    *,
    supplies: ConnectorDependencies,
    services: GatewayServices,
) -> AsyncIterator[Gateway]:
    """A gateway over its own pool of servers."""
    async with AsyncExitStack() as stack:
        stack.enter_context(open_loop_lag(metrics))
        tracing = await stack.enter_async_context(open_traces(settings, environ))

        def named() -> Collection[str] | None:
            return list_package_hashes(gateway.snapshot)

        transports = await stack.enter_async_context(
            open_connectors(settings, environ, supplies, named=named, audit=audit)
        )

        def changed(server_id: str) -> None:
            gateway.on_tools_changed(server_id)
            services.on_tools_changed()

        def updated(server_id: str, uri: str) -> None:
            gateway.on_updated(server_id, uri)

        def verified(server_id: str) -> None:
            if (offer := pool.offer(server_id)) is not None and gateway.drift.confirm(offer):
                gateway.on_tools_changed(server_id)
            services.on_tools_changed()

        known = await stack.enter_async_context(KeptDefinitions(settings.data_dir / DEFINITIONS_DIR))
        pool = Pool(
            transports.openers,
            on_change=changed,
            limits=PoolLimits(max_calls=settings.max_calls),
            on_updated=updated,
            metrics=metrics,
            services=PoolServices(
                kept=known,
                declared=transports.declared,
                on_verified=verified,
                max_children=transports.max_children,
                tracer=tracing,
            ),
        )
        _describe_slots(metrics, pool.slots)
        gateway = Gateway(
            pool,
            audit,
            metrics=metrics,
            limits=build_limits(settings),
            snapshot=empty_snapshot(settings),
            services=replace(services, tracer=tracing),
        )
        await stack.enter_async_context(open_token_audit(gateway))
        await stack.enter_async_context(gateway.quotas.reporting())
        await stack.enter_async_context(pool)
        yield gateway


def list_package_hashes(snapshot: Snapshot) -> Collection[str] | None:
    """The hashes of the packages that servers run from. None: nothing is known of servers yet."""
    if not snapshot.revision:
        return None
    records = (server.record for server in snapshot.servers.values())
    return {record.package.sha256 for record in records if record.package is not None}


def _describe_slots(metrics: Metrics, slots: NodeSlots) -> None:
    """The gauges of the node's cap on calls in flight."""
    metrics.gauge(
        "toolgate_node_calls_in_flight",
        "Calls in flight at all servers together; except those that wait for their client.",
        lambda: float(slots.in_flight),
    )
    metrics.gauge(
        "toolgate_node_calls_limit", "The most calls in flight: `max_calls`.", lambda: float(slots.limit)
    )
    metrics.gauge(
        "toolgate_node_calls_queued", "Calls that wait for a slot of the node.", lambda: float(slots.queued)
    )
    metrics.gauge(
        "toolgate_node_calls_refused_total",
        "Calls refused with `node_busy`: the queue was full.",
        lambda: float(slots.refused),
    )


def describe_data_plane(metrics: Metrics, gateway: Gateway, sessions: ClientSessions) -> None:
    """The gauges of a process that serves callers."""
    load = gateway.servers.load
    metrics.gauge("toolgate_sessions", "Legacy sessions open.", lambda: float(len(sessions)))
    metrics.gauge("toolgate_streams", "Event streams open.", lambda: float(len(gateway.subscriptions)))
    metrics.gauge("toolgate_children", "Child processes.", lambda: float(load().children))
    metrics.gauge(
        "toolgate_calls_in_flight", "Calls at servers.", lambda: load().in_flight, labels=("server_id",)
    )
    metrics.gauge(
        "toolgate_calls_queued", "Calls that wait for a slot.", lambda: load().queued, labels=("server_id",)
    )
    describe_gateway(metrics, gateway)


@asynccontextmanager
async def open_model_endpoints(
    settings: Settings,
    environ: Mapping[str, str],
    gateway: Gateway,
    *,
    identities: Identities,
    signer: Signer,
    work: InvocationSource,
) -> AsyncIterator[tuple[ChatEndpoint, Invoker]]:
    """All that prompts models, over the same connections: the chat endpoint, and what runs guests."""
    async with (
        Models(
            Secrets(environ, settings.secrets_dir), build_egress(settings), tracer=gateway.tracer
        ) as models,
        open_invoker(settings, gateway, models, work) as invoker,
    ):
        services = ChatServices(gateway=gateway, models=models, signer=signer, wall_s=time.time)
        yield ChatEndpoint(identities, services, metadata=build_discovery(settings)), invoker
