"""Who may write what: roles, ceilings and quotas. No principal can grant more than it has.

A ceiling binds administrators, too. A record beyond it looks like one that does not exist: the id is checked
before the record is read, and a record that exceeds the ceiling is reported as not found.
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
"""The lowest role that may write a kind. Only the gateway writes a `secret`, and only its caller a
`choice`."""
_FOR_ALL: Final = "a chat upstream is for all callers"
"""It gets the model requests of all callers."""


def check_role(actor: Principal, kind: Kind) -> None:
    """Raise Forbidden if the role of `actor` may not write records of this kind."""
    needed = WRITER_ROLES.get(kind)
    if needed is None:
        raise Forbidden(f"only the gateway itself writes a {describe_kind(kind)}")
    if not reaches(actor.role, needed):
        raise Forbidden(f"writing a {describe_kind(kind)} requires the role `{needed}`")


def check_grant(actor: Principal, record: Record) -> None:
    """Raise Forbidden if `record` would grant more than `actor` has."""
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
            raise AssertionError  # no caller writes these: see WRITER_ROLES


def check_removal(actor: Principal, kind: Kind, record_id: str) -> None:
    """Raise Forbidden if a removal affects callers beyond the ceiling of `actor`."""
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
            check_unbounded(actor, "such a key cannot revoke other keys")


def _check_key(grantor: Principal, key: Key) -> None:
    if key.role != "node" and not reaches(grantor.role, key.role):
        raise Forbidden(f"a key of role `{grantor.role}` cannot create a key of role `{key.role}`")
    if not _is_ceiling_within(key.ceiling, grantor.ceiling) or (
        key.role == "node" and grantor.ceiling != Ceiling()
    ):
        raise Forbidden(
            "the new key would have a wider ceiling than the key that creates it",
            hint="give it a `ceiling` within your key's",
        )
    if grantor.expires_at_s is not None and (key.expires_at_s or inf) > grantor.expires_at_s:
        raise Forbidden(
            "the new key would expire later than the key that creates it",
            hint=f"set `expires_at_s` to at most {grantor.expires_at_s}, as in your key",
        )
    if grantor.budgets is not None and not is_narrower(key.budgets, grantor.budgets):
        raise Forbidden(
            "the new key would have larger quotas than the key that creates it",
            hint="set each quota in `budgets` to at most your key's",
        )


def _check_server(actor: Principal, server_id: str) -> None:
    """A server and its pin are for all callers: the writer's ceiling may name servers only."""
    if actor.ceiling != Ceiling(servers=actor.ceiling.servers):
        raise Forbidden("your key is bound to tasks or tools, and a server is for all tasks and tools")
    _check_servers(actor, [server_id])


def _check_no_task_ceiling(actor: Principal) -> None:
    if actor.ceiling.tasks is not None:
        raise Forbidden("your key is bound to tasks, and a profile is for all tasks")


def check_unbounded(actor: Principal, why: str) -> None:
    """Raise Forbidden if `actor` has a ceiling; `why` is the reason in the message."""
    if actor.ceiling != Ceiling():
        raise Forbidden(
            f"your key has a `ceiling`, and {why}", hint="ask an admin for a key without a `ceiling`"
        )


def _check_task_id(actor: Principal, task_id: str) -> None:
    tasks = actor.ceiling.tasks
    if tasks is not None and task_id not in tasks:
        raise Forbidden(
            f"your key is bound to other tasks than `{task_id}`",
            hint="ask an admin for a key that may write this task",
        )


def _check_servers(actor: Principal, servers: Iterable[str] | None) -> None:
    """Check the servers of a record. None: its servers are not limited to those it names."""
    within = actor.ceiling.servers
    if within is not None and (servers is None or not set(servers) <= set(within)):
        raise Forbidden(
            "the record would allow servers beyond your key's ceiling",
            hint="name only servers within your key's `ceiling`",
        )


def _check_tools(actor: Principal, allow: tuple[str, ...] | None, deny: tuple[str, ...]) -> None:
    if not _is_ceiling_within(
        Ceiling(allow=allow, deny=deny), Ceiling(allow=actor.ceiling.allow, deny=actor.ceiling.deny)
    ):
        raise Forbidden(
            "the record would allow tools beyond your key's ceiling",
            hint="allow only patterns in your key's `ceiling`, and deny all that it denies",
        )


def _is_ceiling_within(ceiling: Ceiling, outer: Ceiling) -> bool:
    """Whether `ceiling` lies within `outer`. Patterns are compared as text, not by their matches."""
    selections = (
        (ceiling.tasks, outer.tasks),
        (ceiling.servers, outer.servers),
        (ceiling.allow, outer.allow),
    )
    return set(outer.deny) <= set(ceiling.deny) and all(
        most is None or (part is not None and set(part) <= set(most)) for part, most in selections
    )


def is_within_ceiling(actor: Principal, stored: StoredRecord) -> bool:
    """Whether a record lies within the ceiling of `actor`, which then may change or delete it."""
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
    """Find a record that `actor` may act on. Raises Forbidden and NotFound."""
    if kind != "key":
        check_removal(actor, kind, record_id)
    stored = await find_record(control, kind, record_id)
    if not is_within_ceiling(actor, stored):
        raise record_not_found(kind, record_id)
    return stored


def may_decide(control: Control, actor: Principal, request: ApprovalRequest) -> bool:
    """Whether `actor` may see and decide an approval: of its own call, or within its ceiling."""
    if actor.ceiling == NO_CEILING or request.principal == actor.id:
        return True
    ref, task_id = ToolRef(request.server_id, request.tool), request.task_id or None
    native, effects = read_approved(control.gateway.snapshot, ref)
    return is_in_ceiling(actor.ceiling, ref, task_id=task_id, effects=effects, native_name=native)
