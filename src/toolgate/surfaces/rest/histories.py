"""What records were before: their history, and how two revisions of one differ. Secrets are masked."""

from dataclasses import dataclass
from typing import Any, Final

from toolgate.errors import Compacted, InvalidRequest, NotFound
from toolgate.govern.changes.history import MAX_HISTORY, HistoryEntry, diff_revisions, read_history
from toolgate.govern.control import Control
from toolgate.model.revisions import Kind, spoken
from toolgate.registry.records.codec import ID_FIELDS
from toolgate.surfaces.rest.framework.request import parse_count
from toolgate.surfaces.rest.framework.response import Answer
from toolgate.surfaces.rest.framework.routing import Call, Endpoint, Parameter
from toolgate.surfaces.rest.resources.change_shapes import DiffAnswer, EntryShown, HistoryAnswer, show_fields

ENTRIES: Final = 50


@dataclass(frozen=True, slots=True)
class Past:
    """What the records of one kind were. Its methods are handlers."""

    kind: Kind

    @property
    def id_field(self) -> str:
        return ID_FIELDS[self.kind]

    async def history(self, control: Control, call: Call[None]) -> Answer:
        """The changes of the record, newest first: who made each, when, and in which fields."""
        limit = parse_count(call.query, "limit", unless=ENTRIES, most=MAX_HISTORY)
        revision = control.store.revision
        record_id = call.ids[self.id_field]
        entries = await read_history(control, self.kind, record_id, limit=limit)
        return Answer(HistoryAnswer(revision=revision, entries=[_show_entry(one) for one in entries]))

    async def diff(self, control: Control, call: Call[None]) -> Answer:
        """How the record at one revision of the registry differs from the record at another, or now."""
        since = call.number("since")
        if since is None:
            raise InvalidRequest("`since` is missing", hint="name the revision to compare with: `?since=7`")
        revision = control.store.revision
        fields = await diff_revisions(
            control, self.kind, call.ids[self.id_field], since=since, upto=call.number("upto")
        )
        return Answer(DiffAnswer(revision=revision, fields=show_fields(fields)))


def _show_entry(entry: HistoryEntry) -> EntryShown:
    return EntryShown(
        revision=entry.revision,
        operation=entry.operation,
        actor=entry.actor,
        at_ms=entry.at_ms,
        fields=show_fields(entry.fields),
    )


def history_endpoint(past: Past, one: str) -> Endpoint[Any]:
    """The row for the history of the record whose path is `one`."""
    return Endpoint(
        method="GET",
        path=f"{one}/history",
        role="viewer",
        summary=f"Show what changed a {spoken(past.kind)}",
        handler=past.history,
        query=(
            Parameter("limit", f"How many at most: 1 to {MAX_HISTORY}, {ENTRIES} by default.", form="number"),
        ),
        answer=HistoryAnswer,
        errors=(NotFound,),
    )


def diff_endpoint(past: Past, one: str) -> Endpoint[Any]:
    """The row for the differences of the record whose path is `one`."""
    return Endpoint(
        method="GET",
        path=f"{one}/diff",
        role="viewer",
        summary=f"Compare two revisions of a {spoken(past.kind)}",
        handler=past.diff,
        query=(
            Parameter("since", "The revision of the registry to compare with.", form="number"),
            Parameter("upto", "The revision to compare it to. Without it, now.", form="number"),
        ),
        answer=DiffAnswer,
        errors=(NotFound, Compacted),
    )
