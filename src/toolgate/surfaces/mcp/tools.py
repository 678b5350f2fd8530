"""`tools/list` and `tools/call`, the same for both eras but for the shape of the answer."""

import asyncio

from toolgate.catalog.listing import adapt_result
from toolgate.errors import CallCancelled, InvalidParams, ToolgateError
from toolgate.gateway.caller import Trace
from toolgate.gateway.gateway import Gateway
from toolgate.model.tools import Era
from toolgate.surfaces.mcp.answers import SERVER_INFO, failed_call, send_result, send_upstream_error
from toolgate.surfaces.mcp.binding import Binding
from toolgate.surfaces.mcp.envelope import MAX_NAME_CHARS, Message
from toolgate.surfaces.mcp.exchange import Exchange, Patience
from toolgate.surfaces.mcp.session import Session


class ToolMethods:
    """Lists and calls tools for a bound caller."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway

    async def list(self, exchange: Exchange, message: Message, binding: Binding, *, era: Era) -> None:
        """Answer `tools/list` from bytes encoded once per view."""
        gateway = self._gateway
        view = await binding.settled_view(gateway)
        page = view.page(era, message.text("cursor"), SERVER_INFO)
        injections = gateway.metrics.injections
        for injection in view.injections:
            injections[injection] += 1
        await send_result(exchange.send, message.id or b"null", page)

    async def call(
        self,
        exchange: Exchange,
        message: Message,
        binding: Binding,
        *,
        era: Era,
        session: Session | None = None,
    ) -> None:
        """Answer `tools/call`. Nothing is sent to a client that went away."""
        handler = asyncio.current_task()
        assert handler is not None  # a request always runs in a task
        request_id = message.id or b"null"
        patience = Patience(exchange.receive, handler)
        if session is not None:
            session.calls[request_id] = handler
        try:
            await self._answer_call(exchange, message, binding, era=era, session=session)
        except asyncio.CancelledError:
            if patience.is_lost:
                handler.uncancel()
                return
            if session is None or session.calls.get(request_id) is handler:
                raise
            handler.uncancel()
            raise CallCancelled("the call was cancelled by its client") from None
        finally:
            patience.end()
            if session is not None and session.calls.get(request_id) is handler:
                del session.calls[request_id]

    async def _answer_call(
        self, exchange: Exchange, message: Message, binding: Binding, *, era: Era, session: Session | None
    ) -> None:
        name = message.text("name")
        if name is None or len(name) > MAX_NAME_CHARS:
            raise InvalidParams("`name` must be a tool's name")
        request_id = message.id or b"null"
        trace = Trace("mcp", session.nonce if session else "", request_id.decode())
        try:
            view = await binding.settled_view(self._gateway)
            answer = await self._gateway.call(view, name, message.params, trace=trace)
            if answer.reply.error is not None:
                error = answer.reply.error
                await send_upstream_error(exchange.send, request_id, error, modern=era == "modern")
                return
            result = adapt_result(answer.reply.result or b"{}", upstream=answer.era, client=era)
        except ToolgateError as exc:
            failure = failed_call(exc)
            if failure is None:
                raise
            result = adapt_result(failure, upstream="legacy", client=era)
        await send_result(exchange.send, request_id, result)


def cancel_call(session: Session, request_id: bytes) -> None:
    """Take back a running call of a legacy session; unknown ids have no effect."""
    handler = session.calls.pop(request_id, None)
    if handler is not None:
        handler.cancel()
