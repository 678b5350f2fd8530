"""The MCP door: one ASGI application for both eras on the same paths.

Order of things: who calls, what the URL asks for, one envelope, then the era the body belongs to.
Nothing here talks to a server; the gateway does.
"""

import asyncio
import logging
from typing import Final

from toolgate.errors import MethodNotAllowed, ToolgateError
from toolgate.gateway.caller import Caller
from toolgate.gateway.gateway import Gateway
from toolgate.gateway.identity import Identities
from toolgate.surfaces.guard import AsgiScope, Receive, Send
from toolgate.surfaces.mcp.answers import send_error
from toolgate.surfaces.mcp.binding import Binding
from toolgate.surfaces.mcp.envelope import parse_message
from toolgate.surfaces.mcp.exchange import Exchange, parse_headers
from toolgate.surfaces.mcp.legacy import LegacyEra
from toolgate.surfaces.mcp.modern import ModernEra, is_modern
from toolgate.surfaces.mcp.session import Sessions
from toolgate.surfaces.mcp.target import parse_target

MAX_BINDINGS: Final = 4_096
"""URLs remembered per principal and URL, so that a known one is not parsed again."""

_log = logging.getLogger(__name__)


class McpDoor:
    """Serves `/api/mcp` and its sub-paths."""

    def __init__(self, gateway: Gateway, identities: Identities, *, sessions: Sessions) -> None:
        self._identities = identities
        self._closing = asyncio.Event()
        self._legacy = LegacyEra(gateway, sessions, closing=self._closing)
        self._modern = ModernEra(gateway, closing=self._closing)
        self._bindings: dict[tuple[str, str, bytes], Binding] = {}

    def close(self) -> None:
        """End the open streams, each with its proper last word."""
        self._closing.set()

    async def __call__(self, scope: AsgiScope, receive: Receive, send: Send) -> None:
        try:
            headers = parse_headers(scope["headers"])
            authorization = headers.get(b"authorization")
            principal = self._identities.authenticate(
                None if authorization is None else authorization.decode("latin-1")
            )
            url = (scope["path"], scope["query_string"])
            exchange = Exchange(headers, principal, url=url, receive=receive, send=send)
            await self._dispatch(scope["method"], exchange)
        except ToolgateError as exc:
            await send_error(send, exc)
        except Exception:  # the request ends here, whatever went wrong
            _log.exception("a request failed")
            await send_error(send, ToolgateError("internal error"))

    async def _dispatch(self, method: str, exchange: Exchange) -> None:
        if method == "POST":
            await self._post(exchange)
        elif method == "GET":
            self._bind(exchange)  # a path that does not exist has no stream either
            await self._legacy.stream(exchange)
        elif method == "DELETE":
            await self._legacy.end(exchange)
        else:
            raise MethodNotAllowed(f"`{method}` is not served here", hint="use POST, GET or DELETE")

    async def _post(self, exchange: Exchange) -> None:
        message = parse_message(await exchange.body())
        modern = is_modern(exchange, message)
        try:
            if modern:
                await self._modern.answer(exchange, message, self._bind(exchange))
            else:
                first = self._bind(exchange) if message.method == "initialize" else None
                await self._legacy.answer(exchange, message, first)
        except ToolgateError as exc:
            await send_error(exchange.send, exc, request_id=message.id, modern=modern)

    def _bind(self, exchange: Exchange) -> Binding:
        key = (exchange.principal.id, exchange.path, exchange.query)
        binding = self._bindings.get(key)
        if binding is None:
            target = parse_target(exchange.path, exchange.query)
            caller = Caller(exchange.principal, target.task_id, target.request, target.only_server)
            binding = Binding(caller)
            if len(self._bindings) >= MAX_BINDINGS:
                self._bindings.pop(next(iter(self._bindings)))
            self._bindings[key] = binding
        binding.keep_principal(exchange.principal)
        return binding
