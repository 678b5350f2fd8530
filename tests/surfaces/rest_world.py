"""A gateway in memory with its REST surface. Every answer a test gets has been held against the document."""

import asyncio
import importlib
import json
import re
import socket
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, TypeVar

import httpx2
from sqlalchemy import Connection

from tests.memory_audit import MemorySink
from tests.registry.memory_store import MemoryStore
from tests.surfaces.memory_http import HandlerTransport
from tests.upstream.memory_link import MemoryNet, pool_of
from toolgate.app.components import wall_clock_ms
from toolgate.audit.events import AdminRecorded
from toolgate.audit.index.index import AuditIndex, IndexFile
from toolgate.audit.log.writer import AuditLog
from toolgate.catalog.rows import CatalogQuality
from toolgate.gateway.auth.identity import Identities, hash_key
from toolgate.gateway.gateway import Gateway, GatewayServices
from toolgate.gateway.search import HybridIndex
from toolgate.govern.approvals import ApprovalWebhook, BodySigner
from toolgate.govern.catalog_projection import CatalogProjection
from toolgate.govern.control import Control
from toolgate.model.chat import ChatUpstream
from toolgate.model.principals import Role
from toolgate.model.revisions import Kind, RecordWrite
from toolgate.model.tools import Snapshot
from toolgate.packages.artifacts import ArtifactStore, ModuleStore
from toolgate.packages.objects import open_object_store
from toolgate.packages.uploads import UploadStore
from toolgate.policy.scope import ScopeLimits
from toolgate.registry.files.reload import DirectoryLoader
from toolgate.registry.records.codec import ID_FIELDS
from toolgate.registry.replication.state import watch_registry
from toolgate.registry.store.sql_store import Store
from toolgate.surfaces.http.connection import HttpServer
from toolgate.surfaces.rest.app import ENDPOINTS
from toolgate.surfaces.rest.framework.openapi import describe_api
from toolgate.surfaces.rest.framework.routing import MAX_REVISION_WAIT_S, RestApi
from toolgate.telemetry import Metrics
from toolgate.upstream.http.egress import Egress
from toolgate.upstream.http.fetch import Fetcher
from toolgate.upstream.models.client import ModelTrial
from toolgate.upstream.pool.pool import Pool

Json = dict[str, Any]
T = TypeVar("T")

BASE_URL: Final = "http://127.0.0.1:8080"
NOW_MS: Final = 1_700_000_000_000
DOCUMENT: Final = describe_api(ENDPOINTS)
ROLES: Final[tuple[Role, ...]] = ("viewer", "publisher", "agent", "admin", "node")
SERVERS: Final = "/admin/api/mcp/servers"
TASKS: Final = "/admin/api/tasks"
PROFILES: Final = "/admin/api/profiles"
KEYS: Final = "/admin/api/keys"
PINS: Final = "/admin/api/pins"
CHAT_UPSTREAMS: Final = "/admin/api/chat-upstreams"
WATCH: Final = "/admin/api/watch"

# Has no type information, which the strict checker would hold against a plain import.
_jsonschema = importlib.import_module("jsonschema")


def secret_of(role: str) -> str:
    """The key of the principal that has this role."""
    return f"tg_{role}_{'x' * 40}"


def stdio(server_id: str, **fields: Any) -> Json:
    """The body of a server in memory; all its tools are allowed unless said otherwise."""
    launch = {"command": "serve"} | fields.pop("stdio", {})
    return {"server_id": server_id, "transport": "stdio", "stdio": launch, "allowed_tools": ["*"], **fields}


def http(server_id: str, **fields: Any) -> Json:
    """The body of a server behind a URL. It is disabled: nothing listens there."""
    endpoint = {"url": "https://mcp.example/mcp"} | fields.pop("http", {})
    return {
        "server_id": server_id,
        "transport": "streamable_http",
        "http": endpoint,
        "enabled": False,
    } | fields


def task(task_id: str, **config: Any) -> Json:
    """The body of a task that is enabled; `default_server_ids` and the like are the ends of `mcp.` keys."""
    texts = {f"mcp.{name}": json.dumps(value) for name, value in ({"enabled": True} | config).items()}
    return {"task_id": task_id, "config": texts}


def chat_upstream(upstream_id: str, **fields: Any) -> Json:
    """The body of a chat upstream. Nothing listens there."""
    return {"upstream_id": upstream_id, "base_url": "https://models.example/v1", "models": ["*"], **fields}


@dataclass
class RestWorld:
    """Everything a REST test looks at."""

    net: MemoryNet
    control: Control
    store: Store
    http: httpx2.AsyncClient
    sink: MemorySink
    api: RestApi
    responses: int = field(default=0)

    async def request(
        self, method: str, url: str, body: Any = None, *, key: str | None = None, **headers: str
    ) -> httpx2.Response:
        """One request; `body` is sent as JSON unless it is bytes already. Header names have underscores."""
        content = body if isinstance(body, bytes | None) else json.dumps(body).encode()
        sent = {} if content is None else {"content-type": "application/json"}
        if key is not None:
            sent["authorization"] = f"Bearer {key}"
        sent |= {name.replace("_", "-"): value for name, value in headers.items()}
        async with asyncio.timeout(60):
            response = await self.http.request(method, url, content=content, headers=sent)
        check_documented(method, response.request.url.path, response)
        self.responses += 1
        return response

    async def get(self, url: str, *, key: str | None = None) -> Any:
        """The body of a GET that succeeds."""
        return self._body(await self.request("GET", url, key=key))

    async def post(self, url: str, body: Any = None, *, key: str | None = None) -> Any:
        """The body of a POST that succeeds."""
        return self._body(await self.request("POST", url, body, key=key))

    async def put(self, url: str, body: Any, *, key: str | None = None) -> Any:
        """The body of a PUT that succeeds."""
        return self._body(await self.request("PUT", url, body, key=key))

    def _body(self, response: httpx2.Response) -> Any:
        assert response.is_success, response.text
        return response.json()

    async def seed(self, **records: list[Json]) -> None:
        """Write records past the surface: kind to bodies. Returns when they are served and listed."""
        writes = [
            RecordWrite(kind=_kind(kind), id=body[ID_FIELDS[_kind(kind)]], body=body)
            for kind, bodies in records.items()
            for body in bodies
        ]
        await self.store.write(writes, actor="seed")
        await self.served()

    async def served(self) -> None:
        """Returns when the node serves the newest revision and has heard of all its servers."""
        gateway = self.control.gateway
        async with asyncio.timeout(60):
            while gateway.snapshot.revision < self.store.revision:
                await asyncio.sleep(0)
            await gateway.servers.settled(gateway.servers.tools())
            await asyncio.sleep(0)

    async def cataloged(self) -> None:
        """Returns when the catalog shows what is served."""
        await self.served()
        for server_id in sorted(self.control.gateway.snapshot.servers):
            await self.control.catalog.make(server_id)

    @property
    def audited(self) -> list[AdminRecorded]:
        self.control.gateway.audit.flush()
        return [event for _, event in self.sink.events if isinstance(event, AdminRecorded)]


def error_of(response: httpx2.Response) -> tuple[int, str]:
    """Status and code of a refusal."""
    return response.status_code, response.json()["error"]["code"]


def gateway_of(pool: Pool, sink: MemorySink, store: Store, parts: dict[str, Any]) -> Gateway:
    """A gateway over `pool`; takes its own services out of `parts`."""
    return Gateway(
        pool,
        AuditLog(sink),
        metrics=Metrics(),
        limits=ScopeLimits(max_tools=8),
        snapshot=Snapshot(),
        services=GatewayServices(
            approvals=parts.pop("approvals", store.approvals),
            console_url=parts.pop("console_url", ""),
            quotas=parts.pop("quotas", store.spending),
            clock_s=lambda: 0.0,
            search_wait_s=60.0,
        ),
    )


@asynccontextmanager
async def open_rest(
    net: MemoryNet | None = None,
    *,
    services: Sequence[object] | None = None,
    trusts_local: bool = True,
    store: Store | None = None,
    summary_fallback: float | None = None,
    max_revision_wait_s: float = MAX_REVISION_WAIT_S,
    **parts: Any,
) -> AsyncIterator[RestWorld]:
    """A world with a key for each role, and nothing else in its registry. `parts` are those of `Control`.

    `services` are those that not every process has. Unless given: an empty directory, and a webhook.
    """
    net = net or MemoryNet()
    store = store or MemoryStore(lambda: NOW_MS)
    sink = MemorySink()

    def changed(server_id: str) -> None:
        gateway.on_tools_changed(server_id)

    async with pool_of(net, on_change=changed) as pool, control_parts() as defaults:
        gateway = gateway_of(pool, sink, store, parts)
        identities = Identities(admin_key=None, trusts_local=trusts_local, clock_s=lambda: NOW_MS / 1000)
        parts = defaults | parts
        control = build_control(store, gateway, identities, parts, CatalogQuality(summary_fallback))

        async def follow() -> None:
            async for state in watch_registry(store):
                identities.apply(state.keys)
                gateway.apply(state)

        if services is None:
            services = (DirectoryLoader(store, parts["data_dir"] / "servers"), webhook_of(store))
        api = RestApi(ENDPOINTS, control, services=services, max_revision_wait_s=max_revision_wait_s)
        transport = HandlerTransport(api)
        async with asyncio.TaskGroup() as tasks:
            following = tasks.create_task(follow())
            async with httpx2.AsyncClient(transport=transport, base_url=BASE_URL) as client:
                world = RestWorld(net, control, store, client, sink, api)
                await world.seed(
                    key=[
                        {"key_id": role, "sha256": hash_key(secret_of(role)), "role": role} for role in ROLES
                    ]
                )
                async with control.catalog:
                    yield world
            following.cancel()


@asynccontextmanager
async def listening(world: RestWorld) -> AsyncIterator[int]:
    """The surface behind the real listener; its port. Stopping ends its streams, as the process does it."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.setblocking(False)
        stopping = asyncio.Event()

        async def stopped() -> None:
            await stopping.wait()
            world.control.watches.close()

        server = HttpServer(world.api)
        async with asyncio.timeout(60), asyncio.TaskGroup() as tasks:
            tasks.create_task(server.serve(listener, stopped, drain_s=5))
            yield listener.getsockname()[1]
            stopping.set()


class LazyIndexFile:
    """An audit index that costs nothing until a test queries it."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file: IndexFile | None = None

    def read(self, work: Callable[[Connection], T]) -> T:
        return self._open().read(work)

    def change(self, work: Callable[[Connection], T]) -> T:
        return self._open().change(work)

    def _open(self) -> IndexFile:
        if self._file is None:
            file = IndexFile(self._path)
            file.prepare()
            self._file = file
        return self._file

    def close(self) -> None:
        if self._file is not None:
            self._file.close()


async def _try_no_models(_upstream: ChatUpstream) -> ModelTrial:
    return ModelTrial(took_ms=0, error="nothing listens there")


def webhook_of(store: Store, signer: BodySigner | None = None) -> ApprovalWebhook:
    """A webhook whose receiver decides later on: nothing is sent to it."""
    return ApprovalWebhook(
        "https://receiver.example/",
        signer or BodySigner("w" * 48, lambda: NOW_MS),
        approvals=store.approvals,
        audit=AuditLog(MemorySink()),
        fetcher=Fetcher(Egress(allow_private=True)),
        own_url=str,
    )


def build_control(
    store: Store, gateway: Gateway, identities: Identities, parts: Json, quality: CatalogQuality
) -> Control:
    catalog = CatalogProjection(
        store,
        gateway,
        searching=HybridIndex(),
        clock_ms=lambda: NOW_MS,
        artifacts=parts["artifacts"],
        quality=quality,
        retry_s=0.01,
    )
    with_catalog: Json = {"catalog": catalog, **parts}
    return Control(
        gateway=gateway,
        store=store,
        identities=identities,
        clock_ms=lambda: NOW_MS,
        **with_catalog,
    )


@asynccontextmanager
async def open_control_plane(
    store: Store, gateway: Gateway, identities: Identities
) -> AsyncIterator[Control]:
    """A control plane with nothing in it, over `store`."""
    async with control_parts() as parts:
        yield build_control(store, gateway, identities, parts, CatalogQuality())


@asynccontextmanager
async def control_parts() -> AsyncIterator[dict[str, Any]]:
    """What a `Control` is made of, its files in a directory of their own."""
    with tempfile.TemporaryDirectory() as directory:
        objects = open_object_store(f"{directory}/artifacts", {})
        file = LazyIndexFile(Path(directory, "audit.db"))
        async with AuditIndex(file) as index:
            yield {
                "artifacts": ArtifactStore(objects, clock_ms=wall_clock_ms),
                "modules": ModuleStore(objects),
                "uploads": UploadStore(objects, Path(directory, "incoming"), clock_ms=wall_clock_ms),
                "data_dir": Path(directory),
                "audit_index": index,
                "try_models": _try_no_models,
            }
        file.close()


def check_documented(method: str, path: str, response: httpx2.Response) -> None:
    """Fails when an answer of a documented operation is not what the document says."""
    operation = _operation(method, path)
    if operation is None:
        return
    described = operation["responses"].get(str(response.status_code))
    assert described is not None, (
        f"{method} {path}: {response.status_code} is not documented: {response.text}"
    )
    media_type = response.headers["content-type"]
    assert media_type in described["content"], f"{method} {path}: {media_type} is not documented"
    schema = described["content"][media_type]["schema"]
    if schema and method != "HEAD":
        _validator(schema).validate(response.json())


def _validator(schema: Mapping[str, Any]) -> Any:
    return _jsonschema.Draft202012Validator({**schema, "components": DOCUMENT["components"]})


def _operation(method: str, path: str) -> Json | None:
    for template, item in DOCUMENT["paths"].items():
        if re.fullmatch(re.sub(r"\{\w+\}", "[^/]+", template), path, re.DOTALL):
            found: Json | None = item.get("get" if method == "HEAD" else method.lower())
            if found is not None:
                return found  # an action may stand where an id could, and has other methods
    return None


def operations() -> Iterator[tuple[str, str]]:
    """Method and path of every documented operation."""
    for path, item in DOCUMENT["paths"].items():
        for method in item:
            yield method.upper(), path


def _kind(text: str) -> Kind:
    match text:
        case "server" | "task" | "profile" | "key" | "pin" | "package" | "chat_upstream" | "choice":
            return text
    raise AssertionError(text)
