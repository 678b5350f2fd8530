"""The checks of every change, as lists in the order in which they run.

Each check is a function that is named after its requirement. It returns nothing, or raises an error. It gets
everything but the change from its `CheckContext`: no check reads or writes anything.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Final, TypeVar

from toolgate.errors import Forbidden, InvalidRecord, NotFound
from toolgate.govern.changes.permissions import check_grant, check_removal, check_role, is_within_ceiling
from toolgate.govern.changes.records import PendingChange, RecordEdit
from toolgate.govern.operator_policy import OperatorPolicy, check_operator_policy, check_plan
from toolgate.model.principals import Principal
from toolgate.model.revisions import RecordList, StoredRecord, describe_kind
from toolgate.model.servers import ServerRecord
from toolgate.registry.records.codec import namespace_of
from toolgate.registry.records.transaction import RecordKey

MAX_RECORDS: Final = 5_000
"""Records of each kind: more than a node can serve, and few enough for fast lists."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckContext:
    """The inputs of checks, in addition to the change."""

    actor: Principal
    policy: OperatorPolicy
    plan_id: str | None = None
    modules: Collection[str] = ()
    """Hashes of the uploaded modules."""


Check = Callable[[CheckContext, T], None]


def require_writer_role(context: CheckContext, change: PendingChange) -> None:
    check_role(context.actor, change.kind)


def require_plan(context: CheckContext, change: PendingChange) -> None:
    check_plan(context.policy, change.kind, context.plan_id)


def require_removal_in_ceiling(context: CheckContext, change: PendingChange) -> None:
    if change.sent is None:
        check_removal(context.actor, change.kind, change.id)


def require_grant_in_ceiling(context: CheckContext, edit: RecordEdit) -> None:
    if edit.record is not None:
        check_grant(context.actor, edit.record)


def follow_operator_policy(context: CheckContext, edit: RecordEdit) -> None:
    if edit.record is not None:
        check_operator_policy(context.policy, edit.record)


def replace_in_ceiling_only(context: CheckContext, edit: RecordEdit) -> None:
    if edit.before is None or is_within_ceiling(context.actor, edit.before):
        return
    if edit.record is None:  # the same error as for a missing record
        raise NotFound(f"there is no {edit.change.key}")
    raise Forbidden(
        f"your key cannot replace {edit.change.title}, which is beyond the key's ceiling",
        hint="use another id, or ask an admin for a key with a wider `ceiling`",
    )


def require_uploaded_module(context: CheckContext, edit: RecordEdit) -> None:
    module = edit.new_module
    if module is not None and module not in context.modules:
        raise InvalidRecord(
            f"`workload.module`: there is no module `{module}`",
            hint="run `toolgate modules upload FILE`, or `toolgate tasks apply -f FILE`, which uploads it",
        )


def limit_record_count(staying: Sequence[StoredRecord], edits: Sequence[RecordEdit]) -> None:
    counts = Counter(one.kind for one in staying)
    counts.update(edit.change.kind for edit in edits if edit.record is not None)
    for kind in {edit.change.kind for edit in edits if edit.before is None}:
        if counts[kind] > MAX_RECORDS:
            raise InvalidRecord(
                f"the registry has reached its limit of {MAX_RECORDS} records of kind {describe_kind(kind)}",
                hint="delete records that you do not need",
            )


def require_unique_namespaces(staying: Sequence[StoredRecord], edits: Sequence[RecordEdit]) -> None:
    owners = {namespace_of(one): one.id for one in staying if one.kind == "server"}
    for record in (edit.record for edit in edits):
        if isinstance(record, ServerRecord):
            owner = owners.setdefault(record.tool_namespace, record.server_id)
            if owner != record.server_id:
                raise InvalidRecord(
                    f"`tool_namespace`: server `{owner}` already uses `{record.tool_namespace}`"
                )


COMMIT_CHECKS: Final[tuple[Check[PendingChange], ...]] = (require_writer_role, require_plan)
"""For a change that will be stored, before any record is read."""
CHANGE_CHECKS: Final[tuple[Check[PendingChange], ...]] = (require_removal_in_ceiling,)
"""For every change, before its record is read: a record beyond the key's ceiling must not reveal itself."""
EDIT_CHECKS: Final[tuple[Check[RecordEdit], ...]] = (
    require_grant_in_ceiling,
    follow_operator_policy,
    replace_in_ceiling_only,
)
"""For every record, before and after."""
STORED_EDIT_CHECKS: Final[tuple[Check[RecordEdit], ...]] = (require_uploaded_module,)
"""For a record that will be stored. A plan only warns about it."""
REGISTRY_CHECKS: Final = (limit_record_count, require_unique_namespaces)
"""For all edits together, with the unchanged records."""


def run_checks(checks: Iterable[Check[T]], context: CheckContext, subject: T) -> None:
    """Run `checks` in order. The first failing one raises."""
    for check in checks:
        check(context, subject)


def check_registry(listing: RecordList, edits: Sequence[RecordEdit]) -> None:
    """Run the checks of all edits together. Raises InvalidRecord."""
    touched = {edit.change.key for edit in edits}
    staying = [one for one in listing.records if RecordKey(one.kind, one.id) not in touched]
    for check in REGISTRY_CHECKS:
        check(staying, edits)
