"""What a bound key acts on: records and approvals within its ceiling, and nothing that is for all callers.

A ceiling binds administrators, too. What is outside of it answers like what does not exist: the id alone is
checked before anything is looked up, and what was found to reach further is reported as not found.
"""

from toolgate.errors import Forbidden, InvalidRecord
from toolgate.govern.changes.permissions import check_grant, check_removal
from toolgate.govern.changes.records import find_record, unknown_record
from toolgate.govern.control import Control
from toolgate.model.approvals import Question
from toolgate.model.effects import UNSTATED
from toolgate.model.names import ToolRef
from toolgate.model.principals import Ceiling, Principal
from toolgate.model.revisions import Kind, Stored
from toolgate.policy.offers import approved_effects, native_name
from toolgate.policy.reach import BOUNDLESS, is_in_ceiling
from toolgate.registry.records.codec import parse_record


def is_within(actor: Principal, stored: Stored) -> bool:
    """Whether a record reaches no further than `actor`, which may then change it, or take it from others."""
    if actor.ceiling == Ceiling():
        return True
    try:
        check_grant(actor, parse_record(stored.kind, stored.id, stored.body, strict=False))
    except (Forbidden, InvalidRecord):
        return False
    return True


def acts_on_server(actor: Principal, server_id: str) -> bool:
    """Whether `actor` may do something with a server that concerns all its callers, by its ceiling."""
    try:
        check_removal(actor, "server", server_id)
    except Forbidden:
        return False
    return True


async def find_within(control: Control, actor: Principal, kind: Kind, record_id: str) -> Stored:
    """The record, for `actor` to do something with. Raises Forbidden and NotFound."""
    if kind != "key":
        check_removal(actor, kind, record_id)
    stored = await find_record(control, kind, record_id)
    if not is_within(actor, stored):
        raise unknown_record(kind, record_id)
    return stored


def judges(control: Control, actor: Principal, question: Question) -> bool:
    """Whether `actor` may see and decide on a call: its own, or one of what its ceiling contains."""
    if actor.ceiling == BOUNDLESS or question.principal == actor.id:
        return True
    snapshot = control.gateway.snapshot
    offer, pin = snapshot.servers.get(question.server_id), snapshot.pins.get(question.server_id)
    return is_in_ceiling(
        actor.ceiling,
        ToolRef(question.server_id, question.tool),
        task_id=question.task_id or None,
        effects=UNSTATED if offer is None else approved_effects(offer, pin, question.tool),
        native_name="" if offer is None else native_name(offer, question.tool),
    )
