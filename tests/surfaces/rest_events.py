"""A reader of event streams over the bare application: events come one by one, as slowly as it likes."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from starlette.types import ASGIApp, Message

from toolgate.model.revisions import ChangeBatch, Kind, RecordChange


class Event(NamedTuple):
    """One event as it was read."""

    name: str
    data: Any
    id: int | None = None


@dataclass
class EventStream:
    """An answer under way. Nothing is taken from the application before it is asked for."""

    status: int = 0
    headers: dict[str, str] = field(default_factory=dict)
    text: str = ""
    """What was read, and is no whole event yet; of an answer that is no stream, all of it."""
    _messages: asyncio.Queue[Message] = field(default_factory=lambda: asyncio.Queue(1))

    async def put(self, message: Message) -> None:
        await self._messages.put(message)

    async def begin(self) -> None:
        start = await self._messages.get()
        self.status = start["status"]
        self.headers = {name.decode(): value.decode() for name, value in start["headers"]}

    async def read_chunk(self) -> bool:
        """Whether there is more."""
        message = await self._messages.get()
        self.text += message["body"].decode()
        return bool(message.get("more_body"))

    async def __aiter__(self) -> AsyncIterator[Event]:
        more = True
        while more:
            more = await self.read_chunk()
            while "\n\n" in self.text:
                block, _, self.text = self.text.partition("\n\n")
                if not block.startswith(":"):
                    yield _parse(block)

    async def read(self, count: int) -> list[Event]:
        """The next events; fewer only where the stream ends."""
        found = []
        async for event in self:
            found.append(event)
            if len(found) == count:
                break
        return found


def _parse(block: str) -> Event:
    lines = dict(line.split(": ", 1) for line in block.split("\n"))
    return Event(lines["event"], json.loads(lines["data"]), int(lines["id"]) if "id" in lines else None)


@asynccontextmanager
async def open_events(
    app: ASGIApp, url: str, *, key: str | None = None, last_id: int | None = None
) -> AsyncIterator[EventStream]:
    """A GET of `url`; leaving the block is going away, which our listener makes a cancellation."""
    path, _, query = url.partition("?")
    sent = {"host": "127.0.0.1:8080"}
    if key is not None:
        sent["authorization"] = f"Bearer {key}"
    if last_id is not None:
        sent["last-event-id"] = str(last_id)
    scope = {
        "type": "http",
        "method": "GET",
        "path": path,
        "raw_path": path.encode(),
        "query_string": query.encode(),
        "root_path": "",
        "client": ("127.0.0.1", 0),
        "headers": [(name.encode(), value.encode()) for name, value in sent.items()],
    }
    stream = EventStream()

    async def receive() -> Message:
        return {"type": "http.request", "body": b"", "more_body": False}

    async with asyncio.timeout(60):
        task = asyncio.ensure_future(app(scope, receive, stream.put))
        await stream.begin()
        try:
            yield stream
        finally:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task


def batch_of(event: Event) -> ChangeBatch:
    """What an event tells, as a batch: a record that was written has an empty body, one that is gone none."""
    changes = [
        *(_change(event, one, {}) for one in event.data.get("upserts", ())),
        *(_change(event, one, None) for one in event.data.get("deletes", ())),
    ]
    return ChangeBatch(
        revision=event.data["revision"], changes=tuple(sorted(changes, key=lambda one: one.id))
    )


def _change(event: Event, named: dict[str, Any], after: dict[str, Any] | None) -> RecordChange:
    kind: Kind = named["kind"]
    return RecordChange(
        revision=event.data["revision"],
        kind=kind,
        id=named["id"],
        operation="delete" if after is None else "put",
        actor="",
        at_ms=0,
        before=None,
        after=after,
    )
