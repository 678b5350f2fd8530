"""The history of a record: its changes, diffs between revisions, and rollbacks."""

from collections.abc import Sequence
from typing import Final

from toolgate.errors import Compacted, InvalidRequest, NotFound
from toolgate.govern.changes.permissions import check_removal, is_within_ceiling
from toolgate.govern.changes.records import PendingChange, read_mapping
from toolgate.govern.control import Control
from toolgate.model.principals import Principal
from toolgate.model.revisions import Body, Kind, RecordChange, StoredRecord, describe_kind
from toolgate.registry.records.codec import FieldDiff, diff_fields
from toolgate.registry.records.transaction import RecordKey

MAX_HISTORY: Final = 500  # entries in one response, which has no pages


async def read_history(control: Control, kind: Kind, record_id: str, *, limit: int) -> Sequence[RecordChange]:
    """The changes of a record in the change log, newest first. May contain secrets. Raises NotFound."""
    changes = await control.store.history(kind, record_id, limit=limit)
    if not changes and await control.store.get(kind, record_id) is None:
        raise NotFound(f"there is no {describe_kind(kind)} `{record_id}`")
    return changes


async def diff_revisions(
    control: Control, kind: Kind, record_id: str, *, since: int, upto: int | None
) -> tuple[FieldDiff, ...]:
    """The differences of a record between two revisions of the registry; `upto` None: now."""
    before = await read_body_at(control, kind, record_id, revision=since)
    after = await read_body_at(control, kind, record_id, revision=upto)
    if before is None and after is None:
        raise NotFound(f"there is no {describe_kind(kind)} `{record_id}` at either revision")
    return diff_fields(kind, before, after)


async def build_rollback(
    control: Control, actor: Principal, key: RecordKey, *, revision: int, if_revision: int | None
) -> PendingChange:
    """The change that restores a record as of `revision`. Raises Forbidden and NotFound."""
    kind, record_id = key
    check_removal(actor, kind, record_id)
    then = await read_body_at(control, kind, record_id, revision=revision)
    now = await control.store.get(kind, record_id)
    if (then is None and now is None) or (now is not None and not is_within_ceiling(actor, now)):
        raise NotFound(f"there is no {describe_kind(kind)} `{record_id}`, now or at revision {revision}")
    if kind == "pin":
        then = roll_back_pin(now, then)
    return PendingChange(kind=kind, id=record_id, sent=then, if_revision=if_revision)


async def read_body_at(control: Control, kind: Kind, record_id: str, *, revision: int | None) -> Body | None:
    """The body at `revision` (None: now); None if it did not exist. May contain secrets. Raises Compacted."""
    stored = await control.store.get(kind, record_id)
    if revision is None or (stored is not None and stored.revision <= revision):
        return None if stored is None else stored.body
    if revision > control.store.revision:
        raise InvalidRequest(f"revision {revision} does not exist: the newest is {control.store.revision}")
    async with control.store.watch(revision):
        pass  # entering it raises if the log does not reach back to the revision
    changes = await control.store.history(kind, record_id, limit=MAX_HISTORY + 1)
    later = [change for change in changes if change.revision > revision]
    if len(later) > MAX_HISTORY:
        raise Compacted(
            f"{describe_kind(kind)} `{record_id}` changed more than {MAX_HISTORY} times since {revision}"
        )
    return later[-1].before if later else None


def roll_back_pin(now: StoredRecord | None, then: Body | None) -> Body | None:
    """`then`, with the tools that are quarantined in `now`. Raises InvalidRequest."""
    quarantined = {} if now is None else read_mapping(now.body, "changed")
    if then is None:
        if quarantined:
            raise InvalidRequest(
                f"there was no pin then, and without one, {len(quarantined)} changed tools would be offered",
                hint="approve them with `toolgate pins approve SERVER`, or delete the pin to offer them",
            )
        return None
    return {**then, "changed": {**read_mapping(then, "changed"), **quarantined}}
