"""JSON-RPC batches: several messages in one POST, which only sessions of revision 2025-03-26 have.

Each message is served as if it came alone, all at once; an error in one concerns no other. The responses are
one array, in the order of their requests.
"""

import asyncio
from typing import Final

import msgspec

from toolgate.errors import InvalidRequest, OutputTooLarge, ToolgateError
from toolgate.surfaces.http.parsing import is_small_and_flat, parse_json, parse_off_loop
from toolgate.surfaces.mcp.binding import CallerBinding
from toolgate.surfaces.mcp.dispatch import trace_request
from toolgate.surfaces.mcp.exchange import McpExchange
from toolgate.surfaces.mcp.jsonrpc import ClientResponse, McpMessage, parse_message
from toolgate.surfaces.mcp.responses import HeldResponder, responding_with_errors, send_empty, send_error
from toolgate.surfaces.mcp.session import ClientSession
from toolgate.surfaces.mcp.stateful import StatefulHandler
from toolgate.telemetry.spans import Tracer

BATCH_VERSION: Final = "2025-03-26"
"""The one revision with batches: the next one, 2025-06-18, removed them."""
MAX_BATCH: Final = 64
"""Messages in one batch: as many as a 2024 client may have without a response on its stream."""
MAX_RESPONSE_BYTES: Final = 16 * 1024 * 1024
"""Of all responses to a batch, which are held until the last one is there. A single one may be larger."""

BatchPart = McpMessage | ClientResponse | ToolgateError

_decode_parts = msgspec.json.Decoder(list[msgspec.Raw]).decode


def is_batch(body: bytes) -> bool:
    """Whether a body may be several messages."""
    return body[:1] == b"["


class BatchHandler:
    """Serves the batches of sessions."""

    def __init__(self, stateful: StatefulHandler, *, tracing: Tracer | None) -> None:
        self._stateful = stateful
        self._tracing = tracing

    async def serve(self, exchange: McpExchange) -> None:
        """One POST. Raises what rejects the batch as a whole."""
        session = self._stateful.session(exchange)
        if session.version != BATCH_VERSION:
            raise InvalidRequest(
                f"batches are served in sessions of revision {BATCH_VERSION} only",
                hint="send each message in its own request",
            )
        parts = await parse_off_loop(parse_batch, exchange.request.body)
        binding = session.bind(exchange.principal)
        budget = _ResponseBudget(MAX_RESPONSE_BYTES)
        async with asyncio.TaskGroup() as tasks:
            running = [
                tasks.create_task(self._serve(exchange, part, session, binding, budget)) for part in parts
            ]
        responses = [body for task in running if (body := task.result())]
        if responses:
            exchange.responder.send(200, b"[%b]" % b",".join(responses))
        else:
            send_empty(exchange.responder, 202)

    async def _serve(
        self,
        exchange: McpExchange,
        part: BatchPart,
        session: ClientSession,
        binding: CallerBinding,
        budget: "_ResponseBudget",
        /,
    ) -> bytes:
        """The response to one message; empty if it gets none."""
        task = asyncio.current_task()
        assert task is not None  # a coroutine of the task group
        responder = HeldResponder(exchange.responder, task)
        request_id = part.id if isinstance(part, McpMessage) else None
        with responding_with_errors(responder, request_id):
            if isinstance(part, ToolgateError):
                raise part
            if isinstance(part, ClientResponse):
                session.client_requests.resolve(part, exchange.principal)
            else:
                part.check()
                if part.method == "initialize":
                    raise InvalidRequest("`initialize` is never part of a batch")
                with trace_request(self._tracing, part, session.principal_id):
                    await self._stateful.answer(
                        responder, part, session, binding=binding, accepts_stream=exchange.accepts_stream
                    )
        if not budget.take(len(responder.body)):
            send_error(responder, _too_large(), request_id=request_id)
        return responder.body


class _ResponseBudget:
    """How many bytes of the responses to one batch may still be held."""

    def __init__(self, size: int) -> None:
        self._left = size
        self._is_used = False

    def take(self, size: int) -> bool:
        """Whether a response of `size` bytes is held. The first always is."""
        if self._is_used and size > self._left:
            return False
        self._left -= size
        self._is_used = self._is_used or size > 0
        return True


def _too_large() -> OutputTooLarge:
    return OutputTooLarge(
        f"the responses to this batch have more than {MAX_RESPONSE_BYTES} bytes: this one is left out",
        hint="the request was served; send requests with large results alone",
    )


def parse_batch(body: bytes) -> list[BatchPart]:
    """The messages of a batch; an invalid one is the error it raises. Raises InvalidRequest."""
    try:
        if not is_small_and_flat(body):
            parse_json(body)
        raws = _decode_parts(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as exc:
        parse_json(body)
        raise InvalidRequest("the body is not a batch of JSON-RPC messages") from exc
    if not 0 < len(raws) <= MAX_BATCH:
        raise InvalidRequest(f"a batch has 1 to {MAX_BATCH} messages, and this one {len(raws)}")
    return [_parse_part(bytes(raw)) for raw in raws]


def _parse_part(raw: bytes) -> BatchPart:
    try:
        return parse_message(raw)
    except ToolgateError as exc:
        return exc
