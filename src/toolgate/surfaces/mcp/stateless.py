"""The stateless revision (2026-07-28): every request carries its own envelope, and the gateway keeps nothing.

`subscriptions/listen` opens one stream for exactly the changes that its client names.
"""

import asyncio
from collections.abc import Awaitable
from functools import partial
from typing import Final

import msgspec

from toolgate.errors import InvalidParams, MethodNotFound, ToolgateError, UnsupportedVersion
from toolgate.gateway.auth.identity import Identities
from toolgate.gateway.gateway import Gateway
from toolgate.gateway.subscriptions import ListenerUpdate, Subscription
from toolgate.gateway.subscriptions.resources import MAX_WATCHED_EACH, ResourceWatch
from toolgate.model import protocol
from toolgate.surfaces.http.messages import EVENT_HEADERS, HttpRequest, encode_event
from toolgate.surfaces.mcp import dispatch, responses
from toolgate.surfaces.mcp.exchange import (
    CallerBinding,
    McpExchange,
    check_argument_headers,
    check_header,
    return_at_once,
)
from toolgate.surfaces.mcp.input_required import ClientEnvelope, RoundTrips, StatelessRequest
from toolgate.surfaces.mcp.jsonrpc import McpMessage
from toolgate.surfaces.mcp.stateful import STATEFUL_VERSIONS
from toolgate.upstream.connection.contract import NO_CAPABILITIES


class _ListenFilter(msgspec.Struct, rename="camel"):
    tools_list_changed: bool | None = None
    prompts_list_changed: bool | None = None
    resources_list_changed: bool | None = None
    resource_subscriptions: list[str] = []


SUPPORTED_VERSIONS: Final = (protocol.MODERN_VERSION, *STATEFUL_VERSIONS)
_VERSION_BYTES: Final = protocol.MODERN_VERSION.encode()
_VERSION_KEY_BYTES: Final = protocol.PROTOCOL_VERSION_KEY.encode()
_LEGACY_BYTES: Final = frozenset(version.encode() for version in STATEFUL_VERSIONS)
DISCOVER_TTL_MS: Final = 300_000
"""For results of `server/discover`: a client that caches one learns of a change five minutes late at most."""
_NAME_MEMBERS: Final = {"tools/call": "name", "prompts/get": "name", "resources/read": "uri"}
"""Methods whose requests carry `Mcp-Name`, and the member that it repeats."""


class StatelessHandler:
    """Serves clients that send the envelope with every request."""

    def __init__(self, gateway: Gateway, identities: Identities, rounds: RoundTrips) -> None:
        self._gateway = gateway
        self._identities = identities
        self._dispatcher = dispatch.RequestDispatcher(gateway)
        self._rounds = rounds
        self._good_envelopes: dict[bytes, ClientEnvelope] = {}

    def respond(self, exchange: McpExchange, message: McpMessage, binding: CallerBinding) -> Awaitable[None]:
        """Serve one POST."""
        if message.id is None:
            # The revision defines no notification from client to server over HTTP, so they have no effect.
            exchange.responder.send(202, b"")
            return return_at_once()
        envelope = self._check_envelope(exchange, message)
        if message.method in dispatch.SERVER_METHODS:
            return self._call_server(exchange, message, binding, envelope)
        if message.method in dispatch.LIST_KINDS:
            return self._dispatcher.list(exchange.responder, message, binding, revision="modern")
        if message.method == "subscriptions/listen":
            return self._listen(exchange, message, binding)
        if message.method != "server/discover":
            raise MethodNotFound(f"no method `{message.method}`")
        self._discover(exchange, message.id, binding)
        return return_at_once()

    async def _call_server(
        self, exchange: McpExchange, message: McpMessage, binding: CallerBinding, envelope: ClientEnvelope
    ) -> None:
        """Send the server's response, or the input that the server requires first."""
        request = StatelessRequest(exchange, message, envelope, binding, self._dispatcher)
        if message.method == "tools/call":
            route = binding.calling_view(self._gateway).routes.get(message.text("name") or "")
            if route is not None and route.tool is not None and route.tool.param_headers:
                check_argument_headers(exchange, route.tool, message.params)
        if "requestState" in message.params:
            await self._gateway.wait_for_view(binding.caller, for_call=True)
        try:
            if envelope.capabilities == NO_CAPABILITIES and "requestState" not in message.params:
                response = await self._dispatcher.request(message, binding, request)
                rpc = self._rounds.finish(request, response)
            else:
                rpc = await self._rounds.run(request)
        except asyncio.CancelledError:
            if request.missing is None:
                raise  # the client is gone, or the gateway stops
            exchange.responder.task.uncancel()
            raise request.missing from None
        except ToolgateError as exc:
            if not responses.send_failure(exchange.responder, message, exc, revision="modern"):
                raise
            return
        if rpc.result is None:
            responses.send_upstream_error(exchange.responder, message, rpc.error, stateless=True)
        else:
            responses.send_result(exchange.responder, message.id or b"null", rpc.result)

    async def _listen(self, exchange: McpExchange, message: McpMessage, binding: CallerBinding) -> None:
        """Serve a subscription, without the resources that the client may not see."""
        exchange.require_stream()
        responder = exchange.responder
        try:
            sent = message.params.get("notifications", b"null")
            subscribed = msgspec.json.decode(sent, type=_ListenFilter)
        except msgspec.ValidationError as exc:
            raise InvalidParams("`notifications` must name what to subscribe to") from exc
        if len(subscribed.resource_subscriptions) > MAX_WATCHED_EACH:
            raise InvalidParams(f"`resourceSubscriptions` names more than {MAX_WATCHED_EACH} resources")
        gateway, watch = self._gateway, ResourceWatch(exchange.principal.id)
        try:
            if subscribed.resource_subscriptions:
                view, trace = await gateway.wait_for_view(binding.caller), self._dispatcher.trace(message)
                await gateway.resource_subscriptions.subscribe(
                    view, watch, subscribed.resource_subscriptions, trace=trace
                )
            subscription_id = msgspec.Raw(message.id or b"null")
            kinds = ("tools", "prompts", "resources")
            lists = [kind for kind in kinds if getattr(subscribed, f"{kind}_list_changed")]
            with (
                gateway.subscriptions.open(binding.caller, watch=watch) as subscription,
                self._identities.hold_credential(exchange.request.header("authorization"), subscription.end),
            ):
                responder.start(200, EVENT_HEADERS)
                await responder.write(_encode_acknowledged(subscription_id, lists, list(watch.targets)))
                encode = partial(_encode_changes, subscription_id, lists)
                await responses.send_changes(responder, subscription, encode)
                result = {"resultType": "complete", "_meta": {protocol.SUBSCRIPTION_ID_KEY: subscription_id}}
                await responder.write(_encode_event(id=subscription_id, result=result))
                responder.end()
        finally:
            gateway.subscriptions.watches.drop(watch)

    def _discover(self, exchange: McpExchange, request_id: bytes, binding: CallerBinding) -> None:
        view, instructions = binding.initial_view(self._gateway)
        result = {
            "supportedVersions": SUPPORTED_VERSIONS,
            "capabilities": dispatch.build_server_capabilities(view),
            "resultType": "complete",
            "ttlMs": 0 if view.is_partial else DISCOVER_TTL_MS,
            "cacheScope": "private",
            "_meta": {protocol.SERVER_INFO_KEY: msgspec.Raw(responses.SERVER_INFO)},
        }
        if instructions:
            result["instructions"] = instructions
        responses.send_result(exchange.responder, request_id, msgspec.json.encode(result))

    def _check_envelope(self, exchange: McpExchange, message: McpMessage) -> ClientEnvelope:
        """The checks of the specification in its order: envelope, headers against body, version."""
        raw = bytes(message.params.get("_meta", b""))
        envelope = self._good_envelopes.get(raw)
        if envelope is None:
            envelope = self._parse_meta(exchange, raw)
        elif exchange.headers.get(b"mcp-protocol-version") != _VERSION_BYTES:
            check_header(exchange, b"mcp-protocol-version", protocol.MODERN_VERSION)
        check_header(exchange, b"mcp-method", message.method)
        named = _NAME_MEMBERS.get(message.method)
        if named is not None:
            check_header(exchange, b"mcp-name", message.text(named) or "")
        return envelope

    def _parse_meta(self, exchange: McpExchange, raw: bytes) -> ClientEnvelope:
        try:
            meta = msgspec.json.decode(raw, type=dict[str, msgspec.Raw]) if raw else {}
            version = msgspec.json.decode(meta.get(protocol.PROTOCOL_VERSION_KEY, b"null"), type=str)
            msgspec.json.decode(meta.get(protocol.CLIENT_CAPABILITIES_KEY, b"null"), type=dict)
            level = msgspec.json.decode(meta.get(protocol.LOG_LEVEL_KEY, b'""'), type=str)
        except msgspec.ValidationError as exc:
            raise InvalidParams(
                f"`_meta` needs `{protocol.PROTOCOL_VERSION_KEY}` and `{protocol.CLIENT_CAPABILITIES_KEY}`"
            ) from exc
        check_header(exchange, b"mcp-protocol-version", version)
        if version != protocol.MODERN_VERSION:
            data = {"supported": SUPPORTED_VERSIONS, "requested": version}
            raise UnsupportedVersion(f"protocol version `{version[:40]}` is not served", data=data)
        capabilities = dispatch.filter_client_capabilities(meta[protocol.CLIENT_CAPABILITIES_KEY])
        envelope = ClientEnvelope(capabilities, dispatch.parse_log_level(level) if level else "")
        # Clients send the same envelope with every request. One that varies it must not fill the memory.
        if len(raw) <= 1_024:
            if len(self._good_envelopes) >= 1_024:
                self._good_envelopes.clear()
            self._good_envelopes[raw] = envelope
        return envelope


def is_stateless(request: HttpRequest, message: McpMessage) -> bool:
    """Whether it is of the stateless revision: a body with an envelope always is; else the header decides."""
    meta = message.params.get("_meta")
    if meta is not None and _VERSION_KEY_BYTES in bytes(meta):
        return True
    version = request.headers.get(b"mcp-protocol-version")
    if version is None or version in _LEGACY_BYTES:
        return False
    return message.method != "initialize" and b"mcp-session-id" not in request.headers


def _encode_event(**members: object) -> bytes:
    return encode_event(msgspec.json.encode({"jsonrpc": "2.0", **members}))


def _encode_acknowledged(subscription_id: msgspec.Raw, lists: list[str], uris: list[str]) -> bytes:
    acknowledged: dict[str, object] = {f"{name}ListChanged": True for name in lists}
    if uris:
        acknowledged["resourceSubscriptions"] = uris
    params = {"notifications": acknowledged, "_meta": {protocol.SUBSCRIPTION_ID_KEY: subscription_id}}
    return _encode_event(method="notifications/subscriptions/acknowledged", params=params)


def _encode_changes(
    subscription_id: msgspec.Raw, lists: list[str], _subscription: Subscription, changes: ListenerUpdate
) -> bytes:
    meta = {protocol.SUBSCRIPTION_ID_KEY: subscription_id}
    subscribed = {protocol.LIST_CHANGED[name] for name in lists}
    methods = [method for method in responses.list_changed_methods(changes) if method in subscribed]
    changed_lists = [_encode_event(method=method, params={"_meta": meta}) for method in methods]
    updates = (
        _encode_event(method=protocol.UPDATED, params={"uri": uri, "_meta": meta}) for uri in changes.uris
    )
    return b"".join((*changed_lists, *updates))
