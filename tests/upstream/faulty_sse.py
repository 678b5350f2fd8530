"""An MCP server of the 2024 transport on an HTTP server that does what it is told, and how to link to it."""

from typing import Any

from tests.upstream.faulty_http import LEGACY, Peer, Request
from tests.upstream.http_links import ENVIRON
from toolgate.model.servers import HttpEndpoint, ServerRecord
from toolgate.upstream.connection.secrets import Secrets
from toolgate.upstream.http.client_connection import DEFAULT_LIMITS, HttpLimits
from toolgate.upstream.http.egress import Egress
from toolgate.upstream.http.endpoint import EndpointResolver
from toolgate.upstream.http.sse_legacy import MAX_NOISE_EVENTS, SseLegacyConnector

SESSION = "session-of-8-and-more"
INITIALIZE_RESULT = {
    "protocolVersion": LEGACY,
    "capabilities": {"tools": {}},
    "serverInfo": {"name": "x", "version": "1"},
}


class Sse:
    """A server of the 2024 transport, honest in everything that is not overridden."""

    def __init__(self, endpoint: str = f"/messages?session_id={SESSION}") -> None:
        self.endpoint = endpoint
        self.stream: Peer | None = None

    async def __call__(self, request: Request, peer: Peer) -> None:
        if request.method == "GET":
            await self.open(peer)
        else:
            await self.take(request, peer)

    async def open(self, peer: Peer) -> None:
        await peer.open_stream()
        await peer.chunk(b": hello\n\nevent: endpoint\ndata: %b\n\n" % self.endpoint.encode())
        self.stream = peer
        await peer.gone()

    async def take(self, request: Request, peer: Peer) -> None:
        await peer.respond(status=202)
        if "id" in request.message and "method" in request.message:
            await self.say(self.respond(request))

    def respond(self, request: Request) -> dict[str, Any]:
        members: dict[str, Any] = {"error": {"code": -32601, "message": "no"}}
        if request.rpc == "initialize":
            members = {"result": INITIALIZE_RESULT}
        elif request.rpc == "tools/call":
            members = {"result": {"echo": request.message["params"].get("arguments")}}
        return {"jsonrpc": "2.0", "id": request.message["id"], **members}

    async def say(self, message: Any) -> None:
        assert self.stream is not None
        await self.stream.event(message)


def record_for(url: str, **fields: Any) -> ServerRecord:
    endpoint = HttpEndpoint(url=url, **fields)
    return ServerRecord(server_id="there", transport="http_sse_legacy", http=endpoint)


def opener(
    *, start_timeout_s: float = 5.0, max_noise: int = MAX_NOISE_EVENTS, limits: HttpLimits | None = None
) -> SseLegacyConnector:
    return SseLegacyConnector(
        EndpointResolver(Secrets(ENVIRON), Egress(allow_private=True), limits or DEFAULT_LIMITS),
        start_timeout_s=start_timeout_s,
        max_noise=max_noise,
    )
