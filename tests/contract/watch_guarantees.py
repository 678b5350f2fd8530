"""What a watch promises, each promise a validator over what one watcher saw.

`committed` holds every transaction, by revision, as its writer knows it; `seen` is what one watcher got
that began after `since`, whether in one piece or over several resumed watches.
"""

from collections.abc import Iterable, Mapping, Sequence

from toolgate.model.revisions import ChangeBatch, RecordWrite

Committed = Mapping[int, Sequence[RecordWrite]]


def events(seen: Iterable[ChangeBatch]) -> list[ChangeBatch]:
    return [batch for batch in seen if batch.changes]


def is_ordered(seen: Sequence[ChangeBatch]) -> bool:
    """Revisions never decrease, bookmarks included."""
    revisions = [batch.revision for batch in seen]
    return revisions == sorted(revisions)


def is_unique(seen: Sequence[ChangeBatch]) -> bool:
    """No transaction comes twice, not even to a watcher that resumed."""
    revisions = [batch.revision for batch in events(seen)]
    return len(set(revisions)) == len(revisions)


def is_atomic(seen: Sequence[ChangeBatch], committed: Committed) -> bool:
    """A batch holds one whole transaction, as it was written."""
    return all(
        [(change.kind, change.id, change.after) for change in batch.changes]
        == [(write.kind, write.id, write.body) for write in committed[batch.revision]]
        and {change.revision for change in batch.changes} == {batch.revision}
        for batch in events(seen)
    )


def is_reliable(seen: Sequence[ChangeBatch], committed: Committed, *, since: int) -> bool:
    """Between its start and the last thing it saw, a watcher missed nothing."""
    newest = max((batch.revision for batch in seen), default=since)
    expected = [revision for revision in sorted(committed) if since < revision <= newest]
    return [batch.revision for batch in events(seen)] == expected


def is_resumable(seen: Sequence[ChangeBatch], *, since: int) -> bool:
    """Nothing at or before the revision one resumes from comes again."""
    return all(batch.revision > since for batch in events(seen))


def is_bookmarked(seen: Sequence[ChangeBatch], committed: Committed, *, since: int) -> bool:
    """A bookmark R comes after everything up to R, and never runs ahead of what was committed."""
    delivered: set[int] = set()
    for batch in seen:
        if batch.changes:
            delivered.add(batch.revision)
            continue
        promised = {revision for revision in committed if since < revision <= batch.revision}
        if promised - delivered or batch.revision > max(committed, default=0):
            return False
    return True


def broken_guarantees(seen: Sequence[ChangeBatch], committed: Committed, *, since: int) -> list[str]:
    """The names of the promises that do not hold; an empty list is what one wants to see."""
    holds = {
        "ordered": is_ordered(seen),
        "unique": is_unique(seen),
        "atomic": is_atomic(seen, committed),
        "reliable": is_reliable(seen, committed, since=since),
        "resumable": is_resumable(seen, since=since),
        "bookmarked": is_bookmarked(seen, committed, since=since),
    }
    return [name for name, held in holds.items() if not held]
