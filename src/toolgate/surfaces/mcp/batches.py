"""JSON-RPC batches: several messages in one POST, which only sessions of 2025-03-26 know.

Each message is served as if it came alone, all at once; what is wrong with one concerns no other. The
responses come back as one array, in the order of their requests.
"""

import asyncio
import logging
from typing import Final

import msgspec

from toolgate.errors import CallCancelled, InvalidRequest, OutputTooLarge, ToolgateError
from toolgate.surfaces.http.messages import Headers, Responder
from toolgate.surfaces.http.parsing import is_small_and_flat, parse_json, parse_off_loop
from toolgate.surfaces.mcp.binding import CallerBinding
from toolgate.surfaces.mcp.dispatch import trace_request
from toolgate.surfaces.mcp.exchange import McpExchange
from toolgate.surfaces.mcp.jsonrpc import ClientResponse, McpMessage, parse_message
from toolgate.surfaces.mcp.responses import send_empty, send_error
from toolgate.surfaces.mcp.session import ClientSession
from toolgate.surfaces.mcp.stateful import StatefulHandler
from toolgate.telemetry.spans import Tracer

BATCH_VERSION: Final = "2025-03-26"
"""The one revision with batches: the next one, 2025-06-18, removed them."""
MAX_BATCH: Final = 64
"""Messages in one batch: as many as a 2024 client may have without an answer on its stream."""
MAX_RESPONSE_BYTES: Final = 16 * 1024 * 1024
"""Of all responses to a batch, which are held until the last one is there. One alone may have more."""

BatchPart = McpMessage | ClientResponse | ToolgateError

_log = logging.getLogger(__name__)
_decode_parts = msgspec.json.Decoder(list[msgspec.Raw]).decode


def is_batch(body: bytes) -> bool:
    """Whether a body may be several messages."""
    return body[:1] == b"["


class BatchHandler:
    """Serves the batches of sessions."""

    def __init__(self, legacy: StatefulHandler, *, tracing: Tracer | None) -> None:
        self._legacy = legacy
        self._tracing = tracing

    async def serve(self, exchange: McpExchange) -> None:
        """One POST. Raises what refuses the batch as a whole."""
        session = self._legacy.session(exchange)
        if session.version != BATCH_VERSION:
            raise InvalidRequest(
                f"batches are served in sessions of revision {BATCH_VERSION} only",
                hint="send each message in a request of its own",
            )
        parts = await parse_off_loop(parse_batch, exchange.request.body)
        binding = session.bind(exchange.principal)
        responders: list[_PartResponder] = []
        room = _ResponseBudget(MAX_RESPONSE_BYTES)
        async with asyncio.TaskGroup() as tasks:
            for part in parts:
                responder = _PartResponder(exchange.responder, room)
                responder.task = tasks.create_task(
                    self._serve(exchange, part, responder, session, binding=binding)
                )
                responders.append(responder)
        responses = [one.response for one in responders if one.response]
        if responses:
            exchange.responder.send(200, b"[%b]" % b",".join(responses))
        else:
            send_empty(exchange.responder, 202)

    async def _serve(
        self,
        exchange: McpExchange,
        part: BatchPart,
        responder: "_PartResponder",
        session: ClientSession,
        /,
        *,
        binding: CallerBinding,
    ) -> None:
        request_id = part.id if isinstance(part, McpMessage) else None
        try:
            if isinstance(part, McpMessage):
                await self._answer(part, responder, session, binding=binding, hears=exchange.accepts_stream)
            elif isinstance(part, ClientResponse):
                session.asks.take(part, exchange.principal)
            else:
                send_error(responder, part)
        except CallCancelled:
            pass  # the client that took it back waits for no response
        except ToolgateError as exc:
            send_error(responder, exc, request_id=request_id)
        except Exception:  # the message ends here, whatever went wrong; the others go on
            _log.exception("a message of a batch failed")
            send_error(responder, ToolgateError("internal error"), request_id=request_id)
        if responder.is_too_large:
            send_error(responder, _too_large(), request_id=request_id)

    async def _answer(
        self,
        message: McpMessage,
        responder: Responder,
        session: ClientSession,
        *,
        binding: CallerBinding,
        hears: bool,
    ) -> None:
        message.check()
        if message.method == "initialize":
            raise InvalidRequest("`initialize` is never part of a batch")
        if self._tracing is None or message.id is None:
            await self._legacy.answer(responder, message, session, binding=binding, hears=hears)
            return
        with trace_request(self._tracing, message, session.principal_id):
            await self._legacy.answer(responder, message, session, binding=binding, hears=hears)


class _ResponseBudget:
    """How much of the responses to one batch may still be held."""

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


class _PartResponder:
    """Keeps the response to one message of a batch. A status and headers have no place there."""

    task: "asyncio.Task[None]"

    def __init__(self, whole: Responder, room: _ResponseBudget) -> None:
        self._whole = whole
        self._room = room
        self.response = b""
        self.is_too_large = False
        """The response did not fit, and is not held."""

    def add_headers(self, headers: Headers) -> None:
        """The answer to the whole batch has them."""

    def send(self, status: int, body: bytes, headers: Headers = ()) -> None:
        del status, headers
        if self.is_too_large or self._room.take(len(body)):
            self.response = body
        else:
            self.is_too_large = True

    def say(self, message: bytes) -> bool:
        return self._whole.say(message)

    def start(self, status: int, headers: Headers) -> None:
        """It starts with the whole."""

    async def write(self, chunk: bytes) -> None:
        await self._whole.write(chunk)

    def end(self) -> None:
        """It ends with the whole."""


def _too_large() -> OutputTooLarge:
    return OutputTooLarge(
        f"the responses to this batch have more than {MAX_RESPONSE_BYTES} bytes: this one is left out",
        hint="the request was served; send requests with large results alone",
    )


def parse_batch(body: bytes) -> list[BatchPart]:
    """The messages of a batch, each with what is wrong with it in its place. Raises InvalidRequest."""
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
