"""Keeps the token of one link fresh, beside its calls. It must never make a call wait."""

import asyncio
from collections.abc import Callable
from typing import Final, Protocol

from toolgate.upstream.connection.contract import StartFailed
from toolgate.upstream.oauth.tokens import Token

MIN_GAP_S: Final = 5.0
"""Between two requests for a token, whatever a server says to the one it is shown."""


class Bearer(Protocol):
    """Who shows the token to the server."""

    def take(self, token: Token) -> None:
        """Show this one from now on."""

    def fail(self, reason: str) -> None:
        """There is none any more."""


class Obtain(Protocol):
    """Gets another token."""

    async def __call__(self, *, refused: str | None) -> Token:
        """`refused` is the one that the server takes no more. Raises StartFailed."""


class Renewal:
    """Gets another token before one expires, and when the server refuses it."""

    def __init__(self, token: Token, *, obtain: Obtain, clock_s: Callable[[], float]) -> None:
        self._token = token
        self._obtain = obtain
        self._clock_s = clock_s
        self._refused = asyncio.Event()

    def on_refused(self) -> None:
        """The server answered with 401."""
        self._refused.set()

    async def run(self, bearer: Bearer) -> None:
        """Until the link ends, or there is no token to be had."""
        while True:
            await self._until_due()
            try:
                refused = self._token.access if self._refused.is_set() else None
                self._token = await self._obtain(refused=refused)
            except StartFailed as exc:
                if exc.fatal or self._has_expired:
                    bearer.fail(str(exc))
                    return
            else:
                self._refused.clear()
                bearer.take(self._token)

    @property
    def _has_expired(self) -> bool:
        expires_at_s = self._token.expires_at_s
        return expires_at_s is not None and expires_at_s <= self._clock_s()

    async def _until_due(self) -> None:
        await asyncio.sleep(MIN_GAP_S)
        due_s = self._token.renew_at_s
        left_s = None if due_s is None else max(0.0, due_s - self._clock_s())
        try:
            async with asyncio.timeout(left_s):
                await self._refused.wait()
        except TimeoutError:
            return
