"""The row type of the RPC table, the dispatch of every RPC to its handler, and errors as statuses.

An RPC is a row of a table; the definitions in `proto/` have the rest. Only this module checks credential,
role, size and form, so a new row cannot forget a check. A caller without a valid credential cannot tell an
RPC from one that does not exist. Every client gets an error's status and details; the trailing metadata has
its code, and the whole error as JSON.
"""

import asyncio
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass
from functools import cache, cached_property, partial
from typing import Any, Final, Generic, NoReturn, TypeAlias, TypeVar, cast
from urllib.parse import unquote

import grpc
import grpc.aio
import msgspec
from google.protobuf import descriptor_pool
from google.protobuf.descriptor import MethodDescriptor
from google.protobuf.message import DecodeError, Message
from google.protobuf.message_factory import GetMessageClass

from toolgate import errors
from toolgate.gateway.auth.identity import credential_lapsed, reaches
from toolgate.govern.control import Control
from toolgate.model.principals import Principal, Role

R = TypeVar("R")

ANYONE: Final[tuple[Role, ...]] = ()
"""The roles of an RPC that needs no credential. It still rejects an invalid one."""
MAX_REQUEST_BYTES: Final = 4 * 1024 * 1024  # as a REST body


@dataclass(frozen=True, slots=True, kw_only=True)
class RpcCall(Generic[R]):
    """A call that passed all checks of its row."""

    control: Control
    principal: Principal | None
    """None only if the RPC needs no credential and the caller sent none."""
    request: R
    """The request message; for a streaming client, an iterator of all messages."""

    @property
    def caller(self) -> Principal:
        """The principal, in RPCs that require a role."""
        assert self.principal is not None
        return self.principal


UnaryHandler: TypeAlias = Callable[[RpcCall[Any]], Awaitable[Message]]
StreamHandler: TypeAlias = Callable[[RpcCall[Any]], AsyncGenerator[Message, None]]


@dataclass(frozen=True, kw_only=True)
class Rpc:
    """One row of the table. Its handler parses nothing and catches nothing."""

    service: str
    method: str
    roles: tuple[Role, ...]
    """Any of these roles, or one above it, is sufficient."""
    handler: UnaryHandler | StreamHandler
    """The handler, whose docstring is the description in the reference."""
    max_bytes: int = MAX_REQUEST_BYTES
    """The largest request in bytes."""
    waits: bool = False
    """Whether it may wait long before it responds. If so, it ends with its listener, like a stream."""

    @property
    def path(self) -> str:
        return f"/{self.service}/{self.method}"

    @cached_property
    def descriptor(self) -> MethodDescriptor:
        """Its descriptor in the definitions. Raises KeyError if they do not have it."""
        return descriptor_pool.Default().FindServiceByName(self.service).methods_by_name[self.method]

    @cached_property
    def request_type(self) -> type[Message]:
        return GetMessageClass(self.descriptor.input_type)


@cache
def response_type(service: str, method: str) -> type[Message]:
    """The response message of an RPC."""
    found = descriptor_pool.Default().FindServiceByName(service).methods_by_name[method]
    return GetMessageClass(found.output_type)


def rpc(
    service: str, method: str, *roles: Role, **options: Any
) -> Callable[[UnaryHandler | StreamHandler], Rpc]:
    """A decorator that turns a handler into an RPC."""
    return lambda handler: Rpc(service=service, method=method, roles=roles, handler=handler, **options)


def node_rpc(method: str, **options: Any) -> Callable[[UnaryHandler | StreamHandler], Rpc]:
    """As `rpc`, for the service for nodes."""
    return rpc("toolgate.v1.NodeService", method, "node", **options)


CODE_KEY: Final = "toolgate-code"
ERROR_KEY: Final = "toolgate-error-bin"
MAX_DETAILS: Final = 2_000  # characters of the message and its hint; see `MAX_ERROR_BYTES`
MAX_ERROR_BYTES: Final = 4_000
"""Clients accept 8 KiB of metadata in total: with more, they would report another error."""


def encode_status(
    exc: errors.ToolgateError,
) -> tuple[grpc.StatusCode, str, tuple[tuple[str, str | bytes], ...]]:
    """The status, details and trailing metadata of an error."""
    message = str(exc)
    encoded = msgspec.json.encode(exc.detail)
    if len(encoded) > MAX_ERROR_BYTES:
        cut = {"code": exc.code, "message": message[: MAX_DETAILS // 2], "hint": exc.hint}
        encoded = msgspec.json.encode(cut)
    details = f"{message}; {exc.hint}"[:MAX_DETAILS]
    return grpc.StatusCode[exc.wire.grpc], details, ((CODE_KEY, exc.code), (ERROR_KEY, encoded))


Context: TypeAlias = "grpc.aio.ServicerContext[bytes, bytes]"
Handler: TypeAlias = "grpc.RpcMethodHandler[bytes, bytes]"

UNKNOWN: Final = "an unknown RPC"
"""Replaces the method name in the log: a caller could send any text."""

_log: Final = logging.getLogger(__name__)


class RpcDispatcher(grpc.GenericRpcHandler):
    """Serves the RPCs of a table over `control`, for one listener. The library gets bytes, not messages."""

    def __init__(self, control: Control, rpcs: Sequence[Rpc], *, is_local: bool) -> None:
        """`is_local`: only this machine can connect, so a caller without a credential may be trusted."""
        self._control = control
        self._is_local = is_local
        self._rpcs: Mapping[str, Rpc] = {rpc.path: rpc for rpc in rpcs}
        self._streams: set[OpenStream] = set()
        self._is_closing = False

    def close(self) -> None:
        """End all streams, current and future: their clients get UNAVAILABLE and connect elsewhere."""
        self._is_closing = True
        for stream in tuple(self._streams):
            stream.end()

    def service(self, handler_call_details: grpc.HandlerCallDetails) -> Handler:
        rpc = self._rpcs.get(handler_call_details.method)
        # Registered as streaming, which is the same on the wire: for other RPCs the library reads the request
        # first, and no request may be read before its caller is authenticated.
        return grpc.stream_stream_rpc_method_handler(
            self._refuse if rpc is None else partial(self._serve, rpc)
        )

    async def _refuse(self, _raws: AsyncIterator[bytes], context: Context) -> None:
        try:
            await self._authenticate(context, "")
        except Exception as exc:
            await _abort(context, exc, UNKNOWN)
        unknown = errors.MethodNotFound(
            "this gateway has no such RPC", hint="see `docs/reference/grpc.md` for all RPCs"
        )
        await _abort(context, unknown, UNKNOWN)

    async def _serve(self, rpc: Rpc, raws: AsyncIterator[bytes], context: Context) -> None:
        try:
            principal = await self._admit(rpc, context)
            if rpc.descriptor.client_streaming:
                request: object = (_parse_request(rpc, raw) async for raw in raws)
            else:
                request = _parse_request(rpc, await context.read())
            call = RpcCall(control=self._control, principal=principal, request=request)
            if rpc.descriptor.server_streaming:
                messages = cast("StreamHandler", rpc.handler)(call)
                async with self._open_stream(context) as stream, aclosing(messages):
                    async for message in messages:
                        await stream.write(message.SerializeToString())
                return
            handler = cast("UnaryHandler", rpc.handler)
            if rpc.waits:
                async with self._open_stream(context) as stream:
                    await stream.write((await handler(call)).SerializeToString())
            else:
                await context.write((await handler(call)).SerializeToString())
        except Exception as exc:
            await _abort(context, exc, rpc.path)

    async def _admit(self, rpc: Rpc, context: Context) -> Principal | None:
        if rpc.roles == ANYONE and _authorization(context) is None:
            return None
        principal = await self._authenticate(context, rpc.path)
        if rpc.roles != ANYONE and not any(reaches(principal.role, role) for role in rpc.roles):
            raise errors.Forbidden(f"this requires the role {' or '.join(f'`{role}`' for role in rpc.roles)}")
        return principal

    async def _authenticate(self, context: Context, path: str) -> Principal:
        authorization = _authorization(context)
        if authorization is None and not self._is_local:
            raise errors.Unauthenticated("this gateway requires a key")
        # The address in `ipv4:127.0.0.1:4711` or `ipv6:%5B::1%5D:4711`.
        peer = unquote(context.peer()).partition(":")[2].rpartition(":")[0].strip("[]")
        return await self._control.identities.authenticate(authorization, peer=peer, path=path)

    @asynccontextmanager
    async def _open_stream(self, context: Context) -> AsyncIterator["OpenStream"]:
        """Ends a long response when its credential lapses, or with this listener."""
        identities = self._control.identities
        try:
            async with asyncio.timeout(None) as patience:
                stream = OpenStream(context, patience)
                with identities.hold_credential(_authorization(context), stream.end):
                    self._streams.add(stream)
                    if self._is_closing:
                        stream.end()
                    yield stream
        except TimeoutError as exc:
            if not patience.expired():
                raise
            if self._is_closing:
                raise errors.NotReady("this gateway is shutting down") from exc
            raise credential_lapsed() from exc
        finally:
            self._streams.discard(stream)


class OpenStream:
    """An open stream. It can be ended while it waits for its next message, and after it sent one."""

    __slots__ = ("_context", "_is_over", "_is_writing", "_patience")

    def __init__(self, context: Context, patience: asyncio.Timeout) -> None:
        self._context = context
        self._patience = patience
        self._is_over = False
        self._is_writing = False

    def end(self) -> None:
        """Send no further message."""
        self._is_over = True
        # The library accepts no status during a write, so a write is never interrupted. A client that does
        # not read may delay the end, but gets no message by that.
        if not self._is_writing and not self._patience.expired():
            self._patience.reschedule(asyncio.get_running_loop().time())

    async def write(self, raw: bytes) -> None:
        if self._is_over:
            # `end` came while this message was made: its timeout is due, and must not interrupt a write.
            await asyncio.get_running_loop().create_future()
        self._is_writing = True
        try:
            await self._context.write(raw)
        finally:
            self._is_writing = False
        if self._is_over:
            self.end()


def _authorization(context: Context) -> str | None:
    found = [value for key, value in context.invocation_metadata() or () if key == "authorization"]
    # Two headers are one invalid credential, so a caller cannot try several at once.
    return ", ".join(map(str, found)) if found else None


def _parse_request(rpc: Rpc, raw: object) -> Message:
    if not isinstance(raw, bytes):
        raise errors.ParseFailed("the call has no request message", hint="send one message")
    if len(raw) > rpc.max_bytes:
        raise errors.BodyTooLarge(f"the request is larger than {rpc.max_bytes} bytes")
    try:
        return rpc.request_type.FromString(raw)
    except DecodeError as exc:
        name = rpc.request_type.DESCRIPTOR.full_name
        raise errors.ParseFailed(
            f"the request is not a valid `{name}`", hint="build the client from this gateway's `proto/`"
        ) from exc


async def _abort(context: Context, exc: Exception, name: str) -> NoReturn:
    """End a failed call. An unexpected cause is only logged, once."""
    if not isinstance(exc, errors.ToolgateError):
        _log.error("`%s` failed", name, exc_info=exc)
        exc = errors.ToolgateError("the request failed inside the gateway")
    await context.abort(*encode_status(exc))
