"""Opening a link: the right opener, under a deadline, and only so many at once."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Final

from toolgate.model.runners import start_timeout_of
from toolgate.model.servers import ServerRecord, Transport
from toolgate.model.tools import Era
from toolgate.upstream.connection.contract import SHARED_CAPABILITIES, Link, LinkListener, Opener, StartFailed
from toolgate.upstream.limits import GRACE_S, PoolLimits

ALL_CAPABILITIES: Final = b'{"elicitation":{"form":{},"url":{}},"sampling":{},"roots":{}}'
"""What a link claims that only lists a server, so that it lists all that any session could be offered."""

_REQUIRED: Final[Mapping[str, Era]] = {"session": "legacy", "stateless": "modern"}
"""What `protocol` in a record requires; `auto` requires nothing."""


class Openers:
    """The transports of a node, behind one call."""

    def __init__(self, openers: Mapping[Transport, Opener], limits: PoolLimits) -> None:
        self._openers = openers
        self._limits = limits
        self._starting = asyncio.Semaphore(limits.max_starting)
        self._connecting = asyncio.Semaphore(limits.max_connecting)

    async def open(
        self,
        record: ServerRecord,
        listener: LinkListener,
        *,
        known_era: Era | None,
        capabilities: bytes | None = None,
    ) -> Link:
        """A negotiated link to the server of `record`. Raises StartFailed.

        `capabilities` are those of the one client behind the link; None: it is no single client's.
        """
        opener = self._openers.get(record.transport)
        if opener is None:
            raise StartFailed(f"this node has no transport `{record.transport}`", fatal=True)
        if capabilities is None:
            capabilities = SHARED_CAPABILITIES if record.sharing == "shared" else ALL_CAPABILITIES
        timeout_s = max(self._limits.start_timeout_s, start_timeout_of(record, 0.0) + GRACE_S)
        era = _REQUIRED.get(record.protocol)
        try:
            async with asyncio.timeout(timeout_s):
                link = await opener(record, listener, known_era=era or known_era, capabilities=capabilities)
        except TimeoutError as exc:
            raise StartFailed(f"no connection within {timeout_s:g} s", state="list_timeout") from exc
        if era is not None and link.hello.era != era:
            await link.aclose()
            raise StartFailed(
                f'it speaks `{link.hello.version}`, and its record says `protocol = "{record.protocol}"`',
                fatal=True,
            )
        return link

    @asynccontextmanager
    async def slot(self, transport: Transport) -> AsyncIterator[None]:
        """One of the places for links being opened; given back at the end, or by a start that hangs."""
        slots = self._starting if transport == "stdio" else self._connecting
        await slots.acquire()
        is_held = True

        def give_back() -> None:
            nonlocal is_held
            if is_held:
                is_held = False
                slots.release()

        timer = asyncio.get_running_loop().call_later(self._limits.start_slot_s, give_back)
        try:
            yield
        finally:
            timer.cancel()
            give_back()
