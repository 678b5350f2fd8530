"""Control by gRPC. The only module of a node that knows the library.

A key goes over the line, so a line beyond this machine is TLS unless the operator insists. Every request but
the watch has a deadline, and the watch its bookmarks. A line that fails is given up, with the connection
under it, and the next one is opened: to the next replica, where control has several.
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
from contextlib import aclosing, asynccontextmanager, contextmanager
from dataclasses import asdict, dataclass
from types import MappingProxyType
from typing import Any, Final, Protocol, TypeVar, cast

import grpc
import grpc.aio
import msgspec
from google.protobuf.message import Message

from toolgate.errors import (
    Compacted,
    ControlUnavailable,
    Forbidden,
    NotFound,
    ToolgateError,
    Unauthenticated,
    WatchLagged,
)
from toolgate.model.http import is_loopback, parse_address
from toolgate.model.packages import PackageRef
from toolgate.model.reports import Definitions, EndedSession, NodeReport
from toolgate.model.revisions import Body, ChangeBatch, Kind, RecordChange, RecordList, StoredRecord
from toolgate.proto import node_pb2
from toolgate.redaction.text import redact_text
from toolgate.registry.records.body import printable
from toolgate.registry.records.codec import ID_FIELDS
from toolgate.registry.replication.sync import HistoryPosition

LIST_TIMEOUT_S: Final = 60.0
CALL_TIMEOUT_S: Final = 10.0
ARTIFACT_TIMEOUT_S: Final = 120.0
MAX_MESSAGE_BYTES: Final = 16 * 1024 * 1024
MAX_LISTING_BYTES: Final = 256 * 1024 * 1024
"""Bodies of all records together; more is no registry."""
MAX_DETAILS: Final = 300

_OPTIONS: Final = (
    ("grpc.max_receive_message_length", MAX_MESSAGE_BYTES),
    ("grpc.max_send_message_length", MAX_MESSAGE_BYTES),
    # When to try again is for the sync to say: the library merely must not wait longer than it.
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 500),
    ("grpc.min_reconnect_backoff_ms", 5_000),  # how long a connection may take to be made
    ("grpc.enable_retries", 0),
    ("grpc.enable_http_proxy", 0),
    ("grpc.use_local_subchannel_pool", 1),
)
_SERVICE: Final = "/toolgate.v1.NodeService/"
_FAILURES: Final[Mapping[grpc.StatusCode, type[ToolgateError]]] = {
    grpc.StatusCode.UNAUTHENTICATED: Unauthenticated,
    grpc.StatusCode.PERMISSION_DENIED: Forbidden,
    grpc.StatusCode.FAILED_PRECONDITION: Compacted,
    grpc.StatusCode.ABORTED: WatchLagged,
    grpc.StatusCode.NOT_FOUND: NotFound,
}
_HINTS: Final[Mapping[grpc.StatusCode, str]] = {
    grpc.StatusCode.UNAUTHENTICATED: "put a key of role `node` into the file that `control_key_file` names",
    grpc.StatusCode.PERMISSION_DENIED: "give the node a key of role `node`",
    grpc.StatusCode.UNIMPLEMENTED: "`control` must name the gRPC address of `toolgate control`",
}
_UNREADABLE: Final[Body] = MappingProxyType(dict.fromkeys(ID_FIELDS.values()))
"""Stands for a body that is no JSON object. Nothing parses from it: the record is left out and reported."""

_decode_object = msgspec.json.Decoder(dict[str, Any]).decode
Q = TypeVar("Q", bound=Message)
A = TypeVar("A", bound=Message)
C = TypeVar("C", bound="_Cancellable")


class _Cancellable(Protocol):
    def cancel(self) -> bool:
        """End it, if it has not ended."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ControlAddress:
    """Where control is, and how to prove oneself there."""

    targets: tuple[str, ...]
    """`HOST:PORT` of each replica."""
    key: str | None = None
    """None: for a control on this machine that trusts it."""
    ca: bytes | None = None
    """PEM. None: plain text to this machine, the authorities of the system for any other."""
    allows_plaintext: bool = False
    """Plain text to any machine, where no `ca` is given: for networks that encrypt by themselves."""


@asynccontextmanager
async def open_control_connection(
    address: ControlAddress, *, jitter: Callable[[], float] = random.random
) -> AsyncIterator["GrpcControlConnection"]:
    """A link to control. Opening it connects to nobody yet."""
    # Nodes begin at different replicas, so that these share the load.
    link = GrpcControlConnection(address, first=int(jitter() * len(address.targets)))
    try:
        yield link
    finally:
        await link.aclose()


class _ReplicaChannel:
    """A connection to one replica of control."""

    def __init__(self, target: str, address: ControlAddress) -> None:
        self.target = target
        self.channel = _open_channel(target, address)
        self.list_records = self._streamed(
            "ListRecords", node_pb2.ListRecordsRequest, node_pb2.ListRecordsResponse
        )
        self.watch_records = self._streamed(
            "WatchRecords", node_pb2.WatchRecordsRequest, node_pb2.WatchRecordsResponse
        )
        self.report = self._single("Report", node_pb2.ReportRequest, node_pb2.ReportResponse)
        self.read_artifact = self._streamed(
            "ReadArtifact", node_pb2.ReadArtifactRequest, node_pb2.ReadArtifactResponse
        )
        self.read_module = self._streamed(
            "ReadModule", node_pb2.ReadModuleRequest, node_pb2.ReadModuleResponse
        )
        self.claim_invocations = self._single(
            "ClaimInvocations", node_pb2.ClaimInvocationsRequest, node_pb2.ClaimInvocationsResponse
        )
        self.report_invocation = self._single(
            "ReportInvocation", node_pb2.ReportInvocationRequest, node_pb2.ReportInvocationResponse
        )
        self.record_events = self._single(
            "RecordEvents", node_pb2.RecordEventsRequest, node_pb2.RecordEventsResponse
        )
        self.ask_approval = self._single(
            "AskApproval", node_pb2.AskApprovalRequest, node_pb2.AskApprovalResponse
        )
        self.decide_approval = self._single(
            "DecideApproval", node_pb2.DecideApprovalRequest, node_pb2.AskApprovalResponse
        )
        self.spend = self._single("Spend", node_pb2.SpendRequest, node_pb2.SpendResponse)
        self.sync_sessions = self._single(
            "SyncSessions", node_pb2.SyncSessionsRequest, node_pb2.SyncSessionsResponse
        )

    def _single(
        self, method: str, request: type[Q], response: type[A]
    ) -> "grpc.aio.UnaryUnaryMultiCallable[Q, A]":
        return self.channel.unary_unary(
            f"{_SERVICE}{method}",
            request_serializer=request.SerializeToString,
            response_deserializer=response.FromString,
        )

    def _streamed(
        self, method: str, request: type[Q], response: type[A]
    ) -> "grpc.aio.UnaryStreamMultiCallable[Q, A]":
        return self.channel.unary_stream(
            f"{_SERVICE}{method}",
            request_serializer=request.SerializeToString,
            response_deserializer=response.FromString,
        )


class GrpcControlConnection:
    """A `ControlConnection` over gRPC."""

    def __init__(self, address: ControlAddress, *, first: int = 0) -> None:
        self._address = address
        self._turn = first
        self._open: _ReplicaChannel | None = None
        self._metadata = () if address.key is None else (("authorization", f"Bearer {address.key}"),)

    async def aclose(self) -> None:
        """End all that is under way."""
        line, self._open = self._open, None
        if line is not None:
            await line.channel.close()

    async def list_records(self) -> RecordList:
        async with self._rotate_on_failure() as line:
            with _translate_call_errors(line, self._list(line)) as parts:
                return await _collect_listing(line, parts)

    async def newest(self) -> HistoryPosition:
        line = self._line()
        with _translate_call_errors(line, self._list(line, timeout_s=CALL_TIMEOUT_S)) as parts:
            async for part in parts:
                return _position(part)  # the rest is not sent any more
        raise ControlUnavailable(f"control at `{line.target}` lists nothing")

    @asynccontextmanager
    async def watch_records(self, since: HistoryPosition) -> AsyncIterator[AsyncIterator[ChangeBatch]]:
        request = node_pb2.WatchRecordsRequest(
            epoch=since.epoch, since_revision=since.revision, digest=since.digest
        )
        async with self._rotate_on_failure() as line:
            call = line.watch_records(request, metadata=self._metadata)
            with _translate_call_errors(line, call) as responses:
                async with aclosing(_parse_batches(line, responses)) as batches:
                    yield batches

    async def report(self, report: NodeReport, definitions: Sequence[Definitions]) -> Sequence[str]:
        answer = await self._ask(lambda line: line.report, encode_report(report, definitions))
        return tuple(answer.wanted)

    async def read_artifact(self, package_id: str, ref: PackageRef) -> AsyncGenerator[bytes, None]:
        """The archive of a package, in pieces. Raises NotFound where control has none of that hash.

        Whoever reads bounds what it takes and checks the hash.
        """
        line = self._line()
        request = node_pb2.ReadArtifactRequest(package_id=package_id, version=ref.version, sha256=ref.sha256)
        call = line.read_artifact(request, metadata=self._metadata, timeout=ARTIFACT_TIMEOUT_S)
        with _translate_call_errors(line, call) as parts:
            async for part in parts:
                yield part.content

    async def read_module(self, sha256: str) -> AsyncGenerator[bytes, None]:
        """A module, in pieces. Raises NotFound where control has none. Whoever reads bounds and checks it."""
        line = self._line()
        request = node_pb2.ReadModuleRequest(sha256=sha256)
        call = line.read_module(request, metadata=self._metadata, timeout=ARTIFACT_TIMEOUT_S)
        with _translate_call_errors(line, call) as parts:
            async for part in parts:
                yield part.content

    async def claim_invocations(
        self, request: node_pb2.ClaimInvocationsRequest
    ) -> node_pb2.ClaimInvocationsResponse:
        """Invocations for this node to run; see `RemoteInvocations`."""
        timeout_s = CALL_TIMEOUT_S + request.wait_ms / 1000
        return await self._ask(lambda line: line.claim_invocations, request, timeout_s=timeout_s)

    async def report_invocation(
        self, request: node_pb2.ReportInvocationRequest
    ) -> node_pb2.ReportInvocationResponse:
        """What control says of an invocation that this node runs; see `RemoteInvocations`."""
        return await self._ask(lambda line: line.report_invocation, request)

    async def ask_approval(self, request: node_pb2.AskApprovalRequest) -> node_pb2.AskApprovalResponse:
        """What control says of a call that needs an approval; see `RemoteApprovals`."""
        return await self._ask(lambda line: line.ask_approval, request)

    async def decide_approval(self, request: node_pb2.DecideApprovalRequest) -> node_pb2.AskApprovalResponse:
        """What control says of a call whose approval was asked for in place; see `RemoteApprovals`."""
        return await self._ask(lambda line: line.decide_approval, request)

    async def spend(self, request: node_pb2.SpendRequest) -> node_pb2.SpendResponse:
        """What control grants of budgets over time; see `RemoteQuotas`."""
        return await self._ask(lambda line: line.spend, request)

    async def sync_sessions(self, ended: Sequence[EndedSession], after_ms: int) -> Sequence[EndedSession]:
        """Tell of sessions that were ended here; those that were ended anywhere, from then on."""
        request = node_pb2.SyncSessionsRequest(
            ended=[node_pb2.EndedSession(nonce=one.nonce, until_ms=one.until_ms) for one in ended],
            after_ms=after_ms,
        )
        answer = await self._ask(lambda line: line.sync_sessions, request)
        return [EndedSession(one.nonce, one.until_ms, one.at_ms) for one in answer.ended]

    async def record_events(self, request: node_pb2.RecordEventsRequest) -> int:
        """Hand over a piece of this node's audit log; the number up to which control has it by now."""
        return int((await self._ask(lambda line: line.record_events, request)).taken)

    async def _ask(
        self,
        method: Callable[[_ReplicaChannel], "grpc.aio.UnaryUnaryMultiCallable[Q, A]"],
        request: Q,
        *,
        timeout_s: float = CALL_TIMEOUT_S,
    ) -> A:
        line = self._line()
        call = method(line)(request, metadata=self._metadata, timeout=timeout_s)
        with _translate_call_errors(line, call):
            return await call

    def _list(
        self, line: _ReplicaChannel, *, timeout_s: float = LIST_TIMEOUT_S
    ) -> grpc.aio.UnaryStreamCall[node_pb2.ListRecordsRequest, node_pb2.ListRecordsResponse]:
        request = node_pb2.ListRecordsRequest()
        return line.list_records(request, metadata=self._metadata, timeout=timeout_s)

    def _line(self) -> _ReplicaChannel:
        """The one that is open, or a new one to the replica whose turn it is."""
        if self._open is None:
            targets = self._address.targets
            self._open = _ReplicaChannel(targets[self._turn % len(targets)], self._address)
        return self._open

    @asynccontextmanager
    async def _rotate_on_failure(self) -> AsyncIterator[_ReplicaChannel]:
        """The line, given up where the block fails: its connection may be dead, and nobody has noticed."""
        line = self._line()
        try:
            yield line
        except (Compacted, WatchLagged):
            raise
        except BaseException:
            if line is self._open:
                self._turn += 1
                await self.aclose()
            raise


@contextmanager
def _translate_call_errors(line: _ReplicaChannel, call: C) -> Iterator[C]:
    """The call, ended with the block, and what goes wrong in our terms."""
    try:
        yield call
    except grpc.aio.AioRpcError as exc:
        raise _translate_status(line, exc) from exc
    except grpc.aio.BaseError as exc:
        raise ControlUnavailable(f"the line to `{line.target}` failed") from exc
    except asyncio.CancelledError as exc:
        task = asyncio.current_task()
        if task is None or task.cancelling():
            raise
        # Not our task was cancelled but the call: its line was given up meanwhile.
        raise ControlUnavailable(f"the line to `{line.target}` was given up") from exc
    finally:
        call.cancel()


def _translate_status(line: _ReplicaChannel, exc: grpc.aio.AioRpcError) -> ToolgateError:
    code = exc.code()
    # What the other end says is a stranger's word until it has proved otherwise.
    details = printable(redact_text((exc.details() or "")[:MAX_DETAILS]))
    kind = _FAILURES.get(code, ControlUnavailable)
    return kind(f"control at `{line.target}`: {details or code.name.lower()}", hint=_HINTS.get(code))


async def _collect_listing(
    line: _ReplicaChannel, parts: AsyncIterable[node_pb2.ListRecordsResponse]
) -> RecordList:
    """All parts of a listing as one; part of it is no listing."""
    records: list[StoredRecord] = []
    position: HistoryPosition | None = None
    size = 0
    async for part in parts:
        if position not in {None, _position(part)}:
            raise ControlUnavailable(f"control at `{line.target}` mixed two listings")
        position = _position(part)
        size += part.ByteSize()
        if size > MAX_LISTING_BYTES:
            raise ControlUnavailable(f"control at `{line.target}` lists more than {MAX_LISTING_BYTES} bytes")
        records += (_parse_record(record, part.revision) for record in part.records)
        if part.is_last:
            return RecordList(
                epoch=part.epoch, revision=part.revision, digest=part.digest, records=tuple(records)
            )
    raise ControlUnavailable(f"the listing of control at `{line.target}` broke off")


def _position(part: node_pb2.ListRecordsResponse) -> HistoryPosition:
    return HistoryPosition(part.epoch, part.revision, part.digest)


async def _parse_batches(
    line: _ReplicaChannel, responses: AsyncIterable[node_pb2.WatchRecordsResponse]
) -> AsyncGenerator[ChangeBatch, None]:
    async for response in responses:
        changes = tuple(_parse_change(record, response.revision) for record in response.changes)
        yield ChangeBatch(revision=response.revision, changes=changes, digest=response.digest)
    raise ControlUnavailable(f"control at `{line.target}` has ended the watch")


def _parse_record(record: node_pb2.Record, revision: int) -> StoredRecord:
    # A kind of a newer control passes here; whoever parses records passes over it.
    return StoredRecord(
        kind=cast("Kind", record.kind),
        id=record.id,
        body=_parse_body(record.body),
        revision=revision,
        updated_at_ms=0,
    )


def _parse_change(record: node_pb2.Record, revision: int) -> RecordChange:
    is_put = record.HasField("body")
    return RecordChange(
        revision=revision,
        kind=cast("Kind", record.kind),
        id=record.id,
        operation="put" if is_put else "delete",
        actor="",
        at_ms=0,
        before=None,
        after=_parse_body(record.body) if is_put else None,
    )


def _parse_body(raw: bytes) -> Body:
    try:
        return _decode_object(raw)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return _UNREADABLE


def encode_report(report: NodeReport, definitions: Sequence[Definitions]) -> node_pb2.ReportRequest:
    """What goes over the line; control knows the time by its own clock."""
    return node_pb2.ReportRequest(
        node_id=report.node_id,
        url=report.url,
        version=report.version,
        epoch=report.epoch,
        revision=report.revision,
        is_degraded=report.is_degraded,
        servers=[node_pb2.ServerReport(**asdict(server)) for server in report.servers],
        definitions=[
            node_pb2.Definitions(
                server_id=one.server_id,
                digest=one.digest,
                tools=one.tools,
                prompts=one.prompts,
                resources=one.resources,
                templates=one.templates,
                quarantined=one.quarantined,
            )
            for one in definitions
        ],
    )


def _open_channel(target: str, address: ControlAddress) -> grpc.aio.Channel:
    if is_plaintext(target, address):
        return grpc.aio.insecure_channel(target, options=_OPTIONS)
    authorities = load_system_authorities() if address.ca is None else address.ca
    return grpc.aio.secure_channel(target, grpc.ssl_channel_credentials(authorities), options=_OPTIONS)


def is_plaintext(target: str, address: ControlAddress) -> bool:
    """Whether the line to `target` is not encrypted."""
    return address.ca is None and (address.allows_plaintext or is_loopback(parse_address(target)[0]))


def load_system_authorities() -> bytes | None:
    """Those the machine trusts, in PEM. None, where it names none: the library brings some of its own."""
    trusted = ssl.create_default_context().get_ca_certs(binary_form=True)
    return "".join(map(ssl.DER_cert_to_PEM_cert, trusted)).encode() or None
