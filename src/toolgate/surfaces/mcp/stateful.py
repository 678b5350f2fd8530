"""The session-based revisions (2025-03-26 to 2025-11-25): `initialize`, a signed session, one GET stream.

`StatefulHandler` serves each message of an open session: sent alone, in a batch, or posted to an SSE stream.
Log levels and subscriptions apply to the session on this node, while the node knows the session.
"""

import asyncio
from collections.abc import Awaitable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import Final

import msgspec

from toolgate import errors
from toolgate.catalog.encoding import InputRequired
from toolgate.gateway.auth.identity import Identities
from toolgate.gateway.call import elicitation
from toolgate.gateway.gateway import Gateway
from toolgate.gateway.scope.caller import Caller, Trace
from toolgate.gateway.subscriptions import Subscription
from toolgate.model.principals import Principal
from toolgate.model.protocol import CANCELLED, LEGACY_VERSIONS, LOG_MESSAGE
from toolgate.policy.layers import parse_tools_selection
from toolgate.surfaces.http.messages import EVENT_HEADERS, Responder
from toolgate.surfaces.mcp import dispatch, responses
from toolgate.surfaces.mcp.exchange import SURFACE, CallerBinding, McpExchange
from toolgate.surfaces.mcp.jsonrpc import McpMessage
from toolgate.surfaces.mcp.session import ClientSession, ClientSessions
from toolgate.upstream.connection.contract import NO_CAPABILITIES, RpcResponse

DEFAULT_LEVEL: Final = "info"  # the level requested of servers that log on demand, if the client set none
STATEFUL_VERSIONS: Final = LEGACY_VERSIONS[:3]
"""Newest first: a client that requests an unknown version is offered the first."""

_VERSIONS_SENT: Final = frozenset({None, *(version.encode() for version in STATEFUL_VERSIONS)})
MAX_SELECTION: Final = 1_000
"""Tool names in `initialize`. They travel in the session id, which must fit into a header."""
CATCH_UP_S: Final = 2.0
"""How long a session waits for a node that does not have the revision yet at which it was opened."""
_ROUND_MEMBERS: Final = frozenset({"inputResponses", "requestState"})


class SessionClient:
    """The client of one request of a session, reached on the stream of its response.

    A client that does not accept an event stream gets no notifications and no requests.
    """

    __slots__ = ("binding", "capabilities", "log_level", "principal_id", "responder", "session")
    has_session: Final = True

    def __init__(
        self, session: ClientSession, responder: Responder, principal: Principal, *, accepts_stream: bool
    ) -> None:
        self.session = session
        self.responder = responder
        self.binding = session.bind(principal)
        """What decides the request, even if the session is used with another credential meanwhile."""
        self.principal_id = session.principal_id
        self.capabilities = session.capabilities if accepts_stream else NO_CAPABILITIES
        self.log_level = session.log_level or DEFAULT_LEVEL if accepts_stream else ""

    def notify(self, method: str, params: bytes) -> None:
        least = self.session.log_level
        if self.log_level and (method != LOG_MESSAGE or dispatch.is_severe_enough(params, least)):
            self.responder.send_message(responses.encode_notification(method, params))

    async def request(self, method: str, params: bytes) -> RpcResponse:
        if not elicitation.can_respond(self.capabilities, method, params):
            return elicitation.UNSUPPORTED
        self.session.totals.rounds += 1
        return await self.session.request(self.responder, method, params, self.binding.caller.principal)


class StatefulHandler:
    """Serves clients that open a session."""

    def __init__(self, gateway: Gateway, sessions: ClientSessions, identities: Identities) -> None:
        self.gateway = gateway
        self.sessions = sessions
        self._identities = identities
        self._dispatcher = dispatch.RequestDispatcher(gateway)
        sessions.on_dropped = self._record_end

    def respond(self, message: McpMessage, client: SessionClient) -> Awaitable[None]:
        """Serve one message of an open session."""
        is_known = client.session.revision <= self.gateway.snapshot.revision
        if is_known and message.id is not None and message.method in dispatch.SERVER_METHODS:
            return self._call_server(message, client)
        return self._serve(message, client)

    async def _serve(self, message: McpMessage, client: SessionClient) -> None:
        session, responder = client.session, client.responder
        if session.revision > self.gateway.snapshot.revision:
            await self._catch_up(session)
        if message.id is None:
            if message.method == CANCELLED:  # other notifications, and unknown ids, have no effect
                handler = session.calls.pop(bytes(message.params.get("requestId", b"")), None)
                if handler is not None:
                    handler.cancel()
            responder.send(202, b"")
        elif message.method in dispatch.SERVER_METHODS:
            await self._call_server(message, client)
        elif message.method in dispatch.LIST_KINDS:
            await self._dispatcher.list(responder, message, client.binding, revision="legacy")
        else:
            if message.method != "ping":
                await self._change_settings(message, client)
            responses.send_result(responder, message.id, b"{}")

    async def _change_settings(self, message: McpMessage, client: SessionClient) -> None:
        """`logging/setLevel`, `resources/subscribe` and `resources/unsubscribe`. Raises MethodNotFound."""
        session, gateway = client.session, self.gateway
        if message.method == "logging/setLevel":
            session.log_level = dispatch.parse_log_level(message.text("level"))
            return
        if message.method not in {"resources/subscribe", "resources/unsubscribe"}:
            raise errors.MethodNotFound(f"no method `{message.method}`")
        uri, trace = message.text("uri"), self._dispatcher.trace(message, session.nonce)
        if not uri:
            raise errors.InvalidParams("`uri` is missing")
        try:
            view = await gateway.wait_for_view(client.binding.caller, for_call=True)
        except errors.ToolgateError:
            # A client that sees nothing any more can still unsubscribe.
            if message.method == "resources/subscribe" or uri not in session.watch.targets:
                raise
            gateway.subscriptions.watches.remove(session.watch, uri)
            return
        if message.method == "resources/unsubscribe":
            await gateway.resource_subscriptions.unsubscribe(view, session.watch, uri, trace=trace)
        elif not await gateway.resource_subscriptions.subscribe(view, session.watch, [uri], trace=trace):
            raise errors.UnknownResource("Resource not found", data={"uri": uri})

    async def _catch_up(self, session: ClientSession) -> None:
        """Wait, once, until this node has the revision at which another node opened the session."""
        with suppress(TimeoutError):
            async with asyncio.timeout(CATCH_UP_S):
                await self.gateway.wait_for_revision(session.revision)
        session.revision = 0  # a restored registry may never reach it

    async def _call_server(self, message: McpMessage, client: SessionClient) -> None:
        """Serve a request that goes to a server. The client may cancel it while it runs."""
        session, responder = client.session, client.responder
        request_id, handler = message.id or b"null", responder.task
        session.totals.calls += message.method == "tools/call"
        session.calls[request_id] = handler
        if "requestState" in message.params or "inputResponses" in message.params:
            # A stateless server would take them for input that it required, from this client or another.
            message.params = {name: raw for name, raw in message.params.items() if name not in _ROUND_MEMBERS}
        params, is_served = message.params, False
        try:
            while not is_served:
                try:
                    response = await self._dispatcher.request(message, client.binding, client, session.nonce)
                    responses.send_server_response(responder, message, response)
                    is_served = True
                except InputRequired as needed:  # of the client, by a stateless server: a round for each
                    if message.round == elicitation.MAX_ROUNDS:
                        raise elicitation.too_many_rounds() from None
                    message.round += 1
                    message.params = params | await elicitation.collect_inputs(client, needed)
        except errors.ToolgateError as exc:
            session.totals.count_limit_hit(self.gateway.metrics, SURFACE, exc.code)
            if not responses.send_failure(responder, message, exc, revision="legacy"):
                raise
        except asyncio.CancelledError:
            if session.calls.get(request_id) is handler:
                raise  # not by a notification: the client is gone, or the gateway stops
            handler.uncancel()
            raise errors.CallCancelled("the call was cancelled by its client") from None
        finally:
            if session.calls.get(request_id) is handler:
                del session.calls[request_id]

    async def stream(self, exchange: McpExchange) -> None:
        """GET: notify the client when its lists and resources change, and of what it missed before."""
        exchange.require_stream()
        if b"mcp-session-id" not in exchange.headers:
            raise errors.MethodNotAllowed(
                "GET opens the stream of a session, and needs `Mcp-Session-Id`",
                hint="a client of the 2024 transport sends `Accept: text/event-stream`",
                data={"allowed": ["POST", "DELETE"]},
            )
        session = self.session(exchange)
        with self.open_stream(exchange, session) as subscription:
            responder = exchange.responder
            responder.start(200, EVENT_HEADERS)
            last_id = exchange.headers.get(b"last-event-id")
            seen = subscription.seen if last_id is None else responses.parse_event_id(last_id)
            can_resume = session.version == STATEFUL_VERSIONS[0]
            # An empty event with an id makes a stream resumable that gets no other event.
            first = b"id: %b\ndata: \n\n" % responses.encode_event_id(seen) if can_resume else b": open\n\n"
            await responder.write(first)
            if last_id is not None:
                # After a restart the lists are unknown at first, and an unknown list has not changed.
                with suppress(errors.ToolgateError):
                    await self.gateway.wait_for_view(subscription.caller)
                subscription.catch_up(seen)
            await responses.send_changes(responder, subscription)
            responder.end()

    @contextmanager
    def open_stream(self, exchange: McpExchange, session: ClientSession) -> Iterator[Subscription]:
        """Open the one stream of the session, if there is room. It does not outlive its credential."""
        caller = session.bind(exchange.principal).caller
        authorization = exchange.request.header("authorization")
        try:
            with (
                self.gateway.subscriptions.open(caller, watch=session.watch) as subscription,
                self._identities.hold_credential(authorization, subscription.end),
                session.attach_stream(subscription),
            ):
                yield subscription
        finally:
            if session.has_ended:
                self._release(session)

    def _record_end(self, session: ClientSession) -> None:
        """Record the totals of a session that ended on this node, and release its resources."""
        audit, metrics = self.gateway.audit, self.gateway.metrics
        trace = Trace(SURFACE, session.nonce)
        session.totals.record_end(audit, metrics, session.binding.caller, trace, ended_by=session.ended_by)
        self._release(session)

    def _release(self, session: ClientSession) -> None:
        """Release the resources of a session that left the table, once its stream has ended."""
        if session.stream is not None:
            return
        self.gateway.subscriptions.watches.drop(session.watch)
        if session.has_ended:
            self.gateway.servers.end_session(session.nonce)

    def end(self, exchange: McpExchange) -> None:
        """DELETE: close the session."""
        session_id = exchange.headers.get(b"mcp-session-id")
        if session_id is None:
            raise errors.InvalidRequest("DELETE needs `Mcp-Session-Id`")
        self.find_session(exchange, session_id)
        self.sessions.end(session_id, exchange.principal, everywhere=True)
        exchange.responder.send(200, b"")

    def initialize(self, exchange: McpExchange, message: McpMessage, binding: CallerBinding) -> None:
        """Open a session for what the URL selects."""
        if message.id is None:
            raise errors.InvalidRequest("`initialize` is a request and needs an `id`")
        selected, version, capabilities, result = self.negotiate(message, binding, STATEFUL_VERSIONS)
        revision = self.gateway.snapshot.revision
        session_id = self.sessions.issue(selected.caller, version, capabilities, revision=revision)
        responses.send_result(exchange.responder, message.id, result, [(b"mcp-session-id", session_id)])

    def negotiate(
        self, message: McpMessage, binding: CallerBinding, versions: Sequence[str]
    ) -> tuple[CallerBinding, str, bytes, bytes]:
        """Negotiate an `initialize` request. `versions` are those served, newest first.

        Returns what the session selects (what its URL selects, or less), its version, the capabilities of the
        client that the gateway carries, and the result.
        """
        requested = message.text("protocolVersion")
        if requested is None:
            raise errors.InvalidParams("`protocolVersion` is missing")
        version = requested if requested in versions else versions[0]
        if "tools" in message.params:
            binding = CallerBinding(_narrow_caller(binding, message.params["tools"]))
        capabilities = dispatch.filter_client_capabilities(message.params.get("capabilities"))
        view, instructions = binding.initial_view(self.gateway)
        result: dict[str, object] = {
            "protocolVersion": version,
            "capabilities": dispatch.build_server_capabilities(view),
            "serverInfo": msgspec.Raw(responses.SERVER_INFO),
        }
        if instructions:
            result["instructions"] = instructions
        return binding, version, capabilities, msgspec.json.encode(result)

    def find_session(self, exchange: McpExchange, session_id: bytes) -> ClientSession:
        """The caller's own session of that id. Raises UnknownSession."""
        try:
            return self.sessions.find(session_id, exchange.principal)
        except errors.UnknownSession as exc:  # someone may be guessing session ids
            self.gateway.record_refused(exchange.principal, exc.code, trace=Trace(SURFACE))
            raise

    def session(self, exchange: McpExchange) -> ClientSession:
        """The session in the headers. Raises UnknownSession and InvalidRequest."""
        session_id = exchange.headers.get(b"mcp-session-id")
        if session_id is None:
            raise errors.InvalidRequest(
                "no session: send `initialize` first",
                hint="or send the 2026-07-28 envelope with each request",
            )
        if exchange.headers.get(b"mcp-protocol-version") not in _VERSIONS_SENT:
            raise errors.InvalidRequest("`MCP-Protocol-Version` is not a session-based revision")
        return self.find_session(exchange, session_id)


def _narrow_caller(binding: CallerBinding, raw: msgspec.Raw) -> Caller:
    """`initialize` may carry `params.tools[]`: it narrows the URL's selection, never widens it."""
    try:
        items = msgspec.json.decode(raw, type=list[str])
    except msgspec.ValidationError as exc:
        raise errors.InvalidParams("`tools` must be a list of tool names") from exc
    if len(items) > MAX_SELECTION:
        raise errors.InvalidParams(f"`tools` names more than {MAX_SELECTION} tools")
    caller = binding.caller
    selection = parse_tools_selection(items)
    if caller.request.tools is None:
        return replace(caller, request=replace(caller.request, tools=selection))
    return replace(caller, request=replace(caller.request, allow=selection))
