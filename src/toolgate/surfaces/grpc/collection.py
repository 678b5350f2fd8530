"""The four RPCs that servers, tasks, profiles and pins share, and the RPCs by which nodes follow all records.

List, watch, upsert and delete: SPEAR's service for servers, and equal services for the other kinds. A watch
sends the ids of changed records, never the records, and bookmarks while nothing changes. Nodes, with the role
`node` only, follow all records as stored, including secrets, and read archives and modules.

Records become messages and messages records by their members alone; `govern` decides what may be stored. An
unset field of a message means the default, and is left out of the body. So an empty command is a missing one,
and a limit of 0 is the default and never zero.
"""

import asyncio
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing, nullcontext, suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message

from toolgate.errors import Compacted, NotFound, StorageUnavailable
from toolgate.govern.changes.commit import commit_changes
from toolgate.govern.changes.permissions import WRITER_ROLES
from toolgate.govern.changes.records import PendingChange, fill_defaults, parse_sent_id, show_record
from toolgate.govern.watches import filter_batch
from toolgate.model.principals import Role
from toolgate.model.revisions import Body, ChangeBatch, Kind, RecordList
from toolgate.proto import mcp_registry_pb2 as sms
from toolgate.proto import node_pb2
from toolgate.proto import policy_pb2 as policy
from toolgate.registry.records.codec import ID_FIELDS, parse_id
from toolgate.registry.records.transaction import encode_body
from toolgate.registry.replication.sync import HistoryPosition
from toolgate.registry.store.sql_store import Store
from toolgate.surfaces.grpc.dispatch import Rpc, RpcCall, node_rpc, response_type, rpc

BOOKMARK_S: Final = 5.0
"""The pause between bookmarks. A watcher that gets nothing for much longer has lost its connection."""


async def watch_batches(
    store: Store, since: HistoryPosition, *, kind: Kind | None = None, idle_s: float = BOOKMARK_S
) -> AsyncGenerator[ChangeBatch, None]:
    """Batches of `kind` after `since` (None: of all kinds); see `Store.watch`.

    A bookmark follows the replay, and later each `idle_s` without a batch. Raises Compacted if the epoch is
    neither the store's nor empty. Raises StorageUnavailable when a bookmark is due and this process cannot
    tell whether another replica has committed.
    """
    if since.epoch and since.epoch != store.epoch:
        raise Compacted("the epoch belongs to another history of the registry")
    now_s = asyncio.get_running_loop().time
    due_s: float | None = None  # no bookmark is due before the replay has ended
    idle = ChangeBatch(revision=since.revision, digest=since.digest)
    async with store.watch(since.revision, since.digest) as batches:
        while True:
            batch: ChangeBatch | None = idle
            # Cancelling a watch that waits loses nothing: its cursor moves only when it returns a batch.
            with suppress(TimeoutError):
                async with asyncio.timeout_at(due_s):
                    batch = await anext(batches, None)
            if batch is None:  # the store was closed
                return
            idle = ChangeBatch(revision=batch.revision, digest=batch.digest)
            narrowed = batch if kind is None else filter_batch(batch, (kind,))
            is_bookmark = not batch.changes
            if is_bookmark and not store.is_current:
                raise StorageUnavailable("the control plane has lost its database")
            if is_bookmark or narrowed.changes or (due_s is not None and due_s <= now_s()):
                yield narrowed
                due_s = now_s() + idle_s if is_bookmark or due_s is not None else None


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordService:
    """The service for records of one kind. Its methods are handlers."""

    kind: Kind
    service: str
    noun: str
    """The last part of its RPCs' names."""
    sent: str
    """The field of an upsert with the record."""
    id_field: str
    """The field of a delete with the id."""
    readers: tuple[Role, ...] = ("viewer",)

    def rpcs(self) -> tuple[Rpc, Rpc, Rpc, Rpc]:
        """The rows of the service."""
        writer = WRITER_ROLES[self.kind]
        return (
            rpc(self.service, f"List{self.noun}s", *self.readers)(self.list),
            rpc(self.service, f"Watch{self.noun}s", *self.readers)(self.watch),
            rpc(self.service, f"Upsert{self.noun}", writer)(self.upsert),
            rpc(self.service, f"Delete{self.noun}", writer)(self.delete),
        )

    async def list(self, call: RpcCall[Any]) -> Message:
        """All records, sorted by id, at one revision. Secrets are masked, except for a node."""
        asked, store = call.request, call.control.store
        is_newest = (asked.epoch, asked.since_revision) == (store.epoch, store.revision)
        if asked.may_omit_unchanged and is_newest and asked.digest in ("", store.digest):
            members = {"revision": asked.since_revision, "epoch": asked.epoch, "digest": store.digest}
            return self._response(f"List{self.noun}s", **members, unchanged=True)
        listing = await store.list(self.kind)
        # In a thread: encoding thousands of records would block the event loop.
        return await asyncio.to_thread(self._show, listing, is_masked=call.caller.role != "node")

    async def watch(self, call: RpcCall[Any]) -> AsyncGenerator[Message, None]:
        """The ids that each transaction since `since_revision` wrote and removed, then those of new ones."""
        asked, caller = call.request, call.caller
        # Many nodes may share one key.
        place = nullcontext() if caller.role == "node" else call.control.watches.admit(caller)
        since = HistoryPosition(asked.epoch, asked.since_revision, asked.digest)
        batches = watch_batches(call.control.store, since, kind=self.kind)
        with place:
            async with aclosing(batches):
                async for batch in batches:
                    event = {
                        "revision": batch.revision,
                        "upserts": [change.id for change in batch.changes if change.operation == "put"],
                        "deletes": [change.id for change in batch.changes if change.operation == "delete"],
                        "digest": batch.digest,
                    }
                    yield self._response(f"Watch{self.noun}s", event=event)

    async def upsert(self, call: RpcCall[Any]) -> Message:
        """Create or replace the record. A masked value (`***`) that is sent back keeps the stored secret."""
        message = getattr(call.request, self.sent)
        body, keeping = parse_message(message), list_kept_members(message)
        draft = PendingChange(kind=self.kind, id=parse_sent_id(self.kind, body), sent=body, keeping=keeping)
        return await self._commit(call, draft, f"Upsert{self.noun}")

    async def delete(self, call: RpcCall[Any]) -> Message:
        """Delete the record. The warnings name the records that still refer to it."""
        record_id = parse_id(self.kind, getattr(call.request, self.id_field))
        draft = PendingChange(kind=self.kind, id=record_id, sent=None)
        return await self._commit(call, draft, f"Delete{self.noun}")

    async def _commit(self, call: RpcCall[Any], draft: PendingChange, method: str) -> Message:
        asked = call.request
        if asked.HasField("if_revision"):
            draft = replace(draft, if_revision=asked.if_revision)
        done = await commit_changes(call.control, call.caller, [draft], plan_id=asked.plan or None)
        return self._response(method, revision=done.revision, warnings=done.warnings)

    def _show(self, listing: RecordList, *, is_masked: bool) -> Message:
        shown = []
        for stored in listing.records:
            body = show_record(stored) if is_masked else fill_defaults(stored)
            message: Any = encode_message(stored.kind, body)
            message.revision, message.updated_at_ms = stored.revision, stored.updated_at_ms
            shown.append(message)
        members = {"revision": listing.revision, "epoch": listing.epoch, "digest": listing.digest}
        return self._response(f"List{self.noun}s", **members, **{f"{self.kind}s": shown})

    def _response(self, method: str, **members: Any) -> Message:
        return response_type(self.service, method)(**members)


EXTRAS: Final = (
    *("tags", "category", "enabled", "sharing", "idle_timeout_s", "start_timeout_s", "prewarm"),
    *("protocol", "list_ttl_s", "package", "redaction", "approval_policy.in_place"),
)
"""The members of a server that SPEAR's clients do not know."""
_PARTS_THAT_MAY_BE_EMPTY: Final = frozenset({"oauth", "package", "rollout"})
"""Other messages that are set but empty mean the same as unset ones."""
_TRANSPORTS: Final[Mapping[int, str]] = {
    sms.MCP_TRANSPORT_STDIO: "stdio",
    sms.MCP_TRANSPORT_STREAMABLE_HTTP: "streamable_http",
    sms.MCP_TRANSPORT_HTTP_SSE_LEGACY: "http_sse_legacy",
}
_TRANSPORT_NUMBERS: Final = {text: number for number, text in _TRANSPORTS.items()}
_MESSAGES: Final[Mapping[Kind, type[Message]]] = {
    "server": sms.McpServerRecord,
    "task": policy.Task,
    "profile": policy.Profile,
    "pin": policy.Pin,
}


def encode_message(kind: Kind, body: Body) -> Message:
    """`body`, with all members, as the message of its kind.

    Leaves out members that another version of Toolgate stored in a form that no message has.
    """
    message_type = _MESSAGES[kind]
    try:
        if kind == "server":
            body = _nest_server(body)
        elif kind == "profile":
            rollout = body.get("rollout")
            body = {**body, "selection": body, "rollout": rollout and {**rollout, "selection": rollout}}
        return message_type(**_select(message_type.DESCRIPTOR, body))
    except (AttributeError, KeyError, TypeError, ValueError):
        return message_type(**{ID_FIELDS[kind]: str(body.get(ID_FIELDS[kind], ""))})


def parse_message(message: Message) -> dict[str, Any]:
    """The body of a record in a message."""
    body = _read_message(message)
    for kept_by_store in ("revision", "updated_at_ms"):
        body.pop(kept_by_store, None)
    if isinstance(message, sms.McpServerRecord):
        return _flatten_server(body)
    if isinstance(message, policy.Profile):
        if "rollout" in body:
            # A share of 0 is not left out, so that the check rejects it.
            body["rollout"] = {"share": 0} | _flatten_version(body["rollout"])
        return _flatten_version(body)
    if isinstance(message, policy.Pin) and message.changed:
        # A message has no null: an empty string means null.
        body["changed"] = {name: found or None for name, found in message.changed.items()}
    return body


def list_kept_members(message: Message) -> tuple[str, ...]:
    """The members to keep as stored, because `message` does not have them."""
    if isinstance(message, sms.McpServerRecord) and not message.HasField("extras"):
        return EXTRAS
    if isinstance(message, policy.Task) and not message.HasField("workload"):
        return ("workload",)
    return ()


def _nest_server(body: Body) -> dict[str, Any]:
    approval = body["approval_policy"]
    return {
        **body,
        "transport": _TRANSPORT_NUMBERS[body["transport"]],
        "approval_policy": {**approval, "default_policy": approval["default"]},
        "extras": body,
    }


def _flatten_server(body: dict[str, Any]) -> dict[str, Any]:
    if "transport" in body:
        body["transport"] = _TRANSPORTS.get(body["transport"], str(body["transport"]))
    approval = body.get("approval_policy", {})
    if "default_policy" in approval:
        approval["default"] = approval.pop("default_policy")
    extras: dict[str, Any] = body.pop("extras", {})
    return body | extras


def _flatten_version(version: dict[str, Any]) -> dict[str, Any]:
    selection: dict[str, Any] = version.pop("selection", {})
    return version | selection


def _select(descriptor: Any, value: Body) -> dict[str, Any]:
    """The members of `value` for which a message has fields."""
    return {
        name: _fit(field, value[name])
        for name, field in descriptor.fields_by_name.items()
        if value.get(name) is not None
    }


def _fit(field: FieldDescriptor, content: Any) -> Any:
    part = field.message_type
    if part is None:
        return content
    if part.full_name == policy.Names.DESCRIPTOR.full_name:
        return {"values": content}
    if part.GetOptions().map_entry:
        return {name: _fit(part.fields_by_name["value"], one) for name, one in content.items()}
    return _select(part, content)


def _read_message(message: Message) -> dict[str, Any]:
    """All fields that are set, as plain data."""
    plain = {field.name: _to_plain(value) for field, value in message.ListFields()}
    return {name: one for name, one in plain.items() if one != {} or name in _PARTS_THAT_MAY_BE_EMPTY}


def _to_plain(value: Any) -> Any:
    if isinstance(value, policy.Names):
        return list(value.values)
    if isinstance(value, Message):
        return _read_message(value)
    if isinstance(value, Mapping):
        return {name: _to_plain(one) for name, one in value.items()}
    return value if isinstance(value, str | int) else list(value)


PART_BYTES: Final = 1024 * 1024  # far below the limit of a node, because a part may exceed it by one record
MAX_BATCH_BYTES: Final = 12 * 1024 * 1024
"""Nodes accept messages of 16 MiB. After a larger transaction they list all records."""
_MANY_CHANGES: Final = 100  # as `PARSED_AT_ONCE` of nodes: encoding more would delay all callers


@node_rpc("ListRecords")
async def list_records(call: RpcCall[node_pb2.ListRecordsRequest]) -> AsyncGenerator[Message, None]:
    """All records of all kinds at one revision, in parts."""
    listing = await call.control.store.list()
    new_part = partial(
        node_pb2.ListRecordsResponse, epoch=listing.epoch, revision=listing.revision, digest=listing.digest
    )
    # Each part is encoded after the one before it was sent, so other calls run in between.
    size, part = 0, new_part()
    for stored in listing.records:
        record = _encode_stored(stored.kind, stored.id, stored.body)
        if size and size + record.ByteSize() > PART_BYTES:
            yield part
            size, part = 0, new_part()
        size += record.ByteSize()
        part.records.append(record)
    part.is_last = True
    yield part


@node_rpc("WatchRecords")
async def watch_records(call: RpcCall[node_pb2.WatchRecordsRequest]) -> AsyncGenerator[Message, None]:
    """Each transaction since `since_revision`, complete with the bodies it wrote, then new ones."""
    asked = call.request
    since = HistoryPosition(asked.epoch, asked.since_revision, asked.digest)
    batches = watch_batches(call.control.store, since)
    async with aclosing(batches):
        async for batch in batches:
            if len(batch.changes) < _MANY_CHANGES:
                yield _encode_transaction(batch)
            else:
                yield await asyncio.to_thread(_encode_transaction, batch)


def _encode_transaction(batch: ChangeBatch) -> node_pb2.WatchRecordsResponse:
    changes = [_encode_stored(change.kind, change.id, change.after) for change in batch.changes]
    message = node_pb2.WatchRecordsResponse(revision=batch.revision, changes=changes, digest=batch.digest)
    if message.ByteSize() > MAX_BATCH_BYTES:
        raise Compacted(f"transaction {batch.revision} is too large for one message")
    return message


def _encode_stored(kind: Kind, record_id: str, body: Body | None) -> node_pb2.Record:
    raw = None if body is None else encode_body(body).encode()
    return node_pb2.Record(kind=kind, id=record_id, body=raw)


@node_rpc("ReadArtifact")
async def read_artifact(call: RpcCall[node_pb2.ReadArtifactRequest]) -> AsyncGenerator[Message, None]:
    """A package's archive in pieces, for a node that starts a server from it."""
    asked, artifacts = call.request, call.control.artifacts
    stored = await artifacts.get(asked.package_id, asked.version)
    if stored.sha256 != asked.sha256:
        raise NotFound("the stored version has another hash")
    async for piece in artifacts.read(asked.package_id, asked.version):
        yield node_pb2.ReadArtifactResponse(content=piece)


@node_rpc("ReadModule")
async def read_module(call: RpcCall[node_pb2.ReadModuleRequest]) -> AsyncGenerator[Message, None]:
    """A module in pieces, for a node that runs it."""
    async for piece in call.control.modules.read(call.request.sha256):
        yield node_pb2.ReadModuleResponse(content=piece)


_POLICY_KINDS: Final[Mapping[Kind, str]] = {"task": "Task", "profile": "Profile", "pin": "Pin"}
_SERVICES: Final = (
    RecordService(
        kind="server",
        service="sms.McpRegistryService",
        noun="McpServer",
        sent="record",
        id_field="server_id",
        readers=("viewer", "node"),
    ),
    *(
        RecordService(kind=kind, service=f"toolgate.v1.{noun}Service", noun=noun, sent=kind, id_field="id")
        for kind, noun in _POLICY_KINDS.items()
    ),
)
RECORD_RPCS: Final[tuple[Rpc, ...]] = (
    *(row for service in _SERVICES for row in service.rpcs()),
    *(list_records, watch_records, read_artifact, read_module),
)
