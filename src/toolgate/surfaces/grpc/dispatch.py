"""What an RPC is, the one way every RPC takes to its handler, and the one translation of errors to statuses.

An RPC is a row of a table; the definitions in `proto/` have the rest of it. Credential, role, size and form
are checked here and nowhere else, so a new row cannot forget them. A caller without a valid credential cannot
tell an RPC from one that does not exist. Status and details of an error are for every client; the trailing
metadata has its code, and all of it as JSON.
"""

import asyncio
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass
from functools import cache, cached_property, partial
from typing import Any, Final, Generic, NamedTuple, NoReturn, TypeAlias, TypeVar, cast
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
"""The roles of an RPC that needs no credential. A wrong one is still refused there."""
MAX_REQUEST_BYTES: Final = 4 * 1024 * 1024  # as a body of REST


@dataclass(frozen=True, slots=True, kw_only=True)
class RpcCall(Generic[R]):
    """A call that passed every check of its row."""

    control: Control
    principal: Principal | None
    """None only where the RPC is for anyone and no credential was sent."""
    request: R
    """The message; where the client streams, all of them."""

    @property
    def caller(self) -> Principal:
        """The principal, on every RPC that has a role."""
        assert self.principal is not None
        return self.principal


UnaryHandler: TypeAlias = Callable[[RpcCall[Any]], Awaitable[Message]]
StreamHandler: TypeAlias = Callable[[RpcCall[Any]], AsyncGenerator[Message, None]]


@dataclass(frozen=True, kw_only=True)
class Rpc:
    """One row of the table. Its handler parses nothing, catches nothing."""

    service: str
    method: str
    roles: tuple[Role, ...]
    """Any of these, or one above it, is enough."""
    handler: UnaryHandler | StreamHandler
    """Its docstring is the description in the reference."""
    max_bytes: int = MAX_REQUEST_BYTES
    """The largest request."""
    waits: bool = False
    """Whether it may wait for long before it answers. It then ends with its listener, as a stream does."""

    @property
    def path(self) -> str:
        return f"/{self.service}/{self.method}"

    @cached_property
    def descriptor(self) -> MethodDescriptor:
        """What the definitions say of it. Raises KeyError where they do not know it."""
        return descriptor_pool.Default().FindServiceByName(self.service).methods_by_name[self.method]

    @cached_property
    def request_type(self) -> type[Message]:
        return GetMessageClass(self.descriptor.input_type)


@cache
def response_type(service: str, method: str) -> type[Message]:
    """The message that an RPC responds with."""
    found = descriptor_pool.Default().FindServiceByName(service).methods_by_name[method]
    return GetMessageClass(found.output_type)


def rpc(
    service: str, method: str, *roles: Role, **options: Any
) -> Callable[[UnaryHandler | StreamHandler], Rpc]:
    """A decorator that makes an RPC of its handler."""
    return lambda handler: Rpc(service=service, method=method, roles=roles, handler=handler, **options)


def node_rpc(method: str, **options: Any) -> Callable[[UnaryHandler | StreamHandler], Rpc]:
    """The same, of the service for nodes."""
    return rpc("toolgate.v1.NodeService", method, "node", **options)


CODE_KEY: Final = "toolgate-code"
ERROR_KEY: Final = "toolgate-error-bin"
MAX_DETAILS: Final = 2_000  # characters of the message and its hint; see `MAX_ERROR_BYTES`
MAX_ERROR_BYTES: Final = 4_000
"""Clients take 8 KiB of metadata in all: past that they would see another error than ours."""


class GrpcStatus(NamedTuple):
    """How a call ends."""

    code: grpc.StatusCode
    details: str
    metadata: tuple[tuple[str, str | bytes], ...]


def encode_status(exc: errors.ToolgateError) -> GrpcStatus:
    """The status, the words, and the metadata of an error."""
    message = str(exc)
    encoded = msgspec.json.encode(exc.detail)
    if len(encoded) > MAX_ERROR_BYTES:
        cut = {"code": exc.code, "message": message[: MAX_DETAILS // 2], "hint": exc.hint}
        encoded = msgspec.json.encode(cut)
    return GrpcStatus(
        code=grpc.StatusCode[exc.wire.grpc],
        details=f"{message}; {exc.hint}"[:MAX_DETAILS],
        metadata=((CODE_KEY, exc.code), (ERROR_KEY, encoded)),
    )


Context: TypeAlias = "grpc.aio.ServicerContext[bytes, bytes]"
Handler: TypeAlias = "grpc.RpcMethodHandler[bytes, bytes]"

UNKNOWN: Final = "an unknown RPC"
"""Stands in the log for what a caller wrote there: it could be anything."""

_log: Final = logging.getLogger(__name__)


class RpcDispatcher(grpc.GenericRpcHandler):
    """All RPCs of a table over `control`, for one listener. The library is handed bytes, not messages."""

    def __init__(self, control: Control, rpcs: Sequence[Rpc], *, is_local: bool) -> None:
        """`is_local`: only this machine can call, so a caller without a credential may be trusted."""
        self._control = control
        self._is_local = is_local
        self._rpcs: Mapping[str, Rpc] = {rpc.path: rpc for rpc in rpcs}
        self._streams: set[OpenStream] = set()
        self._is_closing = False

    def close(self) -> None:
        """End every stream, and those to come: their clients are told to look elsewhere."""
        self._is_closing = True
        for stream in tuple(self._streams):
            stream.end()

    def service(self, handler_call_details: grpc.HandlerCallDetails) -> Handler:
        rpc = self._rpcs.get(handler_call_details.method)
        # To the library every RPC streams, which on the wire is no difference: it reads the request of others
        # before it asks us, and nothing is to be read for a stranger.
        return grpc.stream_stream_rpc_method_handler(
            self._refuse if rpc is None else partial(self._serve, rpc)
        )

    async def _refuse(self, _raws: AsyncIterator[bytes], context: Context) -> None:
        try:
            await self._authenticate(context, "")
        except Exception as exc:
            await _abort(context, exc, UNKNOWN)
        unknown = errors.MethodNotFound(
            "this gateway has no such RPC", hint="see the reference for those there are"
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
            raise errors.Forbidden(f"this needs the role {' or '.join(f'`{role}`' for role in rpc.roles)}")
        return principal

    async def _authenticate(self, context: Context, path: str) -> Principal:
        authorization = _authorization(context)
        if authorization is None and not self._is_local:
            raise errors.Unauthenticated("this gateway requires a key")
        return await self._control.identities.authenticate(authorization, peer=_peer(context), path=path)

    @asynccontextmanager
    async def _open_stream(self, context: Context) -> AsyncIterator["OpenStream"]:
        """Ends what outlives its request with the credential it rests on, or with this listener."""
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
    """One that is open. It can be ended while it waits for its next message, and after one was sent."""

    __slots__ = ("_context", "_is_over", "_is_writing", "_patience")

    def __init__(self, context: Context, patience: asyncio.Timeout) -> None:
        self._context = context
        self._patience = patience
        self._is_over = False
        self._is_writing = False

    def end(self) -> None:
        """Have no further message sent."""
        self._is_over = True
        # The library takes no status for a call while it is at writing, so that is never interrupted. A
        # reader that does not read may hold it up, but gets nothing by that.
        if not self._is_writing and not self._patience.expired():
            self._patience.reschedule(asyncio.get_running_loop().time())

    async def write(self, raw: bytes) -> None:
        self._is_writing = True
        try:
            await self._context.write(raw)
        finally:
            self._is_writing = False
        if self._is_over:
            self.end()


def _authorization(context: Context) -> str | None:
    found = [value for key, value in context.invocation_metadata() or () if key == "authorization"]
    # Two of them are one wrong credential: no one picks the one that passes.
    return ", ".join(map(str, found)) if found else None


def _peer(context: Context) -> str:
    """The address at the other end, out of `ipv4:127.0.0.1:4711` or `ipv6:%5B::1%5D:4711`."""
    return unquote(context.peer()).partition(":")[2].rpartition(":")[0].strip("[]")


def _parse_request(rpc: Rpc, raw: object) -> Message:
    if not isinstance(raw, bytes):
        raise errors.ParseFailed("there is no request", hint="send one message")
    if len(raw) > rpc.max_bytes:
        raise errors.BodyTooLarge(f"the request is larger than {rpc.max_bytes} bytes")
    try:
        return rpc.request_type.FromString(raw)
    except DecodeError as exc:
        name = rpc.request_type.DESCRIPTOR.full_name
        raise errors.ParseFailed(
            f"the request is no `{name}`", hint="build the client from this gateway's `proto/`"
        ) from exc


async def _abort(context: Context, exc: Exception, name: str) -> NoReturn:
    """End a failed call. An unexpected cause goes to the log only, once."""
    if not isinstance(exc, errors.ToolgateError):
        _log.error("`%s` failed", name, exc_info=exc)
        exc = errors.ToolgateError("the request failed inside the gateway")
    await context.abort(*encode_status(exc))
