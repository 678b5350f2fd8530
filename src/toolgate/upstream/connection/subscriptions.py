"""The subscriptions of a connection: the notifications that it requests from its server, renewed on changes.

If a server rejects a subscription, the gateway still reads the server's lists again after a while.
"""

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec

from toolgate.errors import ToolgateError
from toolgate.model.json_text import encode_raw
from toolgate.model.protocol import LIST_CHANGED, LOG_LEVELS, UPDATED
from toolgate.upstream.connection.contract import (
    Acknowledgement,
    BackgroundTasks,
    ConnectionListener,
    Params,
    ServerInfo,
)
from toolgate.upstream.connection.negotiation import RequestSender

OpenSubscription = Callable[[Params, Callable[[], None]], Coroutine[Any, Any, None]]
"""Follows a subscription with these params to its end; calls back whenever it has opened."""

_TIMEOUT_S: Final = 2.0  # a choice, as PROBE_TIMEOUT_S: the next request waits for it
_LEVEL_WAIT_S: Final = 0.1
"""How long a call waits until its server has set the log level. A slower one may skip the first messages."""
_RANKS: Final = {level: rank for rank, level in enumerate(LOG_LEVELS)}
_SILENT: Final = len(LOG_LEVELS)


class StatefulSubscriptions:
    """The resources and the log level of a session, which is as verbose as its most verbose client."""

    def __init__(self, info: ServerInfo, send: RequestSender, background: BackgroundTasks) -> None:
        self._send = send
        self._background = background
        self._can_watch = info.announces("resources", "subscribe")
        self._quietest = _SILENT if "logging" in info.capabilities else -1
        self._rank = self._quietest
        self._subscribed: set[str] = set()
        self._updating: asyncio.Task[None] | None = None
        self.uris: frozenset[str] = frozenset()

    def watch(self, uris: frozenset[str]) -> Acknowledgement:
        self.uris = uris
        if self._can_watch and (self._updating is None or self._updating.done()):
            self._updating = self._background.start(self._update())
        return self._updating

    def is_quieter_than(self, level: str) -> bool:
        """Whether the server needs a `set_level` before it sends log messages from `level` up."""
        return _RANKS.get(level, _SILENT) < self._rank

    async def set_level(self, level: str) -> None:
        """Set the server's log level. Does not raise."""
        self._rank = _RANKS[level]
        sending = self._background.start(self._send_quietly("logging/setLevel", {"level": encode_raw(level)}))
        if sending is not None:
            await asyncio.wait({sending}, timeout=_LEVEL_WAIT_S)

    def renew(self) -> None:
        self._rank = self._quietest
        self._subscribed.clear()
        self.watch(self.uris)

    async def _update(self) -> None:
        """One request at a time, however often the URIs change: a client may watch thousands."""
        while self._subscribed != self.uris:
            for uri in self._subscribed ^ self.uris:
                is_watched = uri in self.uris
                if is_watched == (uri in self._subscribed):
                    continue  # changed meanwhile
                self._subscribed ^= {uri}
                method = "resources/subscribe" if is_watched else "resources/unsubscribe"
                await self._send_quietly(method, {"uri": encode_raw(uri)})

    async def _send_quietly(self, method: str, params: Params) -> None:
        with suppress(ToolgateError):
            await self._send(method, params, _TIMEOUT_S)


@dataclass(slots=True)
class StatelessSubscriptions:
    """The one `subscriptions/listen` of a connection. A new one opens before the one it replaces is closed.

    Each request carries its own log level.
    """

    _info: ServerInfo
    _open_subscription: OpenSubscription
    _background: BackgroundTasks
    _filter: Params = field(default_factory=dict)
    _generation: int = 0
    _acknowledged: Acknowledgement = None
    _open: asyncio.Task[None] | None = None
    _opening: asyncio.Task[None] | None = None
    uris: frozenset[str] = frozenset()

    def watch(self, uris: frozenset[str]) -> Acknowledgement:
        self.uris = uris
        new_filter = _build_filter(self._info, uris)
        if new_filter == self._filter:
            return self._acknowledged
        self._filter = new_filter
        self._generation = generation = self._generation + 1
        _cancel(self._opening)
        self._opening = None
        if new_filter:
            self._acknowledged = self._acknowledged or asyncio.get_running_loop().create_future()
            params = {"notifications": encode_raw(new_filter)}
            following = self._open_subscription(params, lambda: self._on_open(generation))
            self._opening = self._background.start(following)
        else:
            _cancel(self._open)
            self._open = None
            self._acknowledge()
        return self._acknowledged

    def _on_open(self, generation: int) -> None:
        if generation == self._generation and self._opening is not None:
            _cancel(self._open)
            self._open, self._opening = self._opening, None
            self._acknowledge()

    def _acknowledge(self) -> None:
        if self._acknowledged is not None and not self._acknowledged.done():
            self._acknowledged.set_result(None)
        self._acknowledged = None


def sends_notifications(info: ServerInfo) -> bool:
    """Whether the server announces any notifications outside of requests."""
    has_lists = any(info.announces(capability, "listChanged") for capability in LIST_CHANGED)
    return has_lists or info.announces("resources", "subscribe")


def notify_missed(info: ServerInfo, uris: frozenset[str], listener: ConnectionListener) -> None:
    """Notify the listener of everything that may have changed while the stream was interrupted."""
    for capability, method in LIST_CHANGED.items():
        if capability in info.capabilities:
            listener.on_notification(method, b"{}")
    for uri in uris:
        listener.on_notification(UPDATED, msgspec.json.encode({"uri": uri}))


def _build_filter(info: ServerInfo, uris: frozenset[str]) -> Params:
    wanted = {
        f"{capability}ListChanged": encode_raw(value=True)
        for capability in LIST_CHANGED
        if info.announces(capability, "listChanged")
    }
    if uris and info.announces("resources", "subscribe"):
        wanted["resourceSubscriptions"] = encode_raw(sorted(uris))
    return wanted


def _cancel(task: asyncio.Task[None] | None) -> None:
    if task is not None:
        task.cancel()
