"""Who may write what: roles, ceilings and quotas. No one can grant more than they have.

A ceiling binds administrators, too. What is beyond it answers like what does not exist: the id is checked
before anything is looked up, and a record that turns out to reach further is reported as not found.
"""

from collections.abc import Iterable, Mapping
from math import inf
from typing import Final

from toolgate.errors import Forbidden, InvalidRecord
from toolgate.gateway.auth.identity import reaches
from toolgate.govern.changes.records import find_record, record_not_found
from toolgate.govern.control import Control
from toolgate.model.approvals import ApprovalRequest
from toolgate.model.chat import ChatUpstream
from toolgate.model.names import ToolRef
from toolgate.model.packages import Package
from toolgate.model.principals import Ceiling, IntegrationChoice, InternalSecret, Key, Principal, Role
from toolgate.model.revisions import Kind, StoredRecord, describe_kind
from toolgate.model.servers import ServerRecord
from toolgate.model.tasks import Profile, Task
from toolgate.model.tools import Pin
from toolgate.policy.admission import is_narrower
from toolgate.policy.layers import parse_task_policy
from toolgate.policy.resolve import NO_CEILING
from toolgate.policy.rules import is_in_ceiling, read_approved
from toolgate.registry.records.codec import Record, parse_record

WRITER_ROLES: Final[Mapping[Kind, Role]] = {
    "server": "admin",
    "task": "publisher",
    "profile": "publisher",
    "key": "admin",
    "pin": "admin",
    "package": "admin",
    "chat_upstream": "admin",
}
"""The least role that may write a kind. Only the gateway writes a `secret`, and only its caller a
`choice`."""
_FOR_ALL: Final = "a chat upstream is for all callers"
"""The model requests of all of them go there."""


def check_role(actor: Principal, kind: Kind) -> None:
    """Raise Forbidden if the role of `actor` may not write records of this kind."""
    needed = WRITER_ROLES.get(kind)
    if needed is None or not reaches(actor.role, needed):
        raise Forbidden(
            f"writing a {describe_kind(kind)} needs the role `{needed or 'of the gateway itself'}`"
        )


def check_grant(actor: Principal, record: Record) -> None:
    """Raise Forbidden if `record` would let someone reach further than `actor` does."""
    match record:
        case Key():
            _check_key(actor, record)
        case Task():
            policy = parse_task_policy(record)
            _check_task_id(actor, record.task_id)
            names_all = not (policy.profile or policy.tags) or policy.allowed is not None
            named = (*policy.default, *(policy.allowed or ()))
            _check_servers(actor, named if names_all and policy.enforced else None)
            rules = (policy.allow, policy.deny) if policy.enforced else (None, ())
            _check_tools(actor, *rules)
        case Profile():
            _check_no_task_ceiling(actor)
            for selection in record.selections:
                _check_servers(actor, selection.servers)
                _check_tools(actor, selection.allow, selection.deny)
        case ServerRecord() | Pin():
            _check_server(actor, record.server_id)
        case Package():
            _check_server(actor, record.package_id)
        case ChatUpstream():
            check_unbounded(actor, _FOR_ALL)
        case InternalSecret() | IntegrationChoice():
            raise AssertionError  # never written this way: see WRITER_ROLES


def check_removal(actor: Principal, kind: Kind, record_id: str) -> None:
    """Raise Forbidden if the ceiling of `actor` is narrower than what it would take from others."""
    match kind:
        case "task":
            _check_task_id(actor, record_id)
        case "profile":
            _check_no_task_ceiling(actor)
        case "chat_upstream":
            check_unbounded(actor, _FOR_ALL)
        case "server" | "pin" | "package":
            _check_server(actor, record_id)
        case _:
            check_unbounded(actor, "revokes no other")


def _check_key(grantor: Principal, key: Key) -> None:
    if key.role != "node" and not reaches(grantor.role, key.role):
        raise Forbidden(f"a key of role `{grantor.role}` cannot make one of role `{key.role}`")
    if not _is_ceiling_within(key.ceiling, grantor.ceiling) or (
        key.role == "node" and grantor.ceiling != Ceiling()
    ):
        raise Forbidden(
            "the key would reach further than the one that makes it",
            hint="give it a `ceiling` within your own",
        )
    if grantor.expires_at_s is not None and (key.expires_at_s or inf) > grantor.expires_at_s:
        raise Forbidden(
            "the key would outlive the one that makes it",
            hint=f"let it expire by {grantor.expires_at_s}, as your own does",
        )
    if grantor.budgets is not None and not is_narrower(key.budgets, grantor.budgets):
        raise Forbidden(
            "the key could use more over time than the one that makes it",
            hint="give it `budgets`, each at most as large as your own",
        )


def _check_server(actor: Principal, server_id: str) -> None:
    """A server and its pin are for all its callers: a ceiling of the writer may name servers only."""
    if actor.ceiling != Ceiling(servers=actor.ceiling.servers):
        raise Forbidden("your key is bound to tasks or tools, and a server is for all of them")
    _check_servers(actor, [server_id])


def _check_no_task_ceiling(actor: Principal) -> None:
    if actor.ceiling.tasks is not None:
        raise Forbidden("your key is bound to tasks, and a profile is for all of them")


def check_unbounded(actor: Principal, why: str) -> None:
    """Raise Forbidden if `actor` has any ceiling, with the reason why that matters."""
    if actor.ceiling != Ceiling():
        raise Forbidden(f"your key is bound, and {why}", hint="ask for a key without a `ceiling`")


def _check_task_id(actor: Principal, task_id: str) -> None:
    tasks = actor.ceiling.tasks
    if tasks is not None and task_id not in tasks:
        raise Forbidden("your key is bound to other tasks", hint="ask for a key that may write this one")


def _check_servers(actor: Principal, servers: Iterable[str] | None) -> None:
    """None: the record reaches servers that it does not name."""
    within = actor.ceiling.servers
    if within is not None and (servers is None or not set(servers) <= set(within)):
        raise Forbidden(
            "the record would reach further than the key that writes it",
            hint="name servers within your key's own `ceiling`",
        )


def _check_tools(actor: Principal, allow: tuple[str, ...] | None, deny: tuple[str, ...]) -> None:
    if not _is_ceiling_within(
        Ceiling(allow=allow, deny=deny), Ceiling(allow=actor.ceiling.allow, deny=actor.ceiling.deny)
    ):
        raise Forbidden(
            "the record would reach tools that the key that writes it does not",
            hint="allow patterns of your key's own `ceiling` only, and deny all that it denies",
        )


def _is_ceiling_within(ceiling: Ceiling, outer: Ceiling) -> bool:
    """Whether `ceiling` lies within `outer`. Patterns are compared as text, not by what they match."""
    selections = (
        (ceiling.tasks, outer.tasks),
        (ceiling.servers, outer.servers),
        (ceiling.allow, outer.allow),
    )
    return set(outer.deny) <= set(ceiling.deny) and all(
        most is None or (part is not None and set(part) <= set(most)) for part, most in selections
    )


def is_within_ceiling(actor: Principal, stored: StoredRecord) -> bool:
    """Whether a record reaches no further than `actor`, so that it may change or delete it."""
    if actor.ceiling == Ceiling():
        return True
    try:
        check_grant(actor, parse_record(stored.kind, stored.id, stored.body, strict=False))
    except (Forbidden, InvalidRecord):
        return False
    return True


def may_act_on_server(actor: Principal, server_id: str) -> bool:
    """Whether the ceiling of `actor` lets it act on a server for all its callers."""
    try:
        check_removal(actor, "server", server_id)
    except Forbidden:
        return False
    return True


async def find_record_within(control: Control, actor: Principal, kind: Kind, record_id: str) -> StoredRecord:
    """The record, for `actor` to act on. Raises Forbidden and NotFound."""
    if kind != "key":
        check_removal(actor, kind, record_id)
    stored = await find_record(control, kind, record_id)
    if not is_within_ceiling(actor, stored):
        raise record_not_found(kind, record_id)
    return stored


def may_decide(control: Control, actor: Principal, question: ApprovalRequest) -> bool:
    """Whether `actor` may see and decide on a call: its own, or one that its ceiling contains."""
    if actor.ceiling == NO_CEILING or question.principal == actor.id:
        return True
    ref, task_id = ToolRef(question.server_id, question.tool), question.task_id or None
    native, effects = read_approved(control.gateway.snapshot, ref)
    return is_in_ceiling(actor.ceiling, ref, task_id=task_id, effects=effects, native_name=native)
