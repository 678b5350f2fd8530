"""Keys: made here, shown once, stored as a hash. Nobody grants more than they have themselves."""

import secrets
from typing import Any, Final

from toolgate.errors import Conflict, Forbidden, InvalidRecord, NotFound, StorageFailed
from toolgate.gateway.identity import hash_key
from toolgate.model.principals import Ceiling, Principal
from toolgate.surfaces.rest.answers import Answer
from toolgate.surfaces.rest.changes import delete_record, put_record
from toolgate.surfaces.rest.control import Control
from toolgate.surfaces.rest.drafts import Draft
from toolgate.surfaces.rest.record_shapes import Deleted, KeyList, KeyMade, KeySent, KeyShown
from toolgate.surfaces.rest.records import find_record, show_record
from toolgate.surfaces.rest.roles import reaches
from toolgate.surfaces.rest.routing import Call, Endpoint, checked

PREFIX: Final = "tg_"
SECRET_BYTES: Final = 32
"""43 characters in the URL-safe alphabet: nothing to guess, so one round of hashing is enough."""


async def list_keys(control: Control, _call: Call[None]) -> Answer:
    """All keys, without their secrets and hashes."""
    listing = await control.store.list("key")
    return Answer({"revision": listing.revision, "keys": [show_record(one) for one in listing.records]})


async def read_key(control: Control, call: Call[None]) -> Answer:
    """One key, without its secret and hash."""
    stored = await find_record(control, "key", call.ids["key_id"])
    return Answer(show_record(stored), revision=stored.revision)


async def make_key(control: Control, call: Call[KeySent]) -> Answer:
    """Make a key. The answer holds its secret, which is not stored and cannot be shown again."""
    sent = call.body
    check_grant(call.caller, sent)
    secret = PREFIX + secrets.token_urlsafe(SECRET_BYTES)
    key = {**sent.model_dump(exclude_none=True), "sha256": hash_key(secret)}
    draft = Draft(kind="key", id=sent.key_id, sent=key, if_revision=0)
    made = await put_record(control, call.caller, draft)
    shown = {**show_record(made.stored), "secret": secret, "warnings": made.warnings}
    return Answer(shown, 201, revision=made.stored.revision)


async def revoke_key(control: Control, call: Call[None]) -> Answer:
    """Delete a key. The next request that shows it is refused, whatever session it belongs to."""
    key_id, if_revision = call.ids["key_id"], call.if_revision
    return Answer(
        await delete_record(control, call.caller, kind="key", record_id=key_id, if_revision=if_revision)
    )


def check_grant(grantor: Principal, sent: KeySent) -> None:
    """Raises Forbidden when the key would reach further than the one that makes it."""
    if not reaches(grantor.role, sent.role):
        raise Forbidden(f"a key of role `{grantor.role}` cannot make one of role `{sent.role}`")
    if not _is_within(sent.ceiling.value(), grantor.ceiling):
        raise Forbidden(
            "the key would reach further than the one that makes it",
            hint="give it a `ceiling` within your own",
        )


def _is_within(ceiling: Ceiling, outer: Ceiling) -> bool:
    """Whether `ceiling` plainly lies within `outer`: patterns are compared as text, not by their matches."""
    return (
        _is_narrower(ceiling.tasks, outer.tasks)
        and _is_narrower(ceiling.servers, outer.servers)
        and _is_narrower(ceiling.allow, outer.allow)
        and set(outer.deny) <= set(ceiling.deny)
    )


def _is_narrower(part: tuple[str, ...] | None, outer: tuple[str, ...] | None) -> bool:
    return outer is None or (part is not None and set(part) <= set(outer))


ENDPOINTS: Final[tuple[Endpoint[Any], ...]] = (
    Endpoint(
        method="GET",
        path="/admin/api/keys",
        role="viewer",
        summary="List the keys",
        handler=list_keys,
        answer=KeyList,
    ),
    Endpoint(
        method="POST",
        path="/admin/api/keys",
        role="admin",
        summary="Make a key",
        handler=make_key,
        body=checked(KeySent),
        answer=KeyMade,
        statuses=(201,),
        errors=(InvalidRecord, Conflict, StorageFailed),
    ),
    Endpoint(
        method="GET",
        path="/admin/api/keys/{key_id}",
        role="viewer",
        summary="Read a key",
        handler=read_key,
        answer=KeyShown,
        errors=(NotFound,),
    ),
    Endpoint(
        method="DELETE",
        path="/admin/api/keys/{key_id}",
        role="admin",
        summary="Revoke a key",
        handler=revoke_key,
        answer=Deleted,
        errors=(NotFound, Conflict, StorageFailed),
        is_conditional=True,
    ),
)
