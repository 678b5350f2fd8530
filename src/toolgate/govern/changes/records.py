"""Renders stored records for people, and parses the records that people send.

Rendered records have all members and no secrets. A sent record is a `PendingChange`; once it is valid, a
`RecordEdit` with the record before and after. Never decides whether a change is allowed: see `commit`.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, Final

import msgspec
from pydantic import ValidationError

from toolgate.errors import InvalidRecord, NotFound
from toolgate.govern.control import Control
from toolgate.model.revisions import Body, Kind, StoredRecord, describe_kind
from toolgate.model.tools import ToolDefinition
from toolgate.redaction.records import HIDING, redact_record, restore_hidden
from toolgate.registry.records.codec import BODIES, ID_FIELDS, Record, encode_record, parse_id, parse_record
from toolgate.registry.records.server_bodies import default_namespace
from toolgate.registry.records.transaction import RecordKey

READ_ONLY_MEMBERS: Final = ("revision", "updated_at_ms", "health", "nodes", "login", "offer", "waiting")
"""Members of responses that are ignored when a client sends them back."""


async def find_record(control: Control, kind: Kind, record_id: str) -> StoredRecord:
    stored = await control.store.get(kind, record_id)
    if stored is None:
        raise record_not_found(kind, record_id)
    return stored


def record_not_found(kind: Kind, record_id: str) -> NotFound:
    """The error for a record that does not exist, and for one beyond the caller's ceiling."""
    return NotFound(
        f"there is no {describe_kind(kind)} `{record_id}`",
        hint=f"run `toolgate {kind.replace('_', '-')}s list` for all that you can see",
    )


def fill_defaults(stored: StoredRecord) -> dict[str, Any]:
    """The body with its defaults. Never show it: it may contain secrets."""
    try:
        body = BODIES[stored.kind].model_validate(dict(stored.body), extra="ignore")
    except ValidationError:
        # Another version of Toolgate wrote it: it is shown unchanged, and can be replaced.
        return dict(stored.body)
    filled = body.model_dump(exclude_none=True)
    if stored.kind == "server":
        filled.setdefault("tool_namespace", default_namespace(stored.id))
    return filled


def show_record(stored: StoredRecord) -> dict[str, Any]:
    """The record for all who may read it: with defaults, without secrets."""
    return {**show_body(stored.kind, fill_defaults(stored)), "revision": stored.revision}


def show_body(kind: Kind, body: Body) -> dict[str, Any]:
    """A body without its secrets, and a key without its hash."""
    shown = redact_record(kind, body)
    shown.pop("sha256", None)
    return shown


@dataclass(frozen=True, slots=True, kw_only=True)
class PendingChange:
    """A record that a caller wants to store or delete, before any check."""

    kind: Kind
    id: str
    sent: Body | None
    """The body. None: delete the record."""
    if_revision: int | None = None
    keeping: tuple[str, ...] = ()
    """Members to keep as stored, because the sender does not know them. `a.b`: member `b` of `a`."""
    is_declared: bool = False
    """Whether the change only declares a state: if the record has it already, the change succeeds."""
    tools: Mapping[str, ToolDefinition] | None = None
    """The tools that a server will list, if known before it runs. A plan shows their effect."""

    @property
    def key(self) -> RecordKey:
        return RecordKey(self.kind, self.id)

    @property
    def title(self) -> str:
        return f"{describe_kind(self.kind)} `{self.id}`"


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordEdit:
    """A valid change: one record before and after. None: the record does not exist."""

    change: PendingChange
    before: StoredRecord | None
    record: Record | None
    body: Body | None

    @property
    def has_effect(self) -> bool:
        return self.body != self.body_before

    @property
    def body_before(self) -> Body | None:
        return None if self.before is None else self.before.body

    @property
    def new_module(self) -> str | None:
        """The module that a task names, if it named another one before."""
        module = read_module(self.body or {}) if self.change.kind == "task" else None
        return None if module == read_module(self.body_before or {}) else module


def read_module(body: Body) -> str | None:
    """The module that a task's stored body names, even if another version of Toolgate wrote it."""
    module = read_mapping(body, "workload").get("module")
    return module if isinstance(module, str) else None


def parse_sent_id(kind: Kind, sent: Body) -> str:
    """The id in the body of a POST, whose path has none. Raises InvalidRecord."""
    record_id = sent.get(ID_FIELDS[kind])
    if isinstance(record_id, str):
        return parse_id(kind, record_id)
    raise InvalidRecord(f"`{ID_FIELDS[kind]}`: missing, or not a string")


def parse_change(change: PendingChange, before: StoredRecord | None) -> RecordEdit:
    """Apply `change` to `before`, the record stored under its id. Raises InvalidRecord."""
    kind = change.kind
    if change.sent is None:
        return RecordEdit(change=change, before=before, record=None, body=None)
    body = {name: value for name, value in change.sent.items() if name not in READ_ONLY_MEMBERS}
    if before is not None:
        body = _merge_kept(before.body, change.keeping, body)
    if kind in HIDING:
        known = fill_defaults(before) if before is not None else {}
        body = restore_hidden(kind, body, shown=show_body(kind, known), stored=known)
    if kind == "task" and isinstance(config := body.get("config"), Mapping):
        # Stored as JSON text. A string counts as JSON text already.
        body["config"] = {
            key: value if isinstance(value, str) else msgspec.json.encode(value).decode()
            for key, value in config.items()
        }
    elif kind == "pin":
        changed = body.pop("changed", {})
        body |= merge_quarantined(None if before is None else before.body, {**body, "changed": changed})
    record = parse_record(kind, change.id, body)
    # A newer version of Toolgate may have stored members that this one must not drop.
    stored = {} if before is None else before.body
    newer = {name: value for name, value in stored.items() if name not in BODIES[kind].model_fields}
    return RecordEdit(change=change, before=before, record=record, body={**newer, **encode_record(record)})


def _merge_kept(stored: Body, names: Collection[str], sent: Body) -> dict[str, Any]:
    """`sent`, with the members `names` of `stored` that it leaves out; `a.b` is member `b` of `a`."""
    kept: dict[str, Any] = {**{name: value for name, value in stored.items() if name in names}, **sent}
    for outer, inner in (name.split(".") for name in names if "." in name):
        if inner in stored.get(outer, {}):
            kept[outer] = {inner: stored[outer][inner]} | kept.get(outer, {})
    return kept


def merge_quarantined(before: Body | None, sent: Body) -> dict[str, Any]:
    """The member `changed` of a pin that replaces `before`: the quarantined tools.

    A tool stays quarantined while its approved definition stays the same, whatever `sent` has for other
    tools. Only an approval releases it: another digest, or null for just this tool. The parser rejects a
    wrong shape.
    """
    changed = sent.get("changed", {})
    if not isinstance(changed, Mapping):
        return {"changed": changed}
    approved, approved_before = read_mapping(sent, "tools"), read_mapping(before or {}, "tools")
    kept = {
        tool: found
        for tool, found in read_mapping(before or {}, "changed").items()
        if tool in approved and approved[tool] == approved_before.get(tool)
    }
    merged = {tool: found for tool, found in {**kept, **changed}.items() if found is not None}
    return {"changed": merged} if merged else {}


def read_mapping(body: Body, member: str) -> Mapping[str, Any]:
    """An object in a stored body; empty if it is not one."""
    value = body.get(member)
    return value if isinstance(value, Mapping) else {}
