"""Clients that call all the time, each call with a text of its own, and keep account of what came of it.

They repeat a call only where it was not sent: when there was no connection to send it on.
"""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from itertools import count

from tests.scenarios.lines import Answer, Caller, NotSent, Unanswered

RETRY_S = 0.02


@dataclass
class BusyClient:
    """One of them. It calls the tools in turn."""

    name: str
    caller: Caller
    tools: Sequence[str]
    acknowledged: list[str] = field(default_factory=list)
    """Texts that came back."""
    unanswered: list[str] = field(default_factory=list)
    """Those whose connection ended first."""
    failed: list[str | None] = field(default_factory=list)
    """The codes of the other calls."""

    async def work(self, is_over: asyncio.Event) -> None:
        for number in count():
            if is_over.is_set():
                return
            await self._call(self.tools[number % len(self.tools)], f"{self.name}.{number}")

    async def _call(self, tool: str, text: str) -> None:
        try:
            response = await self._sent(tool, text)
        except Unanswered:
            self.unanswered.append(text)
            return
        if response.text is None:
            self.failed.append(response.code)
            await asyncio.sleep(RETRY_S)
        else:
            assert response.text == text
            self.acknowledged.append(text)

    async def _sent(self, tool: str, text: str) -> Answer:
        while True:
            try:
                return await self.caller.call(tool, text)
            except NotSent:
                await asyncio.sleep(RETRY_S)


@dataclass
class Crowd:
    """All of them."""

    clients: Sequence[BusyClient]

    async def all_get(self, more: int) -> None:
        """Returns once every client has had so many further answers."""
        wanted = [len(client.acknowledged) + more for client in self.clients]
        while any(len(one.acknowledged) < least for one, least in zip(self.clients, wanted, strict=True)):
            await asyncio.sleep(RETRY_S)

    @property
    def acknowledged(self) -> set[str]:
        return {text for client in self.clients for text in client.acknowledged}

    @property
    def failures(self) -> Counter[str | None]:
        return Counter(code for client in self.clients for code in client.failed)


@asynccontextmanager
async def open_crowd(clients: Sequence[BusyClient]) -> AsyncIterator[Crowd]:
    """The clients at work. Their sessions are opened first, and never again."""
    is_over = asyncio.Event()
    try:
        for client in clients:
            await client.caller.open()
        async with asyncio.TaskGroup() as tasks:
            for client in clients:
                tasks.create_task(client.work(is_over))
            yield Crowd(clients)
            is_over.set()
    finally:
        for client in clients:
            client.caller.close()
        await asyncio.sleep(0)


def crowd_of(address: str, tools: Sequence[str], *, size: int = 64) -> list[BusyClient]:
    """Half of each era."""
    return [
        BusyClient(f"{era}-{number}", Caller(address, era), tools)
        for number in range(size // 2)
        for era in ("legacy", "modern")
    ]
