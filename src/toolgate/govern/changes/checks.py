"""The checks of a change that compare its record with others: those stored, those changed with it, modules.

Every check is named after its requirement. It returns nothing, or raises an error. It never reads or writes
anything. `commit` runs them in order, after those of roles and ceilings (`permissions`) and of the operator.
"""

from collections import Counter
from collections.abc import Collection, Sequence
from typing import Final

from toolgate.errors import Forbidden, InvalidRecord, NotFound
from toolgate.govern.changes.permissions import is_within_ceiling
from toolgate.govern.changes.records import RecordEdit
from toolgate.model.principals import Principal
from toolgate.model.revisions import RecordList, describe_kind
from toolgate.model.servers import ServerRecord
from toolgate.registry.records.codec import namespace_of
from toolgate.registry.records.transaction import RecordKey

MAX_RECORDS: Final = 5_000
"""Records of each kind: more than a node can serve, and few enough for fast lists."""


def replace_in_ceiling_only(actor: Principal, edit: RecordEdit) -> None:
    if edit.before is None or is_within_ceiling(actor, edit.before):
        return
    if edit.record is None:  # the same error as for a missing record
        raise NotFound(f"there is no {edit.change.key}")
    raise Forbidden(
        f"your key cannot replace {edit.change.title}, which is beyond the key's ceiling",
        hint="use another id, or ask an admin for a key with a wider `ceiling`",
    )


def require_uploaded_module(edit: RecordEdit, uploaded: Collection[str]) -> None:
    """For a record that will be stored. A plan only warns about it."""
    if edit.new_module is not None and edit.new_module not in uploaded:
        raise InvalidRecord(
            f"`workload.module`: there is no module `{edit.new_module}`",
            hint="run `toolgate modules upload FILE`, or `toolgate tasks apply -f FILE`, which uploads it",
        )


def check_registry(listing: RecordList, edits: Sequence[RecordEdit]) -> None:
    """Check all edits together, with the unchanged records: their number, and unique namespaces."""
    touched = {edit.change.key for edit in edits}
    staying = [one for one in listing.records if RecordKey(one.kind, one.id) not in touched]
    counts = Counter(one.kind for one in staying)
    counts.update(edit.change.kind for edit in edits if edit.record is not None)
    for kind in {edit.change.kind for edit in edits if edit.before is None}:
        if counts[kind] > MAX_RECORDS:
            raise InvalidRecord(
                f"the registry has reached its limit of {MAX_RECORDS} records of kind {describe_kind(kind)}",
                hint="delete records that you do not need",
            )
    owners = {namespace_of(one): one.id for one in staying if one.kind == "server"}
    for record in (edit.record for edit in edits):
        if isinstance(record, ServerRecord):
            owner = owners.setdefault(record.tool_namespace, record.server_id)
            if owner != record.server_id:
                raise InvalidRecord(
                    f"`tool_namespace`: server `{owner}` already uses `{record.tool_namespace}`"
                )
