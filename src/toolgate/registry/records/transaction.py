"""Plans a transaction without a store: writes and the records they touch in, changes out.

The store commits exactly the changes that `plan_transaction` returns, on every engine. Bodies pass through
JSON: a caller that changes its dict later does not change the record.
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, Final, NamedTuple

import msgspec

from toolgate.errors import Conflict, InvalidRecord, NotFound
from toolgate.model.revisions import Body, Kind, RecordChange, RecordWrite, StoredRecord

decode_body: Final = msgspec.json.Decoder(dict[str, Any]).decode
_encode_sorted: Final = msgspec.json.Encoder(order="sorted").encode


class RecordKey(NamedTuple):
    """The identity of a record."""

    kind: Kind
    id: str

    def __str__(self) -> str:
        return f"{self.kind} `{self.id}`"


def encode_body(body: Body) -> str:
    """Encode `body` as JSON text that `decode_body` reads back. Raises InvalidRecord."""
    try:
        text = json.dumps(body, ensure_ascii=False, allow_nan=False, separators=(",", ":"), default=_as_dict)
        decode_body(text.encode("utf-8"))
    except (TypeError, ValueError, RecursionError, msgspec.MsgspecError) as exc:
        raise InvalidRecord("the body is not JSON: use objects, lists, text and finite numbers") from exc
    return text


def plan_transaction(
    writes: Sequence[RecordWrite],
    current: Mapping[RecordKey, StoredRecord],
    *,
    revision: int,
    actor: str,
    at_ms: int,
) -> tuple[RecordChange, ...]:
    """Return the changes of `writes`, to be committed as `revision`. Empty if nothing differs.

    `current` has the existing records that the writes touch. Raises Conflict and NotFound.
    """
    keys = [RecordKey(write.kind, write.id) for write in writes]
    if len(set(keys)) < len(keys):
        raise InvalidRecord("a transaction has duplicate records")
    make_change, changes = partial(RecordChange, revision=revision, at_ms=at_ms), []
    for key, write in zip(keys, writes, strict=True):
        stored = current.get(key)
        _check_precondition(key, write, stored)
        before = stored.body if stored else None
        after = None if write.body is None else decode_body(encode_body(write.body))
        # Compared as JSON: the order of members does not matter, but `1`, `1.0` and `true` differ.
        if _encode_sorted(before) != _encode_sorted(after):
            of_record = {**key._asdict(), "operation": "delete" if after is None else "put"}
            changes.append(make_change(**of_record, actor=write.actor or actor, before=before, after=after))
    return tuple(changes)


def record_after(change: RecordChange) -> StoredRecord | None:
    if change.after is None:
        return None
    return StoredRecord(
        kind=change.kind,
        id=change.id,
        body=change.after,
        revision=change.revision,
        updated_at_ms=change.at_ms,
        actor=change.actor,
    )


def start_digest(seed: str) -> str:
    """Return the digest before the first chained transaction. `seed` is as unique as the history."""
    return hashlib.sha256(seed.encode()).hexdigest()


def chain_digest(previous: str, revision: int, changes: Sequence[RecordChange]) -> str:
    """Return the digest of a log after one more transaction. Equal digests mean equal logs."""
    lines = [(one.kind, one.id, one.actor, one.at_ms, one.after) for one in changes]
    return hashlib.sha256(_encode_sorted((previous, revision, lines))).hexdigest()


def _check_precondition(key: RecordKey, write: RecordWrite, stored: StoredRecord | None) -> None:
    if write.body is None and stored is None:
        raise NotFound(f"there is no {key}")
    found = stored.revision if stored else 0
    if write.if_revision is None or write.if_revision == found:
        return
    if write.if_revision == 0:
        raise Conflict(f"{key} exists already, at revision {found}")
    now = f"is at revision {found}" if stored else "does not exist"
    raise Conflict(f"{key} {now}, not at {write.if_revision}", data={"revision": found})


def _as_dict(value: object) -> dict[Any, Any]:
    if isinstance(value, Mapping):
        return dict(value)
    raise TypeError(f"{type(value).__name__} is not JSON")
