"""Keys: made here, shown once, stored as a hash. No one grants more than they have themselves."""

import secrets
from collections.abc import Mapping
from typing import Any, Final

from toolgate.errors import Conflict, InvalidRecord, NotFound, StorageFailed
from toolgate.gateway.auth.identity import hash_key
from toolgate.govern.changes.commit import commit_changes
from toolgate.govern.changes.permissions import find_record_within
from toolgate.govern.changes.records import PendingChange, show_record
from toolgate.govern.control import Control
from toolgate.model.principals import IntegrationState, Role
from toolgate.registry.records.body import StrictBody
from toolgate.registry.records.fields import Name, UnixTime
from toolgate.registry.records.policy_bodies import CeilingBody, QuotasBody
from toolgate.surfaces.rest.framework.request import RestCall
from toolgate.surfaces.rest.framework.response import RestResponse, Revision
from toolgate.surfaces.rest.framework.routing import RestEndpoint, delete, post, put
from toolgate.surfaces.rest.resources.collection import (
    Deleted,
    RecordCollection,
    RecordShapes,
    build_list_shape,
)

KEY_PREFIX: Final = "tg_"
SECRET_BYTES: Final = 32
"""43 characters in the URL-safe alphabet: nothing to guess, so one round of hashing is enough."""


class KeySent(StrictBody):
    """A key to be made. Its secret is chosen by the gateway."""

    key_id: Name
    """The principal's name in audit and logs."""
    role: Role
    """At most the role of who makes it."""
    ceiling: CeilingBody = CeilingBody()
    """The most it may ever reach; within the ceiling of who makes it."""
    default_task: Name | None = None
    """The task of a request that names none."""
    expires_at_s: UnixTime | None = None
    """Unix time after which it proves nothing."""
    budgets: QuotasBody | None = None
    """What all who use it may use over time, together."""
    integrations: IntegrationState = "on"
    """What its callers have of each server before they choose for themselves: `on` all its tools, `read_only`
    those marked as read-only, `off` nothing."""


class KeyShown(KeySent):
    """A key without its secret, which cannot be shown again."""

    revision: Revision


class KeyMade(KeyShown):
    """A new key. Only this response ever holds its secret."""

    secret: str
    warnings: list[str]


KEYS: Final = RecordCollection(
    kind="key",
    path="/admin/api/keys",
    shapes=RecordShapes(KeySent, KeyShown, build_list_shape("key", KeyShown), KeyMade),
)


@post(
    KEYS.path,
    "admin",
    "Make a key",
    KeyMade,
    statuses=(201,),
    errors=(InvalidRecord, Conflict, StorageFailed),
)
async def make_key(control: Control, call: RestCall[KeySent]) -> RestResponse:
    """Make a key. The answer holds its secret, which is not stored and cannot be shown again."""
    sent = call.body
    secret = KEY_PREFIX + secrets.token_urlsafe(SECRET_BYTES)
    body = {**sent.model_dump(exclude_none=True), "sha256": hash_key(secret)}
    key = _set_budgets(body, sent.budgets)
    draft = PendingChange(kind="key", id=sent.key_id, sent=key, if_revision=0)
    made = await commit_changes(control, call.caller, [draft])
    shown = {**show_record(made.stored), "secret": secret, "warnings": made.warnings}
    return RestResponse(shown, 201, revision=made.stored.revision)


@put(
    f"{KEYS.one_path}/budgets",
    "admin",
    "Set what a key may use over time",
    KeyShown,
    errors=(InvalidRecord, NotFound, Conflict, StorageFailed),
    is_conditional=True,
)
async def set_budgets(control: Control, call: RestCall[QuotasBody]) -> RestResponse:
    """Replace what a key may use over time; budgets left out are taken away. What is used stays used."""
    stored = await find_record_within(control, call.caller, "key", call.ids["key_id"])
    key = _set_budgets(stored.body, call.body)
    if_revision = stored.revision if call.if_revision is None else call.if_revision
    draft = PendingChange(kind="key", id=stored.id, sent=key, if_revision=if_revision)
    written = await commit_changes(control, call.caller, [draft])
    return RestResponse(show_record(written.stored), revision=written.stored.revision)


@delete(
    KEYS.one_path, "admin", "Revoke a key", errors=(NotFound, Conflict, StorageFailed), is_conditional=True
)
async def revoke_key(control: Control, call: RestCall[None]) -> Deleted:
    """Delete a key. The next request that shows it is refused, whatever session it belongs to."""
    draft = PendingChange(kind="key", id=call.ids["key_id"], sent=None, if_revision=call.if_revision)
    done = await commit_changes(control, call.caller, [draft])
    return Deleted.of(done)


def _set_budgets(body: Mapping[str, Any], budgets: QuotasBody | None) -> dict[str, Any]:
    """A key that has none says nothing of them."""
    others = {name: value for name, value in body.items() if name != "budgets"}
    given = {} if budgets is None else budgets.model_dump(exclude_none=True)
    return {**others, "budgets": given} if given else others


_ROWS: Final = KEYS.endpoints()
ENDPOINTS: Final[tuple[RestEndpoint[Any], ...]] = (
    _ROWS["list"],
    make_key,
    _ROWS["read"],
    set_budgets,
    revoke_key,
    _ROWS["history"],
)
