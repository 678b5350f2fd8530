"""The composition root: builds everything, passes it on, owns the task group.

Nothing below this module knows the settings, the environment, or each other's construction.
"""

import asyncio
import gc
import logging
import os
import secrets
import signal
import socket
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import uvloop

from toolgate.audit.log import AuditLog
from toolgate.audit.sinks import JsonLinesSink, last_sequence
from toolgate.errors import StartRefused, ToolgateError
from toolgate.gateway.gateway import Gateway
from toolgate.gateway.identity import MIN_KEY_CHARS, Identities
from toolgate.govern.control import Control
from toolgate.model.servers import Transport
from toolgate.model.snapshot import Snapshot
from toolgate.policy.limits import Limits
from toolgate.registry.reload import DirectoryLoader
from toolgate.registry.source import watch_registry
from toolgate.registry.sqlite import open_sqlite_store
from toolgate.registry.store import Store
from toolgate.settings import Settings
from toolgate.surfaces.http.asgi import AsgiDoor
from toolgate.surfaces.http.guard import LOOPBACK_NAMES, Guard
from toolgate.surfaces.http.messages import Door, Request, Responder
from toolgate.surfaces.http.server import BACKLOG, HttpServer
from toolgate.surfaces.mcp.door import McpDoor
from toolgate.surfaces.mcp.session import Sessions
from toolgate.surfaces.mcp.target import is_mcp_path
from toolgate.surfaces.rest.app import rest_app
from toolgate.telemetry import Metrics, setup_logging
from toolgate.upstream.children import Warden
from toolgate.upstream.egress import Egress
from toolgate.upstream.link import Opener
from toolgate.upstream.pool import Pool
from toolgate.upstream.secrets import Secrets
from toolgate.upstream.stdio import StdioOpener
from toolgate.upstream.streamable import StreamableOpener

COMPACT_EVERY_S: Final = 600
SESSION_KEY_BYTES: Final = 32

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class App:
    """A running gateway without its listener."""

    settings: Settings
    gateway: Gateway
    mcp: McpDoor
    loader: DirectoryLoader | None
    front: Door
    """Every route, behind the guard."""


@asynccontextmanager
async def open_app(settings: Settings, environ: Mapping[str, str]) -> AsyncIterator[App]:
    """Build all parts on the data directory, load the registry, and keep everything running."""
    _make_private(settings.data_dir)
    admin_key = _read_admin_key(settings.admin_key_file)
    async with AsyncExitStack() as stack:
        store = await stack.enter_async_context(
            open_sqlite_store(settings.data_dir / "registry.db", _wall_ms)
        )
        await _refuse_open_door(settings, store, admin_key)
        audit = _open_audit(settings.data_dir / "audit.jsonl")
        stack.callback(audit.close)
        sessions = Sessions(
            _session_key(settings.data_dir / "session.key"), clock_s=time.monotonic, wall_s=time.time
        )
        metrics = Metrics()
        gateway = await stack.enter_async_context(_open_gateway(settings, environ, audit, metrics))
        identities = Identities(
            admin_key=admin_key,
            trusts_local=settings.trust_loopback and settings.is_loopback,
            clock_s=time.time,
        )
        loader = await _load_directory(settings, store)
        await stack.enter_async_context(_follow_registry(store, gateway, identities, loader))
        mcp = McpDoor(gateway, identities, sessions=sessions)
        rest = rest_app(
            Control(gateway=gateway, store=store, identities=identities, loader=loader, clock_ms=_wall_ms)
        )
        _describe(metrics, gateway, sessions)
        front = Guard(_Doors(mcp, AsgiDoor(rest)), _own_hosts(settings))
        yield App(settings, gateway, mcp, loader, front)


async def serve(
    settings: Settings,
    environ: Mapping[str, str],
    on_ready: Callable[[App, str], Awaitable[None]] | None = None,
) -> None:
    """Run until SIGINT or SIGTERM. `on_ready` gets the application and its base URL once it listens."""
    stopping = asyncio.Event()
    with _listen(settings) as listener, _handling(_stop_signals(stopping)):
        async with open_app(settings, environ) as app, asyncio.TaskGroup() as tasks:

            async def stopped() -> None:
                await stopping.wait()
                app.mcp.close()

            def reload() -> None:
                tasks.create_task(_reload(app.loader))

            # What starting made stays, and calls leave few cycles: the collector may rest.
            gc.freeze()
            gc.set_threshold(10_000, 10, 10)
            with _handling({signal.SIGHUP: reload}):
                server = HttpServer(app.front)
                serving = tasks.create_task(server.serve(listener, stopped, drain_s=settings.drain_s))
                if on_ready is not None:
                    await on_ready(app, _base_url(listener))
                await serving


def run(
    settings: Settings,
    environ: Mapping[str, str],
    on_ready: Callable[[App, str], Awaitable[None]] | None = None,
) -> None:
    """Serve on a loop of its own; returns when told to stop. Raises StartRefused."""
    setup_logging(settings.log_level)
    # Cancelled means told twice: that one does not want to wait is no failure, and all is closed by now.
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner, suppress(asyncio.CancelledError):
        runner.run(serve(settings, environ, on_ready))


class _Doors:
    """One listener, two doors: the hot one first."""

    def __init__(self, mcp: Door, rest: Door) -> None:
        self._mcp = mcp
        self._rest = rest

    def __call__(self, request: Request, responder: Responder) -> Awaitable[None]:
        return (self._mcp if is_mcp_path(request.path) else self._rest)(request, responder)


def _stop_signals(stopping: asyncio.Event) -> Mapping[signal.Signals, Callable[[], None]]:
    """INT and TERM stop: the first drains, the second does not wait."""
    own = asyncio.current_task()

    def stop() -> None:
        if stopping.is_set() and own is not None:
            own.cancel()
        stopping.set()

    return {signal.SIGINT: stop, signal.SIGTERM: stop}


@contextmanager
def _handling(handlers: Mapping[signal.Signals, Callable[[], None]]) -> Iterator[None]:
    """Have these signals handled on the loop for as long as the block runs."""
    loop = asyncio.get_running_loop()
    for number, handler in handlers.items():
        loop.add_signal_handler(number, handler)
    try:
        yield
    finally:
        for number in handlers:
            loop.remove_signal_handler(number)


async def _reload(loader: DirectoryLoader | None) -> None:
    if loader is None:
        return
    try:
        await loader.reload()
    except ToolgateError as exc:
        _log.error("reload refused, the old records stay: %s", exc)


@asynccontextmanager
async def _open_gateway(
    settings: Settings, environ: Mapping[str, str], audit: AuditLog, metrics: Metrics
) -> AsyncIterator[Gateway]:
    resolved = Secrets(environ, settings.secrets_dir)
    async with AsyncExitStack() as stack:
        warden = Warden(max_children=settings.max_children)
        stack.push_async_callback(warden.aclose)
        await warden.start()
        egress = Egress(allow_private=settings.allow_private_upstreams)
        openers: dict[Transport, Opener] = {
            "stdio": StdioOpener(warden, resolved),
            "streamable_http": StreamableOpener(resolved, egress),
        }

        def changed(server_id: str) -> None:
            gateway.on_tools_changed(server_id)

        pool = Pool(openers, on_change=changed, metrics=metrics)
        gateway = Gateway(
            pool,
            audit,
            metrics=metrics,
            limits=Limits(max_tools=settings.max_tools, max_definition_tokens=settings.max_definition_tokens),
            snapshot=Snapshot(environment=settings.environment),
        )
        await stack.enter_async_context(pool)
        yield gateway


async def _load_directory(settings: Settings, store: Store) -> DirectoryLoader | None:
    if settings.mcp_registry_dir is None:
        return None
    loader = DirectoryLoader(
        store,
        settings.mcp_registry_dir.expanduser(),
        strict=settings.strict,
        recursive=settings.registry_recursive,
    )
    await loader.reload()
    return loader


@asynccontextmanager
async def _follow_registry(
    store: Store, gateway: Gateway, identities: Identities, loader: DirectoryLoader | None
) -> AsyncIterator[None]:
    """The registry is applied once before anything is served, and followed from then on."""
    first = asyncio.Event()

    async def follow() -> None:
        async for state in watch_registry(store):
            identities.apply(state.keys)
            gateway.apply(state)
            first.set()

    async with asyncio.TaskGroup() as tasks:
        running = [tasks.create_task(follow()), tasks.create_task(_compact(store))]
        if loader is not None:
            running.append(tasks.create_task(loader.watch()))
        await first.wait()
        try:
            yield
        finally:
            for task in running:
                task.cancel()


async def _compact(store: Store) -> None:
    while True:
        await asyncio.sleep(COMPACT_EVERY_S)
        await store.compact()


def _describe(metrics: Metrics, gateway: Gateway, sessions: Sessions) -> None:
    """The gauges that are read when somebody looks."""
    load = gateway.pool.load
    metrics.gauge("toolgate_sessions", "Legacy sessions open.", lambda: float(len(sessions)))
    metrics.gauge("toolgate_streams", "Event streams open.", lambda: float(len(gateway.subscriptions)))
    metrics.gauge("toolgate_children", "Child processes.", lambda: float(load().children))
    metrics.gauge("toolgate_calls_in_flight", "Calls at servers.", lambda: float(load().in_flight))
    metrics.gauge("toolgate_calls_queued", "Calls that wait for a slot.", lambda: float(load().queued))
    metrics.gauge("toolgate_registry_revision", "Revision served.", lambda: float(gateway.snapshot.revision))


async def _refuse_open_door(settings: Settings, store: Store, admin_key: str | None) -> None:
    """Off loopback everybody could call: not without keys."""
    if settings.is_loopback or admin_key is not None or (await store.list("key")).records:
        return
    raise StartRefused(
        f"`{settings.listen}` is reachable from other machines and no key is configured",
        hint="listen on 127.0.0.1, or put a key of 32 characters into a file and set `admin_key_file`",
    )


def _read_admin_key(path: Path | None) -> str | None:
    if path is None:
        return None
    try:
        key = path.read_text("utf-8").strip()
    except (OSError, UnicodeDecodeError) as exc:
        raise StartRefused(f"cannot read `admin_key_file` `{path}`: {exc}") from exc
    if len(key) < MIN_KEY_CHARS or len(set(key)) < MIN_KEY_CHARS // 4:
        raise StartRefused(
            f"the key in `{path}` is too short or too simple",
            hint="make one with `python -c 'import secrets; print(secrets.token_urlsafe(32))'`",
        )
    return key


def _session_key(path: Path) -> bytes:
    """The key that signs session ids: made once, kept with the data, readable by its owner only."""
    try:
        key = path.read_bytes() if path.exists() else _make_session_key(path)
    except OSError as exc:
        raise StartRefused(
            f"cannot use `{path}`: {exc.strerror}", hint="make the data directory yours, and writable"
        ) from exc
    if len(key) != SESSION_KEY_BYTES:
        raise StartRefused(f"`{path}` is damaged", hint="remove it: open sessions will have to reconnect")
    return key


def _make_session_key(path: Path) -> bytes:
    key = secrets.token_bytes(SESSION_KEY_BYTES)
    draft = path.with_name(f"{path.name}.new")  # whoever is killed in the middle leaves no half a key
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(key)
    draft.replace(path)
    return key


def _open_audit(path: Path) -> AuditLog:
    try:
        return AuditLog(JsonLinesSink(path), first_sequence=last_sequence(path) + 1)
    except OSError as exc:
        raise StartRefused(
            f"cannot read the audit log `{path}`: {exc.strerror}", hint="mend it, or move it away"
        ) from exc


def _make_private(directory: Path) -> None:
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as exc:
        raise StartRefused(f"cannot make the data directory `{directory}`: {exc}") from exc


def _listen(settings: Settings) -> socket.socket:
    host, port = settings.address
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
        listener.listen(BACKLOG)  # from now on clients queue, so the URL is true before the server runs
    except OSError as exc:
        listener.close()
        raise StartRefused(
            f"cannot listen on `{settings.listen}`: {exc.strerror}",
            hint="choose another address with `--listen HOST:PORT`",
        ) from exc
    return listener


def _base_url(listener: socket.socket) -> str:
    host, port = listener.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def _own_hosts(settings: Settings) -> set[str]:
    if settings.is_everywhere and not settings.allowed_hosts:
        _log.warning(
            "`%s` is every address of this machine, and only calls to loopback are answered: "
            "set `allowed_hosts` to the names and addresses that clients call it by",
            settings.listen,
        )
    return {settings.address[0], *LOOPBACK_NAMES, *settings.allowed_hosts}


def _wall_ms() -> int:
    return int(time.time() * 1000)
