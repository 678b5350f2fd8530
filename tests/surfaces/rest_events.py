"""A reader of event streams over the bare application: events come one by one, as slowly as it likes."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any, NamedTuple

from tests.surfaces.memory_http import make_request
from toolgate.model.revisions import ChangeBatch, Kind, RecordChange
from toolgate.surfaces.http.messages import Headers, HttpHandler


class Event(NamedTuple):
    """One event as it was read."""

    name: str
    data: Any
    id: int | None = None


class EventStream:
    """A response under way, and its responder. It takes nothing from the handler before it is read."""

    task: "asyncio.Task[None]"

    def __init__(self) -> None:
        self.status = 0
        self.headers: dict[str, str] = {}
        self.text = ""
        """What was read, and is no whole event yet; of a response that is no stream, all of it."""
        self._added: list[tuple[bytes, bytes]] = []
        self._started = asyncio.Event()
        self._chunks: asyncio.Queue[bytes | None] = asyncio.Queue()
        self._room = asyncio.Semaphore(1)

    # The responder's side

    def add_headers(self, headers: Headers) -> None:
        self._added += headers

    def start(self, status: int, headers: Headers) -> None:
        self.status = status
        self.headers = {name.decode(): value.decode() for name, value in (*headers, *self._added)}
        self._started.set()

    def send(self, status: int, body: bytes, headers: Headers = ()) -> None:
        # JSON unless `headers` say otherwise, as the listener sends it.
        self.start(status, [(b"content-type", b"application/json"), *headers])
        self._chunks.put_nowait(body)
        self.end()

    def send_message(self, message: bytes) -> bool:
        raise AssertionError("REST sends no messages ahead of its response")

    async def write(self, chunk: bytes) -> None:
        await self._room.acquire()
        self._chunks.put_nowait(chunk)

    def end(self) -> None:
        self._chunks.put_nowait(None)

    # The client's side

    async def begin(self) -> None:
        await self._started.wait()

    async def read_chunk(self) -> bool:
        """Whether there is more."""
        chunk = await self._chunks.get()
        if chunk is None:
            return False
        self._room.release()
        self.text += chunk.decode()
        return True

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
    handler: HttpHandler, url: str, *, key: str | None = None, last_id: int | None = None
) -> AsyncIterator[EventStream]:
    """A GET of `url`. Leaving the block disconnects: the listener cancels the request's task."""
    path, _, query = url.partition("?")
    headers = {b"host": b"127.0.0.1:8080"}
    if key is not None:
        headers[b"authorization"] = f"Bearer {key}".encode()
    if last_id is not None:
        headers[b"last-event-id"] = str(last_id).encode()
    stream = EventStream()
    async with asyncio.timeout(60):
        request = make_request("GET", path, query.encode(), headers)
        stream.task = asyncio.ensure_future(handler(request, stream))
        await stream.begin()
        try:
            yield stream
        finally:
            stream.task.cancel()
            with suppress(asyncio.CancelledError):
                await stream.task


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
