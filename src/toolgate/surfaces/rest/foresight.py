"""What a change would do, on a snapshot of its own. Nothing here changes what is served."""

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import TypeVar

from toolgate.model.principals import Key
from toolgate.model.revisions import Kind
from toolgate.model.servers import ServerRecord
from toolgate.model.snapshot import Snapshot
from toolgate.model.tasks import Profile, Task
from toolgate.model.tools import ServerTools
from toolgate.policy.lint import Finding, lint
from toolgate.registry.records import Record

T = TypeVar("T")


def with_record(snapshot: Snapshot, record: Record) -> Snapshot:
    """`snapshot` with `record` in place. A server keeps the tools it is known to have."""
    match record:
        case ServerRecord(server_id=server_id):
            offer = snapshot.servers.get(server_id)
            changed = ServerTools(record=record) if offer is None else replace(offer, record=record)
            return replace(snapshot, servers=MappingProxyType({**snapshot.servers, server_id: changed}))
        case Task(task_id=task_id):
            return replace(snapshot, tasks=MappingProxyType({**snapshot.tasks, task_id: record}))
        case Profile(profile_id=profile_id):
            return replace(snapshot, profiles=MappingProxyType({**snapshot.profiles, profile_id: record}))
        case Key(key_id=key_id):
            return replace(snapshot, keys=MappingProxyType({**snapshot.keys, key_id: record}))


def without_record(snapshot: Snapshot, kind: Kind, record_id: str) -> Snapshot:
    """`snapshot` without one record."""
    match kind:
        case "server":
            return replace(snapshot, servers=_without(snapshot.servers, record_id))
        case "task":
            return replace(snapshot, tasks=_without(snapshot.tasks, record_id))
        case "profile":
            return replace(snapshot, profiles=_without(snapshot.profiles, record_id))
        case "key":
            return replace(snapshot, keys=_without(snapshot.keys, record_id))


def _without(records: Mapping[str, T], record_id: str) -> Mapping[str, T]:
    return MappingProxyType({one: record for one, record in records.items() if one != record_id})


def warn_of(after: Snapshot, *, kind: Kind, record_id: str) -> list[str]:
    """What is amiss after a change: with the changed record, and with those that name it."""
    return [
        _sentence(one)
        for one in lint(after)
        if (one.kind, one.id) == (kind, record_id) or one.subject == record_id
    ]


def _sentence(finding: Finding) -> str:
    return f"{finding.kind} `{finding.id}`, `{finding.rule}`: {finding.message}"
