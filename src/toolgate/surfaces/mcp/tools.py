"""`tools/list` and `tools/call`, the same for both eras but for the shape of the answer."""

import asyncio
from typing import Final

from toolgate.catalog.listing import adapt_result
from toolgate.errors import CallCancelled, InvalidParams, ToolgateError
from toolgate.gateway.caller import Trace
from toolgate.gateway.gateway import Gateway
from toolgate.model.tools import Era
from toolgate.surfaces.http.messages import Responder
from toolgate.surfaces.mcp.answers import SERVER_INFO, failed_call, send_result, send_upstream_error
from toolgate.surfaces.mcp.binding import Binding
from toolgate.surfaces.mcp.envelope import MAX_NAME_CHARS, Message
from toolgate.surfaces.mcp.session import Session

DOOR: Final = "mcp"
"""What the audit calls this door."""


class ToolMethods:
    """Lists and calls tools for a bound caller."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway

    async def list(self, responder: Responder, message: Message, binding: Binding, *, era: Era) -> None:
        """Answer `tools/list` from bytes encoded once per view."""
        gateway = self._gateway
        view = binding.view(gateway)
        if view.is_partial:
            view = await gateway.settled_view(binding.caller)
        page = view.page(era, message.text("cursor"), SERVER_INFO)
        injections = gateway.metrics.injections
        for injection in view.injections:
            injections[injection] += 1
        send_result(responder, message.id or b"null", page)

    async def call(
        self,
        responder: Responder,
        message: Message,
        binding: Binding,
        *,
        era: Era,
        session: Session | None = None,
    ) -> None:
        """Answer `tools/call`. A legacy client may take it back while it runs."""
        if session is None:
            await self._call(responder, message, binding, era, "")
            return
        request_id, handler = message.id or b"null", responder.task
        session.calls[request_id] = handler
        try:
            await self._call(responder, message, binding, era, session.nonce)
        except asyncio.CancelledError:
            if session.calls.get(request_id) is handler:
                raise  # not by `cancel_call`: the client is gone, or the gateway stops
            handler.uncancel()
            raise CallCancelled("the call was cancelled by its client") from None
        finally:
            if session.calls.get(request_id) is handler:
                del session.calls[request_id]

    async def _call(
        self, responder: Responder, message: Message, binding: Binding, era: Era, session: str, /
    ) -> None:
        gateway, request_id = self._gateway, message.id or b"null"
        name = message.text("name")
        if name is None or len(name) > MAX_NAME_CHARS:
            raise InvalidParams("`name` must be a tool's name")
        try:
            view = binding.view(gateway)
            if view.is_partial:
                view = await gateway.settled_view(binding.caller)
            trace = Trace(DOOR, session, request_id.decode())
            answer = await gateway.call(view, name, message.params, trace=trace)
            reply = answer.reply
            if reply.result is None:
                error = reply.error or b"{}"
                send_upstream_error(responder, request_id, error, modern=era == "modern")
                return
            result = adapt_result(reply.result, upstream=answer.era, client=era)
        except ToolgateError as exc:
            failure = failed_call(exc)
            if failure is None:
                raise
            result = adapt_result(failure, upstream="legacy", client=era)
        send_result(responder, request_id, result)


def cancel_call(session: Session, request_id: bytes) -> None:
    """Take back a running call of a legacy session; unknown ids have no effect."""
    handler = session.calls.pop(request_id, None)
    if handler is not None:
        handler.cancel()
