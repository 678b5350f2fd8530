"""Records as they are shown: every member filled in, secrets masked, and the revision they stand at."""

from typing import Any, Final

from pydantic import ValidationError

from toolgate.errors import NotFound
from toolgate.govern.control import Control
from toolgate.model.revisions import Body, Kind, StoredRecord, describe_kind
from toolgate.redaction.records import redact_record
from toolgate.registry.records.codec import BODIES
from toolgate.registry.records.server_bodies import default_namespace

READ_ONLY_MEMBERS: Final = ("revision", "updated_at_ms", "health", "nodes", "login", "waiting")
"""Members that stand in answers and are ignored when they are sent back."""


async def find_record(control: Control, kind: Kind, record_id: str) -> StoredRecord:
    """The record, or NotFound."""
    stored = await control.store.get(kind, record_id)
    if stored is None:
        raise record_not_found(kind, record_id)
    return stored


def record_not_found(kind: Kind, record_id: str) -> NotFound:
    """What is said of a record that is not there, and of one that the caller may not touch."""
    return NotFound(
        f"there is no {describe_kind(kind)} `{record_id}`",
        hint=f"`toolgate {kind.replace('_', '-')}s list` shows those there are",
    )


def fill_defaults(stored: StoredRecord) -> dict[str, Any]:
    """The body with its defaults. Not to be shown: it may hold secrets."""
    try:
        body = BODIES[stored.kind].model_validate(dict(stored.body), extra="ignore")
    except ValidationError:
        # Written by another version of the program: shown as it is, and it stays possible to replace it.
        return dict(stored.body)
    filled = body.model_dump(exclude_none=True)
    if stored.kind == "server":
        filled.setdefault("tool_namespace", default_namespace(stored.id))
    return filled


def show_record(stored: StoredRecord) -> dict[str, Any]:
    """The record as anyone who may read it sees it."""
    return {**show_body(stored.kind, fill_defaults(stored)), "revision": stored.revision}


def show_body(kind: Kind, body: Body) -> dict[str, Any]:
    """A body without its secrets. Of a key not even the hash is shown."""
    shown = redact_record(kind, body)
    shown.pop("sha256", None)
    return shown
