"""The connection of a node to the control plane by gRPC. Only this module of a node knows the library.

It carries a key, so beyond this machine it uses TLS, unless the operator allows plaintext. Every call but the
watch has a deadline, and the watch has bookmarks. A channel that fails is closed, and the next one goes to
the next replica.
"""

import asyncio
import random
import ssl
from collections.abc import (
    AsyncGenerator,
    AsyncIterable,
    AsyncIterator,
    Callable,
    Iterator,
    Mapping,
    Sequence,
)
from contextlib import AbstractContextManager, aclosing, asynccontextmanager, contextmanager
from dataclasses import asdict, dataclass
from types import MappingProxyType
from typing import Any, Final, TypeVar, cast

import grpc
import grpc.aio
import msgspec
from google.protobuf.message import Message

from toolgate import errors
from toolgate.model.http import is_loopback, parse_address
from toolgate.model.reports import Definitions, EndedSession, NodeReport
from toolgate.model.revisions import Body, ChangeBatch, Kind, RecordChange, RecordList, StoredRecord
from toolgate.model.servers import PackageRef
from toolgate.proto import node_pb2
from toolgate.redaction.shapes import redact_text
from toolgate.registry.records.body import printable
from toolgate.registry.records.codec import ID_FIELDS
from toolgate.registry.replication.remote import CALL_TIMEOUT_S
from toolgate.registry.replication.sync import HistoryPosition

LIST_TIMEOUT_S: Final = 60.0  # for `MAX_LISTING_BYTES`, at 4 MiB a second
ARTIFACT_TIMEOUT_S: Final = 120.0  # generous: an archive may come from an object store far away
MAX_MESSAGE_BYTES: Final = 16 * 1024 * 1024  # as the control plane takes at most (`MAX_REPORT_BYTES`)
MAX_LISTING_BYTES: Final = 256 * 1024 * 1024  # of one listing, all its messages. A larger one is no registry
MAX_DETAILS: Final = 300  # characters, of an error: a message for people has a few sentences
_OPTIONS: Final = (
    ("grpc.max_receive_message_length", MAX_MESSAGE_BYTES),
    ("grpc.max_send_message_length", MAX_MESSAGE_BYTES),
    # The sync decides when to reconnect: the library must not wait longer than it.
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 500),
    ("grpc.min_reconnect_backoff_ms", 5_000),  # the deadline of a connection attempt
    ("grpc.enable_retries", 0),
    ("grpc.enable_http_proxy", 0),
    ("grpc.use_local_subchannel_pool", 1),
)
_SERVICE: Final = "/toolgate.v1.NodeService/"
_FAILURES: Final[Mapping[grpc.StatusCode, type[errors.ToolgateError]]] = {
    grpc.StatusCode.UNAUTHENTICATED: errors.Unauthenticated,
    grpc.StatusCode.PERMISSION_DENIED: errors.Forbidden,
    grpc.StatusCode.FAILED_PRECONDITION: errors.Compacted,
    grpc.StatusCode.ABORTED: errors.WatchLagged,
    grpc.StatusCode.NOT_FOUND: errors.NotFound,
}
_HINTS: Final[Mapping[grpc.StatusCode, str]] = {
    grpc.StatusCode.UNAUTHENTICATED: "put a key of role `node` into the file that `control_key_file` names",
    grpc.StatusCode.PERMISSION_DENIED: "give the node a key of role `node`",
    grpc.StatusCode.UNIMPLEMENTED: "set `control` to the gRPC address of `toolgate control`",
}
_UNREADABLE: Final[Body] = MappingProxyType(dict.fromkeys(ID_FIELDS.values()))
"""The body of a record with unreadable JSON. No record parses from it, so it is omitted and reported."""
_decode_object = msgspec.json.Decoder(dict[str, Any]).decode
A = TypeVar("A", bound=Message)


@dataclass(frozen=True, slots=True, kw_only=True)
class ControlAddress:
    """The address of the control plane, and the credentials for it."""

    targets: tuple[str, ...]
    """`HOST:PORT` of each replica."""
    key: str | None = None
    """None: the control plane is on this machine and trusts it."""
    ca: bytes | None = None
    """PEM. None: plain text to this machine, the system's certificate authorities for any other."""
    allows_plaintext: bool = False
    """Plain text to any machine if `ca` is None: for networks with their own encryption."""


@asynccontextmanager
async def open_control_connection(
    address: ControlAddress,
    *,
    jitter: Callable[[], float] = random.random,
    max_listing_bytes: int = MAX_LISTING_BYTES,
) -> AsyncIterator["GrpcControlConnection"]:
    """Open a connection to the control plane. It connects on the first call."""
    # Nodes begin with different replicas, to distribute the load.
    first = int(jitter() * len(address.targets))
    control = GrpcControlConnection(address, first=first, max_listing_bytes=max_listing_bytes)
    try:
        yield control
    finally:
        await control.aclose()


class _ReplicaChannel:
    """A gRPC channel to one replica of the control plane."""

    def __init__(self, target: str, address: ControlAddress) -> None:
        self.target = target
        self._metadata = () if address.key is None else (("authorization", f"Bearer {address.key}"),)
        if is_plaintext(target, address):
            self.channel = grpc.aio.insecure_channel(target, options=_OPTIONS)
        else:
            authorities = load_system_authorities() if address.ca is None else address.ca
            credentials = grpc.ssl_channel_credentials(authorities)
            self.channel = grpc.aio.secure_channel(target, credentials, options=_OPTIONS)

    def stream(
        self, method: str, request: Message, response: type[A], timeout_s: float | None
    ) -> AbstractContextManager[AsyncIterable[A]]:
        """Begin a call that returns a stream, and end it with the block."""
        return self.begin(self.channel.unary_stream, method, request, response, timeout_s)

    def list_records(
        self, timeout_s: float
    ) -> AbstractContextManager[AsyncIterable[node_pb2.ListRecordsResponse]]:
        request = node_pb2.ListRecordsRequest()
        return self.stream("ListRecords", request, node_pb2.ListRecordsResponse, timeout_s)

    @contextmanager
    def begin(
        self, open_method: Any, method: str, request: Message, response: type[A], timeout_s: float | None
    ) -> Iterator[Any]:
        """Yield a call, cancel it with the block, and translate the library's errors."""
        begin = open_method(
            _SERVICE + method,
            request_serializer=type(request).SerializeToString,
            response_deserializer=response.FromString,
        )
        call = begin(request, metadata=self._metadata, timeout=timeout_s)
        try:
            yield call
        except grpc.aio.AioRpcError as exc:
            code = exc.code()
            # The peer is untrusted until it has authenticated.
            details = printable(redact_text((exc.details() or "")[:MAX_DETAILS])) or code.name.lower()
            kind = _FAILURES.get(code, errors.ControlUnavailable)
            raise kind(f"control plane at `{self.target}`: {details}", hint=_HINTS.get(code)) from exc
        except grpc.aio.BaseError as exc:
            raise errors.ControlUnavailable(f"the connection to `{self.target}` failed") from exc
        except asyncio.CancelledError as exc:
            task = asyncio.current_task()
            if task is None or task.cancelling():
                raise
            # The call was cancelled, not this task: its channel was closed meanwhile.
            raise errors.ControlUnavailable(f"the connection to `{self.target}` was closed") from exc
        finally:
            call.cancel()


class GrpcControlConnection:
    """A `ControlConnection` over gRPC."""

    def __init__(self, address: ControlAddress, *, first: int, max_listing_bytes: int) -> None:
        self._address = address
        self._max_listing_bytes = max_listing_bytes
        self._turn = first
        self._open: _ReplicaChannel | None = None

    async def aclose(self) -> None:
        replica, self._open = self._open, None
        if replica is not None:
            await replica.channel.close()

    async def call(
        self, method: str, request: Message, response: type[A], *, timeout_s: float = CALL_TIMEOUT_S
    ) -> A:
        replica = self._replica()
        with replica.begin(replica.channel.unary_unary, method, request, response, timeout_s) as call:
            found: A = await call
            return found

    async def list_records(self) -> RecordList:
        async with self._rotate_on_failure() as replica:
            with replica.list_records(LIST_TIMEOUT_S) as parts:
                return await _collect_listing(replica, parts, self._max_listing_bytes)

    async def newest(self) -> HistoryPosition:
        replica = self._replica()
        with replica.list_records(CALL_TIMEOUT_S) as parts:
            async for part in parts:
                return _position(part)  # leaving the block cancels the rest
        raise errors.ControlUnavailable(f"control plane at `{replica.target}` sent an empty listing")

    @asynccontextmanager
    async def watch_records(self, since: HistoryPosition) -> AsyncIterator[AsyncIterator[ChangeBatch]]:
        request = node_pb2.WatchRecordsRequest(
            epoch=since.epoch, since_revision=since.revision, digest=since.digest
        )
        async with self._rotate_on_failure() as replica:
            with replica.stream("WatchRecords", request, node_pb2.WatchRecordsResponse, None) as responses:
                async with aclosing(_parse_batches(replica, responses)) as batches:
                    yield batches

    async def report(self, report: NodeReport, definitions: Sequence[Definitions]) -> Sequence[str]:
        # Without the time: the control plane adds it by its own clock.
        of_node = ("node_id", "url", "version", "epoch", "revision", "is_degraded")
        of_lists = ("server_id", "digest", "tools", "prompts", "resources", "templates", "quarantined")
        request = node_pb2.ReportRequest(
            **{name: getattr(report, name) for name in of_node},
            servers=[node_pb2.ServerReport(**asdict(server)) for server in report.servers],
            definitions=[
                node_pb2.Definitions(**{name: getattr(one, name) for name in of_lists}) for one in definitions
            ],
        )
        return tuple((await self.call("Report", request, node_pb2.ReportResponse)).wanted)

    def read_artifact(self, package_id: str, ref: PackageRef) -> AsyncGenerator[bytes, None]:
        """Yield the archive of a package in pieces. Raises NotFound. The caller limits the size and checks
        the hash."""
        request = node_pb2.ReadArtifactRequest(package_id=package_id, version=ref.version, sha256=ref.sha256)
        return self._read("ReadArtifact", request, node_pb2.ReadArtifactResponse)

    def read_module(self, sha256: str) -> AsyncGenerator[bytes, None]:
        """Yield a module in pieces, as `read_artifact` does."""
        request = node_pb2.ReadModuleRequest(sha256=sha256)
        return self._read("ReadModule", request, node_pb2.ReadModuleResponse)

    async def _read(self, method: str, request: Message, response: Any) -> AsyncGenerator[bytes, None]:
        with self._replica().stream(method, request, response, ARTIFACT_TIMEOUT_S) as parts:
            async for part in parts:
                yield part.content

    async def sync_sessions(self, ended: Sequence[EndedSession], after_ms: int) -> Sequence[EndedSession]:
        """Report sessions that ended here. Returns those that ended anywhere since `after_ms`."""
        request = node_pb2.SyncSessionsRequest(
            ended=[node_pb2.EndedSession(nonce=one.nonce, until_ms=one.until_ms) for one in ended],
            after_ms=after_ms,
        )
        response = await self.call("SyncSessions", request, node_pb2.SyncSessionsResponse)
        return [EndedSession(one.nonce, one.until_ms, one.at_ms) for one in response.ended]

    async def record_events(self, request: node_pb2.RecordEventsRequest) -> int:
        """Send a piece of this node's audit log. Returns the number up to which the control plane has it."""
        return int((await self.call("RecordEvents", request, node_pb2.RecordEventsResponse)).taken)

    def _replica(self) -> _ReplicaChannel:
        """Return the open channel, or open one to the next replica."""
        if self._open is None:
            targets = self._address.targets
            self._open = _ReplicaChannel(targets[self._turn % len(targets)], self._address)
        return self._open

    @asynccontextmanager
    async def _rotate_on_failure(self) -> AsyncIterator[_ReplicaChannel]:
        """Yield the channel, and close it if the block fails: its connection may be dead without notice."""
        replica = self._replica()
        try:
            yield replica
        except (errors.Compacted, errors.WatchLagged):
            raise
        except BaseException:
            if replica is self._open:
                self._turn += 1
                await self.aclose()
            raise


async def _collect_listing(
    replica: _ReplicaChannel, parts: AsyncIterable[node_pb2.ListRecordsResponse], max_bytes: int
) -> RecordList:
    """Join the parts of a listing. Raises ControlUnavailable unless it is complete."""
    records: list[StoredRecord] = []
    position: HistoryPosition | None = None
    size = 0
    async for part in parts:
        if position not in {None, _position(part)}:
            raise errors.ControlUnavailable(f"control plane at `{replica.target}` mixed two listings")
        position = _position(part)
        size += part.ByteSize()
        if size > max_bytes:
            raise errors.ControlUnavailable(
                f"control plane at `{replica.target}` lists more than {max_bytes} bytes"
            )
        records += (_parse_record(record, part.revision) for record in part.records)
        if part.is_last:
            return RecordList(
                epoch=part.epoch, revision=part.revision, digest=part.digest, records=tuple(records)
            )
    raise errors.ControlUnavailable(f"the listing of the control plane at `{replica.target}` is incomplete")


def _position(part: node_pb2.ListRecordsResponse) -> HistoryPosition:
    return HistoryPosition(part.epoch, part.revision, part.digest)


async def _parse_batches(
    replica: _ReplicaChannel, responses: AsyncIterable[node_pb2.WatchRecordsResponse]
) -> AsyncGenerator[ChangeBatch, None]:
    async for response in responses:
        changes = tuple(_parse_change(record, response.revision) for record in response.changes)
        yield ChangeBatch(revision=response.revision, changes=changes, digest=response.digest)
    raise errors.ControlUnavailable(f"control plane at `{replica.target}` ended the watch")


def _parse_record(record: node_pb2.Record, revision: int) -> StoredRecord:
    # A kind of a newer control plane passes here; the parser of records skips it.
    return StoredRecord(
        kind=cast("Kind", record.kind),
        id=record.id,
        body=_parse_body(record.body),
        revision=revision,
        updated_at_ms=0,
    )


def _parse_change(record: node_pb2.Record, revision: int) -> RecordChange:
    after = _parse_body(record.body) if record.HasField("body") else None
    return RecordChange(
        revision=revision,
        kind=cast("Kind", record.kind),
        id=record.id,
        operation="delete" if after is None else "put",
        actor="",
        at_ms=0,
        before=None,
        after=after,
    )


def _parse_body(raw: bytes) -> Body:
    try:
        return _decode_object(raw)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return _UNREADABLE


def is_plaintext(target: str, address: ControlAddress) -> bool:
    return address.ca is None and (address.allows_plaintext or is_loopback(parse_address(target)[0]))


def load_system_authorities() -> bytes | None:
    """Return the system's certificate authorities as PEM. None if it has none: the library has its own."""
    trusted = ssl.create_default_context().get_ca_certs(binary_form=True)
    return "".join(map(ssl.DER_cert_to_PEM_cert, trusted)).encode() or None
