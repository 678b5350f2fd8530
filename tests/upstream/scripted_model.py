"""A model's server that says what a script says: a real HTTP server on loopback, in the test's own loop.

    async with scripted_model(calls(("fs__read", '{"path": "a"}')), text("it says hello")) as model:
        ...  # ask at `model.url`, which ends in /v1
        assert model.requests[1].messages[-1]["role"] == "tool"

It speaks `/v1/chat/completions`, `/v1/responses` and `/v1/models`. The script is one reply a request,
in order (none left: a 500 that says so), or one function of the Ask that gives a reply:

    scripted_model(lambda ask: text("done") if ask.messages[-1]["role"] == "tool" else calls(("a", "{}")))

Every POST is kept in `model.requests`: `.headers .raw .body .messages .tool_names .is_stream`; `.hung_up` is
an event, set when the client went before the reply was complete. `model.lists` are those for models.
`await model.asked(n)` waits until so many requests have come. `model.connections` were opened in all;
`await model.idle()` waits until the clients have closed them.

Replies (all in `tests.upstream.model_replies`, and importable from here) follow `stream` in the request:

    text("words", step=1)               step: characters in a delta
    calls(("name", "args"), ("name", "args", "id"), call("name", {"a": 1}, id=None, extra_content={...}))
        content="…" next to them · finish_reason="stop" · at_index_zero=True · repeats_ids=True
        call(id=None): has no id · extra={"reasoning_content": "…"}: of the message · usage={...} or None
    whole({...})                        this JSON (or bytes), whatever was asked for
    status(429, headers={"Retry-After": "1"}, body={...})
    stream(b"data: …", …)               exactly these bytes, as an event stream
    events({"type": "response.created", "response": {...}}, …)      the Responses API, stream or whole

and what can be done to any of them:

    cut(reply, n) · hang() · hang(reply, after=n) · hold(reply, gate, after=n) · in_bytes(reply, size=1)
    without_done(reply) · fail_after(reply, n_events, error)

`strict=True`: it refuses with 400, as OpenAI does, what `strict_history.fault_of` finds.
`models=[...]`: ids or whole objects for `/v1/models`, or a reply.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from itertools import pairwise
from typing import Any

from tests.upstream.faulty_http import encode_chunk
from tests.upstream.model_replies import (
    CREATED,
    Ask,
    Reply,
    Turn,
    Wire,
    call,
    calls,
    cut,
    events,
    fail_after,
    hang,
    hold,
    in_bytes,
    status,
    stream,
    text,
    whole,
    without_done,
)
from tests.upstream.strict_history import fault_of, refusal

__all__ = [
    "Ask",
    "Reply",
    "ScriptedModel",
    "Turn",
    "call",
    "calls",
    "cut",
    "events",
    "fail_after",
    "hang",
    "hold",
    "in_bytes",
    "scripted_model",
    "status",
    "stream",
    "text",
    "whole",
    "without_done",
]

Script = Callable[[Ask], Reply]
Models = Sequence[str | dict[str, Any]] | Reply


class _Reader(asyncio.StreamReader):
    """Tells at once when the client is gone, without reading ahead."""

    def __init__(self) -> None:
        super().__init__()
        self.is_gone = asyncio.Event()

    def feed_eof(self) -> None:
        super().feed_eof()
        self.is_gone.set()

    def set_exception(self, exc: Exception) -> None:
        super().set_exception(exc)
        self.is_gone.set()


class ScriptedModel:
    """What a test sees of the server."""

    def __init__(self, script: Script, models: Models, *, strict: bool) -> None:
        self._script = script
        self._models = models
        self._strict = strict
        self._has_come = asyncio.Condition()
        self._tasks: set[asyncio.Task[None]] = set()
        self.requests: list[Ask] = []
        self.lists: list[Ask] = []
        self.connections = 0
        self.port = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/v1"

    @property
    def open_connections(self) -> int:
        return len(self._tasks)

    async def asked(self, count: int) -> Ask:
        """The request that made it so many."""
        async with self._has_come:
            await self._has_come.wait_for(lambda: len(self.requests) >= count)
        return self.requests[count - 1]

    async def idle(self) -> None:
        """Wait until the clients have closed every connection."""
        await asyncio.gather(*self._tasks)

    @asynccontextmanager
    async def serving(self) -> AsyncIterator["ScriptedModel"]:
        loop = asyncio.get_running_loop()
        server = await loop.create_server(
            lambda: asyncio.StreamReaderProtocol(_Reader(), self._accept), "127.0.0.1", self.port
        )
        self.port = server.sockets[0].getsockname()[1]
        try:
            yield self
        finally:
            server.close()
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        assert isinstance(reader, _Reader)
        self.connections += 1
        task = asyncio.get_running_loop().create_task(self._serve(reader, writer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _serve(self, reader: _Reader, writer: asyncio.StreamWriter) -> None:
        try:
            while not writer.is_closing():
                request = await self._read(reader)
                await self._answer(request, reader, writer)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    async def _read(self, reader: _Reader) -> Ask:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        start, *lines = head.removesuffix("\r\n\r\n").split("\r\n")
        method, path, _ = start.split(" ")
        pairs = (line.partition(":") for line in lines)
        headers = {name.lower(): value.strip() for name, _, value in pairs}
        raw = await reader.readexactly(int(headers.get("content-length", "0")))
        request = Ask(len(self.requests), method, path, headers, raw, json.loads(raw) if raw else None)
        async with self._has_come:
            (self.requests if method == "POST" else self.lists).append(request)
            self._has_come.notify_all()
        return request

    async def _answer(self, request: Ask, reader: _Reader, writer: asyncio.StreamWriter) -> None:
        try:
            await _send(self._wire(request), reader, writer)
        except _HungUp:
            request.hung_up.set()
            writer.close()
        except ConnectionError:
            request.hung_up.set()
            raise

    def _wire(self, request: Ask) -> Wire:
        resource = request.path.partition("/v1/")[2].partition("?")[0]
        if request.method == "GET" and resource.partition("/")[0] == "models":
            return self._list(request, resource.removeprefix("models").removeprefix("/"))
        if request.method != "POST" or resource not in ("chat/completions", "responses"):
            return status(404, refusal(f"Unknown request URL: {request.method} {request.path}", None))(
                request
            )
        fault = fault_of(request.body) if self._strict and resource == "chat/completions" else None
        if fault is not None:
            return status(400, refusal(*fault))(request)
        return self._script(request)(request)

    def _list(self, request: Ask, wanted: str) -> Wire:
        if callable(self._models):
            return self._models(request)
        known = [_model(one) if isinstance(one, str) else one for one in self._models]
        if not wanted:
            return whole({"object": "list", "data": known})(request)
        found = [one for one in known if one["id"] == wanted]
        return (whole(found[0]) if found else status(404, refusal("no such model", "model")))(request)


@asynccontextmanager
async def scripted_model(
    *script: Reply | Script, strict: bool = False, models: Models = ("scripted",), port: int = 0
) -> AsyncIterator[ScriptedModel]:
    """A server on loopback, while entered. See the module."""
    model = ScriptedModel(_as_function(script), models, strict=strict)
    model.port = port
    async with model.serving():
        yield model


def _as_function(script: Sequence[Any]) -> Script:
    if len(script) == 1 and not isinstance(script[0], Turn):
        only = script[0]

        def reply_or_ask(request: Ask) -> Reply:
            found: Reply | Wire = only(request)
            if not isinstance(found, Wire):
                return found  # it is a function of the request
            return only if request.number == 0 else _nothing_left

        return reply_or_ask
    return lambda request: script[request.number] if request.number < len(script) else _nothing_left


def _nothing_left(request: Ask) -> Wire:
    return status(500, refusal(f"the script has no reply left for request {request.number}", None))(request)


def _model(model_id: str) -> dict[str, Any]:
    return {"id": model_id, "object": "model", "created": CREATED, "owned_by": "scripted"}


class _HungUp(Exception):
    """The client went."""


async def _send(wire: Wire, reader: _Reader, writer: asyncio.StreamWriter) -> None:
    if wire.held_after == 0:
        await _wait(wire.gate, reader)
    is_stream = wire.kind == "text/event-stream"
    framing = (
        {"Transfer-Encoding": "chunked"} if is_stream else {"Content-Length": str(sum(map(len, wire.pieces)))}
    )
    headers = {"Content-Type": wire.kind, **framing, **wire.headers}
    lines = [f"HTTP/1.1 {wire.status} Scripted", *(f"{name}: {value}" for name, value in headers.items())]
    writer.write("\r\n".join([*lines, "", ""]).encode())
    sent = 0
    for piece in _pieces(wire):
        if reader.is_gone.is_set():
            raise _HungUp
        writer.write(encode_chunk(piece) if is_stream else piece)
        await writer.drain()
        if len(wire.pieces) > 1:
            await asyncio.sleep(0)
        sent += len(piece)
        if sent == wire.held_after:
            await _wait(wire.gate, reader)
        if sent == wire.cut_after:
            writer.close()
            return
    if is_stream:
        writer.write(b"0\r\n\r\n")


def _pieces(wire: Wire) -> list[bytes]:
    """Split where something happens between two bytes."""
    marks = sorted(mark for mark in (wire.held_after, wire.cut_after) if mark)
    pieces: list[bytes] = []
    sent = 0
    for piece in wire.pieces:
        at = [0, *(mark - sent for mark in marks if 0 < mark - sent < len(piece)), len(piece)]
        pieces += [piece[begin:end] for begin, end in pairwise(at) if begin < end]
        sent += len(piece)
    return pieces


async def _wait(gate: asyncio.Event | None, reader: _Reader) -> None:
    waits = [asyncio.ensure_future(one.wait()) for one in (reader.is_gone, gate) if one is not None]
    try:
        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for one in waits:
            one.cancel()
    if reader.is_gone.is_set():
        raise _HungUp
