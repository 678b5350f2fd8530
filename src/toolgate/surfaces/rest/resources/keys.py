"""Keys: made here, shown once, stored as a hash. Nobody grants more than they have themselves."""

import secrets
from collections.abc import Mapping
from typing import Any, Final

from toolgate.errors import Conflict, InvalidRecord, NotFound, StorageFailed
from toolgate.gateway.auth.identity import hash_key
from toolgate.govern.bounds import find_within
from toolgate.govern.changes.commit import commit_drafts, put_record
from toolgate.govern.changes.pending import Draft
from toolgate.govern.changes.records import show_record
from toolgate.govern.control import Control
from toolgate.registry.records.policy_bodies import TimeBudgetsBody
from toolgate.surfaces.rest.framework.paging import PAGING
from toolgate.surfaces.rest.framework.response import Answer
from toolgate.surfaces.rest.framework.routing import Call, Endpoint, checked
from toolgate.surfaces.rest.histories import Past, history_endpoint
from toolgate.surfaces.rest.resources.collection import Collection
from toolgate.surfaces.rest.resources.record_shapes import Deleted, KeyList, KeyMade, KeySent, KeyShown

PREFIX: Final = "tg_"
SECRET_BYTES: Final = 32
"""43 characters in the URL-safe alphabet: nothing to guess, so one round of hashing is enough."""

KEYS: Final = Collection(
    kind="key", path="/admin/api/keys", sent=KeySent, shown=KeyShown, listed=KeyList, written=KeyMade
)
_ONE: Final = f"{KEYS.path}/{{key_id}}"


async def make_key(control: Control, call: Call[KeySent]) -> Answer:
    """Make a key. The answer holds its secret, which is not stored and cannot be shown again."""
    sent = call.body
    secret = PREFIX + secrets.token_urlsafe(SECRET_BYTES)
    body = {**sent.model_dump(exclude_none=True), "sha256": hash_key(secret)}
    key = _with_budgets(body, sent.budgets)
    draft = Draft(kind="key", id=sent.key_id, sent=key, if_revision=0)
    made = await put_record(control, call.caller, draft)
    shown = {**show_record(made.stored), "secret": secret, "warnings": made.warnings}
    return Answer(shown, 201, revision=made.stored.revision)


async def set_budgets(control: Control, call: Call[TimeBudgetsBody]) -> Answer:
    """Replace what a key may use over time; budgets left out are taken away. What is used stays used."""
    stored = await find_within(control, call.caller, "key", call.ids["key_id"])
    key = _with_budgets(stored.body, call.body)
    if_revision = stored.revision if call.if_revision is None else call.if_revision
    draft = Draft(kind="key", id=stored.id, sent=key, if_revision=if_revision)
    written = await put_record(control, call.caller, draft)
    return Answer(show_record(written.stored), revision=written.stored.revision)


async def revoke_key(control: Control, call: Call[None]) -> Answer:
    """Delete a key. The next request that shows it is refused, whatever session it belongs to."""
    draft = Draft(kind="key", id=call.ids["key_id"], sent=None, if_revision=call.if_revision)
    done = await commit_drafts(control, call.caller, [draft])
    return Answer(Deleted(revision=done.revision, warnings=done.warnings))


def _with_budgets(body: Mapping[str, Any], budgets: TimeBudgetsBody | None) -> dict[str, Any]:
    """A key that has none says nothing of them."""
    others = {name: value for name, value in body.items() if name != "budgets"}
    given = {} if budgets is None else budgets.model_dump(exclude_none=True)
    return {**others, "budgets": given} if given else others


ENDPOINTS: Final[tuple[Endpoint[Any], ...]] = (
    Endpoint(
        method="GET",
        path=KEYS.path,
        role="viewer",
        summary="List the keys",
        handler=KEYS.list,
        query=PAGING,
        answer=KEYS.listed,
    ),
    Endpoint(
        method="POST",
        path=KEYS.path,
        role="admin",
        summary="Make a key",
        handler=make_key,
        body=checked(KeySent),
        answer=KEYS.written,
        statuses=(201,),
        errors=(InvalidRecord, Conflict, StorageFailed),
    ),
    Endpoint(
        method="GET",
        path=_ONE,
        role="viewer",
        summary="Read a key",
        handler=KEYS.read,
        answer=KEYS.shown,
        errors=(NotFound,),
    ),
    Endpoint(
        method="PUT",
        path=f"{_ONE}/budgets",
        role="admin",
        summary="Set what a key may use over time",
        handler=set_budgets,
        body=checked(TimeBudgetsBody),
        answer=KEYS.shown,
        errors=(InvalidRecord, NotFound, Conflict, StorageFailed),
        is_conditional=True,
    ),
    Endpoint(
        method="DELETE",
        path=_ONE,
        role="admin",
        summary="Revoke a key",
        handler=revoke_key,
        answer=Deleted,
        errors=(NotFound, Conflict, StorageFailed),
        is_conditional=True,
    ),
    history_endpoint(Past("key"), _ONE),
)
