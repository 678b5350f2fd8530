"""What an OpenID Connect issuer says of itself (OIDC Discovery). It speaks for itself alone."""

import asyncio
import logging
from collections.abc import Callable, Mapping
from typing import Any, Final

from toolgate.errors import IssuerUnavailable
from toolgate.upstream.http.fetch import Fetcher, FetchFailed

FRESH_S: Final = 300.0
"""How long it is remembered."""
RETRY_S: Final = 10.0
"""However many want to know, an issuer that did not answer is asked once in this time."""

_log = logging.getLogger(__name__)


async def read_metadata(issuer: str, fetcher: Fetcher) -> Mapping[str, Any]:
    """Its metadata, as it is now. Raises FetchFailed."""
    document = await fetcher.get_json(f"{issuer.rstrip('/')}/.well-known/openid-configuration")
    found = document if isinstance(document, dict) else {}
    # Else anybody who can answer for the address could speak for another issuer (OIDC Discovery 4.3).
    if found.get("issuer") != issuer:
        raise FetchFailed("the issuer calls itself by another name than the configuration does")
    return found


class IssuerMetadata:
    """The same, remembered: anybody may have us ask. `clock_s` is monotonic."""

    def __init__(self, issuer: str, fetcher: Fetcher, *, clock_s: Callable[[], float]) -> None:
        self._issuer = issuer
        self._fetcher = fetcher
        self._clock_s = clock_s
        self._turn = asyncio.Lock()
        self._known: Mapping[str, Any] | None = None
        self._ask_at_s: float | None = None

    async def read(self) -> Mapping[str, Any]:
        """What was last heard. Raises IssuerUnavailable where that is nothing."""
        async with self._turn:
            if self._ask_at_s is None or self._clock_s() >= self._ask_at_s:
                is_heard = await self._ask()
                self._ask_at_s = self._clock_s() + (FRESH_S if is_heard else RETRY_S)
        if self._known is None:
            raise IssuerUnavailable("the issuer cannot be asked where to log in")
        return self._known

    async def _ask(self) -> bool:
        try:
            self._known = await read_metadata(self._issuer, self._fetcher)
        except FetchFailed as exc:
            _log.warning("the issuer does not say where to log in: %s", exc)
            return False
        return True
