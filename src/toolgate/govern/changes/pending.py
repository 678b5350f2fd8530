"""From what was sent to a record that may be stored."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from toolgate.errors import InvalidRecord
from toolgate.govern.changes.records import READ_ONLY_MEMBERS, fill_defaults, show_body
from toolgate.govern.quarantine import merge_quarantined
from toolgate.model.revisions import Body, Kind, StoredRecord
from toolgate.model.tools import ToolDefinition
from toolgate.redaction.records import HIDING, restore_hidden
from toolgate.registry.records.codec import BODIES, ID_FIELDS, Record, encode_record, parse_id, parse_record


@dataclass(frozen=True, slots=True, kw_only=True)
class PendingChange:
    """A record as somebody wants it stored, or gone; not checked yet."""

    kind: Kind
    id: str
    sent: Body | None
    """None: to be deleted."""
    if_revision: int | None = None
    keeping: tuple[str, ...] = ()
    """Members that stay as they are stored: whoever sent the body does not know them. `a.b`: one of `a`."""
    is_declared: bool = False
    """It says how things shall be: where they are so already, there is nothing to do and nothing wrong."""
    tools: Mapping[str, ToolDefinition] | None = None
    """Of a server: what it will list, where that is known before it runs. A plan shows the effect of them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordEdit:
    """One record before and after: a draft that was found valid. None: not there."""

    change: PendingChange
    before: StoredRecord | None
    record: Record | None
    body: Body | None

    @property
    def has_effect(self) -> bool:
        """Whether the record would not be as it is."""
        return self.body != self.body_before

    @property
    def body_before(self) -> Body | None:
        return None if self.before is None else self.before.body


def parse_sent_id(kind: Kind, sent: Body) -> str:
    """The id in a body that is posted without one in the path, or InvalidRecord."""
    record_id = sent.get(ID_FIELDS[kind])
    if isinstance(record_id, str):
        return parse_id(kind, record_id)
    raise InvalidRecord(f"`{ID_FIELDS[kind]}`: is missing, or is not text")


def parse_change(draft: PendingChange, before: StoredRecord | None) -> RecordEdit:
    """What the draft makes of `before`, which is stored under its id now. Raises InvalidRecord."""
    if draft.sent is None:
        return RecordEdit(change=draft, before=before, record=None, body=None)
    body = {name: value for name, value in draft.sent.items() if name not in READ_ONLY_MEMBERS}
    if before is not None:
        body = _merge_kept(before.body, draft.keeping, body)
    if draft.kind in HIDING:
        known = fill_defaults(before) if before is not None else {}
        body = restore_hidden(draft.kind, body, shown=show_body(draft.kind, known), stored=known)
    if draft.kind == "task" and isinstance(config := body.get("config"), Mapping):
        body["config"] = {key: _encode_config_value(value) for key, value in config.items()}
    elif draft.kind == "pin":
        told = body.pop("changed", {})
        body |= merge_quarantined(None if before is None else before.body, {**body, "changed": told})
    record = parse_record(draft.kind, draft.id, body)
    newer = {} if before is None else _unknown_members(draft.kind, before.body)
    return RecordEdit(change=draft, before=before, record=record, body={**newer, **encode_record(record)})


def _merge_kept(stored: Body, names: Collection[str], sent: Body) -> dict[str, Any]:
    """`sent`, with the members of `stored` that it does not speak of; `a.b` is a member `b` of `a`."""
    kept: dict[str, Any] = {**{name: value for name, value in stored.items() if name in names}, **sent}
    for outer, inner in (name.split(".") for name in names if "." in name):
        if inner in stored.get(outer, {}):
            kept[outer] = {inner: stored[outer][inner]} | kept.get(outer, {})
    return kept


def _unknown_members(kind: Kind, body: Body) -> dict[str, Any]:
    """What a newer version of the program has stored: whoever does not know it must not drop it."""
    return {name: value for name, value in body.items() if name not in BODIES[kind].model_fields}


def _encode_config_value(value: Any) -> str:
    """A value of a task's `config`, which is stored as JSON text; what is text already is taken for it."""
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()
