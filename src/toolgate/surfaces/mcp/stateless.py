"""The stateless era (2026-07-28): every request carries its own envelope, and nothing is remembered."""

import asyncio
from collections.abc import Awaitable, Coroutine
from functools import partial
from typing import Any, Final, NamedTuple

import msgspec

from toolgate.errors import (
    InvalidParams,
    MethodNotFound,
    ToolgateError,
    UnsupportedVersion,
)
from toolgate.gateway.gateway import Gateway
from toolgate.model.protocol import (
    CLIENT_CAPABILITIES_KEY,
    LOG_LEVEL_KEY,
    MODERN_VERSION,
    PROTOCOL_VERSION_KEY,
    SERVER_INFO_KEY,
)
from toolgate.surfaces.http.messages import Request
from toolgate.surfaces.mcp.binding import Binding
from toolgate.surfaces.mcp.capabilities import announced_capabilities, carried_capabilities
from toolgate.surfaces.mcp.dispatch import LISTS, REQUESTS, send_failure
from toolgate.surfaces.mcp.exchange import Exchange, nothing_more
from toolgate.surfaces.mcp.input_required import ModernRequest, Rounds
from toolgate.surfaces.mcp.jsonrpc import Message
from toolgate.surfaces.mcp.levels import parse_level
from toolgate.surfaces.mcp.listening import Listening
from toolgate.surfaces.mcp.mirrors import check_arguments, check_header
from toolgate.surfaces.mcp.modern_client import ModernClient
from toolgate.surfaces.mcp.responses import SERVER_INFO, send_empty, send_result, send_upstream_error
from toolgate.surfaces.mcp.stateful import VERSIONS as LEGACY_VERSIONS
from toolgate.surfaces.mcp.streams import Streams
from toolgate.surfaces.mcp.tracing import methods_of
from toolgate.upstream.connection.contract import NO_CAPABILITIES, ClientSide
from toolgate.upstream.pool.pool import Answer

SUPPORTED: Final = (MODERN_VERSION, *LEGACY_VERSIONS)
_VERSION_BYTES: Final = MODERN_VERSION.encode()
_VERSION_KEY_BYTES: Final = PROTOCOL_VERSION_KEY.encode()
_LEGACY_BYTES: Final = frozenset(version.encode() for version in LEGACY_VERSIONS)
DISCOVER_TTL_MS: Final = 300_000


_NAMED: Final = {"tools/call": "name", "prompts/get": "name", "resources/read": "uri"}
"""The methods whose requests say in `Mcp-Name` what they are for, and the member it repeats."""


class Envelope(NamedTuple):
    """What a request says of its client."""

    capabilities: bytes
    """Those that are carried."""
    log_level: str


class ModernEra:
    """Serves clients that send the envelope with every request."""

    def __init__(self, gateway: Gateway, *, streams: Streams, rounds: Rounds) -> None:
        self._gateway = gateway
        self._methods = methods_of(gateway)
        self._listening = Listening(gateway, streams=streams)
        self._rounds = rounds
        self._good_envelopes: dict[bytes, Envelope] = {}

    def answer(self, exchange: Exchange, message: Message, binding: Binding) -> Awaitable[None]:
        """One POST."""
        if message.id is None:
            # The revision defines no notification from client to server over HTTP; they have no effect.
            send_empty(exchange.responder, 202)
            return nothing_more()
        envelope = self._check_envelope(exchange, message)
        if message.method in REQUESTS:
            return self._request(exchange, message, binding, envelope)
        if message.method in LISTS:
            return self._methods.list(exchange.responder, message, binding, era="modern")
        if message.method == "subscriptions/listen":
            return self._listening.serve(exchange, message, binding, trace=self._methods.trace(message))
        if message.method != "server/discover":
            raise MethodNotFound(f"no method `{message.method}`")
        self._discover(exchange, message.id, binding)
        return nothing_more()

    async def _request(
        self, exchange: Exchange, message: Message, binding: Binding, envelope: Envelope
    ) -> None:
        """What a server answers, or what it wants to know first."""
        client = ModernClient(exchange, envelope.capabilities, envelope.log_level)
        request = ModernRequest(
            message,
            client,
            ask=partial(self._ask, message, binding),
            server_of=partial(self._methods.server_of, message, binding),
        )
        if message.method == "tools/call":
            route = binding.calling_view(self._gateway).routes.get(message.text("name") or "")
            if route is not None and route.tool is not None and route.tool.param_headers:
                check_arguments(exchange, route.tool, message.params)
        if "requestState" in message.params:
            await self._gateway.settled_view(binding.caller, for_call=True)
        try:
            if envelope.capabilities == NO_CAPABILITIES and "requestState" not in message.params:
                answer = await self._methods.ask(message, binding, client=client)
                reply = self._rounds.conclude(request, answer)
            else:
                reply = await self._rounds.run(request)
        except asyncio.CancelledError:
            if client.missing is None:
                raise  # the client is gone, or the gateway stops
            exchange.responder.task.uncancel()
            raise client.missing from None
        except ToolgateError as exc:
            if not send_failure(exchange.responder, message, exc, era="modern"):
                raise
            return
        if reply.result is None:
            error = reply.error or b"{}"
            send_upstream_error(
                exchange.responder, message.id or b"null", error, method=message.method, modern=True
            )
        else:
            send_result(exchange.responder, message.id or b"null", reply.result)

    def _ask(self, message: Message, binding: Binding, client: ClientSide) -> Coroutine[Any, Any, Answer]:
        return self._methods.ask(message, binding, client=client)

    def _discover(self, exchange: Exchange, request_id: bytes, binding: Binding) -> None:
        view, instructions = binding.opening_view(self._gateway)
        result = {
            "supportedVersions": SUPPORTED,
            "capabilities": announced_capabilities(view),
            "resultType": "complete",
            "ttlMs": 0 if view.is_partial else DISCOVER_TTL_MS,
            "cacheScope": "private",
            "_meta": {SERVER_INFO_KEY: msgspec.Raw(SERVER_INFO)},
        }
        if instructions:
            result["instructions"] = instructions
        send_result(exchange.responder, request_id, msgspec.json.encode(result))

    def _check_envelope(self, exchange: Exchange, message: Message) -> Envelope:
        """The ladder of the specification: envelope, headers against body, version."""
        raw = bytes(message.params.get("_meta", b""))
        envelope = self._good_envelopes.get(raw)
        if envelope is None:
            envelope = self._parse_meta(exchange, raw)
        elif exchange.headers.get(b"mcp-protocol-version") != _VERSION_BYTES:
            check_header(exchange, b"mcp-protocol-version", MODERN_VERSION)
        check_header(exchange, b"mcp-method", message.method)
        named = _NAMED.get(message.method)
        if named is not None:
            check_header(exchange, b"mcp-name", message.text(named) or "")
        return envelope

    def _parse_meta(self, exchange: Exchange, raw: bytes) -> Envelope:
        try:
            meta = msgspec.json.decode(raw, type=dict[str, msgspec.Raw]) if raw else {}
            version = msgspec.json.decode(meta.get(PROTOCOL_VERSION_KEY, b"null"), type=str)
            msgspec.json.decode(meta.get(CLIENT_CAPABILITIES_KEY, b"null"), type=dict)
            level = msgspec.json.decode(meta.get(LOG_LEVEL_KEY, b'""'), type=str)
        except msgspec.ValidationError as exc:
            raise InvalidParams(
                f"`_meta` needs `{PROTOCOL_VERSION_KEY}` and `{CLIENT_CAPABILITIES_KEY}`"
            ) from exc
        check_header(exchange, b"mcp-protocol-version", version)
        if version != MODERN_VERSION:
            data = {"supported": SUPPORTED, "requested": version}
            raise UnsupportedVersion(f"protocol version `{version[:40]}` is not served", data=data)
        capabilities = carried_capabilities(meta[CLIENT_CAPABILITIES_KEY])
        envelope = Envelope(capabilities, parse_level(level) if level else "")
        # Clients send the same envelope over and over; those that vary it must not fill the memory.
        if len(raw) <= 1_024:
            if len(self._good_envelopes) >= 1_024:
                self._good_envelopes.clear()
            self._good_envelopes[raw] = envelope
        return envelope


def is_modern(request: Request, message: Message) -> bool:
    """Body first: an envelope is modern whatever the headers say; then the header alone decides."""
    meta = message.params.get("_meta")
    if meta is not None and _VERSION_KEY_BYTES in bytes(meta):
        return True
    version = request.headers.get(b"mcp-protocol-version")
    if version is None or version in _LEGACY_BYTES:
        return False
    return message.method != "initialize" and b"mcp-session-id" not in request.headers
