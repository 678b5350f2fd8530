"""A scripted server in memory that obeys the contract of `ServerConnection` and records its calls.

`MemoryNet().open` is an opener. All links to one server id talk to the same `MemoryServer`, as all children
of one record run the same program.
"""

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from toolgate.errors import CallTimedOut, ServerUnavailable
from toolgate.model.protocol import LEGACY_VERSIONS, MODERN_VERSION
from toolgate.model.servers import EMPTY, ServerBudgets, ServerRecord, StdioLaunch
from toolgate.model.tools import Revision
from toolgate.telemetry.spans import Tracer
from toolgate.upstream.connection.contract import (
    SHARED_CAPABILITIES,
    Acknowledgement,
    ClientChannel,
    ConnectionListener,
    Params,
    PoolLimits,
    RpcResponse,
    ServerInfo,
)
from toolgate.upstream.connection.messages import build_params
from toolgate.upstream.pool.managed_connection import PoolServices
from toolgate.upstream.pool.pool import Pool

Json = dict[str, Any]
Handler = Callable[[Json], Awaitable[RpcResponse]]

_OTHER_LISTS: Mapping[str, tuple[str, str]] = {
    "prompts/list": ("prompts", "prompts"),
    "resources/list": ("resources", "resources"),
    "resources/templates/list": ("templates", "resourceTemplates"),
}


@dataclass(frozen=True, slots=True)
class Seen:
    """One request as it reached the server."""

    method: str
    params: Json
    timeout_s: float
    headers: Mapping[str, str]
    meta: Json = field(default_factory=dict, compare=False)
    """The `_meta` it carried; `params` are shown without."""
    client: ClientChannel | None = field(default=None, compare=False)
    raw: Params = field(default_factory=dict, compare=False)
    """Its params as they were sent: JSON that may hold one name twice."""


def record(server_id: str = "one", *, command: str = "serve", **fields: Any) -> ServerRecord:
    """A record of a server in memory. `timeout_ms`, `concurrency` and `output_bytes` are its budgets."""
    budgets = ServerBudgets(
        tool_timeout_ms=fields.pop("timeout_ms", 30_000),
        max_concurrency=fields.pop("concurrency", 16),
        max_tool_output_bytes=fields.pop("output_bytes", 1_048_576),
    )
    launch = StdioLaunch(command=command)
    return ServerRecord(server_id=server_id, transport="stdio", stdio=launch, budgets=budgets, **fields)


def definition(name: str, **members: Any) -> bytes:
    return msgspec.json.encode({"name": name, "inputSchema": {"type": "object"}, **members})


def params(name: str, **arguments: Any) -> Params:
    """The params of a `tools/call`."""
    return {
        "name": msgspec.Raw(msgspec.json.encode(name)),
        "arguments": msgspec.Raw(msgspec.json.encode(arguments)),
    }


def text_result(text: str) -> bytes:
    return msgspec.json.encode({"content": [{"type": "text", "text": text}]})


@dataclass
class MemoryServer:
    """What the server does (set these), and what it saw (read those)."""

    era: Revision = "modern"
    instructions: str = ""
    is_of_both_revisions: bool = False
    """It is session-based for a link that begins with the handshake."""
    capabilities: Mapping[str, Json] = field(default_factory=lambda: {"tools": {"listChanged": True}})
    tools: Sequence[bytes] = (definition("echo"),)
    prompts: Sequence[bytes] = ()
    resources: Sequence[bytes] = ()
    templates: Sequence[bytes] = ()
    on_start: Callable[[], Awaitable[None]] | None = None
    """Awaited while a link is opened; may hang, or raise StartFailed."""
    on_list: Callable[[Json], Awaitable[RpcResponse]] | None = None
    """Responds to `tools/list` instead of `tools` on one page."""
    on_lists: Mapping[str, Callable[[Json], Awaitable[RpcResponse]]] = field(default_factory=dict)
    """The same for other lists, by method."""
    on_close: Callable[[], Awaitable[None]] | None = None
    """Awaited while a link is closed; may hang, or raise."""
    on_call: Mapping[str, Handler] = field(default_factory=dict)
    """Tool name to what it does; any other returns its arguments."""

    starts_s: list[float] = field(default_factory=list)
    known_revisions: list[Revision | None] = field(default_factory=list)
    capabilities_sent: list[bytes] = field(default_factory=list)
    """The client capabilities of each handshake."""
    watched: list[frozenset[str]] = field(default_factory=list)
    notified: Acknowledgement = None
    """Done once it has received the subscriptions."""
    lists_s: list[float] = field(default_factory=list)
    """When `tools/list` was requested."""
    lists: list[str] = field(default_factory=list)
    """The methods of all requested lists."""
    calls: list[Seen] = field(default_factory=list)
    stopped_by: list[str] = field(default_factory=list)
    """Tools whose calls were cancelled: the caller disconnected, or its time was up."""
    listener: ConnectionListener | None = None
    """Of the newest link, from before it is opened."""
    links: list["MemoryLink"] = field(default_factory=list)
    """Links open now."""
    starting: int = 0
    most_starting: int = 0
    in_flight: int = 0
    most_in_flight: int = 0

    def crash(self, reason: str = "it exited with 1") -> None:
        for link in tuple(self.links):
            link.lose(reason)

    def announce_tools(self, *tools: bytes) -> None:
        self.tools = tools
        self.notify("notifications/tools/list_changed")

    def notify(self, method: str, params: bytes = b"{}") -> None:
        for link in self.links:
            link.listener.on_notification(method, params)

    def complain(self, text: bytes) -> None:
        for link in self.links:
            link.listener.on_stderr(text)

    async def handle(self, method: str, members: Json) -> RpcResponse:
        if method == "tools/list":
            if self.on_list is not None:
                return await self.on_list(members)
            return RpcResponse(result=b'{"tools":[%b]}' % b",".join(self.tools))
        if method in _OTHER_LISTS:
            if method in self.on_lists:
                return await self.on_lists[method](members)
            attribute, member = _OTHER_LISTS[method]
            return RpcResponse(result=b'{"%b":[%b]}' % (member.encode(), b",".join(getattr(self, attribute))))
        handler = self.on_call.get(members["name"], _echo)
        self.in_flight += 1
        self.most_in_flight = max(self.most_in_flight, self.in_flight)
        try:
            return await handler(members)
        except asyncio.CancelledError:
            self.stopped_by.append(members["name"])
            raise
        finally:
            self.in_flight -= 1


async def _echo(members: Json) -> RpcResponse:
    return RpcResponse(result=text_result(msgspec.json.encode(members.get("arguments")).decode()))


class MemoryLink:
    """A connection to a MemoryServer."""

    def __init__(self, server: MemoryServer, listener: ConnectionListener, pid: int, era: Revision) -> None:
        self.server_info = ServerInfo(
            revision=era,
            version=MODERN_VERSION if era == "modern" else LEGACY_VERSIONS[0],
            instructions=server.instructions,
            capabilities={
                name: msgspec.Raw(msgspec.json.encode(value)) for name, value in server.capabilities.items()
            },
        )
        self.pid: int | None = pid
        self.listener = listener
        self._server = server
        self._ended: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        server.links.append(self)

    async def request(
        self,
        method: str,
        params: Params,
        *,
        timeout_s: float,
        headers: Mapping[str, str] = EMPTY,
        client: ClientChannel | None = None,
    ) -> RpcResponse:
        if self._ended.done():
            raise ServerUnavailable(self._ended.result())
        sent = build_params(self.server_info.revision, params)
        members: Json = {name: msgspec.json.decode(raw) for name, raw in sent.items()}
        meta: Json = members.pop("_meta", {})
        if method.endswith("/list"):
            self._server.lists.append(method)
        if method == "tools/list":
            self._server.lists_s.append(asyncio.get_running_loop().time())
        elif method not in _OTHER_LISTS:
            self._server.calls.append(Seen(method, members, timeout_s, headers, meta, client, sent))
        response = asyncio.ensure_future(self._server.handle(method, members))
        waited: set[asyncio.Future[Any]] = {response, self._ended}
        try:
            await asyncio.wait(waited, timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
            if response.done():
                return response.result()
            if self._ended.done():
                raise ServerUnavailable(self._ended.result())
            raise CallTimedOut(f"no answer within {timeout_s:g} s")
        finally:
            response.cancel()
            await asyncio.gather(response, return_exceptions=True)

    def lose(self, reason: str) -> None:
        """End unexpectedly."""
        if self._end(reason):
            asyncio.get_running_loop().call_soon(self.listener.on_closed, reason)

    def watch(self, uris: frozenset[str]) -> Acknowledgement:
        self._server.watched.append(uris)
        return self._server.notified

    async def aclose(self) -> None:
        self._end("the connection was closed")
        await asyncio.sleep(0)
        if self._server.on_close is not None:
            await self._server.on_close()

    def _end(self, reason: str) -> bool:
        if self._ended.done():
            return False
        self._ended.set_result(reason)
        self._server.links.remove(self)
        return True


def pool_of(
    net: "MemoryNet",
    *,
    on_change: Callable[[str], None] = lambda _: None,
    on_updated: Callable[[str, str], None] = lambda _id, _uri: None,
    lazy: PoolServices = PoolServices(),  # noqa: B008 - frozen
    tracer: Tracer | None = None,
    **limits: Any,
) -> Pool:
    """A pool over `net` in which chance plays no part."""
    return Pool(
        {"stdio": net.open, "streamable_http": net.open},
        on_change=on_change,
        on_updated=on_updated,
        limits=PoolLimits(**limits),
        services=lazy._replace(jitter=lambda: 0.0, tracer=tracer),
    )


class MemoryNet:
    """Servers by id. An id that was never set up is a server that echoes."""

    def __init__(self, **servers: MemoryServer) -> None:
        self.servers: defaultdict[str, MemoryServer] = defaultdict(MemoryServer, servers)
        self._pids = iter(range(1000, 1_000_000))

    def __getitem__(self, server_id: str) -> MemoryServer:
        return self.servers[server_id]

    async def open(
        self,
        record: ServerRecord,
        listener: ConnectionListener,
        *,
        known_revision: Revision | None,
        capabilities: bytes = SHARED_CAPABILITIES,
    ) -> MemoryLink:
        server = self.servers[record.server_id]
        server.capabilities_sent.append(capabilities)
        server.starts_s.append(asyncio.get_running_loop().time())
        server.known_revisions.append(known_revision)
        server.listener = listener
        server.starting += 1
        server.most_starting = max(server.most_starting, server.starting)
        try:
            if server.on_start is not None:
                await server.on_start()
        finally:
            server.starting -= 1
        era = "legacy" if server.is_of_both_revisions and known_revision == "legacy" else server.era
        return MemoryLink(server, listener, next(self._pids), era)
