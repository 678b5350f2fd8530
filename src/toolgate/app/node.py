"""`toolgate node`: the endpoints and their servers, governed by a separate control plane.

It forwards its audit log to the control plane. On disk it keeps that log, the files of packages that servers
run from, and data that it can fetch or compute again, such as kept definitions and vectors.
"""

import asyncio
import logging
import secrets
import socket
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from functools import partial
from typing import Final
from urllib.parse import urlsplit

from toolgate import __version__
from toolgate.app import components, data_plane
from toolgate.app.observability import open_exported_journal
from toolgate.app.process import ServingApp
from toolgate.audit.log.files import LogChunk
from toolgate.audit.log.journal import Journal, follow_log
from toolgate.errors import ControlUnavailable, NotReady, PolicyStale, StartRefused
from toolgate.gateway.auth.identity import Identities
from toolgate.gateway.cluster.node import NodeReporter
from toolgate.gateway.gateway import Gateway, GatewayServices
from toolgate.gateway.search import HybridIndex, open_semantic_search
from toolgate.govern.process import GatewayProcess, Readiness, ReadinessCondition
from toolgate.model.http import parse_address
from toolgate.model.reports import NodeReport
from toolgate.proto import node_pb2
from toolgate.registry.replication.connection import (
    ControlAddress,
    GrpcControlConnection,
    open_control_connection,
)
from toolgate.registry.replication.remote import RemoteServices
from toolgate.registry.replication.state import RegistryState
from toolgate.registry.replication.sync import NodeSync
from toolgate.settings import Settings
from toolgate.surfaces.mcp.session import ClientSessions
from toolgate.surfaces.rest.data_plane import NODE_ENDPOINTS
from toolgate.surfaces.rest.framework.routing import RestApi
from toolgate.telemetry import Metrics

_log: Final = logging.getLogger(__name__)


@asynccontextmanager
async def open_node(
    settings: Settings, environ: Mapping[str, str], base_url: str = ""
) -> AsyncIterator[ServingApp]:
    """Serve the control plane's policy. Ready after its first message; it continues without contact."""
    address = _build_control_address(settings)
    admin_key = components.read_key_file(settings.admin_key_file, "admin_key_file")
    async with AsyncExitStack() as stack:
        enter = stack.enter_async_context
        metrics = Metrics()
        journal = await enter(open_exported_journal(settings, metrics))
        semantic = await enter(open_semantic_search(settings.semantic_model, settings.data_dir))
        connection = await enter(open_control_connection(address))
        remote = RemoteServices(connection)
        await enter(_forward_audit(journal, connection, node_id=settings.process_id))

        def tools_changed() -> None:
            following.reporter.on_change()

        context = components.ProcessContext(settings, environ, journal.log, metrics)
        gateway = await enter(
            data_plane.open_gateway(
                context,
                authorizer=data_plane.build_authorizer(context),
                fetch=connection.read_artifact,
                services=GatewayServices(
                    approvals=remote,
                    quotas=remote,
                    tool_index=HybridIndex(semantic),
                    on_tools_changed=tools_changed,
                ),
            )
        )
        identities = await enter(components.open_identities(context, admin_key, awaits_keys=True))
        key = secrets.token_bytes(components.SESSION_KEY_BYTES)
        sessions = ClientSessions(key, clock_s=time.monotonic, wall_s=time.time)
        following = ControlFollower(
            settings, connection, gateway=gateway, identities=identities, sessions=sessions, base_url=base_url
        )
        await enter(following.running())
        serving = GatewayProcess(
            gateway=gateway,
            identities=identities,
            clock_ms=components.wall_clock_ms,
            sync_readiness=following.read_readiness,
            client_url=lambda: components.read_public_url(settings),
            discovery=components.build_discovery(settings),
        )
        following.describe(metrics)
        controls = ", ".join(f"`{target}`" for target in settings.control)
        hint = f"this is a node: send the request to its control plane at {controls}"
        yield await enter(
            data_plane.open_endpoints(
                context,
                serving,
                sessions=sessions,
                queue=remote,
                fetch_module=connection.read_module,
                rest=RestApi(NODE_ENDPOINTS, serving, hint=hint),
            )
        )


def _forward_audit(
    journal: Journal, connection: GrpcControlConnection, *, node_id: str
) -> AbstractAsyncContextManager[None]:
    async def deliver(read: LogChunk) -> int:
        request = node_pb2.RecordEventsRequest(
            node_id=node_id, log=journal.name, after=read.after, upto=read.upto, events=read.lines
        )
        return await connection.record_events(request)

    return follow_log(journal, deliver, who="control")


class StalenessGuard:
    """Suspends a gateway whose policy may be outdated. Close it at the end."""

    def __init__(self, gateway: Gateway, *, max_staleness_s: float | None) -> None:
        """Suspends the gateway until the first contact. Without a limit, it never suspends it again."""
        self._gateway = gateway
        self._max_staleness_s = max_staleness_s
        self._timer: asyncio.TimerHandle | None = None
        gateway.suspend(partial(NotReady, "this node has not received its policy from the control plane"))

    def on_contact(self) -> None:
        """The control plane confirmed that the served state is current."""
        self._gateway.resume()
        self.close()
        if self._max_staleness_s is not None:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(self._max_staleness_s, self._expire, self._max_staleness_s)

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _expire(self, after_s: float) -> None:
        message = f"this node has had no contact with the control plane for more than {after_s:g} s"
        self._gateway.suspend(partial(PolicyStale, message))


class ControlFollower:
    """Follows the control plane: applies its state, and reports this node's."""

    def __init__(
        self,
        settings: Settings,
        connection: GrpcControlConnection,
        *,
        gateway: Gateway,
        identities: Identities,
        sessions: ClientSessions,
        base_url: str,
    ) -> None:
        url = settings.public_url or base_url
        if settings.is_everywhere and url and not settings.public_url:
            url = f"http://{socket.gethostname()}:{urlsplit(base_url).port}"
        self._gateway = gateway
        self._identities = identities
        self._sessions = sessions
        self._endings = components.EndedSessionExchange(sessions, connection.sync_sessions)
        self._freshness = StalenessGuard(gateway, max_staleness_s=settings.max_policy_staleness_s)
        self._sync = NodeSync(connection, apply=self._apply, on_contact=self._freshness.on_contact)
        self.reporter = NodeReporter(
            connection,
            gateway.servers,
            itself=NodeReport(node_id=settings.process_id, url=url, version=__version__),
            status=lambda: self._sync.status,
            drifted=lambda: gateway.drift.unrecorded,
        )

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        async with asyncio.TaskGroup() as tasks:
            work = (self._sync.run(), self.reporter.run(), self._endings.run())
            running = [tasks.create_task(one) for one in work]
            try:
                yield
            finally:
                self._freshness.close()
                for task in running:
                    task.cancel()

    def _apply(self, state: RegistryState) -> None:
        if state.session_key is not None:
            self._sessions.use_key(state.session_key)
        self._identities.apply(state.keys)
        self._gateway.apply(state)
        self.reporter.on_change()

    def read_readiness(self) -> Readiness:
        suspension, status = self._gateway.suspension, self._sync.status
        conditions = []
        if suspension is not None:
            conditions.append(ReadinessCondition.of(suspension, blocks=True))
        if status.is_degraded:
            conditions.append(ReadinessCondition(code=status.code, hint=ControlUnavailable.default_hint))
        return Readiness(tuple(conditions))

    def describe(self, metrics: Metrics) -> None:
        began_s = time.monotonic()

        def age_s() -> float:
            contact_s = self._sync.status.last_contact_s
            return time.monotonic() - (began_s if contact_s is None else contact_s)

        degraded = "1 while this node cannot reach the control plane."
        metrics.gauge("toolgate_sync_degraded", degraded, lambda: self._sync.status.is_degraded)
        age = "Seconds since the last message of the control plane."
        metrics.gauge("toolgate_sync_age_s", age, age_s)
        relists = "Times this node listed all records again, because it could not resume its watch."
        metrics.gauge("toolgate_sync_relists_total", relists, lambda: self._sync.status.relists)


def _build_control_address(settings: Settings) -> ControlAddress:
    if not settings.control:
        hint = "start it with `--control HOST:PORT`, or set `control`"
        raise StartRefused("a node needs the address of a control plane", hint=hint)
    for target in settings.control:
        try:
            parse_address(target)
        except ValueError as exc:
            raise StartRefused(f"setting `control`: {exc}", hint="set it to `HOST:PORT`") from exc
    ca = settings.control_ca_file
    try:
        certificates = None if ca is None else ca.read_bytes()
    except OSError as exc:
        raise StartRefused(f"cannot read `control_ca_file` `{ca}`: {exc.strerror}") from exc
    if settings.mcp_registry_dir is not None:
        _log.warning("a node ignores `mcp_registry_dir`: set it on the control plane")
    if settings.approval_webhook is not None:
        _log.warning("a node ignores `approval_webhook`: set it on the control plane")
    return ControlAddress(
        targets=settings.control,
        key=components.read_key_file(settings.control_key_file, "control_key_file"),
        ca=certificates,
        allows_plaintext=settings.grpc.allow_plaintext,
    )
