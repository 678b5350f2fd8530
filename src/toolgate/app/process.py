"""A serving process: its listener, its signals, its shutdown. The caller passes in the application."""

import asyncio
import ctypes
import gc
import logging
import resource
import signal
import socket
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import AbstractAsyncContextManager, contextmanager, suppress
from dataclasses import dataclass, field
from typing import Final

import uvloop

from toolgate.errors import StartRefused, ToolgateError
from toolgate.gateway.gateway import Gateway
from toolgate.settings import Settings
from toolgate.surfaces.http.connection import BACKLOG, HttpServer
from toolgate.surfaces.http.messages import HttpHandler
from toolgate.telemetry import setup_logging

MIN_OPEN_FILES: Final = 256
"""Enough for 40 servers: a child takes four, each caller and connection one, and 96 are in reserve."""
_LARGER_THAN_MOST: Final = 2 * 1024 * 1024
"""Bytes: larger than most messages."""
# From glibc's `malloc.h`; see mallopt(3).
_M_TRIM_THRESHOLD: Final = -1
_M_MMAP_THRESHOLD: Final = -3
_log = logging.getLogger(__name__)


async def reload_nothing() -> None:
    """Do nothing, in a process without a directory of server files."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServingApp:
    """A running process without its HTTP listener."""

    settings: Settings
    gateway: Gateway
    front: HttpHandler
    """All routes, behind the guard."""
    close_streams: Callable[[], None]
    """Ends each open stream as its protocol requires."""
    console: str | None = None
    """The path of the console, if this process has one."""
    reload: Callable[[], Awaitable[object]] = reload_nothing
    """Called on SIGHUP."""
    details: Mapping[str, str] = field(default_factory=dict)
    """Further addresses it listens on, for the start-up message."""

    def console_url(self, url: str) -> str | None:
        return None if self.console is None else url + self.console


OpenApp = Callable[[Settings, Mapping[str, str], str], AbstractAsyncContextManager[ServingApp]]
"""Opens an application. Gets the settings, the environment and the process's base URL."""
OnReady = Callable[[ServingApp, str], Awaitable[None]]
"""Called with the application and its base URL once the process listens."""


def run(
    open_app: OpenApp, settings: Settings, environ: Mapping[str, str], on_ready: OnReady | None = None
) -> None:
    """Serve on a new event loop until a signal stops it. Raises StartRefused."""
    setup_logging(settings.log_level)
    _check_open_files()
    # A second signal cancels: that is no failure, and everything is closed.
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner, suppress(asyncio.CancelledError):
        try:
            runner.run(serve(open_app, settings, environ, on_ready))
        except BaseExceptionGroup as group:
            raise _find_refusal(group) from None


def _check_open_files() -> None:
    """Check the limit of open files at the start, before a call fails by it. Raises StartRefused."""
    allowed, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if allowed != resource.RLIM_INFINITY and allowed < MIN_OPEN_FILES:
        raise StartRefused(
            f"the limit of open files is {allowed}, and this process needs at least {MIN_OPEN_FILES}",
            hint="raise the limit and start again: `ulimit -n 4096`, or `LimitNOFILE=4096` of systemd",
        )


def _find_refusal(group: BaseExceptionGroup[BaseException]) -> BaseException:
    """The StartRefused in a group, which task groups make of their block's error."""
    refused: BaseException | None = group.subgroup(StartRefused)
    while isinstance(refused, BaseExceptionGroup):
        refused = refused.exceptions[0]
    return refused or group


async def serve(
    open_app: OpenApp, settings: Settings, environ: Mapping[str, str], on_ready: OnReady | None = None
) -> None:
    """Run until SIGINT or SIGTERM."""
    stopping, started = asyncio.Event(), asyncio.Event()
    with _listen(settings) as listener, _handle_signals(_stop_signals(stopping, started)):
        base_url = _base_url(listener)
        async with open_app(settings, environ, base_url) as app, asyncio.TaskGroup() as tasks:
            started.set()

            async def stopped() -> None:
                await stopping.wait()
                app.close_streams()

            async def reload() -> None:
                try:
                    await app.reload()
                except ToolgateError as exc:
                    _log.error("cannot reload the server files; the old records stay: %s", exc)

            _tune_memory()
            with _handle_signals({signal.SIGHUP: lambda: tasks.create_task(reload())}):
                server = HttpServer(app.front)
                serving = tasks.create_task(server.serve(listener, stopped, drain_s=settings.drain_s))
                if on_ready is not None:
                    await on_ready(app, base_url)
                await serving


def _tune_memory() -> None:
    # The objects of the start stay, and calls leave few cycles: collect garbage seldom.
    gc.freeze()
    gc.set_threshold(10_000, 10, 10)
    # glibc maps each block of 128 KiB or more, so every message of that size would cause page faults. By
    # default it raises that threshold to the largest freed block, and after a result of 8 MiB keeps and
    # fragments as much. So the thresholds are set once (mallopt(3)). Other C libraries have no such call.
    with suppress(AttributeError):
        mallopt = ctypes.CDLL(None).mallopt
        mallopt(_M_MMAP_THRESHOLD, _LARGER_THAN_MOST)
        mallopt(_M_TRIM_THRESHOLD, 2 * _LARGER_THAN_MOST)


def _stop_signals(
    stopping: asyncio.Event, started: asyncio.Event
) -> Mapping[signal.Signals, Callable[[], None]]:
    """Stop on SIGINT and SIGTERM: the first signal drains, the second does not wait. During a start, exit."""
    own = asyncio.current_task()

    def stop() -> None:
        if own is not None and (stopping.is_set() or not started.is_set()):
            own.cancel()
        stopping.set()

    return {signal.SIGINT: stop, signal.SIGTERM: stop}


@contextmanager
def _handle_signals(handlers: Mapping[signal.Signals, Callable[[], object]]) -> Iterator[None]:
    loop = asyncio.get_running_loop()
    for number, handler in handlers.items():
        loop.add_signal_handler(number, handler)
    try:
        yield
    finally:
        for number in handlers:
            loop.remove_signal_handler(number)


def _listen(settings: Settings) -> socket.socket:
    host, port = settings.address
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
        listener.listen(BACKLOG)  # clients queue from now on, so the URL works before the server runs
    except OSError as exc:
        listener.close()
        hint = "stop the other program, or choose another address with `--listen HOST:PORT`"
        raise StartRefused(f"cannot listen on `{settings.listen}`: {exc.strerror}", hint=hint) from exc
    return listener


def _base_url(listener: socket.socket) -> str:
    host, port = listener.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
