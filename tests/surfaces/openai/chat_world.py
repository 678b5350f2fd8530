"""A gateway in memory with its chat door, and clients that speak to it: bytes, and the official one."""

import asyncio
import json
import socket
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import openai
from openai.types.chat import ChatCompletion, ChatCompletionChunk

from tests.surfaces.mcp.mcp_world import McpWorld, Response, Stream, open_mcp_world
from tests.upstream.memory_link import MemoryNet, definition
from tests.upstream.scripted_model import Ask
from toolgate.model.chat import ChatUpstream
from toolgate.model.servers import ServerRecord
from toolgate.surfaces.http.connection import HttpServer
from toolgate.surfaces.http.guard import OriginGuard
from toolgate.surfaces.http.messages import KEEPALIVE_S, HttpRequest
from toolgate.surfaces.openai.endpoint import ChatEndpoint
from toolgate.surfaces.openai.exchange import ChatServices
from toolgate.upstream.connection.secrets import Secrets
from toolgate.upstream.http.egress import Egress
from toolgate.upstream.models.client import Models

URL = "/v1/chat/completions"
HEADERS = {"host": "127.0.0.1:8080", "content-type": "application/json"}
USER = {"role": "user", "content": "go"}


@dataclass
class ChatWorld:
    """Everything a chat test looks at."""

    world: McpWorld
    guard: OriginGuard
    models: Models

    @property
    def net(self) -> MemoryNet:
        return self.world.net

    @property
    def called(self) -> list[str]:
        """The tools that were called at the audit's word, with their outcomes."""
        return [f"{one.server_id}.{one.tool} {one.outcome}" for one in self.world.audited]

    def open(self, body: Any, *, url: str = URL, method: str = "POST", **headers: str) -> Stream:
        """Begin a request; header names are written with underscores."""
        named = HEADERS | {name.replace("_", "-"): value for name, value in headers.items()}
        sent = body if isinstance(body, bytes) else json.dumps(body).encode()
        path, _, query = url.partition("?")
        stream = Stream()
        raw = {name.encode(): value.encode("latin-1") for name, value in named.items()}
        request = HttpRequest(method, path, query.encode(), headers=raw, body=sent)
        stream.task = asyncio.ensure_future(self.guard(request, stream))
        return stream

    async def post(self, body: Any, *, url: str = URL, **headers: str) -> Response:
        return await self.open(body, url=url, **headers).whole()

    async def get(self, url: str, **headers: str) -> Response:
        return await self.open(b"", url=url, method="GET", **headers).whole()

    async def chat(self, *messages: Any, **members: Any) -> Any:
        """A request with tools, and its completion, which the client's types take strictly."""
        response = await self.post(asking(*messages, **members))
        assert response.status == 200, response.body
        return completion_of(response)

    async def stream(self, *messages: Any, **members: Any) -> "Streamed":
        """The same, streamed."""
        response = await self.post(asking(*messages, stream=True, **members))
        assert response.status == 200, response.body
        return Streamed(response)


def asking(*messages: Any, **members: Any) -> dict[str, Any]:
    """The body of a request with tools, unless `toolgate` says otherwise."""
    asked = {"mcp": {"enabled": True}} | members.pop("toolgate", {})
    return {"model": "m", "messages": list(messages) or [USER], "toolgate": asked} | members


def completion_of(response: Response) -> Any:
    """The completion as JSON, after the official types have taken it strictly."""
    ChatCompletion.model_validate_json(response.body, strict=True)
    return response.json


class Streamed:
    """A whole stream, each of whose chunks the official types have taken strictly."""

    def __init__(self, response: Response) -> None:
        events = [one for one in response.body.decode().split("\n\n") if one and not one.startswith(":")]
        assert all(one.startswith("data: ") for one in events)
        *sent_text, done = [one.removeprefix("data: ") for one in events]
        assert done == "[DONE]"
        self.raw = sent_text
        self.chunks = [json.loads(one) for one in sent_text]
        for one in sent_text:
            if "error" not in json.loads(one):
                ChatCompletionChunk.model_validate_json(one, strict=True)

    @property
    def deltas(self) -> list[Any]:
        return [one["choices"][0]["delta"] for one in self.chunks if one.get("choices")]

    @property
    def text(self) -> str:
        return "".join(delta.get("content") or "" for delta in self.deltas)

    @property
    def finishes(self) -> list[str]:
        reasons = (one["choices"][0]["finish_reason"] for one in self.chunks if one.get("choices"))
        return [reason for reason in reasons if reason is not None]

    @property
    def calls(self) -> list[Any]:
        return [call for delta in self.deltas for call in delta.get("tool_calls", ())]

    @property
    def extensions(self) -> list[Any]:
        return [one["toolgate"] for one in self.chunks if "toolgate" in one]


def results(request: Ask) -> dict[str, Any]:
    """What the model was told of its calls, by their ids."""
    return {one["tool_call_id"]: one["content"] for one in request.messages if one["role"] == "tool"}


def error_in(request: Ask, call_id: str) -> Any:
    return json.loads(results(request)[call_id])["error"]


def stage(**tools: Any) -> MemoryNet:
    """One server with tools that do what they are told here."""
    net = MemoryNet()
    net.servers["one"].tools = tuple(definition(name) for name in {*tools, "echo"})
    net.servers["one"].on_call = tools
    return net


def upstream(url: str, upstream_id: str = "main", **fields: Any) -> ChatUpstream:
    return ChatUpstream(upstream_id=upstream_id, base_url=url, **({"models": ("*",)} | fields))


@asynccontextmanager
async def open_chat_world(
    net: MemoryNet,
    *servers: ServerRecord,
    upstreams: tuple[ChatUpstream, ...],
    environ: Mapping[str, str] | None = None,
    keepalive_s: float = KEEPALIVE_S,
    **options: Any,
) -> AsyncIterator[ChatWorld]:
    """A world with a chat door. Without `servers`, one called `one` that echoes."""
    async with (
        open_mcp_world(net, *servers, **options) as world,
        Models(Secrets(environ or {}, None), Egress(allow_private=True), pauses_s=(0.0, 0.0)) as models,
    ):
        parts = ChatServices(
            gateway=world.gateway,
            models=models,
            signer=world.sessions.signer,
            wall_s=asyncio.get_running_loop().time,
            keepalive_s=keepalive_s,
        )
        door = ChatEndpoint(world.identities, parts)
        world.apply(chat_upstreams={one.upstream_id: one for one in upstreams})
        yield ChatWorld(world, OriginGuard(door, {"127.0.0.1", "localhost"}), models)


@asynccontextmanager
async def official_client(world: ChatWorld, key: str = "none") -> AsyncIterator[openai.AsyncOpenAI]:
    """OpenAI's own client, at the door behind the real listener."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.setblocking(False)
        stopping = asyncio.Event()
        server = HttpServer(world.guard)
        base_url = f"http://127.0.0.1:{listener.getsockname()[1]}/v1"
        async with asyncio.timeout(60), asyncio.TaskGroup() as tasks:
            tasks.create_task(server.serve(listener, stopping.wait, drain_s=5))
            async with openai.AsyncOpenAI(base_url=base_url, api_key=key, max_retries=0) as client:
                yield client
            stopping.set()
