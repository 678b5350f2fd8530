"""Keys: made here, shown once, stored as a hash. Nobody grants more than they have themselves."""

import secrets
from collections.abc import Mapping
from typing import Any, Final

from toolgate.errors import Conflict, InvalidRecord, NotFound, StorageFailed
from toolgate.gateway.auth.identity import hash_key
from toolgate.govern.changes.commit import commit_changes
from toolgate.govern.changes.permissions import find_record_within
from toolgate.govern.changes.records import PendingChange, show_record
from toolgate.govern.control import Control
from toolgate.registry.records.policy_bodies import QuotasBody
from toolgate.surfaces.rest.framework.paging import PAGING
from toolgate.surfaces.rest.framework.request import RestCall, validate_as
from toolgate.surfaces.rest.framework.response import RestResponse
from toolgate.surfaces.rest.framework.routing import RestEndpoint, delete, get, post, put
from toolgate.surfaces.rest.resources.collection import RecordCollection, RecordHistory, history_endpoint
from toolgate.surfaces.rest.resources.record_shapes import Deleted, KeyList, KeyMade, KeySent, KeyShown

KEY_PREFIX: Final = "tg_"
SECRET_BYTES: Final = 32
"""43 characters in the URL-safe alphabet: nothing to guess, so one round of hashing is enough."""

KEYS: Final = RecordCollection(
    kind="key", path="/admin/api/keys", sent=KeySent, shown=KeyShown, listed=KeyList, written=KeyMade
)
_ONE: Final = f"{KEYS.path}/{{key_id}}"


@post(
    KEYS.path,
    "admin",
    "Make a key",
    KEYS.written,
    body=validate_as(KeySent),
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
    f"{_ONE}/budgets",
    "admin",
    "Set what a key may use over time",
    KEYS.shown,
    body=validate_as(QuotasBody),
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
    _ONE, "admin", "Revoke a key", Deleted, errors=(NotFound, Conflict, StorageFailed), is_conditional=True
)
async def revoke_key(control: Control, call: RestCall[None]) -> RestResponse:
    """Delete a key. The next request that shows it is refused, whatever session it belongs to."""
    draft = PendingChange(kind="key", id=call.ids["key_id"], sent=None, if_revision=call.if_revision)
    done = await commit_changes(control, call.caller, [draft])
    return RestResponse(Deleted(revision=done.revision, warnings=done.warnings))


def _set_budgets(body: Mapping[str, Any], budgets: QuotasBody | None) -> dict[str, Any]:
    """A key that has none says nothing of them."""
    others = {name: value for name, value in body.items() if name != "budgets"}
    given = {} if budgets is None else budgets.model_dump(exclude_none=True)
    return {**others, "budgets": given} if given else others


ENDPOINTS: Final[tuple[RestEndpoint[Any], ...]] = (
    get(KEYS.path, "viewer", "List the keys", KEYS.listed, query=PAGING)(KEYS.list),
    make_key,
    get(_ONE, "viewer", "Read a key", KEYS.shown, errors=(NotFound,))(KEYS.read),
    set_budgets,
    revoke_key,
    history_endpoint(RecordHistory("key"), _ONE),
)
