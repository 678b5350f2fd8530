"""A gateway in memory with its MCP door, and clients of both eras that speak to it."""

import asyncio
import json
from collections import deque
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from tests.memory_audit import MemorySink
from tests.registry.memory_store import MemoryApprovals, MemoryQuotaLedger
from tests.upstream.memory_link import MemoryNet, pool_of, record
from toolgate.audit.events import CallRecorded
from toolgate.audit.log.writer import AuditLog
from toolgate.gateway.auth.identity import Identities, hash_key
from toolgate.gateway.auth.issuer import KEYS_ONLY
from toolgate.gateway.call.elicitation import APPROVAL_TIMEOUT_S
from toolgate.gateway.gateway import Gateway, GatewayServices
from toolgate.gateway.subscriptions import MAX_OPEN
from toolgate.model.principals import Ceiling, Key, Role
from toolgate.model.servers import ServerRecord
from toolgate.model.tasks import Profile, Task
from toolgate.model.tools import Snapshot
from toolgate.policy.scope import ScopeLimits
from toolgate.registry.replication.state import RegistryState
from toolgate.surfaces.http.guard import OriginGuard
from toolgate.surfaces.http.messages import EVENT_HEADERS, Headers, HttpRequest, encode_event
from toolgate.surfaces.mcp.endpoint import McpEndpoint
from toolgate.surfaces.mcp.session import ClientSessions, SessionLimits
from toolgate.telemetry import Metrics

MODERN = "2026-07-28"
DAY_MS = 86_400_000
NOON_MS = 20_000 * DAY_MS + DAY_MS // 2
META = {
    "io.modelcontextprotocol/protocolVersion": MODERN,
    "io.modelcontextprotocol/clientCapabilities": {},
    "io.modelcontextprotocol/clientInfo": {"name": "test", "version": "1"},
}
JSON_HEADERS = {
    "host": "127.0.0.1:8080",
    "content-type": "application/json",
    "accept": "application/json, text/event-stream",
}


@dataclass
class Response:
    """One whole answer."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def code(self) -> int:
        """The JSON-RPC error code."""
        return int(self.json["error"]["code"])


class Stream:
    """An answer that is still coming, as the client sees it."""

    task: "asyncio.Task[None]"

    def __init__(self) -> None:
        self.status: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self.headers: dict[str, str] = {}
        self.chunks: asyncio.Queue[bytes] = asyncio.Queue()
        self.last_event_id = ""
        self._messages: deque[Any] = deque()
        self._added: dict[bytes, bytes] = {}

    # The responder's side

    def add_headers(self, headers: Headers) -> None:
        self._added = dict(headers)

    def send(self, status: int, body: bytes, headers: Headers = ()) -> None:
        if self.status.done():
            self.chunks.put_nowait(encode_event(body))
        else:
            self.start(status, headers)
            self.chunks.put_nowait(body)

    def start(self, status: int, headers: Headers) -> None:
        self.headers = {name.decode(): value.decode() for name, value in (*headers, *self._added.items())}
        self.status.set_result(status)

    def send_message(self, message: bytes) -> bool:
        if not self.status.done():
            self.start(200, EVENT_HEADERS)
        self.chunks.put_nowait(encode_event(message))
        return True

    async def write(self, chunk: bytes) -> None:
        self.chunks.put_nowait(chunk)

    def end(self) -> None:
        """The client sees that by itself."""

    # The client's side

    async def event(self) -> Any:
        """The next JSON message, comments and events that say nothing passed over."""
        async with asyncio.timeout(60):
            while not self._messages:
                for line in (await self.chunks.get()).decode().splitlines():
                    if line.startswith("id: "):
                        self.last_event_id = line.removeprefix("id: ")
                    if line.startswith("data: {"):
                        self._messages.append(json.loads(line.removeprefix("data: ")))
        return self._messages.popleft()

    async def whole(self) -> Response:
        """The answer once it is complete."""
        async with asyncio.timeout(60):
            await self.task
        body = b"".join([self.chunks.get_nowait() for _ in range(self.chunks.qsize())])
        return Response(self.status.result(), self.headers, body)

    async def leave(self) -> None:
        """Go away: what the listener does when a connection is lost."""
        self.task.cancel()
        async with asyncio.timeout(60):
            await asyncio.gather(self.task, return_exceptions=True)


@dataclass
class McpWorld:
    """Everything a door test looks at."""

    net: MemoryNet
    gateway: Gateway
    door: McpEndpoint
    guard: OriginGuard
    identities: Identities
    sink: MemorySink
    state: RegistryState
    sessions: ClientSessions
    approvals: MemoryApprovals
    bank: MemoryQuotaLedger
    """Where it is noon, and stays so."""
    records: dict[str, ServerRecord] = field(default_factory=dict)

    def apply(self, **changes: Any) -> None:
        """Change the registry."""
        fields = {
            name: getattr(self.state, name)
            for name in ("servers", "tasks", "profiles", "keys", "pins", "chat_upstreams")
        } | changes
        self.state = RegistryState(revision=self.state.revision + 1, epoch="test", **fields)
        self.identities.apply(self.state.keys)
        self.gateway.apply(self.state)

    @property
    def audited(self) -> list[CallRecorded]:
        self.gateway.audit.flush()
        return [event for _, event in self.sink.events if isinstance(event, CallRecorded)]

    def open(
        self, method: str, url: str, body: bytes = b"", headers: Mapping[str, str] | None = None
    ) -> Stream:
        """Begin a request."""
        path, _, query = url.partition("?")
        named = {name.encode(): value.encode("latin-1") for name, value in (headers or {}).items()}
        stream = Stream()
        request = HttpRequest(method, path, query.encode(), headers=named, body=body)
        stream.task = asyncio.ensure_future(self.guard(request, stream))
        return stream

    async def request(
        self, method: str, url: str, body: bytes = b"", headers: Mapping[str, str] | None = None
    ) -> Response:
        """A request and its whole answer."""
        return await self.open(method, url, body, headers).whole()

    async def post(self, url: str, message: Any, **headers: str) -> Response:
        """POST a JSON body; header names are written with underscores."""
        body = message if isinstance(message, bytes) else json.dumps(message).encode()
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        return await self.request("POST", url, body, JSON_HEADERS | named)

    async def modern(self, url: str, method: str, params: Any = None, *, key: str | None = None) -> Response:
        """One request of the stateless era."""
        return await self.open_modern(url, method, params, key=key).whole()

    def open_modern(self, url: str, method: str, params: Any = None, *, key: str | None = None) -> Stream:
        body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": {**(params or {}), "_meta": META}}
        headers = JSON_HEADERS | {"mcp-protocol-version": MODERN, "mcp-method": method}
        named = {"tools/call": "name", "prompts/get": "name", "resources/read": "uri"}.get(method)
        if named is not None:
            headers["mcp-name"] = params[named]
        if key is not None:
            headers["authorization"] = f"Bearer {key}"
        return self.open("POST", url, json.dumps(body).encode(), headers)

    async def session(self, url: str, *, key: str | None = None, **params: Any) -> "LegacyClient":
        """Open a session of the handshake era."""
        client = LegacyClient(self, url, {} if key is None else {"authorization": f"Bearer {key}"})
        response = await client.send(
            "initialize", {"protocolVersion": "2025-11-25", "capabilities": {}} | params
        )
        assert response.status == 200, response.body
        client.headers["mcp-session-id"] = response.headers["mcp-session-id"]
        client.headers["mcp-protocol-version"] = response.json["result"]["protocolVersion"]
        client.initialized = response.json["result"]
        return client


@dataclass
class LegacyClient:
    """A client of the handshake era."""

    world: McpWorld
    url: str
    headers: dict[str, str]
    initialized: Any = None

    def open(self, body: Any, **headers: str) -> Stream:
        """Begin a POST."""
        encoded = json.dumps(body).encode()
        return self.world.open("POST", self.url, encoded, JSON_HEADERS | self.headers | headers)

    def begin(self, method: str, params: Any = None, *, request_id: Any = 1, **headers: str) -> Stream:
        """Begin a request, whose answer may be a stream."""
        body = {"jsonrpc": "2.0", "id": request_id, "method": method, "params": params or {}}
        return self.open(body, **headers)

    async def send(self, method: str, params: Any = None, *, request_id: Any = 1) -> Response:
        return await self.begin(method, params, request_id=request_id).whole()

    async def notify(self, method: str, params: Any = None) -> Response:
        return await self.open({"jsonrpc": "2.0", "method": method, "params": params or {}}).whole()

    async def respond(self, request_id: Any, **members: Any) -> Response:
        """Answer what was asked: with `result` or `error`."""
        return await self.open({"jsonrpc": "2.0", "id": request_id, **members}).whole()

    async def tools(self) -> list[str]:
        return [tool["name"] for tool in (await self.send("tools/list")).json["result"]["tools"]]

    async def call(self, name: str, **arguments: Any) -> Response:
        return await self.send("tools/call", {"name": name, "arguments": arguments})

    def stream(self, **headers: str) -> Stream:
        return self.world.open("GET", self.url, b"", JSON_HEADERS | self.headers | headers)

    async def delete(self) -> Response:
        return await self.world.request("DELETE", self.url, b"", JSON_HEADERS | self.headers)


def key(key_id: str, secret: str, *, role: Role = "agent", **fields: Any) -> Key:
    ceiling = Ceiling(**fields.pop("ceiling", {}))
    return Key(key_id=key_id, sha256=hash_key(secret), role=role, ceiling=ceiling, **fields)


def task(task_id: str, **config: Any) -> Task:
    """A task; `servers` and the like are the ends of `mcp.` keys."""
    texts = {f"mcp.{name}": json.dumps(value) for name, value in ({"enabled": True} | config).items()}
    return Task(task_id=task_id, config=texts)


@asynccontextmanager
async def open_mcp_world(
    net: MemoryNet,
    *servers: ServerRecord,
    tasks: tuple[Task, ...] = (),
    keys: tuple[Key, ...] = (),
    profiles: tuple[Profile, ...] = (),
    **options: Any,
) -> AsyncIterator[McpWorld]:
    """A world with these servers behind its door; without `servers`, one called `one` that echoes."""
    sink = MemorySink()
    limits = options.pop("limits", ScopeLimits())
    approvals = options.pop("approvals", None) or MemoryApprovals(lambda: 0)
    bank = MemoryQuotaLedger(lambda: NOON_MS)
    trusts_local = options.pop("trusts_local", True)
    discovery = options.pop("discovery", KEYS_ONLY)
    origins = options.pop("origins", ())
    services = GatewayServices(
        approvals=approvals,
        approval_timeout_s=options.pop("approval_timeout_s", APPROVAL_TIMEOUT_S),
        quotas=bank,
        clock_s=lambda: 0.0,
        tracer=options.pop("tracing", None),
        page_size=options.pop("page_size", 500),
        max_streams=options.pop("max_streams", MAX_OPEN),
        search_wait_s=60.0,  # on a busy machine, indexing a few tools may take seconds
    )
    verifier = options.pop("verifier", None)
    session_limits = options.pop("session_limits", SessionLimits())

    def changed(server_id: str) -> None:
        gateway.on_tools_changed(server_id)

    def updated(server_id: str, uri: str) -> None:
        gateway.subscriptions.watches.on_updated(server_id, uri)

    async with pool_of(net, on_change=changed, on_updated=updated, tracer=services.tracer, **options) as pool:
        gateway = Gateway(
            pool,
            AuditLog(sink),
            metrics=Metrics(),
            limits=limits,
            snapshot=Snapshot(),
            services=services,
        )
        identities = Identities(
            admin_key=None, trusts_local=trusts_local, clock_s=lambda: 0.0, verifier=verifier
        )
        clock = asyncio.get_running_loop().time
        sessions = ClientSessions(b"k" * 32, clock_s=clock, wall_s=clock, limits=session_limits)
        door = McpEndpoint(gateway, identities, sessions=sessions, discovery=discovery)
        guard = OriginGuard(door, {"127.0.0.1", "localhost"}, origins)
        state = RegistryState(revision=0, epoch="test")
        world = McpWorld(net, gateway, door, guard, identities, sink, state, sessions, approvals, bank)
        world.apply(
            servers={one.server_id: one for one in servers or (record("one", allowed_tools=("*",)),)},
            tasks={one.task_id: one for one in tasks},
            keys={one.key_id: one for one in keys},
            profiles={one.profile_id: one for one in profiles},
        )
        yield world
