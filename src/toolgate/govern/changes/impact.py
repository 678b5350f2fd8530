"""The impact of a change: warnings, and the plan with what each task gains and loses.

Works on a predicted snapshot, and never changes the served one. Plans are not stored: a plan's id identifies
the change and its effect. A commit with the id makes the plan again, and fails if the result differs.
"""

import asyncio
import hashlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from operator import itemgetter
from types import MappingProxyType
from typing import Any

import msgspec

from toolgate.govern.changes.records import RecordEdit
from toolgate.govern.control import Control
from toolgate.model.names import REFERENCE
from toolgate.model.servers import ServerRecord
from toolgate.model.tools import ServerTools, Snapshot
from toolgate.policy.lint import LintFinding, lint
from toolgate.policy.plan import TaskChange
from toolgate.policy.rules import is_unlisted
from toolgate.redaction.random_words import find_suspects
from toolgate.redaction.records import redact_server
from toolgate.registry.records.codec import encode_record


def predict_snapshot(snapshot: Snapshot, edits: Sequence[RecordEdit]) -> Snapshot:
    """`snapshot` after `edits`. A server has the tools that it will list, if known, else its current ones."""
    changed: dict[str, dict[str, Any]] = {}
    for edit in edits:
        kind, record_id = edit.change.key
        if kind == "package":
            continue  # policy reads only its server
        field = f"{kind}s"  # the field in a snapshot
        records = changed.setdefault(field, dict(getattr(snapshot, field)))
        if edit.record is None:
            records.pop(record_id, None)
        elif isinstance(edit.record, ServerRecord):
            offer = snapshot.servers.get(record_id) or ServerTools(record=edit.record)
            listed: dict[str, Any] = (
                {} if edit.change.tools is None else {"tools": edit.change.tools, "state": "ready"}
            )
            records[record_id] = replace(offer, record=edit.record, **listed)
        else:
            records[record_id] = edit.record
    frozen: dict[str, Any] = {field: MappingProxyType(records) for field, records in changed.items()}
    return replace(snapshot, **frozen)


def lint_edits(after: Snapshot, edits: Sequence[RecordEdit]) -> list[str]:
    """Lint warnings after a change about the changed records and about those that name them."""
    changed = {edit.change.key for edit in edits}
    ids = {edit.change.id for edit in edits}
    return [
        f"{one.kind} `{one.id}`, `{one.rule}`: {one.message}"
        for one in lint(after).findings
        if (one.kind, one.id) in changed or one.subject in ids
    ]


_encode_canonical = msgspec.json.Encoder(order="sorted").encode


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangePlan:
    id: str
    edits: tuple[RecordEdit, ...]
    tasks: tuple[TaskChange, ...]
    """The tasks whose callers see a difference, and the plain URL."""
    unchanged: int
    """The number of other tasks."""
    unlisted: tuple[str, ...]
    """Servers among the edits whose tools are unknown, so that the plan cannot show them."""


async def plan_edits(control: Control, edits: Sequence[RecordEdit]) -> ChangePlan:
    """The effect of `edits` on the served snapshot. Changes nothing."""
    before = control.gateway.snapshot
    after = predict_snapshot(before, edits)
    # In a thread: a task with many servers would block the event loop.
    changes = await asyncio.to_thread(control.planner.plan, before, after, limits=control.gateway.limits)
    noticed = tuple(one for one in changes if one.has_effect)
    records = [(*edit.change.key, edit.body_before, edit.body) for edit in edits if edit.has_effect]
    seen = [(it.task_id, it.share, it.added, it.removed, it.reach_added, it.reach_removed) for it in noticed]
    canonical = _encode_canonical((sorted(records, key=itemgetter(0, 1)), seen))
    return ChangePlan(
        id=hashlib.sha256(canonical).hexdigest()[:32],
        edits=tuple(edits),
        tasks=noticed,
        unchanged=sum(one.task_id is not None and not one.has_effect for one in changes),
        unlisted=tuple(
            edit.record.server_id
            for edit in edits
            if isinstance(edit.record, ServerRecord) and is_unlisted(after.servers[edit.record.server_id])
        ),
    )


def find_literals(offers: Iterable[ServerTools]) -> list[LintFinding]:
    """One finding for each argument, variable, header or URL that is shown and may contain a secret."""
    return [
        LintFinding(
            code="possible_secret",
            kind="server",
            id=offer.record.server_id,
            rule=field,
            subject=field,
            message="may contain a secret, and is shown unmasked: use a reference, `${ENV:NAME}`",
        )
        for offer in sorted(offers, key=lambda one: one.record.server_id)
        for field, text in _list_literals(offer.record)
        if any(find_suspects(REFERENCE.sub(" ", text)))
    ]


def _list_literals(record: ServerRecord) -> Iterator[tuple[str, str]]:
    shown = redact_server(encode_record(record))
    stdio, http = shown.get("stdio") or {}, shown.get("http") or {}
    yield from ((f"stdio.args[{at}]", arg) for at, arg in enumerate(stdio.get("args", ())))
    for field, values in (("stdio.env", stdio.get("env", {})), ("http.headers", http.get("headers", {}))):
        yield from ((f"{field}.{name}", value) for name, value in values.items())
    if "url" in http:
        yield "http.url", http["url"]
