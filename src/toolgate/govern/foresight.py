"""What a change would do, on a snapshot of its own. Nothing here changes what is served."""

from collections.abc import Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Any

from toolgate.govern.changes.pending import Edit
from toolgate.model.servers import ServerRecord
from toolgate.model.snapshot import Snapshot
from toolgate.model.tools import ServerTools
from toolgate.policy.lint import Finding, lint


def foresee(snapshot: Snapshot, edits: Sequence[Edit]) -> Snapshot:
    """`snapshot` after `edits`. A server has the tools it is known to get, or else those it has."""
    changed: dict[str, dict[str, Any]] = {}
    for edit in edits:
        if edit.draft.kind == "package":
            continue  # policy knows its server alone
        field = f"{edit.draft.kind}s"  # as they are called in a snapshot
        records = changed.setdefault(field, dict(getattr(snapshot, field)))
        if edit.record is None:
            records.pop(edit.draft.id, None)
        elif isinstance(edit.record, ServerRecord):
            records[edit.draft.id] = _offer(snapshot, edit)
        else:
            records[edit.draft.id] = edit.record
    frozen: dict[str, Any] = {field: MappingProxyType(records) for field, records in changed.items()}
    return replace(snapshot, **frozen)


def _offer(snapshot: Snapshot, edit: Edit) -> ServerTools:
    assert isinstance(edit.record, ServerRecord)
    offer = snapshot.servers.get(edit.draft.id) or ServerTools(record=edit.record)
    if edit.draft.tools is None:
        return replace(offer, record=edit.record)
    return replace(offer, record=edit.record, tools=edit.draft.tools, state="ready")


def warn_of(after: Snapshot, edits: Sequence[Edit]) -> list[str]:
    """What is amiss after a change: with the changed records, and with those that name them."""
    changed = {(edit.draft.kind, edit.draft.id) for edit in edits}
    ids = {edit.draft.id for edit in edits}
    return [_sentence(one) for one in lint(after) if (one.kind, one.id) in changed or one.subject in ids]


def _sentence(finding: Finding) -> str:
    return f"{finding.kind} `{finding.id}`, `{finding.rule}`: {finding.message}"
