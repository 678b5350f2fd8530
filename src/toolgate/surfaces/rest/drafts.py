"""From what was sent to a record that may be stored."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from toolgate.errors import InvalidRecord
from toolgate.model.revisions import Body, Kind, Stored
from toolgate.registry.records import ID_FIELDS, Record, parse_record
from toolgate.surfaces.rest.intake import ID_PARSERS
from toolgate.surfaces.rest.masks import restore_hidden
from toolgate.surfaces.rest.records import SHOWN_ONLY, fill_in, show_body


@dataclass(frozen=True, slots=True, kw_only=True)
class Draft:
    """A record as somebody wants it stored, not checked yet."""

    kind: Kind
    id: str
    sent: Body
    if_revision: int | None = None


def parse_id(kind: Kind, text: str) -> str:
    """`text` as the id of a record of this kind, or InvalidRecord."""
    return ID_PARSERS[ID_FIELDS[kind]](text)


def sent_id(kind: Kind, sent: Body) -> str:
    """The id in a body that is posted without one in the path, or InvalidRecord."""
    record_id = sent.get(ID_FIELDS[kind])
    if isinstance(record_id, str):
        return parse_id(kind, record_id)
    raise InvalidRecord(f"`{ID_FIELDS[kind]}`: is missing, or is not text")


def parse_draft(draft: Draft, before: Stored | None) -> Record:
    """The record, or InvalidRecord. `before` is what is stored under its id now."""
    body = {name: value for name, value in draft.sent.items() if name not in SHOWN_ONLY}
    if draft.kind == "server":
        known = fill_in(before) if before is not None else {}
        body = restore_hidden(body, show_body("server", known), known)
    elif draft.kind == "task" and isinstance(config := body.get("config"), Mapping):
        body["config"] = {key: _json_text(value) for key, value in config.items()}
    return parse_record(draft.kind, draft.id, body)


def _json_text(value: Any) -> str:
    """A value of a task's `config`, which is stored as JSON text; what is text already is taken for it."""
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()
