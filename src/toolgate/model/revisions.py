"""What the registry stores and says about it: records, changes, events. To the store all kinds are one."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

Kind = Literal["server", "task", "profile", "key", "pin", "package", "chat_upstream", "secret", "choice"]
Operation = Literal["put", "delete"]
Body = Mapping[str, Any]


def describe_kind(kind: Kind) -> str:
    """What people call a record of this kind."""
    return kind.replace("_", " ")


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredRecord:
    """One record at the revision that last wrote it."""

    kind: Kind
    id: str
    body: Body
    revision: int
    updated_at_ms: int
    actor: str = ""
    """Who wrote it last; unlike the change log it is never compacted away."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordWrite:
    """One thing to do in a transaction. `body` None deletes; `if_revision` 0 means "must not exist"."""

    kind: Kind
    id: str
    body: Body | None
    if_revision: int | None = None
    actor: str | None = None
    """Who this one is by, where not by the transaction's own actor."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordChange:
    """One line of the change log."""

    revision: int
    kind: Kind
    id: str
    operation: Operation
    actor: str
    at_ms: int
    before: Body | None
    after: Body | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangeBatch:
    """All changes of one transaction (one revision), or, with no changes, a bookmark of `revision`."""

    revision: int
    changes: tuple[RecordChange, ...] = ()
    digest: str = field(default="", compare=False)
    """Of the log up to `revision`: another one at the same revision is another history. Empty: not known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordList:
    """Everything at one revision."""

    epoch: str
    revision: int
    records: tuple[StoredRecord, ...]
    digest: str = field(default="", compare=False)
    """Of the log up to `revision`; see `Batch`."""
