"""`toolgate node`: the doors and the servers behind them, governed by a control elsewhere.

It keeps nothing on disk but its audit log, the files of packages while servers run from them, and what it
need not learn or compute again (vectors, where search goes by meaning).
"""

import asyncio
import logging
import secrets
import socket
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Final
from urllib.parse import urlsplit

from toolgate import __version__
from toolgate.app.components import (
    SESSION_KEY_BYTES,
    discovery_of,
    node_id_of,
    open_identities,
    open_search_model,
    own_hosts,
    read_key_file,
    wall_ms,
)
from toolgate.app.data_plane import Doors, Supplies, authorizer_of, describe_doors, open_askers, open_gateway
from toolgate.app.forwarding import open_forwarding
from toolgate.app.guests import Work
from toolgate.app.journals import describe_journal
from toolgate.app.observability import open_exported_journal
from toolgate.app.process import App
from toolgate.app.sessions import SessionEndings, open_session_upkeep
from toolgate.errors import ControlUnavailable, StartRefused
from toolgate.gateway.auth.identity import Identities
from toolgate.gateway.call.approval import Approving
from toolgate.gateway.call.quota import Spending
from toolgate.gateway.cluster.node import Reporter
from toolgate.gateway.freshness import Freshness
from toolgate.gateway.gateway import Gateway
from toolgate.gateway.search.index import Searching
from toolgate.gateway.search.tool_search import Finding
from toolgate.govern.process import Serving, Standing, Trouble
from toolgate.model.addresses import parse_address
from toolgate.model.reports import NodeReport
from toolgate.registry.control_approvals import ControlDesk
from toolgate.registry.control_spending import ControlBank
from toolgate.registry.replication.connection import ControlAddress, GrpcControlLink, open_control_link
from toolgate.registry.replication.remote import ControlQueue
from toolgate.registry.replication.state import RegistryState
from toolgate.registry.replication.sync import NodeSync
from toolgate.settings import Settings
from toolgate.surfaces.http.asgi import AsgiDoor
from toolgate.surfaces.http.guard import Guard
from toolgate.surfaces.mcp.endpoint import McpDoor
from toolgate.surfaces.mcp.session import Sessions
from toolgate.surfaces.rest.node_app import node_app
from toolgate.telemetry import Metrics

_log: Final = logging.getLogger(__name__)


@asynccontextmanager
async def open_node(settings: Settings, environ: Mapping[str, str]) -> AsyncIterator[App]:
    """Serve what control governs. It is ready once it has heard from control, and goes on without."""
    address = _address(settings)
    admin_key = read_key_file(settings.admin_key_file, "admin_key_file")
    async with AsyncExitStack() as stack:
        journal = await stack.enter_async_context(open_exported_journal(settings))
        audit = journal.log
        meaning = await stack.enter_async_context(open_search_model(settings))
        metrics = Metrics()
        describe_journal(metrics, journal)
        link = await stack.enter_async_context(open_control_link(address))
        await stack.enter_async_context(open_forwarding(settings, journal, link))

        def tools_changed() -> None:
            following.reporter.on_change()

        gateway = await stack.enter_async_context(
            open_gateway(
                settings,
                environ,
                audit,
                metrics,
                supplies=Supplies(authorizer=authorizer_of(settings, environ), fetch=link.read_artifact),
                on_change=tools_changed,
            )
        )
        gateway.finding = Finding(Searching(meaning))
        gateway.sending.approving = Approving(audit, ControlDesk(link))
        gateway.sending.spending = Spending(ControlBank(link), metrics=metrics)
        await stack.enter_async_context(gateway.sending.spending.running())
        identities = await stack.enter_async_context(open_identities(settings, admin_key, audit))
        sessions = Sessions(secrets.token_bytes(SESSION_KEY_BYTES), clock_s=time.monotonic, wall_s=time.time)
        following = Following(settings, link, gateway=gateway, identities=identities, sessions=sessions)
        await stack.enter_async_context(following.running())
        serving = Serving(
            gateway=gateway,
            identities=identities,
            clock_ms=wall_ms,
            standing=following.standing,
            discovery=discovery_of(settings),
        )
        mcp = McpDoor(gateway, identities, sessions=sessions, discovery=serving.discovery)
        signer, work = sessions.signer, Work(queue=ControlQueue(link), fetch=link.read_module)
        askers = open_askers(settings, environ, gateway, identities=identities, signer=signer, work=work)
        chat, invoker = await stack.enter_async_context(askers)

        def end_streams() -> None:
            mcp.close()
            invoker.stop()

        await stack.enter_async_context(open_session_upkeep(sessions))
        describe_doors(metrics, gateway, sessions)
        following.describe(metrics)
        rest = node_app(serving, elsewhere=f"this is a node: what it serves is governed at {_said(settings)}")
        yield App(
            settings=settings,
            gateway=gateway,
            front=Guard(Doors(mcp, chat, AsgiDoor(rest)), own_hosts(settings), settings.allowed_origins),
            end_streams=end_streams,
            on_listening=following.on_listening,
        )


class Following:
    """A node's tie to control: what comes from there is applied, what happens here is reported."""

    def __init__(
        self,
        settings: Settings,
        link: GrpcControlLink,
        *,
        gateway: Gateway,
        identities: Identities,
        sessions: Sessions,
    ) -> None:
        self._settings = settings
        self._gateway = gateway
        self._identities = identities
        self._sessions = sessions
        self._endings = SessionEndings(sessions, link.sync_sessions)
        self._freshness = Freshness(gateway, max_staleness_s=settings.max_policy_staleness_s)
        identities.await_keys()
        self._sync = NodeSync(link, apply=self._apply, on_contact=self._freshness.on_contact)
        itself = NodeReport(
            node_id=node_id_of(settings),
            url=settings.public_url or "",
            version=__version__,
        )
        self.reporter = Reporter(
            link,
            gateway.servers,
            itself=itself,
            status=lambda: self._sync.status,
            drifted=lambda: gateway.drift.unrecorded,
        )

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Follow control while the block runs."""
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

    def standing(self) -> Standing:
        """How the node stands, for those who watch over it."""
        obstacle, status = self._gateway.obstacle, self._sync.status
        troubles = []
        if obstacle is not None:
            troubles.append(Trouble.of(obstacle, blocks=True))
        if status.is_degraded:
            troubles.append(Trouble(code=status.code, hint=ControlUnavailable.default_hint))
        return Standing(tuple(troubles))

    def on_listening(self, url: str) -> None:
        """The node is reported under `url`, unless it has a public one."""
        if not self._settings.public_url:
            port = urlsplit(url).port
            self.reporter.url = (
                f"http://{socket.gethostname()}:{port}" if self._settings.is_everywhere else url
            )

    def describe(self, metrics: Metrics) -> None:
        """The gauges of a process that follows."""
        began_s = time.monotonic()

        def age_s() -> float:
            contact_s = self._sync.status.last_contact_s
            return time.monotonic() - (began_s if contact_s is None else contact_s)

        metrics.gauge(
            "toolgate_sync_degraded",
            "1 while control cannot be reached.",
            lambda: float(self._sync.status.is_degraded),
        )
        metrics.gauge("toolgate_sync_age_s", "Seconds since control was last heard.", age_s)
        metrics.gauge(
            "toolgate_sync_relists_total",
            "Times a watch of control could not be taken up again.",
            lambda: float(self._sync.status.relists),
        )


def _address(settings: Settings) -> ControlAddress:
    """Where control is. Raises StartRefused."""
    if not settings.control:
        raise StartRefused("a node needs a control to follow", hint="name it with `--control HOST:PORT`")
    for target in settings.control:
        try:
            parse_address(target)
        except ValueError as exc:
            raise StartRefused(str(exc), hint="correct `control`") from exc
    ca = settings.control_ca_file
    try:
        certificates = None if ca is None else ca.read_bytes()
    except OSError as exc:
        raise StartRefused(f"cannot read `control_ca_file` `{ca}`: {exc.strerror}") from exc
    if settings.mcp_registry_dir is not None:
        _log.warning("`mcp_registry_dir` is not used by a node: server files belong to its control")
    if settings.approval_webhook is not None:
        _log.warning("`approval_webhook` is not used by a node: its control tells of calls that wait")
    return ControlAddress(
        targets=settings.control,
        key=read_key_file(settings.control_key_file, "control_key_file"),
        ca=certificates,
        allows_plaintext=settings.grpc.allow_plaintext,
    )


def _said(settings: Settings) -> str:
    return ", ".join(f"`{target}`" for target in settings.control)
