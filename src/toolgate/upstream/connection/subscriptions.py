"""Standing orders: what a server was asked to keep telling over one link, told anew whenever that changes.

A server that refuses tells less; what it lists is read again after a while anyway. Who wants to say that it
has been told can wait until it has.
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from typing import Any, Final, Protocol

import msgspec

from toolgate.errors import ToolgateError
from toolgate.model.protocol import LIST_CHANGED, LOG_LEVELS, UPDATED
from toolgate.upstream.connection.contract import (
    Acknowledgement,
    ConnectionListener,
    Params,
    RpcResponse,
    ServerInfo,
)
from toolgate.upstream.connection.messages import LISTEN
from toolgate.upstream.connection.tasks import BackgroundTasks

RequestSender = Callable[[str, Params, float], Awaitable[RpcResponse]]
"""Sends one request and waits so many seconds; raises ToolgateError."""
OpenSubscription = Callable[[Params, Callable[[], None]], Coroutine[Any, Any, None]]
"""Follows a subscription with these params to its end; calls back whenever it has opened."""

_TIMEOUT_S: Final = 2.0
_LEVEL_WAIT_S: Final = 0.1
"""What a call waits for its server to take a log level. Of a slower one it may miss the first messages."""
_FOR_EVER_S: Final = 10 * 365 * 86_400.0
_RANKS: Final = {level: rank for rank, level in enumerate(LOG_LEVELS)}
_SILENT: Final = len(LOG_LEVELS)


class ServerSubscriptions(Protocol):
    """What both eras can be told."""

    def watch(self, uris: frozenset[str]) -> Acknowledgement:
        """See `Link.watch`."""

    def is_quieter_than(self, level: str) -> bool:
        """Whether the server must be told before it sends log messages from `level` up."""

    async def set_level(self, level: str) -> None:
        """Tell it. Does not raise."""


class StatefulSubscriptions:
    """The resources and the log level of a session. What many share is as verbose as any of them wants."""

    def __init__(self, hello: ServerInfo, ask: RequestSender, background: BackgroundTasks) -> None:
        self._ask = ask
        self._background = background
        self._can_watch = hello.announces("resources", "subscribe")
        self._quietest = _SILENT if "logging" in hello.capabilities else -1
        self._rank = self._quietest
        self._told: set[str] = set()
        self._telling: asyncio.Task[None] | None = None
        self.uris: frozenset[str] = frozenset()

    def watch(self, uris: frozenset[str]) -> Acknowledgement:
        self.uris = uris
        if self._can_watch and (self._telling is None or self._telling.done()):
            self._telling = self._background.start(self._tell())
        return self._telling

    def is_quieter_than(self, level: str) -> bool:
        return _RANKS.get(level, _SILENT) < self._rank

    async def set_level(self, level: str) -> None:
        self._rank = _RANKS[level]
        telling = self._background.start(self._send_level(level))
        if telling is not None:
            await asyncio.wait({telling}, timeout=_LEVEL_WAIT_S)

    async def _send_level(self, level: str) -> None:
        with suppress(ToolgateError):
            await self._ask("logging/setLevel", {"level": _raw(level)}, _TIMEOUT_S)

    def renew(self) -> None:
        """The session is another, which knows of nothing."""
        self._rank = self._quietest
        self._told.clear()
        self.watch(self.uris)

    async def _tell(self) -> None:
        """One at a time, however often they change: a client may watch thousands."""
        while self._told != self.uris:
            for uri in self._told ^ self.uris:
                is_wanted = uri in self.uris
                if is_wanted == (uri in self._told):
                    continue  # changed meanwhile
                self._told ^= {uri}
                verb = "resources/subscribe" if is_wanted else "resources/unsubscribe"
                with suppress(ToolgateError):
                    await self._ask(verb, {"uri": _raw(uri)}, _TIMEOUT_S)


class StatelessSubscriptions:
    """The one subscription of a link. Another is open before the one it replaces is closed."""

    def __init__(self, hello: ServerInfo, listen: OpenSubscription, background: BackgroundTasks) -> None:
        self._hello = hello
        self._listen = listen
        self._background = background
        self._filter: Params = {}
        self._turn = 0
        self._told: Acknowledgement = None
        self._open: asyncio.Task[None] | None = None
        self._opening: asyncio.Task[None] | None = None
        self.uris: frozenset[str] = frozenset()

    def watch(self, uris: frozenset[str]) -> Acknowledgement:
        self.uris = uris
        wanted = _build_filter(self._hello, uris)
        if wanted == self._filter:
            return self._told
        self._filter = wanted
        self._turn = turn = self._turn + 1
        _cancel(self._opening)
        self._opening = None
        if wanted:
            self._told = self._told or asyncio.get_running_loop().create_future()
            params = {"notifications": _raw(wanted)}
            self._opening = self._background.start(self._listen(params, lambda: self._opened(turn)))
        else:
            _cancel(self._open)
            self._open = None
            self._end_telling()
        return self._told

    def is_quieter_than(self, level: str) -> bool:
        """Never: each request says itself what it wants to hear."""
        del level
        return False

    async def set_level(self, level: str) -> None:
        """Nothing to tell."""

    def _opened(self, turn: int) -> None:
        if turn == self._turn and self._opening is not None:
            _cancel(self._open)
            self._open, self._opening = self._opening, None
            self._end_telling()

    def _end_telling(self) -> None:
        if self._told is not None and not self._told.done():
            self._told.set_result(None)
        self._told = None


def subscribe_on_one_stream(
    hello: ServerInfo, ask: RequestSender, background: BackgroundTasks
) -> StatefulSubscriptions | StatelessSubscriptions:
    """For a link on which everything the server says comes on one stream."""

    async def listen(params: Params, on_open: Callable[[], None]) -> None:
        on_open()  # what is written first is read first
        with suppress(ToolgateError):
            await ask(LISTEN, params, _FOR_EVER_S)

    if hello.era == "legacy":
        return StatefulSubscriptions(hello, ask, background)
    return StatelessSubscriptions(hello, listen, background)


def sends_notifications(hello: ServerInfo) -> bool:
    """Whether the server says that it will tell anything unasked."""
    has_lists = any(hello.announces(capability, "listChanged") for capability in LIST_CHANGED)
    return has_lists or hello.announces("resources", "subscribe")


def notify_missed(hello: ServerInfo, uris: frozenset[str], listener: ConnectionListener) -> None:
    """The server could not be heard for a while: anything may have changed."""
    for capability, method in LIST_CHANGED.items():
        if capability in hello.capabilities:
            listener.on_notification(method, b"{}")
    for uri in uris:
        listener.on_notification(UPDATED, msgspec.json.encode({"uri": uri}))


def _build_filter(hello: ServerInfo, uris: frozenset[str]) -> Params:
    """What a modern server is asked to tell: of what it announces, all."""
    wanted = {
        f"{capability}ListChanged": msgspec.Raw(b"true")
        for capability in LIST_CHANGED
        if hello.announces(capability, "listChanged")
    }
    if uris and hello.announces("resources", "subscribe"):
        wanted["resourceSubscriptions"] = _raw(sorted(uris))
    return wanted


def _cancel(task: asyncio.Task[None] | None) -> None:
    if task is not None:
        task.cancel()


def _raw(value: object) -> msgspec.Raw:
    return msgspec.Raw(msgspec.json.encode(value))
