"""The data plane, as `up` and `node` both have it: servers, gateway, doors for MCP and chat beside REST."""

import time
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import Final, NamedTuple

from toolgate.app.components import (
    describe_gateway,
    discovery_of,
    egress_of,
    first_snapshot,
    limits_of,
    wall_ms,
)
from toolgate.app.guests import Work, open_invoker
from toolgate.app.loop_lag import open_loop_lag
from toolgate.app.observability import open_traces
from toolgate.app.token_telling import open_token_telling
from toolgate.audit.log.writer import AuditLog
from toolgate.gateway.auth.identity import Identities
from toolgate.gateway.gateway import Gateway
from toolgate.gateway.signing import Signer
from toolgate.gateway.spawning import spawned
from toolgate.model.servers import ServerRecord, Transport
from toolgate.model.snapshot import Snapshot
from toolgate.packages.connector import Fetch, Named, UnpackedPackages
from toolgate.packages.opener import DeclaredTools, PackagedOpener
from toolgate.settings import Settings
from toolgate.surfaces.http.messages import Door, Request, Responder
from toolgate.surfaces.mcp.session import Sessions
from toolgate.surfaces.mcp.target import is_mcp_path
from toolgate.surfaces.openai.context import ChatParts
from toolgate.surfaces.openai.endpoint import OpenAiDoor
from toolgate.surfaces.openai.target import is_openai_path
from toolgate.surfaces.wasm.invoker import Invoker
from toolgate.telemetry import Metrics
from toolgate.upstream.connection.contract import Opener, Purpose
from toolgate.upstream.connection.secrets import Secrets
from toolgate.upstream.http.fetch import Fetcher
from toolgate.upstream.limits import PoolLimits
from toolgate.upstream.models.client import Models
from toolgate.upstream.oauth.authorizer import Authorizer
from toolgate.upstream.oauth.connector import AuthorizedOpener
from toolgate.upstream.oauth.grants import GrantFiles
from toolgate.upstream.oauth.registration import CLIENT_DOCUMENT
from toolgate.upstream.pool.admission import NodeSlots
from toolgate.upstream.pool.kept_definitions import Declared, KnownDefinitions
from toolgate.upstream.pool.pool import Lazy, Pool
from toolgate.upstream.sse_legacy import SseLegacyOpener
from toolgate.upstream.stdio.children import Warden
from toolgate.upstream.stdio.connector import StdioOpener
from toolgate.upstream.streamable import StreamableOpener

DEFINITIONS_DIR: Final = "definitions"
"""Under the data directory: what servers offered when they were last listed."""


def _nothing() -> None:
    """For a process that tells nobody."""


class Doors:
    """One listener, three doors: the hot one first."""

    def __init__(self, mcp: Door, chat: Door, rest: Door) -> None:
        self._mcp = mcp
        self._chat = chat
        self._rest = rest

    def __call__(self, request: Request, responder: Responder) -> Awaitable[None]:
        if is_mcp_path(request.path):
            return self._mcp(request, responder)
        return (self._chat if is_openai_path(request.path) else self._rest)(request, responder)


@dataclass(frozen=True, slots=True, kw_only=True)
class Supplies:
    """What servers are opened with beyond their records: tokens, and the files of packages."""

    authorizer: Authorizer
    fetch: Fetch


class Transports(NamedTuple):
    """How servers are reached, and how many of them may be child processes at once."""

    openers: Mapping[Transport, Opener]
    max_children: Callable[[], int]
    declared: Declared


def authorizer_of(
    settings: Settings, environ: Mapping[str, str], grants: GrantFiles | None = None
) -> Authorizer:
    """Who gets tokens for servers. Without `grants`, nobody can log in to one."""
    return Authorizer(
        Secrets(environ, settings.secrets_dir),
        Fetcher(egress_of(settings)),
        clock_s=time.time,
        grants=grants,
        own_url=_client_url(settings.public_url),
    )


def _client_url(public_url: str | None) -> str | None:
    """Where this gateway says who it is, as authorization servers reach it."""
    is_fit = public_url is not None and public_url.startswith("https://")
    return f"{public_url}".rstrip("/") + CLIENT_DOCUMENT if is_fit else None


@asynccontextmanager
async def open_openers(
    settings: Settings, environ: Mapping[str, str], supplies: Supplies, *, named: Named, audit: AuditLog
) -> AsyncIterator[Transports]:
    """How servers are reached, with the warden that keeps their processes, each on record before it exists.

    `named` says which packages are in use: the files of others are removed.
    """

    def spawning(record: ServerRecord, purpose: Purpose, /) -> None:
        audit.record(spawned(record, purpose, at_ms=wall_ms()))

    resolved = Secrets(environ, settings.secrets_dir)
    egress = egress_of(settings)
    warden = Warden(max_children=settings.max_children)
    unpacked = UnpackedPackages(settings.data_dir / "packages-cache", supplies.fetch, named=named)
    try:
        await warden.start()
        async with unpacked:
            openers: dict[Transport, Opener] = {
                "stdio": PackagedOpener(StdioOpener(warden, resolved, on_spawn=spawning), unpacked),
                "streamable_http": AuthorizedOpener(
                    StreamableOpener(resolved, egress), supplies.authorizer, clock_s=time.time
                ),
                "http_sse_legacy": SseLegacyOpener(resolved, egress),
            }
            yield Transports(openers, lambda: warden.capacity, DeclaredTools(unpacked))
    finally:
        await warden.aclose()


@asynccontextmanager
async def open_gateway(
    settings: Settings,
    environ: Mapping[str, str],
    audit: AuditLog,
    metrics: Metrics,
    *,
    supplies: Supplies,
    on_change: Callable[[], None] = _nothing,
) -> AsyncIterator[Gateway]:
    """The pipeline over a pool of its own. `on_change` is told that the tools of a server have changed."""
    async with AsyncExitStack() as stack:
        stack.enter_context(open_loop_lag(metrics))
        tracing = await stack.enter_async_context(open_traces(settings, environ))

        def named() -> Collection[str] | None:
            return packages_in(gateway.snapshot)

        transports = await stack.enter_async_context(
            open_openers(settings, environ, supplies, named=named, audit=audit)
        )

        def changed(server_id: str) -> None:
            gateway.on_tools_changed(server_id)
            on_change()

        def updated(server_id: str, uri: str) -> None:
            gateway.on_updated(server_id, uri)

        def verified(server_id: str) -> None:
            offer = pool.offer(server_id)
            if offer is not None and gateway.drift.confirm(offer):
                gateway.on_tools_changed(server_id)
            on_change()

        known = await stack.enter_async_context(KnownDefinitions(settings.data_dir / DEFINITIONS_DIR))
        limits = PoolLimits(max_calls=settings.max_calls)
        pool = Pool(transports.openers, on_change=changed, limits=limits, on_updated=updated, metrics=metrics)
        _describe_slots(metrics, pool.slots)
        pool.lazy = Lazy(
            known=known,
            declared=transports.declared,
            on_verified=verified,
            max_children=transports.max_children,
        )
        gateway = Gateway(
            pool,
            audit,
            metrics=metrics,
            limits=limits_of(settings),
            snapshot=first_snapshot(settings),
        )
        await stack.enter_async_context(open_token_telling(gateway))
        if tracing is not None:
            pool.tracing = tracing
            gateway.trace(tracing)
        await stack.enter_async_context(pool)
        yield gateway


def packages_in(snapshot: Snapshot) -> Collection[str] | None:
    """The hashes of the packages that servers run from. None: nothing is known of servers yet."""
    if not snapshot.revision:
        return None
    records = (server.record for server in snapshot.servers.values())
    return {record.package.sha256 for record in records if record.package is not None}


def _describe_slots(metrics: Metrics, slots: NodeSlots) -> None:
    """The gauges of the node's cap on calls in flight."""
    metrics.gauge(
        "toolgate_node_calls_in_flight",
        "Calls in flight at all servers together; those whose client is asked something aside.",
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
        "Calls refused with `node_busy`: as many as may wait were waiting.",
        lambda: float(slots.refused),
    )


def describe_doors(metrics: Metrics, gateway: Gateway, sessions: Sessions) -> None:
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
async def open_askers(
    settings: Settings,
    environ: Mapping[str, str],
    gateway: Gateway,
    *,
    identities: Identities,
    signer: Signer,
    work: Work,
) -> AsyncIterator[tuple[OpenAiDoor, Invoker]]:
    """All that asks models, over the same connections: the door for chats, and what runs guests."""
    async with (
        Models(Secrets(environ, settings.secrets_dir), egress_of(settings)) as models,
        open_invoker(settings, gateway, models, work) as invoker,
    ):
        models.tracing = gateway.tracing
        parts = ChatParts(gateway=gateway, models=models, signer=signer, wall_s=time.time)
        yield OpenAiDoor(identities, parts, discovery=discovery_of(settings)), invoker
