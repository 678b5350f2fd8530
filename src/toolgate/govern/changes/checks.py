"""The checks that every change passes, as lists in the order in which they run.

Each check is a function named after what it requires. It returns nothing, or raises what is wrong. What it
needs besides the change is in its `CheckContext`: no check reads or writes anything.
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
"""Of each kind. More than a node can serve, and few enough for every list to stay quick."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckContext:
    """What checks know besides the change."""

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
    if edit.record is None:  # as if it did not exist
        raise NotFound(f"there is no {edit.change.key}")
    raise Forbidden(
        f"{edit.change.title} reaches further than your key, which cannot replace it",
        hint="use another id, or ask for a key that may write this one",
    )


def require_uploaded_module(context: CheckContext, edit: RecordEdit) -> None:
    module = edit.new_module
    if module is not None and module not in context.modules:
        raise InvalidRecord(
            f"`workload.module`: there is no module `{module}` here",
            hint="`toolgate modules upload FILE` uploads it; `toolgate tasks apply` uploads what it names",
        )


def limit_record_count(staying: Sequence[StoredRecord], edits: Sequence[RecordEdit]) -> None:
    counts = Counter(one.kind for one in staying)
    counts.update(edit.change.kind for edit in edits if edit.record is not None)
    for kind in {edit.change.kind for edit in edits if edit.before is None}:
        if counts[kind] > MAX_RECORDS:
            raise InvalidRecord(
                f"the registry holds {MAX_RECORDS} records of kind {describe_kind(kind)}, and takes no more",
                hint="delete records that are not needed",
            )


def require_unique_namespaces(staying: Sequence[StoredRecord], edits: Sequence[RecordEdit]) -> None:
    owners = {namespace_of(one): one.id for one in staying if one.kind == "server"}
    for record in (edit.record for edit in edits):
        if isinstance(record, ServerRecord):
            owner = owners.setdefault(record.tool_namespace, record.server_id)
            if owner != record.server_id:
                raise InvalidRecord(
                    f"`tool_namespace`: server `{owner}` has `{record.tool_namespace}` already"
                )


COMMIT_CHECKS: Final[tuple[Check[PendingChange], ...]] = (require_writer_role, require_plan)
"""For a change that is to be stored, before anything is looked up."""
CHANGE_CHECKS: Final[tuple[Check[PendingChange], ...]] = (require_removal_in_ceiling,)
"""For every change, before its record is looked up: what is beyond a key's ceiling must not show itself."""
EDIT_CHECKS: Final[tuple[Check[RecordEdit], ...]] = (
    require_grant_in_ceiling,
    follow_operator_policy,
    replace_in_ceiling_only,
)
"""For every record, before and after."""
STORED_EDIT_CHECKS: Final[tuple[Check[RecordEdit], ...]] = (require_uploaded_module,)
"""For a record that is to be stored. A plan only warns of it."""
REGISTRY_CHECKS: Final = (limit_record_count, require_unique_namespaces)
"""For all edits together, with the records that stay as they are."""


def run_checks(checks: Iterable[Check[T]], context: CheckContext, subject: T) -> None:
    """Run `checks` in order. The first that fails raises."""
    for check in checks:
        check(context, subject)


def check_registry(listing: RecordList, edits: Sequence[RecordEdit]) -> None:
    """Run the checks of all edits together. Raises InvalidRecord."""
    touched = {edit.change.key for edit in edits}
    staying = [one for one in listing.records if RecordKey(one.kind, one.id) not in touched]
    for check in REGISTRY_CHECKS:
        check(staying, edits)
