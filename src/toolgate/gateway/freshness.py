"""How long a node may serve without word from control. Past it, it refuses; with the next word, it serves."""

import asyncio
from functools import partial

from toolgate.errors import NotReady, PolicyStale
from toolgate.gateway.gateway import Gateway


class Freshness:
    """Suspends a gateway that may have fallen behind. Close it when done."""

    def __init__(self, gateway: Gateway, *, max_staleness_s: float | None) -> None:
        """Nothing is served before the first word; and for ever after it where no limit is set."""
        self._gateway = gateway
        self._max_staleness_s = max_staleness_s
        self._timer: asyncio.TimerHandle | None = None
        gateway.suspend(partial(NotReady, "this node has not heard from control yet"))

    def on_contact(self) -> None:
        """Control has just proved that what is served is current."""
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
        message = f"this node has not heard from control for more than {after_s:g} s"
        self._gateway.suspend(partial(PolicyStale, message))
