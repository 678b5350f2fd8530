"""Every transport under the contract of `ServerConnection`, each with the same server at its other end."""

import asyncio
import json
import os
import sys
import uuid
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import get_args

import pytest

from tests.contract.link_server import PROGRESS, ContractServer, Message
from tests.upstream.faulty_http import STREAM_END, STREAM_HEAD, FaultyHttp, Peer, Request
from tests.upstream.memory_link import Json, MemoryNet, MemoryServer
from tests.upstream.memory_link import record as memory_record
from toolgate.model.servers import HttpEndpoint, ServerRecord, StdioLaunch, Transport
from toolgate.model.tools import Revision
from toolgate.upstream.connection.contract import Connector, Purpose, RpcResponse, StartFailed
from toolgate.upstream.connection.secrets import Secrets
from toolgate.upstream.http.egress import Egress
from toolgate.upstream.http.endpoint import EndpointResolver
from toolgate.upstream.http.sse_legacy import SseLegacyConnector
from toolgate.upstream.http.streamable import StreamableConnector
from toolgate.upstream.stdio.children import Warden
from toolgate.upstream.stdio.connector import StdioConnector

SECRET = "sk-canary/0123456789"
"""The credential in the records of servers that have one."""


@dataclass
class Ears:
    """A listener that remembers."""

    notifications: list[str] = field(default_factory=list)
    params: list[bytes] = field(default_factory=list)
    closings: list[str] = field(default_factory=list)
    purpose: Purpose = "start"

    def on_notification(self, method: str, params: bytes) -> None:
        self.notifications.append(method)
        self.params.append(params)

    def on_session_replaced(self) -> bool:
        return True

    def on_closed(self, reason: str) -> None:
        self.closings.append(reason)

    def on_stderr(self, text: bytes) -> None:
        """Nothing of the contract's."""

    def on_reading(self) -> None:
        """No test asks."""


@dataclass(frozen=True)
class Subject:
    """One transport, and servers to reach by it."""

    opener: Connector
    record: ServerRecord
    """A server that obeys `link_server`."""
    silent: ServerRecord
    """One that can be reached and never says a word."""
    missing: ServerRecord
    """One that cannot be reached at all."""
    count_open: Callable[[], int]
    """Connections or children that exist now."""


OpenSubject = Callable[[Revision], AbstractAsyncContextManager[Subject]]


@asynccontextmanager
async def open_memory(era: Revision) -> AsyncIterator[Subject]:
    async def hang() -> None:
        await asyncio.Event().wait()

    async def refuse() -> None:
        raise StartFailed("there is no such server")

    good = MemoryServer(era=era)
    brain = ContractServer(era, _MemoryCarrier(good))

    async def handle(members: Json) -> RpcResponse:
        params = {**members, "_meta": good.calls[-1].meta}
        response = brain.respond({"id": 1, "method": "tools/call", "params": params})
        if response is None:
            try:
                await asyncio.Event().wait()
            finally:
                brain.stop(len(good.calls))
        assert response is not None
        parts = {name: _encode(value) for name, value in response.items()}
        return RpcResponse(parts.get("result"), parts.get("error"))

    tools = ("echo", "meta", "stopped", "announce", "die", "refuse", "hang", "progress")
    good.on_call = dict.fromkeys(tools, handle)
    net = MemoryNet(good=good, silent=MemoryServer(on_start=hang), missing=MemoryServer(on_start=refuse))
    yield Subject(
        opener=net.open,
        record=memory_record("good"),
        silent=memory_record("silent"),
        missing=memory_record("missing"),
        count_open=lambda: sum(len(server.links) + server.starting for server in net.servers.values()),
    )


class _MemoryCarrier:
    """A link in memory carries nothing about a request: its tests reach the client themselves."""

    def __init__(self, server: MemoryServer) -> None:
        self._server = server

    def announce(self, message: Message) -> None:
        del message
        self._server.announce_tools(*self._server.tools)

    def say(self, message: Message, request: object) -> None:
        raise NotImplementedError

    def die(self) -> None:
        self._server.crash()


@asynccontextmanager
async def open_stdio(era: Revision) -> AsyncIterator[Subject]:
    mark = uuid.uuid4().hex
    program = str(Path(__file__).with_name("link_server.py"))

    def launch(command: str, *words: str) -> ServerRecord:
        stdio = StdioLaunch(
            command=command, args=("-I", "-S", program, mark, *words), env={"API_TOKEN": SECRET}
        )
        return ServerRecord(server_id="child", transport="stdio", stdio=stdio)

    warden = Warden()
    try:
        yield Subject(
            opener=StdioConnector(warden, Secrets(os.environ)),
            record=launch(sys.executable, era),
            silent=launch(sys.executable, "silent"),
            missing=launch("/nowhere/python"),
            count_open=lambda: sum(
                mark.encode() in _command_line(entry) for entry in Path("/proc").iterdir()
            ),
        )
    finally:
        await warden.aclose()


def _command_line(process: Path) -> bytes:
    try:
        return (process / "cmdline").read_bytes()
    except OSError:
        return b""


@asynccontextmanager
async def open_http(era: Revision) -> AsyncIterator[Subject]:
    opener = StreamableConnector(EndpointResolver(Secrets({}), Egress(allow_private=True)))
    async with _open_door(_HttpDoor(era), opener, "streamable_http") as subject:
        yield subject


@asynccontextmanager
async def open_sse(era: Revision) -> AsyncIterator[Subject]:
    opener = SseLegacyConnector(EndpointResolver(Secrets({}), Egress(allow_private=True)))
    async with _open_door(_SseDoor(era), opener, "http_sse_legacy") as subject:
        yield subject


@asynccontextmanager
async def _open_door(door: "_Door", opener: Connector, transport: Transport) -> AsyncIterator[Subject]:
    async def say_nothing(_: Request, peer: Peer) -> None:
        await peer.gone()

    def record_of(server: FaultyHttp) -> ServerRecord:
        endpoint = HttpEndpoint(url=server.url, headers={"X-Api-Key": SECRET})
        return ServerRecord(server_id="there", transport=transport, http=endpoint)

    async with FaultyHttp(door.serve) as good, FaultyHttp(say_nothing) as silent:
        door.server = good
        async with FaultyHttp(say_nothing) as closed:
            missing = record_of(closed)
        yield Subject(
            opener=opener,
            record=record_of(good),
            silent=record_of(silent),
            missing=missing,
            count_open=lambda: len(good._tasks) + len(silent._tasks),
        )


class _Door(ABC):
    """Carries the messages of a ContractServer, with streams for what it says unasked."""

    server: FaultyHttp

    def __init__(self, era: Revision) -> None:
        self._brain = ContractServer(era, self)
        self._listening: set[Peer] = set()
        self._saying: set[asyncio.Task[None]] = set()

    @abstractmethod
    async def serve(self, request: Request, peer: Peer) -> None:
        """Answer one request."""

    @abstractmethod
    def say(self, message: Message, request: object) -> None:
        """Where the transport carries what is about a request."""

    def announce(self, message: Message) -> None:
        for peer in self._listening:
            peer.say(message)

    def die(self) -> None:
        self.server._server.close()
        for task in self.server._tasks:
            task.cancel()

    async def _keep_listening(self, peer: Peer) -> None:
        self._listening.add(peer)
        try:
            await peer.gone()
        finally:
            self._listening.discard(peer)


class _HttpDoor(_Door):
    """Streamable HTTP: an answer to each POST, on a stream of its own where there is more to say."""

    def __init__(self, era: Revision) -> None:
        super().__init__(era)
        self._posts: dict[object, _Post] = {}

    async def serve(self, request: Request, peer: Peer) -> None:
        if request.rpc in {"GET", "subscriptions/listen"}:
            await self._listen(request, peer)
        elif request.method == "DELETE":
            await peer.respond()
        elif {"id", "method"} <= request.message.keys():
            await self._answer(request.message, peer)
        else:
            self._brain.respond(request.message)
            await peer.respond(status=202)

    def say(self, message: Message, request: object) -> None:
        self._posts[request].say(message)

    async def _answer(self, message: Message, peer: Peer) -> None:
        number = message["id"]
        post = self._posts[number] = _Post(peer)
        try:
            members = self._brain.respond(message)
            if members is not None:
                await post.respond({"jsonrpc": "2.0", "id": number, **members})
            elif message["params"]["name"] == "progress":
                await peer.open_stream()
                await _progress(peer)
            else:
                await post.settled()
        finally:
            del self._posts[number]
            if not post.is_answered.is_set():
                self._brain.stop(number)

    async def _listen(self, request: Request, peer: Peer) -> None:
        await peer.open_stream()
        if not request.body:
            await self._keep_listening(peer)
            return
        number = request.message["id"]
        self._brain.respond(request.message)
        meta = {"io.modelcontextprotocol/subscriptionId": number}
        method = "notifications/subscriptions/acknowledged"
        peer.say({"jsonrpc": "2.0", "method": method, "params": {"_meta": meta}})
        try:
            await self._keep_listening(peer)
        finally:
            self._brain.stop(number)


class _Post:
    """One request of streamable HTTP that waits for its answer."""

    def __init__(self, peer: Peer) -> None:
        self._peer = peer
        self._is_stream = False
        self.is_answered = asyncio.Event()

    def say(self, message: Message) -> None:
        if not self._is_stream:
            self._is_stream = True
            self._peer.write(STREAM_HEAD)
        self._peer.say(message)
        if "method" not in message:
            self._peer.write(STREAM_END)
            self.is_answered.set()

    async def respond(self, message: Message) -> None:
        if self._is_stream:
            self.say(message)
        else:
            self.is_answered.set()
            await self._peer.respond(_encode(message))

    async def settled(self) -> None:
        """Returns when the request was answered, or its client has gone."""
        waited = {asyncio.ensure_future(self.is_answered.wait()), asyncio.ensure_future(self._peer.gone())}
        try:
            await asyncio.wait(waited, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for one in waited:
                one.cancel()
            await asyncio.gather(*waited, return_exceptions=True)


class _SseDoor(_Door):
    """The transport of 2024: answers come on the one stream that a client has opened."""

    def __init__(self, era: Revision) -> None:
        super().__init__(era)
        self._streams: dict[str, Peer] = {}
        self._stream_of: dict[object, Peer] = {}
        """By the ids of requests."""

    async def serve(self, request: Request, peer: Peer) -> None:
        if request.method == "GET":
            await self._stream(peer)
        else:
            await self._take(request.message, self._streams[request.path], peer)

    def say(self, message: Message, request: object) -> None:
        self._stream_of[request].say(message)

    async def _stream(self, peer: Peer) -> None:
        endpoint = f"/messages?session_id={len(self._streams)}"
        self._streams[endpoint] = peer
        await peer.open_stream()
        await peer.chunk(f"event: endpoint\ndata: {endpoint}\n\n".encode())
        await self._keep_listening(peer)

    async def _take(self, message: Message, stream: Peer, peer: Peer) -> None:
        self._stream_of[message.get("id")] = stream
        members = self._brain.respond(message)
        if members is not None:
            stream.say({"jsonrpc": "2.0", "id": message["id"], **members})
        await peer.respond(status=202)
        if message.get("params", {}).get("name") == "progress":
            saying = asyncio.create_task(_progress(stream))
            self._saying.add(saying)
            saying.add_done_callback(self._saying.discard)


async def _progress(peer: Peer) -> None:
    with suppress(ConnectionError):
        while True:
            await peer.event(PROGRESS)
            await asyncio.sleep(0.01)


def _encode(value: object) -> bytes:
    return json.dumps(value).encode()


SUBJECTS: dict[str, tuple[OpenSubject, Revision]] = {
    f"{transport}, {era}": (opens, era)
    for transport, opens in {
        "memory": open_memory,
        "stdio": open_stdio,
        "http": open_http,
        "sse": open_sse,
    }.items()
    for era in get_args(Revision)
}
RELAYING = {name: subject for name, subject in SUBJECTS.items() if not name.startswith("memory")}
"""Those that carry what passes between a server and the client behind a request."""


def _of(era: Revision) -> pytest.MarkDecorator:
    names = [name for name, subject in RELAYING.items() if subject[1] == era]
    return pytest.mark.parametrize("subject", names, indirect=True)


legacy, modern = _of("legacy"), _of("modern")
"""For what is only so in one era."""
