"""Records between the registry and people: how a stored one is shown, and what a sent one becomes.

Shown records have every member filled in and no secrets. A sent record is a `PendingChange`, and, once it is
valid, a `RecordEdit` with the record before and after. Nothing here decides whether a change may be made: see
`checks`.
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

READ_ONLY_MEMBERS: Final = ("revision", "updated_at_ms", "health", "nodes", "login", "waiting")
"""Members of responses that are ignored when they are sent back."""


async def find_record(control: Control, kind: Kind, record_id: str) -> StoredRecord:
    stored = await control.store.get(kind, record_id)
    if stored is None:
        raise record_not_found(kind, record_id)
    return stored


def record_not_found(kind: Kind, record_id: str) -> NotFound:
    """The error for a record that does not exist, and for one that the caller may not touch."""
    return NotFound(
        f"there is no {describe_kind(kind)} `{record_id}`",
        hint=f"`toolgate {kind.replace('_', '-')}s list` shows those there are",
    )


def fill_defaults(stored: StoredRecord) -> dict[str, Any]:
    """The body with its defaults. Never show it: it may hold secrets."""
    try:
        body = BODIES[stored.kind].model_validate(dict(stored.body), extra="ignore")
    except ValidationError:
        # Another version of the program wrote it: it is shown as it is, and can be replaced.
        return dict(stored.body)
    filled = body.model_dump(exclude_none=True)
    if stored.kind == "server":
        filled.setdefault("tool_namespace", default_namespace(stored.id))
    return filled


def show_record(stored: StoredRecord) -> dict[str, Any]:
    """The record as anyone who may read it sees it."""
    return {**show_body(stored.kind, fill_defaults(stored)), "revision": stored.revision}


def show_body(kind: Kind, body: Body) -> dict[str, Any]:
    """A body without its secrets, and a key without its hash."""
    shown = redact_record(kind, body)
    shown.pop("sha256", None)
    return shown


@dataclass(frozen=True, slots=True, kw_only=True)
class PendingChange:
    """A record as a caller wants it stored or deleted, not checked yet."""

    kind: Kind
    id: str
    sent: Body | None
    """None: delete it."""
    if_revision: int | None = None
    keeping: tuple[str, ...] = ()
    """Members that stay as they are stored: the sender does not know them. `a.b`: member `b` of `a`."""
    is_declared: bool = False
    """It declares a state: if the record is in that state, there is nothing to do and nothing wrong."""
    tools: Mapping[str, ToolDefinition] | None = None
    """What a server will list, if that is known before it runs. A plan shows their effect."""

    @property
    def key(self) -> RecordKey:
        return RecordKey(self.kind, self.id)

    @property
    def title(self) -> str:
        return f"{describe_kind(self.kind)} `{self.id}`"


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordEdit:
    """A valid change: one record before and after. None: it does not exist."""

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
        """The module that a task names, unless it named the same before."""
        module = read_module(self.body or {}) if self.change.kind == "task" else None
        return None if module == read_module(self.body_before or {}) else module


def read_module(body: Body) -> str | None:
    """The module that the stored body of a task names, whatever version of the program wrote it."""
    module = read_mapping(body, "workload").get("module")
    return module if isinstance(module, str) else None


def parse_sent_id(kind: Kind, sent: Body) -> str:
    """The id in a body that is posted without one in the path. Raises InvalidRecord."""
    record_id = sent.get(ID_FIELDS[kind])
    if isinstance(record_id, str):
        return parse_id(kind, record_id)
    raise InvalidRecord(f"`{ID_FIELDS[kind]}`: is missing, or is not text")


def parse_change(change: PendingChange, before: StoredRecord | None) -> RecordEdit:
    """What `change` makes of `before`, the record that is stored under its id. Raises InvalidRecord."""
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
        # Stored as JSON text. Text is taken for JSON already.
        body["config"] = {
            key: value if isinstance(value, str) else msgspec.json.encode(value).decode()
            for key, value in config.items()
        }
    elif kind == "pin":
        changed = body.pop("changed", {})
        body |= merge_quarantined(None if before is None else before.body, {**body, "changed": changed})
    record = parse_record(kind, change.id, body)
    # A newer version of the program may have stored members that this one must not drop.
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
    """The member `changed` of a pin that replaces `before`: the tools that are quarantined.

    A tool stays quarantined while the same definition of it is the approved one, whatever `sent` says of
    others: only an approval releases it, which is another digest, or null for just this tool. A wrong shape
    is left to the parser.
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
