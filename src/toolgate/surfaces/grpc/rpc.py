"""What an RPC is: a row of a table. The definitions in `proto/` have the rest of it."""

from collections.abc import AsyncGenerator, Awaitable, Callable
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Any, Final, Generic, TypeAlias, TypeVar

from google.protobuf import descriptor_pool
from google.protobuf.descriptor import MethodDescriptor
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass

from toolgate.govern.control import Control
from toolgate.model.principals import Principal, Role

R = TypeVar("R")

ANYONE: Final[tuple[Role, ...]] = ()
"""The roles of an RPC that needs no credential. A wrong one is still refused there."""
MAX_REQUEST_BYTES: Final = 4 * 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class RpcCall(Generic[R]):
    """A call that passed every check of its row."""

    principal: Principal | None
    """None only where the RPC is for anyone and no credential was sent."""
    request: R
    """The message; where the client streams, all of them."""

    @property
    def caller(self) -> Principal:
        """The principal, on every RPC that has a role."""
        assert self.principal is not None
        return self.principal


UnaryHandler: TypeAlias = Callable[[Control, RpcCall[Any]], Awaitable[Message]]
StreamHandler: TypeAlias = Callable[[Control, RpcCall[Any]], AsyncGenerator[Message, None]]


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
