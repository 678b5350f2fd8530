"""The MCP endpoint: all protocol revisions on the same paths.

In this order: authenticate the caller, parse the URL and one envelope, then dispatch by the revision of the
body. Nothing here talks to a server; the gateway does.
"""

from collections.abc import Awaitable
from functools import partial
from typing import Final

from toolgate.errors import Forbidden, MethodNotAllowed, ToolgateError
from toolgate.gateway.auth.identity import Identities, reaches
from toolgate.gateway.auth.issuer import KEYS_ONLY, ResourceMetadata
from toolgate.gateway.call.elicitation import ParkedCalls
from toolgate.gateway.gateway import Gateway
from toolgate.surfaces.http.messages import HttpRequest, Responder, error_headers
from toolgate.surfaces.http.parsing import (
    LARGE_BYTES,
    check_json_media,
    parse_off_loop,
    read_trace_headers,
    reject_repeated_headers,
)
from toolgate.surfaces.mcp.dispatch import read_meta_trace, trace_request
from toolgate.surfaces.mcp.exchange import CallerBinding, McpExchange, parse_caller, return_at_once
from toolgate.surfaces.mcp.input_required import RoundTrips, StateSealer
from toolgate.surfaces.mcp.jsonrpc import ClientResponse, McpMessage, parse_message
from toolgate.surfaces.mcp.responses import send_error
from toolgate.surfaces.mcp.session import ClientSessions
from toolgate.surfaces.mcp.session_transports import SESSION_QUERY, SseTransport, serve_batch, wants_stream
from toolgate.surfaces.mcp.stateful import SessionClient, StatefulHandler
from toolgate.surfaces.mcp.stateless import StatelessHandler, is_stateless
from toolgate.telemetry.spans import Tracer

# Readers of the first and of the last copy would disagree about these.
_ONCE_ONLY: Final = frozenset(
    {
        b"authorization",
        b"content-encoding",
        b"content-type",
        b"mcp-method",
        b"mcp-name",
        b"mcp-protocol-version",
        b"mcp-session-id",
    }
)
MAX_BINDINGS: Final = 1_024  # a choice: URLs of credentials that are not parsed again; 1 MiB of them at most
MAX_KNOWN_URL: Final = 1_024  # a choice: a longer URL is parsed with each request

Message = McpMessage | ClientResponse


class McpEndpoint:
    """Serves `/api/mcp` and its sub-paths."""

    def __init__(
        self,
        gateway: Gateway,
        identities: Identities,
        *,
        sessions: ClientSessions,
        discovery: ResourceMetadata = KEYS_ONLY,
    ) -> None:
        """`discovery`: the issuer of the tokens that this gateway accepts in addition to its own keys."""
        self._identities = identities
        self._discovery = discovery
        self._subscriptions = gateway.subscriptions
        self._stateful = StatefulHandler(gateway, sessions, identities)
        self._parking = ParkedCalls()
        rounds = RoundTrips(self._parking, StateSealer(sessions.signer, sessions.wall_s))
        self._stateless = StatelessHandler(gateway, identities, rounds)
        self._sse = SseTransport(self._stateful)
        self._bindings: dict[tuple[int, str, bytes], CallerBinding] = {}
        tracer = gateway.tracer
        self._handle_post = self._post if tracer is None else partial(self._post_traced, tracer)

    def close(self) -> None:
        """End the open streams, each with its last event, and the calls that wait for input."""
        self._subscriptions.close()
        self._parking.close()

    async def __call__(self, request: HttpRequest, responder: Responder) -> None:
        message: Message | None = None
        try:
            if request.repeated:
                reject_repeated_headers(request, _ONCE_ONLY)
            sent = request.headers.get(b"authorization")
            authorization = None if sent is None else sent.decode("latin-1")
            # A cached credential needs no await: this is every call of a busy client.
            is_page = request.is_from_elsewhere
            known = None if is_page else self._identities.known(authorization)
            principal = known or await self._identities.authenticate(
                authorization, peer=request.peer, path=request.path, trusts_local=not is_page
            )
            if not reaches(principal.role, "agent"):
                raise Forbidden(f"role `{principal.role}` may not call tools")
            exchange = McpExchange(request, responder, principal, request.headers)
            if request.method == "POST":
                check_json_media(request)
                body = request.body
                if body[:1] == b"[":
                    await serve_batch(self._stateful, exchange)
                    return
                is_large = len(body) >= LARGE_BYTES
                message = await parse_off_loop(parse_message, body) if is_large else parse_message(body)
                if isinstance(message, McpMessage):
                    message.check()
                await self._handle_post(exchange, message)
            elif request.method == "GET":
                binding = self._find_binding(exchange)  # raises NotFound for an unknown path
                if b"mcp-session-id" not in exchange.headers and wants_stream(exchange):
                    await self._sse.stream(exchange, binding)
                else:
                    await self._stateful.stream(exchange)
            elif request.method == "DELETE":
                self._stateful.end(exchange)
            else:
                raise MethodNotAllowed(
                    f"`{request.method}` is not a method of the MCP endpoint",
                    hint="use POST, GET or DELETE",
                    data={"allowed": ["POST", "GET", "DELETE"]},
                )
        except ToolgateError as exc:
            self._send_error(exc, request, responder, message)

    def _post(self, exchange: McpExchange, message: Message) -> Awaitable[None]:
        """Serve a message. Not itself a coroutine: that saves a plain call one frame."""
        is_on_stream = exchange.request.query.startswith(SESSION_QUERY)
        if isinstance(message, ClientResponse):
            sse, stateful = self._sse, self._stateful
            session = sse.find_stream(exchange).session if is_on_stream else stateful.session(exchange)
            session.resolve(message, exchange.principal)
            exchange.responder.send(202, b"")
        elif is_on_stream:
            return self._sse.post(exchange, message)
        elif is_stateless(exchange.request, message):
            return self._stateless.respond(exchange, message, self._find_binding(exchange))
        elif message.method == "initialize":
            self._stateful.initialize(exchange, message, self._find_binding(exchange))
        else:
            session, responder = self._stateful.session(exchange), exchange.responder
            accepts_stream = exchange.accepts_stream
            client = SessionClient(session, responder, exchange.principal, accepts_stream=accepts_stream)
            return self._stateful.respond(message, client)
        return return_at_once()

    async def _post_traced(self, tracing: Tracer, exchange: McpExchange, message: Message) -> None:
        # A notification has no end. The response to `subscriptions/listen` is a stream that stays open.
        if (
            isinstance(message, ClientResponse)
            or message.id is None
            or message.method == "subscriptions/listen"
        ):
            await self._post(exchange, message)
            return
        with tracing.continued(read_meta_trace(message) or read_trace_headers(exchange.request)):
            if exchange.request.query.startswith(SESSION_QUERY):
                await self._post(exchange, message)  # its response is on the stream, and so is its span
            else:
                with trace_request(tracing, message, exchange.principal.id):
                    await self._post(exchange, message)

    def _send_error(
        self, exc: ToolgateError, request: HttpRequest, responder: Responder, message: Message | None, /
    ) -> None:
        headers = error_headers(exc, request, self._discovery, request.path)
        if not isinstance(message, McpMessage):
            send_error(responder, exc, headers=headers)
            return
        stateless = not request.query.startswith(SESSION_QUERY) and is_stateless(request, message)
        send_error(responder, exc, request_id=message.id, stateless=stateless, headers=headers)

    def _find_binding(self, exchange: McpExchange) -> CallerBinding:
        request = exchange.request
        # By identity: a binding holds its principal, so no other object can have its address meanwhile.
        key = (id(exchange.principal), request.path, request.query)
        binding = self._bindings.get(key)
        if binding is None:
            binding = CallerBinding(parse_caller(exchange.principal, request.path, request.query))
            if len(request.path) + len(request.query) <= MAX_KNOWN_URL:
                if len(self._bindings) >= MAX_BINDINGS:
                    self._bindings.pop(next(iter(self._bindings)))
                self._bindings[key] = binding
        return binding
